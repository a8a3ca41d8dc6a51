"""Cumulants with an offset that follows the reading: the arrays of `kernels.readings`, for each stream.

The products from which g is estimated are of all streams; the means and discounted sums of a stream
are its own, so that robots with other sensors may take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.kernels.readings import ReadingArrays, write_gains
from horde_agent.learning.engine import NEWCOMER, restored_streams, streams_state
from horde_agent.learning.values import Observation
from horde_agent.saving import State, attributes, inner, nested
from horde_agent.types import Bools, Floats, Integers

_OF_CUMULANTS = ("product", "square", "gain")
_OF_STREAM = ("level", "mean", "n_read", "past", "weight")


class ReadingOffsets:
    """Offsets that follow a reading.

    Args:
        follows: Mask of the demons with an offset that follows the reading, shape (n_demons,).
        cumulant: Cumulant of each demon among those that the engine receives, shape (n_demons,).
        channel: Channel of each demon's cumulant, shape (n_demons,).
        gamma: Constant continuation of each demon, shape (n_demons,).

    Attributes:
        arrays: What the kernels read and write, of k cumulants.
        place: Each demon's place in `arrays.level`, k without one, shape (n_demons,).
        level_processed: The levels at the latest state that the engine has processed, shape (k + 1,).
    """

    def __init__(
        self, follows: Bools, cumulant: Integers, channel: Integers, gamma: Floats
    ) -> None:
        demons = np.flatnonzero(follows)
        cumulants, firsts = np.unique(cumulant[demons], return_index=True)
        k = cumulants.size
        self.arrays = ReadingArrays(
            cumulant=cumulants,
            channel=channel[demons][firsts],
            gamma=gamma[demons][firsts],
            centre=np.zeros(k),
            product=np.zeros(k),
            square=np.zeros(k),
            gain=np.zeros(k),
            level=np.zeros(k + 1),
            mean=np.zeros(k),
            n_read=np.zeros(k),
            past=np.zeros(k),
            weight=np.zeros(k),
        )
        self.level_processed = np.zeros(k + 1)
        self.place = np.full(follows.size, k)
        self.place[demons] = np.searchsorted(cumulants, cumulant[demons])
        self._other_streams: dict[int, State] = {}

    @property
    def is_on(self) -> bool:
        """True if a demon's offset follows its reading."""
        return bool(self.arrays.cumulant.size)

    @property
    def sums(self) -> Floats:
        """Products and squares that g is estimated from, of each demon, shape (2, n_demons); 0 without g."""
        sums = np.array([self.arrays.product, self.arrays.square])
        with_none = np.append(sums, np.zeros((2, 1)), axis=1)
        return np.asarray(with_none[:, self.place])

    @property
    def shares(self) -> Floats:
        """Share of a deviation that lasts, kappa, of each demon; 0 without one or if it diverged, shape (n_demons,)."""
        arrays = self.arrays
        kappa = arrays.gain * (1.0 - arrays.gamma)
        return np.asarray(np.append(kappa, 0.0)[self.place])

    def levels(self, observation: Observation) -> Floats:
        """Return what is added at a state with this observation, (n_channels,): shape (k + 1,), the last one 0."""
        arrays = self.arrays
        deviation = observation[arrays.channel] - arrays.centre
        return np.append(arrays.gain * deviation, 0.0)

    def level_of(self, demon: int, observation: Observation) -> float:
        """Return what is added to one demon's prediction at a state with this observation, (n_channels,)."""
        j = int(self.place[demon])
        arrays = self.arrays
        if j == arrays.cumulant.size:
            return 0.0
        return float(arrays.gain[j] * (observation[arrays.channel[j]] - arrays.centre[j]))

    def begin(self) -> None:
        """Begin a stream: no later reading belongs to a return from before."""
        self.arrays.past[:] = 0.0
        self.arrays.weight[:] = 0.0

    def join(self, observation: Observation) -> None:
        """Set the levels at the current state, with this observation, (n_channels,)."""
        self.arrays.level[:] = self.levels(observation)

    def set_centres(self, references: Floats) -> None:
        """Set r from the constant part of each reference, (n_cumulants,)."""
        self.arrays.centre[:] = references[self.arrays.cumulant]

    def mark_processed(self) -> None:
        """Keep the levels of the current state: the engine has processed everything up to it."""
        self.level_processed[:] = self.arrays.level

    def mark_diverged(self, demon: int) -> None:
        """Add nothing to the predictions of a demon that diverged."""
        self.place[demon] = self.arrays.cumulant.size

    def set_sums(self, sums: Floats) -> None:
        """Set products, squares and g of demons with a g from `sums`, shape (2, n_demons); NaN leaves them."""
        arrays = self.arrays
        k = arrays.cumulant.size
        for demon in np.flatnonzero((self.place < k) & np.isfinite(sums).all(axis=0)).tolist():
            j = int(self.place[demon])
            arrays.product[j], arrays.square[j] = sums[:, demon]
        write_gains(arrays)

    def select_stream(self, stream: int, before: int) -> None:
        """Continue with the means and sums of another stream; those of the one `before` it are kept."""
        if not self.is_on:
            return
        arrays = self.arrays
        self._other_streams[before] = attributes(arrays, *_OF_STREAM)
        state = self._other_streams.pop(stream, {})
        for name in _OF_STREAM:
            values = getattr(arrays, name)
            values[:] = 0.0
            if name in state:
                values[:] = state[name]
        self.mark_processed()

    def copy_from(self, before: ReadingOffsets, old_index: Integers) -> None:
        """Copy what remaining demons' cumulants have; `old_index`, shape (n_demons,), is as in `DemonMapping`."""
        k = self.arrays.cumulant.size
        source = np.full(k + 1, before.arrays.cumulant.size)
        is_old = old_index != NEWCOMER
        had_none = before.place[old_index] == before.arrays.cumulant.size
        self.place[is_old & had_none] = k  # also of a demon that diverged
        source[self.place[is_old]] = before.place[old_index[is_old]]
        has_source = source[:k] < before.arrays.cumulant.size
        for name in (*_OF_CUMULANTS, *_OF_STREAM):
            values = getattr(self.arrays, name)[:k]
            values[has_source] = getattr(before.arrays, name)[source[:k][has_source]]
        for stream, state in before._other_streams.items():
            self._other_streams[stream] = _rearranged(state, source, has_source)
        self.mark_processed()

    def copy_estimates_from(self, other: ReadingOffsets) -> None:
        """Copy g and the products behind it from the same demons; means and sums of the stream do not change."""
        for name in _OF_CUMULANTS:
            getattr(self.arrays, name)[:] = getattr(other.arrays, name)
        self.place[:] = other.place

    def average(self, others: Sequence[ReadingOffsets]) -> None:
        """Average the products of several Hordes of the same demons, in place, and set g from them."""
        alike = (self, *others)
        for name in ("product", "square"):
            mean = np.mean([getattr(one.arrays, name) for one in alike], axis=0)
            for one in alike:
                getattr(one.arrays, name)[:] = mean
        for one in alike:
            write_gains(one.arrays)

    def state(self) -> State:
        """Return copies of the state, by name."""
        selected = attributes(self.arrays, *_OF_CUMULANTS, *_OF_STREAM)
        demons = attributes(self, "place", "level_processed")
        streams = streams_state(0, self._other_streams)
        return nested(arrays=selected, demons=demons, streams=streams)

    def restore(self, state: State) -> None:
        """Restore a state of the same demons."""
        for name, values in inner(state, "arrays").items():
            getattr(self.arrays, name)[:] = values
        self.place[:] = state["demons/place"]
        self.level_processed[:] = state["demons/level_processed"]
        _, self._other_streams = restored_streams(inner(state, "streams"))


def _rearranged(state: State, source: Integers, has_source: Bools) -> State:
    """Return a stream's state for other cumulants: `source` is the place of each before, where it has one."""
    rearranged: State = {}
    for name, values in state.items():
        size = has_source.size
        if name == "level":
            size += 1
        rearranged[name] = np.zeros(size)
        rearranged[name][: has_source.size][has_source] = values[source[:-1][has_source]]
    return rearranged
