"""Is this machine fit to keep a robot's 10 Hz? What a check of it finds, and what that means for a life.

It reads what the system tells in files, and opens no port. What is not told here is passed over with a word.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from horde_env.commands.anatomy import Line, Verdict

OK, WARN, FAIL, SKIP = Verdict.OK, Verdict.WARN, Verdict.FAIL, Verdict.SKIP
GOOD_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock")
DAY_BYTES = 280_000_000  # of record and excursions at 10 Hz
SLEEPS = 50
LATE_S, TOO_LATE_S = 0.002, 0.02


def lines(root: Path = Path("/"), folder: Path = Path()) -> Iterator[Line]:
    """Yield what is found.

    Args:
        root: Where `sys` and `proc` are.
        folder: Where lives are to be recorded.
    """
    yield _clock(root)
    yield _governor(root)
    yield from _latency_timers(root)
    yield _disk(folder)
    yield _swap(root)
    yield _load(root)
    yield _sleep()


def _told(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _clock(root: Path) -> Line:
    """Return whether reading the time is cheap."""
    source = _told(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source:
        return Line(SKIP, "clock", "this system does not tell its clock source")
    if source in GOOD_CLOCKS:
        return Line(OK, "clock", f"clock source {source}")
    return Line(
        WARN,
        "clock",
        f"clock source {source}: each look at the time costs a call of the system; {GOOD_CLOCKS[0]} is better",
    )


def _governor(root: Path) -> Line:
    """Return whether the processor slows down between steps."""
    paths = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    kinds = sorted({_told(path) for path in paths})
    if not kinds:
        return Line(
            SKIP, "governor", "this system does not tell how it clocks its processor (a virtual machine does not)"
        )
    if kinds == ["performance"]:
        return Line(OK, "governor", "performance")
    return Line(
        WARN,
        "governor",
        f"{', '.join(kinds)}: a processor that rests for 90 ms of each 100 wakes up slow; choose performance",
    )


def _latency_timers(root: Path) -> Iterator[Line]:
    """Yield how long each USB serial adapter holds bytes back."""
    for path in sorted((root / "sys/bus/usb-serial/devices").glob("*/latency_timer")):
        value = _told(path)
        if value.isdigit():
            is_short = int(value) <= 2
            more = "" if is_short else f": every packet comes up to {value} ms late; write 1 into {path}"
            yield Line(OK if is_short else WARN, "adapter", f"{path.parent.name} holds bytes back for {value} ms{more}")


def _disk(folder: Path) -> Line:
    """Return for how long the disk lasts."""
    free = shutil.disk_usage(folder).free
    days = free / DAY_BYTES
    said = f"{free / 1e9:.1f} GB free in {folder.resolve()}: {days:,.0f} days of a life at 10 Hz"
    return Line(OK if days >= 30 else WARN if days >= 1 else FAIL, "disk", said)


def _swap(root: Path) -> Line:
    """Return whether memory was given up."""
    told = dict(line.split(":", 1) for line in _told(root / "proc/meminfo").splitlines() if ":" in line)
    if "SwapTotal" not in told or "SwapFree" not in told:
        return Line(SKIP, "swap", "this system does not tell")
    total, free = (int(told[name].split()[0]) / 1024 for name in ("SwapTotal", "SwapFree"))
    if total - free < 1.0:
        return Line(OK, "swap", "none is in use")
    return Line(WARN, "swap", f"{total - free:,.0f} MB are in use: a step that finds its weights there takes seconds")


def _load(root: Path) -> Line:
    """Return whether others want the processor."""
    words, n = _told(root / "proc/loadavg").split(), os.cpu_count() or 1
    if not words:
        return Line(SKIP, "load", "this system does not tell")
    is_idle = float(words[0]) <= 0.5 * n
    more = "" if is_idle else ": a life needs one core for its body and one for learning"
    return Line(OK if is_idle else WARN, "load", f"{words[0]} on {n} cores in the last minute{more}")


def _sleep() -> Line:
    """Return how late this system wakes who sleeps."""
    late = []
    for _ in range(SLEEPS):
        began = time.monotonic()
        time.sleep(0.005)
        late.append(time.monotonic() - began - 0.005)
    worst = max(late)
    said = f"of {SLEEPS} sleeps of 5 ms the latest ended {1e3 * worst:.1f} ms late; a deadline is missed at 50 ms"
    return Line(OK if worst < LATE_S else WARN if worst < TOO_LATE_S else FAIL, "sleep", said)
