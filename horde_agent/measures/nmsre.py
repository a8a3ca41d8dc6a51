"""Normalised mean squared return error: the share of a return's variance that the predictions leave unexplained.

    NMSRE = trace of (prediction - g)^2 / Var[g]

over the test excursions of a question. The trace is x <- x + (error - x) / tau with tau = 10 excursions and starts at
the first error; Var[g] is over all excursions of that question, so that predicting its mean scores about 1. A question
whose returns do not vary (Var < 1e-12) has an NMSRE of exactly 1. NaN stands for an excursion that did not test a
demon: it came later, or its question's functions gave no number there.

Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

import itertools
import logging
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.measures.returns import PolicyUnderTest, TestExcursion, name_of_action
from horde_agent.record.rows import read_rows
from horde_agent.record.segments import (
    CRC,
    FORMAT_VERSION,
    RecordLost,
    append,
    append_to,
    cut,
    encode_header,
    part,
    parts,
    read_segment,
    sealed,
)
from horde_agent.saving import State, attributes, inner, nested, put_back, text, untext
from horde_agent.types import Floats, Integers

_STATE = ("n_discarded", "n_tests", "steps", "online_means", "_mean", "_m2", "_trace", "_n_parts")
TAU = 10.0
NO_VARIANCE = 1e-12
FORMAT = "horde-excursions"
GONE = -1
"""In the place of a demon that is no more."""

_log = logging.getLogger(__name__)


def error_trace(errors: Floats) -> Floats:
    """Return the exponential trace of squared errors along the first axis, shape (n_excursions, n).

    It is NaN before the first error, and where an error is NaN it stays as it is.
    """
    trace = np.empty_like(errors)
    latest = np.full(errors.shape[1:], np.nan)
    for k, error in enumerate(errors):
        moved = np.where(np.isnan(latest), error, latest + (error - latest) / TAU)
        trace[k] = latest = np.where(np.isnan(error), latest, moved)
    return trace


def normalise(error: Floats, variance: Floats) -> Floats:
    """Return error / variance, exactly 1 where the variance is below 1e-12; NaN stays NaN.

    Args:
        error: Squared errors, shape (..., n).
        variance: Of each question's returns, in the same units, shape (n,).
    """
    varies = ~np.broadcast_to(variance < NO_VARIANCE, error.shape)
    out: Floats = np.where(np.isnan(error), np.nan, 1.0)
    np.divide(error, variance, out=out, where=varies)
    return out


def variance_of(returns: Floats) -> Floats:
    """Return the variance of each question's returns, shape (n,); those that are NaN are left out."""
    known = ~np.isnan(returns)
    if known.all():
        return np.asarray(returns.var(axis=0)) if len(returns) else np.full(returns.shape[1:], np.nan)
    n = known.sum(axis=0)
    mean = np.divide(np.where(known, returns, 0.0).sum(axis=0), n, out=np.full(n.shape, np.nan), where=n > 0)
    squares = np.where(known, (returns - mean) ** 2, 0.0).sum(axis=0)
    variance: Floats = np.divide(squares, n, out=np.full(n.shape, np.nan), where=n > 0)
    return variance


def nmsre_at_rest(predictions: Floats, returns: Floats, variance: Floats) -> Floats:
    """Return the NMSRE of predictions that nobody learned between: mean squared error over variance, shape (n,).

    Args:
        predictions: Before each return, shape (n_returns, n), or of all of them, shape (n,).
        returns: In the same units, shape (n_returns, n).
        variance: Of each question's returns, these or more of them, shape (n,).
    """
    return normalise(((predictions - returns) ** 2).mean(axis=0), variance)


class Outcomes(NamedTuple):
    """All complete excursions of one policy, in order.

    Attributes:
        policy: The policy with its n demons.
        step: Step at which each began, shape (n_excursions,).
        predictions, returns: shape (n_excursions, n); NaN where an excursion did not test a demon.
    """

    policy: PolicyUnderTest
    step: Integers
    predictions: Floats
    returns: Floats

    def variance(self) -> Floats:
        """Return the variance of each question's returns, shape (n,)."""
        return variance_of(self.returns)

    def nmsre(self) -> Floats:
        """Return the two-pass NMSRE after each excursion, shape (n_excursions, n)."""
        return normalise(error_trace((self.predictions - self.returns) ** 2), self.variance())


class Done(NamedTuple):
    """A complete excursion.

    Attributes:
        policy: Name of the policy that was followed.
        step: Step at which it began.
        demons: Those tested, positions in the Horde, shape (n,).
        predictions, returns: Theirs, shape (n,).
    """

    policy: str
    step: int
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


def outcomes_of(policies: Iterable[PolicyUnderTest], done: Sequence[Done], n_demons: int) -> Iterator[Outcomes]:
    """Yield each policy's complete excursions; a policy without one is left out."""
    for policy in policies:
        mine = [test for test in done if test.policy == policy.name]
        if not mine:
            continue
        column = np.full(n_demons, GONE)
        column[policy.demons] = np.arange(len(policy.demons))
        predictions, returns = np.full((2, len(mine), len(policy.demons)), np.nan)
        for k, test in enumerate(mine):
            predictions[k, column[test.demons]] = test.predictions
            returns[k, column[test.demons]] = test.returns
        yield Outcomes(policy, np.array([test.step for test in mine], dtype=np.int64), predictions, returns)


