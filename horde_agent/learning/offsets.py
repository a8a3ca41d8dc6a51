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
from typing import ClassVar, NamedTuple, Self

import numpy as np

from horde_agent.gvf import GVF, MEAN, READING, Prediction
from horde_agent.kernels.offsets import (
    IS_COMPLETE,
    IS_MOVING,
    IS_UNREAD,
    N_READINGS,
    NO_SOURCE,
    OffsetArrays,
)
from horde_agent.learning.stored import DEMON, Field, Fields, Stored
from horde_agent.types import Bools, Floats, Integers

# Steps of float32 in the spread of readings; below it, rounding is a part of their variance
_LEAST_STEPS = 16.0

_log = logging.getLogger(__name__)


class Slots(NamedTuple):
    """The cumulants that the engine receives: one for all demons with the same channel and the same reference.

    Attributes:
        channel: Channel of each cumulant, or `checks.NO_CHANNEL`, shape (n_cumulants,).
        cumulant: Cumulant of each demon, shape (n_demons,).
    """

    channel: Integers
    cumulant: Integers


class Offsets(Stored):
    """The offsets of the demons with these questions.

    Args:
        questions: The questions.
        offset: Offset of the questions that name none: a number, MEAN or READING.
        cohort: As in `SignalMaker`.
        max_finite: Largest finite number of the engine's dtype.

    Attributes:
        is_on: True unless all offsets are 0.
        has_offset: Mask of the demons with an offset that is not fixed at 0, shape (n_demons,).
        has_functions: True if there are offsets, and an outcome is computed in Python.
        is_moving: True as long as transitions move an offset.
        is_unread: True as long as an offset waits for its first reading.
        at_end: True if the latest transition ended a stream.
        may_follow: Mask of the demons with an offset that follows the reading, if that is a channel of the
            observation, shape (n_demons,).
        arrays: What the kernels read and write.
    """

    FIELDS: ClassVar[Fields] = {
        "arrays/value": Field(DEMON),
        "arrays/added": Field(DEMON, diverged=0.0),
        "arrays/outcome": Field(DEMON),
        "arrays/is_frozen": Field(DEMON, diverged=True),
        "arrays/n_readings": Field(DEMON, merge=np.max),
        "arrays/total": Field(DEMON, merge=np.mean),
        "arrays/ends": Field(DEMON, merge=np.mean),
        "arrays/lowest": Field(DEMON),
        "arrays/highest": Field(DEMON),
        "arrays/is_rounded": Field(DEMON),
        "at_end": Field(),
        "is_moving": Field(is_carried=False),
        "is_unread": Field(is_carried=False),
    }

    def __init__(
        self, questions: Sequence[GVF], offset: float | str, cohort: Integers, max_finite: float
    ) -> None:
        n = len(questions)
        offsets = [offset if question.offset is None else question.offset for question in questions]
        self._names = [question.name for question in questions]
        self._cohort = cohort
        self._max_finite = max_finite
        self._offsets = offsets
        is_automatic = np.array([one in (MEAN, READING) for one in offsets], dtype=bool)
        value = np.zeros(n)
        for i, one in enumerate(offsets):
            if not is_automatic[i]:
                value[i] = float(one)
        self.has_offset = is_automatic | (value != 0.0)
        self.is_on = bool(self.has_offset.any())

        # Demons with a reference; the others with an offset receive z - o.
        has_constants = [
            not callable(question.continuation) and not callable(question.outcome)
            for question in questions
        ]
        gamma = _constants([question.continuation for question in questions])
        is_centred = self.has_offset & np.array(has_constants, dtype=bool) & (gamma < 1.0)
        is_reading = [
            one == READING and not question.finds_policy
            for one, question in zip(offsets, questions, strict=True)
        ]
        self.may_follow = is_centred & np.array(is_reading, dtype=bool)
        has_functions = any(callable(question.outcome) for question in questions)
        self.has_functions = self.is_on and has_functions
        demon_of = {name: i for i, name in enumerate(self._names)}
        predicted = [
            q.cumulant.name if isinstance(q.cumulant, Prediction) else "" for q in questions
        ]
        self.arrays = OffsetArrays(
            is_automatic=is_automatic,
            is_centred=is_centred,
            is_shifted=self.has_offset & ~is_centred,
            is_frozen=np.zeros(n, dtype=bool),
            source=np.array([demon_of.get(name, NO_SOURCE) for name in predicted], dtype=np.int64),
            gamma=gamma,
            outcome=_constants([question.outcome for question in questions]),
            value=value,
            added=value.copy(),
            n_readings=np.zeros(n, dtype=np.int64),
            total=np.zeros(n),
            ends=np.zeros(n),
            lowest=np.full(n, np.inf),
            highest=np.full(n, -np.inf),
            is_rounded=np.ones(n, dtype=bool),
            is_due=np.zeros(n, dtype=bool),
        )
        self.is_moving = bool(is_automatic.any())
        self.is_unread = self.is_moving
        self.at_end = False

    # ---- what the engine receives -----------------------------------------------------------------------------------

    def slots(self, questions: Sequence[GVF], channel: Integers) -> Slots:
        """Return the cumulants that the engine receives, if all of them are channels, shape (n_demons,)."""
        is_centred = self.arrays.is_centred
        if not is_centred.any():
            return Slots(np.arange(int(channel.max()) + 1), channel)
        numbers: dict[Hashable, int] = {}
        cumulant = np.zeros(channel.size, dtype=np.int64)
        for i, question in enumerate(questions):
            key: tuple[Hashable, ...] = (int(channel[i]),)
            if is_centred[i]:
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
        return not (self.arrays.is_shifted & self.arrays.is_automatic).any()

    # ---- the estimate -----------------------------------------------------------------------------------------------

    def note(self, remaining: int) -> None:
        """Note what `kernels.offsets.read` returned: what remains to be read."""
        self.is_moving = bool(remaining & IS_MOVING)
        self.is_unread = bool(remaining & IS_UNREAD)
        if remaining & IS_COMPLETE:
            arrays = self.arrays
            self._warn_of_rounding(arrays.is_due & (arrays.n_readings == N_READINGS))

    def set(self, values: Floats, cumulant: Integers) -> None:
        """Set offsets, (n_demons,), which then stand still; NaN leaves a demon's as it is.

        `cumulant` is that of each demon, as in `Slots`. Raise ValueError if demons with one
        cumulant would get different offsets.
        """
        arrays = self.arrays
        is_set = np.isfinite(values)
        offsets = np.where(is_set, values, arrays.value)
        lowest = np.full(int(cumulant.max()) + 1, np.inf)
        highest = -lowest
        centred = np.flatnonzero(arrays.is_centred)
        np.minimum.at(lowest, cumulant[centred], offsets[centred])
        np.maximum.at(highest, cumulant[centred], offsets[centred])
        changes_fixed = (offsets != arrays.value) & ~arrays.is_automatic
        if (lowest < highest).any() or changes_fixed.any():
            raise ValueError(
                "offsets can be set only for demons with an automatic offset, and for all demons with the same "
                "channel, continuation and outcome that were added together"
            )
        arrays.value[:] = offsets
        arrays.n_readings[is_set] = N_READINGS
        self._write_added()
        is_read = arrays.n_readings[arrays.is_automatic]
        self.is_moving = bool((is_read < N_READINGS).any())
        self.is_unread = bool((is_read == 0).any())

    def _warn_of_rounding(self, is_complete: Bools) -> None:
        """Log a warning if readings vary by so few steps of float32 that rounding is a part of what is predicted."""
        arrays = self.arrays
        spread = arrays.highest - arrays.lowest
        largest = np.maximum(np.abs(arrays.lowest), np.abs(arrays.highest))
        is_small = (spread > 0.0) & (
            spread < _LEAST_STEPS * float(np.finfo(np.float32).eps) * largest
        )
        is_learned_rounded = arrays.is_shifted & (
            self._max_finite <= float(np.finfo(np.float32).max)
        )
        is_coarse = is_complete & is_small & (arrays.is_rounded | is_learned_rounded)
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

    def _write_added(self) -> None:
        self.arrays.added[:] = np.where(self.arrays.is_frozen, 0.0, self.arrays.value)

    # ---- several Hordes -------------------------------------------------------------------------------------------

    def merge(self, others: Sequence[Self]) -> None:
        """Give several Hordes of the same demons the mean of their estimates."""
        super().merge(others)
        for offsets in (self, *others):
            arrays = offsets.arrays
            is_known = arrays.is_automatic & (arrays.ends > 0.0)
            arrays.value[is_known] = arrays.total[is_known] / arrays.ends[is_known]
            offsets._write_added()


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
