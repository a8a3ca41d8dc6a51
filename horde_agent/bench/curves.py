"""Curves of cost: milliseconds per step, eager and deferred, against what makes it grow."""

from __future__ import annotations

from typing import TypedDict

from horde_agent.bench import workload
from horde_agent.bench.competitors import LAMBDA, Learning
from horde_agent.bench.measure import MODERATE, measure
from horde_agent.bench.sections import Bench
from horde_agent.gvf import GVF

_SHARES = (0.25, 0.5, 0.75, 1.0)


class Curve(TypedDict):
    """Points of one curve: x, and ms per step in either mode."""

    x: list[float]
    eager: list[float]
    deferred: list[float]


def curves(bench: Bench) -> dict[str, Curve]:
    """Return the curves, by the name of what varies; 1,000 Gibbs policies on the bench's stream where that does not."""
    whole, n = bench.stream, bench.stream.n_features
    points: dict[str, list[tuple[float, list[GVF], workload.Stream]]] = {
        "demons": [(d, workload.gibbs_questions(d, n_features=n), whole) for d in (100, 300, 1_000, 3_000, 10_000)],
        "features": [
            (s.n_features, workload.gibbs_questions(1_000, n_features=s.n_features), s)
            for s in (workload.thinned(whole, share) for share in _SHARES)
        ],
        "active share": [
            (s.n_active / s.n_features, workload.gibbs_questions(1_000, n_features=n), s)
            for s in (workload.thinned(whole, share, is_renumbered=False) for share in _SHARES)
        ],
        "switching share": [
            (s.share_switched, workload.gibbs_questions(1_000, n_features=n), s) for s in bench.lively()
        ],
        "gamma lambda": [
            (LAMBDA * gamma, workload.gibbs_questions(1_000, n_features=n, gammas=(gamma,)), whole)
            for gamma in (0.0, 0.5, 0.8, 0.95, 0.99)
        ],
    }
    found = {}
    for name, of_curve in points.items():
        bench.say(f"curve: {name}")
        times = [_cost(questions, stream) for _, questions, stream in of_curve]
        eager, deferred = (list(column) for column in zip(*times, strict=True))
        found[name] = Curve(x=[float(x) for x, _, _ in of_curve], eager=eager, deferred=deferred)
    return found


def _cost(questions: list[GVF], stream: workload.Stream) -> tuple[float, float]:
    """Return milliseconds per step, eager and deferred, taken by turns."""
    hordes = {"eager": Learning(questions, stream), "deferred": Learning(questions, stream, "deferred")}
    times = measure(hordes, MODERATE)
    return times["eager"].mean, times["deferred"].mean
