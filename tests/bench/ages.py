"""Compare the time of a step in a young and an old life: `python -m tests.bench.ages YOUNG OLD`.

    python -m tests.bench.growth robot OLD
    horde learn --physics planar --horizon 20 --keep 150MB --seed 0 --questions OLD.toml --steps 1000000 --out YOUNG
    python -m tests.bench.ages YOUNG OLD; python -m tests.bench.ages OLD YOUNG

Copies of two runs of the simulated robot are resumed in one process, by turns of 1,000 steps, so that other
work on the machine delays both. Printed is the processor time of a step of each, the median of blocks in which
the robot does not charge, and the second over the first. Where a life's arrays lie makes a few per cent: repeat
it, in both orders.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent import cli
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.runs.reporting import report as report_page
from horde_agent.runs.sources import robot as robot_source
from tests.bench.growth import BLOCK, LEAST_LEARNED

FIRST_BLOCKS = 3
"""Blocks of each life that do not count: files are read, and caches filled."""


class Turns:
    """Lets two lives, in threads of their own, take steps by turns."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._whose = 0
        self._has_ended = [False, False]

    def pass_on(self, number: int) -> None:
        """End a life's turn, and wait for its next one, or until the other life has ended."""
        with self._changed:
            self._whose = 1 - number
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._whose == number or self._has_ended[1 - number])

    def end(self, number: int) -> None:
        """Note that a life has ended."""
        with self._changed:
            self._has_ended[number] = True
            self._changed.notify_all()


class Blocks(LifeHooks):
    """Notes the time of a life's steps, in us, in blocks."""

    def __init__(self, turns: Turns, number: int) -> None:
        self.step_us: list[float] = []
        self._turns = turns
        self._number = number
        self._begin_step = -1
        self._begin_learned = 0
        self._begin_s = 0.0

    def after_step(self, event: StepEvent) -> None:
        life = event.life
        if self._begin_step < 0:
            self._begin(life)
        n_steps = life.steps - self._begin_step
        if n_steps < BLOCK:
            return
        duration_s = time.process_time() - self._begin_s
        n_learned = life.student.learning_steps - self._begin_learned
        if n_steps == BLOCK and n_learned >= LEAST_LEARNED:
            self.step_us.append(1e6 * duration_s / n_steps)
        self._turns.pass_on(self._number)
        self._begin(life)

    def _begin(self, life: Life) -> None:
        self._begin_step = life.steps
        self._begin_learned = life.student.learning_steps
        self._begin_s = time.process_time()


def resume(run: Path, n_steps: int, number: int, turns: Turns) -> None:
    """Resume a copy of a run for some steps."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "run"
        shutil.copytree(run, copied)
        n_taken = json.loads((copied / "summary.json").read_text())["steps"]
        try:
            cli.main(["resume", str(copied), "--steps", str(n_taken + n_steps)])
        finally:
            turns.end(number)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs=2)
    parser.add_argument("--steps", type=int, default=40_000)
    options = parser.parse_args()
    report_page.draw_pictures = lambda *_: []
    turns = Turns()
    blocks = [Blocks(turns, number) for number in range(2)]
    new_life = robot_source.new_life

    def observed(*arguments: Any, **settings: Any) -> Any:
        life, sampler = new_life(*arguments, **settings)
        number = int(threading.current_thread().name)
        life.observers.append(blocks[number])
        return life, sampler

    robot_source.new_life = observed
    threads = [
        threading.Thread(target=resume, args=(run, options.steps, number, turns), name=str(number))
        for number, run in enumerate(options.runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    medians = [float(np.median(of_life.step_us[FIRST_BLOCKS:])) for of_life in blocks]
    for run, median in zip(options.runs, medians, strict=True):
        print(f"{run}: {median:.1f} us")
    print(f"ratio {medians[1] / medians[0]:.3f}")


if __name__ == "__main__":
    main()
