"""Gaps of single demons: who is told what is no number learns nothing from that step, and goes on with the next."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.learning import PlainEngine, SpanEngine
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, PolicyFunction, StickyRandom, Uniform
from tests.agent import test_plain, test_span
from tests.agent.shared import RandomStream, learn_all, random_stream

GROUPS = [0] * 20 + [1] * 9 + [2, 2, 3]
SETUPS = [("span", "eager"), ("span", "deferred"), ("plain", "eager")]
IN_ALL = pytest.mark.parametrize(("engine", "mode"), SETUPS)


def with_holes(stream: RandomStream, seed: int, share: float, begins: tuple[int, ...] = ()) -> RandomStream:
    """Break some of everything that is told: cumulants and outcomes of demons, the rest of whole groups."""
    rng = np.random.default_rng(seed)
    for numbers in stream[2:]:
        holes = rng.random(numbers.shape) < share
        numbers[holes] = rng.choice([np.nan, np.inf, -np.inf], holes.sum())
    stream.gamma[[0, *begins]], stream.lam[[0, *begins]] = 0.9, 0.9
    return stream


# ---- the engines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 5], ids=["eager", "deferred"])
@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize("is_long", [False, True])
def test_the_span_engine_skips_what_the_oracle_skips(w_rule: Any, batch: int, is_long: bool) -> None:
    """Gaps of demons and of groups, in blocks that learn and that rest, in short traces and long ones."""
    gamma = [0.5, 0.99, 1.0] if is_long else [0, 0.5, 0.9]
    stream = test_span.slow_stream(31, 700, GROUPS, [0, 0, 0.3, 1, 5], gamma, [0.4, 0.99])
    stream = with_holes(stream, 0, 0.03, begins=(200, 500))
    config = LearnerConfig(w_rule=w_rule, dtype="float64", mspbe_tau=50.0)
    test_span.assert_equals_oracle(stream, config, period=7, widest=32, gaps=(200, 500), batch=batch, alpha=0.002)


@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize("trace_rule", ["plain", "capped", "clipped"])
def test_the_plain_engine_skips_what_the_oracle_skips(trace_rule: Any, w_rule: Any) -> None:
    stream = with_holes(random_stream(32, 300, GROUPS), 2, 0.01)
    config = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule, dtype="float64", mspbe_tau=50.0, engine="plain")
    test_plain.assert_equals_oracle(stream, config)


@pytest.mark.parametrize("group", [GROUPS, [0] * 20, list(range(9))], ids=["some", "one", "own"])
def test_a_gap_of_the_plain_engine_changes_nothing_of_others(group: list[int]) -> None:
    """Demons 3 and 5 skip steps, one of them twice."""
    stream = random_stream(33, 60, group)
    stream.c[30:, [3, 5]] = 0.0
    config = LearnerConfig(engine="plain", dtype="float64")
    want = learn_all(stream, config).weights()
    stream.c[[20, 27], 3], stream.z[25, 5] = np.nan, np.inf
    got = learn_all(stream, config).weights()
    others = ~np.isin(np.arange(len(group)), [3, 5])
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
        assert (one[~others] != other[~others]).any()


def test_what_float32_cannot_hold_is_no_number_to_an_engine_in_float32() -> None:
    """The Horde sets such a demon aside; an engine that is told it learns nothing from it."""
    stream = random_stream(34, 30, [0] * 9 + [1])
    for kind in ("plain", "span"):
        found = []
        for bad in (np.nan, 1e300):
            stream.c[10, [2, 9]] = bad
            made: Any = PlainEngine if kind == "plain" else SpanEngine
            engine = made(stream.group, 30, 0.02, 0.01, LearnerConfig())
            engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
            for t in range(30):
                engine.learn(stream.tiles[t + 1], stream.signals(t))
            assert not engine.pop_flagged()
            found.append(engine.weights()[0])
        np.testing.assert_array_equal(*found)


# ---- the Horde ------------------------------------------------------------------------------------------------------

N, N_ACTIVE, N_ACTIONS = 25, 4, 3


def make(questions: list[GVF], engine: Any = "span", mode: Any = "eager", **more: Any) -> Horde:
    settings = {"dtype": "float64", "secondary_ratio": 0.1, "mspbe_tau": 30.0, "engine": engine, **more}
    return Horde(questions, n_features=N, n_active=N_ACTIVE, config=LearnerConfig(**settings), mode=mode)


def ask(name: str, policy: Any = None, cumulant: Any = None, continuation: Any = 0.8, **more: Any) -> GVF:
    return GVF(name, policy or Uniform(N_ACTIONS), cumulant or Channel(0), continuation, **more)


def siblings(n: int = 9) -> list[GVF]:
    """Return demons of one group, and one that asks Gibbs policies."""
    gibbs = Gibbs.random(np.random.default_rng(1), N_ACTIONS, N, 20)
    return [ask(f"sibling {i}", cumulant=Channel(i % 3)) for i in range(n)] + [ask("gibbs", gibbs)]


class Life:
    """A random life. A channel of it, the last, counts the steps, so that functions know when to break."""

    def __init__(self, *hordes: Horde) -> None:
        self.rng, self.behaviour, self.hordes, self.t = np.random.default_rng(5), StickyRandom(N_ACTIONS), hordes, 0
        self.state = self._state()
        for horde in hordes:
            horde.begin(*self.state)

    def _state(self) -> tuple[np.ndarray, np.ndarray]:
        return np.append(self.rng.random(3), self.t), self.rng.choice(N, N_ACTIVE, replace=False)

    def go_on(self, n_steps: int, begin: Horde | None = None, at: tuple[int, ...] = ()) -> None:
        """Let all learn; one of them begins anew instead at some steps."""
        for _ in range(n_steps):
            self.t += 1
            action, b = self.behaviour.draw(self.rng)
            self.state = self._state()
            for horde in self.hordes:
                if horde is begin and self.t in at:
                    horde.begin(*self.state)
                else:
                    horde.learn(action, b, *self.state)


def breaking(at: tuple[int, ...], bad: float, good: Any = 0.5) -> Callable[..., Any]:
    """Return a function of the state reached that is broken at some steps."""
    return lambda observation, _: bad if int(observation[3]) in at else good


def one(observation: np.ndarray, tiles: np.ndarray) -> float:
    """Return a constant, by a function."""
    return 0.5


def leaning(observation: np.ndarray, tiles: np.ndarray) -> list[float]:
    return [0.5, 0.25, 0.25]


def nan_policy(at: tuple[int, ...]) -> PolicyFunction:
    """Return a policy that gives no numbers in the state before some steps."""
    bad = [np.nan] * N_ACTIONS
    return PolicyFunction(lambda o, tiles: bad if int(o[3]) + 1 in at else leaning(o, tiles), N_ACTIONS)


AT = (11, 12, 30)
BROKEN: dict[str, tuple[GVF, GVF, str]] = {
    "a cumulant": (ask("x", cumulant=breaking(AT, np.nan)), ask("x", cumulant=one), "cumulant was nan"),
    "an infinite one": (ask("x", cumulant=breaking(AT, -np.inf)), ask("x", cumulant=one), "cumulant was -inf"),
    "an outcome": (ask("x", outcome=breaking(AT, np.inf)), ask("x", outcome=one), "outcome was inf"),
    "a continuation": (
        ask("x", continuation=breaking(AT, 1.5)),
        ask("x", continuation=one),
        "continuation was 1.5",
    ),
    "a trace decay": (ask("x", lam=breaking(AT, np.nan)), ask("x", lam=one), "lam was nan"),
    "a policy": (
        ask("x", nan_policy(AT)),
        ask("x", PolicyFunction(leaning, N_ACTIONS)),
        r"rho = pi\(a\)/b\(a\) was nan",
    ),
}


@IN_ALL
@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_reading_is_a_gap_for_that_demon_alone(what: str, engine: Any, mode: Any, w_rule: Any) -> None:
    """As if for it alone the stream had begun anew there; its siblings learn bit for bit what they learn without it.

    A Horde that asks nothing else, and that calls `begin` at those states, learns the same theta and w.
    """
    broken, sound, words = BROKEN[what]
    horde = make([broken, *siblings()], engine, mode, w_rule=w_rule)
    with_sound, alone = make([sound, *siblings()], engine, mode, w_rule=w_rule), make([sound], w_rule=w_rule)
    life = Life(horde, with_sound, alone)
    life.go_on(50, begin=alone, at=AT)
    assert horde.n_skipped.tolist() == [3] + [0] * 10
    assert not horde.diverged
    assert list(horde.skipped_because) == ["x"]
    assert horde.skipped_because["x"].startswith("3 x")
    np.testing.assert_allclose(horde.weights()[0][0], alone.weights()[0][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(horde.weights()[1][0], alone.weights()[1][0], rtol=1e-9, atol=1e-13)
    for got, want in zip(horde.weights(), with_sound.weights(), strict=True):
        np.testing.assert_array_equal(got[1:], want[1:])
    for numbers in (horde.mspbe_scalar, horde.mspbe_vector(), horde.predictions, horde.rho, horde.ratio_totals()):
        assert np.isfinite(numbers).all()
    assert re.search(words + " at learning step 11", horde.skipped_because["x"])


@IN_ALL
def test_a_sensor_may_come_back_after_any_time(engine: Any, mode: Any) -> None:
    """A thousand steps without a reading: nothing learned, nothing lost but the decay of its estimates, all counted."""
    at = tuple(range(20, 1_020))
    horde = make([ask("x", cumulant=breaking(at, np.nan)), *siblings()], engine, mode)
    life = Life(horde)
    life.go_on(19)
    before = horde.weights()
    life.go_on(1_000)
    np.testing.assert_allclose(horde.weights()[0][0], before[0][0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(horde.weights()[1][0], before[1][0], rtol=0, atol=1e-15)
    assert horde.td_error[0] == 0
    life.go_on(20)
    assert np.abs(horde.weights()[0][0] - before[0][0]).max() > 1e-3
    assert horde.n_skipped.tolist() == [1_000] + [0] * 10
    assert "step 20" in horde.skipped_because["x"]
    assert not horde.diverged


@IN_ALL
def test_a_whole_group_may_skip_a_step(engine: Any, mode: Any) -> None:
    horde = make([*(ask(f"{i}", cumulant=breaking((9,), np.nan)) for i in range(12)), *siblings()], engine, mode)
    Life(horde).go_on(20)
    assert horde.n_skipped.tolist() == [1] * 12 + [0] * 10
    np.testing.assert_allclose(horde.weights()[0][:12], horde.weights()[0][[0] * 12], rtol=0, atol=0)
    assert horde.weights()[0][0].any()


@IN_ALL
def test_a_demon_that_skips_is_not_counted_as_updated(engine: Any, mode: Any) -> None:
    horde = make(
        [ask("x", cumulant=breaking((1, 3), np.nan)), ask("y"), ask("off", ConstantAction(0, 3))], engine, mode
    )
    horde.begin(np.zeros(4), np.arange(4))
    for t, n in ((1, 1), (2, 2), (3, 1), (4, 2)):
        horde.learn(1, 0.5, np.full(4, float(t)), np.arange(4))
        assert horde.n_updated == n
        assert horde.n_skipped[0] == (t + 1) // 2


@IN_ALL
def test_a_broken_reading_does_not_raise_the_bound(engine: Any, mode: Any) -> None:
    """An infinite cumulant is no largest one: weights that run away afterwards are still found."""
    horde = make([ask("x", cumulant=breaking((3,), np.inf)), ask("y")], engine, mode)
    Life(horde).go_on(10)
    np.testing.assert_allclose(horde._maker.bound[0], 1e3 * 0.5 / 0.2)


@IN_ALL
def test_what_never_goes_on_need_not_say_how_far(engine: Any, mode: Any) -> None:
    """At a termination the continuation is 0, whatever a function says of it there: that step is learned from."""
    bad = {"continuation": breaking((5,), np.nan), "lam": breaking((5,), 7.0)}
    horde, twin = make([ask("x", **bad), ask("y")], engine, mode), make([ask("x", lam=one), ask("y")], engine, mode)
    for each, gamma in ((horde, 0.5), (twin, 0.8)):
        life = Life(each)
        life.go_on(1)
        each.reset_weights()
        each.begin(np.zeros(4), np.arange(4))
        each.learn(1, 0.5, np.full(4, 5.0), np.arange(3, 7), terminated=True)
        assert each.td_error[0] == 5.0, gamma
        assert each.n_skipped[0] == 0


@IN_ALL
def test_a_stream_may_begin_where_a_continuation_is_no_number(engine: Any, mode: Any) -> None:
    """It decays the trace of the step before, and there is none: nothing is amiss, and nothing skipped."""
    bad = {"continuation": breaking((0,), np.nan), "lam": breaking((0,), -1.0, 0.9)}
    horde, twin = make([ask("x", **bad)], engine, mode), make([ask("x", continuation=one, lam=0.9)], engine, mode)
    Life(horde, twin).go_on(20)
    np.testing.assert_allclose(horde.weights()[0], twin.weights()[0], rtol=1e-12, atol=1e-15)
    assert horde.n_skipped[0] == 0


@IN_ALL
def test_the_prediction_of_a_demon_set_aside_is_no_reading(engine: Any, mode: Any) -> None:
    """Frozen at zero it would teach zeros; those that ask about it keep what they know."""
    horde = make(
        [ask("base", cumulant=breaking((10,), 1e300)), ask("above", cumulant=Prediction("base")), ask("y")],
        engine,
        mode,
    )
    life = Life(horde)
    life.go_on(11)  # the step with the 1e300, and one more if the batch was still to be taken
    assert horde.diverged == ["base"]
    before, n_before = horde.weights()[0][1], horde.n_skipped[1]
    life.go_on(20)
    np.testing.assert_allclose(horde.weights()[0][1], before, rtol=0, atol=1e-15)
    assert np.abs(before).max() > 0
    assert horde.n_skipped[1] == n_before + 20


@IN_ALL
def test_the_count_goes_with_the_demons_that_stay(engine: Any, mode: Any) -> None:
    horde = make([ask("a"), ask("x", cumulant=breaking((4, 5), np.nan)), ask("b")], engine, mode)
    life = Life(horde)
    life.go_on(8)
    horde.remove(["a"])
    horde.add([ask("new", cumulant=breaking((10,), np.nan))])
    assert horde.n_skipped.tolist() == [2, 0, 0]
    life.go_on(4)
    assert horde.n_skipped.tolist() == [2, 0, 1]
    horde.remove(["x"])
    assert horde.n_skipped.tolist() == [0, 1]
    assert list(horde.skipped_because) == ["new"]
    horde.add([ask("x")])
    assert list(horde.skipped_because) == ["new"]


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_a_life_with_gaps_is_the_same_again(mode: Any) -> None:
    def live() -> Horde:
        horde = make([broken for broken, _, _ in (BROKEN["a cumulant"],)] + siblings(), mode=mode, dtype="float32")
        Life(horde).go_on(100)
        return horde

    assert live().weights_sha256() == live().weights_sha256()


def test_on_policy_demons_skip_too() -> None:
    horde = make([ask("x", Behaviour(), breaking((2,), np.nan))])
    Life(horde).go_on(3)
    assert horde.n_skipped[0] == 1
