"""Faults of a simulated robot that begin at a chosen time, to test what is said to find them.

    env = FaultyRobot(env, [Fault("biased", "light_0", 0.2, 600.0)])

Faults of sensors and of commands fit any environment with named channels. Those of the body are what the
simulated robot has in `body_faults`: a dictionary of a function for each kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np

from horde_env.backend import Observation

_MINUTE_S = 60.0

BodyFault = Callable[[str, float], None]
"""Gives a simulated body a fault of a kind, by its target and strength; ValueError for an unknown target."""


class Fault(NamedTuple):
    """A fault.

    Attributes:
        kind: One of `KINDS`.
        target: Name of a channel, of two for "swapped" ("light_0,light_2"), number of a wheel from 0, name of a
            lamp, or "" for the kinds without one.
        strength: How strong it is: `KINDS` says in which unit.
        begins_s: Robot time at which it begins, in seconds.
    """

    kind: str
    target: str = ""
    strength: float = 0.0
    begins_s: float = 0.0


SENSOR_KINDS = {
    "dead": "the reading is the lowest of its range; no strength",
    "stuck": "the reading stays at this share of its range",
    "biased": "this share of the range is added to the reading",
    "noisy": "normal noise is added; its standard deviation as a share of the range",
    "drifting": "the reading drifts by this share of the range per minute",
    "swapped": "two channels have each other's reading; no strength",
}
COMMAND_KINDS = {"delayed": "commands are carried out this number of steps late"}
BODY_KINDS = {
    "friction": "factor on the friction of a wheel's axle",
    "slipping": "factor on the travel of a wheel's rim for a movement of the robot",
    "heavy": "factor on the mass of the robot and its moment of inertia",
    "weak battery": "the voltages of the batteries fall by this number of volts",
    "lamp dimmed": "factor on the light of a lamp",
    "lamp moved": "a lamp moves by this number of metres along x",
}
KINDS: Mapping[str, str] = {**SENSOR_KINDS, **COMMAND_KINDS, **BODY_KINDS}
"""Kinds of faults, with the meaning of their strength."""


class FaultyRobot(gymnasium.Wrapper[Observation, Any, Observation, Any]):
    """An environment whose robot has faults. Same seed, same faults; they do not change before they begin.

    A fault depends on the robot's time alone, so a resumed run continues it; only commands that a resume finds
    on their way are not delayed.

    Args:
        env: An environment with Box observations in [0, 1], as the robots'.
        faults: Its faults.
        seed: Of the noise.

    Raises:
        ValueError: If a kind or a target is unknown, or the robot cannot have such a fault.
    """

    def __init__(
        self, env: gymnasium.Env[Observation, Any], faults: Sequence[Fault], seed: int = 0
    ) -> None:
        super().__init__(env)
        self.faults = tuple(faults)
        self._seed = seed
        self._names = [channel["name"] for channel in env.unwrapped.metadata.get("channels", ())]
        self._channels = [self._channels_of(fault) for fault in self.faults]
        backend = getattr(env.unwrapped, "backend", None)
        self._body_faults: Mapping[str, BodyFault] = getattr(backend, "body_faults", {})
        for fault in self.faults:
            if fault.kind in BODY_KINDS and fault.kind not in self._body_faults:
                possible = ", ".join(self._body_faults) or "none of a body"
                raise ValueError(
                    f"this robot cannot have the fault {fault.kind!r}: choose one of {possible}"
                )
        self._sent: deque[Any] = deque()
        self._t_s = 0.0

    def _channels_of(self, fault: Fault) -> list[int]:
        """Return the indices of a fault's channels; raise ValueError if it is unknown or names another one."""
        if fault.kind not in KINDS:
            raise ValueError(f"no fault is called {fault.kind!r}: choose one of {', '.join(KINDS)}")
        if fault.kind not in SENSOR_KINDS:
            return []
        names = fault.target.split(",")
        n_expected = 1 + (fault.kind == "swapped")
        unknown = [name for name in names if name not in self._names]
        if unknown or len(names) != n_expected:
            raise ValueError(
                f"the fault {fault.kind!r} needs {n_expected} of the channels, not {fault.target!r}: "
                f"{', '.join(self._names)}"
            )
        return [self._names.index(name) for name in names]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset the robot; faults go on. Commands on their way are forgotten."""
        self._sent.clear()
        observation, info = self.env.reset(seed=seed, options=options)
        self._t_s = float(info.get("t", 0.0))
        return self._observed(observation), info

    def step(self, action: Any) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step of the robot with its faults."""
        n_late = 0
        for fault in self.faults:
            if self._t_s >= fault.begins_s and fault.kind in BODY_KINDS:
                self._body_faults[fault.kind](fault.target, fault.strength)
            if self._t_s >= fault.begins_s and fault.kind == "delayed":
                n_late = max(n_late, round(fault.strength))
        self._sent.append(action)
        while len(self._sent) > n_late + 1:
            self._sent.popleft()
        observation, reward, terminated, truncated, info = self.env.step(self._sent[0])
        self._t_s = float(info.get("t", self._t_s))
        return self._observed(observation), reward, terminated, truncated, info

    def _observed(self, observation: Observation) -> Observation:
        """Return an observation, shape (n_channels,), with the faults of the sensors; clipped to [0, 1]."""
        changed = observation
        for number, (fault, channels) in enumerate(zip(self.faults, self._channels, strict=True)):
            if not channels or self._t_s < fault.begins_s:
                continue
            if changed is observation:
                changed = observation.copy()
            if fault.kind == "swapped":
                changed[channels] = changed[channels[::-1]]
            else:
                reading = self._reading(number, fault, float(changed[channels[0]]))
                changed[channels[0]] = np.clip(reading, 0.0, 1.0)
        return changed

    def _reading(self, number: int, fault: Fault, reading: float) -> float:
        """Return a channel's reading with a fault."""
        match fault.kind:
            case "dead":
                return 0.0
            case "stuck":
                return fault.strength
            case "biased":
                return reading + fault.strength
            case "drifting":
                return reading + fault.strength * (self._t_s - fault.begins_s) / _MINUTE_S
        # Of the time alone, so that a resumed run draws the same noise
        rng = np.random.default_rng([self._seed, number, round(self._t_s * 1000.0)])
        return reading + fault.strength * float(rng.standard_normal())
