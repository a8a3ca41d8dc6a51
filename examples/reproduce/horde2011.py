"""Experiment `horde2011`: long predictions and a goal-seeking policy, learned while the robot does something else.

One life wanders, and learns the time until an obstacle is met going forward, and to seek the light.
Another one spins and stops on three floors, for which friction settings stand, and learns the time
until it rests.

Source: Sutton, Modayil, Delp, Degris, Pilarski, White & Precup (2011), Horde. Only the abstract
could be read: a claim is the shape of a result.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from examples.reproduce.checks import Measured, Number, at_least, at_most, below, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import new_horde, watched_life
from examples.reproduce.offline import RIDGES
from examples.reproduce.runner import Job
from examples.reproduce.stats import join, mean_ci, rank_correlation
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


class Horde2011Size(NamedTuple):
    """Steps of a life, and the excursions of each test."""

    life: int
    tests: int


SIZES = {"paper": Horde2011Size(61_200, 200), "quick": Horde2011Size(900, 16)}


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
def wander(_study: ExperimentContext, seed: int, size: Horde2011Size) -> Wandering:
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
    horde = new_horde(interface, questions, config=LearnerConfig.paper(step_size=STEP_SIZE))
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
def spin(_study: ExperimentContext, seed: int, size: Horde2011Size) -> Stops:
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
    horde = new_horde(interface, questions, config=LearnerConfig.paper(step_size=STOP_STEP_SIZE))
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


class Horde2011Lives(NamedTuple):
    """The lives of each kind, one per seed, and their size."""

    wanderings: list[Wandering]
    stops: list[Stops]
    size: Horde2011Size


def run(context: ExperimentContext) -> tuple[Horde2011Lives, dict[str, object]]:
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
    return Horde2011Lives(wanderings, stops, size), {
        "tried on seeds": TUNED_ON,
        "steps of a life": size.life,
        "excursions of a test": size.tests,
        "lambda": LAM,
        "alpha, wandering and stopping": f"{STEP_SIZE:g} and {STOP_STEP_SIZE:g} / active tiles",
        "alpha of Greedy-GQ": "the rule's default",
        "gamma of the light": LIGHT_GAMMA,
    }


# ---- checks ---------------------------------------------------------------------------------------------------------

STEPS_RANKED = 5
LEAST_RANK = 0.8
"""Least length of an approach whose predictions are ranked, and the correlation from which they fall along it."""
LEARNED_STOPS = 500
STOPS_TO_ADAPT = 200
STOPS_MEANT = 20
"""Stops of a floor that are not judged; those until the gap to a new floor is looked at, over how many of the last."""
OF_HAND = 0.9
OF_RANDOM = 1.5
"""Least light of the policy found, over that by the policy written by hand and over that at random."""


def _nmse(life: Wandering) -> float:
    met = life.time > 0
    times = life.time[met].astype(np.float64)
    if not met.any() or times.var() == 0:
        return float("inf")
    return float(((life.predicted[met, 0] - times) ** 2).mean() / times.var())


def _share_falling(life: Wandering) -> float:
    """Return the share of approaches along which the predictions fall as the time left does."""
    pairs = zip(life.predicted, life.time.tolist(), strict=True)
    ranks = [rank_correlation(y[:n], n - np.arange(n)) for y, n in pairs if n >= STEPS_RANKED]
    if ranks:
        return float(np.mean(np.array(ranks) >= LEAST_RANK))
    return 0.0


@check(
    claim="The time until an obstacle is met is learned off-policy.",
    paper="the shape only",
    source="Sutton et al. (2011)",
    terms=(
        "A prediction falls if Spearman's correlation of prediction and time left is at least "
        f"{LEAST_RANK:g}; excursions of {STEPS_RANKED} steps or more:"
    ),
)
def _time_to_the_obstacle_is_learned(data: Horde2011Lives) -> Measured:
    missed = sum(int((life.time == 0).sum()) for life in data.wanderings)
    nmse, falling = (
        [measure(life) for life in data.wanderings] for measure in (_nmse, _share_falling)
    )
    return Measured(
        [
            Number("NMSE against the measured times", nmse, at_most(0.5)),
            Number("share of excursions along which the prediction falls", falling, at_least(0.8)),
        ],
        f"Without an obstacle within {LONGEST_TEST} steps, left out: {missed} of "
        f"{len(data.wanderings) * data.size.tests}.",
        lambda: _obstacle_cause(data),
    )


def _obstacle_cause(data: Horde2011Lives) -> str:
    """Return what differs, measured: bias and correlation of the predictions, and what the features allow."""
    met = [life.time > 0 for life in data.wanderings]
    pairs = [
        (life.time[m], life.predicted[m, 0]) for life, m in zip(data.wanderings, met, strict=True)
    ]
    at_once = np.mean([np.mean(times == 1) for times, _ in pairs])
    return (
        f"By life, mean error {join(((y - times).mean() for times, y in pairs), '.1f')} steps, correlation with the "
        f"time {join((np.corrcoef(times, y)[0, 1] for times, y in pairs), '.2f')}; {at_once:.0%} of the excursions "
        "begin at an obstacle. Ridge regression of the other excursions' times on the same features has an NMSE of "
        f"{join((life.regression_nmse for life in data.wanderings), '.2f')}."
    )


def late_means(stops: Stops) -> Floats:
    """Return the mean prediction and the mean time of the learned stops of each floor, shape (3, 2)."""
    floors = [stops.floor == k for k in range(len(FLOORS))]
    pairs = [(stops.predicted[floor], stops.time[floor]) for floor in floors]
    return np.array(
        [[of[min(LEARNED_STOPS, len(of) // 2) :].mean() for of in pair] for pair in pairs]
    )


def gaps_closed(stops: Stops) -> list[float]:
    """Return the share of the gap between two floors' times that predictions closed 200 stops after each change."""
    times = late_means(stops)[:, 1]
    closed = []
    for floor in range(1, len(FLOORS)):
        settled_time = stops.predicted[stops.floor == floor][:STOPS_TO_ADAPT][-STOPS_MEANT:].mean()
        closed.append(float((settled_time - times[floor - 1]) / (times[floor] - times[floor - 1])))
    return closed


