"""Step sizes by the rarity of features: a feature that is seldom active has a larger one.

    theta := theta + alpha S (what the update rule adds),  w := w + alpha_w S (likewise)
    S = diag(s_i),   s_i = c 4^k,   k = 0 if f_i > 1/4, 1 if f_i > 1/64, otherwise 2
    c: such that the mean of phi.S.phi over the states so far is the number of active features

f_i is the share of the states so far in which feature i was active, as if it had been active in 30
more before the first one, so that all features are alike in the first minutes. It is the same as to
learn from the features sqrt(S) phi. A tile that is active in one state of a hundred then has sixteen
times the step size of one that is always active. A feature that was never active has k = 1 at most:
it may come to stay. All counts are halved when there are more than 262,144 states: a change of the
world is noticed in the same time at any age.

c bounds the mean of phi.S.phi, not its largest value. So each demon divides its step sizes, in all
states, by

    max(1, largest alpha e_k.S.phi_k of the steps k since the latest classification, this one included)

alpha e.S.phi is the share of a TD error by which a step changes the prediction of the state it left:
with trace and rho, above 1 it overshoots, and above 2 in a state that recurs weights grow without
bound. A factor made from rho_t in each step alone would be bounded, too, but learn another policy's
values. In lives of the robot the factor is near 1. `python -m tests.bench.random_mdps` learns 1,000
random tabular problems with ratios up to 10, none of which diverges.

Features are classified after 64 learning steps, and then after half of the steps so far, at least 64
and at most 8,192; eight lives of 60,000 steps were learned from no better with an eighth. Three
classes, powers of 4, so that phi_k.S.phi_j remains a sum of counts of bits.

Source: Duchi, Hazan & Singer (2011), Adaptive subgradient methods for online learning and stochastic
optimization: the step size of a coordinate falls with the root of its summed squares of gradients,
which for features that are on or off is about f_i^(-1/2). This is a coarse form without the
dependence on the errors: all demons share S. The classes were chosen on recorded lives.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from horde_agent.kernels.tiles import count_visits
from horde_agent.kernels.vectors import bind
from horde_agent.learning.stored import Field, Fields, Stored
from horde_agent.types import Bools, Floats, Integers

N_CLASSES = 3
RATIO = 4.0
"""Factor between the step sizes of two classes."""
BOUNDARIES = (1.0 / 4.0, 1.0 / 64.0)
"""Shares of the states above which a feature is of class 0, or of class 1."""
UNSEEN = 1
"""The largest class of a feature that was never active."""
N_IMAGINED = 30
"""States before the first one in which every feature is taken to have been active."""
FIRST = 64
"""Learning step after which features are first classified; a multiple of the steps of a batch."""
STEPS_PER_CLASSIFICATION = 2
"""Learning steps so far over those until the next classification."""
LONGEST = 8_192
"""The most learning steps between two classifications."""
MOST_STATES = 1 << 18
"""States that counts reach back, at most: 7.3 hours at 10 Hz."""


class Rarity(NamedTuple):
    """Classes of n features, and the factors of their step sizes."""

    class_of: Integers  # (n,)
    scale_of: Floats  # (N_CLASSES,)
    was_active: Bools  # (n,): in a state so far


def classified(visits: Integers, n_states: int) -> Rarity:
    """Return classes and factors of features that were active in `visits`, (n,), of `n_states` states."""
    share = (visits + N_IMAGINED) / (n_states + N_IMAGINED)
    class_of = np.zeros(visits.size, dtype=np.int64)
    for boundary in BOUNDARIES:
        class_of += share <= boundary
    class_of[visits == 0] = np.minimum(class_of[visits == 0], UNSEEN)
    relative = RATIO ** np.arange(N_CLASSES)
    mean_norm = (visits / n_states * relative[class_of]).sum()
    n_active = visits.sum() / n_states
    return Rarity(class_of, relative * n_active / mean_norm, visits > 0)


def next_classification(n_steps: int) -> int:
    """Return the learning step of the classification after that of learning step `n_steps`."""
    interval = min(max(n_steps // STEPS_PER_CLASSIFICATION, FIRST), LONGEST)
    return (n_steps + interval) // FIRST * FIRST


@functools.cache
def visit_counter() -> Any:
    """Return the kernel that adds a state with these tiles, (n_active,), to `FeatureRarity.visits`."""
    numbers = np.zeros(1, dtype=np.int64)
    return bind(count_visits, like=(numbers, numbers))


class FeatureRarity(Stored):
    """How often each feature of a stream was active, and the latest classes.

    Args:
        n_features: Number of features.
        n_active: Number of active features in each state.

    Attributes:
        visits: Number of states in which each feature was active, shape (n_features,); the caller counts
            every state by `visit_counter`.
        next_at: Learning step of the next classification.
        class_of, scale_of, was_active: The latest classes, as in `Rarity`; no feature was active before
            the first.
    """

    FIELDS: ClassVar[Fields] = {
        "visits": Field(),
        "next_at": Field(),
        "class_of": Field(),
        "scale_of": Field(),
        "was_active": Field(),
    }

    def __init__(self, n_features: int, n_active: int) -> None:
        self.n_active = n_active
        self.visits = np.zeros(n_features, dtype=np.int64)
        self.next_at = FIRST
        self.class_of = np.zeros(n_features, dtype=np.int64)
        self.scale_of = np.ones(N_CLASSES)
        self.was_active = np.zeros(n_features, dtype=bool)

    @property
    def latest(self) -> Rarity | None:
        """The latest classes; None before the first."""
        if not self.was_active.any():
            return None
        return Rarity(self.class_of, self.scale_of, self.was_active)

    def classify(self, now: int) -> Rarity:
        """Classify the features at learning step `now`, and schedule the next time."""
        n_states = int(self.visits.sum()) // self.n_active
        if n_states > MOST_STATES:
            # Rounded up, so that a feature that was active remains one
            self.visits[:] = (self.visits + 1) // 2
            n_states = int(self.visits.sum()) // self.n_active
        classes = classified(self.visits, n_states)
        self.class_of[:] = classes.class_of
        self.scale_of[:] = classes.scale_of
        self.was_active[:] = classes.was_active
        self.next_at = next_classification(now)
        return classes
