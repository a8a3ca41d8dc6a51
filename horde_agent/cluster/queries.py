"""What can be read of a Horde in shards: the properties and methods of `Horde` that change nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster.plan import positions_of
from horde_agent.cluster.shard import CATCH_UP
from horde_agent.cluster.shards import Link, Shards
from horde_agent.gvf import GVF
from horde_agent.learning.inputs import InputChecker
from horde_agent.learning.mixed import DIFFERENT_WEIGHTS
from horde_agent.learning.rules import LearnerConfig
from horde_agent.types import Floats, Integers, Tiles

_HASHED_AT_ONCE = 256  # demons


def _of_all(name: str, doc: str) -> Any:
    """Return a property: an attribute of `Horde` with a number for each demon, of all shards."""
    return property(lambda horde: horde._gathered(name), doc=doc)


class ShardQueries:
    """The part of `ShardedHorde` that reads: each answer is that of all shards, after every step."""

    config: LearnerConfig
    questions: tuple[GVF, ...]
    names: list[str]
    n_demons: int
    n_features: int
    _shards: Shards
    _inputs: InputChecker
    _homes: dict[str, Link]
    _n_deferred: int
    _n_updates_before: int

    @property
    def n_waiting(self) -> int:
        """Number of deferred steps."""
        return self._n_deferred

    def catch_up(self) -> None:
        """Make the shards learn from their deferred steps, without waiting for them: `Horde.catch_up`."""
        if self.n_waiting:
            self._shards.send(CATCH_UP)
            self._n_deferred = 0

    def wait(self) -> None:
        """Wait until every shard has learned from every step."""
        self.catch_up()
        self._shards.wait()

    def _gather(self, method: str, arguments: Callable[[Link], Sequence[Any]] = lambda _: ()) -> list[tuple[Link, Any]]:
        """Call a method of all shards, after every step: `Shards.gather`."""
        self.catch_up()
        return self._shards.gather(method, arguments)

    def _read(self, name: str, *arguments: Any) -> list[tuple[Link, Any]]:
        """Return an attribute of each shard's Horde, or the result of a method."""
        return self._gather("read", lambda _: (name, *arguments))

    def _gathered(self, name: str, *arguments: Any) -> Any:
        """Return an array of the `Horde` of all demons, the last axis, from those of the shards."""
        replies = self._read(name, *arguments)
        out = np.zeros((*replies[0][1].shape[:-1], self.n_demons), dtype=replies[0][1].dtype)
        for link, reply in replies:
            out[..., link.demons] = reply
        return out

    def _merged(self, name: str) -> dict[str, str]:
        """Return a table by demon's name of all shards."""
        return {demon: why for _, reply in self._read(name) for demon, why in reply.items()}

    predictions = _of_all("predictions", "Predictions of all demons at the latest state: `Horde.predictions`.")
    td_error = _of_all("td_error", "TD errors of the last step, shape (n_demons,).")
    rho = _of_all("rho", "Importance sampling ratios of the last step, shape (n_demons,).")
    mspbe_scalar = _of_all("mspbe_scalar", "Scalar MSPBE estimates, shape (n_demons,): `Horde.mspbe_scalar`.")
    max_traces = _of_all("max_traces", "Largest |e| so far of each demon, shape (n_demons,).")
    n_skipped = _of_all("n_skipped", "Steps that each demon skipped, shape (n_demons,): `Horde.n_skipped`.")

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, (n_active,): `Horde.predict`."""
        return self._gathered("predict", self._inputs.tiles(tiles))  # type: ignore[no-any-return]

    def ratio_totals(self) -> Floats:
        """Return sums over each demon's ratios since it was added, shape (3, n_demons): `Horde.ratio_totals`."""
        return self._gathered("ratio_totals")  # type: ignore[no-any-return]

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates, shape (n_demons,): `Horde.mspbe_vector`."""
        return self._gathered("mspbe_vector")  # type: ignore[no-any-return]

    def action_values(self, name: str, tiles: Tiles) -> Floats:
        """Return the action values (n_actions,) of a question that finds a policy: `Horde.action_values`.

        Waits for its shard. `tiles` are the active features, shape (n_active,).
        """
        if name not in self._homes:
            ((self._homes[name], _, _),) = self._shards.locate(positions_of([name], self.names))
        link = self._homes[name]
        self._shards.flush()
        while link.n_in_flight:
            link.wait()
        return link.result(link.call("read", "action_values", name, tiles))  # type: ignore[no-any-return]

    @property
    def skipped_because(self) -> dict[str, str]:
        """How often each demon skipped a step, and why the first time, by name."""
        return self._merged("skipped_because")

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each diverged demon diverged, by name."""
        return self._merged("divergence_reason")

    @property
    def diverged(self) -> list[str]:
        """Names of the diverged demons."""
        return list(self.divergence_reason)

    @property
    def n_diverged(self) -> int:
        """Number of diverged demons, as last reported."""
        return sum(link.n_diverged for link in self._shards.links)

    @property
    def n_updated(self) -> int:
        """Number of demons that learned in the last step: `Horde.n_updated`."""
        return sum(reply for _, reply in self._read("n_updated"))

    @property
    def n_updates(self) -> int:
        """Number of demons that learned, summed over all steps, as last reported; exact after `wait`."""
        return sum(link.n_updates for link in self._shards.links) - self._n_updates_before

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w of all demons, or of those with indices (n,): `Horde.weights`."""
        wanted = np.arange(self.n_demons) if demons is None else np.asarray(demons, dtype=np.int64)
        own = {link.number: np.flatnonzero(np.isin(wanted, link.demons)) for link in self._shards.links}
        replies = self._gather("read", lambda link: ("weights", np.searchsorted(link.demons, wanted[own[link.number]])))
        parts = [(own[link.number], weights) for link, weights in replies if own[link.number].size]
        widths = {theta.shape[1] for _, (theta, _) in parts} or {self.n_features}
        if len(widths) > 1:
            raise ValueError(DIFFERENT_WEIGHTS)
        theta, w = np.zeros((2, wanted.size, widths.pop()), dtype=self.config.dtype)
        for here, (of_theta, of_w) in parts:
            theta[here], w[here] = of_theta, of_w
        return theta, w

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w, as `Horde.weights_sha256` does."""
        digest = hashlib.sha256()
        changes = np.flatnonzero(np.diff([q.finds_policy for q in self.questions])) + 1  # of the number of weights
        borders = sorted({*range(0, self.n_demons, _HASHED_AT_ONCE), *changes.tolist(), self.n_demons})
        for which in (0, 1):
            for first, last in pairwise(borders):
                array = self.weights(np.arange(first, last))[which]
                digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()
