"""The life that wanders, with its tests, and the one that spins and stops."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, Channel, StateFunction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.life import StepEvent
from horde_agent.life.robot import RobotBody
from horde_agent.policies import (
    ConstantAction,
    Greedy,
    Policy,
    PolicyFunction,
    StickyRandom,
    Uniform,
    draw_from,
)
from horde_agent.record import Phase
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import new_horde, watched_life
from horde_agent.reproduce.offline import RIDGES
from horde_agent.reproduce.runner import Job
from horde_agent.types import Bools, Floats, Integers, Tiles

TITLE = "Horde 2011: time to obstacle, time to stop, light seeking"
LAM = 0.9
STEP_SIZE = 0.02
STOP_STEP_SIZE = 0.1
NEAR = 0.6
RESTS = 0.1
"""An obstacle is met at a front infrared distance above NEAR; the robot rests below RESTS rad/s."""
LIGHT_GAMMA = 0.95
TURNING_RANGE = (-5.4, 5.4)
"""Range of the rotational velocity, in rad/s; an observation is scaled to [0, 1]."""
LONGEST_BOUT = 10  # steps: the behaviour takes no action for longer than 1 s
LONGEST_TEST = 100
WANDER_STEPS = 30
RUN_STEPS = 50
LAST_SECOND = 10
N_HEADINGS = 8
SEEKERS = ("found", "by hand", "random")
FLOORS = (0.5, 1.0, 2.0)
"""Factors on the friction of the wheels' axles while the robot turns, in the order of the life."""
SPIN_STEPS = 15
REST_STEPS = 3
TUNED_ON = (100,)


class Size(NamedTuple):
    """Steps of a life, and the excursions of each test."""

    life: int
    tests: int


SIZES = {"paper": Size(61_200, 200), "quick": Size(900, 16)}


def longest_stretch(is_taken: Bools) -> int:
    """Return the largest number of steps in a row that are true, of shape (n_steps,)."""
    breaks = np.flatnonzero(~is_taken)
    return int(np.diff(breaks, prepend=-1, append=len(is_taken)).max()) - 1


# ---- the life that wanders ------------------------------------------------------------------------------------------


class Wanderer(StickyRandom):
    """The sticky random behaviour, which ends each bout of an action after `LONGEST_BOUT` steps."""

    _n = 0

    def draw(self, rng: np.random.Generator, *_state: Any) -> tuple[int, float]:
        """Return the next action and its probability, whatever the state."""
        p = self.probabilities()
        last = self.last_action
        if last is not None and self._n >= LONGEST_BOUT:
            p[last] = 0.0
            p /= p.sum()
        self.last_action, b = draw_from(p, rng)
        if self.last_action == last:
            self._n = self._n + 1
        else:
            self._n = 1
        return self.last_action, b


def until_obstacle(interface: Interface) -> StateFunction:
    """Return the continuation 1 until something is near in front of the robot."""
    front = interface.index("ir_distance_0")
    return lambda observation, _tiles: float(observation[front] <= NEAR)


def light_seeker(interface: Interface) -> PolicyFunction:
    """Return the policy written by hand: turn until the front light is the brightest, then drive if nothing is near."""
    lights = [interface.index(f"light_{k}") for k in range(4)]
    front = interface.index("ir_distance_0")
    names = ("forward", "rotate_counterclockwise", "rotate_clockwise", "stop")
    action_forward, action_left, action_right, action_stop = map(interface.actions.index, names)

    def probabilities(observation: Floats, _tiles: Tiles) -> Floats:
        brightest = int(np.argmax(observation[lights]))
        ahead = action_stop
        if observation[front] < 0.5:
            ahead = action_forward
        if brightest == 0:
            action = ahead
        elif brightest <= 2:
            action = action_left
        else:
            action = action_right
        return np.asarray(np.eye(len(interface.actions))[action])

    return PolicyFunction(probabilities, len(interface.actions))


class Wandering(NamedTuple):
    """A life that wanders, and n test excursions of either kind after it, the second ones by heading in turn."""

    ms: Floats  # processor time per step, means over 1,000 steps, in milliseconds
    # Longest stretches of steps with the target policy's action: forward, light, shape (2,)
    longest: Integers
    # Steps until the obstacle, 0 if it was not met within `LONGEST_TEST` steps, shape (n,)
    time: Integers
    # Prediction at each step of going forward, NaN after the obstacle, shape (n, LONGEST_TEST)
    predicted: Floats
    # Mean front light in the last second of runs of `SEEKERS` from the same starts, shape (n, 3)
    light: Floats
    returns: Floats  # discounted light of these runs, shape (n, 3)
    value: Floats  # the demon's value at their starts, shape (n,)
    regression_nmse: float  # NMSE of ridge regression of the times, each by all other approaches


