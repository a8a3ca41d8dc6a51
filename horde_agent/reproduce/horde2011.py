"""Experiment `horde2011`: long predictions and a goal-seeking policy, learned while the robot does something else.

One life wanders, and learns the time until an obstacle is met going forward, and to seek the light. Another one spins
and stops on three floors, for which friction settings stand, and learns the time until it rests.

Source: Sutton, Modayil, Delp, Degris, Pilarski, White & Precup (2011), Horde. Only the abstract could be read: a claim
is the shape of a result.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, StateFunction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.life.robot import RobotBody
from horde_agent.life.worker import InPlace
from horde_agent.policies import ConstantAction, Greedy, Policy, PolicyFunction, StickyRandom, Uniform, draw_from
from horde_agent.record import Phase
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lives import new_horde
from horde_agent.reproduce.measures import rank_correlation
from horde_agent.reproduce.study import Job, OnProgress, Study, cached
from horde_agent.types import Floats, Integers, Tiles

LAM, STEP_SIZE, STOP_STEP_SIZE = 0.9, 0.02, 0.1
NEAR, RESTS = 0.6, 0.1
"""An obstacle is met at a front infrared distance above NEAR; the robot rests below RESTS rad/s."""
LIGHT_GAMMA = 0.95
LONGEST_BOUT = 10  # steps: the behaviour takes no action for longer than 1 s
LONGEST_TEST, WANDER_STEPS = 100, 30
RUN_STEPS, LAST_SECOND = 50, 10
N_HEADINGS = 8
FLOORS = (0.5, 1.0, 2.0)
"""Factors on the friction of the wheels' axles while the robot turns, in the order of the life."""
SPIN_STEPS, REST_STEPS = 15, 3
LEARNED_STOPS, STOPS_TO_ADAPT = 500, 200
TUNED_ON = (100,)


