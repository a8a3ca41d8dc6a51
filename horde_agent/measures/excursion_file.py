"""The test excursions of a life on the disk: what a record of one holds, and all of them again, a batch at a time.

A file of records (`horde_agent.record.segments`), a record per complete excursion:

    step, policy, action       when it began, which of the header's policies was followed, its only action
    online                     the mean online NMSRE after it; older files do not have it
    prediction, return         of the policy's demons, in the order of its `demons`; NaN where one was not tested

Where demons came or went a further file is begun beside it, "NAME-2.rec" and so on, whose `stays` says which demon of
the file before each one was. A month of the paper's questions fills half a gigabyte: it is gone through, not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.measures.returns import PolicyUnderTest, name_of_action
from horde_agent.record.segments import CRC, FORMAT_VERSION, part, read_header, read_pieces
from horde_agent.types import Bools, Floats, Integers

FORMAT = "horde-excursions"
GONE = -1
"""In the place of a demon that is no more."""
ONLINE = "online"
BATCH_BYTES = 1 << 22


class Done(NamedTuple):
    """A complete excursion.

    Attributes:
        policy: Name of the policy that was followed.
        step: Step at which it began.
        online: Mean online NMSRE after it; NaN while nothing was tested twice, or where it is not known.
        demons: Those tested, positions in the Horde, shape (n,).
        predictions, returns: Theirs, shape (n,).
    """

    policy: str
    step: int
    online: float
    demons: Integers
    predictions: Floats
    returns: Floats

    def rearranged(self, place: Integers) -> Done:
        """Return what is left of it where demons came or went.

        Args:
            place: Where each former demon is now, or GONE, shape (n_before,).
        """
        stays = place[self.demons] != GONE
        return self._replace(
            demons=place[self.demons[stays]], predictions=self.predictions[stays], returns=self.returns[stays]
        )


class Batch(NamedTuple):
    """Some excursions in their order.

    Attributes:
        step: At which each began, shape (n_excursions,).
        policy: Which of the policies each followed, shape (n_excursions,).
        online: Mean online NMSRE after each, shape (n_excursions,); NaN as in `Done`.
        predictions, returns: Of that policy's n demons in the first n columns, shape (n_excursions, most of n); NaN
            where one was not tested.
    """

    step: Integers
    policy: Integers
    online: Floats
    predictions: Floats
    returns: Floats

    def of(self, k: int, n: int) -> tuple[Bools, Floats, Floats]:
        """Return which excursions followed policy `k`, and predictions and returns of its `n` demons in them."""
        mine = np.asarray(self.policy == k)
        return mine, self.predictions[mine, :n], self.returns[mine, :n]


def places(stays: Integers, n_before: int) -> Integers:
    """Return where each of `n_before` former demons is now, GONE where it is no more, shape (n_before,).

    Args:
        stays: Which former demon each one now was, negative where it is new, shape (n_demons,).
        n_before: Number of former demons.
    """
    place = np.full(n_before, GONE)
    place[stays[stays >= 0]] = np.flatnonzero(stays >= 0)
    return place


def rows_at_once(policies: Sequence[PolicyUnderTest]) -> int:
    """Return how many excursions make a batch."""
    return max(BATCH_BYTES // (16 * most_tested(policies) + 16), 1)


def most_tested(policies: Iterable[PolicyUnderTest]) -> int:
    """Return the largest number of demons that a policy tests."""
    return max((len(policy.demons) for policy in policies), default=0)


def batch_of(done: Sequence[Done], policies: Sequence[PolicyUnderTest]) -> Batch:
    """Return excursions that are held as a batch; those of policies that are no more are left out."""
    number = {policy.name: k for k, policy in enumerate(policies)}
    done = [test for test in done if test.policy in number]
    batch = _empty(len(done), policies)
    for i, test in enumerate(done):
        k = batch.policy[i] = number[test.policy]
        columns = np.searchsorted(policies[k].demons, test.demons)
        batch.step[i], batch.online[i] = test.step, test.online
        batch.predictions[i, columns], batch.returns[i, columns] = test.predictions, test.returns
    return batch


def _empty(n: int, policies: Sequence[PolicyUnderTest]) -> Batch:
    predictions, returns = np.full((2, n, most_tested(policies)), np.nan)
    return Batch(np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, np.nan), predictions, returns)


# ---- the file --------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """The files of a life's excursions.

    Attributes:
        paths: In their order.
        policies: Of each.
        places: Where each demon of a file is in the last one, or GONE.
        n_demons: Of the last one.
        n_in_last: How many sound records of the last one count; all of them when None.
    """

    paths: list[Path]
    policies: list[list[PolicyUnderTest]]
    places: list[Integers]
    n_demons: int
    n_in_last: int | None = None


def read_parts(path: Path, most: int | None = None) -> Parts:
    """Return the files of a life's excursions, from their lines alone.

    Args:
        path: The first file.
        most: Files that count; all that are there when None.

    Raises:
        FileNotFoundError: If there is not even the first.
        ValueError: If one holds no excursions.
    """
    paths, headers = [path], [read_header(path, FORMAT)]
    while len(paths) != most and (further := part(path, len(paths) + 1)).exists():
        paths.append(further)
        headers.append(read_header(further, FORMAT))
    n_demons = [int(header["n_demons"]) for header in headers]
    where = [np.arange(n_demons[-1])]
    for header, n_before in zip(headers[:0:-1], n_demons[-2::-1], strict=True):
        moved = places(np.array(header["stays"], dtype=np.int64), n_before)
        where.insert(0, np.where(moved == GONE, GONE, np.append(where[0], GONE)[moved]))
    policies = [[_policy(table) for table in header["policies"]] for header in headers]
    return Parts(paths, policies, where, n_demons[-1])


def batches(files: Parts, policies: Sequence[PolicyUnderTest]) -> Iterator[Batch]:
    """Yield all sound excursions of these policies, as many at a time as a piece of a file holds.

    Args:
        files: See `read_parts`.
        policies: The last file's, or the same policies as they are in the Horde.
    """
    number = {policy.name: k for k, policy in enumerate(policies)}
    for path, theirs, place in zip(files.paths, files.policies, files.places, strict=True):
        kept = [number.get(policy.name, GONE) for policy in theirs]
        columns = [
            _columns(place[policy.demons], policies[k]) if k != GONE else np.zeros(0, np.int64)
            for policy, k in zip(theirs, kept, strict=True)
        ]
        left = files.n_in_last if path == files.paths[-1] else None
        for piece in read_pieces(path, FORMAT):
            rows = piece.records[piece.is_sound][:left]
            left = None if left is None else left - len(rows)
            which = _which(rows, theirs)
            rows, which = rows[np.array(kept, dtype=np.int64)[which] != GONE], which[np.array(kept)[which] != GONE]
            batch = _empty(len(rows), policies)
            batch.step[:], batch.policy[:] = rows["step"], np.array(kept, dtype=np.int64)[which]
            if ONLINE in (rows.dtype.names or ()):
                batch.online[:] = rows[ONLINE]
            for k in np.unique(which).tolist():
                mine, to = np.flatnonzero(which == k), columns[k]
                stays = np.flatnonzero(to != GONE)
                actual = rows["return"][mine][:, stays]
                made = np.where(np.isnan(actual), np.nan, rows["prediction"][mine][:, stays])
                batch.predictions[mine[:, None], to[stays]], batch.returns[mine[:, None], to[stays]] = made, actual
            yield batch


def _columns(demons: Integers, policy: PolicyUnderTest) -> Integers:
    """Return where demons stand among a policy's, GONE where one is not among them, shape (n,)."""
    columns = np.searchsorted(policy.demons, demons)
    is_there = columns < len(policy.demons)
    is_there[is_there] = policy.demons[columns[is_there]] == demons[is_there]
    return np.where(is_there, columns, GONE)


