"""The behaviours, the surprise that drives them, and lives that are one until the change."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.measures.online import UDE, UnbiasedTrace
from horde_agent.measures.returns import returns_along
from horde_agent.policies import ConstantAction
from horde_agent.record import Phase
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import new_horde, watched_life
from horde_agent.reproduce.runner import Job
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Tiles

TITLE = "Surprise and curiosity: UDE drives the behaviour"
MINUTE = 600  # steps
GAMMA = 0.8
LAM = 0.9
STEP_SIZE = 0.01
BETA0 = 0.005
FRICTION = 1.75
"""With 1.6 the mean motor current of steady rotation rises by 3.4 of its standard deviations, with 1.75 by 4.3."""
TUNED_ON = (100, 101, 102)
"""Seeds on which step size, BETA0, FRICTION and the normal behaviour were chosen; their lives give what follows."""
THRESHOLD = 0.115
"""UDE threshold: 99th percentile in the last 10 minutes of phase A."""
DELTA_THRESHOLD = 0.0078
"""The same of the mean |rho delta|."""
CURRENT = 0.0285, 0.0331
"""Mean and standard deviation of the cumulant, the mean current of the motors as a share of full scale, in phase A."""

TARGETS = ("rotate_clockwise", "rotate_counterclockwise")
"""Actions of the two questions' policies; the friction of the first changes."""
CHANGED = 0
OTHER = 1
NORMAL = -1
FOLLOW = 0.9  # probability of the followed policy's action; otherwise the robot stops
ROTATE_STEPS = 20
STOP_STEPS = 15

PAIRS = (("curious", "twin"), ("noise, UDE", "noise, |delta|"))
"""Kinds of lives, two of which are one life in phase A: curious or not about the changed robot; curious by UDE or by
|delta|, with white noise as the first cumulant and no change."""


class Size(NamedTuple):
    """Steps of the phases, and the number of seeds."""

    before: int
    after: int
    seeds: int


SIZES = {"paper": Size(30 * MINUTE, 20 * MINUTE, 10), "quick": Size(1_200, 1_200, 1)}


class Bouts:
    """The normal behaviour: rotate for 2 s in either direction, stop for 1.5 s, and so on.

    Bouts are longer than a step, so that b is 1 within a bout: rho is at most 2.
    """

    def __init__(self, rotations: tuple[int, ...], stop: int) -> None:
        self._rotations = rotations
        self.stop = stop
        self._action = stop
        self._left = STOP_STEPS

    def draw(self, rng: np.random.Generator, *_state: Any) -> tuple[int, float]:
        """Return the next action and its probability, whatever the state."""
        b = 1.0
        if self._left == 0 and self._action == self.stop:
            self._action = self._rotations[int(rng.integers(2))]
            self._left = ROTATE_STEPS
            b = 0.5
        elif self._left == 0:
            self.forget()
        self._left -= 1
        return self._action, b

    def forget(self) -> None:
        """Begin with a stop."""
        self._action = self.stop
        self._left = STOP_STEPS


class Record(NamedTuple):
    """One life."""

    # UDE of each question after each step, or its mean |rho delta|, shape (n_steps, 2)

    drive: Floats
    # Question of the policy that takes the taken action, or `NORMAL`, shape (n_steps,)
    taken: Integers
    followed: Integers  # question of the followed policy, or `NORMAL`, shape (n_steps,)
    # Mean squared error of the changed question in a test before each step, NaN without one,
    # (n_steps,)
    error: Floats

    @property
    def tested(self) -> Integers:
        """Steps before which there was a test, shape (n_tests,)."""
        return np.flatnonzero(~np.isnan(self.error))


TEST_EVERY = 50
TESTED_FOR = 10 * MINUTE
"""Steps between two tests, and for how long before and after the change there are tests."""
TEST_STEPS = 50
SCORED = slice(10, 30)
"""Steps of a test, and those of its predictions that are scored: at full speed, with 20 or more terms of the return."""


class Curious(LifeHooks):
    """Follow the target policy of the question with the largest drive, if it is above a threshold; else be normal.

    It measures the drive after each learning step; `is_tested`: it tests the changed question.

    Attributes:
        record: Of the life so far.
        drive: Of each question, shape (2,).
        threshold: Of the drive.
        by_ude: Whether the drive is the UDE, not the mean |rho delta|.
        followed: Question of the last followed policy, or `NORMAL`.
    """

    def __init__(
        self, normal: Bouts, actions: tuple[int, ...], size: Size, *, is_tested: bool = False
    ) -> None:
        self._normal = normal
        self._actions = actions
        self._size = size
        self._is_tested = is_tested
        self.drive = np.zeros(2)
        self.threshold = np.inf
        self.by_ude = True
        self.followed = NORMAL
        self._ude = UDE(2, BETA0)
        self._mean = UnbiasedTrace(2, BETA0)
        self._n = 0
        n = size.before + size.after
        choices, followed = np.zeros((2, n), dtype=np.int64)
        self.record = Record(np.zeros((n, 2)), choices, followed, np.full(n, np.nan))

    def draw(self, rng: np.random.Generator, *_state: Any) -> tuple[int, float]:
        """Return the next action and its probability, whatever the state."""
        first = int(self.drive.argmax())
        if self.drive[first] > self.threshold:
            self.followed = first
        else:
            self.followed = NORMAL
        if self.followed == NORMAL:
            return self._normal.draw(rng)
        self._normal.forget()
        if rng.random() < FOLLOW:
            return (self._actions[first], FOLLOW)
        return (self._normal.stop, 1.0 - FOLLOW)

    def forget(self) -> None:
        """Begin with a stop."""
        self._normal.forget()

    def before_step(self, life: Life) -> None:
        """Test the changed question if it is due."""
        is_due = (
            life.steps % TEST_EVERY == 0
            and -TESTED_FOR <= life.steps - self._size.before < TESTED_FOR
        )
        if self._is_tested and is_due:
            self.record.error[life.steps] = measure_error(life)

    def after_step(self, event: StepEvent) -> None:
        """Update the drive."""
        life = event.life
        k = event.row.step
        action = event.row.action
        if event.row.phase != Phase.BEHAVE:
            return
        if life.student.learning_steps > self._n:
            self._n = life.student.learning_steps
            self._ude.update(life.horde.td_error, life.horde.rho)
            self._mean.update(np.abs(life.horde.td_error * life.horde.rho))
        self.record.drive[k] = self.drive = (
            self._ude.value() if self.by_ude else self._mean.value.copy()
        )
        if action in self._actions:
            self.record.taken[k] = self._actions.index(action)
        else:
            self.record.taken[k] = NORMAL
        self.record.followed[k] = self.followed


