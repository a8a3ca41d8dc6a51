"""Readings that stand for missing ones (NaN) in the features: the last one of each channel, for a while.

A missing reading concerns the questions that need it, which skip the step (`Horde.learn`). Features need
a number: for `hold_s` of its channel the last reading stands for it, which a lost packet or a slow topic
needs. After that, the tilings that read the channel have their tile "unknown", in an interface of
`Interface.with_unknown`; in another one the last reading stands for it until the channel returns.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Bools, Floats, Integers

_STATE = ("latest", "age", "n_missing", "is_missing", "since_step", "_n_unread", "_is_new")
_LATER_STATE = ("since_s", "lost_since_s", "newest_s")
"""Not in snapshots of earlier states of version 0.2."""


class HeldReadings:
    """The last readings of one stream of observations.

    Args:
        interface: Channels, period, and whether its tilings have a tile "unknown".

    Attributes:
        latest: The last reading of each channel, in its own unit, shape (n_channels,); its lower bound,
            or 0 without one, before the first.
        age: Steps since the last reading of each channel, shape (n_channels,): 0 if it is there; beyond
            `hold_s` from the first step on if there was none.
        n_missing: Number of observations without a reading of each channel, shape (n_channels,).
        is_missing: Which readings the newest observation lacks, shape (n_channels,).
        since_step: Step of the first observation of those in a row that lack a reading, shape
            (n_channels,); -1 if it is there.
        since_s: Time of that observation in seconds, shape (n_channels,); NaN if it is there.
        lost_since_s: The same, of channels that `LostSensors` takes for lost; NaN of others.
        newest_s: Time of the newest observation that lacks a reading, or in which one returned.
    """

    def __init__(self, interface: Any) -> None:
        scaler = interface.scaler
        n_channels = len(interface.channels)
        hold_s = np.array([channel.hold_s for channel in interface.channels])
        most_held = np.maximum(np.rint(hold_s / interface.period_s), 1.0)
        self._most_held: Integers = most_held.astype(np.int64)
        self._has_unknown = interface.coder.has_unknown
        self.latest: Floats = np.where(scaler.bounded, scaler.low, 0.0)
        self.age: Integers = self._most_held.copy()
        self.n_missing: Integers = np.zeros(n_channels, dtype=np.int64)
        self.is_missing: Bools = np.zeros(n_channels, dtype=bool)
        self.since_step: Integers = np.full(n_channels, -1)
        self.since_s: Floats = np.full(n_channels, np.nan)
        self.lost_since_s: Floats = np.full(n_channels, np.nan)
        self.newest_s = math.nan
        self._period_s = interface.period_s
        # Channels with an age
        self._n_unread = n_channels
        # `is_missing` changed since the latest `note_step`
        self._is_new = False

    def fill(self, observation: NDArray[Any], *, begins: bool) -> NDArray[Any]:
        """Return the next observation with readings for missing ones, (n_channels,), for the tile coder.

        NaN remains where the tile is "unknown". Call it once for each observation.

        Args:
            observation: The observation, shape (n_channels,); it is returned if no reading is missing.
            begins: Whether it does not follow from the one before: no earlier reading is held then.
        """
        # NaN if a reading is; a third of the time of isnan(...).any()
        squares = float(observation.dot(observation))
        if not math.isnan(squares) and not self._n_unread:
            self.latest[:] = observation
            return observation
        is_missing = np.isnan(observation)
        if begins:
            self.age = np.maximum(self.age, self._most_held)
        self.is_missing = is_missing
        self._is_new = True
        self.n_missing += is_missing
        self.latest = np.where(is_missing, self.latest, observation)
        self.age = np.where(is_missing, self.age + 1, 0)
        self._n_unread = int(np.count_nonzero(self.age))
        filled = self.latest.astype(observation.dtype)
        if self._has_unknown:
            filled[self.age > self._most_held] = np.nan
        return filled

    def note_step(self, step: int, time_s: float) -> bool:
        """Note step and time of the newest observation; return whether one of its readings is missing or has returned.

        `time_s` is in seconds; NaN if the rows have no time of their own.
        """
        if not self._is_new:
            return False
        if math.isnan(time_s):
            time_s = step * self._period_s
        is_known = self.since_step >= 0
        if (is_known != self.is_missing).any():
            since_step = np.where(is_known, self.since_step, step)
            since_s = np.where(is_known, self.since_s, time_s)
            self.since_step = np.where(self.is_missing, since_step, -1)
            self.since_s = np.where(self.is_missing, since_s, np.nan)
        if time_s < self.newest_s:  # of another clock
            self.since_s = np.minimum(self.since_s, time_s)
        self.newest_s = time_s
        self._is_new = False
        return True

    def known(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the newest observation, (n_channels,), with the last readings in place of all missing ones."""
        return np.where(np.isnan(observation), self.latest, observation).astype(observation.dtype)

    def state(self) -> State:
        """Return the readings, their ages and the counts."""
        return attributes(self, *_STATE, *_LATER_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_STATE)
        if all(name in state for name in _LATER_STATE):
            put_back(self, state, *_LATER_STATE)
        else:
            since_s = self.since_step * self._period_s
            self.since_s = np.where(self.since_step < 0, np.nan, since_s)


class FilledRows(NamedTuple):
    """Observations of rows without missing readings, each of shape (n_rows, n_channels).

    Attributes:
        for_tiles: Those of `HeldReadings.fill`.
        known: Those of `HeldReadings.known`.
    """

    for_tiles: NDArray[Any]
    known: NDArray[Any]


def filled_rows(
    observations: NDArray[Any],
    begins: Bools,
    interface: Any,
    last_readings: HeldReadings | None = None,
) -> FilledRows:
    """Return consecutive observations without missing readings.

    Args:
        observations: Shape (n_rows, n_channels).
        begins: Which rows do not follow from the row before, shape (n_rows,).
        interface: Describes the channels.
        last_readings: Those up to the first row; none when None.
    """
    if last_readings is None:
        last_readings = HeldReadings(interface)
    if not np.isnan(observations).any():
        for observation in observations[-1:]:
            last_readings.fill(observation, begins=False)
        return FilledRows(observations, observations)
    filled = FilledRows(observations.copy(), observations.copy())
    for row, observation in enumerate(observations):
        filled.for_tiles[row] = last_readings.fill(observation, begins=bool(begins[row]))
        filled.known[row] = last_readings.known(observation)
    return filled
