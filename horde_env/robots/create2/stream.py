"""Frames out of a stream of bytes, and what lies between two of them: counts over six ticks, the mode put right.

Text is passed over as any other byte is: the banner of a reset, the battery line of a robot in Off, charging reports in
the middle of the stream.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from horde_env.backend import Floats
from horde_env.hardware.stream import PacketFinder
from horde_env.robots.create2.wire import (
    COUNT_MOST,
    FRAME_SIZE,
    HEADER,
    Sensors,
    channels,
    decode,
    difference,
    is_sound,
)

N_TICKS = 6  # over which wheel speeds are taken: a step of 0.1 s has 6 or 7
BANNERS = (b"Roomba by iRobot!", b"bl-start", b"Soft reset!")


class CreateState(NamedTuple):
    """What one frame says.

    Attributes:
        raw: The channels in the order of RobotSpec, shape (55,); read-only.
        sensors: The frame itself.
        mode: 0 off, 1 passive, 2 safe, 3 full: packet 35, less 1 at a robot that reports it one too high.
        breaks: How often so far the frames did not follow from one another, or the robot told that it was reset.
    """

    raw: Floats
    sensors: Sensors
    mode: int
    breaks: int


class FrameParser(PacketFinder):
    """Turns the robot's stream into states.

    Wheel speeds are differences of encoders over ticks, never over time: six frames back, or as many as there are since
    the last break, scaled to six. Frames lost to damage count as ticks, by their bytes.

    Args:
        swapped_encoders: True for a robot that sends the right one first, as some Roomba 500 do.

    Attributes:
        mode_offset: 1 at a robot that reports each mode one too high, else 0; whoever opens the connection finds out.
        newest: The last state; None before the first.
        text: The last bytes that belonged to no frame, for banners.
    """

    header, size = HEADER, FRAME_SIZE

    def __init__(self, *, swapped_encoders: bool = False) -> None:
        super().__init__()
        self._is_swapped = swapped_encoders
        self.mode_offset = 0
        self.newest: CreateState | None = None
        self.breaks = 0
        self._tick = 0
        self._history: deque[tuple[int, int, int]] = deque(maxlen=N_TICKS + 1)  # tick, left, right
        self._told = 0
        self._text = b""

    def is_sound(self, packet: bytes) -> bool:
        """Tell whether a candidate of the right size and header is a frame."""
        return is_sound(packet)

    def feed(self, data: bytes) -> list[CreateState]:
        """Take the next bytes and return the states that are now complete, in their order."""
        self._listen(data)
        states = []
        while data:
            n = self.n_wanted  # so that each call completes one frame at most, and what it skipped lay before that
            for frame in self.find(data[:n]):
                n_lost = round((self.skipped_bytes - self._told) / self.size)
                self._told = self.skipped_bytes
                states.append(self.follow(decode(frame[len(HEADER) : -1]), n_lost))
            data = data[n:]
        return states

    def forget(self) -> None:
        """Begin anew: the next frame does not follow from the last one."""
        self._history.clear()
        self.breaks += 1

    def _listen(self, data: bytes) -> None:
        """Notice a robot that says that it was reset."""
        heard = self._text + data
        if any(heard.count(banner) > self._text.count(banner) for banner in BANNERS):
            self.forget()
        self._text = heard[-(max(map(len, BANNERS)) - 1) :]

    def follow(self, sensors: Sensors, n_lost: int = 0) -> CreateState:
        """Return the state of the next frame, before which `n_lost` were lost."""
        self._tick += 1 + n_lost
        left, right = sensors.encoder_left, sensors.encoder_right
        if self._is_swapped:
            left, right = right, left
        if self._history and any(
            abs(difference(new, old)) > COUNT_MOST * (self._tick - self._history[-1][0])
            for new, old in ((left, self._history[-1][1]), (right, self._history[-1][2]))
        ):
            self.forget()
        self._history.append((self._tick, left, right))
        while self._tick - self._history[0][0] > N_TICKS:
            self._history.popleft()
        tick, *before = self._history[0]
        scale = N_TICKS / max(self._tick - tick, 1)
        counts = [round(scale * difference(new, old)) for new, old in zip((left, right), before, strict=True)]
        mode = sensors.mode - self.mode_offset
        raw = channels(sensors, counts[0], counts[1], mode)
        raw.flags.writeable = False  # a state is shared between threads
        self.newest = CreateState(raw, sensors, mode, self.breaks)
        return self.newest