def _which(rows: NDArray[Any], policies: Sequence[PolicyUnderTest]) -> Integers:
    """Return which policy each record is of; one without its number is told by its action."""
    if "policy" in (rows.dtype.names or ()):
        return rows["policy"].astype(np.int64)
    by_action = {policy.action: k for k, policy in reversed(list(enumerate(policies)))}
    return np.array([by_action[action] for action in rows["action"].tolist()], dtype=np.int64)


def evened(some: Iterable[Batch], n: int) -> Iterator[Batch]:
    """Yield the same excursions in batches of `n`, the last one shorter: how sums are rounded depends on no file."""
    waiting: list[Batch] = []
    for batch in some:
        waiting.append(batch)
        while sum(len(one.step) for one in waiting) >= n:
            whole = _joined(waiting)
            yield Batch._make(column[:n] for column in whole)
            waiting = [Batch._make(column[n:] for column in whole)]
    if any(len(one.step) for one in waiting):
        yield _joined(waiting)


def _joined(some: Sequence[Batch]) -> Batch:
    """Return batches one after the other as one."""
    return Batch._make(np.concatenate(columns) for columns in zip(*some, strict=True))


def _policy(table: dict[str, Any]) -> PolicyUnderTest:
    """Return a policy of a header."""
    gamma = np.array([np.nan if g is None else g for g in table["gamma"]], dtype=np.float64)
    demons, channel = (np.array(table[key], dtype=np.int64) for key in ("demons", "channel"))
    return PolicyUnderTest(table["action"], demons, channel, gamma, table.get("name", name_of_action(table["action"])))


def done_of(row: Any, policies: Sequence[PolicyUnderTest]) -> Done:
    """Return one record as an excursion."""
    policy = policies[int(row["policy"])]
    prediction, actual = (row[key][: len(policy.demons)].astype(np.float64) for key in ("prediction", "return"))
    known = ~np.isnan(actual)
    online = float(row[ONLINE]) if ONLINE in row.dtype.names else float("nan")
    return Done(policy.name, int(row["step"]), online, policy.demons[known], prediction[known], actual[known])


def record_of(done: Done, policies: Sequence[PolicyUnderTest], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an excursion as a record, shape (1,): the columns are those of its policy's demons."""
    number = [policy.name for policy in policies].index(done.policy)
    columns = np.searchsorted(policies[number].demons, done.demons)
    record = np.zeros(1, dtype=dtype)
    record["step"], record["policy"], record["action"] = done.step, number, policies[number].action
    record[ONLINE] = done.online
    record["prediction"], record["return"] = np.nan, np.nan
    record["prediction"][0, columns], record["return"][0, columns] = done.predictions, done.returns
    return record


def record_dtype(n_tested: int) -> np.dtype[Any]:
    """Return the numpy type of a record with room for `n_tested` demons."""
    return np.dtype(
        [
            ("step", "<i8"),
            ("policy", "<i4"),
            ("action", "<i4"),
            (ONLINE, "<f8"),
            ("prediction", "<f8", (n_tested,)),
            ("return", "<f8", (n_tested,)),
            (CRC, "<u4"),
        ]
    )


def header_of(
    policies: Sequence[PolicyUnderTest], n_demons: int, dtype: np.dtype[Any], stays: Integers | None
) -> dict[str, Any]:
    """Return the line of a file; `stays` says which demon of the file before each one was, shape (n_demons,)."""
    tables = [
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
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "dtype": dtype.descr,
        "n_demons": n_demons,
        "policies": tables,
    }
    return header if stays is None else {**header, "stays": stays.tolist()}
