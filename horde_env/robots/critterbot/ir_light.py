"""IR light: the two bits that the firmware loses, guessed back.

Source: the Critterbot's ARM firmware of June 2011 (lib_mi.c), in which a cast to a byte binds before a shift.
"""

from __future__ import annotations

import numpy as np

from horde_env.backend import Floats
from horde_env.robots.critterbot.wire import RobotState, ir_light


class IrLightContinuity:
    """Unwraps the IR light of the Critterbot's packets as they come."""

    def __init__(self) -> None:
        self._unwrapper = IrLightUnwrapper()

    def forget(self) -> None:
        """Take the next two packets as they are."""
        self._unwrapper.forget()

    def unwrap(self, state: RobotState) -> Floats:
        """Return the readings, 0..1023, shape (8,), of the next packet."""
        return self._unwrapper.unwrap(ir_light(state))


class IrLightUnwrapper:
    """Gives IR light its top two bits back, by continuity with the last three packets.

    The firmware sends a reading of 0..1023 modulo 256. Near the dock its 50 Hz beacon makes a 100 Hz sample alternate
    between two levels, and now and then one level comes twice, so a reading resembles the one two packets ago, or else
    the last or the third. Of the four readings that a byte may stand for, the one nearest to any of these is taken, 32
    in favour of the one two packets ago.

    Always right where the reading is within 32 of what it was two packets ago; right after greater changes unless they
    come near a multiple of 256. Not possible for the first two packets, which are taken as they are (away from the
    dock the robot's own log never passes 196), and only a guess across lost packets. A guess too high cannot be
    noticed later: `forget` starts again.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Take the next two packets as they are."""
        self._history = np.zeros((3, 8))  # the last, two ago, three ago

    def unwrap(self, wrapped: Floats) -> Floats:
        """Return the readings, 0..1023, shape (8,), of the next packet, which carried `wrapped`, 0..255."""
        candidates = wrapped + 256.0 * np.arange(4)[:, None]
        change = np.abs(candidates[:, None, :] - self._history) + np.array([32.0, 0.0, 32.0])[:, None]
        best = change.min(axis=1).argmin(axis=0)
        reading: Floats = candidates[best, np.arange(8)]
        self._history = np.stack([reading, self._history[0], self._history[1]])
        return reading
