"""Growth of a trace's second moment: whether a target policy can be learned from a behaviour policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from horde_agent.gvf import GVF
from horde_agent.kernels.rules import rule
from horde_agent.learning.rules import parse_algorithm
from horde_agent.policies import ConstantAction, StickyRandom

HEAVY_TAILS_FROM = 0.5
INFINITE_VARIANCE_FROM = 1.0


def trace_growth(target: ArrayLike, behaviour: ArrayLike, gamma: float, lam: float) -> float:
    """Return the factor by which E[e^2] grows per step under the trace rule "plain".

    The trace is multiplied by rho gamma lambda on each step, so its second moment grows with the
    spectral radius of M[l, a] = pi(a)^2 / b(a | l), times (gamma lambda)^2; l is the last action.
    From 1 on the variance is infinite. Raise ValueError if the target takes an action that the
    behaviour never takes.

    Args:
        target: pi(a), shape (n_actions,); for a policy that depends on the state, its values in
            some state.
        behaviour: b(a | l), shape (n_actions, n_actions), or (n_actions,) without memory.
        gamma: Continuation.
        lam: Trace decay.
    """
    pi = np.asarray(target, dtype=np.float64)
    b = np.asarray(behaviour, dtype=np.float64)
    b = np.broadcast_to(b, (pi.size, pi.size))
    is_target_action = np.broadcast_to(pi > 0, b.shape)
    if (b[is_target_action] <= 0).any():
        raise ValueError(
            "behaviour must give every action of the target policy a probability above 0"
        )
    moments = np.divide(pi**2, b, out=np.zeros(b.shape), where=is_target_action)
    return float(np.abs(np.linalg.eigvals(moments)).max()) * (gamma * lam) ** 2


def unsafe_rules(
    questions: Sequence[GVF], algorithm: str, trace_rule: str, behaviour: StickyRandom
) -> list[str]:
    """Return a warning for each update rule whose traces or steps are too large under the behaviour.

    Questions without an update rule learn by `algorithm`.
    """
    by_rule: dict[str, list[GVF]] = {}
    for question in questions:
        by_rule.setdefault(question.algorithm or algorithm, []).append(question)
    sentences = []
    for name, asked in by_rule.items():
        key, parameters = parse_algorithm(name)
        definition = rule(key)
        own_trace_rule = definition.TRACE_RULE or trace_rule
        heavy: list[str] = []
        if definition.HAS_INTEREST:  # emphases grow as traces of lambda 1
            heavy = heavy_traces([replace(question, lam=1.0) for question in asked], behaviour)
        elif own_trace_rule == "plain":
            heavy = heavy_traces(asked, behaviour)
        sentences += [
            f"algorithm {name}, trace rule {own_trace_rule}: {warning}" for warning in heavy
        ]
        constant_questions = [
            question for question in asked if isinstance(question.target_policy, ConstantAction)
        ]
        least = float(behaviour.transition_probabilities().min())
        size = 0.0
        if definition.TIMES_RHO:
            size = parameters.get(
                definition.TIMES_RHO, getattr(definition.parameters(), definition.TIMES_RHO, 0.0)
            )
        if constant_questions and size > least:
            sentences.append(
                f"algorithm {name}: {definition.TIMES_RHO} = {size:g} times the largest ratio of "
                f"{constant_questions[0].name!r} and {len(constant_questions) - 1} others, {1.0 / least:g}, is "
                f"above 1: set {definition.TIMES_RHO} to at most {least:g}"
            )
    return sentences


def heavy_traces(questions: Sequence[GVF], behaviour: StickyRandom) -> list[str]:
    """Return a warning for each time scale at which "plain" traces have heavy tails or infinite variance.

    Only targets of one action with constant gamma and lambda are checked: other ratios depend on
    the state.
    """
    counts: Counter[tuple[float, float, int]] = Counter()
    for question in questions:
        policy = question.target_policy
        gamma = question.continuation
        lam = question.lam
        if isinstance(policy, ConstantAction) and not callable(gamma) and not callable(lam):
            counts[float(gamma), float(lam), policy.n_actions] += 1
    sentences = []
    for (gamma, lam, n_actions), n in sorted(counts.items()):
        factor = trace_growth(
            np.eye(n_actions)[0], behaviour.transition_probabilities(), gamma, lam
        )
        if factor >= HEAVY_TAILS_FROM:
            risk = "heavy tails"
            if factor >= INFINITE_VARIANCE_FROM:
                risk = "infinite variance"
            sentences.append(
                f"the traces of {n} questions at gamma {gamma:g}, lambda {lam:g} have {risk}: the second moment is "
                f"multiplied by {factor:.3f} per step"
            )
    return sentences
