"""Signals, closed terminals, faults and full disks: the robot is stopped first, and the run's files are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.life.life import Life
from horde_agent.record import read
from horde_agent.runs import session
from horde_agent.runs.exit_reason import ENDING, Ended, SafeStream, handling_signals
from horde_agent.runs.reporting import report
from horde_agent.runs.storage import question_table, tables
from tests.agent.commands import QUESTIONS, files_of_at_most, summary_of
from tests.agent.doubles import ToyBody
from tests.agent.kills import differences
from tests.facts import states

pytestmark = pytest.mark.usefixtures("elsewhere")

ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "learn",
    "--steps",
    "600",
    "--excursion-probability",
    "0.02",
    "--horizon",
    "10",
    "--out",
    "a",
]


def live(monkeypatch: pytest.MonkeyPatch, body: ToyBody, words: list[str] = WORDS) -> int:
    """Run the command with a body in the simulator's place."""
    monkeypatch.setattr(learn, "make_env", lambda _config: body)
    return cli.main(words)


def at(age: int, *numbers: signal.Signals) -> Callable[[int], None]:
    """Return what raises signals in a step."""

    def on_step(now: int) -> None:
        if now == age:
            for number in numbers:
                signal.raise_signal(number)

    return on_step


# ---- nothing printed ends a life -------------------------------------------------------------------------------------


class Broken(io.StringIO):
    """A terminal that was closed, or a reader that has had enough."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


GONE = [OSError(errno.EIO, "Input/output error"), ValueError("closed"), None]


@pytest.mark.parametrize("error", GONE, ids=["EIO", "closed", ">&- 2>&-"])
def test_output_errors_do_not_stop_a_run(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress, messages of the signal handler and the summary are dropped. Python has None for closed streams."""
    monkeypatch.setattr(sys, "stderr", error and Broken(error))
    monkeypatch.setattr(sys, "stdout", error and Broken(error))
    assert live(monkeypatch, ToyBody(on_step=at(300, signal.SIGINT))) == 128 + signal.SIGINT
    assert summary_of("a")["steps"] == 301
    assert Path("a/report.html").is_file()


def test_sigterm_ends_a_run_without_drawing_pictures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An init system kills what has not ended in time: the report can be drawn later."""
    assert live(monkeypatch, ToyBody(on_step=at(300, signal.SIGTERM))) == 128 + signal.SIGTERM
    assert summary_of("a")["steps"] == 301
    assert [path.name for path in Path("a/checkpoint").iterdir()] == ["000000000301"]
    assert not Path("a/report.html").exists()
    assert capsys.readouterr().out.strip() == "a"
    assert cli.main(["report", "a"]) == 0
    assert Path("a/report.html").is_file()


def test_characters_that_a_terminal_cannot_encode_are_escaped() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = SafeStream(file)
    stream.write("time · 5 µs")
    file.flush()
    assert file.buffer.getvalue() == b"time \\xb7 5 \\xb5s"  # type: ignore[attr-defined]
    assert not stream.is_lost


def test_output_of_a_signal_handler_during_a_print_is_dropped() -> None:
    """Python refuses a second writer inside the first: RuntimeError, "reentrant call"."""
    stream = SafeStream(
        Broken(RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>"))
    )
    assert stream.write("stopping") == 8
    stream.flush()
    assert not stream.is_lost


def test_output_is_flushed_before_the_interpreter_exits() -> None:
    """It would end with exit code 120 and "Exception ignored": the file behind a lost stream is the null device."""
    code = (
        "import os, sys; from horde_agent.runs.exit_reason import unfailing\n"
        "with unfailing(): print('a'); sys.stdout.flush(); os.close(int(sys.argv[1])); print('b')\n"
    )
    reading, writing = os.pipe()
    with open(writing, "wb") as out:
        command = [sys.executable, "-c", code, str(reading)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.PIPE, pass_fds=[reading], env=environment
        )
        os.close(reading)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


@contextlib.contextmanager
def on_terminal() -> Iterator[tuple[dict[str, Any], Callable[[], bytes], IO[bytes]]]:
    """Yield options of a process with a new terminal, a function that reads from it, and its keyboard."""
    master, slave = pty.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def shown() -> bytes:
        try:
            return os.read(master, 1 << 16)
        except OSError:  # the process has ended
            return b""

    with os.fdopen(master, "wb", buffering=0) as keys, os.fdopen(slave):
        yield {"stdin": slave, "stdout": slave, "stderr": slave, "preexec_fn": take}, shown, keys


@contextlib.contextmanager
def toy_command(folder: Path, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run of 600 steps in another process, and yield when it waits in the middle."""
    command = [
        sys.executable,
        "-m",
        "tests.agent.toy_command",
        str(folder),
        *WORDS[:-1],
        str(folder / "a"),
    ]
    with subprocess.Popen(command, cwd=ROOT, **streams) as process:
        try:
            end = time.monotonic() + 120.0
            while not (folder / "reached").exists():
                assert process.poll() is None, (
                    f"it ended early, with exit code {process.returncode}"
                )
                assert time.monotonic() < end
                time.sleep(0.01)
            yield process
        finally:
            (folder / "go").touch()
            if process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
            process.kill()


