"""Target policies to importance sampling ratios: pi(a) of the action that was taken, over b(a).

Equal policies are evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.kernels import checks
from horde_agent.kernels.policies import LARGEST
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.gibbs import GibbsTable, largest_logit
from horde_agent.learning.groups import TraceGroups
from horde_agent.learning.stored import DEMON, POLICY, Earlier, Field, Fields, Stored
from horde_agent.learning.values import Observation, distinct, identity
from horde_agent.policies import Among, Behaviour, ConstantAction, Gaussian, Gibbs, Greedy, Policy
from horde_agent.types import Floats, Tiles

# Gibbs policies below which float64 sums from scratch on each step are fast enough
_FEW_POLICIES = 32
# Steps between two checks of all probabilities of a policy; pi(a) is checked on each step
_CHECKED_EVERY = 64
_ROUNDING = 1e-4  # tolerance of a sum of probabilities; a float32 softmax needs 1e-7


def n_actions_of(policies: Iterable[Policy]) -> int:
    """Return the policies' number of actions, 0 if none defines it; raise ValueError if they disagree."""
    counts = {policy.n_actions for policy in policies if not isinstance(policy, Behaviour)}
    if len(counts) > 1:
        raise ValueError(f"the target policies have different numbers of actions: {sorted(counts)}")
    if counts:
        return counts.pop()
    return 0


class ErrorTotals(Stored):
    """Sums of rho delta and of rho delta^2 over each demon's steps, of TD errors delta and ratios rho.

    Args:
        n_demons: Number of demons.

    Attributes:
        totals: The sums, shape (2, n_demons).
    """

    FIELDS: ClassVar[Fields] = {"totals": Field(DEMON, at=1, is_optional=True)}

    def __init__(self, n_demons: int) -> None:
        self.totals = np.zeros((2, n_demons))


