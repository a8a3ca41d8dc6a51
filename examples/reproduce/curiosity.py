"""Experiment `curiosity`: surprise about a robot whose friction changes drives the behaviour.

There are two questions about rotating on the spot. In phase A of a life the behaviour is normal.
Then, in phase B, clockwise rotation has more friction. A curious robot follows the target policy of
a question while its surprise, the UDE, is above a threshold.

Source: White, Modayil & Sutton (2014), Surprise and curiosity for big data robotics; on an iRobot
Create, about its battery current, with another physical change. Only the abstract could be read: a
claim is the shape of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from examples.reproduce.checks import Measured, Number, at_least, at_most, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import new_horde, watched_life
from examples.reproduce.runner import Job
from examples.reproduce.stats import join, mean_ci
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.learning.rupee import UDE, UnbiasedTrace
from horde_agent.life.bodies import make_body
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.policies import ConstantAction
from horde_agent.record import Phase
from horde_agent.saving import State
from horde_agent.scoring.returns import returns_along
from horde_agent.types import Bools, Floats, Integers, Tiles

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


class CuriositySize(NamedTuple):
    """Steps of the phases, and the number of seeds."""

    before: int
    after: int
    seeds: int


SIZES = {
    "paper": CuriositySize(30 * MINUTE, 20 * MINUTE, 10),
    "quick": CuriositySize(1_200, 1_200, 1),
}


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
        self,
        normal: Bouts,
        actions: tuple[int, ...],
        size: CuriositySize,
        *,
        is_tested: bool = False,
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
        if self.by_ude:
            self.drive = self._ude.value()
        else:
            self.drive = self._mean.value.copy()
        self.record.drive[k] = self.drive
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
def live(
    _study: ExperimentContext, seed: int, kinds: tuple[str, str], size: CuriositySize
) -> Record:
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
    seed: int, size: CuriositySize, *, is_noise: bool
) -> tuple[Any, Interface, Horde, tuple[int, ...]]:
    """Return a robot, its interface, a Horde, and the actions of its questions' policies."""
    friction_changes: tuple[tuple[float, str, float], ...] = ()
    if not is_noise:
        friction_changes = ((size.before * 0.1, "clockwise", FRICTION),)
    env = make_body("simulator", physics="planar", friction_changes=friction_changes)
    interface = Interface.of(env)
    rng = np.random.default_rng([seed, 1])
    motors = [i for i, channel in enumerate(interface.channels) if channel.group == "motor_current"]

    def mean_current(observation: Floats, _tiles: Tiles) -> float:
        return float(observation[motors].mean())

    def white_noise(*_state: Any) -> float:
        return float(rng.normal(*CURRENT))

    n_actions = len(interface.actions)
    actions = tuple(map(interface.actions.index, TARGETS))
    cumulants: list[Any] = [mean_current, mean_current]
    if is_noise:
        cumulants[0] = white_noise
    questions = [
        GVF(name, ConstantAction(action, n_actions), cumulant, GAMMA, lam=LAM)
        for name, action, cumulant in zip(TARGETS, actions, cumulants, strict=True)
    ]
    return (
        env,
        interface,
        new_horde(interface, questions, config=LearnerConfig.paper(step_size=STEP_SIZE)),
        actions,
    )


class CuriosityLives(NamedTuple):
    """The lives by kind, one per seed, and their length."""

    lives: dict[str, list[Record]]
    size: CuriositySize


