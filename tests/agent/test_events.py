"""Alarms call a command once each; events.jsonl has each event of a run once, and the cause of its end."""

from __future__ import annotations

import io
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from horde_agent import StreamRun, cli
from horde_agent.cli import learn
from horde_agent.cluster import ShardLost
from horde_agent.life.lost_sensors import LOST, SensorEvent
from horde_agent.life.observers import Sampler
from horde_agent.record import Flag, Phase, Row, new_rows, read
from horde_agent.runs.exit_reason import ENDING, ExitCause
from horde_agent.runs.reporting.report import write_report
from horde_agent.runs.sources import robot, streamed_rows
from horde_agent.runs.storage.event_log import EventLog, RecordedEvents
from horde_agent.runs.storage.events import (
    AlarmCommand,
    Alarms,
    Announcer,
    ClockEvents,
    Clocks,
    Events,
)
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import new_life
from horde_agent.runs.storage.stop_request import ask_process
from horde_env.errors import BackendLost, BackendUnavailable, EmergencyStop, HordeEnvError
from tests.agent.commands import files_of_at_most, summary_of, toy
from tests.agent.doubles import ToyBody
from tests.agent.test_docking import BatteryBody
from tests.agent.test_ending import at

HEALTHY = SimpleNamespace(n_waiting=0, n_diverged=0, diverged=[])


def look(
    alarms: Alarms | Events,
    step: int,
    observation: list[float],
    *,
    deadlines_missed: int = 0,
    horde: Any = HEALTHY,
    robot: int = 0,
    is_redoing: bool = False,
) -> None:
    row = Row(
        step,
        0.1 * step,
        np.array(observation, np.float32),
        0,
        1.0,
        Phase.BEHAVE,
        Flag.NONE,
        (0, 0, 0),
        robot=robot,
    )
    counts = SimpleNamespace(gaps=0, deadlines_missed=deadlines_missed)
    life = SimpleNamespace(
        counts=counts,
        horde=horde,
        student=SimpleNamespace(horde=horde),
        recorder=SimpleNamespace(is_redoing=is_redoing),
    )
    alarms.after_step(SimpleNamespace(row=row, life=life))  # type: ignore[arg-type]


@pytest.fixture
def alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Alarms:
    """Return alarms with a command that records its arguments."""
    monkeypatch.setattr("subprocess.run", lambda words, **_: CALLED.append(tuple(words[1:])))
    CALLED.clear()
    return Alarms(AlarmCommand("true"), tmp_path, ["light", "overheating"], 0.1)


CALLED: list[tuple[str, ...]] = []


def raised() -> list[tuple[str, ...]]:
    for thread in threading.enumerate():
        if thread.name == "alarm":
            thread.join()
    return sorted(CALLED)


def test_an_event_says_when_a_demon_diverged() -> None:
    """It is found at step 20, when no step is queued any more, though it diverged at step 10; once."""
    logged: list[dict[str, Any]] = []
    log: Any = SimpleNamespace(append=logged.append)
    recorder: Any = SimpleNamespace(is_redoing=False, n_rows=8)
    events = Events(log, recorder)
    for step, n_waiting, n_diverged in ((0, 0, 0), (10, 3, 1), (20, 0, 1), (30, 0, 1)):
        horde = SimpleNamespace(n_waiting=n_waiting, n_diverged=n_diverged)
        look(events, step, [0.5], horde=horde)
    assert logged == [{"step": 20, "event": "diverged", "row": 7}]


def log_of(logged: list[dict[str, Any]]) -> Any:
    """Return an event log in memory."""
    return SimpleNamespace(
        append=logged.append, read=lambda: RecordedEvents("events.jsonl", logged, [])
    )


