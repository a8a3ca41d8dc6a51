"""The complete test excursions of a run: a table of fixed-size records, in memory or in files.

One record per excursion:

    step, policy, action       step of its beginning, index of the policy in the header, that policy's only action
    online                     mean online NMSRE after it

and of the policy's demons, in the order of its `demons`, NaN if a demon was not tested:

    prediction, return         the prediction at its beginning, and the terms that were measured after it
    remainder, share           what the demon predicts of the return beyond these terms, and their share of it
    persistence                what "the present reading lasts" predicts of the terms; NaN if unknown

When demons are added or removed, a further file is begun ("NAME-2.rec"); `stays` in its header is
the former index of each demon. Records of earlier files are read in the current layout: without the
removed demons, and NaN for the added ones. A month of the paper's questions takes 1.1 GB, so the
table is read in chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.record import kinds
from horde_agent.record.segments import (
    CRC,
    RecordLost,
    Records,
    append,
    append_to,
    cut,
    encode_header,
    file_at,
    read_header,
    read_pieces,
    record_files,
    sealed,
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
CHUNK_BYTES = 1 << 22

_log = logging.getLogger(__name__)


def new_positions(old_index: Integers, n_before: int) -> Integers:
    """Return the new position of each of `n_before` demons, REMOVED if it was removed.

    `old_index` as in `DemonMapping`, (n_demons,).
    """
    positions = np.full(n_before, REMOVED)
    positions[old_index[old_index >= 0]] = np.flatnonzero(old_index >= 0)
    return positions


class ExcursionTable:
    """Complete excursions of the tested policies of `n_demons` demons, appended one at a time and read in chunks."""

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self._set_policies(policies, n_demons)
        # Of one record each: all of them, or those not yet written to the file
        self._waiting: list[Records] = []
        self._path: Path | None = None
        self._n_parts = self._n_in_part = 0
        self._lost: RecordLost | None = None

    def _set_policies(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.policies = list(policies)
        self.n_demons = n_demons
        self._number = {policy.name: k for k, policy in enumerate(policies)}
        self._dtype = _record_dtype(self.policies)

    @classmethod
    def read(cls, path: Path) -> ExcursionTable:
        """Return the table of a run, in the layout of its last file.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If a file contains no excursions.
        """
        header = _headers(path)[-1]
        table = cls([_policy(entry) for entry in header["policies"]], int(header["n_demons"]))
        table._path = path
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
        converted = (self._converted(record, former, positions) for record in self._waiting)
        self._waiting = [record for record in converted if sealed(record)]
        if self._path is not None:
            self._begin_part(old_index)

    def _begin_part(self, old_index: Integers | None) -> None:
        assert self._path is not None
        self._n_parts += 1
        self._n_in_part = 0
        header = _header(self.policies, self.n_demons, self._dtype, old_index)
        with file_at(self._path, self._n_parts).open("xb", buffering=0) as file:
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
        """Continue after the records of `state`; later ones are removed from the files.

        Damaged and missing records are logged, and left out of the scores.

        Raises:
            ValueError: If a file contains no excursions.
        """
        put_back(self, state, "_n_parts")
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
        for later in record_files(self._path)[self._n_parts :]:
            later.unlink()
        cut(path, int(piece.header["offset"]) + n_kept * piece.itemsize)
        self._n_in_part = n_kept + len(records)
        if piece.is_old:
            self._begin_part(np.arange(self.n_demons))
            self._n_in_part = len(records)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Records]:
        """Yield the records in chunks of the same number, the last one shorter: sums do not depend on the files."""
        n_tested = self._dtype["return"].shape[0]
        n = max(CHUNK_BYTES // (36 * n_tested + 16), 1)
        rows = self._empty(0)
        for more in self._pieces():
            rows = np.concatenate([rows, more])
            while len(rows) >= n:
                yield rows[:n]
                rows = rows[n:]
        if len(rows):
            yield rows

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

    def _pieces(self) -> Iterator[Records]:
        if self._path is not None:
            yield from self._read(self._path)
        yield from self._waiting

    def _read(self, path: Path) -> Iterator[Records]:
        """Yield the sound records of all files."""
        headers = _headers(path)
        positions = [np.arange(int(headers[-1]["n_demons"]))]
        for later, header in zip(headers[:0:-1], headers[-2::-1], strict=True):
            moved = new_positions(np.array(later["stays"], dtype=np.int64), int(header["n_demons"]))
            positions.insert(
                0, np.where(moved == REMOVED, REMOVED, np.append(positions[0], REMOVED)[moved])
            )
        for number, (header, now) in enumerate(zip(headers, positions, strict=True), 1):
            policies = [_policy(entry) for entry in header["policies"]]
            n_damaged = 0
            for piece in read_pieces(file_at(path, number), FORMAT):
                n_damaged += int(np.count_nonzero(~piece.is_sound)) + bool(piece.n_torn)
                yield self._converted(piece.records[piece.is_sound], policies, now)
            if n_damaged:
                _log.warning(
                    "%s is damaged: %d excursions do not have the CRC-32 that was written with them, and are left out",
                    file_at(path, number).name,
                    n_damaged,
                )

    def _converted(
        self, rows: Records, former: Sequence[PolicyUnderTest], positions: Integers
    ) -> Records:
        """Return records of `former` policies in the layout of this table; `positions` are those of the demons now."""
        new_number = np.array(
            [self._number.get(policy.name, REMOVED) for policy in former], dtype=np.int64
        )
        rows = rows[new_number[rows["policy"]] != REMOVED]
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
        return converted

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


def _headers(path: Path) -> list[dict[str, Any]]:
    return [
        read_header(path, FORMAT),
        *(read_header(further, FORMAT) for further in record_files(path)[1:]),
    ]


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
