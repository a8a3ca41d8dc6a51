"""Random events for learning engines: one generator, whose engines and references all receive the same.

A *learner* is an engine, or a reference with the same methods (`tests/oracles/engine.py`). The
events are steps with every kind of signal, gaps, ends of streams, other streams, demons that are
added, removed, reordered and diverge, new weights, copies, and restored states.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import Signals
from horde_agent.learning.engine import DemonMapping
from horde_agent.learning.rarity import FeatureRarity, visit_counter
from horde_agent.learning.stored import NEWCOMER

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Features in two words of bits
N = 70
N_ACTIVE = 5
N_POLICIES = 4
# Policies 0 and 1 have enough demons for blocks of their own, which skip steps with rho = 0;
# policies 2 and 3 share a block.
DEMONS_OF_POLICY = (17, 16, 3, 2)


class Event(Enum):
    """What happens next."""

    LEARN = auto()
    GAP = auto()  # the stream begins again
    END = auto()  # a last step, after which the stream begins again
    CHANGE = auto()  # demons are removed, added and reordered
    RESET = auto()  # theta is set
    DIVERGE = auto()  # a demon is marked as diverged: it stays at 0
    COPY = auto()  # the engines are replaced by copies
    RESTORE = auto()  # the engines are replaced by copies that learned something else, restored
    SELECT = auto()  # another stream is selected


# Of 60 draws, how many are this event; the others are steps.
FREQUENCIES = {
    Event.GAP: 1,
    Event.END: 1,
    Event.CHANGE: 1,
    Event.RESET: 1,
    Event.DIVERGE: 1,
    Event.COPY: 1,
    Event.RESTORE: 1,
}
N_DRAWS = 60


@dataclass(frozen=True)
class Choices:
    """What signals are drawn from.

    Attributes:
        gamma, lam: Continuations and trace decays.
        rho: Ratios of a step that a policy would have taken.
        p_turn: Probability per step that a policy's ratios change between 0 and `rho`, by policy.
        p_broken: Probability of a signal that is not finite.
        alpha: The step size of all demons; None for several, some of them 0.
        alpha_w: The secondary step size of all demons; None for that of `alpha`.
        demons: Number of demons of each policy at the beginning.
    """

    gamma: tuple[float, ...] = (0.0, 0.3, 0.5, 1.0)
    lam: tuple[float, ...] = (0.0, 0.3, 0.5, 0.5)
    rho: tuple[float, ...] = (0.3, 1.0, 1.6, 5.0)
    p_turn: tuple[float, ...] = (0.15, 0.3, 0.3, 0.3)
    p_broken: float = 0.004
    alpha: float | None = None
    alpha_w: float | None = None
    demons: tuple[int, ...] = DEMONS_OF_POLICY

    @property
    def largest_decay(self) -> float:
        """Upper bound of gamma lambda."""
        return max(self.gamma) * max(self.lam)


@dataclass
class Learner:
    """An engine or a reference, and the step sizes of demons that are added to it.

    Attributes:
        engine: It.
        alpha, alpha_w: Step sizes; None for those of the stream.
    """

    engine: Any
    alpha: float | None = None
    alpha_w: float | None = None


class EngineStream:
    """A random stream of events for engines and their references.

    Demon i learns about policy `policy[i]` with the continuation and the trace decay of variant
    `variant[i]`, and was added at change `born[i]`. For odd seeds policy 3 is on-policy.

    Args:
        seed: Seed of all events.
        choices: What signals are drawn from.
        n_streams: Number of streams, which take turns.
        algorithms: Update rules of the demons: policy k has number k modulo their number.
        rarity: What counts the features, whose classes all engines get; None for features that are
            alike.

    Attributes:
        group: Trace group of each demon, shape (n_demons,).
        leader: One demon of each group, shape (n_groups,).
        alpha, alpha_w: Step sizes at the beginning, shape (n_demons,).
        is_diverged: Whether a demon was marked as diverged, shape (n_demons,).
        is_marked: A mask of the caller's, which follows the demons, shape (n_demons,).
        learners: The engines under test, which are copied and restored.
        references: What they are compared with.
        first_predictions: What the engines, then the references, returned when they last began.
    """

    def __init__(
        self,
        seed: int,
        choices: Choices | None = None,
        n_streams: int = 1,
        algorithms: Sequence[str] = ("gtd",),
        rarity: FeatureRarity | None = None,
    ) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.choices = choices or Choices()
        self.n_streams = n_streams
        self.algorithms = tuple(algorithms)
        self.rarity = rarity
        self.n_learned = 0
        self.policy = np.repeat(np.arange(N_POLICIES), self.choices.demons)
        n = self.policy.size
        self.variant = rng.integers(0, 2, n)
        self.born = np.zeros(n, dtype=np.int64)
        self.is_diverged = np.zeros(n, dtype=bool)
        self.is_marked = np.zeros(n, dtype=bool)
        self.n_changes = 0
        self.group, self.leader = self._groups()
        self.alpha, self.alpha_w = self._step_sizes(n)
        self.p_turn = np.array(self.choices.p_turn)
        if seed % 2:
            self.p_turn[3] = 0.0
        self.is_followed = np.ones(N_POLICIES, dtype=bool)
        self.gamma_of_variant = rng.choice(self.choices.gamma, (N_POLICIES, 2))
        self.lam_of_variant = rng.choice(self.choices.lam, (N_POLICIES, 2))
        self.tiles = rng.choice(N, N_ACTIVE, replace=False)
        self.stream = 0
        self.tiles_of_stream: dict[int, Integers] = {}
        self.learners: list[Learner] = []
        self.references: list[Learner] = []
        self.first_predictions: list[Floats] = []
        self._allocate()

    @property
    def policy_of_group(self) -> Integers:
        """Policy of each trace group, shape (n_groups,)."""
        return self.policy[self.leader]

    @property
    def algorithm(self) -> NDArray[np.str_]:
        """Update rule of each demon, shape (n_demons,)."""
        return np.array(self.algorithms)[self.policy % len(self.algorithms)]

    def start(self, learners: Sequence[Learner], references: Sequence[Learner] = ()) -> None:
        """Begin the first stream."""
        self.learners = list(learners)
        self.references = list(references)
        self.begin()

    def _all(self) -> list[Any]:
        return [learner.engine for learner in (*self.learners, *self.references)]

    def _step_sizes(self, n: int) -> tuple[Floats, Floats]:
        drawn = self.rng.choice([0.0, 0.01, 0.03], (2, n), p=[0.1, 0.6, 0.3])
        alpha, alpha_w = drawn
        if self.choices.alpha is not None:
            alpha = np.full(n, self.choices.alpha)
            alpha_w = np.full(n, self.choices.alpha)
        if self.choices.alpha_w is not None:
            alpha_w = np.full(n, self.choices.alpha_w)
        return alpha, alpha_w

    def _groups(self) -> tuple[Integers, Integers]:
        """Return the trace group of each demon, and one demon of each group."""
        keys = np.c_[self.born, self.policy, self.variant]
        _, firsts, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), firsts

    def _allocate(self) -> None:
        """Allocate the signals, which stay the same arrays until demons are added or removed."""
        n_policies = int(self.policy.max()) + 1
        n_groups = self.leader.size
        n = self.policy.size
        self.signals = Signals(
            rho_t=np.zeros(n_policies),
            gamma_tp1=np.zeros(n_groups),
            lam_tp1=np.zeros(n_groups),
            c_tp1=np.zeros(n),
            z_tp1=np.zeros(n),
            b_t=np.ones(1),
            interest_t=np.ones(n),
            has_rho=np.ones(n_groups, dtype=bool),
        )

    # ---- events -----------------------------------------------------------------------------------------------------

    def draw(self) -> Event:
        """Draw the next event."""
        if self.n_streams > 1 and self.rng.random() < 0.15:
            return Event.SELECT
        number = int(self.rng.integers(N_DRAWS))
        for event, frequency in FREQUENCIES.items():
            number -= frequency
            if number < 0:
                return event
        return Event.LEARN

    def take(self, event: Event) -> None:
        """Let an event happen to all engines."""
        match event:
            case Event.LEARN:
                self.learn()
            case Event.GAP:
                self.begin()
            case Event.END:
                self.learn(is_last=True)
                self.begin()
            case Event.CHANGE:
                self.change()
            case Event.RESET:
                self.reset()
            case Event.DIVERGE:
                self.mark_diverged()
            case Event.COPY:
                for learner in self.learners:
                    learner.engine = copy.deepcopy(learner.engine)
            case Event.RESTORE:
                self.restore()
            case Event.SELECT:
                self.select(int(self.rng.integers(self.n_streams)))

    def run(self, n_events: int) -> None:
        """Take random events."""
        for _ in range(n_events):
            self.take(self.draw())

    def _move(self) -> None:
        """Change between none and all of the active tiles."""
        n_new = int(self.rng.choice([0, 1, 2, N_ACTIVE], p=[0.1, 0.4, 0.4, 0.1]))
        old_tiles = self.rng.permutation(self.tiles)[n_new:]
        inactive = np.setdiff1d(np.arange(N), old_tiles)
        self.tiles = np.r_[old_tiles, self.rng.choice(inactive, n_new, replace=False)]

    def begin(self) -> None:
        """Begin a stream at another state."""
        self._move()
        if self.rarity is not None:
            visit_counter()(self.rarity.visits, self.tiles)
        self.first_predictions = [engine.begin(self.tiles).copy() for engine in self._all()]

    def draw_signals(self) -> Signals:
        """Draw signals into the same arrays: ratios are 0 for several steps in a row, a few numbers are not finite."""
        rng = self.rng
        choices = self.choices
        signals = self.signals
        self.is_followed ^= rng.random(N_POLICIES) < self.p_turn
        gamma = rng.choice(choices.gamma, (N_POLICIES, 2))
        lam = rng.choice(choices.lam, (N_POLICIES, 2))
        is_drawn = rng.random((2, N_POLICIES, 2)) < 0.1
        self.gamma_of_variant = np.where(is_drawn[0], gamma, self.gamma_of_variant)
        self.lam_of_variant = np.where(is_drawn[1], lam, self.lam_of_variant)

        rho = rng.choice(choices.rho, N_POLICIES) * self.is_followed
        signals.rho_t[:] = rho[: signals.rho_t.size]
        signals.rho_t[3:] = signals.rho_t[3:] > 0
        variant = self.variant[self.leader]
        signals.gamma_tp1[:] = self.gamma_of_variant[self.policy_of_group, variant]
        signals.lam_tp1[:] = self.lam_of_variant[self.policy_of_group, variant]
        signals.c_tp1[:] = rng.normal(size=self.policy.size)
        signals.z_tp1[:] = rng.normal(size=self.policy.size) * (rng.random() < 0.3)
        signals.b_t[:] = rng.uniform(0.1, 0.9)
        if rng.random() < 0.3:
            signals.interest_t[:] = rng.choice([0.0, 0.5, 2.0], self.policy.size)
        for values in signals[:5]:
            is_broken = rng.random(values.size) < choices.p_broken
            values[is_broken] = rng.choice([np.nan, np.inf, -np.inf], is_broken.sum())
        # A demon without a ratio is told so; engines receive finite ratios
        has_ratio = np.isfinite(signals.rho_t)
        signals.rho_t[~has_ratio] = 0.0
        signals.has_rho[:] = has_ratio[self.policy_of_group]
        return signals

    def learn(self, *, is_last: bool = False) -> None:
        """Learn from a transition."""
        signals = self.draw_signals()
        self._move()
        for engine in self._all():
            engine.learn(self.tiles, signals, is_last=is_last)
        self.n_learned += 1
        if self.rarity is not None:
            self._count(self.rarity)

    def _count(self, rarity: FeatureRarity) -> None:
        """Count the state, and give all engines the new classes of features if they are due."""
        visit_counter()(rarity.visits, self.tiles)
        if self.n_learned >= rarity.next_at:
            classes = rarity.classify(self.n_learned)
            for engine in self._all():
                engine.set_scales(classes)

    def change(self) -> None:
        """Remove demons, add others, and reorder them."""
        rng = self.rng
        n_before = self.policy.size
        old_index = rng.permutation(n_before)[: rng.integers(n_before // 2, n_before + 1)]
        if rng.random() < 0.5:
            old_index = np.sort(old_index)
        n_new = int(rng.integers(0, 12))
        self.n_changes += 1
        self.policy = np.r_[
            self.policy[old_index], np.repeat(rng.integers(0, N_POLICIES, 2), n_new)
        ]
        self.variant = np.r_[self.variant[old_index], rng.integers(0, 2, 2 * n_new)]
        self.born = np.r_[self.born[old_index], np.full(2 * n_new, self.n_changes)]
        none_of_new = np.zeros(2 * n_new, dtype=bool)
        self.is_diverged = np.r_[self.is_diverged[old_index], none_of_new]
        self.is_marked = np.r_[self.is_marked[old_index], none_of_new]
        self.group, self.leader = self._groups()
        index = np.r_[old_index, np.full(2 * n_new, NEWCOMER)]
        for learner in (*self.learners, *self.references):
            alpha = float(self.alpha.max())
            alpha_w = float(self.alpha_w.max())
            if learner.alpha is not None:
                alpha = learner.alpha
            if learner.alpha_w is not None:
                alpha_w = learner.alpha_w
            mapping = DemonMapping(
                old_index=index,
                group=self.group,
                policy=self.policy_of_group,
                alpha=alpha,
                alpha_w=alpha_w,
                algorithm=tuple(self.algorithm.tolist()),
                largest_decay=self.choices.largest_decay,
            )
            learner.engine.rearrange(mapping)
        self._allocate()

    def reset(self) -> None:
        """Set theta; a diverged demon ignores it and stays at zero."""
        theta = None
        if self.rng.random() < 0.7:
            theta = self.rng.normal(0, 0.1, (self.policy.size, N))
        for engine in self._all():
            engine.reset_weights(theta)

    def mark_diverged(self) -> None:
        """Mark one demon as diverged."""
        demon = int(self.rng.integers(self.policy.size))
        self.is_diverged[demon] = True
        for engine in self._all():
            engine.mark_diverged(demon)

    def restore(self) -> None:
        """Replace each engine by a copy that learned something else, and has its state again."""
        for learner in self.learners:
            state = learner.engine.state()
            other_engine = copy.deepcopy(learner.engine)
            other_tiles = self.rng.choice(N, N_ACTIVE, replace=False)
            other_engine.learn(other_tiles, self.signals)
            other_engine.learn(self.tiles, self.signals)
            other_engine.restore(state)
            learner.engine = other_engine

    def select(self, stream: int) -> None:
        """Select another stream, which begins at its first selection."""
        if stream == self.stream:
            return
        self.tiles_of_stream[self.stream] = self.tiles
        self.stream = stream
        for engine in self._all():
            engine.select_stream(stream)
        is_new = stream not in self.tiles_of_stream
        self.tiles = self.tiles_of_stream.get(stream, self.tiles)
        if is_new:
            self.begin()
