"""Measure the time from a row to its predictions through a pipe: `python -m tests.bench.latency`.

    python -m tests.bench.latency                               # 795 and 10,000 questions, 50 Hz, all predictions
    python -m tests.bench.latency --questions 795 --rows 6000 --policies 5
    python -m tests.bench.latency --learn="--average 0 --no-rarity"    # with options of `horde learn`

This process is the producer: every 20 ms it writes a row of 54 readings to `horde learn - --predictions -`, and
a thread reads the answers as they come. The time of a row is from before its write to the arrival of the last
byte of its answer. A producer that is late writes at once, and the next deadlines stay. The first rows count
for nothing: kernels are loaded then, and all features are new. Averages move more and more seldom until row
16,000: `--warm-up 16000 --rows 24000` measures a stream of that age. All questions are about the behaviour, so
each row teaches each of them; with `--policies 5` each row teaches a fifth of them. Printed beside it are the
processor time of a row, of all threads of the learner, and how late the producer was: on a busy machine the
clock measures the others' work too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

N_CHANNELS = 54
DEADLINE_MS = 10.0
_READ_BYTES = 1 << 20
_COMMAND = "import sys; from horde_agent import cli; sys.exit(cli.main(sys.argv[1:]))"


class Latency(NamedTuple):
    """Times of rows, each of shape (n_rows,), in milliseconds.

    Attributes:
        answer_ms: From the write to the arrival of the predictions.
        late_ms: Lateness of the write.
        cpu_ms: Processor time of the learner for a row, the mean.
    """

    answer_ms: np.ndarray
    late_ms: np.ndarray
    cpu_ms: float


def write_inputs(folder: Path, n_questions: int, n_policies: int, period_s: float) -> None:
    """Write the columns file and the question file."""
    n_actions = max(n_policies, 1)
    actions = [f"a{i}" for i in range(n_actions)]
    columns = [
        f'period_s = {period_s}\ntime = "t"\naction = "a"\nb = "b"\nactions = {json.dumps(actions)}\n'
    ]
    columns += [f'[[channel]]\ncolumn = "c{i}"\nlow = 0.0\nhigh = 1.0\n' for i in range(N_CHANNELS)]
    (folder / "columns.toml").write_text("".join(columns))
    policies = actions if n_policies else ["behaviour"]
    families = []
    n_left = n_questions // len(policies)
    k = 0
    while n_left:
        n_channels = min(n_left, N_CHANNELS)
        gamma = 1.0 - 1.0 / (1.0 + 0.1 * k)  # up to 19.5 steps
        names = [f"c{i}" for i in range(n_channels)]
        families.append(
            f"[[family]]\npolicies = {json.dumps(policies)}\ngammas = [{gamma}]\nchannels = {json.dumps(names)}\n"
        )
        n_left -= n_channels
        k += 1
    (folder / "questions.toml").write_text("".join(families))


def rows_of(n_rows: int, n_policies: int, period_s: float) -> list[bytes]:
    """Return the lines of a walk of each channel within [0, 1], which is slow for some and fast for others."""
    rng = np.random.default_rng(0)
    stride = 2 * np.exp(rng.uniform(np.log(0.006), np.log(0.05), N_CHANNELS))
    path = rng.uniform(size=N_CHANNELS) + np.cumsum(
        rng.normal(size=(n_rows, N_CHANNELS)) * stride, axis=0
    )
    readings = 1 - np.abs(1 - path % 2)
    n_actions = max(n_policies, 1)
    actions = rng.integers(n_actions, size=n_rows)
    lines = []
    for t, row in enumerate(readings):
        cells = [
            f"{t * period_s:.3f}",
            str(actions[t]),
            str(1 / n_actions),
            *(f"{v:.5f}" for v in row),
        ]
        lines.append((",".join(cells) + "\n").encode())
    return lines


class Answers:
    """When each answer of a learner arrived, read in a thread until its pipe ends.

    Attributes:
        arrived_s: Of each answer, in seconds.
        cpu_s: Processor time of the learner at the end of the warm-up and at the last answer.
    """

    def __init__(self, learner: subprocess.Popen[bytes], warm_up: int, n_rows: int) -> None:
        self.arrived_s: list[float] = []
        self.cpu_s: list[float] = []
        self.has_first = threading.Event()
        self._learner = learner
        self._limits = [warm_up, n_rows]
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        pipe = self._learner.stdout
        assert pipe is not None
        while data := os.read(pipe.fileno(), _READ_BYTES):
            now_s = time.perf_counter()
            self.arrived_s += [now_s] * data.count(b"\n")
            while self._limits and len(self.arrived_s) >= self._limits[0]:
                self._limits.pop(0)
                self.cpu_s.append(processor_time_s(self._learner.pid))
            if self.arrived_s:
                self.has_first.set()

    def join(self) -> None:
        self._thread.join()


def measure(
    n_questions: int,
    warm_up: int,
    n_rows: int,
    n_policies: int,
    period_s: float,
    learn_options: str,
) -> Latency:
    """Drive a learner, and return the times of its rows after the first ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, n_questions, n_policies, period_s)
        lines = rows_of(n_rows, n_policies, period_s)
        words = (
            "learn - --columns columns.toml --questions questions.toml --predictions - --out run "
            + learn_options
        )
        learner = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *words.split()],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert learner.stdin is not None
        answers = Answers(learner, warm_up, n_rows)
        header = ",".join(["t", "a", "b", *(f"c{i}" for i in range(N_CHANNELS))]) + "\n"
        learner.stdin.write(header.encode())
        written_s = np.zeros(n_rows)
        late_s = np.zeros(n_rows)
        began_s = 0.0
        for t, line in enumerate(lines):
            if t == 1:  # it has begun
                answers.has_first.wait()
                began_s = time.perf_counter() - period_s
            if t > 0:
                deadline_s = began_s + t * period_s
                time.sleep(max(deadline_s - time.perf_counter(), 0.0))
                late_s[t] = time.perf_counter() - deadline_s
            written_s[t] = time.perf_counter()
            learner.stdin.write(line)
            learner.stdin.flush()
        learner.stdin.close()
        answers.join()
        if learner.wait() or len(answers.arrived_s) != n_rows:
            raise SystemExit(f"horde learn ended with code {learner.returncode}")
    warm_s, end_s = answers.cpu_s
    answer_s = np.array(answers.arrived_s) - written_s
    return Latency(
        answer_ms=1e3 * answer_s[warm_up:],
        late_ms=1e3 * late_s[warm_up:],
        cpu_ms=1e3 * (end_s - warm_s) / (n_rows - warm_up),
    )


