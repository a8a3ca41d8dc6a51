"""The Create 2 as a Backend over its serial line: its dialect, how a connection begins, and what its modes mean."""

from __future__ import annotations

import string
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from horde_env.backend import Frame
from horde_env.commands import CommandMonitor
from horde_env.errors import BackendUnavailable
from horde_env.hardware.backend import NOT_CONNECTED, PhysicalBody
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.link import Dialect, Link, pause
from horde_env.hardware.port import GAP_S, NO_ROOM, Port
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.stream import Counts, Reading
from horde_env.robot import create2
from horde_env.robots.create2 import watchdog, wire
from horde_env.robots.create2.mode_controller import ModeController
from horde_env.robots.create2.safety import CreateSupervisor
from horde_env.robots.create2.stream import FrameParser
from horde_env.robots.create2.watchdog import GuardedPort

# ---- error messages --------------------------------------------------------------------------------------------------

NOTES = (
    "The encoders have one channel: their sign is the command's, so pushing by hand counts forward, and the "
    "last counts after a reversal have the wrong sign.",
    "A frame's checksum is one byte: damage that keeps it and every reading within its range is not detected.",
    "The robot has no command timeout: if the program and its watchdog both die, the wheels turn on.",
)
NO_WATCHDOG = (
    "a Create 2 has no command timeout, so it is driven through a watchdog process, which stops the wheels if this "
    "program ends or hangs; that needs Linux or macOS, and this system has no modules fcntl and termios: use one of "
    "those, or --backend simulator"
)
BANNERS = ("Roomba by iRobot", "bl-start", "Soft reset", "bat:")


def explain_silence(config: PortConfig, first_bytes: bytes, counts: Counts) -> str:
    """Return why no frame arrived, by the bytes received."""
    url = config.url
    if not first_bytes:
        return (
            f"nothing comes from {url}. Is the robot asleep or off (press its Clean button once, off the dock), is "
            f"this its port, or is it a Create 1 or Roomba 400 (57600 baud, no such packets) or a model without the "
            f"Open Interface (i, s, j, Create 3)?"
        )
    text = first_bytes[:80].decode("ascii", errors="replace")
    if any(banner in first_bytes.decode("ascii", errors="replace") for banner in BANNERS):
        return (
            f"the robot at {url} is off and prints {text!r}, but takes no commands: is the wire to its RXD broken, or "
            f"the cable's TX and RX swapped? Take its battery out for ten seconds, then try again."
        )
    if counts.crc_errors:
        return (
            f"frames come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?"
        )
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it sends {text!r}."
    return (
        f"{counts.n_bytes} bytes came from {url} but no frame, the first {first_bytes[:8].hex(' ')}. Wrong baud rate, "
        f"or not this robot? It was opened at {config.baudrate} baud. A Create 2 at 19200 baud, too slow for "
        f"its stream, is back at 115200 after ten seconds without its battery."
    )


def explain_parting(port: Port, dialect: Dialect, reason: str) -> str:  # noqa: ARG001
    """Return why the port may have been lost before the robot answered."""
    rival = " Does another program drive the robot already?"
    if reason.startswith(NO_ROOM):
        rival = ""
    return f"{port.config.url} was lost before the robot answered: {reason}.{rival}"


# ---- the body --------------------------------------------------------------------------------------------------------

MODE_S = 0.03
ANSWER_S = 0.5
TRIES = 10
# Attempts to reach Passive; frames until a command shows in them
STARTS = 4
FRAMES_LATER = 2
AT_REST_COUNTS = 1.0  # in six ticks


