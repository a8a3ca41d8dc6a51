"""Compare executed options of the simulated robot with the predictions of their learned models.

A random life of the planar robot is learned from, off-policy. In another life, whose start states are
kept, the robot follows each option from each state until it stops, at most `HORIZON` steps, twice with
other noise: the second time says how much of the outcome is left to chance. Two options are posed by
hand; the third is one that the robot found for a subtask (`own_option`).

What the models miss is lost in one of three places. *Features*: the best linear model, by least squares
on the outcomes of thousands of executed options. *Data*: least squares on the same life (LSTD(lambda)).
*Learner*: the Horde's demons.

Source of LSTD: Boyan (2002), Technical update: least-squares temporal difference learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from examples.reproduce.scores import nmsre_at_rest, normalise
from horde_agent.gvf import GVF, Reward
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.robot import RobotBody
from horde_agent.options.option import Option, PaidAtStop, StopAt, Subtask, found
from horde_agent.policies import Behaviour, ConstantAction, StickyRandom, draw_from
from horde_agent.questions import control_of, model_of
from horde_agent.saving import text
from horde_agent.types import Bools, Floats, Integers, Reals, Tiles

GAMMA = 0.8
STEP_SIZE = 0.05
LAMBDA = 0.9
HORIZON = 50
BETWEEN_STATES = 60
"""Steps of the random behaviour between two start states."""
BETWEEN_FRESH = 20
"""Steps of the random behaviour between the start states of the executions that least squares learns from."""
LEAST_SHARE = 0.05
"""Share of the excursions that must stop with a feature active, for the feature to be predicted."""
WALL = "to the wall"
LIGHT = "to the light"
OWN = "its own: light at a wall"
NAMES = (WALL, LIGHT, OWN)
EVERY = 8
"""One in 8 of these features is predicted."""
CONTROL_EVERY = 16
"""One in 16 of those is predicted by the control, too."""
POSED_AFTER = 20_000
"""Steps of a life that the value of the main task is learned from, before the robot poses its subtask."""
FOUND_AFTER = 50_000
"""Steps of the life from which it then finds the option."""
BONUS = 2.0
RIDGE = 100.0
"""Ridge of least squares, chosen on `TUNING_SEED`, as the weight of pairs is."""
RIDGE_OF_PAIRS = 30.0
PAIRS_WEIGHT = 1_000.0
_FINE = 400  # readings by which the tiles of a range are found


class Life(NamedTuple):
    """A random life: n steps. The reward is the reading of the first light sensor."""

    observation: Floats  # (n + 1, n_channels)
    tiles: Integers  # (n + 1, n_active)
    action: Integers  # (n,)
    b: Floats  # (n,)
    reward: Floats  # (n + 1,)

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.action.size

    def learn(self, horde: Horde, first: int, last: int, shown: Shown | None = None) -> None:
        """Learn from the steps `first` to `last`; update `shown` at each of them."""
        horde.begin(self.observation[first], self.tiles[first])
        for step in range(first, last):
            if shown is not None:
                shown.step = step + 1
            horde.learn(
                int(self.action[step]),
                float(self.b[step]),
                self.observation[step + 1],
                self.tiles[step + 1],
                reward=float(self.reward[step + 1]),
            )
        horde.catch_up()


@dataclass
class Shown:
    """The step of a life, for the control."""

    step: int = 0


@dataclass(frozen=True, eq=False)
class StopsInLife:
    """A stopping rule, looked up: it is evaluated once for each state of the life."""

    is_stop: Bools  # of each state, (n + 1,)
    shown: Shown = field(repr=False)

    def __call__(self, observation: Floats, tiles: Tiles) -> float:
        """Return 1 where it stops, else 0, at the step that is shown."""
        return float(self.is_stop[self.shown.step])


@dataclass(frozen=True, eq=False)
class ElsewhereActive:
    """The control's cumulant: 1 if a feature was active at another stop of the same option."""

    feature: int
    tiles: Integers  # of each state of the life, those of another stop where the option stops, (n + 1, n_active)
    shown: Shown = field(repr=False)

    def __call__(self, observation: Floats, tiles: Tiles) -> float:
        """Return 1 if it was, else 0, at the step that is shown."""
        return float((self.tiles[self.shown.step] == self.feature).any())


