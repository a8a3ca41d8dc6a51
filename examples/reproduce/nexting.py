"""Experiment `nexting`: learning on-line, the off-line solutions, autoregression, and the real robot's log.

The paper's full text was not available: claims and counts are those of its abstracts, limits are
proposals that were fixed before the run.

Source: Modayil, White & Sutton (2012, 2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from examples.reproduce import TUNING_SEED
from examples.reproduce.checks import Limit, Measured, Number, at_least, at_most, below, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from examples.reproduce.nexting_life import (
    BITS_SEED,
    EVENTS,
    FROZEN_EVERY,
    N_WINDOWS,
    TIME_SCALES_S,
    Moments,
    NextingLife,
    NextingQuestions,
    OnlineErrors,
    learn_life,
    wall_follower,
    window,
)
from examples.reproduce.offline import RIDGES, LeastSquares, blocks, terms_needed
from examples.reproduce.runner import Job
from examples.reproduce.scores import NO_VARIANCE, normalise
from examples.reproduce.stats import join
from examples.reproduce.training_data import TrainingData, learn
from horde_agent.horde import LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.record import Stream, read
from horde_agent.runs.log_nexting import LEARNED_SHARE
from horde_agent.runs.sources.log import PlayedLog
from horde_agent.types import Bools, Floats

TITLE = "Nexting"
CONFIG = LearnerConfig.paper(algorithm="td", vector_mspbe=False)
"""TD(lambda) with lambda .9 and alpha .1 over the active features."""
LAGS = 20
"""Readings that autoregression sees."""


class NextingSize(NamedTuple):
    """Rows of a window, feature bits of the questions learned and of the larger set that is timed, steps timed."""

    window: int
    bits: int
    many_bits: int
    many_steps: int


SIZES = {"paper": NextingSize(6_000, 487, 1_447, 6_000), "quick": NextingSize(150, 40, 80, 300)}
REAL_LOG = (
    Path(__file__).resolve().parents[3] / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"
)
REAL_SCALES_S = (0.1, 0.5, 2.0)
REAL_PASSES = 30
"""The log of 99.7 s is too short for returns over 8 s; the published claims are of 30 passes."""

# ---- off-line solutions ---------------------------------------------------------------------------------------------


class OfflineErrors(NamedTuple):
    """Mean squared errors of off-line predictors in the scored part."""

    half: Floats  # of ridge regression on the first half of the life, shape (n_questions,)
    whole: Floats  # the same on all of it
    # On the sensor's last 20 readings at 8 s, fitted on the first half, shape (n_sensors,)
    autoregression: Floats


def offline(life: NextingLife, chooses: range, test: range) -> OfflineErrors:
    """Return how well the off-line solutions predict the rows of `test`.

    The first half ends with the rows of `chooses`, on which each question's ridge is chosen.
    """
    fits = range(1, chooses.start)
    judged_rows = range(chooses.stop, test.stop)
    mean = Moments(len(life.asked.scale))
    for _, returns in life.chunks(fits):
        mean.add(returns)
    problem = LeastSquares(life.live, mean.mean, len(life.training_data.stream))
    _add(life, problem, fits)
    scores = [_errors(life, problem, ridge, chooses, FROZEN_EVERY) for ridge in RIDGES]
    chosen = np.array(RIDGES)[np.argmin(scores, axis=0)]
    _add(life, problem, chooses)
    half = _errors(life, problem, chosen, test)
    _add(life, problem, judged_rows)
    return OfflineErrors(
        half, _errors(life, problem, chosen, test), autoregression(life, [fits, chooses], test)
    )


def _add(life: NextingLife, problem: LeastSquares, part: range) -> None:
    for rows, returns in life.chunks(part):
        for block in blocks(len(rows)):
            phi = life.live.dense(life.rows.tiles[rows[block]])
            problem.add(phi, phi, (returns[block] - problem.constant).astype(np.float32))


def _errors(
    life: NextingLife, problem: LeastSquares, ridge: float | Floats, part: range, every: int = 1
) -> Floats:
    """Return the mean squared errors of the solutions, shape (n_questions,); `ridge` as in `Problem.solve`."""
    theta = problem.solve(ridge).astype(np.float32)
    errors = Moments(len(problem.constant))
    for rows, returns in life.chunks(part):
        predictions = life.live.dense(life.rows.tiles[rows[::every]]) @ theta + problem.constant
        errors.add((predictions - returns[::every]) ** 2)
    return errors.mean


def autoregression(life: NextingLife, fitted: list[range], test: range) -> Floats:
    """Return the mean squared errors of least squares on each sensor's last readings at 8 s, shape (n_sensors,)."""
    n_sensors = len(life.asked.interface.sensors)
    A = np.zeros((n_sensors, LAGS + 1, LAGS + 1))
    b = np.zeros((n_sensors, LAGS + 1, 1))
    for part in fitted:
        for lags, returns in _lags(life, part):
            A += lags.swapaxes(1, 2) @ lags
            b += lags.swapaxes(1, 2) @ returns
    theta = np.linalg.pinv(A, hermitian=True) @ b
    errors = Moments(n_sensors)
    for lags, returns in _lags(life, test):
        errors.add(((lags @ theta - returns)[..., 0] ** 2).T)
    return errors.mean