@check(
    claim="The time to stop is learned, and tracked when the floor changes.",
    paper="the shape only; floors are friction settings",
    source="Sutton et al. (2011)",
    terms=(
        f"After {LEARNED_STOPS} stops on each floor, and {STOPS_TO_ADAPT} stops after each "
        "change, in each life:"
    ),
)
def _time_to_stop_is_tracked(data: Horde2011Lives) -> Measured:
    means = np.array([late_means(stops) for stops in data.stops])
    floors = "; ".join(
        f"friction x {factor:g}: {mean_ci(means[:, k, 0])}, measured {mean_ci(means[:, k, 1])}"
        for k, factor in enumerate(FLOORS)
    )
    error = np.abs(means[..., 0] / means[..., 1] - 1.0).max()
    closed = min(map(min, map(gaps_closed, data.stops)))
    return Measured(
        [
            Number("largest error of a predicted mean time", error, at_most(0.2), ".0%"),
            Number(
                "largest change of the mean prediction to the next floor",
                np.diff(means[..., 0]).max(),
                below(0.0),
            ),
            Number("least share of the gap to the new time closed", closed, at_least(0.5)),
        ],
        f"Predicted steps until rest, {floors}.",
    )


def light_from(data: Horde2011Lives, heading: int) -> Floats:
    """Return the mean light of each of `SEEKERS` from a heading, over all lives, shape (3,)."""
    lights = [life.light[heading::N_HEADINGS] for life in data.wanderings]
    return np.asarray(np.concatenate(lights).mean(axis=0))


@check(
    claim="A policy that seeks the light is learned from exploring behaviour.",
    paper="Greedy-GQ from about 61,000 steps",
    source="Sutton et al. (2011)",
    terms=(
        f"Front light in the last of 5 s; demanded is {OF_HAND:g} times the light of the policy "
        f"written by hand or {OF_RANDOM:g} times the light at random, whichever is more:"
    ),
)
def _light_is_sought(data: Horde2011Lives) -> Measured:
    def over_limit(light: Floats) -> float:
        demanded = max(OF_HAND * light[1], OF_RANDOM * light[2])
        if demanded > 0.0:
            return float(light[0] / demanded)
        return np.inf

    light, returns = (
        np.mean([of_life.mean(axis=0) for of_life in each], axis=0)
        for each in zip(*((w.light, w.returns) for w in data.wanderings), strict=True)
    )
    n = sum(over_limit(light_from(data, heading)) >= 1.0 for heading in range(N_HEADINGS))
    ranks = [rank_correlation(w.value, w.returns[:, 0]) for w in data.wanderings]
    return Measured(
        [
            Number("mean light over the demanded light", over_limit(light), at_least(1.0)),
            Number(
                f"headings, of {N_HEADINGS}, with at least the demanded light",
                n,
                at_least(7),
            ),
            Number(
                "rank correlation of the value at the start with the return", ranks, at_least(0.6)
            ),
        ],
        f"Mean light {join(f'{y:.3f} {name}' for name, y in zip(SEEKERS, light, strict=True))}.",
        f"Discounted light: {join(f'{y:.2f} {name}' for name, y in zip(SEEKERS, returns, strict=True))}.",
    )