def clock_events(readings: list[tuple[float, float, float]]) -> list[dict[str, Any]]:
    """Return the events of a life whose clocks show these times (unix, boot, monotonic) at steps 0, 10, ..."""
    logged: list[dict[str, Any]] = []
    log = log_of(logged)
    recorder: Any = SimpleNamespace(n_rows=8)
    shown = [(0.0, 0.0, 0.0)]
    clocks = Clocks(
        unix=lambda: shown[0][0], boot=lambda: shown[0][1], monotonic=lambda: shown[0][2]
    )
    events = ClockEvents(log, recorder, clocks)
    for number, reading in enumerate(readings):
        shown[0] = reading
        look(events, 10 * number, [0.5])
    return logged


def test_jumps_of_the_wall_clock_and_suspensions_are_events() -> None:
    """A server sets the clock back by an hour, a leap second passes, and the computer sleeps for two hours.

    Asleep, the wall clock does not jump: without the clock that goes on meanwhile it would, by 7,200 s.
    """
    logged = clock_events(
        [
            (1e9, 100.0, 100.0),
            (1e9 + 1.0004, 101.0, 101.0),  # a corrected drift
            (1e9 - 3598.0, 102.0, 102.0),
            (1e9 - 3598.0, 103.0, 103.0),
            (1e9 + 3603.0, 7304.0, 104.0),
            (1e9 + 3604.0, 7305.0, 105.0),
        ]
    )
    assert logged == [
        {"step": 20, "event": "clock", "row": 7, "by_s": -3600.0},
        {"step": 30, "event": "clock", "row": 7, "by_s": -1.0},
        {"step": 40, "event": "suspended", "row": 7, "by_s": 7200.0},
    ]


def test_a_wall_clock_that_is_set_ahead_is_an_event_and_neither_drift_nor_smearing_is() -> None:
    """A day ahead; then a leap second, smeared over 20 h by parts of 14 us per second, 0.14 ms between two readings."""
    smeared = [(1e9 + 86400.0 + 10.00014 * k, 101.0 + 10.0 * k, 50.0 + 10.0 * k) for k in range(50)]
    logged = clock_events([(1e9, 100.0, 49.0), *smeared])
    assert logged == [{"step": 10, "event": "clock", "row": 7, "by_s": 86399.0}]


