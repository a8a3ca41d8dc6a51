"""A shard: a plain `Horde` of some of the demons, and the messages that it receives and returns.

The stream consists of entries of a fixed size, 1.4 KB each for the paper's features. Several
entries are sent in one message; a change of the demons or of their weights is the last entry of its
message. This module does not use Ray.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, Mode
from horde_agent.kernels import _jit
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span_storage import ShardContext
from horde_agent.policies import Greedy
from horde_agent.processes import resident_bytes
from horde_agent.record import snapshots
from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats

BEGIN, LEARN, LEARN_LAST, CATCH_UP, CHANGE = range(5)
"""Verbs of entries: begin a stream; learn; learn from its last transition; learn from deferred steps; change demons."""

BATCH = 64
"""Maximum number of entries in a message."""

_MEASURED_EVERY = 256  # messages between two measurements of the memory


class ClusterError(ValueError):
    """The demons cannot be divided as requested. The message is one sentence, and no process is left running.

    The cause is in the request or in the machines: a command ends with exit code 2.
    """


class ShardLost(RuntimeError):
    """A shard's process or machine is gone, and with it what its demons learned since the last snapshot.

    Return to an earlier state: `horde resume RUN` does this for a run; otherwise make a new
    `ShardedHorde`, `restore` the latest `state()`, and send the stream since then again.
    """

    def __init__(self, number: int, n_demons: int, why: str) -> None:
        super().__init__(
            f"shard {number} with {n_demons:,} demons is lost ({why}): return to the latest saved state, by `horde "
            "resume RUN`, or by restore(state) of a new ShardedHorde followed by the stream since then"
        )
        self.number = number
        self.n_demons = n_demons
        self.why = why

    def __reduce__(self) -> tuple[type[ShardLost], tuple[int, int, str]]:
        """Return what pickle needs."""
        return type(self), (self.number, self.n_demons, self.why)


# ---- messages -------------------------------------------------------------------------------------------------------


def entry_dtype(n_channels: int, n_active: int, n_features: int) -> np.dtype[Any]:
    """Return the dtype of an entry: a verb of a `Learner` and its arguments, which are no row of a stream.

    Action, probability b, reward, observation in float64 and tiles, in the smallest sufficient
    integer type, are those of a transition; fields that the verb does not use are zero.
    """
    tile: type[np.unsignedinteger[Any]] = np.uint16
    if n_features > 1 << 16:
        tile = np.uint32
    return np.dtype(
        [
            ("verb", np.uint8),
            ("action", np.int32),
            ("probability", np.float64),
            ("reward", np.float64),
            ("observation", np.float64, (n_channels,)),
            ("tiles", tile, (n_active,)),
        ]
    )


class Report(NamedTuple):
    """Reply to a message."""

    n_updates: int  # number of demons that learned, summed over all steps so far
    n_bytes: int  # memory of the process
    n_diverged: int  # number of diverged demons
    predictions: Floats | None  # the requested ones, shape (n_requested,)
    refusal: str | None  # why an entry was refused


class Written(NamedTuple):
    """The latest snapshot that was written or failed."""

    n_entries: int  # number of entries before it
    error: str  # why it failed, or ""


def packed(message: tuple[Any, ...]) -> bytes:
    """Return a message as bytes, which Ray sends in three quarters of the time of several objects."""
    return pickle.dumps(tuple(message), pickle.HIGHEST_PROTOCOL)


# ---- the shard ------------------------------------------------------------------------------------------------------


class ShardSpec(NamedTuple):
    """Arguments of a shard: a pickled list of GVFs, properties of the whole Horde, and arguments of `Horde`."""

    questions: bytes
    n_features: int
    n_active: int
    config: LearnerConfig
    mode: Mode
    channels: tuple[str, ...]
    context: ShardContext


def pickled(questions: Sequence[GVF]) -> bytes:
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
            pickled([question])
        raise


def _without_values(question: GVF) -> GVF:
    policy = question.target_policy
    if isinstance(policy, Greedy):
        return replace(question, target_policy=replace(policy, values=None))
    return question


def versions() -> dict[str, str]:
    """Return the versions that must agree on all machines, because rounding or messages depend on them."""
    same = snapshots.identity()
    return {
        "python": platform.python_version(),
        "numba": same["numba"],
        "numpy": same["numpy"],
        "code": _jit._SOURCES,
    }


class Shard:
    """Some of the demons of a larger Horde; `n_entries` is the number of entries received."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.n_entries = 0
        self._n_messages = 0
        self._n_bytes = 0
        self.horde: Horde  # from `make` on
        self._writing: threading.Thread | None = None
        self._written = Written(0, "")

    def make(self, spec: ShardSpec) -> tuple[dict[str, str], str, int]:
        """Make the Horde, and return the versions of this process, the name of its machine and its id."""
        self.horde = Horde(
            cloudpickle.loads(spec.questions),
            n_features=spec.n_features,
            n_active=spec.n_active,
            config=spec.config,
            mode=spec.mode,
            channels=spec.channels,
            share=spec.context,
        )
        return versions(), socket.gethostname(), os.getpid()

    def receive(self, message: bytes) -> bytes:
        """Process the entries of a message, and return a packed `Report`.

        Args:
            message: Packed: the entries, one after another; number of channels of their
                observations; the shard's part of the change in the last entry, "add", ... and its
                argument; demons to return predictions of after it, by position in the shard,
                (n_requested,), or None.
        """
        entries, n_channels, change, requested = pickle.loads(message)
        horde = self.horde
        refusal = None
        latest = None
        for entry in np.frombuffer(
            entries, entry_dtype(n_channels, horde.n_active, horde.n_features)
        ):
            self.n_entries += 1
            try:
                latest = self._process(horde, entry, change)
            except ValueError as error:
                refusal = str(error)
        if requested is None or latest is None:
            predictions = None
        else:
            predictions = latest[requested]
        self._n_messages += 1
        if self._n_messages % _MEASURED_EVERY == 1:
            self._n_bytes = resident_bytes()
        return packed(
            Report(horde.n_updates, self._n_bytes, horde.n_diverged, predictions, refusal)
        )

    def _process(self, horde: Horde, entry: Any, change: tuple[str, Any] | None) -> Floats | None:
        """Process one entry, and return the latest predictions if there are any."""
        verb = entry["verb"]
        if verb == BEGIN:
            return horde.begin(entry["observation"], entry["tiles"])
        if verb in (LEARN, LEARN_LAST):
            action = int(entry["action"])
            probability = float(entry["probability"])
            is_last = bool(verb == LEARN_LAST)
            return horde.learn(
                action,
                probability,
                entry["observation"],
                entry["tiles"],
                terminated=is_last,
                reward=float(entry["reward"]),
            )
        if verb == CATCH_UP:
            horde.catch_up()
        elif change is not None:
            self._change(horde, *change)
        return None

    def _change(self, horde: Horde, what: str, argument: Any) -> None:
        if what == "add":
            horde.add(cloudpickle.loads(argument))
        elif what == "remove":
            horde.remove(argument)
        elif what == "reset":
            horde.reset_weights(argument)
        elif what == "offsets":
            horde.set_offsets(*argument)
        else:
            self._save(folder_of(argument, self.number))

    def _save(self, folder: Path) -> None:
        """Copy the state now, and write it to a folder in a background thread."""
        if self._writing is not None:
            self._writing.join()
        args = folder, self.n_entries, self.state()
        self._writing = threading.Thread(
            target=self._write, args=args, name="snapshot", daemon=True
        )
        self._writing.start()

    def _write(self, folder: Path, n_entries: int, state: State) -> None:
        why_failed = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            snapshots.write(folder, n_entries, state, {"shard": self.number})
        except OSError as error:
            why_failed = f"{folder}: {error.strerror}"
        self._written = Written(n_entries, why_failed)

    def written(self) -> Written:
        """Return the latest snapshot that was written or failed."""
        return self._written

    def state(self) -> State:
        """Return everything that later learning depends on."""
        return nested(horde=self.horde.state(), shard={"n_entries": np.array(self.n_entries)})

    def restore(self, source: State | str, n_entries: int) -> int:
        """Continue from a state, in a Horde of the same demons, and return `n_updates`.

        `source` is what `state` returned, or the folder with the snapshots of all shards after
        `n_entries` entries. Raise ClusterError if the snapshot is missing or damaged.
        """
        if isinstance(source, dict):
            state = source
        else:
            path = folder_of(source, self.number) / f"{n_entries:012d}"
            try:
                state = snapshots.read(path).state
            except (ValueError, OSError) as error:
                raise ClusterError(
                    f"the snapshot of shard {self.number} cannot be read ({error}): `horde doctor RUN` puts it aside, "
                    "and `horde resume RUN` then takes the snapshot before it"
                ) from None
        self.horde.restore(inner(state, "horde"))
        self.n_entries = int(state["shard/n_entries"])
        return self.horde.n_updates

    def read(self, name: str, *arguments: Any) -> Any:
        """Return an attribute of the Horde, or the result of a method."""
        value = getattr(self.horde, name)
        if callable(value):
            return value(*arguments)
        return value


def folder_of(folder: str | Path, number: int) -> Path:
    """Return the folder of a shard's snapshots."""
    return Path(folder) / f"shard-{number:04d}"
