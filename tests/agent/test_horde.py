"""The Horde: what it refuses, how questions become numbers, and what happens to a demon that goes wrong."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.learning import SpanEngine
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, StickyRandom, Uniform
from tests.agent.shared import binary, write_every
from tests.oracles.gtd import DenseGTD

N_FEATURES, N_ACTIVE, N_CHANNELS, N_ACTIONS = 25, 4, 3, 3
F64 = LearnerConfig(dtype="float64", secondary_ratio=0.1)


def make(questions: list[GVF], config: LearnerConfig = F64, mode: Any = "eager") -> Horde:
    """Return a Horde over the small stream."""
    return Horde(questions, n_features=N_FEATURES, n_active=N_ACTIVE, config=config, mode=mode)


def live(horde: Horde, n_steps: int = 60, seed: int = 0) -> Horde:
    """Let a Horde learn from a random life."""
    rng, behaviour = np.random.default_rng(seed), StickyRandom(N_ACTIONS)
    horde.begin(rng.random(N_CHANNELS), rng.choice(N_FEATURES, N_ACTIVE, replace=False))
    for _ in range(n_steps):
        action, b = behaviour.draw(rng)
        horde.learn(action, b, rng.random(N_CHANNELS), rng.choice(N_FEATURES, N_ACTIVE, replace=False))
    return horde


def ask(name: str, policy: Any = None, cumulant: Any = None, continuation: Any = 0.8, **more: Any) -> GVF:
    """Return a question with defaults."""
    return GVF(name, policy or ConstantAction(0, N_ACTIONS), cumulant or Channel(0), continuation, **more)


@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_horde_equals_the_oracle_given_pi_over_b(engine: Any) -> None:
    """Every kind of policy, cumulant, continuation and outcome, computed here by hand.

    The span engine stores no trace: its largest is a bound, exact where a feature is always on, which none is here.
    """
    rng = np.random.default_rng(3)
    gibbs = [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 20) for _ in range(2)]

    def gamma_of(observation: np.ndarray, tiles: np.ndarray) -> float:
        return 0.9 if observation[1] > 0.3 else 0.0

    def z_of(observation: np.ndarray, tiles: np.ndarray) -> float:
        return float(tiles[0])

    class Leaning:
        n_actions = N_ACTIONS

        def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
            return np.array([observation[0], 1 - observation[0], 0.0])

    questions = [
        ask("constant"),
        ask("uniform", Uniform(N_ACTIONS), Channel(2), 0.5, lam=0.4),
        ask("on-policy", Behaviour(), Feature(7), 0.9),
        ask("gibbs 0", gibbs[0], Channel(1)),
        ask("gibbs 1", gibbs[1], lambda o, _: 2 * o[0], gamma_of, outcome=z_of),
        ask("leaning", Leaning(), Channel(1), gamma_of, outcome=3.0),
    ]
    horde = make(questions, replace(F64, engine=engine))
    oracle = DenseGTD(6, N_FEATURES, 0.1 / N_ACTIVE, 0.01 / N_ACTIVE)
    lam = np.array([0.9, 0.4, 0.9, 0.9, 0.9, 0.9])
    behaviour = StickyRandom(N_ACTIONS)

    def gammas(o: np.ndarray) -> np.ndarray:
        g = gamma_of(o, o)
        return np.array([0.8, 0.5, 0.9, 0.8, g, g])

    o, tiles = rng.random(N_CHANNELS), rng.choice(N_FEATURES, N_ACTIVE, replace=False)
    horde.begin(o, tiles)
    oracle.begin(binary(tiles, N_FEATURES), gammas(o), lam)
    for _ in range(200):
        action, b = behaviour.draw(rng)
        pi = [
            float(action == 0),
            1 / 3,
            b,
            gibbs[0].probabilities(o, tiles)[action],
            gibbs[1].probabilities(o, tiles)[action],
            Leaning().probabilities(o, tiles)[action],
        ]
        o, tiles = rng.random(N_CHANNELS), rng.choice(N_FEATURES, N_ACTIVE, replace=False)
        got = horde.learn(action, b, o, tiles)
        c = np.array([o[0], o[2], 7 in tiles, o[1], 2 * o[0], o[1]])
        z = np.array([0, 0, 0, 0, tiles[0], 3.0])
        want = oracle.learn(binary(tiles, N_FEATURES), np.array(pi) / b, gammas(o), lam, c, z)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(horde.rho, np.array(pi) / b)
        np.testing.assert_allclose(horde.td_error, oracle.delta, atol=1e-10)
    np.testing.assert_allclose(horde.weights()[0], oracle.theta, atol=1e-11)
    np.testing.assert_allclose(horde.mspbe_scalar, oracle.s, atol=1e-12)
    np.testing.assert_allclose(horde.mspbe_vector(), (oracle.m * oracle.w).sum(axis=1), atol=1e-12)
    largest = oracle.max_e.max()
    assert horde.max_trace == pytest.approx(largest) if engine == "plain" else largest < horde.max_trace < 2 * largest


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_what_never_changes_is_told_once_and_after_each_end(mode: Any) -> None:
    """Constant outcomes, channels alone, and terminations, where gamma is 0 for a step: as in the plain engine."""
    questions = [ask(f"{i}", ConstantAction(i % 2, N_ACTIONS), Channel(i % 3), 0.9, outcome=float(i)) for i in range(6)]
    hordes = [make(questions, replace(F64, engine="plain")), make(questions, mode=mode)]
    rng, behaviour, largest = np.random.default_rng(3), StickyRandom(N_ACTIONS), 0.0
    for t in range(150):
        state = rng.random(N_CHANNELS), rng.choice(N_FEATURES, N_ACTIVE, replace=False)
        action, b = behaviour.draw(rng)
        for horde in hordes:
            if t % 40 == 0:
                horde.begin(*state)
            else:
                horde.learn(action, b, *state, terminated=t % 40 == 39)
        largest = max(largest, np.abs(hordes[0].td_error).max())
    plain, fast = hordes
    np.testing.assert_allclose(fast.weights()[0], plain.weights()[0], atol=1e-11)
    np.testing.assert_allclose(fast.td_error, plain.td_error, atol=1e-10)
    assert largest > 3.0  # an outcome was told, in full where gamma was 0


def test_the_bound_follows_the_largest_that_a_channel_ever_was() -> None:
    """1,000 times the largest |c|, over 1 - gamma: raised by a large value that is long gone, of that channel alone."""
    horde = make([ask("0", cumulant=Channel(0)), ask("1", cumulant=Channel(1), continuation=0.5)])
    horde.begin(np.zeros(N_CHANNELS), np.arange(N_ACTIVE))
    for values in ([0.5, 0.1, 0.0], [-2.0, 0.1, 9.0], [0.1, 0.1, 0.1]):
        horde.learn(0, 1.0, np.array(values), np.arange(N_ACTIVE))
    np.testing.assert_allclose(horde._maker.bound, [1e3 * 2.0 / 0.2, 1e3 * 0.1 / 0.5])
    engine = horde._engine
    assert isinstance(engine, SpanEngine)
    np.testing.assert_allclose(engine._span.bound[engine.layout.lane], horde._maker.bound)


def test_a_cumulant_may_be_what_another_demon_predicts() -> None:
    """Its value is the other's theta_t.phi_{t+1}, by the weights from before the step."""
    horde = make([ask("base", Behaviour()), ask("above", Behaviour(), Prediction("base"), 0.0)])
    rng = np.random.default_rng(0)
    horde.begin(rng.random(3), np.arange(4))
    for _ in range(20):
        tiles = rng.choice(N_FEATURES, N_ACTIVE, replace=False)
        expected = horde.predict(tiles)[0] - horde.predictions[1]
        horde.learn(0, 1.0, rng.random(3), tiles)
        assert horde.td_error[1] == pytest.approx(expected, abs=1e-14)


