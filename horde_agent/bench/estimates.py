"""What the online estimates of the MSPBE cost: with and without them, by turns, in one run.

The vector estimate can be switched off. The scalar one is a filter of numbers that a step has at hand. In the span
engine it is two lines of the lanes' step (`kernels/span/step.py`), which run here over lanes by themselves, vectors and
all; in the plain engine a line of each demon's step (`kernels/plain.py`). Both are timed by themselves: within a step,
whose numbers they use, they cost no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.bench import workload
from horde_agent.bench.competitors import Learning
from horde_agent.bench.measure import MODERATE, THOROUGH, measure, timed
from horde_agent.bench.sections import Bench
from horde_agent.gvf import GVF
from horde_agent.kernels.vectors import lanes_of, load, store, wide_zeros

Reals = NDArray[Any]

_LANES = 1_024
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
        ("scalar, 795 questions, plain engine", "plain", plain_scalar_ms(len(w1))),
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


# ---- the lines that make it -----------------------------------------------------------------------------------------


def scalar_ms(n_demons: int) -> float:
    """Return the milliseconds that the scalar estimate takes in a step of so many demons, on one thread."""

    def take(delta: Reals, e_w: Reals, estimate: Reals, one_over_tau: float) -> None:
        zero = wide_zeros(delta)
        for _ in range(_ROUNDS):
            for lane in range(0, _LANES, lanes_of(zero)):
                s = load(estimate, lane, zero)
                s = s + one_over_tau * (load(delta, lane, zero) * load(e_w, lane, zero) - s)
                store(estimate, lane, s)

    return _quickest_ms(take, np.float32) * n_demons


def plain_scalar_ms(n_demons: int) -> float:
    """Return the milliseconds that the same filter takes in the plain engine, on one thread."""

    def take(delta: Reals, e_w: Reals, estimate: Reals, one_over_tau: float) -> None:
        for _ in range(_ROUNDS):
            for i in range(estimate.shape[0]):
                estimate[i] += one_over_tau * (delta[i] * e_w[i] - estimate[i])

    return _quickest_ms(take, np.float64) * n_demons


def _quickest_ms(take: Callable[..., None], dtype: Any) -> float:
    """Return the milliseconds per lane of the quickest of several turns."""
    compiled: Any = numba.njit(take, nogil=True, error_model="numpy")  # never from a cache
    lanes = np.random.default_rng(0).uniform(0.1, 0.2, (3, _LANES)).astype(dtype)
    compiled(*lanes, 1e-4)
    quickest = min(timed(lambda _: compiled(*lanes, 1e-4), 0) for _ in range(_TURNS))
    return 1e3 * quickest / (_ROUNDS * _LANES)
