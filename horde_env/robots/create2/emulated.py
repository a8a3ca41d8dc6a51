"""EmulatedCreate: the physical body over an emulated Create 2, which it starts by itself."""

from __future__ import annotations

from typing import Any

from horde_env.emulation.emulated import EmulatedRobot
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, create2
from horde_env.robots.create2.body import CreateBody
from horde_env.robots.create2.drawing import Drawn
from horde_env.robots.create2.drives import CREATE2 as CREATE2_DRIVES
from horde_env.robots.create2.emulator import CreateEmulator, CreateFaultRates
from horde_env.robots.create2.room import Room, load_room
from horde_env.sim.physics import resolve_physics


class EmulatedCreate(Drawn, EmulatedRobot):
    """The Create 2's body over an emulated one; see `EmulatedRobot`.

    Args:
        spec: The robot; the Create 2 when None.
        room: Where it lives; `assets/room.toml` when None.
        faults: Rates per second of faults, as "loss=0.5,lift=0.01" (`CreateFaultRates.parse`).
        physics: What moves the body; see `horde_env.sim.physics`.
        **common: speed, seed, battery_scale, settings and latch of `EmulatedRobot`.

    Raises:
        ValueError: If an argument makes no sense.
    """

    batch = 1
    notes = CreateBody.notes
    drives = CREATE2_DRIVES
    obedience = CreateBody.obedience

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        room: Room | None = None,
        faults: str = "",
        physics: str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(create2() if spec is None else spec, CreateFaultRates.parse(faults), **common)
        self.room: Room = load_room() if room is None else room
        self.physics = resolve_physics(physics)

    def switch_on(self, seed: int) -> CreateEmulator:
        """Return a new emulated robot."""
        assert isinstance(self._faults, CreateFaultRates)
        return CreateEmulator(
            seed=seed,
            spec=self.spec,
            room=self.room,
            battery_scale=self._battery_scale,
            faults=self._faults,
            physics=self.physics,
        )

    def connect(self, url: str, **time_of: Any) -> CreateBody:
        """Return the host's side."""
        config = PortConfig(url, parity="none")
        return CreateBody(
            config, self.clock, self.spec, settings=self._settings, latch=self._latch, may_stand_on_dock=True, **time_of
        )

    def pose(self) -> tuple[float, float, float]:
        """Return where the robot is: metres, and a heading in radians."""
        pose: tuple[float, float, float] = self.emulator.robot.machine.pose
        return pose
