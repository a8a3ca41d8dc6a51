"""Arrays held in native form, and kernels called by their address."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from horde_agent.kernels.entry import entry_of, share_out
from horde_agent.kernels.held import hold, look_into
from numpy.typing import NDArray

from horde_agent import Horde, LearnerConfig
from horde_agent.bench import workload
from horde_agent.kernels._jit import entry_kernel, kernel

pytestmark = pytest.mark.kernels


class Inner(NamedTuple):
    """Some items of different types."""

    rows: NDArray[np.float32]
    is_odd: bool
    factor: float


class Outer(NamedTuple):
    """A named tuple in a named tuple."""

    first: NDArray[np.int64]
    inner: Inner
    visits: NDArray[np.int64]


def some(is_odd: bool = True) -> Outer:
    """Return arrays whose every item is another number."""
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    return Outer(np.arange(5) + 100, Inner(rows, is_odd, 0.5), np.zeros((4, 5), dtype=np.int64))


@kernel
def read(held: Outer, out: NDArray[np.float64]) -> None:
    parts = look_into(held)
    inner = parts.inner
    out[0], out[1], out[2], out[3] = parts.first[4], inner.rows[2, 1], inner.factor, inner.is_odd


@entry_kernel
def note_visit(held: Outer, hand: int, one: int, other: int, n_hands: int) -> None:
    visits = look_into(held).visits[hand]
    visits[0] += 1
    visits[1], visits[2], visits[3], visits[4] = hand, one, other, n_hands


@pytest.mark.parametrize("is_odd", [False, True])
def test_what_is_held_is_read_as_from_the_tuple_itself(is_odd: bool) -> None:
    parts, out = some(is_odd), np.zeros(4)
    held = hold(parts)
    read(held, out)
    assert out.tolist() == [104, 9, 0.5, is_odd]

    parts.inner.rows[2, 1] = -7
    read(held, out)
    assert out[1] == -7, "held are the arrays, not their numbers"


def test_what_is_held_outlives_the_one_who_made_it() -> None:
    held, out = hold(some()), np.zeros(4)
    _ = [np.full(64, 9.0) for _ in range(100)]  # whoever frees too early finds these
    read(held, out)
    assert out.tolist() == [104, 9, 0.5, 1]


@pytest.mark.parametrize("n_hands", [1, 2, 4])
def test_each_hand_is_called_once_with_its_number(n_hands: int) -> None:
    parts = some()
    held = hold(parts)
    share_out(entry_of(note_visit, held, 0, 0, 0, 1), held, 7, -8, n_hands)
    want = [[1, hand, 7, -8, n_hands] for hand in range(n_hands)] + [[0] * 5] * (4 - n_hands)
    np.testing.assert_array_equal(parts.visits, want)


@pytest.mark.parametrize("config", [{}, {"engine": "plain"}])
@pytest.mark.parametrize("made", [copy.deepcopy, lambda horde: pickle.loads(pickle.dumps(horde))])
def test_a_copy_of_a_horde_goes_on_as_the_horde_does(config: dict[str, str], made: object) -> None:
    """Addresses are not copied: they would point into the original, or nowhere in another process."""
    stream = workload.stream(12)
    horde = Horde(
        [*workload.gibbs_questions(40), *workload.constant_action_questions()[:20]],
        n_features=stream.n_features,
        n_active=stream.n_active,
        config=LearnerConfig(**config),  # type: ignore[arg-type]
    )
    horde.begin(stream.sensors[0], stream.tiles[0])

    def live(who: Horde, first: int, last: int) -> NDArray[np.float64]:
        for t in range(first, last):
            who.learn(
                int(stream.actions[t]), float(stream.probabilities[t]), stream.sensors[t + 1], stream.tiles[t + 1]
            )
        return who.predictions.copy()

    live(horde, 0, 5)
    twin = made(horde)  # type: ignore[operator]
    want = live(horde, 5, 10)
    np.testing.assert_array_equal(live(twin, 5, 10), want)
    assert (want != 0).any()


_ASK_FOR_RATIOS = """
import numpy as np
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.policies import Gibbs
rng, out = np.random.default_rng(0), np.zeros(2_048)
table = GibbsTable([Gibbs.random(rng, 3, 40, 4) for _ in out], np.arange(2_048))
table.ratios(np.arange(5), 1, 0.5, out)
print(table._n_hands, float(out.sum()))
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter reads nothing from a cache")
def test_a_process_may_begin_with_a_parallel_loop_from_the_cache(tmp_path: Path) -> None:
    """What the first one compiled, the second calls before it has asked numba for threads in any other way."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": "2"}
    said = [
        subprocess.run(
            [sys.executable, "-c", _ASK_FOR_RATIOS], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1]
    assert said[0].startswith("2 ")


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter has one thread")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_learns_on_with_one_thread() -> None:
    """OpenMP ends a fork that asks for its parent's threads, and a Pool then starts the next one, for ever.

    What is learned is the same, bit for bit, by the fork, by a Horde that the fork makes, and by the parent.
    """
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "tests.agent.forked_lives"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    went_on, anew, parent = (ran.stdout.split()[k : k + 3] for k in (0, 3, 6))
    assert went_on == anew == parent
    assert len(set(parent)) == 3
