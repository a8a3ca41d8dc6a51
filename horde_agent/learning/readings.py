"""Additions to the predictions of each demon: its offset, constant or following a reading.

The arrays are those of `kernels.readings`, for each stream. All streams share the products from which
g is estimated; each stream has its own means and discounted sums, so that robots with other sensors
may take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from horde_agent.kernels.readings import FOLLOWER, ReadingArrays, write_gains
from horde_agent.learning.stored import (
    CUMULANT,
    DEMON,
    NEWCOMER,
    Earlier,
    Field,
    Fields,
    Stored,
    Streams,
    fill,
)
from horde_agent.learning.values import Observation
from horde_agent.types import Bools, Floats, Integers


class ReadingOffsets(Stored):
    """Offsets as they are added to predictions, and those that follow a reading.

    Args:
        follows: Mask of the demons with an offset that follows the reading, shape (n_demons,).
        has_offset: Mask of the demons with an offset, shape (n_demons,).
        cumulant: Cumulant of each demon among those that the engine receives, shape (n_demons,).
        channel: Channel of each demon's cumulant, shape (n_demons,).
        gamma: Constant continuation of each demon, shape (n_demons,).

    Attributes:
        arrays: What the kernels read and write, of k cumulants.
        place: Each demon's place in `arrays.added`, shape (n_demons,).
        added_processed: `arrays.added` at the latest state that the engine has processed.
    """

    FIELDS: ClassVar[Fields] = {
        "arrays/follower/product": Field(CUMULANT, merge=np.mean),
        "arrays/follower/square": Field(CUMULANT, merge=np.mean),
        "arrays/follower/gain": Field(CUMULANT),
        "arrays/follower/level": Field(CUMULANT, of_stream=True),
        "arrays/follower/recent_mean": Field(CUMULANT, of_stream=True),
        "arrays/follower/n_read": Field(CUMULANT, of_stream=True),
        "arrays/follower/past": Field(CUMULANT, of_stream=True),
        "arrays/follower/weight": Field(CUMULANT, of_stream=True),
        "arrays/follower/offset": Field(is_carried=False),
        "arrays/follower/centre": Field(is_carried=False),
        "arrays/added": Field(is_carried=False),
        "place": Field(DEMON, is_carried=False),
        "added_processed": Field(is_carried=False),
    }
    streams: Streams

    def __init__(
        self,
        follows: Bools,
        has_offset: Bools,
        cumulant: Integers,
        channel: Integers,
        gamma: Floats,
    ) -> None:
        demons = np.flatnonzero(follows)
        cumulants, firsts = np.unique(cumulant[demons], return_index=True)
        k = cumulants.size
        follower = np.zeros(k, dtype=FOLLOWER).view(np.recarray)
        follower.cumulant = cumulants
        follower.channel = channel[demons][firsts]
        follower.gamma = gamma[demons][firsts]
        steady = np.flatnonzero(has_offset & ~follows)
        self.arrays = ReadingArrays(
            follower=follower,
            leader=demons[firsts],
            steady=steady,
            added=np.zeros(k + steady.size + 1),
        )
        self.added_processed = self.arrays.added.copy()
        self.place = np.full(follows.size, self._nowhere, dtype=np.int32)
        self.place[demons] = np.searchsorted(cumulants, cumulant[demons])
        self.place[steady] = k + np.arange(steady.size)
        self.streams = Streams()

    @property
    def _nowhere(self) -> int:
        """The place of demons without an addition."""
        return self.arrays.added.size - 1

    @property
    def is_on(self) -> bool:
        """True if a demon's offset follows its reading."""
        return bool(self.arrays.follower.size)

    def _of_demons(self, of_followers: Floats) -> Floats:
        """Return numbers of the k cumulants, (..., k), for each demon, (..., n_demons); 0 for demons without g."""
        n_places = self.arrays.added.size
        of_places = np.zeros((*of_followers.shape[:-1], n_places))
        of_places[..., : of_followers.shape[-1]] = of_followers
        return np.asarray(of_places[..., self.place])

    @property
    def sums(self) -> Floats:
        """Products and squares that g is estimated from, of each demon, shape (2, n_demons); 0 without g."""
        follower = self.arrays.follower
        return self._of_demons(np.array([follower.product, follower.square]))

    @property
    def shares(self) -> Floats:
        """Share of a deviation that lasts, kappa, of each demon; 0 without one or if it diverged, shape (n_demons,)."""
        follower = self.arrays.follower
        return self._of_demons(follower.gain * (1.0 - follower.gamma))

    def added_at(self, observation: Observation) -> Floats:
        """Return the additions at a state with this observation, (n_channels,), by place."""
        follower = self.arrays.follower
        added = self.arrays.added.copy()
        added[: follower.size] = follower.offset + self._levels_at(observation)
        return added

    def _levels_at(self, observation: Observation) -> Floats:
        """Return g (x - r) of the k cumulants, (k,); that of the current state where the reading is missing (NaN)."""
        follower = self.arrays.follower
        levels = follower.gain * (observation[follower.channel] - follower.centre)
        return np.asarray(np.where(np.isnan(levels), follower.level, levels))

    def added_to(self, demon: int, observation: Observation) -> float:
        """Return the addition to one demon's prediction at a state with this observation, (n_channels,)."""
        place = int(self.place[demon])
        if place >= self.arrays.follower.size:
            return float(self.arrays.added[place])
        one = self.arrays.follower[place]
        reading = observation[one.channel]
        if np.isnan(reading):
            return float(one.offset + one.level)
        return float(one.offset + one.gain * (reading - one.centre))

    def begin(self) -> None:
        """Begin a stream: no later reading belongs to a return from before."""
        self.arrays.follower.past[:] = 0.0
        self.arrays.follower.weight[:] = 0.0

    def join(self, observation: Observation) -> None:
        """Set the additions at the current state, with this observation, (n_channels,)."""
        self.arrays.follower.level[:] = self._levels_at(observation)
        self._write_added()

    def _write_added(self) -> None:
        follower = self.arrays.follower
        self.arrays.added[: follower.size] = follower.offset + follower.level

    def mark_diverged(self, demon: int) -> None:
        """Add nothing to the predictions of a demon that diverged."""
        self.place[demon] = self._nowhere

    def set_sums(self, sums: Floats) -> None:
        """Set products, squares and g of demons with a g from `sums`, shape (2, n_demons); NaN leaves them."""
        follower = self.arrays.follower
        is_set = (self.place < follower.size) & np.isfinite(sums).all(axis=0)
        for demon in np.flatnonzero(is_set).tolist():
            one = follower[self.place[demon]]
            one.product, one.square = sums[:, demon]
        write_gains(follower)

    def select_stream(self, stream: int) -> None:
        """Continue with the means and sums of another stream; those of the selected one are kept."""
        arrays = self.of_stream()
        fill(arrays, self.streams.exchange(stream, arrays))
        self._write_added()

    def carry_over(self, before: Self, earlier: Earlier) -> None:
        """Continue what the cumulants of remaining demons have; demons that diverged have no addition."""
        index = earlier[DEMON]
        is_old = index != NEWCOMER
        self.place[is_old & (before.place[index] == before._nowhere)] = self._nowhere
        follows = is_old & (self.place < self.arrays.follower.size)
        source = np.full(self.arrays.follower.size, NEWCOMER)
        source[self.place[follows]] = before.place[index[follows]]
        super().carry_over(before, {**earlier, CUMULANT: source})

    def copy_estimates_from(self, other: ReadingOffsets) -> None:
        """Copy g and the products behind it from the same demons; means and sums of the stream do not change."""
        for name in ("product", "square", "gain"):
            self.arrays.follower[name] = other.arrays.follower[name]
        self.place[:] = other.place

    def merge(self, others: Sequence[Self]) -> None:
        """Give several Hordes of the same demons the mean of their products, and g from it."""
        super().merge(others)
        for following in (self, *others):
            write_gains(following.arrays.follower)
