"""The command `horde bench`: its sections, each of which returns its keys of the answer, and their output."""

from __future__ import annotations

import gc
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numba
import numpy as np

from horde_agent.bench import KEYS, BenchConfig, workload
from horde_agent.bench.learning import Learning, Step
from horde_agent.bench.workload import SIMULATOR, recorded
from horde_agent.gvf import GVF
from horde_agent.horde import Mode
from horde_agent.policies import StickyRandom
from horde_agent.processes import available_memory, resident_bytes
from horde_agent.refusals import BadInput, one_line
from horde_agent.runs.storage.files import unwritable, writable

SETTLE_S = 0.1  # OpenBLAS keeps a core busy for some 30 ms after its last product


class Effort(NamedTuple):
    """How long to measure: in chunks. What counts of each is a multiple of the engine's two batches of 64 steps."""

    first: int  # steps that do not count: arrays grow, kernels are compiled
    chunk: int  # steps of each later chunk
    n_chunks: int
    # First steps of a chunk that do not count: the caches hold what the program before it left there
    warm_up: int

    @property
    def n_steps(self) -> int:
        """Steps in all."""
        return self.first + self.chunk * self.n_chunks


# The engine first writes to its memory after 64 steps, or 192 if demons share policies.
# 64 steps later the data between two writes is in the caches again, as in a life.
THOROUGH = Effort(first=256, chunk=200, n_chunks=4, warm_up=72)  # 512 steps that count
QUICK = Effort(first=8, chunk=24, n_chunks=1, warm_up=4)


class Times(NamedTuple):
    """Milliseconds per step."""

    mean: float
    worst: float


def measure(
    steps: Mapping[str, Step], effort: Effort, others: Mapping[str, Effort] | None = None
) -> dict[str, Times]:
    """Return how long each program's steps take: a chunk of them at a time, in turn, from t = 0.

    Means, not medians: an engine that writes in bursts would be flattered. Before each chunk all
    threads get time to sleep, because idle threads of one program slow down the next. `others` are
    efforts of programs that take another number of steps, in as many chunks.
    """
    spent: dict[str, list[float]] = {name: [] for name in steps}
    minimum_s = dict.fromkeys(steps, 0)
    for k in range(effort.n_chunks + 1):
        for name, step in steps.items():
            effort_of_step = (others or {}).get(name, effort)
            if k:
                n = effort_of_step.chunk
            else:
                n = effort_of_step.first
            time.sleep(SETTLE_S)
            times = [timed(step, t) for t in range(minimum_s[name], minimum_s[name] + n)]
            minimum_s[name] += n
            if k:
                spent[name] += times[effort_of_step.warm_up :]
    return {
        name: Times(1e3 * float(np.mean(s)), 1e3 * float(np.max(s))) for name, s in spent.items()
    }


def timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    began = time.perf_counter()
    step(t)
    return time.perf_counter() - began


# ---- the sections ----------------------------------------------------------------------------------------------------

N_SHARDS = 4
N_FEW = 1_100  # demons of a small shard: fewer than 1,024 of many policies are never parted
Answer = dict[str, float | None]
StreamName = Literal["synthetic", "simulator"]

STEP_S = 0.1  # of a robot at 10 Hz
PAPER_STEPS = 261_681
BUDGET = 24_000_000_000  # bytes of memory in which the most demons are to be found
# Float32: 2 x 6,065 weights, the past, the policy, and Python's own objects
_BYTES_PER_DEMON = 55_000
# Demons, and a guess at their slowest step
_PROBE = 10_000
_WORST_OVER_MEAN = 1.5
_FEW = 100  # demons, enough for the same kernels
# States that no step uses: with them the stream's tiles take 4 MB, for which NumPy requests huge
# pages. Without them a step of the same engine takes about a tenth longer, and older figures could
# not be compared.
_SPARE = 64
_TRIES = 4  # Hordes of growing, or shrinking, size


