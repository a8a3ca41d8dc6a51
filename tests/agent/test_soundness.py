"""Demons that are set aside, each for its true reason; and those that are not: weights and bounds from elsewhere."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.policies import Behaviour, PolicyFunction
from tests.agent.test_gaps import IN_ALL, N_ACTIONS, Life, N, ask, breaking, make, siblings

F32 = {"dtype": "float32"}


def assert_sound(horde: Horde) -> None:
    """Assert that whatever can be asked is a number."""
    answers = [*horde.weights(), horde.predictions, horde.td_error, horde.mspbe_scalar, horde.rho]
    answers += [horde.mspbe_vector(), horde.mspbe_trace()] if horde.config.vector_mspbe else []
    for answer in answers:
        assert np.isfinite(answer).all()


# ---- numbers that are lost -----------------------------------------------------------------------------------------


@IN_ALL
@pytest.mark.parametrize(
    ("dtype", "cumulant", "words"),
    [
        (
            "float64",
            1e300,
            r"\|delta\| max e, reached 1e\+140, the limit for estimates in float64; .* 1e\+300",
        ),
        ("float64", -1e160, r"the limit for estimates in float64"),
        ("float32", 1e300, r"its cumulant was 1e\+300, which float32 cannot hold \(learning step 7\)"),
        ("float32", 1e30, r"reached 1e\+25, the limit for estimates in float32"),
    ],
)
def test_a_cumulant_past_all_measure_sets_its_demon_aside_at_once(
    dtype: Any, cumulant: float, words: str, engine: Any, mode: Any
) -> None:
    """By one step it would leave 1e297 in theta and NaN in both estimates; nobody else notices a bit of it."""
    horde = make([ask("x", Behaviour(), breaking((7,), cumulant)), *siblings()], engine, mode, dtype=dtype)
    twin = make([ask("x", Behaviour(), breaking((7,), 0.5)), *siblings()], engine, mode, dtype=dtype)
    life = Life(horde, twin)
    life.go_on(7)
    for each in (horde, twin):  # a batch ends here in both
        each.catch_up()
    assert_sound(horde)
    life.go_on(20)
    assert horde.diverged == ["x"]
    assert re.search(words, horde.divergence_reason["x"]), horde.divergence_reason
    assert "learning step 7" in horde.divergence_reason["x"]
    assert_sound(horde)
    for got, want in zip(horde.weights(), twin.weights(), strict=True):
        assert not got[0].any()
        if cumulant != 1e300 or dtype == "float64" or mode == "eager":  # else the step before ended a batch
            np.testing.assert_array_equal(got[1:], want[1:])


@IN_ALL
def test_an_estimate_that_is_lost_sets_its_demon_aside(engine: Any, mode: Any) -> None:
    """Each step is small enough for float32, and delta (e.w), of their product with one another, is not."""
    horde = make([ask("x", Behaviour(), lambda *_: 1e22), *siblings()], engine, mode, **F32)
    Life(horde).go_on(65)
    assert_sound(horde)
    if engine == "plain":  # which keeps its estimates in float64
        assert horde.diverged == []
        return
    assert re.match("its scalar MSPBE estimate became (-?inf|nan)", horde.divergence_reason["x"])
    assert_sound(horde)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_channel_past_what_float32_can_hold_sets_aside_who_sums_it(engine: Any, mode: Any) -> None:
    if (engine, mode) == ("plain", "deferred"):
        pytest.skip("the plain engine is always eager")
    horde = make([ask(f"{i}", cumulant=Channel(i % 3)) for i in range(12)], engine, mode, **F32)
    horde.begin(np.zeros(3), np.arange(4))
    for t in range(10):
        horde.learn(1, 0.5, np.array([1.0, -1e39 if t == 4 else 1.0, 1.0]), np.arange(t % 3, t % 3 + 4))
    assert horde.diverged == ["1", "4", "7", "10"]
    assert horde.divergence_reason["4"] == "its cumulant was -1e+39, which float32 cannot hold (learning step 5)"
    assert horde._maker.bound[0] == pytest.approx(1e3 * 1.0 / 0.2)
    assert not horde.n_skipped.any()


def test_an_outcome_past_what_float32_can_hold_sets_its_demon_aside() -> None:
    horde = make([ask("x", outcome=-1e200), ask("y")], **F32)
    Life(horde).go_on(3)
    assert horde.divergence_reason == {"x": "its outcome was -1e+200, which float32 cannot hold (learning step 1)"}


@IN_ALL
def test_a_number_past_measure_that_teaches_nothing_does_no_harm(engine: Any, mode: Any) -> None:
    """Its policy would not have taken the action: rho is 0, and nothing is learned about theta from that step."""
    never = PolicyFunction(lambda *_: [0.0, 1.0, 0.0], N_ACTIONS)
    horde = make([ask("x", never, breaking((3,), 1e300), 0.0)], engine, mode)
    horde.begin(np.zeros(4), np.arange(4))
    for t in range(1, 6):
        horde.learn(0 if t == 3 else 1, 0.5, np.full(4, float(t)), np.arange(4))
    assert horde.diverged == []
    assert_sound(horde)
    assert 0 < horde.weights()[0].max() < 1


@pytest.mark.parametrize("engine", ["span", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("vector_mspbe", [False, True])
def test_secondary_weights_that_diverge_set_their_demon_aside(engine: Any, dtype: Any, vector_mspbe: bool) -> None:
    """alpha_w |phi|^2 = 5 per step: w changes its sign and grows fourfold, while theta, at rho = 0, stands still.

    Another demon's w, of the same step sizes, stays 0, since it is told nothing but 0.
    """
    off = PolicyFunction(lambda o, _: [1.0, 0.0, 0.0] if o[1] else [0.0, 1.0, 0.0], N_ACTIONS)
    config = {"dtype": dtype, "step_size": 0.001, "secondary_ratio": 5_000.0, "vector_mspbe": vector_mspbe}
    horde = make([ask("x", off, continuation=0.0), ask("y", off, breaking((), 0.0, 0.0))], engine, **config)
    horde.begin(np.array([1.0, 1.0, 0.0, 0.0]), np.arange(4))
    for _ in range(3 * 512):
        horde.learn(0, 0.5, np.array([1.0, 0.0, 0.0, 0.0]), np.arange(4))
        assert_sound(horde)
    assert horde.diverged == ["x"]
    assert re.match(r"its (secondary weights|vector MSPBE trace) became (-?inf|nan)", horde.divergence_reason["x"])


def test_weights_past_their_bound_are_the_reason_that_is_given() -> None:
    """A step size of 3 per feature diverges; the bound is 1e3 r_max / (1 - gamma) = 1e4 at most."""
    for engine in ("span", "plain"):
        config = {"step_size": 12.0, "trace_rule": "plain", "check_every": 5}
        horde = make(
            [ask("wild", Behaviour(), continuation=0.9), ask("tame", Behaviour(), continuation=0.0)], engine, **config
        )
        Life(horde).go_on(300)
        assert "wild" in horde.diverged
        why = re.match(
            r"its weights reached (.*), above their bound of (.*) \(learning step [\d,]+\)$",
            horde.divergence_reason["wild"],
        )
        assert why
        assert float(why[2]) < min(1e4, float(why[1]))


@IN_ALL
def test_who_was_set_aside_keeps_the_first_reason(engine: Any, mode: Any) -> None:
    horde = make([ask("x", Behaviour(), breaking((3, 9), 1e300)), ask("y")], engine, mode, **F32)
    life = Life(horde)
    life.go_on(5)
    first = horde.divergence_reason
    life.go_on(70)
    assert horde.divergence_reason == first
    assert not horde.n_skipped.any()


# ---- weights from elsewhere ----------------------------------------------------------------------------------------


def bump(at: int) -> Callable[..., float]:
    """Return a cumulant that differs from 0 on one step alone, as a bump sensor's does."""
    return breaking((at,), 1.0, 0.0)