def test_predict_changes_nothing() -> None:
    horde = live(make([ask("a"), ask("b", Uniform(3))]))
    before = horde.weights_sha256()
    predictions = horde.predictions.copy()
    horde.predict(np.arange(4))
    assert horde.weights_sha256() == before
    np.testing.assert_array_equal(horde.predictions, predictions)


def test_learn_returns_the_new_weights_predictions() -> None:
    horde = live(make([ask("a"), ask("b", Uniform(3))]))
    tiles = np.array([1, 5, 9, 20])
    np.testing.assert_allclose(horde.learn(0, 0.5, np.ones(3), tiles), horde.predict(tiles), rtol=1e-13)


def test_a_termination_ends_the_return_and_the_stream() -> None:
    """One state; the stream ends after each step of reward 1: V = 1, not 1 / (1 - .8) = 5."""
    horde = Horde([ask("a", Behaviour())], n_features=1, n_active=1, config=F64)
    o, tiles = np.ones(3), np.zeros(1, dtype=np.int64)
    for _ in range(300):
        horde.begin(o, tiles)
        horde.learn(0, 1.0, o, tiles, terminated=True)
    assert horde.predict(tiles)[0] == pytest.approx(1.0, abs=1e-9)
    with pytest.raises(RuntimeError, match="begin"):
        horde.learn(0, 1.0, o, tiles)