def measure_error(life: Life) -> float:
    """Return the mean squared error of the changed question along its own policy, from the robot's present state.

    The robot is put back afterwards: a test takes no time of the life.
    """
    state = life.body.save_state()
    interface = life.interface
    question = life.horde.questions[CHANGED]
    predicted, cumulants = np.zeros((2, TEST_STEPS))
    for k in range(TEST_STEPS):
        observation = life.env.unwrapped.step(interface.actions.index(TARGETS[CHANGED]))[0]
        tiles = interface.encode(observation)
        predicted[k] = life.horde.predict(tiles)[CHANGED]
        cumulants[k] = question.cumulant(observation.astype(np.float64), tiles)  # type: ignore[operator]
    life.body.restore_state(state)
    return float(((predicted - returns_along(cumulants, GAMMA))[SCORED] ** 2).mean())


@cached(Record)
def live(_study: ExperimentContext, seed: int, kinds: tuple[str, str], size: Size) -> Record:
    """Live two lives that are one in phase A, in the planar simulator; return them with a first axis for them."""
    state: State = {}
    records = []
    for kind in kinds:
        env, interface, horde, actions = _new_robot(seed, size, is_noise=kind.startswith("noise"))
        if not state:
            normal = Bouts(actions, interface.actions.index("stop"))
            curious = Curious(normal, actions, size, is_tested=kind == "curious")
        with watched_life(env, horde, curious, seed, interface, curious) as life:
            if state:
                life.restore(state)
            else:
                life.run(size.before)
                state = life.state()
                rival = deepcopy(curious)
            curious.by_ude = kind != "noise, |delta|"
            if kind == "twin":
                curious.threshold = np.inf
            elif curious.by_ude:
                curious.threshold = THRESHOLD
            else:
                curious.threshold = DELTA_THRESHOLD
            life.run(size.after)
        env.close()
        records.append(curious.record)
        curious = rival
    return Record(*map(np.stack, zip(*records, strict=True)))


def _new_robot(
    seed: int, size: Size, *, is_noise: bool
) -> tuple[Any, Interface, Horde, tuple[int, ...]]:
    """Return a robot, its interface, a Horde, and the actions of its questions' policies."""
    change = (size.before * 0.1, "clockwise", FRICTION)
    env = make_body("simulator", physics="planar", friction_changes=() if is_noise else (change,))
    interface = Interface.of(env)
    rng = np.random.default_rng([seed, 1])
    motors = [i for i, channel in enumerate(interface.channels) if channel.group == "motor_current"]

    def mean_current(observation: Floats, _tiles: Tiles) -> float:
        return float(observation[motors].mean())

    def white_noise(*_state: Any) -> float:
        return float(rng.normal(*CURRENT))

    n_actions = len(interface.actions)
    actions = tuple(map(interface.actions.index, TARGETS))
    cumulants = (white_noise if is_noise else mean_current, mean_current)
    questions = [
        GVF(name, ConstantAction(action, n_actions), cumulant, GAMMA, lam=LAM)
        for name, action, cumulant in zip(TARGETS, actions, cumulants, strict=True)
    ]
    return (
        env,
        interface,
        new_horde(interface, questions, config=LearnerConfig(step_size=STEP_SIZE)),
        actions,
    )


class Data(NamedTuple):
    """The lives by kind, one per seed, and their length."""

    lives: dict[str, list[Record]]
    size: Size


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Live a life of each kind for each seed."""
    size = SIZES[context.scale]
    seeds = context.at_least(size.seeds)
    pairs = product(PAIRS, seeds)
    results = context.in_parallel(
        {(k, s): Job(f"{k[0]}, seed {s}", live, (context, s, k, size)) for k, s in pairs}
    )
    lives: dict[str, list[Record]] = {}
    for (kinds, _), both in results.items():
        for k, kind in enumerate(kinds):
            lives.setdefault(kind, []).append(Record(*(array[k] for array in both)))
    return Data(lives, size), {
        "seeds": seeds,
        "tuned on seeds": TUNED_ON,
        "steps of phases A and B": size[:2],
        "friction of clockwise rotation": FRICTION,
        "gamma": GAMMA,
        "lambda": LAM,
        "alpha": f"{STEP_SIZE} / active tiles",
        "UDE": f"of rho delta, beta0 {BETA0:g}, standard deviation of the whole past, epsilon 1e-6",
        "thresholds of UDE and of the mean |rho delta|": (THRESHOLD, DELTA_THRESHOLD),
    }