@dataclass
class Bench:
    """One run of the benchmark; `say` prints a line of progress.

    `stream` are the states, and `coder` is a tile coder of the same size. Raise BadInput if the
    source is "simulator" and it is not installed.
    """

    effort: Effort
    say: Callable[[str], None]
    source: StreamName = "synthetic"

    def __post_init__(self) -> None:
        n_states = self.effort.n_steps + _SPARE + 1
        if self.source == "simulator":
            self.say(f"the simulated robot lives for {n_states} steps")
            self.stream, self.coder = recorded(n_states)
        else:
            self.stream = workload.stream(n_states)
            self.coder = workload.coder()

    # ---- sections -------------------------------------------------------------------------------------------------

    def w1(self) -> Answer:
        """Time the paper's 795 questions: five constant actions, three time scales, 53 sensors."""
        questions = workload.constant_action_questions()
        hordes = {
            "float32": Learning(questions, self.stream),
            "float64": Learning(questions, self.stream, dtype="float64"),
            "float32, every-step": Learning(questions, self.stream, w_rule="every-step"),
        }
        times = self._measure("w1", hordes)
        return {
            "w1_ms": times["float32"].mean,
            "w1_f64_ms": times["float64"].mean,
            "w1_every_step_ms": times["float32, every-step"].mean,
        }

    def w2(self) -> Answer:
        """Time 1,000 questions, each with its own Gibbs policy."""
        questions = self.gibbs_questions(1_000)
        hordes = {
            "float32": Learning(questions, self.stream),
            "float32, deferred": Learning(questions, self.stream, "deferred"),
            "float64": Learning(questions, self.stream, dtype="float64"),
        }
        times = self._measure("w2", hordes)
        return {
            "w2_ms": times["float32"].mean,
            "w2_f64_ms": times["float64"].mean,
            "w2_deferred_ms": times["float32, deferred"].mean,
        }

    def w10k(self) -> Answer:
        """Time 10,000 Gibbs policies."""
        if self._lacks_memory(20_000):
            return {}
        questions = self.gibbs_questions(10_000)
        hordes = {
            "float32": Learning(questions, self.stream),
            "float32, deferred": Learning(questions, self.stream, "deferred"),
        }
        times = self._measure("w10k", hordes)
        return {
            "w10k_ms": times["float32"].mean,
            "w10k_deferred_ms": times["float32, deferred"].mean,
        }

    def w50k(self) -> Answer:
        """Time 50,000 Gibbs policies."""
        if self._lacks_memory(50_000):
            return {}
        times = self.measure_many("w50k", 50_000)
        return {"w50k_ms": times.mean, "w50k_max_ms": times.worst}

    def max(self) -> Answer:
        """Find the largest number of demons with no step over 100 ms, within 24 GB or the free memory."""
        free = available_memory() or 0
        most = int(min(0.9 * free, BUDGET) / _BYTES_PER_DEMON) // 1_000 * 1_000
        if most < _PROBE:
            self.say(f"max: not measured: it needs the memory of {_PROBE:,} demons")
            return {}
        probe = measure(
            {"float32": Learning(self.gibbs_questions(_PROBE), self.stream)}, self.effort
        )["float32"]
        n = min(most, _as_many(_PROBE, _WORST_OVER_MEAN * probe.mean))
        low = 0
        high = most + 1
        answer = Answer()
        for _ in range(_TRIES):
            times = self.measure_many(f"max {n}", n)
            more = min(most, _as_many(n, times.worst))
            if times.worst >= 1e3 * STEP_S:
                high = n
            else:
                low = n
                answer = {"max_demons_ms": times.mean, "max_demons_worst_ms": times.worst}
                if more < 1.1 * low:
                    break
            if low < more < high:
                n = more
            else:
                n = (low + high) // 2_000 * 1_000
            if n < max(1.1 * low, _PROBE):
                break
        if answer:
            return {"max_demons_at_10hz": low, **answer}
        return {}

    def env(self) -> Answer:
        """Count the simulated robot's steps per second, under the sticky random behaviour."""
        try:
            env = gymnasium.make(SIMULATOR, disable_env_checker=True)
        except (ImportError, gymnasium.error.Error) as error:
            self.say(f"env: not measured: {one_line(error)}")
            return {}
        behaviour = StickyRandom(5)
        rng = np.random.default_rng(0)
        n = 10 * self.effort.chunk
        env.reset(seed=0)
        began = time.perf_counter()
        for _ in range(n):
            env.step(behaviour.draw(rng)[0])
        spent = time.perf_counter() - began
        env.close()
        return {"env_steps_per_s": n / spent}

    def life(self) -> Answer:
        """Time the paper's 7.3 hours by the command that a user types: 795 questions, simulator and report included.

        Kernels were compiled before, as for every life of a user's but the first.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "life"
            spent = 0.0
            for words in (
                ["warm"],
                ["learn", "--steps", str(PAPER_STEPS), "--seed=0", "--out", str(out)],
            ):
                self.say(f"life: horde {' '.join(words)}")
                began = time.perf_counter()
                process = subprocess.run(
                    [sys.executable, "-m", "horde_agent.cli", *words],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                spent = time.perf_counter() - began
                if process.returncode:
                    message = " ".join(process.stderr.split()[-40:])
                    self.say(
                        f"life: not measured: horde {words[0]} ended with exit code {process.returncode}: {message}"
                    )
                    return {}
        return {"life_261681_s": spent}

    def tile(self) -> Answer:
        """Time the coding of one observation, in microseconds."""
        coder = self.coder
        stream = self.stream
        coder.encode(stream.sensors[0])
        spent = [
            timed(lambda t: coder.encode(stream.sensors[t]), t) for t in range(self.effort.n_steps)
        ]
        return {"tile_us": 1e6 * float(np.mean(spent))}

    def cluster(self) -> Answer:
        """Time four shards of 10,000 demons against one Horde, one requested prediction, and one step of the driver."""
        if importlib.util.find_spec("ray") is None:
            self.say("cluster: not measured: it needs the extra `ray`, pip install -e '.[ray]'")
            return {}
        n_per_shard = 10_000
        if self.effort == QUICK:
            n_per_shard = N_FEW
        n = N_SHARDS * n_per_shard
        if self._lacks_memory(2 * n):
            return {}
        self.say(f"cluster: {n:,} demons in {N_SHARDS} shards, and in one Horde")
        # Of a round
        n_steps = 128
        if self.effort == QUICK:
            n_steps = 16
        one, many = self._shards_against_one_ms(n, n_steps)
        request_ms = self._driver_ms("eager", n_steps, has_request=True)
        noted = self._driver_ms("deferred", n_steps, has_request=False)
        p50, p99 = np.percentile(request_ms, [50, 99]).tolist()
        return {
            "cluster_vs_one": many / one,
            "cluster_ask_ms": p50,
            "cluster_ask_p99_ms": p99,
            "cluster_driver_ms": float(np.mean(noted)),
        }

    def _shards_against_one_ms(self, n: int, n_steps: int) -> tuple[float, float]:
        """Return the ms per step, eager, of one Horde of n demons, and of shards until all of them have learned."""
        questions = self.gibbs_questions(n)
        one = Learning(questions, self.stream)
        many = Learning(questions, self.stream, shards=N_SHARDS)
        spent: tuple[list[float], list[float]] = [], []
        with closing(many):
            for k in range(self.effort.n_chunks + 1):
                for times, learning in zip(spent, (one, many), strict=True):
                    began = time.perf_counter()
                    for t in range(k * n_steps, (k + 1) * n_steps):
                        learning(t)
                    learning.horde.catch_up()
                    times.append(time.perf_counter() - began)
        ms_of_one, ms_of_many = (1e3 * float(np.median(times[1:])) / n_steps for times in spent)
        return ms_of_one, ms_of_many

    def _driver_ms(self, mode: Mode, n_steps: int, *, has_request: bool) -> list[float]:
        """Return the driver's ms of each step with four small shards, with or without a requested prediction."""
        few = self.gibbs_questions(N_SHARDS * N_FEW)
        requests = None
        if has_request:
            requests = {"ask": [few[-1].name]}
        many = Learning(few, self.stream, mode, shards=N_SHARDS, asked=requests)
        with closing(many):
            spent = [1e3 * timed(many, t) for t in range((self.effort.n_chunks + 1) * n_steps)]
            many.horde.catch_up()
        return spent[n_steps:]

    # ---- shared --------------------------------------------------------------------------------------------------

    def gibbs_questions(self, n: int) -> list[GVF]:
        """Return `n` questions about Gibbs policies with the features of the stream."""
        return workload.gibbs_questions(n, n_features=self.stream.n_features)

    def _measure(self, name: str, hordes: Mapping[str, Step]) -> dict[str, Times]:
        self.say(f"{name}: {'; '.join(hordes)}")
        gc.collect()  # no garbage collection of earlier objects within a timed step
        return measure(hordes, self.effort)

    def measure_many(self, name: str, n: int) -> Times:
        """Measure n demons about Gibbs policies, eager, and the memory that they take."""
        Learning(self.gibbs_questions(_FEW), self.stream)(0)  # compile before measuring memory
        gc.collect()
        n_bytes_before = resident_bytes()
        times = self._measure(name, {"float32": Learning(self.gibbs_questions(n), self.stream)})
        self.say(
            f"{name}: {(resident_bytes() - n_bytes_before) / 1e9:.2f} GB of memory, {times['float32']}"
        )
        return times["float32"]

    def _lacks_memory(self, n_demons: int) -> bool:
        """Return whether `n_demons` exceed the free memory, and print it."""
        free = available_memory()
        is_short = free is not None and free < n_demons * _BYTES_PER_DEMON
        if is_short:
            self.say(
                f"not measured: {n_demons} demons need {n_demons * _BYTES_PER_DEMON / 1e9:.1f} GB of memory"
            )
        return is_short


