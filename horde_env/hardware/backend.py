"""A physical robot of any kind as a Backend: deadlines, frames, supervisor, emergency stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Backend, Floats, Frame, InfoKey
from horde_env.clock import Clock
from horde_env.errors import BackendLost, BackendUnavailable, EmergencyStop
from horde_env.hardware.checks import Supervising
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.link import TICK_S, Dialect, Link
from horde_env.hardware.port import GAP_S, Port
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.hardware.stream import Counts, Reading, aggregate
from horde_env.robot import RobotSpec, spec_of

LONGEST = 1.5  # periods that a step may last: its deadline missed by 50 ms at a period of 0.1 s
# Longest wait for the wheels to stand still, in seconds: a person may be pushing the robot
REST_S = 1.0
NOT_CONNECTED = "the robot is not connected: call reset() first."

_log = logging.getLogger(__name__)


LINK_KEYS = (
    InfoKey("packets", "1", "packets received during the step"),
    InfoKey("skipped_bytes", "1", "bytes skipped during the step"),
    InfoKey("reconnects", "1", "reconnections since the robot was opened"),
    InfoKey("link_losses", "1", "losses of the link during the step"),
    InfoKey("s_without_link", "s", "time without a link during the step"),
)
"""The extras of a physical body."""


class Mark(NamedTuple):
    """The last frame's newest reading, its connection (0 before the first frame) and the counts."""

    epoch: int
    newest: Reading
    stats: Counts


