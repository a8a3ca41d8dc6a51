"""Faults of an emulated robot, random or on request, each counted.

    loss, flip, burst            one byte of the traffic is lost, one bit flipped, or up to 40 bytes are changed
    stall                        no bytes pass in either direction
    unplug                       the device disappears and returns under the same name
    reboot                       the robot's program hangs and restarts
    low_battery, heat, stuck_wheel   faults of the robot itself
    unread                       the host's bytes do not arrive; never random, so that it does not change the draws of
                                 the other faults

Damage hits a random byte of a tick's traffic, in either direction. Damaged input sets the error
flags of the robot's serial port; commands without a checksum may be misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from numpy.random import Generator

BURST = (8, 41)  # bytes
UNREAD_S = (1.0, 10.0)
DAMAGE = ("loss", "flip", "burst")
MAX_PENDING = 100  # of damage without traffic to hit, as at an idle console


class LineFaults:
    """Faults of one robot's line. A subclass implements those of the robot itself in `begin` and `end`.

    Args:
        robot: The robot: `n_cycles`, `is_hung`, and `hang()`, which restarts its program.
        rates: Rates of random faults, per second of the robot's time.
        rng: Source of times, places and durations.

    Attributes:
        is_active: A fault may come, is on, or waits for traffic: otherwise a tick needs none of this.
    """

    kinds: tuple[str, ...] = (
        *DAMAGE,
        "stall",
        "unplug",
        "reboot",
        "low_battery",
        "heat",
        "stuck_wheel",
    )
    tick_s: float
    packet_size: int  # bytes
    lasting_s: dict[str, tuple[float, float]]  # shortest and longest duration, drawn uniformly
    # Of the robot's serial port, by the damage that sets them
    error_flags: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def parse(cls, text: str) -> dict[str, float]:
        """Return the rates in a text such as "loss=0.5,unplug=0.01", per second; "all=0.02" sets every rate.

        >>> LineFaults.parse("all=0.1,unplug=0")["stall"]
        0.1

        Raises:
            ValueError: If a fault is unknown, or its rate is not a number in 0..100, one per tick.
        """
        rates: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            kind, _, number = part.partition("=")
            if kind not in (*cls.kinds, "all"):
                raise ValueError(
                    f"unknown fault {kind!r}; choose one of {', '.join(cls.kinds)}, all"
                )
            try:
                rate = float(number)
            except ValueError:
                raise ValueError(
                    f"invalid rate {part!r}: write {kind}=NUMBER, per second"
                ) from None
            if kind == "all":
                rates |= dict.fromkeys(cls.kinds, rate)
            else:
                rates[kind] = rate
        return cls.checked(rates)

    @classmethod
    def checked(cls, rates: Mapping[str, float]) -> dict[str, float]:
        """Return the rates if all are known and in 0..100, one per tick; raise ValueError otherwise."""
        for kind, rate in rates.items():
            if kind not in cls.kinds:
                raise ValueError(f"unknown fault {kind!r}; choose one of {', '.join(cls.kinds)}")
            if not 0.0 <= rate <= 100.0:
                raise ValueError(f"the rate of {kind} must be in 0..100 per second, not {rate}")
        return dict(rates)

    def __init__(self, robot: Any, rates: Mapping[str, float], rng: Generator) -> None:
        self.rates = self.checked(rates)
        # So far; damage counts when it hits a byte
        self.counts = dict.fromkeys((*self.kinds, "unread"), 0)
        self._robot = robot
        self._rng = rng
        self._share = [rates.get(kind, 0.0) * self.tick_s for kind in self.kinds]
        self._is_random = any(self._share)
        self.is_active = self._is_random
        self._pending: list[str] = []  # damage that waits for traffic
        self._ends: dict[str, int] = {}  # tick at which a lasting fault ends

    def begin(self, kind: str) -> None:
        """Start a lasting fault of the robot itself."""

    def end(self, kind: str) -> None:
        """End a lasting fault of the robot itself."""

    @property
    def damages_bytes(self) -> bool:
        """True if bytes may be lost or changed at random."""
        return any(
            self.rates.get(kind, 0.0) > 0.0 for kind in (*DAMAGE, "stall", "unplug", "reboot")
        )

    def is_on(self, kind: str) -> bool:
        """Return whether a lasting fault is active."""
        return kind in self._ends

    def inject(self, kind: str, for_s: float | None = None) -> None:
        """Start a fault with the next tick; an active one continues until the later end.

        `for_s` is its duration in seconds, random when None, ignored for damage and reboot. Damage
        waits for a byte to hit; at most `MAX_PENDING` wait, the others are dropped and not counted.

        Raises:
            ValueError: If the fault is unknown or `for_s` is not positive.
        """
        if kind not in self.counts:
            raise ValueError(f"unknown fault {kind!r}; choose one of {', '.join(self.counts)}")
        if for_s is not None and not for_s > 0.0:
            raise ValueError(f"for_s must be positive, not {for_s}")
        self.is_active = True
        if kind in DAMAGE:
            if len(self._pending) < MAX_PENDING:
                self._pending.append(kind)
        elif kind == "reboot":
            self.counts[kind] += not self._robot.is_hung
            self._robot.hang()
        else:
            between_s = UNREAD_S
            if kind != "unread":
                between_s = self.lasting_s[kind]
            if for_s is None:
                lasting_s = float(self._rng.uniform(*between_s))
            else:
                lasting_s = for_s
            if kind not in self._ends:
                self.counts[kind] += 1
                self.begin(kind)
            end = self._robot.n_cycles + max(round(lasting_s / self.tick_s), 1)
            self._ends[kind] = max(end, self._ends.get(kind, 0))

    def tick(self) -> None:
        """End expired faults and draw new ones, before a tick."""
        for kind, end in list(self._ends.items()):
            if self._robot.n_cycles >= end:
                del self._ends[kind]
                self.end(kind)
        if self._is_random:
            for kind, draw, share in zip(
                self.kinds, self._rng.random(len(self.kinds)).tolist(), self._share, strict=True
            ):
                if draw < share:
                    self.inject(kind)
        self.is_active = self._is_random or bool(self._ends or self._pending)

    def damage_input(self, data: bytes) -> tuple[bytes, int]:
        """Return a tick's bytes from the host as they arrive at the robot, and the error flags set."""
        if "stall" in self._ends or "unread" in self._ends:
            return b"", 0
        errors = 0
        waiting = self._pending
        self._pending = []
        for kind in waiting:
            place = int(self._rng.integers(len(data) + self.packet_size))
            if place < len(data):
                data = self._damage(kind, data, place)
                errors |= self.error_flags.get(kind, 0)
            else:
                self._pending.append(kind)
        return data, errors

    def damage_output(self, data: bytes) -> tuple[bytes, bool]:
        """Return a tick's bytes from the robot as they arrive at the host, and whether their parity is wrong."""
        if "stall" in self._ends:
            return b"", False
        bad_parity = False
        while self._pending and data:
            kind = self._pending.pop(0)
            bad_parity = bad_parity or kind != "loss"
            data = self._damage(kind, data, int(self._rng.integers(len(data))))
        return data, bad_parity

    def _damage(self, kind: str, data: bytes, place: int) -> bytes:
        self.counts[kind] += 1
        if kind == "loss":
            return data[:place] + data[place + 1 :]
        if kind == "flip":
            flipped = data[place] ^ 1 << int(self._rng.integers(8))
            return data[:place] + bytes([flipped]) + data[place + 1 :]
        n = min(int(self._rng.integers(*BURST)), len(data) - place)
        return data[:place] + self._rng.bytes(n) + data[place + n :]
