"""Experiment `surprise`: which faults of the simulated robot are found, how soon and where, and how often without one.

A robot lives with the 795 questions, the features of `horde learn` and `--surprise 1/week`. Then it goes on once for
each fault, from the same state. The constants of `scoring.surprise` were chosen on lives with the seeds 0, 1, 3, 21,
22 and 500 and the same kinds of faults, after looking at 410 to 412; no claim is judged on them. The strengths were
chosen by hand.

On the same rows other detectors look for the same faults, each with the limit that it does not exceed without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from examples.reproduce import detectors
from examples.reproduce.checks import Measured, Number, at_least, at_most, check
from examples.reproduce.experiment import ExperimentContext, Table
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import new_horde
from examples.reproduce.runner import Job
from examples.reproduce.stats import join
from examples.reproduce.water_loop import faulty_loop
from horde_agent.horde import Mode
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.policies import StickyRandom
from horde_agent.questions import excursions
from horde_agent.scoring.surprise import Surprise, SurpriseEvent, block_steps
from horde_agent.types import Floats, Integers
from horde_env.sim.faults import SENSOR_KINDS, Fault, FaultyRobot

TITLE = "Surprise: faults of the robot"
FIRST_SEED = 440
RATE = "1/week"
WEEK_S = 604_800.0
IN_TIME_S = 60.0  # of learning, in which the affected sensor and all actions are in use
LATE_S = 120.0

MOTORS = ("motor_voltage", "motor_velocity", "motor_current", "motor_temperature")
MOTION = (*MOTORS, "rotational_velocity", "acceleration", "last_request")
POWER = ("bus_voltage", "battery_voltage")
SLOW = ("motor_temperature", *POWER)
"""Groups that change over minutes without a fault: the change of a body's fault is not measured on them."""
GAMMAS = (0.0, 0.8)
"""Time scales on whose returns it is measured."""
N_TERMS = 15  # of a return


class Trial(NamedTuple):
    """A fault, and the groups of sensors of which one must be named first."""

    fault: Fault
    groups: tuple[str, ...]

    def is_measured(self, channel: str, group: str) -> bool:
        """Return whether the fault's strength is measured on a channel."""
        if self.fault.target and group in self.groups and self.fault.kind in SENSOR_KINDS:
            return channel in self.fault.target.split(",")
        is_slow = group in SLOW and self.fault.kind != "weak battery"
        return group in self.groups and not is_slow


TRIALS = (
    Trial(Fault("friction", "0", 6.0), (*MOTION, *POWER)),
    Trial(Fault("slipping", "1", 1.5), (*MOTION, *POWER)),
    Trial(Fault("dead", "acceleration_x"), ("acceleration",)),
    Trial(Fault("stuck", "ir_light_3", 0.5), ("ir_light",)),
    Trial(Fault("biased", "rotational_velocity", 0.1), ("rotational_velocity",)),
    Trial(Fault("noisy", "ir_distance_4", 0.15), ("ir_distance",)),
    Trial(Fault("drifting", "thermal_2", 0.1), ("thermal",)),
    Trial(Fault("lamp moved", "lamp", -1.2), ("light", "thermal")),
    Trial(Fault("weak battery", "", 0.6), (*POWER, *MOTORS)),
    Trial(Fault("heavy", "", 2.0), (*MOTION, *POWER)),
    Trial(Fault("swapped", "motor_velocity_100,motor_velocity_340"), MOTORS),
    Trial(Fault("delayed", "", 1.0), (*MOTION, *POWER)),
)


CREATE2_MOTION = ("wheel_velocity", "wheel_current", "rotational_velocity", "last_request")
CREATE2_TRIALS = (
    Trial(Fault("dead", "wheel_current_left"), CREATE2_MOTION),
    Trial(Fault("stuck", "cliff_signal_left", 0.5), ("cliff_signal",)),
    Trial(Fault("biased", "rotational_velocity", 0.1), ("rotational_velocity",)),
    Trial(Fault("noisy", "light_bump_centre_left", 0.2), ("light_bump",)),
    Trial(Fault("drifting", "battery_temperature", 0.1), ("battery_temperature",)),
    Trial(Fault("weak battery", "", 0.6), ("battery_voltage",)),
    Trial(Fault("swapped", "wheel_velocity_left,wheel_velocity_right"), ("wheel_velocity",)),
    Trial(Fault("delayed", "", 1.0), CREATE2_MOTION),
)


