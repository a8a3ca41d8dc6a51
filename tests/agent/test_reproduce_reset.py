"""The second experiment's changes, and the numbers that its verdicts are made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.interface import Interface
from horde_agent.record import read
from horde_agent.reproduce.excursions import problem as excursions
from horde_agent.reproduce.lessons import TrainingData
from horde_agent.reproduce.reset import problem as reset
from horde_agent.reproduce.reset.problem import Data, agreement
from tests.agent.doubles import ToyBody
from tests.agent.reproducing import record_life, toy_study


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life of 2,500 steps, changed after 600 updates."""
    monkeypatch.setitem(excursions.STEPS, "quick", 2_500)
    monkeypatch.setitem(reset.STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.LAMP_STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.CHANGE_AT, "quick", 600)


@pytest.mark.usefixtures("short")
def test_theta_is_lost_after_its_step_and_w_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimates of the two runs agree until the change and continue from the same values.

    The toy's lamp does not move, so that the runs differ by theta := 0 alone.
    """
    study = toy_study(tmp_path, monkeypatch)
    data, _ = reset.gather(study)
    lost, kept = data.reset[0], data.moved[0]
    upto = lost.at <= 600
    np.testing.assert_array_equal(lost.scalar[upto], kept.scalar[upto])
    np.testing.assert_array_equal(lost.vector[upto], kept.vector[upto])
    next_look = lost.at == 620
    assert (np.abs(lost.scalar[next_look] - kept.scalar[next_look]) > 0).any()
    np.testing.assert_array_equal(lost.scalar[0], 0.0)


@pytest.mark.usefixtures("short")
def test_the_lamp_moves_between_the_changes_step_and_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch)
    life = read(record_life(study, 0, 2_500))
    at_s, lamp, _ = reset.lamp_move(life, 600)
    lessons = TrainingData(life)
    last = int(np.flatnonzero(lessons.n_learned == 600)[0])
    assert lamp == "lamp"
    assert life.rows["t"][last] < at_s < life.rows["t"][last + 1]
    with pytest.raises(ValueError, match="live longer"):
        reset.lamp_move(life, 10_000)


def test_the_lag_of_a_copy_is_found() -> None:
    """An estimate that shows what the NMSRE showed 7 looks ago, at 20 learning steps a look."""
    noise = np.cumsum(np.random.default_rng(0).normal(size=400))
    found = agreement(noise[7:], noise[:-7], every=20, longest=30)
    assert found.lag == 140.0
    assert found.best == pytest.approx(1.0)
    assert found.correlation < 0.999


def data_of(change_at: int = 1_000, every: int = 10) -> Data:
    interface = Interface.of(ToyBody())
    return Data(interface, reset.asked(interface), change_at, every, {}, {})


def test_a_reaction_is_measured_by_its_peak_and_half() -> None:
    """Level 2 until step 1,000; 10 at 1,050; falling by 1 per 10 steps: half of the rise (6) is gone at 1,090."""
    at = np.arange(0, 2_010, 10)
    curve = np.where(at <= 1_000, 2.0, np.maximum(10.0 - np.maximum(at - 1_050, 0) / 10, 2.0))
    curve[(at > 1_000) & (at < 1_050)] = 3.0
    found = data_of().reaction(at, curve)
    assert found == (2.0, 10.0, 50.0, 90.0)
    assert found.rise == 4.0
    assert data_of().reaction(at, curve - 3.0).rise == 8.0  # from -1 to 7
