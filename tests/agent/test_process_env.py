"""An environment in a separate process: the same results and errors, and no process is left."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.life import bodies
from horde_agent.life import process_env as apart
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import StepEvent
from horde_agent.life.process_env import EnvironmentGone, ProcessEnv
from horde_agent.processes import python
from horde_agent.record import Recorder
from horde_agent.runs.config import LearnConfig
from tests.agent.doubles import SpyHorde, live, toy_life, toy_questions
from tests.agent.kills import children, is_alive
from tests.facts import states

ODD = "tests.agent.process_bodies:Odd-v0"
TOY = "tests.agent.process_bodies:Toy-v0"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared() -> Iterator[ProcessEnv]:
    env = ProcessEnv(ODD)
    yield env
    env.close()


@pytest.fixture
def odd(shared: ProcessEnv) -> ProcessEnv:
    shared.reset()
    return shared


def ends(pid: int, within_s: float = 30.0) -> bool:
    end = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


@pytest.mark.parametrize("awake_s", [0.0, 10.0], ids=["asleep", "awake"])
@pytest.mark.parametrize("n_bytes", [1, apart.HALF - apart.WORDS - 64, 3 * apart.HALF])
def test_a_message_arrives_whole_whether_its_receiver_is_awake_or_not(
    awake_s: float, n_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one byte, as long as the block takes with the pickle's own bytes, and longer; in both directions, in turns."""
    monkeypatch.setattr(apart, "AWAKE_S", awake_s)
    ends = socket.socketpair()
    with tempfile.TemporaryFile() as block:
        block.truncate(2 * apart.HALF)
        near_line, far_line = (
            apart.Line(ends[k], block.fileno(), is_first=k == 0) for k in range(2)
        )
    sent = [bytes([k]) * n_bytes for k in range(20)]

    def echo() -> None:
        with suppress(EOFError):
            while True:
                far_line.send(pickle.dumps(far_line.receive()[::-1]))

    thread = threading.Thread(target=echo)
    thread.start()
    received = []
    for message in sent:
        near_line.send(pickle.dumps(message + b"."))
        received.append(near_line.receive())
    ends[0].shutdown(socket.SHUT_RDWR)
    thread.join()
    near_line.close()
    far_line.close()
    assert received == [b"." + message for message in sent]


# ---- the same numbers ------------------------------------------------------------------------------------------------


def test_steps_are_those_of_the_same_environment_here(odd: ProcessEnv) -> None:
    """With infos of changing keys and types, large numbers, texts, and observations of another dtype."""
    local_env = gymnasium.make(ODD)
    local_env.reset()
    for action in [0, 0, 0, 1, 1, 0, 2, 2, 0, 3, 3, 7, 7, 8, 8, 0, 0]:
        observation, *mine = odd.step(action)
        expected, *others = local_env.step(action)
        assert (observation.dtype, observation.shape) == (expected.dtype, expected.shape)
        assert observation.tobytes() == expected.tobytes()
        assert list(map(type, mine)) == list(map(type, others))
        assert repr(mine) == repr(others)


def test_spaces_and_metadata_are_the_environments(odd: ProcessEnv) -> None:
    assert odd.observation_space == gymnasium.spaces.Box(-1.0, 1.0, (2, 3), np.float32)
    assert odd.action_space == gymnasium.spaces.Discrete(9)
    assert odd.unwrapped is odd
    assert not hasattr(odd, "manoeuvre_frames")
    toy = ProcessEnv(TOY)
    assert [channel["name"] for channel in toy.metadata["channels"]] == ["age", "saw", "last"]
    assert toy.manoeuvre_frames == []
    toy.reset()
    toy.reset(options={"manoeuvre": "centre"})
    assert [round(frame.t, 9) for frame in toy.manoeuvre_frames] == [0.1, 0.2, 0.3, 0.4]
    assert toy.manoeuvre_frames[0].extras["x_m"] == 0.5
    assert len(toy.manoeuvre_observations) == 4
    toy.close()


def test_end_manoeuvre_reaches_a_reset_under_way(odd: ProcessEnv) -> None:
    """The order is in the pipe before the reset waits for it; without it `ended` would be False."""
    odd.end_manoeuvre()
    assert odd.reset(options={"wait": True})[1] == {"ended": True}


def test_a_reply_that_was_not_read_is_skipped(odd: ProcessEnv) -> None:
    """As after Ctrl-C between `send` and `receive`."""
    for action in (0, 3):
        odd.send(action)
        _, info = odd.reset(seed=5)
        assert info["seed"] == 5


