"""Print the weights of lives that continue in a forked process, then those of its parent: `python -m`."""

from __future__ import annotations

import multiprocessing

import numpy as np

from horde_agent.bench import workload
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.policies import Gibbs
from tests.agent.short_lives import Recorded


class Lives:
    """Two multi-threaded engines and a table of policies, used before the fork."""

    def __init__(self) -> None:
        self.stream = workload.stream(40)
        questions = workload.constant_action_questions()[:300]
        # Kernels that other tests compile
        plain = Recorded(questions, self.stream, engine="plain", dtype="float64")
        self.learners = [Recorded(questions, self.stream), plain]
        rng = np.random.default_rng(0)
        self.table = GibbsTable(
            [Gibbs.random(rng, 3, 40, 4) for _ in range(2_048)], np.arange(2_048)
        )
        self.go_on(0, 5)

    def go_on(self, first: int, last: int) -> list[str]:
        """Continue, and return hashes of the weights and a sum of ratios."""
        for t in range(first, last):
            for learner in self.learners:
                learner(t)
        ratios = np.zeros(2_048)
        self.table.ratios(np.arange(first, last), 1, 0.5, ratios)
        return [learner.horde.weights_sha256() for learner in self.learners] + [
            repr(float(ratios.sum()))
        ]


def in_fork(_: int) -> list[str]:
    return [*lives.go_on(5, 12), *Lives().go_on(5, 12)]


lives: Lives

if __name__ == "__main__":
    lives = Lives()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(*pool.map_async(in_fork, [0]).get(timeout=200.0)[0], sep="\n")
    print(*lives.go_on(5, 12), sep="\n")
