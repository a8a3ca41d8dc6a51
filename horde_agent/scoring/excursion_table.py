"""The complete test excursions of a run: a table of fixed-size records, in memory or in files.

One record per excursion:

    step, policy, action       step of its beginning, index of the policy in the header, that policy's only action
    online                     mean online NMSRE after it

and of the policy's demons, in the order of its `demons`, NaN if a demon was not tested:

    prediction, return         the prediction at its beginning, and the terms that were measured after it
    remainder, share           what the demon predicts of the return beyond these terms, and their share of it
    persistence                what "the present reading lasts" predicts of the terms; NaN if unknown

When demons are added or removed, and after every `BLOCK` excursions, a further file is begun
("NAME-2.rec"); `stays` in its header is the former index of each demon, `first` the number of its
first excursion, from 0. Records of earlier files are read in the current layout: without the
removed demons, and NaN for the added ones. A month of the paper's questions takes 1.1 GB, so the
table is read in chunks.

The oldest files of a life that does not keep all are folded (`folding`): what scores need of them is
in a snapshot in the folder "NAME-past".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.record import kinds, snapshots
from horde_agent.record.segments import (
    CRC,
    RecordLost,
    Records,
    append,
    append_to,
    cut,
    encode_header,
    file_at,
    number_of,
    read_header,
    read_pieces,
    record_files,
    record_numbers,
    sealed,
    started_files,
)
from horde_agent.saving import State, attributes, put_back
from horde_agent.scoring.nmsre import Outcomes
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Floats, Integers

FORMAT = kinds.EXCURSIONS
VALUES = ("prediction", "return", "remainder", "share", "persistence")
"""Fields of a record with a number for each demon of its policy."""
REMOVED = -1
"""New position of a demon that was removed."""
BLOCK = 4096
"""Excursions of a file; whole blocks of as many are folded."""
CHUNK_BYTES = 1 << 22

_log = logging.getLogger(__name__)


def new_positions(old_index: Integers, n_before: int) -> Integers:
    """Return the new position of each of `n_before` demons, REMOVED if it was removed.

    `old_index` as in `DemonMapping`, (n_demons,).
    """
    positions = np.full(n_before, REMOVED)
    positions[old_index[old_index >= 0]] = np.flatnonzero(old_index >= 0)
    return positions


class Chunk(NamedTuple):
    """Some excursions in order.

    Attributes:
        numbers: Of each, from 0, shape (n,); damaged ones have a number, too.
        records: Of that shape.
    """

    numbers: Integers
    records: Records


class Folded(NamedTuple):
    """What scores need of the oldest excursions, whose files may be gone.

    Attributes:
        state: Of the folder's snapshot, by the demons and policies of that time.
        facts: Of the snapshot.
        old_index: For each demon now, its number then, -1 for a later one, shape (n_demons,).
        old_number: The same of the policies, shape (n_policies,).
    """

    state: State
    facts: dict[str, Any]
    old_index: Integers
    old_number: Integers


class _Part(NamedTuple):
    """A file of the table.

    Attributes:
        path: The file.
        first: Number of its first excursion.
        n: Number of its records.
        offset: Number of the first excursion less that in its header.
        policies: As in its records.
        n_demons: Of the Horde then.
        stays: Former index of each demon; empty in the first file.
    """

    path: Path
    first: int
    n: int
    offset: int
    policies: list[PolicyUnderTest]
    n_demons: int
    stays: Integers


class ExcursionTable:
    """Complete excursions of the tested policies of `n_demons` demons, appended one at a time and read in chunks."""

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self._set_policies(policies, n_demons)
        # Of one record each: all of them, or those not yet written to the file
        self._waiting: list[Records] = []
        self._path: Path | None = None
        self._n_parts = self._n_in_part = 0
        self._n_appended = 0
        self._lost: RecordLost | None = None
        self._known_headers: dict[Path, dict[str, Any]] = {}
        self._said_damaged: set[Path] = set()

    def _set_policies(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.policies = list(policies)
        self.n_demons = n_demons
        self._number = {policy.name: k for k, policy in enumerate(policies)}
        self._dtype = _record_dtype(self.policies)

    @classmethod
    def read(cls, path: Path, n_parts: int = 0) -> ExcursionTable:
        """Return the table of a run, in the layout of its last file, or up to file number `n_parts`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If a file contains no excursions.
        """
        header = read_header(_files(path, n_parts)[-1], FORMAT)
        table = cls([_policy(entry) for entry in header["policies"]], int(header["n_demons"]))
        table._path = path
        table._n_parts = n_parts
        return table

    # ---- writing ----------------------------------------------------------------------------------------------------

    def record_to(self, path: Path) -> None:
        """Append every further excursion to a new file, and to further ones when demons are added or removed.

        Raises:
            FileExistsError: If the file exists.
            RecordLost: If it cannot be written.
        """
        self._path = path
        self._n_parts = 0
        self._begin_part(None)

    def resume_in(self, path: Path) -> None:
        """Continue existing files, of which `path` is the first; `restore` sets the number of valid records."""
        self._path = path
        self._n_parts = max(self._n_parts, 1)
        self._known_headers.clear()

    def append(
        self,
        policy: str,
        step: int,
        online: float,
        demons: Integers,
        values: Mapping[str, Floats],
    ) -> None:
        """Append an excursion of a policy, by its name, that began at `step`; if the disk is full it waits in memory.

        `online` is the mean online NMSRE after it; `values` are those of the `demons` by the names
        in `VALUES`, each (n,).
        """
        if self._path is not None and self._n_in_part and self._n_appended % BLOCK == 0:
            self._begin_next_part()
        k = self._number[policy]
        record = self._empty(1)
        record["step"] = step
        record["policy"] = k
        record["action"] = self.policies[k].action
        record["online"] = online
        columns = np.searchsorted(self.policies[k].demons, demons)
        for name in VALUES:
            record[name][0, columns] = values[name]
        sealed(record)
        self._waiting.append(record)
        self._n_appended += 1
        if self._path is not None:
            self._n_in_part += 1
            self._write()

    def close(self) -> None:
        """Write waiting records; raise RecordLost if they cannot be written."""
        if self._path is not None:
            self._write()
            if self._lost is not None:
                raise self._lost

    def rearrange(self, old_index: Integers, policies: Sequence[PolicyUnderTest]) -> None:
        """Change the layout after demons were added or removed; `old_index`, (n_demons,), is as in `DemonMapping`.

        Raises:
            RecordLost: If records are still waiting for disk space; nothing has changed.
        """
        self.close()
        former = self.policies
        positions = new_positions(old_index, self.n_demons)
        self._set_policies(policies, len(old_index))
        number: Integers = np.zeros(1, dtype=np.int64)
        converted = (
            self._converted(number, record, former, positions).records for record in self._waiting
        )
        self._waiting = [record for record in converted if sealed(record)]
        if self._path is not None:
            self._begin_part(old_index)

    def _begin_next_part(self) -> None:
        """Begin a further file in the same layout, unless records wait for disk space or it cannot be written."""
        assert self._path is not None
        if self._waiting:
            return
        part = (self._n_parts, self._n_in_part)
        try:
            self._begin_part(np.arange(self.n_demons))
        except OSError as error:
            file_at(self._path, self._n_parts).unlink(missing_ok=True)
            (self._n_parts, self._n_in_part) = part
            _log.warning("no further file of excursions was begun: %s", error)

    def _begin_part(self, old_index: Integers | None) -> None:
        assert self._path is not None
        self._n_parts += 1
        self._n_in_part = 0
        header = _header(self.policies, self.n_demons, self._dtype, old_index)
        if old_index is not None:
            header["first"] = self._n_appended - len(self._waiting)
        path = file_at(self._path, self._n_parts)
        self._known_headers.pop(path, None)
        with path.open("xb", buffering=0) as file:
            append(file, encode_header(header), 1)

    def _write(self) -> None:
        assert self._path is not None
        path = file_at(self._path, self._n_parts)
        try:
            while self._waiting:
                append_to(path, self._waiting[0].tobytes(), self._dtype.itemsize)
                del self._waiting[0]
        except RecordLost as error:
            if self._lost is None:
                _log.warning(
                    "cannot write %s (%s): excursions wait in memory", path, error.strerror
                )
            self._lost = error
        else:
            self._lost = None

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return the numbers of excursions and of files, for the facts of a snapshot."""
        return {"n": self._n_appended, "n_parts": self._n_parts}

    def state(self) -> State:
        """Return the number of written records, and those that are in no file, as bytes of the present format.

        A reader of snapshots of an earlier format reads them as excursions of that time.
        """
        waiting = np.frombuffer(
            b"".join(record.tobytes() for record in self._waiting), dtype=np.uint8
        )
        return attributes(self, "_n_parts") | {
            "n_in_part": np.array(self._n_in_part),
            "waiting": waiting,
        }

    def restore(self, state: State) -> None:
        """Continue after the records of `state`, one of `ReturnErrors`; later ones are removed from the files.

        Damaged and missing records are logged, and left out of the scores.

        Raises:
            ValueError: If a file contains no excursions.
        """
        put_back(self, state, "_n_parts")
        self._n_appended = int(state["n_excursions"])
        n_in_part = int(state["n_in_part"])
        records = np.frombuffer(state["waiting"].tobytes(), dtype=self._dtype)
        self._waiting = [record.copy() for record in records.reshape(-1, 1)]
        if self._path is None:
            return
        path = file_at(self._path, self._n_parts)
        soundness = []
        for piece in read_pieces(path, FORMAT):  # months of them do not fit in memory
            soundness.append(piece.is_sound)
        is_sound = np.concatenate(soundness)
        n_written = n_in_part - len(records)
        n_lost = n_written - int(np.count_nonzero(is_sound[:n_written]))
        if n_lost:
            _log.warning(
                "%s lacks %d of the %d excursions that were written, or they are damaged: they are left out",
                path.name,
                n_lost,
                n_written,
            )
        n_kept = min(n_written, len(is_sound))
        for later in record_files(self._path):
            if number_of(later, self._path) > self._n_parts:
                later.unlink()
        cut(path, int(piece.header["offset"]) + n_kept * piece.itemsize)
        self._n_in_part = n_kept + len(records)
        if piece.is_old:
            self._begin_part(np.arange(self.n_demons))
            self._n_in_part = len(records)

    # ---- reading ----------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of excursions, with the folded and the damaged ones."""
        n_written = 0
        if self._path is not None:
            last = self._parts()[-1]
            n_written = last.first + last.n
        return n_written + len(self._waiting)

    def __iter__(self) -> Iterator[Records]:
        """Yield the records that are there in chunks, as `chunks` does."""
        first = 0
        if self._path is not None:
            first = self._parts()[0].first
        for chunk in self.chunks(first):
            yield chunk.records

    def chunks(self, first: int, stop: int | None = None, size: int = 0) -> Iterator[Chunk]:
        """Yield the sound records of the excursions from number `first` on, before `stop`, in chunks.

        A chunk has those of `size` numbers, by default as many as take some megabytes, and the last
        one fewer: sums do not depend on the files.
        """
        if not size:
            n_tested = self._dtype["return"].shape[0]
            size = max(CHUNK_BYTES // (36 * n_tested + 16), 1)
        end = first + size
        numbers: Integers = np.zeros(0, dtype=np.int64)
        records = self._empty(0)
        for piece in self._pieces(first, stop or self.n, size):
            numbers = np.concatenate([numbers, piece.numbers])
            records = np.concatenate([records, piece.records])
            while len(numbers) and numbers[-1] + 1 >= end:
                n = int(np.searchsorted(numbers, end))
                if n:
                    yield Chunk(numbers[:n], records[:n])
                numbers = numbers[n:]
                records = records[n:]
                end += size
        if len(numbers):
            yield Chunk(numbers, records)

    def by_policy(self, rows: Records) -> Iterator[tuple[int, Outcomes]]:
        """Yield the number and the excursions of each policy that has any among records."""
        for k in np.unique(rows["policy"]).tolist():
            excursions = rows[rows["policy"] == k]
            n = len(self.policies[k].demons)
            yield (
                k,
                Outcomes(
                    policy=self.policies[k],
                    step=excursions["step"],
                    predictions=excursions["prediction"][:, :n],
                    returns=excursions["return"][:, :n],
                    remainder=excursions["remainder"][:, :n],
                    share=excursions["share"][:, :n].astype(np.float64),
                    persistence=excursions["persistence"][:, :n],
                ),
            )

    def outcomes(self) -> list[Outcomes]:
        """Return the excursions of each policy that has any, all at once."""
        rows = np.concatenate([self._empty(0), *self])
        return [outcomes for _, outcomes in self.by_policy(rows)]

    @property
    def folded(self) -> Folded | None:
        """What is left of the oldest excursions, whose files may be gone; None if none were folded."""
        if self._path is None:
            return None
        snapshot = newest_folded(self._path)
        if snapshot is None:
            return None
        n_parts = int(snapshot.facts["n_parts"])
        later = [part for part in self._parts() if number_of(part.path, self._path) > n_parts]
        old_index: Integers = np.arange(self.n_demons)
        for part in reversed(later):
            old_index = np.where(old_index == REMOVED, REMOVED, np.append(part.stays, 0)[old_index])
        number = {entry["name"]: k for k, entry in enumerate(snapshot.facts["policies"])}
        old_number = [number.get(policy.name, REMOVED) for policy in self.policies]
        return Folded(
            state=snapshot.state,
            facts=snapshot.facts,
            old_index=old_index,
            old_number=np.array(old_number, dtype=np.int64),
        )

    def _parts(self) -> list[_Part]:
        """Return the files in order."""
        assert self._path is not None
        parts: list[_Part] = []
        n = 0
        for path in _files(self._path, self._n_parts):
            header = self._known_headers.get(path)
            if header is None:
                header = read_header(path, FORMAT)
                header["policies"] = [_policy(entry) for entry in header["policies"]]
                header["stays"] = np.array(header.get("stays", []), dtype=np.int64)
                self._known_headers[path] = header
            numbers = record_numbers(path, FORMAT)
            first = int(header.get("first", n))
            n = first + len(numbers)
            parts.append(
                _Part(
                    path=path,
                    first=first,
                    n=len(numbers),
                    offset=first - numbers.start,
                    policies=header["policies"],
                    n_demons=int(header["n_demons"]),
                    stays=header["stays"],
                )
            )
        return parts

    def _pieces(self, first: int, stop: int, size: int) -> Iterator[Chunk]:
        """Yield the sound records of the excursions from number `first` on, before `stop`, in the present layout."""
        n_written = 0
        if self._path is not None:
            parts = self._parts()
            n_written = parts[-1].first + parts[-1].n
            for part, positions in zip(parts, _positions(parts), strict=True):
                if part.first < stop and first < part.first + part.n:
                    yield from self._read(part, positions, first, stop)
        waiting = self._waiting[max(first - n_written, 0) : max(stop - n_written, 0)]
        first = max(first, n_written)
        for begin in range(0, len(waiting), size):
            records = np.concatenate(waiting[begin : begin + size])
            yield Chunk(first + begin + np.arange(len(records)), records)

    def _read(self, part: _Part, positions: Integers, first: int, stop: int) -> Iterator[Chunk]:
        """Yield the sound records of a file; `positions` are those of its demons now."""
        n_damaged = 0
        for piece in read_pieces(part.path, FORMAT, since=first - part.offset):
            numbers = part.offset + piece.first + np.arange(len(piece.records))
            is_in = piece.is_sound & (numbers < stop)
            n_damaged += int(np.count_nonzero(~piece.is_sound)) + bool(piece.n_torn)
            yield self._converted(numbers[is_in], piece.records[is_in], part.policies, positions)
            if len(numbers) and numbers[-1] + 1 >= stop:
                break
        if n_damaged and part.path not in self._said_damaged:
            self._said_damaged.add(part.path)
            _log.warning(
                "%s is damaged: %d excursions do not have the CRC-32 that was written with them, and are left out",
                part.path.name,
                n_damaged,
            )

    def _converted(
        self,
        numbers: Integers,
        rows: Records,
        former: Sequence[PolicyUnderTest],
        positions: Integers,
    ) -> Chunk:
        """Return records of `former` policies in the layout of this table; `positions` are those of the demons now."""
        new_number = np.array(
            [self._number.get(policy.name, REMOVED) for policy in former], dtype=np.int64
        )
        is_policy_there = new_number[rows["policy"]] != REMOVED
        numbers = numbers[is_policy_there]
        rows = rows[is_policy_there]
        converted = self._empty(len(rows))
        for name in ("step", "action", "online"):
            converted[name] = rows[name]
        converted["policy"] = new_number[rows["policy"]]
        for k in np.unique(rows["policy"]).tolist():
            demons = positions[former[k].demons]
            row_indices = np.flatnonzero(rows["policy"] == k)
            is_tested = np.isin(demons, self.policies[new_number[k]].demons)
            columns = np.searchsorted(self.policies[new_number[k]].demons, demons[is_tested])
            for name in VALUES:
                converted[name][row_indices[:, None], columns] = rows[name][row_indices][
                    :, np.flatnonzero(is_tested)
                ]
        return Chunk(numbers, converted)

    def _empty(self, n: int) -> Records:
        rows = np.zeros(n, dtype=self._dtype)
        for name in ("online", *VALUES):
            rows[name] = np.nan
        return rows


def _record_dtype(policies: Sequence[PolicyUnderTest]) -> np.dtype[Any]:
    n_tested = max((len(policy.demons) for policy in policies), default=0)
    return np.dtype(
        [
            ("step", "<i8"),
            ("policy", "<i4"),
            ("action", "<i4"),
            ("online", "<f8"),
            ("prediction", "<f8", (n_tested,)),
            ("return", "<f8", (n_tested,)),
            ("remainder", "<f8", (n_tested,)),
            ("share", "<f4", (n_tested,)),
            ("persistence", "<f8", (n_tested,)),
            (CRC, "<u4"),
        ]
    )


def _files(path: Path, n_parts: int) -> list[Path]:
    """Return the files of a table up to number `n_parts`, or all; the first one's path if there are none."""
    files = [
        file for file in started_files(path) if not n_parts or number_of(file, path) <= n_parts
    ]
    return files or [path]


def _positions(parts: Sequence[_Part]) -> list[Integers]:
    """Return for each file the position of its demons in the layout of the last one."""
    positions: list[Integers] = [np.arange(parts[-1].n_demons)]
    for later, part in zip(parts[:0:-1], parts[-2::-1], strict=True):
        moved = new_positions(later.stays, part.n_demons)
        present = np.append(positions[0], REMOVED)[moved]
        positions.insert(0, np.where(moved == REMOVED, REMOVED, present))
    return positions


def expected_files(path: Path, n_parts: int) -> list[Path]:
    """Return the files of a table up to a number, whether they are there or not, without those that are folded."""
    first = 1
    folded = newest_folded(path)
    if folded is not None:
        first = int(folded.facts["n_parts"]) + 1
    return [file_at(path, number) for number in range(first, n_parts + 1)]


def folded_place(path: Path) -> Path:
    """Return the folder with the snapshots of what was folded of a table."""
    return path.with_name(f"{path.stem}-past")


def newest_folded(path: Path) -> snapshots.Snapshot | None:
    """Return the newest intact snapshot of what was folded of a table; None without one."""
    for place in snapshots.found(folded_place(path)):
        try:
            return snapshots.read(place)
        except snapshots.SnapshotDamaged as error:
            _log.warning("%s: scores lack the excursions in it", error)
    return None


def _header(
    policies: Sequence[PolicyUnderTest],
    n_demons: int,
    dtype: np.dtype[Any],
    old_index: Integers | None,
) -> dict[str, Any]:
    entries = [
        {
            "name": p.name,
            "action": p.action,
            "demons": p.demons.tolist(),
            "channel": p.channel.tolist(),
            "gamma": [None if np.isnan(gamma) else gamma for gamma in p.gamma.tolist()],
        }
        for p in policies
    ]
    header = {
        **FORMAT.stamp(),
        "dtype": dtype.descr,
        "n_demons": n_demons,
    }
    return {**header, "policies": entries} | (
        {} if old_index is None else {"stays": old_index.tolist()}
    )


def _policy(entry: dict[str, Any]) -> PolicyUnderTest:
    gamma = np.array([np.nan if g is None else g for g in entry["gamma"]], dtype=np.float64)
    demons, channel = (np.array(entry[key], dtype=np.int64) for key in ("demons", "channel"))
    return PolicyUnderTest(entry["action"], demons, channel, gamma, entry["name"])
