"""Divide demons among shards, between flush groups of the whole Horde's layout, so that the bits are the same.

A demon's numbers depend on other demons only through its flush group: which demons are flushed together, and when. A
shard is a range of flush groups; `ShardContext` gives their position in the whole layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from horde_agent.cluster.shard import ClusterError
from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Mode
from horde_agent.learning.engine import DROP_BELOW
from horde_agent.learning.layout import Seating, ShardContext, assign_lanes
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import LARGEST_TAIL, OF_LANES, trace_length, widest
from horde_agent.learning.values import identity, number
from horde_agent.policies import Gibbs
from horde_agent.types import Bools, Integers

_PERIODS = {"eager": 64, "deferred": 128}
_PROCESS_BYTES = 400_000_000  # of a shard without demons
_GIBBS_BYTES = 1_500  # of a policy with 60 parameters: the object, and its row in the table of policies


def positions_of(names: Sequence[str], all_names: Sequence[str]) -> Integers:
    """Return the positions of demons by name, shape (n,).

    Raises:
        ValueError: If one is unknown.
    """
    position = {name: i for i, name in enumerate(all_names)} if names else {}
    for name in names:
        if name not in position:
            raise ValueError(f"there is no demon {name!r} in this Horde")
    return np.array([position[name] for name in names], dtype=np.int64)


def input_limits(questions: Sequence[GVF]) -> tuple[int, int]:
    """Return the least number of channels of an observation, and the number of actions, 0 if no policy defines it.

    Raises:
        ClusterError: If the policies disagree about the number of actions.
    """
    counts = {question.target_policy.n_actions for question in questions} - {0}
    if len(counts) > 1:
        raise ClusterError(f"the target policies have different numbers of actions: {sorted(counts)}")
    channels = [int(question.cumulant.index) for question in questions if isinstance(question.cumulant, Channel)]
    return max(channels, default=-1) + 1, counts.pop() if counts else 0


class Part(NamedTuple):
    """The demons of a shard by position in the whole Horde, ascending, shape (n,), and properties of the whole."""

    demons: Integers
    context: ShardContext


class Plan:
    """The borders at which a Horde can be divided.

    Args:
        questions: All of them.
        config: How they learn.
        mode: As in `Horde`.

    Attributes:
        is_plain: Whether the plain engine learns, in which each demon is a flush group.
        asks_predictions: Whether a cumulant is another demon's prediction.
        most_shards: Maximum number of shards.
    """

    def __init__(self, questions: Sequence[GVF], config: LearnerConfig, mode: Mode) -> None:
        self.n_demons, self._config, self._mode = len(questions), config, mode
        policies = [identity(q.target_policy) for q in questions]
        keys = [(p, identity(q.continuation), identity(q.lam)) for p, q in zip(policies, questions, strict=True)]
        group, leaders = number(keys)
        policy, _ = number([policies[i] for i in leaders])
        self._n_gibbs = len({p for p, q in zip(policies, questions, strict=True) if isinstance(q.target_policy, Gibbs)})
        self._decay = max(map(_largest_decay, questions))
        n_trace_steps = trace_length(self._decay, DROP_BELOW[config.dtype]) if config.bounds_trace else 0
        self.is_plain = config.needs_plain_engine or (self._decay < 1.0 and n_trace_steps > LARGEST_TAIL)
        if self.is_plain:
            ones = np.ones(self.n_demons, dtype=np.int64)
            self._seating = Seating(np.arange(self.n_demons), ones, ones, ones > 0)
        else:
            most_lanes = widest(self.n_demons, is_deferred=mode == "deferred")
            self._seating = assign_lanes(group, policy, most_lanes)
        asking = [i for i, question in enumerate(questions) if isinstance(question.cumulant, Prediction)]
        self.asks_predictions = bool(asking)
        asked = positions_of([questions[i].cumulant.name for i in asking], [q.name for q in questions])  # type: ignore[union-attr]
        self._borders = np.flatnonzero(self._may_divide(np.array([asking, asked], dtype=np.int64)))
        self.most_shards = self._borders.size + 1

    def _may_divide(self, links: Integers) -> Bools:
        """Return before which flush groups the whole may be divided, shape (n_flush_groups + 1,).

        Args:
            links: Demons of which the first's cumulant is the second's prediction, (2, n): they stay together.
        """
        of, n_groups = self._seating, self._seating.n_blocks.size
        may = np.ones(n_groups + 1, dtype=bool)
        may[[0, -1]] = False
        group_of = np.empty(self.n_demons, dtype=np.int64)
        group_of[of.order] = np.repeat(np.repeat(np.arange(n_groups), of.n_blocks), of.sizes)
        for low, high in np.sort(group_of[links.T], axis=1).tolist():
            may[low + 1 : high + 1] = False
        return may

    def divide(self, n_shards: int) -> list[Part]:
        """Return parts of similar width.

        Raises:
            ClusterError: If there cannot be `n_shards`.
        """
        if n_shards < 1:
            raise ClusterError(f'shards must be at least 1, or "auto", not {n_shards}')
        if n_shards > self.most_shards:
            raise ClusterError(
                f"these {self.n_demons:,} demons cannot be divided into {n_shards} shards, because demons of one "
                f"policy, or of the same 1,024 lanes, are flushed together: take at most {self.most_shards}"
            )
        of = self._seating
        n_groups, may_idle = of.n_blocks.size, bool(of.has_one_policy.any())
        out = []
        for first, last in pairwise([0, *self._even_borders(n_shards), n_groups]):
            demons, seating = _part(of, first, last)
            out.append(Part(demons, ShardContext(seating, first, n_groups, may_idle, self._decay, self._n_gibbs)))
        return out

    def _even_borders(self, n_shards: int) -> list[int]:
        """Return the n_shards - 1 borders closest to an even division of the lanes."""
        of = self._seating
        lanes = np.add.reduceat(of.widths, np.cumsum(of.n_blocks) - of.n_blocks)
        before = np.concatenate([[0], np.cumsum(lanes)])
        chosen: list[int] = []
        first = 0
        for k in range(1, n_shards):
            last = self._borders.size - (n_shards - 1 - k)  # leaves one border for each further shard
            distance = np.abs(before[self._borders[first:last]] - k * before[-1] / n_shards)
            first += int(np.argmin(distance)) + 1
            chosen.append(int(self._borders[first - 1]))
        return chosen

    def memory_needed(
        self, parts: Sequence[Part], n_features: int, memory: int, n_cpus: int, *, has_copy: bool = False
    ) -> list[int]:
        """Return the memory that each shard needs, in bytes.

        Args:
            parts: Their demons.
            n_features: Number of features.
            memory: Available memory of all machines, in bytes.
            n_cpus: Number of cores of all machines.
            has_copy: Whether the state is copied for a snapshot.

        Raises:
            ClusterError: If there is not enough.
        """
        sizes = [part.demons.size for part in parts]
        of_demons = [
            demon_bytes(n, n_features, self._config, self._mode, self._decay, min(self._n_gibbs, n)) for n in sizes
        ]
        needed = [_PROCESS_BYTES + (1 + has_copy) * n_bytes for n_bytes in of_demons]
        if sum(needed) > memory:
            each = (sum(needed) - len(parts) * _PROCESS_BYTES) // self.n_demons
            raise ClusterError(
                f"{self.n_demons:,} demons in {len(parts)} shards need up to {sum(needed) / 1e9:.1f} GB, {each:,} "
                f"bytes each, and the machines offer {memory / 1e9:.1f} GB: ask fewer questions, or join machines"
            )
        if len(parts) > n_cpus:
            raise ClusterError(f"{len(parts)} shards need a core each, and the machines offer {n_cpus}: take fewer")
        return needed


def _largest_decay(question: GVF) -> float:
    """Return the largest product of a question's continuation and trace decay."""
    gamma, lam = (1.0 if callable(value) else float(value) for value in (question.continuation, question.lam))
    return gamma * lam