class Outcomes(NamedTuple):
    """What followed from n start states under an option: x at the start and at the end, and how long it took."""

    tiles: Integers  # (n, n_active)
    last_tiles: Integers  # (n, n_active)
    n_steps: Integers  # (n,)
    has_stopped: Bools  # (n,)
    place: Floats  # x and y at the start and at the end, in metres, (n, 4)

    def at_stop(self, features: Integers) -> Floats:
        """Return gamma^K x_j(S_K) of features, (m,), 0 of those that did not stop, (n, m)."""
        is_active = np.array([np.isin(features, tiles) for tiles in self.last_tiles])
        discount = np.where(self.has_stopped, GAMMA**self.n_steps, 0.0)
        return np.asarray(discount[:, None] * is_active)

    def frequent(self, n_features: int) -> Integers:
        """Return the features that are active at a stop in enough of the excursions."""
        counts = np.bincount(self.last_tiles[self.has_stopped].ravel(), minlength=n_features)
        return np.flatnonzero(counts >= LEAST_SHARE * len(self.tiles))


def tiles_above(
    interface: Interface, observation: Floats, channel: str, least: float
) -> tuple[int, ...]:
    """Return the features of a channel that are active only where its reading is at least `least`."""
    place = interface.index(channel)

    def active(reading: float) -> set[int]:
        changed = observation.copy()
        changed[place] = reading
        return set(interface.encode(changed).tolist())

    above: list[set[int]] = [active(reading) for reading in np.linspace(least, 1.0, _FINE)]
    below: list[set[int]] = [
        active(reading) for reading in np.linspace(0.0, least, _FINE, endpoint=False)
    ]
    return tuple(sorted(set().union(*above) - set().union(*below)))


def posed_options(interface: Interface, observation: Floats) -> list[Option]:
    """Return the options: forward until a wall is near, and a turn until the first light sensor is bright."""
    n_actions = len(interface.actions)
    forward = interface.actions.index("forward")
    turn = interface.actions.index("rotate_clockwise")
    near = StopAt(tiles_above(interface, observation, "ir_distance_0", 0.6))
    bright = StopAt(tiles_above(interface, observation, "light_0", 0.25))
    return [
        Option(WALL, ConstantAction(forward, n_actions), near, GAMMA),
        Option(LIGHT, ConstantAction(turn, n_actions), bright, GAMMA),
    ]


