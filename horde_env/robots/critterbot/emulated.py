"""EmulatedBody: the physical body over an emulated Critterbot, which it starts by itself."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from horde_env.emulation.emulated import EmulatedRobot
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import FaultRates
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.body import DropsBody, SerialBody
from horde_env.robots.critterbot.emulator import Emulator
from horde_env.sim.pen import Pen, load_pen
from horde_env.sim.physics import resolve_physics

LinkKind = Literal["serial", "drops"]
BODIES: dict[str, type[SerialBody]] = {"serial": SerialBody, "drops": DropsBody}


class EmulatedBody(EmulatedRobot):
    """The Critterbot's body over an emulated one; see `EmulatedRobot`.

    Args:
        spec: The robot; the Critterbot when None.
        pen: Where it lives; `assets/pen.toml` when None.
        link: "serial", on a pseudo terminal, or "drops", over TCP.
        faults: Rates per second of faults that come by themselves, as "loss=0.5,unplug=0.01" (`FaultRates.parse`).
        physics: What moves the body; see `horde_env.sim.physics`.
        **common: speed, seed, battery_scale, settings and latch of `EmulatedRobot`.

    Raises:
        ValueError: If an argument makes no sense.
    """

    obedience = SerialBody.obedience

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        pen: Pen | None = None,
        link: LinkKind = "serial",
        faults: str = "",
        physics: str | None = None,
        **common: Any,
    ) -> None:
        if link not in BODIES:
            raise ValueError(f"link must be {' or '.join(BODIES)}, not {link!r}")
        super().__init__(critterbot() if spec is None else spec, FaultRates.parse(faults), **common)
        self.pen = load_pen() if pen is None else pen
        self.notes = BODIES[link].notes
        self._link = link
        self.physics = resolve_physics(physics)

    def switch_on(self, seed: int) -> Emulator:
        """Return a new emulated robot."""
        return Emulator(
            seed=seed,
            spec=self.spec,
            pen=self.pen,
            battery_scale=self._battery_scale,
            physics=self.physics,
            faults=self._faults,
        )

    def open_line(self, emulator: RobotEmulator) -> str:
        """Open a line and return its url."""
        assert isinstance(emulator, Emulator)
        return emulator.open_pty() if self._link == "serial" else emulator.listen_drops()

    def connect(self, url: str, **time_of: Any) -> SerialBody:
        """Return the host's side."""
        config, kind = PortConfig(url, parity="none"), BODIES[self._link]
        return kind(config, self.clock, self.spec, settings=self._settings, latch=self._latch, **time_of)

    def pose(self) -> tuple[float, float, float]:
        """Return where the robot is: metres, and a heading in radians."""
        m = self.emulator.robot.machine.body.motion
        return m.x, m.y, float(np.pi - (np.pi - m.heading) % (2.0 * np.pi))