class Tester:
    """Drives a robot after its life, when it no longer learns."""

    def __init__(
        self, env: Any, horde: Horde, interface: Interface, rng: np.random.Generator
    ) -> None:
        self._env = env
        self._horde = horde
        self._interface = interface
        self._rng = rng
        self._body = RobotBody(env)
        self._wanderer = Wanderer(len(interface.actions))
        self._move(interface.actions.index("stop"))

    def _move(self, action: int) -> None:
        observation, _, _, _, self._info = self._env.step(action)
        self._observation = observation.astype(np.float64)
        self._tiles = self._interface.encode(observation)

    def _predict(self, name: str) -> float:
        return float(self._horde.predict(self._tiles)[self._horde.names.index(name)])

    def approach(self) -> tuple[int, Floats, Tiles]:
        """Wander, then go forward; return the steps until the obstacle, the predictions, and the tiles at the start."""
        for _ in range(WANDER_STEPS):
            self._move(self._wanderer.draw(self._rng)[0])
        predicted = np.full(LONGEST_TEST, np.nan)
        goes_on = until_obstacle(self._interface)
        start = self._tiles
        for k in range(LONGEST_TEST):
            predicted[k] = self._predict("obstacle")
            self._move(self._interface.actions.index("forward"))
            if not goes_on(self._observation, self._tiles):
                return k + 1, predicted, start
        return 0, predicted, start

    def face(self, number: int) -> None:
        """Drive to the centre and turn to one of the headings."""
        self._env.reset(options={"manoeuvre": "centre"})
        heading = 2 * np.pi * number / N_HEADINGS
        for _ in range(LONGEST_TEST):
            self._move(self._interface.actions.index("rotate_clockwise"))
            away = (self._info["heading_rad"] - heading + np.pi) % (2 * np.pi) - np.pi
            if abs(away) < np.pi / N_HEADINGS:
                break
        for _ in range(LAST_SECOND):
            self._move(self._interface.actions.index("stop"))

    def seek(self, policies: list[Policy]) -> tuple[float, Floats, Floats]:
        """Return the value here, and the light of the last second and the return of a run of each policy."""
        state = self._body.save_state()
        front = self._interface.index("light_0")
        start = (self._observation, self._tiles)
        value = self._predict("light")
        light = np.zeros((len(policies), RUN_STEPS))
        for policy, of_run in zip(policies, light, strict=True):
            self._body.restore_state(state)
            self._observation, self._tiles = start
            for k in range(RUN_STEPS):
                self._move(
                    draw_from(policy.probabilities(self._observation, self._tiles), self._rng)[0]
                )
                of_run[k] = self._observation[front]
        return (
            value,
            light[:, -LAST_SECOND:].mean(axis=1),
            light @ LIGHT_GAMMA ** np.arange(RUN_STEPS),
        )