class Size(NamedTuple):
    """Steps of a life, and the excursions of each test."""

    life: int
    tests: int

    @property
    def block(self) -> int:
        """Steps over which the cost of a step is averaged."""
        return min(1_000, self.life // 6)


SIZES = {"paper": Size(61_200, 200), "quick": Size(900, 16)}

# ---- the life that wanders ------------------------------------------------------------------------------------------


class Wanderer(StickyRandom):
    """The sticky random behaviour, which ends each bout of an action after `LONGEST_BOUT` steps."""

    _n = 0

    def draw(
        self,
        rng: np.random.Generator,
        observation: NDArray[Any] | None = None,  # noqa: ARG002
        tiles: Tiles | None = None,  # noqa: ARG002
    ) -> tuple[int, float]:
        """Return the next action and its probability; `observation` of shape (n_channels,), `tiles` (n_active,)."""
        p, last = self.probabilities(), self.last_action
        if last is not None and self._n >= LONGEST_BOUT:
            p[last] = 0.0
            p /= p.sum()
        self.last_action, b = draw_from(p, rng)
        self._n = self._n + 1 if self.last_action == last else 1
        return self.last_action, b


def one_per_step(_observation: Floats, _tiles: Tiles) -> float:
    """Return the cumulant of a time: 1 per step, whatever the observation, (n_channels,), and tiles, (n_active,)."""
    return 1.0


def until_obstacle(interface: Interface) -> StateFunction:
    """Return the continuation 1 until something is near in front of the robot."""
    front = interface.index("ir_distance_0")
    return lambda observation, _tiles: float(observation[front] <= NEAR)


def light_seeker(interface: Interface) -> PolicyFunction:
    """Return the policy written by hand: turn until the front light is the brightest, then drive if nothing is near."""
    lights, front = [interface.index(f"light_{k}") for k in range(4)], interface.index("ir_distance_0")
    forward, left, right, stop = (interface.actions.index(name) for name in ACTIONS)

    def probabilities(observation: Floats, _tiles: Tiles) -> Floats:
        brightest = int(np.argmax(observation[lights]))
        ahead = forward if observation[front] < 0.5 else stop
        action = ahead if brightest == 0 else left if brightest <= 2 else right
        return np.asarray(np.eye(len(interface.actions))[action])

    return PolicyFunction(probabilities, len(interface.actions))


ACTIONS = ("forward", "rotate_counterclockwise", "rotate_clockwise", "stop")


SEEKERS = ("found", "by hand", "random")


class Wandering(NamedTuple):
    """A life that wanders, and n test excursions of either kind after it."""

    ms: Floats  # processor time per step, means over `Size.block` steps, in milliseconds
    longest: Integers  # longest stretches of steps with the target policy's action: forward, light, shape (2,)
    time: Integers  # steps until the obstacle, 0 if it was not met within `LONGEST_TEST` steps, shape (n,)
    predicted: Floats  # prediction at each step of going forward, NaN after the obstacle, shape (n, LONGEST_TEST)
    light: Floats  # mean front light in the last second of runs of `SEEKERS` from the same starts, shape (n, 3)
    returns: Floats  # discounted light of these runs, shape (n, 3)
    value: Floats  # the demon's value at their starts, shape (n,)
    heading: Integers  # number of their heading, shape (n,)


class Stretches(LifeHooks):
    """Measures the cost of steps, and how long the behaviour takes the actions of target policies."""

    def __init__(self, horde: Horde, forward: int, block: int) -> None:
        self._horde, self._block = horde, block
        self._forward, self._began = forward, time.process_time()
        self.ms: list[float] = []
        self._now, self.longest = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)

    def after_step(self, event: StepEvent) -> None:
        """Count."""
        row, life = event.row, event.life
        if row.phase != Phase.BEHAVE:
            return
        values = self._horde.action_values("light", life.interface.encode(row.observation))
        is_taken = np.array([row.action == self._forward, row.action == int(values.argmax())])
        self._now = np.where(is_taken, self._now + 1, 0)
        self.longest = np.maximum(self.longest, self._now)
        if life.steps % self._block == 0:
            now = time.process_time()
            self.ms.append(1e3 * (now - self._began) / self._block)
            self._began = now


class Tester:
    """Drives a robot after its life, when it no longer learns."""

    def __init__(self, env: Any, horde: Horde, interface: Interface, rng: np.random.Generator) -> None:
        self._env, self._horde, self._interface, self._rng = env, horde, interface, rng
        self._body, self._wanderer = RobotBody(env), Wanderer(len(interface.actions))
        self._move(interface.actions.index("stop"))

    def _move(self, action: int) -> None:
        observation, _, _, _, self._info = self._env.step(action)
        self._observation = observation.astype(np.float64)
        self._tiles = self._interface.encode(observation)

    def _predict(self, name: str) -> float:
        return float(self._horde.predict(self._tiles)[self._horde.names.index(name)])

    def approach(self) -> tuple[int, Floats]:
        """Wander, then go forward; return the steps until the obstacle, and the predictions; see `Wandering`."""
        for _ in range(WANDER_STEPS):
            self._move(self._wanderer.draw(self._rng)[0])
        predicted, goes_on = np.full(LONGEST_TEST, np.nan), until_obstacle(self._interface)
        for k in range(LONGEST_TEST):
            predicted[k] = self._predict("obstacle")
            self._move(self._interface.actions.index("forward"))
            if not goes_on(self._observation, self._tiles):
                return k + 1, predicted
        return 0, predicted

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
        state, front = self._body.save_state(), self._interface.index("light_0")
        start, value = (self._observation, self._tiles), self._predict("light")
        light = np.zeros((len(policies), RUN_STEPS))
        for policy, of_run in zip(policies, light, strict=True):
            self._body.restore_state(state)
            self._observation, self._tiles = start
            for k in range(RUN_STEPS):
                self._move(draw_from(policy.probabilities(self._observation, self._tiles), self._rng)[0])
                of_run[k] = self._observation[front]
        return value, light[:, -LAST_SECOND:].mean(axis=1), light @ LIGHT_GAMMA ** np.arange(RUN_STEPS)


