"""events.jsonl has each event of a run once, with its step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.runs.keeping.events import Events
from tests.agent.doubles import ToyBody


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log" / "events.jsonl").read_text().splitlines()]


def lived(monkeypatch: pytest.MonkeyPatch, words: str, **settings: Any) -> int:
    monkeypatch.setattr(cli, "_make_env", lambda _config: ToyBody(**settings))
    return cli.main(words.split())


def test_gaps_and_stops_are_logged_once_with_their_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot that applies no action for three steps from step 20 on, and has a gap at step 40."""
    stands = {age: {"applied": 0} for age in (20, 21, 22)}
    run = tmp_path / "a"
    words = f"learn --steps 60 --seed 1 --excursion-probability 0 --snapshot-every never --out {run}"
    assert lived(monkeypatch, words, faults={**stands, 40: {"gap": 1}}) == 0
    logged = [(event["event"], event["step"]) for event in events(run)]
    assert logged == [("began", 0), ("disobeyed", 20), ("gap", 40), ("snapshot", 60), ("ended", 60)]


def test_an_error_is_logged_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_step(age: int) -> None:
        if age == 30:
            raise type("HordeEnvError", (Exception,), {})("the robot is gone")

    assert lived(monkeypatch, f"learn --steps 60 --out {tmp_path / 'a'}", on_step=on_step) == 1
    (ended,) = [event for event in events(tmp_path / "a") if event["event"] == "ended"]
    assert (ended["step"], ended["why"]) == (30, "the robot is gone")


@pytest.mark.sim
def test_replayed_steps_are_not_logged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a snapshot, the resumed run is replayed from its beginning."""
    run = tmp_path / "a"

    def disobeys(events: Events, event: Any) -> None:
        call(events, event._replace(row=event.row._replace(flags=2 * (event.row.step == 25))))

    call = Events.after_step
    monkeypatch.setattr(Events, "after_step", disobeys)
    assert cli.main(f"learn --steps 40 --questions nexting --snapshot-every never --out {run}".split()) == 0
    shutil.rmtree(run / "checkpoint")
    assert cli.main(f"resume {run} --steps 50".split()) == 0
    logged = [event["event"] for event in events(run)]
    assert logged.count("disobeyed") == 1
    assert logged == ["began", "disobeyed", "snapshot", "ended", "resumed", "snapshot", "ended"]
