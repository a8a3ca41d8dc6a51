"""What executed options do in the pen of the simulated robot, and what their learned models say of it.

A random life of the planar robot is learned from, off-policy. In another life, whose start states are
kept, the robot follows each option from each state until it stops, at most `HORIZON` steps, twice with
other noise: the second time says how much of the outcome is left to chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from examples.reproduce.scores import nmsre_at_rest, normalise
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.robot import RobotBody
from horde_agent.options.option import Option, StopAt
from horde_agent.policies import ConstantAction, StickyRandom, draw_from
from horde_agent.questions import model_of
from horde_agent.saving import text
from horde_agent.types import Bools, Floats, Integers, Tiles

GAMMA = 0.8
STEP_SIZE = 0.05
HORIZON = 50
BETWEEN_STATES = 60
"""Steps of the random behaviour between two start states."""
LEAST_SHARE = 0.05
"""Of the excursions, at whose stop a feature must be active to be predicted."""
WALL = "to the wall"
LIGHT = "to the light"
NAMES = (WALL, LIGHT)
CONTROL_EVERY = 4
"""Of the features, one in so many is predicted by the control, too."""
_FINE = 400  # readings by which the tiles of a range are found


class Life(NamedTuple):
    """A random life: n steps."""

    observation: Floats  # (n + 1, n_channels)
    tiles: Integers  # (n + 1, n_active)
    action: Integers  # (n,)
    b: Floats  # (n,)


class Outcomes(NamedTuple):
    """What followed from n start states under an option: x at the start and at the end, and how long it took."""

    tiles: Integers  # (n, n_active)
    last_tiles: Integers  # (n, n_active)
    n_steps: Integers  # (n,)
    has_stopped: Bools  # (n,)

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


def options_in(interface: Interface, observation: Floats) -> list[Option]:
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
    return Life(np.array(observations), np.array(tiles), np.array(actions), np.array(probabilities))


def execute(
    env: gymnasium.Env[Any, Any],
    interface: Interface,
    options: Sequence[Option],
    seed: int,
    n_states: int,
) -> list[list[Outcomes]]:
    """Return the outcomes of each option from the same start states, twice with other noise."""
    body = RobotBody(env)
    rng = np.random.default_rng([seed, 2])
    behaviour = StickyRandom(len(interface.actions))
    env.reset(seed=10_000 + seed)
    states = []
    for number in range(n_states):
        for _ in range(BETWEEN_STATES):
            observation = env.step(behaviour.draw(rng)[0])[0]
        noise = [
            np.array(text(np.random.default_rng([seed, 3, number, k]).bit_generator.state))
            for k in range(2)
        ]
        states.append((body.save_state(), interface.encode(observation), noise))
    outcomes = []
    for option in options:
        repetitions = []
        for k in range(2):
            rows = []
            for state, tiles, noise in states:
                body.restore_state({**state, "rng/text": noise[k]})
                rows.append(_follow(env, interface, option, tiles, rng))
            repetitions.append(Outcomes(*map(np.array, zip(*rows, strict=True))))
        outcomes.append(repetitions)
    return outcomes


def _follow(
    env: gymnasium.Env[Any, Any],
    interface: Interface,
    option: Option,
    tiles: Tiles,
    rng: np.random.Generator,
) -> tuple[Tiles, Tiles, int, bool]:
    """Follow an option until it stops; return the first and the last tiles, the steps, and whether it stopped."""
    last_tiles = tiles
    observation = np.zeros(0)
    stops = option.stops
    assert callable(stops)
    for n_steps in range(1, HORIZON + 1):
        probabilities = option.target_policy.probabilities(observation, last_tiles)
        action, _ = draw_from(probabilities, rng)
        observation = env.unwrapped.step(action)[0]
        last_tiles = interface.encode(observation)
        if stops(observation, last_tiles) > 0.0:
            return tiles, last_tiles, n_steps, True
    return tiles, last_tiles, HORIZON, False


def new_horde(life: Life, option: Option, features: Integers, n_features: int) -> Horde:
    """Return a Horde for the model of an option."""
    demons = model_of(option, features.tolist(), n_features=n_features)
    config = LearnerConfig(step_size=STEP_SIZE, offset=0.0, vector_mspbe=False)
    n_active = life.tiles.shape[1]
    return Horde(demons, n_features=n_features, n_active=n_active, config=config, mode="deferred")


def learn(life: Life, horde: Horde) -> None:
    """Learn from a life."""
    horde.begin(life.observation[0], life.tiles[0])
    for step, (action, b) in enumerate(zip(life.action.tolist(), life.b.tolist(), strict=True), 1):
        horde.learn(action, b, life.observation[step], life.tiles[step], reward=0.0)
    horde.catch_up()


def learn_shuffled(life: Life, horde: Horde, option: Option, rng: np.random.Generator) -> None:
    """Learn from a life in which each stop has the features of another stop.

    A stop ends a stream and begins another, which is the same for the option's model: its continuation
    is 0 there.
    """
    stops = option.stops
    assert isinstance(stops, StopAt)
    is_of_stop = np.isin(life.tiles, np.array(stops.features))
    places = np.flatnonzero(is_of_stop.sum(axis=1))
    shown = dict(zip(places.tolist(), rng.permutation(places).tolist(), strict=True))
    horde.begin(life.observation[0], life.tiles[0])
    for step, (action, b) in enumerate(zip(life.action.tolist(), life.b.tolist(), strict=True), 1):
        state = (life.observation[step], life.tiles[step])
        if step in shown:
            tiles = life.tiles[shown[step]]
            horde.learn(action, b, state[0], tiles, terminated=True, reward=0.0)
            horde.begin(*state)
        else:
            horde.learn(action, b, *state, reward=0.0)
    horde.catch_up()


class PenScores(NamedTuple):
    """The NMSRE of the predicted features of each option, padded with NaN, (n_options, n_features)."""

    learned: Floats
    shuffled: (
        Floats  # of a model that learned from the features of other stops, every fourth feature
    )
    chance: Floats  # of the best predictor from the start state: half the mean square between two executions
    n_steps: Floats  # median steps until the stop, (n_options,)
    stopped: Floats  # share of the excursions that stopped, (n_options,)
    n_demons: Integers  # of each option's model, (n_options,)


def score(seed: int, n_steps: int, n_states: int) -> PenScores:
    """Learn the models of the options from one life, and compare them with what executed options do."""
    env = make_body("simulator", physics="planar")
    interface = Interface.of(env)
    n_features = interface.coder.n_features
    life = live(env, interface, seed, n_steps)
    options = options_in(interface, life.observation[0])
    outcomes = execute(env, interface, options, seed, n_states)
    env.close()
    scores = np.full((3, len(options), n_features), np.nan)
    rng = np.random.default_rng([seed, 4])
    n_demons = []
    for k, (option, (first, second)) in enumerate(zip(options, outcomes, strict=True)):
        features = first.frequent(n_features)
        n_demons.append(features.size + 1)
        if not features.size:
            continue
        goals = first.at_stop(features)
        variance = goals.var(axis=0)
        horde = new_horde(life, option, features, n_features)
        learn(life, horde)
        scores[0, k, features] = errors_of(horde, first, features, variance)
        few = features[::CONTROL_EVERY]
        control = new_horde(life, option, few, n_features)
        learn_shuffled(life, control, option, rng)
        scores[1, k, few] = errors_of(control, first, few, variance[::CONTROL_EVERY])
        difference = ((goals - second.at_stop(features)) ** 2).mean(axis=0) / 2.0
        scores[2, k, features] = normalise(difference, variance)
    return PenScores(
        learned=scores[0],
        shuffled=scores[1],
        chance=scores[2],
        n_steps=np.array([np.median(first.n_steps) for first, _ in outcomes]),
        stopped=np.array([first.has_stopped.mean() for first, _ in outcomes]),
        n_demons=np.array(n_demons),
    )


def errors_of(horde: Horde, outcomes: Outcomes, features: Integers, variance: Floats) -> Floats:
    """Return the NMSRE of a model's predictions at the start states, (n_features,).

    What did not stop ends with the prediction at the last state, as in test excursions.
    """
    predictions = predictions_in(horde, outcomes.tiles)
    beyond = GAMMA**HORIZON * predictions_in(horde, outcomes.last_tiles)
    goals = outcomes.at_stop(features)
    returns = np.where(outcomes.has_stopped[:, None], goals, beyond)
    return nmsre_at_rest(predictions, returns, variance)


def predictions_in(horde: Horde, tiles: Integers) -> Floats:
    """Return the predicted features at states, (n, n_active), without the reward part: (n, m)."""
    return np.array([horde.predict(active)[1:] for active in tiles])
