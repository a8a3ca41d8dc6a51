"""Docking: when, learning before and after a stay at the dock, and failures."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent.interface import Interface
from horde_agent.life.excursions import DockingConfig, ExcursionConfig
from horde_agent.life.learner import StreamLearner
from horde_agent.record import Flag, Phase, Recorder, Row
from tests.agent.doubles import SCALE, SpyHorde, ToyBody, live, toy_life, toy_questions
from tests.facts import states

STAY_STEPS = 40  # frames 1, 2, 20, 39 and 40 are recorded


class BatteryBody(ToyBody):
    """A toy with a battery: low after `capacity` steps since its last successful stay at the dock.

    Args:
        capacity: Steps from full to low; urgent three steps later.
        helps: For each stay, whether it fills the battery; the last one holds from then on.
        can_dock: Whether its metadata list the manoeuvre.
    """

    def __init__(
        self, capacity: int = 30, helps: tuple[bool, ...] = (True,), *, can_dock: bool = True
    ) -> None:
        super().__init__()
        if can_dock:
            self.metadata["manoeuvres"] = ["centre", "dock"]
        else:
            self.metadata["manoeuvres"] = ["centre"]
        self.capacity = capacity
        self.helps = list(helps)
        self.full_at = 0
        self.stays: list[tuple[int, float]] = []
        self.manoeuvre_at: list[int] = []
        self.n_ended = 0

    def info_of_step(self) -> dict[str, Any]:
        used = self.age - self.full_at
        return super().info_of_step() | {
            "battery_low": int(used >= self.capacity),
            "battery_urgent": int(used >= self.capacity + 3),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Stay, drive, or charge for `STAY_STEPS` steps."""
        if (options or {}).get("manoeuvre") != "dock":
            self.manoeuvre_at = list(range(1, self.drive_steps + 1))
            return super().reset(seed=seed, options=options)
        assert options is not None
        self.stays.append((self.age, options["charge_s"]))
        began = self.age
        self.manoeuvre_frames = []
        self.manoeuvre_observations = []
        self.manoeuvre_at = [1, 2, 20, 39, 40]
        for at in self.manoeuvre_at:
            self.age = began + at
            self.manoeuvre_frames.append(
                SimpleNamespace(
                    t=self.age / 10, stale=False, crc_errors=0, applied=at in (1, 2, 40), extras={}
                )
            )
            self.manoeuvre_observations.append(self.channel_values())
        if len(self.helps) > 1:
            helped = self.helps.pop(0)
        else:
            helped = self.helps[0]
        if helped:
            self.full_at = self.age
        return self.channel_values(), self.info_of_step() | {
            "gap": 1,
            "manoeuvre_steps": STAY_STEPS,
            "docked": int(helped),
        }

    def end_manoeuvre(self) -> None:
        self.n_ended += 1


def test_a_low_battery_sends_the_life_to_the_dock_and_it_continues() -> None:
    """Capacity 30, a stay of 40: lows at 30, 100, 170. Nothing is learned across a stay; all its steps count."""
    body = BatteryBody()
    horde = SpyHorde(toy_questions())
    life = live(215, body, horde)

    assert [age for age, _ in body.stays] == [30, 100, 170]
    assert [call[1] for call in horde.calls if call[0] == "begin"] == [0, 70, 140, 210]
    assert [call[1] for call in horde.learned] == [
        *range(30),
        *range(70, 100),
        *range(140, 170),
        *range(210, 215),
    ]
    assert (life.dockings.n_done, life.dockings.n_failed) == (3, 0)
    assert (life.steps, life.counts.gaps) == (215, 0)


def test_the_stay_is_recorded_at_the_steps_of_its_frames() -> None:
    """The departure at 30, then the frames 1, 2, 20, 39 of the stay; behaviour continues at the 40th."""
    recorder = Recorder(3)
    live(80, BatteryBody(), SpyHorde(toy_questions()), recorder=recorder)
    rows = recorder.stream().rows

    docked = rows[rows["phase"] == Phase.DOCK]
    assert docked["step"].tolist() == [30, 31, 32, 50, 69]
    assert docked["action"].tolist() == [-1] * 5
    assert (docked["flags"] & Flag.NOT_APPLIED).astype(bool).tolist() == [
        False,
        False,
        False,
        True,
        True,
    ]
    np.testing.assert_allclose(docked["observation"][:, 0] * 10_000, docked["step"], rtol=1e-6)
    next_row = rows[rows["step"] == 70]
    assert (next_row["phase"].item(), next_row["flags"].item() & Flag.GAP) == (
        Phase.BEHAVE,
        Flag.GAP,
    )


