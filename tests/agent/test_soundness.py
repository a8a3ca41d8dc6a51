"""Demons that skip a step or diverge, each for its true reason; bounds of weights; invalid target policies."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from horde_agent import Horde
from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.policies import ConstantAction, PolicyFunction
from tests.agent.hordes import (
    BEHAVIOUR,
    BOTH,
    IN_ALL,
    N_ACTIONS,
    N_ACTIVE,
    N,
    RandomLife,
    WithReading,
    after,
    ask,
    assert_finite,
    assert_same_weights,
    breaking,
    constant,
    engine_of,
    leaning,
    make,
    nan_policy,
    siblings,
)

F32 = {"dtype": "float32"}

# ---- signals that are not finite: the demon skips the step -----------------------------------------------------------

AT = (11, 12, 30)
BROKEN: dict[str, tuple[GVF, GVF, str]] = {
    "a cumulant": (
        ask("x", cumulant=breaking(AT, np.nan)),
        ask("x", cumulant=constant),
        "cumulant was nan",
    ),
    "an infinite cumulant": (
        ask("x", cumulant=breaking(AT, -np.inf)),
        ask("x", cumulant=constant),
        "was -inf",
    ),
    "an outcome": (
        ask("x", outcome=breaking(AT, np.inf)),
        ask("x", outcome=constant),
        "outcome was inf",
    ),
    "a continuation": (
        ask("x", None, None, breaking(AT, 1.5)),
        ask("x", None, None, constant),
        "continuation was 1.5",
    ),
    "a trace decay": (ask("x", lam=breaking(AT, np.nan)), ask("x", lam=constant), "lam was nan"),
    "a policy": (
        ask("x", nan_policy(AT)),
        ask("x", PolicyFunction(leaning, N_ACTIONS)),
        "rho = .* was nan",
    ),
}


@IN_ALL
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_signal_is_a_gap_for_that_demon_alone(what: str, engine: Any, mode: Any) -> None:
    """A Horde with this question alone that calls `begin` at those states learns the same; siblings change no bit."""
    broken, sound, words = BROKEN[what]
    horde = make([broken, *siblings()], engine, mode)
    with_sound = make([sound, *siblings()], engine, mode)
    alone = make([sound])
    RandomLife(horde, with_sound, alone).run(50, begin=alone, at=AT)
    assert horde.n_skipped.tolist() == [3] + [0] * 10
    assert not horde.diverged
    np.testing.assert_allclose(horde.weights()[0][0], alone.weights()[0][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(horde.weights()[1][0], alone.weights()[1][0], rtol=1e-9, atol=1e-13)
    assert_same_weights(horde, with_sound, first=1)
    assert_finite(horde)
    assert list(horde.skipped_because) == ["x"]
    assert re.match(f"3 x.*{words} at learning step 11", horde.skipped_because["x"])


# ---- a missing reading: NaN in the observation -----------------------------------------------------------------------

MISSING_AT = (0, 4, 5, 6, 21, 40)
ABOUT_CHANNEL_1: list[GVF] = [
    ask("cumulant", cumulant=Channel(1)),
    ask("on policy", BEHAVIOUR, Channel(1), 0.5),
    ask("function", cumulant=lambda o, _: 2.0 * o[1]),
    ask("outcome", outcome=lambda o, _: o[1]),
    ask("continuation", continuation=lambda o, _: 0.9 * o[1]),
    ask("policy", PolicyFunction(lambda o, _: [o[1], 0.5 - o[1] / 2, 0.5 - o[1] / 2], N_ACTIONS)),
]
PARTS: dict[str, dict[str, Any]] = {
    "theta alone": {},
    "mean and average": {"offset": "mean", "average": 20.0},
    "reading": {"offset": "reading", "rarity": True},
}


@IN_ALL
@pytest.mark.parametrize("parts", PARTS)
def test_a_missing_reading_concerns_the_questions_about_it_alone(
    parts: str, engine: Any, mode: Any
) -> None:
    """Five transitions lead to a missing reading, and six begin at one, where the policy is not known.

    The others have the same bits as with any number there: also offsets, shares and averages.
    """
    questions = [*ABOUT_CHANNEL_1, *siblings()]
    hordes = [make(questions, engine, mode, **PARTS[parts]) for _ in range(2)]
    with_missing, with_all = hordes
    RandomLife(
        WithReading(with_missing, MISSING_AT, np.nan),
        WithReading(with_all, MISSING_AT, 0.25),
        p_break=0.05,
    ).run(60)
    about = [i for i, q in enumerate(questions) if i < 6 or q.cumulant == Channel(1)]
    unaffected = np.setdiff1d(np.arange(len(questions)), about)
    n_skipped = with_missing.n_skipped
    assert not n_skipped[unaffected].any()
    assert n_skipped[about].tolist() == [5, 5, 5, 5, 5, 6, 5, 5, 5]
    assert with_missing.diverged == []
    assert_finite(with_missing)
    for weights, expected in zip(
        with_missing.weights(unaffected), with_all.weights(unaffected), strict=True
    ):
        np.testing.assert_array_equal(weights, expected)
    for name in ("predictions", "offsets", "reading_shares", "shifts", "td_error", "mspbe_scalar"):
        numbers, expected = (getattr(horde, name)[unaffected] for horde in hordes)
        np.testing.assert_array_equal(numbers, expected, err_msg=name)


@IN_ALL
def test_a_question_about_a_missing_reading_learns_as_after_a_gap(engine: Any, mode: Any) -> None:
    horde = make(siblings(), engine, mode)
    alone = make([ask("sibling 1", cumulant=Channel(1))])
    RandomLife(WithReading(horde, AT, np.nan), alone).run(50, begin=alone, at=AT)
    assert horde.n_skipped.tolist() == [0, 3, 0, 0, 3, 0, 0, 3, 0, 0]
    np.testing.assert_allclose(horde.weights()[0][1], alone.weights()[0][0], rtol=1e-9, atol=1e-12)
    assert "cumulant was nan at learning step 11" in horde.skipped_because["sibling 1"]


@IN_ALL
def test_a_sensor_may_return_after_a_thousand_steps(engine: Any, mode: Any) -> None:
    at = tuple(range(20, 1_020))
    horde = make([ask("x", cumulant=breaking(at, np.nan)), *siblings()], engine, mode)
    life = RandomLife(horde)
    life.run(19)
    weights = horde.weights()
    life.run(1_000)
    np.testing.assert_allclose(horde.weights()[0][0], weights[0][0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(horde.weights()[1][0], weights[1][0], rtol=0, atol=1e-15)
    assert horde.td_error[0] == 0
    life.run(20)
    assert np.abs(horde.weights()[0][0] - weights[0][0]).max() > 1e-3
    assert horde.n_skipped.tolist() == [1_000] + [0] * 10
    assert "step 20" in horde.skipped_because["x"]
    assert not horde.diverged


@IN_ALL
def test_a_demon_that_skips_is_not_counted_as_updated(engine: Any, mode: Any) -> None:
    questions = [
        ask("x", cumulant=breaking((1, 3), np.nan)),
        ask("y"),
        ask("off", ConstantAction(0, 3)),
    ]
    horde = make(questions, engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    for t, n in ((1, 1), (2, 2), (3, 1), (4, 2)):
        horde.learn(1, 0.5, np.full(4, float(t)), np.arange(4))
        assert horde.n_updated == n
        assert horde.n_skipped[0] == (t + 1) // 2


@IN_ALL
def test_a_termination_needs_no_continuation(engine: Any, mode: Any) -> None:
    """At a termination the continuation is 0 whatever its function returns, so the step is learned from."""
    bad = {"continuation": breaking((5,), np.nan), "lam": breaking((5,), 7.0)}
    horde = make([ask("x", **bad), ask("y")], engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    horde.learn(1, 0.5, np.full(4, 5.0), np.arange(3, 7), terminated=True)
    assert horde.td_error[0] == 5.0
    assert horde.n_skipped[0] == 0


@IN_ALL
def test_a_stream_may_begin_at_a_broken_continuation(engine: Any, mode: Any) -> None:
    """A continuation decays the trace of the step before; at the first state there is none."""
    bad = {"continuation": breaking((0,), np.nan), "lam": breaking((0,), -1.0, 0.9)}
    horde = make([ask("x", **bad)], engine, mode)
    twin = make([ask("x", continuation=constant, lam=0.9)], engine, mode)
    RandomLife(horde, twin).run(20)
    np.testing.assert_allclose(horde.weights()[0], twin.weights()[0], rtol=1e-12, atol=1e-15)
    assert horde.n_skipped[0] == 0


@IN_ALL
def test_the_prediction_of_a_diverged_demon_is_no_cumulant(engine: Any, mode: Any) -> None:
    """It is frozen at zero: a demon that learned from it would unlearn."""
    base = ask("base", cumulant=breaking((10,), 1e300))
    above = ask("above", cumulant=Prediction("base"))
    horde = make([base, above, ask("y")], engine, mode)
    life = RandomLife(horde)
    life.run(11)  # the step with the 1e300, and one more in case the batch was not yet full
    assert horde.diverged == ["base"]
    weights = horde.weights()[0][1]
    n_before = horde.n_skipped[1]
    life.run(20)
    np.testing.assert_allclose(horde.weights()[0][1], weights, rtol=0, atol=1e-15)
    assert np.abs(weights).max() > 0
    assert horde.n_skipped[1] == n_before + 20


# ---- signals and weights out of range -------------------------------------------------------------------------------


@IN_ALL
@pytest.mark.parametrize(
    ("dtype", "cumulant", "reason"),
    [
        ("float64", 1e300, r"reached 1e\+140.* float64; .* 1e\+300"),
        ("float64", -1e160, "limit .* float64"),
        ("float32", 1e300, r"its cumulant was 1e\+300, which float32 cannot hold"),
        ("float32", 1e30, r"reached 1e\+25.* float32"),
    ],
)
def test_a_huge_cumulant_makes_its_demon_diverge_at_once(
    dtype: Any, cumulant: float, reason: str, engine: Any, mode: Any
) -> None:
    """One step would leave 1e297 in theta and NaN in both estimates; siblings do not change by a bit."""
    horde, twin = (
        make([ask("x", BEHAVIOUR, breaking((7,), value)), *siblings()], engine, mode, dtype=dtype)
        for value in (cumulant, 0.5)
    )
    life = RandomLife(horde, twin)
    life.run(7)
    for each in (horde, twin):  # a batch ends here in both
        each.catch_up()
    assert_finite(horde)
    life.run(20)
    assert horde.diverged == ["x"]
    assert re.search(reason + r".*\(learning step 7\)", horde.divergence_reason["x"])
    assert_finite(horde)
    assert not horde.weights()[0][0].any()
    # Else the step before ended a batch
    if cumulant != 1e300 or dtype == "float64" or mode == "eager":
        assert_same_weights(horde, twin, first=1)


@IN_ALL
def test_an_estimate_that_overflows_makes_its_demon_diverge(engine: Any, mode: Any) -> None:
    """Each step is small enough for float32; delta (e.w), their product, is not."""
    horde = after(
        65, make([ask("x", BEHAVIOUR, lambda *_: 1e22), *siblings()], engine, mode, **F32)
    )
    assert_finite(horde)
    if engine == "plain":  # its estimates are in float64
        assert horde.diverged == []
    else:
        assert re.match(
            "its scalar MSPBE estimate became (-?inf|nan)", horde.divergence_reason["x"]
        )


@IN_ALL
def test_a_reading_that_float32_cannot_hold_makes_every_demon_about_it_diverge(
    engine: Any, mode: Any
) -> None:
    horde = make([ask(f"{i}", cumulant=Channel(i % 3)) for i in range(12)], engine, mode, **F32)
    horde.begin(np.zeros(3), np.arange(4))
    for t in range(10):
        horde.learn(
            1, 0.5, np.array([1.0, -1e39 if t == 4 else 1.0, 1.0]), np.arange(t % 3, t % 3 + 4)
        )
    assert horde.diverged == ["1", "4", "7", "10"]
    assert (
        horde.divergence_reason["4"]
        == "its cumulant was -1e+39, which float32 cannot hold (learning step 5)"
    )
    assert horde.state()["signals/arrays/bound"][0] == pytest.approx(1e3 * 1.0 / 0.2)
    assert not horde.n_skipped.any()


def test_an_outcome_that_float32_cannot_hold_makes_its_demon_diverge() -> None:
    horde = after(3, make([ask("x", outcome=-1e200), ask("y")], **F32))
    assert horde.divergence_reason == {
        "x": "its outcome was -1e+200, which float32 cannot hold (learning step 1)"
    }


@IN_ALL
def test_a_huge_cumulant_at_rho_0_does_no_harm(engine: Any, mode: Any) -> None:
    never = PolicyFunction(lambda *_: [0.0, 1.0, 0.0], N_ACTIONS)
    horde = make([ask("x", never, breaking((3,), 1e300), 0.0)], engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    for t in range(1, 6):
        horde.learn(0 if t == 3 else 1, 0.5, np.full(4, float(t)), np.arange(4))
    assert horde.diverged == []
    assert_finite(horde)
    assert 0 < horde.weights()[0].max() < 1


@BOTH
@pytest.mark.parametrize(("dtype", "vector_mspbe"), [("float32", True), ("float64", False)])
def test_secondary_weights_that_diverge_freeze_their_demon(
    engine: Any, dtype: Any, vector_mspbe: bool
) -> None:
    """alpha_w |phi|^2 = 5 per step: w changes its sign and grows fourfold, while theta, at rho = 0, does not change.

    The w of another demon with the same step sizes stays 0, because its signals are 0.
    """
    off = PolicyFunction(lambda o, _: [1.0, 0.0, 0.0] if o[1] else [0.0, 1.0, 0.0], N_ACTIONS)
    config = {
        "dtype": dtype,
        "step_size": 0.001,
        "secondary_ratio": 5_000.0,
        "vector_mspbe": vector_mspbe,
    }
    horde = make(
        [ask("x", off, continuation=0.0), ask("y", off, breaking((), 0.0, 0.0))], engine, **config
    )
    horde.begin(np.array([1.0, 1.0, 0.0, 0.0]), np.arange(4))
    for _ in range(3 * 512):
        horde.learn(0, 0.5, np.array([1.0, 0.0, 0.0, 0.0]), np.arange(4))
        assert_finite(horde)
    assert horde.diverged == ["x"]
    assert re.match(
        r"its (secondary weights|vector MSPBE trace) became (-?inf|nan)",
        horde.divergence_reason["x"],
    )


@BOTH
def test_weights_above_their_bound_diverge(engine: Any) -> None:
    """A step size of 3 per feature diverges; the bound is 1e3 r_max / (1 - gamma) = 1e4 at most."""
    config = {"step_size": 12.0, "trace_rule": "plain", "check_every": 5}
    questions = [ask("wild", BEHAVIOUR, continuation=0.9), ask("tame", BEHAVIOUR, continuation=0.0)]
    horde = after(300, make(questions, engine, **config))
    words = r"its weights reached (.*), above their bound of (.*) \(learning step [\d,]+\)$"
    reason = re.match(words, horde.divergence_reason["wild"])
    assert reason
    assert float(reason[2]) < min(1e4, float(reason[1]))
    assert_finite(horde)


# ---- bounds, and weights that are set -------------------------------------------------------------------------------


def test_the_bound_follows_the_largest_reading_of_a_channel() -> None:
    """1,000 times the largest |c| so far, over 1 - gamma, of that channel alone."""
    horde = make([ask("0", cumulant=Channel(0)), ask("1", cumulant=Channel(1), continuation=0.5)])
    horde.begin(np.zeros(3), np.arange(N_ACTIVE))
    for values in ([0.5, 0.1, 0.0], [-2.0, 0.1, 9.0], [0.1, 0.1, 0.1]):
        horde.learn(0, 1.0, np.array(values), np.arange(N_ACTIVE))
    np.testing.assert_allclose(
        horde.state()["signals/arrays/bound"], [1e3 * 2.0 / 0.2, 1e3 * 0.1 / 0.5]
    )
    engine: Any = engine_of(horde)
    np.testing.assert_allclose(
        engine.arrays.bound[engine.layout.lane], horde.state()["signals/arrays/bound"]
    )


@IN_ALL
def test_given_weights_raise_the_bound(engine: Any, mode: Any) -> None:
    """A bump's cumulant differs from 0 on one step: in a new life the bound would still be 0."""
    learned = after(
        60, make([ask("bump", BEHAVIOUR, breaking((20,), 1.0, 0.0)), ask("y")], engine, mode)
    )
    theta = learned.weights()[0]
    assert theta[0].any()
    for begins_first in (False, True):
        resumed = make(
            [ask("bump", BEHAVIOUR, breaking((), 1.0, 0.0)), ask("y")], engine, mode, check_every=1
        )
        life = None
        if begins_first:
            life = RandomLife(resumed)
        resumed.reset_weights(theta)
        (life or RandomLife(resumed)).run(400)
        assert resumed.diverged == []
        assert resumed.weights()[0][0].any()


