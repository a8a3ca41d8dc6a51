"""The Critterbot as a Backend: over its serial line, or through its on-board driver's drops; and how each is spoken."""

from __future__ import annotations

import string
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.errors import STOPS_BY_ITSELF, BackendUnavailable, PortLost
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.dialect import Dialect, Supervising
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.link import Link, Steps, pause
from horde_env.hardware.port import Port
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.stream import Counts, Reading, StreamParser
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.safety import FREE, Supervisor, VoltageObedience
from horde_env.robots.critterbot.stream import (
    DROP_SIZE,
    ROBOT_PORT,
    SIMULATOR_PORT,
    STATE_NAME,
    IrLightContinuity,
    StateDropParser,
    StateParser,
    encode_control_drop,
    is_original_simulator,
    url_of,
)
from horde_env.robots.critterbot.wire import (
    COAST,
    FILL,
    HALT,
    HEADER,
    LEAVE,
    MONITOR_CHARGING,
    MONITOR_OVERHEATING,
    RAMP_S,
    STATE_SIZE,
    WAKE,
    Control,
    MotorMode,
    RobotState,
    drive,
    encode_control,
)

# ---- error messages --------------------------------------------------------------------------------------------------

IR_LIGHT_NOTE = (
    "The firmware sends IR light modulo 256: its top two bits are guessed by continuity, and wrong where a reading "
    "passes 255 between two packets or across lost ones."
)
DROPS_NOTES = (
    "The driver's IR distance is the high eight of ten bits OR the low two: restored to 3.3 of 1023 r.m.s., no better.",
    "With its terminal's defaults the driver changes every byte 0D of the robot's into 0A, which cannot be told.",
    "The driver obeys any number of programs, the newest command of all: another one that drives is not noticed.",
)


def explain_parting(config: PortConfig, heard: bytes, reason: str, woken: bool) -> str:
    """Say that a port was lost before the robot had answered.

    So does a server that serves one client at a time, and the robot's on-board driver where it is not sent whole drops;
    `woken` where the bytes of the serial line were spoken.
    """
    url = config.url
    if woken and STATE_NAME in heard:
        return _SENDS_DROPS.format(url)
    said = f"{url} was lost before the robot answered: {reason}."
    if not url.startswith("socket://"):
        return said
    if woken and urlsplit(url).port in (ROBOT_PORT, SIMULATOR_PORT):
        return f"{said} {urlsplit(url).port} is the port of the robot's own driver: use the drops backend there."
    rival = "Does another program drive the robot already"
    return f"{said} {rival}, or does its own driver listen there (backend drops)?" if woken else f"{said} {rival}?"


_SENDS_DROPS = "{} sends drops, not the bytes of the serial line: use the drops backend there."


def explain_silence(config: PortConfig, heard: bytes, counts: Counts, woken: bool) -> str:
    """Say what came instead of a robot's packets; `woken` where they were asked for (a serial line, not drops)."""
    url, asked = config.url, ", not even after `mi on`" if woken else ""
    opened = f" It was opened as {config.line}; the robot speaks 115200 8O1."
    if url.startswith("socket://"):  # has neither baud rate nor parity
        opened = ""
    if not heard:
        return f"nothing comes from {url}{asked}. Is the robot switched on, and is this its port?"
    if woken and STATE_NAME in heard:
        return _SENDS_DROPS.format(url)
    if not woken and HEADER in heard:
        return f"{url} sends the bytes of the serial line, not drops: use the serial backend there."
    if counts.crc_errors:
        return (
            f"packets come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?{opened}"
        )
    text = heard[:60].decode("ascii", errors="replace")
    if "critterprompt" in heard.decode("ascii", errors="replace"):
        return f"the robot's console answers at {url}, but sends no packets{asked}: reset the robot. It said {text!r}."
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it says {text!r}."
    cause = "Wrong baud rate or parity, or not the robot?" if opened else "Is it the robot's port?"
    return f"{counts.n_bytes} bytes came from {url} but no packet, the first {heard[:8].hex(' ')}. {cause}{opened}"


# ---- opening a connection --------------------------------------------------------------------------------------------

PATIENCE_S = 1.0  # for a robot that sent a packet and then no more
NO_CHARGING = Control(MotorMode.DISABLE_CHARGING)  # as after boot: a robot that charges does not move


