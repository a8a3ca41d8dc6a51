"""Offsets: the zero point o of each demon's predictions, v(s) = o + theta.phi(s).

    delta = c' + (1 - gamma') z' + gamma' (o + theta.phi') - (o + theta.phi)
          = c' + (1 - gamma') (z' - o) + gamma' theta.phi' - theta.phi

An engine learns theta alone: it receives the outcome z' - o, and o is added to its predictions. If
gamma and z are constant, it receives the same sum as a cumulant less a reference, c' - r with r = (1 -
gamma) (o - z), and no outcome; only at the end of a stream, where gamma' = 0, the outcome is -gamma
(o - z). The reference is subtracted in float64, so that rounding to the engine's dtype is relative
to the changes of a signal and not to its size.

With the same number of active features in every state, the offset equals initial weights of o /
n_active.

An automatic offset ("mean") is the answer that would be right if all states were alike, from the
first transitions:

    o = sum (c' + (1 - gamma') z') / sum (1 - gamma')        c_mean / (1 - gamma) + z, if gamma and z are constant

It moves with each of them, as a weight with the step size 1/t does, and stands still afterwards. So
there is no jump. Before the first transition it is estimated from the first state alone.

An offset that follows the reading ("reading") is this one and a share of what the cumulant's channel
deviates from it now, v(s) = o + kappa (x(s) - r) / (1 - gamma) + theta.phi(s); `kernels.readings` has the
equations. Questions that are not about a channel with a constant gamma below 1, and those that find a
policy, have the mean instead.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.gvf import GVF, MEAN, READING, Prediction
from horde_agent.learning.engine import NEWCOMER
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Bools, Floats, Integers

N_READINGS = 500
"""Transitions from which an automatic offset is estimated, from the first state on."""

_OF_READINGS = ("n_readings", "total", "ends", "lowest", "highest", "is_rounded")
_OF_DEMONS = ("value", "added", "outcome", "is_frozen", *_OF_READINGS)
_STATE = (*_OF_DEMONS, "at_end", "is_moving", "is_unread")
# Steps of float32 in the spread of readings; below it, rounding is a part of their variance
_LEAST_STEPS = 16.0

_log = logging.getLogger(__name__)


_ROUNDING = 1e-12  # of a mean of equal readings, relative to them
_NO_SOURCE = -1  # in place of the demon that predicts the cumulant


class Slots(NamedTuple):
    """The cumulants that the engine receives: one for all demons with the same channel and the same reference.

    Attributes:
        channel: Channel of each cumulant, or `checks.NO_CHANNEL`, shape (n_cumulants,).
        cumulant: Cumulant of each demon, shape (n_demons,).
    """

    channel: Integers
    cumulant: Integers


class Readings(NamedTuple):
    """What demons observe at a state: shape (n_demons,) each.

    Attributes:
        cumulant: c.
        outcome: z.
        gamma: The continuation, 0 at the end of a stream.
    """

    cumulant: Floats
    outcome: Floats
    gamma: Floats


class Offsets:
    """The offsets of the demons with these questions.

    Args:
        questions: The questions.
        offset: Offset of the questions that name none: a number, MEAN or READING.
        cohort: As in `SignalMaker`.
        max_finite: Largest finite number of the engine's dtype.

    Attributes:
        is_on: True unless all offsets are 0.
        has_offset: Mask of the demons with an offset that is not fixed at 0, shape (n_demons,).
        is_moving: True as long as transitions move an offset.
        is_unread: True as long as an offset waits for its first reading.
        changes_always: True if references or outcomes change with every transition, and not with
            the ends of streams.
        at_end: True if the latest transition ended a stream.
        may_follow: Mask of the demons with an offset that follows the reading, if that is a channel of the
            observation, shape (n_demons,).
        gamma: Their constant continuations; 0 for a function, shape (n_demons,).
        value: Offset of each demon, shape (n_demons,).
        added: What is added to each demon's theta.phi, shape (n_demons,): the offset, 0 if it
            diverged.
        outcome: Latest outcome z of each demon, shape (n_demons,).
    """

    def __init__(
        self, questions: Sequence[GVF], offset: float | str, cohort: Integers, max_finite: float
    ) -> None:
        n = len(questions)
        offsets = [offset if question.offset is None else question.offset for question in questions]
        self._names = [question.name for question in questions]
        self._cohort = cohort
        self._max_finite = max_finite
        self._offsets = offsets
        self._is_automatic = np.array([one in (MEAN, READING) for one in offsets], dtype=bool)
        self.value = np.zeros(n)
        for i, one in enumerate(offsets):
            if not self._is_automatic[i]:
                self.value[i] = float(one)
        self.added = self.value.copy()
        self.has_offset = self._is_automatic | (self.value != 0.0)
        self.is_on = bool(self.has_offset.any())

        # Demons with a reference; the others with an offset receive z - o.
        has_constants = [
            not callable(question.continuation) and not callable(question.outcome)
            for question in questions
        ]
        self.gamma = _constants([question.continuation for question in questions])
        self._is_centred = (
            self.has_offset & np.array(has_constants, dtype=bool) & (self.gamma < 1.0)
        )
        self._is_shifted = self.has_offset & ~self._is_centred
        is_reading = [
            one == READING and not question.finds_policy
            for one, question in zip(offsets, questions, strict=True)
        ]
        self.may_follow = self._is_centred & np.array(is_reading, dtype=bool)
        self.outcome = _constants([question.outcome for question in questions])
        self._has_functions = any(callable(question.outcome) for question in questions)

        self.n_readings = np.zeros(n, dtype=np.int64)
        self.total = np.zeros(n)  # sum of c + (1 - gamma) z
        self.ends = np.zeros(n)  # sum of 1 - gamma
        self.lowest = np.full(n, np.inf)
        self.highest = np.full(n, -np.inf)
        self.is_rounded = np.ones(n, dtype=bool)  # float32 holds every reading
        self.is_frozen = np.zeros(n, dtype=bool)
        self.is_moving = bool(self._is_automatic.any())
        self.changes_always = self.is_moving or self._has_functions
        self.is_unread = self.is_moving
        self.at_end = False
        demon_of = {name: i for i, name in enumerate(self._names)}
        predicted = [
            q.cumulant.name if isinstance(q.cumulant, Prediction) else "" for q in questions
        ]
        self._source = np.array(
            [demon_of.get(name, _NO_SOURCE) for name in predicted], dtype=np.int64
        )

    # ---- what the engine receives -----------------------------------------------------------------------------------

    def slots(self, questions: Sequence[GVF], channel: Integers) -> Slots:
        """Return the cumulants that the engine receives, if all of them are channels, shape (n_demons,)."""
        if not self._is_centred.any():
            return Slots(np.arange(int(channel.max()) + 1), channel)
        numbers: dict[Hashable, int] = {}
        cumulant = np.zeros(channel.size, dtype=np.int64)
        for i, question in enumerate(questions):
            key: tuple[Hashable, ...] = (int(channel[i]),)
            if self._is_centred[i]:
                value = self._offsets[i]
                key = (
                    int(channel[i]),
                    question.continuation,
                    question.outcome,
                    value,
                    int(self._cohort[i]),
                )
            cumulant[i] = numbers.setdefault(key, len(numbers))
        channels = [key[0] for key in numbers]  # type: ignore[index]
        return Slots(np.array(channels, dtype=np.int64), cumulant)

    @property
    def is_fixed(self) -> bool:
        """True if the outcomes that the engine receives change at the end of a stream only."""
        return not (self._is_shifted & self._is_automatic).any()

    def references(self, slots: Slots) -> Floats:
        """Return the reference that is subtracted from each cumulant, (n_cumulants,)."""
        references = np.zeros(slots.channel.size)
        centred = np.flatnonzero(self._is_centred)
        references[slots.cumulant[centred]] = self._reference(self.value)[centred]
        return references

    def _reference(self, offsets: Floats) -> Floats:
        """Return the reference that is subtracted from each demon's cumulant, given all offsets, (n_demons,).

        A constant reading is subtracted to the last bit, so that nothing remains to be learned from
        its rounding.
        """
        references = np.where(self._is_centred, (1.0 - self.gamma) * (offsets - self.outcome), 0.0)
        is_rounding = np.abs(references - self.lowest) <= _ROUNDING * np.abs(self.lowest)
        return np.where(
            self._is_centred & (self.lowest == self.highest) & is_rounding, self.lowest, references
        )

    def outcomes(self, *, is_last: bool) -> Floats:
        """Return the outcomes that the engine receives, (n_demons,); `is_last` at the end of a stream."""
        of_centred = np.zeros(self.value.size)
        if is_last:
            of_centred = self.gamma * (self.outcome - self.value)
        of_others = np.where(self._is_shifted, self.outcome - self.value, self.outcome)
        return np.where(self._is_centred, of_centred, of_others)

    # ---- the estimate -----------------------------------------------------------------------------------------------

    def begin(self, readings: Readings) -> None:
        """Estimate the offsets of demons without a reading at the first state of a stream, before any transition."""
        is_first = (self.n_readings == 0) & (self._source == _NO_SOURCE)
        self._read(readings, is_first)

    def move(self, readings: Readings) -> None:
        """Move the automatic offsets by the readings of a transition.

        Another demon's prediction is a reading once that demon has had one.
        """
        source_is_ready = ~self._is_automatic[self._source] | (self.n_readings[self._source] > 0)
        self._read(readings, (self._source == _NO_SOURCE) | source_is_ready)

    def _read(self, readings: Readings, is_counted: Bools) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            end = 1.0 - readings.gamma
            term = readings.cumulant + end * readings.outcome
            is_sound = (np.abs(term) <= self._max_finite) & (np.abs(end) <= 1.0)
            is_rounded = readings.cumulant.astype(np.float32) == readings.cumulant
        counted = self._is_automatic & is_counted & is_sound & (self.n_readings < N_READINGS)
        self.total[counted] += term[counted]
        self.ends[counted] += end[counted]
        self.n_readings[counted] += 1
        self.lowest[counted] = np.minimum(self.lowest, readings.cumulant)[counted]
        self.highest[counted] = np.maximum(self.highest, readings.cumulant)[counted]
        self.is_rounded[counted] &= is_rounded[counted]
        is_known = counted & (self.ends > 0.0)
        self.value[is_known] = self.total[is_known] / self.ends[is_known]
        self._write_added()
        self._see_what_moves()
        self._warn_of_rounding(counted & (self.n_readings == N_READINGS))

    def _see_what_moves(self) -> None:
        self.is_moving = bool((self._is_automatic & (self.n_readings < N_READINGS)).any())
        self.is_unread = bool((self._is_automatic & (self.n_readings == 0)).any())
        self.changes_always = self.is_moving or self._has_functions

    def set(self, values: Floats, cumulant: Integers) -> None:
        """Set offsets, (n_demons,), which then stand still; NaN leaves a demon's as it is.

        `cumulant` is that of each demon, as in `Slots`. Raise ValueError if demons with one
        cumulant would get different offsets.
        """
        is_set = np.isfinite(values)
        offsets = np.where(is_set, values, self.value)
        lowest = np.full(int(cumulant.max()) + 1, np.inf)
        highest = -lowest
        centred = np.flatnonzero(self._is_centred)
        np.minimum.at(lowest, cumulant[centred], self._reference(offsets)[centred])
        np.maximum.at(highest, cumulant[centred], self._reference(offsets)[centred])
        if (lowest < highest).any() or (offsets != self.value)[~self._is_automatic].any():
            raise ValueError(
                "offsets can be set only for demons with an automatic offset, and for all demons with the same "
                "channel, continuation and outcome that were added together"
            )
        self.value[:] = offsets
        self.n_readings[is_set] = N_READINGS
        self._write_added()
        self._see_what_moves()

    def _warn_of_rounding(self, is_complete: Bools) -> None:
        """Log a warning if readings vary by so few steps of float32 that rounding is a part of what is predicted."""
        if not is_complete.any():
            return
        spread = self.highest - self.lowest
        largest = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        is_small = (spread > 0.0) & (
            spread < _LEAST_STEPS * float(np.finfo(np.float32).eps) * largest
        )
        is_learned_rounded = self._is_shifted & (
            self._max_finite <= float(np.finfo(np.float32).max)
        )
        is_coarse = is_complete & is_small & (self.is_rounded | is_learned_rounded)
        if is_coarse.any():
            first = int(np.argmax(is_coarse))
            _log.warning(
                "the cumulants of %d questions, the first %r, varied by %.3g around %.6g, which is less than %d steps "
                "of float32: record them less a constant",
                int(is_coarse.sum()),
                self._names[first],
                spread[first],
                largest[first],
                int(_LEAST_STEPS),
            )

    def mark_diverged(self, demon: int) -> None:
        """Add nothing to the predictions of a demon that diverged."""
        self.is_frozen[demon] = True
        self._write_added()

    def _write_added(self) -> None:
        self.added[:] = np.where(self.is_frozen, 0.0, self.value)

    # ---- several Hordes, other demons, state ------------------------------------------------------------------------

    def copy_from(self, before: Offsets, old_index: Integers) -> None:
        """Copy the offsets of remaining demons; `old_index`, shape (n_demons,), is as in `DemonMapping`."""
        is_old = old_index != NEWCOMER
        for name in _OF_DEMONS:
            getattr(self, name)[is_old] = getattr(before, name)[old_index[is_old]]
        self.at_end = before.at_end

    def average(self, others: Sequence[Offsets]) -> None:
        """Average the estimates of several Hordes of the same demons, in place."""
        alike = (self, *others)
        total = np.mean([offsets.total for offsets in alike], axis=0)
        ends = np.mean([offsets.ends for offsets in alike], axis=0)
        n_readings = np.max([offsets.n_readings for offsets in alike], axis=0)
        is_known = self._is_automatic & (ends > 0.0)
        for offsets in alike:
            offsets.total[:] = total
            offsets.ends[:] = ends
            offsets.n_readings[:] = n_readings
            offsets.value[is_known] = total[is_known] / ends[is_known]
            offsets._write_added()

    def state(self) -> State:
        """Return copies of the state, by name."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Restore a state of the same demons."""
        put_back(self, state, *_STATE)
        self.changes_always = self.is_moving or self._has_functions


def checked_offsets(
    offsets: Floats, reading_sums: Floats | None, n_demons: int
) -> tuple[Floats, Floats]:
    """Return arguments of `Horde.set_offsets`, (n_demons,) and (2, n_demons), or raise ValueError."""
    values = np.asarray(offsets, dtype=np.float64)
    if values.shape != (n_demons,):
        raise ValueError(f"offsets must have the shape ({n_demons},), not {values.shape}")
    sums = np.full((2, n_demons), np.nan)
    if reading_sums is not None:
        sums = np.asarray(reading_sums, dtype=np.float64)
    if sums.shape != (2, n_demons):
        raise ValueError(f"reading_sums must have the shape (2, {n_demons}), not {sums.shape}")
    return values, sums


def _constants(values: Sequence[object]) -> Floats:
    """Return numbers, and 0 in the place of functions."""
    return np.array([0.0 if callable(value) else value for value in values], dtype=np.float64)