# ---- the same errors -------------------------------------------------------------------------------------------------


def test_an_error_has_its_class_names_message_and_traceback(odd: ProcessEnv) -> None:
    with pytest.raises(RuntimeError, match=r"^no frame from /dev/robot for 0\.5 s") as caught:
        odd.step(4)
    names = [kind.__name__ for kind in type(caught.value).__mro__]
    assert names[:3] == ["RobotLost", "RobotError", "RuntimeError"]
    assert "in step" in caught.value.__notes__[0]
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        odd.step(5)
    with pytest.raises(ValueError, match="action must be whole, not 'left'"):
        odd.step("left")
    assert odd.step(0)[4]["n"] == 4


def test_errors_in_making_the_environment_are_raised_here(shared: ProcessEnv) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such robot"):
        ProcessEnv(ODD, broken=True)
    with pytest.raises(gymnasium.error.NameNotFound):
        ProcessEnv("Nothing-v0")


def test_the_end_of_the_process_is_another_error_than_those_of_the_environment() -> None:
    env = ProcessEnv(ODD)
    env.reset()
    with pytest.raises(EnvironmentGone, match=r"exit code 3\)") as caught:
        env.step(6)
    assert caught.value.exit_code == 3
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.step(0)


# ---- no process left behind ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [ProcessEnv.close, None])
def test_the_process_ends_with_its_environment(end: Callable[[ProcessEnv], None] | None) -> None:
    """Closed twice, or garbage collected."""
    other_processes = children(os.getpid())
    env: ProcessEnv | None = ProcessEnv(ODD)
    assert env is not None
    (pid,) = set(children(os.getpid())) - set(other_processes)
    assert is_alive(pid)
    if end is not None:
        end(env)
        end(env)
    del env
    gc.collect()
    assert ends(pid)


FORK = f"""
import gc, os
from horde_agent.life.process_env import ProcessEnv
env = ProcessEnv({TOY!r})
env.reset()
env.step(1)
pid = os.fork()
if pid == 0:
    for use in (lambda: env.step(1), env.reset):
        try:
            use()
        except RuntimeError as error:
            assert "is a fork" in str(error), error
        else:
            os._exit(3)
    env.end_manoeuvre()
    if {{closes}}:
        env.close()
    del env, use
    gc.collect()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for k in range(3):
    observation, *_ = env.step(2)
print("alive", observation[0])
env.close()
"""


@pytest.mark.parametrize("closes", [False, True])
def test_an_environment_dropped_or_closed_in_a_forked_child_stays_that_of_its_parent(
    closes: bool,
) -> None:
    """The child has copies of its ends, which it may neither use nor shut down."""
    words = [sys.executable, "-W", "error::ResourceWarning", "-c", FORK.format(closes=closes)]
    ended = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("alive")
    assert "Warning" not in ended.stderr


def test_an_environment_is_closed_after_a_step_whose_reply_was_not_read(tmp_path: Path) -> None:
    """As after Ctrl-C between `send` and `receive`, or within `receive`: a robot must be told that the run is over."""
    env = ProcessEnv(ODD, told=f"{tmp_path / 'closed'}")
    env.reset()
    for _ in range(5):
        env.step(0)
    env.send("slow")
    time.sleep(0.1)  # until the environment has received it
    env.close()
    assert (tmp_path / "closed").exists()


SCRIPT = """
import signal, time
from horde_agent.life.process_env import ProcessEnv
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a script it is ignored
    env = ProcessEnv("tests.agent.process_bodies:Odd-v0")
    env.reset()
    try:
        print(env._process.pid, flush=True)
        while True:  # a read that begins just after the signal would block
            time.sleep(0.05)
    except KeyboardInterrupt:
        print(env.step(0)[4]["n"], flush=True)
        env.close()
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent in a new session, as in a terminal; it prints the id of the environment's process first.

    Its standard input is closed, as by `horde learn <&-`: the socket must not take the number of a
    standard file.
    """
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    options: dict[str, Any] = {"text": True, "env": environment, "start_new_session": True}
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.close(0),
        **options,
    ) as process:
        yield process
        process.kill()


def test_the_process_ends_when_the_agent_is_killed(agent: subprocess.Popen[str]) -> None:
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    agent.kill()
    assert ends(pid)


