"""Manoeuvres without the agent: the drive to the middle, and the stay at the dock.

A robot's own manoeuvres are in its folder, in `manoeuvres`; a body may have others, as its
attribute `manoeuvres`. `ManoeuvreRunner` runs them in `RobotEnv.reset`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

from horde_env.backend import (
    DOCKED_KEY,
    MANOEUVRE_STEPS_KEY,
    Backend,
    Floats,
    Frame,
    InfoKey,
    Observation,
    Observed,
    counted_with,
)
from horde_env.errors import HordeEnvError
from horde_env.robot import RobotSpec

CHARGE_LIMIT_S = 9 * 3600.0  # the longest full charge of a robot here takes 7.7 h
RECORD_S = 60.0  # between two recorded frames while charging
MANOEUVRES = ("centre", "dock", "stay")

_log = logging.getLogger(__name__)


@runtime_checkable
class Chargeable(Protocol):
    """A body with charging that the host can allow."""

    def enable_charging(self, enabled: bool) -> None:
        """Allow charging at the dock, or forbid it (as after boot)."""


class Drive(Protocol):
    """A drive to the middle, or to free space."""

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest observation; return the next request (m/s, m/s, rad/s), or None at the end."""


class DockingStay(ABC):
    """A stay at the dock: drive there, charge, leave; it depends on the frames alone.

    The body's charging is enabled at the dock, and disabled again in any case.

    Attributes:
        docked: Whether the robot reached its dock.
        is_charging: Whether charging is enabled now.
        outcome: The result in a few words, for a log.
    """

    def __init__(self, body: Chargeable) -> None:
        self._body = body
        self.docked = False
        self._is_ended = False
        self.is_charging = False
        self.outcome = "not docked"

    @abstractmethod
    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""
        self._is_ended = True

    def stop_charging(self) -> None:
        """Disable charging if it is enabled."""
        if self.is_charging:
            self.is_charging = False
            self._body.enable_charging(False)


class Manoeuvres(NamedTuple):
    """The manoeuvres of a kind of robot, each None if it has none."""

    # From the robot and its arena (`RobotEnv.arena`)
    centring: Callable[[RobotSpec, Any], Drive] | None = None
    # The number: the longest charge in seconds
    stay: Callable[[RobotSpec, Chargeable, float], DockingStay] | None = None


Exchange = Callable[[Floats], Observed]
"""Holds a request (m/s, m/s, rad/s; shape (3,)) for one period."""


class Finished(NamedTuple):
    """The last frame of a manoeuvre, and what the manoeuvre adds to info."""

    frame: Frame
    info: dict[str, int]


class ManoeuvreRunner:
    """Runs the manoeuvres of a robot and stores their frames.

    Args:
        spec: The robot.
        backend: Its body, which charges if it is `Chargeable`.
        manoeuvres: What the robot can do on its own.
        arena: Where it is; None if that is unknown.

    Attributes:
        names: The manoeuvres that this body can do, of `MANOEUVRES`.
        frames: The frames of the last manoeuvre, in order; while charging one in `RECORD_S`.
        observations: Their scaled observations, in the same order.
        step_numbers: Number of each frame's step in the manoeuvre, from 1.
        info_keys: What a reset and a step add to info.
    """

    def __init__(
        self, spec: RobotSpec, backend: Backend, manoeuvres: Manoeuvres, arena: Any
    ) -> None:
        self._spec = spec
        self._backend = backend
        self._manoeuvres = manoeuvres
        self._arena = arena
        can_dock = isinstance(backend, Chargeable) and manoeuvres.stay is not None
        self.names = [name for name in MANOEUVRES if name != "dock" or can_dock]
        self.info_keys: tuple[InfoKey, ...] = (MANOEUVRE_STEPS_KEY,)
        if can_dock:
            self.info_keys += (DOCKED_KEY,)
        self.no_manoeuvre_info = {key.name: 0 for key in self.info_keys}
        self._stay: DockingStay | None = None
        self._is_asked_to_end = False
        self.frames: list[Frame] = []
        self.observations: list[Observation] = []
        self.step_numbers: list[int] = []

    def clear(self) -> None:
        """Forget the last manoeuvre, and whether it was asked to end."""
        self.frames = []
        self.observations = []
        self.step_numbers = []
        self._is_asked_to_end = False

    def prepare(self) -> None:
        """Compute the tables of the drive to the middle, which takes longer than a period."""
        if self._manoeuvres.centring is not None:
            self._manoeuvres.centring(self._spec, self._arena)

    def end(self) -> None:
        """Ask the manoeuvre under way to end early; safe in a signal handler."""
        self._is_asked_to_end = True
        if self._stay is not None:
            self._stay.end()

    def centre(self, start: Observed, exchange: Exchange) -> Finished:
        """Drive to the middle."""
        if self._manoeuvres.centring is None:
            return Finished(start.frame, self.no_manoeuvre_info)
        drive = self._manoeuvres.centring(self._spec, self._arena)
        newest = start
        while not newest.frame.last:
            request = drive.request(newest.observation)
            if request is None or self._is_asked_to_end:
                break
            newest = exchange(request)
            self._store(newest, step_number=len(self.frames) + 1)
        return Finished(newest.frame, {"manoeuvre_steps": len(self.frames)})

    def dock(
        self,
        start: Observed,
        exchange: Exchange,
        charge_s: float,
        describe_battery: Callable[[], str],
    ) -> Finished:
        """Drive to the dock, charge for at most `charge_s` seconds, and leave."""
        assert isinstance(self._backend, Chargeable), "`names` says what the body can do"
        assert self._manoeuvres.stay is not None
        stay = self._manoeuvres.stay(self._spec, self._backend, charge_s)
        self._stay = stay
        _log.warning("the robot drives to its dock: %s", describe_battery())
        try:
            frame, n_steps = self._run_stay(stay, start, exchange)
        finally:
            self._stay = None
            with suppress(HordeEnvError):  # the body is lost, which was reported
                stay.stop_charging()
        _log.warning(
            "a stay at the dock of %.0f s: %s; %s",
            n_steps * self._spec.period_s,
            stay.outcome,
            describe_battery(),
        )
        return Finished(frame, {"manoeuvre_steps": n_steps, "docked": int(stay.docked)})

    def _run_stay(
        self, stay: DockingStay, start: Observed, exchange: Exchange
    ) -> tuple[Frame, int]:
        """Follow a stay to its end and store its frames; return the last one, and the number of steps."""
        steps_per_record = round(RECORD_S / self._spec.period_s)
        n_steps = 0
        is_stored = True
        newest = start
        while not newest.frame.last:
            request = stay.request(newest.frame, newest.observation)
            if request is None:
                break
            previous_frame = newest.frame
            newest = exchange(request)
            if not is_stored:  # its counters are added to the next frame
                newest = newest._replace(frame=counted_with(previous_frame, newest.frame))
            n_steps += 1
            is_stored = not stay.is_charging or n_steps % steps_per_record == 0
            if is_stored:
                self._store(newest, n_steps)
        if not is_stored:
            self._store(newest, n_steps)
        return newest.frame, n_steps

    def _store(self, observed: Observed, step_number: int) -> None:
        self.frames.append(observed.frame)
        self.observations.append(observed.observation)
        self.step_numbers.append(step_number)
