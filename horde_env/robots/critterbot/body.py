"""The Critterbot as a Backend, over its serial line or its on-board driver's drops."""

from __future__ import annotations

import string
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from horde_env.backend import Frame
from horde_env.errors import STOPS_BY_ITSELF, BackendUnavailable
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.link import Dialect, Link, pause
from horde_env.hardware.port import Port
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.stream import Counts, Reading
from horde_env.robot import critterbot
from horde_env.robots.critterbot import stream, wire
from horde_env.robots.critterbot.safety import FREE, Supervisor, VoltageMonitor

# ---- error messages --------------------------------------------------------------------------------------------------

IR_LIGHT_NOTE = (
    "The firmware sends IR light modulo 256: its top two bits are restored by continuity, wrongly if a reading passes "
    "255 between two packets or across lost ones."
)
DROPS_NOTES = (
    "The driver's IR distance is the high eight of ten bits OR the low two: restored to 3.3 of 1023 r.m.s., no better.",
    "With its terminal's defaults the driver changes the robot's bytes 0D to 0A, which the host cannot detect.",
    "The driver accepts commands from any number of programs and uses the newest: a second program is not detected.",
)
_SENDS_DROPS = "{} sends drops, not the bytes of the serial line: use the drops backend there."


def explain_parting(port: Port, dialect: Dialect, reason: str) -> str:
    """Return why the port may have been lost before the robot answered.

    A server for one client disconnects a second one, and the on-board driver disconnects a host
    that sends anything but drops.
    """
    url = port.config.url
    is_serial = bool(dialect.wake)
    if is_serial and stream.STATE_NAME in port.first_bytes:
        return _SENDS_DROPS.format(url)
    text = f"{url} was lost before the robot answered: {reason}."
    if not url.startswith("socket://"):
        return text
    if is_serial and urlsplit(url).port in (stream.ROBOT_PORT, stream.SIMULATOR_PORT):
        return f"{text} {urlsplit(url).port} is the port of the robot's own driver: use the drops backend there."
    rival = "Does another program drive the robot already"
    if is_serial:
        return f"{text} {rival}, or does its own driver listen there (backend drops)?"
    return f"{text} {rival}?"


def explain_silence(config: PortConfig, first_bytes: bytes, counts: Counts, is_serial: bool) -> str:
    """Return why no packet arrived, by the bytes received; `is_serial`: the serial protocol was used, not drops."""
    url = config.url
    although = ""
    if is_serial:
        although = ", not even after `mi on`"
    opened = f" It was opened as {config.line}; the robot uses 115200 8O1."
    if url.startswith("socket://"):  # has neither baud rate nor parity
        opened = ""
    if not first_bytes:
        return (
            f"nothing comes from {url}{although}. Is the robot switched on, and is this its port?"
        )
    if is_serial and stream.STATE_NAME in first_bytes:
        return _SENDS_DROPS.format(url)
    if not is_serial and wire.HEADER in first_bytes:
        return f"{url} sends the bytes of the serial line, not drops: use the serial backend there."
    if counts.crc_errors:
        return (
            f"packets come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?{opened}"
        )
    text = first_bytes[:60].decode("ascii", errors="replace")
    if "critterprompt" in first_bytes.decode("ascii", errors="replace"):
        return (
            f"the robot's console answers at {url}, but sends no packets{although}: reset the robot. "
            f"It sent {text!r}."
        )
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it sends {text!r}."
    cause = "Is it the robot's port?"
    if opened:
        cause = "Wrong baud rate or parity, or not the robot?"
    start = first_bytes[:8].hex(" ")
    return (
        f"{counts.n_bytes} bytes came from {url} but no packet, the first {start}. {cause}{opened}"
    )


# ---- opening a connection --------------------------------------------------------------------------------------------

PATIENCE_S = 1.0  # longest wait for the second packet
# As after boot: a charging robot does not move
NO_CHARGING = wire.Control(wire.MotorMode.DISABLE_CHARGING)


def open_critterbot(
    port: Port, dialect: Dialect, monotonic: Callable[[], float]
) -> Generator[None, None, None]:
    """Stop the motors, start the state packets, disable charging, and wait for two readings (`Dialect.opening`).

    The first bytes complete a partial packet of an earlier program. Velocity 0 brakes; duty 0, in a
    later cycle, also stops a robot that was left in WHEEL_VOLTAGE; velocity 0 again selects the
    mode in which it is driven. Duty 0 must not come first: a ramp from there to velocity 0 has no
    steps, by which the firmware would divide (lib_motor.c, motor_set_speed_slew).
    """
    port.write(dialect.fill + dialect.encode(wire.HALT))
    yield from pause(dialect.alone_s, monotonic)
    port.write(dialect.encode(wire.COAST))
    yield from start_packets(port, monotonic, wake=dialect.wake)
    yield from pause(dialect.alone_s, monotonic)
    controls = [wire.HALT]
    if not stream.is_original_simulator(port.parser):
        controls.append(NO_CHARGING)
    for control in controls:
        port.write(dialect.encode(control))
        yield from pause(dialect.alone_s, monotonic)
    if not (yield from pause(PATIENCE_S, monotonic, lambda: port.newest(after=1))):
        raise BackendUnavailable(
            f"{port.config.url} sent one packet and then none for {PATIENCE_S:g} s."
        )


