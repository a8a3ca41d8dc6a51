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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numba
import numpy as np

from horde_agent.bench import KEYS, BenchConfig, workload
from horde_agent.bench.competitors import Learning, of_constant_actions, of_own_policies, ratios
from horde_agent.bench.measure import QUICK, THOROUGH, Effort, Step, Times, measure, timed
from horde_agent.bench.workload import SIMULATOR, Stream, recorded
from horde_agent.gvf import GVF
from horde_agent.horde import Mode
from horde_agent.policies import StickyRandom
from horde_agent.processes import resident_bytes
from horde_agent.runs.config import BadInput
from horde_agent.runs.keeping.folder import unwritable, writable

N_SHARDS = 4
N_FEW = 1_100  # demons of a small shard: fewer than 1,024 of many policies are never parted

Questions = Callable[[int], Sequence[GVF]]


class Turns(NamedTuple):
    """How long to measure: rounds of `n_steps` steps; the first round does not count."""

    n_rounds: int
    n_steps: int


def against_one(questions: Sequence[GVF], stream: Stream, turns: Turns) -> tuple[float, float]:
    """Return the ms per step, eager, of one Horde, and of shards of the same demons until every one has come as far."""
    one, many = Learning(questions, stream), Learning(questions, stream, shards=N_SHARDS)
    ends: dict[Learning, Callable[[], None]] = {one: one.horde.catch_up, many: many.horde.wait}
    spent: dict[Learning, list[float]] = {learning: [] for learning in ends}
    with many.horde:
        for k in range(turns.n_rounds + 1):
            for learning, finish in ends.items():
                began = time.perf_counter()
                for t in range(k * turns.n_steps, (k + 1) * turns.n_steps):
                    learning(t)
                finish()
                spent[learning].append(time.perf_counter() - began)
    return 1e3 * np.median(spent[one][1:]) / turns.n_steps, 1e3 * np.median(spent[many][1:]) / turns.n_steps


def small_shards_ms(
    questions: Questions, stream: Stream, turns: Turns, mode: Mode, *, has_request: bool
) -> list[float]:
    """Return the driver's ms of each step with four small shards, with or without a requested prediction."""
    few = questions(N_SHARDS * N_FEW)
    many = Learning(few, stream, mode, shards=N_SHARDS, asked={"ask": [few[-1].name]} if has_request else None)
    with many.horde:
        spent = [1e3 * timed(many, t) for t in range((turns.n_rounds + 1) * turns.n_steps)]
        many.horde.wait()
    return spent[turns.n_steps :]


Answer = dict[str, float | None]
StreamName = Literal["synthetic", "simulator"]

STEP_S = 0.1  # of a robot at 10 Hz
PAPER_STEPS = 261_681
BUDGET = 24_000_000_000  # bytes of memory in which the most demons are to be found
_BYTES_PER_DEMON = 55_000  # float32: 2 x 6,065 weights, the past, the policy, and Python's own objects
_PROBE, _WORST_OVER_MEAN = 10_000, 1.5  # demons, and a guess at their slowest step
_FEW = 100  # demons, enough for the same kernels
# States that no step uses: with them the stream's tiles take 4 MB, from where on NumPy asks for huge pages. Without
# them a step of the same engine takes about a tenth longer, and older figures could not be compared.
_SPARE = 64
_TRIES = 4  # Hordes of growing, or shrinking, size


