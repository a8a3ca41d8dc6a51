"""Slow, obvious twins of the firmware and the motors: a ramp is its age, a wheel an object, forces a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np


def c_division(a: int, b: int) -> int:
    """Divide integers as C does."""
    if a:
        return int(math.copysign(abs(a) // b, a))
    return 0


@dataclass
class SlowARM:
    """The ARM's setpoints, from their description: a ramp is its start, its target and its age."""

    wheels: list[int] = field(default_factory=lambda: [0, 0, 0])
    target: list[int] = field(default_factory=lambda: [0, 0, 0])
    began_at: list[int] | None = None  # setpoints at the ramp's command; None without a ramp
    age: int = 0  # cycles of the ramp
    in_duties: bool = False
    silent: int = 0  # cycles since a command that counts

    def velocities(self, *wanted: int) -> None:
        self.in_duties = False
        self.silent = 0
        wanted_wheels = [max(-100, min(100, v)) for v in wanted]
        if wanted_wheels != self.target:
            self.target = wanted_wheels
            self.began_at = list(self.wheels)
            self.age = 0

    def duties(self, *wanted: int, counts: bool = True) -> None:
        self.in_duties = True
        self.wheels = [max(-100, min(100, v)) for v in wanted]
        if counts:
            self.silent = 0

    def command(self, mode: int, *values: int) -> None:
        if mode == 0:
            self.velocities(*values)
        elif mode == 1:
            self.velocities(*kinematics(*values))
        elif mode == 2:
            self.duties(*values)
        elif not 0x68 <= mode <= 0x6E:
            self.duties(0, 0, 0, counts=False)

    def cycle(self) -> list[int]:
        """Advance 10 ms and return the setpoints."""
        self.silent += 1
        if self.silent == 50:
            self.silent = 0
            self.duties(0, 0, 0) if self.in_duties else self.velocities(0, 0, 0)
        if self.began_at is not None:
            self.age += 1
            steps = max(abs(t - s) for t, s in zip(self.target, self.began_at, strict=True))
            if self.age > steps:
                self.wheels = list(self.target)
                self.began_at = None
            else:
                self.wheels = [
                    self._ramp(s, t, steps) for t, s in zip(self.target, self.began_at, strict=True)
                ]
        return self.wheels

    def _ramp(self, start: int, target: int, steps: int) -> int:
        """Position of the ramp: its interval is truncated to 1/65536 toward zero, its position rounded down."""
        interval = Fraction(c_division((target - start) * 65536, steps), 65536)
        return math.floor(start + self.age * interval)


def kinematics(x: int, y: int, theta: int) -> list[int]:
    """The wheels of a body's request, in 1/1024, all three scaled down where one would exceed 100."""
    rows = ((-1008, 178, 1096), (658, 784, 1096), (350, -962, 1096))
    wheels = [c_division(a * x + b * y + c * theta, 1024) for a, b, c in rows]
    largest = max(map(abs, wheels))
    if largest <= 100:
        return wheels
    return [c_division(w * 100, largest) for w in wheels]


@dataclass
class SlowAVR:
    """One wheel's motor AVR, written from its description."""

    integral: int = 0
    error: int = 0
    taken_off: int = 0
    cap: int = 0
    stood: int = 0
    stalls: int = 0
    last: int = 0

    def period(
        self, setpoint: int, clicks: int, current: int, bus: int, *, in_duties: bool = False
    ) -> tuple[int, int]:
        """Return (output before the cap, duty after it)."""
        # The current limit: up by one to all but 1 of the setpoint, down by one to 0; then it is
        # taken off the size.
        if current > 30:
            self.taken_off = sorted([0, self.taken_off + 1, max(abs(setpoint) - 1, 0)])[1]
        else:
            self.taken_off = max(self.taken_off - 1, 0)
        sign = 1 if setpoint > 0 else -1
        wanted = sign * (abs(setpoint) - self.taken_off)

        if setpoint:
            if clicks == 0:
                self.stood = min(self.stood + 1, 255)
            else:
                self.stood = max(self.stood - 1, 0)
        if self.stood and current > 2:
            self.stalls = (self.stalls + 1) % 6
            if self.stalls == 0 and self.cap > 1:
                self.cap -= 1
        else:
            self.cap += 1
        self.cap = min(
            self.cap, 127 if bus <= 120 else 0 if bus > 185 else 127 - int(0.75 * (bus - 120))
        )

        if in_duties:
            output = max(-100, min(100, wanted))
        else:
            output = self._follow(wanted, clicks)
        capped = max(-self.cap, min(self.cap, output))
        is_dead = (capped < 0) != (self.last < 0)
        self.last = capped
        return output, 0 if is_dead else capped

    def _follow(self, wanted: int, clicks: int) -> int:
        """The speed controller; of a setpoint of 0 it takes no note at all."""
        if wanted == 0:
            return 0
        error = 4 * max(-25, min(25, wanted)) - clicks
        self.integral = max(-1000, min(1000, c_division(self.integral * 63, 64) + error))
        output = 8 * error + 8 * self.integral + 16 * (error - self.error)
        self.error = error
        return math.floor(max(-127, min(127, Fraction(output, 64))))


def slow_force(
    angles: np.ndarray, circle_m: float, heading: float, velocity: np.ndarray, driven: np.ndarray, k
) -> np.ndarray:
    """Return (Fx, Fy, torque) of the wheels on the body, world frame.

    `velocity` is (vx, vy, yaw rate) of the world, `driven` the motors' currents with their signs in
    bytes, `k` the module of the constants.
    """
    turn = np.array(
        [[np.cos(heading), -np.sin(heading), 0], [np.sin(heading), np.cos(heading), 0], [0, 0, 1]]
    )
    along = np.column_stack([-np.sin(angles), np.cos(angles), np.full(3, circle_m)])
    across = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(3)])
    rim = along @ turn.T @ velocity
    drag = across @ turn.T @ velocity
    fade = lambda u: u / np.sqrt(u**2 + k.CREEP**2)  # noqa: E731
    push = k.FORCE_PER_BYTE * driven - k.AXLE_DRAG * rim - k.AXLE_FRICTION_N * fade(rim)
    push = np.clip(push, -k.GRIP_N, k.GRIP_N)
    return turn @ (along.T @ push - across.T @ (k.ROLLER_FRICTION_N * fade(drag)))
