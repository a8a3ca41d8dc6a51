"""Judge the battery, and charge at the dock: drive there, charge, leave.

A robot charges only if its host allows it (control modes 0x69 and 0x6A), and stands still meanwhile: its frames have
`applied` False. It is full, or needs no charge, when it follows commands again on the dock's power. The firmware always
completes a charge once begun (power AVR of 2011, power_avr_charge.c): disabling only prevents the next one.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from horde_env.backend import Floats, Frame, Observation
from horde_env.drives.docking import DOCKED_V, SLOW, DockingDrive
from horde_env.robot import RobotSpec

# Of the lowest battery. Below 14.5 V, with a fifth of the charge left, the power board starts a charge at any contact
# with the dock, holds the robot until the charge is complete, and paralyses it if it loses the contact: the robot must
# dock on purpose. The firmware's own routine would begin at 13.0 V on the bus (lib_recharger.h); below 12.0 V the robot
# switches itself off.
LOW_V, URGENT_V, FULL_ENOUGH_V = 14.5, 13.0, 15.0
SMOOTHED_S = 5.0  # motors pull the voltage down for moments
HELD_S = 10.0  # a Create leaves a dock within 5 s

CHARGE_LIMIT_S = 9 * 3600.0  # three batteries of 7.7 Ah, one after the other, at 3 A: 7.7 h
SETTLED_S = 5.0  # commands applied for this time at the dock: charged
UNPLUGGED_S = 2.0
LEAVING_S = 2.0  # 0.28 m
HELD_LIMIT_S = 5.0
BEHIND = 0.5  # reading behind the robot at which it stops backing off
RECORD_S = 60.0  # between two recorded frames while charging


@runtime_checkable
class Chargeable(Protocol):
    """A body with charging that the host can allow."""

    def enable_charging(self, enabled: bool) -> None:
        """Allow charging at the dock, or forbid it (as after boot)."""


GAUGE_STATE = ("is_urgent", "_is_below", "_lowest_v", "_n_held")


class BatteryGauge:
    """Judges whether the robot must dock: its battery is low, or the dock's charger holds it.

    Low is judged with hysteresis from the voltage of the lowest battery, smoothed over 5 s.

    A reading is ignored if the bus has 0 V, which no robot that answers can have, or if a battery exceeds the packet's
    range. The original simulator shows both, because its battery is a counter from 10,000 down; it needs no dock.

    Args:
        spec: The robot.

    Attributes:
        is_known: Whether the robot has such channels at all.
        is_urgent: Below `urgent_v`; the Critterbot's is 13.0 V.
    """

    def __init__(self, spec: RobotSpec) -> None:
        members = [i for i, channel in enumerate(spec.channels) if channel.group == "battery_voltage"]
        bus = [i for i, channel in enumerate(spec.channels) if channel.group == "bus_voltage"]
        self.is_known = bool(members)
        self._at = slice(members[0], members[-1] + 1) if members else slice(0)
        self._bus = bus[0] if bus else None
        self._most_v = max((channel.lsb * channel.raw_high for channel in spec.channels[self._at]), default=0.0) + 0.05
        self._share = min(spec.period_s / SMOOTHED_S, 1.0)
        self._charging = next((i for i, channel in enumerate(spec.channels) if channel.group == "charging"), None)
        self._n_held_limit = round(HELD_S / spec.period_s)
        battery = getattr(spec, "battery", {})
        self._low_v = float(battery.get("low_v", LOW_V))
        self._urgent_v = float(battery.get("urgent_v", URGENT_V))
        self._full_v = float(battery.get("full_v", FULL_ENOUGH_V))
        self._dock_v = float(battery.get("dock_v", DOCKED_V))
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
        """True if held, or below `low_v` until `full_v` is reached (the Critterbot's: 14.5 V, 15.0 V)."""
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


class DockStay(EndableStay):
    """One stay at the dock: drive there, charge, leave; a function of the frames alone.

    Args:
        spec: The robot.
        body: Its charging is enabled at the dock, and disabled again in any case.
        charge_s: Longest time to charge; a robot that is still held then stays at the dock.

    Attributes:
        docked: Whether the dock was reached.
        is_charging: Whether charging is enabled now.
        outcome: How it ended, for a log.
    """

    def __init__(self, spec: RobotSpec, body: Chargeable, charge_s: float = CHARGE_LIMIT_S) -> None:
        super().__init__(body)
        self._period_s = spec.period_s
        self._drive = DockingDrive(spec)
        self._bus = spec.index("bus_voltage")
        self._behind = spec.group("ir_distance").start + int(np.cos(spec.angles("ir_distance")).argmin())
        self._max_charging = round(charge_s / spec.period_s)
        self.docked = False
        self.outcome = "not docked"
        self._is_leaving = False
        self._n_charging = self._n_free = self._n_unplugged = self._n_backing = self._n_held = 0

    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""
        if self._is_leaving:
            return self._leave(frame, observation)
        if self.is_charging:
            return self._charge(frame, observation)
        bus_v = float(frame.values[self._bus])
        request = None if self._is_ended else self._drive.request(observation, frame.beacon, bus_v)
        if self._drive.docked:
            self.docked = self.is_charging = True
            self._body.enable_charging(True)
            return np.zeros(3)
        return request

    def _charge(self, frame: Frame, observation: Observation) -> Floats | None:
        """Stand still until the charge is complete, the power is off, or the time is over."""
        self._n_charging += 1
        self._n_free = self._n_free + 1 if frame.applied else 0
        self._n_unplugged = self._n_unplugged + 1 if frame.values[self._bus] < DOCKED_V else 0
        if self._n_unplugged * self._period_s >= UNPLUGGED_S:
            self.outcome = "the dock's power failed"
        elif self._n_free * self._period_s >= SETTLED_S:
            self.outcome = "charged"
        elif self._is_ended or self._n_charging >= self._max_charging:
            self.outcome = "charging was ended early"
        else:
            return np.zeros(3)
        self.stop_charging()
        self._is_leaving = True
        return self._leave(frame, observation)

    def _leave(self, frame: Frame, observation: Observation) -> Floats | None:
        """Back off slowly once commands are applied, but not into a wall."""
        if self._n_backing * self._period_s >= LEAVING_S or observation[self._behind] > BEHIND:
            return None
        if frame.applied:
            self._n_backing += 1
        else:
            self._n_held += 1
            if self._n_held * self._period_s >= HELD_LIMIT_S:
                self.outcome += ", and the robot is still held at the dock"
                return None
        return np.array([-SLOW, 0.0, 0.0])
