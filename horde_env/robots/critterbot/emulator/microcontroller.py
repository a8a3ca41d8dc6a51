"""The robot's ARM behind its serial line: a console, then state packets at 100 Hz; without threads or real time.

One call of `cycle` is the ARM's 10 ms: motors and physics, sensors, received commands, one state
packet, clearing the error flags, and the drive to the dock. A command therefore acts from the next
cycle on.

The text console after a reset has only the commands that a host needs: `mi on`, `reset now`,
`recharge start` and `recharge stop`. Lines end in CR, without an echo.

Source: the Critterbot's ARM firmware of June 2011 (lib_events.c, lib_mi.c, lib_ui.c, armio.c).
"""

from __future__ import annotations

import copy
from collections import deque

import numpy as np
from numpy.random import Generator

from horde_env.robot import critterbot
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator import firmware, period, power
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.simulator.state import new_robot
from horde_env.robots.critterbot.wire import (
    BODY_SIZE,
    HEADER,
    LED_CUSTOM,
    LED_EXIT,
    LEDS_SIZE,
    Control,
    MotorMode,
    RobotState,
    decode_control,
)
from horde_env.sim.physics import resolve_physics

WATCHDOG_CYCLES = 300  # until a hanging ARM is reset
# Error flags
PARITY = 1 << 11
FRAMING = 1 << 13
POWER_MISALIGNED = 1 << 15
# Of the firmware's own drive to the dock
CYCLES_PER_STEP = 5
WANDER_CYCLES = 100
# X, y (to the RIGHT), theta in wire units
WANDERING = ((20, 0, 0), (-20, 0, 0), (0, 20, 0), (0, -20, 0), (0, 0, 0))
# Of packets with that flag: 2,988 of the 9,998 in the real robot's log, independent of time
MISALIGNED_SHARE = 0.299


# ---- the console -----------------------------------------------------------------------------------------------------

PROMPT = b"critterprompt> "
N_EVENTS = 14  # the firmware's tasks besides the console
COMMANDS = ("mi on", "reset now", "recharge start", "recharge stop")
NAMES = ("mi", "reset", "recharge")  # with other words only the prompt is the reply


def banner() -> bytes:
    """Return the text that the microcontroller prints after a reset, with the first prompt."""
    tasks = "".join(f"Initialized EVENT_ID {i}\r" for i in range(1, N_EVENTS + 1))
    text = (
        f"\r\r\r------------CritterBOOT-------------\r\rLast reset was a power-up reset.\r{tasks}"
    )
    return text.encode("ascii") + PROMPT


def run_line(line: bytes) -> tuple[bytes, str]:
    """Return the console's reply to a line without its CR, and the command that the microcontroller must run or ""."""
    text = line.decode("latin-1")
    words = text.split()
    command = " ".join(words[:2])
    if words and words[0] in NAMES:
        if command not in COMMANDS:
            command = ""
        return b"\r" + PROMPT, command
    return f'\rInvalid command: "{text}"\r'.encode("latin-1") + PROMPT, ""


# ---- bytes to packets ------------------------------------------------------------------------------------------------

RING = 1024  # bytes of the ring buffer, which the hardware overwrites
LONGEST_LINE = 255  # characters of a console line
NOTHING = 0xFF  # the value read from an empty buffer: the low byte of C's EOF


