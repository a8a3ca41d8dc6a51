"""Gibbs policies in full: one softmax over dense parameters per policy, float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from horde_agent.policies import Gibbs

Floats = NDArray[np.float64]


def gibbs_ratios(policies: Sequence[Gibbs], phi: Floats, action: int, probability: float) -> Floats:
    """Return pi(action)/probability of each policy at the feature vector phi."""
    return np.array([_softmax(_dense(policy) @ -phi)[action] for policy in policies]) / probability


def _dense(policy: Gibbs) -> Floats:
    """Return u as (n_actions, n_features); a position named twice counts twice."""
    u = np.bincount(policy.index, policy.value, minlength=policy.n_actions * policy.n_features)
    return np.asarray(u.reshape(policy.n_actions, policy.n_features))


def _softmax(x: Floats) -> Floats:
    weight = np.exp(x - x.max())
    return np.asarray(weight / weight.sum())
