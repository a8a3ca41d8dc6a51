"""What it is worth to go on learning: tests since the end of a history, also by the weights of that time.

The weights at the end of the history are stored as a snapshot of the Horde in `frozen/`. Nothing is
predicted by them while the run learns: the rows are recorded, and the tests with them, so the
predictions at the tests' first rows are made when the tables are written.

    nmsre          mean squared error of the predictions of that moment over the variance of the returns
    nmsre_frozen   that of the predictions at the same rows by the weights at the end of the history
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.learner import PredictorAlong
from horde_agent.questions import question_columns
from horde_agent.record import read_in_parts, snapshots
from horde_agent.refusals import BadInput
from horde_agent.runs.log_nexting import Holdout
from horde_agent.runs.storage.files import number_in, read_lines, write_csv
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import Run
from horde_agent.saving import State
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import Outcomes, ReturnMoments
from horde_agent.types import Floats


class FrozenScore(NamedTuple):
    """How a question was predicted since the end of the history; numbers are NaN without two tests.

    Attributes:
        question: Its name.
        policy: Name of the policy that it is about.
        gamma: Its continuation; NaN for a function.
        channel: Name of its channel, "" without one.
        n_tests: Number of tests.
        nmsre: NMSRE of the predictions at the tests' first rows.
        nmsre_frozen: That by the weights at the end of the history.
        late_nmsre: The first one of the second half of the tests alone.
        late_nmsre_frozen: The second one, likewise.
    """

    question: str
    policy: str
    gamma: float
    channel: str
    n_tests: int
    nmsre: float
    nmsre_frozen: float
    late_nmsre: float = math.nan
    late_nmsre_frozen: float = math.nan


class ScorePair(NamedTuple):
    """Arrays of shape (n_demons,): the number of tests, and the NMSRE of two predictors of their returns."""

    n_tests: Floats
    nmsre: Floats
    nmsre_frozen: Floats


def restored_horde(run: Run, state: State) -> Horde:
    """Return a Horde of a run's questions with a state, which predicts."""
    horde = Horde(
        run.horde.questions,
        n_features=run.horde.n_features,
        n_active=run.horde.n_active,
        config=run.horde.config,
        mode="deferred",
    )
    horde.restore(state)
    return horde


def refuse_without_horde(run: Run) -> None:
    """Raise BadInput if no weights of a run can be frozen."""
    if run.shards is not None:
        raise BadInput("--compare-frozen needs a run of one Horde, without --shards; omit it")


def freeze(run: Run, n_rows: int, step: int) -> None:
    """Store the weights of a run that has learned from `n_rows` rows up to `step`: its history ends here."""
    folder = run.folder
    path = snapshots.write(folder.frozen, step, run.horde.state(), {"n_rows": n_rows})
    for earlier in list(snapshots.found(folder.frozen)):
        if earlier != path:
            snapshots.remove(earlier)


def frozen_snapshot(folder: RunFolder) -> snapshots.Snapshot | None:
    """Return the stored weights at the end of a history; None without them, or if they are damaged."""
    for path in snapshots.found(folder.frozen):
        try:
            return snapshots.read(path)
        except snapshots.SnapshotDamaged:
            return None
    return None


def scores_of_tests(run: Run, table: ExcursionTable, horizon: int) -> dict[str, ScorePair] | None:
    """Return the scores of all tests since the end of the history, and of their second half; None without a history.

    The tests are those of the behaviour. Weights are the same up to a step of the stream, where
    `horizon` terms of a return were measured after its test began.
    """
    snapshot = frozen_snapshot(run.folder)
    if snapshot is None:
        return None
    tests = [of_policy for of_policy in table.outcomes() if of_policy.policy.is_behaviour]
    if not tests:
        return None
    (outcomes,) = tests
    is_since = outcomes.step >= snapshot.facts["step"]
    if not is_since.any():
        return None
    outcomes = outcomes.at(np.flatnonzero(is_since))
    horde = restored_horde(run, snapshot.state)
    frozen = _frozen_errors(run, horde, outcomes, horizon, int(snapshot.facts["n_rows"]))
    n_demons = run.horde.n_demons
    n_early = len(outcomes.step) // 2
    late = outcomes.at(np.arange(n_early, len(outcomes.step)))
    return {
        "all": _pair(outcomes, frozen, n_demons),
        "late": _pair(late, frozen[n_early:], n_demons),
    }


