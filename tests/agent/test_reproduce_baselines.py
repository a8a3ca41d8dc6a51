"""Baselines on streams, decision processes and bodies whose answers are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.reproduce import efficiency, lives
from examples.reproduce.baselines import (
    FIRST_KERNELS,
    LSTD,
    RIDGE_SAMPLES,
    KernelFeatures,
    KernelInputs,
    Rollouts,
    best_of,
    floor,
    kernel_lstd,
    lstd,
    offline_kernel_lstd,
    persistence,
)
from examples.reproduce.excursions import NMSRESummary
from examples.reproduce.lives import LifeSpec
from examples.reproduce.training_data import HORIZON, LEARN, TrainingData, outcomes
from horde_agent import questions
from horde_agent.gvf import GVF, Channel
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.policies import ConstantAction
from horde_agent.record import Flag, Phase, Recorder, Row, read
from horde_agent.saving import State, generator_state, restore_generator
from horde_agent.tiles import TileCoder
from horde_agent.types import Floats
from tests.agent.doubles import RestorablePaidBody, SpyHorde, ToyBody, live
from tests.agent.reproducing import record_life, toy_context

GAMMA = 0.8


def life_of_rows(rows: Iterable[Row]) -> TrainingData:
    """Return the life with these rows, one in each step."""
    rows = list(rows)
    recorder = Recorder(len(rows[0].observation))
    for step, row in enumerate(rows):
        recorder.write(row._replace(step=step))
    return TrainingData(recorder.stream())


def excursion(readings: np.ndarray) -> Iterator[Row]:
    """Yield the rows of an excursion by action 0, shape (HORIZON + 1, n_channels), and the end of the stream."""
    flags = Flag.GAP
    for observation in readings[:-1].astype(np.float32):
        yield Row(observation=observation, action=0, b=1.0, phase=Phase.EXCURSION, flags=flags)
        flags = Flag.NONE
    yield Row(observation=readings[-1].astype(np.float32), phase=Phase.END)


def questions_of(n_channels: int, *gammas: float) -> list[GVF]:
    return [
        GVF(f"go/g{gamma}/{channel}", ConstantAction(0, 1), Channel(channel), gamma)
        for gamma in gammas
        for channel in range(n_channels)
    ]


# ---- persistence -----------------------------------------------------------------------------------------------------


def test_persistence_is_right_about_what_is_constant() -> None:
    """A reading of .3 has the return .3 / (1 - gamma); of a reading that is 1, 0, 0, ... it says 1 / (1 - gamma)."""
    readings = np.zeros((3, HORIZON + 1, 2))
    readings[:, :, 0] = 0.3
    readings[:, 0, 1] = 1.0
    life = life_of_rows(row for of_excursion in readings for row in excursion(of_excursion))
    gvfs = questions_of(2, 0.0, GAMMA)
    predictions = persistence(life, gvfs)
    np.testing.assert_allclose(predictions, np.tile([0.3, 1.0, 1.5, 5.0], (3, 1)), rtol=1e-6)
    returns = outcomes(life, gvfs, predictions)[0].returns
    np.testing.assert_allclose(predictions[:, [0, 2]], returns[:, [0, 2]], rtol=2e-5)


# ---- LSTD ------------------------------------------------------------------------------------------------------------


def added(solver: LSTD, transitions: list[tuple[float, Any, Any, float, bool]]) -> LSTD:
    """Add transitions: rho, features of both states, cumulant, and whether the second one goes on."""
    for rho, z_t, z_tp1, cumulant, goes_on in transitions:
        solver.add(
            rho=np.array([rho]),
            z_t=np.array([z_t], dtype=np.float64),
            z_tp1=np.array([z_tp1], dtype=np.float64),
            cumulants=np.array([[cumulant]]),
            goes_on=np.array([goes_on]),
        )
    return solver


@pytest.mark.parametrize("is_episodic", [False, True])
def test_lstd_has_the_exact_values_of_a_decision_process(is_episodic: bool) -> None:
    """P = [[3/4, 1/4], [1/2, 1/2]], 1 is paid on reaching state 1: v = (I - gamma P)^-1 P (0, 1).

    At gamma .8 that is (1.5625, 1.875). Transitions come as often as P says, with rho 2. If 1 -> 0
    is terminal, it is (25/24, 5/6).
    """
    P = np.array([[0.75, 0.25], [0.5, 0.5]])
    goes_on = np.array([[1.0, 1.0], [1.0 - is_episodic, 1.0]])
    features = np.array([[1.0, 0.0], [1.0, 1.0]])
    transitions: list[tuple[float, Any, Any, float, bool]] = []
    for (state, reached), n in {(0, 0): 3, (0, 1): 1, (1, 0): 2, (1, 1): 2}.items():
        continues = bool(goes_on[state, reached])
        step = (2.0, features[state], features[reached], float(reached), continues)
        transitions += [step] * n
    solver = added(LSTD(2, 1), transitions)
    for gamma in (0.0, 0.5, GAMMA):
        expected = np.linalg.solve(np.eye(2) - gamma * P * goes_on, P @ [0.0, 1.0])
        values = features @ solver.weights(gamma, np.zeros(2))
        np.testing.assert_allclose(values[:, 0], expected, rtol=1e-12)


def test_lstd_weighs_states_by_their_visits_not_by_the_policy_s_actions() -> None:
    """Two states that look alike are visited equally often; one pays 1, where b(a) = .8, the other 0, where b(a) = .2.

    The mean is .5. Without rho it is .8.
    """
    one = (1.0,)
    paid = (1.0 / 0.8, one, one, 1.0, True)
    unpaid = (1.0 / 0.2, one, one, 0.0, True)
    solver = added(LSTD(1, 1), [paid] * 8 + [unpaid] * 2)
    np.testing.assert_allclose(solver.weights(0.0, np.zeros(1)), [[0.5]])


def test_lstd_reads_b_from_the_recording_and_is_solved_again() -> None:
    """At a reading of .5 the action is drawn with b = .8 and leads to 1, or with b = .2 and leads to 0, equally often.

    That is .5 on the average; .8 without b. From step 250 on it always leads to 1, and the latest
    solution before the test is that of 482 transitions: (250 x .5 + 232) / 482 = .741. Without b
    that would be .896, without another solution than the first .5.
    """
    rows = []
    for k in range(500):
        is_paid = k % 2 == 0
        b_of_0 = 0.2
        if is_paid:
            b_of_0 = 0.8
        action = 1
        b = 1.0 - b_of_0
        if k % 10 in (2, 4, 6, 8, 9):
            action = 0
            b = b_of_0
        present = np.array([0.5], np.float32)
        reached = np.array([is_paid or k >= 250], np.float32)
        rows.append(Row(observation=present, action=action, b=b, flags=Flag.GAP))
        rows.append(Row(observation=reached, phase=Phase.CENTRE))
    life = life_of_rows([*rows, *excursion(np.full((HORIZON + 1, 1), 0.5))])
    channels = (ChannelInfo("x", "obs", "1", is_sensor=True),)
    coder = TileCoder([{"group": "obs", "intervals": [2], "tilings": 1}], ["obs"])
    scaler = Scaler(np.zeros(1), np.ones(1))
    interface = Interface(channels, ("go", "stay"), 0.1, coder, scaler)
    gvfs = [GVF("go/x", ConstantAction(0, 2), Channel(0), 0.0)]
    np.testing.assert_allclose(lstd(life, gvfs, interface), [[0.741]], atol=0.002)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_ridge_of_samples_has_no_unit(unit: float) -> None:
    """With x = -1 or 1, ten times each, and c = 3 + x, a ridge of 10 samples leaves 20 / 30 of the slope."""
    transitions = [(1.0, (1.0, x * unit), (1.0, 0.0), 3.0 + x, True) for x in (-1.0, 1.0)]
    solver = added(LSTD(2, 1), transitions * 10)
    penalty = RIDGE_SAMPLES * solver.mean_squares * [0.0, 1.0]
    np.testing.assert_allclose(solver.weights(0.0, penalty)[:, 0], [3.0, 2.0 / 3.0 / unit])


@pytest.fixture(scope="module")
def toy_life() -> tuple[TrainingData, Interface]:
    """A toy life with frequent excursions: 0 of 3 channels is the action that led to a state, over 3."""
    recorder = Recorder(3)
    body = ToyBody()
    interface = Interface.of(body)
    often = ExcursionConfig(probability=1 / 25)
    horde = SpyHorde(questions.excursions(interface))
    live(6_000, body, horde, seed=3, excursions=often, recorder=recorder)
    return TrainingData(recorder.stream()), interface


def test_lstd_learns_on_the_way_what_an_action_leads_to(
    toy_life: tuple[TrainingData, Interface],
) -> None:
    """The third channel is 0, 1/3, 2/3 after the three actions, so its returns are that over 1 - gamma.

    Persistence, which holds until the first solution, has the last action's instead.
    """
    life, interface = toy_life
    gvfs = [q for q in questions.excursions(interface) if q.name.endswith("/last")]
    predictions = lstd(life, gvfs, interface)
    gammas = np.array([0.0, 0.5, GAMMA])
    returns = life.test_action[:, None] / 3 / (1.0 - gammas)
    n_learned = life.n_learned[life.test_row]
    is_late = n_learned > 1_000
    assert is_late.sum() > 5
    error = np.abs(predictions - returns) * (1.0 - gammas)
    assert error[is_late].max() < 0.01
    is_early = n_learned < 200
    assert is_early.sum() > 2
    np.testing.assert_array_equal(predictions[is_early], persistence(life, gvfs)[is_early])


def test_a_prediction_of_lstd_depends_on_nothing_after_it(
    toy_life: tuple[TrainingData, Interface],
) -> None:
    life, interface = toy_life
    gvfs = questions.excursions(interface)
    shorter = TrainingData(life.stream[:4_500])
    n_tests = len(shorter.test_row)
    assert 15 < n_tests < len(life.test_row)
    np.testing.assert_allclose(
        lstd(shorter, gvfs, interface), lstd(life, gvfs, interface)[:n_tests], rtol=1e-9
    )
    of_kernels = [
        kernel_lstd(each, gvfs, interface, np.random.default_rng(0)) for each in (shorter, life)
    ]
    np.testing.assert_allclose(of_kernels[0], of_kernels[1][:n_tests], rtol=1e-6)
    is_early = life.n_learned[life.test_row] < FIRST_KERNELS  # before the last centre
    lasting = persistence(life, gvfs)[is_early]
    np.testing.assert_array_equal(of_kernels[1][is_early], lasting)


# ---- LSTD on kernels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, GAMMA])
def test_kernel_features_give_the_direct_solution_with_the_kernel(gamma: float) -> None:
    """With each state left as a centre: v(x) = k(x, X) a + m, and without gamma kernel ridge regression.

    (R (K - gamma K') + eta I) a + (1 - gamma) m R 1 = R c and 1'a = 0, where K' has the kernels of the
    states reached and R is the diagonal matrix of rho.
    """
    rng = np.random.default_rng(0)
    x_t, x_tp1 = rng.normal(size=(2, 40, 3))
    x = rng.normal(size=(7, 3))
    rho = rng.uniform(0.5, 5.0, size=40)
    cumulants = rng.normal(size=(40, 2)) + 5.0
    width = 1.5
    ridge = 0.1

    def kernel(a: np.ndarray) -> np.ndarray:
        squares = ((a[:, None] - x_t) ** 2).sum(axis=2)
        return np.exp(-squares / (2 * 3 * width**2))

    system = np.zeros((41, 41))
    system[:40, :40] = rho[:, None] * (kernel(x_t) - gamma * kernel(x_tp1)) + ridge * np.eye(40)
    system[:40, 40] = (1 - gamma) * rho
    system[40, :40] = 1.0
    solution = np.linalg.solve(system, np.vstack([rho[:, None] * cumulants, np.zeros(2)]))
    expected = kernel(x) @ solution[:40] + solution[40]
    features = KernelFeatures(x_t, width)
    solver = LSTD(features.n, 2)
    solver.add(rho, features.at(x_t), features.at(x_tp1), cumulants, np.ones(40, dtype=np.bool_))
    penalty = np.full(features.n, ridge)
    penalty[0] = 0.0
    values = features.at(x) @ solver.weights(gamma, penalty)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_kernels_see_what_is_not_linear(toy_life: tuple[TrainingData, Interface]) -> None:
    """The next reading of the sawtooth 0, 1/7, ..., 6/7, 0 is no linear function of the present one.

    The best line leaves all of its variance. One wide kernel bends less than the best one.
    """
    life, interface = toy_life
    gvfs = [q for q in questions.excursions(interface, (0.0, GAMMA)) if q.name.endswith("/saw")]
    rng = np.random.default_rng(0)
    predictions = {
        "linear": lstd(life, gvfs, interface),
        "kernels": kernel_lstd(life, gvfs, interface, rng),
        "off-line": offline_kernel_lstd(life, gvfs, interface, rng),
    }
    is_solved = life.n_learned[life.test_row] >= FIRST_KERNELS
    assert is_solved.sum() > 10
    nmsre = {}
    for name, values in predictions.items():
        errors = []
        for action in range(3):
            chosen = life.test_action == action
            returns = life.returns(np.array([1, 1]), np.array([0.0, GAMMA]), life.test_row[chosen])
            late = is_solved[chosen]
            error = (values[chosen] - returns)[late] ** 2
            errors.append(error.mean(axis=0) / returns.var(axis=0))
        nmsre[name] = np.array(errors)
    assert nmsre["linear"].mean() > 1.0
    assert nmsre["kernels"].mean() < 0.5
    assert nmsre["off-line"].max() < 0.1


def test_an_action_that_led_to_a_state_keeps_states_apart(
    toy_life: tuple[TrainingData, Interface],
) -> None:
    """Readings are over their first deviations, at least .1; two actions are 3 sqrt(2) apart."""
    life, _ = toy_life
    rows = np.arange(1, 6)
    points = KernelInputs(life, 3, 300).at(rows)
    observation = life.stream.rows["observation"].astype(np.float64)
    deviation = observation[np.flatnonzero(life.does == LEARN)[:300]].std(axis=0)
    assert deviation[0] < 0.1 < deviation[1]
    deviation[0] = 0.1
    actions = np.eye(3)[life.stream.rows["action"][rows - 1]]
    np.testing.assert_allclose(points, np.hstack([observation[rows] / deviation, 3.0 * actions]))


def test_the_best_candidate_is_chosen_by_other_tests() -> None:
    """One candidate is wrong by 1 everywhere, the other right in one fifth of the tests and wrong by 1.2 elsewhere.

    Chosen by the fifth itself, the second one would be taken there, with an error of 0.
    """
    returns = np.random.default_rng(0).normal(size=(50, 1))
    is_first_fifth = (np.arange(50) % 5 == 0)[:, None]
    candidates = np.array([returns + 1.0, returns + np.where(is_first_fifth, 0.0, 1.2)])
    np.testing.assert_allclose(best_of(candidates, returns), returns + 1.0)
    candidates[1] = returns + np.where(is_first_fifth, 1.2, 0.5)
    np.testing.assert_allclose(best_of(candidates, returns), candidates[1])


# ---- the floor -------------------------------------------------------------------------------------------------------


class NoisyBody(RestorablePaidBody):
    """Its second channel is noise, uniform in [0, 1]."""

    def channel_values(self) -> np.ndarray:
        values = super().channel_values()
        values[1] = self.np_random.random()
        return values

    def save_state(self) -> State:
        """Return the noise to come, too."""
        return super().save_state() | {"rng": generator_state(self.np_random)["text"]}

    def restore_state(self, state: State) -> None:
        """Restore the noise, too."""
        super().restore_state(state)
        restore_generator(self.np_random, {"text": state["rng"]})


def floor_of(
    body: type[ToyBody], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray]:
    """Return the floor's predictions of a life's tests, at gamma 0 and .8, and their returns."""
    context = toy_context(folder, monkeypatch)
    monkeypatch.setattr(lives, "make_body", lambda *_, **__: body())
    life = TrainingData(read(record_life(context, 3, 3_000)))
    assert len(life.test_row) > 20
    gvfs = questions.excursions(Interface.of(body()), (0.0, GAMMA))
    predictions = floor(context, LifeSpec(3, 3_000), life, gvfs)
    policy_returns = {
        step: returns
        for test in outcomes(life, gvfs, predictions)
        for step, returns in zip(test.step.tolist(), test.returns, strict=True)
    }
    steps = life.stream.rows["step"][life.test_row].tolist()
    return predictions, np.array([policy_returns[step] for step in steps])


def test_the_floor_of_a_body_without_noise_is_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the sawtooth, which a state after the excursion, or after the drive before it, would shift."""
    predictions, returns = floor_of(RestorablePaidBody, tmp_path, monkeypatch)
    np.testing.assert_allclose(predictions, returns, rtol=1e-6)


class ExactBody(RestorablePaidBody):
    """It is at the centre already, so that a drive takes no step; it refuses to step without an action."""

    def __init__(self) -> None:
        super().__init__(drive_steps=0)

    def step(self, action: int) -> Any:
        assert action >= 0
        return super().step(action)


def test_an_excursion_that_begins_where_a_drive_ends_at_once_is_followed_again() -> None:
    """The row of the drive, without an action, and the first one of the excursion have the same step."""
    often = ExcursionConfig(probability=0.5)
    horde = SpyHorde(questions.excursions(Interface.of(ExactBody())))
    recorder = Recorder(3)
    live(600, ExactBody(), horde, seed=3, excursions=often, recorder=recorder)
    life = TrainingData(recorder.stream())
    step = life.stream.rows["step"]
    starts = step[life.test_row]
    assert (np.diff(step)[life.test_row - 1] == 0).any()
    rollouts = Rollouts(ExactBody(), starts, np.random.default_rng(0), n=1)
    live(600, ExactBody(), horde, seed=3, excursions=often, observers=[rollouts])
    for row in life.test_row.tolist():
        readings = life.stream.rows["observation"][row + 1 : row + 1 + HORIZON]
        np.testing.assert_array_equal(rollouts.readings[int(step[row])], readings)


def test_the_floor_has_other_noise_in_each_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means of 32 uniform numbers have a deviation of .29 / sqrt(32) = .051; one number, or the return itself, .29."""
    predictions, returns = floor_of(NoisyBody, tmp_path, monkeypatch)
    noise = predictions[:, 1]
    assert 0.03 < noise.std() < 0.08
    assert abs(noise.mean() - 0.5) < 0.05
    assert abs(np.corrcoef(noise, returns[:, 1])[0, 1]) < 0.6
    age = predictions[:, 0]
    np.testing.assert_allclose(age, returns[:, 0], rtol=1e-6)


def test_a_body_that_cannot_be_put_back_has_no_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions, _ = floor_of(ToyBody, tmp_path, monkeypatch)
    assert np.isnan(predictions).all()


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_errors_of_the_second_half_are_those_of_its_tests_by_gamma(
    toy_life: tuple[TrainingData, Interface],
) -> None:
    """Predictions that are wrong by a deviation of the returns score 1, and later ones at gamma .8 that are right 0.

    So do those of the third channel, whose returns do not vary. Over all tests the error at gamma .8
    would be about one half. A diverged demon does not count.
    """
    life, interface = toy_life
    gvfs = questions.excursions(interface)
    step = life.stream.rows["step"][life.test_row]
    predictions = np.zeros((len(step), 9))
    gammas = np.repeat([0.0, 0.5, GAMMA], 3)
    for action in range(3):
        of_action = life.test_action == action
        rows = life.test_row[of_action]
        returns = life.returns(np.tile([0, 1, 2], 3), gammas, rows)
        deviation = returns.std(axis=0)
        predictions[of_action] = returns + np.where(deviation > 1e-6, deviation, 1.0)
        is_right = (step[of_action] >= 3_000)[:, None] & (gammas == GAMMA)
        predictions[of_action] = np.where(is_right, returns, predictions[of_action])
    predictions[life.test_action == 0, 0] = 1e9
    sound = np.arange(27) != 0
    arrays = efficiency.VariantArrays(predictions, sound, 0.0)
    errors = efficiency.errors_of(arrays, life, gvfs, np.array([600, 6_000]))
    whole_life = errors.second_half[1].reshape(3, 3, 3)  # by action, gamma and channel
    assert np.isnan(whole_life[0, 0, 0])
    means = np.nanmean(whole_life, axis=(0, 2))
    np.testing.assert_allclose(means, [1.0, 1.0, 0.0], atol=1e-6)
    early = errors.second_half[0]  # none of the tests until step 600 is right
    is_tested = ~np.isnan(early)
    assert is_tested.any()
    np.testing.assert_allclose(early[is_tested], 1.0, atol=1e-6)


def test_an_error_is_lower_if_its_differences_are_beyond_their_interval() -> None:
    """The lives differ by more than the predictors do. Student's t of three lives is 4.303."""
    reference = np.array([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0], [9.0, 9.0, 9.0]])
    difference = np.array([[0.11, 0.10, -0.11], [0.13, 0.14, -0.13], [0.15, 0.18, -0.15]])
    is_lower = efficiency.is_lower(reference - difference, reference)
    # .13 over 4.303 .02 / 3^.5 = .050; .14 over 4.303 .04 / 3^.5 = .099
    assert is_lower.tolist() == [True, True, False]
    wider = difference * [
        [0.1],
        [1.0],
        [1.9],
    ]  # .138 and .150, of which the intervals are .34 and .41
    assert not efficiency.is_lower(reference - wider, reference).any()
    assert not efficiency.is_lower(reference[:1] - 1.0, reference[:1]).any()


def errors_with(second_half: Floats) -> efficiency.Errors:
    """Return the errors of a life in which those of the second half are `second_half`, (n_questions,)."""
    n_shares = len(efficiency.SHARES)
    return efficiency.Errors(
        median=np.ones(n_shares),
        mean=np.ones(n_shares),
        below_1=np.ones(n_shares),
        n_diverged=0,
        ms_per_update=1.0,
        second_half=np.tile(second_half, (n_shares, 1)),
    )


def test_rivals_are_compared_by_question_and_by_family_and_gamma() -> None:
    """The rival is better in one of the three lights at gamma 0, and in most of them at .5; never in heat."""
    default = np.array([0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2])
    rival = np.array([0.1, 0.4, 0.4, 0.1, 0.1, 0.4, np.nan])
    families = ["light"] * 6 + ["heat"]
    errors_of_seeds = {
        predictor: {seed: errors_with(errors + 0.01 * seed) for seed in range(2)}
        for predictor, errors in ((efficiency.ALL, default), (efficiency.PAPER, rival))
    }
    data = efficiency.EfficiencyResults(
        n_steps=np.array([1]),
        errors=errors_of_seeds,
        best_linear=NMSRESummary.of(default),
        family=np.array(families),
        gamma=np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.0]),
    )
    comparison = efficiency.compare(data, efficiency.PAPER, 1.0)
    assert comparison.n_better == 3
    assert comparison.n_worse == 3
    assert [str(family) for family in comparison.families] == ["light at 0.5: 0.305, 0.105"]
