"""Random sequences of steps, gaps, ends, added and removed demons and new weights, compared with the dense oracle."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from horde_agent import questions as families
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, PolicyFunction, Uniform
from tests.agent.hordes import ENGINES, IN_ALL, engine_of
from tests.agent.shared import robot_interface, write_every
from tests.oracles.horde import DenseHorde

FACE = robot_interface()
N = 12
N_ACTIVE = 3
N_CHANNELS = 3
N_ACTIONS = 3


def leaning(observation: np.ndarray, tiles: np.ndarray) -> list[float]:
    share = (observation[0] + tiles[0] / N) / 2
    return [share, 1 - share, 0.0]


def gamma_of(observation: np.ndarray, tiles: np.ndarray) -> float:
    """Return a continuation that is sometimes 1, 0 or NaN."""
    return [1.0, 0.9, 0.0, 0.5, np.nan][int(observation[1] * 7) % 5]


def lam_of(observation: np.ndarray, tiles: np.ndarray) -> float:
    return 0.9 if observation[2] > 0.5 else 0.3


def z_of(observation: np.ndarray, tiles: np.ndarray) -> float:
    if observation[0] > 0.4:
        return float(tiles[1])
    return 0.0


def c_of(observation: np.ndarray, tiles: np.ndarray) -> float:
    if observation[0] > 0.93:
        return float("inf")
    return float(observation[0] - observation[1])


def pool(rng: np.random.Generator, n: int, *, is_fixed: bool = False) -> list[GVF]:
    """Return random questions of every kind; with `is_fixed`, only those without functions."""
    out = []
    for i in range(n):
        gibbs = Gibbs.random(np.random.default_rng(i % 4), N_ACTIONS, N, 9)
        policies: list[Any] = [
            *(ConstantAction(a, N_ACTIONS) for a in range(N_ACTIONS)),
            Behaviour(),
            gibbs,
        ]
        cumulants: list[Any] = [Channel(c) for c in range(N_CHANNELS)]
        gammas: list[Any] = [0.0, 0.5, 0.9]
        if is_fixed:
            outcomes: list[Any] = [0.0]
        else:
            outcomes = [0.0, 2.0, z_of, Feature(3), Feature(i % N, factor=z_of)]
        lams: list[Any] = [0.9, 0.4]
        if not is_fixed:
            policies += [Uniform(N_ACTIONS), PolicyFunction(leaning, N_ACTIONS)]
            cumulants += [Feature(3, factor=c_of), c_of, Prediction("0"), Channel(0), 0.5]
            gammas += [gamma_of]
            lams += [lam_of]
        policy, cumulant, gamma, outcome, lam = (
            options[rng.integers(len(options))]
            for options in (policies, cumulants, gammas, outcomes, lams)
        )
        out.append(GVF(f"{i}", policy, Channel(0) if i == 0 else cumulant, gamma, outcome, lam))
    return out


class Pair:
    """A Horde and the oracle with the same stream, passed in arrays that are overwritten."""

    def __init__(
        self, questions: list[GVF], seed: int, engine: Any, mode: Any, **config: Any
    ) -> None:
        settings = {
            "dtype": "float64",
            "secondary_ratio": 0.2,
            "mspbe_tau": 30.0,
            "engine": engine,
            **config,
        }
        rules: Any = LearnerConfig.paper(**settings)
        self.horde = Horde(questions, n_features=N, n_active=N_ACTIVE, config=rules, mode=mode)
        alpha = rules.step_size / N_ACTIVE
        self.oracle = DenseHorde(
            questions,
            N,
            alpha,
            0.2 * alpha,
            trace_rule=rules.trace_rule,
            w_rule=rules.w_rule,
            tau=rules.mspbe_tau,
        )
        self.rng = np.random.default_rng(seed)
        self.observation = np.zeros(N_CHANNELS)
        self.tiles = np.arange(N_ACTIVE)

    def _move(self) -> None:
        """Overwrite the state with the next one."""
        self.observation[:] = self.rng.random(N_CHANNELS)
        self.tiles[self.rng.integers(N_ACTIVE)] = self.rng.choice(
            np.setdiff1d(np.arange(N), self.tiles)
        )

    def begin(self) -> None:
        self._move()
        for each in (self.horde, self.oracle):
            each.begin(self.observation, self.tiles)

    def learn(self, action: int | None = None, *, terminated: bool = False) -> None:
        drawn = int(self.rng.integers(N_ACTIONS))
        b = float(self.rng.choice([0.2, 0.6, 1.0]))
        if action is None:
            action = drawn
        self._move()
        for each in (self.horde, self.oracle):
            each.learn(action, b, self.observation, self.tiles, terminated=terminated)

    def check(self, when: str) -> None:
        oracle = self.oracle.demons
        horde = self.horde
        pairs = {
            "theta": (horde.weights()[0], oracle.theta),
            "w": (horde.weights()[1], oracle.w),
            "s": (horde.mspbe_scalar, oracle.s),
            "vector": (horde.mspbe_vector(), (oracle.m * oracle.w).sum(axis=1)),
            "delta": (horde.td_error, oracle.delta),
            "v": (horde.predictions, self.oracle.predictions),
            "rho": (np.where(np.isnan(self.oracle.rho), np.nan, horde.rho), self.oracle.rho),
        }
        for what, (got, want) in pairs.items():
            scale = 1e-3 + np.abs(np.nan_to_num(want)).max(initial=0.0)
            np.testing.assert_allclose(
                got, want, rtol=0, atol=1e-10 * scale, err_msg=f"{what} {when}"
            )
        np.testing.assert_array_equal(horde.n_skipped, self.oracle.n_skipped, err_msg=when)
        assert horde.n_waiting == 0
        assert not horde.diverged


def seam(pair: Pair, waiting: list[GVF], kind: int) -> str:
    """Do something other than learning, and return its description."""
    horde = pair.horde
    oracle = pair.oracle
    rng = pair.rng
    if kind == 0:
        pair.begin()
        return "a gap"
    if kind == 1:
        pair.learn(terminated=True)
        if rng.random() < 0.5:  # between two streams
            seam(pair, waiting, int(rng.choice([2, 4])))
        pair.begin()
        return "an end"
    if kind == 2 and waiting:
        few = [waiting.pop() for _ in range(min(len(waiting), int(rng.integers(1, 4))))]
        for each in (horde, oracle):
            each.add(few)
        return "demons were added"
    if kind == 3 and horde.n_demons > 4:
        names = [horde.names[i] for i in rng.choice(np.arange(1, horde.n_demons), 2, replace=False)]
        waiting += [q for q in horde.questions if q.name in names]
        for each in (horde, oracle):
            each.remove(names)
        return "demons were removed"
    if kind == 4:
        if rng.random() < 0.3:
            theta = None
        else:
            theta = rng.normal(0, 0.1, (horde.n_demons, N))
        for each in (horde, oracle):
            each.reset_weights(theta)
        return "theta was reset"
    if kind == 5:
        np.testing.assert_allclose(horde.predict(pair.tiles), oracle.predictions, atol=1e-9)
        return "predictions were read"
    pair.horde = copy.deepcopy(horde)
    return "the Horde was copied"


def live(pair: Pair, waiting: list[GVF], n_steps: int) -> None:
    """Learn, with something else in every fifth step on average, and compare sometimes."""
    seam(pair, waiting, 2)  # before the first state
    pair.begin()
    for t in range(n_steps):
        event = "a step"
        if pair.rng.random() < 0.2:
            event = seam(pair, waiting, int(pair.rng.integers(7)))
        else:
            pair.learn()
        if pair.rng.random() < 0.15 or t == n_steps - 1:
            pair.check(f"after {t + 1} steps, the last {event}")


LIVES = [
    # flushed every ... steps (0: the default), trace rule, w rule, questions at first and later,
    # steps
    (0, "clipped", "every-step", 18, 12, 250),
    (7, "plain", "importance-weighted", 18, 12, 250),
]
SHORT_LIFE = (9, "clipped", "every-step", 9, 5, 60)
# The short life runs interpreted, too: so that each engine and both kinds of questions occur
INTERPRETED = {("span", "deferred", False), ("span", "eager", True), ("plain", "eager", False)}


def lives_of_engines() -> list[Any]:
    """Return the engine, the mode, whether signals are fixed, and the life, of each test."""
    parameters = []
    for engine, mode in ENGINES:
        for is_fixed in (False, True):
            marks = []
            if (engine, mode, is_fixed) in INTERPRETED:
                marks = [pytest.mark.kernels]
            parameters += [(engine, mode, is_fixed, *life) for life in LIVES]
            parameters.append(pytest.param(engine, mode, is_fixed, *SHORT_LIFE, marks=marks))
    return parameters


@pytest.mark.parametrize(
    (
        "engine",
        "mode",
        "is_fixed",
        "period",
        "trace_rule",
        "w_rule",
        "n_first",
        "n_later",
        "n_steps",
    ),
    lives_of_engines(),
)
def test_random_sequences_agree_with_the_oracle(
    period: int,
    trace_rule: Any,
    w_rule: Any,
    n_first: int,
    n_later: int,
    n_steps: int,
    is_fixed: bool,
    engine: Any,
    mode: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = pool(np.random.default_rng(100), n_first + n_later, is_fixed=is_fixed)
    write_every(period, monkeypatch)
    pair = Pair(questions[:n_first], n_steps, engine, mode, trace_rule=trace_rule, w_rule=w_rule)
    live(pair, questions[n_first:], n_steps)


@IN_ALL
def test_a_demon_with_an_early_cumulant_does_not_diverge_after_an_addition(
    engine: Any, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cumulant is 0 after step 5: a bound computed from then on would be 0."""
    questions = [GVF("bump", Behaviour(), Channel(0), 0.9), GVF("y", Behaviour(), Channel(1), 0.5)]
    config = LearnerConfig.paper(engine=engine, check_every=1)
    write_every(8, monkeypatch)
    horde = Horde(questions, n_features=N, n_active=N_ACTIVE, config=config, mode=mode)
    horde.begin(np.zeros(3), np.arange(3))
    for t in range(300):
        if t == 10:
            horde.add([GVF("z", Behaviour(), Channel(2), 0.5)])
        horde.learn(0, 0.5, np.array([t == 5, 0.1, t / 300]), np.arange(3))
    assert horde.diverged == []
    assert horde.weights()[0][0].any()