@IN_ALL
def test_weights_that_come_from_elsewhere_bring_their_bound_along(engine: Any, mode: Any) -> None:
    """In the life that they come to, the cumulant has not differed from 0 yet: their own bound would be 0."""
    learned = make([ask("bump", Behaviour(), bump(20)), ask("y")], engine, mode, check_every=1)
    Life(learned).go_on(60)
    theta = learned.weights()[0]
    assert theta[0].any()
    for begins_first in (False, True):
        resumed = make([ask("bump", Behaviour(), bump(-1)), ask("y")], engine, mode, check_every=1)
        life = Life(resumed) if begins_first else None
        resumed.reset_weights(theta)
        life = life or Life(resumed)
        life.go_on(400)
        assert resumed.diverged == []
        assert resumed.weights()[0][0].any()


@IN_ALL
def test_the_bound_of_given_weights_is_a_bound_still(engine: Any, mode: Any) -> None:
    """A thousand times the largest, times the horizon, as of cumulants; and those seen later may raise it."""
    horde = make([ask("x", cumulant=breaking((8,), 4.0, 0.0)), ask("y", cumulant=breaking((), 0.0, 0.0))], engine, mode)
    life = Life(horde)
    life.go_on(5)
    horde.reset_weights(np.full((2, N), 0.5) * [[-2.0], [1.0]])
    np.testing.assert_allclose(horde._maker.bound, [1e3 * 1.0 / 0.2, 1e3 * 0.5 / 0.2])
    life.go_on(5)
    np.testing.assert_allclose(horde._maker.bound, [1e3 * 4.0 / 0.2, 1e3 * 0.5 / 0.2])


