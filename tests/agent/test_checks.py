"""Signals are checked and summed as by the slow implementation in tests/oracles, on random streams."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from horde_agent.kernels import checks
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.readings import ReadingOffsets
from tests.oracles.checks import SlowSignals, count_updated, first_wrong

# Interpreted: inf * 0
pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

N_CHANNELS = 4
N_FEATURES = 12
N_ACTIVE = 3
N_ACTIONS = 3
N_STEPS = 300
if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    N_STEPS = 120  # interpreted, a step takes longer


def test_the_first_wrong_place_of_a_state_is_found() -> None:
    """Values that are not finite, tiles out of range and tiles named twice, at random places, several at once."""
    rng = np.random.default_rng(0)
    marks = np.zeros(N_FEATURES + 1, dtype=np.int64)
    places = []
    for _ in range(400):
        observation = rng.random(N_CHANNELS)
        tiles = rng.choice(N_FEATURES, 5, replace=False)
        if rng.random() < 0.3:
            observation[rng.integers(N_CHANNELS)] = rng.choice([np.nan, np.inf, -np.inf])
        if rng.random() < 0.3:
            tiles[rng.integers(5)] = rng.choice([-1, N_FEATURES])
        if rng.random() < 0.5:
            one, another = rng.choice(5, 2, replace=False)
            tiles[one] = tiles[another]
        places.append(checks.first_wrong(observation, tiles, marks))
        assert places[-1] == first_wrong(observation, tiles, N_FEATURES), (observation, tiles)
    # The first tile is never the second of two
    assert {*range(N_CHANNELS), *range(-11, 0)} - {-7} == set(places)


def test_the_demons_that_learn_in_a_step_are_counted() -> None:
    """Each has the ratio of its group's policy; diverged ones, and those that skip the step, do not count."""
    rng = np.random.default_rng(2)
    counts = set()
    for _ in range(200):
        rho = rng.choice([0.0, 1e-300, 0.5, 4.0, np.nan], 3)
        policy = rng.integers(3, size=4)
        group = rng.integers(4, size=7)
        is_diverged = rng.random(7) < 0.2
        is_skipping = rng.random(7) < 0.2
        n_updated = checks.count_updated(rho, policy, group, is_diverged, is_skipping)
        assert n_updated == count_updated(rho, policy, group, is_diverged, is_skipping)
        counts.add(n_updated)
    assert counts >= set(range(7))


def signal_arrays(
    rng: np.random.Generator, has_reference: bool, is_fixed: bool, max_finite: float
) -> checks.SignalArrays:
    """Return arrays of six demons; with `is_fixed` only channels and constant policies' ratios change."""
    if is_fixed:
        channel = np.array([0, 3, 3, 1, 2, 0])
    else:
        channel = np.array([0, checks.NO_CHANNEL, 3, 3, checks.NO_CHANNEL, 1])
    n = channel.size
    cumulant = np.arange(n)
    if is_fixed:
        cumulant = channel
        channel = np.arange(N_CHANNELS)
    reference = np.zeros(N_CHANNELS if is_fixed else n)
    if has_reference:
        reference[:] = rng.normal(size=reference.size)
    return checks.SignalArrays(
        gamma=np.array([0.0, 0.5, 0.9]),
        lam=np.array([0.9, 0.4, 0.9]),
        c=np.zeros(N_CHANNELS if is_fixed else n),
        z=np.array([0.0, 0.0, -2.0, 0.0, 0.0, 1e-3]),
        group=np.array([0, 1, 2, 0, 1, 2]),
        channel=channel,
        reference=reference,
        cumulant=cumulant,
        top=np.zeros(N_CHANNELS),
        largest=np.zeros(n),
        longest=np.zeros(3),
        bound=np.zeros(n),
        is_known=np.zeros(1, dtype=np.int64),
        max_finite=float(max_finite),
        is_fixed=is_fixed,
        is_by_channel=is_fixed,
    )


def ratio_arrays() -> checks.RatioArrays:
    """Return arrays of two constant policies, the behaviour, and two policies that are evaluated elsewhere."""
    action = np.array([0, 2, checks.ON_POLICY, checks.ELSEWHERE, checks.ELSEWHERE])
    return checks.RatioArrays(action, np.zeros(5), np.zeros((checks.N_TOTALS, 5)))


