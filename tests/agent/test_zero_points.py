"""A score depends on no zero point and no unit, a perfect predictor has none, in each of the forms of a score.

The forms are test excursions, on-policy tests, the last part of a log, and held-out rows. Readings
are small multiples of 1/8, so that float32 holds x, 1,000 + x and 273.15 + 10 x without rounding
(273.125, in binary).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import relearn
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.runs import held_out, log_nexting
from horde_agent.scoring.two_pass_nmsre import policy_scores
from tests.agent.doubles import SpyHorde, ToyBody

Floats = np.ndarray


class Wide(ToyBody):
    """Observations of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-5e3, 5e3, (3,), np.float32)


FACE = Interface.of(Wide())
GAMMAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
HORIZON = 300
"""Terms of a test: .99^300 is .049."""
SCALES = {"x": (0.0, 1.0), "1000 + x": (1000.0, 1.0), "Kelvin": (273.125, 10.0)}
PHI = 0.75
N = 3_000
Value = Callable[[Floats, float], Floats]


class Answers(SpyHorde):
    """A Horde whose predictions are a function of the first reading and of gamma; it learns nothing."""

    def __init__(self, questions: list[GVF], value: Value) -> None:
        super().__init__(questions)
        self.gammas = np.array([float(q.continuation) for q in questions])  # type: ignore[arg-type]
        self.value = value

    def predict(self, tiles: Floats, observation: Floats) -> Floats:
        return np.asarray(self.value(np.float64(observation[0]), self.gammas), dtype=np.float64)

    def begin(self, observation: Floats, tiles: Floats) -> Floats:
        self.predictions = self.predict(tiles, observation)
        return self.predictions

    def learn(self, action: int, b: float, observation: Floats, *_: Any, **__: Any) -> Floats:
        return self.begin(observation, *_)


def autoregression(n: int = N) -> Floats:
    """Return x_{t+1} = .75 x_t + noise, on a grid of 1/8."""
    rng = np.random.default_rng(2)
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = np.round(8.0 * (PHI * x[t - 1] + rng.normal())) / 8.0
    return x


def of_autoregression(x: Floats, gamma: Floats) -> Floats:
    """Return the value of x: sum_k gamma^k phi^(k+1) x."""
    return PHI * x / (1.0 - gamma * PHI)


RING = np.array([0.0, 1.0, 4.0, 2.0, 0.5, -1.0, -3.0, 6.0, 1.5, 0.25, 2.5])
"""Eleven places: no number of steps between two tests is a multiple."""


def of_ring(x: Floats, gamma: Floats) -> Floats:
    """Return the value of a place on the ring: the sum of the readings that follow, each gamma^11 times again."""
    place = int(np.flatnonzero(x == RING)[0])
    following = np.roll(RING, -place - 1)
    return sum(gamma**k * c for k, c in enumerate(following)) / (1.0 - gamma**11)


def scaled(value: Value, offset: float, unit: float) -> Value:
    """Return the value of readings offset + unit x, from that of x."""

    def of_scaled(reading: Floats, gamma: Floats) -> Floats:
        return offset / (1.0 - gamma) + unit * value((reading - offset) / unit, gamma)

    return of_scaled


def stream_of(
    readings: Floats, action: Floats | int = 1, b: Floats | float = 1.0, *, is_test: bool = False
) -> Stream:
    """Return a stream of readings; with `is_test` an excursion of 300 steps after each step of behaviour."""
    recorder = Recorder(3)
    n = len(readings)
    actions = np.broadcast_to(action, n)
    probabilities = np.broadcast_to(b, n)
    for k, reading in enumerate(readings):
        flags = Flag.NONE
        if k == 0:
            flags = Flag.GAP
        phase = Phase.BEHAVE
        if k == n - 1:
            phase = Phase.END
        elif is_test and k % (HORIZON + 1):
            phase = Phase.EXCURSION
        observation = np.array([reading, 0.0, 0.0], dtype=np.float32)
        recorder.write(
            Row(
                step=k,
                t=0.1 * k,
                observation=observation,
                action=int(actions[k]),
                b=float(probabilities[k]),
                phase=phase,
                flags=flags,
                pose=(np.nan,) * 3,
            )
        )
    return recorder.stream()


def questions(policy: Any) -> list[GVF]:
    return [GVF(f"g{gamma}", policy, Channel(0), gamma) for gamma in GAMMAS]


class Scores(NamedTuple):
    """NMSRE and that of persistence by gamma, shape (6,)."""

    nmsre: Floats
    persistence: Floats


def of_tests(stream: Stream, value: Value, policy: Any) -> Scores:
    """Return the mean squared errors of all tests over the variance of their returns."""
    horde: Any = Answers(questions(policy), value)
    student = relearn(stream, horde, FACE, excursions=ExcursionConfig(0.0, HORIZON))
    (scores,) = policy_scores(student.errors.table)
    (tests,) = student.errors.table.outcomes()
    np.testing.assert_allclose(student.errors.online(), scores.last_nmsre(), rtol=1e-6, atol=1e-9)
    squares = tests.errors**2
    of_persistence = tests.persistence_errors(scores.moments.spread().mean) ** 2
    return Scores(
        scores.moments.normalise(squares.mean(axis=0)),
        scores.moments.normalise(of_persistence.mean(axis=0)),
    )


