"""Divide demons among shards: the layout of the whole Horde is cut between flush groups, so the bits are the same.

A demon's numbers depend on other demons only through its flush group: which demons are written together, and when. A
shard is a range of flush groups; `ShardContext` gives their position in the whole layout.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.gvf import GVF, Prediction
from horde_agent.horde import Mode
from horde_agent.learning.engine import DROP_BELOW
from horde_agent.learning.layout import Seating, ShardContext, assign_lanes
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import LARGEST_TAIL, OF_LANES, trace_length, widest
from horde_agent.learning.values import identity
from horde_agent.policies import Gibbs
from horde_agent.types import Integers

_PERIODS = {"eager": 64, "deferred": 128}
_PROCESS_BYTES = 400_000_000  # of a shard, before it has any demon
_GIBBS_BYTES = 1_500  # of a policy with 60 parameters: as an object, and in the table that is asked


class Numbering(NamedTuple):
    """What a layout needs to know of questions.

    Attributes:
        group: Trace group of each demon, shape (n_demons,), numbered as they appear.
        policy: Policy of each group, shape (n_groups,).
        largest_decay: The largest product of a continuation and a trace decay that can come.
        n_gibbs: Distinct Gibbs policies.
        links: Pairs of demons of which the first's cumulant is what the second predicts, shape (n_links, 2).
    """

    group: Integers
    policy: Integers
    largest_decay: float
    n_gibbs: int
    links: Integers

    @classmethod
    def of(cls, questions: Sequence[GVF]) -> Numbering:
        """Number the groups and policies of questions."""
        groups: dict[Hashable, int] = {}
        policies: dict[Hashable, int] = {}
        policy: list[int] = []
        group = np.empty(len(questions), dtype=np.int64)
        for i, question in enumerate(questions):
            pi = identity(question.target_policy)
            number = policies.setdefault(pi, len(policies))
            key = pi, identity(question.continuation), identity(question.lam)
            if key not in groups:
                groups[key] = len(groups)
                policy.append(number)
            group[i] = groups[key]
        gibbs = {
            id(q.target_policy): identity(q.target_policy) for q in questions if isinstance(q.target_policy, Gibbs)
        }
        linked = [i for i, question in enumerate(questions) if isinstance(question.cumulant, Prediction)]
        summed = place_of([questions[i].cumulant.name for i in linked], [q.name for q in questions])  # type: ignore[union-attr]
        links = np.stack([np.array(linked, dtype=np.int64), summed], axis=1)
        decay = max(map(_decay, questions))
        return cls(group, np.array(policy), decay, len(set(gibbs.values())), links)


def place_of(names: Sequence[str], all_names: Sequence[str]) -> Integers:
    """Return the places of demons by name, shape (n,).

    Raises:
        ValueError: If one is unknown.
    """
    place = {name: i for i, name in enumerate(all_names)} if names else {}
    for name in names:
        if name not in place:
            raise ValueError(f"there is no demon {name!r} in this Horde")
    return np.array([place[name] for name in names], dtype=np.int64)


def _decay(question: GVF) -> float:
    """Return the largest product of a question's continuation and trace decay."""
    gamma, lam = (1.0 if callable(value) else float(value) for value in (question.continuation, question.lam))
    return gamma * lam


@dataclass(frozen=True)
class Cut:
    """A shard: its demons in the whole's order, shape (n,), ascending; and what it knows of the whole."""

    demons: Integers
    share: ShardContext