def test_a_stay_ends_with_the_run_and_is_not_a_failure_then() -> None:
    """The run of 60 steps ends 3 s after the stay begins; further steps of the stay are not counted."""
    body = BatteryBody(helps=(False, True))
    with toy_life(body, SpyHorde(toy_questions())) as life:
        life.run(60)
        assert body.stays == [(30, pytest.approx(3.0))]
        assert (life.steps, life.dockings.n_done, life.dockings.n_failed) == (60, 0, 0)
        life.run(60)
    assert [age for age, _ in body.stays] == [30, 70]
    assert (life.dockings.n_done, life.dockings.n_failed) == (1, 0)


def test_an_excursion_is_finished_before_docking() -> None:
    """Low at 1, in the middle of an excursion of 2 steps: that one is scored, its drive done, and then it docks."""
    body = BatteryBody(capacity=1)
    life = live(20, body, SpyHorde(toy_questions()), excursions=ExcursionConfig(1.0, 2))
    assert body.drives[0] == 2, "the excursion 0..2 ends in its drive"
    assert body.stays[0][0] == 2 + body.drive_steps
    assert life.student.errors.n_discarded == 0
    assert life.student.errors.n_excursions >= 1


def test_an_urgent_battery_interrupts_an_excursion() -> None:
    """Excursion 0..20; low at 2, urgent at 5: it ends there, discarded, without a drive to the centre."""
    body = BatteryBody(capacity=2)
    horde = SpyHorde(toy_questions())
    life = live(6, body, horde, excursions=ExcursionConfig(1.0, 20))
    assert body.stays[0][0] == 5
    assert body.drives == []
    assert life.student.errors.n_excursions == 0
    assert life.student.errors.discarded_by() == {"docking": 1}
    assert horde.learned == []


def test_a_failed_docking_is_repeated_after_a_pause() -> None:
    """Stays at 30 and, after 40 steps of it and 20 of pause, at 90; it behaves and learns in between."""
    body = BatteryBody(helps=(False, True))
    horde = SpyHorde(toy_questions())
    life = live(150, body, horde, docking=DockingConfig(pause_s=2.0, attempts=2))
    assert [age for age, _ in body.stays] == [30, 90]
    assert set(range(70, 90)) <= {call[1] for call in horde.learned}
    assert (life.dockings.n_done, life.dockings.n_failed) == (1, 1)
    assert life.steps == 150


def test_too_many_failures_in_a_row_end_the_life(caplog: pytest.LogCaptureFixture) -> None:
    """Three attempts, from 30, 80 and 130 on; the last one ends at 170."""
    body = BatteryBody(helps=(False,))
    horde = SpyHorde(toy_questions())
    with (
        caplog.at_level(logging.WARNING),
        toy_life(body, horde, docking=DockingConfig(pause_s=1.0, attempts=3)) as life,
    ):
        life.run(1000)
    assert [age for age, _ in body.stays] == [30, 80, 130]
    assert (life.steps, life.is_stopped) == (170, True)
    assert states(caplog.text, "170 steps", "battery is low", "3 dockings")


@pytest.mark.parametrize(
    "body", [BatteryBody(capacity=3, can_dock=False), ToyBody()], ids=["no dock", "no battery"]
)
def test_a_body_without_a_dock_is_never_sent_there(body: Any) -> None:
    life = live(20, body, SpyHorde(toy_questions()))
    assert life.student.learning_steps == 20


def test_stop_ends_a_stay() -> None:
    body = BatteryBody()
    with toy_life(body, SpyHorde(toy_questions())) as life:
        life.run(5)
        life.stop()
    assert body.n_ended == 1


def test_a_row_after_frames_of_a_drive_is_observed_though_the_run_ended_at_the_drive() -> None:
    """The observation at age 1 was passed before its row; that row and the next are frames of the same stay.

    If the frame did not count, nothing would begin at age 3: the transition to age 4 would be learned from
    age 1.
    """
    horde = SpyHorde(toy_questions())
    student = StreamLearner(horde, Interface.of(ToyBody()))
    rows = [
        Row(step=age, observation=np.full(3, age / SCALE, np.float32), phase=phase, action=0, b=0.5)
        for age, phase in enumerate(
            (Phase.DOCK, Phase.DOCK, Phase.DOCK, Phase.BEHAVE, Phase.BEHAVE)
        )
    ]
    student.take_row(rows[0])
    student.observe(rows[1].observation, rows[1].flags)
    for row in rows[1:]:
        student.take_row(row)
    assert [call[:2] for call in horde.calls] == [
        ("begin", 0),
        ("begin", 1),
        ("begin", 3),
        ("learn", 3),
    ]
