"""ShardedHorde: the verbs and answers of a `Horde`, over many processes."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.families import Family, Questions, described
from horde_agent.cluster.link import BATCH, Link, ShardStatus
from horde_agent.cluster.plan import Cut, Plan
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import Change, Making
from horde_agent.cluster.shards import Shards
from horde_agent.cluster.stream import BEGIN, CHANGE, LEARN, LEARN_LAST, TAKE, Entry
from horde_agent.gvf import GVF, Prediction, named
from horde_agent.horde import Mode
from horde_agent.learning.engine import check_weights
from horde_agent.learning.inputs import InputChecker
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Floats, Integers, Tiles

_BATCHES = {"eager": 1, "deferred": 64}  # steps that a Horde notes before it takes them
_NOBODY: Floats = np.zeros(0)
_PATIENCE_S = {True: 60.0, False: 600.0}  # on a Ray of one's own; on a cluster another machine may have to come up
_AT_ONCE = 256  # demons whose weights are fetched together for the hash


class Where(TypedDict, total=False):
    """Where the demons of a `ShardedHorde` are.

    Attributes:
        shards: How many processes, or "auto": one for each core that there is.
        address: Of a Ray cluster that runs; None starts Ray on this machine alone.
        folder: For the shards' snapshots, which all machines must be able to write; None keeps none, and a shard that
            dies is told everything again.
        snapshot_every: Steps between two of a shard's snapshots; 10,000 unless given.
        n_threads: Of each shard; as many as leave each a core, unless given.
        patience_s: Seconds that a shard may be away before it is left; unless given 60, and 600 on a cluster, where
            another machine may have to come up first.
    """

    shards: int | Literal["auto"]
    address: str | None
    folder: str | Path | None
    snapshot_every: int
    n_threads: int
    patience_s: float


def _of_all(what: str, doc: str) -> Any:
    """Return a property of a `ShardedHorde`: an array that a `Horde` has, of the demons of all shards."""
    return property(lambda horde: horde._gathered(what), doc=doc)


class ShardedHorde:
    """The demons that answer `questions`, in shards that each are a `Horde` in a process of its own.

    Args:
        questions: GVFs, families of them, or both; their names must differ.
        n_features: Number of features.
        n_active: Number of active features in each state.
        config: How they learn.
        mode: "eager": each step is sent when it comes. "deferred": 64 together, and nothing is waited for.
        channels: Names of the observation's channels.
        real_valued: Refused: shards are told of tiles alone.
        where: In how many processes, and where: see `Where`.

    Attributes:
        questions, names, n_demons: The questions, their names, their number; of families they are made when asked for.

    Raises:
        ClusterError: If it cannot be done; nothing is left running.
        ValueError: If a question does not fit the others, the features or the channels.
    """

    def __init__(
        self,
        questions: Sequence[GVF | Family],
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
            raise ClusterError("shards are told of tiles alone: learn of real-valued features in one Horde")
        if mode not in _BATCHES:
            raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
        if not 1 <= n_active <= n_features:
            raise ValueError(f"n_active must be in 1..n_features, not {n_active} of {n_features}")
        self.config, self.n_features, self.n_active, self.mode = config, n_features, n_active, mode
        self._channels, self._where = tuple(channels), where
        self._know(Questions(_named(questions, self._channels)))
        self._plan = Plan(self._asked, config, mode)
        self._n_noted = 0
        self._n_counted = 0  # of `n_updates`, less what shards counted that are no more
        self._has_begun, self._is_unasked = False, True
        self._ask: tuple[tuple[str, ...], list[tuple[Link, Integers, Integers]]] = ((), [])
        self.unanswered: dict[str, str] = {}
        self._cluster = self._connect()
        self._life, folder = secrets.token_hex(8), where.get("folder")
        kept_in = None if folder is None else Path(folder).absolute()
        patience_s = where.get("patience_s", _PATIENCE_S[self._cluster.is_own])
        self._shards = Shards(self._cluster, kept_in, self._life, patience_s)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _know(self, questions: Questions) -> None:
        """Take note of who there is."""
        self._asked, self.names, self.n_demons = questions, questions.names, len(questions)
        self.questions: Sequence[GVF] = questions if questions.families else tuple(questions)

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
        n_bytes = self._plan.room(cuts, self.n_features, cluster.memory, cluster.n_cpus)
        n_threads = self._where.get("n_threads") or max(1, (os.cpu_count() or 1) // n)
        self._shards.start(cuts, [self._making_of(cut) for cut in cuts], n_bytes, n_threads)
        self._fit()

    def _making_of(self, cut: Cut) -> Making:
        """Return what a shard is made of."""
        questions, folder = described(self._asked.cut(cut.demons)), self._shards.folder
        rules = (self.config, self.mode, self._channels, cut.share)
        every = self._where.get("snapshot_every", 10_000)
        return Making(questions, self.n_features, self.n_active, *rules, str(folder) if folder else None, every)

    def _fit(self) -> None:
        """Take note of what the shards expect of a state."""
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
        self._tell(Entry(BEGIN, observation=state[0], tiles=state[1]), ask)
        self._n_noted = 0
        if self._is_unasked:  # policies are asked for the first time, and may be refused
            self._shards.wait(must=True)
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
            Predictions of the new weights at `tiles`, float64, shape (len(ask),); NaN of a demon whose shard is away or
            late: `unanswered` says why.

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
        self._tell(Entry(verb, action, probability, *state), ask)
        self._has_begun = not terminated
        self._n_noted = (self._n_noted + 1) % _BATCHES[self.mode]
        try:
            if self.mode == "eager":
                self._shards.hold_back()
            self._shards.raise_refusals()
            return self._answer(ask, deadline_s)
        finally:
            if ask:
                self._shards.tell_others(1 if self.mode == "eager" else BATCH)

    def _tell(self, entry: Entry, ask: Sequence[str] = ()) -> int:
        """Tell the shards an entry, and return its number."""
        asked = {link.number: here for link, here, _ in self._asked_of(ask)}
        return self._shards.tell(entry, asked, 1 if self.mode == "eager" or entry.verb == CHANGE else BATCH)

    # ---- answers of a few -------------------------------------------------------------------------------------------

    def _asked_of(self, ask: Sequence[str]) -> list[tuple[Link, Integers, Integers]]:
        """Return of each shard that has any of these demons: their places there, and in `ask`."""
        names = tuple(ask)
        if names == self._ask[0]:
            return self._ask[1]
        found = self._shards.places_of(np.array([self._asked.place(name) for name in ask], dtype=np.int64))
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
        for link, here, own in self._asked_of(ask):
            if self.mode == "eager":
                why = self._await_answer(link, here, until)
            else:
                why = "" if link.answer is not None else link.why or "no answer yet"
            if why:
                self.unanswered |= {ask[i]: why for i in own.tolist()}
            else:
                out[own] = link.answer
        return out

    def _await_answer(self, link: Link, here: Integers, until: float | None) -> str:
        """Wait until a shard has answered the last entry; return why it has not."""
        log = self._shards.log
        while log is not None and link.state == "learning" and self._shards.lag(link):
            left = None if until is None else max(until - time.monotonic(), 0.0)
            if link.is_busy and not link.wait(left):
                return f"shard {link.number} is late"
            link.advance(log, 1, here)
        if link.state != "learning":
            return link.absence
        return "" if link.answer is not None else f"shard {link.number} was not asked in time"

    # ---- answers of all ---------------------------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        """Steps that shards only note so far."""
        return 0 if self._plan.is_plain else self._n_noted

    def catch_up(self) -> None:
        """Have the shards take the steps that they only noted so far: `Horde.catch_up`. Nobody is waited for."""
        if self.n_waiting:
            self._tell(Entry(TAKE))
            self._n_noted = 0

    def wait(self) -> None:
        """Wait until every shard has taken every step; a shard that is away is waited for, a lost one is not."""
        self.catch_up()
        self._shards.wait(must=True)

    def _gather(self, verb: str, *given: Any, must: bool = False) -> list[tuple[Link, Any]]:
        """Ask all shards, after every step: `Shards.gather`."""
        self.catch_up()
        return self._shards.gather(verb, *given, must=must)

    def _gathered(self, what: str, *given: Any, shape: tuple[int, ...] = ()) -> Any:
        """Return an array that a `Horde` has, its last axis the demons; NaN of those that are away."""
        answers = self._gather("answer", what, *given)
        dtype = answers[0][1].dtype if len(answers) == len(self._shards.links) else np.dtype(np.float64)
        out = np.full((*shape, self.n_demons), 0 if dtype.kind in "iu" else np.nan, dtype=dtype)
        for link, answer in answers:
            out[..., link.demons] = answer
        there = {link.number for link, _ in answers}
        self.unanswered = self._absent([link for link in self._shards.links if link.number not in there])
        return out

    def _absent(self, links: Sequence[Link]) -> dict[str, str]:
        """Return why the demons of some shards do not answer, by name."""
        return {self.names[i]: link.absence for link in links for i in link.demons.tolist()}

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
        """Largest |e| so far, of all demons that are there."""
        return float(np.fmax.reduce(self.max_traces))  # nan where all are away

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
        """Why each demon was set aside, by name; those of lost shards among them."""
        lost = [link for link in self._shards.links if link.state == "lost"]
        return self._joined("divergence_reason") | self._absent(lost)

    set_aside_because = divergence_reason  # deprecated name, until 0.2

    @property
    def diverged(self) -> list[str]:
        """Names of the demons that were set aside, and of those whose shard was lost."""
        return list(self.divergence_reason)

    @property
    def n_diverged(self) -> int:
        """Demons that were set aside, or whose shard was lost, as far as shards have told by now."""
        return sum(link.n_demons if link.state == "lost" else link.n_diverged for link in self._shards.links)

    @property
    def n_updated(self) -> int:
        """Demons that learned in the last step: `Horde.n_updated`."""
        return sum(answer for _, answer in self._gather("answer", "n_updated"))

    @property
    def n_updates(self) -> int:
        """Demons that learned, counted in all steps, as far as shards have told by now; nobody is waited for."""
        return sum(link.n_updates for link in self._shards.links) - self._n_counted

    def weights(self, demons: Integers | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype; NaN of lost shards.

        Args:
            demons: Places of the ones asked about, shape (n,): then each is (n, n_features); all unless given.
        """
        places = np.arange(self.n_demons) if demons is None else np.asarray(demons, dtype=np.int64)
        theta, w = np.full((2, places.size, self.n_features), np.nan, dtype=self.config.dtype)
        own = {link.number: np.flatnonzero(np.isin(places, link.demons)) for link in self._shards.links}

        def asked(link: Link) -> tuple[Integers]:
            return (np.searchsorted(link.demons, places[own[link.number]]),)

        for link, (of_theta, of_w) in self._gather("weights", asked, must=True):
            theta[own[link.number]], w[own[link.number]] = of_theta, of_w
        return theta, w

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w, as `Horde.weights_sha256` does; a lost shard's are NaN."""
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
        self._tell(Entry(CHANGE, load=Change("reset", of)))

    # ---- demons that come and go ------------------------------------------------------------------------------------

    def add(self, questions: Sequence[GVF]) -> None:
        """Take on more questions, in mid-life or before: `Horde.add`.

        The newcomers go to the shard with the fewest demons, or with the one whose prediction they sum. The demons
        there are arranged anew, and go on but for rounding; those of the other shards to the bit.

        Raises:
            ValueError: As `Horde.add` does; nothing has changed.
        """
        asked = _named(questions, self._channels)
        if not asked:
            return
        after = Questions([*self._asked.one_by_one, *asked])
        new = np.arange(self.n_demons, len(after))
        link = self._shard_for(after, new)
        self._change(Change("add", {link.number: described(after.cut(new))}))
        link.demons = np.concatenate([link.demons, new])
        self._know_anew(after)

    def _shard_for(self, after: Questions, new: Integers) -> Link:
        """Return the shard that takes newcomers."""
        own = set(new.tolist())
        summed = [q.cumulant.name for q in after.some(new) if isinstance(q.cumulant, Prediction)]
        places = [place for place in map(after.place, summed) if place not in own]
        homes = [link for link in self._shards.links if np.isin(places, link.demons).any()]
        if len(homes) > 1:
            raise ClusterError(
                f"the newcomers sum predictions of demons in {len(homes)} shards, and must sit beside them: add them "
                "one after another"
            )
        there = homes or [link for link in self._shards.links if link.state != "lost"]
        if not there:
            raise ClusterError("all shards are lost: no demon can be taken on")
        return min(there, key=lambda link: link.n_demons)

    def remove(self, names: Sequence[str]) -> None:
        """Drop the demons with these names: `Horde.remove`. A shard that nobody is left in ends.

        Raises:
            ValueError: As `Horde.remove` does, or if one belongs to a family; nothing has changed.
        """
        if isinstance(names, str):
            raise ValueError(f"names must be a list of names of demons of this Horde, not {names!r}")
        gone = np.unique(np.array([self._asked.place(name) for name in names], dtype=np.int64))
        if not gone.size:
            return
        stays = np.setdiff1d(np.arange(self.n_demons), gone)
        after = Questions(self._asked.without(gone))
        of = {link.number: np.intersect1d(link.demons, gone) for link in self._shards.links}
        of_names = {n: [self.names[i] for i in own.tolist()] for n, own in of.items() if own.size}
        empty = [link for link in self._shards.links if of[link.number].size == link.n_demons]
        self._change(Change("remove", {n: some for n, some in of_names.items() if n not in {e.number for e in empty}}))
        for link in self._shards.links:
            link.demons = np.searchsorted(stays, np.setdiff1d(link.demons, gone))
        for link in empty:
            self._n_counted -= link.n_updates
            self._shards.drop(link)
        self._know_anew(after)

    def _change(self, change: Change) -> None:
        """Have shards do what a change says, and wait for it.

        Raises:
            ValueError: If one refuses it; nothing has changed.
        """
        self.catch_up()
        number = self._tell(Entry(CHANGE, load=change))
        self._shards.wait(must=True)
        try:
            self._shards.raise_refusals()
        except ValueError:
            self._shards.withdraw(number)
            raise
        self._fit()

    def _know_anew(self, questions: Questions) -> None:
        """Take note of who there is now."""
        self._know(questions)
        self._ask = ((), [])
        self._is_unasked = self._is_unasked or not self._has_begun

    # ---- stopping, and going on from there --------------------------------------------------------------------------

    def state(self) -> State:
        """Return all that the future of these demons depends on.

        With a folder, each shard writes what it has learned there, after this entry and while it goes on, the stream
        since its last snapshot is kept there, and the state says only where it stands. Without one, it holds all.
        """
        shards, in_full = self._shards, State()
        if shards.log is not None and shards.folder is not None:
            shards.keep()
        elif shards.log is not None:
            in_full = nested(**{f"{link.number:04d}": known for link, known in shards.gather("state", must=True)})
        own: dict[str, Any] = {"life": self._life, "n_noted": self._n_noted, "n_counted": self._n_counted}
        own |= {"has_begun": self._has_begun, "is_unasked": self._is_unasked, "changes": list(shards.changes)}
        own |= {"n_shards": len(shards.links), "returns": shards.returns, "at": 0, "n_channels": 0}
        if shards.log is not None:
            own |= {"at": shards.log.next - 1, "n_channels": shards.log.row["observation"].shape[0]}
        return nested(own={"sharded": text(own)}, shards=in_full)

    def restore(self, state: State) -> None:
        """Go on, bit for bit, from what `state` returned, in a Horde that was made, and changed, alike.

        Raises:
            ValueError: If it was of another number of shards, or what they have written is not there.
        """
        own, shards = untext(state["own/sharded"]), self._shards
        if own["n_shards"] != len(shards.links) or len(own["changes"]) != len(shards.changes):
            raise ClusterError(
                f"this was a Horde of {own['n_shards']} shards, whose demons had come and gone {len(own['changes'])} "
                f"times, and not of {len(shards.links)} and {len(shards.changes)}: make it with "
                f"shards={own['n_shards']}"
            )
        renumbered = dict(zip(own["changes"], shards.changes.values(), strict=True))
        shards.changes.clear()
        shards.changes |= renumbered
        self._life, self._n_noted, self._n_counted = own["life"], own["n_noted"], own["n_counted"]
        self._has_begun, self._is_unasked = own["has_begun"], own["is_unasked"]
        in_full = inner(state, "shards")
        bases = {link.number: inner(in_full, f"{link.number:04d}") for link in shards.links} if in_full else {}
        shards.go_on(own["life"], own["at"], own.get("returns", ()), own["n_channels"], bases)

    # ---- shards -----------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[ShardStatus]:
        """What is known of each shard, without waiting; one that is away is helped back by looking."""
        return self._shards.status()

    @property
    def lags(self) -> Integers:
        """Steps that each shard is behind, shape (n_shards,)."""
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


def _named(questions: Sequence[GVF | Family], channels: Sequence[str]) -> list[GVF | Family]:
    """Return questions whose channels are places in the observation."""
    if isinstance(questions, GVF | Family):
        raise ValueError(f"questions must be a list of GVFs and families, not {questions!r}")
    in_full = iter(named([q for q in questions if not isinstance(q, Family)], channels))
    return [q if isinstance(q, Family) else next(in_full) for q in questions]
