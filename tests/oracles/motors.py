"""Slow, obvious twins of the firmware's and the motors' kernels: a wheel is an object, the body's forces a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


def c_division(a: int, b: int) -> int:
    """Divide integers as C does."""
    return int(math.copysign(abs(a) // b, a)) if a else 0


@dataclass
class SlowAVR:
    """One wheel's motor AVR in velocity mode, written from its description."""

    integral: int = 0
    last_error: int = 0
    reduction: int = 0
    power_up: int = 0
    stall_cap: int = 127
    stall_periods: int = 0
    duty: int = 0

    def period(self, setpoint: int, clicks: int, current: int, bus: int) -> tuple[int, int]:
        """Return (output before the cap, duty after it)."""
        wanted = max(-25, min(25, setpoint))
        step = 1 if current > 30 else -1
        self.reduction = max(0, min(abs(wanted), self.reduction + step)) if step > 0 else max(0, self.reduction - 1)
        wanted = int(math.copysign(max(abs(wanted) - self.reduction, 0), wanted))
        error = 4 * wanted - clicks
        self.integral = max(-1000, min(1000, c_division(self.integral * 63, 64) + error))
        output = c_division(8 * error + 8 * self.integral + 16 * (error - self.last_error), 64)
        self.last_error = error
        output = max(-127, min(127, output)) if wanted else 0

        bus_cap = 127 if bus <= 120 else 0 if bus > 185 else 127 - int(0.75 * (bus - 120))
        self.power_up = min(127, self.power_up + 1)
        if clicks:
            self.stall_cap, self.stall_periods = min(127, self.stall_cap + 1), 0
        elif setpoint and current > 2:
            self.stall_cap = min(self.stall_cap, max(bus_cap, 1))
            self.stall_periods = (self.stall_periods + 1) % 6
            self.stall_cap = max(1, self.stall_cap - (self.stall_periods == 0))
        cap = min(bus_cap, self.power_up, self.stall_cap)
        duty = max(-cap, min(cap, output))
        self.duty = 0 if duty * self.duty < 0 else duty
        return output, self.duty


def slow_force(
    angles: np.ndarray, circle_m: float, heading: float, velocity: np.ndarray, driven: np.ndarray, k
) -> np.ndarray:
    """Return (Fx, Fy, torque) of the wheels on the body, world frame.

    `velocity` is (vx, vy, yaw rate) of the world, `driven` the motors' currents with their signs in bytes, `k` the
    module of the constants.
    """
    turn = np.array([[np.cos(heading), -np.sin(heading), 0], [np.sin(heading), np.cos(heading), 0], [0, 0, 1]])
    along = np.column_stack([-np.sin(angles), np.cos(angles), np.full(3, circle_m)])
    across = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(3)])
    rim, drag = along @ turn.T @ velocity, across @ turn.T @ velocity
    fade = lambda u: u / np.sqrt(u**2 + k.CREEP**2)  # noqa: E731
    push = k.FORCE_PER_BYTE * driven - k.AXLE_DRAG * rim - k.AXLE_FRICTION_N * fade(rim)
    push = np.clip(push, -k.GRIP_N, k.GRIP_N)
    return turn @ (along.T @ push - across.T @ (k.ROLLER_FRICTION_N * fade(drag)))
