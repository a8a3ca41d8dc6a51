"""The sections of `horde bench`. Each returns its keys of the answer; what lies behind them goes to the details."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numba
import numpy as np

from horde_agent.bench import workload
from horde_agent.bench.dense import DenseFused
from horde_agent.bench.measure import Effort, Step, Times, bandwidth, measure, timed
from horde_agent.bench.numpy_horde import FeatureMajor, LearnerMajor, OwnTraces
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.learner import LearnerConfig
from horde_agent.policies import StickyRandom
from horde_agent.signals import PolicyTable

Answer = dict[str, float | None]

LAMBDA = 0.9
STEP_S = 0.1  # of a robot at 10 Hz
PAPER_STEPS = 261_681
_BYTES_PER_DEMON = 62_000  # float32: 2 x 6,065 weights, the ring, the policy, and Python's own objects
_ENV = "horde_env:CritterbotPen-v0"


@dataclass
class Bench:
    """One run of the benchmark.

    Attributes:
        effort: How long to measure.
        say: Told of the progress.
        details: What is behind the answer, by section; filled by the sections.
    """

    effort: Effort
    say: Callable[[str], None]
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stream = workload.stream(self.effort.n_steps + 1)

    # ---- competitors ----------------------------------------------------------------------------------------------

    def horde(self, questions: list[GVF], stream: workload.Stream | None = None, **config: Any) -> Step:
        """Return a function that lets a Horde learn from transition t: policies, checks and predictions included."""
        stream = self.stream if stream is None else stream
        settings = {"w_rule": "importance-weighted", "vector_mspbe": False, **config}
        n_features, n_active = int(stream.tiles.max()) + 1, stream.tiles.shape[1]
        horde = Horde(questions, n_features=n_features, n_active=n_active, config=LearnerConfig(**settings))
        horde.begin(stream.sensors[0], stream.tiles[0])
        return lambda t: horde.learn(
            int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
        )

    def deferred(self, questions: list[GVF]) -> Step | None:
        """Return the same in deferred mode, or None where this version has no such mode."""
        if "mode" not in inspect.signature(Horde).parameters:
            return None
        stream = self.stream
        config = LearnerConfig(w_rule="importance-weighted", vector_mspbe=False)
        more: dict[str, Any] = {"mode": "deferred"}
        horde = Horde(questions, n_features=workload.N_FEATURES, n_active=workload.N_ACTIVE, config=config, **more)
        horde.begin(stream.sensors[0], stream.tiles[0])
        return lambda t: horde.learn(
            int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
        )

    def ratios(self, questions: list[GVF]) -> Any:
        """Return rho of each distinct policy at every step, float32, shape (T, n_policies): yardsticks are given it."""
        s, policies = self.stream, list(dict.fromkeys(q.target_policy for q in questions))
        table = PolicyTable(policies, workload.N_FEATURES)
        return np.array(
            [
                table.ratios(int(s.actions[t]), float(s.probabilities[t]), s.sensors[t], s.tiles[t])
                for t in range(self.effort.n_steps)
            ],
            dtype=np.float32,
        )

    def yardstick(self, learner: Any, rho: Any, cumulants: Any) -> Step:
        """Return a function that lets a yardstick learn from transition t."""
        tiles = self.stream.tiles
        return lambda t: learner.learn(tiles[t], tiles[t + 1], rho[t], cumulants[t + 1])

    # ---- sections -------------------------------------------------------------------------------------------------

    def w1(self) -> Answer:
        """Time the paper's 795 questions: five constant actions, three time scales, 53 sensors."""
        questions = workload.constant_action_questions()
        alpha = 0.1 / workload.N_ACTIVE
        shared = (np.arange(0, 796, workload.N_SENSORS), workload.N_FEATURES, np.tile([0.0, 0.5, 0.8], 5))
        rho = np.repeat(self.ratios(questions), 3, axis=1)
        cumulants = np.tile(self.stream.sensors, 15).astype(np.float32)
        steps = {
            "f32": self.horde(questions),
            "f64": self.horde(questions, dtype="float64"),
            "every-step": self.horde(questions, w_rule="every-step"),
        }
        for kind in (LearnerMajor, FeatureMajor):
            learner = kind(*shared, LAMBDA, alpha, 0.001 * alpha, every_step=False)
            steps[kind.__name__] = self.yardstick(learner, rho, cumulants)
        times = self._measure("w1", steps)
        best = min(times["LearnerMajor"].mean, times["FeatureMajor"].mean)
        return {
            "w1_ms": times["f32"].mean,
            "w1_f64_ms": times["f64"].mean,
            "w1_vs_numpy": best / times["f32"].mean,
            "w1_every_step_ms": times["every-step"].mean,
        }

    def w2(self) -> Answer:
        """Time 1,000 questions, each about a Gibbs policy of its own."""
        questions = workload.gibbs_questions(1000)
        gamma = np.array([q.continuation for q in questions])
        alpha = 0.1 / workload.N_ACTIVE
        rates = (LAMBDA, alpha, 0.001 * alpha)
        channel = [q.cumulant.index for q in questions]  # type: ignore[union-attr]
        cumulants, rho = self.stream.sensors[:, channel].astype(np.float32), self.ratios(questions)
        learners = {
            "numpy learner-major": OwnTraces(gamma, workload.N_FEATURES, *rates, by_feature=False),
            "numpy feature-major": OwnTraces(gamma, workload.N_FEATURES, *rates, by_feature=True),
            "dense": DenseFused(gamma, workload.N_FEATURES, *rates),
        }
        steps = {"f32": self.horde(questions), "f64": self.horde(questions, dtype="float64")}
        steps |= {name: self.yardstick(learner, rho, cumulants) for name, learner in learners.items()}
        if (late := self.deferred(questions)) is not None:
            steps["deferred"] = late
        times = self._measure("w2", steps)
        best = min(times["numpy learner-major"].mean, times["numpy feature-major"].mean)
        return {
            "w2_ms": times["f32"].mean,
            "w2_f64_ms": times["f64"].mean,
            "w2_vs_numpy": best / times["f32"].mean,
            "w2_vs_dense": times["dense"].mean / times["f32"].mean,
            "w2_deferred_ms": times["deferred"].mean if "deferred" in times else None,
        }

    def w10k(self) -> Answer:
        """Time 10,000 Gibbs policies."""
        if self._lacks_memory(20_000):
            return {}
        questions = workload.gibbs_questions(10_000)
        steps = {"f32": self.horde(questions)}
        if (late := self.deferred(questions)) is not None:
            steps["deferred"] = late
        times = self._measure("w10k", steps)
        return {
            "w10k_ms": times["f32"].mean,
            "w10k_deferred_ms": times["deferred"].mean if "deferred" in times else None,
        }

    def w50k(self) -> Answer:
        """Time 50,000 Gibbs policies."""
        if self._lacks_memory(50_000):
            return {}
        times = self._measure("w50k", {"f32": self.horde(workload.gibbs_questions(50_000))})["f32"]
        return {"w50k_ms": times.mean, "w50k_max_ms": times.worst}

    def max(self) -> Answer:
        """Find the most demons whose every step takes less than 100 ms: as memory allows, fewer where time does not."""
        free = available_memory()
        n = 0 if free is None else int(0.9 * free / _BYTES_PER_DEMON) // 10_000 * 10_000
        while n >= 10_000:
            times = self._measure(f"max {n}", {"f32": self.horde(workload.gibbs_questions(n))})["f32"]
            if times.worst < 1e3 * STEP_S:
                return {"max_demons_at_10hz": n, "max_demons_ms": times.mean, "max_demons_worst_ms": times.worst}
            n = min(n - 10_000, int(n * 0.95e3 * STEP_S / times.worst) // 10_000 * 10_000)
        self.say("max: not measured: it needs the memory of 10,000 demons")
        return {}

    def env(self) -> Answer:
        """Count the simulated robot's steps per second, under the sticky random behaviour."""
        try:
            env = gymnasium.make(_ENV, disable_env_checker=True)
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
        """Time the paper's 7.3 hours by the command that a user types: 795 questions, simulator included."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "life"
            words = ["learn", "--steps", str(PAPER_STEPS), "--seed=0", "--out", str(out)]
            began = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "horde_agent.cli", *words], capture_output=True, check=False)
            spent = time.perf_counter() - began
            if done.returncode:
                self.say(f"life: not measured: horde learn ended with exit code {done.returncode}")
                return {}
            self.details["life"] = json.loads((out / "summary.json").read_text())
        return {"life_261681_s": spent}

    def tile(self) -> Answer:
        """Time the coding of one observation to 457 of 6,065 features, in microseconds."""
        coder, stream = workload.coder(), self.stream
        out = np.empty(coder.n_active, dtype=np.int64)
        coder.encode(stream.sensors[0], out)
        spent = [timed(lambda t: coder.encode(stream.sensors[t], out), t) for t in range(self.effort.n_steps)]
        return {"tile_us": 1e6 * float(np.mean(spent))}

    # ---- what they share --------------------------------------------------------------------------------------------

    def _measure(self, name: str, steps: dict[str, Step]) -> dict[str, Times]:
        """Measure competitors, compiled before, and note their times."""
        self.say(f"{name}: {', '.join(steps)}")
        times = measure(steps, self.effort)
        self.details[name] = {who: spent._asdict() for who, spent in times.items()}
        return times

    def _lacks_memory(self, n_demons: int) -> bool:
        """Whether so many demons do not fit; says so."""
        free = available_memory()
        is_short = free is not None and free < n_demons * _BYTES_PER_DEMON
        if is_short:
            self.say(f"not measured: {n_demons} demons need {n_demons * _BYTES_PER_DEMON / 1e9:.1f} GB of memory")
        return is_short

    def bandwidths(self) -> dict[str, float]:
        """Measure GB/s of reading rows at random: from as much memory as W2's weights fill, and from 1 GB."""
        rng, n_threads = np.random.default_rng(0), numba.get_num_threads()
        self.say("bandwidth")
        return {
            f"{n_bytes // 10**6} MB": bandwidth(n_bytes, n_threads, rng, at_random=True)
            for n_bytes in (48_000_000, 1_000_000_000)
        }


def available_memory() -> int | None:
    """Return the bytes of memory that are free for use, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None