def _as_many(n: int, worst_ms: float) -> int:
    """Return how many demons would take 95 ms in their slowest step, where n take `worst_ms`; a multiple of 1,000."""
    return max(_PROBE, int(n * 0.95e3 * STEP_S / worst_ms) // 1_000 * 1_000)


# ---- the command ----------------------------------------------------------------------------------------------------


def run(config: BenchConfig) -> dict[str, Any]:
    """Measure the chosen sections, print the figures and return them; with `out`, write bench.json too.

    The object has exactly the keys of `KEYS`, in order, null for a value that was not measured.
    Raise BadInput if a section is unknown, the folder cannot be written, or `stream` is "simulator"
    and the simulator is not installed.
    """
    sections = config.sections()
    if config.out is not None:
        writable(config.out)  # now, not after minutes of measuring
    answer: dict[str, Any] = dict.fromkeys(KEYS)
    answer |= {"threads": numba.get_num_threads(), "cpu": cpu_name()}
    effort = THOROUGH
    if config.quick:
        effort = QUICK
    bench = Bench(effort, _print, config.stream)
    if not config.full:
        _print("life: skipped, because it takes minutes; --full runs it")
    for name in sections:
        figures: dict[str, float | None] = getattr(bench, name)()
        answer |= {
            k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in figures.items()
        }  # whole ones stay
        _print(f"{name}: " + ", ".join(f"{k} {answer[k]}" for k in figures))
    if config.json:
        print(json.dumps(answer), flush=True)
    else:
        print(table(answer), flush=True)
    if config.out is not None:
        try:
            (config.out / "bench.json").write_text(json.dumps(answer, indent=1) + "\n")
        except OSError as error:
            raise BadInput(unwritable(config.out, error)) from error
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the figures in lines, those that are missing as a dash."""
    return "\n".join(f"{key:22} {'-' if value is None else value}" for key, value in answer.items())


def cpu_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    if names:
        return names[0]
    return platform.processor() or platform.machine()


def _print(words: str) -> None:
    print(f"bench: {words}", file=sys.stderr, flush=True)