def _frozen_errors(run: Run, horde: Horde, outcomes: Outcomes, horizon: int, n_rows: int) -> Floats:
    """Return the errors of frozen weights in tests, shape (n_tests, n); NaN where a row is not recorded."""
    demons = outcomes.policy.demons
    first = np.full(outcomes.returns.shape, np.nan)
    last = np.full(outcomes.returns.shape, np.nan)
    test_at = {int(step): k for k, step in enumerate(outcomes.step.tolist())}
    end_at = {step + horizon: k for step, k in test_at.items()}
    wanted = np.array(sorted({*test_at, *end_at}))
    predictor = PredictorAlong(horde, run.interface)
    # The row before is that of the newest test under way
    for part in read_in_parts(run.folder.life, max(n_rows - 1, 0) or None):
        if not len(part):
            continue
        is_wanted = np.isin(part.rows["step"], wanted)
        predictions = predictor(part, is_wanted)
        for i in np.flatnonzero(is_wanted).tolist():
            step = int(part.rows["step"][i])
            for place, values in ((test_at, first), (end_at, last)):
                if step in place:
                    values[place[step]] = predictions[i, demons]
    share = np.broadcast_to(np.asarray(outcomes.share), first.shape)
    remainder = np.where(share == 0.0, 0.0, share * last)
    return np.asarray(first - remainder - outcomes.returns)


def _pair(outcomes: Outcomes, frozen: Floats, n_demons: int) -> ScorePair:
    """Return the scores of tests whose errors by frozen weights are `frozen`, shape (n_tests, n)."""
    errors = outcomes.errors
    is_known = ~np.isnan(errors + frozen)
    returns = np.where(is_known, outcomes.returns, np.nan)
    demons = outcomes.policy.demons
    moments = ReturnMoments(len(demons))
    moments.add(returns, np.broadcast_to(np.asarray(outcomes.share), returns.shape))
    pair = ScorePair(*(np.full(n_demons, np.nan) for _ in ScorePair._fields))
    pair.n_tests[demons] = moments.n
    for values, error in ((pair.nmsre, errors), (pair.nmsre_frozen, frozen)):
        squares = np.where(is_known, error**2, 0.0).sum(axis=0)
        values[demons] = moments.normalise(squares / np.maximum(moments.n, 1))
    return pair


def held_out_scores(score: Holdout, frozen: Holdout) -> dict[str, ScorePair]:
    """Return the scores on the held-out rows of a log, by the final weights and by those of the history."""
    return {"all": ScorePair(score.n_scored.astype(np.float64), score.nmsre, frozen.nmsre)}


def lines_of(
    pairs: dict[str, ScorePair], questions: Sequence[GVF], interface: Interface
) -> list[FrozenScore]:
    """Return the scores of all questions by `scores_of_tests` or `held_out_scores`."""
    pair = pairs["all"]
    late = pairs.get("late")
    scores = []
    for i, (question, about) in enumerate(
        zip(questions, question_columns(questions, interface), strict=True)
    ):
        n_tests = 0
        if not np.isnan(pair.n_tests[i]):
            n_tests = int(pair.n_tests[i])
        score = FrozenScore(
            question=question.name,
            policy=about.policy,
            gamma=about.gamma,
            channel=about.channel,
            n_tests=n_tests,
            nmsre=float(pair.nmsre[i]),
            nmsre_frozen=float(pair.nmsre_frozen[i]),
        )
        if late is not None:
            score = score._replace(
                late_nmsre=float(late.nmsre[i]), late_nmsre_frozen=float(late.nmsre_frozen[i])
            )
        scores.append(score)
    return scores


def write_frozen(path: Path, scores: Sequence[FrozenScore]) -> None:
    """Write frozen.csv; raise OSError if it cannot be written."""
    write_csv(path, FrozenScore._fields, [list(score) for score in scores])


def read_frozen(path: Path) -> list[FrozenScore]:
    """Read frozen.csv; an empty list without the file; raise KeyError or ValueError at a line that does not fit."""
    if not path.is_file():
        return []
    scores = []
    for line in read_lines(path):
        numbers = {
            name: number_in(line[name])
            for name in FrozenScore._fields
            if name not in ("question", "policy", "channel", "n_tests")
        }
        scores.append(
            FrozenScore(
                question=line["question"],
                policy=line["policy"],
                channel=line["channel"],
                n_tests=int(number_in(line["n_tests"])),
                **numbers,
            )
        )
    return scores
