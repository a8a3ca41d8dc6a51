"""LearnerConfig, and update rules by name."""

from __future__ import annotations

from typing import Any

import pytest

from horde_agent.kernels import rules
from horde_agent.learning import LearnerConfig


def test_an_update_rule_is_a_file() -> None:
    assert "gtd" in rules.names()
    for name in rules.names():
        assert callable(rules.rule(name).learn)
    with pytest.raises(ValueError, match="'sarsa'"):
        rules.rule("sarsa")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"secondary_ratio": -1.0}, "secondary_ratio"),
        ({"trace_rule": "clip"}, "trace_rule .*clipped, capped, plain"),
        ({"w_rule": "never"}, "w_rule"),
        ({"dtype": "float16"}, "dtype"),
        ({"mspbe_tau": 1.0}, "mspbe_tau"),
        ({"check_every": 0}, "check_every"),
        ({"engine": "fast"}, "engine .*span, plain"),
        ({"algorithm": "sarsa"}, "algorithm .*gtd.*'sarsa'"),
    ],
)
def test_a_bad_setting_is_refused_by_name(setting: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        LearnerConfig(**setting)