def run(context: ExperimentContext) -> tuple[CuriosityLives, dict[str, object]]:
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
    return CuriosityLives(lives, size), {
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


# ---- checks ---------------------------------------------------------------------------------------------------------

RECOVERED = 1.5
WITHIN = 10 * MINUTE


class SurpriseReaction(NamedTuple):
    """How a robot reacts to the change; steps are counted from the change on."""

    before: float  # share of the 10 minutes before the change with surprise about any question
    # Whether each question is surprised within 60 s of the first use of the changed policy, shape
    # (2,)
    crossed: Bools
    # Step from which on the changed question is without surprise for a minute; the end if there is
    # none
    settled: int
    # Share of the steps with surprise about it, until then, that take its policy's action
    followed: float
    later: Floats  # share of the steps after that with surprise about each question, shape (2,)


def reaction(record: Record, change_at: int) -> SurpriseReaction:
    """Measure the reaction to a change at step `change_at`."""
    is_surprised = record.drive > THRESHOLD
    surprises = is_surprised[change_at:]
    choices = record.taken[change_at:]
    first_use = int((choices == CHANGED).argmax())
    crossed = np.asarray(surprises[first_use : first_use + MINUTE].any(axis=0))
    begins = first_use
    if crossed[CHANGED]:
        begins = int(surprises[:, CHANGED].argmax())
    quiet = np.convolve(surprises[begins:, CHANGED], np.ones(MINUTE), "valid") == 0
    if quiet.any():
        settled = begins + int(quiet.argmax())
    else:
        settled = len(surprises)
    during = surprises[:settled, CHANGED]
    followed = 0.0
    if during.any():
        followed = float((choices[:settled][during] == CHANGED).mean())
    if settled < len(surprises):
        later = surprises[settled:].mean(axis=0)
    else:
        later = np.ones(2)
    share_before = is_surprised[max(change_at - WITHIN, 0) : change_at].any(axis=1)
    return SurpriseReaction(float(share_before.mean()), crossed, settled, followed, later)


def recovery(record: Record, change_at: int) -> int:
    """Return the steps after the change until the error, a median of three tests, is 1.5 times that before, or less.

    If it never is, it is as long as there are tests.
    """
    tested = record.tested
    is_after = tested >= change_at
    error = record.error[tested]
    mean_before = error[~is_after].mean()
    errors = error[is_after]
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(errors, 3), axis=1)
    steps = np.append(tested[is_after][2:], tested[-1] + TEST_EVERY) - change_at
    is_back = np.append(smooth <= RECOVERED * mean_before, True)
    return int(steps[is_back.argmax()])


def reactions(data: CuriosityLives) -> list[SurpriseReaction]:
    """Return the reactions of the curious robots."""
    return [reaction(record, data.size.before) for record in data.lives["curious"]]


UNSURPRISED = at_most(0.05)
"""Share of the time with surprise of a robot that is calm."""


@check(
    claim="Before the change the robot is not surprised.",
    paper="the shape only; another robot, another sensor",
    source="White, Modayil & Sutton (2014)",
    limit=UNSURPRISED,
)
def _calm_before_the_change(data: CuriosityLives) -> Mapping[str, ArrayLike]:
    shares = [reaction_of_seed.before for reaction_of_seed in reactions(data)]
    return {"share of the 10 minutes before the change with surprise": shares}


@check(
    claim="The change surprises it, and only about what changed.",
    paper="UDE rises after the physical change",
    source="White, Modayil & Sutton (2014)",
    terms="Share of the seeds with surprise within 60 s of the policy's first use:",
)
def _change_surprises(data: CuriosityLives) -> list[Number]:
    changed, elsewhere = np.mean(
        [reaction_of_seed.crossed for reaction_of_seed in reactions(data)], axis=0
    )
    return [
        Number("about the changed question", changed, at_least(0.9), ".0%"),
        Number("about the other one", elsewhere, at_most(0.2), ".0%"),
    ]


@check(
    claim="It acts on its surprise, and stops.",
    paper="it switches to that policy until it is no longer surprised, then continues as before",
    source="White, Modayil & Sutton (2014)",
    terms="Back to normal is a robot without surprise for a minute:",
)
def _surprise_acts_and_stops(data: CuriosityLives) -> Measured:
    reaction_list = reactions(data)
    of_each = join(
        str(mean_ci(shares)) for shares in np.transpose([reacts.later for reacts in reaction_list])
    )
    return Measured(
        [
            Number(
                "share of the surprised time on the changed policy",
                [r.followed for r in reaction_list],
                at_least(0.8),
            ),
            Number(
                "share back to normal in 10 minutes",
                np.mean([r.settled <= WITHIN for r in reaction_list]),
                at_least(0.9),
            ),
            Number(
                "share of the later time with surprise, worse question",
                [r.later.max() for r in reaction_list],
                UNSURPRISED,
            ),
        ],
        f"Back to normal after {mean_ci([r.settled / MINUTE for r in reaction_list])} minutes; "
        f"later surprised about the changed question, the other one: {of_each}.",
    )


@check(
    claim="It learns faster for it.",
    paper="no comparison is known",
    source="a test of ours",
    terms=f"Steps until the error is at most {RECOVERED:g} times that before the change:",
    limit=at_most(0.5),
    form=".2f",
)
def _curious_learns_faster(data: CuriosityLives) -> Measured:
    curious, twin = (
        np.array([recovery(record, data.size.before) for record in data.lives[kind]])
        for kind in ("curious", "twin")
    )
    return Measured(
        {"median over the seeds of curious over twin": np.median(curious / twin)},
        f"Medians: curious {np.median(curious):.0f}, twin {np.median(twin):.0f}.",
    )