@cached(Wandering)
def wander(_on_progress: OnProgress, _study: Study, seed: int, size: Size) -> Wandering:
    """Live the life that wanders, and test what it learned; a job for a worker process."""
    env = make_body("simulator", physics="planar")
    interface = Interface.of(env)
    n, forward = len(interface.actions), interface.actions.index("forward")
    asked = [
        GVF("obstacle", ConstantAction(forward, n), one_per_step, until_obstacle(interface), lam=LAM),
        GVF("light", Greedy(n), Channel(interface.index("light_0")), LIGHT_GAMMA, lam=LAM),
    ]
    horde = new_horde(interface, asked, config=LearnerConfig(step_size=STEP_SIZE))
    cost, rng = Stretches(horde, forward, size.block), np.random.default_rng(seed)
    _live(env, horde, Wanderer(n), rng, interface, cost, size.life)
    tester = Tester(env, horde, interface, rng)
    approaches = [tester.approach() for _ in range(size.tests)]
    policies = [horde.questions[1].target_policy, light_seeker(interface), Uniform(n)]
    runs, headings = [], np.arange(size.tests) % N_HEADINGS
    for heading in headings:
        tester.face(int(heading))
        runs.append(tester.seek(policies))
    env.close()
    times, predicted = (np.array(column) for column in zip(*approaches, strict=True))
    value, light, returns = (np.array(column) for column in zip(*runs, strict=True))
    return Wandering(np.array(cost.ms), cost.longest, times, predicted, light, returns, value, headings)


def _live(
    env: Any, horde: Horde, behaviour: Any, rng: np.random.Generator, interface: Interface, hook: LifeHooks, steps: int
) -> None:
    tests = ExcursionConfig(0.0)
    with Life(
        env, horde, behaviour, rng, interface=interface, excursions=tests, observers=[hook], worker=InPlace()
    ) as life:
        life.run(steps)


# ---- the life that spins and stops ----------------------------------------------------------------------------------


class Spinner:
    """Spin in either direction, then stop until the robot rests."""

    def __init__(self, interface: Interface) -> None:
        self._spins = [interface.actions.index(f"rotate_{way}") for way in ("clockwise", "counterclockwise")]
        self.stop, self._is_moving = interface.actions.index("stop"), until_rest(interface)
        self._action, self._left, self._n_rested = self.stop, 0, 0

    def draw(self, rng: np.random.Generator, observation: Floats, tiles: Tiles) -> tuple[int, float]:
        """Return the next action and its probability; `observation` of shape (n_channels,), `tiles` (n_active,)."""
        if self._left > 0:
            self._left -= 1
            return self._action, 1.0
        if self._action == self.stop and not self._is_moving(observation, tiles):
            self._n_rested += 1
            if self._n_rested > REST_STEPS:
                self._action, self._left, self._n_rested = self._spins[int(rng.integers(2))], SPIN_STEPS - 1, 0
                return self._action, 0.5
        self._action = self.stop
        return self.stop, 1.0

    def forget(self) -> None:
        """Begin with a stop."""
        self._action, self._left, self._n_rested = self.stop, 0, 0


def until_rest(interface: Interface) -> StateFunction:
    """Return the continuation 1 until the robot no longer turns."""
    turning = interface.index("rotational_velocity")
    low, high = TURNING_RANGE
    return lambda observation, _tiles: float(abs(low + (high - low) * observation[turning]) > RESTS)


TURNING_RANGE = (-5.4, 5.4)
"""Of the rotational velocity, in rad/s; an observation is scaled to [0, 1]."""


class Stops(NamedTuple):
    """All complete stops of a life in order: prediction and steps until rest, floor, longest stretch of stopping."""

    predicted: Floats
    time: Integers
    floor: Integers
    longest: int


