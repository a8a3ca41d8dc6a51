"""ShardedHorde: the methods of a `Horde`, over many processes."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.link import Link, ShardStatus
from horde_agent.cluster.plan import Cut, Plan, place_of
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import Making
from horde_agent.cluster.shards import Shards
from horde_agent.cluster.stream import BATCH, BEGIN, CHANGE, LEARN, LEARN_LAST, TAKE, Change, Entry
from horde_agent.gvf import GVF, Prediction, named
from horde_agent.horde import Mode
from horde_agent.learning.engine import check_weights
from horde_agent.learning.inputs import InputChecker
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

_BATCHES = {"eager": 1, "deferred": BATCH}  # steps that a Horde notes before it takes them
_NOBODY: Floats = np.zeros(0)
_PATIENCE_S = 600.0  # another machine may have to start first
_AT_ONCE = 256  # demons whose weights are fetched together for the hash


class Where(TypedDict, total=False):
    """Where the demons of a `ShardedHorde` are.

    Attributes:
        shards: How many processes, or "auto": one for each core that there is.
        address: Of a Ray cluster that runs; None starts Ray on this machine alone.
        folder: For the shards' snapshots, which all machines must be able to write. Without one, `state` returns the
            weights of all shards to this process.
        n_threads: Of each shard; as many as leave each a core, unless given.
        patience_s: Seconds without an answer after which a shard counts as lost; 600 unless given.
    """

    shards: int | Literal["auto"]
    address: str | None
    folder: str | Path | None
    n_threads: int
    patience_s: float


def _of_all(what: str, doc: str) -> Any:
    """Return a property of a `ShardedHorde`: an array that a `Horde` has, of the demons of all shards."""
    return property(lambda horde: horde._gathered(what), doc=doc)


class ShardedHorde:
    """The demons that answer `questions`, in shards that each are a `Horde` in a process of its own.

    Args:
        questions: GVFs with different names.
        n_features: Number of features.
        n_active: Number of active features in each state.
        config: How they learn.
        mode: "eager": each step is sent when it comes. "deferred": 64 together, and nothing is waited for.
        channels: Names of the observation's channels.
        real_valued: Must be False: ShardedHorde supports tile features only.
        where: In how many processes, and on which machines: see `Where`.

    Attributes:
        questions, names, n_demons: The questions, their names, their number.
        unanswered: Why a prediction that was asked for last is NaN, by the demon's name.

    Raises:
        ClusterError: If it cannot be done; nothing is left running.
        ShardLost: By every method, once a shard is gone.
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
        **where: Unpack[Where],
    ) -> None:
        if unknown := where.keys() - Where.__annotations__.keys():
            raise TypeError(f"ShardedHorde has no argument {min(unknown)!r}")
        if real_valued:
            raise ClusterError("ShardedHorde supports tile features only; use Horde for real-valued features")
        if mode not in _BATCHES:
            raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
        if not 1 <= n_active <= n_features:
            raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")
        self.config, self.n_features, self.n_active, self.mode = config, n_features, n_active, mode
        self._channels, self._where = tuple(channels), where
        self._set_questions(_checked(named(questions, self._channels)))
        self._plan = Plan(self.questions, config, mode)
        self._n_noted = 0
        self._n_counted = 0  # of `n_updates`, less what shards counted that are no more
        self._has_begun, self._is_unasked = False, True
        self.unanswered: dict[str, str] = {}
        self._cluster = self._connect()
        folder = where.get("folder")
        kept_in = None if folder is None else Path(folder).absolute()
        patience_s = where.get("patience_s", _PATIENCE_S)
        self._shards = Shards(self._cluster, kept_in, secrets.token_hex(8), mode, patience_s)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _set_questions(self, questions: tuple[GVF, ...]) -> None:
        """Store the questions and their names."""
        self.questions, self.n_demons = questions, len(questions)
        self.names = [question.name for question in questions]
        self._ask: tuple[tuple[str, ...], list[tuple[Link, Integers, Integers]]] = ((), [])

    # ---- coming up --------------------------------------------------------------------------------------------------

    def _connect(self) -> Cluster:
        """Find or start Ray, with a place for each shard."""
        shards = self._where.get("shards", "auto")
        if shards == "auto":
            n_wanted = min(os.cpu_count() or 1, self._plan.most_shards)
        else:
            n_wanted = shards
            self._plan.cut(n_wanted)
        return Cluster(self._where.get("address"), n_wanted)

    def _start(self) -> None:
        """Cut the Horde, and have the shards come up."""
        shards, cluster = self._where.get("shards", "auto"), self._cluster
        n = min(cluster.n_cpus, self._plan.most_shards) if shards == "auto" else shards
        cuts = self._plan.cut(n)
        has_copy = self._shards.folder is not None
        n_bytes = self._plan.room(cuts, self.n_features, cluster.memory, cluster.n_cpus, has_copy=has_copy)
        n_threads = self._where.get("n_threads") or max(1, (os.cpu_count() or 1) // n)
        self._shards.start(cuts, [self._making_of(cut) for cut in cuts], n_bytes, n_threads)
        self._fit()

    def _making_of(self, cut: Cut) -> Making:
        """Return the arguments of a shard."""
        questions = _pickled([self.questions[i] for i in cut.demons.tolist()])
        return Making(questions, self.n_features, self.n_active, self.config, self.mode, self._channels, cut.share)

    def _fit(self) -> None:
        """Ask the shards what they expect of a state."""
        self._states = InputChecker(self.n_features, self.n_active, *self._shards.fit())

    # ---- the three verbs --------------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles, *, ask: Sequence[str] = ()) -> Floats:
        """Start a stream: `Horde.begin`; `ask` as in `learn`. The first time, every shard is waited for.

        Args:
            observation: Shape (n_channels,), finite, as many as the first time.
            tiles: Active features, int64 of shape (n_active,), all different.
            ask: Names of demons.

        Raises:
            ValueError: As `Horde.begin` does.
        """
        state = self._states.checked(observation, tiles)
        self._send(Entry(BEGIN, observation=state[0], tiles=state[1]), ask)
        self._n_noted = 0
        if self._is_unasked:  # policies are asked for the first time, and may be refused
            self._shards.wait()
            self._shards.raise_refusals()
            self._is_unasked = False
        self._has_begun = True
        return self._answer(ask)

    def learn(
        self,
        action: int,
        probability: float,
        observation: NDArray[Any],
        tiles: Tiles,
        *,
        terminated: bool = False,
        ask: Sequence[str] = (),
        deadline_s: float | None = None,
    ) -> Floats:
        """Learn from one transition: `Horde.learn`.

        Args:
            action: As in `Horde.learn`, as are the next four.
            probability: b(action).
            observation: Of the state reached, shape (n_channels,).
            tiles: Of the state reached, shape (n_active,).
            terminated: True where the stream ended there.
            ask: Names of demons whose predictions are returned; nobody else is waited for. In deferred mode these are
                the latest that were told, and nobody is waited for.
            deadline_s: Seconds to wait for them; without end unless given.

        Returns:
            Predictions of the new weights at `tiles`, float64, shape (len(ask),); NaN if the shard is late:
            `unanswered` says why.

        Raises:
            ValueError: As `Horde.learn` does.
            RuntimeError: If no stream was begun.
        """
        if not self._has_begun:
            raise RuntimeError("no stream to learn from: call begin(observation, tiles) first, and after a termination")
        action, probability = self._states.action(action, probability)
        state = self._states.checked(observation, tiles)
        if self._plan.asks_predictions:
            self.catch_up()
        verb = LEARN_LAST if terminated else LEARN
        self._send(Entry(verb, action, probability, *state), ask)
        self._has_begun = not terminated
        self._n_noted = (self._n_noted + 1) % _BATCHES[self.mode]
        try:
            self._shards.raise_refusals()
            return self._answer(ask, deadline_s)
        finally:
            self._shards.send_to_others()

    def _send(self, entry: Entry, ask: Sequence[str] = ()) -> None:
        """Send the shards an entry."""
        self._shards.send(entry, {link.number: here for link, here, _ in self._asked_of(ask)})

    # ---- answers of a few -------------------------------------------------------------------------------------------

    def _asked_of(self, ask: Sequence[str]) -> list[tuple[Link, Integers, Integers]]:
        """Return of each shard that has any of these demons: their places there, and in `ask`."""
        names = tuple(ask)
        if names == self._ask[0]:
            return self._ask[1]
        found = self._shards.places_of(place_of(ask, self.names))
        self._ask = (names, found)
        for link in self._shards.links:
            link.answer = None
        return found

    def _answer(self, ask: Sequence[str], deadline_s: float | None = None) -> Floats:
        """Return the predictions of some demons after the last entry."""
        if not len(ask):
            return _NOBODY
        until = None if deadline_s is None else time.monotonic() + deadline_s
        out = np.full(len(ask), np.nan)
        self.unanswered = {}
        for link, _, own in self._asked_of(ask):
            is_here = self._has_answered(link, until) if self.mode == "eager" else link.answer is not None
            if is_here:
                out[own] = link.answer
            else:
                why = f"shard {link.number} " + ("is late" if self.mode == "eager" else "has not answered yet")
                self.unanswered |= {ask[i]: why for i in own.tolist()}
        return out

    def _has_answered(self, link: Link, until: float | None) -> bool:
        """Wait until a shard has answered the last entry, or until a time; return whether it has."""
        while link.n_in_flight:
            if not link.wait(None if until is None else max(until - time.monotonic(), 0.0)):
                return False
        return True

    # ---- answers of all ---------------------------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        """Steps that shards have noted and not learned from yet."""
        return 0 if self._plan.is_plain else self._n_noted

    def catch_up(self) -> None:
        """Let the shards learn from the steps they have noted, without waiting for them: `Horde.catch_up`."""
        if self.n_waiting:
            self._send(Entry(TAKE))
            self._n_noted = 0

    def wait(self) -> None:
        """Wait until every shard has learned from every step."""
        self.catch_up()
        self._shards.wait()

    def _gather(self, verb: str, *given: Any) -> list[tuple[Link, Any]]:
        """Call a method of all shards, after every step: `Shards.gather`."""
        self.catch_up()
        return self._shards.gather(verb, *given)

    def _gathered(self, what: str, *given: Any, shape: tuple[int, ...] = ()) -> Any:
        """Return an array that a `Horde` has, its last axis the demons."""
        answers = self._gather("answer", what, *given)
        out = np.zeros((*shape, self.n_demons), dtype=answers[0][1].dtype)
        for link, answer in answers:
            out[..., link.demons] = answer
        return out

    def _joined(self, what: str) -> dict[str, str]:
        """Return a table by name that each shard's `Horde` has, as one."""
        return {name: why for _, answer in self._gather("answer", what) for name, why in answer.items()}

    predictions = _of_all("predictions", "Predictions of all demons at the latest state: `Horde.predictions`.")
    td_error = _of_all("td_error", "TD errors of the last step, shape (n_demons,).")
    rho = _of_all("rho", "Importance sampling ratios of the last step, shape (n_demons,).")
    mspbe_scalar = _of_all("mspbe_scalar", "Scalar MSPBE estimates, shape (n_demons,): `Horde.mspbe_scalar`.")
    max_traces = _of_all("max_traces", "Largest |e| so far of each demon, shape (n_demons,).")
    n_skipped = _of_all("n_skipped", "Steps that each demon skipped, shape (n_demons,): `Horde.n_skipped`.")

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, (n_active,): `Horde.predict`."""
        return self._gathered("predict", self._states.tiles(tiles))  # type: ignore[no-any-return]

    def ratio_totals(self) -> Floats:
        """Return what each demon's ratios added up to since it came, shape (3, n_demons): `Horde.ratio_totals`."""
        return self._gathered("ratio_totals", shape=(3,))  # type: ignore[no-any-return]

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates, shape (n_demons,): `Horde.mspbe_vector`.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        return self._gathered("mspbe_vector")  # type: ignore[no-any-return]

    @property
    def skipped_because(self) -> dict[str, str]:
        """How often each demon skipped a step, and why the first time, by name."""
        return self._joined("skipped_because")

    @property
    def divergence_reason(self) -> dict[str, str]:
        """Why each demon was set aside, by name."""
        return self._joined("divergence_reason")

    set_aside_because = divergence_reason  # deprecated name, until 0.2

    @property
    def diverged(self) -> list[str]:
        """Names of the diverged demons."""
        return list(self.divergence_reason)

    @property
    def n_diverged(self) -> int:
        """Diverged demons, as far as shards have reported."""
        return sum(link.n_diverged for link in self._shards.links)

    @property
    def n_updated(self) -> int:
        """Demons that learned in the last step: `Horde.n_updated`."""
        return sum(answer for _, answer in self._gather("answer", "n_updated"))

    @property
    def n_updates(self) -> int:
        """Demons that learned, summed over all steps, as far as shards have reported; without waiting."""
        return sum(link.n_updates for link in self._shards.links) - self._n_counted

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype.

        Args:
            demons: Places of the ones asked about, shape (n,): then each is (n, n_features); all unless given.
        """
        places = np.arange(self.n_demons) if demons is None else np.asarray(demons, dtype=np.int64)
        theta, w = np.zeros((2, places.size, self.n_features), dtype=self.config.dtype)
        own = {link.number: np.flatnonzero(np.isin(places, link.demons)) for link in self._shards.links}

        def asked(link: Link) -> tuple[str, Integers]:
            return "weights", np.searchsorted(link.demons, places[own[link.number]])

        for link, (of_theta, of_w) in self._gather("answer", asked):
            theta[own[link.number]], w[own[link.number]] = of_theta, of_w
        return theta, w

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w, as `Horde.weights_sha256` does."""
        digest = hashlib.sha256()
        for which in (0, 1):
            for first in range(0, self.n_demons, _AT_ONCE):
                array = self.weights(np.arange(first, min(first + _AT_ONCE, self.n_demons)))[which]
                digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, to zero unless given, (n_demons, n_features): `Horde.reset_weights`.

        Raises:
            ValueError: If `theta` has another shape, is not finite, or is past what the learner's dtype can hold.
        """
        if theta is not None:
            theta = np.asarray(theta)
            check_weights(theta, (self.n_demons, self.n_features), np.dtype(self.config.dtype))
        of = {link.number: None if theta is None else theta[link.demons] for link in self._shards.links}
        self.catch_up()
        self._shards.send(Entry(CHANGE), change=Change("reset", of))

    # ---- demons that come and go ------------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Take on more questions, in mid-life or before: `Horde.add`.

        The newcomers go to the shard with the fewest demons, or with the one whose prediction they sum. The demons
        there are arranged anew, and go on but for rounding; those of the other shards to the bit.

        Raises:
            ValueError: As `Horde.add` does; nothing has changed.
        """
        asked = named(questions, self._channels)
        if not asked:
            return
        after = _checked((*self.questions, *asked))
        new = np.arange(self.n_demons, len(after))
        link = self._shard_for(asked)
        self._change(Change("add", {link.number: _pickled(asked)}))
        link.demons = np.concatenate([link.demons, new])
        self._set_questions(after)
        self._is_unasked = self._is_unasked or not self._has_begun

    def _shard_for(self, asked: Sequence[GVF]) -> Link:
        """Return the shard that takes newcomers."""
        own = {question.name for question in asked}
        summed = [q.cumulant.name for q in asked if isinstance(q.cumulant, Prediction) and q.cumulant.name not in own]
        places = place_of(summed, self.names)
        homes = [link for link in self._shards.links if np.isin(places, link.demons).any()]
        if len(homes) > 1:
            raise ClusterError(
                f"the newcomers sum predictions of demons in {len(homes)} shards, and must sit beside them: add them "
                "one after another"
            )
        return min(homes or self._shards.links, key=lambda link: link.n_demons)

    def remove(self, names: Sequence[str]) -> None:
        """Drop the demons with these names: `Horde.remove`. A shard without demons ends.

        Raises:
            ValueError: As `Horde.remove` does; nothing has changed.
        """
        if isinstance(names, str):
            raise ValueError(f"names must be a list of names of demons of this Horde, not {names!r}")
        gone = np.unique(place_of(names, self.names))
        if not gone.size:
            return
        stays = np.setdiff1d(np.arange(self.n_demons), gone)
        after = _checked(tuple(self.questions[i] for i in stays.tolist()))
        of = {link.number: np.intersect1d(link.demons, gone) for link in self._shards.links}
        of_names = {n: [self.names[i] for i in own.tolist()] for n, own in of.items() if own.size}
        empty = [link for link in self._shards.links if of[link.number].size == link.n_demons]
        self._change(Change("remove", {n: some for n, some in of_names.items() if n not in {e.number for e in empty}}))
        for link in self._shards.links:
            link.demons = np.searchsorted(stays, np.setdiff1d(link.demons, gone))
        for link in empty:
            self._n_counted -= link.n_updates
            self._shards.drop(link)
        self._set_questions(after)

    def _change(self, change: Change) -> None:
        """Have shards do what a change says, and wait for it.

        Raises:
            ValueError: If one refuses it; nothing has changed.
        """
        self.catch_up()
        self._shards.send(Entry(CHANGE), change=change)
        self._shards.wait()
        self._shards.raise_refusals()
        self._fit()

    # ---- stopping, and going on from there --------------------------------------------------------------------------

    def state(self) -> State:
        """Return everything the future of these demons depends on.

        With a folder, each shard copies its state after this entry of the stream and writes it there in the background
        (`wait_for_snapshot`), and what is returned names the entry alone. Without one, all weights are returned.
        """
        shards, states = self._shards, State()
        if shards.folder is not None:
            shards.save()
        else:
            states = nested(**{f"{link.number:04d}": state for link, state in shards.gather("state")})
        own: dict[str, Any] = {"life": shards.life, "n_noted": self._n_noted, "n_counted": self._n_counted}
        own |= {"has_begun": self._has_begun, "is_unasked": self._is_unasked, "at": shards.n_entries}
        own |= {"n_shards": len(shards.links), "n_demons": self.n_demons, "n_channels": shards.n_channels}
        return nested(own={"sharded": text(own)}, shards=states)

    def restore(self, state: State) -> None:
        """Resume, bit for bit, from what `state` returned, in a Horde that was made and changed alike.

        Raises:
            ClusterError: If it is of another number of shards or demons, or a shard's snapshot is missing or damaged.
        """
        own, shards = untext(state["own/sharded"]), self._shards
        here = {"n_shards": len(shards.links), "n_demons": self.n_demons}
        if any(own.get(name) != n for name, n in here.items()):
            raise ClusterError(
                f"the state is of {own['n_shards']} shards and {own.get('n_demons', 'unknown')} demons, and this Horde "
                f"has {here['n_shards']} and {here['n_demons']}: make it with shards={own['n_shards']} and the same "
                "questions"
            )
        self._n_noted, self._n_counted = own["n_noted"], own["n_counted"]
        self._has_begun, self._is_unasked = own["has_begun"], own["is_unasked"]
        in_full = inner(state, "shards")
        states = {link.number: inner(in_full, f"{link.number:04d}") for link in shards.links} if in_full else {}
        shards.restore(own["life"], own["at"], own["n_channels"], states)

    @property
    def at(self) -> int:
        """Entries of the stream so far: the number under which shards write a snapshot."""
        return self._shards.n_entries

    def wait_for_snapshot(self, at: int) -> None:
        """Wait until all shards have written their snapshot of an entry (`at`), if there is a folder; from any thread.

        Raises:
            OSError: If one could not write it.
            ShardLost: If a shard is gone.
        """
        self._shards.wait_for_snapshot(at)

    def drop_snapshots(self, before: int) -> None:
        """Remove the shards' snapshots of entries before this one."""
        self._shards.drop_snapshots(before)

    # ---- shards -----------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[ShardStatus]:
        """Status of each shard, without waiting."""
        return self._shards.status()

    @property
    def lags(self) -> Integers:
        """Entries of the stream that each shard has not answered yet, shape (n_shards,)."""
        return np.array([status.lag for status in self.shards], dtype=np.int64)

    def close(self) -> None:
        """End the shards, and Ray where it was started here. Closing twice does nothing."""
        self._shards.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked(questions: tuple[GVF, ...]) -> tuple[GVF, ...]:
    """Return questions that can be asked together.

    Raises:
        ClusterError: If there is none, two have one name, or one sums the prediction of a demon that is not there.
    """
    if not questions:
        raise ClusterError("questions must hold at least one question")
    name, n = Counter(question.name for question in questions).most_common(1)[0]
    if n > 1:
        raise ClusterError(f"questions must have different names in all shards; {name!r} is there twice")
    names = {question.name for question in questions}
    for question in questions:
        if isinstance(question.cumulant, Prediction) and question.cumulant.name not in names:
            raise ClusterError(
                f"question {question.name!r}: there is no demon {question.cumulant.name!r} in this Horde"
            )
    return questions


def _pickled(questions: Sequence[GVF]) -> bytes:
    """Return questions as they are sent to a shard.

    Raises:
        ClusterError: If one holds a function that cannot be sent.
    """
    try:
        return cloudpickle.dumps(list(questions))  # type: ignore[no-any-return]
    except Exception as error:
        raise ClusterError(_cannot_be_sent(questions, error)) from None


def _cannot_be_sent(questions: Sequence[GVF], error: Exception) -> str:
    """Return which question cannot be sent."""
    for question in questions:
        try:
            cloudpickle.dumps(question)
        except Exception as why:
            return (
                f"the question {question.name!r} holds a function that cannot be sent to another process ({why}): "
                "write it in a module, without open files, locks or the like"
            )
    return f"the questions cannot be sent to another process: {error}"