def start_packets(
    port: Port,
    monotonic: Callable[[], float],
    *,
    wake: bytes = wire.WAKE,
    listen_s: float = 0.1,
    patience_s: float = 1.0,
) -> Generator[None, None, None]:
    """Make the robot send state packets; yield while waiting, return when there is a reading.

    After a reset the robot's microcontroller shows a text console and sends no packets. Without a
    packet in `listen_s` seconds, `wake` (empty if the peer needs none: drops) is sent up to three
    times, each with `patience_s` to answer. No motor moves. Without an answer it raises
    BackendUnavailable with the likely cause.
    """
    for data, limit_s in [(b"", listen_s), *[(wake, patience_s)] * 3]:
        if data:
            port.write(data)
        if (yield from pause(limit_s, monotonic, port.newest)):
            return
    raise BackendUnavailable(
        explain_silence(port.config, port.first_bytes, port.counts, bool(wake))
    )


# ---- the body --------------------------------------------------------------------------------------------------------

# Of the velocity byte: the firmware's floor division returns -1 for a wheel that hardly moves
REST_UNITS = 1.0


def is_free(reading: Reading) -> bool:
    """Return whether the Critterbot's motors can turn: it is neither charging nor overheated."""
    return (
        reading.state.charge_state in FREE and not reading.state.monitor & wire.MONITOR_OVERHEATING
    )


def is_at_rest(reading: Reading) -> bool:
    """Return whether all wheel velocities are within rounding of 0: 0.018 m/s."""
    units = reading.state.raw[critterbot().group("motor_velocity")]
    return bool((np.abs(units) <= REST_UNITS).all())


SERIAL = Dialect(
    drive=wire.drive,
    encode=wire.encode_control,
    parser=stream.StateParser,
    wake=wire.WAKE,
    fill=wire.FILL,
    alone_s=0.03,  # the robot executes the last control of each 10 ms
    halt=wire.HALT,
    coast=wire.COAST,
    ramp_s=wire.RAMP_S,
    size=wire.STATE_SIZE,
    is_free=is_free,
    is_at_rest=is_at_rest,
    opening=open_critterbot,
    explain_parting=explain_parting,
    stops=STOPS_BY_ITSELF,
)
DROPS = SERIAL._replace(
    encode=stream.encode_control_drop,
    parser=stream.StateDropParser,
    wake=b"",
    fill=b"",
    size=stream.DROP_SIZE,
    # Its driver passes the newest drop on after each packet, and looks for new ones every 50 ms
    alone_s=0.1,
)


class SerialBody(PhysicalBody):
    """The Critterbot on a serial line; see `PhysicalBody`.

    Examples:
        >>> from horde_env import PortConfig, RealTimeClock, RobotEnv
        >>> body = SerialBody(PortConfig("/dev/ttyUSB0"), RealTimeClock(0.1))
        >>> env = RobotEnv(body, body.clock)  # the first reset opens the port
        >>> env.close()
    """

    kind = "critterbot"
    parity = "odd"
    dialect = SERIAL
    make_supervisor = Supervisor
    command_monitor = VoltageMonitor
    notes: tuple[str, ...] = (IR_LIGHT_NOTE,)

    def send_state_commands(self, link: Link) -> None:
        """Enable or disable charging if the robot's state differs from the request."""
        readings = link.readings()
        if not readings:
            return
        if bool(readings[-1].state.monitor & wire.MONITOR_CHARGING) != self._charging_wanted:
            if self._charging_wanted:
                mode = wire.MotorMode.ENABLE_CHARGING
            else:
                mode = wire.MotorMode.DISABLE_CHARGING
            link.send_apart(wire.Control(mode))


class DropsBody(SerialBody):
    """The Critterbot behind its on-board driver (port 2330), or the original simulator (2324), over TCP.

    Differences from `SerialBody`: the driver's IR distance is scrambled and restored approximately
    (`stream.restore_ir_distance`); a command takes up to 57 ms to reach the motors; the driver
    accepts commands from any number of clients, so a second one is not detected; the original
    simulator is not supervised.

    Examples:
        >>> from horde_env import PortConfig, RealTimeClock, RobotEnv
        >>> body = DropsBody(PortConfig("socket://critterbot.local:2330"), RealTimeClock(0.1))
        >>> env = RobotEnv(body, body.clock)  # the first reset connects
        >>> env.close()
    """

    dialect = DROPS
    notes = (*DROPS_NOTES, IR_LIGHT_NOTE)

    def send_state_commands(self, link: Link) -> None:
        """Enable or disable charging; never of the original simulator."""
        if not stream.is_original_simulator(link.parser):
            super().send_state_commands(link)

    def stop_reason(self, frame: Frame, reading: Reading) -> str:
        """Return the supervisor's reason; none for the original simulator, which has no voltages or temperatures."""
        if self._link is not None and stream.is_original_simulator(self._link.parser):
            return ""
        return super().stop_reason(frame, reading)

    @classmethod
    def line_of(
        cls,
        port: str,
        file: RobotFile,  # noqa: ARG003
        latch: EmergencyLatch,  # noqa: ARG003
        **_: Any,
    ) -> tuple[PortConfig, dict[str, Any]]:
        """Return how the driver is reached: `port` is "HOST" or "HOST:PORT"."""
        return PortConfig(stream.url_of(port)), {}