@dataclass
class Bench:
    """One run of the benchmark.

    Attributes:
        effort: How long to measure.
        say: Takes a line of progress.
        source: Where the stream comes from: "synthetic", or "simulator".
        details: Raw measurements by section; filled by the sections.
        stream, coder: The states, and the tile coder of the same size.

    Raises:
        BadInput: If the source is "simulator" and it is not installed.
    """

    effort: Effort
    say: Callable[[str], None]
    source: StreamName = "synthetic"
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n_states = self.effort.n_steps + _SPARE + 1
        if self.source == "simulator":
            self.say(f"the simulated robot lives for {n_states} steps")
            self.stream, self.coder = recorded(n_states)
        else:
            self.stream, self.coder = workload.stream(n_states), workload.coder()
        s = self.stream
        self.details["stream"] = {
            "name": self.source,
            "n_features": s.n_features,
            "n_active": s.n_active,
            "active_share": s.n_active / s.n_features,
            "switched_share": s.share_switched,
        }

    # ---- sections -------------------------------------------------------------------------------------------------

    def w1(self) -> Answer:
        """Time the paper's 795 questions: five constant actions, three time scales, 53 sensors."""
        questions = workload.constant_action_questions()
        hordes = {
            "float32": Learning(questions, self.stream),
            "float64": Learning(questions, self.stream, dtype="float64"),
            "float32, every-step": Learning(questions, self.stream, w_rule="every-step"),
        }
        yardsticks = of_constant_actions(questions, self.stream, self.effort.n_steps)
        times = self._measure("w1", hordes, yardsticks)
        return {
            "w1_ms": times["float32"].mean,
            "w1_f64_ms": times["float64"].mean,
            "w1_vs_numpy": _best(times, yardsticks) / times["float32"].mean,
            "w1_every_step_ms": times["float32, every-step"].mean,
        }

    def w2(self) -> Answer:
        """Time 1,000 questions, each with its own Gibbs policy."""
        questions = self._gibbs(1_000)
        rho = ratios(questions, self.stream, self.effort.n_steps)
        hordes = {
            "float32": Learning(questions, self.stream),
            "float32, deferred": Learning(questions, self.stream, "deferred"),
            "float64": Learning(questions, self.stream, dtype="float64"),
        }
        yardsticks = of_own_policies(questions, self.stream, rho)
        times = self._measure("w2", hordes, yardsticks)
        best = _best(times, [name for name in yardsticks if name.startswith("NumPy")])
        return {
            "w2_ms": times["float32"].mean,
            "w2_f64_ms": times["float64"].mean,
            "w2_vs_numpy": best / times["float32"].mean,
            "w2_vs_dense": times["dense pass"].mean / times["float32"].mean,
            "w2_deferred_ms": times["float32, deferred"].mean,
        }

    def w10k(self) -> Answer:
        """Time 10,000 Gibbs policies."""
        if self._lacks_memory(20_000):
            return {}
        questions = self._gibbs(10_000)
        hordes = {
            "float32": Learning(questions, self.stream),
            "float32, deferred": Learning(questions, self.stream, "deferred"),
        }
        times = self._measure("w10k", hordes)
        return {"w10k_ms": times["float32"].mean, "w10k_deferred_ms": times["float32, deferred"].mean}

    def w50k(self) -> Answer:
        """Time 50,000 Gibbs policies."""
        if self._lacks_memory(50_000):
            return {}
        times = self._many("w50k", 50_000)
        return {"w50k_ms": times.mean, "w50k_max_ms": times.worst}

    def max(self) -> Answer:
        """Find the largest number of demons with no step over 100 ms, within 24 GB or the free memory."""
        most = self._most_by_memory()
        if most < _PROBE:
            self.say(f"max: not measured: it needs the memory of {_PROBE:,} demons")
            return {}
        probe = measure({"float32": Learning(self._gibbs(_PROBE), self.stream)}, self.effort)["float32"]
        n, low, high, answer = min(most, _as_many(_PROBE, _WORST_OVER_MEAN * probe.mean)), 0, most + 1, Answer()
        self.details["most_by_memory"] = most
        for _ in range(_TRIES):
            times = self._many(f"max {n}", n)
            more = min(most, _as_many(n, times.worst))
            if times.worst >= 1e3 * STEP_S:
                high = n
            else:
                low, answer = n, {"max_demons_ms": times.mean, "max_demons_worst_ms": times.worst}
                if more < 1.1 * low:
                    break
            n = more if low < more < high else (low + high) // 2_000 * 1_000
            if n < max(1.1 * low, _PROBE):
                break
        return {"max_demons_at_10hz": low, **answer} if answer else {}

    def env(self) -> Answer:
        """Count the simulated robot's steps per second, under the sticky random behaviour."""
        try:
            env = gymnasium.make(SIMULATOR, disable_env_checker=True)
        except (ImportError, gymnasium.error.Error) as error:
            self.say(f"env: not measured: {' '.join(str(error).split())}")
            return {}
        behaviour, rng, n = StickyRandom(5), np.random.default_rng(0), 10 * self.effort.chunk
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
            for words in (["warm"], ["learn", "--steps", str(PAPER_STEPS), "--seed=0", "--out", str(out)]):
                self.say(f"life: horde {' '.join(words)}")
                began = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-m", "horde_agent.cli", *words], capture_output=True, text=True, check=False
                )
                spent = time.perf_counter() - began
                if done.returncode:
                    said = " ".join(done.stderr.split()[-40:])
                    self.say(f"life: not measured: horde {words[0]} ended with exit code {done.returncode}: {said}")
                    return {}
            self.details["life"] = json.loads((out / "summary.json").read_text())
        return {"life_261681_s": spent}

    def tile(self) -> Answer:
        """Time the coding of one observation, in microseconds."""
        coder, stream = self.coder, self.stream
        coder.encode(stream.sensors[0])
        spent = [timed(lambda t: coder.encode(stream.sensors[t]), t) for t in range(self.effort.n_steps)]
        return {"tile_us": 1e6 * float(np.mean(spent))}

    def cluster(self) -> Answer:
        """Time four shards of 10,000 demons against one Horde, one requested prediction, and one step of the driver."""
        if importlib.util.find_spec("ray") is None:
            self.say("cluster: not measured: it needs the extra `ray`, pip install -e '.[ray]'")
            return {}
        n = N_SHARDS * (N_FEW if self.effort == QUICK else 10_000)
        if self._lacks_memory(2 * n):
            return {}
        self.say(f"cluster: {n:,} demons in {N_SHARDS} shards, and in one Horde")
        turns = Turns(self.effort.n_chunks, 16 if self.effort == QUICK else 128)
        one, many = against_one(self._gibbs(n), self.stream, turns)
        asked = small_shards_ms(self._gibbs, self.stream, turns, "eager", has_request=True)
        noted = small_shards_ms(self._gibbs, self.stream, turns, "deferred", has_request=False)
        self.details["cluster"] = {
            "n_demons": n,
            "one_ms": one,
            "shards_ms": many,
            "asked_ms": asked,
            "noted_ms": noted,
        }
        p50, p99 = np.percentile(asked, [50, 99]).tolist()
        return {
            "cluster_vs_one": many / one,
            "cluster_ask_ms": p50,
            "cluster_ask_p99_ms": p99,
            "cluster_driver_ms": float(np.mean(noted)),
        }

    # ---- shared --------------------------------------------------------------------------------------------------

    def _gibbs(self, n: int) -> list[GVF]:
        """Return n questions about Gibbs policies over this stream's features."""
        return workload.gibbs_questions(n, n_features=self.stream.n_features)

    def _measure(
        self,
        name: str,
        hordes: Mapping[str, Step],
        yardsticks: Mapping[str, Step] | None = None,
    ) -> dict[str, Times]:
        """Measure competitors, and note their times."""
        yardsticks = yardsticks or {}
        steps = {**hordes, **yardsticks}
        self.say(f"{name}: {'; '.join(steps)}")
        efforts = dict.fromkeys(yardsticks, self.effort.of_yardstick())
        gc.collect()  # no garbage collection of earlier objects within a timed step
        times = measure(steps, self.effort, efforts)
        self.details[name] = {who: spent._asdict() for who, spent in times.items()}
        return times

    def _many(self, name: str, n: int) -> Times:
        """Measure n demons about Gibbs policies, eager, and the memory that they take."""
        Learning(self._gibbs(_FEW), self.stream)(0)  # compile before measuring memory
        gc.collect()
        before, began = resident_bytes(), time.perf_counter()
        hordes = {"float32": Learning(self._gibbs(n), self.stream)}
        made_s = time.perf_counter() - began
        times = self._measure(name, hordes)
        taken = (resident_bytes() - before) / n if before else None
        self.details[name]["float32"] |= {"bytes_per_demon": taken, "made_s": made_s}
        return times["float32"]

    def _most_by_memory(self) -> int:
        """Return how many demons there is memory for, a multiple of 1,000."""
        free = available_memory()
        return 0 if free is None else int(min(0.9 * free, BUDGET) / _BYTES_PER_DEMON) // 1_000 * 1_000

    def _lacks_memory(self, n_demons: int) -> bool:
        """Return whether `n_demons` exceed the free memory, and print it."""
        free = available_memory()
        is_short = free is not None and free < n_demons * _BYTES_PER_DEMON
        if is_short:
            self.say(f"not measured: {n_demons} demons need {n_demons * _BYTES_PER_DEMON / 1e9:.1f} GB of memory")
        return is_short


