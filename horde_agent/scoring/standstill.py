"""Standstill: whether a body stands although it is driven, as a robot that is wedged in a corner."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.interface import REQUEST, SPEED, Interface
from horde_agent.kernels.surprise import stands
from horde_agent.types import Floats, Integers

_STEPS = 2.5  # quantisation steps of a speed that are none
_LEAST_SPEED = 0.02  # share of the range, for a speed without a known step
_LEAST_REQUEST = 0.05  # share of its range
_BEGINS = 0.375  # share of a block's steps: most blocks of a robot that starts and stops often have less than 0.2
_LASTS = 0.125


class Part(NamedTuple):
    """A channel that is a speed or a request.

    Attributes:
        place: Of its reading in the observation.
        name: Of the channel.
        rest: Reading at rest, the middle of its range.
        least: Distance from there up to which it is none.
    """

    place: int
    name: str
    rest: float
    least: float


def parts_of(interface: Interface, role: str) -> list[Part]:
    """Return the channels with a role that have a range."""
    parts = []
    for place, channel in enumerate(interface.channels):
        if channel.role != role or not interface.scaler.bounded[place]:
            continue
        low = float(interface.scaler.low[place])
        span = float(interface.scaler.high[place]) - low
        least = _LEAST_REQUEST * span
        if role == SPEED:
            least = _LEAST_SPEED * span
        if role == SPEED and channel.step is not None:
            least = _STEPS * channel.step
        parts.append(Part(place=place, name=channel.name, rest=low + 0.5 * span, least=least))
    return parts


class Standstill:
    """Says of blocks of steps whether the body stands although it is driven.

    A standstill begins with a block that has 3/8 of such steps or more, and lasts until a block has 1/8 or fewer: a
    robot that is wedged moves a little now and then. As many blocks after it count as affected, too: meanwhile the
    weights, which learned from a corner, learn from the rest of the pen again.

    Args:
        interface: Its channels with the roles "speed" and "request"; without one of each, or without their ranges,
            no body stands.

    Attributes:
        speeds: Names of the channels that are speeds.
        n_blocks: Blocks of the present standstill; 0 without one.
        since: Label of the block with which it began; -1 before the first one.

    Examples:
        >>> import numpy as np
        >>> from horde_agent.life.bodies import make_body
        >>> interface = Interface.of(make_body("simulator", robot="create2"))
        >>> standstill = Standstill(interface)
        >>> observation = np.full(len(interface.channels), 0.5)
        >>> standstill.holds(observation)  # without a request
        False
        >>> observation[interface.index("last_request_forward")] = 1.0
        >>> standstill.holds(observation)
        True
        >>> observation[interface.index("wheel_velocity_left")] = 0.6
        >>> standstill.holds(observation)
        False
    """

    SAVED = ("_n_steps", "_n_standing", "n_blocks", "since", "_n_after")

    def __init__(self, interface: Interface) -> None:
        speeds = parts_of(interface, SPEED)
        parts = [*speeds, *parts_of(interface, REQUEST)]
        self.speeds = tuple(part.name for part in speeds)
        self._places: Integers = np.array([part.place for part in parts], dtype=np.int64)
        self._middles: Floats = np.array([part.rest for part in parts], dtype=np.float64)
        self._least: Floats = np.array([part.least for part in parts], dtype=np.float64)
        self._n_steps = 0  # of the block under way
        self._n_standing = 0
        self.n_blocks = 0
        self.since = -1
        self._n_after = 0  # blocks that are still affected
        # Compiled here, and not in the middle of a life
        self.holds(np.zeros(len(interface.channels), dtype=np.float32))

    def holds(self, observation: NDArray[Any]) -> bool:
        """Return whether it stands although it is driven, at an observation, shape (n_channels,).

        It does not if a speed is missing.
        """
        if not self.speeds:
            return False
        n_speeds = len(self.speeds)
        return bool(stands(observation, self._places, self._middles, self._least, n_speeds))

    def note(self, observation: NDArray[Any]) -> None:
        """Take in the observation after a step, shape (n_channels,)."""
        self._n_steps += 1
        self._n_standing += self.holds(observation)

    def end_block(self, label: int) -> bool:
        """Return whether the block that ends is of a standstill or affected by one; `label` names it."""
        share = self._n_standing / max(self._n_steps, 1)
        self._n_steps = 0
        self._n_standing = 0
        if not self.n_blocks and share >= _BEGINS:
            self.since = label
            self.n_blocks = 1
        elif self.n_blocks and share > _LASTS:
            self.n_blocks += 1
        else:
            self.n_blocks = 0
        if self.n_blocks:
            self._n_after = max(self._n_after, self.n_blocks)
            return True
        is_affected = self._n_after > 0
        self._n_after -= is_affected
        return is_affected

    def forget(self) -> None:
        """End the present standstill, and drop the notes of the block under way."""
        self._n_steps = 0
        self._n_standing = 0
        self.n_blocks = 0
        self._n_after = 0
