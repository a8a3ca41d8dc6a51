"""The scores of a life that goes on: each complete test excursion is taken in, recorded, and let go of.

Online the NMSRE is known at any time, with the variance of the returns so far; in two passes, for reports, the
excursions are read back from their file (`passes`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from horde_agent.measures.excursion_file import (
    FORMAT,
    ONLINE,
    Batch,
    Done,
    Parts,
    batch_of,
    batches,
    done_of,
    header_of,
    most_tested,
    places,
    read_parts,
    record_dtype,
    record_of,
)
from horde_agent.measures.nmsre import TAU, normalise
from horde_agent.measures.passes import PastExcursions, courses, final_nmsre
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion
from horde_agent.record.segments import (
    RecordLost,
    append,
    append_to,
    cut,
    encode_header,
    part,
    parts,
    read_pieces,
    sealed,
)
from horde_agent.saving import State, attributes, inner, nested, put_back, text, untext
from horde_agent.types import Floats, Integers

_STATE = ("n_excursions", "n_discarded", "n_tests", "latest_mean", "_mean", "_m2", "_trace", "_n_parts")

_log = logging.getLogger(__name__)


class ReturnErrors:
    """Collects excursions; knows the NMSRE online, for progress, and in two passes, for reports.

    Where they are recorded to a file, none is kept in memory: for reports they are read back.

    Args:
        policies: The tested policies.
        n_demons: Number of demons of the Horde.

    Attributes:
        n_excursions: Complete tests: excursions, and stretches of the behaviour itself.
        n_discarded: Excursions that a gap cut short.
        n_tests: Complete tests per demon, shape (n_demons,).
        latest_mean: Mean online NMSRE after the last excursion; nan while nothing was tested twice.
    """

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.policies = list(policies)
        self.n_demons = n_demons
        self.n_excursions = self.n_discarded = 0
        self.latest_mean = float("nan")
        self.n_tests = np.zeros(n_demons, dtype=np.int64)
        self._mean, self._m2, self._trace = (np.zeros(n_demons) for _ in range(3))
        self._done: list[Done] = []  # all of them, or those that are in no file yet
        self._path: Path | None = None
        self._beside: Path | None = None  # where those that come are recorded, and the file before stays as it is
        self._before: Parts | None = None
        self._n_parts = self._n_in_part = 0
        self._unwritten: list[bytes] = []  # records that wait for room on the disk
        self._lost: RecordLost | None = None

    def record_to(self, path: Path) -> None:
        """Append every further complete excursion to a new file of records (read by `read_excursions`).

        Where demons come or go a further file is begun beside it, "NAME-2.rec" and so on.

        Raises:
            FileExistsError: If there is such a file already.
            RecordLost: If it cannot be written; so does `close`, where excursions still wait for room.
        """
        self._path, self._n_parts = path, 0
        self._begin_part(None)

    def go_on_in(self, path: Path, beside: Path | None = None) -> None:
        """Go on with a file of records that is there; `restore` says up to where it counts.

        Args:
            path: The file.
            beside: A new file for those that come; that which is there then stays as it is, another may live in it.
        """
        self._path, self._beside, self._n_parts = path, beside, max(self._n_parts, 1)

    def state(self) -> State:
        """Return the scores so far; the excursions themselves only where they are in no file."""
        own = attributes(self, *_STATE)
        if self._path is not None:
            waiting = np.frombuffer(b"".join(self._unwritten), dtype=np.uint8)
            return own | {"n_in_part": np.array(self._n_in_part), "waiting": waiting}
        done = {
            "policy": text([test.policy for test in self._done]),
            "step": np.array([test.step for test in self._done], dtype=np.int64),
            "online": np.array([test.online for test in self._done], dtype=np.float64),
            "n": np.array([len(test.demons) for test in self._done], dtype=np.int64),
        }
        for name in ("demons", "predictions", "returns"):
            empty = np.zeros(0, dtype=np.int64 if name == "demons" else np.float64)
            done[name] = np.concatenate([empty, *(getattr(test, name) for test in self._done)])
        return nested(own=own, done=done)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned; a file that holds later excursions is cut off.

        Raises:
            ValueError: If that file holds fewer, or damaged ones.
        """
        own = state if self._path is not None else inner(state, "own")
        put_back(self, own, *_STATE)
        if self._path is not None:
            self._restore_file(int(state["n_in_part"]), state["waiting"].tobytes())
            return
        done = inner(state, "done")
        ends = np.cumsum(done["n"])[:-1]
        names = ("demons", "predictions", "returns")
        columns = ([part.copy() for part in np.split(done[name], ends)] for name in names)
        names, steps, means = untext(done["policy"]), done["step"].tolist(), done["online"].tolist()
        self._done = [Done(*test) for test in zip(names, steps, means, *columns, strict=False)] if steps else []

    def _restore_file(self, n_in_part: int, waiting: bytes) -> None:
        """Go on after the excursions that are known, the later ones cut off, or beside; those that waited wait on."""
        assert self._path is not None
        path, are_sound = part(self._path, self._n_parts), []
        for piece in read_pieces(path, FORMAT):
            are_sound.append(piece.is_sound)
        dtype, is_sound = piece.records.dtype, np.concatenate(are_sound)
        n_written = n_in_part - len(waiting) // dtype.itemsize
        if len(is_sound) < n_written or not is_sound[:n_written].all():
            raise ValueError(f"{path} holds {is_sound.sum()} sound excursions, though {n_written} were written")
        if self._beside is not None:
            self._before = read_parts(self._path, self._n_parts)._replace(n_in_last=n_written)
            self.record_to(self._beside)
        else:
            for later in parts(self._path)[self._n_parts :]:
                later.unlink()
            cut(path, int(piece.header["offset"]) + n_written * dtype.itemsize)
            self._dtype, self._n_in_part = dtype, n_written
            known = [policy["name"] for policy in piece.header["policies"] if "name" in policy]
            if ONLINE not in (dtype.names or ()) or known != [policy.name for policy in self.policies]:
                self._begin_part(np.arange(self.n_demons))
        self._done, self._unwritten = [], []
        for row in np.frombuffer(waiting, dtype=dtype):
            self._keep(done_of(row, self.policies))

    def _begin_part(self, stays: Integers | None) -> None:
        assert self._path is not None
        self._n_parts += 1
        self._n_in_part = 0
        self._dtype = record_dtype(most_tested(self.policies))
        with part(self._path, self._n_parts).open("xb", buffering=0) as file:
            append(file, encode_header(header_of(self.policies, self.n_demons, self._dtype, stays)), 1)

    def rearrange(self, stays: Integers, policies: Sequence[PolicyUnderTest]) -> None:
        """Go on with other demons: those that stay keep their scores, those that are new have none yet.

        Args:
            stays: Which former demon each one was, negative where it is new, shape (n_demons,).
            policies: The policies that are tested now, with the demons where they are now.

        Raises:
            RecordLost: If excursions still wait for room on the disk; nothing has changed.
        """
        assert self._before is None, "demons come and go in the life itself"
        self.close()
        place, is_old = places(stays, self.n_demons), stays >= 0
        self.n_demons, self.policies = len(stays), list(policies)
        self.n_tests = np.where(is_old, self.n_tests[stays], 0)
        self._mean, self._m2, self._trace = (
            np.where(is_old, values[stays], 0.0) for values in (self._mean, self._m2, self._trace)
        )
        self._done = [test.rearranged(place) for test in self._done]
        if self._path is not None:
            self._begin_part(stays)

    def add(self, test: TestExcursion, diverged: Collection[int] = ()) -> None:
        """Take in a complete excursion; `diverged` lists demons to leave out of the online mean.

        One that gave no prediction, as while its shard is away, was not tested by it.
        """
        known = np.isfinite(test.returns) & np.isfinite(test.predictions)
        i, g, predictions = test.demons[known], test.returns[known], test.predictions[known]
        error = (predictions - g) ** 2
        n = self.n_tests[i] + 1
        self.n_tests[i] = n
        self._trace[i] += (error - self._trace[i]) / np.where(n == 1, 1.0, TAU)
        away = g - self._mean[i]  # Welford (1962)
        self._mean[i] += away / n
        self._m2[i] += away * (g - self._mean[i])
        self.n_excursions += 1
        self.latest_mean = self.online_mean(diverged)
        self._keep(Done(test.policy_name, test.step, self.latest_mean, i, predictions, g))
        if self._path is not None:
            self._write()

    def _keep(self, done: Done) -> None:
        """Keep an excursion, until it is written where there is a file."""
        self._done.append(done)
        if self._path is not None:
            self._unwritten.append(sealed(record_of(done, self.policies, self._dtype)))
            self._n_in_part += 1

    def _write(self) -> None:
        """Append what is not written yet; where the disk is full it waits, and the life goes on."""
        assert self._path is not None
        path = part(self._path, self._n_parts)
        try:
            while self._unwritten:
                append_to(path, self._unwritten[0], self._dtype.itemsize)
                n_written = len(self._unwritten.pop(0)) // self._dtype.itemsize
                del self._done[:n_written]
        except RecordLost as error:
            if self._lost is None:
                _log.warning("%s cannot be written (%s): excursions wait in memory", path, error.strerror)
            self._lost = error
        else:
            self._lost = None

    def close(self) -> None:
        """Write what waits.

        Raises:
            RecordLost: If it cannot be written.
        """
        if self._path is not None:
            self._write()
            if self._lost is not None:
                raise self._lost

    def online_mean(self, diverged: Collection[int] = ()) -> float:
        """Return the mean NMSRE with the variance of the returns so far; nan while no demon was tested twice."""
        tested = self.n_tests >= 2
        tested[list(diverged)] = False
        if not tested.any():
            return float("nan")
        return float(self.online()[tested].mean())

    def online(self) -> Floats:
        """Return each demon's NMSRE with the variance of its returns so far, shape (n_demons,); nan before 2 tests."""
        variance = self.online_variance()
        return normalise(np.where(np.isnan(variance), np.nan, self._trace), variance)

    def online_variance(self) -> Floats:
        """Return the variance of each demon's returns so far, shape (n_demons,); nan before 2 tests."""
        variance: Floats = np.full(self.n_demons, np.nan)
        return np.divide(self._m2, self.n_tests, out=variance, where=self.n_tests >= 2)

    def online_median(self, diverged: Collection[int] = ()) -> float:
        """Return the median of `online` without the `diverged` demons; nan while no demon was tested twice."""
        nmsre = self.online()
        nmsre[list(diverged)] = np.nan
        return float(np.nanmedian(nmsre)) if not np.isnan(nmsre).all() else float("nan")

    def excursions(self) -> PastExcursions:
        """Return all complete excursions, to be gone through."""
        return PastExcursions(self.policies, self.n_demons, self._batches)

    def _batches(self) -> Iterator[Batch]:
        if self._before is not None:
            yield from batches(self._before, self.policies)
        if self._path is not None:
            yield from batches(read_parts(self._path), self.policies)
        yield batch_of(self._done, self.policies)

    def nmsre(self) -> Floats:
        """Return the final two-pass NMSRE, shape (n_demons,); nan for a demon tested fewer than two times."""
        return final_nmsre(courses(self.excursions()), self.n_demons)
