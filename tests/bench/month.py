"""Live a month of the simulated Critterbot with all that happens to a computer in one: `python -m tests.bench.month`.

    python -m tests.bench.month whole OUT --days 30      # a life that nothing happens to
    python -m tests.bench.month all OUT --days 30        # the same life without --keep
    python -m tests.bench.month killed OUT --days 30     # the same life with kills, upgrades, ...
    python -m tests.bench.month report OUT               # compare them; table and figure

All have 96 questions, the defaults and, but for one, `--keep 3d`, and live day by day: each is a
stage of 864,000 steps, after which the life is stopped in order and resumed. In one day a sensor has
no readings, in all lives. What happens to the killed one, in proportion for fewer days than thirty:

    300 kills by SIGKILL, at random steps, and in the first seconds of a process
    three upgrades to later formats of all files, which are made up here: after `horde upgrade`, with
    older files left, and after it again
    12 jumps of the wall clock, by up to a day, and a computer that was suspended
    files that cannot grow for some seconds, as on a full disk

Each day adds a line to LIFE.csv in OUT; with `--minutes`, the last day is the one that begins before
they are over. Pictures of reports are left out: they take no part.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.record import kinds
from horde_agent.record.kinds import Content, Reader
from horde_agent.runs.reporting import report as report_page
from horde_agent.runs.sources import robot as robot_source
from horde_agent.runs.storage.events import ClockEvents, Clocks

DAY = 864_000
MONTH = 30
KILLS = 300
CLOCK_STEPS = 12
UPGRADES = 3
LOST_SENSOR = "light_0"
QUESTIONS = """
[[family]]
policies = ["forward", "rotate_clockwise", "stop", "behaviour"]
gammas = [0.0, 0.8, 0.95]
groups = ["light"]
channels = ["ir_distance_0", "thermal_0", "motor_current_100", "battery_voltage_40"]
"""
OPTIONS = "--physics planar --horizon 59 --snapshot-every 2s --seed 0"
KEPT = "--keep 3d"
QUIET = ("whole", "all")
"""Lives that nothing happens to; the second keeps everything."""
TABLES = ("learning_curve.csv", "questions.csv", "mspbe_curve.csv", "traces.csv")
FULL_S = 3.0
"""How long the disk is full: rows of some seconds fit in memory."""
STOPPED_S = 1.0
COLUMNS = (
    "day", "kills", "clock_steps", "events", "wall_s", "cpu_us_per_row", "rss_mb", "rows_mb", "excursions_mb",
    "snapshots_mb", "disk_mb", "weights_sha256", "tables_sha256", "median_nmsre", "share_better_than_persistence",
)  # fmt: skip
FORKS = multiprocessing.get_context("forkserver")


class Plan(NamedTuple):
    """What happens in the days of a month, numbered from 0."""

    day_steps: int
    kills: int  # in each day
    lost_sensor: int
    upgrades: tuple[int, ...]  # before these days
    clock_steps: tuple[int, ...]  # one in each
    suspended: int
    full_disk: int

    @classmethod
    def of(cls, days: int, day_steps: int) -> Plan:
        """Return the plan of a month of so many days."""
        return cls(
            day_steps=day_steps,
            kills=round(KILLS / MONTH),
            lost_sensor=days // 3,
            upgrades=tuple(max((k + 1) * days // (UPGRADES + 1), 1) for k in range(UPGRADES)),
            clock_steps=tuple(k * days // CLOCK_STEPS for k in range(CLOCK_STEPS)),
            suspended=days // 2,
            full_disk=2 * days // 3,
        )

    def version(self, day: int) -> int:
        """Return the number of the formats that the program of a day writes."""
        return 1 + sum(upgrade <= day for upgrade in self.upgrades)


class Stage(NamedTuple):
    """What a process of a life is told."""

    version: int  # of the formats that it writes
    is_sensor_lost: bool
    clocks: (
        Path  # file with what the wall clock and the clock of the computer are ahead by, in seconds
    )


# ---- the process of a life -------------------------------------------------------------------------------------------


def set_formats(version: int) -> None:
    """Let this program write formats of a number; it reads the earlier ones, whose content is the same."""
    for kind in kinds.KINDS:
        kind.readers += [Reader(_unchanged)] * (version - kind.version)


def _unchanged(content: Content) -> Content:
    return content


def set_clocks(file: Path) -> None:
    """Let the clocks of a life be ahead by what a file says, which is read again all the time."""
    ahead_s = {"unix": 0.0, "boot": 0.0}

    def follow() -> None:
        while True:
            if file.is_file():
                ahead_s.update(json.loads(file.read_text()))
            time.sleep(0.05)

    threading.Thread(target=follow, daemon=True).start()

    def unix() -> float:
        return time.time() + ahead_s["unix"]

    def boot() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + ahead_s["boot"]

    clocks = Clocks(unix=unix, boot=boot)
    new_life = robot_source.new_life
    robot_source.new_life = partial(new_life, unix_clock=unix)  # type: ignore[assignment]
    robot_source.ClockEvents = partial(ClockEvents, clocks=clocks)  # type: ignore[assignment,misc]


def lose_sensor() -> None:
    """Let the robot's light sensor have no readings."""
    make_env = learn.make_env

    def without(config: Any) -> Any:
        env = make_env(config)
        names = [channel["name"] for channel in env.unwrapped.metadata["channels"]]
        place = names.index(LOST_SENSOR)
        step = env.unwrapped.step

        def step_without(action: Any) -> Any:
            observation, *others = step(action)
            observation = observation.copy()
            observation[place] = np.nan
            return (observation, *others)

        env.unwrapped.step = step_without  # type: ignore[method-assign]
        return env

    learn.make_env = without


