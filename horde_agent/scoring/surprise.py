"""Surprise: whether this machine begins to behave differently, with a chosen rate of false alarms, and where.

A block is `BLOCK_S` of learning. In it each question has, with delta its TD errors, rho its ratios and n the number
of steps with rho > 0,

    m       step^2 + sum rho delta^2 / sum rho
    lean    root of n / m, times sum rho delta / sum rho
    spread  ln m

with the quantisation step of its channel: what happens within a step, such as a slow voltage that crosses from one
to the next, is no news. A lean is measured in the errors of its own block, so that it is as large at a wall as in the
open, early as late. z is the distance of a spread from the question's own running mean in running deviations, at
least 0.2. A *signal* is what questions are about: a channel, the reward, or an own function. Its four values are

    spread         the mean of z over its questions, weighted by n
    lean           that of their leans, weighted by the root of n and by their reach 1 / (1 - gamma): a question that
                   reaches far leans longest, since its prediction has furthest to go
    spread apart   its spread, less the mean of the spreads of its group's other signals, if the group has three or
                   more: at a wall all sensors of distance err more, and one that fails does so alone
    lean apart     the same of its lean

Each of these values v gives

    u = v - mean               the lagged running mean follows learning that goes on, battery, heat, day and night
    r = u - phi u_previous     blocks that follow one another resemble one another; phi is estimated

`EDetector` tests r, in grains of a quarter: smaller differences are ties. Its threshold T is the number of blocks in
the chosen time, so false alarms come at most at that rate, if the r of a signal are exchangeable; after spells of
evidence that ended, a group of sensors counts less. What breaks this is a machine that is for minutes in a state that
it has not been in before: `python -m examples.reproduce surprise` and `python -m tests.bench.weeks` measure how
far. After a stay at a dock it is in one: charged, cold, at another time of the day. Means and deviations then begin
again, and as many blocks as at first are not tested and are no references.

A robot that is wedged in a corner stands for minutes although it is driven, which says nothing of its sensors. Blocks
with many such steps are no news: they are neither tested nor references. If they last, that is said.

A change that comes as slowly as learning adapts to it, or that a question's own reading predicts away, is not found.

After an alarm learning continues, and so do the tests of the other signals. An alarm of theirs soon after it, within
as many blocks as before the first test, has the same cause as a rule: the first one spreads. Predictions fit again
when the values of the alarm's signals are as they were before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Prediction, TDError
from horde_agent.interface import Interface
from horde_agent.kernels.surprise import (
    GRAIN,
    compare_with_group,
    follow_trend,
    sample_block,
    standardise,
    subtract_expected,
    sum_signals,
)
from horde_agent.learner import Learner
from horde_agent.questions import question_columns
from horde_agent.refusals import BadInput
from horde_agent.saving import State, attributes, inner, nested, put_back, text, untext
from horde_agent.scoring.e_detector import BURN_IN, HOLD, N_VALUES, EDetector
from horde_agent.scoring.rates import seconds_between
from horde_agent.scoring.standstill import Standstill
from horde_agent.types import Bools, Floats, Integers

BLOCK_S = 3.2  # of learning: 32 steps at 10 Hz
FEWEST_STEPS = 8  # of a block
CONFIRMED_S = 12.8  # of evidence at the threshold, for an alarm: most spells at a wall are shorter

_N_SAMPLES = 2  # of a question: spread and lean
_LEAST_GROUP = 3  # signals, of which one is compared with the others
_TREND_BLOCKS = 300  # that the mean of a signal's values reaches back, behind HOLD blocks
_PHI_BLOCKS = 500  # that the estimate of phi reaches back
_PHI_AFTER = 30  # blocks before it is used
_SOON = HOLD + BURN_IN  # blocks
_LEAST_ENDING = 1e-3  # 1 - gamma, where a question counts most
_FITS = 0.5  # deviations from the mean before the alarm, within which the mean of HOLD values fits again
_NAMED = 1e-3  # share of the largest evidence with which a signal is named
_LEAST_NAMED = 20.0
_MOST_NAMED = 5
_MOST_QUESTIONS = 3
_LONG_STANDING = 20  # blocks in a row after which it is said
_MOST_POINTS = 1024  # of the curve
_FORM = 1  # of the tests: raise it if a state of the present ones cannot be continued


def block_steps(period_s: float) -> int:
    """Return the learning steps of a block, for steps of `period_s` seconds."""
    return max(round(BLOCK_S / period_s), FEWEST_STEPS)


def steps_needed(period_s: float) -> int:
    """Return the learning steps before the first test."""
    return (HOLD + BURN_IN + 1) * block_steps(period_s)


def can_be_surprised(question: GVF) -> bool:
    """Return whether a question is about something measured: not about another demon, nor one that finds a policy."""
    return not question.finds_policy and not isinstance(question.cumulant, Prediction | TDError)


class SurpriseEvent(NamedTuple):
    """An alarm, one that spreads, the end of one, or that a body stands for long or the tests begin again.

    Attributes:
        name: "surprise"; "spreads" if it follows soon on one that is not over; "fits" when predictions fit again;
            "stands" if the body stands although it is driven; "begins" if a state is restored that earlier tests saved.
        step: At which it was found.
        began: Step since which predictions do not fit, the likeliest; "fits" has the alarm's, and "stands" the
            first step of the standstill.
        began_first, began_last: The first and the last plausible one.
        signals: The signals, the most surprising one first; of "stands" the speeds, of "begins" none.
        changes: What each does: "errs more", "errs less", or that it "is higher" or "is lower" than predicted; with
            "than its group" if only in comparison with the other signals of its group.
        policies: Policies under which the first signal surprises most.
        questions: The questions that surprise most, of the first signals.
        evidence: The mean over tests and signals.
        threshold: The evidence at which an alarm is raised.
    """

    name: str
    step: int
    began: int
    began_first: int
    began_last: int
    signals: tuple[str, ...]
    changes: tuple[str, ...]
    policies: tuple[str, ...]
    questions: tuple[str, ...]
    evidence: float
    threshold: float

    @property
    def is_alarm(self) -> bool:
        """Whether predictions no longer fit: "surprise" and "spreads"."""
        return self.name in ("surprise", "spreads")

    @property
    def sentence(self) -> str:
        """What is said of it, without a full stop."""
        if self.name == "fits":
            return (
                f"step {self.step:,}: predictions of {', '.join(self.signals)} fit again, which they did not since "
                f"step {self.began:,}"
            )
        if self.name == "stands":
            return (
                f"step {self.step:,}: the robot stands although it is driven, since step {self.began:,}; until it "
                "moves no prediction is tested"
            )
        if self.name == "begins":
            return (
                f"step {self.step:,}: the tests for surprise begin again, since the state is of an earlier form of "
                "them; means, references and evidence start at 0"
            )
        changes = [
            f"{signal} {change}" for signal, change in zip(self.signals, self.changes, strict=True)
        ]
        where = ""
        if self.policies:
            where = f", most under {', '.join(self.policies)}"
        finding = "predictions do not fit"
        if self.name == "spreads":
            finding = "other predictions do not fit either,"
        return (
            f"step {self.step:,}: {finding} since step {self.began:,} ({self.began_first:,} to "
            f"{self.began_last:,}): {', '.join(changes)}{where}; evidence {self.evidence:.2g}, alarm at "
            f"{self.threshold:.2g}"
        )

    def entry(self) -> dict[str, Any]:
        """Return it as an event of a run."""
        return {**self._asdict(), "event": self.name, "sentence": self.sentence}


_CHANGES = (
    "errs more",
    "is higher",
    "errs more than its group",
    "is higher than its group",
    "errs less",
    "is lower",
    "errs less than its group",
    "is lower than its group",
)
"""One for each test: that the values rise, and then that they fall."""


class Standardiser:
    """Distances of samples from their running mean in running deviations.

    Args:
        n_numbers: Of a sample.

    Attributes:
        n: Number of samples of each number, shape (n_numbers,).
    """

    SAVED = ("n", "mean", "variance")

    def __init__(self, n_numbers: int) -> None:
        self.n: Floats = np.zeros(n_numbers)
        self.mean: Floats = np.zeros(n_numbers)
        self.variance: Floats = np.ones(n_numbers)

    def update(self, sample: Floats) -> Floats:
        """Return the distances of a sample, (n_numbers,), NaN without one or before ten, and add it."""
        z = np.empty_like(sample)
        standardise(sample, self.n, self.mean, self.variance, z)
        return z

    def begin_present(self) -> None:
        """Begin another present: mean and variance are those of later samples alone."""
        self.n[:] = 0.0


class Residuals:
    """What a lagged running mean and the preceding value do not say of series; shape (N_VALUES, n_series).

    Attributes:
        n_present: Number of values since the beginning of the present.
        mean: The running mean of the present, which does not know the last HOLD values.
        square: Running mean of the squared distances from it.
    """

    SAVED = (
        "n",
        "n_present",
        "mean",
        "square",
        "_n_pairs",
        "_product",
        "_previous",
        "_held",
        "_was_muted",
    )

    def __init__(self, n_series: int) -> None:
        shape = (N_VALUES, n_series)
        self.n = 0
        self.n_present = 0
        self._n_pairs = 0
        self.mean: Floats = np.zeros(shape)
        self.square: Floats = np.zeros(shape)
        self._product: Floats = np.zeros(shape)
        self._previous: Floats = np.zeros(shape)
        self._held: Floats = np.zeros((HOLD, *shape))
        self._was_muted: Bools = np.zeros((HOLD, n_series), dtype=np.bool_)

    def update(self, values: Floats, is_muted: Bools) -> Floats:
        """Return the residuals of the newest values; those of muted series, (n_series,), change no mean and no phi."""
        has_phi = self._n_pairs > _PHI_AFTER
        reach_of_phi = 0.0
        # Both distances are from a mean of the present, which begins HOLD values late
        if self.n_present > HOLD + 1:
            self._n_pairs += 1
            reach_of_phi = max(1.0 / self._n_pairs, 1.0 / _PHI_BLOCKS)
        residuals = np.empty_like(values)
        subtract_expected(
            values,
            is_muted,
            has_phi,
            reach_of_phi,
            self.mean,
            self.square,
            self._product,
            self._previous,
            residuals,
        )
        reach_of_mean = 0.0
        n_released = self.n_present - HOLD + 1
        if n_released > 0:
            reach_of_mean = max(1.0 / n_released, 1.0 / _TREND_BLOCKS)
        place = self.n % HOLD
        is_left_out = is_muted | self._was_muted[place]
        follow_trend(self._held[place], is_left_out, reach_of_mean, self.mean)
        self._held[place] = values
        self._was_muted[place] = is_muted
        self.n += 1
        self.n_present += 1
        return residuals

    @property
    def newest_mean(self) -> Floats:
        """Mean of the newest HOLD values, shape (N_VALUES, n_series)."""
        return np.asarray(self._held.mean(axis=0))

    def begin_present(self) -> None:
        """Begin another present: the mean is that of later values alone."""
        self.n_present = 0


class Surprise:
    """Watches the TD errors of a Horde.

    Call `update` after each step. It learns nothing and changes nothing of the Horde.

    Args:
        horde: The demons.
        interface: Channels and actions, for names.
        rate: False alarms per time, as "1/month".
        seed: Of the numbers that break ties between ranks.

    Attributes:
        signals: Names of what questions are about, shape (n_signals,).
        groups: Their sensor groups; of a signal without one its own name.
        events: Alarms, also those that spread, and when predictions fitted again.
        on_event: Called with each of them; None for nothing.
        detector: The evidence.
        values: The newest values of each signal, shape (N_VALUES, n_signals).

    Raises:
        BadInput: If the rate is invalid, or no question can be surprised.

    Examples:
        >>> import gymnasium
        >>> from horde_agent import GVF, Behaviour, Channel, Horde
        >>> interface = Interface.of(gymnasium.make("CartPole-v1"))
        >>> size = {"n_features": interface.coder.n_features, "n_active": interface.coder.n_active}
        >>> horde = Horde([GVF("next", Behaviour(), Channel(2), continuation=0.0)], **size)
        >>> surprise = Surprise(horde, interface, rate="1/day")
        >>> surprise.signals, surprise.is_surprised, surprise.steps_missing
        (['obs_2'], False, 1800)
    """

    _SAVED = (
        "learned",
        "_previous_totals",
        "_block_began",
        "_due_at",
        "values",
        "_z",
        "_mean_before",
        "_deviation_before",
        "_began",
        "_n_since_alarm",
        "_points",
        "_points_per_block",
        "_n_points",
    )

    def __init__(self, horde: Learner, interface: Interface, rate: str, seed: int = 0) -> None:
        self._horde = horde
        self._interface = interface
        self._seed = seed
        self.rate = rate
        self._block_steps = block_steps(interface.period_s)
        # Blocks take at least as long as their steps: with excursions alarms are fewer
        block_s = self._block_steps * interface.period_s
        self.threshold = max(seconds_between(rate) / block_s, 1.0)
        self._n_confirming = max(round(CONFIRMED_S / block_s), 1)
        self.events: list[SurpriseEvent] = []
        self.on_event: Callable[[SurpriseEvent], None] | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin with the present questions, without a past."""
        questions = self._questions = self._horde.questions
        columns = question_columns(questions, self._interface)
        is_watched = np.array([can_be_surprised(question) for question in questions])
        if not is_watched.any():
            raise BadInput(
                "no question can be surprised: all are about other questions' predictions or errors, or find a policy; "
                "ask one about a channel or the reward"
            )
        names = [
            about.channel or question.name
            for about, question in zip(columns, questions, strict=True)
        ]
        watched_names = [name for name, watched in zip(names, is_watched, strict=True) if watched]
        self.signals = list(dict.fromkeys(watched_names))
        index = {name: number for number, name in enumerate(self.signals)}
        self._signal: Integers = np.array([index.get(name, -1) for name in names])
        self._signal[~is_watched] = -1
        self._policies = [about.policy for about in columns]
        n_signals = len(self.signals)
        n_demons = len(questions)
        self.learned = 0
        self._previous_totals: Floats = np.zeros((2, 2, n_demons))
        self._block_began = -1
        self._due_at = -1
        self._standstill = Standstill(self._interface)
        step = quantisation_steps_of(questions, self._interface)
        self._least_square: Floats = step**2
        gammas = np.nan_to_num([about.gamma for about in columns])
        self._reach: Floats = 1.0 / np.maximum(1.0 - gammas, _LEAST_ENDING)
        self._spread = Standardiser(n_demons)
        self._residuals = Residuals(n_signals)
        self.groups = self._groups_of_signals()
        numbers = {group: number for number, group in enumerate(dict.fromkeys(self.groups))}
        self._group: Integers = np.array([numbers[group] for group in self.groups])
        self._has_group: Bools = np.bincount(self._group)[self._group] >= _LEAST_GROUP
        self.detector = EDetector(
            n_signals,
            self.threshold,
            self._seed,
            groups=self._group,
            n_confirming=self._n_confirming,
        )
        self.values: Floats = np.zeros((N_VALUES, n_signals))
        self._z: Floats = np.zeros((HOLD, _N_SAMPLES, n_demons), dtype=np.float32)
        self._mean_before: Floats = np.zeros((N_VALUES, n_signals))
        self._deviation_before: Floats = np.zeros((N_VALUES, n_signals))
        self._began = -1
        self._n_since_alarm = _SOON
        self._points: Floats = np.zeros((_MOST_POINTS, 2 + n_signals))
        self._points_per_block = 1
        self._n_points = 0
        # Compiled here, and not later in the middle of a life: a block without an update changes nothing
        nothing = np.zeros((2, n_demons))
        self._values(nothing, nothing)
        Residuals(n_signals).update(self.values, self.detector.is_muted)

    def _groups_of_signals(self) -> list[str]:
        groups = {
            channel.name: channel.group or channel.name for channel in self._interface.channels
        }
        return [groups.get(signal, signal) for signal in self.signals]

    @property
    def is_surprised(self) -> bool:
        """Whether predictions of a signal do not fit since an alarm."""
        return bool(self.detector.is_muted.any())

    @property
    def steps_missing(self) -> int:
        """Learning steps that are missing for the first test; 0 once it was made."""
        if self.detector.is_ready:
            return 0
        return max(steps_needed(self._interface.period_s) - self.learned, 1)

    @property
    def curve(self) -> Floats:
        """The evidence over time, shape (n_points, 2 + n_signals): step, total, and the largest of each signal's tests.

        A point is the largest evidence of one block or of several.
        """
        return self._points[: self._n_points].copy()

    def rearrange(self) -> None:
        """Begin again if demons were added or removed; events stay."""
        if self._horde.questions is not self._questions:
            self._begin()

    # ---- blocks ----------------------------------------------------------------------------------

    def begin_present(self) -> None:
        """Begin another present, after a stay at a dock: as at first, no block is tested before the mean is known.

        Evidence and references stay. The block under way is dropped.
        """
        self._due_at = -1
        self._standstill.forget()
        self._spread.begin_present()
        self._residuals.begin_present()

    def note_reading(self, observation: NDArray[Any]) -> None:
        """Note whether the body stands although it is driven, after a step that was learned from.

        Args:
            observation: After the step, shape (n_channels,).
        """
        self._standstill.note(observation)

    def update(self, step: int, learning_steps: int) -> None:
        """Take in what was learned up to a step; a block ends when it is long enough and no step is queued.

        Args:
            step: Number of the step, for reports.
            learning_steps: Number of steps that were learned from.
        """
        if self._horde.n_waiting or (learning_steps < self._due_at and self._due_at >= 0):
            return
        totals = np.stack([self._horde.error_totals(), self._horde.ratio_totals()[:2]])
        if self._due_at >= 0:
            self.learned += learning_steps - (self._due_at - self._block_steps)
            sums, ratios = totals - self._previous_totals
            self._end_block(step, sums, ratios)
        self._previous_totals = totals
        self._block_began = step
        self._due_at = learning_steps + self._block_steps

    def _end_block(self, step: int, sums: Floats, ratios: Floats) -> None:
        """Test a block from the sums of its TD errors and of its ratios, both of shape (2, n_demons)."""
        standstill = self._standstill
        if standstill.end_block(self._block_began):
            if standstill.n_blocks == _LONG_STANDING:
                self._notice("stands", step, standstill.since, standstill.speeds)
            return
        values = self._values(sums, ratios)
        self.values = values
        detector = self.detector
        mean = self._residuals.mean.copy()
        deviation = np.sqrt(self._residuals.square)
        residuals = self._residuals.update(values, detector.is_muted)
        self._n_since_alarm += 1
        if detector.is_ready and self._residuals.n_present <= _SOON:
            return
        # Equal values are ranked at random: a change of less than a grain is none
        grains = np.round(residuals / GRAIN)
        is_alarm = detector.update(grains, self._block_began)
        self._add_point(step)
        if self.is_surprised:
            self._look_whether_it_fits(step)
        if is_alarm:
            self._raise(step, mean, deviation)

    def _notice(self, name: str, step: int, began: int, signals: Sequence[str]) -> None:
        """Report an event that is no alarm."""
        event = SurpriseEvent(
            name=name,
            step=step,
            began=began,
            began_first=began,
            began_last=began,
            signals=tuple(signals),
            changes=(),
            policies=(),
            questions=(),
            evidence=self.detector.total,
            threshold=self.threshold,
        )
        self._report(event)

    def _values(self, sums: Floats, ratios: Floats) -> Floats:
        """Return the values of each signal in a block, shape (N_VALUES, n_signals)."""
        samples = np.empty_like(sums)
        sample_block(sums, ratios, self._least_square, samples)
        z = self._spread.update(samples[0])
        lean = samples[1]
        values = np.empty((N_VALUES, len(self.signals)))
        spread_and_lean = values[:_N_SAMPLES]
        apart = values[_N_SAMPLES:]
        weights = np.empty_like(spread_and_lean)
        sum_signals(z, lean, ratios[0], self._reach, self._signal, spread_and_lean, weights)
        is_muted = self.detector.is_muted
        group_sums = np.empty((_N_SAMPLES + 1, len(set(self.groups))))
        compare_with_group(
            spread_and_lean, weights, is_muted, self._group, self._has_group, group_sums, apart
        )
        place = self.detector.n % HOLD
        self._z[place, 0] = z
        self._z[place, 1] = lean
        return values

    def _add_point(self, step: int) -> None:
        """Add the evidence to the curve; if that is full, halve it."""
        if not self.detector.is_ready:
            return
        points = self._points
        if self._n_points == _MOST_POINTS:
            half = _MOST_POINTS // 2
            points[:half] = points.reshape(half, 2, -1).max(axis=1)
            self._n_points = half
            self._points_per_block *= 2
        is_new = self.detector.n % self._points_per_block == 0 or self._n_points == 0
        of_signals = self.detector.discounted.max(axis=0)
        if is_new:
            self._n_points += 1
            points[self._n_points - 1] = 0.0
        newest = points[self._n_points - 1]
        newest[0] = step
        newest[1] = max(newest[1], self.detector.total)
        newest[2:] = np.maximum(newest[2:], of_signals)

    # ---- alarms ----------------------------------------------------------------------------------

    def _raise(self, step: int, mean: Floats, deviation: Floats) -> None:
        """Report an alarm; mute its signals until they fit again, and begin the tests anew."""
        detector = self.detector
        evidence = detector.discounted
        of_signals = evidence.max(axis=0)
        largest = of_signals.max()
        least = min(max(_NAMED * largest, _LEAST_NAMED), largest)
        name = "surprise"
        if self.is_surprised and self._n_since_alarm <= _SOON:
            name = "spreads"
        is_named = of_signals >= least
        order = np.argsort(-np.where(is_named, of_signals, -1.0), kind="stable")
        named = order[: min(int(is_named.sum()), _MOST_NAMED)].tolist()
        first = named[0]
        tests = evidence.argmax(axis=0)
        began = detector.beginning(int(tests[first]), first)
        n_blocks = detector.n_since(began.likeliest)
        event = SurpriseEvent(
            name=name,
            step=step,
            began=began.likeliest,
            began_first=began.first,
            began_last=began.last,
            signals=tuple(self.signals[number] for number in named),
            changes=tuple(_CHANGES[tests[number]] for number in named),
            policies=self._worst_policies(first, int(tests[first]), n_blocks),
            questions=self._worst_questions(named, tests, n_blocks),
            evidence=detector.total,
            threshold=self.threshold,
        )
        self._mean_before[:, is_named] = mean[:, is_named]
        self._deviation_before[:, is_named] = deviation[:, is_named]
        self._began = began.likeliest
        detector.is_muted = detector.is_muted | is_named
        detector.restart()
        self._n_since_alarm = 0
        self._report(event)

    def _mean_deviations(self, test: int, n_blocks: int) -> Floats:
        """Return how far each question deviated in the last blocks in the value of a test, shape (n_demons,)."""
        n_blocks = max(1, min(n_blocks, HOLD))
        places = np.arange(self.detector.n - n_blocks, self.detector.n) % HOLD
        deviations = self._z[places, test % _N_SAMPLES].astype(np.float64)
        return np.asarray(np.abs(deviations.mean(axis=0)))

    def _worst_questions(
        self, signals: Sequence[int], tests: Integers, n_blocks: int
    ) -> tuple[str, ...]:
        """Return the questions that deviate most, those of the first signal first; `tests` is of each signal."""
        names: list[str] = []
        for signal in signals:
            size = self._mean_deviations(int(tests[signal]), n_blocks)
            demons = np.flatnonzero(self._signal == signal)
            order = demons[np.argsort(-size[demons], kind="stable")]
            names.extend(self._questions[demon].name for demon in order.tolist())
        return tuple(names[:_MOST_QUESTIONS])

    def _worst_policies(self, signal: int, test: int, n_blocks: int) -> tuple[str, ...]:
        """Return the policies under which a signal's questions deviate at least half as much as under the worst."""
        size = self._mean_deviations(test, n_blocks)
        by_policy: dict[str, list[float]] = {}
        for demon in np.flatnonzero(self._signal == signal).tolist():
            by_policy.setdefault(self._policies[demon], []).append(float(size[demon]))
        means = {policy: float(np.mean(sizes)) for policy, sizes in by_policy.items()}
        largest = max(means.values(), default=0.0)
        worst = [policy for policy, mean in means.items() if mean >= 0.5 * largest > 0.0]
        return tuple(sorted(worst, key=lambda policy: -means[policy]))

    def _look_whether_it_fits(self, step: int) -> None:
        """Report the end of a surprise if the values of its signals are as before."""
        detector = self.detector
        if self._n_since_alarm < HOLD:
            return
        distance = np.abs(self._residuals.newest_mean - self._mean_before)
        fits = (distance <= _FITS * self._deviation_before).all(axis=0)
        is_over = detector.is_muted & fits
        if not is_over.any():
            return
        detector.is_muted = detector.is_muted & ~is_over
        fitting = [self.signals[number] for number in np.flatnonzero(is_over)]
        self._notice("fits", step, self._began, fitting)

    def _report(self, event: SurpriseEvent) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    # ---- state -----------------------------------------------------------------------------------

    def state(self) -> State:
        """Return everything that later alarms depend on."""
        return nested(
            form={"number": np.array(_FORM)},
            own=attributes(self, *self._SAVED),
            spread=attributes(self._spread, *Standardiser.SAVED),
            residuals=attributes(self._residuals, *Residuals.SAVED),
            standstill=attributes(self._standstill, *Standstill.SAVED),
            detector=self.detector.state(),
            events={"list": text([event._asdict() for event in self.events])},
        )

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same questions and rate.

        If other tests saved it, these begin again, which is an event.
        """
        self.events = [_event_of(entry) for entry in untext(state["events/list"])]
        if int(state.get("form/number", 0)) != _FORM:
            step = int(state["own/_block_began"])
            self._notice("begins", step, step, ())
            return
        put_back(self, inner(state, "own"), *self._SAVED)
        put_back(self._spread, inner(state, "spread"), *Standardiser.SAVED)
        put_back(self._residuals, inner(state, "residuals"), *Residuals.SAVED)
        put_back(self._standstill, inner(state, "standstill"), *Standstill.SAVED)
        self.detector.restore(inner(state, "detector"))


def surprise_table(surprise: Surprise) -> dict[str, Any]:
    """Return the evidence over time, by groups of signals, and the alarms, as a run's surprise.json has them."""
    curve = surprise.curve
    by_group: dict[str, Floats] = {}
    for number, group in enumerate(surprise.groups, 2):
        evidence = curve[:, number]
        by_group[group] = np.maximum(by_group.get(group, evidence), evidence)
    return {
        "rate": surprise.rate,
        "threshold": surprise.threshold,
        "steps_missing": surprise.steps_missing,
        "is_surprised": surprise.is_surprised,
        "step": curve[:, 0].astype(int).tolist(),
        "evidence": _rounded(curve[:, 1]),
        "evidence_of_groups": {group: _rounded(evidence) for group, evidence in by_group.items()},
        "events": [event.entry() for event in surprise.events],
    }


def _rounded(numbers: Floats) -> list[float]:
    """Return numbers, shape (n,), with four digits."""
    return [float(f"{number:.4g}") for number in numbers]


def _event_of(entry: dict[str, Any]) -> SurpriseEvent:
    """Return an event from its fields as JSON has them."""
    lists = {name: tuple(entry[name]) for name in ("signals", "changes", "policies", "questions")}
    return SurpriseEvent(**{**entry, **lists})


def quantisation_steps_of(questions: Sequence[GVF], interface: Interface) -> Floats:
    """Return the quantisation step of each question's channel, shape (n_questions,); 0 if it is unknown."""
    steps = np.zeros(len(questions))
    for number, question in enumerate(questions):
        if isinstance(question.cumulant, Channel):
            index = question.cumulant.index
            if isinstance(index, str):
                index = interface.names.index(index)
            steps[number] = interface.steps[index]
    return np.nan_to_num(steps)