def test_ctrl_c_in_a_terminal_reaches_the_agent_only(agent: subprocess.Popen[str]) -> None:
    """SIGINT goes to the whole foreground group; the environment answers a step after it."""
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    os.killpg(agent.pid, signal.SIGINT)
    assert agent.stdout.readline() == "1\n"
    assert agent.wait(30) == 0
    assert ends(pid)


# ---- start ------------------------------------------------------------------------------------------


def test_no_child_process_imports_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "logging.py").write_text("raise SystemExit('foreign code runs')")
    command, environment = python("horde_agent.watch.server", str(tmp_path / "no-run"))
    assert command.count("-P") == 1
    outputs = [
        subprocess.run(
            words,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        ).stderr
        for words in (command, [word for word in command if word != "-P"])
    ]
    assert ["foreign code runs" in stderr for stderr in outputs] == [False, True]


@pytest.mark.parametrize("when", ["make", "reset"])
def test_a_process_that_dies_before_the_first_observation_is_reported_in_one_sentence(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed for lack of memory, for example; no file is left."""
    monkeypatch.chdir(tmp_path)
    name = "tests.agent.process_bodies:" + ("DiesInReset-v0" if when == "reset" else "Odd-v0")
    settings = {}
    if when == "make":
        settings = {"dies": True}
    monkeypatch.setattr(learn, "make_env", lambda _config: ProcessEnv(name, **settings))
    assert cli.main(["learn", "--steps", "30", "--out", "a"]) == 1
    err = capsys.readouterr().err
    assert states(err, name, "exit code 3")
    assert len([line for line in err.splitlines() if line.startswith("horde: ")]) == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# ---- the same life ---------------------------------------------------------------------------------------------------


def test_a_life_with_a_separate_process_is_the_same() -> None:
    """The record and every call of the Horde, with excursions and drives."""
    calls = []
    rows = []
    for env in (ProcessEnv(TOY), gymnasium.make(TOY)):
        horde = SpyHorde(toy_questions())
        recorder = Recorder(3)
        live(
            300,
            env,
            horde,
            excursions=ExcursionConfig(probability=0.1, horizon=5),
            recorder=recorder,
        )
        env.close()
        calls.append(horde.calls)
        rows.append(recorder.stream().rows.tobytes())
    assert rows[0] == rows[1]
    assert calls[0] == calls[1]
    assert len([call for call in calls[0] if call[0] == "begin"]) > 5


def test_learning_happens_while_the_body_moves() -> None:
    """Every update is between `send` and `receive`, except the last one, after the run."""

    class MovingEnv(ProcessEnv):
        """Notes whether the body moves: after an action was sent, before its result is received."""

        is_moving = False

        def send(self, action: Any) -> None:
            super().send(action)
            self.is_moving = True

        def receive(self) -> Any:
            self.is_moving = False
            return super().receive()

    env = MovingEnv(TOY)
    was_moving: list[bool] = []
    horde = SpyHorde(toy_questions(), on_learn=lambda: was_moving.append(env.is_moving))
    with toy_life(env, horde) as life:
        life.run(50)
        assert was_moving == [True] * 49 + [False]
    env.close()


def test_each_observation_is_recorded_once_when_the_process_dies() -> None:
    """Killed after the row of step 5; the observation of step 6 may have been sent by then."""
    other_processes = children(os.getpid())
    env = ProcessEnv(TOY)
    (pid,) = set(children(os.getpid())) - set(other_processes)
    recorder = Recorder(3)

    def kill(event: StepEvent) -> None:
        if event.row.step == 5:
            os.kill(pid, signal.SIGKILL)
            assert ends(pid)

    with pytest.raises(EnvironmentGone, match="exit code -9"):
        live(50, env, SpyHorde(toy_questions()), recorder=recorder, observers=[kill])
    env.close()
    assert recorder.stream().rows["step"].tolist() in ([*range(6)], [*range(7)])


@pytest.mark.parametrize(
    ("cores", "realtime", "is_apart"),
    [({0, 1}, False, True), ({0}, False, False), ({0, 1}, True, False)],
)
def test_the_simulator_has_a_separate_process_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], realtime: bool, is_apart: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    monkeypatch.setattr(bodies, "ProcessEnv", lambda name, **_: ("apart", name))
    monkeypatch.setattr(gymnasium, "make", lambda name, **_: ("here", name))
    env_id = learn.make_env(LearnConfig(realtime=realtime))
    assert env_id == ("apart" if is_apart else "here", "horde_env:CritterbotPen-v0")
    assert apart.is_worthwhile() == (len(cores) > 1)
