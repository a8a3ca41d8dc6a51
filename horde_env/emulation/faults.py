"""What goes wrong with an emulated robot: at random by a rate, or when it is told to; each fault is counted.

    loss, flip, burst            a byte of the line's traffic is lost, one of its bits flipped, up to 40 bytes changed
    stall                        nothing passes in either direction for a while
    unplug                       the device vanishes, and is back under the same name after a while
    reboot                       its program hangs, and begins again
    low_battery, heat, stuck_wheel   of the robot itself, for a while
    unread                       nothing that the host sends arrives for a while; never at random, so that the same seed
                                 gives the same other faults as before

The damage hits a byte of the cycle's traffic, whichever its direction. Damage on the way to the robot sets the error
flags that its serial port would set; where commands have no checksum the robot may take a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Protocol, Self

from numpy.random import Generator

BURST = (8, 41)  # bytes
UNREAD_S = (1.0, 10.0)
DAMAGE = ("loss", "flip", "burst")
MOST_WAITING = 100  # damage that finds no traffic, as at a console to which nobody types, must not heap up for weeks


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often each fault begins, per second of the robot's time.

    Raises:
        ValueError: If a rate is negative or above 100, one per cycle.
    """

    loss: float = 0.0
    flip: float = 0.0
    burst: float = 0.0
    stall: float = 0.0
    unplug: float = 0.0
    reboot: float = 0.0
    low_battery: float = 0.0
    heat: float = 0.0
    stuck_wheel: float = 0.0

    def __post_init__(self) -> None:
        for kind in self.kinds():
            if not 0.0 <= getattr(self, kind) <= 100.0:
                raise ValueError(f"the rate of {kind} must be in 0..100 per second, not {getattr(self, kind)}")

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return the names of all faults."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rates that a text like "loss=0.5,unplug=0.01" names, per second; "all=0.02" sets every one.

        >>> FaultRates.parse("all=0.1,unplug=0").stall
        0.1

        Raises:
            ValueError: If it names no such fault, or no number.
        """
        rates: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            kind, _, number = part.partition("=")
            if kind not in (*cls.kinds(), "all"):
                raise ValueError(f"unknown fault {kind!r}; choose among {', '.join(cls.kinds())} and all")
            try:
                rate = float(number)
            except ValueError:
                raise ValueError(f"{part!r} gives no rate: write {kind}=NUMBER, per second") from None
            rates |= dict.fromkeys(cls.kinds(), rate) if kind == "all" else {kind: rate}
        return cls(**rates)


KINDS = FaultRates.kinds()


class Faulty(Protocol):
    """What faults need of an emulated robot."""

    n_cycles: int

    @property
    def is_hung(self) -> bool:
        """Whether its program hangs, or begins again."""

    def hang(self) -> None:
        """Let its program hang until it begins again."""


class LineFaults:
    """The faults of one robot's line; what goes wrong with the robot itself is `begin` and `end` of each kind of robot.

    Args:
        robot: The robot.
        rates: How often each fault begins by itself.
        rng: Source of when, where and how long.

    Attributes:
        tick_s: Time of a tick, in seconds.
        packet_size: Bytes of a packet of the robot's.
        lasting_s: How long each lasting fault lasts, seconds: uniform between the two.
        error_flags: What each damage on the way in sets at the robot's serial port, where that tells.
        counts: How often each fault has happened, by its name; damage counts when it hits a byte.
    """

    tick_s: float
    packet_size: int
    lasting_s: dict[str, tuple[float, float]]
    error_flags: Mapping[str, int] = MappingProxyType({})

    def __init__(self, robot: Any, rates: FaultRates, rng: Generator) -> None:
        self.rates, self.kinds = rates, rates.kinds()
        self.counts = dict.fromkeys((*self.kinds, "unread"), 0)
        self._robot, self._rng = robot, rng
        self._share = [getattr(rates, kind) * self.tick_s for kind in self.kinds]
        self._is_random = any(self._share)
        self._due: list[str] = []  # damage that waits for traffic
        self._ends: dict[str, int] = {}  # cycle at which a lasting fault is over

    def begin(self, kind: str) -> None:
        """Let a lasting fault of the robot itself begin."""

    def end(self, kind: str) -> None:
        """Let it end."""

    @property
    def spoil_bytes(self) -> bool:
        """Whether bytes may be lost or changed at random."""
        return any(getattr(self.rates, kind) > 0.0 for kind in (*DAMAGE, "stall", "unplug", "reboot"))

    def is_on(self, kind: str) -> bool:
        """Tell whether a lasting fault is there now."""
        return kind in self._ends

    def inject(self, kind: str, for_s: float | None = None) -> None:
        """Let a fault begin with the next cycle; one that is there already lasts until the later end.

        Damage waits for a byte to hit; what exceeds a hundred that wait is forgotten, and not counted.

        Args:
            kind: One of `counts`.
            for_s: How long it lasts, seconds of the robot's time; drawn at random when None. No use for loss, flip,
                burst and reboot.

        Raises:
            ValueError: If there is no such fault, or `for_s` is not positive.
        """
        if kind not in self.counts:
            raise ValueError(f"unknown fault {kind!r}; choose among {', '.join(self.counts)}")
        if for_s is not None and not for_s > 0.0:
            raise ValueError(f"a fault must last longer than 0 s, not {for_s}")
        if kind in DAMAGE:
            if len(self._due) < MOST_WAITING:
                self._due.append(kind)
        elif kind == "reboot":
            self.counts[kind] += not self._robot.is_hung
            self._robot.hang()
        else:
            between_s = UNREAD_S if kind == "unread" else self.lasting_s[kind]
            lasting_s = float(self._rng.uniform(*between_s)) if for_s is None else for_s
            if kind not in self._ends:
                self.counts[kind] += 1
                self.begin(kind)
            end = self._robot.n_cycles + max(round(lasting_s / self.tick_s), 1)
            self._ends[kind] = max(end, self._ends.get(kind, 0))

    def tick(self) -> None:
        """End what is over and draw what begins, before a cycle."""
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

    def on_the_way_in(self, data: bytes) -> tuple[bytes, int]:
        """Return what arrives at the robot of a cycle's bytes from the host, and the error flags it sets."""
        if self.is_on("stall") or self.is_on("unread"):
            return b"", 0
        errors, waiting, self._due = 0, self._due, []
        for kind in waiting:
            place = int(self._rng.integers(len(data) + self.packet_size))
            if place < len(data):
                data = self._damage(kind, data, place)
                errors |= self.error_flags.get(kind, 0)
            else:
                self._due.append(kind)
        return data, errors

    def on_the_way_out(self, data: bytes) -> tuple[bytes, bool]:
        """Return what arrives at the host of a cycle's bytes from the robot, and whether its parity is wrong."""
        if self.is_on("stall"):
            return b"", False
        bad_parity = False
        while self._due and data:
            kind = self._due.pop(0)
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