def _lags(life: NextingLife, part: range) -> Iterator[tuple[Floats, Floats]]:
    """Yield 1 and the last readings, (n_sensors, n_rows, 21), and the returns at 8 s, (n_sensors, n_rows, 1)."""
    sensors = list(life.asked.interface.sensors)
    observation = life.training_data.stream.rows["observation"]
    for rows, returns in life.chunks(part):
        returns = returns[rows >= LAGS]
        rows = rows[rows >= LAGS]
        windows = sliding_window_view(
            observation[rows[0] - LAGS + 1 : rows[-1] + 1, sensors], LAGS, axis=0
        )
        lags = windows[rows - rows[0]].swapaxes(0, 1).astype(np.float64)
        yield np.insert(lags, 0, 1.0, axis=2), returns[:, life.asked.of_longest].T[..., None]


# ---- the measurements -----------------------------------------------------------------------------------------------


@cached(OnlineErrors)
def _learn(context: ExperimentContext, path: Path, size: NextingSize) -> OnlineErrors:
    question_set = NextingQuestions(interface_of(context), size.bits)
    horde = compiled_horde(question_set.interface, question_set.questions(), config=CONFIG)
    return learn_life(NextingLife(read(path), question_set), horde, size.window)


@cached(OfflineErrors)
def _solve(context: ExperimentContext, path: Path, size: NextingSize) -> OfflineErrors:
    life = NextingLife(read(path), NextingQuestions(interface_of(context), size.bits))
    first, half, late, end = (
        window(k, size.window).start
        for k in (N_WINDOWS * 2 // 5, N_WINDOWS // 2, N_WINDOWS - 2, N_WINDOWS)
    )
    return offline(life, range(first, half), range(late, end))


def _time_many(context: ExperimentContext, path: Path, size: NextingSize) -> Floats:
    """Return the duration of each step with the larger set of questions, in milliseconds; a job."""
    question_set = NextingQuestions(interface_of(context), size.many_bits, events=())
    horde = compiled_horde(question_set.interface, question_set.questions(), config=CONFIG)
    return learn(TrainingData(read(path)[: size.many_steps]), horde, question_set.interface).ms


class RealLog(NamedTuple):
    """NMSE in the last 30 % of the real robot's log, each (n_questions,)."""

    td: Floats  # of TD(lambda) after 30 passes through the rest, with its weights frozen
    ridge: Floats  # of ridge regression on the rest
    varies: Bools  # whether the returns vary there


@cached(RealLog)
def _learn_log(context: ExperimentContext, size: NextingSize) -> RealLog:
    env = make_body("replay", log=REAL_LOG)
    question_set = NextingQuestions(Interface.of(env), size.bits, REAL_SCALES_S, events=())
    stream = Stream(np.concatenate([part.rows for part in PlayedLog(env)]))
    env.close()
    life = NextingLife(stream, question_set)
    n = int(LEARNED_SHARE * len(stream))
    horde = question_set.horde(CONFIG)
    first = TrainingData(stream[:n])
    test = range(n, len(stream))
    for _ in range(2 if context.is_quick else REAL_PASSES):
        learn(first, horde, question_set.interface)
    theta = horde.weights()[0][:, life.live.index].T
    errors = Moments(horde.n_demons)
    variance = Moments(horde.n_demons)
    for rows, returns in life.chunks(test):
        errors.add((life.live.dense(life.rows.tiles[rows]) @ theta - returns) ** 2)
        variance.add(returns)
    half = offline(life, range(n * 3 // 4, n), test).half
    td, ridge = (normalise(error, variance.variance()) for error in (errors.mean, half))
    return RealLog(td, ridge, variance.variance() >= NO_VARIANCE)


class NextingResults(NamedTuple):
    """Everything that was measured."""

    asked: NextingQuestions  # the questions
    size: NextingSize  # lengths
    learned: list[OnlineErrors]  # by life
    offline: list[OfflineErrors]  # by life
    # Duration of each step with more questions, in the first life, shape (n_steps,)
    many_ms: Floats
    log: RealLog | None  # from the real robot's log; None without it


def lives(context: ExperimentContext) -> list[LifeSpec]:
    """Return the lives: each has all windows, and the returns of the last one."""
    steps = (
        N_WINDOWS * SIZES[context.scale].window + 1 + terms_needed(1.0 - 0.1 / TIME_SCALES_S[-1])
    )
    return [
        LifeSpec(s, steps, "behaviour", behaviour=wall_follower, physics="planar")
        for s in context.seeds
    ]


def run(context: ExperimentContext) -> tuple[NextingResults, dict[str, object]]:
    """Simulate the lives, learn from them, and solve them off-line."""
    recordings = simulate_lives(context, lives(context))
    size = SIZES[context.scale]
    jobs: dict[Any, Job] = {
        (work, seed): Job(f"{name}, life {seed}", work, (context, path, size), 2.0)
        for name, work in (("off-line solutions", _solve), ("learning", _learn))
        for seed, path in recordings.items()
    }
    jobs[_time_many] = Job(
        "more questions", _time_many, (context, recordings[context.seeds[0]], size), 0.5
    )
    if REAL_LOG.exists():
        jobs[_learn_log] = Job("the real robot's log", _learn_log, (context, size), 0.5)
    results = context.in_parallel(jobs)
    learned, solved = ([results[work, seed] for seed in context.seeds] for work in (_learn, _solve))
    question_set = NextingQuestions(interface_of(context), size.bits)
    return NextingResults(
        question_set, size, learned, solved, results[_time_many], results.get(_learn_log)
    ), {
        "steps scored": N_WINDOWS * size.window,
        "questions": len(question_set.scale),
        "time scales (s)": TIME_SCALES_S,
        "seed of the feature bits": BITS_SEED,
        "seed of the life on which behaviour and events were chosen": TUNING_SEED,
        "rule": "TD(lambda), lambda .9, alpha .1 / active features",
        "ridges": RIDGES,
    }


# ---- checks ---------------------------------------------------------------------------------------------------------

EARLY = 3
"""Windows in the first 30 minutes."""
LAST = slice(N_WINDOWS - 2, N_WINDOWS)
DEADLINE_MS = 100.0
BELOW_1 = at_least(0.75)
NEAR = at_most(0.10)
"""Share of questions with an NMSE below 1, and the excess of an NMSE over that of an off-line solution."""


class Groups:
    """The questions with returns that vary in each life, `varies` of shape (n_lives, n_questions), by time scale."""

    def __init__(self, asked: NextingQuestions, varies: Bools) -> None:
        self.asked = asked
        self.varies = varies

    def medians(self, values: Floats, which: Bools | None = None) -> Floats:
        """Return the medians of values, (..., n_lives, n_questions), (of `which`), shape (..., n_lives, n_scales)."""
        return self._of_scales(np.nanmedian, values, which)

    def below_1(self, values: Floats, which: Bools) -> Floats:
        """Return the shares of the values of `which` that are below 1; shapes as in `medians`."""
        return self._of_scales(np.nanmean, values < 1.0, which)

    def _of_scales(self, statistic: Any, values: Floats | Bools, which: Bools | None) -> Floats:
        kept_values = np.where(
            self.varies if which is None else self.varies & which, values, np.nan
        )
        scales = range(len(self.asked.scales_s))
        return np.stack(
            [statistic(kept_values[..., self.asked.scale == k], axis=-1) for k in scales], axis=-1
        )


class NextingScores(Groups):
    """The NMSE of every question, (..., n_lives, n_questions); `online` and `frozen` in the last 20 minutes."""

    def __init__(self, data: NextingResults) -> None:
        variance = np.array([life.variance for life in data.learned])
        super().__init__(data.asked, variance >= NO_VARIANCE)
        errors_of_lives = zip(
            *((life.online, life.frozen, life.zero) for life in data.learned), strict=True
        )
        online, frozen, zero = (np.stack(errors, axis=1) for errors in errors_of_lives)
        half, whole = map(
            np.array, zip(*((life.half, life.whole) for life in data.offline), strict=True)
        )
        self.curve, self.frozen_curve, self.zero, self.half, self.whole = (
            normalise(error, variance) for error in (online, frozen, zero[0], half, whole)
        )
        self.online = self.curve[LAST].mean(axis=0)
        self.frozen = self.frozen_curve[LAST].mean(axis=0)

    @property
    def share_reached(self) -> Floats:
        """Share of the improvement that is reached after 30 minutes, by time scale and over all, (n_lives, 5)."""
        curves = (self.medians(v) for v in (self.zero, self.curve[EARLY - 1], self.curve[-1]))
        first, early, last = (
            np.column_stack([values, np.median(values, axis=1)]) for values in curves
        )
        return np.asarray((first - early) / (first - last))


def _of_scales(values_of_scales: Floats) -> dict[str, Floats]:
    """Return values, (n_lives, n_scales), or with a last column over all, by the scale's name."""
    names = [*(f"{scale:g} s" for scale in TIME_SCALES_S), "over all"]
    return dict(zip(names, np.transpose(values_of_scales), strict=False))


def _by_scale(values_of_scales: Floats, form: str = ".3g") -> str:
    return join(
        f"{scale} {values.mean():{form}}" for scale, values in _of_scales(values_of_scales).items()
    )


def _numbers_by_scale(what: str, values_of_scales: Floats, limit: Limit) -> list[Number]:
    return [
        Number(f"{what} {scale}".strip(), values, limit, ".0%")
        for scale, values in _of_scales(values_of_scales).items()
    ]


_WHAT = "Medians are over the questions with returns that vary, first within a time scale."


@check(
    claim="Thousands of predictions are made and learned in real time.",
    paper=(
        "thousands of predictions, each from six thousand features, ten or more updates a "
        "second on a laptop"
    ),
    source="abstracts (2012, 2014)",
    terms="Milliseconds, features and predictions included, while other jobs ran:",
    limit=below(DEADLINE_MS),
    form=".2f",
)
def _learning_is_in_real_time(data: NextingResults) -> Measured:
    n_many = len(TIME_SCALES_S) * (len(data.asked.interface.sensors) + data.size.many_bits)
    ms_of_updates: dict[str, ArrayLike] = {}
    faster = []
    for n, times in (
        (len(data.asked.scale), [life.ms for life in data.learned]),
        (n_many, [data.many_ms]),
    ):
        means = [ms.mean() for ms in times]
        late = [np.percentile(ms, 99) for ms in times]
        ms_of_updates[f"{n:,} predictions, mean"] = means
        ms_of_updates[f"{n:,} predictions, 99th percentile"] = late
        faster.append(DEADLINE_MS / np.mean(means))
    return Measured(ms_of_updates, f"On average {join(faster, '.0f')} times faster than real time.")


@check(
    claim="Most of the learning takes place within 30 minutes.",
    paper="substantial accuracy within 30 minutes",
    source="abstract (2014)",
    terms=f"{_WHAT} Share of the improvement by time scale:",
)
def _half_an_hour_suffices(data: NextingResults) -> Measured:
    scores = NextingScores(data)
    *each, of_all = _numbers_by_scale("", scores.share_reached, at_least(0.5))
    early, last = (_by_scale(scores.medians(scores.curve[k])) for k in (EARLY - 1, -1))
    return Measured(
        [*each, of_all._replace(limit=at_least(0.8))],
        f"Median NMSE in minutes 20-30: {early}; in the last ten: {last}. Most of the improvement is the mean of the "
        "return, which weights of 0 lack.",
    )


@check(
    claim="On-line predictions come near the best off-line solution.",
    paper="accuracy compares favourably with the optimal off-line solution",
    source="abstract (2014)",
    terms=(
        f"{_WHAT} NMSE in the last 20 minutes against ridge regression on the first half (b) "
        "and on the whole life (a):"
    ),
)
def _online_is_near_offline(data: NextingResults) -> Measured:
    scores = NextingScores(data)
    excess, frozen = (
        scores.medians(errors - scores.half) for errors in (scores.online, scores.frozen)
    )
    ratio = scores.medians(scores.online / np.maximum(scores.whole, 1e-12))
    return Measured(
        [
            Number("median of online minus (b)", np.median(np.mean(excess, axis=0)), NEAR),
            Number("median of online over (a)", np.median(np.mean(ratio, axis=0)), at_most(2.0)),
        ],
        f"Minus (b): {_by_scale(excess)}; over (a): {_by_scale(ratio)}.",
        f"The same weights, frozen for ten minutes, exceed (b) by {_by_scale(frozen)}: the rest comes "
        "from weights that move at each step, and grows with the time scale.",
    )


@check(
    claim="One representation serves many signals and time scales.",
    paper="the same features for all signals and time scales",
    source="abstract (2014)",
    terms="Share of the questions that vary with an NMSE below 1 in the last 20 minutes:",
)
def _one_representation_serves(data: NextingResults) -> Measured:
    scores = NextingScores(data)
    is_bit = ~data.asked.is_sensor
    frozen, half = (
        _by_scale(scores.below_1(errors, is_bit), ".0%") for errors in (scores.frozen, scores.half)
    )
    return Measured(
        _numbers_by_scale("sensors", scores.below_1(scores.online, ~is_bit), BELOW_1)
        + _numbers_by_scale("feature bits", scores.below_1(scores.online, is_bit), BELOW_1),
        cause=f"Of the feature bits with frozen weights {frozen}; of the off-line solution (b) {half}.",
    )


@check(
    claim="Discounts that depend on the state are learned too.",
    paper="also with state-dependent discounting",
    source="abstract (2014)",
    terms=(
        "NMSE of six questions; each must be below 1, and at most .15 above the NMSE of ridge "
        "regression (b):"
    ),
)
def _events_are_learned(data: NextingResults) -> Measured:
    scores = NextingScores(data)
    online, half, frozen = (
        errors[:, -len(EVENTS) :].mean(axis=0)
        for errors in (scores.online, scores.half, scores.frozen)
    )
    limits = [below(1.0) if most >= 1.0 else at_most(most) for most in half + 0.15]
    return Measured(
        [
            Number(str(event), of, limit, ".3f")
            for event, of, limit in zip(EVENTS, online, limits, strict=True)
        ],
        f"Off-line (b): {join(half, '.3f')}.",
        f"With weights frozen for ten minutes: {join(frozen, '.2f')}.",
    )


@check(
    claim="The features predict better than autoregression on the same sensor.",
    paper="accuracy compares favourably with autoregression",
    source="abstract (2011 version)",
    terms=f"At 8 s, against least squares on the last {LAGS} readings:",
    limit=at_least(0.5),
)
def _features_beat_autoregression(data: NextingResults) -> Measured:
    longest = data.asked.of_longest
    variance = np.array([life.variance[longest] for life in data.learned])
    autoregression = normalise(np.array([life.autoregression for life in data.offline]), variance)
    online = NextingScores(data).online
    medians = [np.median(errors, axis=1).mean() for errors in (online[:, longest], autoregression)]
    return Measured(
        {
            "share of the sensors with a lower NMSE": (online[:, longest] < autoregression).mean(
                axis=1
            )
        },
        f"Median {medians[0]:.2f}, autoregression {medians[1]:.2f}.",
    )


@check(
    claim="The real robot's log: near the off-line solution, and one representation for all.",
    paper="as above",
    source="abstract (2014)",
    terms=(
        f"Up to 2 s, with frozen weights on the last 30 % of 99.7 s after {REAL_PASSES} passes "
        "over the rest:"
    ),
)
def _real_log_is_near_offline(data: NextingResults) -> Measured | None:
    if data.log is None:
        return None
    log = data.log
    asked_of_log = NextingQuestions(data.asked.interface, data.size.bits, REAL_SCALES_S, events=())
    groups = Groups(asked_of_log, log.varies[None])
    excess = groups.medians((log.td - log.ridge)[None])
    numbers = [Number("TD(lambda) minus off-line (b), median", np.median(excess), NEAR)]
    offline = []
    for name, kind in (
        ("sensors", asked_of_log.is_sensor),
        ("feature bits", ~asked_of_log.is_sensor),
    ):
        numbers += _numbers_by_scale(
            f"share of {name} with an NMSE below 1,", groups.below_1(log.td[None], kind), BELOW_1
        )
        offline.append(f"{name} {_by_scale(groups.below_1(log.ridge[None], kind), '.0%')}")
    return Measured(
        numbers,
        f"Minus off-line: {_by_scale(excess)}. The shares off-line: {'; '.join(offline)}.",
        "The best linear predictor of the first 70 s does not transfer to the last 30 s either.",
    )


REMARKS = (
    "This is the simulated robot (planar engine), so absolute errors are not the paper's; pen and wall follower "
    "are this program's. Timing, the order of methods and the shape of curves can be compared.",
    "An online prediction may use the return's recent past through its moving weights; frozen weights cannot.",
)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: NextingResults) -> dict[str, Picture]:
    """Draw the learning curves by time scale, and the NMSE of every sensor against the off-line solution's."""
    scores = NextingScores(data)
    canvas, (left, right) = new_canvas(9.0, 3.4, 2)
    minutes = (np.arange(N_WINDOWS) + 1) * data.size.window * data.asked.interface.period_s / 60
    online, frozen = (
        scores.medians(curve).mean(axis=1) for curve in (scores.curve, scores.frozen_curve)
    )
    half = scores.medians(scores.half).mean(axis=0)
    for k, scale in enumerate(TIME_SCALES_S):
        left.plot(minutes, online[:, k], "-", color=COLOURS[k], label=f"{scale:g} s")
        left.plot(minutes, frozen[:, k], ":", color=COLOURS[k])
        left.axhline(half[k], color=COLOURS[k], lw=0.7, ls="--")
        in_scale = scores.varies[0] & data.asked.is_sensor & (data.asked.scale == k)
        right.plot(
            scores.half[0, in_scale],
            scores.online[0, in_scale],
            ".",
            ms=4,
            color=COLOURS[k],
            label=f"{scale:g} s",
        )
    right.plot([1e-3, 10], [1e-3, 10], color="0.6", lw=0.8)
    style_axes(
        left,
        "median NMSE; dotted: frozen weights",
        legend=True,
        xlabel="minutes of life",
        yscale="log",
    )
    labels = {"xlabel": "NMSE of the off-line solution of the first half", "ylabel": "NMSE online"}
    style_axes(
        right,
        "each sensor in the last 20 minutes",
        legend=False,
        xscale="log",
        yscale="log",
        **labels,
    )
    caption = (
        "Left: median NMSE of all questions that vary, by time scale; dashed: ridge regression on the first half. "
        "Right: every sensor of the first life; below the line TD(lambda) is better."
    )
    return {"nexting": Picture(canvas, caption)}


def tables(data: NextingResults) -> list[Table]:
    """Return the medians and shares by time scale and kind of target, means over the lives."""
    scores = NextingScores(data)
    rows = []
    columns = {"online": scores.online, "frozen weights": scores.frozen}
    columns |= {"off-line (b), first half": scores.half, "off-line (a), whole life": scores.whole}
    for kind, which in (("sensors", data.asked.is_sensor), ("feature bits", ~data.asked.is_sensor)):
        below = scores.below_1(scores.online, which).mean(axis=0)
        medians = {
            name: scores.medians(errors, which).mean(axis=0) for name, errors in columns.items()
        }
        for k, scale in enumerate(TIME_SCALES_S):
            errors = {name: of_scales[k] for name, of_scales in medians.items()}
            rows.append(
                {
                    "targets": kind,
                    "time scale (s)": scale,
                    **errors,
                    "online below 1": f"{below[k]:.0%}",
                }
            )
    note = "Median NMSE in the last 20 minutes of the questions with returns that vary; means over the lives."
    return [Table.of("NMSE by time scale", rows, note)]