class StopWatch(LifeHooks):
    """Records the prediction at the beginning of each stop, and how long the robot takes to rest."""

    def __init__(self, behaviour: Spinner, interface: Interface, steps_per_floor: int) -> None:
        self._stop, self._is_moving = behaviour.stop, until_rest(interface)
        self._per_floor, self._began, self._since = steps_per_floor, -1, 0
        self._prediction, self.longest = 0.0, 0
        self.stops: list[tuple[float, int, int]] = []

    def after_step(self, event: StepEvent) -> None:
        """Note a stop."""
        row, life = event.row, event.life
        if row.phase != Phase.BEHAVE:
            return
        rests = not self._is_moving(row.observation.astype(np.float64), np.zeros(0, dtype=np.int64))
        if self._began >= 0 and rests:
            self.stops.append((self._prediction, row.step - self._began, self._began // self._per_floor))
            self._began = -1
        self._since = self._since + 1 if row.action == self._stop else 0
        self.longest = max(self.longest, self._since)
        if self._since == 1 and not rests:
            self._began, self._prediction = row.step, float(life.student.predictions[0])


@cached(Stops)
def spin(_on_progress: OnProgress, _study: Study, seed: int, size: Size) -> Stops:
    """Live the life that spins and stops; a job for a worker process."""
    per_floor = size.life // len(FLOORS)
    ways = ("clockwise", "counterclockwise")
    changes = [(0.1 * k * per_floor, way, factor) for k, factor in enumerate(FLOORS) for way in ways]
    env = make_body("simulator", physics="planar", friction_changes=changes)
    interface = Interface.of(env)
    behaviour = Spinner(interface)
    policy = ConstantAction(behaviour.stop, len(interface.actions))
    asked = [GVF("rest", policy, one_per_step, until_rest(interface), lam=LAM)]
    horde = new_horde(interface, asked, config=LearnerConfig(step_size=STOP_STEP_SIZE))
    watch = StopWatch(behaviour, interface, per_floor)
    _live(env, horde, behaviour, np.random.default_rng(seed), interface, watch, size.life)
    env.close()
    predicted, times, floors = np.array(watch.stops).reshape(-1, 3).T
    return Stops(predicted, times.astype(np.int64), floors.astype(np.int64), watch.longest)


# ---- all of it ------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """The lives of each kind, one per seed, and their size."""

    wanderings: list[Wandering]
    stops: list[Stops]
    size: Size


def gather(study: Study) -> Data:
    """Live both lives of each seed."""
    size = SIZES[study.scale]
    jobs = [Job(f"wandering, seed {s}", wander, (study, s, size), 2.0) for s in study.seeds]
    jobs += [Job(f"stopping, seed {s}", spin, (study, s, size)) for s in study.seeds]
    found, n = study.in_parallel(jobs), len(study.seeds)
    return Data(found[:n], found[n:], size)


# ---- claims ----------------------------------------------------------------------------------------------------------


MOST_NMSRE, LEAST_RANK, LEAST_SHARE = 0.5, 0.8, 0.8
MOST_OFF, LEAST_CLOSED = 0.2, 0.5
LEAST_OF_HAND, LEAST_OF_RANDOM, LEAST_HEADINGS, LEAST_VALUE_RANK = 0.9, 1.5, 7, 0.6
MOST_GROWTH = 0.05
STEPS_RANKED = 5  # least length of an approach whose predictions are ranked
STOPS_MEANT = 20  # stops that a prediction is averaged over


def _approach_errors(life: Wandering) -> tuple[float, float]:
    """Return the NMSE of the predictions at the start, and the share of approaches along which they fall."""
    met = life.time > 0
    times, predicted = life.time[met].astype(np.float64), life.predicted[met]
    nmse = float(((predicted[:, 0] - times) ** 2).mean() / times.var()) if met.any() and times.var() > 0 else np.inf
    ranks = [
        rank_correlation(y[: int(n)], n - np.arange(n))
        for y, n in zip(predicted, times, strict=True)
        if n >= STEPS_RANKED
    ]
    return nmse, float(np.mean(np.array(ranks) >= LEAST_RANK)) if ranks else 0.0


CLAIMS = Claims("Sutton et al. (2011)")


@CLAIMS.add(
    "The time until an obstacle is met is learned off-policy.",
    "the shape only",
    f"NMSE against the measured times at most {MOST_NMSRE:g}; in at least {LEAST_SHARE:.0%} of the excursions of "
    f"{STEPS_RANKED} steps or more Spearman's correlation of prediction and time left is at least {LEAST_RANK:g}.",
)
def _obstacle(data: Data) -> Finding:
    errors, falls = zip(*map(_approach_errors, data.wanderings), strict=True)
    missed = sum(int((life.time == 0).sum()) for life in data.wanderings)
    error, share = mean_ci(errors), mean_ci(falls)
    return Finding(
        f"NMSE at the start of an excursion {error}; share of the excursions along which the prediction falls {share}. "
        f"Without an obstacle within {LONGEST_TEST} steps, left out: {missed} of "
        f"{len(data.wanderings) * data.size.tests}.",
        [error.mean <= MOST_NMSRE, share.mean >= LEAST_SHARE],
        _obstacle_cause(data),
    )


# Measured once, on seeds that are not judged.
_FEATURES_SUFFICE = (
    "The features suffice: on seed 100 ridge regression of the times of other excursions on them has an NMSE of 0.16. "
    "Off-policy learning does not find these weights: with seeds 100, 101 and 102 its NMSE is 0.42, 0.95 and 0.43, "
    "larger with step sizes of .002 to .01, and on seed 101 still 0.71 after four times as many steps, with "
    "predictions that are 6 steps too long in the mean."
)


def _obstacle_cause(data: Data) -> str:
    """Return what differs, measured: bias and correlation of the predictions, and the shortest times."""
    met = [life.time > 0 for life in data.wanderings]
    pairs = [(life.time[m], life.predicted[m, 0]) for life, m in zip(data.wanderings, met, strict=True)]
    bias = join((f"{(predicted - times).mean():.1f}" for times, predicted in pairs))
    correlation = join((f"{np.corrcoef(times, predicted)[0, 1]:.2f}" for times, predicted in pairs))
    at_once = np.mean([np.mean(times == 1) for times, _ in pairs])
    return (
        f"By life, mean error {bias} steps, correlation with the time {correlation}; {at_once:.0%} of the excursions "
        f"begin at an obstacle. {_FEATURES_SUFFICE}"
    )


def late_means(stops: Stops) -> Floats:
    """Return the mean prediction and the mean time of the learned stops of each floor, shape (3, 2)."""
    rows = []
    for floor in range(len(FLOORS)):
        of_floor = np.flatnonzero(stops.floor == floor)
        late = of_floor[min(LEARNED_STOPS, len(of_floor) // 2) :]
        rows.append([stops.predicted[late].mean(), stops.time[late].mean()])
    return np.array(rows)


def gaps_closed(stops: Stops) -> list[float]:
    """Return the share of the gap between two floors' times that predictions closed 200 stops after each change."""
    times, closed = late_means(stops)[:, 1], []
    for floor in range(1, len(FLOORS)):
        of_floor = np.flatnonzero(stops.floor == floor)
        last = min(STOPS_TO_ADAPT, len(of_floor))
        found = stops.predicted[of_floor[max(last - STOPS_MEANT, 0) : last]].mean()
        closed.append(float((found - times[floor - 1]) / (times[floor] - times[floor - 1])))
    return closed


@CLAIMS.add(
    "The time to stop is learned, and tracked when the floor changes.",
    "the shape only; floors are friction settings",
    f"Within {MOST_OFF:.0%} of the mean time after {LEARNED_STOPS} stops, on each floor of each life; "
    f"they are in the right order; at least {LEAST_CLOSED:.0%} of the gap closed {STOPS_TO_ADAPT} stops "
    "after each change.",
)
def _stop(data: Data) -> Finding:
    means = np.array([late_means(stops) for stops in data.stops])
    off = np.abs(means[..., 0] / means[..., 1] - 1.0)
    is_ordered = bool((np.diff(means[..., 0], axis=1) < 0).all())
    closed = np.array([gaps_closed(stops) for stops in data.stops])
    floors = "; ".join(
        f"friction x {factor:g}: {mean_ci(means[:, k, 0])}, measured {mean_ci(means[:, k, 1])}"
        for k, factor in enumerate(FLOORS)
    )
    return Finding(
        f"Predicted steps until rest after {LEARNED_STOPS} stops, {floors}; farthest off {off.max():.0%}. "
        f"Share of the gap closed {STOPS_TO_ADAPT} stops after a change, at least {closed.min():.2f}.",
        [bool((off <= MOST_OFF).all()), is_ordered, bool((closed >= LEAST_CLOSED).all())],
    )


def light_from(data: Data, heading: int) -> Floats:
    """Return the mean light of each of `SEEKERS` from a heading, over all lives, shape (3,)."""
    return np.asarray(np.concatenate([w.light[w.heading == heading] for w in data.wanderings]).mean(axis=0))


def good_headings(data: Data) -> int:
    """Return from how many headings the found policy's light fulfils both ratios."""
    lights = [light_from(data, heading) for heading in range(N_HEADINGS)]
    return sum(light[0] >= max(LEAST_OF_HAND * light[1], LEAST_OF_RANDOM * light[2]) for light in lights)


@CLAIMS.add(
    "A policy that seeks the light is learned from exploring behaviour.",
    "Greedy-GQ from about 61,000 steps",
    f"Front light in the last of 5 s at least {LEAST_OF_HAND:g} times that of the policy written by hand and "
    f"{LEAST_OF_RANDOM:g} times that at random; the same from at least {LEAST_HEADINGS} of {N_HEADINGS} headings; "
    f"rank correlation of value and return at least {LEAST_VALUE_RANK:g}.",
)
def _light(data: Data) -> Finding:
    found, by_hand, at_random = np.mean([w.light.mean(axis=0) for w in data.wanderings], axis=0)
    rank = mean_ci([rank_correlation(w.value, w.returns[:, 0]) for w in data.wanderings])
    n = good_headings(data)
    return Finding(
        f"Mean front light in the last second: {found:.3f} by the policy found, {by_hand:.3f} by the one written by "
        f"hand, {at_random:.3f} at random; both ratios hold from {n} of {N_HEADINGS} headings. Rank correlation of the "
        f"value at the start with the return: {rank}.",
        [
            bool(found >= LEAST_OF_HAND * by_hand and found >= LEAST_OF_RANDOM * at_random),
            n >= LEAST_HEADINGS,
            rank.mean >= LEAST_VALUE_RANK,
        ],
        _light_cause(data),
    )


def _light_cause(data: Data) -> str:
    """Return what differs, measured: the returns that the policies aim at."""
    found, by_hand, at_random = np.mean([w.returns.mean(axis=0) for w in data.wanderings], axis=0)
    return f"Discounted light: {found:.2f} found, {by_hand:.2f} by hand, {at_random:.2f} at random."


@CLAIMS.add(
    "It is off-policy: the behaviour never takes a target policy's action for longer than 1 s.",
    "learned from off-policy experience",
    f"At most {LONGEST_BOUT} steps in a row, for each of the three questions.",
)
def _off_policy(data: Data) -> Finding:
    longest = np.max([[*w.longest, s.longest] for w, s in zip(data.wanderings, data.stops, strict=True)], axis=0)
    said = join((f"{name} {n}" for name, n in zip(("forward", "light", "stop"), longest, strict=True)))
    return Finding(
        f"Most steps in a row with the target policy's action: {said}.",
        [bool(n <= LONGEST_BOUT) for n in longest],
        "A stop takes longer than 1 s where there is little friction." if longest[-1] > LONGEST_BOUT else "",
    )


@CLAIMS.add(
    "A step costs the same at any time of the life.",
    "constant time and memory per step",
    f"Median processor time in the last third of each life at most {MOST_GROWTH:.0%} above that in the first one.",
)
def _constant_cost(data: Data) -> Finding:
    thirds = [
        (np.median(w.ms[: len(w.ms) // 3 + 1]), np.median(w.ms[-(len(w.ms) // 3) - 1 :])) for w in data.wanderings
    ]
    growth = max(float(last / first - 1.0) for first, last in thirds)
    return Finding(
        f"Processor time per step, first and last third of the lives: "
        f"{join(f'{first:.3f} and {last:.3f} ms' for first, last in thirds)}.",
        [growth <= MOST_GROWTH],
    )


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the times to the obstacle, the times to stop, and the light by heading."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3)
    for k, life in enumerate(data.wanderings):
        met = life.time > 0
        left.plot(life.time[met], life.predicted[met, 0], ".", color=COLOURS[k % len(COLOURS)], alpha=0.5)
    left.axline((0, 0), slope=1, color="black", linewidth=0.9)
    style_axes(left, "time to the obstacle", xlabel="measured (steps)", ylabel="predicted at the start (steps)")
    stops = data.stops[0]
    middle.plot(stops.time, ".", color="0.75", markersize=3, label="measured")
    middle.plot(stops.predicted, color=COLOURS[1], linewidth=1.0, label="predicted")
    style_axes(middle, "time to stop, on three floors", legend=True, xlabel="stop", ylabel="steps", ylim=(0, None))
    for k, name in enumerate(SEEKERS):
        light = [
            np.concatenate([w.light[w.heading == h, k] for w in data.wanderings]).mean() for h in range(N_HEADINGS)
        ]
        right.plot(np.arange(N_HEADINGS) * 360 / N_HEADINGS, light, "o-", color=COLOURS[k], label=name)
    labels = {"xlabel": "heading at the start (degrees)", "ylabel": "front light in the last second"}
    style_axes(right, "seeking the light", legend=True, ylim=(0, None), **labels)
    caption = (
        "Left: test excursions going forward, a colour per life. Middle: the first life's stops in order; the friction "
        "changes twice. Right: light after 5 s of the policy found by Greedy-GQ, of one written by hand and of a "
        "random one, means over all lives."
    )
    return [save(canvas, folder / "horde2011.png", caption)]


def tables(data: Data) -> list[Table]:
    """Return the runs of the light seekers by heading."""
    rows: list[dict[str, Cell]] = []
    for heading in range(N_HEADINGS):
        light = dict(zip(SEEKERS, light_from(data, heading).tolist(), strict=True))
        rows.append({"heading (degrees)": 360 * heading // N_HEADINGS, **light})
    return [Table.of("Front light in the last of 5 s, by heading at the start", rows)]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "seeds": study.seed_list,
        "tried on seeds": join(TUNED_ON),
        "steps of a life": data.size.life,
        "excursions of a test": data.size.tests,
        "lambda": LAM,
        "alpha, wandering and stopping": f"{STEP_SIZE:g} and {STOP_STEP_SIZE:g} / active tiles",
        "alpha of Greedy-GQ": "the rule's default",
        "gamma of the light": LIGHT_GAMMA,
    }


REMARKS = [
    "This is the simulated robot (planar engine): a point lamp with a clear path, and friction settings instead of "
    "floors. The features and step sizes are ours.",
    f"With gamma = 1 an excursion must end: it has at most {LONGEST_TEST} steps.",
]
TITLE = "Horde 2011: time to obstacle, time to stop, light seeking"
EXPERIMENT = Experiment("horde2011", TITLE, gather, CLAIMS, pictures, tables, settings, REMARKS)
