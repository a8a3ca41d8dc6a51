"""LSTD on the readings: its kernels, its solutions, its shares, and the predictions that are mixed of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Channel,
    ConstantAction,
    Gibbs,
    Horde,
    LearnerConfig,
    Prediction,
    Reward,
    Uniform,
)
from horde_agent.kernels import lstd as kernels
from horde_agent.learning.lstd import LSTD, MOST_READINGS, are_asked
from horde_agent.learning.values import Cumulants
from tests.agent.hordes import BEHAVIOUR, N_ACTIVE, N, make
from tests.oracles.lstd import (
    BATCH,
    MOST_TRANSITIONS,
    N_MEASURED,
    N_QUEUED,
    N_TURNS,
    NEVER,
    SlowLSTD,
    Solution,
    Transition,
    latest_solution,
    turn_of,
)

N_ACTIONS = 2
N_RANDOM = 12
POLICIES: list[Any] = [ConstantAction(1, N_ACTIONS), BEHAVIOUR]
ACTIONS = [1, None]
"""Actions of the policies, as the slow twin has them."""
GAMMAS = (0.5, 0.8)
CUMULANTS: list[Any] = [Channel(0), Channel(2), Reward()]
COLUMNS = [0, 2, -1]
"""Columns of the cumulants, as the slow twin has them."""
IN_BOTH = pytest.mark.parametrize("mode", ["eager", "deferred"])


def questions() -> list[GVF]:
    """Return one question for each policy, continuation and cumulant, in this order."""
    asked_questions: list[GVF] = []
    for policy in POLICIES:
        for gamma in GAMMAS:
            for cumulant in CUMULANTS:
                asked_questions.append(
                    GVF(f"{len(asked_questions)}", policy, cumulant, gamma, lam=0.4)
                )
    return asked_questions


N_EACH = len(CUMULANTS)
"""Demons of each policy and continuation."""
ALL_SOLVED = 3_072
"""Steps until each policy and continuation is solved for: action 1 has its first 512 transitions by step 2,560."""


def first_step(gamma: float) -> int:
    """Return the step at which questions about the behaviour are solved for at first."""
    n_steps = N_MEASURED + N_QUEUED
    while n_steps // BATCH % N_TURNS != turn_of(None, gamma):
        n_steps += BATCH
    return n_steps


FIRST = first_step(0.5)


@pytest.fixture
def only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares depend on counts of transitions alone, and on no TD error."""
    monkeypatch.setattr("horde_agent.learning.lstd.FEWEST_SAMPLES", 10**9)


def horde_of(asked_questions: list[GVF], mode: Any = "eager", **settings: Any) -> Horde:
    """Return a Horde with LSTD."""
    return make(asked_questions, mode=mode, **{"lstd": N_RANDOM, "engine": "span", **settings})


def share_of(horde: Horde) -> np.ndarray:
    return horde.state()["lstd/share"]


def largest_share(n_made: int) -> float:
    """Return q after a solution of `n_made` transitions, without TD errors."""
    return 0.75 * n_made / (n_made + 1_000)


def solutions_after(transitions: list[Transition]) -> list[Solution]:
    """Return the latest solution for each of `questions` after these steps."""
    actions = [transition.action for transition in transitions]
    solutions: list[Solution] = []
    for action in ACTIONS:
        for gamma in GAMMAS:
            solutions += [latest_solution(actions, action, gamma)] * N_EACH
    return solutions


def largest_shares(transitions: list[Transition]) -> np.ndarray:
    """Return q of each of `questions` after these steps, without TD errors."""
    return np.array([solution.largest_share for solution in solutions_after(transitions)])


class Walk:
    """One random life for several Hordes: three readings that depend on the action, some of them missing.

    Tiles are drawn at each step.

    Args:
        hordes: The Hordes.
        p_end, p_gap, p_missing: Probability of a termination and of a gap after a step, and of each
            reading that it is missing.
        n_streams: Number of streams of experience that take turns of 10 steps.

    Attributes:
        transitions: Those that were learned from.
        state: The latest observation and tiles of the selected stream.
        states: Those of each stream that has begun.
        n_steps: Number of transitions.
        breaks: Numbers of the steps after which a stream ended or had a gap.
    """

    def __init__(
        self,
        *hordes: Any,
        p_end: float = 0.0,
        p_gap: float = 0.0,
        p_missing: float = 0.0,
        n_streams: int = 1,
        seed: int = 3,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.hordes = list(hordes)
        self._p_end = p_end
        self._p_gap = p_gap
        self._p_missing = p_missing
        self._n_streams = n_streams
        self._readings: dict[int, np.ndarray] = {}
        self.states: dict[int, Any] = {}
        self.transitions: list[Transition] = []
        self.n_steps = 0
        self.breaks: set[int] = set()
        self._follows = False
        self._begin(0)

    @property
    def state(self) -> Any:
        return self.states[self._stream]

    def _observe(self) -> Any:
        observation = self._readings[self._stream].copy()
        observation[self.rng.random(observation.size) < self._p_missing] = np.nan
        return observation, self.rng.choice(N, N_ACTIVE, replace=False)

    def _begin(self, stream: int) -> None:
        self._stream = stream
        level = 2.0 * stream
        self._readings[stream] = level + self.rng.normal(size=3)
        self.states[stream] = self._observe()
        self._follows = False
        for horde in self.hordes:
            horde.begin(*self.states[stream])

    def _step(self) -> None:
        action = int(self.rng.integers(N_ACTIONS))
        left = self._readings[self._stream]
        noise = self.rng.normal(size=3)
        reached = np.array(
            [
                (0.9 - 0.6 * action) * left[0] + 0.3 * noise[0],
                0.5 * left[1] + noise[1],
                np.sin(left[0] + action) + 0.1 * noise[2],
            ]
        )
        reward = float(left[1] > 0.0) + action
        if self.rng.random() < self._p_missing:
            reward = np.nan
        self._readings[self._stream] = reached
        observation = self.state[0]
        self.states[self._stream] = self._observe()
        is_last = bool(self.rng.random() < self._p_end)
        is_gap = bool(self.rng.random() < self._p_gap)
        transition = Transition(
            observation, action, self.state[0], reward, is_last, follows=self._follows
        )
        self.transitions.append(transition)
        self._follows = True
        for horde in self.hordes:
            horde.learn(action, 0.5, *self.state, terminated=is_last, reward=reward)
        self.n_steps += 1
        if is_last or is_gap:
            self.breaks.add(self.n_steps)
            self._begin(self._stream)

    def run(self, n_steps: int) -> None:
        for _ in range(n_steps):
            stream = self.n_steps // 10 % self._n_streams
            if stream != self._stream:
                for horde in self.hordes:
                    horde.select_stream(stream)
                if stream in self.states:
                    self._stream = stream
                    self._follows = False
                else:
                    self._begin(stream)
            self._step()

    def run_to(self, n_steps: int) -> None:
        self.run(n_steps - self.n_steps)

    def draw_state(self) -> Any:
        """Return a state that was never seen, with a reading far from all others."""
        observation = self.rng.normal(size=3)
        observation[self.rng.integers(3)] = 30.0
        return observation, self.rng.choice(N, N_ACTIVE, replace=False)


class Recorder:
    """Passes a Horde the states of a life, and keeps its TD errors and ratios after each step."""

    def __init__(self, horde: Horde) -> None:
        self._horde = horde
        self.td_errors: list[np.ndarray] = []
        self.rho: list[np.ndarray] = []

    def begin(self, observation: np.ndarray, tiles: np.ndarray) -> None:
        self._horde.begin(observation, tiles)

    def learn(self, *arguments: Any, **more: Any) -> None:
        self._horde.learn(*arguments, **more)
        self.td_errors.append(self._horde.td_error.copy())
        self.rho.append(self._horde.rho.copy())


def solved_at(horde: Horde, twin: Horde, state: Any) -> np.ndarray:
    """Return l at a state, from the predictions of a Horde and those of its twin without LSTD."""
    observation, tiles = state
    mixed = horde.predict(tiles, observation)
    without = twin.predict(tiles, observation)
    return np.asarray(without + (mixed - without) / share_of(horde))


def solved_by_hand(
    horde: Horde,
    life: Walk,
    observations: list[np.ndarray],
    most_transitions: int = MOST_TRANSITIONS,
) -> np.ndarray:
    """Return l of `questions` by their latest solutions at some states, shape (n_states, n_demons)."""
    state = horde.state()
    solutions = solutions_after(life.transitions)
    values: list[list[float]] = []
    for action in ACTIONS:
        for gamma in GAMMAS:
            n_summed = solutions[len(values)].n_summed
            slow = SlowLSTD(
                life.transitions[:n_summed],
                state["lstd/projection"],
                state["lstd/phase"],
                most_transitions,
            )
            for column in COLUMNS:
                w = slow.weights(action, gamma, column)
                values.append([slow.value(w, gamma, column, readings) for readings in observations])
    return np.array(values).T


def assert_solutions(horde: Horde, twin: Horde, life: Walk, states: list[Any]) -> None:
    """Assert that l of `questions` at some states are those of the slow twin's latest solutions."""
    expected = solved_by_hand(horde, life, [observation for observation, _ in states])
    solved_values = np.array([solved_at(horde, twin, state) for state in states])
    np.testing.assert_allclose(solved_values, expected, rtol=1e-4, atol=1e-4)


# ---- kernels --------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("n_rows", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("d", [1, 2, 5, 6])
def test_products_are_added_of_all_rows(n_rows: int, d: int) -> None:
    """Also to the last row of a matrix with an odd number of them."""
    rng = np.random.default_rng(0)
    left = rng.normal(size=(n_rows, d)).astype(np.float32)
    right = rng.normal(size=(n_rows, 3)).astype(np.float32)
    earlier_total = rng.normal(size=(d, 3))
    total = earlier_total.copy()
    kernels.add_products(left, right, np.full((2, 7), np.nan, dtype=np.float32), total)
    expected = earlier_total + left.T.astype(float) @ right
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-5)