def test_the_hash_is_that_of_theta_then_w() -> None:
    horde = live(make([ask("a"), ask("b", Uniform(3))], LearnerConfig()))
    theta, w = horde.weights()
    assert theta.dtype == np.float32
    assert horde.weights_sha256() == hashlib.sha256(theta.tobytes() + w.tobytes()).hexdigest()


def test_n_updated_counts_demons_with_rho_above_zero() -> None:
    horde = make([ask(f"{a}/{i}", ConstantAction(a, 3)) for a in range(3) for i in range(5)])
    horde.begin(np.ones(3), np.arange(4))
    horde.learn(1, 0.2, np.ones(3), np.arange(4))
    assert horde.n_updated == 5
    np.testing.assert_array_equal(horde.rho > 0, np.repeat([False, True, False], 5))


@pytest.mark.parametrize("n_siblings", [0, 12], ids=["few", "many"])
@pytest.mark.parametrize("bad", [1e145, -1e300])
def test_a_demon_whose_numbers_are_lost_is_set_aside_alone(bad: float, n_siblings: int) -> None:
    """Its siblings learn bit for bit what they learn without it; it is named once, and frozen at zero."""
    calls = []

    def breaks(observation: np.ndarray, tiles: np.ndarray) -> float:
        calls.append(0)
        return bad if len(calls) > 20 else 1.0

    siblings = [ask(f"sibling {i}", cumulant=Channel(i % 3)) for i in range(n_siblings)]
    siblings += [ask("other", Uniform(3)), ask("on", Behaviour())]
    horde = live(make([ask("poor thing", cumulant=breaks), *siblings]))
    twin = live(make([ask("poor thing", cumulant=lambda *_: 1.0), *siblings]))
    assert horde.diverged == ["poor thing"]
    assert twin.diverged == []
    for got, want in zip(horde.weights(), twin.weights(), strict=True):
        np.testing.assert_array_equal(got[1:], want[1:])
        assert (got[0] == 0).all()
    assert horde.predictions[0] == 0.0
    assert np.isfinite(horde.mspbe_vector()).all()
    assert np.isfinite(horde.mspbe_scalar).all()
    assert "poor thing" in horde.divergence_reason


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_how_the_work_is_cut_up_does_not_matter(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written when differs with the steps between writings, and with the blocks that take turns: rounding."""
    questions = [ask(f"{k}", ConstantAction(k % N_ACTIONS, N_ACTIONS), Channel(k % 3)) for k in range(60)]
    found = []
    for period, widest in ((64, None), (7 if mode == "eager" else 96, None), (64, 16)):
        write_every(period, monkeypatch, widest=widest)
        found.append(live(make(questions, mode=mode), 200).weights()[0])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-9, atol=1e-12 * np.abs(found[0]).max())
    assert (found[1] != found[0]).any()


@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize("asks_each_step", [False, True])
def test_a_deferred_horde_learns_what_an_eager_one_learns(w_rule: Any, asks_each_step: bool) -> None:
    """Rare and frequent policies, a function, a demon whose numbers are lost, perhaps one about another's answer."""
    calls: list[float] = []

    def breaks(observation: np.ndarray, tiles: np.ndarray) -> float:
        calls.append(observation[0])
        return 1e200 if len(calls) % 300 == 150 else 1.0

    questions = [ask(f"constant {i}", ConstantAction(i, N_ACTIONS), Channel(i)) for i in range(N_ACTIONS)]
    questions += [ask("on", Behaviour(), Feature(3), 0.9), ask("poor thing", Uniform(3), breaks)]
    questions += [ask("gibbs", Gibbs.random(np.random.default_rng(1), N_ACTIONS, N_FEATURES, 20))]
    if asks_each_step:
        questions.append(ask("about on", Uniform(3), Prediction("on")))
    found = []
    for mode in ("eager", "deferred"):
        calls.clear()
        horde = live(make(questions, replace(F64, w_rule=w_rule), mode), 230)
        horde.begin(np.zeros(3), np.arange(4))
        horde.learn(0, 0.5, np.ones(3), np.arange(2, 6))
        found.append(horde)
    eager, deferred = found
    for left, right in zip(
        (*eager.weights(), eager.mspbe_vector(), eager.mspbe_scalar, eager.td_error, eager.predictions),
        (*deferred.weights(), deferred.mspbe_vector(), deferred.mspbe_scalar, deferred.td_error, deferred.predictions),
        strict=True,
    ):
        np.testing.assert_allclose(right, left, rtol=1e-9, atol=1e-12 * np.abs(left).max())
    assert eager.diverged == deferred.diverged == ["poor thing"]
    assert deferred.max_trace == pytest.approx(eager.max_trace)


def test_what_a_deferred_horde_tells_is_up_to_date() -> None:
    """Each question to it is answered as of the last step, without any other being asked before."""
    questions = [ask("on", Behaviour()), ask("uniform", Uniform(3))]
    for look in (
        lambda h: h.predictions,
        lambda h: h.predict(np.arange(4)),
        lambda h: h.weights()[0],
        lambda h: h.mspbe_scalar,
        lambda h: h.mspbe_vector(),
        lambda h: h.td_error,
        lambda h: h.max_trace,
    ):
        eager, deferred = (look(live(make(questions, mode=mode), 37)) for mode in ("eager", "deferred"))
        np.testing.assert_allclose(deferred, eager, rtol=1e-10)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match='"eager" or "deferred", not \'lazy\''):
        make([ask("on", Behaviour())], mode="lazy")