class PolicyRatios(Stored):
    """The distinct target policies of a Horde and their importance sampling ratios.

    Args:
        groups: The trace groups of the demons.
        max_finite: Largest ratio; a policy with a larger one, or none, has no ratio in the step.
        n_gibbs: Number of Gibbs policies of the whole Horde, if this is a shard.

    Attributes:
        groups: As given.
        n_actions: Number of actions, 0 if no policy defines it.
        arrays: The ratios and their sums, which the kernel writes.
        b, action: Probability and number of the latest action, (1,) each.
        has_rho: False for trace groups whose policy has no ratio in the latest step, (n_groups,).
        has_functions: Whether a policy is evaluated in Python.
        given: The values in place of missing ratios, by policy: NaN, infinite or too large.
        misfits: Descriptions of invalid probabilities, by policy, until `pop_misfits`.

    Raises:
        ValueError: If the policies disagree about the number of actions or features.
    """

    # Gibbs logits depend only on the tiles
    FIELDS: ClassVar[Fields] = {
        "arrays/rho": Field(POLICY),
        "arrays/totals": Field(is_carried=False),
        "_earlier_totals": Field(DEMON, at=1),
        "b": Field(is_carried=False),
        "action": Field(is_carried=False),
        "_n_evaluated": Field(is_carried=False),
        "_is_disabled": Field(is_carried=False),
    }

    def __init__(self, groups: TraceGroups, max_finite: float, n_gibbs: int = 0) -> None:
        policies = distinct([question.target_policy for question in groups.leaders])
        n_policies = len(policies)
        self.groups = groups
        self._max_finite = max_finite
        self.n_actions = n_actions_of(policies)
        self.arrays = checks.RatioArrays(
            action=np.full(n_policies, checks.ELSEWHERE),
            rho=np.zeros(n_policies),
            totals=np.zeros((checks.N_TOTALS, n_policies)),
        )
        self._earlier_totals = np.zeros((checks.N_TOTALS, groups.group.size))
        self.b = np.ones(1)
        self.action = np.zeros(1, dtype=np.int64)
        self.has_rho = np.ones(groups.policy.size, dtype=np.bool_)
        self.given: dict[int, float] = {}
        self.misfits: dict[int, str] = {}
        self._n_evaluated = np.zeros(1, dtype=np.int64)
        self._is_disabled = np.zeros(n_policies, dtype=np.bool_)
        self._write_constants: Any = None
        self._functions: list[tuple[int, Policy]] = []
        gibbs = dict[int, Gibbs]()
        for i, policy in enumerate(policies):
            match policy:
                case Behaviour():
                    self.arrays.action[i] = checks.ON_POLICY
                case ConstantAction(action):
                    self.arrays.action[i] = action
                case Gibbs():
                    gibbs[i] = policy
                case Among(policy=Gibbs() as of_first_actions):
                    gibbs[i] = of_first_actions
                case _:
                    self._functions.append((i, policy))
        self.has_functions = bool(self._functions)
        are_few = max(len(gibbs), n_gibbs) < _FEW_POLICIES
        # Integer logits; float64 for few or large ones
        tables: dict[tuple[bool, int], dict[int, Gibbs]] = {}
        for i, p in gibbs.items():
            in_floats = are_few or largest_logit([p]) > LARGEST
            tables.setdefault((in_floats, p.n_actions), {})[i] = p
        self._tables = [
            GibbsTable(
                list(part.values()), np.array(list(part), dtype=np.int64), in_floats=in_floats
            )
            for (in_floats, _), part in tables.items()
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {"_write_constants": None}

    @property
    def of_demons(self) -> Floats:
        """The ratios of the latest step, shape (n_demons,)."""
        return np.asarray(self.arrays.rho[self.groups.policy_of])

    @property
    def given_to_demons(self) -> Floats:
        """The same, with NaN, infinity or a too large value for demons without a ratio, shape (n_demons,)."""
        rho = self.arrays.rho.copy()
        for policy, value in self.given.items():
            rho[policy] = value
        return np.asarray(rho[self.groups.policy_of])

    def totals(self) -> Floats:
        """Return sums over each demon's ratios since it was added, shape (3, n_demons)."""
        return np.asarray(self._earlier_totals + self.arrays.totals[:, self.groups.policy_of])

    def carry_over(self, before: Self, earlier: Earlier) -> None:
        """Continue what remaining demons and policies have; the totals so far become totals of demons."""
        before._earlier_totals[:] = before.totals()
        before.arrays.totals[:] = 0.0
        super().carry_over(before, earlier)

    def write(
        self, action: int, probability: float, observation: Observation, tiles: Tiles
    ) -> None:
        """Write rho = pi(a)/b(a) of all policies, and add it to the totals.

        rho is finite: 0 for a policy without a ratio. `observation`, (n_channels,), and `tiles`,
        (n_active,), are those of the state in which `action` was taken with `probability` b(a).
        """
        self.b[0] = probability
        self.action[0] = action
        for table in self._tables:
            table.ratios(tiles, action, probability, self.arrays.rho)
        if self._functions:
            self._evaluate_functions(action, probability, observation, tiles)
        if self._write_constants is None:
            self._write_constants = bind(
                checks.finish_ratios, pack(self.arrays), like=(action, probability)
            )
        self._write_constants(action, probability)

    def _evaluate_functions(
        self, action: int, probability: float, observation: Observation, tiles: Tiles
    ) -> None:
        """Write the ratios of policies that are evaluated in Python, as `write` does."""
        is_due = self._n_evaluated[0] % _CHECKED_EVERY == 0
        self._n_evaluated += 1
        self.given.clear()
        for i, policy in self._functions:
            if self._is_disabled[i]:
                continue
            if isinstance(policy, Gaussian):
                ratio = policy.ratio(observation, tiles)
            else:
                probabilities = policy.probabilities(observation, tiles)
                ratio = self._probability(i, probabilities, action, is_due) / probability
            if not abs(ratio) <= self._max_finite:  # NaN is not
                self.given[i] = ratio
                ratio = 0.0
            self.arrays.rho[i] = ratio
        self.has_rho[:] = True
        for i in self.given:
            self.has_rho[self.groups.policy == i] = False

    def _probability(self, i: int, given: Any, action: int, is_due: bool) -> float:
        """Return pi(a) from a policy's probabilities; NaN and an entry in `misfits` if they are invalid."""
        try:
            if len(given) == self.n_actions:
                p = float(given[action])
            else:
                p = np.nan
        except (TypeError, ValueError):
            p = np.nan
        if is_due or not 0.0 <= p <= 1.0:
            misfit = misfit_of(given, self.n_actions)
            if misfit:
                self.misfits[i] = misfit
                return np.nan
            if np.isfinite(p):
                p = min(max(p, 0.0), 1.0)
        return p

    def pop_misfits(self) -> dict[int, str]:
        """Return the demons with invalid target policies, with the returned value; these are evaluated no more."""
        reasons: dict[int, str] = {}
        for policy, misfit in self.misfits.items():
            demons = np.flatnonzero(self.groups.policy_of == policy).tolist()
            reasons |= dict.fromkeys(demons, f"its target policy {misfit}")
            self._is_disabled[policy] = True
        self.misfits.clear()
        return reasons


def misfit_of(given: Any, n_actions: int, *, is_first: bool = False) -> str:
    """Describe why a value is not a distribution over n actions; return "" if it is one.

    NaN or infinity is an error only in a policy's first value: later it may come from a broken
    sensor reading, and the next value may be valid.
    """
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return f"gave {given!r}, not {n_actions} probabilities"
    if values.shape != (n_actions,):
        return f"gave an array of shape {values.shape}, not {n_actions} probabilities"
    shown = np.array2string(values, precision=4, threshold=10)
    if (values < -_ROUNDING).any():
        return f"gave {shown}, with {values.min():.4g} for action {values.argmin()}, not probabilities in [0, 1]"
    if not np.isfinite(values).all():
        if is_first:
            return f"gave {shown}, not {n_actions} probabilities"
        return ""
    if abs(values.sum() - 1.0) <= _ROUNDING:
        return ""
    return f"gave {shown}, which add up to {values.sum():.6g}, not 1"


def refuse_misfits(questions: Sequence[GVF], observation: Observation, tiles: Tiles) -> None:
    """Check each target policy's probabilities at an observation, (n_sensors,), and tiles.

    Raises:
        ValueError: If they are invalid; the message names a question, the value and the expected
            value.
    """
    right_by_construction = (Behaviour, ConstantAction, Gibbs, Greedy)
    first_question = {identity(q.target_policy): q for q in reversed(questions)}
    for q in reversed(first_question.values()):
        if not isinstance(q.target_policy, right_by_construction):
            probabilities = q.target_policy.probabilities(observation, tiles)
            # NaN may come from a missing reading
            is_first = not np.isnan(observation).any()
            misfit = misfit_of(probabilities, q.target_policy.n_actions, is_first=is_first)
            if misfit:
                raise ValueError(f"question {q.name!r}: its target policy {misfit}")
