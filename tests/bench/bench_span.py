"""The span engine against the plain one and NumPy: milliseconds per step, engines alone and through the Horde.

    python -m tests.bench.bench_span [w1|w2]    795 constant-action questions, 1000 Gibbs policies
    python -m tests.bench.bench_span 10000      10,000 Gibbs policies, the span engine alone

prints one JSON object. Means over the steps after a warm-up (writing comes in bursts, so that medians would flatter);
all competitors see the same transitions, in turn, a chunk at a time: quote the ratios.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import numba
import numpy as np

from horde_agent.bench import workload
from horde_agent.bench.competitors import FeatureMajor, LearnerMajor
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from horde_agent.learning.engine import Engine
from tests.bench.bench_learning import SETTLE_S, horde_step, numpy_step

CHUNK, WARM_UP = 192, 10  # steps; a chunk holds several writings
Step = Callable[[int], object]


def span_horde(questions: Sequence[GVF], config: LearnerConfig) -> Horde:
    """Return a Horde on the span engine."""
    horde = Horde(questions, n_features=workload.N_FEATURES, n_active=workload.N_ACTIVE, config=config)
    assert isinstance(horde._engine, SpanEngine)
    return horde


def signals_of(horde: Horde, stream: workload.Stream) -> list[Signals]:
    """Return the signals of every step."""
    out, maker, states = [], horde._maker, list(zip(stream.sensors, stream.tiles, strict=True))
    for t in range(len(states) - 1):
        action, b = int(stream.actions[t]), float(stream.probabilities[t])
        maker.make(action, b, states[t], states[t + 1], lambda *_: 0.0, terminated=False)
        signals = maker.signals
        out.append(signals._replace(rho_t=signals.rho_t.copy(), c_tp1=signals.c_tp1.copy()))  # what else differs never
    return out


def engine_step(engine: Engine, signals: list[Signals], stream: workload.Stream) -> Step:
    """Return a function that learns from transition t, the ratios computed beforehand."""
    engine.begin(stream.tiles[0])
    return lambda t: engine.learn(stream.tiles[t + 1], signals[t])


def plain_engine(horde: Horde, config: LearnerConfig) -> PlainEngine:
    """Return the plain engine for the same questions."""
    alpha, of = config.step_size / workload.N_ACTIVE, horde._maker
    args = (of.group, workload.N_FEATURES, alpha, config.secondary_ratio * alpha, config)
    return PlainEngine(*args, policy=of.policy, cumulant=of.cumulant)


def through_the_horde(horde: Horde, stream: workload.Stream) -> Step:
    """Return a function that learns from transition t, checks and policies included."""
    horde.begin(stream.sensors[0], stream.tiles[0])
    return lambda t: horde.learn(
        int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
    )


def means(steps: dict[str, Step], n: int) -> dict[str, float]:
    """Return the mean milliseconds of each competitor over the same n transitions, a chunk of them at a time."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for first in range(0, n, CHUNK):
        for name, step in steps.items():
            time.sleep(SETTLE_S)
            for t in range(first, min(n, first + CHUNK)):
                begin = time.perf_counter()
                step(t)
                if t >= first + WARM_UP and first > 0:
                    times[name].append(time.perf_counter() - begin)
    return {name: 1e3 * float(np.mean(spent)) for name, spent in times.items()}


def w1(n_steps: int) -> dict[str, float]:
    """Return the times of the paper's 795 questions."""
    stream, questions = workload.stream(n_steps + 1), workload.constant_action_questions()
    steps: dict[str, Step] = {}
    signals: list[Signals] = []
    for name, config in {
        "w1_importance_weighted": LearnerConfig(w_rule="importance-weighted", vector_mspbe=False),
        "w1_every_step": LearnerConfig(vector_mspbe=False),
        "w1_every_step_vector": LearnerConfig(),
        "w1_f64": LearnerConfig(w_rule="importance-weighted", vector_mspbe=False, dtype="float64"),
    }.items():
        horde = span_horde(questions, config)
        signals = signals or signals_of(horde, stream)
        steps[f"{name}_ms"] = engine_step(horde._engine, signals, stream)
        steps[f"plain_{name}_ms"] = engine_step(plain_engine(horde, config), signals, stream)
    config = LearnerConfig(w_rule="importance-weighted", vector_mspbe=False)
    steps["w1_through_the_horde_ms"] = through_the_horde(span_horde(questions, config), stream)
    steps["plain_w1_through_the_horde_ms"] = horde_step(
        questions, stream, w_rule="importance-weighted", vector_mspbe=False
    )
    steps["numpy_learner_major_ms"] = numpy_step(LearnerMajor, stream)
    steps["numpy_feature_major_ms"] = numpy_step(FeatureMajor, stream)
    return means(steps, n_steps)


def w2(n_steps: int, n_demons: int, *, alone: bool = False) -> dict[str, float]:
    """Return the times of `n_demons` Gibbs policies."""
    stream, questions = workload.stream(n_steps + 1), workload.gibbs_questions(n_demons)
    horde = span_horde(questions, LearnerConfig(vector_mspbe=False))
    signals = signals_of(horde, stream)
    steps = {f"gibbs_{n_demons}_ms": engine_step(horde._engine, signals, stream)}
    if not alone:
        wide = LearnerConfig(vector_mspbe=False, dtype="float64")
        steps["gibbs_f64_ms"] = engine_step(span_horde(questions, wide)._engine, signals, stream)
        steps["plain_gibbs_ms"] = engine_step(plain_engine(horde, horde.config), signals, stream)
        steps["gibbs_through_the_horde_ms"] = through_the_horde(span_horde(questions, horde.config), stream)
    return means(steps, n_steps)


def main() -> None:
    """Print the chosen times as JSON."""
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    if which.isdigit():
        result = w2(3 * CHUNK, int(which), alone=True)
    else:
        result = {**(w1(3 * CHUNK) if which != "w2" else {}), **(w2(3 * CHUNK, 1000) if which != "w1" else {})}
    print(json.dumps({**{k: round(v, 4) for k, v in result.items()}, "threads": numba.get_num_threads()}, indent=1))


if __name__ == "__main__":
    main()
