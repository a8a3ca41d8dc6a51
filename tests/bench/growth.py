"""Measure whether memory and the time of a step grow with a life: `python -m tests.bench.growth`.

    python -m tests.bench.growth robot OUT                     # the simulated Critterbot, four questions
    python -m tests.bench.growth stream OUT --steps 3000000    # rows of `StreamRun`, two questions

One process lives ten million steps after a warm-up, in which a robot still meets new features. Memory is
what belongs to the process alone, without pages of files; `allocated` is the part that its allocator
(glibc) has given away and not got back. Both are medians of readings every 10,000 steps, since a snapshot
that is being written takes some megabytes for a moment. Time is that of the processor for a step, the
median of blocks of 1,000 steps: other work on the machine and snapshots lengthen some blocks, and blocks in
which the robot charges are left out. A line is printed every 250,000 steps, and at the end the growth per
ten million steps by a fitted line, with its standard error; the promise is less than 1 MB and 1 %.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent import GVF, Behaviour, Channel, StreamRun, cli
from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.runs.reporting import report as report_page
from horde_agent.runs.sources import robot as robot_source

EVERY = 250_000
READ_EVERY = 10_000
BLOCK = 1_000
LEAST_LEARNED = 300
"""Of the steps of a block; the others are those of test excursions."""
TEN_MILLION = 10_000_000
QUESTIONS = """
[[family]]
policies = ["forward", "behaviour"]
gammas = [0.8]
channels = ["light_0", "ir_distance_0"]
"""
OPTIONS = "--physics planar --horizon 20 --keep 150MB --snapshot-every 20s --seed 0"


class Sample(NamedTuple):
    """What a process used up to a step."""

    step: int
    step_us: float
    memory_mb: float
    allocated_mb: float


class Memory(NamedTuple):
    """What a process had at a moment."""

    own_mb: float
    allocated_mb: float


class BlockStart(NamedTuple):
    """Where a block of steps begins."""

    step: int
    learning_steps: int
    cpu_s: float


def own_memory_mb() -> float:
    """Return the memory of this process in MB, without pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


class AllocatorState(ctypes.Structure):
    """What glibc's `mallinfo2` returns, in bytes."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),  # in mapped regions
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),  # in arenas
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def allocated_mb() -> float:
    """Return the memory that the allocator has given to this process, in MB; NaN without glibc."""
    try:
        state = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return float("nan")
    state.restype = AllocatorState
    return (state().uordblks + state().hblkhd) / 1e6


class Growth(LifeHooks):
    """Samples what the process uses, and says where memory was allocated that grew, if it is traced."""

    def __init__(self, *, is_traced: bool) -> None:
        self.samples: list[Sample] = []
        self._next = EVERY
        self._next_reading = READ_EVERY
        self._readings: list[Memory] = []  # since the latest sample
        self._block = BlockStart(0, 0, time.process_time())
        self._block_us: list[float] = []  # since the latest sample
        self._is_traced = is_traced
        self._former: tracemalloc.Snapshot | None = None

    def after_step(self, event: StepEvent) -> None:
        self.add(event.life.steps, event.life.student.learning_steps)

    def add(self, step: int, learning_steps: int) -> None:
        """Sample if it is due."""
        if step >= self._block.step + BLOCK:
            self._end_block(BlockStart(step, learning_steps, time.process_time()))
        if step >= self._next_reading:
            self._next_reading = step - step % READ_EVERY + READ_EVERY
            self._readings.append(Memory(own_memory_mb(), allocated_mb()))
        if step < self._next:
            return
        self._next = step - step % EVERY + EVERY
        step_us = float("nan")
        if self._block_us:
            step_us = float(np.median(self._block_us))
        self._block_us = []
        median = Memory(*np.median(self._readings, axis=0).tolist())
        self._readings = []
        sample = Sample(
            step=step,
            step_us=step_us,
            memory_mb=median.own_mb,
            allocated_mb=median.allocated_mb,
        )
        print(
            f"{step:>10,} {sample.memory_mb:8.2f} MB {sample.allocated_mb:8.2f} MB {step_us:7.2f} us",
            flush=True,
        )
        self.samples.append(sample)
        if not self._is_traced:
            return
        snapshot = tracemalloc.take_snapshot()
        if self._former is not None:
            for difference in snapshot.compare_to(self._former, "lineno")[:8]:
                print("   ", difference)
        else:
            self._former = snapshot

    def _end_block(self, end: BlockStart) -> None:
        """Note the time of a block's steps, unless the robot charged in it, and begin the next one."""
        n_steps = end.step - self._block.step
        n_learned = end.learning_steps - self._block.learning_steps
        if n_steps == BLOCK and n_learned >= LEAST_LEARNED:
            self._block_us.append(1e6 * (end.cpu_s - self._block.cpu_s) / n_steps)
        self._block = end

    def report(self, warm_up: int) -> None:
        """Print the growth after the warm-up."""
        samples = [one for one in self.samples if one.step >= warm_up]
        steps = np.array([one.step for one in samples]) / TEN_MILLION
        memory = np.array([one.memory_mb for one in samples])
        allocated = np.array([one.allocated_mb for one in samples])
        step_us = np.array([one.step_us for one in samples])
        is_timed = ~np.isnan(step_us)
        curves = (
            ("memory, MB", steps, memory),
            ("allocated, MB", steps, allocated),
            ("time, us", steps[is_timed], step_us[is_timed]),
        )
        for name, x, y in curves:
            (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
            error = float(np.sqrt(covariance[0, 0]))
            print(
                f"{name}: mean {y.mean():.2f}, growth per ten million steps {slope:+.3f} +- {error:.3f}, "
                f"that is {slope / y.mean():+.2%}"
            )


def live_as_robot(out: Path, steps: int, growth: Growth) -> None:
    """Live on the planar engine."""
    new_life = robot_source.new_life

    def observed(*arguments: Any, **options: Any) -> Any:
        life, sampler = new_life(*arguments, **options)
        life.observers.append(growth)
        return life, sampler

    robot_source.new_life = observed
    file = out.with_suffix(".toml")
    file.write_text(QUESTIONS)
    words = f"learn {OPTIONS} --questions {file} --steps {steps} --out {out}"
    if cli.main(words.split()):
        raise SystemExit("the life failed")


def learn_from_stream(out: Path, steps: int, growth: Growth) -> None:
    """Learn from a random walk's rows, given one by one."""
    questions = [GVF(f"next{k}", Behaviour(), Channel(k), continuation=0.8) for k in range(2)]
    run = partial(StreamRun, ["x", "y"], [[0, 1], [0, 1]], questions=questions, has_times=False)
    rng = np.random.default_rng(0)
    position = np.full(2, 0.5)
    with run(out=out, snapshot_every="20s", keep="150MB") as learner:
        for step in range(1, steps + 1):
            position = np.clip(position + rng.uniform(-0.1, 0.1, 2), 0.0, 1.0)
            learner.row(position)
            growth.add(step, step)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("robot", "stream"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=TEN_MILLION)
    parser.add_argument("--warm-up", type=int, default=4_000_000)
    parser.add_argument("--trace", action="store_true", help="name the lines whose memory grew")
    options = parser.parse_args()
    report_page.draw_pictures = lambda *_: []
    if options.out.exists():
        shutil.rmtree(options.out)
    if options.trace:
        tracemalloc.start()
    growth = Growth(is_traced=options.trace)
    live = {"robot": live_as_robot, "stream": learn_from_stream}[options.what]
    live(options.out, options.warm_up + options.steps, growth)
    growth.report(options.warm_up)


if __name__ == "__main__":
    main()
