"""A shard: a plain `Horde` of some of the demons, that is told numbered entries and says how far it has come.

It knows nothing of Ray, nor of other shards. An entry that is not the next is refused by its number alone, so that
whoever feeds it may be wrong about where it stands. Every so many entries it writes what it has learned to its folder
(`kept.py`); brought up anew, it goes on from there.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.families import Some
from horde_agent.cluster.kept import Kept
from horde_agent.cluster.stream import BEGIN, CHANGE, LEARN_LAST, TAKE, row_type
from horde_agent.gvf import GVF, Prediction
from horde_agent.horde import Horde, Mode
from horde_agent.kernels import _jit
from horde_agent.learning.layout import ShardContext
from horde_agent.learning.rules import LearnerConfig
from horde_agent.record import snapshots
from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats, Integers

_MEASURED_EVERY = 256  # messages after which its memory is looked at


class NotMadeError(Exception):
    """A shard is asked something that it cannot know: its process is another one by now."""


class Making(NamedTuple):
    """What a shard is made of.

    Attributes:
        questions: Its demons, in order: what describes them, pickled.
        n_features, n_active: Of the states.
        config, mode, channels: As in `Horde`.
        share: What it knows of the whole.
        folder: For its snapshots; None keeps none.
        every: Entries between two of them.
    """

    questions: bytes
    n_features: int
    n_active: int
    config: LearnerConfig
    mode: Mode
    channels: tuple[str, ...]
    share: ShardContext
    folder: str | None
    every: int


class Made(NamedTuple):
    """What a shard says of itself when it was made.

    Attributes:
        at: Number of the last entry that it has taken.
        n_updates: Demons that learned, counted in all steps until then.
        n_channels: An observation must have at least so many.
        n_actions: 0 where no policy says.
        versions: Of what decides how sums are rounded.
        node: Name of the machine.
        process: Number of its process there.
        largest_decay: Of its questions.
    """

    at: int
    n_updates: int
    n_channels: int
    n_actions: int
    versions: dict[str, str]
    node: str
    process: int
    largest_decay: float


@dataclass(frozen=True)
class Change:
    """Demons that come or go, or weights that are set: a load of an entry. Every shard is told its part by its number.

    Attributes:
        what: "add", "remove", "reset" or "keep".
        of: What for each shard that it concerns; of "reset", theta, (n, n_features), or None for zeros.
    """

    what: str
    of: Mapping[int, Any]

    def part(self, number: int) -> Change:
        """Return what of it concerns one shard."""
        return Change(self.what, {number: self.of[number]} if number in self.of else {})

    @property
    def is_roster(self) -> bool:
        """Whether it says who is there."""
        return self.what in ("add", "remove")


class Message(NamedTuple):
    """Entries that a shard is sent.

    Attributes:
        first: Number of the first.
        rows: The entries, one after another.
        n_channels: Of their observations.
        loads: What they carry, by number.
        asked: Demons whose predictions are to be told after the last one: their places there, shape (n_asked,).
    """

    first: int
    rows: bytes
    n_channels: int
    loads: Mapping[int, Change]
    asked: Integers | None


class Report(NamedTuple):
    """What a shard says after a message.

    Attributes:
        at: Number of the last entry that it has taken.
        n_updates: Demons that learned, counted in all steps so far.
        kept: Entries after which it has a snapshot, ascending.
        n_bytes: Memory that its process takes.
        n_diverged: Demons that were set aside in the steps taken so far.
        answer: Predictions that were asked for, shape (n_asked,).
        refused: Why an entry was refused.
        trouble: Why its last snapshot could not be written; "" where it was.
    """

    at: int
    n_updates: int
    kept: tuple[int, ...]
    n_bytes: int
    n_diverged: int = 0
    answer: Floats | None = None
    refused: str | None = None
    trouble: str = ""


def versions() -> dict[str, str]:
    """Return what must be the same wherever a Horde is spread to: else numbers would differ, or not be understood."""
    same = snapshots.identity()
    return {"python": platform.python_version(), "numba": same["numba"], "numpy": same["numpy"], "code": _jit._SOURCES}


class Shard:
    """Some of the demons of a larger Horde.

    Args:
        number: Which one.

    Attributes:
        at: Number of the last entry that it has taken.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.at, self._n_updates, self._n_messages, self._n_bytes = 0, 0, 0, 0
        self._horde: Horde | None = None
        self._kept: Kept | None = None

    # ---- coming up --------------------------------------------------------------------------------------------------

    def make(
        self,
        making: Making,
        changes: Mapping[int, Change],
        first: int,
        last: int,
        base: State | None = None,
        returns: Sequence[int] = (),
    ) -> Made:
        """Come up, from the newest snapshot that can be gone on from, or with nothing learned.

        Args:
            making: What it is made of.
            changes: Who came and went, by the number of the entry.
            first: Number of the oldest entry that it can be told again.
            last: Number of the newest entry that there is.
            base: What `state` returned, to go on from where there is no snapshot.
            returns: Entries to which the life may go back.

        Raises:
            ClusterError: If a question does not fit, or there is no snapshot to go on from.
        """
        if self._kept is not None:  # it was taken for lost, and was not
            self._kept.join()
        self._making, self._horde, self._kept = making, None, None
        self.at = self._n_updates = 0
        if making.folder is not None:
            folder = Path(making.folder) / f"shard-{self.number:04d}"
            self._kept = Kept(folder, self.number, list(returns))
        snapshot = self._kept.newest(first - 1, last) if self._kept is not None else None
        state = base if snapshot is None else snapshot.state
        if state is None and first > 1:
            raise ClusterError(
                f"shard {self.number} has no sound snapshot between the entries {first - 1:,} and {last:,} in "
                f"{making.folder}"
            )
        self._come_up(making, changes, state)
        decay = self.horde._maker.largest_decay
        return Made(self.at, self._n_updates, *self.fits(), versions(), socket.gethostname(), os.getpid(), decay)

    def _come_up(self, making: Making, changes: Mapping[int, Change], state: State | None) -> None:
        """Make the Horde, and bring it to where a state was."""
        self._horde = Horde(
            made_from(making.questions),
            n_features=making.n_features,
            n_active=making.n_active,
            config=making.config,
            mode=making.mode,
            channels=making.channels,
            share=making.share,
        )
        if state is None:
            return
        self.at, self._n_updates = int(state["own/at"]), int(state["own/n_updates"])
        for number in sorted(changes):
            if number <= self.at and self.number in changes[number].of:
                self._change(changes[number])
        self.horde.restore(inner(state, "horde"))

    @property
    def horde(self) -> Horde:
        """Its demons.

        Raises:
            NotMadeError: If it was not made yet.
        """
        if self._horde is None:
            raise NotMadeError(f"shard {self.number} was not made in this process")
        return self._horde

    # ---- the stream -------------------------------------------------------------------------------------------------

    def take(self, message: bytes) -> bytes:
        """Take entries, if they are the next: a packed `Message`. Returns a packed `Report`."""
        return packed(self._report(*unpacked(message)))

    def _report(
        self, first: int, rows: bytes, n_channels: int, loads: Mapping[int, Change], asked: Integers | None
    ) -> Report:
        """Take entries, and report."""
        horde, kept = self._horde, self._kept
        if horde is None or first != self.at + 1:
            return Report(self.at, self._n_updates, (), self._n_bytes)
        entries = np.frombuffer(rows, row_type(n_channels, horde.n_active, horde.n_features))
        refused, latest = None, None
        for entry in entries:
            self.at += 1
            try:
                latest = self._take(horde, entry, loads.get(self.at))
            except ValueError as error:
                refused = str(error)
            if kept is not None:
                if self._is_due:
                    kept.want()
                kept.go_on(self)
        answer = None if asked is None or latest is None else latest[asked]
        self._n_messages += 1
        if self._n_messages % _MEASURED_EVERY == 1:
            self._n_bytes = resident_bytes()
        told = (self.at, self._n_updates, kept.steps if kept else (), self._n_bytes, horde.n_diverged, answer, refused)
        return Report(*told, kept.trouble if kept else "")

    @property
    def _is_due(self) -> bool:
        """Whether a snapshot is due: every so many entries, of the shards by turns."""
        every = self._making.every
        return (self.at + self.number * every // 8) % every == 0

    def _take(self, horde: Horde, entry: Any, load: Change | None) -> Floats | None:
        """Take one entry, and return the latest predictions, if it has any."""
        verb = entry["verb"]
        if verb == BEGIN:
            return horde.begin(entry["observation"], entry["tiles"])
        if verb == TAKE:
            horde.catch_up()
            return None
        if verb == CHANGE:
            if load is not None and self.number in load.of:
                self._change(load)
            return None
        action, probability = int(entry["action"]), float(entry["probability"])
        latest = horde.learn(
            action, probability, entry["observation"], entry["tiles"], terminated=bool(verb == LEARN_LAST)
        )
        self._n_updates += horde.n_updated
        return latest

    def _change(self, change: Change) -> None:
        """Do what a change says."""
        horde, of = self.horde, change.of[self.number]
        if change.what == "add":
            horde.add(made_from(of))
        elif change.what == "remove":
            horde.remove(of)
        elif change.what == "reset":
            horde.reset_weights(of)
        elif self._kept is not None:
            self._kept.may_return(self.at)

    def finish_writing(self) -> int:
        """Have the disk keep what is to be kept, and return the number of the last entry taken."""
        if self._kept is not None:
            self._kept.finish(self)
        return self.at

    # ---- what it is asked -------------------------------------------------------------------------------------------

    def answer(self, what: str, *given: Any) -> Any:
        """Return what the Horde says of `what`, an attribute or a method's name, with the arguments given."""
        found = getattr(self.horde, what)
        return found(*given) if callable(found) else found

    def fits(self) -> tuple[int, int]:
        """Return how many channels an observation must have, and how many actions there are, 0 where nobody says."""
        states = self.horde._maker.states
        return states.n_channels, states.n_actions

    def weights(self, places: Integers) -> tuple[Any, Any]:
        """Return theta and w of the demons at these places, each (n, n_features)."""
        return self.horde.weights(places)

    def state(self) -> State:
        """Return everything its future depends on."""
        own = {"at": np.array(self.at), "n_updates": np.array(self._n_updates)}
        return nested(horde=self.horde.state(), own=own)

    def process(self) -> int:
        """Return the number of its process."""
        return os.getpid()

    def echo(self, data: bytes) -> int:
        """Return the size of what it is sent, for measuring the way."""
        return len(data)


def packed(thing: Message | Report) -> bytes:
    """Return what is sent as bytes: Ray takes a quarter less time for these than for a few objects."""
    return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """Return what was packed."""
    return pickle.loads(data)


def made_from(described: bytes) -> list[GVF]:
    """Return the questions of a shard.

    Raises:
        ClusterError: If a family's question is about another's prediction.
    """
    questions: list[GVF] = []
    for part in cloudpickle.loads(described):
        made = part.family.make(part.numbers) if isinstance(part, Some) else part
        linked = [q.name for q in made if isinstance(part, Some) and isinstance(q.cumulant, Prediction)]
        if linked:
            raise ClusterError(
                f"the question {linked[0]!r} of a family is about another's prediction, which may be in another shard: "
                "give such questions as a list"
            )
        questions += made
    return questions


def resident_bytes() -> int:
    """Return the memory that this process takes; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
