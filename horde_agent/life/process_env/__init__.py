"""An environment in a process of its own, so that the body moves on one core while another learns."""

from __future__ import annotations

from horde_agent.life.process_env.env import EnvironmentGone, ProcessEnv, is_worthwhile

__all__ = ["EnvironmentGone", "ProcessEnv", "is_worthwhile"]
