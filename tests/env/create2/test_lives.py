"""`horde learn` with an emulated Create 2 and a fault: output, exit code and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horde_agent.cli import main
from horde_env.robots.create2.emulator.emulator import CreateEmulator, EmulatedCreate

pytestmark = pytest.mark.hardware
BEGIN_S = 10.0  # of the robot's time


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run `horde learn` with a fault from the tenth second on, expect its exit code, and return its summary."""

    def live(fault: str, for_s: float, steps: int, code: int = 0) -> dict[str, Any]:
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
        assert main(["learn", *words, "--steps", str(steps), "--out", str(tmp_path)]) == code
        return json.loads((tmp_path / "summary.json").read_text())

    return live


def test_a_robot_that_disobeys_for_twelve_seconds_is_complained_of_and_learned_from_again(
    live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as a warning, which Python prints on the terminal; nothing is learned for 11 s or more of 12."""
    assert 250 <= live("unread", 12.0, 400)["learning_steps"] <= 400 - 110
    assert caplog.text.count("packets 41 and 42") == caplog.text.count("the robot follows its commands again") == 1


def test_a_robot_that_disobeys_for_a_minute_ends_the_life(
    live: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 1, the same sentence as the reason, and a report."""
    steps = live("lift", 600.0, 2_000, code=1)["steps"]
    assert 700 - 20 <= steps <= 700 + 20  # the drive to the middle took two of the ten seconds
    sentence = "a wheel has dropped (packet 7)"
    assert caplog.text.count(sentence) == 1
    assert sentence in json.loads((tmp_path / "details.json").read_text())["stopped_by"]
    assert (tmp_path / "report.html").is_file()


def test_a_life_whose_robot_slept_through_its_end_says_so(live: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lost_s = live("stall", 600.0, 200)["s_without_link"]
    assert 9.0 < lost_s < 11.0
    assert f"no link to the robot for {lost_s:.1f} s (" in capsys.readouterr().err