@IN_ALL
@pytest.mark.parametrize("made", [copy.deepcopy, lambda horde: pickle.loads(pickle.dumps(horde))])
def test_copies_bring_their_bounds_and_counts_along(engine: Any, mode: Any, made: Any) -> None:
    """Of what was seen, of weights given, and of who skipped and was set aside."""
    questions = [GVF(name, Behaviour(), Channel(k), 0.8) for k, name in enumerate(("bump", "y", "z"))]
    horde = make(questions, engine, mode, check_every=1)
    horde.begin(np.zeros(3), np.arange(4))
    horde.reset_weights(np.full((3, N), 0.5))

    def live(who: Horde, first: int, last: int) -> None:
        for t in range(first, last):
            who.learn(1, 0.5, np.array([0.0, 0.5, 1e200 if t == 4 else 0.1]), np.arange(t % 9, t % 9 + 4))

    live(horde, 0, 10)
    twin = made(horde)
    for each in (horde, twin):
        live(each, 10, 300)
        assert each.diverged == ["z"]
        each.reset_weights(np.full((3, N), 0.25))
        live(each, 300, 400)
        assert each.diverged == ["z"]
    assert horde.divergence_reason == twin.divergence_reason
    assert horde.weights_sha256() == twin.weights_sha256()
    assert horde.weights()[0][0].any()


@pytest.mark.parametrize("engine", ["span", "plain"])
@pytest.mark.parametrize(
    ("dtype", "bad", "words"),
    [
        ("float32", 1e39, r"at most 3\.4e\+38, as much as float32 can hold; theta\[1, 7\] is 1e\+39"),
        ("float64", np.nan, r"theta must be finite.*theta\[1, 7\] is nan"),
        ("float64", -np.inf, r"theta\[1, 7\] is -inf"),
    ],
)
def test_weights_that_are_no_numbers_are_refused_and_nothing_has_changed(
    engine: Any, dtype: Any, bad: float, words: str
) -> None:
    horde = make([ask("x"), ask("y")], engine, dtype=dtype)
    Life(horde).go_on(9)
    before, theta = horde.weights_sha256(), np.zeros((2, N))
    theta[1, 7] = bad
    with pytest.raises(ValueError, match=words):
        horde.reset_weights(theta)
    assert horde.weights_sha256() == before


# ---- policies that are none ----------------------------------------------------------------------------------------


class Table:
    """A policy of a user's own making, which gives whatever it is told to."""

    def __init__(self, *given: Any, n_actions: int = N_ACTIONS, later: Any = None, since: float = np.inf) -> None:
        self.n_actions, self.given, self.later, self.since = n_actions, given[0], later, since

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> Any:
        """Return what was given, or from some step on something else."""
        return self.later if observation[3] >= self.since else self.given


NONE: dict[str, tuple[Any, str]] = {
    "too much": ([1.0, 0.5, 0.5], r"gave \[1\.  0\.5 0\.5\], which add up to 2, not 1"),
    "too little": (np.array([0.25, 0.25, 0.0]), "which add up to 0.5, not 1"),
    "too few": ([0.5, 0.5], r"gave an array of shape \(2,\), not 3 probabilities"),
    "too many": ([0.25, 0.25, 0.25, 0.25], r"gave an array of shape \(4,\), not 3 probabilities"),
    "a column": (np.full((3, 1), 1 / 3), r"gave an array of shape \(3, 1\), not 3"),
    "a number": (0.5, r"gave an array of shape \(\), not 3"),
    "nothing": (None, r"gave an array of shape \(\), not 3"),
    "a word": ("left", "gave 'left', not 3 probabilities"),
    "less than nothing": ([1.2, -0.2, 0.0], r"with -0\.2 for action 1, not probabilities in \[0, 1\]"),
    "more than all": ([-0.5, 1.5, 0.0], r"with -0\.5 for action 0"),
}
NO_NUMBERS = {"no number": ([np.nan, 0.5, 0.5], r"gave \[nan 0\.5 0\.5\], not 3 probabilities")}


@IN_ALL
@pytest.mark.parametrize("what", [*NONE, *NO_NUMBERS])
def test_a_policy_that_is_none_is_refused_when_it_is_first_asked(what: str, engine: Any, mode: Any) -> None:
    """At the door, before anything moves: by the question's name, with what was given and what was expected."""
    given, words = {**NONE, **NO_NUMBERS}[what]
    horde = make([ask("y"), ask("x", Table(given))], engine, mode)
    with pytest.raises(ValueError, match="^question 'x': its target policy .*" + words):
        horde.begin(np.zeros(4), np.arange(4))
    with pytest.raises(RuntimeError, match="no stream"):
        horde.learn(0, 0.5, np.zeros(4), np.arange(4))