def test_another_time_zone_is_no_jump_and_events_stay_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By local times, those of Kiritimati would be a day ahead of those of Honolulu, which follow."""
    log = EventLog(tmp_path / "events.jsonl")
    recorder: Any = SimpleNamespace(n_rows=1)
    events = ClockEvents(log, recorder)
    try:
        for step, zone in enumerate(("Pacific/Kiritimati", "Pacific/Honolulu", "UTC")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            look(events, 10 * step, [0.5])
            log.append({"step": 10 * step, "event": "snapshot"})
    finally:
        monkeypatch.undo()
        time.tzset()
    recorded = log.read().events
    assert [event["event"] for event in recorded] == ["snapshot"] * 3
    times = [datetime.fromisoformat(event["time"]) for event in recorded]
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() < 3600.0


def test_readings_that_another_process_separated_are_no_jump() -> None:
    """A pause of 3 s between the readings of two clocks looks like a jump by 3 s."""
    logged: list[dict[str, Any]] = []
    boots = iter([0.0, 0.0, 1.0, 4.0, 5.0, 5.0])
    unix = iter([10.0, 14.0, 15.0])
    monotonic = iter([0.0, 4.0, 5.0])
    clocks = Clocks(
        unix=lambda: next(unix), boot=lambda: next(boots), monotonic=lambda: next(monotonic)
    )
    log = log_of(logged)
    events = ClockEvents(log, SimpleNamespace(n_rows=1), clocks)  # type: ignore[arg-type]
    for step in (0, 10, 20):
        look(events, step, [0.5])
    assert logged == []


class Process(NamedTuple):
    """What a process that lives a life sees: its clocks at the beginning, and what it leaves for the next one."""

    unix_s: float
    boot_s: float
    boot_id: str


def jumps_found(
    processes: list[Process], *, jump_s: float = 0.0, recorded_s: float = np.nan
) -> list[tuple[int, float]]:
    """Return step and size of the jumps that a life logs whose processes see these clocks.

    In each process the clocks are compared at step 10; then its snapshot is taken, and then the wall clock
    jumps by `jump_s`, and is compared at step 20. `recorded_s` is in the rows since the snapshot.
    """
    logged: list[dict[str, Any]] = []
    rows = new_rows(2, 1)
    rows["unix_s"][0] = recorded_s
    former: dict[str, Any] | None = None
    for number, process in enumerate(processes):
        ahead = [0.0]
        clocks = Clocks(
            unix=partial(lambda p, a: p.unix_s + a[0], process, ahead),
            boot=partial(lambda p: p.boot_s, process),
            monotonic=partial(lambda p: p.boot_s, process),
            boot_id=partial(lambda p: p.boot_id, process),
        )
        recorder: Any = SimpleNamespace(n_rows=8)
        events = ClockEvents(log_of(logged), recorder, clocks)
        events.compare_with(former, rows, step=100 * number)
        events.compare(100 * number + 10)
        former = events.reading()
        ahead[0] = jump_s
        events.compare(100 * number + 20)
    return [(event["step"], event["by_s"]) for event in logged]


def test_a_jump_of_the_wall_clock_while_no_process_runs_is_found() -> None:
    """An hour back between two processes of which the second begins 60 s later; a stop of two days is no jump."""
    ended = Process(1e9, 100.0, "a")
    assert jumps_found([ended, Process(1e9 - 3540.0, 160.0, "a")]) == [(100, -3600.0)]
    assert jumps_found([ended, Process(1e9 + 86460.0, 160.0, "a")]) == [(100, 86400.0)]
    assert jumps_found([ended, Process(1e9 + 172800.0, 100.0 + 172800.0, "a")]) == []


def test_after_a_start_of_the_computer_only_a_jump_back_is_seen() -> None:
    """Its clock since the start says nothing then: a day later may be a day without power. The record knows more."""
    ended = Process(1e9, 100.0, "a")
    assert jumps_found([ended, Process(1e9 + 86400.0, 5.0, "b")]) == []
    assert jumps_found([ended, Process(1e9 - 3600.0, 5.0, "b")]) == [(100, -3600.0)]
    later = jumps_found([ended, Process(1e9 - 3600.0, 5.0, "b")], recorded_s=1e9 + 50.0)
    assert later == [(100, -3650.0)]
    # Without a name of the start, as on other systems
    assert jumps_found([ended._replace(boot_id=""), Process(1e9 + 9.0, 5.0, "")]) == []


def test_a_jump_after_the_snapshot_is_logged_once() -> None:
    """Each process sees one of 7 s after its snapshot; the next one begins with it, or with another after a kill."""
    processes = [Process(1e9 + 7.0 * k + k, 100.0 + k, "a") for k in range(3)]
    assert jumps_found(processes, jump_s=7.0) == [(20, 7.0), (120, 7.0), (220, 7.0)]


def test_a_resume_says_that_the_wall_clock_was_set_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the events of a life, and of a stream; their rows stay in order by step and robot time."""
    run = tmp_path / "run"
    learner = StreamRun(
        ["x"], [[0, 1]], questions="nexting", has_times=False, out=tmp_path / "stream"
    )
    for _ in range(12):
        learner.row([0.5])
    learner.close()
    assert toy(f"learn --horizon 8 --steps 40 --out {run}", monkeypatch) == 0
    clocks = partial(Clocks, unix=lambda: time.time() - 3600.0)
    monkeypatch.setattr(robot, "ClockEvents", partial(ClockEvents, clocks=clocks()))
    monkeypatch.setattr(streamed_rows, "Clocks", clocks)
    assert toy(f"resume {run} --steps 80", monkeypatch) == 0
    learner = StreamRun.resume(tmp_path / "stream")
    learner.row([0.5])
    learner.close()
    for folder, step in ((run, 40), (tmp_path / "stream", 11)):
        events = RunFolder(folder).events.read().events
        (jump,) = [event for event in events if event["event"] == "clock"]
        assert (jump["step"], jump["stopped"], round(jump["by_s"])) == (step, True, -3600)
    rows = read(tmp_path / "stream/log/life.rec").rows
    assert np.all(np.diff(rows["step"]) > 0)
    assert np.all(np.diff(rows["t"]) > 0.0)


