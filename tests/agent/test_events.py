"""Alarms call a command once each; events.jsonl has each event of a run once, with its step."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import Flag, Phase, Row
from horde_agent.runs.keeping.events import Alarms, Events
from tests.agent.commands import summary_of, toy


def look(alarms: Alarms, step: int, observation: list[float], **life: Any) -> None:
    counts = {"deadlines_missed": 0, "horde": SimpleNamespace(n_waiting=0, n_diverged=0, diverged=[])} | life
    row = Row(step, 0.1 * step, np.array(observation, np.float32), 0, 1.0, Phase.BEHAVE, Flag.NONE, (0, 0, 0))
    alarms.after_step(SimpleNamespace(row=row, life=SimpleNamespace(**counts)))  # type: ignore[arg-type]


@pytest.fixture
def alarms(tmp_path: Path) -> Alarms:
    return Alarms("true", tmp_path, ["light", "overheating"], 0.1)


def test_each_alarm_is_raised_once_an_hour(alarms: Alarms) -> None:
    for step in range(0, 200, 10):
        look(
            alarms,
            step,
            [step / 200, 1.0],
            deadlines_missed=3,
            horde=SimpleNamespace(n_waiting=0, n_diverged=2, diverged=["a", "b"]),
        )
    assert [name for name, _ in alarms.raised] == ["overheating", "deadline", "diverged"]
    assert alarms.raised[2][1] == "step 0: 2 demons diverged, the last one is b"


def test_a_sensor_that_never_varied_is_not_silent_and_one_that_did_is(alarms: Alarms) -> None:
    for step in range(0, 8000, 10):
        look(alarms, step, [min(step, 500) / 500, 0.0])
    assert list(alarms.raised) == [("silent", "step 6,500: light has been constant for 600 s")]


def test_the_newest_hundred_alarms_are_kept(alarms: Alarms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "_call", lambda *_: None)
    for k in range(105):
        alarms._raise("silent", f"{k}", again_s=0.0)
    assert [sentence for _, sentence in alarms.raised] == [f"{k}" for k in range(5, 105)]


def test_divergence_is_not_checked_while_steps_are_deferred(alarms: Alarms) -> None:
    """Reading it would flush them, and change the batches."""
    look(alarms, 10, [0.0, 0.0], horde=SimpleNamespace(n_waiting=3))
    assert not alarms.raised


def test_a_full_disk_raises_an_alarm(alarms: Alarms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5e6))
    look(alarms, 1000, [0.0, 0.0])
    assert alarms.raised[0][0] == "disk"
    assert "5 MB free" in alarms.raised[0][1]


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


def test_gaps_and_stops_are_logged_once_with_their_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot that applies no action for three steps from step 20 on, and has a gap at step 40."""
    stands = {age: {"applied": 0} for age in (20, 21, 22)}
    run = tmp_path / "a"
    words = f"learn --steps 60 --seed 1 --excursion-probability 0 --snapshot-every never --out {run}"
    assert toy(words, monkeypatch, faults={**stands, 40: {"gap": 1}}) == 0
    logged = [(event["event"], event["step"]) for event in events(run)]
    assert logged == [("began", 0), ("disobeyed", 20), ("gap", 40), ("snapshot", 60), ("ended", 60)]


@pytest.mark.sim
def test_replayed_steps_are_not_logged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a snapshot, the resumed run is replayed from its beginning."""
    run = tmp_path / "a"

    def disobeys(events: Events, event: Any) -> None:
        call(events, event._replace(row=event.row._replace(flags=2 * (event.row.step == 25))))

    call = Events.after_step
    monkeypatch.setattr(Events, "after_step", disobeys)
    assert (
        cli.main(f"learn --physics planar --steps 40 --questions nexting --snapshot-every never --out {run}".split())
        == 0
    )
    shutil.rmtree(run / "checkpoint")
    assert cli.main(f"resume {run} --steps 50".split()) == 0
    logged = [event["event"] for event in events(run)]
    assert logged.count("disobeyed") == 1
    assert logged == ["began", "disobeyed", "snapshot", "ended", "resumed", "snapshot", "ended"]
