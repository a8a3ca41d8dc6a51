"""Text on a terminal: verdicts, and all channels of a robot, redrawn in place.

A picture has a group to a row, each channel with its value, its unit and a bar within its range; it
fits 80 x 24.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.hardware.checks import Line
from horde_env.robot import RobotSpec

SUBJECT = 24  # characters
COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "FAIL": "\x1b[31m", "skip": "\x1b[2m"}

PER_ROW = 4
# Characters
TITLE = 20
LABEL = 3
VALUE = 7
LONGEST_BAR = 12
RED = "\x1b[31m"
PLAIN = "\x1b[0m"
SHORT = {
    "bus_voltage": "bus",
    "battery_voltage": "battery",
    "rotational_velocity": "rotation",
    "motor_temperature": "motor heat",
}
RATE_WINDOW = 20  # steps


def print_line(line: Line) -> None:
    """Print one verdict, its text wrapped in a column of its own."""
    margin = 8 + SUBJECT
    wrapped = textwrap.wrap(line.text, max(width() - margin, 30)) or [""]
    colour = ""
    plain = ""
    if has_colour():
        colour = COLOURS[line.verdict]
        plain = PLAIN
    print(
        f"  {colour}{line.verdict:<4}{plain}  {line.subject.replace('_', ' '):<{SUBJECT}}{wrapped[0]}"
    )
    for rest in wrapped[1:]:
        print(f"{'':{margin}}{rest}")
    sys.stdout.flush()


@contextmanager
def screen(live: bool) -> Iterator[None]:
    """Hide the cursor while a picture is drawn in place."""
    if not live:
        yield
        return
    sys.stdout.write("\x1b[?25l\x1b[2J")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h")
        sys.stdout.flush()


def show(picture: str, live: bool) -> None:
    """Print a picture: over the last one if `live`, else below it."""
    if live:  # each row erases the rest of its line, the last one all rows below
        rows = "".join(f"{row}\x1b[K\n" for row in picture.splitlines())
        sys.stdout.write(f"\x1b[H{rows}\x1b[J")
    else:
        sys.stdout.write(picture + "\n\n")
    sys.stdout.flush()


def width() -> int:
    """Return the number of characters in a row."""
    return shutil.get_terminal_size((80, 24)).columns


def has_colour() -> bool:
    """Return whether to use ANSI colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def complain(sentence: str, code: int) -> int:
    """Print an error on stderr, and return the exit code."""
    print(f"horde-robot: {' '.join(sentence.split())}", file=sys.stderr)
    return code


class Style(NamedTuple):
    """How to draw: characters in a row, at least 80, and whether to use ANSI colours."""

    width: int = 80
    colour: bool = False


class Tally:
    """Counts steps and faults since the start, and the rate of packets over the last two seconds."""

    def __init__(self, period_s: float) -> None:
        self.n_steps = 0
        self.faults = dict.fromkeys(("crc_errors", "gap", "stale", "clipped", "not applied"), 0)
        self._period_s = period_s
        self._last_t: float | None = None
        self._packets: deque[int] = deque(maxlen=RATE_WINDOW)
        self._seconds: deque[float] = deque(maxlen=RATE_WINDOW)

    def take(self, info: Mapping[str, Any]) -> None:
        """Count one step's info."""
        self.n_steps += 1
        for key in ("crc_errors", "gap", "stale", "clipped"):
            self.faults[key] += int(info[key])
        self.faults["not applied"] += not info["applied"]
        if "packets" in info:
            if self._last_t is None:
                before_t = info["t"] - self._period_s
            else:
                before_t = self._last_t
            self._packets.append(int(info["packets"]))
            self._seconds.append(info["t"] - before_t)
        self._last_t = info["t"]

    @property
    def packets_per_s(self) -> float | None:
        """Packets per second of the robot's time; None for a body without packets."""
        if not self._packets:
            return None
        seconds = sum(self._seconds)  # a busy machine's steps may last longer than a period
        if seconds > 0.0:
            return sum(self._packets) / seconds
        return 0.0


def block(
    title: str, values: Floats, info: Mapping[str, Any], tally: Tally, spec: RobotSpec, style: Style
) -> str:
    """Return one picture of the robot: two rows about the connection, then all channels; no newline at the end.

    `title` has the robot's name and backend, `values` all channels in SI units, shape
    (n_channels,).
    """
    rate = tally.packets_per_s
    packets = "no packets"
    if rate is not None:
        packets = f"{rate:.0f} packets/s"
    age = f"age {1000.0 * info['sensor_age_s']:.0f} ms"
    suffix = f" · t {info['t']:.1f} s · {packets} · {age}"
    room = style.width - len(suffix)
    if len(title) > room:  # keep the start of the name and the end of the port
        title = f"{title[: room // 3]}...{title[-(room - room // 3 - 3) :]}"
    faults = " · ".join(_coloured(f"{name} {n}", n > 0, style) for name, n in tally.faults.items())
    rows = [title + suffix, f"faults: {faults}"]
    for group in spec.groups:
        rows += _rows(group, values, spec, style)
    return "\n".join(rows)


def _rows(group: str, values: Floats, spec: RobotSpec, style: Style) -> list[str]:
    """Return the rows of one group, four channels to a row."""
    where = spec.group(group)
    channels = spec.channels[where]
    unit = ""
    if channels[0].unit != "1":
        unit = f" {channels[0].unit}"
    title = f"{SHORT.get(group, group)}{unit}"
    n_cells = min((style.width - TITLE) // PER_ROW - LABEL - VALUE - 2, LONGEST_BAR)
    cells = []
    for i, channel in zip(range(where.start, where.stop), channels, strict=True):
        label = channel.name.removeprefix(group).lstrip("_")
        value = float(values[i])
        share = (value - channel.low) / (channel.high - channel.low)
        outside = not 0.0 <= share <= 1.0
        text = f"{label:>{LABEL}.{LABEL}} {_number(value):>{VALUE - 1}}"
        cells.append(
            f"{_coloured(text, outside, style)} {_coloured(_bar(share, n_cells), outside, style)} "
        )
    chunks = [cells[k : k + PER_ROW] for k in range(0, len(cells), PER_ROW)]
    titles = [title, *[""] * (len(chunks) - 1)]
    return [
        f"{row_title:<{TITLE}}{''.join(chunk)}".rstrip()
        for row_title, chunk in zip(titles, chunks, strict=True)
    ]


def _bar(share: float, n_cells: int) -> str:
    """Return a bar of `n_cells` characters, filled up to `share` (clipped to 0..1; all "?" if not finite)."""
    if not np.isfinite(share):
        return "?" * n_cells
    return ("#" * round(n_cells * min(max(share, 0.0), 1.0))).ljust(n_cells, ".")


def _number(value: float) -> str:
    """Return a number in six characters, in seven if it is 1e100 or more."""
    if abs(value) >= 10_000.0:
        return f"{value:.0e}"
    if abs(value) >= 100.0:
        return f"{value:.1f}"
    if abs(value) < 10.0:
        return f"{value:.3f}"
    return f"{value:.2f}"


def _coloured(text: str, is_alarm: bool, style: Style) -> str:
    if is_alarm and style.colour:
        return f"{RED}{text}{PLAIN}"
    return text
