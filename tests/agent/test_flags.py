"""The flags of an observation, and the transitions that are learned from."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from horde_agent.life.flags import are_broken, are_learned, flags_of, is_broken, is_learned
from horde_agent.life.robot import RobotInfo
from horde_agent.record import Flag, Phase


@pytest.mark.parametrize(
    ("info", "ends", "flags"),
    [
        ({}, {}, Flag.NONE),
        ({"gap": 1}, {}, Flag.GAP),
        ({}, {"begins": True}, Flag.GAP),
        ({"applied": 0}, {}, Flag.NOT_APPLIED),
        ({"stale": 1}, {}, Flag.STALE),
        ({}, {"terminated": True}, Flag.TERMINATED),
        ({}, {"truncated": True}, Flag.TRUNCATED),
        (
            {"gap": np.True_, "applied": np.int64(0), "stale": 1},
            {"terminated": True, "truncated": True},
            Flag.GAP | Flag.NOT_APPLIED | Flag.STALE | Flag.TERMINATED | Flag.TRUNCATED,
        ),
    ],
)
def test_flags_are_made_from_info(info: dict[str, Any], ends: dict[str, bool], flags: int) -> None:
    assert flags_of(RobotInfo.of(info), **ends) == flags


def test_only_unbroken_steps_of_the_behaviour_are_learned_from() -> None:
    """Not across a gap, a stale frame or an action that was not applied; other flags do not matter."""
    for came_by, flags in itertools.product(Phase, range(32)):
        whole = not flags & (Flag.GAP | Flag.NOT_APPLIED | Flag.STALE)
        assert is_broken(flags) is not whole
        assert is_learned(came_by, flags) is (came_by is Phase.BEHAVE and whole)


def test_rows_and_steps_have_the_same_rules() -> None:
    pairs = list(itertools.product([int(p) for p in Phase], range(32)))
    came_by, flags = (np.array(column, dtype=np.uint8) for column in zip(*pairs, strict=True))
    assert are_broken(flags).tolist() == [is_broken(f) for _, f in pairs]
    assert are_learned(came_by, flags).tolist() == [is_learned(p, f) for p, f in pairs]
