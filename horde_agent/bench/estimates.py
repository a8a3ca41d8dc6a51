"""What the online estimates of the MSPBE cost: with and without them, by turns, in one run.

The vector estimate can be switched off. The scalar one is a filter of numbers that a step has at hand. In the span
engine it is a line of the lanes' step (`kernels/lanes.py`): the step is compiled once more with that line left out, and
both run over the same numbers by turns. In the plain engine it is a line of a loop (`kernels/gtd.py`), timed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.bench import workload
from horde_agent.bench.competitors import Learning
from horde_agent.bench.measure import MODERATE, THOROUGH, measure, timed
from horde_agent.bench.sections import Bench
from horde_agent.gvf import GVF
from horde_agent.kernels import lanes, vectors

Reals = NDArray[Any]

_LANES, _WIDTH = 1_024, 128
_ROUNDS, _TURNS = 500, 40


class Cost(NamedTuple):
    """Milliseconds per step, without an estimate and with it."""

    without: float
    with_it: float

    @property
    def share(self) -> float:
        """What it adds, as a share of the step without it."""
        return self.with_it / self.without - 1.0


class _Without:
    """Lanes whose scalar estimate is neither read nor written."""

    def __init__(self, at: Any) -> None:
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def __getitem__(self, row: int) -> Any:
        return self._at[lanes.V if row == lanes.S else row]  # what is made of it goes nowhere, and is not compiled

    def __setitem__(self, row: int, number: Any) -> None:
        if row != lanes.S:
            self._at[row] = number


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


# ---- the line of the lanes' step ------------------------------------------------------------------------------------


def scalar_ms(n_demons: int) -> float:
    """Return the milliseconds that the scalar estimate adds to a step of so many demons, on one thread."""
    whole, less = (steps_of_lanes(is_left_out=left_out) for left_out in (False, True))
    took = [[_taken_s(step) for step in (whole, less)] for _ in range(_TURNS)]
    quickest = np.min(took, axis=0)  # the two differ by less than the neighbours disturb
    return 1e3 * float(quickest[0] - quickest[1]) / (_ROUNDS * _LANES) * n_demons


def _taken_s(step: Callable[[Reals], None]) -> float:
    rows = lanes_at_first()
    return timed(lambda _: step(rows), 0)


def lanes_at_first() -> Reals:
    """Return numbers of 1,024 lanes, such as a life might bring."""
    rows = np.random.default_rng(0).uniform(0.1, 0.2, (lanes.N_ROWS, _LANES)).astype(np.float32)
    rows[[lanes.ALPHA, lanes.ALPHA_W]] = 1e-4
    return rows


def steps_of_lanes(*, is_left_out: bool) -> Callable[[Reals], None]:
    """Return a function that lets 1,024 lanes take 500 steps in place, the scalar estimate left out or not."""
    formula, numbers = lanes.busy_step, np.zeros(lanes.N_NUMBERS, dtype=np.float32)
    numbers[[lanes.NORM, lanes.NORM_TP1, lanes.ON]] = 457.0, 457.0, 320.0
    numbers[[lanes.MOST, lanes.DECAYS, lanes.CLIPS, lanes.ONE_OVER_TAU]] = 1.0, 1.0, 1.0, 1e-4
    past = np.zeros(2 * _WIDTH, dtype=np.float32)

    def take(rows: Reals, numbers: Reals, past: Reals) -> None:
        for _ in range(_ROUNDS):
            for start in range(0, _LANES, _WIDTH):
                vectors.take_busy_step(rows, start, _WIDTH, numbers, past, 0, past, 0, past, 0, past)

    def without(at: Any, number: Any) -> None:
        formula(_Without(at), number)

    compiled: Any = numba.njit(take, nogil=True, error_model="numpy")  # never from a cache
    with mock.patch.object(lanes, "busy_step", without if is_left_out else formula):
        compiled(lanes_at_first(), numbers, past)
    return lambda rows: compiled(rows, numbers, past)


def plain_scalar_ms(n_demons: int) -> float:
    """Return the milliseconds that the same filter takes in the plain engine, on one thread."""

    def take(rows: Reals, one_over_tau: float) -> None:
        for _ in range(_ROUNDS):
            for i in range(rows.shape[1]):
                rows[lanes.S, i] += one_over_tau * (rows[lanes.DELTA, i] * rows[lanes.Y, i] - rows[lanes.S, i])

    compiled: Any = numba.njit(take, nogil=True, error_model="numpy")
    compiled(lanes_at_first(), 1e-4)
    quickest = min(_taken_s(lambda rows: compiled(rows, 1e-4)) for _ in range(_TURNS))
    return 1e3 * quickest / (_ROUNDS * _LANES) * n_demons
