"""Errors of a Horde in shards."""

from __future__ import annotations


class ClusterError(ValueError):
    """A Horde cannot be spread as asked; the message is one sentence that says what to do, and nothing keeps running.

    The cause is in the request or in the machines: a command ends with exit code 2.
    """


class ShardLost(RuntimeError):
    """A shard's process or machine is gone, and with it what its demons learned since the last snapshot.

    Nothing more can be learned or asked: return to a state that was saved before. `horde resume RUN` does this for a
    run; otherwise make the `ShardedHorde` again, `restore` the latest `state()`, and send the stream since then again.

    Args:
        number: Number of the shard.
        n_demons: Demons in it.
        why: What was noticed.
    """

    def __init__(self, number: int, n_demons: int, why: str) -> None:
        super().__init__(
            f"shard {number} with {n_demons:,} demons is lost ({why}): return to the latest saved state, by `horde "
            "resume RUN`, or by restore(state) of a new ShardedHorde followed by the stream since then"
        )
        self.number, self.n_demons, self.why = number, n_demons, why

    def __reduce__(self) -> tuple[type[ShardLost], tuple[int, int, str]]:
        """Return what pickle makes it again from."""
        return type(self), (self.number, self.n_demons, self.why)