class Robot(NamedTuple):
    """A simulated robot and its faults."""

    title: str
    name: str
    physics: str | None
    trials: tuple[Trial, ...]


def faulty_robot(robot: Robot, faults: Sequence[Fault], seed: int) -> gymnasium.Env[Any, Any]:
    """Return a simulated robot, or the water loop, with faults."""
    if robot.name == LOOP:
        return faulty_loop(faults, seed)
    return FaultyRobot(
        make_body("simulator", robot=robot.name, physics=robot.physics), faults, seed
    )


LOOP = "water loop"
LOOP_TRIALS = (
    Trial(Fault("outlet closed", "", 0.85), ("flow", "pressure", "current", "vibration")),
    Trial(Fault("rotor imbalance", "", 1.4), ("vibration",)),
    Trial(Fault("worn pump", "", 0.8), ("flow", "pressure", "current")),
    Trial(Fault("cavitation", "", 30.0), ("flow", "pressure")),
    Trial(Fault("bearing friction", "", 1.15), ("current", "temperature")),
    Trial(Fault("stuck", "flow", 0.6), ("flow",)),
    Trial(Fault("biased", "pressure", 0.08), ("pressure",)),
    Trial(Fault("noisy", "current", 0.15), ("current",)),
    Trial(Fault("drifting", "temperature_water", 0.05), ("temperature",)),
    Trial(Fault("dead", "vibration_pipe"), ("vibration",)),
)
PLANAR = Robot("Critterbot, planar", "critterbot", "planar", TRIALS)
OTHER_ROBOTS = (
    Robot("Critterbot, PyBullet", "critterbot", "bullet", TRIALS),
    Robot("Create 2", "create2", None, CREATE2_TRIALS),
    Robot("Water loop", LOOP, None, LOOP_TRIALS),
)
"""Robots, and a plant, that live with the first seed alone; no claim is judged on them."""


class SurpriseSize(NamedTuple):
    """Size of an experiment.

    Attributes:
        before, after: Steps before the fault, and after it.
        stride: Distance between two questions.
        excursions: Probability of an excursion.
        robots: Robots beside the planar one.
    """

    before: int
    after: int
    stride: int
    excursions: float
    robots: tuple[Robot, ...] = ()


LOOP_SIZE = SurpriseSize(12_000, 600, 1, 0.0)  # steps of a second
SIZES = {
    "paper": SurpriseSize(60_000, 6_000, 1, 0.02, OTHER_ROBOTS),
    "quick": SurpriseSize(9_000, 700, 10, 0.0),
}


class FoundFault(NamedTuple):
    """What a life found of a fault; delays are in seconds of learning, infinite without an alarm."""

    delay_s: float
    signals: tuple[str, ...]
    is_right: bool  # a signal of an affected group is named first
    beginning_error_s: float  # of the likeliest beginning, in robot time; NaN without an alarm
    evidence: float  # the largest
    change: float  # of the returns of the most affected sensor, in deviations
    others_s: dict[str, float]  # delays of other detectors


class WatchedLife(NamedTuple):
    """A life with each fault, and without."""

    found: list[FoundFault]  # in the order of the robot's trials
    false_alarms: list[str]  # before the fault, and without one
    quiet_s: float  # robot time in which these could come