class PhysicalBody(Backend):
    """A robot behind a serial port. A subclass adds its kind, a dialect and a supervisor.

    An exchange sends its command at once, waits for the clock's deadline and returns the newest
    frame. While the link is lost, frames are stale and not applied, deadlines are met and
    reconnection runs in parallel. `link` lists the other causes of a stop. A frame is a gap if it
    is the first, follows missing packets or a reconnection, or ends a step longer than `LONGEST`
    periods, in which no action was held for one step.

    Args:
        config: Address and settings of the port.
        clock: Waits for the end of a period; the environment's clock, which calls `begin` before an
            exchange.
        settings: How long to hold a command, and how long to try to reconnect.
        signs: Channel -> -1 where this robot's readings run against the specification
            (`robot_file`).
        latch: The emergency stop that a person may set; none when None.
        monotonic: The time in seconds.
        sleep: Waits for that many seconds.
        connect: Opens the port; `port.serial_for_url` when None.
    """

    can_be_placed = False
    info_keys = LINK_KEYS
    notes: tuple[str, ...] = ()  # caveats of results from this robot, for the report

    # ---- what a robot adds -------------------------------------------------------------------------------------------

    kind: str  # one of `robot.ROBOTS`
    dialect: Dialect
    make_supervisor: Callable[[RobotSpec], Supervising]
    parity = "none"  # of its serial line

    @classmethod
    def line_of(
        cls,
        port: str,
        file: RobotFile,
        latch: EmergencyLatch,  # noqa: ARG003  for a process that checks it too
        *,
        parity: str | None = None,
        baudrate: int | None = None,
    ) -> tuple[PortConfig, dict[str, Any]]:
        """Return how the port is opened, and further arguments of the body; defaults come from the robot's file."""
        chosen: Any = parity or file.parity or cls.parity
        return PortConfig(port, baudrate or file.baudrate, chosen), {}

    def steer(self, control: Any) -> Any:
        """Return the control to send for a requested one; the same unless the robot's state demands another."""
        return control

    def send_state_commands(self, link: Link) -> None:
        """Send state-dependent commands (such as the charging mode) after the drive command."""

    def annotate(self, frame: Frame, control: Any) -> Frame:  # noqa: ARG002
        """Add the robot's own state to a frame; `control` is the control that was sent."""
        return frame

    def stop_reason(self, frame: Frame, reading: Reading) -> str:
        """Return why the robot must not move, by its newest frame; "" if it may: the supervisor's reason."""
        return self.supervisor.judge(frame.values, reading.state.charge_state, frame.t)

    # ------------------------------------------------------------------------------------------------------------------

    def __init__(
        self,
        config: PortConfig,
        clock: Clock,
        *,
        settings: LinkSettings | None = None,
        signs: Mapping[str, int] | None = None,
        latch: EmergencyLatch | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        connect: Callable[..., Any] | None = None,
    ) -> None:
        self.spec = spec_of(self.kind)
        self.period_s = self.spec.period_s
        self.config = config
        self.clock = clock
        self.latch = latch
        self._signs = np.ones(self.spec.n_channels)
        for name, sign in (signs or {}).items():
            self._signs[self.spec.index(name)] = sign
        if settings is None:
            self.settings = LinkSettings()
        else:
            self.settings = settings
        self.supervisor = type(self).make_supervisor(self.spec)
        self._monotonic = monotonic
        self._sleep = sleep
        self._connect: dict[str, Any] = {}
        if connect is not None:
            self._connect["connect"] = connect
        self._link: Link | None = None
        self._mark: Mark | None = None  # of the newest frame
        self._request = self.spec.group("last_request")
        self._ir_light: slice | None = None
        if "ir_light" in self.spec.groups:
            self._ir_light = self.spec.group("ir_light")
        self._n_stale = 0
        self._charging_wanted = False
        self._has_answered = False
        # From the look at the latch to the command that follows from it
        self._commanding = threading.RLock()
        # Of the `horde-robot stop` that stops this robot; none if unknown
        self.stop_options: dict[str, str] = {}
        self._stop_reason = ""  # the supervisor's
        self.reason = ""  # why the robot is held still

    @property
    def stats(self) -> Counts:
        """Counts of the link since it was opened."""
        if self._link is None:
            return Counts()
        return self._link.stats

    @property
    def loss(self) -> str:
        """Why the link was lost the last time; "" if it never was."""
        if self._link is None:
            return ""
        return self._link.loss

    # ---- Backend -----------------------------------------------------------------------------------------------------

    def reset(self, rng: np.random.Generator) -> Frame:  # noqa: ARG002  the world has its own
        """Connect if necessary, stop the robot and return its first frame.

        Raises:
            BackendUnavailable: If no robot answers; the message describes the answer, if any.
            EmergencyStop: While the latch is set; nothing is opened.
        """
        if self.latch is not None:
            stop = self.latch.reason
            if stop:
                self.close()
                raise EmergencyStop(stop, self.latch.path, self.latch.remedy)
        if self._link is None or not self._link.is_open:
            self.close()
            connect = partial(
                Port,
                self.config,
                self._monotonic,
                fill=self.dialect.fill,
                packet_period_s=self.spec.packet_period_s,
                **self._connect,
            )
            self._link = Link(connect, self.dialect, self.settings, self._monotonic, self._sleep)
            try:
                self._link.open()
            except BaseException:
                self.close()
                raise
        self._link.command(self.dialect.halt)
        self._mark = None
        self._charging_wanted = False
        self._n_stale = 0
        self._await_rest(self._link)
        self.clock.start()  # opening takes time
        frame = self._make_frame(self._link, np.zeros(self.spec.axes.size), applied=True)
        self._judge(frame)
        self._keep_still(self._stop_reason)
        return replace(frame, applied=frame.applied and not self.reason)

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` (m/s, m/s, rad/s) until the clock's deadline and return the newest frame.

        While the latch is set or the supervisor objects, the stop is sent instead, and `applied` is
        False.

        Raises:
            ValueError: If `command` is not three finite numbers; nothing was sent.
            BackendLost: If the robot did not reconnect in time; `dialect.stops` says what stops it
                then.
            BackendUnavailable: If the body was not reset or is closed.
        """
        control = self.dialect.drive(command, self.spec)
        link = self._link
        if link is None:
            raise BackendUnavailable(NOT_CONNECTED)
        if self._mark is None:  # before a command is sent
            raise BackendUnavailable("the reset was interrupted: call reset() first.")
        with self._commanding:
            stop = ""
            if self.latch is not None:
                stop = self.latch.reason
            if stop:
                self._keep_still(f"the emergency stop is set: {stop}")
            else:
                self._keep_still(self._stop_reason)
            if self.reason:
                control = self.dialect.halt
            else:
                control = self.steer(control)
            has_left = link.command(control)
        obeyed = has_left and not self.reason and not link.lapsed
        if self.latch is not None and stop and has_left and not self._has_answered:
            self.latch.answer()
        self._has_answered = bool(stop) and has_left
        if not self.settings.threaded:
            link.poll()
        self.send_state_commands(link)
        self.clock.wait()
        share = self.spec.shares(command)
        frame = self.annotate(
            self._make_frame(link, share, applied=obeyed and link.is_open), control
        )
        self._watch(link, frame)
        self._judge(frame)
        return frame

    def close(self) -> None:
        """Stop the motors and close the port. Closing twice does nothing."""
        link = self._link
        self._link = None
        self._mark = None
        if link is not None:
            link.close()

    def emergency_stop(self, reason: str) -> bool:
        """Stop the motors now, and set the latch, if any, which stops them until cleared; return whether there is one.

        Any thread may call this during a step: the latch holds before the stop is sent, so no other
        command follows.

        Raises:
            BackendUnavailable: If the latch cannot be written; the stop still holds in this
                process.
        """
        with self._commanding:
            if self.latch is not None:
                self.latch.hold(reason)
            if self._link is not None:
                self._link.command(self.dialect.halt)
        if self.latch is None:
            return False
        self.latch.set(reason)
        return True

    def wait_for_rest(self, limit_s: float) -> bool:
        """Wait until two new readings show the wheels at rest; return whether they did within `limit_s` seconds.

        Any thread may call this during a step. False at once if the robot is not connected.
        """
        link = self._link
        if link is None:
            return False
        past = link.readings()[-1:]
        newest = 0
        if past:
            newest = past[0].number
        end = self._monotonic() + limit_s
        while link.is_open and self._monotonic() < end:
            readings = link.readings(newest)[-2:]
            if len(readings) == 2 and all(map(self.dialect.is_at_rest, readings)):
                return True
            self._sleep(TICK_S)
        return False

    def enable_charging(self, enabled: bool) -> None:
        """Enable or disable charging by the dock; disabled after each reset. A charging robot cannot move.

        Sent with each exchange until the robot reports that state.
        """
        self._charging_wanted = enabled

    # ---- frames ------------------------------------------------------------------------------------------------------

    def _first_mark(self, readings: tuple[Reading, ...], stats: Counts) -> Mark:
        """Start a sequence of frames with the newest of two readings; BackendUnavailable if the link was lost."""
        if len(readings) < 2:
            self.close()
            raise BackendUnavailable(
                "the robot disconnected before its first frame. Is it plugged in?"
            )
        newest = readings[-1]
        self._t0 = self._seen_t = newest.t
        self._beacon = None
        if self._ir_light is not None:
            self._beacon = np.zeros(8)
        # Epoch 0 differs from every connection's: the first frame is a gap
        return Mark(0, newest, stats)

    def _make_frame(self, link: Link, share: Floats, *, applied: bool) -> Frame:
        """Return the frame of the period that ends now, from the readings since the last one.

        `share` is the request (`RobotSpec.shares`), `applied` whether the link and the supervisor
        allowed it.
        """
        now_s = self._monotonic()
        epoch = link.epoch
        stats = link.stats
        readings = link.readings()[-2:]
        last = self._mark or self._first_mark(readings, stats)
        fresh = len(readings) == 2 and (epoch, readings[1].number) != (
            last.epoch,
            last.newest.number,
        )
        mark = last._replace(stats=stats)
        if fresh:
            mark = Mark(epoch, readings[1], stats)
        self._mark = mark
        newest = mark.newest
        if fresh:
            packets = self._of_the_step(link, last, readings)
            self._values = self._signs * self.spec.to_si(aggregate(packets, self.spec))
            # The beacon alternates from packet to packet, so the difference of two that are not
            # neighbours says nothing.
            are_neighbours = not newest.n_skipped and newest.t - readings[0].t <= GAP_S
            if self._ir_light is not None and are_neighbours:
                change = newest.raw[self._ir_light] - readings[0].raw[self._ir_light]
                self._beacon = np.abs(change) * self.spec.lsb[self._ir_light]
        is_long = now_s - self._seen_t > LONGEST * self.period_s
        self._seen_t = now_s
        values = self._values.copy()
        values[self._request] = share
        beacon = self._beacon
        if beacon is not None:
            beacon = beacon.copy()
        return Frame(
            values=values,
            t=newest.t - self._t0,
            sensor_age_s=max(now_s - newest.t, 0.0),
            crc_errors=stats.crc_errors - last.stats.crc_errors,
            stale=not fresh,
            gap=is_long or (fresh and self._is_broken(last, mark)),
            applied=applied and self.dialect.is_free(last.newest) and self.dialect.is_free(newest),
            extras={
                "packets": stats.packets - last.stats.packets,
                "skipped_bytes": stats.skipped_bytes - last.stats.skipped_bytes,
                "reconnects": stats.reconnects,
                "link_losses": stats.losses - last.stats.losses,
                "s_without_link": stats.lost_s - last.stats.lost_s,
            },
            beacon=beacon,
        )

    def _of_the_step(
        self, link: Link, last: Mark, last_two: tuple[Reading, ...]
    ) -> tuple[Reading, ...]:
        """Return the readings since the last frame, or only the last two if no channel aggregates by "any"."""
        if not self.spec.is_any.any():
            return last_two
        last_number = 0
        if last.epoch == link.epoch:
            last_number = last.newest.number
        return (
            tuple(r for r in link.readings(last_number) if r.number <= last_two[-1].number)
            or last_two
        )

    def _is_broken(self, last: Mark, mark: Mark) -> bool:
        """Return whether packets are missing between `last` and `mark`.

        Packets have no sequence numbers: the expected number follows from the elapsed time, so
        packets read late by a busy machine do not count as lost. Damaged packets leave skipped
        bytes. A loss shorter than `GAP_S` is within the robot's own jitter.
        """
        if mark.epoch != last.epoch or mark.newest.state.breaks != last.newest.state.breaks:
            return True
        n_expected = round((mark.newest.t - last.newest.t) / self.spec.packet_period_s)
        n_damaged = (mark.stats.skipped_bytes - last.stats.skipped_bytes) // self.dialect.size
        n_lost = max(n_expected - (mark.newest.number - last.newest.number), n_damaged)
        return n_lost >= round(GAP_S / self.spec.packet_period_s)

    # ---- internals ---------------------------------------------------------------------------------------------------

    def _await_rest(self, link: Link) -> None:
        """Wait until the wheels stand still, at most `REST_S`."""
        end = self._monotonic() + REST_S
        while self._monotonic() < end and link.is_open:
            if all(map(self.dialect.is_at_rest, link.readings()[-2:])):
                return
            self._sleep(TICK_S)
        if not link.is_open:
            self.close()
            raise BackendUnavailable(
                f"{self.config.url} disconnected while the robot stopped. Is it plugged in?"
            )

    def _watch(self, link: Link, frame: Frame) -> None:
        """Detect a silent robot; raise BackendLost after `frame_timeout_s` without a frame."""
        if frame.stale:
            self._n_stale = self._n_stale + 1
        else:
            self._n_stale = 0
        # At least two periods: after a pause of this machine packets have arrived that are not read
        # yet.
        if self._n_stale >= 2 and frame.sensor_age_s > self.settings.silence_s and link.is_open:
            link.disconnect(f"no packet for {frame.sensor_age_s:.2f} s")
        limit_s = self.settings.frame_timeout_s
        if not link.is_open and (link.given_up or frame.sensor_age_s > limit_s):
            n_packets = link.stats.packets
            refusal = link.refusal
            self.close()
            stops = self.dialect.stops
            raise BackendLost(
                self.config.url, frame.sensor_age_s, limit_s, n_packets, refusal, stops
            )

    def _judge(self, frame: Frame) -> None:
        """Pass a new frame to the supervisor; its stop_reason applies from the next command on."""
        if not frame.stale and self._mark is not None:
            self._stop_reason = self.stop_reason(frame, self._mark.newest)

    def _keep_still(self, reason: str) -> None:
        """Hold the robot still for a reason, or release it if there is none; log changes."""
        if reason != self.reason:
            if reason:
                _log.warning("the robot is kept still: %s", reason)
            else:
                _log.warning("the robot may move again")
        self.reason = reason