def processor_time_s(pid: int) -> float:
    """Return the processor time of a process so far, of all its threads, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--questions", type=int, nargs="+", default=[795, 10_000])
    parser.add_argument("--rows", type=int, default=5_000, help="with those that do not count")
    parser.add_argument("--warm-up", type=int, default=1_000, help="rows that do not count")
    parser.add_argument("--policies", type=int, default=0, help="0: all about the behaviour")
    parser.add_argument("--period-ms", type=float, default=20.0)
    parser.add_argument("--learn", default="", help="further options of `horde learn`")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    print(
        "questions | median | 90 % | 99 % | most | within 10 ms | processor time a row | producer late, 99 %"
    )
    for n_questions in options.questions:
        latency = measure(
            n_questions,
            options.warm_up,
            options.rows,
            options.policies,
            options.period_ms / 1e3,
            options.learn,
        )
        quantiles = np.quantile(latency.answer_ms, [0.5, 0.9, 0.99, 1.0])
        shown = " | ".join(f"{value:.1f} ms" for value in quantiles)
        share = 100 * np.mean(latency.answer_ms <= DEADLINE_MS)
        late = np.quantile(latency.late_ms, 0.99)
        print(
            f"{n_questions:,} | {shown} | {share:.1f} % | {latency.cpu_ms:.1f} ms | {late:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
