"""Manoeuvres without the agent, the battery's gauge, and the rule that judges whether a body follows commands.

A robot's own drives are in its folder, as `DRIVES` in `drives`; a body may name others as `drives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from horde_env.backend import Floats, Frame, Observation
from horde_env.robot import ROBOTS, RobotSpec, part

SMOOTHED_S = 5.0  # motors pull the voltage down for moments
HELD_S = 10.0  # longer than a robot needs to leave a dock by itself
CHARGE_LIMIT_S = 9 * 3600.0  # the longest full charge of a robot here takes 7.7 h
RECORD_S = 60.0  # between two recorded frames while charging


@runtime_checkable
class Chargeable(Protocol):
    """A body with charging that the host can allow."""

    def enable_charging(self, enabled: bool) -> None:
        """Allow charging at the dock, or forbid it (as after boot)."""


class Drive(Protocol):
    """A drive to the middle, or to free space."""

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest observation; return the next request (m/s, m/s, rad/s), or None at the end."""


class Stay(Protocol):
    """A stay at the dock: drive there, charge, leave; see `charging.DockStay`."""

    docked: bool
    is_charging: bool
    outcome: str

    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""

    def stop_charging(self) -> None:
        """Disable charging if it is enabled."""


class Drives(NamedTuple):
    """The manoeuvres of a kind of robot, each None if it has none.

    Attributes:
        centring: Returns a drive to the middle, from the robot and its place (`PenEnv.pen`).
        stay: Returns a stay at the dock, from the robot, its body and the longest charge in seconds.
    """

    centring: Callable[[RobotSpec, Any], Drive] | None = None
    stay: Callable[[RobotSpec, Chargeable, float], Stay] | None = None


def drives_of(backend: object, spec: RobotSpec) -> Drives:
    """Return a body's own `drives`, else those of its robot's folder; none for a robot without a folder."""
    default: Drives = part(spec.name, "drives").DRIVES if spec.name in ROBOTS else Drives()
    return getattr(backend, "drives", default)


GAUGE_STATE = ("is_urgent", "_is_below", "_lowest_v", "_n_held")


