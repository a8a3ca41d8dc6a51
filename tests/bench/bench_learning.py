"""Time one learning step against two vectorised NumPy versions in the same run.

    python -m tests.bench.bench_learning

prints one JSON object; times in milliseconds, medians over the steps after a warm-up. All competitors see the same
transitions, in turn, so that a busy machine slows them alike: quote the ratios.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numba
import numpy as np

from horde_agent.bench import workload
from horde_agent.bench.competitors import FeatureMajor, LearnerMajor
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.learning.rules import LearnerConfig

CHUNK = 40  # steps
SETTLE_S = 0.1
Step = Callable[[int], object]


def horde_step(questions: Sequence[GVF], stream: workload.Stream, **config: object) -> Step:
    """Return a function that learns from transition t of the stream, the Horde's checks and policies included."""
    horde = Horde(
        questions,
        n_features=workload.N_FEATURES,
        n_active=workload.N_ACTIVE,
        config=LearnerConfig(**config),  # type: ignore[arg-type]
    )
    horde.begin(stream.sensors[0], stream.tiles[0])

    def step(t: int) -> object:
        return horde.learn(
            int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
        )

    return step


def numpy_step(kind: type[LearnerMajor] | type[FeatureMajor], stream: workload.Stream) -> Step:
    """Return the same for a NumPy version of W1, the ratios computed beforehand."""
    alpha = 0.1 / workload.N_ACTIVE
    start = np.arange(0, 796, workload.N_SENSORS)
    learner = kind(start, workload.N_FEATURES, np.tile([0.0, 0.5, 0.8], 5), 0.9, alpha, 0.001 * alpha)
    policy = np.repeat(np.arange(5), 3)
    rho = ((policy == stream.actions[:, None]) / stream.probabilities[:, None]).astype(np.float32)
    cumulants = np.tile(stream.sensors, 15).astype(np.float32)
    return lambda t: learner.learn(stream.tiles[t], stream.tiles[t + 1], rho[t], cumulants[t + 1])


def interleaved(steps: dict[str, Step], n: int) -> dict[str, float]:
    """Return the median milliseconds of each competitor over the same n transitions, a chunk of them at a time.

    Before each chunk all threads get time to go to sleep: OpenBLAS keeps a core busy for some 30 ms after its last
    product, which would slow down the next program. The first steps of a chunk, with cold caches, do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for first in range(0, n, CHUNK):
        for name, step in steps.items():
            time.sleep(SETTLE_S)
            spent = [_timed(step, t) for t in range(first, min(n, first + CHUNK))]
            times[name] += spent[CHUNK // 4 :]
    return {name: 1e3 * float(np.median(spent)) for name, spent in times.items()}


def _timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    begin = time.perf_counter()
    step(t)
    return time.perf_counter() - begin


def start_times() -> tuple[float, float]:
    """Return the seconds from a new process to its first learned step: compiling everything, and from the cache."""
    code = (
        "from horde_agent.bench import workload as w; from tests.bench import bench_learning as b\n"
        "step = b.horde_step(w.constant_action_questions(), w.stream(3))\n"
        "step(0)\n"
    )
    with tempfile.TemporaryDirectory() as cache:
        spent = []
        for _ in range(2):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache})
            spent.append(time.perf_counter() - begin)
    return spent[0], spent[1]


def main(n_steps: int = 600, n_gibbs_steps: int = 200) -> dict[str, object]:
    """Return medians in milliseconds, the ratios to the better NumPy version, and the times of a first step."""
    stream = workload.stream(n_steps + 1)
    w1, w2 = workload.constant_action_questions(), workload.gibbs_questions(1000)
    ms = interleaved(
        {
            "w1_ms": horde_step(w1, stream),
            "w1_without_vector_mspbe_ms": horde_step(w1, stream, vector_mspbe=False),
            "w1_importance_weighted_ms": horde_step(w1, stream, w_rule="importance-weighted"),
            "w1_f64_ms": horde_step(w1, stream, dtype="float64"),
            "numpy_learner_major_ms": numpy_step(LearnerMajor, stream),
            "numpy_feature_major_ms": numpy_step(FeatureMajor, stream),
        },
        n_steps,
    )
    ms |= interleaved({"w2_ms": horde_step(w2, stream)}, n_gibbs_steps)
    best = min(ms["numpy_learner_major_ms"], ms["numpy_feature_major_ms"])
    compile_s, cached_s = start_times()
    result = {name: round(value, 3) for name, value in ms.items()}
    result |= {
        "w1_vs_numpy": round(best / ms["w1_ms"], 1),
        "w1_without_vector_mspbe_vs_numpy": round(best / ms["w1_without_vector_mspbe_ms"], 1),
        "first_start_s": round(compile_s, 1),
        "cached_start_s": round(cached_s, 2),
        "threads": numba.get_num_threads(),
    }
    return {**result, "layer": numba.threading_layer(), "cpu": platform.processor() or platform.machine()}


if __name__ == "__main__":
    print(json.dumps(main()))
