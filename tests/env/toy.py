"""A body without an engine: a point that follows its request with a lag between four walls. For tests only."""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_env.backend import Backend, Floats, Frame
from horde_env.env import RobotEnv
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.checks import expected_wheels
from horde_env.robots.critterbot.manoeuvres import wall_distances


class ToyBody:
    """A kinematic Backend in a 2 m pen: the outline stays inside, the wheels follow within `lag_s`.

    `reach_m` and `gain` change its infrared curve from the one that the centring drive assumes.
    """

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        lag_s: float = 0.15,
        reach_m: float = 0.09,
        gain: float = 1.0,
    ):
        self.spec = spec or critterbot()
        self.period_s = self.spec.period_s
        self.lag_s = lag_s
        self.reach_m = reach_m
        self.gain = gain
        self.pose = np.zeros(3)
        self.velocity = np.zeros(3)  # of the body, in its own frame
        self.log: list[str] = []
        self.n_closed = 0
        self._t = 0
        self._outline = np.array(self.spec.body["outline_m"])
        angles = self.spec.angles("ir_distance")
        self._directions = np.column_stack([np.cos(angles), np.sin(angles)])
        self._origins = self.spec.positions("ir_distance")
        self._rng = np.random.default_rng(0)

    def reset(self, rng: np.random.Generator) -> Frame:
        self.log.append("reset")
        self._rng = rng
        self._t = 0
        self.velocity = np.zeros(3)
        self.pose = np.array([*rng.uniform(-0.65, 0.65, 2), rng.uniform(-np.pi, np.pi)])
        self._push_inside()
        return self._frame(np.zeros(3))

    def place(self, x: float, y: float, heading: float) -> Frame:
        self.pose = np.array([x, y, heading])
        self.velocity = np.zeros(3)
        self._push_inside()
        return self._frame(np.zeros(3))

    def exchange(self, command: Floats) -> Frame:
        self.log.append("exchange")
        self._t += 1
        for _ in range(10):
            dt = self.period_s / 10
            self.velocity += (command - self.velocity) * (1.0 - np.exp(-dt / self.lag_s))
            self.pose[:2] += self._turn() @ self.velocity[:2] * dt
            self.pose[2] += self.velocity[2] * dt
            self._push_inside()
        return self._frame(command)

    def close(self) -> None:
        self.n_closed += 1

    def _turn(self) -> Floats:
        cos = np.cos(self.pose[2])
        sin = np.sin(self.pose[2])
        return np.array([[cos, -sin], [sin, cos]])

    def _push_inside(self) -> None:
        """Walls stop the part of the motion that leads through them; they turn nothing."""
        points = self._outline @ self._turn().T
        self.pose[:2] = np.clip(
            self.pose[:2], -0.999 - points.min(axis=0), 0.999 - points.max(axis=0)
        )

    def _frame(self, command: Floats) -> Frame:
        spec = self.spec
        turn = self._turn()
        values = 0.5 * (spec.low + spec.high)
        distance, incidence = wall_distances(
            self._origins @ turn.T + self.pose[:2], self._directions @ turn.T, 1.0
        )
        signal = self.gain * incidence * (self.reach_m / np.maximum(distance, 0.005)) ** 2
        noise = self._rng.normal(0.0, 0.012, distance.shape)
        values[spec.group("ir_distance")] = np.clip(
            0.01 + signal / (1.0 + signal) + noise, 0.0, 1.0
        )
        values[spec.group("light")] = 0.1 + 0.5 * np.exp(-np.hypot(*(self.pose[:2] - 0.8)))
        values[spec.group("motor_voltage")] = expected_wheels(self.velocity, spec)
        values[spec.index("rotational_velocity")] = self.velocity[2]
        values[spec.group("last_request")] = command / spec.largest_request
        values[spec.index("overheating")] = 0.0
        pose = {
            "x_m": float(self.pose[0]),
            "y_m": float(self.pose[1]),
            "heading_rad": float(self.pose[2]),
        }
        return Frame(values=values, t=self._t * self.period_s, extras=pose)


def begun(body: Backend, *clock: Any, **rest: Any) -> RobotEnv:
    env = RobotEnv(body, *clock, **rest)
    env.reset(seed=0)
    return env
