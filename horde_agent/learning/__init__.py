"""How demons learn: learning rules, two engines that implement them, and the signals that both receive.

Both engines can be used directly, without questions: call `begin(tiles)`, then `learn(tiles, signals)` for each
transition.
"""

from __future__ import annotations

from horde_agent.kernels.checks import Signals
from horde_agent.learning.compiling import announce_compiling
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanEngine

__all__ = ["LearnerConfig", "PlainEngine", "Signals", "SpanEngine"]

announce_compiling()