@pytest.mark.sim
def test_a_life_whose_wall_clock_jumps_is_the_same_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, steps and robot times are to the bit; the record has the jumps, of an hour back and a day ahead."""
    words = "learn --physics planar --questions nexting --steps 150 --seed 1 --out"
    assert cli.main([*words.split(), str(tmp_path / "steady")]) == 0
    n_readings = iter(range(10_000))

    def jumping() -> float:
        n = next(n_readings)
        return 1e9 + n - 3600.0 * (n >= 50) + 86400.0 * (n >= 100)

    monkeypatch.setattr(robot, "new_life", partial(new_life, unix_clock=jumping))
    assert cli.main([*words.split(), str(tmp_path / "jumping")]) == 0
    summaries = [summary_of(tmp_path / name) for name in ("steady", "jumping")]
    assert summaries[0]["weights_sha256"] == summaries[1]["weights_sha256"]
    steady, jumped = (read(tmp_path / name / "log/life.rec").rows for name in ("steady", "jumping"))
    for name in ("step", "t", "observation", "action"):
        assert steady[name].tobytes() == jumped[name].tobytes()
    assert np.all(np.diff(jumped["step"]) == 1)
    assert np.all(np.diff(jumped["t"]) > 0.0)
    assert sorted(set(np.diff(jumped["unix_s"]))) == [-3599.0, 1.0, 86401.0]


def test_each_alarm_is_raised_once_an_hour(alarms: Alarms) -> None:
    for step in range(0, 200, 10):
        look(
            alarms,
            step,
            [step / 200, 1.0],
            deadlines_missed=3 * (step > 150),
            horde=SimpleNamespace(n_waiting=0, n_diverged=2, diverged=["a", "b"]),
        )
    assert [name for name, _ in raised()] == ["deadline", "diverged", "overheating"]
    assert raised()[1][1] == "step 0: 2 demons diverged, the last one is b"


def test_a_grown_problem_is_no_repetition_and_the_first_steps_of_a_process_are_no_problem(
    alarms: Alarms | Events,
) -> None:
    """Two late steps while the process begins, then one more at step 200, and one in each check from 1,000 on.

    The alarm came at step 10, and none of the 714 later ones was heard of for an hour.
    """
    for step in range(0, 8110, 10):
        n_late = 2 + (step >= 200) + max((step - 990) // 10, 0)
        look(alarms, step, [step / 9000, 0.0], deadlines_missed=n_late)
    expected = {(200, 1), (1080, 10), (1980, 100)}
    assert set(raised()) == {
        ("deadline", f"step {step:,}: {n} deadlines missed") for step, n in expected
    }


def test_more_diverged_demons_and_less_space_are_grown_problems(
    alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes = {1000: 8e8, 2000: 7e8, 3000: 7e7}
    for step, n_diverged in ((1000, 2), (2000, 19), (3000, 20)):
        monkeypatch.setattr(
            "shutil.disk_usage", lambda _, step=step: SimpleNamespace(free=free_bytes[step])
        )
        horde = SimpleNamespace(n_waiting=0, n_diverged=n_diverged, diverged=["a"] * n_diverged)
        look(alarms, step, [step / 9000, 0.0], horde=horde)
    steps = [(name, sentence.partition(":")[0]) for name, sentence in raised()]
    assert steps == [
        ("disk", "step 1,000"),
        ("disk", "step 3,000"),
        ("diverged", "step 1,000"),
        ("diverged", "step 3,000"),
    ]


def test_a_sensor_that_never_varied_is_not_silent_and_one_that_did_is(alarms: Alarms) -> None:
    for step in range(0, 8000, 10):
        look(alarms, step, [min(step, 500) / 500, 0.0])
    assert raised() == [("silent", "step 6,500: light has been constant for 600 s")]


def test_a_sensor_that_is_only_missing_for_a_while_has_not_varied(alarms: Alarms) -> None:
    """A missing reading is no change: the light is .5 whenever it is there."""
    for step in range(0, 8000, 10):
        light = 0.5
        if 100 <= step < 300:
            light = np.nan
        look(alarms, step, [light, 0.0])
    assert raised() == []


def test_a_robot_is_not_silent_because_another_one_stands_still(alarms: Alarms) -> None:
    """Two robots by turns of 1,000 steps; the light of robot 1 is constant, for 600 s of its own at step 13,500.

    If readings of both were compared, the light would change with each turn, and never be silent.
    """
    for step in range(0, 14_000, 10):
        robot = step // 1_000 % 2
        light = 0.25 + step % 20 / 100
        if robot == 1 and step >= 1_500:
            light = 0.75
        look(alarms, step, [light, 0.0], robot=robot)
    sentence = "step 13,500: light of robot 1 has been constant for 600 s"
    assert raised() == [("silent", sentence)]


def test_steps_lived_again_after_a_resume_raise_no_alarm(alarms: Alarms) -> None:
    look(alarms, 10, [0.5, 1.0], is_redoing=True)
    assert raised() == []
    look(alarms, 20, [0.5, 1.0])
    assert raised() == [("overheating", "step 20: a motor is too hot")]


def test_of_slow_rows_600_are_constant_before_a_sensor_is_silent(
    tmp_path: Path, alarms: Alarms
) -> None:
    """Rows of an hour: ten minutes are none of them. Constant since step 3, each row is looked at."""
    alarms = Alarms(AlarmCommand("true"), tmp_path, ["light", "overheating"], 3600.0)
    for step in range(700):
        look(alarms, step, [min(step, 3) / 3, 0.0])
    assert raised() == [("silent", "step 603: light has been constant for 2,160,000 s")]


def test_a_stream_raises_the_alarms_of_a_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 1 s: x is constant from row 3 on, so silent at row 603; the disk is looked at each 100 rows."""
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr(
        AlarmCommand, "call", lambda _, name, sentence, **__: calls.append((name, sentence))
    )
    settings = {"questions": "nexting", "has_times": False, "on_alarm": "true"}
    with StreamRun(["x"], [[0, 1]], out=tmp_path / "run", **settings) as learner:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=8e8))
        for t in range(650):
            learner.row([min(t, 3) / 4])
    monkeypatch.undo()
    low = [
        f"step {step}: 800 MB free on the disk of {tmp_path / 'run'}" for step in range(0, 601, 100)
    ]
    assert [sentence for name, sentence in calls if name == "disk"] == low
    further_calls = [call for call in calls if call[0] != "disk"]
    assert further_calls == [("silent", "step 603: x has been constant for 600 s")]


