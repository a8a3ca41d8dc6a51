"""A pump that drives water around a loop, with labelled faults: a simulation in the manner of the SKAB test bench.

The pump has three speeds; each second there are the eight readings of SKAB (https://github.com/waico/SKAB): two
vibrations, current, pressure, temperatures of motor and water, voltage, flow. Flow, speed and temperatures are slow.
The room's temperature follows the day, the voltage wanders. Faults are those of `PLANT_KINDS`, and any of
`horde_env.sim.faults` for the sensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.saving import text, untext
from horde_env.sim.faults import Fault, FaultyRobot

SPEEDS = (0.5, 0.75, 1.0)  # of the pump, as shares of the fastest
DAY_S = 86_400.0
RANGES = {
    "vibration_pump": (0.0, 0.5),  # m/s2
    "vibration_pipe": (0.0, 0.5),
    "current": (0.0, 4.0),  # A
    "pressure": (0.0, 2.0),  # bar
    "temperature_motor": (15.0, 95.0),  # degrees Celsius, as the next
    "temperature_water": (15.0, 45.0),
    "voltage": (210.0, 250.0),  # V
    "flow": (0.0, 60.0),  # l/min
}
NOISE = np.array([0.01, 0.008, 0.03, 0.01, 0.1, 0.05, 0.5, 0.3])
"""Standard deviations of the readings."""


class Plant(NamedTuple):
    """What faults change.

    Attributes:
        valve: Opening of the outlet, 1 is open.
        imbalance: Factor on the vibrations.
        head: Factor on the pressure that the pump makes.
        cavitation: Factor on the noise of pressure and flow.
        friction: Factor on the current.
    """

    valve: float = 1.0
    imbalance: float = 1.0
    head: float = 1.0
    cavitation: float = 1.0
    friction: float = 1.0


PLANT_KINDS = {
    "outlet closed": "valve",
    "rotor imbalance": "imbalance",
    "worn pump": "head",
    "cavitation": "cavitation",
    "bearing friction": "friction",
}
"""Kinds of faults of the loop, with the field of `Plant` that has their strength."""


class WaterLoop(gymnasium.Env[Any, Any]):
    """The loop with faults from its first step on; an action is the number of a speed. Readings are in [0, 1]."""

    metadata = {  # noqa: RUF012
        "channels": [
            {"name": name, "group": name.split("_")[0], "unit": "1", "sensor": True}
            for name in RANGES
        ],
        "actions": ["slow", "medium", "fast"],
        "period_s": 1.0,
        "restorable": True,
    }

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(RANGES),), dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(SPEEDS))
        self.plant = Plant(**{PLANT_KINDS[fault.kind]: fault.strength for fault in faults})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin at rest, in a cold room."""
        super().reset(seed=seed, options=options)
        self._t_s = 0.0
        self._speed = SPEEDS[0]
        self._flow = 20.0
        self._motor = 25.0
        self._water = 20.0
        self._wander = 0.0
        return self._readings(), {"t": self._t_s}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Run the pump for a second at a speed."""
        self._t_s += 1.0
        self._speed += 0.4 * (SPEEDS[int(action)] - self._speed)
        steady = 48.0 * self._speed * np.sqrt(self.plant.head) * self.plant.valve
        self._flow += 0.3 * (steady - self._flow)
        room = 20.0 + 3.0 * np.sin(2.0 * np.pi * self._t_s / DAY_S)
        power = self._current() * 230.0
        self._motor += 0.004 * (room + 0.08 * power - self._motor)
        self._water += 0.001 * (room + 0.01 * power - self._water)
        self._wander = 0.99 * self._wander + 0.2 * float(self.np_random.standard_normal())
        return self._readings(), 0.0, False, False, {"t": self._t_s}

    def _pressure(self) -> float:
        return float(1.6 * self.plant.head * self._speed**2 - 0.0002 * self._flow**2)

    def _current(self) -> float:
        return float(self.plant.friction * (0.4 + 1.2 * self._speed**2 + 0.015 * self._flow))

    def _readings(self) -> NDArray[np.float32]:
        shaking = self.plant.imbalance * self._speed**2
        exact = np.array(
            [
                0.05 + 0.15 * shaking,
                0.03 + 0.08 * shaking + 0.001 * self._flow,
                self._current(),
                self._pressure(),
                self._motor,
                self._water,
                230.0 + self._wander,
                self._flow,
            ]
        )
        noise = NOISE.copy()
        noise[[3, 7]] *= self.plant.cavitation
        low, high = np.array(list(RANGES.values())).T
        readings = exact + noise * self.np_random.standard_normal(len(noise))
        shares = (readings - low) / (high - low)
        return np.asarray(np.clip(shares, 0.0, 1.0), dtype=np.float32)

    def save_state(self) -> dict[str, Any]:
        """Return everything that later readings depend on."""
        numbers = [getattr(self, name) for name in _STATE]
        return {"numbers": np.array(numbers), "rng": text(self.np_random.bit_generator.state)}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Continue from what `save_state` returned, with the present faults."""
        for name, number in zip(_STATE, state["numbers"].tolist(), strict=True):
            setattr(self, name, number)
        self.np_random.bit_generator.state = untext(state["rng"])


_STATE = ("_t_s", "_speed", "_flow", "_motor", "_water", "_wander")


def faulty_loop(faults: Sequence[Fault], seed: int) -> gymnasium.Env[Any, Any]:
    """Return the loop with faults of its own and of its sensors."""
    of_plant = [fault for fault in faults if fault.kind in PLANT_KINDS]
    of_sensors = [fault for fault in faults if fault.kind not in PLANT_KINDS]
    return FaultyRobot(WaterLoop(of_plant), of_sensors, seed)
