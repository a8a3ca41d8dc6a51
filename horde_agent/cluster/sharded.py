"""ShardedHorde: the methods of a `Horde`, over many processes."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster.plan import Part, Plan, positions_of, sources_of
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import (
    BATCH,
    BEGIN,
    CATCH_UP,
    CHANGE,
    LEARN,
    LEARN_LAST,
    ClusterError,
    ShardSpec,
    Written,
    folder_of,
    pickled,
)
from horde_agent.cluster.shards import Link, ShardStream
from horde_agent.gvf import GVF, Prediction, TDError, named
from horde_agent.horde import Mode, check_size
from horde_agent.learner import ShardStatus
from horde_agent.learning.engine import check_weights
from horde_agent.learning.inputs import InputChecker, input_limits
from horde_agent.learning.lstd import n_random_features
from horde_agent.learning.mixed import DIFFERENT_WEIGHTS
from horde_agent.learning.offsets import checked_offsets
from horde_agent.learning.rules import DEFAULT_CONFIG, LearnerConfig, with_rules
from horde_agent.learning.signals import check_names
from horde_agent.record.snapshots import SnapshotDamaged, read_manifest
from horde_agent.record.snapshots import found as snapshots_in
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

_BATCHES = {"eager": 1, "deferred": BATCH}  # steps that a Horde defers before it learns from them

_HASHED_AT_ONCE = 256  # demons
_LIFE = "life-"  # prefix of a life's folder of snapshots
_POLL_S = 0.1


def _of_all(name: str, doc: str) -> Any:
    """Return a property: an attribute of `Horde` with a number for each demon, of all shards."""
    return property(lambda horde: horde._gathered(name), doc=doc)


class ShardedHorde:
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
        folder: For the shards' snapshots, writable by all machines; without it, `state` returns all
            weights to this process.
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
        config: LearnerConfig = DEFAULT_CONFIG,
        mode: Mode = "eager",
        channels: Sequence[str] = (),
        real_valued: bool = False,
        shards: int | Literal["auto"] = "auto",
        address: str | None = None,
        folder: str | Path | None = None,
        patience_s: float = 600.0,
    ) -> None:
        if real_valued:
            raise ClusterError(
                "ShardedHorde supports tile features only; use Horde for real-valued features"
            )
        check_size(n_features, n_active, mode)
        self._channels = tuple(channels)
        resolved = named(questions, self._channels)
        # Shards have some of the questions: it is decided for all
        self.config = replace(config, lstd=n_random_features(config.lstd, resolved))
        self.n_features = n_features
        self.n_active = n_active
        self.mode = mode
        self._set_questions(self._checked(resolved))
        self._plan = Plan(self.questions, self.config, mode)
        self._n_deferred = 0
        self._n_updates_before = 0  # of dropped shards, negative
        self._has_begun = False
        self._is_first_begin = True
        n_cores = os.cpu_count() or 1
        if shards == "auto":
            n_shards = min(n_cores, self._plan.most_shards)
        else:
            n_shards = shards
        parts = self._plan.divide(n_shards)
        cluster = Cluster(address, n_shards)
        self._folder: Path | None = None
        if folder is not None:
            self._folder = Path(folder).absolute()
        self._life = secrets.token_hex(
            8
        )  # separates the snapshots of this life from those of others
        self._stream = ShardStream(
            n_features=n_features,
            n_active=n_active,
            mode=mode,
            cluster=cluster,
            patience_s=patience_s,
        )
        try:
            if shards == "auto":
                parts = self._plan.divide(min(cluster.n_cpus, self._plan.most_shards))
            n_bytes = self._plan.memory_needed(
                parts, n_features, cluster.memory, cluster.n_cpus, has_copy=folder is not None
            )
            self._start(parts, n_bytes, n_threads=max(1, n_cores // len(parts)))
        except BaseException:
            self.close()
            raise

    def _start(self, parts: Sequence[Part], n_bytes: Sequence[int], n_threads: int) -> None:
        """Start a shard with `n_bytes` of memory and `n_threads` for each part of the demons."""
        specs = []
        for part in parts:
            spec = ShardSpec(
                questions=pickled([self.questions[i] for i in part.demons.tolist()]),
                n_features=self.n_features,
                n_active=self.n_active,
                config=self.config,
                mode=self.mode,
                channels=self._channels,
                context=part.context,
            )
            specs.append(spec)
        self._stream.start([part.demons for part in parts], specs, n_bytes, n_threads)

    def close(self) -> None:
        """End the shards, and Ray if it was started here. Closing twice does nothing."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set_questions(self, questions: tuple[GVF, ...]) -> None:
        self.questions = questions
        self.n_demons = len(questions)
        self.names = [question.name for question in questions]
        self._inputs = InputChecker(self.n_features, self.n_active, *input_limits(questions))
        self._asked: tuple[str, ...] = ()
        self._requests: list[tuple[Link, Integers, Integers]] = []
        self._homes: dict[str, Link] = {}  # shards of questions that find policies

    def _checked(self, questions: tuple[GVF, ...]) -> tuple[GVF, ...]:
        """Return questions as a Horde has them, or raise ValueError if they do not fit together."""
        check_names(questions)
        names = {question.name for question in questions}
        for question in questions:
            cumulant = question.cumulant
            if isinstance(cumulant, Prediction | TDError) and cumulant.name not in names:
                raise ClusterError(
                    f"question {question.name!r}: there is no demon {cumulant.name!r} in this Horde"
                )
        return with_rules(questions, self.config, self.action_values)

    # ---- the three verbs --------------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles, *, ask: Sequence[str] = ()) -> Floats:
        """Start a stream: `Horde.begin`; `ask` as in `learn`. The first call waits for every shard.

        The observation, (n_channels,), has the same number of channels in every call; `tiles` have
        the shape (n_active,). Raise ValueError as `Horde.begin`.
        """
        state = self._inputs.checked(observation, tiles)
        self._stream.send(BEGIN, state, requested=self._requests_of(ask))
        self._n_deferred = 0
        if self._is_first_begin:  # policies are evaluated for the first time, and may be refused
            self.catch_up()
            self._stream.raise_refusals()
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
        reward: float = np.nan,
        ask: Sequence[str] = (),
    ) -> Floats:
        """Learn from one transition to an observation, (n_channels,), and its tiles, (n_active,): `Horde.learn`.

        In eager mode the call waits for the shards of the demons in `ask`; in deferred mode it
        returns the latest predictions that have arrived.

        Returns:
            Predictions of the demons in `ask` by the new weights, float64, shape (len(ask),); NaN
            if none has arrived.

        Raises:
            ValueError: As `Horde.learn` does.
            RuntimeError: If no stream was begun.
        """
        if not self._has_begun:
            raise RuntimeError(
                "no stream to learn from: call begin(observation, tiles) first, and after a termination"
            )
        action, probability = self._inputs.action(action, probability)
        state = self._inputs.checked(observation, tiles)
        verb = LEARN
        if terminated:
            verb = LEARN_LAST
        requests = self._requests_of(ask)
        self._stream.send(verb, state, action, probability, requests, reward=reward)
        self._has_begun = not terminated
        # Shards process their steps at other times, too: for predictions as cumulants, averages,
        # classes of features and LSTD
        config = self.config
        is_ahead = bool(self._plan.predicted) or config.average > 0.0 or bool(config.rarity)
        is_ahead = is_ahead or bool(config.lstd)
        least = int(self.mode == "deferred" and is_ahead)
        self._n_deferred = (self._n_deferred + 1) % _BATCHES[self.mode] or least
        try:
            self._stream.raise_refusals()
            return self._requested(ask)
        finally:
            self._stream.send_postponed()

    @property
    def n_waiting(self) -> int:
        """Number of deferred steps."""
        return self._n_deferred

    def catch_up(self) -> None:
        """Wait until every shard has learned from every step; raise ShardLost if one is gone, or does not reply."""
        self._end_batch()
        self._stream.wait_for_replies()

    def work_ahead(self) -> None:
        """Do nothing: shards do all work of a step in that step."""

    def _end_batch(self) -> None:
        """Make the shards learn from their deferred steps, without waiting for them."""
        if self._n_deferred:
            self._stream.send(CATCH_UP)
            self._n_deferred = 0

    def select_stream(self, stream: int) -> None:
        """Refuse every stream but 0, the first one: shards learn from one stream.

        Raises:
            ValueError: If `stream` is another.
        """
        if stream:
            raise ValueError(
                "shards learn from one robot; learn from several in one Horde, without shards"
            )

    # ---- predictions of a few demons --------------------------------------------------------------------------------

    def _requests_of(self, ask: Sequence[str]) -> dict[int, Integers]:
        """Return for each shard with any of these demons, by number: their positions there."""
        names = tuple(ask)
        if names != self._asked:
            self._asked = names
            self._requests = self._stream.locate(positions_of(ask, self.names))
            for link in self._stream.links:
                link.predictions = None
        return {link.number: here for link, here, _ in self._requests}

    def _requested(self, ask: Sequence[str]) -> Floats:
        """Return the requested predictions: after the last entry in eager mode, else the latest that have arrived."""
        out = np.full(len(ask), np.nan)
        for link, _, places in self._requests:
            while link.n_in_flight and self.mode == "eager":
                link.wait()
            if link.predictions is not None:
                out[places] = link.predictions
        return out

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, (n_demons, n_features), to zero when None: `Horde.reset_weights`.

        Raise ValueError if `theta` does not fit (`check_weights`), or is given and a question finds
        a policy.
        """
        if theta is not None and any(question.finds_policy for question in self.questions):
            raise ValueError(DIFFERENT_WEIGHTS)
        if theta is not None:
            theta = np.asarray(theta)
            check_weights(theta, (self.n_demons, self.n_features), np.dtype(self.config.dtype))
        by_shard: dict[int, NDArray[Any] | None] = {}
        for link in self._stream.links:
            by_shard[link.number] = None
            if theta is not None:
                by_shard[link.number] = theta[link.demons]
        self._end_batch()
        self._stream.send(CHANGE, change=("reset", by_shard))

    def set_offsets(self, offsets: Floats, reading_sums: Floats | None = None) -> None:
        """Set the offsets of demons that estimate theirs, (n_demons,), NaN for others: `Horde.set_offsets`."""
        values, sums = checked_offsets(offsets, reading_sums, self.n_demons)
        by_shard = {
            link.number: (values[link.demons], sums[:, link.demons]) for link in self._stream.links
        }
        self._end_batch()
        self._stream.send(CHANGE, change=("offsets", by_shard))

    # ---- queries: each answer is that of all shards, after every step -----------------------------------------------

    def _read(self, name: str, *arguments: Any) -> list[tuple[Link, Any]]:
        self._end_batch()
        return self._stream.gather("read", lambda _: (name, *arguments))

    def _gathered(self, name: str, *arguments: Any) -> Any:
        """Return an array of the `Horde` of all demons, the last axis, from those of the shards."""
        replies = self._read(name, *arguments)
        out = np.zeros((*replies[0][1].shape[:-1], self.n_demons), dtype=replies[0][1].dtype)
        for link, reply in replies:
            out[..., link.demons] = reply
        return out

    def _merged(self, name: str) -> dict[str, str]:
        return {demon: why for _, reply in self._read(name) for demon, why in reply.items()}

    predictions = _of_all(
        "predictions", "Predictions of all demons at the latest state: `Horde.predictions`."
    )
    offsets = _of_all(
        "offsets", "Offset added to theta.phi of each demon, shape (n_demons,): `Horde.offsets`."
    )
    reading_shares = _of_all(
        "reading_shares", "Share of a reading that each offset follows: `Horde.reading_shares`."
    )
    reading_sums = _of_all(
        "reading_sums", "What these shares are estimated from, (2, n_demons): `Horde.reading_sums`."
    )
    shifts = _of_all(
        "shifts", "Shift of each demon's averaged prediction, shape (n_demons,): `Horde.shifts`."
    )
    td_error = _of_all("td_error", "TD errors of the last step, shape (n_demons,).")
    rho = _of_all("rho", "Importance sampling ratios of the last step, shape (n_demons,).")
    mspbe_scalar = _of_all(
        "mspbe_scalar", "Scalar MSPBE estimates, shape (n_demons,): `Horde.mspbe_scalar`."
    )
    max_traces = _of_all("max_traces", "Largest |e| so far of each demon, shape (n_demons,).")
    n_skipped = _of_all(
        "n_skipped", "Steps that each demon skipped, shape (n_demons,): `Horde.n_skipped`."
    )

    def predict(self, tiles: Tiles, observation: NDArray[Any] | None = None) -> Floats:
        """Return the predictions of all demons at a state, (n_active,) and (n_channels,): `Horde.predict`."""
        return self._gathered("predict", self._inputs.tiles(tiles), observation)  # type: ignore[no-any-return]

    def error_totals(self) -> Floats:
        """Return sums of each demon's TD errors since it was added, shape (2, n_demons): `Horde.error_totals`."""
        return self._gathered("error_totals")  # type: ignore[no-any-return]

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
            ((self._homes[name], _, _),) = self._stream.locate(positions_of([name], self.names))
        link = self._homes[name]
        self._stream.flush()
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
        return sum(link.n_diverged for link in self._stream.links)

    @property
    def n_updated(self) -> int:
        """Number of demons that learned in the last step: `Horde.n_updated`."""
        return sum(reply for _, reply in self._read("n_updated"))

    @property
    def n_updates(self) -> int:
        """Number of demons that learned, summed over all steps, as last reported; exact after `wait`."""
        return sum(link.n_updates for link in self._stream.links) - self._n_updates_before

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w of all demons, or of those with indices (n,): `Horde.weights`."""
        theta, w = self._gather_weights("weights", demons)
        return theta, w

    def averaged_weights(self, demons: Integers | None = None) -> NDArray[Any]:
        """Return the averaged theta of all demons, or of those with indices (n,): `Horde.averaged_weights`."""
        (average,) = self._gather_weights("averaged_weights", demons)
        return average

    def _gather_weights(self, name: str, demons: Integers | None) -> tuple[NDArray[Any], ...]:
        """Return the array or arrays, each (n, n_features), that a method of every shard's Horde returns."""
        if demons is None:
            wanted = np.arange(self.n_demons)
        else:
            wanted = np.asarray(demons, dtype=np.int64)
        places_of_link = {
            link.number: np.flatnonzero(np.isin(wanted, link.demons)) for link in self._stream.links
        }
        self._end_batch()
        replies = self._stream.gather(
            "read",
            lambda link: (
                name,
                np.searchsorted(link.demons, wanted[places_of_link[link.number]]),
            ),
        )
        parts = []
        n_arrays = 1
        for link, reply in replies:
            arrays = reply
            if isinstance(reply, np.ndarray):
                arrays = (reply,)
            n_arrays = len(arrays)
            if places_of_link[link.number].size:
                parts.append((places_of_link[link.number], arrays))
        widths = {arrays[0].shape[1] for _, arrays in parts} or {self.n_features}
        if len(widths) > 1:
            raise ValueError(DIFFERENT_WEIGHTS)
        out = np.zeros((n_arrays, wanted.size, widths.pop()), dtype=self.config.dtype)
        for places, arrays in parts:
            out[:, places] = arrays
        return tuple(out)

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w, as `Horde.weights_sha256` does."""
        digest = hashlib.sha256()
        # Of the number of weights
        changes = np.flatnonzero(np.diff([q.finds_policy for q in self.questions])) + 1
        borders = sorted(
            {*range(0, self.n_demons, _HASHED_AT_ONCE), *changes.tolist(), self.n_demons}
        )
        for which in (0, 1):
            for first, last in pairwise(borders):
                array = self.weights(np.arange(first, last))[which]
                digest.update(
                    np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
                )
        return digest.hexdigest()

    # ---- the shards -------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[ShardStatus]:
        """Status of each shard, without waiting."""
        return [link.status(self.at) for link in self._stream.links]

    # ---- adding and removing demons ---------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions during a life or before it: `Horde.add`.

        They are added to the shard with the fewest demons, or to the one with the prediction or
        policy that they need. That shard gets a new layout, which changes rounding only; the other
        shards continue bit for bit. Raise ValueError as `Horde.add`; nothing has changed.
        """
        new = named(questions, self._channels)
        if not new:
            return
        all_questions = self._checked((*self.questions, *new))
        new_names = {question.name for question in new}
        sources = [
            name for question in new for name in sources_of(question) if name not in new_names
        ]
        homes = [link for link, _, _ in self._stream.locate(positions_of(sources, self.names))]
        if len(homes) > 1:
            raise ClusterError(
                f"the new questions need predictions or policies of demons in {len(homes)} shards, and a question must "
                "be in the shard of the demon that it needs: add them one after another"
            )
        link = min(homes or self._stream.links, key=lambda link: link.n_demons)
        self._change("add", {link.number: pickled(new)})
        link.demons = np.concatenate([link.demons, np.arange(self.n_demons, len(all_questions))])
        self._set_questions(all_questions)
        self._is_first_begin = self._is_first_begin or not self._has_begun

    def remove(self, names: Sequence[str]) -> None:
        """Remove the demons with these names, and end a shard without demons; raise ValueError as `Horde.remove`."""
        if isinstance(names, str):
            raise ValueError(
                f"names must be a list of names of demons of this Horde, not {names!r}"
            )
        removed = np.unique(positions_of(names, self.names))
        if not removed.size:
            return
        remaining = np.setdiff1d(np.arange(self.n_demons), removed)
        remaining_questions = self._checked(tuple(self.questions[i] for i in remaining.tolist()))
        by_shard = {
            link.number: np.intersect1d(link.demons, removed) for link in self._stream.links
        }
        empty = [link for link in self._stream.links if by_shard[link.number].size == link.n_demons]
        for link in empty:
            del by_shard[link.number]
        self._change(
            "remove",
            {
                number: [self.names[i] for i in demons.tolist()]
                for number, demons in by_shard.items()
                if demons.size
            },
        )
        for link in self._stream.links:
            link.demons = np.searchsorted(remaining, np.setdiff1d(link.demons, removed))
        for link in empty:
            self._n_updates_before -= link.n_updates
            self._stream.drop(link)
        self._set_questions(remaining_questions)

    def _change(self, what: str, by_shard: dict[int, Any]) -> None:
        """Send a change and wait for it; raise ValueError if a shard refuses it, and nothing has changed."""
        self._end_batch()
        self._stream.send(CHANGE, change=(what, by_shard))
        self.catch_up()
        self._stream.raise_refusals()

    # ---- snapshots --------------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Number of entries of the stream so far, which names the shards' snapshots."""
        return self._stream.n_entries

    def wait_for_snapshot(self, at: int) -> None:
        """Wait until all shards have written their snapshot of entry `at`, if there is a folder; from any thread.

        Raise OSError if one could not write it, ShardLost if a shard is gone.
        """
        if self._folder is None:
            return
        for link in self._stream.links:
            written: Written = link.result(link.call("written"))
            while written.n_entries < at:
                time.sleep(_POLL_S)
                written = link.result(link.call("written"))
            if written.error:
                raise OSError(0, written.error)

    def drop_snapshots(self, before: int) -> None:
        """Remove the shards' snapshots of entries before this one."""
        self._remove_snapshots(lambda at: at < before)

    def _folder_of_life(self) -> Path | None:
        """Return the folder of this life's snapshots, None if there are none."""
        if self._folder is None:
            return None
        return self._folder / f"{_LIFE}{self._life}"

    def _remove_snapshots(self, is_unused: Callable[[int], bool]) -> None:
        """Remove the shards' snapshots after those numbers of entries for which `is_unused` is true."""
        folder = self._folder_of_life()
        if folder is None:
            return
        for link in self._stream.links:
            for path in snapshots_in(folder_of(folder, link.number)):
                if is_unused(int(path.name)):
                    shutil.rmtree(path)

    def state(self) -> State:
        """Return everything that later learning depends on.

        With a folder, each shard copies its state after this entry of the stream and writes it
        there in the background (`wait_for_snapshot`), and the returned state contains the number of
        the entry only. Without one, all weights are returned.
        """
        states = State()
        folder = self._folder_of_life()
        if folder is not None:
            for path in folder.parent.glob(f"{_LIFE}*"):
                if path != folder:
                    shutil.rmtree(path, ignore_errors=True)  # of another life
            by_shard = {link.number: str(folder) for link in self._stream.links}
            self._stream.send(CHANGE, change=("save", by_shard))
        else:
            states = nested(
                **{f"{link.number:04d}": state for link, state in self._stream.gather("state")}
            )
        facts: dict[str, Any] = {
            "life": self._life,
            "n_deferred": self._n_deferred,
            "n_updates_before": self._n_updates_before,
            "has_begun": self._has_begun,
            "is_first_begin": self._is_first_begin,
            "at": self.at,
            "n_shards": len(self._stream.links),
            "n_demons": self.n_demons,
            "n_channels": self._stream.n_channels,
        }
        return nested(facts={"sharded": text(facts)}, shards=states)

    def restore(self, state: State) -> None:
        """Continue, bit for bit, from what `state` returned, with the same questions in as many shards.

        Raise ClusterError if the number of shards or demons differs, or a shard's snapshot is
        missing or damaged.
        """
        saved = untext(state["facts/sharded"])
        sizes = {"n_shards": len(self._stream.links), "n_demons": self.n_demons}
        if any(saved.get(name) != n for name, n in sizes.items()):
            raise ClusterError(
                f"the state is of {saved['n_shards']} shards and "
                f"{saved.get('n_demons', 'unknown')} demons, and this Horde has {sizes['n_shards']} and "
                f"{sizes['n_demons']}: make it with shards={saved['n_shards']} and the same questions"
            )
        in_full = inner(state, "shards")
        states = {}
        if in_full:
            states = {
                link.number: inner(in_full, f"{link.number:04d}") for link in self._stream.links
            }
        self.catch_up()
        at = saved["at"]
        self._life = saved["life"]
        self._stream.rewind(at, saved["n_channels"])
        if not states:
            self._remove_snapshots(lambda other: other > at)  # their steps will be taken again
        links = self._stream.links
        sources = [states.get(link.number, str(self._folder_of_life())) for link in links]
        replies = [
            link.call("restore", source, at) for link, source in zip(links, sources, strict=True)
        ]
        for link, reply in zip(links, replies, strict=True):
            link.n_updates = link.result(reply)
            link.n_confirmed = at
        self._n_deferred = saved["n_deferred"]
        self._n_updates_before = saved["n_updates_before"]
        self._has_begun = saved["has_begun"]
        self._is_first_begin = saved["is_first_begin"]


def check_snapshots(folder: Path, life: str, n_entries: int, n_shards: int) -> None:
    """Raise SnapshotDamaged unless all shards have an intact manifest of a snapshot after `n_entries` of a life."""
    folders = [*(folder / f"{_LIFE}{life}").glob(f"shard-*/{n_entries:012d}")]
    for path in folders:
        read_manifest(path)
    if len(folders) != n_shards:
        raise SnapshotDamaged(
            f"snapshots of {n_shards - len(folders)} shards after entry {n_entries:,} are missing in {folder}"
        )
