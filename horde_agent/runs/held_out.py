"""Off-policy questions scored on the last 30 % of a data set, by importance sampling: held_out.csv.

The data set is learned from as a whole. When its first pass reaches the last 30 % (from the nearest
beginning of an episode), the predictions of the weights so far are made for states of that part, one
per time scale 1 / (1 - gamma), and scored by what was recorded after them
(`scoring.prediction_error`). A stretch is so long that at most 5 % of the return lie beyond it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.interface.held import filled_rows
from horde_agent.learner import Learner
from horde_agent.learning.values import identity
from horde_agent.life.flags import borders_of
from horde_agent.life.learner import encoder
from horde_agent.policies import Behaviour, Greedy
from horde_agent.questions import question_columns
from horde_agent.record import Flag, Phase, read_in_parts
from horde_agent.runs.log_nexting import LEARNED_SHARE
from horde_agent.runs.storage.question_table import HeldOutScore, read_held_out
from horde_agent.scoring.intervals import Resampler
from horde_agent.scoring.nmsre import nmsre_of_constant, nmsre_text
from horde_agent.scoring.prediction_error import (
    PredictionError,
    Stretches,
    error_paths,
    size_at,
)
from horde_agent.scoring.returns import is_sum_of_channel, n_terms_needed, persistent
from horde_agent.scoring.verdict import ENOUGH
from horde_agent.types import Bools, Floats, Integers, Tiles

LEVEL = 0.95
_N_RESAMPLES = 300
_MOST_GROUPS = 50
_MOST_STEPS = 1_000  # of a stretch
_MOST_STRETCHES = 2_000
_MOST_ROWS = 200_000
_MOST_CALLS = 400_000  # of the policies' probabilities


def first_held_out(recording: Path, n_rows: int) -> int:
    """Return the number of the first held-out row of a recording of `n_rows` rows.

    It is the beginning of an episode nearest to 70 % of the rows, if one is within 5 % of them.
    """
    border = round(LEARNED_SHARE * n_rows)
    window = min(n_rows // 20, _MOST_ROWS)
    rows = _rows_between(recording, border - window - 1, border + window)
    starts = border - window + np.flatnonzero(rows["phase"][:-1] == Phase.END)
    if not len(starts):
        return border
    return int(starts[np.abs(starts - border).argmin()])


def held_out_rows(recording: Path, first: int) -> NDArray[Any]:
    """Return the rows of a recording from row `first` on, at most 200,000."""
    return _rows_between(recording, first, first + _MOST_ROWS)


def _rows_between(recording: Path, first: int, end: int) -> NDArray[Any]:
    """Return rows [first, end) of a recording."""
    first = max(first, 0)
    parts = []
    n_rows = 0
    for part in read_in_parts(recording, first):
        parts.append(part.rows)
        n_rows += len(part)
        if n_rows >= end - first:
            break
    return np.concatenate(parts)[: end - first]


def score(
    rows: NDArray[Any], horde: Learner, interface: Interface, seed: int = 0
) -> list[HeldOutScore]:
    """Score the off-policy questions of a Horde on rows that it has not learned from.

    Args:
        rows: Of a recording, shape (n_rows,).
        horde: The Horde; nothing is learned.
        interface: Encodes the observations.
        seed: Seed of the intervals.
    """
    questions = [q for q in horde.questions if not isinstance(q.target_policy, Behaviour)]
    index = {name: i for i, name in enumerate(horde.names)}
    held_out = _HeldOut(rows, interface, _n_policies(questions))
    places = {gamma: held_out.places(gamma) for gamma in _gammas(questions)}
    held_out.predict(places, horde)
    weights: dict[Hashable, Stretches] = {}
    scores = []
    columns = question_columns(questions, interface)
    for question, about in zip(questions, columns, strict=True):
        unjudged = HeldOutScore(question=question.name, policy=about.policy, gamma=about.gamma)
        reason = _objection(question)
        if reason:
            scores.append(unjudged._replace(reason=reason))
            continue
        starts = places[about.gamma]
        unjudged = unjudged._replace(n_stretches=len(starts))
        if len(starts) < ENOUGH:
            reason = (
                f"{len(starts)} stretches of {n_terms_needed(about.gamma)} steps, as gamma {about.gamma:g} needs, are "
                f"held out, fewer than {ENOUGH:g}"
            )
            scores.append(unjudged._replace(reason=reason))
            continue
        key = (identity(question.target_policy), about.gamma)
        if key not in weights:
            weights[key] = held_out.stretches(question, starts)
        demon = index[question.name]
        scores.append(held_out.score(unjudged, question, demon, starts, weights[key], seed))
    return scores


def has_scorable(questions: Iterable[GVF]) -> bool:
    """Return whether a question is about another policy, by a sum that importance sampling can score."""
    return any(
        not isinstance(question.target_policy, Behaviour) and not _objection(question)
        for question in questions
    )


def _objection(question: GVF) -> str:
    """Return why a question cannot be scored by importance sampling; "" if it can."""
    if not is_sum_of_channel(question):
        return "its return is no discounted sum of a channel"
    if isinstance(question.target_policy, Greedy):
        return "its policy changes as it is learned"
    if not hasattr(question.target_policy, "probabilities") or not question.target_policy.n_actions:
        return "its policy has no probabilities of discrete actions"
    gamma = float(question.continuation)  # type: ignore[arg-type]
    if n_terms_needed(gamma) > _MOST_STEPS:
        share = gamma**_MOST_STEPS
        return f"its return at gamma {gamma:g} has {share:.0%} beyond {_MOST_STEPS} steps, the longest stretch"
    return ""


def _gammas(questions: Sequence[GVF]) -> list[float]:
    scored = [question for question in questions if not _objection(question)]
    return list(dict.fromkeys(float(q.continuation) for q in scored))  # type: ignore[arg-type]


def _n_policies(questions: Sequence[GVF]) -> int:
    return len({identity(question.target_policy) for question in questions})


class _HeldOut:
    """Rows that were not learned from, and where stretches of them begin."""

    def __init__(self, rows: NDArray[Any], interface: Interface, n_policies: int) -> None:
        self._rows = rows
        self._interface = interface
        self._n_policies = max(n_policies, 1)
        self._encode = encoder(interface)
        begins = (rows["flags"] & Flag.GAP) != 0
        self._filled = filled_rows(rows["observation"], begins, interface)
        self._tiles: dict[int, Tiles] = {}
        first, end = borders_of(rows)
        self._stretch: Integers = np.repeat(np.arange(len(first)), end - first)
        last: Integers = end[self._stretch] - 1
        self._n_left: Integers = last - np.arange(len(rows))  # steps until the stretch breaks
        # Whether it then is in a terminal state
        self._is_ended: Bools = (rows["flags"][last] & Flag.TERMINATED) > 0

    def places(self, gamma: float) -> Integers:
        """Return the rows in which the stretches of a time scale begin, not more than can be computed."""
        n_steps = int(n_terms_needed(gamma))
        is_whole = (self._n_left > 0) & ((self._n_left >= n_steps) | self._is_ended)
        chosen = []
        previous = -(10**9)
        stride = _stride(gamma)
        for row in np.flatnonzero(is_whole).tolist():
            if row - previous >= stride or self._stretch[row] != self._stretch[previous]:
                chosen.append(row)
                previous = row
        most = min(_MOST_STRETCHES, max(_MOST_CALLS // (n_steps * self._n_policies), int(ENOUGH)))
        places = np.array(chosen, dtype=np.int64)
        if len(places) > most:
            places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
        return places

    def predict(self, places: Mapping[float, Integers], horde: Learner) -> None:
        """Make the predictions in all rows of the stretches that begin in `places`, by time scale."""
        is_used = np.zeros(len(self._rows), dtype=bool)
        for gamma, starts in places.items():
            is_used[self._path(starts, gamma)] = True
        used = np.flatnonzero(is_used)
        self._place = np.full(len(self._rows), -1)
        self._place[used] = np.arange(len(used))
        self._predictions = np.zeros((len(used), horde.n_demons))
        for place, row in enumerate(used.tolist()):
            observation = self._filled.known[row]
            self._predictions[place] = horde.predict(self._tiles_in(row), observation)

    def _path(self, starts: Integers, gamma: float) -> Integers:
        """Return the rows of each stretch from its first to its last state, repeated, shape (n_stretches, K + 1)."""
        steps = np.arange(int(n_terms_needed(gamma)) + 1)
        return starts[:, None] + np.minimum(steps, self._n_left[starts][:, None])

    def _tiles_in(self, row: int) -> Tiles:
        if row not in self._tiles:
            self._tiles[row] = self._encode(self._filled.for_tiles[row])
        return self._tiles[row]

    def stretches(self, question: GVF, starts: Integers) -> Stretches:
        """Return the weights of the stretches under the question's policy, and their groups."""
        rows = self._rows
        n_steps = int(n_terms_needed(float(question.continuation)))  # type: ignore[arg-type]
        ratios = np.ones((len(starts), n_steps))
        known: dict[int, float] = {}
        for i, start in enumerate(starts.tolist()):
            for k in range(min(n_steps, int(self._n_left[start]))):
                row = start + k
                if row not in known:
                    observation = rows["observation"][row].astype(np.float64)
                    p = question.target_policy.probabilities(observation, self._tiles_in(row))
                    known[row] = float(p[rows["action"][row]]) / float(rows["b"][row])
                ratios[i, k] = known[row]
        weight = np.asarray(np.cumprod(ratios, axis=1), dtype=np.float64)
        return Stretches(weight, self._groups(starts))

    def _groups(self, starts: Integers) -> Integers:
        """Return a number of at most `_MOST_GROUPS` for each stretch: its episode's, or of some in a row."""
        _, episode = np.unique(self._stretch[starts], return_inverse=True)
        n_episodes = int(episode.max()) + 1
        if n_episodes >= ENOUGH:
            return np.asarray(episode * min(n_episodes, _MOST_GROUPS) // n_episodes)
        n_groups = min(len(starts), _MOST_GROUPS)
        return np.asarray(np.arange(len(starts)) * n_groups // len(starts))

    def score(
        self,
        unjudged: HeldOutScore,
        question: GVF,
        demon: int,
        starts: Integers,
        stretches: Stretches,
        seed: int,
    ) -> HeldOutScore:
        """Score a question, that of a demon of the Horde, on the stretches that begin in rows `starts`."""
        gamma = unjudged.gamma
        is_measured = self._are_measured(question, starts, stretches)
        starts = starts[is_measured]
        stretches = Stretches(stretches.weight[is_measured], stretches.group[is_measured])
        size = 0.0
        if len(starts):
            size = size_at(stretches, _stride(gamma) - 1)
        unjudged = unjudged._replace(effective_size=size)
        if size < ENOUGH:
            reason = (
                f"the effective sample size is {size:.1f} of {len(starts):,} stretches, "
                f"below {ENOUGH:g}"
            )
            return unjudged._replace(reason=reason)
        path = self._path(starts, gamma)
        predicted = self._predictions[self._place[path], demon]
        if not np.isfinite(predicted).all():
            return unjudged._replace(reason="its predictions are not finite")
        channel = int(question.cumulant.index)  # type: ignore[union-attr]
        readings = self._rows["observation"][path, channel].astype(np.float64)
        constant = float(readings.mean() / (1.0 - gamma))
        errors, deviations, errors_of_persistence = (
            self._errors(predictions, readings, starts, gamma)
            for predictions in (
                predicted,
                np.full(path.shape, constant),
                persistent(readings, gamma),
            )
        )
        error = PredictionError(errors, deviations, stretches)
        of_persistence = PredictionError(errors_of_persistence, deviations, stretches)
        if error.is_constant:
            squares = np.array([error.squared, of_persistence.squared])
            mean = constant - error.deviation
            nmsre, nmsre_of_persistence = nmsre_of_constant(squares, mean).tolist()
            return unjudged._replace(
                nmsre=nmsre,
                nmsre_of_persistence=nmsre_of_persistence,
                low=nmsre,
                high=nmsre,
                by_group=(0.0,) * error.n_episodes,
            )
        if not error.variance > 0.0:
            reason = (
                f"the variance of its returns is not known: {len(starts):,} stretches give "
                f"{error.variance:.3g}, so more rows are needed"
            )
            return unjudged._replace(reason=reason)
        low, high = _interval(error, seed)
        return unjudged._replace(
            nmsre=error.value,
            nmsre_of_persistence=of_persistence.value,
            low=low,
            high=high,
            by_group=tuple(error.influence().tolist()),
        )

    def _are_measured(self, question: GVF, starts: Integers, stretches: Stretches) -> Bools:
        """Return which stretches lack no reading that the question or its policy needs, shape (n_stretches,)."""
        channel = int(question.cumulant.index)  # type: ignore[union-attr]
        path = self._path(starts, float(question.continuation))  # type: ignore[arg-type]
        readings = self._rows["observation"][path, channel]
        is_read = np.isfinite(readings).all(axis=1)
        return np.asarray(is_read & np.isfinite(stretches.weight).all(axis=1))

    def _errors(
        self, predictions: Floats, readings: Floats, starts: Integers, gamma: float
    ) -> Floats:
        """Return the errors after each step, (n_stretches, K), of predictions in all rows, (n_stretches, K + 1)."""
        n_left = self._n_left[starts][:, None]
        steps = np.arange(predictions.shape[1])
        is_over = self._is_ended[starts][:, None] & (steps >= n_left)
        cumulants = np.where(steps[1:] <= n_left, readings[:, 1:], 0.0)
        return error_paths(np.where(is_over, 0.0, predictions), cumulants, gamma)


def _interval(error: PredictionError, seed: int) -> list[float]:
    """Return the ends of the interval of an NMSRE by resampled groups."""
    resampler = Resampler(error.n_episodes, seed, n_resamples=_N_RESAMPLES)
    tail = 0.5 * (1.0 - LEVEL)
    ends: list[float] = np.nanquantile(resampler.draws(error).values, [tail, 1.0 - tail]).tolist()
    return ends


def _stride(gamma: float) -> int:
    """Return the time scale 1 / (1 - gamma) in steps, at least 1."""
    return max(1, round(1.0 / (1.0 - gamma)))


# ---- the table -----------------------------------------------------------------------------------------


def summary_of(path: Path) -> str:
    """Return a sentence on a table of scores, for the notes of a run."""
    scores = read_held_out(path)
    judged = [score for score in scores if score.is_judged]
    sentence = (
        f"{len(judged):,} of {len(scores):,} off-policy questions are scored on the last 30 % of the "
        f"rows, by importance sampling, with the weights that had not learned from them"
    )
    if judged:
        nmsre = median(score.nmsre for score in judged)
        of_persistence = median(score.nmsre_of_persistence for score in judged)
        sentence += (
            f": the median NMSRE is {nmsre_text(nmsre)}, that of persistence "
            f"{nmsre_text(of_persistence)}"
        )
    return f"{sentence} ({path.name})."