@BOTH
@pytest.mark.parametrize(
    ("dtype", "bad", "words"),
    [
        ("float32", 1e39, r"theta\[1, 7\] is 1e\+39"),
        ("float64", np.nan, r"theta\[1, 7\] is nan"),
        ("float64", -np.inf, r"theta\[1, 7\] is -inf"),
    ],
)
def test_invalid_weights_are_refused_and_change_nothing(
    engine: Any, dtype: Any, bad: float, words: str
) -> None:
    horde = after(9, make([ask("x"), ask("y")], engine, dtype=dtype))
    sha256 = horde.weights_sha256()
    theta = np.zeros((2, N))
    theta[1, 7] = bad
    with pytest.raises(ValueError, match=words):
        horde.reset_weights(theta)
    assert horde.weights_sha256() == sha256


# ---- target policies that give no probabilities ---------------------------------------------------------------------


class Table:
    """A policy that returns `given`, and from step `since` on `later`."""

    n_actions = N_ACTIONS

    def __init__(self, given: Any, later: Any = None, since: float = np.inf) -> None:
        self.given = given
        self.later = later
        self.since = since

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> Any:
        if observation[3] >= self.since:
            return self.later
        return self.given


SOUND = [0.5, 0.25, 0.25]
INVALID: dict[str, tuple[Any, str]] = {
    "sum above 1": ([1.0, 0.5, 0.5], r"\[1\.  0\.5 0\.5\], which add up to 2"),
    "sum below 1": (np.array([0.25, 0.25, 0.0]), "add up to 0.5"),
    "too few": ([0.5, 0.5], r"shape \(2,\)"),
    "too many": ([0.25, 0.25, 0.25, 0.25], r"shape \(4,\)"),
    "a column": (np.full((3, 1), 1 / 3), r"shape \(3, 1\)"),
    "a number": (0.5, r"shape \(\)"),
    "None": (None, r"shape \(\)"),
    "a word": ("left", "'left'"),
    "negative": ([1.2, -0.2, 0.0], r"-0\.2 for action 1"),
    "above 1": ([-0.5, 1.5, 0.0], r"-0\.5 for action 0"),
}


