"""What really happened in an emulated robot's life, noted at the robot's end of the line and held against its host's.

    on the line      every state packet before the line's faults could touch it, and what became of it
    at the host      every packet that its parser accepted: one of those, byte by byte, none twice, in their order
    in the motors    how long they run on after the last command that reached the robot
    in the frames    which of the faults the host has seen: stale, gap, applied

Nothing is changed by being watched: the witness wraps functions of objects that exist, and calls them.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Frame
from horde_env.robot import Floats
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.emulator.driver import DropsLine
from horde_env.robots.critterbot.emulator.emulator import LASTING_S, EmulatedBody, Emulator
from horde_env.robots.critterbot.emulator.microcontroller import WATCHDOG_CYCLES
from horde_env.robots.critterbot.safety import VoltageObedience
from horde_env.robots.critterbot.simulator import firmware, motors
from horde_env.robots.critterbot.wire import COAST, CRC, HALT, HEADER, STATE_SIZE

CUTS = ("stall", "unplug")  # faults that keep commands from the robot
SHOWN_AFTER_S = 0.3  # heat and low voltage: the packet, the supervisor's verdict, the frame of the command after it
NOTICED_S = 2.5  # a cut must have shown in a frame for so long after its end: the handshake of a robot at its console
OBEYED_CYCLES = 200  # of stops alone, in which every ramp ends: 2 s from 100 units to -100


class Sent(NamedTuple):
    """A packet that the robot put on its line.

    Attributes:
        packet: Its bytes.
        fate: "sound", "damaged", or "silenced" by a stall.
        n_left: How many bytes of it were sent.
    """

    packet: bytes
    fate: str
    n_left: int


class Ledger:
    """Packets in the order sent; each accepted packet must be one of them, once, in this order.

    Attributes:
        n_accepted: Packets accepted that were sent so.
        n_forged: Packets accepted that never were, or were the ruins of some: must stay 0.
        n_damaged: Damaged packets that lay between two accepted ones of a connection: refused, therefore.
        n_missing: Intact ones there: lost by the reader.
        n_unseen: Damaged ones that the reader did not count as skipped bytes: must stay 0.
    """

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque(maxlen=50_000)
        self._lock = threading.Lock()
        self.n_accepted = self.n_forged = self.n_damaged = self.n_missing = self.n_unseen = 0

    def put(self, sent: Sent) -> None:
        """Note a packet that is being sent."""
        with self._lock:
            self._sent.append(sent)

    def take(self, packet: bytes) -> list[Sent] | None:
        """Return the packets sent before `packet` and never accepted; None if it was not sent."""
        with self._lock:
            place = next((i for i, sent in enumerate(self._sent) if sent.packet == packet), None)
            if place is None:
                self.n_forged += 1
                return None
            *before, taken = [self._sent.popleft() for _ in range(place + 1)]
            self.n_forged += taken.fate == "damaged"  # the ruins that the driver makes drops of
            self.n_accepted += taken.fate == "sound"
            return before

    def watch(self, finder: Any) -> Any:
        """Hold what `finder` finds from now on against this ledger; return it."""
        find, skipped_due, begun = finder.find, 0, False

        def watched(data: bytes) -> list[bytes]:
            nonlocal skipped_due, begun
            found: list[bytes] = find(data)
            for packet in found:
                for sent in self.take(packet) or ():
                    if begun:
                        skipped_due += self._judge(sent)
                begun = True
            if finder.skipped_bytes < skipped_due:
                self.n_unseen += 1
            return found

        finder.find = watched
        return finder

    def _judge(self, sent: Sent) -> int:
        """Count a packet that was passed over; return how many bytes of it a reader must have skipped."""
        if sent.fate == "sound":
            self.n_missing += 1
        elif sent.fate == "damaged":
            self.n_damaged += 1
            return sent.n_left
        return 0


class StopWatch:
    """Watches how the motors come to a stand when no command reaches the robot.

    Attributes:
        n_stops: Silences of the host that outlasted the robot's patience, after which all setpoints were zero.
        n_runaways: How often setpoints were not zero 2 s after the robot had taken nothing but stops: must stay 0.
        n_late: Setpoints that were not zero when patience and ramp were over: must stay 0.
    """

    def __init__(self) -> None:
        self.n_stops = self.n_late = self.n_runaways = 0
        self._units = self._silent = self._due = self._stopping = 0

    def command(self, mode: int) -> None:
        """Note that the robot has taken a control; those of the motors restart its timeout."""
        if mode <= firmware.WHEEL_VOLTAGE:
            self._silent, self._units = -1, 0

    def update(self, robot: Any) -> None:
        """Look at the firmware after a cycle of 10 ms."""
        firm = robot.machine.firmware
        if robot.is_hung:  # then the motor boards' timeout applies
            self._silent, self._units = -1, 0
            return
        self._silent += 1
        silent, top = self._silent, int(abs(firm.wheels[firmware.SETPOINT]).max())
        self._stopping = self._stopping + 1 if robot.control in (HALT, COAST) else 0
        self.n_runaways += self._stopping == OBEYED_CYCLES and top > 0
        if silent == firmware.TIMEOUT_CYCLES - 1:
            self._units, self._due = top, self._cycles_to_zero(firm.arm, top)
        elif silent >= firmware.TIMEOUT_CYCLES and self._units:
            if top == 0:
                self.n_stops += 1
                self._units = 0
            elif silent >= self._due:
                self.n_late += 1
                self._units = 0

    def _cycles_to_zero(self, arm: Any, top: int) -> int:
        """Return the number of silent cycles until the setpoints must be 0: a ramp, or duties that outlast one."""
        if arm[firmware.MODE] != firmware.WHEEL_VOLTAGE:
            return firmware.TIMEOUT_CYCLES + top
        ramp_left = max(int(arm[firmware.SLEW_STEPS] - arm[firmware.SLEW_STEP]) + 1, 0)
        return firmware.TIMEOUT_CYCLES * (1 + math.ceil(ramp_left / firmware.TIMEOUT_CYCLES))


@dataclass
class Event:
    """A fault that lasts (or a reboot), and what the host's frames showed of it.

    Attributes:
        kind: Its name.
        begin, end: Robot's time, seconds; the end is infinite while it lasts.
        was_open: Whether the host had a connection when it began.
        shown: Whether a frame showed it.
    """

    kind: str
    begin: float
    was_open: bool
    end: float = np.inf
    shown: bool = False


@dataclass
class Tally:
    """Counts over all robots of a life, one after the other.

    Attributes:
        faults: How often each fault happened.
        n_damaged: Packets that left the robot damaged.
        stats: Sums of the links' own counts.
        events: Faults that last, and reboots.
        n_moving_unsafe: Frames that were applied although heat or low voltage had been there for 0.3 s: must stay 0.
        n_no_gap: First frames after a reconnection that were no gap: must stay 0.
        n_suspected: Frames in which a working robot was reported as ignoring commands: must stay 0.
    """

    faults: Counter[str] = field(default_factory=Counter)
    stats: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    n_damaged: int = 0
    n_moving_unsafe: int = 0
    n_no_gap: int = 0
    n_suspected: int = 0


class WatchedBody(EmulatedBody):
    """An emulated body with a witness in it.

    Attributes:
        wire: Packets on the robot's line against those that were accepted off it.
        drops: Drops against those that the host accepted (`link="drops"`).
        stopwatch: The motors.
        tally: The counts.
    """

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.wire, self.drops, self.stopwatch, self.tally = Ledger(), Ledger(), StopWatch(), Tally()
        self._open_events: list[Event] = []
        self._obedience = VoltageObedience(self.spec)
        self._reconnects = 0

    def end_of_faults(self) -> None:
        """Stop generating faults, so that the active ones can end."""
        self.emulator._faults._share = [0.0] * len(self.emulator._faults._share)

    # ---- Backend -----------------------------------------------------------------------------------------------------

    def exchange(self, command: Floats) -> Frame:
        """Exchange as ever, and look at what the host makes of it."""
        frame = super().exchange(command)
        self.tally.n_suspected += bool(self._obedience.judge(command, frame))
        self._look(frame)
        return frame

    def close(self) -> None:
        """Add the robot's counts to the tally and close it."""
        if self._emulator is not None and self._body is not None:
            tally, stats = self.tally, self._body.stats._asdict()
            tally.faults.update(self._emulator.fault_counts)
            tally.stats.update(stats)
        super().close()

    def counts(self) -> Counter[str]:
        """Return how often each fault has happened until now."""
        now = Counter(self.tally.faults)
        if self._emulator is not None:
            now.update(self._emulator.fault_counts)
        return now

    def _connect(self, url: str, emulator: Emulator) -> SerialBody:
        body = super()._connect(url, emulator)
        at_host = self.wire if self._link == "serial" else self.drops
        self._said: deque[bytes] = deque(maxlen=16)
        make = body.dialect.parser
        body.dialect = body.dialect._replace(parser=lambda: at_host.watch(make()))
        self._wrap(emulator, body)
        self._open_events, self._reconnects = [], 0
        return body

    # ---- at the robot's end ------------------------------------------------------------------------------------------

    def _wrap(self, emulator: Emulator, body: SerialBody) -> None:
        robot, faults = emulator.robot, emulator._faults
        cycle, tick, way_out = robot.cycle, faults.tick, faults.damage_output
        send, staged = emulator._send, deque[tuple[bytes, Sent | None]]()
        command = robot.machine.firmware.command

        def watched_command(mode: int, *values: int) -> None:
            self.stopwatch.command(mode)
            command(mode, *values)

        def watched_cycle(look: bool = True) -> bytes:
            said = cycle(look)
            self.stopwatch.update(robot)
            return said

        def watched_tick() -> None:
            before, link = dict(faults.counts), body._link
            is_open = link is not None and link.is_open
            tick()
            for kind in (*LASTING_S, "reboot"):
                if faults.counts[kind] > before[kind]:
                    end = emulator.t + WATCHDOG_CYCLES * motors.TICK_S if kind == "reboot" else np.inf
                    event = Event(kind, emulator.t, is_open, end)
                    self.tally.events.append(event)
                    self._open_events.append(event)
            for event in self._open_events:
                if event.end == np.inf and not faults.is_on(event.kind):
                    event.end = emulator.t

        def watched_out(data: bytes) -> tuple[bytes, bool]:
            left, bad_parity = way_out(data)
            packet = data[-STATE_SIZE:]
            is_packet = len(packet) == STATE_SIZE and packet.startswith(HEADER)
            fate = "silenced" if not left else "sound" if left.endswith(packet) else "damaged"
            staged.append((left, Sent(packet, fate, len(left)) if is_packet else None))
            self._said.append(packet)
            return left, bad_parity

        def watched_send(data: bytes, bad_parity: bool) -> None:
            while staged:  # in lockstep nothing is sent where no host is
                left, sent = staged.popleft()
                if left is data:
                    if sent is not None:
                        self.tally.n_damaged += sent.fate == "damaged"
                        self.wire.put(sent)
                    break
            send(data, bad_parity)

        robot.cycle, faults.tick = watched_cycle, watched_tick  # type: ignore[method-assign]
        robot.machine.firmware.command = watched_command  # type: ignore[method-assign,assignment]
        faults.damage_output = watched_out  # type: ignore[method-assign]
        emulator._send = watched_send  # type: ignore[method-assign]
        for line in emulator.lines:
            if isinstance(line, DropsLine):
                self._watch_driver(line)

    def _watch_driver(self, line: DropsLine) -> None:
        """Check that the driver's host accepts only drops made of whole packets."""
        make = line._drop

        def watched_drop(packet: bytes) -> bytes:
            drop, said = make(packet), [packet.replace(b"\r", b"\n")[:CRC] for packet in self._said]
            self.drops.put(Sent(drop, "sound" if packet[:CRC] in said else "damaged", len(drop)))
            return drop

        line._drop = watched_drop  # type: ignore[method-assign]

    # ---- at the host's end -------------------------------------------------------------------------------------------

    def _look(self, frame: Frame) -> None:
        tally, t = self.tally, self.emulator.t
        if frame.extras["reconnects"] > self._reconnects and not frame.stale:
            self._reconnects = frame.extras["reconnects"]
            tally.n_no_gap += not frame.gap
        for event in self._open_events:
            if event.kind in ("heat", "low_battery"):
                event.shown |= not frame.applied
                warned = event.begin + SHOWN_AFTER_S < t <= event.end
                tally.n_moving_unsafe += warned and frame.applied and not frame.stale
            elif event.kind in CUTS:
                event.shown |= frame.gap or frame.stale
            elif event.kind == "reboot":
                event.shown |= frame.stale or not frame.applied or frame.gap
        self._open_events = [event for event in self._open_events if t <= event.end + NOTICED_S]