def test_of_many_events_in_a_minute_sixty_are_said_and_all_are_in_the_log() -> None:
    """A hundred in a minute, of which the first was in the log before; then one more after a minute."""
    logged: list[dict[str, Any]] = []
    said: list[str] = []
    calls: list[str] = []
    now_s = [0.0]
    command: Any = SimpleNamespace(call=lambda _, sentence, **__: calls.append(sentence))
    lost = [SensorEvent(LOST, step, "light", 60.0) for step in range(101)]
    log = log_of([lost[0].entry()])
    log.append = logged.append
    log.path = Path("events.jsonl")
    announcer = Announcer(log, said.append, command, clock=lambda: now_s[0])
    for event in lost[:100]:
        announcer.add(event, LOST)
    now_s[0] = 60.0
    announcer.add(lost[100], LOST)
    assert logged == [event.entry() for event in lost[1:]]
    assert calls == [event.sentence for event in (*lost[1:61], lost[100])]
    further = "further ones of this minute are in events.jsonl alone"
    assert said == [*calls[:60], further, calls[60]]


def test_divergence_is_not_checked_while_steps_are_deferred(alarms: Alarms) -> None:
    """Reading it would flush them, and change the batches."""
    look(alarms, 10, [0.0, 0.0], horde=SimpleNamespace(n_waiting=3))
    assert not raised()


