"""A step of a Horde against vectorised NumPy and a dense compiled pass, by turns in one run."""

from __future__ import annotations

from typing import Any

from horde_agent.bench import workload
from horde_agent.bench.command import THOROUGH, Effort, Times, measure
from horde_agent.bench.learning import Learning, Step
from tests.bench.competitors import of_constant_actions, of_own_policies, ratios

# A baseline has no bursts and uses all its memory on each step: fewer steps of it are timed
EFFORT_OF_BASELINE = Effort(first=16, chunk=136, n_chunks=THOROUGH.n_chunks, warm_up=8)
N_GIBBS = 1_000


def compare(horde: Step, baselines: dict[str, Step]) -> dict[str, float]:
    """Return how many times as long as a step of a Horde one of each baseline takes, and the Horde's in ms."""
    efforts = dict.fromkeys(baselines, EFFORT_OF_BASELINE)
    times: dict[str, Times] = measure({"Horde": horde, **baselines}, THOROUGH, efforts)
    own_ms = times["Horde"].mean
    figures = {name: round(times[name].mean / own_ms, 1) for name in baselines}
    return {"ms_per_step": round(own_ms, 4), **figures}


def main() -> dict[str, Any]:
    """Measure the 795 questions about constant actions and 1,000 about Gibbs policies."""
    stream = workload.stream(THOROUGH.n_steps + 1)
    constant = workload.constant_action_questions()
    gibbs = workload.gibbs_questions(N_GIBBS)
    rho = ratios(gibbs, stream, THOROUGH.n_steps)
    return {
        "795": compare(
            Learning(constant, stream), of_constant_actions(constant, stream, THOROUGH.n_steps)
        ),
        "1000": compare(Learning(gibbs, stream), of_own_policies(gibbs, stream, rho)),
        "1000, deferred": compare(
            Learning(gibbs, stream, "deferred"), of_own_policies(gibbs, stream, rho)
        ),
    }
