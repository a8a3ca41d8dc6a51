"""A life with its Horde in shards is the life with one Horde."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_agent import questions as families
from horde_agent.cluster import ShardedHorde
from horde_agent.horde import Horde, Mode
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, StepEvent
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.policies import StickyRandom
from tests.agent.cluster_double import LocalCluster, cluster

__all__ = ["cluster"]

PEN = "horde_env:CritterbotPen-v0"
pytestmark = pytest.mark.sim


def life_of(kind: type[Any], mode: Mode, **where: Any) -> Life:
    """Return a life with the paper's questions, tested often."""
    env: Any = gymnasium.make(PEN, disable_env_checker=True)
    face = Interface.of(env)
    size = {"n_features": face.coder.n_features, "n_active": face.coder.n_active}
    horde = kind(families.excursions(face), mode=mode, **size, **where)
    tests = ExcursionConfig(probability=0.05, horizon=12)
    life = Life(env, horde, StickyRandom(5), np.random.default_rng(4), interface=face, excursions=tests)
    life.observers = [Sampler(every=50), MspbeWatch(horde)]
    return life


def outcome(life: Life) -> list[Any]:
    """Return what came of a life."""
    errors, (sampler, watch) = life.student.errors, life.observers
    assert isinstance(sampler, Sampler)
    assert isinstance(watch, MspbeWatch)
    if isinstance(life.horde, ShardedHorde):
        life.horde.wait()
    return [
        life.steps,
        life.student.learning_steps,
        life.student.n_updated,
        life.horde.weights_sha256(),
        errors.nmsre().tobytes(),
        [rows["online"].tobytes() for rows in errors.table],
        list(sampler.samples),
        watch.n_updates.tolist(),
        life.horde.diverged,
    ]


class Reader:
    """Reads counts at every step, twice."""

    def __call__(self, event: StepEvent) -> None:
        life = event.life
        told = life.student.n_updated
        assert isinstance(life.horde, ShardedHorde)
        assert (life.horde.n_updates, life.student.n_updated) == (told, told)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_a_life_with_shards_is_the_life_with_one_horde(cluster: LocalCluster, mode: Mode, tmp_path: Path) -> None:
    """Also where it stops in the middle, and goes on in another process with what its shards have kept."""
    one = life_of(Horde, mode)
    one.run(500)
    expected = outcome(one)
    many = life_of(ShardedHorde, mode, shards=3, folder=tmp_path)
    many.observers.append(Reader())
    many.run(260)
    many.observers.pop()
    state, observed = many.state(), [observer.state() for observer in many.observers]  # type: ignore[attr-defined]
    many.run(240)
    assert outcome(many) == expected
    again = life_of(ShardedHorde, mode, shards=3, folder=tmp_path)
    again.restore(state)
    for observer, known in zip(again.observers, observed, strict=True):
        observer.restore(known)  # type: ignore[attr-defined]
    again.run(500 - again.steps)
    assert outcome(again) == expected
    for life in (one, many, again):
        life.close()
        life.env.close()