@pytest.mark.parametrize(
    ("given", "words"), [*INVALID.values(), ([np.nan, 0.5, 0.5], r"\[nan 0\.5 0\.5\]")]
)
def test_an_invalid_policy_is_refused_at_the_first_state(given: Any, words: str) -> None:
    horde = make([ask("y"), ask("x", Table(given))])
    with pytest.raises(ValueError, match="^question 'x': its target policy .*" + words):
        horde.begin(np.zeros(4), np.arange(4))
    with pytest.raises(RuntimeError, match="begin"):
        horde.learn(0, 0.5, np.zeros(4), np.arange(4))


def test_policies_of_demons_added_before_the_first_state_are_checked_there() -> None:
    horde = make([ask("y")])
    horde.add([ask("x", Table([0.5, 0.5, 0.5])), ask("z", Table([0.0, 0.0, 0.0]))])
    for name in ("x", "z"):
        with pytest.raises(ValueError, match=f"question '{name}'"):
            horde.begin(np.zeros(4), np.arange(4))
        horde.remove([name])
    horde.begin(np.zeros(4), np.arange(4))


@IN_ALL
@pytest.mark.parametrize("what", ["sum above 1", "a word"])
def test_a_policy_that_becomes_invalid_ends_no_life(what: str, engine: Any, mode: Any) -> None:
    """Its demons diverge at most 64 steps later; siblings do not change by a bit if eager."""
    probabilities, words = INVALID[what]
    turns = Table(SOUND, later=probabilities, since=30)
    horde = make([ask("x", turns), ask("x too", turns, Channel(1)), *siblings()], engine, mode)
    twin = make([ask("x", Table(SOUND)), *siblings()], engine, mode)
    RandomLife(horde, twin).run(30 + 64 + 5)
    assert horde.diverged == ["x", "x too"]
    reason = horde.divergence_reason["x too"]
    step = re.search(r"its target policy .*" + words + r".* \(learning step (\d+)\)$", reason)
    assert step, reason
    assert 30 < int(step[1]) <= 30 + 65
    assert_finite(horde)
    assert not horde.n_skipped.any()
    if mode == "eager":
        assert_same_weights(horde, twin, first=2, its_first=1)


