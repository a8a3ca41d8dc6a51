"""The flags of an observation, and the transitions that are learned from."""

from __future__ import annotations

import itertools

import numpy as np

from horde_agent.life.flags import are_broken, are_learned, is_broken, is_learned
from horde_agent.record import Phase


def test_rows_and_steps_have_the_same_rules() -> None:
    pairs = list(itertools.product([int(p) for p in Phase], range(32)))
    came_by, flags = (np.array(column, dtype=np.uint8) for column in zip(*pairs, strict=True))
    assert are_broken(flags).tolist() == [is_broken(f) for _, f in pairs]
    assert are_learned(came_by, flags).tolist() == [is_learned(p, f) for p, f in pairs]