def places(stays: Integers, n_before: int) -> Integers:
    """Return where each of `n_before` former demons is now, GONE where it is no more, shape (n_before,).

    Args:
        stays: Which former demon each one now was, negative where it is new, shape (n_demons,).
        n_before: Number of former demons.
    """
    place = np.full(n_before, GONE)
    place[stays[stays >= 0]] = np.flatnonzero(stays >= 0)
    return place


class ReturnErrors:
    """Collects excursions; knows the NMSRE online, for progress, and in two passes, for reports.

    Where they are recorded to a file, none is kept in memory: for reports they are read back.

    Args:
        policies: The tested policies.
        n_demons: Number of demons of the Horde.

    Attributes:
        n_excursions, n_discarded: Complete excursions, and those that a gap cut short.
        n_tests: Complete excursions per demon, shape (n_demons,).
        steps, online_means: Per excursion the step at which it began, and the mean online NMSRE after it (nan while
            nothing was tested twice).
    """

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.policies = list(policies)
        self.n_demons = n_demons
        self.n_discarded = 0
        self.n_tests = np.zeros(n_demons, dtype=np.int64)
        self.steps, self.online_means = array("q"), array("d")  # of a year, 50 MB
        self._mean, self._m2, self._trace = np.zeros((3, n_demons))
        self._done: list[Done] = []  # all of them, or those that are in no file yet
        self._path: Path | None = None
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

    def go_on_in(self, path: Path) -> None:
        """Go on with a file of records that is there; `restore` says up to where it counts."""
        self._path, self._n_parts = path, max(self._n_parts, 1)

    def state(self) -> State:
        """Return the scores so far; the excursions themselves only where they are in no file."""
        own = attributes(self, *_STATE)
        if self._path is not None:
            waiting = np.frombuffer(b"".join(self._unwritten), dtype=np.uint8)
            return own | {"n_in_part": np.array(self._n_in_part), "waiting": waiting}
        done = {
            "policy": text([test.policy for test in self._done]),
            "step": np.array([test.step for test in self._done], dtype=np.int64),
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
        self.steps, self.online_means = array("q", own["steps"].tolist()), array("d", own["online_means"].tolist())
        if self._path is not None:
            self._restore_file(int(state["n_in_part"]), state["waiting"].tobytes())
            return
        done = inner(state, "done")
        ends = np.cumsum(done["n"])[:-1]
        columns = (np.split(done[name], ends) for name in ("demons", "predictions", "returns"))
        names, steps = untext(done["policy"]), done["step"].tolist()
        self._done = [Done(*test) for test in zip(names, steps, *columns, strict=False)] if steps else []

    def _restore_file(self, n_in_part: int, waiting: bytes) -> None:
        """Cut the files off after the excursions that are known; those that waited for room wait on."""
        assert self._path is not None
        for later in parts(self._path)[self._n_parts :]:
            later.unlink()
        segment = read_segment(part(self._path, self._n_parts), FORMAT)
        self._dtype = segment.records.dtype
        n_written = n_in_part - len(waiting) // self._dtype.itemsize
        if len(segment.records) < n_written or not segment.is_sound[:n_written].all():
            found = int(segment.is_sound.sum())
            raise ValueError(f"{segment.path} holds {found} sound excursions, though {n_written} were written")
        cut(segment.path, int(segment.header["offset"]) + n_written * self._dtype.itemsize)
        self._n_in_part, self._unwritten = n_in_part, [waiting] if waiting else []
        self._done = [_done(row, self.policies) for row in np.frombuffer(waiting, dtype=self._dtype)]

    def _begin_part(self, stays: Integers | None) -> None:
        assert self._path is not None
        self._n_parts += 1
        self._n_in_part = 0
        self._dtype = _dtype(max((len(p.demons) for p in self.policies), default=0))
        with part(self._path, self._n_parts).open("xb", buffering=0) as file:
            append(file, encode_header(_header(self.policies, self.n_demons, self._dtype, stays)), 1)

    @property
    def n_excursions(self) -> int:
        """Number of complete excursions."""
        return len(self.steps)

    def rearrange(self, stays: Integers, policies: Sequence[PolicyUnderTest]) -> None:
        """Go on with other demons: those that stay keep their scores, those that are new have none yet.

        Args:
            stays: Which former demon each one was, negative where it is new, shape (n_demons,).
            policies: The policies that are tested now, with the demons where they are now.

        Raises:
            RecordLost: If excursions still wait for room on the disk; nothing has changed.
        """
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
        """Take in a complete excursion; `diverged` lists demons to leave out of the online mean."""
        known = np.isfinite(test.returns)
        i, g, predictions = test.demons[known], test.returns[known], test.predictions[known]
        error = (predictions - g) ** 2
        n = self.n_tests[i] + 1
        self.n_tests[i] = n
        self._trace[i] += (error - self._trace[i]) / np.where(n == 1, 1.0, TAU)
        away = g - self._mean[i]  # Welford (1962)
        self._mean[i] += away / n
        self._m2[i] += away * (g - self._mean[i])
        done = Done(test.policy.name, test.step, i, predictions, g)
        self._done.append(done)
        self.steps.append(test.step)
        self.online_means.append(self.online_mean(diverged))
        if self._path is not None:
            self._unwritten.append(sealed(self._record(done)))
            self._n_in_part += 1
            self._write()

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
        nmsre, tested = np.full(self.n_demons, np.nan), self.n_tests >= 2
        nmsre[tested] = normalise(self._trace[tested], self._m2[tested] / self.n_tests[tested])
        return nmsre

    def outcomes(self) -> Iterator[Outcomes]:
        """Yield each policy's complete excursions; a policy without one is left out."""
        done = [] if self._path is None else _read_done(self._path)[0]
        return outcomes_of(self.policies, [*done, *self._done], self.n_demons)

    def nmsre(self) -> Floats:
        """Return the final two-pass NMSRE, shape (n_demons,); nan for a demon tested fewer than two times."""
        return final_nmsre(self.outcomes(), self.n_demons)

    def _record(self, done: Done) -> NDArray[Any]:
        """Return an excursion as a record: the columns are those of its policy's demons."""
        number = [policy.name for policy in self.policies].index(done.policy)
        columns = np.searchsorted(self.policies[number].demons, done.demons)
        record = np.zeros(1, dtype=self._dtype)
        record["step"], record["policy"], record["action"] = done.step, number, self.policies[number].action
        record["prediction"], record["return"] = np.nan, np.nan
        record["prediction"][0, columns], record["return"][0, columns] = done.predictions, done.returns
        return record


def final_nmsre(tests: Iterator[Outcomes] | Sequence[Outcomes], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE per demon, shape (n_demons,); nan where tested fewer than two times."""
    final = np.full(n_demons, np.nan)
    for test in tests:
        n_tests = (~np.isnan(test.returns)).sum(axis=0)
        final[test.policy.demons] = np.where(n_tests >= 2, test.nmsre()[-1], np.nan)
    return final


# ---- on a disk -------------------------------------------------------------------------------------------------------


def read_excursions(path: Path) -> tuple[list[Outcomes], int]:
    """Read the excursions of a run.

    Returns:
        Each policy's complete excursions, and the number of demons of the Horde; where demons came or went, of those
        that there were in the end.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds no excursions.
    """
    done, policies, n_demons = _read_done(path)
    return list(outcomes_of(policies, done, n_demons)), n_demons


def _read_done(path: Path) -> tuple[list[Done], list[PolicyUnderTest], int]:
    """Return the excursions of a run in their order, the policies, and the number of demons, of the end."""
    done: list[Done] = []
    policies: list[PolicyUnderTest] = []
    n_demons = 0
    for number in itertools.count(1):
        if number > 1 and not part(path, number).exists():
            return done, policies, n_demons
        rows, header = read_rows(part(path, number), FORMAT)
        if number > 1:
            place = places(np.array(header["stays"], dtype=np.int64), n_demons)
            done = [test.rearranged(place) for test in done]
        policies, n_demons = [_policy(table) for table in header["policies"]], int(header["n_demons"])
        done += [_done(row, policies) for row in rows]
    raise AssertionError("a file without end")


def _policy(table: dict[str, Any]) -> PolicyUnderTest:
    """Return a policy of a header."""
    gamma = np.array([np.nan if g is None else g for g in table["gamma"]], dtype=np.float64)
    demons, channel = (np.array(table[key], dtype=np.int64) for key in ("demons", "channel"))
    return PolicyUnderTest(table["action"], demons, channel, gamma, table.get("name", name_of_action(table["action"])))


def _done(row: Any, policies: Sequence[PolicyUnderTest]) -> Done:
    """Return an excursion of a file; a record without the number of its policy is told by its action."""
    if "policy" in (row.dtype.names or ()):
        policy = policies[int(row["policy"])]
    else:
        policy = next(p for p in policies if p.action == row["action"])
    prediction, actual = (row[key][: len(policy.demons)].astype(np.float64) for key in ("prediction", "return"))
    known = ~np.isnan(actual)
    return Done(policy.name, int(row["step"]), policy.demons[known], prediction[known], actual[known])


def _dtype(n_tested: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("step", "<i8"),
            ("policy", "<i4"),
            ("action", "<i4"),
            ("prediction", "<f8", (n_tested,)),
            ("return", "<f8", (n_tested,)),
            (CRC, "<u4"),
        ]
    )


def _header(
    policies: Sequence[PolicyUnderTest], n_demons: int, dtype: np.dtype[Any], stays: Integers | None
) -> dict[str, Any]:
    """Return the header of a part; `stays` says which demon of the part before each one was."""
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
