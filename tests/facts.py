"""What a message must say: its facts, in any words and any order."""

from __future__ import annotations


def states(message: str, *facts: object) -> bool:
    """Return whether a message contains each fact: a number with its unit, a name, a file, a flag, a remedy.

    >>> states("cannot write a/log (disk full): free space", "a/log", "disk full", "free")
    True
    >>> states("cannot write a/log", "disk full")
    False
    """
    return all(str(fact) in message for fact in facts)