def open_create(
    port: Port, dialect: Dialect, monotonic: Callable[[], float]
) -> Generator[None, None, None]:
    """Stop the wheels, determine the mode offset, set Safe mode, and wait for two readings (`Dialect.opening`).

    Zeros complete a partial command of an earlier program. START stops the wheels in any mode and
    sets Passive. A robot on its powered dock stays in Passive and charges: Safe would discharge it.
    """
    for attempt in range(TRIES):
        port.write(dialect.fill + bytes([wire.Op.START]))
        yield from pause(MODE_S, monotonic)
        port.write(wire.STREAM_ALL)
        if (yield from pause(ANSWER_S, monotonic, port.newest)):
            break
        if attempt == 1:
            port.pulse_rts()  # BRC, which newer cables wire to RTS; a pseudo terminal has none
    else:
        raise BackendUnavailable(explain_silence(port.config, port.first_bytes, port.counts))
    yield from _learn_offset(port, monotonic)
    newest = port.readings()[-1].state
    if not newest.sensors.charging_sources & 2:
        port.write(bytes([wire.Op.SAFE]))
        yield from pause(ANSWER_S, monotonic, lambda: port.readings()[-1].state.mode == wire.SAFE)
    yield from pause(MODE_S, monotonic)  # a second reading
    yield from _await_frames(port, 2, monotonic)


def _learn_offset(port: Port, monotonic: Callable[[], float]) -> Generator[None, None, None]:
    """Determine whether the robot reports each mode one too high, by its report of Passive.

    A report of 1 means no. A report of 2 means yes, or that START has not arrived: therefore only
    frames well after it count, and START is repeated up to three times.
    """
    for _ in range(STARTS):
        number = port.readings()[-1].number
        yield from _await_frames(port, number + FRAMES_LATER, monotonic)
        reported = port.readings()[-1].state.sensors.mode
        if reported == wire.PASSIVE:
            break
        port.write(wire.FILL + bytes([wire.Op.START]))
        yield from pause(MODE_S, monotonic)
    assert isinstance(port.parser, FrameParser)
    port.parser.mode_offset = int(reported == wire.PASSIVE + 1)
    yield from _await_frames(port, port.readings()[-1].number + FRAMES_LATER, monotonic)  # read so


def _await_frames(
    port: Port, number: int, monotonic: Callable[[], float]
) -> Generator[None, None, None]:
    """Wait for the reading with that number; raise BackendUnavailable if it does not arrive in `ANSWER_S`."""
    if not (yield from pause(ANSWER_S, monotonic, lambda: port.newest(number - 1))):
        raise BackendUnavailable(
            f"{port.config.url} sent {number - 1} frames and then none for {ANSWER_S:g} s."
        )


def is_at_rest(reading: Reading) -> bool:
    """Return whether no encoder counts."""
    counts = reading.state.raw[create2().group("wheel_velocity")]
    return bool((np.abs(counts) <= AT_REST_COUNTS).all())


CREATE2 = Dialect(
    drive=wire.drive,
    encode=wire.drive_direct,
    parser=FrameParser,
    wake=b"",
    fill=wire.FILL,
    alone_s=MODE_S,
    halt=wire.HALT,
    coast=wire.HALT,
    last=bytes([wire.Op.START]),
    ramp_s=0.0,
    size=wire.FRAME_SIZE,
    is_free=lambda reading: reading.state.mode == wire.SAFE,
    is_at_rest=is_at_rest,
    opening=open_create,
    explain_parting=explain_parting,
    stops="It has no command timeout: if its wheels turn, lift it.",
)


