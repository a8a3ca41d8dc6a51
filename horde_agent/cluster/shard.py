"""A shard: a plain `Horde` of some of the demons, which takes the entries of the stream in order and reports.

It knows nothing of Ray, nor of other shards.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.stream import BEGIN, CHANGE, LEARN_LAST, TAKE, Change, row_type
from horde_agent.horde import Horde, Mode
from horde_agent.kernels import _jit
from horde_agent.learning.layout import ShardContext
from horde_agent.learning.rules import LearnerConfig
from horde_agent.record import snapshots
from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats, Integers

_MEASURED_EVERY = 256  # messages between two measurements of the memory
_ALL = 1 << 62  # snapshots that stay: the driver removes those that no longer matter


class Making(NamedTuple):
    """Arguments of a shard.

    Attributes:
        questions: Its demons in order, a list of GVFs, pickled.
        n_features, n_active: As in `Horde`.
        config, mode, channels: As in `Horde`.
        share: What the shard must know of the whole.
    """

    questions: bytes
    n_features: int
    n_active: int
    config: LearnerConfig
    mode: Mode
    channels: tuple[str, ...]
    share: ShardContext


class Made(NamedTuple):
    """Facts about a shard that was made.

    Attributes:
        versions: Versions that decide how sums are rounded.
        node: Name of the machine.
        process: Number of its process there.
    """

    versions: dict[str, str]
    node: str
    process: int


class Message(NamedTuple):
    """Entries that a shard is sent.

    Attributes:
        rows: The entries, one after another.
        n_channels: Of their observations.
        change: The change made by the last entry, if its verb is CHANGE.
        asked: Demons whose predictions are returned after the last entry, by place in the shard: shape (n_asked,).
    """

    rows: bytes
    n_channels: int
    change: Change | None
    asked: Integers | None


class Report(NamedTuple):
    """Answer to a message.

    Attributes:
        n_updates: Demons that learned, summed over all steps so far.
        n_bytes: Memory of the process.
        n_diverged: Diverged demons.
        answer: Predictions that were asked for, shape (n_asked,).
        refused: Why an entry was refused.
    """

    n_updates: int
    n_bytes: int
    n_diverged: int
    answer: Floats | None
    refused: str | None


def versions() -> dict[str, str]:
    """Return the versions that must agree on all machines: otherwise numbers differ, or messages cannot be read."""
    same = snapshots.identity()
    return {"python": platform.python_version(), "numba": same["numba"], "numpy": same["numpy"], "code": _jit._SOURCES}


class Shard:
    """Some of the demons of a larger Horde.

    Args:
        number: Number of the shard.

    Attributes:
        at: Entries taken so far.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.at = self._n_updates = self._n_messages = self._n_bytes = 0
        self._horde: Horde | None = None
        self._writing: threading.Thread | None = None
        self._written, self._trouble = 0, ""

    def make(self, making: Making) -> Made:
        """Make the Horde.

        Raises:
            ValueError: If a question does not fit.
        """
        self._horde = Horde(
            cloudpickle.loads(making.questions),
            n_features=making.n_features,
            n_active=making.n_active,
            config=making.config,
            mode=making.mode,
            channels=making.channels,
            share=making.share,
        )
        return Made(versions(), socket.gethostname(), os.getpid())

    @property
    def horde(self) -> Horde:
        """Its demons."""
        assert self._horde is not None, "it was made first"
        return self._horde

    # ---- the stream -------------------------------------------------------------------------------------------------

    def take(self, message: bytes) -> bytes:
        """Take the next entries, a packed `Message`, and return a packed `Report`."""
        rows, n_channels, change, asked = unpacked(message)
        horde, refused, latest = self.horde, None, None
        for entry in np.frombuffer(rows, row_type(n_channels, horde.n_active, horde.n_features)):
            self.at += 1
            try:
                latest = self._take(horde, entry, change)
            except ValueError as error:
                refused = str(error)
        answer = None if asked is None or latest is None else latest[asked]
        self._n_messages += 1
        if self._n_messages % _MEASURED_EVERY == 1:
            self._n_bytes = resident_bytes()
        return packed(Report(self._n_updates, self._n_bytes, horde.n_diverged, answer, refused))

    def _take(self, horde: Horde, entry: Any, change: Change | None) -> Floats | None:
        """Take one entry, and return the latest predictions if it has any."""
        verb = entry["verb"]
        if verb == BEGIN:
            return horde.begin(entry["observation"], entry["tiles"])
        if verb == TAKE:
            horde.catch_up()
            return None
        if verb == CHANGE:
            if change is not None and self.number in change.of:
                self._change(horde, change.what, change.of[self.number])
            return None
        action, probability = int(entry["action"]), float(entry["probability"])
        latest = horde.learn(
            action, probability, entry["observation"], entry["tiles"], terminated=bool(verb == LEARN_LAST)
        )
        self._n_updates += horde.n_updated
        return latest

    def _change(self, horde: Horde, what: str, of: Any) -> None:
        """Make a change."""
        if what == "add":
            horde.add(cloudpickle.loads(of))
        elif what == "remove":
            horde.remove(of)
        elif what == "reset":
            horde.reset_weights(of)
        else:
            self._save(folder_of(of, self.number))

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def _save(self, folder: Path) -> None:
        """Copy the state now, and write it to a folder in a background thread."""
        if self._writing is not None:
            self._writing.join()
        args = folder, self.at, self.state()
        self._writing = threading.Thread(target=self._write, args=args, name="keeping", daemon=True)
        self._writing.start()

    def _write(self, folder: Path, at: int, state: State) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            snapshots.write(folder, at, state, {"shard": self.number}, kept=_ALL)
            self._trouble = ""
        except OSError as error:
            self._trouble = f"{folder}: {error.strerror}"
        self._written = at

    def written(self) -> tuple[int, str]:
        """Return the entry of the latest snapshot whose writing has ended, and why it failed, "" if it did not."""
        return self._written, self._trouble

    def state(self) -> State:
        """Return everything its future depends on."""
        own = {"at": np.array(self.at), "n_updates": np.array(self._n_updates)}
        return nested(horde=self.horde.state(), own=own)

    def restore(self, state: State) -> int:
        """Resume from what `state` returned, and return `n_updates`; the Horde must have been made and changed alike.

        Raises:
            ValueError: If the state does not fit.
        """
        self.horde.restore(inner(state, "horde"))
        self.at, self._n_updates = int(state["own/at"]), int(state["own/n_updates"])
        return self._n_updates

    def restore_from(self, folder: str, at: int) -> int:
        """Resume from the snapshot at an entry, and return `n_updates`.

        Raises:
            ClusterError: If the snapshot is missing or damaged.
        """
        try:
            saved = snapshots.read(folder_of(folder, self.number) / f"{at:012d}")
        except (ValueError, OSError) as error:
            raise ClusterError(
                f"the snapshot of shard {self.number} cannot be read ({error}): `horde doctor RUN` puts it aside, and "
                "`horde resume RUN` then takes the snapshot before it"
            ) from None
        return self.restore(saved.state)

    # ---- questions to it --------------------------------------------------------------------------------------------

    def answer(self, what: str, *given: Any) -> Any:
        """Return an attribute of the Horde, or the result of a method called with the arguments given."""
        found = getattr(self.horde, what)
        return found(*given) if callable(found) else found

    def fits(self) -> tuple[int, int]:
        """Return the least number of channels of an observation, and the number of actions, 0 if no policy says."""
        states = self.horde._maker.states
        return states.n_channels, states.n_actions

    def echo(self, data: bytes) -> int:
        """Return the size of the data, to measure the way there and back."""
        return len(data)


def folder_of(folder: str | Path, number: int) -> Path:
    """Return the folder of a shard's snapshots."""
    return Path(folder) / f"shard-{number:04d}"


def packed(thing: Message | Report) -> bytes:
    """Return a message as bytes: Ray takes a quarter less time for these than for a few objects."""
    return pickle.dumps(tuple(thing), pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """Return the fields of what was packed."""
    return pickle.loads(data)


def resident_bytes() -> int:
    """Return the memory of this process; 0 if the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
