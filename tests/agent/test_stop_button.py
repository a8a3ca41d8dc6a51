"""The live page's stop button: its requests, the programs that may send one, and confirmed stops."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.runs.storage import stop_request
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.stop_request import (
    StopAnswer,
    StopListener,
    ask_process,
    stop_options,
)
from horde_agent.watch import server
from horde_agent.watch.reader import RunReader
from tests.agent.doubles import ToyBody
from tests.agent.test_watch import lived

SERIAL = {"robot": "create2", "backend": "serial", "port": "/dev/robot"}


# ---- the request -----------------------------------------------------------------------------------------------------


def listening(
    folder: Path, stop: Callable[[], str], options: dict[str, str] | None = None
) -> StopListener:
    folder.mkdir(exist_ok=True)
    listener = StopListener(RunFolder(folder), stop)
    listener.open(options or {})
    return listener


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_request_is_confirmed_only_after_the_robot_was_stopped_and_closed(
    is_stopped: bool, tmp_path: Path
) -> None:
    is_asked = threading.Event()
    answers: list[StopAnswer | None] = []

    def stop() -> str:
        is_asked.set()
        return "the latch is set"

    listener = listening(tmp_path, stop)
    page = threading.Thread(target=lambda: answers.append(ask_process(RunFolder(tmp_path))))
    page.start()
    assert is_asked.wait(10.0)
    assert not answers
    listener.close(is_stopped=is_stopped)
    page.join()
    assert answers == [StopAnswer(is_stopped, "the latch is set")]


def test_many_requests_stop_the_robot_once(tmp_path: Path) -> None:
    stops: list[int] = []
    is_asked = threading.Semaphore(0)

    def stop() -> str:
        stops.append(1)
        is_asked.release()
        return ""

    listener = listening(tmp_path, stop)
    answers: list[StopAnswer | None] = []
    pages = [
        threading.Thread(target=lambda: answers.append(ask_process(RunFolder(tmp_path))))
        for _ in range(5)
    ]
    for page in pages:
        page.start()
    assert is_asked.acquire(timeout=10.0)
    listener.close(is_stopped=True)
    for page in pages:
        page.join()
    assert len(stops) == 1
    # None: it came after the end
    assert set(answers) <= {StopAnswer(is_confirmed=True, said=""), None}
    assert StopAnswer(is_confirmed=True, said="") in answers


def test_nobody_stops_a_robot_without_the_token_of_its_run(tmp_path: Path) -> None:
    """The file with the token is readable by its user only, and is removed with the robot."""
    listener = listening(tmp_path, lambda: pytest.fail("this request had no token"))
    file = tmp_path / ".stop"
    assert file.stat().st_mode & 0o077 == 0
    address = json.loads(file.read_text())
    for words in (b"guess\n", b"\n", b"x" * 4096):
        with socket.create_connection(("127.0.0.1", address["port"]), 5.0) as connection:
            connection.sendall(words)
            assert connection.recv(100) == b""
    listener.close(is_stopped=True)
    assert not file.exists()
    assert ask_process(RunFolder(tmp_path)) is None


class Hung(NamedTuple):
    """A process that hangs.

    Attributes:
        accepts: Whether its listener still works: only its step hangs then.
        said: A part of the page's sentence.
    """

    accepts: bool
    said: str


@pytest.mark.parametrize(
    "hung",
    [
        Hung(accepts=False, said="it did not answer within 0.2 s"),
        Hung(accepts=True, said="it received the stop, but its step did not end within 0.3 s"),
    ],
    ids=["all its threads", "its step"],
)
def test_a_process_that_hangs_is_named_at_once_with_its_end(
    hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel still accepts the connection of a stopped process, and nothing follows.

    The sentence precedes that of `horde-robot stop`, which finds the port in use. Before, the page
    waited for 30 s and blamed another program.
    """
    monkeypatch.setattr(stop_request, "RECEIPT_S", 0.2)
    monkeypatch.setattr(stop_request, "ANSWER_S", 0.3)
    command = tmp_path / "horde-robot"
    command.write_text("#!/bin/sh\necho /dev/robot is in use by another program\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(command))
    listener = listening(tmp_path, lambda: "", SERIAL)
    file = tmp_path / ".stop"
    with socket.create_server(("127.0.0.1", 0)) as stopped_process:
        if not hung.accepts:
            address = json.loads(file.read_text()) | {"port": stopped_process.getsockname()[1]}
            file.write_text(json.dumps(address))
        answer = server.request_stop(tmp_path)
    listener.close(is_stopped=False)
    pid = os.getpid()
    assert not answer.is_confirmed
    assert answer.said == (
        f"process {pid} hangs: {hung.said}. End it by `kill -9 {pid}`: the recording except its last second and the "
        f"snapshots are kept, and `horde resume {tmp_path}` continues from them; /dev/robot is in use by another "
        "program"
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"port": "x"}', '{"port": 1e99, "token": "a"}', '{"port": 1}']
)
def test_a_damaged_file_of_a_request_is_no_confirmation(text: str, tmp_path: Path) -> None:
    (tmp_path / ".stop").write_text(text)
    assert ask_process(RunFolder(tmp_path)) is None