def test_a_full_disk_raises_an_alarm(alarms: Alarms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5e6))
    look(alarms, 1000, [0.0, 0.0])
    ((name, sentence),) = raised()
    assert name == "disk"
    assert "5 MB free" in sentence


def test_the_command_receives_name_and_message_and_the_weights_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "alarm.sh"
    script.write_text(f'#!/bin/sh\necho "$1: $2" >> {tmp_path}/alarms\n')
    script.chmod(0o755)
    hashes = []
    for k, more in enumerate(("", f"--on-alarm {script}")):
        words = f"learn --steps 400 --horizon 8 --out {tmp_path / str(k)} {more}"
        assert toy(words, monkeypatch, faults={200: {"overrun_s": 0.2}}) == 0
        hashes.append(summary_of(tmp_path / str(k))["weights_sha256"])
    end = time.monotonic() + 10.0
    while not (tmp_path / "alarms").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert "deadline: step 2" in (tmp_path / "alarms").read_text()
    assert hashes[0] == hashes[1]


# ---- events ----------------------------------------------------------------------------------------------------------


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log" / "events.jsonl").read_text().splitlines()]


def test_gaps_and_stops_are_logged_once_with_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A robot that applies no action for three steps from step 20 on, and has a gap at step 40."""
    stands = {age: {"applied": 0} for age in (20, 21, 22)}
    run = tmp_path / "a"
    words = (
        f"learn --steps 60 --seed 1 --excursion-probability 0 --snapshot-every never --out {run}"
    )
    assert toy(words, monkeypatch, faults={**stands, 40: {"gap": 1}}) == 0
    logged = [(event["event"], event["step"]) for event in events(run)]
    assert logged == [("began", 0), ("disobeyed", 20), ("gap", 40), ("snapshot", 60), ("ended", 60)]


@pytest.mark.sim
def test_replayed_steps_are_not_logged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a snapshot, the resumed run is replayed from its beginning."""
    run = tmp_path / "a"

    def disobeys(events: Events, event: Any) -> None:
        call(events, event._replace(row=event.row._replace(flags=2 * (event.row.step == 25))))

    call = Events.after_step
    monkeypatch.setattr(Events, "after_step", disobeys)
    assert (
        cli.main(
            f"learn --physics planar --steps 40 --questions nexting --snapshot-every never --out {run}".split()
        )
        == 0
    )
    shutil.rmtree(run / "checkpoint")
    assert cli.main(f"resume {run} --steps 50".split()) == 0
    logged = [event["event"] for event in events(run)]
    assert logged.count("disobeyed") == 1
    assert logged == ["began", "disobeyed", "snapshot", "ended", "resumed", "snapshot", "ended"]


# ---- the end ---------------------------------------------------------------------------------------------------------


Env = gymnasium.Env[Any, Any]
DISOBEYED = {"applied": 0, "obeyed": 0}
LOG = ["--backend", "replay", "--log", "log.csv", "--columns", "columns.toml"]


def ask_on_page(age: int) -> None:
    if age == 300:  # the answer comes after the robot was closed
        threading.Thread(target=ask_process, args=(RunFolder(Path("a")),), daemon=True).start()


def failing(error: BaseException) -> Callable[[], Env]:
    """Return a maker of bodies that raise `error` at step 300."""

    def on_step(age: int) -> None:
        if age == 300:
            raise error

    return lambda: ToyBody(on_step=on_step)