def _part(of: Seating, first: int, last: int) -> tuple[Integers, Seating]:
    """Return the demons of flush groups first..last - 1, ascending, and their seating, numbered from 0."""
    blocks = np.concatenate([[0], np.cumsum(of.n_blocks)])
    demons = np.concatenate([[0], np.cumsum(of.sizes)])
    a, b = int(blocks[first]), int(blocks[last])
    seated = of.order[demons[a] : demons[b]]
    members = np.sort(seated)
    order = np.searchsorted(members, seated)
    return members, Seating(order, of.sizes[a:b], of.n_blocks[first:last], of.has_one_policy[first:last])


def demon_bytes(n_demons: int, n_features: int, config: LearnerConfig, mode: Mode, decay: float, n_gibbs: int) -> int:
    """Return the memory of demons if every feature was active once: weights, traces or pending steps, and policies.

    Args:
        n_demons: Number of demons.
        n_features: Number of features.
        config: How they learn.
        mode: As in `Horde`.
        decay: The largest product of a continuation and a trace decay.
        n_gibbs: Number of their Gibbs policies.
    """
    item = np.dtype(config.dtype).itemsize
    numbers = n_features * (2 + config.vector_mspbe)
    if config.needs_plain_engine:
        numbers += n_features  # the trace
    else:
        tail = trace_length(decay, DROP_BELOW[config.dtype]) if config.bounds_trace else LARGEST_TAIL
        period = _PERIODS[mode]
        numbers += 2 * (min(tail, LARGEST_TAIL) + period) + 3 * period + len(OF_LANES)
    return n_demons * numbers * item + n_gibbs * _GIBBS_BYTES
