"""Each end of a run is recorded with a distinct cause in events.jsonl and details.json."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.cluster import ShardLost
from horde_agent.life import feed
from horde_agent.life.observers import Sampler
from horde_agent.life.process_env import ProcessEnv
from horde_agent.runs.ending import ENDING, Cause
from horde_agent.runs.showing.report import write_report
from horde_env.errors import BackendLost, BackendUnavailable, EmergencyStop, HordeEnvError
from tests.agent.doubles import ToyBody
from tests.agent.test_docking import BatteryBody
from tests.agent.test_ending import at, files_of_at_most

Env = gymnasium.Env[Any, Any]
DISOBEYED = {"applied": 0, "obeyed": 0}
LOG = ["--backend", "replay", "--log", "log.csv", "--columns", "columns.toml"]


def ask_on_page(age: int) -> None:
    if age == 300:
        Path("a/live/stop-asked").touch()


def failing(error: BaseException) -> Callable[[], Env]:
    """Return a maker of bodies that raise `error` at step 300."""

    def on_step(age: int) -> None:
        if age == 300:
            raise error

    return lambda: ToyBody(on_step=on_step)


class Lost(ToyBody):
    """A robot that is gone at step 300, as with `PenEnv`: the episode is truncated, and the next reset raises."""

    def __init__(self, error: HordeEnvError) -> None:
        super().__init__({300: {"truncated": 1}})
        self.error = error

    def reset(self, **options: Any) -> Any:
        """Raise once the robot is gone."""
        if self.age >= 300:
            raise self.error
        return super().reset(**options)


class Interrupted(ToyBody):
    """A robot with a Ctrl-C at the end of its drive, just after the request of the live page."""

    def end_manoeuvre(self) -> None:
        """Press Ctrl-C, once."""
        self.end_manoeuvre = lambda: None  # type: ignore[method-assign]
        signal.raise_signal(signal.SIGINT)


class Case(NamedTuple):
    """A way to end: the recorded cause and words, the body that ends so, further words of the command."""

    cause: Cause
    why: str | None
    body: Callable[[], Env] = ToyBody
    words: tuple[str, ...] = ()


IN_ORDER = (Cause.STEPS, Cause.LOG_END, Cause.PAGE_STOP, Cause.BATTERY_LOW, Cause.UNKNOWN, Cause.CUT_OFF)
EXIT_CODES = {Cause.SIGINT: 130, Cause.SIGTERM: 143, Cause.SIGHUP: 129, **dict.fromkeys(IN_ORDER, 0)}
"""1 for all others, but that a bug raises its exception."""

CASES = {
    "steps reached": Case(Cause.STEPS, None),
    "Ctrl-C": Case(Cause.SIGINT, "SIGINT", lambda: ToyBody(on_step=at(300, signal.SIGINT))),
    "Ctrl-C in a thread": Case(Cause.SIGINT, "SIGINT", failing(KeyboardInterrupt())),
    "SIGTERM": Case(Cause.SIGTERM, "SIGTERM", lambda: ToyBody(on_step=at(300, signal.SIGTERM))),
    "terminal closed": Case(Cause.SIGHUP, "SIGHUP", lambda: ToyBody(on_step=at(300, signal.SIGHUP))),
    "stop button": Case(Cause.PAGE_STOP, "the stop button", lambda: ToyBody(on_step=ask_on_page)),
    "stop button, then Ctrl-C": Case(Cause.PAGE_STOP, "the stop button", lambda: Interrupted(on_step=ask_on_page)),
    "battery low": Case(Cause.BATTERY_LOW, "its battery was low", lambda: BatteryBody(helps=(False,))),
    "emergency stop": Case(
        Cause.EMERGENCY_STOP, "the emergency stop is set: smoke", lambda: Lost(EmergencyStop("smoke", Path("stop")))
    ),
    "robot silent": Case(Cause.LINK_LOST, "no frame from /dev/x", lambda: Lost(BackendLost("/dev/x", 31.0, 30.0, 299))),
    "robot not opened": Case(Cause.ROBOT_UNAVAILABLE, "no robot", lambda: Lost(BackendUnavailable("no robot there"))),
    "driver failed": Case(Cause.ROBOT_ERROR, "the driver", failing(HordeEnvError("the driver failed"))),
    "robot disobeys": Case(
        Cause.DISOBEYED, "the life ends after", lambda: ToyBody(dict.fromkeys(range(300, 9999), DISOBEYED))
    ),
    "shard lost": Case(Cause.SHARD_LOST, "shard 1", failing(ShardLost(1, 10, "killed"))),
    "process killed": Case(
        Cause.ENVIRONMENT_DIED, "the process of", lambda: ProcessEnv("tests.agent.process_bodies:DiesInStep-v0")
    ),
    "disk full": Case(
        Cause.DISK_FULL, "a/log/life.rec cannot be written (File too large)", words=("--excursion-probability", "0")
    ),
    "error": Case(Cause.ERROR, "unplugged", failing(ConnectionError("unplugged"))),
    "error without words": Case(Cause.ERROR, "an error of the environment", failing(ZeroDivisionError())),
    "unforeseen stop": Case(Cause.UNKNOWN, "unknown"),
    "killed": Case(Cause.CUT_OFF, "it was cut off"),
    "log read": Case(Cause.LOG_END, None, words=(*LOG, "--passes", "1")),
    "log read in part": Case(Cause.STEPS, None, words=(*LOG, "--passes", "1", "--steps", "40")),
    "log, Ctrl-C": Case(Cause.SIGINT, "SIGINT", words=(*LOG, "--passes", "9")),
}


def test_each_cause_has_a_case() -> None:
    assert {case.cause for case in CASES.values()} == set(Cause)
    assert len({cause.code for cause in Cause}) == len({cause.description for cause in Cause}) == len(Cause)


@pytest.mark.parametrize("name", CASES)
def test_what_ended_a_run_is_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run is cut short at step 300 of 2,500, except where its case says otherwise."""
    case, is_log = CASES[name], "--log" in CASES[name].words
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(feed, "NOW_EVERY_S", 0.0)
    if is_log:
        Path("log.csv").write_text("x\n" + "".join(f"{k % 7}\n" for k in range(100)))
        Path("columns.toml").write_text('period_s = 0.1\n[[channel]]\ncolumn = "x"\n')
    else:
        monkeypatch.setattr(learn, "make_env", lambda _config: case.body())
    if name == "unforeseen stop":
        monkeypatch.setattr(Sampler, "after_step", lambda _, event: event.life.steps < 300 or event.life.stop())
    if name == "log, Ctrl-C":
        monkeypatch.setattr("horde_agent.runs.jobs.job.Progress.is_due", lambda *_: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(learn, "write_report", lambda path: path)
    handlers = {number: signal.getsignal(number) for number in ENDING}
    words = ["learn", "--out", "a", *([] if is_log else ["--steps", "2500"]), *case.words]
    with files_of_at_most(70_003 if name == "disk full" else 1 << 40), suppress(ConnectionError, ZeroDivisionError):
        code = cli.main(words)
        assert code == (130 if name == "stop button, then Ctrl-C" else EXIT_CODES.get(case.cause, 1))
        if code == 1:
            said = capsys.readouterr().err
            assert name == "shard lost" or (f"horde: {case.why}" in said and "The run until then is in a\n" in said)
    assert {number: signal.getsignal(number) for number in ENDING} == handlers
    if name == "killed":
        Path("a/summary.json").unlink()
        write_report(Path("a"))

    details = json.loads(Path("a/details.json").read_text())
    assert (details["ended_by"], details["stopped_early"]) == (case.cause.code, case.why is not None)
    told = [details]
    if not is_log and name != "killed":
        events = [json.loads(line) for line in Path("a/log/events.jsonl").read_text().splitlines()]
        (ended,) = [event for event in events if event["event"] == "ended"]
        assert ended["cause"] == case.cause.code
        told.append({"stopped_by": ended["why"]})
    for one in told:
        assert one["stopped_by"] == case.why if case.why is None else one["stopped_by"].startswith(case.why)