class Lost(ToyBody):
    """A robot that is gone at step 300, as with `RobotEnv`: the episode is truncated, and the next reset raises."""

    def __init__(self, error: HordeEnvError) -> None:
        super().__init__({300: {"truncated": 1}})
        self.error = error

    def reset(self, **options: Any) -> Any:
        if self.age >= 300:
            raise self.error
        return super().reset(**options)


class Interrupted(ToyBody):
    """A robot with a Ctrl-C at the end of its drive, just after the request of the live page."""

    def end_manoeuvre(self) -> None:
        self.end_manoeuvre = lambda: None  # type: ignore[method-assign]
        signal.raise_signal(signal.SIGINT)


class Case(NamedTuple):
    """A way to end: the recorded cause and words, the body that ends so, further words of the command."""

    cause: ExitCause
    why: str | None
    body: Callable[[], Env] = ToyBody
    words: tuple[str, ...] = ()


IN_ORDER = (
    ExitCause.STEPS,
    ExitCause.LOG_END,
    ExitCause.PAGE_STOP,
    ExitCause.BATTERY_LOW,
    ExitCause.UNKNOWN,
    ExitCause.CUT_OFF,
)
EXIT_CODES = {
    ExitCause.SIGINT: 130,
    ExitCause.SIGTERM: 143,
    ExitCause.SIGHUP: 129,
    **dict.fromkeys(IN_ORDER, 0),
}
"""1 for all others, but that a bug raises its exception."""

CASES = {
    "steps reached": Case(ExitCause.STEPS, None),
    "Ctrl-C": Case(ExitCause.SIGINT, "SIGINT", lambda: ToyBody(on_step=at(300, signal.SIGINT))),
    "Ctrl-C in a thread": Case(ExitCause.SIGINT, "SIGINT", failing(KeyboardInterrupt())),
    "SIGTERM": Case(ExitCause.SIGTERM, "SIGTERM", lambda: ToyBody(on_step=at(300, signal.SIGTERM))),
    "terminal closed": Case(
        ExitCause.SIGHUP, "SIGHUP", lambda: ToyBody(on_step=at(300, signal.SIGHUP))
    ),
    "stop button": Case(
        ExitCause.PAGE_STOP, "the stop button", lambda: ToyBody(on_step=ask_on_page)
    ),
    "stop button, then Ctrl-C": Case(
        ExitCause.PAGE_STOP, "the stop button", lambda: Interrupted(on_step=ask_on_page)
    ),
    "battery low": Case(
        ExitCause.BATTERY_LOW, "its battery was low", lambda: BatteryBody(helps=(False,))
    ),
    "emergency stop": Case(
        ExitCause.EMERGENCY_STOP,
        "the emergency stop is set: smoke",
        lambda: Lost(EmergencyStop("smoke", Path("stop"))),
    ),
    "robot silent": Case(
        ExitCause.LINK_LOST,
        "no frame from /dev/x",
        lambda: Lost(BackendLost("/dev/x", 31.0, 30.0, 299)),
    ),
    "robot not opened": Case(
        ExitCause.ROBOT_UNAVAILABLE, "no robot", lambda: Lost(BackendUnavailable("no robot there"))
    ),
    "driver failed": Case(
        ExitCause.ROBOT_ERROR, "the driver", failing(HordeEnvError("the driver failed"))
    ),
    "robot disobeys": Case(
        ExitCause.DISOBEYED,
        "the life ends after",
        lambda: ToyBody(dict.fromkeys(range(300, 9999), DISOBEYED)),
    ),
    "shard lost": Case(ExitCause.SHARD_LOST, "shard 1", failing(ShardLost(1, 10, "killed"))),
    "disk full": Case(
        ExitCause.DISK_FULL,
        "a/log/life.rec cannot be written (File too large)",
        words=("--excursion-probability", "0"),
    ),
    "error": Case(ExitCause.ERROR, "unplugged", failing(ConnectionError("unplugged"))),
    "error without words": Case(
        ExitCause.ERROR, "an error of the environment", failing(ZeroDivisionError())
    ),
    "unforeseen stop": Case(ExitCause.UNKNOWN, "unknown"),
    "killed": Case(ExitCause.CUT_OFF, "it was cut off"),
    "log read": Case(ExitCause.LOG_END, None, words=(*LOG, "--passes", "1")),
    "log read in part": Case(ExitCause.STEPS, None, words=(*LOG, "--passes", "1", "--steps", "40")),
    "rows unreadable": Case(
        ExitCause.UNREADABLE,
        "1,000 rows of standard input in a row cannot be read",
        words=("-", "--columns", "columns.toml"),
    ),
    "log, Ctrl-C": Case(ExitCause.SIGINT, "SIGINT", words=(*LOG, "--passes", "9")),
}


