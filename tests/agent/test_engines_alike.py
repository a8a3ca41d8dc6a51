"""A Horde learns the same in PyBullet and in the planar physics engine."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest

from horde_agent import Horde, Interface, Life, StickyRandom, questions


def final_errors(physics: str, seed: int, n_steps: int) -> np.ndarray:
    """Return the logarithm of each question's NMSRE at the end of a life."""
    env = gym.make("horde_env:CritterbotPen-v0", physics=physics)
    face = Interface.of(env)
    posed = questions.excursions(face)
    horde = Horde(posed, n_features=face.coder.n_features, n_active=face.coder.n_active, mode="deferred")
    with Life(env, horde, StickyRandom(5), np.random.default_rng(seed), interface=face) as life:
        life.run(n_steps)
    env.close()
    return np.log(life.student.errors.nmsre())


@pytest.mark.sim
@pytest.mark.slow
def test_three_lives_on_each_engine_end_with_the_same_errors() -> None:
    """Six lives of half an hour, split into two groups of three: the split by engine is not the most different one.

    The difference is that of each question's mean log NMSRE, in the mean over questions. There are ten splits, and if
    the engines differed, the split by engine would have the largest difference. Its median difference over all
    questions is below 0.1, a tenth of the error.
    """
    pytest.importorskip("pybullet")
    lives = np.array([final_errors(physics, seed, 20_000) for physics in ("planar", "bullet") for seed in range(3)])
    scored = np.isfinite(lives).all(axis=0)
    assert scored.mean() > 0.95
    apart = {}
    for one in itertools.combinations(range(6), 3):
        if 0 in one:
            other = [k for k in range(6) if k not in one]
            difference = lives[list(one)][:, scored].mean(axis=0) - lives[other][:, scored].mean(axis=0)
            apart[one] = np.abs(difference).mean(), abs(np.median(difference))
    by_engine = apart.pop((0, 1, 2))
    assert by_engine[0] < max(mean for mean, _ in apart.values())
    assert by_engine[1] < 0.1
