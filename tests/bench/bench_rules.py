"""Three trace rules and two rules for the secondary weights, on the same lives: NMSRE after the paper's 7.3 hours.

Behaviour does not depend on what is learned. So each seed's life is simulated once, with the defaults, and the other
five settings learn again from its stream.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import gymnasium as gym
import numba
import numpy as np

from horde_agent import Horde, Interface, LearnerConfig, StickyRandom, questions
from horde_agent.loop import Life
from horde_agent.record import Recorder
from horde_agent.results import nmsre_summary
from horde_agent.student import Student, relearn

STEPS = 261_681
RULES = tuple(itertools.product(("clipped", "capped", "plain"), ("every-step", "importance-weighted")))


def one_seed(seed: int, steps: int) -> list[dict[str, Any]]:
    """Live once, learn under every pair of rules, and return a row for each."""
    numba.set_num_threads(1)
    env = gym.make("horde_env:CritterbotPen-v0")
    face = Interface.of(env)

    def horde(trace_rule: str, w_rule: str) -> Horde:
        config = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule)  # type: ignore[arg-type]
        asked = questions.excursions(face)
        return Horde(asked, n_features=face.coder.n_features, n_active=face.coder.n_active, config=config)

    recorder = Recorder(face.coder.n_inputs)
    with Life(
        env, horde(*RULES[0]), StickyRandom(5), np.random.default_rng(seed), interface=face, recorder=recorder
    ) as life:
        life.run(steps)
    env.close()
    rows = [row(seed, *RULES[0], life.student)]
    for rules in RULES[1:]:
        rows.append(row(seed, *rules, relearn(recorder.stream(), horde(*rules), face)))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def row(seed: int, trace_rule: str, w_rule: str, student: Student) -> dict[str, Any]:
    """Return what one setting came to: NMSRE over the sound demons, those set aside by gamma, the worst questions."""
    horde, nmsre = student.horde, student.errors.nmsre()
    aside = set(horde.diverged)
    sound = np.array([name not in aside for name in horde.names])
    worst = np.argsort(-np.where(sound & np.isfinite(nmsre), nmsre, -1.0))[:3].tolist()
    curve = np.array(student.errors.online_means)
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
    """Run the seeds side by side, one core each."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        lives = pool.map(one_seed, seeds, [steps] * len(seeds))
        return {"rules": [r for rows in lives for r in rows], "rules_steps": steps}


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))