@cached(Wandering)
def wander(_study: ExperimentContext, seed: int, size: Size) -> Wandering:
    """Live the life that wanders, and test its predictions and policy."""
    env = make_body("simulator", physics="planar")
    interface = Interface.of(env)
    n = len(interface.actions)
    forward = interface.actions.index("forward")
    questions = [
        GVF(
            "obstacle",
            ConstantAction(forward, n),
            lambda *_: 1.0,
            until_obstacle(interface),
            lam=LAM,
        ),
        GVF("light", Greedy(n), Channel(interface.index("light_0")), LIGHT_GAMMA, lam=LAM),
    ]
    horde = new_horde(interface, questions, config=LearnerConfig(step_size=STEP_SIZE))
    rng = np.random.default_rng(seed)
    steps: list[tuple[bool, bool, float]] = []

    def measure(event: StepEvent) -> None:
        """Note whether the actions of the target policies are taken, and the processor's time."""
        row = event.row
        if row.phase == Phase.BEHAVE:
            values = horde.action_values("light", interface.encode(row.observation))
            steps.append(
                (row.action == forward, row.action == int(values.argmax()), time.process_time())
            )

    began = time.process_time()
    block = min(1_000, size.life // 6)
    with watched_life(env, horde, Wanderer(n), rng, interface, measure) as life:
        life.run(size.life)
    *are_taken, at_s = map(np.array, zip(*steps, strict=True))
    ms = 1e3 * np.diff(at_s[block - 1 :: block], prepend=began) / block
    longest = np.array([longest_stretch(is_taken) for is_taken in are_taken])
    tester = Tester(env, horde, interface, rng)
    approaches = [tester.approach() for _ in range(size.tests)]
    policies = [horde.questions[1].target_policy, light_seeker(interface), Uniform(n)]
    runs = []
    for k in range(size.tests):
        tester.face(k % N_HEADINGS)
        runs.append(tester.seek(policies))
    env.close()
    times, predicted, tiles = (np.array(column) for column in zip(*approaches, strict=True))
    value, light, returns = (np.array(column) for column in zip(*runs, strict=True))
    regression = regression_nmse(tiles[times > 0], times[times > 0])
    return Wandering(ms, longest, times, predicted, light, returns, value, regression)


def regression_nmse(tiles: Tiles, times: Integers) -> float:
    """Return the NMSE of the best of four ridge regressions of times, (n,), on tiles, (n, n_active), leaving one out.

    With K = X X' + eta I and a = K^-1 y the error of a row that was left out is a_i / (K^-1)_ii.
    """
    if len(times) < 2 or times.var() == 0:
        return float("nan")
    shared = np.array(
        [[np.isin(row, other).sum() for other in tiles] for row in tiles], dtype=np.float64
    )
    inverses = [
        np.linalg.inv(shared + ridge * tiles.shape[1] * np.eye(len(tiles))) for ridge in RIDGES
    ]
    errors = [inverse @ (times - times.mean()) / np.diag(inverse) for inverse in inverses]
    return float(min((error**2).mean() for error in errors) / times.var())


# ---- the life that spins and stops ----------------------------------------------------------------------------------


class Spinner:
    """Spin in either direction, then stop until the robot rests."""

    def __init__(self, interface: Interface) -> None:
        self._spins = [
            interface.actions.index(f"rotate_{way}") for way in ("clockwise", "counterclockwise")
        ]
        self.stop = interface.actions.index("stop")
        self._is_moving = until_rest(interface)
        self._action = self.stop
        self._left = 0
        self._n_rested = 0

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Return the next action and its probability; `observation` of shape (n_channels,), `tiles` (n_active,)."""
        if self._left > 0:
            self._left -= 1
            return self._action, 1.0
        if self._action == self.stop and not self._is_moving(observation, tiles):
            self._n_rested += 1
            if self._n_rested > REST_STEPS:
                self._action = self._spins[int(rng.integers(2))]
                self._left = SPIN_STEPS - 1
                self._n_rested = 0
                return self._action, 0.5
        self._action = self.stop
        return self.stop, 1.0

    def forget(self) -> None:
        """Begin with a stop."""
        self._action = self.stop
        self._left = 0
        self._n_rested = 0


def until_rest(interface: Interface) -> StateFunction:
    """Return the continuation 1 until the robot no longer turns."""
    turning = interface.index("rotational_velocity")
    low, high = TURNING_RANGE
    return lambda observation, _tiles: float(abs(low + (high - low) * observation[turning]) > RESTS)


class Stops(NamedTuple):
    """All complete stops of a life in order: prediction and steps until rest, floor, longest stretch of stopping."""

    predicted: Floats
    time: Integers
    floor: Integers
    longest: int


@cached(Stops)
def spin(_study: ExperimentContext, seed: int, size: Size) -> Stops:
    """Live the life that spins and stops."""
    per_floor = size.life // len(FLOORS)
    ways = ("clockwise", "counterclockwise")
    changes = [
        (0.1 * k * per_floor, way, factor) for k, factor in enumerate(FLOORS) for way in ways
    ]
    env = make_body("simulator", physics="planar", friction_changes=changes)
    interface = Interface.of(env)
    behaviour = Spinner(interface)
    policy = ConstantAction(behaviour.stop, len(interface.actions))
    questions = [GVF("rest", policy, lambda *_: 1.0, until_rest(interface), lam=LAM)]
    horde = new_horde(interface, questions, config=LearnerConfig(step_size=STOP_STEP_SIZE))
    is_moving = until_rest(interface)
    no_tiles = np.zeros(0, dtype=np.int64)
    steps: list[tuple[bool, bool, float]] = []

    def measure(event: StepEvent) -> None:
        """Note whether the robot stops and whether it still moves, and its prediction."""
        row = event.row
        if row.phase == Phase.BEHAVE:
            moves = is_moving(row.observation.astype(np.float64), no_tiles) > 0
            steps.append(
                (row.action == behaviour.stop, moves, float(event.life.student.predictions[0]))
            )

    with watched_life(env, horde, behaviour, seed, interface, measure) as life:
        life.run(size.life)
    env.close()
    stops, moves, predicted = map(np.array, zip(*steps, strict=True))
    rests = np.flatnonzero(~moves)
    begins = np.flatnonzero(stops & ~np.append(False, stops[:-1]) & moves)
    begins = begins[begins < rests.max(initial=-1)]
    ends = rests[np.searchsorted(rests, begins)]
    return Stops(predicted[begins], ends - begins, begins // per_floor, longest_stretch(stops))


class Data(NamedTuple):
    """The lives of each kind, one per seed, and their size."""

    wanderings: list[Wandering]
    stops: list[Stops]
    size: Size


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Live both lives of each seed."""
    size = SIZES[context.scale]
    jobs = {
        ("wander", s): Job(f"wandering, seed {s}", wander, (context, s, size), 2.0)
        for s in context.seeds
    }
    jobs |= {
        ("spin", s): Job(f"stopping, seed {s}", spin, (context, s, size)) for s in context.seeds
    }
    results = context.in_parallel(jobs)
    wanderings, stops = ([results[kind, s] for s in context.seeds] for kind in ("wander", "spin"))
    return Data(wanderings, stops, size), {
        "tried on seeds": TUNED_ON,
        "steps of a life": size.life,
        "excursions of a test": size.tests,
        "lambda": LAM,
        "alpha, wandering and stopping": f"{STEP_SIZE:g} and {STOP_STEP_SIZE:g} / active tiles",
        "alpha of Greedy-GQ": "the rule's default",
        "gamma of the light": LIGHT_GAMMA,
    }
