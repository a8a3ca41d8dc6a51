"""What the environment needs from a body: one verb that holds a command for one period and returns a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Observation = NDArray[np.float32]
"""The kinds of arrays, named once; their shapes stand in docstrings."""
State = dict[str, NDArray[Any]]
"""What a thing's future depends on, as arrays with names: see `sim/saving.py`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the body sensed at the end of one period.

    Attributes:
        values: All channels of the observation in SI units, shape (n_channels,), in the order of RobotSpec.
        t: Robot time at which the frame was sampled, in seconds.
        sensor_age_s: Age of the newest packet when it was used, in seconds; 0 in the simulator.
        crc_errors: Packets refused for a wrong checksum during the period.
        stale: True where no new packet came and the last one is repeated.
        gap: True where this frame does not follow from the last one: the learner clears its traces.
        applied: False where a safety stop, charging or a fault kept the body from the command, as far as it knows.
        last: True where no frame can follow this one (the end of a recorded life): the environment truncates.
        extras: Further flat numbers for `info` (the simulator's pose, a recorded life's action and b).
        beacon: Strength of the dock's beacon at each ir_light sensor: |last packet - the one before|, in the unit of
            ir_light (share of full scale), shape (8,). The beacon blinks at 50 Hz, so it is the one light that
            changes from packet to packet at 100 Hz. None where packets are not known (a recorded life).
        refusal: How the body's own state shows that it does not follow its commands, in one or two sentences that stay
            the same while that lasts; "" if it does not.
    """

    values: Floats
    t: float
    sensor_age_s: float = 0.0
    crc_errors: int = 0
    stale: bool = False
    gap: bool = False
    applied: bool = True
    last: bool = False
    extras: Mapping[str, float] = field(default_factory=dict)
    beacon: Floats | None = None
    refusal: str = ""


@runtime_checkable
class Restorable(Protocol):
    """A body whose future can be saved and gone on from, bit for bit: a simulated one."""

    def save(self) -> State:
        """Return what its future depends on beside the generator that it was given."""

    def restore(self, state: State) -> None:
        """Go on from what `save` returned; the body was reset before."""


COUNTS = ("packets", "skipped_bytes", "link_losses", "s_without_link")  # of extras: what one step counted


def counted_with(before: Frame, frame: Frame) -> Frame:
    """Return `frame` with what the one before it counted, which nobody else will tell of."""
    both = {
        key: frame.extras[key] + before.extras[key] for key in COUNTS if key in frame.extras and key in before.extras
    }
    return replace(frame, crc_errors=frame.crc_errors + before.crc_errors, extras={**frame.extras, **both})


class Backend(Protocol):
    """A robot body, simulated or physical: nobody above this line can tell which.

    A physical body says `can_be_placed = False`: a reset finds it where it stands, and so the environment drives it.
    One whose frames show whether it follows its commands names the rule for that, a class, as `obedience`
    (`drives.obedience`).
    """

    period_s: float

    def reset(self, rng: np.random.Generator) -> Frame:
        """Bring the body to rest, opening it if needed, and return its first frame.

        Args:
            rng: Source of all of the body's randomness until the next reset. A physical body ignores it.
        """

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` for one period and return the frame sampled at its end.

        Args:
            command: Requested velocity of the body (vx m/s forward, vy m/s left, yaw rate rad/s), shape (3,).

        Raises:
            BackendLost: If no frame came in time, and the body was not reached again.
        """

    def close(self) -> None:
        """Stop the motors and let go of the body. Closing twice does nothing."""