class Plan:
    """How a Horde can be cut.

    Args:
        questions: All of them.
        config: How they learn.
        mode: As in `Horde`.

    Attributes:
        is_plain: Whether the plain engine learns, in which each demon stands for itself.
        most_shards: As many as there can be.

    """

    def __init__(self, questions: Sequence[GVF], config: LearnerConfig, mode: Mode) -> None:
        self.n_demons, self._config, self._mode = len(questions), config, mode
        self._of = of = Numbering.of(questions)
        n_trace_steps = (
            trace_length(of.largest_decay, DROP_BELOW[config.dtype]) if config.trace_rule == "clipped" else 0
        )
        is_long = of.largest_decay < 1.0 and n_trace_steps > LARGEST_TAIL
        self.is_plain = config.needs_plain_engine or is_long
        self.asks_predictions = of.links.size > 0
        if self.is_plain:
            alone = np.ones(self.n_demons, dtype=np.int64)
            self._seating = Seating(np.arange(self.n_demons), alone, alone, alone > 0)
        else:
            most_lanes = widest(self.n_demons, is_deferred=mode == "deferred")
            self._seating = assign_lanes(of.group, of.policy, most_lanes)
        self._places = self._where_to_cut()
        self.most_shards = self._places.size + 1

    def _where_to_cut(self) -> Integers:
        """Return the flush groups before which the whole may be cut: not between a demon and one that it sums."""
        of, n_groups = self._seating, self._seating.n_blocks.size
        may = np.ones(n_groups + 1, dtype=bool)
        may[[0, -1]] = False
        if self._of.links.size:
            group_of = np.empty(self.n_demons, dtype=np.int64)
            group_of[of.order] = np.repeat(np.repeat(np.arange(n_groups), of.n_blocks), of.sizes)
            for low, high in np.sort(group_of[self._of.links], axis=1).tolist():
                may[low + 1 : high + 1] = False
        return np.flatnonzero(may)

    def cut(self, n_shards: int) -> list[Cut]:
        """Return shards of even width.

        Raises:
            ClusterError: If there are not so many.
        """
        if n_shards < 1:
            raise ClusterError(f'shards must be at least 1, or "auto", not {n_shards}')
        if n_shards > self.most_shards:
            raise ClusterError(
                f"these {self.n_demons:,} demons are too few, or too entangled, for {n_shards} shards: demons of one "
                f"policy, or of the same 1,024 lanes, are written together, so take at most {self.most_shards}"
            )
        of, seating = self._of, self._seating
        lanes = np.add.reduceat(seating.widths, np.cumsum(seating.n_blocks) - seating.n_blocks)
        cuts = [0, *_even_cuts(np.concatenate([[0], np.cumsum(lanes)]), self._places, n_shards), seating.n_blocks.size]
        may_idle, out = bool(seating.has_one_policy.any()), []
        for first, last in pairwise(cuts):
            demons, part = _part(seating, first, last)
            out.append(
                Cut(demons, ShardContext(part, first, seating.n_blocks.size, may_idle, of.largest_decay, of.n_gibbs))
            )
        return out

    def room(
        self, cuts: Sequence[Cut], n_features: int, memory: int, n_cpus: int, *, has_copy: bool = False
    ) -> list[int]:
        """Return the memory that each shard takes, in bytes.

        Args:
            cuts: Their demons.
            n_features: Weights of each demon.
            memory: That the machines offer, in bytes.
            n_cpus: That they offer.
            has_copy: Whether there is a second copy of the state while a snapshot is written.

        Raises:
            ClusterError: If that is not enough.
        """
        of = self._of
        needed = [
            _PROCESS_BYTES
            + (1 + has_copy) * bytes_of(n, n_features, self._config, self._mode, of.largest_decay, min(of.n_gibbs, n))
            for n in (cut.demons.size for cut in cuts)
        ]
        if sum(needed) > memory:
            each = (sum(needed) - len(cuts) * _PROCESS_BYTES) // self.n_demons
            raise ClusterError(
                f"{self.n_demons:,} demons in {len(cuts)} shards need up to {sum(needed) / 1e9:.1f} GB, {each:,} bytes "
                f"each, and the machines offer {memory / 1e9:.1f} GB: ask fewer questions, or join machines"
            )
        if len(cuts) > n_cpus:
            raise ClusterError(f"{len(cuts)} shards need a core each, and the machines offer {n_cpus}: take fewer")
        return needed


def _part(of: Seating, first: int, last: int) -> tuple[Integers, Seating]:
    """Return the demons of the flush groups first..last - 1, ascending, and how these sit, numbered from 0."""
    blocks = np.concatenate([[0], np.cumsum(of.n_blocks)])
    demons = np.concatenate([[0], np.cumsum(of.sizes)])
    a, b = int(blocks[first]), int(blocks[last])
    seated = of.order[demons[a] : demons[b]]
    members = np.sort(seated)
    order = np.searchsorted(members, seated)
    return members, Seating(order, of.sizes[a:b], of.n_blocks[first:last], of.has_one_policy[first:last])


def _even_cuts(before: Integers, places: Integers, n_shards: int) -> list[int]:
    """Return n_shards - 1 of the places, such that between them lies as even a share as can be.

    Args:
        before: Lanes before each place, shape (n_groups + 1,).
        places: That may be chosen, ascending.
        n_shards: How many parts there are to be.
    """
    chosen: list[int] = []
    first = 0
    for k in range(1, n_shards):
        last = places.size - (n_shards - 1 - k)  # so many must be left
        distance = np.abs(before[places[first:last]] - k * before[-1] / n_shards)
        first += int(np.argmin(distance))
        chosen.append(int(places[first]))
        first += 1
    return chosen


def bytes_of(n_demons: int, n_features: int, config: LearnerConfig, mode: Mode, decay: float, n_gibbs: int) -> int:
    """Return the memory that so many demons take when all features were on: their weights, their past, their policies.

    Args:
        n_demons: How many.
        n_features: Weights of each.
        config: How they learn.
        mode: As in `Horde`.
        decay: The largest product of a continuation and a trace decay.
        n_gibbs: Gibbs policies among theirs.
    """
    item = np.dtype(config.dtype).itemsize
    numbers = n_features * (2 + config.vector_mspbe)
    if not config.needs_plain_engine:
        tail = trace_length(decay, DROP_BELOW[config.dtype]) if config.trace_rule == "clipped" else LARGEST_TAIL
        period = _PERIODS[mode]
        numbers += 2 * (min(tail, LARGEST_TAIL) + period) + 3 * period + len(OF_LANES)
    else:
        numbers += n_features  # the trace
    return n_demons * numbers * item + n_gibbs * _GIBBS_BYTES
