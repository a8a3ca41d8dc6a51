"""Divide demons among shards, between flush groups of the whole Horde's layout, so that the bits are the same.

A demon's numbers depend on other demons only through its flush group: which demons of its update
rule are flushed together, and when. A shard is some of the flush groups; `ShardContext` gives their
position in the whole layout. A question about a prediction or a found policy is in the shard of the
demon that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from horde_agent.cluster.shard import ClusterError
from horde_agent.gvf import GVF, Prediction, TDError
from horde_agent.horde import Mode
from horde_agent.kernels.rules import rule
from horde_agent.learning.groups import trace_groups
from horde_agent.learning.lstd import MOST_READINGS
from horde_agent.learning.ratios import n_actions_of
from horde_agent.learning.rules import (
    LARGEST_TAIL,
    LearnerConfig,
    config_of,
    is_too_long,
    rules_of,
    trace_length,
)
from horde_agent.learning.span_storage import (
    OF_LANES,
    LaneAssignment,
    ShardContext,
    ShardLayout,
    assign_lanes,
    widest,
)
from horde_agent.learning.values import identity, largest_decay
from horde_agent.policies import Gibbs, Greedy
from horde_agent.types import Integers

_PERIODS = {"eager": 64, "deferred": 128}
_PROCESS_BYTES = 400_000_000  # of a shard without demons
# Of a policy with 60 parameters: the object, and its row in the table of policies
_GIBBS_BYTES = 1_500


def positions_of(names: Sequence[str], all_names: Sequence[str]) -> Integers:
    """Return the positions of demons by name, shape (n,); raise ValueError if one is unknown."""
    position = {}
    if names:
        position = {name: i for i, name in enumerate(all_names)}
    for name in names:
        if name not in position:
            raise ValueError(f"there is no demon {name!r} in this Horde")
    return np.array([position[name] for name in names], dtype=np.int64)


def sources_of(question: GVF) -> list[str]:
    """Return the names of the demons that must be in a question's shard: its prediction's, and its policy's."""
    sources = []
    if isinstance(question.cumulant, Prediction | TDError):
        sources = [question.cumulant.name]
    if isinstance(question.target_policy, Greedy):
        return [*sources, question.target_policy.of]
    return sources


class Part(NamedTuple):
    """The demons of a shard by position in the whole Horde, ascending, shape (n,), and properties of the whole."""

    demons: Integers
    context: ShardContext


