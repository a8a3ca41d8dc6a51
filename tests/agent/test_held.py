"""Copies of a Horde, forks of its process, parallel loops from a cache: addresses and threads of one process."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent import Horde, LearnerConfig
from horde_agent.bench import workload

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize(("config", "n"), [({}, 40), ({"engine": "plain"}, 4)], ids=["span", "plain"])
@pytest.mark.parametrize("made", [copy.deepcopy, lambda horde: pickle.loads(pickle.dumps(horde))])
def test_a_copy_of_a_horde_learns_as_the_horde_does(config: dict[str, str], n: int, made: object) -> None:
    """Addresses are not copied: they would point into the original, or be invalid in another process."""
    stream = workload.stream(12)
    horde = Horde(
        [*workload.gibbs_questions(n), *workload.constant_action_questions()[: n // 2]],
        n_features=stream.n_features,
        n_active=stream.n_active,
        config=LearnerConfig(**config),  # type: ignore[arg-type]
    )
    horde.begin(stream.sensors[0], stream.tiles[0])

    def run(who: Horde, first: int, last: int) -> NDArray[np.float64]:
        for t in range(first, last):
            who.learn(
                int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
            )
        return who.predictions.copy()

    run(horde, 0, 5)
    twin = made(horde)  # type: ignore[operator]
    want = run(horde, 5, 10)
    np.testing.assert_array_equal(run(twin, 5, 10), want)
    assert (want != 0).any()


_COMPUTE_RATIOS = """
import numpy as np
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.policies import Gibbs
rng, out = np.random.default_rng(0), np.zeros(2_048)
table = GibbsTable([Gibbs.random(rng, 3, 40, 4) for _ in out], np.arange(2_048))
table.ratios(np.arange(5), 1, 0.5, out)
print(table._n_threads, float(out.sum()))
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter reads nothing from a cache")
def test_a_process_may_begin_with_a_parallel_loop_from_the_cache() -> None:
    """The second process calls it from the cache before it uses numba's threads in any other way."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    said = [
        subprocess.run(
            [sys.executable, "-c", _COMPUTE_RATIOS], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1]
    assert said[0].startswith("2 ")


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter has one thread")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_continues_with_one_thread() -> None:
    """OpenMP terminates a fork that uses its parent's threads, and a Pool then starts another one, without end.

    The fork, a Horde created in the fork, and the parent learn the same, bit for bit.
    """
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "tests.agent.forked_lives"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    continued, created, parent = (ran.stdout.split()[k : k + 3] for k in (0, 3, 6))
    assert continued == created == parent
    assert len(set(parent)) == 3
