"""Frames out of readings: what a step returns of the ten packets that came during it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.errors import BackendUnavailable
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.link import Link
from horde_env.hardware.port import GAP_S
from horde_env.hardware.readings import LinkStats, Reading, aggregate
from horde_env.robot import RobotSpec

LONGEST = 1.5  # periods that a step may last: its deadline missed by 50 ms at a period of 0.1 s


class Mark(NamedTuple):
    """How far a life has come: the newest reading that a frame was made of, in which connection, and the counts."""

    epoch: int
    newest: Reading
    stats: LinkStats


class Framing:
    """Makes the frames of one life, each from what came since the one before.

    A gap is the first one, one that comes after missing packets or a new connection, and one that ends a step of more
    than one and a half periods: then no action was held for as long as a step is.

    Args:
        spec: The robot.
        link: Where readings come from.
        signs: 1, or -1 where this robot's channel runs against the specification, shape (n_channels,).
        dialect: How it is spoken to.

    Raises:
        BackendUnavailable: If there are not two readings, because the link is being lost.

    Attributes:
        mark: The newest reading used.
    """

    def __init__(self, spec: RobotSpec, link: Link, signs: Floats, dialect: Dialect) -> None:
        self._spec, self._link, self._signs, self._dialect = spec, link, signs, dialect
        self._request = spec.group("last_request")
        self._longest_s = LONGEST * spec.period_s
        if len(readings := link.last_two()) < 2:
            raise BackendUnavailable("the robot went away before its first frame. Is it plugged in?")
        before, newest = readings
        self.mark = Mark(0, newest, link.stats)  # a connection that never was: the first frame is a gap
        self._t0 = self._seen_t = newest.t
        self._values = signs * spec.to_si(aggregate((before, newest), spec))
        self._beacon = _beacon(before, newest, spec, np.zeros(8)) if newest.ir_light is not None else None

    def frame(self, share: Floats, now: float, *, applied: bool) -> Frame:
        """Return the frame of the period that ends now.

        Args:
            share: What was asked for, as shares of the largest request (`RobotSpec.shares`).
            now: The time in seconds.
            applied: Whether the link and the supervisor let the robot do that.
        """
        last, epoch, stats = self.mark, self._link.epoch, self._link.stats
        readings = self._link.last_two()
        fresh = len(readings) == 2 and (epoch, readings[1].number) != (last.epoch, last.newest.number)
        if fresh:
            before, newest = readings
            self._values = self._signs * self._spec.to_si(aggregate(self._of_the_step(readings), self._spec))
            if self._beacon is not None:
                self._beacon = _beacon(before, newest, self._spec, self._beacon)
            self.mark = Mark(epoch, newest, stats)
        else:
            self.mark = last._replace(stats=stats)
        newest = self.mark.newest
        is_long, self._seen_t = now - self._seen_t > self._longest_s, now
        values = self._values.copy()
        values[self._request] = share
        return Frame(
            values=values,
            t=newest.t - self._t0,
            sensor_age_s=max(now - newest.t, 0.0),
            crc_errors=stats.crc_errors - last.stats.crc_errors,
            stale=not fresh,
            gap=is_long or (fresh and self._is_broken(last, self.mark)),
            applied=applied and self._dialect.is_free(last.newest) and self._dialect.is_free(newest),
            extras={
                "packets": stats.packets - last.stats.packets,
                "skipped_bytes": stats.skipped_bytes - last.stats.skipped_bytes,
                "reconnects": stats.reconnects,
                "link_losses": stats.losses - last.stats.losses,
                "s_without_link": stats.lost_s - last.stats.lost_s,
            },
            beacon=None if self._beacon is None else self._beacon.copy(),
        )

    def _of_the_step(self, last_two: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """Return the readings since the last frame, or the last two where nothing needs the others."""
        if not self._spec.is_any.any():
            return last_two
        after = self.mark.newest.number if self.mark.epoch == self._link.epoch else 0
        recent = tuple(r for r in self._link.since(after) if r.number <= last_two[-1].number)
        return recent or last_two

    def _is_broken(self, last: Mark, mark: Mark) -> bool:
        """Tell whether `mark` does not follow from `last`."""
        return (
            mark.epoch != last.epoch
            or mark.newest.state.breaks != last.newest.state.breaks
            or self._n_lost(last, mark) >= self._n_gap
        )

    @property
    def _n_gap(self) -> int:
        """Packets whose loss breaks the sequence; fewer leave a hole no wider than the robot's own jitter."""
        return round(GAP_S / self._spec.packet_period_s)

    def _n_lost(self, last: Mark, mark: Mark) -> int:
        """Return how many packets are missing between two marks of one connection.

        Packets have no numbers. The time that passed says how many there should be, whenever they were read: ten that
        come at once, because this machine was busy, are not lost. Damaged ones leave their bytes.
        """
        due = round((mark.newest.t - last.newest.t) / self._spec.packet_period_s)
        damaged = (mark.stats.skipped_bytes - last.stats.skipped_bytes) // self._dialect.size
        return max(due - (mark.newest.number - last.newest.number), damaged)


def _beacon(before: Reading, newest: Reading, spec: RobotSpec, known: Floats) -> Floats:
    """Return the strength of the dock's beacon, share of full scale, shape (8,); `known` if a packet is missing.

    The beacon alternates from packet to packet, so the difference of two that are not neighbours says nothing.
    """
    if newest.n_skipped or newest.t - before.t > GAP_S or newest.ir_light is None or before.ir_light is None:
        return known
    return np.asarray(np.abs(newest.ir_light - before.ir_light) * spec.lsb[spec.group("ir_light")])
