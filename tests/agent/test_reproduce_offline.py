"""The off-line solutions against their definitions, written out step by step over all features."""

from __future__ import annotations

import numpy as np
import pytest

from examples.reproduce import offline as offline_rows
from examples.reproduce.offline import LeastSquares, LifeRows, LiveFeatures, offline
from examples.reproduce.training_data import TrainingData
from horde_agent import questions
from horde_agent.gvf import GVF, Channel
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.policies import ConstantAction
from horde_agent.record import Flag, Phase, Recorder, Row
from horde_agent.tiles import TileCoder
from tests.agent.doubles import ToyBody, horde_of, live

RIDGE = 0.03


@pytest.mark.parametrize("n_rows", [12, 40])
def test_the_small_system_is_solved_for_the_same_theta(n_rows: int) -> None:
    """(E'X + eta I) theta = E'y, with fewer rows than the 25 features or more, and a ridge for each question."""
    rng = np.random.default_rng(0)
    left_rows, right = rng.normal(size=(2, n_rows, 25))
    y = rng.normal(size=(n_rows, 3))
    system = LeastSquares(LiveFeatures(np.arange(25)[None], 25), np.zeros(3), n_rows)
    for part in (slice(0, 7), slice(7, n_rows)):
        system.add(left_rows[part].astype(np.float32), right[part].astype(np.float32), y[part])
    A = left_rows.T @ right
    expected = np.linalg.solve(A + RIDGE * np.trace(A) / 25 * np.eye(25), left_rows.T @ y)
    np.testing.assert_allclose(system.solve(RIDGE), expected, rtol=2e-4, atol=1e-5)
    solution = system.solve(np.array([RIDGE, 1.0, RIDGE]))
    np.testing.assert_allclose(solution[:, ::2], expected[:, ::2], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(solution[:, 1], system.solve(1.0)[:, 1])


@pytest.fixture(scope="module")
def life() -> tuple[TrainingData, Interface]:
    """A toy life with a gap and frequent excursions."""
    body = ToyBody(faults={222: {"gap": 1}, 223: {"applied": 0}})
    recorder = Recorder(3)
    interface = Interface.of(body)
    horde = horde_of(questions.excursions(interface), interface)
    live(
        2_500,
        body,
        horde,
        seed=3,
        excursions=ExcursionConfig(probability=1 / 12),
        recorder=recorder,
    )
    return TrainingData(recorder.stream()), interface


def phi(interface: Interface, observation: np.ndarray) -> np.ndarray:
    out = np.zeros(interface.coder.n_features)
    out[interface.encode(observation)] = 1.0
    return out


def test_lstd_solves_the_demons_own_equations(life: tuple[TrainingData, Interface]) -> None:
    """A and b as GTD(lambda) sums them, with a clipped trace: e = rho (phi + gamma lambda_t e), cleared at gaps."""
    training_data, interface = life
    rows = training_data.stream.rows
    action = 1
    channel = np.array([0, 1, 2])
    gamma = 0.8
    n = interface.coder.n_features
    A = np.zeros((n, n))
    e = np.zeros(n)
    moments = []
    lam_t = 0.9
    for i, does in enumerate(training_data.does):
        if does == 1:
            e = np.zeros(n)
            lam_t = 0.9
        if does != 2:
            continue
        j = training_data.before[i]
        rho = (rows["action"][j] == action) / rows["b"][j]
        phi_t = phi(interface, rows["observation"][j])
        phi_tp1 = phi(interface, rows["observation"][i])
        e = rho * (phi_t + gamma * lam_t * e)
        lam_t = 0.9
        if rho:
            lam_t = 0.9 * min(1.0, 1.0 / rho)
        A += np.outer(e, phi_t - gamma * phi_tp1)
        moments.append((e, rho, rows["observation"][i].astype(np.float64)))
    mean = sum(rho * r for _, rho, r in moments) / sum(rho for _, rho, _ in moments)
    b = sum(np.outer(e, r - mean) for e, _, r in moments)
    live = np.diag(A) != 0

    problem = LifeRows(training_data, interface).lstd(action, channel, gamma, 0.9)
    assert problem.live.n >= live.sum()
    eta = RIDGE * np.trace(A) / problem.live.n
    theta = np.linalg.solve(A + eta * np.eye(n), b)
    at = np.array([50, 700, 1_500])
    expected = np.array([phi(interface, rows["observation"][i]) for i in at]) @ theta + mean / (
        1 - gamma
    )
    tiles = np.array([interface.encode(rows["observation"][i]) for i in at])
    np.testing.assert_allclose(problem.predict(tiles, RIDGE), expected, rtol=1e-4, atol=1e-5)


def test_regression_uses_each_step_with_enough_of_its_return_left(
    life: tuple[TrainingData, Interface],
) -> None:
    """At gamma .8, 31 of 50 terms are needed: steps 0..19 of each excursion, with all the terms that follow."""
    training_data, interface = life
    observation = training_data.stream.rows["observation"].astype(np.float64)
    starts = training_data.test_row
    X = []
    y = []
    for start in starts:
        for k in range(20):
            X.append(phi(interface, observation[start + k]))
            y.append(sum(0.8**m * observation[start + k + m + 1] for m in range(50 - k)))
    X = np.array(X)
    y = np.array(y)
    problem = LifeRows(training_data, interface).regression(starts, np.array([0, 1, 2]), 0.8)
    eta = RIDGE * np.trace(X.T @ X) / problem.live.n
    theta = np.linalg.solve(X.T @ X + eta * np.eye(X.shape[1]), X.T @ (y - y.mean(axis=0)))
    tiles = np.array([interface.encode(observation[i]) for i in starts[:4]])
    predictions = problem.predict(tiles, RIDGE)
    np.testing.assert_allclose(
        predictions, X[[0, 20, 40, 60]] @ theta + y.mean(axis=0), rtol=1e-4, atol=1e-5
    )


def test_blocks_make_no_difference(
    life: tuple[TrainingData, Interface], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace continues from block to block."""
    training_data, interface = life
    tiles = np.array([interface.encode(training_data.stream.rows["observation"][9])])
    whole = (
        LifeRows(training_data, interface).lstd(0, np.array([0, 1]), 0.8, 0.9).predict(tiles, RIDGE)
    )
    monkeypatch.setattr(offline_rows, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(
        LifeRows(training_data, interface)
        .lstd(0, np.array([0, 1]), 0.8, 0.9)
        .predict(tiles, RIDGE),
        whole,
    )


def two_states(rng: np.random.Generator, n_excursions: int) -> tuple[TrainingData, Interface]:
    """A life in two states, of which each lasts for ever: a prediction is a number per state, plus noise.

    Channel 0 is the state (0 or 1); channel 1 pays .2 + .6 state plus noise uniform in [-.2, .2].
    """
    channels = tuple(ChannelInfo(name, "obs", "1", is_sensor=True) for name in ("state", "pay"))
    coder = TileCoder([{"group": "obs", "intervals": [2], "tilings": 1}], ["obs", "obs"])
    interface = Interface(channels, ("go",), 0.1, coder, Scaler(np.zeros(2), np.ones(2)))
    recorder = Recorder(2)
    step = 0
    for _ in range(n_excursions):
        state = float(rng.random() < 0.5)
        for phase, n in ((Phase.BEHAVE, 8), (Phase.EXCURSION, 50), (Phase.CENTRE, 1)):
            for k in range(n):
                observation = np.array(
                    [state, 0.2 + 0.6 * state + rng.uniform(-0.2, 0.2)], np.float32
                )
                if phase is Phase.BEHAVE and k == 0:
                    flags = Flag.GAP
                else:
                    flags = Flag.NONE
                action = 0
                if phase is Phase.CENTRE:
                    action = -1
                recorder.write(
                    Row(step, step * 0.1, observation, action, 1.0, phase, flags, (0.0, 0.0, 0.0))
                )
                step += 1
    return TrainingData(recorder.stream()), interface


def test_both_solutions_explain_what_can_be_explained() -> None:
    """Var[g] = .36 / 4 between the states and .4^2 / 12 within them (gamma 0): .129 of it is noise, the mean scores 1.

    At gamma .8 the states' returns are 5 times as far apart, and the noise is summed: .0133 / .36 =
    .037 of 2.25.
    """
    training_data, interface = two_states(np.random.default_rng(5), 400)
    gvfs = [GVF(f"go/g{g}/pay", ConstantAction(0, 1), Channel(1), g) for g in (0.0, 0.8)]
    scores = offline(training_data, gvfs, interface, np.random.default_rng(0))
    noise = np.array([0.0133 / (0.09 + 0.0133), 0.037 / (2.25 + 0.037)])
    np.testing.assert_allclose(scores.mean, 1.0, atol=0.15)
    np.testing.assert_allclose(scores.ridge, noise, rtol=0.35)
    np.testing.assert_allclose(scores.lstd, noise, rtol=0.35)
