"""Small problems with exact answers, as Gymnasium environments.

    import horde_agent  # registers them
    env = gymnasium.make("horde_agent/RandomWalk-v0")

An observation is the state's number, coded by one tile per state, and the last reward;
`env.unwrapped.problem` has the transition matrices, policies, features and exact values. The
streams of `conditioning` are continuing and have none.
"""

from __future__ import annotations

import gymnasium

__all__ = ["NAMES"]

NAMES = ("RandomWalk", "BoyanChain", "Baird", "Collision", "Rooms", "HighVarianceRooms")
"""Ids are `horde_agent/NAME-v0`."""

for _name in NAMES:
    gymnasium.register(
        id=f"horde_agent/{_name}-v0",
        entry_point="horde_agent.problems.env:make_env",
        kwargs={"name": _name},
    )

for _name, _entry, _arguments in (
    ("TraceConditioning", "TraceConditioning", {}),
    ("NoisyPatterning", "Patterning", {}),
    ("TracePatterning", "Patterning", {"isi": 10, "noise": 0.0}),
):
    gymnasium.register(
        id=f"horde_agent/{_name}-v0",
        entry_point=f"horde_agent.problems.conditioning:{_entry}",
        kwargs=_arguments,
    )
