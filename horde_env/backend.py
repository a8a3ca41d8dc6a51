"""A robot body: one method holds a command for one period and returns a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Observation = NDArray[np.float32]
"""Types of arrays; docstrings give their shapes."""
State = dict[str, NDArray[Any]]
"""The state of an object as named arrays: see `sim/saving.py`."""


class InfoKey(NamedTuple):
    """One number of `info`: its name, its unit ("1" for a count or a flag), and what it says."""

    name: str
    unit: str
    meaning: str


FRAME_KEYS = (
    InfoKey("t", "s", "robot time of the frame"),
    InfoKey("sensor_age_s", "s", "age of the newest packet when it was used"),
    InfoKey("overrun_s", "s", "how late the step ended"),
    InfoKey("crc_errors", "1", "packets with a wrong checksum during the step"),
    InfoKey("stale", "1", "1 if no new packet arrived, and the last one is repeated"),
    InfoKey("gap", "1", "1 if the frame does not follow from the last one, as after a reset"),
    InfoKey("applied", "1", "0 if a stop, charging or a fault prevented the action"),
    InfoKey("clipped", "1", "channels outside their range"),
)
"""The keys of `info` that every body has."""
MANOEUVRE_STEPS_KEY = InfoKey("manoeuvre_steps", "1", "steps of the manoeuvre in a reset, else 0")
DOCKED_KEY = InfoKey("docked", "1", "1 after a reset in which the robot docked, else 0")
POSE_KEYS = (
    InfoKey("x_m", "m", "the body's true place, to the east of the middle"),
    InfoKey("y_m", "m", "the body's true place, to the north of the middle"),
    InfoKey("heading_rad", "rad", "its true heading, counter-clockwise from east"),
)
"""The extras of a simulated body, for pictures only."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The readings at the end of one period.

    Attributes:
        values: All channels of the observation in SI units, shape (n_channels,), in the order of
            RobotSpec; NaN for one that the body's own checks call invalid, which is then missing.
        t: Robot time at which the frame was sampled, in seconds.
        sensor_age_s: Age of the newest packet when it was used, in seconds; 0 in the simulator.
        crc_errors: Packets rejected for a wrong checksum during the period.
        stale: True if no new packet arrived and the last one is repeated.
        gap: True if this frame does not follow from the last one: the learner clears its traces.
        applied: False if a safety stop, charging or a fault prevented the command, as the body
            reports it.
        last: True if no frame can follow this one (the end of a recording): the environment
            truncates.
        extras: Further flat numbers for `info` (the simulator's pose, a recording's action and b).
        beacon: Strength of the dock's beacon at each ir_light sensor: |last packet - the one
            before|, in the unit of ir_light (share of full scale), shape (8,). The beacon blinks at
            50 Hz, so it is the one light that changes from packet to packet at 100 Hz. None for a
            body without packets (a recording).
        refusal: The evidence in the body's state that it does not follow its commands, in one or
            two sentences that stay the same while it lasts; "" without evidence.

    Examples:
        >>> frame = Frame(values=np.array([12.1]), t=0.1, stale=True)
        >>> frame.stale, frame.gap, frame.applied
        (True, False, True)
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


class Observed(NamedTuple):
    """A frame, and the observation that the agent has of it."""

    frame: Frame
    observation: Observation


@runtime_checkable
class Restorable(Protocol):
    """A body that can be saved, and continue bit for bit: a simulated one."""

    def save(self) -> State:
        """Return the state of the body, without the generator passed to `reset`."""

    def restore(self, state: State) -> None:
        """Restore a state from `save`, after a reset."""


# Extras that count during one step
COUNTS = ("packets", "skipped_bytes", "link_losses", "s_without_link")


def counted_with(before: Frame, frame: Frame) -> Frame:
    """Return `frame` with the counters of the frame before it added."""
    sums = {
        key: frame.extras[key] + before.extras[key]
        for key in COUNTS
        if key in frame.extras and key in before.extras
    }
    return replace(
        frame, crc_errors=frame.crc_errors + before.crc_errors, extras={**frame.extras, **sums}
    )


class Backend(Protocol):
    """A robot body, simulated or physical; the environment does not distinguish them.

    All methods but `reset` and `close` raise BackendUnavailable before the first reset and after
    close.

    A physical body sets `can_be_placed = False`: a reset cannot place it, so the environment drives
    it to the middle. A body whose frames show whether it follows its commands names the class that
    judges this as `command_monitor` (`commands.CommandMonitor`). `info_keys` describes the extras
    of its frames.

    Examples:
        >>> class Standing:
        ...     "A body that stands still, and whose one sensor reads 1."
        ...
        ...     period_s = 0.1
        ...     t = 0.0
        ...
        ...     def reset(self, rng):
        ...         return Frame(np.ones(1), t=self.t, gap=True)
        ...
        ...     def exchange(self, command):
        ...         self.t += self.period_s
        ...         return Frame(np.ones(1), t=self.t)
        ...
        ...     def close(self):
        ...         pass
        >>> body: Backend = Standing()
        >>> body.reset(np.random.default_rng(0)).gap, body.exchange(np.zeros(3)).t
        (True, 0.1)
    """

    period_s: float

    def reset(self, rng: np.random.Generator) -> Frame:
        """Bring the body to rest, opening it if needed, and return its first frame.

        Args:
            rng: Source of all of the body's randomness until the next reset. A physical body
                ignores it.
        """

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` for one period and return the frame sampled at its end.

        Args:
            command: Requested velocity of the body (vx m/s forward, vy m/s left, yaw rate rad/s),
                shape (3,).

        Raises:
            ValueError: If `command` is not three finite numbers; nothing is sent then.
            BackendLost: If no frame arrived in time and reconnecting failed.
        """

    def close(self) -> None:
        """Stop the motors and close the body. Closing twice does nothing."""
