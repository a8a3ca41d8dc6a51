"""ShardedHorde: the methods of a `Horde`, over many processes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster.plan import Part, Plan, input_limits, positions_of, sources_of
from horde_agent.cluster.queries import ShardQueries
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import (
    BATCH,
    BEGIN,
    CHANGE,
    LEARN,
    LEARN_LAST,
    ClusterError,
    ShardSpec,
)
from horde_agent.cluster.shards import Link, Shards, ShardStatus
from horde_agent.gvf import GVF, Prediction, named
from horde_agent.horde import Mode
from horde_agent.learning.demons import check_size
from horde_agent.learning.engine import check_weights
from horde_agent.learning.inputs import InputChecker
from horde_agent.learning.mixed import DIFFERENT_WEIGHTS
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig, with_rules
from horde_agent.learning.signals import check_names
from horde_agent.policies import Greedy
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

_BATCHES = {"eager": 1, "deferred": BATCH}  # steps that a Horde defers before it learns from them

_Requests = list[tuple[Link, Integers, Integers]]


class ShardedHorde(ShardQueries):
    """The demons that answer `questions`, in shards, each a `Horde` in a separate process.

    Args:
        questions: GVFs with different names.
        n_features: Number of features.
        n_active: Number of active features in each state.
        config: How they learn.
        mode: "eager": each step is sent at once. "deferred": 64 are sent together, without waiting.
        channels: Names of the observation's channels.
        real_valued: Must be False: ShardedHorde supports tile features only.
        shards: Number of processes, or "auto": one for each core.
        address: Of a running Ray cluster; None starts Ray on this machine only.
        folder: For the shards' snapshots, writable by all machines; without it, `state` returns all weights to this
            process.
        patience_s: Seconds without a reply after which a shard counts as lost.

    Attributes:
        questions, names, n_demons: The questions, their names, their number.

    Raises:
        ClusterError: If the demons cannot be divided as requested; no process is left running.
        ShardLost: In every method, after a shard is gone.
        ValueError: If a question does not fit the others, the features or the channels.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        *,
        n_features: int,
        n_active: int,
        config: LearnerConfig = PAPER_CONFIG,
        mode: Mode = "eager",
        channels: Sequence[str] = (),
        real_valued: bool = False,
        shards: int | Literal["auto"] = "auto",
        address: str | None = None,
        folder: str | Path | None = None,
        patience_s: float = 600.0,
    ) -> None:
        if real_valued:
            raise ClusterError("ShardedHorde supports tile features only; use Horde for real-valued features")
        check_size(n_features, n_active, mode)
        self.config, self.n_features, self.n_active, self.mode = config, n_features, n_active, mode
        self._channels = tuple(channels)
        self._set_questions(self._checked(named(questions, self._channels)))
        self._plan = Plan(self.questions, config, mode)
        self._n_deferred = 0
        self._n_updates_before = 0  # of dropped shards, negative
        self._has_begun, self._is_first_begin = False, True
        n_cores = os.cpu_count() or 1
        n_shards = min(n_cores, self._plan.most_shards) if shards == "auto" else shards
        parts = self._plan.divide(n_shards)
        self._cluster = Cluster(address, n_shards)
        absolute = None if folder is None else Path(folder).absolute()
        self._shards = Shards(self._cluster, absolute, secrets.token_hex(8), mode, patience_s)
        try:
            if shards == "auto":
                parts = self._plan.divide(min(self._cluster.n_cpus, self._plan.most_shards))
            machines = self._cluster.memory, self._cluster.n_cpus
            n_bytes = self._plan.memory_needed(parts, n_features, *machines, has_copy=folder is not None)
            specs = [self._spec_of(part) for part in parts]
            self._shards.start([part.demons for part in parts], specs, n_bytes, n_threads=max(1, n_cores // len(parts)))
        except BaseException:
            self.close()
            raise

    def _set_questions(self, questions: tuple[GVF, ...]) -> None:
        self.questions, self.n_demons = questions, len(questions)
        self.names = [question.name for question in questions]
        self._inputs = InputChecker(self.n_features, self.n_active, *input_limits(questions))
        self._requests: tuple[tuple[str, ...], _Requests] = ((), [])
        self._homes: dict[str, Link] = {}  # shards of questions that find policies

    def _checked(self, questions: tuple[GVF, ...]) -> tuple[GVF, ...]:
        """Return questions as a Horde has them, or raise ValueError if they do not fit together."""
        check_names(questions)
        names = {question.name for question in questions}
        for question in questions:
            if isinstance(question.cumulant, Prediction) and question.cumulant.name not in names:
                raise ClusterError(
                    f"question {question.name!r}: there is no demon {question.cumulant.name!r} in this Horde"
                )
        return with_rules(questions, self.config, self.action_values)

    def _spec_of(self, part: Part) -> ShardSpec:
        questions = _pickled([self.questions[i] for i in part.demons.tolist()])
        size = self.n_features, self.n_active
        return ShardSpec(questions, *size, self.config, self.mode, self._channels, part.context)

    # ---- the three verbs --------------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles, *, ask: Sequence[str] = ()) -> Floats:
        """Start a stream: `Horde.begin`; `ask` as in `learn`. The first call waits for every shard.

        The observation, (n_channels,), has the same number of channels in every call; `tiles` have the shape
        (n_active,).

        Raises:
            ValueError: As `Horde.begin` does.
        """
        state = self._inputs.checked(observation, tiles)
        self._shards.send(BEGIN, state, requested=self._requested_of(ask))
        self._n_deferred = 0
        if self._is_first_begin:  # policies are evaluated for the first time, and may be refused
            self._shards.wait()
            self._shards.raise_refusals()
            self._is_first_begin = False
        self._has_begun = True
        return self._requested(ask)

    def learn(
        self,
        action: int,
        probability: float,
        observation: NDArray[Any],
        tiles: Tiles,
        *,
        terminated: bool = False,
        ask: Sequence[str] = (),
    ) -> Floats:
        """Learn from one transition to an observation, (n_channels,), and its tiles, (n_active,): `Horde.learn`.

        In eager mode the call waits for the shards of the demons in `ask`; in deferred mode it returns the latest
        predictions that have arrived.

        Returns:
            Predictions of the demons in `ask` by the new weights, float64, shape (len(ask),); NaN if none has arrived.

        Raises:
            ValueError: As `Horde.learn` does.
            RuntimeError: If no stream was begun.
        """
        if not self._has_begun:
            raise RuntimeError("no stream to learn from: call begin(observation, tiles) first, and after a termination")
        action, probability = self._inputs.action(action, probability)
        state = self._inputs.checked(observation, tiles)
        verb = LEARN_LAST if terminated else LEARN
        self._shards.send(verb, state, action, probability, self._requested_of(ask))
        self._has_begun = not terminated
        least = int(self.mode == "deferred" and bool(self._plan.predicted))  # rules that catch up keep the last step
        self._n_deferred = (self._n_deferred + 1) % _BATCHES[self.mode] or least
        try:
            self._shards.raise_refusals()
            return self._requested(ask)
        finally:
            self._shards.send_postponed()

    # ---- predictions of a few demons --------------------------------------------------------------------------------

    def _requests_of(self, ask: Sequence[str]) -> _Requests:
        """Return for each shard with any of these demons: their positions there, and in `ask`."""
        names = tuple(ask)
        if names != self._requests[0]:
            self._requests = names, self._shards.locate(positions_of(ask, self.names))
            for link in self._shards.links:
                link.predictions = None
        return self._requests[1]

    def _requested_of(self, ask: Sequence[str]) -> dict[int, Integers]:
        return {link.number: here for link, here, _ in self._requests_of(ask)}

    def _requested(self, ask: Sequence[str]) -> Floats:
        """Return the requested predictions: after the last entry in eager mode, else the latest that have arrived."""
        out = np.full(len(ask), np.nan)
        for link, _, own in self._requests_of(ask) if len(ask) else ():
            while link.n_in_flight and self.mode == "eager":
                link.wait()
            out[own] = np.nan if link.predictions is None else link.predictions
        return out

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, (n_demons, n_features), to zero when None: `Horde.reset_weights`.

        Raises:
            ValueError: If `theta` does not fit (`check_weights`), or is given and a question finds a policy.
        """
        if theta is not None and any(question.finds_policy for question in self.questions):
            raise ValueError(DIFFERENT_WEIGHTS)
        if theta is not None:
            theta = np.asarray(theta)
            check_weights(theta, (self.n_demons, self.n_features), np.dtype(self.config.dtype))
        by_shard = {link.number: None if theta is None else theta[link.demons] for link in self._shards.links}
        self.catch_up()
        self._shards.send(CHANGE, change=("reset", by_shard))

    # ---- adding and removing demons ---------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions during a life or before it: `Horde.add`.

        They are added to the shard with the fewest demons, or to the one with the prediction or policy that they need.
        That shard gets a new layout, which changes rounding only; the other shards continue bit for bit.

        Raises:
            ValueError: As `Horde.add` does; nothing has changed.
        """
        new = named(questions, self._channels)
        if not new:
            return
        after = self._checked((*self.questions, *new))
        own = {question.name for question in new}
        sources = [name for question in new for name in sources_of(question) if name not in own]
        homes = [link for link, _, _ in self._shards.locate(positions_of(sources, self.names))]
        if len(homes) > 1:
            raise ClusterError(
                f"the new questions need predictions or policies of demons in {len(homes)} shards, and a question must "
                "be in the shard of the demon that it needs: add them one after another"
            )
        link = min(homes or self._shards.links, key=lambda link: link.n_demons)
        self._change("add", {link.number: _pickled(new)})
        link.demons = np.concatenate([link.demons, np.arange(self.n_demons, len(after))])
        self._set_questions(after)
        self._is_first_begin = self._is_first_begin or not self._has_begun

    def remove(self, names: Sequence[str]) -> None:
        """Remove the demons with these names: `Horde.remove`. A shard without demons ends.

        Raises:
            ValueError: As `Horde.remove` does; nothing has changed.
        """
        if isinstance(names, str):
            raise ValueError(f"names must be a list of names of demons of this Horde, not {names!r}")
        gone = np.unique(positions_of(names, self.names))
        if not gone.size:
            return
        remaining = np.setdiff1d(np.arange(self.n_demons), gone)
        after = self._checked(tuple(self.questions[i] for i in remaining.tolist()))
        by_shard = {link.number: np.intersect1d(link.demons, gone) for link in self._shards.links}
        empty = [link for link in self._shards.links if by_shard[link.number].size == link.n_demons]
        for link in empty:
            del by_shard[link.number]
        self._change("remove", {n: [self.names[i] for i in own.tolist()] for n, own in by_shard.items() if own.size})
        for link in self._shards.links:
            link.demons = np.searchsorted(remaining, np.setdiff1d(link.demons, gone))
        for link in empty:
            self._n_updates_before -= link.n_updates
            self._shards.drop(link)
        self._set_questions(after)

    def _change(self, what: str, by_shard: dict[int, Any]) -> None:
        """Send a change and wait for it; raise ValueError if a shard refuses it, and nothing has changed."""
        self.catch_up()
        self._shards.send(CHANGE, change=(what, by_shard))
        self._shards.wait()
        self._shards.raise_refusals()

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return everything that later learning depends on.

        With a folder, each shard copies its state after this entry of the stream and writes it there in the background
        (`wait_for_snapshot`), and the returned state contains the number of the entry only. Without one, all weights
        are returned.
        """
        shards, states = self._shards, State()
        if shards.folder is not None:
            shards.save()
        else:
            states = nested(**{f"{link.number:04d}": state for link, state in shards.gather("state")})
        own: dict[str, Any] = {
            "life": shards.life,
            "n_noted": self._n_deferred,
            "n_counted": self._n_updates_before,
            "has_begun": self._has_begun,
            "is_unasked": self._is_first_begin,
            "at": shards.n_entries,
            "n_shards": len(shards.links),
            "n_demons": self.n_demons,
            "n_channels": shards.n_channels,
        }
        return nested(own={"sharded": text(own)}, shards=states)

    def restore(self, state: State) -> None:
        """Continue, bit for bit, from what `state` returned, with the same questions in as many shards.

        Raises:
            ClusterError: If the number of shards or demons differs, or a shard's snapshot is missing or damaged.
        """
        own, shards = untext(state["own/sharded"]), self._shards
        here = {"n_shards": len(shards.links), "n_demons": self.n_demons}
        if any(own.get(name) != n for name, n in here.items()):
            raise ClusterError(
                f"the state is of {own['n_shards']} shards and {own.get('n_demons', 'unknown')} demons, and this Horde "
                f"has {here['n_shards']} and {here['n_demons']}: make it with shards={own['n_shards']} and the same "
                "questions"
            )
        self._n_deferred, self._n_updates_before = own["n_noted"], own["n_counted"]
        self._has_begun, self._is_first_begin = own["has_begun"], own["is_unasked"]
        in_full = inner(state, "shards")
        states = {link.number: inner(in_full, f"{link.number:04d}") for link in shards.links} if in_full else {}
        shards.restore(own["life"], own["at"], own["n_channels"], states)

    @property
    def at(self) -> int:
        """Number of entries of the stream so far, which names the shards' snapshots."""
        return self._shards.n_entries

    def wait_for_snapshot(self, at: int) -> None:
        """Wait until all shards have written their snapshot of entry `at`, if there is a folder; from any thread.

        Raises:
            OSError: If one could not write it.
            ShardLost: If a shard is gone.
        """
        self._shards.wait_for_snapshot(at)

    def drop_snapshots(self, before: int) -> None:
        """Remove the shards' snapshots of entries before this one."""
        self._shards.drop_snapshots(lambda at: at < before)

    # ---- shards -----------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[ShardStatus]:
        """Status of each shard, without waiting."""
        return self._shards.status()

    @property
    def lags(self) -> Integers:
        """Number of entries of the stream that each shard has not confirmed, shape (n_shards,)."""
        return np.array([status.lag for status in self.shards], dtype=np.int64)

    def close(self) -> None:
        """End the shards, and Ray if it was started here. Closing twice does nothing."""
        self._shards.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pickled(questions: Sequence[GVF]) -> bytes:
    """Return questions in the form that is sent to a shard; raise ClusterError if a function cannot be pickled."""
    try:
        return cloudpickle.dumps([_without_values(question) for question in questions])  # type: ignore[no-any-return]
    except Exception as error:
        if len(questions) == 1:
            raise ClusterError(
                f"the question {questions[0].name!r} holds a function that cannot be sent to another process "
                f"({error}): write it in a module, without open files, locks or the like"
            ) from None
        for question in questions:
            _pickled([question])
        raise


def _without_values(question: GVF) -> GVF:
    policy = question.target_policy
    return replace(question, target_policy=replace(policy, values=None)) if isinstance(policy, Greedy) else question
