"""Policies judged from data: `horde evaluate`, and `horde_agent.evaluate` in Python."""
