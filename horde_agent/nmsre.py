"""Normalised mean squared return error: the share of a return's variance that the predictions leave unexplained.

    NMSRE = trace of (prediction - g)^2 / Var[g]

over the test excursions of a question. The trace is x <- x + (error - x) / tau with tau = 10 excursions and starts at
the first error; Var[g] is over all excursions of that question, so that predicting its mean scores about 1. A question
whose returns do not vary (Var < 1e-12) has an NMSRE of exactly 1.

Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.excursions import PolicyUnderTest, TestExcursion
from horde_agent.record import FORMAT_VERSION, append, append_to, encode_header, read_rows

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

TAU = 10.0
NO_VARIANCE = 1e-12
FORMAT = "horde-excursions"


def error_trace(errors: Floats) -> Floats:
    """Return the exponential trace of squared errors, shape (n_excursions, n), along the first axis."""
    trace = np.empty_like(errors)
    for k in range(len(errors)):
        trace[k] = errors[k] if k == 0 else trace[k - 1] + (errors[k] - trace[k - 1]) / TAU
    return trace


def normalise(error: Floats, variance: Floats) -> Floats:
    """Return error / variance, exactly 1 where the variance is below 1e-12; `variance` broadcasts."""
    varies = np.broadcast_to(variance >= NO_VARIANCE, error.shape)
    return np.divide(error, variance, out=np.ones_like(error), where=varies)


class Outcomes(NamedTuple):
    """All complete excursions of one policy, in order.

    Attributes:
        policy: The policy with its n demons.
        step: Step at which each began, shape (n_excursions,).
        predictions, returns: shape (n_excursions, n).
    """

    policy: PolicyUnderTest
    step: Indices
    predictions: Floats
    returns: Floats

    def nmsre(self) -> Floats:
        """Return the two-pass NMSRE after each excursion, shape (n_excursions, n)."""
        return normalise(error_trace((self.predictions - self.returns) ** 2), self.returns.var(axis=0))


class ReturnErrors:
    """Collects excursions; knows the NMSRE online, for progress, and in two passes, for reports.

    Args:
        policies: The tested policies.
        n_demons: Number of demons of the Horde.

    Attributes:
        n_excursions, n_discarded: Complete excursions, and those that a gap cut short.
        n_tests: Complete excursions per demon, shape (n_demons,).
        online_means: Per excursion the mean online NMSRE after it (nan while nothing was tested twice).
    """

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.policies = list(policies)
        self.n_demons = n_demons
        self.n_discarded = 0
        self.n_tests = np.zeros(n_demons, dtype=np.int64)
        self.online_means: list[float] = []
        self._mean, self._m2, self._trace = np.zeros((3, n_demons))
        self._done: list[TestExcursion] = []
        self._dtype = _dtype(max((len(p.demons) for p in self.policies), default=0))
        self._path: Path | None = None

    def record_to(self, path: Path) -> None:
        """Append every further complete excursion to a new file of records (read by `read_excursions`).

        Raises:
            FileExistsError: If there is such a file already.
            RecordLost: If it cannot be written; so does `add`.
        """
        with path.open("xb", buffering=0) as file:
            append(file, encode_header(_header(self.policies, self.n_demons, self._dtype)), 1)
        self._path = path

    @property
    def n_excursions(self) -> int:
        """Number of complete excursions."""
        return len(self._done)

    def add(self, test: TestExcursion, diverged: Collection[int] = ()) -> None:
        """Take in a complete excursion; `diverged` lists demons to leave out of the online mean."""
        i, g = test.policy.demons, test.returns
        error = (test.predictions - g) ** 2
        n = self.n_tests[i] + 1
        self.n_tests[i] = n
        self._trace[i] += (error - self._trace[i]) / np.where(n == 1, 1.0, TAU)
        away = g - self._mean[i]  # Welford (1962)
        self._mean[i] += away / n
        self._m2[i] += away * (g - self._mean[i])
        self._done.append(test)
        self.online_means.append(self.online_mean(diverged))
        if self._path is not None:
            append_to(self._path, self._record(test).tobytes(), self._dtype.itemsize)

    def online_mean(self, diverged: Collection[int] = ()) -> float:
        """Return the mean NMSRE with the variance of the returns so far; nan while no demon was tested twice."""
        tested = self.n_tests >= 2
        tested[list(diverged)] = False
        if not tested.any():
            return float("nan")
        return float(normalise(self._trace[tested], self._m2[tested] / self.n_tests[tested]).mean())

    def outcomes(self) -> Iterator[Outcomes]:
        """Yield each policy's complete excursions; a policy without one is left out."""
        for policy in self.policies:
            done = [test for test in self._done if test.policy.action == policy.action]
            if done:
                yield Outcomes(
                    policy,
                    np.array([test.step for test in done], dtype=np.int64),
                    np.array([test.predictions for test in done]),
                    np.array([test.returns for test in done]),
                )

    def nmsre(self) -> Floats:
        """Return the final two-pass NMSRE, shape (n_demons,); nan for a demon tested fewer than two times."""
        return final_nmsre(self.outcomes(), self.n_demons)

    def _record(self, test: TestExcursion) -> NDArray[Any]:
        record = np.zeros(1, dtype=self._dtype)
        record["step"], record["action"] = test.step, test.policy.action
        record["prediction"][0, : len(test.predictions)] = test.predictions
        record["return"][0, : len(test.returns)] = test.returns
        return record


def final_nmsre(tests: Iterator[Outcomes] | Sequence[Outcomes], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE per demon, shape (n_demons,); nan where tested fewer than two times."""
    final = np.full(n_demons, np.nan)
    for test in tests:
        if len(test.step) >= 2:
            final[test.policy.demons] = test.nmsre()[-1]
    return final


def read_excursions(path: Path) -> tuple[list[Outcomes], int]:
    """Read the excursions of a run.

    Returns:
        Each policy's complete excursions, and the number of demons of the Horde.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds no excursions.
    """
    rows, header = read_rows(path, FORMAT)
    tests = []
    for table in header["policies"]:
        policy = PolicyUnderTest(
            table["action"], np.array(table["demons"]), np.array(table["channel"]), np.array(table["gamma"])
        )
        mine, n = rows[rows["action"] == policy.action], len(policy.demons)
        if len(mine):
            tests.append(
                Outcomes(policy, mine["step"].astype(np.int64), mine["prediction"][:, :n], mine["return"][:, :n])
            )
    return tests, int(header["n_demons"])


def _dtype(n_tested: int) -> np.dtype[Any]:
    return np.dtype(
        [("step", "<u4"), ("action", "<i4"), ("prediction", "<f8", (n_tested,)), ("return", "<f8", (n_tested,))]
    )


def _header(policies: Sequence[PolicyUnderTest], n_demons: int, dtype: np.dtype[Any]) -> dict[str, Any]:
    tables = [
        {"action": p.action, "demons": p.demons.tolist(), "channel": p.channel.tolist(), "gamma": p.gamma.tolist()}
        for p in policies
    ]
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "dtype": dtype.descr,
        "n_demons": n_demons,
        "policies": tables,
    }