def live(words: list[str], stage: Stage, messages: Path) -> None:
    """Run a command in this process, with its messages in a file, and exit with its code."""
    report_page.draw_pictures = lambda *_: []
    with open(os.devnull, "wb") as nothing, messages.open("ab") as file:
        os.dup2(nothing.fileno(), 1)
        os.dup2(file.fileno(), 2)
    set_formats(stage.version)
    set_clocks(stage.clocks)
    if stage.is_sensor_lost:
        lose_sensor()
    sys.exit(cli.main(words))


# ---- what happens to it ----------------------------------------------------------------------------------------------


class Happening(NamedTuple):
    """What is done to the process when its record has reached a step."""

    step: int
    act: Callable[[int], None]  # with the number of the process
    name: str


class Reached(NamedTuple):
    """The last whole row of a record: its step and number. While the robot charges, rows are rare."""

    step: int = 0
    row: int = 0


def reached(run: Path) -> Reached:
    """Return how far a record is."""
    files = {}
    for file in run.glob("log/life*.rec"):
        files[int(file.stem.removeprefix("life").removeprefix("-") or 1)] = file
    for number in sorted(files, reverse=True):
        with files[number].open("rb") as file:
            line = file.readline()
            if not line.endswith(b"\n"):
                continue
            header = json.loads(line)
            fields = [(name, kind, *map(tuple, shape)) for name, kind, *shape in header["dtype"]]
            dtype = np.dtype(fields)
            offset = int(header["offset"])
            n_rows = (file.seek(0, 2) - offset) // dtype.itemsize
            if n_rows:
                file.seek(offset + (n_rows - 1) * dtype.itemsize)
                (row,) = np.fromfile(file, dtype, 1)
                return Reached(int(row["step"]), int(header.get("first", 0)) + n_rows)
    return Reached()


def jump(clocks: Path, by_s: float, *, is_suspended: bool = False) -> Callable[[int], None]:
    """Return what sets the wall clock; in a suspension the process stands still, and both clocks go on."""

    def act(pid: int) -> None:
        ahead_s = {"unix": 0.0, "boot": 0.0}
        if clocks.is_file():
            ahead_s = json.loads(clocks.read_text())
        ahead_s["unix"] += by_s
        if is_suspended:
            ahead_s["boot"] += by_s
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
        part = clocks.with_suffix(".part")
        part.write_text(json.dumps(ahead_s))
        part.replace(clocks)
        if is_suspended:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)

    return act


def fill_disk(pid: int) -> None:
    """Let no file of the process grow beyond 100 kB for some seconds."""
    limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (100_000, limit[1]))
    time.sleep(FULL_S)
    with suppress(ProcessLookupError):  # its last rows may have come meanwhile
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