class CreateBody(PhysicalBody):
    """The Create 2, or a Roomba 500 to 900, at the end of a serial line; see `PhysicalBody`.

    `applied` is False while the robot is not in Safe, or reports other requested speeds than were
    sent. The first frame after its return to Safe is a gap. With `may_stand_on_dock` it may start
    on the powered dock and drive off it; otherwise that is an error.
    """

    kind = "create2"
    dialect = CREATE2
    make_supervisor = CreateSupervisor
    notes = NOTES
    command_monitor = CommandMonitor
    may_stand_on_dock = False

    @classmethod
    def line_of(
        cls, port: str, file: RobotFile, latch: EmergencyLatch, *, guarded: bool = True, **line: Any
    ) -> tuple[PortConfig, dict[str, Any]]:
        """Return how the port is opened, and further arguments of the body; defaults come from the robot's file.

        Raises:
            BackendUnavailable: If the port is to be guarded and this system has no watchdog.
        """
        if guarded and not watchdog.IS_SUPPORTED:
            raise BackendUnavailable(NO_WATCHDOG)
        config, more = super().line_of(port, replace(file, parity=""), latch, **line)
        more["swapped_encoders"] = file.swapped_encoders
        if guarded:
            more["connect"] = partial(GuardedPort, emergency=str(latch.path))
        return config, more

    def __init__(
        self,
        *args: Any,
        may_stand_on_dock: bool = False,
        swapped_encoders: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if swapped_encoders:
            self.dialect = CREATE2._replace(parser=partial(FrameParser, swapped_encoders=True))
        self.may_stand_on_dock = may_stand_on_dock
        self.mode_controller = ModeController(self.spec)
        # Connection and newest frame when the last command was sent
        self._sent: tuple[int, int] = (0, 0)

    def reset(self, rng: np.random.Generator) -> Frame:
        """Connect if necessary, stop the robot in Safe mode and return its first frame.

        Raises:
            BackendUnavailable: If no robot answers, or it is on its dock and left there to charge.
        """
        self.mode_controller.reset()
        frame = super().reset(rng)
        if frame.values[self.spec.index("docked")] and not self.may_stand_on_dock:
            self.close()
            raise BackendUnavailable(
                f"the robot at {self.config.url} stands on its dock, where the modes in which it can be driven "
                f"discharge it; it was left in Passive, charging. Put it on the floor, a metre from the dock, and "
                f"start again."
            )
        return frame

    def steer(self, control: wire.Wheels) -> wire.Wheels | None:
        """Return the mode controller's override of a request, or the request.

        A robot that charges or drives to its dock is sent only the zeros that the watchdog needs: a
        damaged byte may become the opcode for sleep or reset.
        """
        self._sent = self._newest_frame()
        readings: tuple[Any, ...] = ()
        if self._link is not None:
            readings = self._link.readings()
        if (
            self.mode_controller.is_charging
            and readings
            and readings[-1].state.mode == wire.PASSIVE
        ):
            return None
        return self.mode_controller.override or control

    def send_state_commands(self, link: Link) -> None:
        """Send the commands that the robot's mode requires."""
        readings = link.readings()
        if not readings:
            return
        commands = self.mode_controller.state_commands(readings[-1].state, self._monotonic())
        if commands:
            link.send(commands)

    def annotate(self, frame: Frame, control: wire.Wheels | None) -> Frame:
        """Return `frame` with `applied`, `gap` and `refusal` by the robot's reported mode and speeds."""
        if frame.stale or self._mark is None:
            return frame
        epoch, number = self._newest_frame()
        n_since = 0
        if epoch == self._sent[0]:
            n_since = number - self._sent[1]
        state = self._mark.newest.state
        obeys, came_back, refusal = self.mode_controller.judge(
            state, control, n_since, is_kept_still=bool(self.reason)
        )
        obeys = obeys and frame.sensor_age_s <= GAP_S  # its state since then is unknown
        return replace(
            frame, applied=frame.applied and obeys, gap=frame.gap or came_back, refusal=refusal
        )

    @property
    def mode_offset(self) -> int:
        """The offset of this robot's reported modes, 0 or 1; BackendUnavailable if it is not connected."""
        if self._mark is None:
            raise BackendUnavailable(NOT_CONNECTED)
        state = self._mark.newest.state
        return int(state.sensors.mode - state.mode)

    def send_zeros(self, n: int) -> None:
        """Send zeros, which are not opcodes and which the robot skips; BackendUnavailable if it is not connected."""
        if self._link is None:
            raise BackendUnavailable(NOT_CONNECTED)
        self._link.send(bytes(n))

    def enable_charging(self, enabled: bool) -> None:
        """Send the robot to its dock to charge, or end that; meanwhile requests are not applied."""
        self._charging_wanted = enabled
        self.mode_controller.charge(enabled)

    def _newest_frame(self) -> tuple[int, int]:
        link = self._link
        if link is None:
            return 0, 0
        readings = link.readings()
        if not readings:
            return link.epoch, 0
        return link.epoch, readings[-1].number
