"""A restored Horde learns the same as the saved one, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Uniform

ROOT = Path(__file__).resolve().parents[2]
N_FEATURES, N_ACTIVE, N_CHANNELS, N_ACTIONS = 60, 6, 4, 3


def family() -> list[GVF]:
    rng = np.random.default_rng(1)
    policies: list[Any] = [ConstantAction(a, N_ACTIONS) for a in range(N_ACTIONS)]
    policies += [Uniform(N_ACTIONS), Behaviour()]
    policies += [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 9) for _ in range(5)]
    return [
        GVF(f"{i}/{c}/{g}", p, Channel(c), g)
        for i, p in enumerate(policies)
        for c in range(N_CHANNELS)
        for g in (0.0, 0.8, 0.97)
    ]


def stream(n: int) -> list[tuple[int, float, np.ndarray, np.ndarray, bool]]:
    rng = np.random.default_rng(2)
    return [
        (
            int(rng.integers(N_ACTIONS)),
            float(rng.choice([0.2, 0.6])),
            rng.random(N_CHANNELS),
            np.sort(rng.choice(N_FEATURES, N_ACTIVE, replace=False)),
            bool(rng.random() < 0.02),
        )
        for _ in range(n)
    ]


def live(horde: Horde, steps: Sequence[Any], *, begins: bool) -> None:
    for action, b, observation, tiles, is_last in steps:
        if begins:
            horde.begin(observation, tiles)
        else:
            horde.learn(action, b, observation, tiles, terminated=is_last)
        begins = not begins and is_last


def answers(horde: Horde) -> list[Any]:
    found = [*horde.weights(), horde.predictions, horde.mspbe_scalar, horde.mspbe_vector(), horde.max_traces, horde.rho]
    found += [horde.ratio_totals(), horde.n_skipped]
    return [array.tobytes() for array in found] + [horde.divergence_reason, horde.skipped_because, horde.n_updated]


def test_a_state_that_was_copied_over_many_steps_by_an_earlier_version_is_refused() -> None:
    """It has blocks of weights of different steps: nothing may learn on from them."""
    horde = many()
    state = horde.state()
    engine = {name: array for name, array in state.items() if name.startswith("engine/")}
    old = {name: array for name, array in state.items() if name not in engine} | {"engine/put_in_at": np.zeros((3, 3))}
    with pytest.raises(ValueError, match="replay"):
        horde.restore(old)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_rows_used_after_the_snapshot_are_cleared_by_restore(mode: Mode) -> None:
    """A state contains only the rows in use, 512 of 1,300; the restored Horde had used all of them."""
    n_features, rng = 1_300, np.random.default_rng(5)
    questions = family()[: 5 * N_CHANNELS * 3]  # Gibbs policies depend on the number of features
    widest = np.minimum(100 + 4 * np.arange(400), n_features)
    steps = [
        (*step[:3], np.sort(rng.choice(n, N_ACTIVE, replace=False)), False)
        for step, n in zip(stream(400), widest.tolist(), strict=True)
    ]

    def new() -> Horde:
        return Horde(questions, n_features=n_features, n_active=N_ACTIVE, mode=mode)

    whole, again = new(), new()
    live(whole, steps[:70], begins=True)
    state = whole.state()
    assert state["engine/theta"].size * 2 < again.weights()[0].size, "of all features it holds less than half"
    live(whole, steps[70:], begins=False)
    live(again, steps[::-1], begins=True)
    again.restore(state)
    live(again, steps[70:], begins=False)
    assert answers(again) == answers(whole)


THREADS = """
import sys
from pathlib import Path
import numba
import numpy as np
from tests.agent.test_states import answers, many, live, stream
assert numba.config.NUMBA_NUM_THREADS == int(sys.argv[1])
horde, (of_file, from_step, to_step) = many(), (Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
if from_step:
    with np.load(of_file) as state:
        horde.restore(dict(state))
live(horde, [(*step[:4], False) for step in stream(400)[from_step:to_step]], begins=from_step == 0)
np.savez(of_file, **horde.state())
print(hash(tuple(map(str, answers(horde)))))
"""


def many() -> Horde:
    """Return a Horde that is shared out to threads: 3,200 demons."""
    rng = np.random.default_rng(3)
    policies = [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 9) for _ in range(400)]
    questions = [
        GVF(f"{i} {c} {g}", p, Channel(c), g) for i, p in enumerate(policies) for c in range(4) for g in (0, 0.9)
    ]
    return Horde(questions, n_features=N_FEATURES, n_active=N_ACTIVE, mode="deferred")


def test_weights_do_not_depend_on_the_number_of_threads_after_a_restore(tmp_path: Path) -> None:
    """No sum crosses a lane; what the threads have of their own is no part of the state."""

    def lived(name: str, *spans: tuple[int, int, int]) -> str:
        said = ""
        for n_threads, begin, end in spans:
            words = [sys.executable, "-c", THREADS, *map(str, (n_threads, tmp_path / f"{name}.npz", begin, end))]
            env = os.environ | {"NUMBA_NUM_THREADS": str(n_threads), "PYTHONHASHSEED": "0"}
            run = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr
            said = run.stdout
        return said

    assert lived("one", (1, 0, 170), (2, 170, 300)) == lived("two", (2, 0, 300))


def test_a_demon_flagged_while_others_were_added_diverges_after_a_restore() -> None:
    """Deferred steps are flushed when demons are added; only then the weight exceeds its bound."""
    questions = [GVF("wild", Behaviour(), Channel(0), 0.9)]
    steps = [(*step[:4], False) for step in stream(60)]

    def new(n_steps: int) -> Horde:
        config = LearnerConfig(step_size=12.0, trace_rule="plain")
        horde = Horde(questions, n_features=N_FEATURES, n_active=N_ACTIVE, config=config)
        live(horde, steps[:n_steps], begins=True)
        horde.add([GVF("new", ConstantAction(0, N_ACTIONS), Channel(2), 0.5)])
        return horde

    whole = next(horde for horde in map(new, range(1, 60)) if horde._engine.flags)
    again = new(0)
    again.restore(whole.state())
    assert again.n_diverged == 0
    assert again.diverged == whole.diverged == ["wild"]
    assert again.divergence_reason == whole.divergence_reason
