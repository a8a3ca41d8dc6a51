"""Sensors that are lost: no reading came for a while, by the time of the rows, of a robot as of any stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from horde_agent.interface import HeldReadings, Interface
from horde_agent.record import Row

LOST = "sensor_lost"
BACK = "sensor_back"
_ROUNDING = 0.01
"""Share of a period by which times of rows may be rounded."""


class SensorEvent(NamedTuple):
    """A sensor was lost, or is back.

    Attributes:
        name: "sensor_lost" or "sensor_back".
        step: Of the row at which that was found.
        channel: Its name.
        without_s: Time since the first row that lacked its reading, in seconds.
        robot: Number of its robot.
    """

    name: str
    step: int
    channel: str
    without_s: float
    robot: int = 0

    @property
    def sentence(self) -> str:
        """The event as a sentence, without a full stop."""
        sensor = self.channel
        if self.robot:
            sensor = f"{self.channel} of robot {self.robot}"
        text = f"{sensor} has had no reading for {self.without_s:g} s"
        if self.name == BACK:
            text = f"{sensor} has a reading again, after {self.without_s:g} s without one"
        return f"step {self.step:,}: {text}"

    def entry(self) -> dict[str, Any]:
        """Return it as an event of a run."""
        return {**self._asdict(), "event": self.name, "sentence": self.sentence}


class LostSensors:
    """Watches for sensors without a reading, with one event when each is lost and one when it is back.

    Args:
        interface: Describes the channels.
        lost_after_s: Time without a reading after which a sensor is lost, in seconds.
        on_event: Called with each event.
    """

    def __init__(
        self,
        interface: Interface,
        lost_after_s: float,
        on_event: Callable[[SensorEvent], None],
    ) -> None:
        self._names = interface.names
        self._least_s = lost_after_s - _ROUNDING * interface.period_s
        self._on_event = on_event

    def update(self, held: HeldReadings, row: Row) -> None:
        """Look at the newest row, of which a reading is missing or has returned."""
        was_lost = ~np.isnan(held.lost_since_s)
        is_lost = held.newest_s - held.since_s >= self._least_s
        if not (is_lost != was_lost).any():
            return
        for i in np.flatnonzero(was_lost & ~held.is_missing).tolist():
            self._report(BACK, row, i, held.newest_s - held.lost_since_s[i])
        for i in np.flatnonzero(is_lost & ~was_lost).tolist():
            self._report(LOST, row, i, held.newest_s - held.since_s[i])
        held.lost_since_s = np.where(was_lost | is_lost, held.since_s, np.nan)

    def _report(self, name: str, row: Row, channel: int, without_s: float) -> None:
        event = SensorEvent(
            name, row.step, self._names[channel], round(float(without_s), 3), row.robot
        )
        self._on_event(event)
