"""GibbsTable: the importance sampling ratios of many Gibbs policies. It owns the arrays of `kernels/policies.py`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import policies as kernels
from horde_agent.kernels.entry import Holder, entry_of, hands_here
from horde_agent.kernels.held import hold
from horde_agent.policies import Gibbs
from horde_agent.saving import State

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

_LARGEST_BLOCK = 4096  # policies whose logits (80 KB at five actions) stay in a core's own cache
_SMALLEST_SHARED = 2048  # policies from which on it pays to begin a parallel region for them alone
_SMALLEST_BLOCK = 128  # policies for which it pays to go through the features that switched once more
_NEVER = -9  # no time
_NOWHERE = np.zeros(0)


class GibbsTable(Holder):
    """How likely each of many Gibbs policies would have taken the action that was taken.

    Logits are sums of multiples of 2^-24, kept from step to step: probabilities are within 1e-6 of the softmax in
    floats for policies like the paper's, and depend on the present tiles alone. Where a policy's logits could pass 63,
    or a feature is on so often that they could, they are float64 sums from scratch instead, some ten times slower.
    An engine may ask a table of whole numbers itself, within its own parallel region: it holds `parts`, and writes
    their state.

    Args:
        policies: Gibbs policies of one shape.
        position: Where each policy's ratio is written, shape (n_policies,).
        in_floats: Keep float64 logits in any case: exact to its rounding, and as quick for a few policies.
        shares: Blocks in which even a few policies are cut, where an engine's threads share them.

    Attributes:
        in_floats: Whether logits are float64.
        position: Where each policy's ratio is written.

    Raises:
        ValueError: If there is no policy, or they differ in their number of actions or features.
    """

    def __init__(
        self, policies: Sequence[Gibbs], position: NDArray[np.int64], *, in_floats: bool = False, shares: int = 1
    ) -> None:
        shapes = {(p.n_actions, p.n_features) for p in policies}
        if len(shapes) != 1:
            raise ValueError(f"the Gibbs policies of one Horde must have one shape, not {sorted(shapes)}")
        ((self.n_actions, self.n_features),) = shapes
        self._shares = shares
        self._policies, self.position = tuple(policies), np.asarray(position, dtype=np.int64)
        self._is_in_order = np.array_equal(self.position, np.arange(len(self._policies)))
        self._most_repeats = kernels.LARGEST / max(largest_logit(policies), 1e-300)
        self._build(in_floats=in_floats or self._most_repeats < 1)

    def _build(self, *, in_floats: bool) -> None:
        """Make the index, and forget the present tiles."""
        self.in_floats = in_floats
        n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        n = len(self._policies)
        n_blocks = -(-n // _LARGEST_BLOCK)
        if n >= _SMALLEST_SHARED:
            n_blocks = -(-n_blocks // n_threads) * n_threads
        elif n >= self._shares * _SMALLEST_BLOCK:
            n_blocks = self._shares
        first = np.linspace(0, n, n_blocks + 1).astype(np.int64)
        parts = [
            _block(self._policies[i:j], self.n_actions, self.n_features, in_floats=in_floats)
            for i, j in itertools.pairwise(first)
        ]
        begins = np.cumsum([0] + [len(entry) for _, entry in parts])
        self._index = kernels.GibbsIndex(
            first=first,
            start=np.stack([start + begin for (start, _), begin in zip(parts, begins, strict=False)]),
            entry=np.concatenate([entry for _, entry in parts]),
            position=self.position,
            most_repeats=np.array([self._most_repeats]),
        )
        self._restart(0)

    def _restart(self, n_active: int) -> None:
        """Begin at tiles that are all number n_features: one at which no policy looks."""
        self._state = kernels.GibbsState(
            logits=np.zeros(self.n_actions * len(self._policies), dtype=self._index.entry.dtype),
            at=np.full(self._index.first.size - 1, _NEVER),
            tiles=np.full(n_active, self.n_features, dtype=np.int64),
            features=np.zeros((4, max(self.n_features + 1, n_active)), dtype=np.int64),
            low=np.zeros((self._index.first.size - 1, kernels.LANES_AT_ONCE), dtype=np.int32),
            sums=np.zeros((self._index.first.size - 1, 2, kernels.LANES_AT_ONCE), dtype=np.float32),
            ratios=np.zeros(len(self._policies)),
            totals=np.zeros((2, len(self._policies))),
            asked=np.zeros(2),
        )
        is_shared = len(self._policies) >= _SMALLEST_SHARED
        self._n_hands = int(numba.config.NUMBA_NUM_THREADS) if is_shared else 1  # type: ignore[attr-defined]
        self._held = None

    def state(self) -> State:
        """Return what was handed out; logits depend on the present tiles alone, and are made anew."""
        kept = {name: getattr(self._state, name).copy() for name in ("ratios", "totals", "asked")}
        return {"in_floats": np.array(self.in_floats), **kept}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        if bool(state["in_floats"]) and not self.in_floats:
            self.become_floats()
        self._restart(0)
        for name in ("ratios", "totals", "asked"):
            getattr(self._state, name)[...] = state[name]

    def _hold(self) -> Any:
        """Hold index and state in native form."""
        self._held = hold(kernels.GibbsParts(self._index, self._state))
        take_turns = kernels.take_turns_in_floats if self.in_floats else kernels.take_turns
        self._entry = entry_of(take_turns, self._held, 0, 0, 0, 1)
        return self._held

    @property
    def parts(self) -> kernels.GibbsParts:
        """What an engine holds that asks the table itself."""
        return kernels.GibbsParts(self._index, self._state)

    def become_floats(self) -> None:
        """Keep float64 logits from now on; the sums of what was handed out stay."""
        totals = self._state.totals
        self._build(in_floats=True)
        self._state.totals[:] = totals

    @property
    def latest(self) -> Floats:
        """The ratios that were made last, in the order of the policies."""
        return self._state.ratios

    @property
    def totals(self) -> Floats:
        """Sums of the ratios that were handed out to an engine, and of their squares, shape (2, n_policies)."""
        return self._state.totals

    def ratios(self, tiles: Tiles, action: int, probability: float, out: Floats) -> None:
        """Write pi(action | tiles) / probability of each policy to its position in `out`.

        Args:
            tiles: Active features, int64, shape (n_active,), each below n_features.
            action: The action taken.
            probability: b(action), with which the behaviour policy took it.
            out: Changed in place.
        """
        if tiles.size != self._state.tiles.size:
            self._restart(tiles.size)
        is_direct = self._is_in_order and out.size == len(self._policies)
        if is_direct and out is not self._state.ratios:
            self._state, self._held = self._state._replace(ratios=out), None
        held, elsewhere = self._held or self._hold(), _NOWHERE if is_direct else out
        n_hands = hands_here(self._n_hands)
        most = kernels.gibbs_ratios(held, self._entry, n_hands, tiles, action, probability, elsewhere)
        if most > self._most_repeats and not self.in_floats:
            self.become_floats()
            self.ratios(tiles, action, probability, out)


def nobody() -> kernels.GibbsParts:
    """Return a table without a policy, for an engine that asks none."""
    table = GibbsTable([Gibbs(1, 1, np.zeros(1, dtype=np.int64), np.zeros(1))], np.zeros(1, dtype=np.int64)).parts
    index = table.parameters._replace(start=table.parameters.start[:0], most_repeats=np.array([np.inf]))
    return table._replace(parameters=index)


def largest_logit(policies: Sequence[Gibbs]) -> float:
    """Return a number that no |u_a.phi| of the policies passes while no feature is on more than once."""
    return max(
        (float(np.bincount(p.index // p.n_features, np.abs(p.value)).max()) for p in policies if p.index.size),
        default=0.0,
    )


def _block(
    policies: Sequence[Gibbs], n_actions: int, n_features: int, *, in_floats: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return a block's start of each feature, (n_features + 2,), and its entries."""
    sizes = [p.index.size for p in policies]
    action, feature = np.divmod(np.concatenate([p.index for p in policies]), n_features)
    place = action * len(policies) + np.repeat(np.arange(len(policies)), sizes)
    order = np.argsort(feature * (n_actions * len(policies)) + place)
    start = np.searchsorted(feature[order], np.arange(n_features + 2)).astype(np.int64)
    value = np.concatenate([p.value for p in policies])
    if in_floats:
        return start, np.stack([place, value], axis=1)[order]
    return start, np.stack([place, np.rint(value / kernels.UNIT)], axis=1)[order].astype(np.int32)