def solved(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return X of A X = B by the kernel."""
    system = np.hstack([A, B])
    pivot_rows = np.full((kernels.N_PIVOTS, system.shape[1]), np.nan)
    rows = np.full((2, system.shape[1]), np.nan)
    solution = np.full(B.shape, np.nan)
    kernels.solve(system, pivot_rows, rows, solution)
    return solution


@pytest.mark.kernels
@pytest.mark.parametrize("d", [*range(1, 8), 31, 32, 33, 34, 64, 67, 97])
def test_equations_are_solved(d: int) -> None:
    """Also with a zero on the diagonal of each column, which takes an exchange of rows."""
    rng = np.random.default_rng(d)
    general = rng.normal(size=(d, d))
    exchanged = np.roll(np.diag(1.0 + np.arange(d)), 1, axis=0)
    tiny_pivot = general.copy()
    tiny_pivot[0, 0] = 1e-18
    for A in (general, exchanged, tiny_pivot):
        B = rng.normal(size=(d, 3))
        if A is tiny_pivot and d == 1:
            continue
        np.testing.assert_allclose(solved(A, B), np.linalg.solve(A, B), rtol=1e-8, atol=1e-9)


@pytest.mark.kernels
@pytest.mark.parametrize("missing", [0, 2, 31, 32, 36])
def test_a_feature_that_was_always_zero_has_no_weight(missing: int) -> None:
    """Its row and its column are 0; the other weights are those without it."""
    rng = np.random.default_rng(1)
    other_places = np.delete(np.arange(37), missing)
    A = rng.normal(size=(37, 37))
    B = rng.normal(size=(37, 2))
    A[missing] = 0.0
    A[:, missing] = 0.0
    B[missing] = 0.0
    solution = solved(A, B)
    np.testing.assert_array_equal(solution[missing], [0.0, 0.0])
    expected = np.linalg.solve(A[np.ix_(other_places, other_places)], B[other_places])
    np.testing.assert_allclose(solution[other_places], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.kernels
def test_a_trace_is_cut_by_another_action_and_by_a_gap() -> None:
    """e_t = z_t + .5 e_{t-1}: 3 + .5 10, then 5 + .5 8; a gap before 7, another action instead of 9."""
    z = np.array([[3.0], [5.0], [7.0], [9.0], [11.0], [13.0]], dtype=np.float32)
    by_policy = np.array([True, True, True, False, True, True])
    follows = np.array([True, True, False, True, True, True])
    trace = np.array([10.0])
    out = np.full((5, 1), np.nan, dtype=np.float32)
    kernels.write_traces(z, by_policy, follows, 0.5, trace, out)
    assert out[:, 0].tolist() == [8.0, 9.0, 7.0, 11.0, 18.5]
    assert trace.tolist() == [18.5]
    kernels.write_traces(z[:1], np.array([False]), follows[:1], 0.5, trace, out[:1])
    assert trace.tolist() == [0.0]


def arrays_of(n: int, d: int, n_demons: int, **other_places: Any) -> kernels.LSTDArrays:
    """Return arrays of n readings, d features and some demons, all NaN or 0 unless given."""
    n_random = d - 1 - n
    arrays: dict[str, Any] = {
        "centre": np.zeros(n + 1),
        "unit": np.ones(n + 1),
        "projection": np.zeros((n, n_random), dtype=np.float32),
        "phase": np.zeros(n_random, dtype=np.float32),
        "weights": np.zeros((d, n_demons), dtype=np.float32),
        "least": np.full(n_demons, -np.inf),
        "most": np.full(n_demons, np.inf),
        "share": np.ones(n_demons),
        "features": np.full(d, np.nan, dtype=np.float32),
        "single": np.full(n_demons, np.nan, dtype=np.float32),
    }
    return kernels.LSTDArrays(**{**arrays, **other_places})


@pytest.mark.kernels
def test_features_are_one_the_readings_in_units_and_waves() -> None:
    """A missing reading counts as the centre, none is further from it than 10 units, columns behind do not count."""
    rng = np.random.default_rng(2)
    projection = rng.normal(size=(3, 5)).astype(np.float32)
    phase = rng.uniform(0.0, 6.0, 5).astype(np.float32)
    arrays = arrays_of(
        n=3,
        d=9,
        n_demons=1,
        centre=np.array([1.0, 0.0, -2.0, 55.0]),
        unit=np.array([2.0, 1.0, 0.5, 55.0]),
        projection=projection,
        phase=phase,
    )
    readings = np.array(
        [
            [3.0, 0.5, -2.5, 77.0],
            [np.nan, 0.5, np.nan, 77.0],
            [1e9, -1e9, -2.0, 77.0],
        ]
    )
    out = np.full((3, 9), np.nan, dtype=np.float32)
    kernels.write_features(arrays, readings, out)
    u = np.array([[1.0, 0.5, -1.0], [0.0, 0.5, 0.0], [10.0, -10.0, 0.0]])
    np.testing.assert_array_equal(out[:, 0], np.ones(3))
    np.testing.assert_array_equal(out[:, 1:4], u)
    waves = np.sqrt(2.0) * np.cos(u @ projection + phase)
    np.testing.assert_allclose(out[:, 4:], waves, rtol=0, atol=1e-5)


@pytest.mark.kernels
def test_predictions_move_by_their_shares_toward_the_products_within_their_bounds() -> None:
    rng = np.random.default_rng(3)
    weights: Any = rng.normal(size=(6, 6)).astype(np.float32)
    arrays = arrays_of(n=2, d=6, n_demons=6, weights=weights)
    arrays.projection[:] = rng.normal(size=(2, 3))
    arrays.phase[:] = rng.uniform(0.0, 6.0, 3)
    u = np.array([0.5, -1.5])
    waves = np.sqrt(2.0) * np.cos(u @ arrays.projection + arrays.phase)
    products = np.concatenate([[1.0], u, waves]) @ weights
    arrays.least[1] = products[1] + 1.0
    arrays.most[2] = products[2] - 1.0
    arrays.least[3] = 0.0
    arrays.most[3] = 0.0
    arrays.share[4] = 0.0
    arrays.share[5] = 0.25
    own_predictions = np.arange(6.0)
    kernels.mix(arrays, u, own_predictions)
    assert own_predictions[0] == pytest.approx(products[0], abs=1e-5)
    np.testing.assert_allclose(
        own_predictions[1:4], [arrays.least[1], arrays.most[2], 0.0], rtol=1e-14
    )
    assert own_predictions[4] == 4.0
    assert own_predictions[5] == pytest.approx(5.0 + 0.25 * (products[5] - 5.0), abs=1e-5)


# ---- solutions ------------------------------------------------------------------------------------------------------


def lstd_of(asked_questions: list[GVF], n_random: int = N_RANDOM) -> LSTD:
    return LSTD(asked_questions, Cumulants(asked_questions, N), n_random)


def learn_alone(
    lstd: LSTD,
    first: np.ndarray,
    step: Callable[[np.ndarray], tuple[int, np.ndarray, float, bool]],
    n_steps: int,
) -> None:
    """Teach an LSTD without a Horde: `step` returns action, readings, reward, and whether that was the end.

    Each stream begins with the readings `first`.
    """
    readings = first
    lstd.join(readings)
    for _ in range(n_steps):
        action, readings, reward, terminated = step(readings)
        lstd.note(readings, action, reward, terminated=terminated)
        if lstd.is_due:
            lstd.add()
        if terminated:
            readings = first
            lstd.join(readings)


@IN_BOTH
@pytest.mark.parametrize("n_steps", [ALL_SOLVED, 4_300])
@pytest.mark.usefixtures("only_counts")
def test_solutions_are_those_of_the_slow_twin(mode: Any, n_steps: int) -> None:
    """With terminations, gaps and missing readings; at states that were never seen, some of them beyond the bounds.

    Each policy and continuation is solved for in its own batches.
    """
    horde = horde_of(questions(), mode)
    twin = horde_of(questions(), mode, lstd=0)
    life = Walk(horde, twin, p_end=0.03, p_gap=0.03, p_missing=0.05)
    life.run_to(n_steps)
    solutions = solutions_after(life.transitions)
    assert NEVER not in solutions
    assert len(set(solutions)) == len(ACTIONS) * len(GAMMAS)
    states = [life.draw_state() for _ in range(8)]
    states[0][0][1] = np.nan
    assert_solutions(horde, twin, life, states)


@pytest.mark.usefixtures("only_counts")
def test_sums_that_are_full_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of each policy by its own transitions, here from 200 on; shares count all transitions."""
    monkeypatch.setattr("horde_agent.learning.lstd.MOST_TRANSITIONS", 200)
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin, p_end=0.03, p_missing=0.05)
    life.run_to(4_300)
    observation, tiles = life.draw_state()
    solved_values = solved_at(horde, twin, (observation, tiles))
    expected = solved_by_hand(horde, life, [observation], most_transitions=200)[0]
    with_all = solved_by_hand(horde, life, [observation])[0]
    np.testing.assert_allclose(solved_values, expected, rtol=1e-4, atol=5e-4)
    assert (np.abs(solved_values - with_all) > 1e-3).sum() > horde.n_demons / 2
    np.testing.assert_allclose(share_of(horde), largest_shares(life.transitions), rtol=1e-12)