def test_a_run_that_cannot_be_asked_says_so_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_request, "LOOPBACK", "203.0.113.1")  # an address of no machine
    listener = listening(tmp_path, lambda: "")
    listener.close(is_stopped=True)
    assert "the live page cannot stop this run" in caplog.text


# ---- the robot -------------------------------------------------------------------------------------------------------


def test_the_command_that_stops_a_life_names_its_robot_and_its_port(tmp_path: Path) -> None:
    """A life of `--env horde_env:CreateSerial-v0` has no robot in its settings: its process writes what it knows."""
    (tmp_path / "config.toml").write_text('robot = "critterbot"\nbackend = "gymnasium"\n')
    listener = listening(tmp_path, lambda: "", SERIAL)
    assert stop_options(RunFolder(tmp_path)) == SERIAL
    listener.close(is_stopped=True)
    assert stop_options(RunFolder(tmp_path)) == {}


def test_without_the_runs_process_its_settings_name_the_robot(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'robot = "create2"\nbackend = "serial"\nport = "/dev/robot"\n'
    )
    assert stop_options(RunFolder(tmp_path)) == SERIAL


@pytest.mark.parametrize("code", [0, 1])
def test_the_page_runs_the_stop_command_and_believes_its_exit_code(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the run was killed: only `horde-robot stop` can stop the robot then."""
    words = tmp_path / "words"
    command = tmp_path / "horde-robot"
    command.write_text(f'#!/bin/sh\necho "$@" > {words}\necho it was sent\nexit {code}\n')
    command.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(command))
    (tmp_path / "config.toml").write_text(
        'robot = "create2"\nbackend = "serial"\nport = "/dev/robot"\n'
    )
    assert server.request_stop(tmp_path) == StopAnswer(is_confirmed=code == 0, said="it was sent")
    expected = "stop --robot=create2 --backend=serial --port=/dev/robot --reason=requested on the live page\n"
    assert words.read_text() == expected


def test_a_stop_that_no_port_was_looked_at_for_is_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`horde-robot stop` ends with 0 if it knows no port: it has set the emergency stop."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/bin/true")
    (tmp_path / "config.toml").write_text('robot = "create2"\nbackend = "serial"\n')
    assert not server.request_stop(tmp_path).is_confirmed
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "`horde-robot` was not found" in server.request_stop(tmp_path).said


def test_an_unanswered_request_is_not_confirmed(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('backend = "simulator"\n')
    assert server.request_stop(tmp_path) == StopAnswer(
        is_confirmed=False, said="the process of this run does not answer"
    )


def test_a_robot_in_a_resumed_life_without_a_feed_can_be_stopped(tmp_path: Path) -> None:
    """now.json and the tables are those of the life before, and say that it is over."""
    lived(tmp_path, 20)
    (tmp_path / "summary.json").write_text('{"steps": 20}')
    reader = RunReader(tmp_path)
    assert (reader.status()["state"], reader.status()["can_stop"]) == ("over", False)
    listener = listening(tmp_path, lambda: "")
    assert (reader.status()["state"], reader.status()["can_stop"]) == ("living", True)
    listener.close(is_stopped=True)


@pytest.mark.parametrize(("backend", "can_stop"), [("serial", True), ("simulator", False)])
def test_a_physical_robot_can_be_stopped_after_its_process_was_killed(
    backend: str, can_stop: bool, tmp_path: Path
) -> None:
    lived(tmp_path, 20)
    (tmp_path / "config.toml").write_text(f'robot = "create2"\nbackend = "{backend}"\n')
    file = tmp_path / "live" / "now.json"
    file.write_text(file.read_text().replace('"over"', '"living"'))
    status = RunReader(tmp_path).status(silent_s=0.0)
    assert (status["state"], status["can_stop"]) == ("dead", can_stop)


class StoppableBody(ToyBody):
    """A toy robot whose emergency stop another process can set, too; its page asks for the stop at step 300.

    Args:
        run: The folder of its run.
        stop_options: As in its metadata.
        stands: Whether it reports that its wheels are at rest.
        error: Raised by its emergency stop.
    """

    def __init__(
        self,
        run: Path,
        *,
        stop_options: dict[str, str],
        stands: bool = True,
        error: OSError | None = None,
    ) -> None:
        super().__init__(on_step=self._ask_at_300)
        self.metadata = {**self.metadata, "stop_options": stop_options}
        self.run = RunFolder(run)
        self.stands = stands
        self.error = error
        self.calls: list[str] = []
        self.answers: list[StopAnswer | None] = []
        self.page = threading.Thread(target=lambda: self.answers.append(ask_process(self.run)))
        self.is_asked = threading.Event()

    def _ask_at_300(self, age: int) -> None:
        if age == 300:
            self.page.start()
            if self.metadata["stop_options"]:  # it is stopped within this step
                assert self.is_asked.wait(10.0)
        elif age > 300:
            time.sleep(0.001)  # another thread requests the end

    def emergency_stop(self, reason: str) -> bool:
        self.calls.append(reason)
        self.is_asked.set()
        if self.error is not None:
            raise self.error
        return True

    def wait_for_rest(self, limit_s: float) -> bool:
        assert 0.0 < limit_s < 2.0
        return self.stands

    def close(self) -> None:
        self.calls.append("closed")


def stopped(body: StoppableBody, monkeypatch: pytest.MonkeyPatch) -> StopAnswer | None:
    """Run a life whose page asks for the stop, and return the page's answer."""
    monkeypatch.setattr(learn, "make_env", lambda _config: body)
    words = [
        "learn",
        "--steps",
        "100000",
        "--excursion-probability",
        "0",
        "--out",
        str(body.run.path),
    ]
    assert cli.main(words) == 0
    body.page.join()
    (answer,) = body.answers
    events = body.run.events.read().events
    assert events[-1]["cause"] == "page_stop"
    assert not body.run.stop.exists()
    return answer


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("stands", [True, False])
def test_a_stop_is_confirmed_only_if_the_robot_reports_that_it_stands(
    stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = StoppableBody(Path("a"), stop_options=SERIAL, stands=stands)
    answer = stopped(body, monkeypatch)
    remedy = "the emergency stop of create2 is set; clear it by `horde-robot stop --clear --robot create2`"
    assert answer == StopAnswer(stands, remedy)
    assert body.calls == ["requested on the live page", "closed"]


@pytest.mark.usefixtures("elsewhere")
def test_a_life_ends_though_its_emergency_stop_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = StoppableBody(
        Path("a"), stop_options=SERIAL, error=OSError("it holds in this process only")
    )
    assert stopped(body, monkeypatch) == StopAnswer(
        is_confirmed=True, said="it holds in this process only"
    )


@pytest.mark.usefixtures("elsewhere")
def test_a_robot_that_one_thread_alone_may_stop_is_stopped_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = StoppableBody(Path("a"), stop_options={})
    assert stopped(body, monkeypatch) == StopAnswer(is_confirmed=True, said="")
    assert body.calls == ["requested on the live page", "closed"]