NOTHING_FOLLOWS = ReadingOffsets(
    follows=np.zeros(1, dtype=bool),
    has_offset=np.zeros(1, dtype=bool),
    cumulant=np.zeros(1, dtype=np.int64),
    channel=np.zeros(1, dtype=np.int64),
    gamma=np.zeros(1),
).arrays


def draw_numbers(rng: np.random.Generator, arrays: checks.SignalArrays) -> None:
    """Draw continuations, trace decays, cumulants and outcomes; a few are not finite or too large."""
    n = arrays.bound.size
    wild = [np.nan, np.inf, 1e39]
    arrays.gamma[:] = rng.choice([0.0, 0.5, 0.9, 0.99, 1.0], 3)
    arrays.lam[:] = rng.choice([0.0, 0.9, 1.0], 3)
    arrays.c[:] = rng.normal(size=n)
    arrays.z[:] = rng.normal(size=n) * (rng.random() < 0.5)
    for numbers, sign in ((arrays.c, -1), (arrays.z, rng.choice([-1, 1]))):
        numbers[rng.random(numbers.size) < 0.01] = sign * rng.choice(wild)
    for numbers in (arrays.gamma, arrays.lam):
        numbers[rng.random(numbers.size) < 0.01] = np.nan


@pytest.mark.parametrize(
    "max_finite", [np.finfo("float32").max, np.finfo("float64").max], ids=["float32", "float64"]
)
@pytest.mark.parametrize("is_fixed", [False, True], ids=["functions", "fixed"])
@pytest.mark.parametrize("has_reference", [False, True], ids=["as they are", "less a reference"])
def test_signals_bounds_and_totals_equal_the_slow_twin(
    has_reference: bool, is_fixed: bool, max_finite: float
) -> None:
    """Numbers grow and shrink, continuations too, and some are not finite or larger than the engine's type holds.

    With `is_fixed` only the channels change.
    """
    rng = np.random.default_rng(1)
    arrays = signal_arrays(rng, has_reference, is_fixed, max_finite)
    ratios = ratio_arrays()
    slow = SlowSignals(arrays, ratios)
    finish_ratios = bind(checks.finish_ratios, pack(ratios), like=(0, 1.0))
    finish_signals = bind(
        checks.finish_signals,
        pack(arrays),
        pack(NOTHING_FOLLOWS),
        like=(np.zeros(N_CHANNELS), np.zeros(N_CHANNELS), False),
    )
    readings = np.zeros(N_CHANNELS)
    n_broken = 0
    for t in range(N_STEPS):
        observation = rng.normal(size=N_CHANNELS) * rng.choice([1e-3, 1.0, 10.0 + t])
        if rng.random() < 0.1:
            observation[rng.integers(N_CHANNELS)] = rng.choice([1e39, -1e300])
        if not is_fixed:
            draw_numbers(rng, arrays)
        action = int(rng.integers(N_ACTIONS))
        probability = float(rng.choice([0.2, 1.0]))
        ratios.rho[:] = rng.choice([0.0, 0.3, 1.0, 5.0], ratios.rho.size)
        slow.finish_ratios(action, probability)
        finish_ratios(action, probability)
        slow.finish_signals(observation)
        flags = finish_signals(observation, readings, False)
        assert bool(flags & checks.BROKEN) == slow.is_broken, t
        n_broken += slow.is_broken
        for name in ("rho", "totals"):
            np.testing.assert_allclose(
                getattr(ratios, name), getattr(slow, name), rtol=1e-12, err_msg=f"{name} {t}"
            )
        for name in ("largest", "longest", "bound"):
            np.testing.assert_allclose(
                getattr(arrays, name), getattr(slow, name), rtol=1e-12, err_msg=f"{name} {t}"
            )
        if is_fixed:
            cumulant = arrays.c[arrays.cumulant]
        else:
            cumulant = arrays.c
        np.testing.assert_array_equal(cumulant, slow.cumulant, err_msg=f"cumulants {t}")
    assert 0 < n_broken < 200 or (is_fixed and max_finite > 1e300)
