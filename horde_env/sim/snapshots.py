"""Snapshots: saves and restores all that the future steps of an environment depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from horde_env.backend import Backend, Frame, Observation, Observed, Restorable, State
from horde_env.sim.saving import generator_state, inner, nested, restore_generator

_FRAME_NUMBERS = ("t", "sensor_age_s", "crc_errors", "stale", "gap", "applied", "last")


class Component(Restorable, Protocol):
    """A part of an environment with state of its own, such as `BatteryMonitor`."""

    name: ClassVar[str]  # its place in a saved state


class Snapshots:
    """Saves and restores an environment's body, newest frame, components and random numbers.

    Args:
        backend: The body; it can be saved if it is `Restorable`.
        components: The parts of the environment that have state.
    """

    def __init__(self, backend: Backend, components: Sequence[Component]) -> None:
        self._backend = backend
        self._components = components

    def restorable_body(self) -> Restorable:
        """Return the body; raise ValueError if it cannot be saved."""
        if not isinstance(self._backend, Restorable):
            raise ValueError(
                f"a body of the kind {type(self._backend).__name__} cannot be saved and restored"
            )
        return self._backend

    def save(self, frame: Frame, observation: Observation, rng: np.random.Generator) -> State:
        """Return the state between two steps; `rng` is the environment's."""
        parts = {
            "body": self.restorable_body().save(),
            "frame": _frame_state(frame),
            "extras": {name: np.array(value) for name, value in frame.extras.items()},
            "observation": {"newest": observation.copy()},
        }
        for component in self._components:
            parts[component.name] = component.save()
        parts["rng"] = generator_state(rng)
        return nested(**parts)

    def restore(self, state: State, rng: np.random.Generator) -> Observed:
        """Restore a state from `save`, and return its newest frame and observation."""
        for component in self._components:
            component.restore(inner(state, component.name))
        self.restorable_body().restore(inner(state, "body"))
        # Last: nothing may draw from it after this
        restore_generator(rng, inner(state, "rng"))
        frame = _restored_frame(inner(state, "frame"), inner(state, "extras"))
        return Observed(frame, inner(state, "observation")["newest"].copy())


def _frame_state(frame: Frame) -> State:
    """Return a frame's numbers as arrays, without its extras."""
    state: State = {"values": frame.values.copy()}
    for name in _FRAME_NUMBERS:
        state[name] = np.array(getattr(frame, name))
    if frame.beacon is not None:
        state["beacon"] = frame.beacon.copy()
    return state


def _restored_frame(state: State, extras: State) -> Frame:
    """Return the frame of a state from `_frame_state`."""
    beacon = None
    if "beacon" in state:
        beacon = state["beacon"].copy()
    return Frame(
        values=state["values"].copy(),
        t=state["t"].item(),
        sensor_age_s=state["sensor_age_s"].item(),
        crc_errors=state["crc_errors"].item(),
        stale=state["stale"].item(),
        gap=state["gap"].item(),
        applied=state["applied"].item(),
        last=state["last"].item(),
        extras={name: value.item() for name, value in extras.items()},
        beacon=beacon,
    )