def test_a_policy_may_be_unknown_at_a_first_state_with_a_missing_reading() -> None:
    """NaN is an error of a policy only if the reading that it needs is there."""
    policy = PolicyFunction(lambda o, _: [o[1], 1.0 - o[1], 0.0], N_ACTIONS)
    horde = make([ask("x", policy)])
    horde.begin(np.array([0.0, np.nan, 0.0, 0.0]), np.arange(N_ACTIVE))
    horde.learn(0, 0.5, np.full(4, 0.25), np.arange(N_ACTIVE))
    horde.learn(0, 0.5, np.full(4, 0.25), np.arange(N_ACTIVE))
    assert horde.n_skipped.tolist() == [1]
    assert horde.diverged == []


def test_later_calls_of_begin_refuse_no_policy() -> None:
    """A running robot is not stopped by a policy that becomes invalid."""
    horde = make([ask("x", Table(SOUND, later=[1.0, 1.0, 1.0], since=30)), ask("y")])
    life = RandomLife(horde)
    life.run(29)
    horde.begin(np.full(4, 40.0), np.arange(4))
    life.run(70)
    assert horde.diverged == ["x"]


@IN_ALL
def test_rounding_errors_of_probabilities_are_accepted(engine: Any, mode: Any) -> None:
    """A softmax in float32 adds up to 1 within 1e-7; 1 - x - y may be slightly negative, and counts as 0."""
    probabilities = np.array([0.7, 0.3 + 1e-7, -1e-9])
    horde = make(
        [ask("x", Table(probabilities)), ask("y", Table(np.array([1 / 3] * 3, dtype=np.float32)))],
        engine,
        mode,
    )
    after(130, horde)
    assert horde.diverged == []
    assert not horde.n_skipped.any()
    assert horde.rho[0] >= 0