def test_every_weight_is_checked() -> None:
    """The plain engine checks a fifth of the demons in each step, so a large weight is found within five."""
    questions = [GVF(f"{i}", ConstantAction(0, 2), Channel(0), 0.0) for i in range(N)]
    for feature in range(N):
        config = LearnerConfig.paper(engine="plain", check_every=5)
        horde = Horde(questions, n_features=N, n_active=N_ACTIVE, config=config)
        horde.begin(np.ones(1), np.array([1, 2, 3]))
        horde.learn(0, 1.0, np.ones(1), np.array([1, 2, 3]))
        engine: Any = engine_of(horde)
        theta = np.zeros((N, N))
        demon = (5 * feature + 7) % N
        theta[demon, feature] = 1e6  # above the bound of 1e3; passed to the engine only
        engine.reset_weights(theta)
        for _ in range(5):
            assert horde.diverged == []
            horde.learn(1, 1.0, np.ones(1), np.array([1, 2, 3]))
            if horde.diverged:
                break
        assert horde.diverged == [f"{demon}"]


def test_lambda_is_nine_tenths_by_default(tmp_path: Any) -> None:
    """White, Modayil & Sutton (2012): lambda = 0.9."""
    file = tmp_path / "questions.toml"
    file.write_text('[[family]]\npolicies = ["behaviour"]\ngammas = [0.5]\n')
    questions = [
        *families.excursions(FACE),
        *families.nexting(FACE),
        *families.policies(FACE, np.random.default_rng(0), 3),
        *families.from_file(file, FACE),
        *families.family(FACE, {"u": Uniform(3)}, [0.5], [0]),
        GVF("x", Behaviour(), Channel(0), 0.5),
    ]
    assert {q.lam for q in questions} == {0.9}