class BatteryGauge:
    """Judges whether the robot must dock: its battery is low, or the dock's charger holds it.

    Low is judged with hysteresis from the voltage of the lowest battery, smoothed over 5 s.

    A reading is ignored if the bus has 0 V, which no robot that answers can have, or if a battery exceeds the packet's
    range: a robot's original simulator shows both, because its battery is a counter from 10,000 down.

    Args:
        spec: The robot.

    Attributes:
        is_known: Whether the robot has a channel group "battery_voltage" and its thresholds (`RobotSpec.battery`).
        is_urgent: Below `urgent_v`.
    """

    def __init__(self, spec: RobotSpec) -> None:
        members = [i for i, channel in enumerate(spec.channels) if channel.group == "battery_voltage"]
        bus = [i for i, channel in enumerate(spec.channels) if channel.group == "bus_voltage"]
        self.is_known = bool(members and spec.battery)
        self._at = slice(members[0], members[-1] + 1) if members else slice(0)
        self._bus = bus[0] if bus else None
        self._most_v = max((channel.lsb * channel.raw_high for channel in spec.channels[self._at]), default=0.0) + 0.05
        self._share = min(spec.period_s / SMOOTHED_S, 1.0)
        self._charging = next((i for i, channel in enumerate(spec.channels) if channel.group == "charging"), None)
        self._n_held_limit = round(HELD_S / spec.period_s)
        battery = dict.fromkeys(("low_v", "urgent_v", "full_v", "dock_v"), math.nan) | spec.battery
        self._low_v, self._urgent_v = float(battery["low_v"]), float(battery["urgent_v"])
        self._full_v, self._dock_v = float(battery["full_v"]), float(battery["dock_v"])
        self.forget()

    def forget(self) -> None:
        """Discard all readings."""
        self._is_below = self.is_urgent = False
        self._lowest_v: float | None = None
        self._n_held = 0  # steps in a row

    @property
    def is_held(self) -> bool:
        """True if the dock's charger has blocked the robot's requests for 10 s."""
        return self._n_held >= self._n_held_limit

    @property
    def is_low(self) -> bool:
        """True if held, or below `low_v` until `full_v` is reached."""
        return self._is_below or self.is_held

    def read(self, values: Floats, *, applied: bool = True) -> None:
        """Process the newest frame's values, shape (n_channels,), and whether its command was applied."""
        if not self.is_known:
            return
        batteries_v = values[self._at].tolist()
        if max(batteries_v) > self._most_v or (self._bus is not None and values[self._bus] == 0.0):
            self.forget()
            return
        lowest_v = min(batteries_v)
        before = lowest_v if self._lowest_v is None else self._lowest_v
        self._lowest_v = before + self._share * (lowest_v - before)
        self._is_below = self._lowest_v < (self._full_v if self._is_below else self._low_v)
        self.is_urgent = self._lowest_v < self._urgent_v
        self._n_held = 0 if applied or not self._has_dock_power(values) else self._n_held + 1

    def _has_dock_power(self, values: Floats) -> bool:
        if self._charging is not None:
            return bool(values[self._charging])
        return self._bus is not None and bool(values[self._bus] > self._dock_v)

    @property
    def finding(self) -> str:
        """The battery's state in words and volts."""
        if self._lowest_v is None:
            return "the battery's voltage is unknown"
        judgement = (
            f"urgent below {self._urgent_v} V"
            if self.is_urgent
            else f"low below {self._low_v} V"
            if self._is_below
            else f"not low, but the dock has charged it for {HELD_S:g} s without a request"
            if self.is_held
            else "not low"
        )
        return f"the lowest battery has {self._lowest_v:.1f} V over the last {SMOOTHED_S:g} s, {judgement}"

    def info(self) -> dict[str, int]:
        """Return `battery_low` and `battery_urgent`, 0 or 1; nothing if the robot has no such channels."""
        return {"battery_low": int(self.is_low), "battery_urgent": int(self.is_urgent)} if self.is_known else {}


class EndableStay:
    """The part of a stay at a dock that is the same for all robots: ending it from outside.

    Attributes:
        is_charging: Whether charging is enabled now.
    """

    def __init__(self, body: Chargeable) -> None:
        self._body = body
        self.is_charging = self._is_ended = False

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""
        self._is_ended = True

    def stop_charging(self) -> None:
        """Disable charging if it is enabled."""
        if self.is_charging:
            self.is_charging = False
            self._body.enable_charging(False)


class Obedience:
    """The rule of a robot that reports which commands it accepted: its body compares them, in `Frame.refusal`.

    Args:
        spec: The robot.

    Attributes:
        complaint: The fault, in one or two sentences; "" while the body follows its commands. It stays until a frame
            shows the contrary.
        saved: Names of the attributes that a saved environment keeps.
    """

    saved: ClassVar[tuple[str, ...]] = ("complaint",)

    def __init__(self, spec: RobotSpec) -> None:  # noqa: ARG002  other rules need it
        self.forget()

    def forget(self) -> None:
        """Begin a life without a complaint."""
        self.complaint = ""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`."""
        if not frame.stale:
            self.complaint = frame.refusal
        return self.complaint

    def info(self) -> dict[str, int]:
        """Return `obeyed`, 0 or 1."""
        return {"obeyed": int(not self.complaint)}


class Unjudged(Obedience):
    """The rule of a body that names none, such as a recorded life: nothing is judged."""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Return ""."""
        return ""

    def info(self) -> dict[str, int]:
        """Return nothing."""
        return {}


def obedience_of(backend: object, spec: RobotSpec) -> Obedience:
    """Return the rule that a body names as `obedience`, for this robot."""
    rule: type[Obedience] | None = getattr(backend, "obedience", None)
    return (rule or Unjudged)(spec)