def test_the_sum_of_probabilities_is_checked_only_every_64_steps() -> None:
    """Checking it on each step would take longer than many a policy itself."""
    checks = []

    class Watched(list):  # type: ignore[type-arg]
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            checks.append(1)
            return np.array(SOUND, dtype=dtype)

    after(640, make([ask("x", Table(Watched(SOUND)))]))
    assert len(checks) == 1 + 10


@BOTH
def test_a_restored_horde_asks_no_policy_that_was_invalid_before(engine: Any) -> None:
    """The policy is invalid from step 30 on: its demon diverged, and its function is called no more."""
    n_calls = [0]

    def counted(observation: np.ndarray, tiles: np.ndarray) -> list[float]:
        n_calls[0] += 1
        if observation[3] >= 30:
            return [1.0, 1.0, 1.0]
        return leaning(observation, tiles)

    def new() -> Horde:
        return make([ask("sound"), ask("x", PolicyFunction(counted, N_ACTIONS))], engine)

    horde = new()
    life = RandomLife(horde)
    life.run(100)
    assert horde.diverged == ["x"]
    restored = new()
    restored.restore(horde.state())
    life.hordes = (horde, restored)
    n_calls[0] = 0
    life.run(140)
    assert n_calls == [0]
    assert restored.divergence_reason == horde.divergence_reason
    np.testing.assert_array_equal(restored.weights(), horde.weights())
