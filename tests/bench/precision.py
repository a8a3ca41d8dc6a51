"""Does float32 wear out? The same life of millions of steps, learned in float32 and in float64, side by side.

    python -m tests.bench.precision [--steps 3000000] [--physics planar]

The behaviour looks at no prediction, so that the two lives are one: the same world, actions and test excursions, step
for step. Questions are the paper's about four sensors, under all policies and time scales. Printed, at each tenth of
the life: the relative difference of the predictions, and both NMSRE. The difference of a question is the root mean
square of float32's prediction minus float64's at the states that were looked at in that tenth, over the root mean
square of float64's.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import gymnasium
import numpy as np

import horde_env  # noqa: F401  registers the environments
from horde_agent import LearnerConfig, questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.life import Life, Moment
from horde_agent.life.observers import sound_demons
from horde_agent.policies import StickyRandom
from horde_agent.runs.results import nmsre_summary
from horde_agent.types import Floats

ASKED = ("/light_0", "/ir_distance_0", "/rotational_velocity", "/magnetic_y")
EVERY = 100
"""Steps between two looks at the predictions."""


def lived(dtype: str, steps: int, physics: str, seed: int) -> dict[str, Any]:
    """Live once, and return what was predicted and how well.

    Returns:
        `predictions`, shape (n_looks, n_demons), one each `EVERY` steps; `nmsre` (online) at each tenth, shape
        (10, n_demons); `final` (two-pass), shape (n_demons,); `names`, `diverged`, `wall_s`.
    """
    env = gymnasium.make("CritterbotPen-v0", physics=physics)
    interface = Interface.of(env)
    asked = [gvf for gvf in questions.excursions(interface) if gvf.name.endswith(ASKED)]
    config = LearnerConfig(dtype=dtype)  # type: ignore[arg-type]
    coder = interface.coder
    horde = Horde(asked, n_features=coder.n_features, n_active=coder.n_active, config=config, mode="deferred")
    rng = np.random.default_rng(seed)
    seen: list[Floats] = []
    scores: list[Floats] = []
    began = time.perf_counter()
    with Life(env, horde, StickyRandom(len(interface.actions)), rng, interface=interface) as life:

        def look(moment: Moment) -> None:
            step = moment.life.steps
            if step >= (len(seen) + 1) * EVERY:
                moment.life.student.catch_up()
                seen.append(np.array(horde.predictions, dtype=np.float64))
            if step >= (len(scores) + 1) * steps // 10:
                scores.append(moment.life.student.errors.online())

        life.observers.append(look)
        life.run(steps)
        final, sound = life.student.errors.nmsre(), sound_demons(horde)
    env.close()
    return {
        "predictions": np.array(seen),
        "nmsre": np.array(scores),
        "final": final,
        "sound": sound,
        "names": horde.names,
        "diverged": horde.diverged,
        "wall_s": time.perf_counter() - began,
    }


def compared(single: dict[str, Any], double: dict[str, Any]) -> dict[str, Any]:
    """Return how far the two lie apart: per tenth of the life, and in the end."""
    assert single["predictions"].shape == double["predictions"].shape, "the two lived the same life"
    sound = single["sound"] & double["sound"]
    apart = single["predictions"][:, sound] - double["predictions"][:, sound]
    tenths = np.array_split(np.arange(len(apart)), 10)
    size = [rms(double["predictions"][rows][:, sound]) for rows in tenths]
    shares = [rms(apart[rows]) / np.maximum(s, 1e-12) for rows, s in zip(tenths, size, strict=True)]
    gap = np.abs(single["final"] - double["final"])[sound] / double["final"][sound]
    return {
        "n_questions": int(sound.size),
        "n_sound": int(sound.sum()),
        "relative_difference_each_tenth": {
            "median": [float(np.nanmedian(share)) for share in shares],
            "largest": [float(np.nanmax(share)) for share in shares],
        },
        "float32": nmsre_summary(single["final"], sound),
        "float64": nmsre_summary(double["final"], sound),
        "mean_online_nmsre_each_tenth": {
            name: [float(np.nanmean(row[sound])) for row in one["nmsre"]]
            for name, one in (("float32", single), ("float64", double))
        },
        "nmsre_relative_difference": {"median": float(np.nanmedian(gap)), "largest": float(np.nanmax(gap))},
        "diverged": {"float32": single["diverged"], "float64": double["diverged"]},
        "wall_s": [single["wall_s"], double["wall_s"]],
    }


def rms(values: Floats) -> Floats:
    """Return the root mean square of each column, shape (n,)."""
    return np.asarray(np.sqrt(np.mean(values**2, axis=0)))


def main() -> None:
    """Live twice, and print how far the two lie apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--physics", default="planar")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    lives = [lived(dtype, words.steps, words.physics, words.seed) for dtype in ("float32", "float64")]
    print(json.dumps(compared(*lives), indent=1))


if __name__ == "__main__":
    main()