def test_each_cause_has_a_case() -> None:
    assert {case.cause for case in CASES.values()} == set(ExitCause)
    assert (
        len({cause.code for cause in ExitCause})
        == len({cause.description for cause in ExitCause})
        == len(ExitCause)
    )


@pytest.mark.parametrize("name", CASES)
def test_what_ended_a_run_is_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run is cut short at step 300 of 2,500, except where its case says otherwise."""
    case = CASES[name]
    is_stream = "-" in case.words
    is_log = "--log" in case.words or is_stream
    monkeypatch.chdir(tmp_path)
    if is_log:
        Path("log.csv").write_text("x\n" + "".join(f"{k % 7}\n" for k in range(100)))
        Path("columns.toml").write_text(
            'period_s = 0.1\n[[channel]]\ncolumn = "x"\nlow = 0\nhigh = 7\n'
        )
    else:
        monkeypatch.setattr(learn, "make_env", lambda _config: case.body())
    if is_stream:
        lines = ["x", "1", "2", *["?"] * 1000]
        stream = io.BytesIO("\n".join(lines).encode())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    if name == "unforeseen stop":
        monkeypatch.setattr(
            Sampler, "after_step", lambda _, event: event.life.steps < 300 or event.life.stop()
        )
    if name == "log, Ctrl-C":
        monkeypatch.setattr(
            "horde_agent.runs.session.Progress.is_due",
            lambda *_: signal.raise_signal(signal.SIGINT),
        )
    monkeypatch.setattr(learn, "write_report", lambda path: path)
    handlers = {number: signal.getsignal(number) for number in ENDING}
    words = ["learn", "--out", "a", *([] if is_log else ["--steps", "2500"]), *case.words]
    with (
        files_of_at_most(70_003 if name == "disk full" else 1 << 40),
        suppress(ConnectionError, ZeroDivisionError),
    ):
        code = cli.main(words)
        assert code == (
            130 if name == "stop button, then Ctrl-C" else EXIT_CODES.get(case.cause, 1)
        )
        if code == 1:
            message = capsys.readouterr().err
            assert name == "shard lost" or (
                f"horde: {case.why}" in message and "The run until then is in a\n" in message
            )
    assert {number: signal.getsignal(number) for number in ENDING} == handlers
    if name == "killed":
        Path("a/summary.json").unlink()
        write_report(Path("a"))

    details = json.loads(Path("a/details.json").read_text())
    assert (details["ended_by"], details["stopped_early"]) == (
        case.cause.code,
        case.why is not None,
    )
    records = [details]
    if not is_log and name != "killed":
        logged = events(Path("a"))
        (ended,) = [event for event in logged if event["event"] == "ended"]
        assert ended["cause"] == case.cause.code
        records.append({"stopped_by": ended["why"]})
    for one in records:
        assert (
            one["stopped_by"] == case.why
            if case.why is None
            else one["stopped_by"].startswith(case.why)
        )