class LearningRows(LifeHooks):
    """Remembers the rows that were learned from, the values of each block, and the learning steps at each alarm."""

    def __init__(self, surprise: Surprise, period_s: float) -> None:
        self.alarms: list[tuple[SurpriseEvent, int]] = []
        self.block_steps = block_steps(period_s)
        self.readings: list[Floats] = []
        self.actions: list[int] = []
        self.steps: list[int] = []
        self.values: list[Floats] = []
        self.evidence: list[float] = []
        self._surprise = surprise
        self._n_seen = len(surprise.events)
        self._n_blocks = surprise.detector.n
        self._n_learned = 0

    def after_step(self, event: StepEvent) -> None:
        """Note the newest row, block and alarms."""
        n_learned = event.life.student.learning_steps
        if n_learned > self._n_learned:
            self.readings.append(event.row.observation.astype(np.float64))
            self.actions.append(event.row.action)
            self.steps.append(event.row.step)
        self._n_learned = n_learned
        evidence = self._surprise.detector.total
        for newest in self._surprise.events[self._n_seen :]:
            if newest.is_alarm:
                self.alarms.append((newest, n_learned))
                evidence = newest.evidence  # which began again at 0
        self._n_seen = len(self._surprise.events)
        if self._surprise.detector.n > self._n_blocks:
            self.values.append(self._surprise.values.copy())
            self.evidence.append(evidence)
            self._n_blocks = self._surprise.detector.n

    def returns(self, gamma: float) -> tuple[Floats, Integers]:
        """Return those of each channel after each row whose next rows are there, (n, n_channels), and its action."""
        readings = np.array(self.readings)
        steps = np.array(self.steps)
        n = len(readings) - N_TERMS
        total = np.zeros((n, readings.shape[1]))
        for term in range(N_TERMS):
            total += gamma**term * readings[1 + term : 1 + term + n]
        is_whole = steps[N_TERMS:] - steps[:n] == N_TERMS
        return total[is_whole], np.array(self.actions)[:n][is_whole]

    def block_means(self) -> Floats:
        """Return the mean readings of each block, shape (n_blocks, n_channels)."""
        n = len(self.values)
        readings = np.array(self.readings)[-n * self.block_steps :]
        return np.asarray(
            readings[: len(readings) // n * n].reshape(n, -1, readings.shape[1]).mean(axis=1)
        )


def change_of_returns(before: LearningRows, after: LearningRows) -> Floats:
    """Return how far apart the returns of each channel are, in deviations, shape (n_channels,).

    The Wasserstein distance of order 2 between those that followed the same action, over the deviation of all
    before; the mean over actions, and the largest of `GAMMAS`.
    """
    largest = np.zeros(len(before.readings[0]))
    shares = np.linspace(0.01, 0.99, 99)
    for gamma in GAMMAS:
        returns, actions = before.returns(gamma)
        later, later_actions = after.returns(gamma)
        distances = []
        for action in np.unique(later_actions):
            quantiles = np.quantile(returns[actions == action], shares, axis=0)
            later_quantiles = np.quantile(later[later_actions == action], shares, axis=0)
            distances.append(np.sqrt(((quantiles - later_quantiles) ** 2).mean(axis=0)))
        deviation = returns.std(axis=0) + 1e-9
        largest = np.maximum(largest, np.mean(distances, axis=0) / deviation)
    return largest


SAME_LIMIT = "the evidence of --surprise, with such a limit"


class OtherDetector(NamedTuple):
    """A detector to compare with, and whether it looks at the errors of the predictions, or at the readings."""

    name: str
    statistic: Callable[[Floats, int], Floats]
    of_errors: bool


def other_detectors() -> list[OtherDetector]:
    """Return the detectors of `examples.reproduce.detectors`; ADWIN only where `river` is installed."""
    competitors = [
        OtherDetector("CUSUM on errors", detectors.cusum, of_errors=True),
        OtherDetector("Page-Hinkley on errors", detectors.page_hinkley, of_errors=True),
        OtherDetector("UDE above a limit", detectors.ude, of_errors=True),
        OtherDetector("PCA: T2 of readings", detectors.hotelling, of_errors=False),
        OtherDetector("PCA: Q of readings", detectors.squared_rest, of_errors=False),
    ]
    if detectors.has_adwin():
        competitors.append(OtherDetector("ADWIN on errors", detectors.adwin, of_errors=True))
    return competitors


def _rows_for(other: OtherDetector, part: LearningRows) -> Floats:
    """Return what a detector looks at, a row for each block."""
    if other.of_errors:
        return np.array(part.values).reshape(len(part.values), -1)
    return part.block_means()


def limits_of_others(before: LearningRows, quiet: LearningRows) -> dict[str, float]:
    """Return the limit of each other detector that it just does not exceed without a fault, by its name."""
    n_known = len(before.values) // 2
    limits = {}
    for other in other_detectors():
        rows = np.concatenate([_rows_for(other, before), _rows_for(other, quiet)])
        limits[other.name] = detectors.limit_of(other.statistic(rows, n_known), n_known)
    evidence = np.array([*before.evidence, *quiet.evidence])
    limits[SAME_LIMIT] = detectors.limit_of(evidence, n_known)
    return limits


def delays_of_others(
    before: LearningRows, after: LearningRows, limits: dict[str, float], period_s: float
) -> dict[str, float]:
    """Return the delay of each other detector in seconds of learning, by its name."""
    n_before = len(before.values)
    block_s = after.block_steps * period_s
    delays = {
        SAME_LIMIT: block_s * detectors.first_above(np.array(after.evidence), limits[SAME_LIMIT])
    }
    for other in other_detectors():
        rows = np.concatenate([_rows_for(other, before), _rows_for(other, after)])
        statistic = other.statistic(rows, n_before // 2)[n_before:]
        delays[other.name] = block_s * detectors.first_above(statistic, limits[other.name])
    return delays


def watched_robot(
    env: gymnasium.Env[Any, Any], seed: int, size: SurpriseSize, mode: Mode = "eager"
) -> tuple[Life, Surprise]:
    """Return a life in an environment that has learned nothing, and what watches it at `RATE`."""
    interface = Interface.of(env).with_chosen_layout()
    horde = new_horde(interface, excursions(interface)[:: size.stride], mode=mode)
    life = Life(
        env,
        horde,
        StickyRandom(len(interface.actions)),
        np.random.default_rng(seed),
        interface=interface,
        excursions=ExcursionConfig(size.excursions),
    )
    return life, life.student.watch(RATE, seed)


def new_life(
    seed: int, size: SurpriseSize, robot: Robot, faults: tuple[Fault, ...] = (), state: Any = None
) -> tuple[Life, Surprise, LearningRows]:
    """Return a life of a robot that is watched, from a state or from its start."""
    life, surprise = watched_robot(faulty_robot(robot, faults, seed), seed, size)
    if state is not None:
        life.restore(dict(state))
    rows = LearningRows(surprise, life.interface.period_s)
    life.observers.append(rows)
    return life, surprise, rows


def live(seed: int, size: SurpriseSize, robot: Robot) -> WatchedLife:
    """Live without a fault, then on from the same state without one and with each."""
    life, surprise, earlier_rows = new_life(seed, size, robot)
    with life:
        life.run(size.before)
        state = life.state()
        n_learned = life.student.learning_steps
        period_s = life.interface.period_s
        groups = {channel.name: channel.group for channel in life.interface.channels}
    quiet_s = size.before * period_s
    if len(surprise.curve):
        quiet_s -= float(surprise.curve[0, 0]) * period_s
    life, _, quiet_rows = new_life(seed, size, robot, (), state)
    with life:
        life.run(size.after)
    quiet_s += size.after * period_s
    false_alarms = [event.sentence for event, _ in [*earlier_rows.alarms, *quiet_rows.alarms]]
    limits = limits_of_others(earlier_rows, quiet_rows)
    results = []
    for trial in robot.trials:
        life, surprise, later_rows = new_life(seed, size, robot, (trial.fault,), state)
        with life:
            life.run(size.after)
        changes = change_of_returns(quiet_rows, later_rows)
        measured = [
            float(change)
            for change, (channel, group) in zip(changes, groups.items(), strict=True)
            if trial.is_measured(channel, group)
        ]
        outcome = _found(later_rows, trial, n_learned, size.before, groups, period_s, surprise)
        delays = delays_of_others(earlier_rows, later_rows, limits, period_s)
        results.append(outcome._replace(change=max(measured), others_s=delays))
    return WatchedLife(results, false_alarms, quiet_s)


def _found(
    rows: LearningRows,
    trial: Trial,
    n_learned: int,
    changed_at: int,
    groups: dict[str, str],
    period_s: float,
    surprise: Surprise,
) -> FoundFault:
    """Return what the first alarm after the change says of a fault; its change and the others are not known yet."""
    curve = surprise.curve
    points = curve[curve[:, 0] > changed_at]
    outcome = FoundFault(
        delay_s=np.inf,
        signals=(),
        is_right=False,
        beginning_error_s=np.nan,
        evidence=float(points[:, 1].max(initial=0.0)),
        change=np.nan,
        others_s={},
    )
    if not rows.alarms:
        return outcome
    alarm, learning_steps = rows.alarms[0]
    return outcome._replace(
        delay_s=(learning_steps - n_learned) * period_s,
        signals=alarm.signals,
        is_right=groups.get(alarm.signals[0]) in trial.groups,
        beginning_error_s=(alarm.began - changed_at) * period_s,
    )


class SurpriseResults(NamedTuple):
    """The lives of the planar robot with all seeds, and one of each other robot."""

    lives: list[WatchedLife]
    size: SurpriseSize
    others: dict[str, WatchedLife]  # by title


def run(context: ExperimentContext) -> tuple[SurpriseResults, dict[str, object]]:
    """Live with each seed."""
    size = SIZES[context.scale]
    seeds = [FIRST_SEED + seed for seed in context.seeds]
    jobs: dict[int | str, Job] = {}
    for seed in seeds:
        jobs[seed] = Job(f"life {seed}", live, (seed, size, PLANAR))
    for robot in size.robots:
        size_of_robot = size
        if robot.name == LOOP:
            size_of_robot = LOOP_SIZE
        jobs[robot.title] = Job(robot.title, live, (seeds[0], size_of_robot, robot))
    lives = context.in_parallel(jobs)
    lives_of_others = {robot.title: lives[robot.title] for robot in size.robots}
    questions = "795"
    if size.stride > 1:
        questions = f"every {size.stride}. of 795"
    return SurpriseResults([lives[seed] for seed in seeds], size, lives_of_others), {
        "seeds": join(seeds),
        "rate of false alarms": RATE,
        "steps before and after the fault": f"{size.before:,}, {size.after:,}",
        "probability of an excursion": size.excursions,
        "questions": questions,
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


@check(
    claim="Of 12 kinds of faults at least 10 are found within 60 s of learning.",
    paper="fixed beforehand",
    source="own",
)
def _most_faults_are_found(data: SurpriseResults) -> Measured:
    in_time = [sum(one.delay_s <= IN_TIME_S for one in life.found) for life in data.lives]
    late = [sum(one.delay_s <= LATE_S for one in life.found) for life in data.lives]
    missed = [
        trial.fault.kind
        for number, trial in enumerate(TRIALS)
        if all(np.isinf(life.found[number].delay_s) for life in data.lives)
    ]
    return Measured(
        [Number("faults found within 60 s", in_time, at_least(10.0))],
        f"Within {LATE_S:g} s: {join(late)}. Never found: {join(missed) or 'none'}.",
    )


@check(
    claim="Each fault changes the returns of an affected sensor by half a deviation or more.",
    paper="fixed beforehand",
    source="own",
)
def _faults_are_strong_enough(data: SurpriseResults) -> Measured:
    changes = np.array([[one.change for one in life.found] for life in data.lives])
    return Measured([Number("least change of a fault", changes.min(axis=1), at_least(0.5))])


@check(
    claim="The right group of sensors is named first in at least 80 % of the alarms.",
    paper="fixed beforehand",
    source="own",
    form=".0%",
    limit=at_least(0.8),
)
def _the_right_sensors_are_named(data: SurpriseResults) -> dict[str, float]:
    alarms = [one for life in data.lives for one in life.found if np.isfinite(one.delay_s)]
    if not alarms:
        return {"share": 0.0}
    return {"share": float(np.mean([one.is_right for one in alarms]))}


@check(
    claim="Without a fault there are at most 4 alarms in three weeks, at a rate of 1 a week.",
    paper="fixed beforehand",
    source="own",
)
def _false_alarms_are_rare(data: SurpriseResults) -> Measured:
    n_alarms = sum(len(life.false_alarms) for life in data.lives)
    quiet_s = sum(life.quiet_s for life in data.lives)
    per_three_weeks = n_alarms / max(quiet_s, 1.0) * 3.0 * WEEK_S
    return Measured(
        [Number("alarms in three weeks", per_three_weeks, at_most(4.0))],
        f"{n_alarms} in {quiet_s / 3600.0:.1f} h of robot time: {'; '.join(_all_false(data)) or 'none'}.",
    )


def _all_false(data: SurpriseResults) -> list[str]:
    return [sentence for life in data.lives for sentence in life.false_alarms]


LIMITS = (
    "The limits of the others are those that they did not exceed in the same life without a fault."
)
REMARKS = (
    "Delays are seconds of learning: the robot learns nothing in test excursions and drives, and these take most of "
    "its time.",
    "A constant bias of a sensor whose next reading follows from its present one, such as light, distance and the "
    "magnetic field, changes no TD error for longer than a step: it is not found unless it breaks other predictions.",
)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: SurpriseResults) -> dict[str, Picture]:
    """Draw the delay of each fault in each life."""
    canvas, (axes,) = new_canvas(8.0, 3.2, 1)
    for number, life in enumerate(data.lives):
        delays = [min(one.delay_s, 10.0 * LATE_S) for one in life.found]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(delays, range(len(TRIALS)), "o", color=colour, ms=4)
    axes.set_yticks(range(len(TRIALS)), [trial.fault.kind for trial in TRIALS])
    axes.axvline(IN_TIME_S, color="grey", lw=0.8)
    style_axes(axes, "delay of the alarm", legend=False, xscale="log", xlabel="s of learning")
    caption = f"One dot for each life; those at {10.0 * LATE_S:g} s found nothing. The line is at {IN_TIME_S:g} s."
    return {"surprise": Picture(canvas, caption)}


def tables(data: SurpriseResults) -> list[Table]:
    """Return what was found of each fault, and what other detectors found."""
    tables_of_others = []
    for robot in data.size.robots:
        life = data.others[robot.title]
        note = f"False alarms without a fault: {'; '.join(life.false_alarms) or 'none'}."
        tables_of_others.append(Table.of(robot.title, _rows_of(robot, [life]), note))
        title = f"{robot.title}: detectors"
        tables_of_others.append(Table.of(title, _detector_rows([life]), LIMITS))
    return [
        Table.of(
            "Faults",
            _rows_of(PLANAR, data.lives),
            f"An alarm needs an evidence of some 189,000 ({RATE}).",
        ),
        Table.of(
            "Detectors",
            _detector_rows(data.lives),
            LIMITS,
        ),
        *tables_of_others,
    ]


def _rows_of(robot: Robot, lives: list[WatchedLife]) -> list[dict[str, object]]:
    """Return what was found of each fault of a robot."""
    rows: list[dict[str, object]] = []
    for number, trial in enumerate(robot.trials):
        results = [life.found[number] for life in lives]
        named_first = [next(iter(one.signals), "-") for one in results]
        rows.append(
            {
                "fault": trial.fault.kind,
                "target": trial.fault.target or "-",
                "strength": trial.fault.strength,
                "delays (s of learning)": join(f"{one.delay_s:.1f}" for one in results),
                "beginning off by (s)": join(f"{one.beginning_error_s:.0f}" for one in results),
                "change of returns (sd)": join(f"{one.change:.2g}" for one in results),
                "named first": join(named_first),
                "largest evidence": join(f"{one.evidence:.2g}" for one in results),
            }
        )
    return rows


def _detector_rows(lives: list[WatchedLife]) -> list[dict[str, object]]:
    """Return how many faults each detector found, and how soon."""
    delays = {f"--surprise {RATE}": [[one.delay_s for one in life.found] for life in lives]}
    for name in lives[0].found[0].others_s:
        delays[name] = [[one.others_s[name] for one in life.found] for life in lives]
    rows: list[dict[str, object]] = []
    for name, of_lives in delays.items():
        array = np.array(of_lives)
        rows.append(
            {
                "detector": name,
                "found within 60 s": join((array <= IN_TIME_S).sum(axis=1)),
                "found within 120 s": join((array <= LATE_S).sum(axis=1)),
                "median delay (s of learning)": join(f"{np.median(row):.0f}" for row in array),
            }
        )
    return rows