def own_option(interface: Interface, life: Life, near: StopAt) -> Option:
    """Return the option that the robot finds for a subtask: collect light, and reach a feature of a near wall.

    The reward is the reading of the first light sensor. From the first steps its value under the random
    behaviour is learned; then the subtask is posed, for the feature of `near` that was active most
    often, and QRC finds its option from the steps that follow.
    """
    posed = min(POSED_AFTER, life.n_steps // 3)
    ends = min(posed + FOUND_AFTER, life.n_steps)
    size = {"n_features": interface.coder.n_features, "n_active": life.tiles.shape[1]}
    value = GVF("value", Behaviour(), Reward(), GAMMA, offset=0.0)
    config = LearnerConfig(step_size=STEP_SIZE, vector_mspbe=False)
    horde = Horde([value], **size, config=config, mode="deferred")
    life.learn(horde, 0, posed)
    weights = horde.averaged_weights()[0]
    counts = np.bincount(life.tiles[:posed].ravel(), minlength=weights.size)
    feature = max(near.features, key=lambda k: int(counts[k]))
    subtask = Subtask(feature, BONUS, weights)
    question = control_of(OWN, subtask, len(interface.actions), GAMMA, algorithm="qrc")
    horde = Horde([question], **size, config=config)
    life.learn(horde, posed, ends)
    return found(horde, OWN)


def live(env: gymnasium.Env[Any, Any], interface: Interface, seed: int, n_steps: int) -> Life:
    """Return a random life."""
    rng = np.random.default_rng([seed, 1])
    behaviour = StickyRandom(len(interface.actions))
    observations = [env.reset(seed=seed)[0].astype(np.float64)]
    draws = []
    for _ in range(n_steps):
        draws.append(behaviour.draw(rng))
        observations.append(env.step(draws[-1][0])[0].astype(np.float64))
    actions, probabilities = zip(*draws, strict=True)
    tiles = [interface.encode(observation) for observation in observations]
    readings = np.array(observations)
    return Life(
        observation=readings,
        tiles=np.array(tiles),
        action=np.array(actions),
        b=np.array(probabilities),
        reward=readings[:, interface.index("light_0")],
    )


def execute(
    env: gymnasium.Env[Any, Any],
    interface: Interface,
    options: Sequence[Option],
    seeds: tuple[int, int],
    n_states: int,
    *,
    between: int = BETWEEN_STATES,
    n_times: int = 2,
) -> list[list[Outcomes]]:
    """Return the outcomes of each option from the same start states, `n_times` with other noise."""
    body = RobotBody(env)
    rng = np.random.default_rng(seeds)
    behaviour = StickyRandom(len(interface.actions))
    env.reset(seed=seeds[0] + 10_000 * (seeds[1] - 1))
    rows: list[list[list[Any]]] = [[[] for _ in range(n_times)] for _ in options]
    for number in range(n_states):
        for _ in range(between):
            observation, _, _, _, info = env.step(behaviour.draw(rng)[0])
        state = body.save_state()
        start = (interface.encode(observation), info["x_m"], info["y_m"])
        for of_option, option in zip(rows, options, strict=True):
            for k, of_time in enumerate(of_option):
                noise = np.random.default_rng([seeds[0], 3, number, k]).bit_generator.state
                body.restore_state({**state, "rng/text": np.array(text(noise))})
                of_time.append(_follow(env, interface, option, start))
        body.restore_state(state)
    return [
        [Outcomes(*map(np.array, zip(*of_time, strict=True))) for of_time in of_option]
        for of_option in rows
    ]


def _follow(
    env: gymnasium.Env[Any, Any],
    interface: Interface,
    option: Option,
    start: tuple[Tiles, float, float],
) -> tuple[Tiles, Tiles, int, bool, list[float]]:
    """Follow an option; return the first and the last tiles, the steps, whether it stopped, and both places."""
    first_tiles, *place = start
    last_tiles = first_tiles
    observation = np.zeros(0)
    rng = np.random.default_rng(0)
    stops = option.stops
    assert callable(stops)
    has_stopped = False
    n_steps = 0
    while n_steps < HORIZON and not has_stopped:
        probabilities = option.target_policy.probabilities(observation, last_tiles)
        action, _ = draw_from(probabilities, rng)
        observation, _, _, _, info = env.unwrapped.step(action)
        last_tiles = interface.encode(observation)
        has_stopped = stops(observation, last_tiles) > 0.0
        n_steps += 1
    return first_tiles, last_tiles, n_steps, has_stopped, [*place, info["x_m"], info["y_m"]]


# ---- what is learned ------------------------------------------------------------------------------------------------


def in_life(life: Life, option: Option, shown: Shown) -> Option:
    """Return an option with its stops in a life, as `StopsInLife`."""
    stops = option.stops
    assert callable(stops)
    states = zip(life.observation, life.tiles, strict=True)
    is_stop = np.array([stops(observation, tiles) > 0.0 for observation, tiles in states])
    return replace(option, stops=StopsInLife(is_stop, shown))


def stops_of(option: Option) -> Bools:
    """Return where an option of `in_life` stops, (n + 1,)."""
    assert isinstance(option.stops, StopsInLife)
    return option.stops.is_stop


def shuffled_model(
    life: Life, option: Option, features: Integers, rng: np.random.Generator, shown: Shown
) -> list[GVF]:
    """Return the model of an option of `in_life` in which each stop has the features of another stop."""
    places = np.flatnonzero(stops_of(option))
    tiles = life.tiles.copy()
    tiles[places] = life.tiles[rng.permutation(places)]
    demons = model_of(option, features.tolist(), lam=LAMBDA)
    for k, feature in enumerate(features.tolist(), 1):
        amount = ElsewhereActive(feature, tiles, shown)
        outcome = PaidAtStop(option.gamma, option.stops, amount)
        demons[k] = replace(demons[k], outcome=outcome)
    return [replace(demon, name=f"shuffled {demon.name}") for demon in demons]


# ---- least squares --------------------------------------------------------------------------------------------------


def dense(tiles: Integers, n_features: int) -> Reals:
    """Return the feature vectors of states by their active features, (n, n_active): (n, n_features)."""
    vectors = np.zeros((len(tiles), n_features), dtype=np.float32)
    np.put_along_axis(vectors, tiles, 1.0, axis=1)
    return vectors


class Fitted(NamedTuple):
    """Predictions at some states by least squares on the outcomes of many others, (n, m)."""

    linear: Floats
    pairs: Floats  # linear in all products of two features


def fit(goals: Reals, kernels: tuple[Reals, Reals], n_active: int) -> Fitted:
    """Return what least squares predicts, given goals, (N, m), and how many features states share, as `shared`.

    Ridge regression in its dual form, in which pairs of features are the square of the kernel.
    """
    mean = goals.mean(axis=0)
    of_pairs = [PAIRS_WEIGHT * (kernel / n_active) ** 2 for kernel in kernels]
    predictions = []
    for (own, cross), ridge in ((kernels, RIDGE), (of_pairs, RIDGE_OF_PAIRS)):
        matrix = own.copy()
        matrix[np.diag_indices_from(matrix)] += ridge
        predictions.append(cross @ np.linalg.solve(matrix, goals - mean) + mean)
    return Fitted(*predictions)


def shared(fresh: Outcomes, outcomes: Outcomes, n_features: int) -> tuple[Reals, Reals]:
    """Return how many features each two fresh states share, (N, N), and each state and a fresh one, (n, N)."""
    vectors = dense(fresh.tiles, n_features)
    return vectors @ vectors.T, dense(outcomes.tiles, n_features) @ vectors.T


def lstd(
    life: Life, option: Option, features: Integers, n_features: int
) -> tuple[Floats, Integers]:
    """Return the weights by LSTD(lambda) from the steps of a life that take the option's action, and their features.

    The policy is deterministic, so that the trace ends at any other action; all its steps weigh alike.

    Returns:
        Weights, (k, m), of the k features that were ever active, and these, (k,).
    """
    policy = option.target_policy
    is_its = np.array(
        [
            policy.probabilities(observation, tiles)[action] > 0.5
            for observation, tiles, action in zip(
                life.observation, life.tiles, life.action.tolist(), strict=False
            )
        ]
    )
    steps = np.flatnonzero(is_its)
    active = np.unique(life.tiles)
    vectors = dense(life.tiles[steps], n_features)[:, active]
    following = dense(life.tiles[steps + 1], n_features)
    stops = stops_of(option)[steps + 1].astype(np.float32)
    goals = GAMMA * stops[:, None] * following[:, features]
    continuation = GAMMA * (1.0 - stops)
    differences = vectors - continuation[:, None] * following[:, active]
    traces = vectors.copy()
    for row in range(1, len(steps)):
        if steps[row] == steps[row - 1] + 1:
            traces[row] += LAMBDA * continuation[row - 1] * traces[row - 1]
    matrix = traces.T @ differences
    matrix[np.diag_indices_from(matrix)] += RIDGE
    return np.linalg.solve(matrix, traces.T @ goals), active


# ---- scores ---------------------------------------------------------------------------------------------------------


class PenScores(NamedTuple):
    """The NMSRE of the predicted features of each option, padded with NaN, (n_options, n_features)."""

    learned: Floats  # of the Horde
    shuffled: Floats  # of a model that learned from the features of other stops
    chance: Floats  # of the best predictor from the start state: half the mean square between two executions
    n_steps: Floats  # median steps until the stop, (n_options,)
    stopped: Floats  # share of the excursions that stopped, (n_options,)
    n_frequent: Integers  # features that are active at enough stops, (n_options,)
    place: Floats  # of the found option, (n, 5): x, y of beginning and end in metres, and 1 if it stopped, else 0


class PenCauses(NamedTuple):
    """The same of models by least squares."""

    batch: Floats  # on the same life
    linear: Floats  # on many executed options: the best of these features, nearly
    pairs: Floats  # the same with all pairs of features


class Pen:
    """A life of the robot, its options, and the outcomes of their executions."""

    def __init__(self, seed: int, n_steps: int, n_states: int) -> None:
        self.seed = seed
        self.env = make_body("simulator", physics="planar")
        self.interface = Interface.of(self.env)
        self.n_features = self.interface.coder.n_features
        self.life = live(self.env, self.interface, seed, n_steps)
        self.options = posed_options(self.interface, self.life.observation[0])
        near = self.options[0].stops
        assert isinstance(near, StopAt)
        self.options.append(own_option(self.interface, self.life, near))
        self.outcomes = execute(self.env, self.interface, self.options, (seed, 2), n_states)
        self.frequent = [first.frequent(self.n_features) for first, _ in self.outcomes]
        self.features = [of_option[::EVERY] for of_option in self.frequent]
        self.shown = Shown()
        self.in_life = [in_life(self.life, option, self.shown) for option in self.options]

    def padded(self, errors: Sequence[Floats], features: Sequence[Integers]) -> Floats:
        """Return the errors of features of each option, NaN elsewhere, (n_options, n_features)."""
        rows = np.full((len(self.options), self.n_features), np.nan)
        for row, of_option, places in zip(rows, errors, features, strict=True):
            row[places] = of_option
        return rows


def score(seed: int, n_steps: int, n_states: int) -> PenScores:
    """Learn the models of the options from one life, and compare them with what executed options do."""
    pen = Pen(seed, n_steps, n_states)
    pen.env.close()
    few = [of_option[::CONTROL_EVERY] for of_option in pen.features]
    rng = np.random.default_rng([seed, 4])
    models = []
    controls = []
    for option, features, of_control in zip(pen.in_life, pen.features, few, strict=True):
        models.append(model_of(option, features.tolist(), n_features=pen.n_features, lam=LAMBDA))
        controls.append(shuffled_model(pen.life, option, of_control, rng, pen.shown))
    horde = Horde(
        [demon for model in [*models, *controls] for demon in model],
        n_features=pen.n_features,
        n_active=pen.life.tiles.shape[1],
        config=LearnerConfig(step_size=STEP_SIZE, offset=0.0, vector_mspbe=False),
        mode="deferred",
    )
    pen.life.learn(horde, 0, pen.life.n_steps, pen.shown)

    learned = []
    shuffled = []
    chance = []
    for k, (first, second) in enumerate(pen.outcomes):
        learned.append(errors_of(weights_in(horde, models[k]), first, pen.features[k]))
        shuffled.append(errors_of(weights_in(horde, controls[k]), first, few[k]))
        goals = first.at_stop(pen.features[k])
        difference = ((goals - second.at_stop(pen.features[k])) ** 2).mean(axis=0) / 2.0
        chance.append(normalise(difference, goals.var(axis=0)))
    found_outcomes = pen.outcomes[-1][0]
    return PenScores(
        learned=pen.padded(learned, pen.features),
        shuffled=pen.padded(shuffled, few),
        chance=pen.padded(chance, pen.features),
        n_steps=np.array([np.median(first.n_steps) for first, _ in pen.outcomes]),
        stopped=np.array([first.has_stopped.mean() for first, _ in pen.outcomes]),
        n_frequent=np.array([of_option.size for of_option in pen.frequent]),
        place=np.column_stack([found_outcomes.place, found_outcomes.has_stopped]),
    )


def causes(seed: int, n_steps: int, n_states: int, n_fresh: int) -> PenCauses:
    """Fit models by least squares, on the same life and on `n_fresh` executions of each option."""
    pen = Pen(seed, n_steps, n_states)
    fresh = execute(
        pen.env,
        pen.interface,
        pen.options,
        (seed, 5),
        n_fresh,
        between=BETWEEN_FRESH,
        n_times=1,
    )
    pen.env.close()
    goals = np.hstack(
        [of_fresh.at_stop(k) for (of_fresh,), k in zip(fresh, pen.features, strict=True)]
    ).astype(np.float32)
    kernels = shared(fresh[0][0], pen.outcomes[0][0], pen.n_features)
    fitted = fit(goals, kernels, pen.life.tiles.shape[1])
    ends = np.cumsum([features.size for features in pen.features])[:-1]
    batch = []
    linear = []
    pairs = []
    for option, (first, _), features, of_linear, of_pairs in zip(
        pen.in_life,
        pen.outcomes,
        pen.features,
        np.split(fitted.linear, ends, axis=1),
        np.split(fitted.pairs, ends, axis=1),
        strict=True,
    ):
        outcomes = first.at_stop(features)
        variance = outcomes.var(axis=0)
        linear.append(nmsre_at_rest(of_linear, outcomes, variance))
        pairs.append(nmsre_at_rest(of_pairs, outcomes, variance))
        weights, active = lstd(pen.life, option, features, pen.n_features)
        of_all = np.zeros((pen.n_features, features.size))
        of_all[active] = weights
        batch.append(errors_of(of_all, first, features))
    return PenCauses(*(pen.padded(errors, pen.features) for errors in (batch, linear, pairs)))


def weights_in(horde: Horde, model: Sequence[GVF]) -> Floats:
    """Return the weights of a model's transition part, (n_features, m)."""
    places = [horde.names.index(demon.name) for demon in model[1:]]
    return horde.averaged_weights(np.array(places)).astype(np.float64).T


def errors_of(weights: Floats, outcomes: Outcomes, features: Integers) -> Floats:
    """Return the NMSRE of linear predictions at the start states by weights, (n_features, m): (m,).

    What did not stop ends with the prediction at the last state, as in test excursions.
    """
    goals = outcomes.at_stop(features)
    predictions = np.array([weights[tiles].sum(axis=0) for tiles in outcomes.tiles])
    beyond = np.array([weights[tiles].sum(axis=0) for tiles in outcomes.last_tiles])
    returns = np.where(outcomes.has_stopped[:, None], goals, GAMMA**HORIZON * beyond)
    return nmsre_at_rest(predictions, returns, goals.var(axis=0))
