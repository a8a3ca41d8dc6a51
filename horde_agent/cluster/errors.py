"""What a cluster cannot do."""

from __future__ import annotations


class ClusterError(ValueError):
    """A Horde cannot be spread as asked; the message is one sentence that says what to do, and nothing is left running.

    What is asked for is at fault, or the machines are not there: a command ends with code 2.
    """