def _best(times: Mapping[str, Times], names: Collection[str]) -> float:
    """Return the mean of the quickest."""
    return min(times[name].mean for name in names)


def _as_many(n: int, worst_ms: float) -> int:
    """Return how many demons would take 95 ms in their slowest step, where n take `worst_ms`; a multiple of 1,000."""
    return max(_PROBE, int(n * 0.95e3 * STEP_S / worst_ms) // 1_000 * 1_000)


def available_memory() -> int | None:
    """Return the bytes of memory that are free for use, or None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


# ---- the command ----------------------------------------------------------------------------------------------------


def run(config: BenchConfig) -> dict[str, Any]:
    """Measure the chosen sections and print the figures; with `out`, write bench.json and details.json too.

    Returns:
        The object with exactly the keys of `KEYS`, in order; null for a value that was not measured.

    Raises:
        BadInput: If a section is unknown, the folder cannot be written, or `stream` is "simulator" and the simulator
            is not installed.
    """
    sections = config.sections()
    if config.out is not None:
        writable(config.out)  # now, not after minutes of measuring
    answer: dict[str, Any] = dict.fromkeys(KEYS)
    answer |= {"threads": numba.get_num_threads(), "cpu": cpu_name()}
    bench = Bench(QUICK if config.quick else THOROUGH, _print, config.stream)
    if not config.full:
        _print("life: left out, for it takes minutes; --full runs it")
    for name in sections:
        figures: dict[str, float | None] = getattr(bench, name)()
        answer |= {key: _rounded(value) for key, value in figures.items()}
        _print(f"{name}: " + ", ".join(f"{k} {answer[k]}" for k in figures))
    print(json.dumps(answer) if config.json else table(answer), flush=True)
    if config.out is not None:
        try:
            (config.out / "bench.json").write_text(json.dumps(answer, indent=1) + "\n")
            (config.out / "details.json").write_text(json.dumps(bench.details, indent=1) + "\n")
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
    return names[0] if names else platform.processor() or platform.machine()


def _rounded(value: float | None) -> float | None:
    """Return four significant digits; whole numbers stay whole."""
    return value if value is None or isinstance(value, int) else float(f"{value:.4g}")


def _print(words: str) -> None:
    print(f"bench: {words}", file=sys.stderr, flush=True)