def happenings(plan: Plan, day: int, rng: np.random.Generator, clocks: Path) -> list[Happening]:
    """Return what happens in a day, in order."""

    def at_random() -> int:
        n_steps = plan.day_steps
        return day * n_steps + int(rng.integers(n_steps // 50, n_steps - n_steps // 50))

    planned = [Happening(at_random(), _kill, "kill") for _ in range(plan.kills)]
    for _ in range(plan.clock_steps.count(day)):
        step = jump(clocks, rng.uniform(-86_400, 86_400))
        planned.append(Happening(at_random(), step, "clock"))
    if day == plan.suspended:
        planned.append(
            Happening(at_random(), jump(clocks, 28_800.0, is_suspended=True), "suspended")
        )
    if day == plan.full_disk:
        planned.append(Happening(at_random(), fill_disk, "full disk"))
    return sorted(planned, key=lambda one: one.step)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds; NaN without it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Return the memory of a process in MB; 0 without it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmRSS")]
    return int(lines[0][1]) / 1e3 if lines else 0.0


def mb_of(files: list[Path]) -> float:
    """Return the size of files in MB; one that was removed meanwhile counts as nothing."""
    n_bytes = 0
    for file in files:
        if file.exists():
            n_bytes += file.stat().st_size
    return n_bytes / 1e6


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return the files in a folder whose name, or that of their folder there, matches."""
    files = []
    for path in folder.glob(pattern):
        if path.is_file():
            files.append(path)
        else:
            files += [file for file in path.rglob("*") if file.is_file()]
    return files


class Middle:
    """Processor time of a row, and most memory, in the middle half of a day, before its tables are written.

    The first is that of one process: it means something in a life without kills.
    """

    def __init__(self, day: int, day_steps: int) -> None:
        self._first_step = day * day_steps + day_steps // 4
        self._last_step = day * day_steps + 3 * day_steps // 4
        self._samples: list[tuple[int, float]] = []
        self.most_mb = 0.0

    def add(self, at: Reached, pid: int) -> None:
        used_s = cpu_s(pid)
        if self._first_step <= at.step <= self._last_step and not np.isnan(used_s):
            self._samples.append((at.row, used_s))
            self.most_mb = max(self.most_mb, rss_mb(pid))

    @property
    def us_per_row(self) -> float:
        if len(self._samples) < 2:
            return float("nan")
        first_row, first_s = self._samples[0]
        last_row, last_s = self._samples[-1]
        return 1e6 * (last_s - first_s) / max(last_row - first_row, 1)


def live_a_day(run: Path, day: int, plan: Plan, rng: np.random.Generator) -> dict[str, Any]:
    """Live a day of a life, and return its line of the table."""
    is_quiet = run.name in QUIET
    clocks = run.with_name(f"{run.name}.clocks")
    messages = run.with_name(f"{run.name}.messages")
    version = 1
    planned: list[Happening] = []
    if not is_quiet:
        version = plan.version(day)
        planned = happenings(plan, day, rng, clocks)
    stage = Stage(version, day == plan.lost_sensor, clocks)
    counts = {"kill": 0, "clock": 0}
    names = []
    if day in plan.upgrades and not is_quiet:
        names.append(f"formats {version}")
        if plan.upgrades.index(day) % 2 == 0:  # else older files are left
            names.append("upgrade")
            run_to_end(["upgrade", str(run)], stage, messages)
    middle = Middle(day, plan.day_steps)
    began = time.monotonic()
    while True:
        if day == 0 and not (run / "config.toml").exists():
            words = ["learn", *OPTIONS.split(), "--questions", str(run.with_name("month.toml"))]
            words += ["--steps", str(plan.day_steps), "--out", str(run)]
            if run.name != "all":
                words += KEPT.split()
        else:
            words = ["resume", str(run), "--steps", str((day + 1) * plan.day_steps)]
        process = FORKS.Process(target=live, args=(words, stage, messages))
        process.start()
        assert process.pid is not None
        began_process = time.monotonic()
        # One of five kills comes in the first seconds of a process
        early_s = float("inf")
        if planned and planned[0].name == "kill" and rng.random() < 0.2:
            early_s = rng.uniform(0.0, 4.0)
        while process.is_alive():
            process.join(0.05)
            at = reached(run)
            middle.add(at, process.pid)
            is_early = time.monotonic() - began_process > early_s and at.step > 0
            if (
                not planned
                or not (at.step >= planned[0].step or is_early)
                or not process.is_alive()
            ):
                continue
            happening = planned.pop(0)
            early_s = float("inf")
            happening.act(process.pid)
            counts[happening.name] = counts.get(happening.name, 0) + 1
            if happening.name not in ("kill", "clock"):
                names.append(happening.name)
        process.join()
        is_over = process.exitcode == 2 and "larger --steps" in messages.read_text()[-2000:]
        if process.exitcode == 0 or is_over:
            break
        if process.exitcode not in (1, -signal.SIGKILL):
            raise SystemExit(f"{' '.join(words)} ended with {process.exitcode}: see {messages}")
    if day == plan.lost_sensor:
        names.append(f"no {LOST_SENSOR}")
    summary = json.loads((run / "summary.json").read_text())
    log = run / "log"
    return {
        "day": day + 1,
        "kills": counts["kill"],
        "clock_steps": counts["clock"],
        "events": ", ".join(names),
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_us_per_row": round(middle.us_per_row, 2),
        "rss_mb": round(middle.most_mb, 1),
        "rows_mb": round(mb_of(list(log.glob("life*.rec"))), 1),
        "excursions_mb": round(mb_of(files_in(log, "excursions*")), 1),
        "snapshots_mb": round(mb_of(list(run.glob("checkpoint/*/*"))), 1),
        "disk_mb": round(mb_of(files_in(run, "*")), 1),
        "weights_sha256": summary["weights_sha256"],
        "tables_sha256": hashlib.sha256(
            b"".join((run / table).read_bytes() for table in TABLES)
        ).hexdigest(),
        "median_nmsre": round(summary["median_nmsre"], 4),
        "share_better_than_persistence": round(summary["share_better_than_persistence"], 3),
    }


def run_to_end(words: list[str], stage: Stage, messages: Path) -> None:
    """Run a command; raise SystemExit if it fails."""
    process = FORKS.Process(target=live, args=(words, stage, messages))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{' '.join(words)} ended with {process.exitcode}: see {messages}")


def live_days(run: Path, plan: Plan, days: int, *, minutes: float, seed: int) -> None:
    """Live a month, or the days that begin before the minutes are over."""
    FORKS.set_forkserver_preload(
        ["horde_agent.cli.learn", "horde_env.robots.critterbot.simulator.backend"]
    )
    run.parent.mkdir(parents=True, exist_ok=True)
    (run.with_name("month.toml")).write_text(QUESTIONS)
    rng = np.random.default_rng(seed)
    end = time.monotonic() + 60.0 * minutes
    with run.with_name(f"{run.name}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for day in range(days):
            if time.monotonic() > end:
                break
            line = live_a_day(run, day, plan, rng)
            table.writerow(line)
            file.flush()
            print(*line.values(), flush=True)


# ---- the report ------------------------------------------------------------------------------------------------------


def lines_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def report(out: Path) -> None:
    """Print what the two lives have in common after each day, and write the table and the figure."""
    whole = lines_of(out / "whole.csv")
    if (out / "all.csv").is_file():
        _compare_with_all(whole, lines_of(out / "all.csv"))
    if not (out / "killed.csv").is_file():
        return
    killed = lines_of(out / "killed.csv")
    n_days = min(len(whole), len(killed))
    kills = sum(int(line["kills"]) for line in killed)
    print(f"{n_days} days with {kills} kills")
    for name in ("weights_sha256", "tables_sha256"):
        n_equal = sum(a[name] == b[name] for a, b in zip(whole, killed, strict=False))
        print(f"{name} is the same in both after {n_equal} of them")
    with (out / "month.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for line, other in zip(killed, whole, strict=False):
            table.writerow({**line, "cpu_us_per_row": other["cpu_us_per_row"]})
    _draw(killed[:n_days], whole[:n_days], out / "month.png")


def _compare_with_all(whole: list[dict[str, str]], everything: list[dict[str, str]]) -> None:
    """Print after which days a life that keeps three is the same as one that keeps all, and the disk of both."""
    print("day, weights are equal, tables and curves are equal, disk of --keep 3d in MB, of all")
    for ours, theirs in zip(whole, everything, strict=False):
        are_equal = [ours[name] == theirs[name] for name in ("weights_sha256", "tables_sha256")]
        print(ours["day"], *are_equal, ours["disk_mb"], theirs["disk_mb"])


def _draw(killed: list[dict[str, str]], whole: list[dict[str, str]], place: Path) -> None:
    from matplotlib.figure import Figure

    days = [int(line["day"]) for line in killed]

    def column(lines: list[dict[str, str]], name: str) -> list[float]:
        return [float(line[name]) for line in lines]

    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    disk, memory, speed, accuracy = panels.ravel()
    bottom = np.zeros(len(days))
    for name, label in (
        ("rows_mb", "rows"),
        ("excursions_mb", "excursions"),
        ("snapshots_mb", "snapshots"),
    ):
        heights = np.array(column(killed, name))
        disk.bar(days, heights, bottom=bottom, label=label)
        bottom += heights
    disk.set_ylabel("disk, MB")
    disk.set_ylim(top=1.2 * bottom.max())
    disk.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    memory.plot(days, column(whole, "rss_mb"), "o-", markersize=3)
    memory.set_ylabel("memory, MB")
    speed.plot(days, column(whole, "cpu_us_per_row"), "o-", markersize=3)
    speed.set_ylabel("processor time of a step, µs")
    accuracy.plot(days, column(killed, "median_nmsre"), "o-", markersize=3)
    accuracy.set_ylabel("median NMSRE")
    for panel in (memory, speed, accuracy):
        panel.set_ylim(bottom=0.0, top=1.1 * panel.get_ylim()[1])
    for panel in (speed, accuracy):
        panel.set_xlabel("day")
    for panel in panels.ravel():
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(place, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("whole", "all", "killed", "report"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--days", type=int, default=MONTH)
    parser.add_argument("--within", type=int, help="days in which all but kills happens (all)")
    parser.add_argument("--day-steps", type=int, default=DAY)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "report":
        report(options.out)
        return
    run = options.out / options.what
    if run.exists():
        shutil.rmtree(run)
    plan = Plan.of(options.within or options.days, options.day_steps)
    live_days(run, plan, options.days, minutes=options.minutes, seed=options.seed)


if __name__ == "__main__":
    main()
