"""The paper's second experiment: the two changes, and how a reaction is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import excursions, reset
from examples.reproduce.reset import ResetResults, agreement
from examples.reproduce.training_data import TrainingData
from horde_agent.interface import Interface
from horde_agent.record import read
from tests.agent.reproducing import LitToy, record_life, toy_context

LIT = Interface.of(LitToy())
EVERY = 10
CHANGE = 400
AT = np.arange(0, 1_001, EVERY)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life of 2,500 steps, changed after 600 updates."""
    monkeypatch.setitem(excursions.STEPS, "quick", 2_500)
    monkeypatch.setitem(reset.STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.LAMP_STEPS, "quick", 2_400)
    monkeypatch.setitem(reset.CHANGE_AT, "quick", 600)


@pytest.mark.usefixtures("short")
def test_theta_is_lost_after_its_step_and_w_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimates of the two runs agree until the change and continue from the same values.

    The toy's lamp does not move, so that the runs differ by theta := 0 alone.
    """
    context = toy_context(tmp_path, monkeypatch)
    data, _ = reset.run(context)
    lost = data.reset[0]
    reference = data.moved[0]
    upto = lost.at <= 600
    np.testing.assert_array_equal(lost.scalar[upto], reference.scalar[upto])
    np.testing.assert_array_equal(lost.vector[upto], reference.vector[upto])
    next_look = lost.at == 620
    assert (np.abs(lost.scalar[next_look] - reference.scalar[next_look]) > 0).any()
    np.testing.assert_array_equal(lost.scalar[0], 0.0)


@pytest.mark.usefixtures("short")
def test_the_lamp_moves_between_the_changes_step_and_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = toy_context(tmp_path, monkeypatch)
    life = read(record_life(context, 0, 2_500))
    at_s, lamp, _ = reset.lamp_move(life, 600)
    training_data = TrainingData(life)
    last = int(np.flatnonzero(training_data.n_learned == 600)[0])
    assert lamp == "lamp"
    assert life.rows["t"][last] < at_s < life.rows["t"][last + 1]
    with pytest.raises(ValueError, match="live longer"):
        reset.lamp_move(life, 10_000)


def test_the_lag_of_a_copy_is_found() -> None:
    """An estimate that shows what the NMSRE showed 7 looks ago, at 20 learning steps a look."""
    noise = np.cumsum(np.random.default_rng(0).normal(size=400))
    match = agreement(noise[7:], noise[:-7], every=20, longest=30)
    assert match.lag == 140.0
    assert match.best == pytest.approx(1.0)
    assert match.correlation < 0.999


def test_a_reaction_is_measured_by_its_peak_and_half() -> None:
    """Level 2 until step 400; 10 at 450; falling by 1 per 10 steps: half of the rise (6) is gone at 490."""
    curve = np.where(AT <= CHANGE, 2.0, np.maximum(10.0 - np.maximum(AT - 450, 0) / 10, 2.0))
    curve[(AT > CHANGE) & (AT < 450)] = 3.0
    results = ResetResults(LIT, reset.asked(LIT), CHANGE, EVERY, {}, {})
    reaction = results.reaction(AT, curve)
    assert reaction == (2.0, 10.0, 50.0, 90.0)
    assert reaction.rise == 4.0
    assert results.reaction(AT, curve - 3.0).rise == 8.0  # from -1 to 7