def test_a_closed_terminal_ends_a_life_with_its_report(tmp_path: Path) -> None:
    """SIGHUP comes, and every write fails with EIO: the words of its handler, the live table, the last lines."""
    with on_terminal() as (options, shown, keys), toy_command(tmp_path, **options) as process:
        output = shown()
        keys.close()
        (tmp_path / "go").touch()
        assert process.wait(60) == 128 + signal.SIGHUP
    assert b"\x1b[?25l" in output  # the live table was on: it hides the cursor
    assert summary_of("a")["stopped_early"] is True
    assert 300 < summary_of("a")["steps"] < 600
    assert Path("a/report.html").is_file()


# ---- signals ---------------------------------------------------------------------------------------------------------


def test_a_signal_before_the_first_step_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While kernels are compiled, say."""
    closed: list[bool] = []
    body = ToyBody()
    monkeypatch.setattr(body, "close", lambda: closed.append(True))
    monkeypatch.setattr(session, "warm_up", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert live(monkeypatch, body) == 128 + signal.SIGTERM
    assert closed == [True]
    assert list(Path.cwd().iterdir()) == []
    assert capsys.readouterr().err == "horde: ended by signal 15 (SIGTERM).\n"


class SignalInFinalizer:
    """Raises SIGTERM when it is deleted, where Python drops the exception of the handler."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("compiles_on_s", [0.0, 60.0])
