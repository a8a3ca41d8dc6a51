"""GibbsTable: importance sampling ratios of many Gibbs policies, on the arrays of `kernels/policies.py`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import policies as kernels
from horde_agent.kernels._jit import one_at_a_time, threads_here
from horde_agent.kernels.vectors import bind, entry_of, pack
from horde_agent.policies import Gibbs
from horde_agent.types import Floats, Tiles

_LARGEST_BLOCK = 4096  # policies; their logits (80 KB for five actions) fit into a core's L2 cache
_SMALLEST_SHARED = 2048  # policies from which on a parallel region is faster


class GibbsTable:
    """Importance sampling ratios of many Gibbs policies of one shape, written to `position` in the output, shape (n,).

    Logits are sums of multiples of 2^-24 that are updated on each step: probabilities are within
    1e-6 of the softmax in floats for policies like the paper's, and depend only on the current
    tiles. `in_floats`, or if a policy's |logit| can exceed 63, logits are float64 sums from
    scratch: exact to rounding, and about ten times slower for many policies.

    Raises:
        ValueError: If they differ in their number of actions or features.
    """

    def __init__(
        self, policies: Sequence[Gibbs], position: NDArray[np.int64], *, in_floats: bool = False
    ) -> None:
        shapes = {(p.n_actions, p.n_features) for p in policies}
        if len(shapes) != 1:
            raise ValueError(
                f"the Gibbs policies of one Horde must have one shape, not {sorted(shapes)}"
            )
        ((self._n_actions, self._n_features),) = shapes
        self.in_floats = in_floats or largest_logit(policies) > kernels.LARGEST
        self._n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        if len(policies) < _SMALLEST_SHARED:
            self._n_threads = 1
        n_blocks = -(-len(policies) // _LARGEST_BLOCK)
        first = np.linspace(
            0, len(policies), -(-n_blocks // self._n_threads) * self._n_threads + 1
        ).astype(np.int64)
        parts = [
            _block(policies[i:j], self._n_actions, self._n_features, in_floats=self.in_floats)
            for i, j in itertools.pairwise(first)
        ]
        begins = np.cumsum([0] + [len(entry) for _, entry in parts])
        entry = np.concatenate([entry for _, entry in parts])
        self._arrays = kernels.GibbsArrays(
            first=first,
            start=np.stack(
                [start + begin for (start, _), begin in zip(parts, begins, strict=False)]
            ),
            entry=entry,
            position=np.asarray(position, dtype=np.int64),
            logits=np.zeros(self._n_actions * len(policies), dtype=entry.dtype),
            balance=np.zeros(self._n_features + 1, dtype=np.int64),
            low=np.zeros((first.size - 1, kernels.LANES_AT_ONCE), dtype=np.int32),
            sums=np.zeros((first.size - 1, 2, kernels.LANES_AT_ONCE), dtype=np.float32),
            request=np.zeros(4),
            ratios=np.zeros(0),
            n_threads=self._n_threads,
            **self._tiles(0),
        )
        self._packed: Any = None
        self._write: Any = None

    def _tiles(self, n_active: int) -> dict[str, Any]:
        """Return arrays for `n_active` tiles, all n_features, an index that no policy has."""
        gained, lost = np.zeros((2, max(n_active, 1)), dtype=np.int64)
        return {
            "tiles": np.full(n_active, self._n_features, dtype=np.int64),
            "gained": gained,
            "lost": lost,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {"_packed": None, "_write": None}

    def ratios(self, tiles: Tiles, action: int, probability: float, out: Floats) -> None:
        """Write pi(action | tiles) / probability of each policy to its position in `out`; tiles: (n_active,), int64.

        It is 0 for an action that is none of the policies' (`Among`).
        """
        if action >= self._n_actions:
            out[self._arrays.position] = 0.0
            return
        n_threads = threads_here(self._n_threads)
        if (
            self._packed is None
            or out is not self._arrays.ratios
            or n_threads != self._arrays.n_threads
        ):
            self._arrays = self._arrays._replace(ratios=out, n_threads=n_threads)
            self._packed = None
        if tiles.size != self._arrays.tiles.size:
            self._arrays = self._arrays._replace(**self._tiles(tiles.size))
            self._packed = None
        if self._packed is None:
            self._packed = pack(self._arrays)
            arguments = self._packed, entry_of(kernels.do_task, self._packed)
            write = bind(kernels.gibbs_ratios, *arguments, like=(tiles, 0, 1.0, 0))
            self._write = one_at_a_time(write, n_threads)
        self._write(tiles, action, probability, int(self.in_floats))


def largest_logit(policies: Sequence[Gibbs]) -> float:
    """Return an upper bound of |u_a.phi| over all policies and feature vectors."""
    return max(
        (
            float(np.bincount(p.index // p.n_features, np.abs(p.value)).max())
            for p in policies
            if p.index.size
        ),
        default=0.0,
    )


def _block(
    policies: Sequence[Gibbs], n_actions: int, n_features: int, *, in_floats: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the start of each feature, (n_features + 2,), and the entries of a block of policies."""
    sizes = [p.index.size for p in policies]
    action, feature = np.divmod(np.concatenate([p.index for p in policies]), n_features)
    place = action * len(policies) + np.repeat(np.arange(len(policies)), sizes)
    order = np.argsort(feature * (n_actions * len(policies)) + place)
    start = np.searchsorted(feature[order], np.arange(n_features + 2)).astype(np.int64)
    value = np.concatenate([p.value for p in policies])
    if in_floats:
        return start, np.stack([place, value], axis=1)[order]
    return start, np.stack([place, np.rint(value / kernels.UNIT)], axis=1)[order].astype(np.int32)