class Receiver:
    """The robot's receive buffer and its parsers.

    header          a byte that does not continue it is consumed, and the match restarts at the NEXT byte, so
                    DE DE AD BE EF loses its packet
    packet          may arrive in parts. Mode, numbers and LED mode are read together, when all five are there; with
                    custom LEDs they act at once, and the next 48 bytes are read as LEDs, whatever
                    they are
    buffer          a ring: unread bytes are lost by whole rings. Bytes across its end are counted as one more than
                    there are, so once in 1,024 bytes a packet may be read a byte too early; the
                    missing byte is read as FF and arrives later as junk
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._place = 0  # of the first byte in the ring
        self._n_header = 0  # matched bytes of a header
        self._awaits_leds = False

    def receive(self, data: bytes) -> None:
        """Put received bytes into the buffer."""
        self._bytes += data
        del self._bytes[: len(self._bytes) // RING * RING]

    def controls(self) -> list[Control]:
        """Read the complete control packets and return them in order."""
        controls: list[Control] = []
        while True:
            # By the firmware's faulty count
            n_counted = len(self._bytes)
            if self._place + n_counted >= RING:
                n_counted += 1
            if self._awaits_leds:
                if n_counted < LEDS_SIZE:
                    return controls
                self._read(LEDS_SIZE)
                self._awaits_leds = False
            elif self._n_header < len(HEADER):
                if not self._bytes:
                    return controls
                continues = self._read(1)[0] == HEADER[self._n_header]
                if continues:
                    self._n_header += 1
                else:
                    self._n_header = 0
            elif n_counted < BODY_SIZE:
                return controls
            else:
                control = decode_control(self._read(BODY_SIZE))
                controls.append(control)
                self._n_header = 0
                self._awaits_leds = control.led_mode == LED_CUSTOM

    def line(self) -> bytes | None:
        """Read the console's next line up to its CR or a zero byte; None if it is incomplete.

        Each call discards 255 characters of a longer line.
        """
        end = self._bytes.find(b"\r")
        if end > LONGEST_LINE:
            self._read(LONGEST_LINE)
            return None
        if end < 0:
            return None
        return self._read(end + 1)[:-1].partition(b"\0")[0]

    def _read(self, n: int) -> bytes:
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        self._place = (self._place + len(data)) % RING
        return data + bytes([NOTHING]) * (n - len(data))


# ---- the program -----------------------------------------------------------------------------------------------------


class Microcontroller:
    """The robot behind its serial line.

    Physics, sensors and electronics have separate random generators, so an unused packet
    (`cycle(look=False)`) does not change the robot's motion. It stands in the middle of its pen
    until `boot`.
    """

    def __init__(self, *, battery_scale: float = 1.0, physics: str | None = None) -> None:
        self.spec = critterbot()
        pen = load_pen()
        # IR light's converter has ten bits; the firmware puts only eight of them into the packet.
        ten_bits = copy.copy(self.spec)
        ir_light = self.spec.group("ir_light")
        ten_bits.raw_high = self.spec.raw_high.copy()
        ten_bits.raw_high[ir_light] = 1023
        # The sensors need the motion at the end of the last three cycles.
        robots = new_robot(self.spec, pen, n_ticks=3)
        self.senses = Senses(ten_bits, pen, robots=robots)
        self.machine = Machine(
            self.spec,
            pen,
            battery_scale=battery_scale,
            physics=resolve_physics(physics),
            senses=self.senses,
        )
        self._ir_light = ir_light
        self._sensed = slice(self.spec.group("acceleration").start, self.spec.group("thermal").stop)
        self._path = self.machine.state.path
        self.boot(np.random.default_rng(0), 0.0, 0.0, 0.0)

    def boot(self, rng: Generator, x: float, y: float, heading: float) -> None:
        """Switch the robot on at a pose (metres, radians) with full batteries; `rng` is the source of all noise."""
        self._body_rng, self._sense_rng, self._packet_rng = rng.spawn(3)
        self.machine.reset(x, y, heading)
        self.senses.reset(self._sense_rng)
        self.n_cycles = 0  # of 10 ms
        self._raw = np.zeros(wire.N_CHANNELS)
        self._values = np.zeros(self.spec.n_channels)
        self._path[:] = self.machine.body.motion
        self._is_new = True
        self.control: Control | None = None  # the last one that was executed
        self._start()
        self._look()

    @property
    def pose(self) -> tuple[float, float, float]:
        """The robot's true pose: metres, and a heading in radians."""
        x, y, heading = self._path[-1, :3].tolist()
        return x, y, np.pi - (np.pi - heading) % (2.0 * np.pi)

    @property
    def is_hung(self) -> bool:
        """True while the ARM hangs (`hang`)."""
        return bool(self.machine.firmware.arm[firmware.HUNG])

    def hang(self) -> None:
        """Hang the ARM: it neither sends nor reads, and the motor AVRs stop after 0.6 s by themselves.

        Its watchdog resets it after 3 s. Bytes received meanwhile overwrite its ring buffer.
        """
        self.machine.firmware.hang()

    def reboot(self) -> None:
        """Reset the ARM only, as its watchdog does: motors off, charging disabled, at the console."""
        self.machine.firmware.reset_arm()
        self.machine.power.marks[power.ENABLED] = 0
        self._start()

    def close(self) -> None:
        """Free the simulation. Closing twice does nothing."""
        self.machine.close()

    def _start(self) -> None:
        self.in_mi = False  # at the console, without state packets
        # The firmware looks for its dock, which it never finds here, and ignores commands
        self.recharging = False
        self.errors = 0  # flags since the last packet
        self._receiver = Receiver()
        self._banner = banner()
        self._sent = deque([b"", b""], maxlen=2)

    def receive(self, data: bytes, errors: int = 0) -> None:
        """Put bytes into the receive buffer; a bad parity or frame only sets its flag in `errors`."""
        self._receiver.receive(data)
        self.errors |= errors

    def cycle(self, look: bool = True) -> bytes:
        """Run 10 ms and return the bytes that the robot sends.

        Without `look` that is an earlier packet, in a third of the time, for packets that the host
        does not use.
        """
        is_hung = self.is_hung
        look = look and not is_hung
        self._path[:-1] = self._path[1:]
        self._path[-1] = self.machine.run(self._body_rng.standard_normal(3))[0]
        self.n_cycles += 1
        if is_hung:
            if self.machine.firmware.hung_cycles >= WATCHDOG_CYCLES:
                self.reboot()
            return b""
        self._is_new = look
        if look:
            self._look()
        output = self._banner
        self._banner = b""
        if self._packet_rng.random() < MISALIGNED_SHARE:
            self.errors |= POWER_MISALIGNED
        if self.in_mi:
            self._run_control()
            output += self._packet()
            self.errors = 0
        else:
            output += self._run_console()
        if self.recharging and self.n_cycles % CYCLES_PER_STEP == 0:
            self._wander()
        return output

    # ---- sensors -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read channels 16..52."""
        spec = self.spec
        machine = self.machine
        sensed = self._sensed
        contact_n_s = 0.0
        if machine.n_ticks:
            contact_n_s = machine.body.contact_impulse()
        # The noise of channels 0..15 is drawn for each packet sent, not here.
        machine.draw(self._sense_rng, machine.sense_noise)
        machine.sample(contact_n_s, period.STILL, self._values)
        self._values[self._ir_light] = machine.state.packets[1]
        self._raw[sensed] = np.rint((self._values[sensed] - spec.offset[sensed]) / spec.lsb[sensed])

    def _packet(self) -> bytes:
        """Return this cycle's packet: channels 0..15 as they are now, the others as they were looked at.

        Without new readings it is the one of two cycles ago. This keeps the rhythm of the dock's
        beacon, by which a host unwraps the IR light (`IrLightUnwrapper`).
        """
        packet = self._sent[0]
        if self._is_new or not packet:
            machine = self.machine
            overheated = machine.firmware.arm[firmware.OVERHEATED]
            raw = self._raw
            noise = self._packet_rng.standard_normal(period.N_NOISE)
            period.report(machine.robots, 0, noise, raw[: period.N_RAW])
            raw[wire.OVERHEATING] = overheated
            monitor = wire.MONITOR_DRIVE
            if overheated:
                monitor = wire.MONITOR_OVERHEATING
            if machine.power.marks[power.ENABLED]:
                monitor |= wire.MONITOR_CHARGING
            state = RobotState(
                raw=raw,
                charge_state=int(machine.power.marks[power.STATE]),
                error_flags=self.errors,
                monitor=monitor,
            )
            packet = wire.encode_state(state)
        self._sent.append(packet)
        return packet

    # ---- input from the host -----------------------------------------------------------------------------------------

    def _run_console(self) -> bytes:
        """Execute one console line, if it is complete, and return the reply."""
        line = self._receiver.line()
        if line is None:
            return b""
        text, command = run_line(line)
        match command:
            case "reset now":
                self.reboot()
                return b""
            case "mi on":
                self.in_mi = True
                self.errors = 0
            case "recharge start":
                self.recharging = True
                self._wandering = WANDERING[0]
            case "recharge stop":
                self.recharging = False
        return text

    def _run_control(self) -> None:
        """Execute the last control packet received; earlier ones are lost.

        While the robot looks for its dock, only EXIT and the charging modes have an effect.
        """
        controls = self._receiver.controls()
        if not controls:
            return
        self.control = control = controls[-1]
        if control.mode == MotorMode.EXIT:
            self.in_mi = control.led_mode != LED_EXIT
        elif control.mode in (MotorMode.ENABLE_CHARGING, MotorMode.DISABLE_CHARGING):
            is_enabled = control.mode == MotorMode.ENABLE_CHARGING
            self.machine.power.marks[power.ENABLED] = is_enabled
        elif not self.recharging:
            self.machine.firmware.command(control.mode, control.a, control.b, control.c)

    def _wander(self) -> None:
        """Command the motors as the firmware does while it looks for the dock: a second in each random direction."""
        if self.n_cycles % WANDER_CYCLES == 0:
            self._wandering = WANDERING[int(self._packet_rng.integers(len(WANDERING)))]
        self.machine.firmware.command(int(MotorMode.XYTHETA_SPACE), *self._wandering)