def test_a_whole_group_may_be_set_aside() -> None:
    horde = make([ask(f"bad {i}", cumulant=lambda *_: 1e300) for i in range(10)] + [ask("good", Uniform(3))])
    live(horde)
    assert len(horde.diverged) == 10
    assert horde.n_updated == 1
    assert (horde.weights()[0][10] != 0).any()


def test_weights_past_their_bound_are_found() -> None:
    """A step size of 3 diverges; the bound, 1e3 r_max / (1 - gamma), trips long before infinity does.

    Weights are looked at when they are written, which is at most three periods of 64 steps late.
    """
    config = LearnerConfig(step_size=3.0 * N_ACTIVE, trace_rule="plain", check_every=5)
    horde = live(
        make([ask("wild", Behaviour(), continuation=0.9), ask("tame", Behaviour(), continuation=0.0)], config), 300
    )
    assert "wild" in horde.diverged
    assert "bound" in horde.divergence_reason["wild"]
    assert np.isfinite(horde.predictions).all()


def test_theta_reset_keeps_w() -> None:
    horde = live(make([ask("a", Uniform(3)), ask("b")]))
    w = horde.weights()[1]
    horde.reset_weights()
    assert (horde.weights()[0] == 0).all()
    np.testing.assert_array_equal(horde.weights()[1], w)
    np.testing.assert_array_equal(horde.predictions, 0.0)
    with pytest.raises(ValueError, match="theta must be finite"):
        horde.reset_weights(np.zeros((1, 1)))


