"""What the online estimates of the MSPBE cost: with and without them, by turns, in one run.

The vector estimate can be switched off. The scalar one is a filter of numbers that a step has at hand, one line of each
engine's step. That line is timed by itself, where it has to fetch these numbers first: it costs at most so much.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from horde_agent.bench import workload
from horde_agent.bench.competitors import Learning
from horde_agent.bench.measure import MODERATE, THOROUGH, measure, timed
from horde_agent.bench.sections import Bench
from horde_agent.gvf import GVF
from horde_agent.types import Reals

_DEMONS = 1_024
_ROUNDS, _TURNS = 500, 40


class Cost(NamedTuple):
    """Milliseconds per step, without an estimate and with it."""

    without: float
    with_it: float

    @property
    def share(self) -> float:
        """What it adds, as a share of the step without it."""
        return self.with_it / self.without - 1.0


def estimates(bench: Bench) -> dict[str, Cost]:
    """Return the costs of the estimates, by name."""
    w1 = workload.constant_action_questions()
    w2 = workload.gibbs_questions(1_000, n_features=bench.stream.n_features)
    bench.say("MSPBE: the vector estimate")
    found = {
        "vector, 795 questions": _vector(w1, bench.stream),
        "vector, 1,000 Gibbs policies": _vector(w2, bench.stream),
        "vector, 795 questions, plain engine": _vector(w1, bench.stream, engine="plain"),
    }
    bench.say("MSPBE: the scalar estimate")
    hordes = {"span": Learning(w2, bench.stream), "plain": Learning(w1, bench.stream, engine="plain")}
    times = measure(hordes, MODERATE)
    for name, engine, added in (
        ("scalar, 1,000 Gibbs policies", "span", scalar_ms(len(w2))),
        ("scalar, 795 questions, plain engine", "plain", scalar_ms(len(w1))),
    ):
        found[name] = Cost(times[engine].mean - added, times[engine].mean)
    return found


def _vector(questions: list[GVF], stream: workload.Stream, **config: Any) -> Cost:
    """Return what the vector estimate costs."""
    times = measure(
        {kind: Learning(questions, stream, vector_mspbe=kind == "with", **config) for kind in ("without", "with")},
        THOROUGH,
    )
    return Cost(times["without"].mean, times["with"].mean)


# ---- the scalar estimate's filter ------------------------------------------------------------------------------------


def scalar_ms(n_demons: int, dtype: type[np.floating] = np.float32) -> float:
    """Return the milliseconds that s += (delta (e.w) - s) / tau takes for so many demons by itself, on one thread."""
    s, delta, e_w = (np.random.default_rng(k).uniform(0.1, 0.2, _DEMONS).astype(dtype) for k in range(3))
    compiled: Any = numba.njit(_filter_often, nogil=True, error_model="numpy")  # never from a cache
    one_over_tau = dtype(1e-4)
    compiled(s, delta, e_w, one_over_tau, 1)
    quickest = min(timed(lambda _: compiled(s, delta, e_w, one_over_tau, _ROUNDS), 0) for _ in range(_TURNS))
    return 1e3 * quickest / (_ROUNDS * _DEMONS) * n_demons


def _filter_often(s: Reals, delta: Reals, e_w: Reals, one_over_tau: float, n: int) -> None:
    """Take the same step of the scalar estimates n times, in place; all arrays of shape (n_demons,)."""
    for k in range(n):
        e_w[k % e_w.shape[0]] += one_over_tau  # else the rounds were one
        for i in range(s.shape[0]):
            s[i] += one_over_tau * (delta[i] * e_w[i] - s[i])