def open_critterbot(connect: Callable[[StreamParser], Port], dialect: Dialect, monotonic: Callable[[], float]) -> Steps:
    """Connect, stop the motors, bring the robot to send its state, forbid charging; return the port with two readings.

    The first bytes complete whatever half packet an earlier program left. Velocity 0 brakes; duty 0, in a later cycle,
    ends even the runaway of a robot that was left in WHEEL_VOLTAGE; velocity 0 again leaves it in the mode in which it
    is driven. Duty 0 does not come first, for from there a ramp to velocity 0 has no steps, by which the firmware
    would divide (lib_motor.c, motor_set_speed_slew).

    Raises:
        BackendUnavailable: If there is no robot, with what is there instead. The port is closed.
    """
    parser = dialect.parser()
    port = connect(parser)
    try:
        port.write(dialect.fill + dialect.encode(HALT))
        yield from pause(dialect.alone_s, monotonic)
        port.write(dialect.encode(COAST))
        yield from rouse(port, monotonic, wake=dialect.wake)
        yield from pause(dialect.alone_s, monotonic)
        for control in [HALT] if is_original_simulator(parser) else [HALT, NO_CHARGING]:
            port.write(dialect.encode(control))
            yield from pause(dialect.alone_s, monotonic)
        limit = monotonic() + PATIENCE_S
        while port.wait(1, 0.0) is None:
            if monotonic() > limit:
                raise BackendUnavailable(f"{port.config.url} sent one packet and then none for {PATIENCE_S:g} s.")
            yield
    except PortLost as lost:
        port.close()
        raise BackendUnavailable(_parted(port, lost, dialect.wake)) from lost
    except BaseException:
        port.close()
        raise
    return port


def rouse(
    port: Port,
    monotonic: Callable[[], float],
    *,
    wake: bytes = WAKE,
    listen_s: float = 0.1,
    patience_s: float = 1.0,
) -> Generator[None, None, Reading]:
    """Bring the robot to send its state, whatever mode it is in; yield where time must pass, return a reading.

    After a reset the robot's microcontroller shows a text console and sends no packets. So: listen first; if none
    comes, type `wake` at the console, three times at most. Nothing here moves a motor.

    Args:
        port: Where the robot is.
        monotonic: The time in seconds.
        wake: What starts the packets; empty for a peer that sends them unasked (drops).
        listen_s: How long to listen first, in seconds; the robot sends a packet every 10 ms.
        patience_s: How long to wait for a packet after each waking, in seconds.

    Raises:
        BackendUnavailable: If no packet came, with what came instead. The port is closed.
    """
    try:
        for word, limit_s in [(b"", listen_s), *[(wake, patience_s)] * 3]:
            if word:
                port.write(word)
            end = monotonic() + limit_s
            while (reading := port.wait(0, 0.0)) is None and monotonic() < end:
                yield
            if reading is not None:
                return reading
    except PortLost as lost:
        port.close()
        raise BackendUnavailable(_parted(port, lost, wake)) from lost
    port.close()
    raise BackendUnavailable(explain_silence(port.config, port.first_bytes, port.counts, bool(wake)))


def _parted(port: Port, lost: PortLost, wake: bytes) -> str:
    return explain_parting(port.config, port.first_bytes, lost.reason, bool(wake))


# ---- the body --------------------------------------------------------------------------------------------------------

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

    @classmethod
    def line_of(
        cls,
        port: str,
        file: RobotFile,
        latch: EmergencyLatch,  # noqa: ARG003
        *,
        parity: str | None = None,
        baudrate: int | None = None,
    ) -> tuple[PortConfig, dict[str, Any]]:
        """Return how the port is opened, and further arguments of the body; defaults come from the robot's file."""
        chosen: Any = parity or file.parity or "odd"
        return PortConfig(port, baudrate or file.baudrate, chosen), {}

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

    def send_state_commands(self, link: Link) -> None:
        """Say whether the robot may charge, where its state does not agree."""
        readings = link.last_two()
        if not readings or is_original_simulator(link.parser):
            return
        if bool(readings[-1].state.monitor & MONITOR_CHARGING) != self._charging_wanted:
            mode = MotorMode.ENABLE_CHARGING if self._charging_wanted else MotorMode.DISABLE_CHARGING
            link.send_apart(Control(mode))

    def stop_reason(self, frame: Frame, reading: Reading) -> str:
        """Return what the supervisor says; the original simulator has neither voltages nor temperatures."""
        if self._link is not None and is_original_simulator(self._link.parser):
            return ""
        return self.supervisor.judge(frame.values, reading.state.charge_state, frame.t)