SEEN, T = np.zeros(N_CHANNELS), np.arange(N_ACTIVE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, 0.5, SEEN, T), "action must be a whole number in 0..2, not 3"),
        ((-1, 0.5, SEEN, T), "action"),
        ((0.5, 0.5, SEEN, T), "action"),
        ((0, 0.0, SEEN, T), "probability"),
        ((0, 1.1, SEEN, T), "probability"),
        ((0, float("nan"), SEEN, T), "probability"),
        ((0, 0.5, SEEN[:0], T), "observation must be flat"),
        ((0, 0.5, SEEN[None], T), "observation"),
        ((0, 0.5, np.array([0, np.nan, 0]), T), "observation must be finite; channel 1 is nan"),
        ((0, 0.5, SEEN, T[:3]), "tiles must be integers of shape"),
        ((0, 0.5, SEEN, T.astype(float)), "tiles"),
        ((0, 0.5, SEEN, T + N_FEATURES), "tiles must lie in 0..24; number 0 is 25"),
        ((0, 0.5, SEEN, T - 1), "number 0 is -1"),
        ((0, 0.5, SEEN, np.array([7, 2, 9, 2])), "tiles must be different features; 2 is there more than once"),
    ],
)
def test_learn_refuses_by_name_and_learns_nothing(arguments: tuple[Any, ...], words: str) -> None:
    horde = make([ask("a", Uniform(3))])
    horde.begin(SEEN, T)
    before = horde.weights_sha256()
    with pytest.raises(ValueError, match=words):
        horde.learn(*arguments)
    assert horde.weights_sha256() == before


@pytest.mark.parametrize("asks", [False, True], ids=["channels", "functions"])
def test_a_feature_that_is_on_more_than_once_is_refused_everywhere(asks: bool) -> None:
    """Where a state is looked at in Python before functions are asked, and where a kernel does it alone."""
    horde = make([ask("a", Uniform(3), (lambda *_: 1.0) if asks else Channel(0))])
    twice, words = np.array([1, 8, 8, 3]), "tiles must be different features; 8 is there more than once"
    with pytest.raises(ValueError, match=words):
        horde.begin(SEEN, twice)
    horde.begin(SEEN, T)
    horde.learn(1, 0.5, SEEN + 1, T)
    before = horde.weights_sha256()
    for refused in (lambda: horde.learn(1, 0.5, SEEN, twice), lambda: horde.predict(twice)):
        with pytest.raises(ValueError, match=words):
            refused()
    assert horde.weights_sha256() == before
    horde.learn(1, 0.5, SEEN + 1, T)
    assert horde.weights_sha256() != before


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([], "at least one"),
        ([ask("a"), ask("a")], "'a' is there twice"),
        ([ask("a"), ask("b", Uniform(4))], "different numbers of actions"),
        ([ask("a", cumulant=Feature(99))], "no feature 99 of 25"),
        ([ask("a", cumulant=Prediction("b"))], "no demon 'b'"),
        ([ask("a", Gibbs(3, 7, np.array([0]), np.ones(1)))], "n_features"),
    ],
)
def test_questions_that_make_no_horde_are_refused(questions: list[GVF], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(questions)


def test_n_active_must_fit() -> None:
    with pytest.raises(ValueError, match="n_active"):
        Horde([ask("a")], n_features=3, n_active=4)


def test_no_vector_estimate_without_its_trace() -> None:
    with pytest.raises(ValueError, match="vector_mspbe=True"):
        make([ask("a")], LearnerConfig(vector_mspbe=False)).mspbe_vector()