class Plan:
    """The borders at which a Horde with these questions, from `with_rules`, can be divided.

    Attributes:
        predicted: Update rules of the demons whose predictions are cumulants.
        most_shards: Maximum number of shards.
    """

    def __init__(self, questions: Sequence[GVF], config: LearnerConfig, mode: Mode) -> None:
        self.n_demons = len(questions)
        self._mode = mode
        groups = trace_groups(questions, np.zeros(len(questions), dtype=np.int64))
        policies = [question.target_policy for question in questions]
        self._n_gibbs = len({identity(policy) for policy in policies if isinstance(policy, Gibbs)})
        self._decay = largest_decay(questions)
        self._n_actions = n_actions_of(policies)
        algorithms = np.array(rules_of(questions, config))
        assignments = []
        self._configs: dict[str, LearnerConfig] = {}
        for name in dict.fromkeys(algorithms.tolist()):
            demons = np.flatnonzero(algorithms == name)
            rule_config = config_of(config, name)
            if is_too_long(rule_config, self._decay):
                self._configs[name] = replace(rule_config, engine="plain")
            else:
                self._configs[name] = rule_config
            assignment = self._assignment_of(
                self._configs[name], groups.group[demons], groups.policy
            )
            assignments.append(assignment._replace(order=demons[assignment.order]))
        self._assignment = LaneAssignment(*map(np.concatenate, zip(*assignments, strict=True)))
        self._rule_of = np.repeat(
            np.arange(len(assignments)), [assignment.n_blocks.size for assignment in assignments]
        )
        names = [q.name for q in questions]
        predicted_positions = positions_of(
            [q.cumulant.name for q in questions if isinstance(q.cumulant, Prediction | TDError)],
            names,
        )
        self.predicted = frozenset(algorithms[predicted_positions].tolist())
        links = [
            (name, source)
            for name, q in zip(names, questions, strict=True)
            for source in sources_of(q)
        ]
        self._order, self._borders = self._may_divide(
            positions_of(np.ravel(links).tolist(), names).reshape(-1, 2)
        )
        self.most_shards = self._borders.size + 1

    def _assignment_of(
        self, config: LearnerConfig, group: Integers, policy: Integers
    ) -> LaneAssignment:
        """Return the assignment of all demons of a rule; `group` and `policy` as in `assign_lanes`."""
        if config.needs_plain_engine:
            ones = np.ones(group.size, dtype=np.int64)
            return LaneAssignment(
                order=np.arange(group.size),
                sizes=ones,
                n_blocks=ones,
                has_one_policy=ones > 0,
                phase=ones.astype(np.float64),
            )
        is_deferred = self._mode == "deferred"
        most_lanes = widest(group.size, is_deferred=is_deferred)
        return assign_lanes(group, policy, most_lanes, is_deferred=is_deferred)

    def _may_divide(self, links: Integers) -> tuple[Integers, Integers]:
        """Return an order of the flush groups, and where to cut it; `links` are demons that stay together, (n, 2)."""
        assignment = self._assignment
        n_groups = assignment.n_blocks.size
        group_of = np.empty(self.n_demons, dtype=np.int64)
        group_of[assignment.order] = np.repeat(
            np.repeat(np.arange(n_groups), assignment.n_blocks), assignment.sizes
        )
        joined = assignment.turn.copy()
        for ends in np.unique(group_of[links], axis=0):
            joined[np.isin(joined, joined[ends])] = joined[ends].min()
        order = np.argsort(joined, kind="stable")
        return order, np.flatnonzero(np.diff(joined[order])) + 1

    def divide(self, n_shards: int) -> list[Part]:
        """Return parts of similar width; raise ClusterError if there cannot be `n_shards`."""
        if n_shards < 1:
            raise ClusterError(f'shards must be at least 1, or "auto", not {n_shards}')
        if n_shards > self.most_shards:
            raise ClusterError(
                f"these {self.n_demons:,} demons cannot be divided into {n_shards} shards, because demons of one "
                f"policy, or of the same 1,024 lanes, are flushed together: take at most {self.most_shards}"
            )
        borders = pairwise([0, *self._even_borders(n_shards), self._order.size])
        return [self._part(self._order[first:last]) for first, last in borders]

    def _part(self, groups: Integers) -> Part:
        demons = []
        layouts = {}
        for r, name in enumerate(self._configs):
            of_rule = np.flatnonzero(self._rule_of == r)
            own_groups = np.intersect1d(groups, of_rule)
            members, assignment = _assignment_of_part(self._assignment, own_groups)
            may_idle = bool(self._assignment.has_one_policy[of_rule].any())
            layouts[name] = ShardLayout(assignment, own_groups - of_rule[0], of_rule.size, may_idle)
            demons.append(members)
        return Part(
            np.sort(np.concatenate(demons)),
            ShardContext(layouts, self.predicted, self._decay, self._n_gibbs),
        )

    def _even_borders(self, n_shards: int) -> list[int]:
        """Return the n_shards - 1 borders closest to an even division of the lanes."""
        assignment = self._assignment
        lanes = np.add.reduceat(
            assignment.widths, np.cumsum(assignment.n_blocks) - assignment.n_blocks
        )
        lanes_before = np.concatenate([[0], np.cumsum(lanes[self._order])])
        chosen: list[int] = []
        first = 0
        for k in range(1, n_shards):
            # Leaves one border for each further shard
            last = self._borders.size - (n_shards - 1 - k)
            distance = np.abs(
                lanes_before[self._borders[first:last]] - k * lanes_before[-1] / n_shards
            )
            first += int(np.argmin(distance)) + 1
            chosen.append(int(self._borders[first - 1]))
        return chosen

    def memory_needed(
        self,
        parts: Sequence[Part],
        n_features: int,
        memory: int,
        n_cpus: int,
        *,
        has_copy: bool = False,
    ) -> list[int]:
        """Return the memory that each shard needs, in bytes; `has_copy`: the state is copied for a snapshot.

        Raise ClusterError if all machines together have less `memory`, in bytes, or fewer cores
        than shards.
        """
        needed = [
            _PROCESS_BYTES + (1 + has_copy) * self._bytes_of(part, n_features) for part in parts
        ]
        if sum(needed) > memory:
            bytes_per_demon = (sum(needed) - len(parts) * _PROCESS_BYTES) // self.n_demons
            raise ClusterError(
                f"{self.n_demons:,} demons in {len(parts)} shards need up to {sum(needed) / 1e9:.1f} GB, "
                f"{bytes_per_demon:,} bytes each, and the machines offer {memory / 1e9:.1f} GB: "
                "ask fewer questions, or join machines"
            )
        if len(parts) > n_cpus:
            raise ClusterError(
                f"{len(parts)} shards need a core each, and the machines offer {n_cpus}: take fewer"
            )
        return needed

    def _bytes_of(self, part: Part, n_features: int) -> int:
        total = 0
        for name, layout in part.context.layouts.items():
            n = layout.assignment.order.size
            config = self._configs[name]
            n_weights = n_features * (self._n_actions if rule(config.algorithm).FINDS_POLICY else 1)
            total += demon_bytes(
                n, n_weights, config, self._mode, self._decay, min(self._n_gibbs, n)
            )
        return total


def _assignment_of_part(whole: LaneAssignment, groups: Integers) -> tuple[Integers, LaneAssignment]:
    """Return the demons of some flush groups, (n,), ascending, and their assignment, numbered from 0."""
    group_of_block = np.repeat(np.arange(whole.n_blocks.size), whole.n_blocks)
    is_block = np.isin(group_of_block, groups)
    order = whole.order[np.repeat(is_block, whole.sizes)]
    members = np.sort(order)
    assignment = LaneAssignment(
        order=np.searchsorted(members, order),
        sizes=whole.sizes[is_block],
        n_blocks=whole.n_blocks[groups],
        has_one_policy=whole.has_one_policy[groups],
        phase=whole.phase[groups],
    )
    return members, assignment


def demon_bytes(
    n_demons: int, n_features: int, config: LearnerConfig, mode: Mode, decay: float, n_gibbs: int
) -> int:
    """Return the memory of demons if every feature was active once: weights, traces or pending steps, and policies."""
    item = np.dtype(config.dtype).itemsize
    numbers = n_features * (2 + config.vector_mspbe + (config.average > 0.0))
    if config.needs_plain_engine:
        numbers += n_features  # the trace
    else:
        tail = min(trace_length(config, decay), LARGEST_TAIL)
        period = _PERIODS[mode]
        numbers += 2 * (tail + period) + 3 * period + len(OF_LANES)
    if config.lstd:
        # A weight of each random feature and reading; the sums are of each policy, of which there are few
        numbers += config.lstd + MOST_READINGS + 1
    return n_demons * numbers * item + n_gibbs * _GIBBS_BYTES
