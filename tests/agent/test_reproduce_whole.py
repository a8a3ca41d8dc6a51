"""The experiments that learn from behaviour alone, whole, on a toy body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.reproduce.feedback import claims as loop
from horde_agent.reproduce.feedback import problem as memory
from horde_agent.reproduce.feedback import problem as small_worlds
from horde_agent.reproduce.policies import claims as policies
from horde_agent.reproduce.policies import problem as policies_learning
from horde_agent.reproduce.result import Result
from tests.agent.reproducing import toy_study

VERDICTS = {"reproduced", "partly reproduced", "not reproduced"}


def is_whole(result: Result, folder: Path) -> None:
    """See that every claim was judged, every figure drawn and every table filled."""
    assert {claim.verdict for claim in result.claims} <= VERDICTS
    for figure in result.figures:
        assert (folder / result.name / figure.file).stat().st_size > 10_000
    for table in result.tables:
        assert table.rows
        assert all(len(row) == len(table.header) for row in table.rows), table.title


def test_the_policies_go_their_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lives; the other rules and the many policies on the first part of the first one; capped in three parts."""
    monkeypatch.setitem(policies.SIZES, "quick", policies.Size(life=300, rules=120, many=150, cycles=20))
    monkeypatch.setattr(policies, "FEW", 12)
    monkeypatch.setattr(policies, "MANY", 30)
    monkeypatch.setitem(policies_learning.LARGEST_PART, "capped", 4)
    toy = toy_study(tmp_path, monkeypatch, (0, 1))
    result = policies.run(toy)
    is_whole(result, tmp_path)
    assert len(result.claims) == 4

    data = policies.gather(toy)
    assert {seed: course.gamma.size for seed, course in data.few.items()} == {0: 12, 1: 12}
    assert data.many.gamma.size == 30
    assert [course.gamma.size for course in data.rules.values()] == [12, 12, 12]
    assert {path.name for path in (tmp_path / "kept").glob("*capped*.npz")} == {
        f"policies-12-capped-0-{k}-of-3-by-gamma.npz" for k in (1, 2, 3)
    }
    assert {rule: course.step[-1] <= 120 for rule, course in data.rules.items()} == dict.fromkeys(data.rules, True)
    assert data.few[0].step[-1] == 300


def test_the_loop_goes_its_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A life of ten short pieces; the small worlds, which have tests of their own, give their known answers."""
    monkeypatch.setitem(loop.STEPS, "quick", 1_200)
    monkeypatch.setattr(memory, "MINUTE", 100)
    known = small_worlds.ring_values()
    monkeypatch.setattr(loop, "in_the_ring", lambda on_progress: loop.Ring(known, np.full(6, 0.8), known))
    monkeypatch.setattr(loop, "in_the_corridor", lambda on_progress, seed: small_worlds.composed_values())
    result = loop.run(toy_study(tmp_path, monkeypatch))
    is_whole(result, tmp_path)
    assert [claim.verdict for claim in result.claims[1:]] == ["reproduced", "reproduced"]


def test_the_loop_is_judged_on_lives_that_nobody_had_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the paper's scale seeds 0, 1, 2 stand for the lives 100, 101, 102."""
    toy = toy_study(tmp_path, monkeypatch, (0, 1, 2))
    assert loop.seeds_of(toy) == (0, 1, 2)
    object.__setattr__(toy, "scale", "paper")
    assert loop.seeds_of(toy) == (100, 101, 102)
    assert not set(loop.seeds_of(toy)) & set(loop.LOOKED_AT)