def of_excursions(readings: Floats, value: Value) -> Scores:
    return of_tests(stream_of(readings, is_test=True), value, ConstantAction(1, 3))


def on_policy(readings: Floats, value: Value) -> Scores:
    return of_tests(stream_of(readings), value, Behaviour())


def of_log(readings: Floats, value: Value) -> Scores:
    horde: Any = Answers(questions(Behaviour()), value)
    rows = [stream_of(readings)]
    score = log_nexting.score(rows, horde, FACE, log_nexting.border_of(rows))
    return Scores(score.nmsre, score.nmsre_of_persistence)


def of_held_out_rows(readings: Floats, value: Value) -> Scores:
    """Return the scores under a policy that takes action 1, which was taken with probability .9999 (b is recorded)."""
    rng = np.random.default_rng(1)
    action = (rng.random(len(readings)) < 0.9999).astype(int)
    b = np.where(action == 1, 0.9999, 0.0001)
    horde: Any = Answers(questions(ConstantAction(1, 3)), value)
    scores = held_out.score(stream_of(readings, action, b).rows, horde, FACE)
    assert [one.reason for one in scores] == [""] * len(GAMMAS)
    return Scores(
        np.array([one.nmsre for one in scores]),
        np.array([one.nmsre_of_persistence for one in scores]),
    )


FORMS = {
    "excursions": of_excursions,
    "on-policy tests": on_policy,
    "log": of_log,
    "held-out rows": of_held_out_rows,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_constant_or_a_unit_changes_no_score(form: str) -> None:
    """Predictions of an AR(1) process, off by a tenth. At gamma .99 the mean of the last 5 % of 1,000 + x is 5,000."""
    x = autoregression()

    def value(reading: Floats, gamma: Floats) -> Floats:
        return 1.1 * of_autoregression(reading, gamma)

    scores = {
        name: FORMS[form](offset + unit * x, scaled(value, offset, unit))
        for name, (offset, unit) in SCALES.items()
    }
    assert np.isfinite(scores["x"]).all()
    for name in ("1000 + x", "Kelvin"):
        np.testing.assert_allclose(scores[name].nmsre, scores["x"].nmsre, rtol=1e-6)
        np.testing.assert_allclose(scores[name].persistence, scores["x"].persistence, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", SCALES)
def test_a_perfect_predictor_scores_0_and_persistence_does_not(form: str, scale: str) -> None:
    """On a ring, on which the next reading is certain."""
    offset, unit = SCALES[scale]
    x = np.tile(RING, 200)
    scores = FORMS[form](offset + unit * x, scaled(of_ring, offset, unit))
    np.testing.assert_allclose(scores.nmsre, 0.0, atol=1e-9)
    assert (scores.persistence > 0.5).all()


@pytest.mark.parametrize("form", ["log", "held-out rows"])
def test_the_best_prediction_of_an_autoregression_scores_what_its_noise_explains(form: str) -> None:
    """With s = 1 / (1 - gamma^2) and v = 1 / (1 - phi^2): s / (s + phi^2 v), of .44 at gamma 0 and .975 at .99.

    The error of persistence adds v (1 - phi)^2 / (1 - gamma)^2 to s.
    """
    gamma = np.array(GAMMAS)[:4]
    s = 1.0 / (1.0 - gamma**2)
    v = 1.0 / (1.0 - PHI**2)
    total = s + PHI**2 * v
    scores = FORMS[form](autoregression(20_000), of_autoregression)
    np.testing.assert_allclose(scores.nmsre[:4], s / total, rtol=0.1)
    persistence = (s + v * (1.0 - PHI) ** 2 / (1.0 - gamma) ** 2) / total
    np.testing.assert_allclose(scores.persistence[:4], persistence, rtol=0.12)


def test_a_reward_of_1_is_worth_its_time_scale() -> None:
    """1 / (1 - gamma) each time: nothing varies. A right prediction scores 0, one that is off by a hundredth 1."""
    readings = np.ones(1_300)
    for form in ("excursions", "on-policy tests", "log"):
        assert FORMS[form](readings, lambda x, gamma: x / (1.0 - gamma)).nmsre.tolist() == [0.0] * 6
        scores = FORMS[form](readings, lambda x, gamma: 1.01 * x / (1.0 - gamma))
        assert scores.nmsre.tolist() == [1.0] * 6
        assert scores.persistence.tolist() == [0.0] * 6


@pytest.mark.parametrize("form", ["excursions", "log", "held-out rows"])
def test_returns_of_tiny_units_are_not_constant(form: str) -> None:
    """Readings of 2^-30, with a variance of 1e-18, score what they do in units of 1, and not 1 or nothing."""
    x = autoregression(3_000)
    unit = 2.0**-30

    def value(reading: Floats, gamma: Floats) -> Floats:
        return 1.1 * of_autoregression(reading, gamma)

    scores = FORMS[form](x, value)
    tiny = FORMS[form](unit * x, scaled(value, 0.0, unit))
    np.testing.assert_allclose(tiny.nmsre, scores.nmsre, rtol=1e-9)
    assert (np.abs(scores.nmsre - 1.0) > 1e-3).all()
