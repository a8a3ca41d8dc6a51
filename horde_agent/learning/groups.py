"""Trace groups: demons with the same policy, continuation, trace decay and time of addition share a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.learning.stored import DEMON, GROUP, NEWCOMER, POLICY, Earlier
from horde_agent.learning.values import identity, number
from horde_agent.types import Integers


class TraceGroups(NamedTuple):
    """The groups of d demons; values that depend only on the group are computed once for it."""

    cohort: Integers  # (d,): number of each demon's addition; different cohorts share no trace
    group: Integers  # (d,): of each demon
    policy: Integers  # (n_groups,): number of each group's policy
    leaders: list[GVF]  # first question of each group

    @property
    def policy_of(self) -> Integers:
        """Policy of each demon, shape (d,)."""
        return np.asarray(self.policy[self.group])

    def earlier(self, before: TraceGroups, old_index: Integers) -> Earlier:
        """Return the index that each demon, group and policy had before demons were added or removed.

        `before` are the groups then; `old_index`, shape (d,), is as in `DemonMapping`.
        """
        stays = old_index != NEWCOMER
        group = np.full(self.policy.size, NEWCOMER)
        group[self.group[stays]] = before.group[old_index[stays]]
        has_stayed = group != NEWCOMER
        policy = np.full(int(self.policy.max()) + 1, NEWCOMER)
        policy[self.policy[has_stayed]] = before.policy[group[has_stayed]]
        return {DEMON: old_index, GROUP: group, POLICY: policy}


def trace_groups(questions: Sequence[GVF], cohort: Integers) -> TraceGroups:
    """Return the trace groups of demons; `cohort`, (n_demons,), is as in `TraceGroups`."""
    keys = []
    for question, addition in zip(questions, cohort.tolist(), strict=True):
        policy = identity(question.target_policy)
        keys.append((policy, identity(question.continuation), identity(question.lam), addition))
    group, firsts = number(keys)
    leaders = [questions[i] for i in firsts]
    policy_of_group, _ = number([identity(question.target_policy) for question in leaders])
    return TraceGroups(cohort, group, policy_of_group, leaders)
