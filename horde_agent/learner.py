"""What a life, its observers and its tables know of the demons: `Learner`, a Horde in this process or in shards.

`horde_agent.horde.Horde` and `horde_agent.cluster.ShardedHorde` are its two implementations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF
from horde_agent.learning.rules import LearnerConfig
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Tiles


class ShardStatus(NamedTuple):
    """State of a shard, as last reported."""

    number: int
    n_demons: int
    lag: int  # number of entries of the stream that it has not confirmed
    n_bytes: int  # memory of its process
    node: str  # name of its machine
    process: int  # id of its process
    state: Literal["learning", "lost"]
    why: str  # why it was lost, or ""


class Learner(Protocol):
    """Demons that learn the answers to questions from one stream of experience.

    Reading a result learns from all steps first, but for the numbers "as last reported". Order and
    number of the demons, `n_demons`, are those of `questions`.
    """

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def questions(self) -> tuple[GVF, ...]:
        """The questions; another object after `add` and `remove`."""

    @property
    def names(self) -> list[str]:
        """The questions' names; another object after `add` and `remove`."""

    @property
    def n_demons(self) -> int:
        """Number of questions."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    @property
    def n_active(self) -> int:
        """Number of active features in each state."""

    @property
    def config(self) -> LearnerConfig:
        """Options of the learning algorithm."""

    @property
    def shards(self) -> Sequence[ShardStatus]:
        """Status of each shard, as last reported; empty if all demons are in this process."""

    # ---- learning and predicting -----------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Begin a stream at a state, (n_channels,) and (n_active,): `Horde.begin`.

        Returns:
            Predictions of the demons that an implementation returns on each step, shape (n,).
        """

    def learn(
        self,
        action: int,
        probability: float,
        observation: NDArray[Any],
        tiles: Tiles,
        *,
        terminated: bool = False,
        reward: float = np.nan,
    ) -> Floats:
        """Learn from the transition to a state, (n_channels,) and (n_active,): `Horde.learn`; returns as `begin`."""

    def select_stream(self, stream: int) -> None:
        """Learn from another stream of experience: `Horde.select_stream`.

        Raises:
            ValueError: If it learns from one stream only.
        """

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""

    def catch_up(self) -> None:
        """Learn from all queued steps, and return when that is done."""

    def work_ahead(self) -> None:
        """Do now what the next step would begin with: `Horde.work_ahead`."""

    @property
    def predictions(self) -> Floats:
        """Predictions of all demons at the latest state, shape (n_demons,)."""

    def predict(self, tiles: Tiles, observation: NDArray[Any] | None = None) -> Floats:
        """Return the predictions of all demons at a state, (n_active,) and (n_channels,): `Horde.predict`."""

    def action_values(self, name: str, tiles: Tiles) -> Floats:
        """Return the action values of a question that finds a policy, (n_actions,): `Horde.action_values`."""

    # ---- results ---------------------------------------------------------------------------------

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""

    @property
    def rho(self) -> Floats:
        """Importance sampling ratios of the last step, shape (n_demons,)."""

    def error_totals(self) -> Floats:
        """Return sums of each demon's TD errors, shape (2, n_demons): `Horde.error_totals`."""

    def ratio_totals(self) -> Floats:
        """Return sums over each demon's ratios, shape (3, n_demons): `Horde.ratio_totals`."""

    @property
    def n_updates(self) -> int:
        """Number of demons that learned, summed over all steps, as last reported."""

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates, shape (n_demons,): `Horde.mspbe_scalar`."""

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates, shape (n_demons,): `Horde.mspbe_vector`."""

    @property
    def diverged(self) -> list[str]:
        """Names of the diverged demons."""

    @property
    def n_diverged(self) -> int:
        """Number of diverged demons, as last reported."""

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each diverged demon diverged, by name."""

    @property
    def skipped_because(self) -> dict[str, str]:
        """How often each demon skipped a step, and why the first time, by name."""

    # ---- weights ---------------------------------------------------------------------------------

    @property
    def offsets(self) -> Floats:
        """Offset added to theta.phi of each demon, shape (n_demons,)."""

    @property
    def reading_shares(self) -> Floats:
        """Share of a reading's deviation that each offset follows, shape (n_demons,)."""

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n, n_features): `Horde.weights`."""

    def averaged_weights(self, demons: Integers | None = None) -> NDArray[Any]:
        """Return the weights that predictions are read from, (n, n_features): `Horde.averaged_weights`."""

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w: `Horde.weights_sha256`."""

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero: `Horde.reset_weights`."""

    def set_offsets(self, offsets: Floats, reading_sums: Floats | None = None) -> None:
        """Set the offsets of demons that estimate theirs, (n_demons,): `Horde.set_offsets`."""

    # ---- other demons; what is stored ------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions: `Horde.add`."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove the demons with these names: `Horde.remove`."""

    def state(self) -> State:
        """Return everything that later learning depends on."""

    def restore(self, state: State) -> None:
        """Continue, bit for bit, from what `state` returned, with the same arguments and questions."""