def test_sums_reach_back_2_to_the_18_transitions() -> None:
    """2^18 rewards of 0, then rewards of 1: a mean of n / (n + 2^17) after n of those, not of n / (n + 2^18)."""
    lstd = lstd_of([GVF("paid", BEHAVIOUR, Reward(), 0.0)], n_random=1)
    readings = np.zeros(1)
    lstd.join(readings)
    n_steps = N_MEASURED
    for _ in range(N_MEASURED // BATCH):
        for reward in [0.0, 1.0] * (BATCH // 2):
            lstd.note(readings, 0, reward, terminated=False)
        lstd.add()
    solved_at = 0
    n_ones = 0
    while n_ones < 1 << 16 or lstd.solved_at[0] == solved_at:
        solved_at = lstd.solved_at[0]
        is_one = n_steps - N_MEASURED >= 1 << 18
        for _ in range(BATCH):
            lstd.note(readings, 0, float(is_one), terminated=False)
        lstd.add()
        n_steps += BATCH
        n_summed = n_steps // N_QUEUED * N_QUEUED
        n_ones = n_summed - N_MEASURED - (1 << 18)
    assert n_ones < 1 << 17
    mean = n_ones / (n_ones + (1 << 17))
    assert lstd.values(readings)[0] == pytest.approx(mean, rel=1e-3)


@pytest.mark.usefixtures("only_counts")
def test_transitions_of_two_streams_do_not_mix() -> None:
    """They take turns of 10 steps at different levels of the readings: each transition begins in its own stream."""
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin, p_end=0.03, n_streams=2)
    life.run_to(ALL_SOLVED)
    assert_solutions(horde, twin, life, [life.draw_state() for _ in range(4)])
    # Back in the other stream, predictions are those at its state
    other_stream = 1 - horde.stream
    horde.select_stream(other_stream)
    observation, tiles = life.states[other_stream]
    np.testing.assert_allclose(horde.predictions, horde.predict(tiles, observation), rtol=1e-12)


def test_waves_approximate_a_gaussian_kernel_five_fourths_of_sqrt_n_units_wide() -> None:
    """z.z' / n_random = exp(-|u - v|^2 / (2 (1.25 sqrt(n))^2)) for n readings, before they are weighed."""
    lstd = lstd_of([GVF("light", BEHAVIOUR, Channel(0), 0.5)], n_random=20_000)
    u = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [2.0, 2.0, -2.0], [-2.0, -1.0, 2.0]])
    lstd.join(u[0])
    waves = lstd.features(u)[:, 4:]
    distances = ((u[:, None] - u[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(
        waves @ waves.T / 20_000, np.exp(-distances / 9.375), rtol=0, atol=0.03
    )


def test_a_reading_counts_in_the_waves_as_far_as_it_lasts() -> None:
    """A walk x' = .8 x + noise, noise, two that never change, and -x: .8, 0, 1, 1, 0, over their root mean square."""
    lstd = lstd_of([GVF("light", BEHAVIOUR, Channel(0), 0.5)])
    rng = np.random.default_rng(4)
    readings = np.array([0.0, 0.0, 0.3, 0.0, 1.0])
    lstd.join(readings)
    unweighted = lstd.projection.copy()
    for _ in range(N_MEASURED):
        x = 0.8 * readings[0] + rng.normal()
        readings = np.array([x, rng.normal(), 0.3, 0.0, -readings[4]])
        lstd.note(readings, 0, np.nan, terminated=False)
        if lstd.is_due:
            lstd.add()
    weight = (lstd.projection / unweighted)[:, 0]
    expected = np.array([0.8, 0.0, 1.0, 1.0, 0.0]) / np.sqrt((0.8**2 + 2.0) / 5.0)
    np.testing.assert_allclose(weight, expected, rtol=0, atol=0.15)
    np.testing.assert_allclose(lstd.projection, weight[:, None] * unweighted, rtol=1e-5)
    # A tenth is the least unit
    np.testing.assert_allclose(lstd.unit[2:5], [0.1, 0.1, 1.0], rtol=1e-5)


def test_a_policy_is_answered_from_the_transitions_by_its_action() -> None:
    """Action 1 halves the first reading and action 0 draws it from a mean of 0.

    v(x) = .5 x / (1 - .5 gamma) for action 1, .25 x / (1 - .25 gamma) for the behaviour, and 0 for action 0.
    """
    gammas = [0.0, 0.8]
    asked_questions: list[GVF] = []
    for gamma in gammas:
        for policy in (ConstantAction(0, 2), ConstantAction(1, 2), BEHAVIOUR):
            asked_questions.append(GVF(f"{len(asked_questions)}", policy, Channel(0), gamma))
    rng = np.random.default_rng(0)

    def step(readings: np.ndarray) -> tuple[int, np.ndarray, float, bool]:
        action = int(rng.integers(2))
        x = 0.5 * readings[0]
        if action == 0:
            x = rng.uniform(-1.0, 1.0)
        return action, np.array([x, rng.normal(), 7.0]), np.nan, False

    lstd = lstd_of(asked_questions)
    learn_alone(lstd, np.array([1.0, 0.0, 7.0]), step, 3_264)
    expected = []
    for gamma in gammas:
        expected += [0.0, 0.5 / (1.0 - 0.5 * gamma), 0.25 / (1.0 - 0.25 * gamma)]
    at_half = lstd.values(np.array([0.5, 0.0, 7.0]))
    at_minus_half = lstd.values(np.array([-0.5, 0.0, 7.0]))
    np.testing.assert_allclose(at_half - at_minus_half, expected, rtol=0, atol=0.1)


def test_nothing_follows_a_termination() -> None:
    """Three places in turn, shown by a reading each, then the end, which pays 2: v = 2 gamma^2, 2 gamma, 2.

    If the next episode followed, the first place would have 2 gamma^2 / (1 - gamma^3) = 5.98 with gamma .9.
    """
    asked_questions = [
        GVF("paid", BEHAVIOUR, Reward(), 0.9),
        GVF("light", BEHAVIOUR, Channel(2), 0.9),
    ]
    places = np.eye(3)

    def step(readings: np.ndarray) -> tuple[int, np.ndarray, float, bool]:
        place = int(readings.argmax())
        is_last = place == 2
        return 0, places[(place + 1) % 3], 2.0 * is_last, is_last

    lstd = lstd_of(asked_questions)
    learn_alone(lstd, places[0], step, 2_944)
    values = np.array([lstd.values(place) for place in places])
    np.testing.assert_allclose(values[:, 0], [2.0 * 0.81, 2.0 * 0.9, 2.0], rtol=0.05)
    # The last light is the third place's
    np.testing.assert_allclose(values[:, 1], [0.9, 1.0, 0.0], rtol=0, atol=0.05)


def test_a_return_of_one_step_is_within_the_bounds() -> None:
    """Each episode pays 1 and ends at once: v = 1, and not the 10 of a life in which 1 is the least reward."""
    rng = np.random.default_rng(0)

    def step(_: np.ndarray) -> tuple[int, np.ndarray, float, bool]:
        return 0, rng.normal(size=3), 1.0, True

    lstd = lstd_of([GVF("paid", BEHAVIOUR, Reward(), 0.9)])
    learn_alone(lstd, rng.normal(size=3), step, N_MEASURED + 2 * N_QUEUED)
    assert lstd.values(rng.normal(size=3))[0] == pytest.approx(1.0, abs=0.2)


# ---- shares ---------------------------------------------------------------------------------------------------------


@IN_BOTH
@pytest.mark.usefixtures("only_counts")
def test_predictions_are_those_of_the_weights_until_the_first_solution(mode: Any) -> None:
    """Then each policy and continuation has its turn in one of eight batches, and its own transitions."""
    horde = horde_of(questions(), mode)
    twin = horde_of(questions(), mode, lstd=0)
    life = Walk(horde, twin)
    life.run_to(N_MEASURED + BATCH - 1)
    assert not share_of(horde).any()
    np.testing.assert_array_equal(horde.predictions, twin.predictions)
    solutions = set()
    for n_steps in range(N_MEASURED + BATCH, 3_800, BATCH):
        life.run_to(n_steps)
        expected = largest_shares(life.transitions)
        solutions |= set(solutions_after(life.transitions))
        np.testing.assert_allclose(share_of(horde), expected, rtol=1e-12)
        is_mixed = horde.predictions != twin.predictions
        np.testing.assert_array_equal(is_mixed, expected > 0.0)
    assert is_mixed.all()
    # Of the five turns of the behaviour and gamma .8, the fourth has not half as many transitions more
    assert {solution.n_made for solution in solutions if solution.n_steps % 512 == 64} == {
        512,
        1_024,
        1_536,
        2_560,
    }


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_td_errors_are_compared_at_the_end_of_a_stream_and_each_64th_step(mode: Any) -> None:
    """The last step before a gap or a termination, and the 64th since the latest such step."""
    horde = horde_of(questions(), mode)
    twin = Recorder(horde_of(questions(), lstd=0))
    life = Walk(horde, twin, p_end=0.01, p_gap=0.01)
    life.run_to(3_800)
    n_since = 0
    n_samples = np.zeros(horde.n_demons)
    squares = np.zeros(horde.n_demons)
    for t in range(1, life.n_steps + 1):
        n_since += 1
        if t not in life.breaks and n_since < BATCH:
            continue
        n_since = 0
        is_solved = np.array(
            [solution != NEVER for solution in solutions_after(life.transitions[: t - 1])]
        )
        learned = is_solved & (twin.rho[t - 1] > 0.0)
        n_samples += learned
        squares += np.where(learned, twin.td_errors[t - 1] ** 2, 0.0)
    assert n_samples.min() > 5
    state = horde.state()
    np.testing.assert_array_equal(state["lstd/n_samples"], n_samples)
    np.testing.assert_allclose(state["lstd/errors"][0], squares, rtol=1e-9)


def test_a_question_that_only_the_weights_answer_keeps_to_them() -> None:
    """The reward depends on the place, which the tiles show and the readings do not: TD errors of the weights vanish.

    The other question is about a reading that shrinks slowly, of which the tiles show nothing.
    """
    asked_questions = [
        GVF("reward", BEHAVIOUR, Reward(), 0.5),
        GVF("reading", BEHAVIOUR, Channel(0), 0.5),
    ]
    horde = horde_of(asked_questions, step_size=0.3)
    twin = horde_of(asked_questions, step_size=0.3, lstd=0)
    rng = np.random.default_rng(0)
    x = 0.0
    rewards = [0.0, 1.0, 4.0]

    def state_at(place: int) -> Any:
        return np.array([x, rng.normal(), rng.normal()]), place * N_ACTIVE + np.arange(N_ACTIVE)

    for one in (horde, twin):
        one.begin(np.zeros(3), np.arange(N_ACTIVE))
    for t in range(1, FIRST + 12 * BATCH):
        x = 0.95 * x + rng.normal()
        state = state_at(t % 3)
        for one in (horde, twin):
            one.learn(0, 1.0, *state, reward=rewards[t % 3])
        if t == FIRST + 7 * BATCH:
            n_made = N_QUEUED
            np.testing.assert_allclose(share_of(horde), largest_share(n_made), rtol=1e-12)
    of_reward, of_reading = share_of(horde)
    assert of_reward == 0.0
    n_made = 2 * N_QUEUED
    assert of_reading == pytest.approx(largest_share(n_made), rel=1e-12)
    assert horde.predictions[0] == twin.predictions[0]
    assert horde.predictions[1] != twin.predictions[1]


def test_a_share_is_that_of_both_td_errors() -> None:
    """Those of l are c + gamma l(s') - l(s) in the latest transition; those of the weights are given.

    From the eighth on, trust is 2 less the ratio of their squares, which are halved at each 256th. The second
    demon learns in no transition, and the third has no finite TD error.
    """
    rng = np.random.default_rng(1)
    gamma = 0.8
    asked_questions = [GVF(f"{k}", BEHAVIOUR, Channel(0), gamma) for k in range(3)]
    lstd = lstd_of(asked_questions)
    current = np.zeros(3)
    lstd.join(current)
    square_of_solved = 0.0
    square_of_weights = 0.0
    n_samples = 0
    n_halved = 0
    trusts = []
    for t in range(1, 4_096 + 1):
        readings = 0.5 * current + rng.normal(size=3)
        is_last = t % 9 == 0
        lstd.note(readings, 0, np.nan, terminated=is_last)
        # A gap is known after the transition was added, a termination before
        is_gap = not is_last and t % 128 == 0
        if is_gap:
            lstd.add()
        latest = latest_solution([0] * t, None, gamma)
        if not is_gap:
            latest = latest_solution([0] * (t - 1), None, gamma)
        if t % 3 == 0 or is_gap:
            td_error = np.array([1.2 + 0.1 * rng.normal(), 1.0, np.nan])
            ahead = gamma * lstd.values(readings)[0] * (not is_last)
            delta = readings[0] + ahead - lstd.values(current)[0]
            lstd.compare(td_error, np.array([True, False, True]))
            if latest != NEVER:
                square_of_solved += delta**2
                square_of_weights += td_error[0] ** 2
                n_samples += 1
        if n_samples == 256:
            n_samples = 128
            square_of_solved /= 2.0
            square_of_weights /= 2.0
            n_halved += 1
        if lstd.is_due and not is_gap:
            lstd.add()
        # TD errors before a gap at the end of a batch are in the shares of the next one
        if t % 64 == 0 and not is_gap:
            trust = 1.0
            if n_samples >= 8:
                trust = np.clip(2.0 - square_of_solved / square_of_weights, 0.0, 1.0)
            solution = latest_solution([0] * t, None, gamma)
            expected = solution.largest_share * np.array([trust, 1.0, 1.0])
            np.testing.assert_allclose(lstd.share, expected, rtol=1e-10)
            trusts.append(trust)
        current = readings
    assert n_halved >= 2
    assert len(set(trusts)) > 5
    assert 0.0 < trusts[-1] < 1.0


def test_a_life_of_noise_trusts_both_alike() -> None:
    """If neither predicts anything, TD errors are alike, and the share stays near its largest value."""
    asked_questions = [GVF("noise", BEHAVIOUR, Channel(0), 0.0)]
    horde = horde_of(asked_questions, step_size=0.01)
    rng = np.random.default_rng(0)
    horde.begin(rng.normal(size=3), np.arange(N_ACTIVE))
    n_steps = 2_560
    for _ in range(n_steps):
        horde.learn(0, 1.0, rng.normal(size=3), np.arange(N_ACTIVE))
    largest = latest_solution([0] * n_steps, None, 0.0).largest_share
    assert 0.8 * largest < share_of(horde)[0] <= largest


# ---- predictions ----------------------------------------------------------------------------------------------------


@IN_BOTH
@pytest.mark.usefixtures("only_counts")
def test_a_prediction_is_the_same_wherever_it_is_read(mode: Any) -> None:
    """From `learn`, `begin`, `predictions` and `predict`, and as the cumulant of another question."""
    about = GVF("about", BEHAVIOUR, Prediction("0"), 0.0, lam=0.4)
    horde = horde_of([*questions(), about], mode)
    twin = horde_of([*questions(), about], mode, lstd=0)
    life = Walk(horde, twin, p_end=0.02)
    life.run_to(ALL_SOLVED + 13)
    observation, tiles = life.state
    mixed = horde.predict(tiles, observation)
    without = twin.predict(tiles, observation)
    share = share_of(horde)
    assert share[-1] == 0.0
    assert share[:-1].all()
    solved = solved_by_hand(horde, life, [observation])[0]
    expected = without[:-1] + share[:-1] * (solved - without[:-1])
    np.testing.assert_allclose(mixed[:-1], expected, rtol=0, atol=1e-5)
    assert np.abs(mixed - without)[0] > 1e-3
    np.testing.assert_allclose(horde.predictions, mixed, rtol=0, atol=1e-12)
    returned = horde.learn(0, 0.5, observation, tiles)
    assert horde.signals.c_tp1[-1] == pytest.approx(mixed[0], abs=1e-12)
    if mode == "eager":
        np.testing.assert_array_equal(returned, horde.predictions)
    np.testing.assert_array_equal(horde.begin(observation, tiles), horde.predictions)


def test_predictions_of_both_modes_agree_to_rounding() -> None:
    """At every 64th step, also in `learn`, and shares do so as well."""
    eager = horde_of(questions())
    deferred = horde_of(questions(), "deferred")
    life = Walk(eager, deferred, p_end=0.02, p_missing=0.02)
    for n_steps in range(BATCH, 2_400, BATCH):
        life.run_to(n_steps)
        np.testing.assert_allclose(deferred.predictions, eager.predictions, rtol=1e-9, atol=1e-11)
    assert share_of(eager).any()
    np.testing.assert_allclose(share_of(deferred), share_of(eager), rtol=1e-9)


def test_deferred_predictions_have_the_readings_of_the_step_that_they_are_of() -> None:
    """64 steps are processed at a time; in between, `learn` returns those of the last processed step."""
    eager = horde_of(questions())
    deferred = horde_of(questions(), "deferred")
    life = Walk(eager, deferred)
    life.run_to(ALL_SOLVED)
    of_last_batch = eager.predictions
    for _ in range(3):
        observation = life.rng.normal(size=3)
        tiles = life.rng.choice(N, N_ACTIVE, replace=False)
        latest_predictions = eager.learn(0, 0.5, observation, tiles, reward=0.0)
        returned = deferred.learn(0, 0.5, observation, tiles, reward=0.0)
        np.testing.assert_allclose(returned, of_last_batch, rtol=1e-9, atol=1e-11)
    assert np.abs(latest_predictions - of_last_batch).min() > 1e-4
    np.testing.assert_allclose(deferred.predictions, latest_predictions, rtol=1e-9, atol=1e-11)


def test_weights_learn_the_same_bits_with_and_without() -> None:
    """Also if predictions are read in the middle of a batch."""
    hordes = [horde_of(questions(), lstd=n) for n in (N_RANDOM, 5, 0)]
    life = Walk(*hordes, p_end=0.02, p_missing=0.02)
    for n_steps in (500, ALL_SOLVED + 1, 1_831):
        life.run_to(n_steps)
        for horde in hordes:
            horde.predictions  # noqa: B018  which processes what is queued
    assert share_of(hordes[0]).any()
    assert hordes[0].weights_sha256() == hordes[1].weights_sha256() == hordes[2].weights_sha256()
    np.testing.assert_array_equal(hordes[0].td_error, hordes[2].td_error)


def test_deferred_weights_learn_the_same_with_and_without() -> None:
    """The same bits if batches of both begin together; after a termination they change by rounding."""
    for p_end, is_exact in ((0.0, True), (0.02, False)):
        hordes = [horde_of(questions(), "deferred", lstd=n) for n in (N_RANDOM, 0)]
        Walk(*hordes, p_end=p_end).run(1_831)
        assert share_of(hordes[0]).any()
        if is_exact:
            assert hordes[0].weights_sha256() == hordes[1].weights_sha256()
        theta, twin_theta = (horde.weights()[0] for horde in hordes)
        np.testing.assert_allclose(theta, twin_theta, rtol=1e-9, atol=1e-12)


def subsets_of_questions() -> list[list[int]]:
    """Return subsets of `questions`: of one pair, of some, of one policy, in another order, and random ones."""
    subsets = [[3, 7], [0], [11], [0, 4, 5, 7, 9], [10, 2], list(range(6, 12))]
    subsets.append(list(range(12))[::-1])
    rng = np.random.default_rng(6)
    random_ones = [rng.choice(12, n, replace=False).tolist() for n in (1, 2, 3, 5, 8, 11)]
    return subsets + random_ones


def test_solutions_and_shares_do_not_depend_on_the_other_questions() -> None:
    """With the same TD errors of the weights, those of any of the questions have the same bits."""
    asked_questions = questions()
    subsets = [list(range(12)), *subsets_of_questions()]
    lstds = [lstd_of([asked_questions[i] for i in chosen]) for chosen in subsets]
    rng = np.random.default_rng(7)
    current = np.zeros(3)
    for lstd in lstds:
        lstd.join(current)
    for t in range(1, 3_264):
        readings = np.array([0.5, 0.8, -0.4]) * current + rng.normal(size=3)
        action = int(rng.integers(N_ACTIONS))
        td_error = 1.5 * rng.normal(size=12)
        learned = rng.random(12) < 0.8
        own_predictions = rng.normal(size=12)
        whole_mixed = own_predictions.copy()
        for lstd, chosen in zip(lstds, subsets, strict=True):
            lstd.note(readings, action, 1.5 * readings[0], terminated=t % 11 == 0)
            if t % 11 == 0:
                lstd.compare(td_error[chosen], learned[chosen])
            if lstd.is_due:
                lstd.add()
        current = readings
        if t % BATCH:
            continue
        whole = lstds[0]
        whole.mix_here(whole_mixed)
        for lstd, chosen in zip(lstds, subsets, strict=True):
            np.testing.assert_array_equal(lstd.share, whole.share[chosen])
            np.testing.assert_array_equal(lstd.values(current), whole.values(current)[chosen])
            mixed = own_predictions[chosen]
            lstd.mix_here(mixed)
            np.testing.assert_array_equal(mixed, whole_mixed[chosen])
    assert (whole.solved_at > 0).all()
    assert whole.share.any()
    largest = largest_share(int(whole.solved_at.max()))
    # TD errors about the reward are the larger ones, so that its shares depend on them
    assert 0.0 < whole.share[11] < 0.9 * largest


@pytest.mark.parametrize(
    ("engine", "mode", "dtype"),
    [("span", "eager", "float64"), ("span", "deferred", "float32"), ("plain", "eager", "float64")],
)
def test_a_horde_of_some_questions_predicts_as_the_whole(
    engine: Any, mode: Any, dtype: Any
) -> None:
    """The same bits, or as much as its weights without LSTD agree, which groups of lanes may round in another way."""
    asked_questions = questions()
    subsets = subsets_of_questions()
    settings = {"engine": engine, "dtype": dtype}
    whole = horde_of(asked_questions, mode, **settings)
    twin = horde_of(asked_questions, mode, **settings, lstd=0)
    parts = [horde_of([asked_questions[i] for i in chosen], mode, **settings) for chosen in subsets]
    twins = [
        horde_of([asked_questions[i] for i in chosen], mode, **settings, lstd=0)
        for chosen in subsets
    ]
    life = Walk(whole, twin, *parts, *twins, p_end=0.02, p_missing=0.02)
    for n_steps in (1_700, 3_200):
        life.run_to(n_steps)
        state = life.draw_state()
        elsewhere = whole.predict(state[1], state[0])
        n_alike = 0
        for part, part_twin, chosen in zip(parts, twins, subsets, strict=True):
            same_weights = part_twin.weights()[0] == twin.weights()[0][chosen]
            is_alike = same_weights.all(axis=1)
            n_alike += is_alike.sum()
            for solved_values, expected in (
                (share_of(part), share_of(whole)),
                (part.predictions, whole.predictions),
                (part.predict(state[1], state[0]), elsewhere),
            ):
                of_chosen = expected[chosen]
                np.testing.assert_array_equal(solved_values[is_alike], of_chosen[is_alike])
                atol = 1e3 * np.finfo(dtype).eps
                np.testing.assert_allclose(solved_values, of_chosen, rtol=0, atol=atol)
        assert n_alike > 0.7 * sum(len(chosen) for chosen in subsets)
    assert share_of(whole).any()
    assert largest_shares(life.transitions).all()


def test_predict_asks_for_the_observation() -> None:
    horde = horde_of(questions())
    horde.begin(np.zeros(3), np.arange(N_ACTIVE))
    with pytest.raises(ValueError, match=r"predict\(tiles, observation\)"):
        horde.predict(np.arange(N_ACTIVE))


def test_predict_refuses_an_observation_of_another_number_of_readings() -> None:
    """One question is about the first reading, so that one reading would do without LSTD."""
    horde = horde_of([GVF("light", BEHAVIOUR, Channel(0), 0.5)])
    life = Walk(horde)
    life.run_to(FIRST)
    assert share_of(horde)[0] > 0.0
    for n in (1, 4):
        with pytest.raises(ValueError, match=f"observation must have 3 readings.*not {n}"):
            horde.predict(np.arange(N_ACTIVE), np.zeros(n))


# ---- saving, other questions, several Hordes ------------------------------------------------------------------------


@IN_BOTH
@pytest.mark.parametrize("n_steps", [700, ALL_SOLVED - 30, 1_900])
def test_a_restored_horde_continues_to_the_bit(mode: Any, n_steps: int) -> None:
    """Saved while centre and unit are measured, between two solutions, and with TD errors; each in a batch."""
    whole = horde_of(questions(), mode)
    life = Walk(whole, p_end=0.02, p_missing=0.02)
    life.run_to(n_steps)
    restored = horde_of(questions(), mode)
    restored.restore(whole.state())
    life.hordes.append(restored)
    life.run_to(n_steps + 20)
    np.testing.assert_array_equal(restored.predictions, whole.predictions)
    life.run_to(max(n_steps + 600, ALL_SOLVED))
    assert share_of(whole).any()
    np.testing.assert_array_equal(share_of(restored), share_of(whole))
    np.testing.assert_array_equal(restored.predictions, whole.predictions)


def test_a_horde_that_goes_back_to_an_earlier_state_repeats_its_predictions() -> None:
    """Deferred ones are those of the last processed step at that time."""
    horde = horde_of(questions(), "deferred")
    life = Walk(horde)
    life.run_to(ALL_SOLVED + 5)
    saved = horde.state()
    transitions = [life.draw_state() for _ in range(2 * BATCH)]
    lives = []
    for _ in range(2):
        horde.restore(saved)
        lives.append([horde.learn(0, 0.5, *state, reward=0.0) for state in transitions])
    np.testing.assert_array_equal(lives[0], lives[1])
    assert (lives[0][0] != lives[0][-1]).all()


@IN_BOTH
def test_an_added_question_changes_the_others_by_rounding_only(mode: Any) -> None:
    """Those of an old pair, of a new continuation and of a new policy: the twin has none of them.

    The behaviour and gamma .8 have their turn at step 3,136, when the old questions need no solution.
    """
    horde = horde_of(questions(), mode)
    twin = horde_of(questions(), mode)
    life = Walk(horde, twin, p_end=0.02, p_missing=0.02)
    life.run_to(3_000)
    n_before = horde.n_demons
    horde.add(
        [
            GVF("old pair", BEHAVIOUR, Reward(), 0.8, lam=0.4),
            GVF("new continuation", ConstantAction(1, N_ACTIONS), Channel(1), 0.9, lam=0.4),
            GVF("new policy", ConstantAction(0, N_ACTIONS), Channel(0), 0.5, lam=0.4),
        ]
    )
    np.testing.assert_array_equal(share_of(horde)[n_before:], [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(horde.predictions[n_before:], [0.0, 0.0, 0.0])
    for n_steps, rtol in ((3_000, 1e-12), (3_200, 1e-9), (4_600, 1e-9)):
        life.run_to(n_steps)
        observation, tiles = life.draw_state()
        for solved_values, expected in (
            (share_of(horde), share_of(twin)),
            (horde.predictions, twin.predictions),
            (horde.predict(tiles, observation), twin.predict(tiles, observation)),
        ):
            np.testing.assert_allclose(solved_values[:n_before], expected, rtol=rtol, atol=rtol)
    assert share_of(twin).any()
    # The added ones have solutions by now
    assert (np.abs(horde.state()["lstd/weights"][:, n_before:]).max(axis=0) > 0.0).all()


@pytest.mark.usefixtures("only_counts")
def test_an_added_question_gets_a_solution_from_transitions_before_it() -> None:
    """At the next turn, step 3,136, from the 2,048 of its policy: the older question keeps that of 1,536."""
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin)
    life.run_to(3_000)
    added_question = GVF("again", BEHAVIOUR, Reward(), 0.8, lam=0.4)
    for one in (horde, twin):
        one.add([added_question])
    life.run_to(3_135)
    assert share_of(horde)[-1] == 0.0
    life.run_to(3_136)
    actions = [transition.action for transition in life.transitions]
    added = latest_solution(actions, None, 0.8, asked_at=3_000)
    older = latest_solution(actions, None, 0.8)
    assert added == Solution(3_136, 2_048)
    assert older == Solution(2_624, 1_536)
    shares = largest_shares(life.transitions)
    np.testing.assert_allclose(share_of(horde), [*shares, added.largest_share], rtol=1e-12)
    state = horde.state()
    observation, tiles = life.state
    solved_values = solved_at(horde, twin, (observation, tiles))
    expected = []
    for solution in (older, added):
        slow = SlowLSTD(
            life.transitions[: solution.n_summed], state["lstd/projection"], state["lstd/phase"]
        )
        w = slow.weights(None, 0.8, -1)
        expected.append(slow.value(w, 0.8, -1, observation))
    np.testing.assert_allclose(solved_values[-2:], expected, rtol=1e-4, atol=1e-4)
    assert abs(expected[0] - expected[1]) > 1e-3


def test_a_new_policy_in_an_old_life_has_a_small_share() -> None:
    """That of its own transitions, which are those from the queue on in which it came: fewer than 800 of 7,000."""
    old = [GVF("old", BEHAVIOUR, Channel(0), 0.5, lam=0.4)]
    horde = horde_of(old)
    life = Walk(horde)
    life.run_to(5_400)
    horde.add([GVF("new", ConstantAction(0, N_ACTIONS), Channel(0), 0.5, lam=0.4)])
    actions: list[int] = []
    for n_steps in range(5_440, 7_001, BATCH):
        life.run_to(n_steps)
        actions = [transition.action for transition in life.transitions]
        latest = latest_solution(actions, 0, 0.5, sums_since=5_120)
        assert share_of(horde)[1] == pytest.approx(latest.largest_share, rel=1e-12)
    assert 512 <= latest.n_made < 800
    assert 0.0 < share_of(horde)[1] < 0.34
    assert latest_solution(actions, None, 0.5).largest_share > 0.55


@pytest.mark.usefixtures("only_counts")
def test_a_question_about_another_policy_waits_for_transitions_of_its_own() -> None:
    """They are those from the queue on in which it came, and centre and unit are those of all."""
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin)
    life.run_to(1_650)
    for one in (horde, twin):
        one.add([GVF("other policy", ConstantAction(0, N_ACTIONS), Channel(0), 0.8, lam=0.4)])
    latest = NEVER
    while latest == NEVER:
        assert share_of(horde)[-1] == 0.0
        life.run(2)
        actions = [transition.action for transition in life.transitions]
        latest = latest_solution(actions, 0, 0.8, sums_since=1_536)
    assert 2_560 <= latest.n_steps == life.n_steps < 3_520
    assert latest.n_made == actions[1_536 : latest.n_summed].count(0) >= 512
    assert share_of(horde)[-1] == pytest.approx(latest.largest_share, rel=1e-12)
    state = horde.state()
    transitions = life.transitions[:N_MEASURED] + life.transitions[1_536 : latest.n_summed]
    slow = SlowLSTD(transitions, state["lstd/projection"], state["lstd/phase"])
    w = slow.weights(0, 0.8, 0)
    observation, tiles = life.state
    solved = solved_at(horde, twin, (observation, tiles))
    assert solved[-1] == pytest.approx(slow.value(w, 0.8, 0, observation), rel=1e-4, abs=1e-4)


@pytest.mark.usefixtures("only_counts")
def test_after_others_are_removed_a_question_goes_on() -> None:
    """Those of one policy and of one cumulant are removed."""
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin)
    life.run_to(1_900)
    stays = [7, 8, 10, 11]
    removed = [name for i, name in enumerate(horde.names) if i not in stays]
    share_before = share_of(horde)
    state = life.draw_state()
    predicted_before = horde.predict(state[1], state[0])
    for one in (horde, twin):
        one.remove(removed)
    np.testing.assert_array_equal(share_of(horde), share_before[stays])
    predicted = horde.predict(state[1], state[0])
    np.testing.assert_allclose(predicted, predicted_before[stays], rtol=1e-12)
    life.run_to(2_304)
    actions = [transition.action for transition in life.transitions]
    state_of = horde.state()
    solved_values = solved_at(horde, twin, state)
    for pair, gamma in enumerate(GAMMAS):
        latest = latest_solution(actions, None, gamma)
        assert latest.n_steps > 1_900
        slow = SlowLSTD(
            life.transitions[: latest.n_summed], state_of["lstd/projection"], state_of["lstd/phase"]
        )
        for k, column in enumerate((2, -1)):
            demon = 2 * pair + k
            assert share_of(horde)[demon] == pytest.approx(latest.largest_share, rel=1e-12)
            w = slow.weights(None, gamma, column)
            expected = slow.value(w, gamma, column, state[0])
            assert solved_values[demon] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_horde_that_asks_nothing_for_lstd_begins_with_its_first_question() -> None:
    horde = horde_of([GVF("constant", BEHAVIOUR, 1.0, 0.5)])
    life = Walk(horde)
    life.run_to(100)
    assert "lstd/share" not in horde.state()
    horde.add([GVF("light", BEHAVIOUR, Channel(0), 0.5)])
    life.run_to(100 + FIRST - 1)
    assert not share_of(horde).any()
    life.run(1)
    assert share_of(horde).tolist() == [0.0, pytest.approx(largest_share(N_QUEUED))]


def test_a_transition_after_a_merge_follows_none_of_the_other_stream() -> None:
    """The copy has the queue of the first, and stands elsewhere."""
    first, copy = (lstd_of(questions()) for _ in range(2))
    for lstd in (first, copy):
        lstd.join(np.zeros(3))
        lstd.note(np.ones(3), 0, 0.0, terminated=False)
    first.merge([copy])
    for lstd in (first, copy):
        lstd.note(np.ones(3), 0, 0.0, terminated=False)
    assert first.follows[:2].tolist() == [False, True]
    assert copy.follows[:2].tolist() == [False, False]


def test_copies_for_streams_have_the_solutions_of_the_first() -> None:
    """A copy predicts the same, then stands at a state of its own; so it does after a merge."""
    first = horde_of(questions(), engine="plain")
    life = Walk(first)
    life.run_to(ALL_SOLVED)
    copy = first.copy_for_stream()
    state = life.draw_state()
    np.testing.assert_array_equal(
        copy.predict(state[1], state[0]), first.predict(state[1], state[0])
    )
    elsewhere = Walk(copy, seed=8)
    for _ in range(2):
        life.run(BATCH)
        elsewhere.run(BATCH)
        first.merge([copy])
        np.testing.assert_array_equal(share_of(copy), share_of(first))
        np.testing.assert_array_equal(
            copy.predict(state[1], state[0]), first.predict(state[1], state[0])
        )
        for horde, its_life in ((first, life), (copy, elsewhere)):
            observation, tiles = its_life.state
            np.testing.assert_allclose(
                horde.predictions, horde.predict(tiles, observation), rtol=1e-12, atol=1e-14
            )
    assert np.abs(first.predictions - copy.predictions).min() > 1e-6


@IN_BOTH
@pytest.mark.usefixtures("only_counts")
def test_set_weights_begin_again(mode: Any) -> None:
    """They have no share until 1,088 further transitions, and then that of as many."""
    horde = horde_of(questions(), mode)
    life = Walk(horde)
    n_before = ALL_SOLVED + 10
    life.run_to(n_before)
    horde.reset_weights()
    assert not share_of(horde).any()
    observation, tiles = life.state
    np.testing.assert_array_equal(horde.predict(tiles, observation), np.zeros(horde.n_demons))
    life.run(first_step(0.8) - 1)
    assert not share_of(horde).any()
    life.run_to(n_before + ALL_SOLVED)
    shares = largest_shares(life.transitions[n_before:])
    assert shares.all()
    np.testing.assert_allclose(share_of(horde), shares, rtol=1e-12)


def test_states_of_another_number_of_readings_begin_again() -> None:
    """Before and after, a prediction is also another question's cumulant."""
    about = GVF("about", BEHAVIOUR, Prediction("light"), 0.0)
    horde = horde_of([GVF("light", BEHAVIOUR, Channel(0), 0.5), about])
    life = Walk(horde)
    life.run_to(FIRST)
    assert share_of(horde)[0] > 0.0
    rng = np.random.default_rng(0)
    for n_steps in range(FIRST + 1):
        assert share_of(horde)[0] == 0.0 or n_steps == 0
        horde.learn(0, 0.5, rng.normal(size=2), life.state[1])
        assert np.isfinite(horde.predictions).all()
    # The first transition is between states of three and of two readings
    assert share_of(horde)[0] == pytest.approx(largest_share(N_QUEUED))


def test_many_policies_and_continuations_are_solved_for_in_turns() -> None:
    """Each of fifteen has its turn after one of the eight parts of a queue."""
    gammas = [round(0.05 * k, 2) for k in range(1, 16)]
    assert {turn_of(None, gamma) for gamma in gammas} > {0, 1, 2, 3, 4}
    horde = horde_of([GVF(f"{k}", BEHAVIOUR, Channel(0), gamma) for k, gamma in enumerate(gammas)])
    life = Walk(horde)
    for n_steps in range(N_MEASURED, N_MEASURED + 2 * N_QUEUED, BATCH):
        life.run_to(n_steps)
        first_steps = np.array([first_step(gamma) for gamma in gammas])
        np.testing.assert_array_equal(horde.state()["lstd/solved_at"] > 0, first_steps <= n_steps)
    assert share_of(horde).any()


# ---- questions without a solution -----------------------------------------------------------------------------------


def test_only_constant_questions_about_readings_and_rewards_are_asked() -> None:
    def goes_on(observation: np.ndarray, _: Any) -> float:
        return 0.5

    asked_questions = {
        "reading": GVF("reading", BEHAVIOUR, Channel(0), 0.5),
        "reward": GVF("reward", ConstantAction(0, N_ACTIONS), Reward(), 0.99),
        "at once": GVF("at once", BEHAVIOUR, Channel(1), 0.0),
        "function": GVF("function", BEHAVIOUR, Channel(0), goes_on),
        "without end": GVF("without end", BEHAVIOUR, Channel(0), 1.0, ends=True),
        "outcome": GVF("outcome", BEHAVIOUR, Channel(0), 0.5, outcome=0.75),
        "outcome by function": GVF(
            "outcome by function", BEHAVIOUR, Channel(0), 0.5, outcome=goes_on
        ),
        "gibbs": GVF(
            "gibbs", Gibbs.random(np.random.default_rng(1), N_ACTIONS, N, 20), Channel(0), 0.5
        ),
        "uniform": GVF("uniform", Uniform(N_ACTIONS), Channel(0), 0.5),
        "cumulant by function": GVF("cumulant by function", BEHAVIOUR, goes_on, 0.5),
        "constant": GVF("constant", BEHAVIOUR, 1.0, 0.5),
        "prediction": GVF("prediction", BEHAVIOUR, Prediction("reading"), 0.5),
    }
    listed = list(asked_questions.values())
    is_asked = are_asked(listed)
    names = [name for name, flag in zip(asked_questions, is_asked, strict=True) if flag]
    assert names == ["reading", "reward", "at once"]
    del (
        asked_questions["reading"],
        asked_questions["reward"],
        asked_questions["at once"],
        asked_questions["prediction"],
    )
    assert "lstd/share" not in horde_of(list(asked_questions.values())).state()


@pytest.mark.usefixtures("only_counts")
def test_others_in_a_horde_have_no_share() -> None:
    """Their predictions are those of their weights."""
    asked_questions = [
        *questions()[:2],
        GVF("uniform", Uniform(N_ACTIONS), Channel(0), 0.5, lam=0.4),
    ]
    horde = horde_of(asked_questions)
    twin = horde_of(asked_questions, lstd=0)
    Walk(horde, twin).run(ALL_SOLVED)
    assert (share_of(horde) > 0.0).tolist() == [True, True, False]
    assert horde.predictions[2] == twin.predictions[2]


def test_an_observation_of_many_readings_is_not_solved_for() -> None:
    horde = horde_of([GVF("light", BEHAVIOUR, Channel(0), 0.5)], lstd=2)
    twin = horde_of([GVF("light", BEHAVIOUR, Channel(0), 0.5)], lstd=0)
    rng = np.random.default_rng(0)
    tiles = np.arange(N_ACTIVE)
    for one in (horde, twin):
        one.begin(np.zeros(MOST_READINGS + 1), tiles)
    for _ in range(FIRST):
        observation = rng.normal(size=MOST_READINGS + 1)
        for one in (horde, twin):
            one.learn(0, 1.0, observation, tiles)
    assert share_of(horde)[0] == 0.0
    np.testing.assert_array_equal(horde.predictions, twin.predictions)


def test_rewards_are_solved_for_without_a_reading() -> None:
    """Rewards of 0 and 2 in turn: their mean, as no feature tells which comes next."""
    lstd = lstd_of([GVF("paid", BEHAVIOUR, Reward(), 0.5)])
    none_read = np.zeros(0)
    lstd.join(none_read)
    for t in range(N_MEASURED + 2 * N_QUEUED):
        lstd.note(none_read, 0, 2.0 * (t % 2), terminated=False)
        if lstd.is_due:
            lstd.add()
    assert lstd.values(none_read)[0] == pytest.approx(2.0, abs=0.01)


def test_an_action_that_is_never_taken_is_not_solved_for() -> None:
    asked_questions = [
        GVF("never", ConstantAction(2, 3), Channel(0), 0.5),
        GVF("light", BEHAVIOUR, Channel(0), 0.5),
    ]
    horde = horde_of(asked_questions)
    Walk(horde).run(ALL_SOLVED)
    assert share_of(horde)[0] == 0.0
    assert share_of(horde)[1] > 0.0
    assert horde.predictions[0] == 0.0


@IN_BOTH
def test_a_signal_that_is_never_there_is_not_solved_for(mode: Any) -> None:
    """A reading that is always missing and a reward that no transition has: bounds of returns are not known."""
    asked_questions = [
        GVF("missing", BEHAVIOUR, Channel(1), 0.5),
        GVF("no reward", BEHAVIOUR, Reward(), 0.5),
        GVF("light", BEHAVIOUR, Channel(0), 0.5),
    ]
    horde = horde_of(asked_questions, mode)
    rng = np.random.default_rng(0)
    tiles = np.arange(N_ACTIVE)
    horde.begin(np.zeros(3), tiles)
    for _ in range(ALL_SOLVED):
        observation = np.array([rng.normal(), np.nan, rng.normal()])
        horde.learn(0, 1.0, observation, tiles)
    assert horde.predictions[:2].tolist() == [0.0, 0.0]
    assert share_of(horde)[:2].tolist() == [0.0, 0.0]
    assert share_of(horde)[2] > 0.0


@pytest.mark.parametrize("step", [500, 1_100])
@pytest.mark.usefixtures("only_counts")
def test_an_infinite_reward_counts_as_a_missing_one(step: int) -> None:
    predictions = {}
    for reward in (np.inf, np.nan):
        horde = horde_of(questions())
        life = Walk(horde)
        life.run_to(step)
        horde.learn(0, 0.5, *life.draw_state(), reward=reward)
        life.run_to(ALL_SOLVED)
        assert share_of(horde).all()
        predictions[reward] = horde.predictions
    assert np.isfinite(predictions[np.inf]).all()
    np.testing.assert_array_equal(predictions[np.inf], predictions[np.nan])


@pytest.mark.parametrize("step", [500, ALL_SOLVED + 30])
@pytest.mark.usefixtures("only_counts")
def test_a_reading_beyond_float32_leaves_the_others_their_solutions(step: int) -> None:
    """In a Horde of float64, while centre and unit are measured and after solutions."""
    horde = horde_of(questions())
    twin = horde_of(questions(), lstd=0)
    life = Walk(horde, twin)
    life.run_to(step)
    observation, tiles = life.draw_state()
    observation[1] = 1e160
    observation[2] = 1e80
    for one in (horde, twin):
        one.learn(0, 0.5, observation, tiles, reward=0.0)
    life.run_to(ALL_SOLVED + 200)
    assert np.isfinite(horde.predictions).all()
    assert share_of(horde)[[2, 5, 8, 11]].all()
    is_about_2 = [question.cumulant == Channel(2) for question in horde.questions]
    assert (np.abs(horde.predictions - twin.predictions)[~np.array(is_about_2)] < 10.0).all()


@IN_BOTH
@pytest.mark.parametrize("step", [500, ALL_SOLVED + 30])
def test_a_diverged_demon_predicts_zero(mode: Any, step: int) -> None:
    """A reading that float32 cannot hold, while centre and unit are measured, and after solutions."""
    asked_questions = [
        GVF("light", BEHAVIOUR, Channel(0), 0.5, lam=0.4),
        GVF("breaks", BEHAVIOUR, Channel(1), 0.5, lam=0.4),
        GVF("later", BEHAVIOUR, Channel(1), 0.8, lam=0.4),
    ]
    horde = horde_of(asked_questions, mode, dtype="float32")
    life = Walk(horde)
    life.run_to(step)
    observation, tiles = life.state
    observation = observation.copy()
    observation[1] = 1e300
    horde.learn(0, 0.5, observation, tiles, reward=0.0)
    life.run_to(ALL_SOLVED + 200)
    observation, tiles = life.state
    assert horde.diverged == ["breaks", "later"]
    for predictions in (horde.predictions, horde.predict(tiles, observation)):
        assert predictions[1:].tolist() == [0.0, 0.0]
        assert np.isfinite(predictions).all()
    assert (share_of(horde) > 0.0).tolist() == [True, False, False]


@pytest.mark.parametrize("value", [-1, np.nan, 2.5, True])
def test_a_number_of_features_is_whole_and_not_negative(value: Any) -> None:
    with pytest.raises(ValueError, match=r"lstd must be a whole number of at least 0, not"):
        LearnerConfig(lstd=value)


def test_more_features_than_fit_into_memory_are_refused() -> None:
    """Their matrices would take 70 MB of each policy at 2,048, and 8 TB at a million."""
    assert LearnerConfig(lstd=2_048).lstd == 2_048
    with pytest.raises(ValueError, match="lstd must be at most 2,048, not 2,049"):
        LearnerConfig(lstd=2_049)


def many_questions(n: int) -> list[GVF]:
    """Return as many questions that LSTD can answer, of 32 pairs of a policy and a continuation."""
    return [
        GVF(f"light {i}", ConstantAction(0, N_ACTIONS), Channel(0), (i % 32) / 40) for i in range(n)
    ]


def horde_by_default(asked_questions: Sequence[GVF], **settings: Any) -> Horde:
    config = LearnerConfig(**settings)
    return Horde(asked_questions, n_features=N, n_active=N_ACTIVE, config=config)


def test_300_questions_that_it_can_answer_have_192_random_features_by_default() -> None:
    unanswered = [GVF(f"constant {i}", BEHAVIOUR, 1.0, 0.5) for i in range(9)]
    assert horde_by_default([*many_questions(300), *unanswered]).config.lstd == 192
    fewer = horde_by_default([*many_questions(299), *unanswered])
    assert fewer.config.lstd == 0
    assert "lstd/share" not in fewer.state()


def test_many_policies_and_continuations_have_no_random_features_by_default() -> None:
    """Each is solved for at once, which takes some milliseconds."""
    reached = [
        GVF(f"next light {i}", ConstantAction(i, N_ACTIONS), Channel(0), 0.3) for i in range(2)
    ]
    assert horde_by_default([*many_questions(300), reached[0]]).config.lstd == 192
    assert horde_by_default([*many_questions(300), *reached]).config.lstd == 0


def test_a_number_of_random_features_that_is_given_is_kept() -> None:
    assert horde_by_default(many_questions(300), lstd=0).config.lstd == 0
    assert horde_by_default(many_questions(2), lstd=5).config.lstd == 5
    assert LearnerConfig.paper().lstd == 0
    assert LearnerConfig.paper(lstd=5).lstd == 5


def test_whether_there_are_random_features_does_not_change_with_the_questions() -> None:
    """Otherwise a life would lose its solutions, or begin them, with one question more or less."""
    asked_questions = many_questions(300)
    many = horde_by_default(asked_questions)
    many.remove([question.name for question in asked_questions[:-1]])
    assert many.config.lstd == 192
    assert many.state()["lstd/share"].size == 1
    few = horde_by_default(asked_questions[:1])
    few.add(asked_questions[1:])
    assert few.config.lstd == 0
    assert "lstd/share" not in few.state()