@check(
    claim=(
        "It is off-policy: the behaviour never takes a target policy's action for longer than 1 s."
    ),
    paper="learned from off-policy experience",
    source="Sutton et al. (2011)",
    terms="Most steps in a row with the target policy's action:",
    limit=at_most(LONGEST_BOUT),
)
def _learning_is_off_policy(data: Horde2011Lives) -> Measured:
    longest = np.max(
        [[*w.longest, s.longest] for w, s in zip(data.wanderings, data.stops, strict=True)], axis=0
    )
    forward, light, stop = longest
    cause = ""
    if stop > LONGEST_BOUT:
        cause = "A stop takes longer than 1 s at little friction."
    return Measured({"forward": forward, "light": light, "stop": stop}, cause=cause)


@check(
    claim="A step costs the same at any time of the life.",
    paper="constant time and memory per step",
    source="Sutton et al. (2011)",
    terms="Median processor time per step in a third of the life:",
    limit=at_most(0.05),
    form=".1%",
)
def _cost_is_constant(data: Horde2011Lives) -> Measured:
    series = [(w.ms, len(w.ms) // 3 + 1) for w in data.wanderings]
    thirds = [(np.median(ms[:n]), np.median(ms[-n:])) for ms, n in series]
    growth = max(last / first - 1.0 for first, last in thirds)
    return Measured(
        {"largest growth from the first third to the last": growth},
        f"First and last: {join(f'{first:.3f} and {last:.3f} ms' for first, last in thirds)}.",
    )


REMARKS = [
    "This is the simulated robot (planar engine): a point lamp with a clear path, and friction settings instead of "
    "floors. The features and step sizes are ours.",
    f"With gamma = 1 an excursion must end: it has at most {LONGEST_TEST} steps.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: Horde2011Lives) -> dict[str, Picture]:
    """Draw the times to the obstacle, the times to stop, and the light by heading."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3)
    for k, life in enumerate(data.wanderings):
        met = life.time > 0
        left.plot(
            life.time[met], life.predicted[met, 0], ".", color=COLOURS[k % len(COLOURS)], alpha=0.5
        )
    left.axline((0, 0), slope=1, color="black", linewidth=0.9)
    style_axes(
        left,
        "time to the obstacle",
        xlabel="measured (steps)",
        ylabel="predicted at the start (steps)",
    )
    stops = data.stops[0]
    middle.plot(stops.time, ".", color="0.75", markersize=3, label="measured")
    middle.plot(stops.predicted, color=COLOURS[1], linewidth=1.0, label="predicted")
    style_axes(
        middle,
        "time to stop, on three floors",
        legend=True,
        xlabel="stop",
        ylabel="steps",
        ylim=(0, None),
    )
    for k, name in enumerate(SEEKERS):
        light = [light_from(data, heading)[k] for heading in range(N_HEADINGS)]
        right.plot(
            np.arange(N_HEADINGS) * 360 / N_HEADINGS, light, "o-", color=COLOURS[k], label=name
        )
    labels = {
        "xlabel": "heading at the start (degrees)",
        "ylabel": "front light in the last second",
    }
    style_axes(right, "seeking the light", legend=True, ylim=(0, None), **labels)
    caption = (
        "Left: test excursions going forward, a colour per life. Middle: the first life's stops in order; the friction "
        "changes twice. Right: light after 5 s of the policy found by Greedy-GQ, of one written by hand and of a "
        "random one, means over all lives."
    )
    return {"horde2011": Picture(canvas, caption)}


def tables(data: Horde2011Lives) -> list[Table]:
    """Return the runs of the light seekers by heading."""
    rows = [
        {
            "heading (degrees)": 360 * k // N_HEADINGS,
            **dict(zip(SEEKERS, light_from(data, k), strict=True)),
        }
        for k in range(N_HEADINGS)
    ]
    return [Table.of("Front light in the last of 5 s, by heading at the start", rows)]
