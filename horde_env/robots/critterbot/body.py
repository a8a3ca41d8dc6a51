"""The Critterbot as a Backend: over its serial line, or through its on-board driver's drops; and how each is spoken."""

from __future__ import annotations

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.errors import STOPS_BY_ITSELF
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.link import Link
from horde_env.hardware.readings import Reading
from horde_env.hardware.safety import Supervising
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.commands import (
    COAST,
    FILL,
    HALT,
    RAMP_S,
    WAKE,
    Control,
    MotorMode,
    drive,
    encode_control,
)
from horde_env.robots.critterbot.diagnosis import DROPS_NOTES, IR_LIGHT_NOTE
from horde_env.robots.critterbot.drops import STATE_SIZE as DROP_SIZE
from horde_env.robots.critterbot.drops import StateDropParser, encode_control_drop, is_original_simulator
from horde_env.robots.critterbot.ir_light import IrLightContinuity
from horde_env.robots.critterbot.obedience import VoltageObedience
from horde_env.robots.critterbot.opening import open_critterbot
from horde_env.robots.critterbot.safety import FREE, Supervisor
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import MONITOR_CHARGING, MONITOR_OVERHEATING, STATE_SIZE

REST_UNITS = 1.0  # of the velocity byte: floor division makes -1 of a wheel that hardly moves


def is_free(reading: Reading) -> bool:
    """Tell whether the Critterbot lets its motors turn: neither charging nor overheated."""
    return reading.state.charge_state in FREE and not reading.state.monitor & MONITOR_OVERHEATING


SERIAL = Dialect(
    encode=encode_control,
    parser=StateParser,
    wake=WAKE,
    fill=FILL,
    alone_s=0.03,  # the robot acts on the last control of each 10 ms
    halt=HALT,
    coast=COAST,
    ramp_s=RAMP_S,
    size=STATE_SIZE,
    is_free=is_free,
    continuity=lambda _: IrLightContinuity(),
    opening=open_critterbot,
    stops=STOPS_BY_ITSELF,
)
DROPS = SERIAL._replace(
    encode=encode_control_drop,
    parser=StateDropParser,
    wake=b"",
    fill=b"",
    size=DROP_SIZE,
    alone_s=0.1,  # its driver passes the newest drop on after each packet, and looks for new ones every 50 ms
)


class SerialBody(PhysicalBody):
    """The Critterbot at the end of a serial line; see `PhysicalBody`."""

    dialect = SERIAL
    obedience = VoltageObedience
    notes: tuple[str, ...] = (IR_LIGHT_NOTE,)

    def make_spec(self) -> RobotSpec:
        """Return the Critterbot."""
        return critterbot()

    def make_supervisor(self) -> Supervising:
        """Return what stops it for heat, bus voltage and charging."""
        return Supervisor(self.spec)

    def control(self, command: Floats) -> Control:
        """Return the control that asks for a velocity."""
        return drive(command, self.spec)

    def is_at_rest(self, reading: Reading) -> bool:
        """Tell whether no wheel turns by more than its rounding."""
        return bool((np.abs(reading.state.raw[self.spec.group("motor_velocity")]) <= REST_UNITS).all())

    def attend(self, link: Link) -> None:
        """Say whether the robot may charge, where its state does not agree."""
        readings = link.last_two()
        if not readings or is_original_simulator(link.parser):
            return
        if bool(readings[-1].state.monitor & MONITOR_CHARGING) != self._charging_wanted:
            mode = MotorMode.ENABLE_CHARGING if self._charging_wanted else MotorMode.DISABLE_CHARGING
            link.tell(Control(mode))

    def objection(self, frame: Frame, reading: Reading) -> str:
        """Return what the supervisor says; the original simulator has neither voltages nor temperatures."""
        if self._link is not None and is_original_simulator(self._link.parser):
            return ""
        return self.supervisor.judge(frame.values, reading.state.charge_state, frame.t)


class DropsBody(SerialBody):
    """The Critterbot behind its on-board driver (port 2330), or the original simulator (2324), over TCP.

    As `SerialBody`, with these differences: the driver's IR distance is scrambled and restored as far as it can be
    (`drops.restore_ir_distance`); a command takes up to 57 ms to reach the motors; a driver takes commands from any
    number of clients, so that a second one is not noticed. The original simulator is not supervised, for it has neither
    voltages nor temperatures.

    Args:
        config: Its url is "socket://HOST:PORT"; `drops.url_of` makes one of HOST:PORT.
    """

    dialect = DROPS
    notes = (*DROPS_NOTES, IR_LIGHT_NOTE)
