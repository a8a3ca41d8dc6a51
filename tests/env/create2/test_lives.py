"""`horde learn` with an emulated Create 2 and a fault: output, exit code and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horde_agent.cli import main
from horde_env.robots.create2.emulator.emulator import CreateEmulator, EmulatedCreate

pytestmark = pytest.mark.hardware
BEGIN_S = 10.0  # of the robot's time


def live(fault: str, for_s: float, steps: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `n` steps with a fault from the tenth second on, and return the exit code."""
    switch_on = EmulatedCreate.switch_on

    def switched_on(body: EmulatedCreate, seed: int) -> CreateEmulator:
        emulator = switch_on(body, seed)
        cycle = emulator.robot.cycle

        def cycled(look: bool = True) -> Any:
            if emulator.t == BEGIN_S:
                emulator.inject(fault, for_s)
            return cycle(look)

        monkeypatch.setattr(emulator.robot, "cycle", cycled)
        return emulator

    monkeypatch.setattr(EmulatedCreate, "switch_on", switched_on)
    words = ["--backend", "emulated", "--robot", "create2", "--questions", "nexting", "--physics", "planar"]
    return main(["learn", *words, "--steps", str(steps), "--out", str(out)])


def test_a_robot_that_disobeys_for_twelve_seconds_is_complained_of_and_learned_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as a warning, which Python prints on the terminal; nothing is learned for 11 s or more of 12."""
    assert live("unread", 12.0, 400, tmp_path / "run", monkeypatch) == 0
    assert caplog.text.count("packets 41 and 42") == caplog.text.count("the robot follows its commands again") == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 250 <= summary["learning_steps"] <= 400 - 110


def test_a_robot_that_disobeys_for_a_minute_ends_the_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 1, the same sentence as the reason, and a report."""
    sentence = "a wheel has dropped (packet 7)"
    assert live("lift", 600.0, 2_000, tmp_path / "run", monkeypatch) == 1
    assert caplog.text.count(sentence) == 1
    details = json.loads((tmp_path / "run" / "details.json").read_text())
    assert sentence in details["stopped_by"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 700 - 20 <= summary["steps"] <= 700 + 20  # the drive to the middle took two of the ten seconds
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_life_whose_robot_slept_through_its_end_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live("stall", 600.0, 200, tmp_path / "run", monkeypatch) == 0
    lost_s = json.loads((tmp_path / "run" / "summary.json").read_text())["s_without_link"]
    assert 9.0 < lost_s < 11.0
    assert f"no link to the robot for {lost_s:.1f} s (" in capsys.readouterr().err
