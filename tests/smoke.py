"""A first life on any system: `python tests/smoke.py FOLDER` learns by the command, then in two threads at once.

The simulated Critterbot lives for 2,000 steps on the planar engine, with its recording, snapshot
and report. Then two Hordes of 100 questions learn 500 steps each from random walks, at the same
time; each must come out as alone.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from horde_agent import GVF, Channel, Horde, LearnerConfig, Uniform
from horde_agent.cli import main as horde

N_STEPS = 2_000
N_QUESTIONS = 100
N_WALK = 500
N_PLACES = 50


def walk(seed: int) -> str:
    """Return the hash of the weights that a Horde learns from a random walk around a ring."""
    gammas = np.linspace(0.0, 0.95, N_QUESTIONS)
    questions = [GVF(f"at {gamma:.4f}", Uniform(2), Channel(0), float(gamma)) for gamma in gammas]
    learner = Horde(
        questions, n_features=N_PLACES, n_active=1, config=LearnerConfig.paper(step_size=0.1)
    )
    rng = np.random.default_rng(seed)
    place = 0
    learner.begin(np.array([0.0]), np.array([place]))
    for _ in range(N_WALK):
        action = int(rng.integers(2))
        place = (place + 2 * action - 1) % N_PLACES
        learner.learn(action, 0.5, np.array([place / N_PLACES]), np.array([place]))
    return learner.weights_sha256()


def main(folder: str) -> int:
    """Run both parts and return the exit code."""
    run = Path(folder) / "run"
    code = horde(
        ["learn", "--physics", "planar", "--steps", str(N_STEPS), "--seed", "0", "--out", str(run)]
    )
    if code != 0:
        return code
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["steps"] == N_STEPS
    assert summary["diverged"] == []
    assert (run / "report.html").is_file()

    alone = [walk(seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(walk, (1, 2)))
    assert together == alone
    print(
        f"{summary['steps']} steps of a life are done, and two threads learned what each learns alone"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
