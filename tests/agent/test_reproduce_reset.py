"""The second experiment's changes, and the numbers that its verdicts are made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.record import read
from horde_agent.reproduce import excursions, reset
from horde_agent.reproduce.lessons import TrainingData
from horde_agent.reproduce.reset import Data, LaterPart, Run, agreement
from tests.agent.doubles import ToyBody, toy_questions
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
    data = reset.gather(study)
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
    return Data(interface, reset.asked(interface), change_at, every, 5 * every, {}, {})


def test_a_reaction_is_measured_by_its_peak_and_half() -> None:
    """Level 2 until step 1,000; 10 at 1,050; falling by 1 per 10 steps: half of the rise (6) is gone at 1,090."""
    at = np.arange(0, 2_010, 10)
    curve = np.where(at <= 1_000, 2.0, np.maximum(10.0 - np.maximum(at - 1_050, 0) / 10, 2.0))
    curve[(at > 1_000) & (at < 1_050)] = 3.0
    found = data_of().reaction(at, curve)
    assert found == (2.0, 10.0, 50.0, 90.0)
    assert found.rise == 4.0
    assert data_of().reaction(at, curve - 3.0).rise == 8.0  # from -1 to 7


def test_the_share_of_later_moves_is_that_of_the_area_at_the_ends_of_the_blocks() -> None:
    """Looks at 0, 10, ..., 40, blocks of 20: the vector estimate is 0, 4, 8 there, the scalar half; later .5 and 1."""
    at = np.arange(0, 50, 10)
    vector = np.array([0.0, 100.0, 4.0, 100.0, 8.0])[:, None]
    later = np.array([0.0, 0.5, 1.0])[:, None]
    run = Run(at, vector, 0.5 * vector, vector, later, np.array([True]), 1, 2, 1.0)
    assert run.share_later(20) == pytest.approx(1.5 / 6.0)


def test_the_later_part_is_the_sum_over_what_w_did_after_each_block() -> None:
    """By the definition, from every step's delta e, which is what m took in, and every step's w; blocks of 4 of 18."""
    config = LearnerConfig(mspbe_tau=6.0, secondary_ratio=0.5)
    horde = Horde(toy_questions(), n_features=40, n_active=3, config=config)
    rng, decay = np.random.default_rng(1), 1.0 - 1.0 / 6.0
    horde.begin(rng.random(3), rng.integers(40, size=3))
    part, m, w = LaterPart(horde, 4), [horde.mspbe_trace()], [horde.weights()[1]]
    for n in range(1, 17):
        horde.learn(int(rng.integers(2)), 0.5, rng.random(3), rng.integers(40, size=3))
        m.append(horde.mspbe_trace())
        w.append(horde.weights()[1])
        if n % 4 == 0:
            part.end_block(horde)
    taken_in = [m[k] - decay * m[k - 1] for k in range(1, 17)]
    block_ends = [w[-(-k // 4) * 4] for k in range(1, 17)]
    parts = [decay ** (16 - k) * (taken_in[k - 1] * (w[16] - block_ends[k - 1])).sum(axis=1) for k in range(1, 17)]
    largest = np.abs(part.value).max()
    np.testing.assert_allclose(part.value, np.sum(parts, axis=0), atol=1e-5 * largest)
    before_each = [decay ** (16 - k) * (taken_in[k - 1] * (w[16] - w[k - 1])).sum(axis=1) for k in range(1, 17)]
    difference = horde.mspbe_vector() - horde.mspbe_scalar
    np.testing.assert_allclose(difference, np.sum(before_each, axis=0), atol=1e-5 * np.abs(difference).max())
    assert largest > 0.01 * np.abs(difference).max()
