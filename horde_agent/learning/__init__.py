"""How demons learn: the rules, the engines that keep to them, and the numbers that both are told.

Both engines can be driven directly, without questions: `begin(tiles)`, and `learn(tiles, signals)` for each
transition.
"""

from __future__ import annotations

from horde_agent.kernels.checks import Signals
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanEngine

__all__ = ["LearnerConfig", "PlainEngine", "Signals", "SpanEngine"]
