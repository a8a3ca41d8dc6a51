"""Three trace rules and two rules for the secondary weights, on the same lives: NMSRE after the paper's 7.3 hours.

Behaviour does not depend on learning. So each seed's life is simulated once, with the defaults, and the other
five settings learn again from its stream.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import gymnasium as gym
import numba
import numpy as np

from horde_agent import Horde, Interface, LearnerConfig, StickyRandom, questions
from horde_agent.life.life import Life
from horde_agent.life.student import Student, relearn
from horde_agent.record import Recorder, read
from horde_agent.runs.jobs.tables import nmsre_summary

STEPS = 261_681
RULES = tuple(itertools.product(("clipped", "capped", "plain"), ("every-step", "importance-weighted")))


def horde_of(face: Interface, trace_rule: str, w_rule: str) -> Horde:
    """Return the paper's 795 demons under a pair of rules."""
    config = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule, vector_mspbe=False)  # type: ignore[arg-type]
    asked = questions.excursions(face)
    return Horde(asked, n_features=face.coder.n_features, n_active=face.coder.n_active, config=config)


def live(seed: int, steps: int, path: Path) -> dict[str, Any]:
    """Run a life with the defaults, record it, and return its row."""
    numba.set_num_threads(1)
    env = gym.make("horde_env:CritterbotPen-v0")
    face = Interface.of(env)
    recorder = Recorder(face.coder.n_inputs, path)
    rng, behaviour = np.random.default_rng(seed), StickyRandom(len(face.actions))
    with Life(env, horde_of(face, *RULES[0]), behaviour, rng, interface=face, recorder=recorder) as life:
        life.run(steps)
    env.close()
    return row(seed, *RULES[0], life.student)


def learn_again(seed: int, path: Path, trace_rule: str, w_rule: str) -> dict[str, Any]:
    """Learn from a recorded life under a pair of rules, and return its row."""
    numba.set_num_threads(1)
    with gym.make("horde_env:CritterbotPen-v0") as env:
        face = Interface.of(env)
    return row(seed, trace_rule, w_rule, relearn(read(path), horde_of(face, trace_rule, w_rule), face))


def row(seed: int, trace_rule: str, w_rule: str, student: Student) -> dict[str, Any]:
    """Return what one setting came to: NMSRE over the sound demons, those set aside by gamma, the worst questions."""
    horde, nmsre = student.horde, student.errors.nmsre()
    aside = set(horde.diverged)
    sound = np.array([name not in aside for name in horde.names])
    worst = np.argsort(-np.where(sound & np.isfinite(nmsre), nmsre, -1.0))[:3].tolist()
    curve = np.concatenate([rows["online"] for rows in student.errors.table])
    return {
        "seed": seed,
        "trace_rule": trace_rule,
        "w_rule": w_rule,
        **nmsre_summary(nmsre, sound),
        "online_mean_at_half": float(curve[len(curve) // 2]),
        "online_mean_at_end": float(curve[-1]),
        "n_excursions": student.errors.n_excursions,
        "diverged": len(aside),
        "diverged_by_gamma": {g: sum(f"/g{g}/" in name for name in aside) for g in ("0", "0.5", "0.8")},
        "max_trace": float(np.max(horde.max_trace)),
        "worst": {horde.names[i]: round(float(nmsre[i]), 2) for i in worst},
    }


def main(seeds: tuple[int, ...] = (0, 1, 2), steps: int = STEPS) -> dict[str, Any]:
    """Live the seeds and learn again under the other rules, two jobs at a time."""
    context, rows = multiprocessing.get_context("spawn"), []
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2, mp_context=context) as pool:
        paths = {seed: Path(folder) / f"{seed}.rec" for seed in seeds}
        lives = {pool.submit(live, seed, steps, paths[seed]): seed for seed in seeds}
        jobs = []
        for done in as_completed(lives):
            rows.append(done.result())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            seed = lives[done]
            jobs += [pool.submit(learn_again, seed, paths[seed], *rules) for rules in RULES[1:]]
        for done in as_completed(jobs):
            rows.append(done.result())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    order = {rules: i for i, rules in enumerate(RULES)}
    rows.sort(key=lambda r: (order[r["trace_rule"], r["w_rule"]], r["seed"]))
    return {"rules": rows, "rules_steps": steps}


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))