class DropsBody(SerialBody):
    """The Critterbot behind its on-board driver (port 2330), or the original simulator (2324), over TCP.

    As `SerialBody`, with these differences: the driver's IR distance is scrambled and restored as far as it can be
    (`stream.restore_ir_distance`); a command takes up to 57 ms to reach the motors; a driver takes commands from any
    number of clients, so that a second one is not noticed. The original simulator is not supervised, for it has neither
    voltages nor temperatures.

    Args:
        config: Its url is "socket://HOST:PORT"; `stream.url_of` makes one of HOST:PORT.
    """

    dialect = DROPS
    notes = (*DROPS_NOTES, IR_LIGHT_NOTE)

    @classmethod
    def line_of(cls, port: str, file: RobotFile, latch: EmergencyLatch, **_: Any) -> tuple[PortConfig, dict[str, Any]]:  # noqa: ARG003
        """Return how the driver is reached: `port` is "HOST" or "HOST:PORT"."""
        return PortConfig(url_of(port)), {}


# ---- the stop of horde-robot stop ------------------------------------------------------------------------------------

# How long to wait, after the last word, for a robot to say anything, for its motors to be off (a ramp that goes on as a
# duty takes 0.5 s), for its wheels to roll out (from an action 0.6 s); and between two looks.
ANSWER_S, OFF_S, SETTLE_S, LOOK_S = 0.5, 0.7, 3.0, 0.05
TYPED_S = 0.05  # the robot's console reads one line in 10 ms


def send_stop(
    config: PortConfig,
    dialect: Dialect,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    **connect: Any,
) -> RobotState | None:
    """Tell the robot to stop, and return the state in which it stands, or that of 3 s later; None if it sends none.

    Nothing is asked of it first, so that a robot that cannot answer is stopped too. Velocity 0 brakes; duty 0, when
    that ramp is over, ends even the runaway of a robot that was left in WHEEL_VOLTAGE (`commands`). One that drives
    on, or is silent, may be on its own way to its dock, or at its console: on a serial line it is told to leave for
    the console, to end that way, and to talk; and to stop, once more.

    Args:
        config: Where the robot is.
        dialect: How it is spoken to.
        monotonic: The time in seconds.
        sleep: Lets seconds pass.
        **connect: `connect` of `Port`.

    Raises:
        BackendUnavailable: If the port cannot be opened, as while another program drives the robot.
        PortLost: If it went away before the stop was sent.
    """
    parser, continuity = dialect.parser(), IrLightContinuity()
    with Port(config, monotonic, parser=parser, fill=dialect.fill, continuity=continuity, **connect) as port:
        state = _stop(port, dialect, monotonic, sleep)
        if dialect.wake and (state is None or is_driven(state, critterbot())):
            port.write(dialect.encode(LEAVE))
            sleep(dialect.alone_s)
            port.write(dialect.wake)
            sleep(TYPED_S)
            state = _stop(port, dialect, monotonic, sleep)
    return state


def _stop(
    port: Port, dialect: Dialect, monotonic: Callable[[], float], sleep: Callable[[float], None]
) -> RobotState | None:
    """Say the stop, and return the state in which the robot stands, or the last one; None if there was none."""
    port.write(dialect.fill + dialect.encode(HALT))
    sleep(dialect.alone_s)
    port.write(dialect.encode(HALT))
    sleep(RAMP_S)
    port.write(dialect.encode(COAST))
    spec, sent_t = critterbot(), monotonic()
    while True:
        sleep(LOOK_S)
        reading, waited_s = port.wait(0, 0.0), monotonic() - sent_t
        state = None if reading is None else reading.state
        if state is None:
            limit_s = ANSWER_S
        elif is_driven(state, spec):
            limit_s = OFF_S
        else:
            limit_s = SETTLE_S if turns(state, spec) else 0.0
        if waited_s >= limit_s:
            return state


def is_driven(state: RobotState, spec: RobotSpec) -> bool:
    """Tell whether a motor has a voltage."""
    return bool(state.raw[spec.group("motor_voltage")].any())


def turns(state: RobotState, spec: RobotSpec) -> bool:
    """Tell whether a wheel turns (by more than one unit, 0.018 m/s), be it driven or not."""
    return bool((np.abs(state.raw[spec.group("motor_velocity")]) > 1.0).any())
