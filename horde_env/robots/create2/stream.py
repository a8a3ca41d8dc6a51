"""Frames in a stream of bytes, wheel speeds as counts over six ticks, and the mode without its offset.

Text in the stream is skipped as other bytes are: the banner of a reset, the battery line of a robot
in Off, charging reports.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from horde_env.backend import Floats
from horde_env.hardware.stream import StreamParser
from horde_env.robots.create2 import wire

N_TICKS = 6  # of wheel speeds: a step of 0.1 s has 6 or 7
BANNERS = (b"Roomba by iRobot!", b"bl-start", b"Soft reset!")


class CreateState(NamedTuple):
    """The content of one frame, and its channels in the order of RobotSpec, shape (55,); read-only."""

    raw: Floats
    sensors: wire.Sensors
    mode: int  # 0 off, 1 passive, 2 safe, 3 full: packet 35 minus the robot's offset
    breaks: int  # interruptions of the sequence and resets so far

    @property
    def charge_state(self) -> int:
        """Packet 21."""
        return self.sensors.charging_state


class FrameParser(StreamParser):
    """Parses the robot's stream into states.

    Wheel speeds are differences of the encoders over six ticks, not over time; with fewer frames
    since the last interruption they are scaled to six. Damaged frames count as ticks, by their
    bytes. With `swapped_encoders` the robot sends the right one first, as some Roomba 500 do.
    """

    header = wire.HEADER
    size = wire.FRAME_SIZE

    def __init__(self, *, swapped_encoders: bool = False) -> None:
        super().__init__()
        self._is_swapped = swapped_encoders
        # 1 if the robot reports each mode one too high; set when the connection is opened
        self.mode_offset = 0
        self.breaks = 0
        self._tick = 0
        self._history: deque[tuple[int, int, int]] = deque(maxlen=N_TICKS + 1)  # tick, left, right
        self._told = 0
        self._text = b""

    def is_sound(self, packet: bytes) -> bool:
        """Return whether a candidate of the right size and header is a valid frame."""
        return wire.is_sound(packet)

    def feed(self, data: bytes) -> list[CreateState]:
        """Add bytes and return the states that are now complete, in order."""
        states = []
        skipped_at = []
        while data:
            # Each piece completes at most one frame, and the bytes that it skips precede it
            piece = data[: self.n_wanted]
            data = data[len(piece) :]
            self._find_banner(piece)
            for frame in self.find(piece):
                n_lost = round((self.skipped_bytes - self._told) / self.size)
                self._told = self.skipped_bytes
                skipped_at.append(self.skipped_bytes)
                states.append(self.follow(wire.decode(frame[len(wire.HEADER) : -1]), n_lost))
        self.skipped_at = skipped_at
        return states

    def forget(self) -> None:
        """Start a new sequence."""
        self._history.clear()
        self.breaks += 1

    def _find_banner(self, data: bytes) -> None:
        """Detect a reset by its banner."""
        heard = self._text + data
        if any(heard.count(banner) > self._text.count(banner) for banner in BANNERS):
            self.forget()
        self._text = heard[-(max(map(len, BANNERS)) - 1) :]

    def follow(self, sensors: wire.Sensors, n_lost: int = 0) -> CreateState:
        """Return the state of the next frame, before which `n_lost` were lost."""
        self._tick += 1 + n_lost
        left_counts = sensors.encoder_left
        right = sensors.encoder_right
        if self._is_swapped:
            left_counts, right = right, left_counts
        if self._history and any(
            abs(wire.difference(new, old)) > wire.COUNT_MOST * (self._tick - self._history[-1][0])
            for new, old in ((left_counts, self._history[-1][1]), (right, self._history[-1][2]))
        ):
            self.forget()
        self._history.append((self._tick, left_counts, right))
        while self._tick - self._history[0][0] > N_TICKS:
            self._history.popleft()
        tick, *before = self._history[0]
        scale = N_TICKS / max(self._tick - tick, 1)
        counts = [
            round(scale * wire.difference(new, old))
            for new, old in zip((left_counts, right), before, strict=True)
        ]
        mode = sensors.mode - self.mode_offset
        raw = wire.channels(sensors, counts[0], counts[1], mode)
        raw.flags.writeable = False  # a state is shared between threads
        return CreateState(raw, sensors, mode, self.breaks)