@IN_ALL
def test_a_newcomer_s_policy_that_is_none_is_refused_and_changes_nothing(engine: Any, mode: Any) -> None:
    horde, twin = make([ask("y")], engine, mode), make([ask("y")], engine, mode)
    life = Life(horde, twin)
    life.go_on(9)
    with pytest.raises(ValueError, match=r"question 'x': its target policy gave .* add up to 1\.5, not 1"):
        horde.add([ask("x", Table([0.5, 0.5, 0.5]))])
    life.go_on(9)
    assert horde.names == ["y"]
    assert horde.weights_sha256() == twin.weights_sha256()


def test_newcomers_before_life_begins_are_asked_when_it_does() -> None:
    horde = make([ask("y")])
    horde.add([ask("x", Table([0.5, 0.5, 0.5])), ask("z", Table([0.0, 0.0, 0.0]))])
    with pytest.raises(ValueError, match="question 'x'"):
        horde.begin(np.zeros(4), np.arange(4))
    horde.remove(["x"])
    with pytest.raises(ValueError, match="question 'z'"):
        horde.begin(np.zeros(4), np.arange(4))
    horde.remove(["z"])
    horde.begin(np.zeros(4), np.arange(4))


@IN_ALL
@pytest.mark.parametrize("what", NONE)
def test_a_policy_that_turns_into_none_ends_no_life(what: str, engine: Any, mode: Any) -> None:
    """Its demons are set aside with what it gave, at the latest 64 steps later; others go on, bit for bit if eager."""
    given, words = NONE[what]
    turns = Table([0.5, 0.25, 0.25], later=given, since=30)
    horde = make([ask("x", turns), ask("x too", turns, Channel(1)), *siblings()], engine, mode)
    twin = make([ask("x", Table([0.5, 0.25, 0.25])), *siblings()], engine, mode)
    Life(horde, twin).go_on(30 + 64 + 5)
    assert horde.diverged == ["x", "x too"]
    why = horde.divergence_reason["x too"]
    step = re.search(r"its target policy .*" + words + r".* \(learning step (\d+)\)$", why)
    assert step, why
    assert 30 < int(step[1]) <= 30 + 65
    assert horde.diverged == ["x", "x too"]
    assert np.isfinite(horde.rho).all()
    assert np.isfinite(horde.ratio_totals()).all()
    assert not horde.n_skipped.any()
    if mode == "eager":
        for got, want in zip(horde.weights(), twin.weights(), strict=True):
            np.testing.assert_array_equal(got[2:], want[1:])


def test_later_begins_refuse_nothing() -> None:
    """A robot that lives is not stopped by a policy that turned bad meanwhile."""
    horde = make([ask("x", Table([0.5, 0.25, 0.25], later=[1.0, 1.0, 1.0], since=30)), ask("y")])
    life = Life(horde)
    life.go_on(29)
    horde.begin(np.full(4, 40.0), np.arange(4))
    life.go_on(70)
    assert horde.diverged == ["x"]


@IN_ALL
def test_rounding_is_no_misfit(engine: Any, mode: Any) -> None:
    """A softmax in float32 adds up to 1 within 1e-7; 1 - x - y may be a little below 0, and 0 is meant."""
    given = np.array([0.7, 0.3 + 1e-7, -1e-9])
    horde = make([ask("x", Table(given)), ask("y", Table(np.array([1 / 3] * 3, dtype=np.float32)))], engine, mode)
    Life(horde).go_on(130)
    assert horde.diverged == []
    assert not horde.n_skipped.any()
    assert horde.rho[0] >= 0


def test_what_a_policy_gives_is_looked_at_now_and_then_alone() -> None:
    """Adding up on each step would take longer than many a policy's own answer."""
    looks = []

    class Watched(list):  # type: ignore[type-arg]
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            looks.append(1)
            return np.array([0.5, 0.25, 0.25], dtype=dtype)

    horde = make([ask("x", Table(Watched([0.5, 0.25, 0.25])))])
    Life(horde).go_on(640)
    assert len(looks) == 1 + 10


@pytest.mark.parametrize("b", [0.0, -0.1, 1.1, np.nan, 1e-31, 5e-324])
def test_a_probability_with_which_nothing_is_drawn_is_refused(b: float) -> None:
    """1 / b must be a number, in float32 too."""
    horde = make([ask("x")])
    horde.begin(np.zeros(3), np.arange(4))
    with pytest.raises(ValueError, match=r"probability must be in \(0, 1\], and at least 1e-30"):
        horde.learn(0, b, np.zeros(3), np.arange(4))