def shares_drawn(data: CuriosityLives, kind: str) -> list[float]:
    """Return the share of phase B at the policy of the question about noise, in each life of a kind."""
    return [
        float((record.followed[data.size.before :] == CHANGED).mean())
        for record in data.lives[kind]
    ]


@check(
    claim="Noise is not interesting.",
    paper="UDE is large only while learning changes something",
    source="White, Modayil & Sutton (2014)",
    terms="White noise as cumulant, shares of phase B:",
)
def _noise_is_not_interesting(data: CuriosityLives) -> list[Number]:
    by_ude = [
        (record.drive[data.size.before :, CHANGED] > THRESHOLD).mean()
        for record in data.lives["noise, UDE"]
    ]
    return [
        Number("with surprise about noise", by_ude, UNSURPRISED),
        Number(
            "at its policy with |delta| as drive",
            shares_drawn(data, "noise, |delta|"),
            at_least(0.5),
        ),
    ]


REMARKS = [
    "The shape of a result, on another body: a simulated robot that can rotate, its mean motor current instead of "
    "the battery current, and more friction. Its normal behaviour rotates and stops on the spot, away from walls.",
    "The physics engine is the planar one, which shares friction and motors with PyBullet's.",
    "Tests start from the robot's state, follow the changed policy for 5 s and put the robot back.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: CuriosityLives) -> dict[str, Picture]:
    """Draw surprise around the change, the errors of curious robots and their twins, and the pull of noise."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3, width_ratios=[1.4, 1.2, 0.9])
    record = data.lives["curious"][0]
    change_at = data.size.before
    shown = slice(max(change_at - 3 * MINUTE, 0), change_at + 7 * MINUTE)
    t = (np.arange(len(record.drive))[shown] - change_at) / MINUTE
    for question, name, colour in (
        (OTHER, "counter-clockwise", COLOURS[0]),
        (CHANGED, "clockwise", COLOURS[1]),
    ):
        left.plot(t, record.drive[shown, question], color=colour, linewidth=1.2, label=name)
    left.axhline(THRESHOLD, color="0.4", linewidth=0.9, linestyle="--", label="threshold")
    is_followed = record.followed[shown] == CHANGED
    left.fill_between(
        t,
        0,
        1,
        where=is_followed,
        transform=left.get_xaxis_transform(),
        color=COLOURS[1],
        alpha=0.12,
    )
    style_axes(left, "surprise", legend=True, xlabel="minutes since the change", ylabel="UDE")
    t = (record.tested - change_at) / MINUTE
    is_shown = (t >= -1) & (t < 4)
    for kind, colour in (("twin", COLOURS[0]), ("curious", COLOURS[1])):
        error = np.median([life.error[record.tested] for life in data.lives[kind]], axis=0)
        middle.plot(t[is_shown], error[is_shown], color=colour, linewidth=1.3, label=kind)
    style_axes(
        middle,
        "error of the changed question",
        legend=True,
        xlabel="minutes since the change",
        yscale="log",
    )
    for x, kind in enumerate(("noise, UDE", "noise, |delta|")):
        shares = shares_drawn(data, kind)
        right.plot(np.full(len(shares), x), shares, "o", color=COLOURS[2], alpha=0.6)
    right.set_xticks([0, 1], ["by UDE", "by |delta|"])
    style_axes(
        right,
        "time spent on noise",
        ylabel="share of phase B",
        ylim=(-0.03, 1.03),
        xlim=(-0.5, 1.5),
    )
    caption = (
        "Left: UDE of both questions in the curious life of the first seed; the friction of clockwise rotation "
        "rises at 0, and the robot follows that policy in the shaded time. Middle: error of the changed question "
        "in tests, median over the seeds. Right: share of phase B at the policy of a question about noise, one dot "
        "per seed."
    )
    return {"curiosity": Picture(canvas, caption)}


def tables(data: CuriosityLives) -> list[Table]:
    """Return each seed's reaction."""
    rows = [
        {
            "seed": k,
            "surprised before": reaction_of_seed.before,
            "crossed: changed, other": reaction_of_seed.crossed,
            "settled (steps)": reaction_of_seed.settled,
            "on its policy": reaction_of_seed.followed,
            "later: changed, other": join(reaction_of_seed.later, ".3f"),
            "error back (steps)": recovery(data.lives["curious"][k], data.size.before),
            "twin": recovery(data.lives["twin"][k], data.size.before),
        }
        for k, reaction_of_seed in enumerate(reactions(data))
    ]
    return [Table.of("Reactions to the change, by seed", rows, "Steps of 100 ms after the change.")]