def test_a_signal_whose_exception_is_lost_ends_the_command_before_the_first_reset(
    compiles_on_s: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 5 s, however long kernels are still compiled."""

    def warm_up(*_: Any) -> float:
        began = time.monotonic()
        SignalInFinalizer()
        while time.monotonic() - began < compiles_on_s:
            time.sleep(0.01)
        return 0.0

    resets: list[int] = []

    class Robot(ToyBody):
        def reset(self, **options: Any) -> Any:
            resets.append(self.age)
            return super().reset(**options)

    monkeypatch.setattr(session, "warm_up", warm_up)
    began = time.monotonic()
    assert live(monkeypatch, Robot()) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 5.0
    assert resets == []
    assert list(Path.cwd().iterdir()) == []
    assert capsys.readouterr().err == "horde: ended by signal 15 (SIGTERM).\n"


def test_the_signal_after_one_whose_exception_was_lost_raises() -> None:
    with handling_signals() as signals:
        SignalInFinalizer()
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGINT)
    assert signals.seen == [signal.SIGTERM, signal.SIGINT]


def test_a_second_ctrl_c_whose_exception_is_lost_abandons_the_step_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step would take a minute, as one of a robot that does not answer."""
    began = time.monotonic()

    class Lost:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def on_step(age: int) -> None:
        if age == 300:
            signal.raise_signal(signal.SIGINT)
            Lost()
            while time.monotonic() - began < 60.0:
                time.sleep(0.01)

    assert live(monkeypatch, ToyBody(on_step=on_step)) == 130
    assert time.monotonic() - began < 50.0
    assert summary_of("a")["steps"] == 300


@pytest.mark.parametrize("program", ["script", "module"])
@pytest.mark.parametrize("module", ["numba", "tyro"])
def test_ctrl_c_during_the_imports_ends_in_one_line(
    module: str, program: str, tmp_path: Path
) -> None:
    """A module of that name sends it; `numba` is imported early, `tyro` by the command itself."""
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    script = tmp_path / "horde"  # as pip writes it
    script.write_text("import sys\nfrom horde_agent.cli import main\nsys.exit(main())\n")
    if program == "script":
        start = [str(script)]
    else:
        start = ["-m", "horde_agent.cli"]
    command = [sys.executable, *start, "learn", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    def enable_ctrl_c() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=enable_ctrl_c,
    )
    assert (process.returncode, process.stdout, process.stderr) == (
        130,
        "",
        "horde: interrupted.\n",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_messages_name_the_signal_and_ctrl_c_only_if_it_was_pressed(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Robot(ToyBody):
        def close(self) -> None:
            signal.raise_signal(number)

    assert live(monkeypatch, ToyBody(on_step=at(300, number))) == 128 + number
    assert live(monkeypatch, Robot(), [*WORDS[:-1], "b"]) == 128 + number
    err = capsys.readouterr().err
    assert f"signal {number:d} ({number.name}): stopping after this step" in err
    assert "Ctrl-C" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_first_reset_ends_the_life_in_good_order(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real robot drives there: the drive is ended, and no step follows."""
    told: list[str] = []

    class Robot(ToyBody):
        def reset(self, **options: Any) -> Any:
            signal.raise_signal(number)
            return super().reset(**options)

        def end_manoeuvre(self) -> None:
            told.append("end")

    body = Robot()
    assert live(monkeypatch, body) == 128 + number
    assert told == ["end"]
    assert body.actions == []
    assert (summary_of("a")["steps"], summary_of("a")["stopped_early"]) == (0, True)
    assert Path("a/report.html").is_file() == (number != signal.SIGTERM)


@pytest.mark.parametrize("is_pressed_on", [False, True])
def test_a_second_ctrl_c_while_the_tables_are_written_is_ignored_and_a_third_skips_them(
    is_pressed_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = tables.write_csv

    def interrupted(path: Path, *rest: Any) -> None:
        if is_pressed_on or path.name == "questions.csv":
            signal.raise_signal(signal.SIGINT)
        write(path, *rest)

    with monkeypatch.context() as patch:
        for module in (tables, question_table):
            patch.setattr(module, "write_csv", interrupted)
        assert live(monkeypatch, ToyBody(on_step=at(300, signal.SIGINT))) == 130
    err = capsys.readouterr().err
    assert "press Ctrl-C again to skip that" in err
    if is_pressed_on:
        assert states(err, "interrupted", "a/log", "horde report a")
        assert not Path("a/summary.json").exists()
        assert read(Path("a/log/life.rec")).rows["step"][-1] == 301
        assert cli.main(["report", "a"]) == 0
    assert summary_of("a")["steps"] == 301
    assert Path("a/report.html").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["in a step", "while the robot is closed"])
def test_a_second_ctrl_c_and_no_other_signal_sets_the_emergency_stop(
    number: signal.Signals,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An init system that sends SIGTERM twice has not seen the robot."""
    calls: list[str] = []

    class Robot(ToyBody):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.metadata = {**self.metadata, "stop_options": {"robot": "create2"}}

        def close(self) -> None:
            calls.append("closed")
            if when != "in a step":
                signal.raise_signal(number)

        def emergency_stop(self, reason: str) -> bool:
            calls.append(reason)
            return True

    signals = [number] * (2 if when == "in a step" else 1)
    assert live(monkeypatch, Robot(on_step=at(300, *signals))) == 128 + number
    stops = []
    if number == signal.SIGINT:
        stops = ["Ctrl-C was pressed twice"]
    assert calls == ([*stops, "closed"] if when == "in a step" else ["closed", *stops])
    assert ("`horde-robot stop --clear --robot create2`" in capsys.readouterr().err) == bool(stops)
    assert Path("a/summary.json").is_file()


def test_a_signal_that_was_to_be_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nohup horde learn`: the terminal goes, the life stays."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert live(monkeypatch, ToyBody(on_step=at(300, signal.SIGHUP))) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert summary_of("a")["steps"] == 600


def test_other_commands_end_by_a_signal_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").mkdir()
    for number in ENDING:
        monkeypatch.setattr(
            report, "write_report", lambda _path, number=number: signal.raise_signal(number)
        )
        assert cli.main(["report", str(tmp_path)]) == 128 + number
    assert capsys.readouterr().err.splitlines() == [
        "horde: interrupted.",
        "horde: ended by signal 15 (SIGTERM).",
        "horde: ended by signal 1 (SIGHUP).",
    ]


def test_once_a_signal_has_raised_the_closing_is_not_disturbed() -> None:
    with handling_signals() as signals, contextlib.suppress(Ended):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
    assert signals.seen == [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
    assert signals.exit_code == 143


# ---- the body is stopped first ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["its steps", "a fault", "a second signal"])
def test_the_body_is_stopped_before_anything_is_learned_or_written(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables take seconds, a batch of a large Horde as long; the robot rolls meanwhile."""
    done: list[str] = []

    class Robot(ToyBody):
        def close(self) -> None:
            done.append("body closed")

    def on_step(age: int) -> None:
        if age == 300 and end != "its steps":
            if end == "a fault":
                raise type("HordeEnvError", (Exception,), {})("the robot is gone")
            at(300, signal.SIGTERM, signal.SIGTERM)(age)

    close = Life.close
    write = tables.write_csv
    monkeypatch.setattr(Life, "close", lambda life: (done.append("record ended"), close(life))[1])

    def noted(path: Path, *rest: Any) -> None:
        done.append(path.name)
        write(path, *rest)

    for module in (tables, question_table):
        monkeypatch.setattr(module, "write_csv", noted)
    live(monkeypatch, Robot(on_step=on_step))
    assert done[:3] == ["body closed", "record ended", "questions.csv"]
    assert done.count("body closed") == 1


def test_tables_are_written_if_closing_the_robot_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Robot(ToyBody):
        def close(self) -> None:
            raise type("HordeEnvError", (Exception,), {})("the cable was pulled")

    assert live(monkeypatch, Robot()) == 1
    assert summary_of("a")["steps"] == 600
    assert states(capsys.readouterr().err, "the cable was pulled", "a/report.html")


# ---- a full disk -----------------------------------------------------------------------------------------------------


def test_a_run_continues_if_its_excursions_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "learn",
        "--steps",
        "2000",
        "--excursion-probability",
        "1",
        "--horizon",
        "1",
        "--out",
        "a",
    ]
    with files_of_at_most(40_000):
        assert live(monkeypatch, ToyBody(), words) == 1
    assert "a/log/excursions.rec cannot be written (File too large)" in capsys.readouterr().err
    assert summary_of("a")["steps"] == 2000


@pytest.mark.sim
def test_rows_that_a_full_disk_lost_are_simulated_again_by_a_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a run that has taken all its steps. Before, the resume asked for more --steps, and the rows stayed lost."""
    Path("own.toml").write_text(QUESTIONS)
    life = "learn --physics planar --questions own.toml --excursion-probability 0.05 --horizon 12"
    words = f"{life} --steps 300 --snapshot-every never --out".split()
    assert cli.main([*words, "b"]) == 0  # first: a kernel that is compiled is a larger file
    capsys.readouterr()
    with files_of_at_most(60_003):
        assert cli.main([*words, "a"]) == 1
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert "`horde resume a` takes the steps again whose rows are missing" in last_line
    assert read(Path("a/log/life.rec")).rows["step"][-1] < summary_of("a")["steps"] == 300
    assert cli.main(["resume", "a"]) == 0
    assert differences(Path("a"), Path("b")) == []


@pytest.mark.parametrize("is_log_lost", [False, True])
def test_tables_that_cannot_be_written_are_left_to_the_report(
    is_log_lost: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of them in part: a summary says that all the others are there. Whole rows of the log remain."""

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    words = ["learn", "--steps", "5000", "--excursion-probability", "0", "--out", "a"]
    with monkeypatch.context() as patch, files_of_at_most(90_003 if is_log_lost else 1 << 40):
        patch.setattr("horde_agent.runs.storage.files.write_whole", full)
        assert live(monkeypatch, ToyBody(), words) == 1
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert states(last_line, "horde: ", "a/questions.csv", "No space left", "`horde report a`")
    assert states(last_line, "a/log/life.rec", "File too large") == is_log_lost
    assert cli.main(["report", "a"]) == 0
    rows = read(Path("a/log/life.rec")).rows
    assert summary_of("a")["steps"] == rows["step"][-1] == (len(rows) - 1 if is_log_lost else 5000)
    assert 1024 < len(rows) < 2048 or not is_log_lost
