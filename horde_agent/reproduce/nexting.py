"""Experiment `nexting`: learning on-line, the off-line solutions, autoregression, and the real robot's log.

The paper's full text was not available: claims and counts are those of its abstracts, limits are proposals that were
fixed before the run. Source: Modayil, White & Sutton (2012, 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from horde_agent.horde import LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.measures.nmsre import NO_VARIANCE, normalise
from horde_agent.record import read
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lessons import TrainingData, learn
from horde_agent.reproduce.lives import LifeSpec, interface_of, open_recorder, simulate_lives
from horde_agent.reproduce.nexting_life import (
    BITS_SEED,
    EVENTS,
    FROZEN_EVERY,
    N_WINDOWS,
    TIME_SCALES_S,
    TUNING_SEED,
    Asked,
    Learned,
    NextingLife,
    StepTimes,
    learn_life,
    steps_of_life,
    wall_follower,
    window,
)
from horde_agent.reproduce.offline import RIDGES, Problem, blocks
from horde_agent.reproduce.study import Job, OnProgress, Study, cached
from horde_agent.runs.jobs.holdout import LEARNED_SHARE, Moments, read_log
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats

CONFIG = LearnerConfig(algorithm="td", vector_mspbe=False)
"""TD(lambda) with lambda .9 and alpha .1 over the active features."""
LAGS = 20
"""Readings that autoregression sees."""


class Size(NamedTuple):
    """Rows of a window, feature bits of the questions learned and of the larger set that is timed, steps timed."""

    window: int
    bits: int
    many_bits: int
    many_steps: int


SIZES = {"paper": Size(6_000, 487, 1_447, 6_000), "quick": Size(150, 40, 80, 300)}
REAL_LOG = Path(__file__).resolve().parents[3] / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"
REAL_SCALES_S, REAL_PASSES = (0.1, 0.5, 2.0), 30
"""The log of 99.7 s is too short for returns over 8 s; passes as in `horde learn`."""


# ---- off-line solutions ---------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Use of the rows of a life: fitted, choosing the ridge, fitted in the whole life only, and scored."""

    fits: range
    chooses: range
    rest: range
    test: range

    @classmethod
    def of_windows(cls, size: int) -> Parts:
        """Return the parts of a life: its first half, of it a fifth to choose; the last two windows are scored."""
        at = [window(k, size).start for k in (0, N_WINDOWS * 2 // 5, N_WINDOWS // 2, N_WINDOWS - 2, N_WINDOWS)]
        return cls(range(at[0], at[1]), range(at[1], at[2]), range(at[2], at[4]), range(at[3], at[4]))


class Offline(NamedTuple):
    """Mean squared errors of off-line predictors in the scored part."""

    half: Floats  # of ridge regression on the first half of the life, shape (n_questions,)
    whole: Floats  # the same on all of it
    autoregression: Floats  # on the sensor's last 20 readings, fitted on the first half, (n_scales, n_sensors)


def offline(life: NextingLife, parts: Parts, on_progress: OnProgress) -> Offline:
    """Return how well the off-line solutions predict."""
    mean = Moments(len(life.asked.scale))
    for _, returns in life.chunks(parts.fits):
        mean.add(returns)
    problem = Problem(life.live, mean.mean, len(life.lessons.stream))
    _add(life, problem, parts.fits)
    scores = [_errors(life, problem, np.full(mean.mean.shape, r), parts.chooses, FROZEN_EVERY) for r in RIDGES]
    ridge = np.array(RIDGES)[np.argmin(scores, axis=0)]
    on_progress(0.4)
    _add(life, problem, parts.chooses)
    half = _errors(life, problem, ridge, parts.test)
    on_progress(0.6)
    _add(life, problem, parts.rest)
    whole = _errors(life, problem, ridge, parts.test)
    return Offline(half, whole, autoregression(life, [parts.fits, parts.chooses], parts.test))


def _add(life: NextingLife, problem: Problem, part: range) -> None:
    for rows, returns in life.chunks(part):
        for block in blocks(len(rows)):
            phi = life.live.dense(life.rows.tiles(rows[block]))
            problem.add(phi, phi, (returns[block] - problem.constant).astype(np.float32))


def _errors(life: NextingLife, problem: Problem, ridge: Floats, part: range, every: int = 1) -> Floats:
    """Return the mean squared errors of the solutions, with each question's ridge, shape (n_questions,)."""
    theta = np.empty((life.live.n, len(ridge)), np.float32)
    for strength in np.unique(ridge):
        chosen = np.flatnonzero(ridge == strength)
        theta[:, chosen] = problem.solve(float(strength), chosen)
    errors = Moments(len(ridge))
    for rows, returns in life.chunks(part):
        predictions = life.live.dense(life.rows.tiles(rows[::every])) @ theta + problem.constant
        errors.add((predictions - returns[::every]) ** 2)
    return errors.mean


def autoregression(life: NextingLife, fitted: list[range], test: range) -> Floats:
    """Return the mean squared errors of least squares on each sensor's last readings, shape (n_scales, n_sensors)."""
    asked = life.asked
    n_sensors, n_scales = len(asked.interface.sensors), len(asked.scales_s)
    A, b = np.zeros((n_sensors, LAGS + 1, LAGS + 1)), np.zeros((n_sensors, LAGS + 1, n_scales))
    for part in fitted:
        for lags, returns in _lags(life, part):
            A += lags.swapaxes(1, 2) @ lags
            b += lags.swapaxes(1, 2) @ returns
    theta = np.linalg.pinv(A, hermitian=True) @ b
    errors = Moments(n_sensors * n_scales)
    for lags, returns in _lags(life, test):
        errors.add(((lags @ theta - returns) ** 2).transpose(1, 2, 0).reshape(len(returns[0]), -1))
    return errors.mean.reshape(n_scales, n_sensors)


def _lags(life: NextingLife, part: range) -> list[tuple[Floats, Floats]]:
    """Return 1 and the last readings, (n_sensors, n_rows, 21), and the returns, (n_sensors, n_rows, n_scales)."""
    asked, found = life.asked, []
    sensors, observation = list(asked.interface.sensors), life.lessons.stream.rows["observation"]
    for rows, returns in life.chunks(part):
        rows, returns = rows[rows >= LAGS], returns[rows >= LAGS]
        seen = sliding_window_view(observation[rows[0] - LAGS + 1 : rows[-1] + 1, sensors], LAGS, axis=0)
        lags = seen[rows - rows[0]].swapaxes(0, 1).astype(np.float64)
        lags = np.concatenate([np.ones((*lags.shape[:2], 1)), lags], axis=2)
        found.append((lags, returns[:, asked.is_sensor].reshape(len(rows), -1, len(sensors)).transpose(2, 0, 1)))
    return found


# ---- the measurements -----------------------------------------------------------------------------------------------


@cached(Learned)
def _learn(on_progress: OnProgress, study: Study, path: Path, size: Size) -> Learned:
    return learn_life(NextingLife(read(path), Asked(interface_of(study), size.bits)), CONFIG, size.window, on_progress)


@cached(Offline)
def _solve(on_progress: OnProgress, study: Study, path: Path, size: Size) -> Offline:
    life = NextingLife(read(path), Asked(interface_of(study), size.bits))
    return offline(life, Parts.of_windows(size.window), on_progress)


def _time_many(on_progress: OnProgress, study: Study, path: Path, size: Size) -> Floats:
    """Return the duration of each step with the larger set of questions, in milliseconds; a job."""
    interface = interface_of(study)
    horde, times = Asked(interface, size.many_bits, events=()).horde(CONFIG), StepTimes()
    warm_up(horde, interface)
    learn(TrainingData(read(path)[: size.many_steps]), horde, interface, after=times)
    on_progress(1.0)
    return np.array(times.ms)


class RealLog(NamedTuple):
    """NMSE in the last 30 % of the real robot's log, each (n_questions,)."""

    td: Floats  # of TD(lambda) after 30 passes through the rest, with its weights frozen
    ridge: Floats  # of ridge regression on the rest
    varies: Bools  # whether the returns vary there


@cached(RealLog)
def _learn_log(on_progress: OnProgress, study: Study, size: Size) -> RealLog:
    def record(path: Path) -> None:
        env = make_body("replay", log=REAL_LOG)
        interface = Interface.of(env)
        with open_recorder(interface, path, 0) as recorder:
            read_log(env, recorder)
        env.close()

    stream = read(study.cached("nexting-log.rec", record))
    env = make_body("replay", log=REAL_LOG)
    asked = Asked(Interface.of(env), size.bits, REAL_SCALES_S, events=())
    env.close()
    life, n = NextingLife(stream, asked), int(LEARNED_SHARE * len(stream))
    horde, first = asked.horde(CONFIG), TrainingData(stream[:n])
    for k in range(2 if study.is_quick else REAL_PASSES):
        learn(first, horde, asked.interface)
        on_progress(k / REAL_PASSES)
    theta = horde.weights()[0][:, life.live.index].T
    errors, variance = Moments(horde.n_demons), Moments(horde.n_demons)
    for rows, returns in life.chunks(range(n, len(stream))):
        errors.add((life.live.dense(life.rows.tiles(rows)) @ theta - returns) ** 2)
        variance.add(returns)
    parts = Parts(range(1, n * 3 // 4), range(n * 3 // 4, n), range(0), range(n, len(stream)))
    solved = offline(life, parts, lambda _: None)
    td, ridge = (normalise(error, variance.variance()) for error in (errors.mean, solved.half))
    return RealLog(td, ridge, variance.variance() >= NO_VARIANCE)


class Data(NamedTuple):
    """Everything that was measured."""

    asked: Asked  # the questions
    size: Size  # lengths
    learned: list[Learned]  # by life
    offline: list[Offline]  # by life
    many_ms: Floats  # duration of each step with more questions, in the first life, shape (n_steps,)
    log: RealLog | None  # from the real robot's log; None without it


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives."""
    steps = steps_of_life(SIZES[study.scale].window)
    return [LifeSpec(s, steps, "behaviour", behaviour=wall_follower, physics="planar") for s in study.seeds]


def gather(study: Study) -> Data:
    """Simulate the lives, learn from them, and solve them off-line."""
    paths, size = simulate_lives(study, lives(study)), SIZES[study.scale]
    lived = list(zip(study.seeds, paths, strict=True))
    jobs = [Job(f"off-line solutions, life {seed}", _solve, (study, path, size), 2.0) for seed, path in lived]
    jobs += [Job(f"learning, life {seed}", _learn, (study, path, size), 2.0) for seed, path in lived]
    jobs += [Job("more questions", _time_many, (study, paths[0], size), 0.5)]
    jobs += [Job("the real robot's log", _learn_log, (study, size), 0.5)] if REAL_LOG.exists() else []
    found, n = study.in_parallel(jobs), len(paths)
    log = found[2 * n + 1] if REAL_LOG.exists() else None
    return Data(Asked(interface_of(study), size.bits), size, found[n : 2 * n], found[:n], found[2 * n], log)


# ---- claims ----------------------------------------------------------------------------------------------------------


EARLY = 3
"""Windows in the first 30 minutes."""
LAST = slice(N_WINDOWS - 2, N_WINDOWS)
DEADLINE_MS, LEAST_SHARE, LEAST_SHARE_OF_ALL, LEAST_BELOW_1 = 100.0, 0.5, 0.8, 0.75
MOST_EXCESS, MOST_RATIO, MOST_EXCESS_OF_EVENT = 0.10, 2.0, 0.15


class Life:
    """The NMSE of every question in one life, each (..., n_questions); `online` and what follows in the last 20 min."""

    def __init__(self, data: Data, number: int) -> None:
        learned, solved = data.learned[number], data.offline[number]
        self.asked, self.ms, self.varies = data.asked, learned.ms, learned.variance >= NO_VARIANCE
        self.curve, self.frozen_curve, self.zero, self.half, self.whole = (
            normalise(error, learned.variance)
            for error in (learned.online, learned.frozen, learned.zero[0], solved.half, solved.whole)
        )
        self.online, self.frozen = self.curve[LAST].mean(axis=0), self.frozen_curve[LAST].mean(axis=0)
        longest = self.asked.is_sensor & (self.asked.scale == len(TIME_SCALES_S) - 1)
        self.autoregression = normalise(solved.autoregression[-1], learned.variance[longest])
        self.of_longest = self.online[longest]

    def at(self, scale: int, which: Bools | None = None) -> Bools:
        """Return the questions of a time scale (of `which`) with returns that vary, shape (n_questions,)."""
        found = (self.asked.scale == scale) & self.varies
        return np.asarray(found if which is None else found & which)

    def medians(self, values: Floats, which: Bools | None = None) -> Floats:
        """Return the medians over the questions of each time scale, shape (n_scales,)."""
        return np.array([np.median(values[self.at(k, which)]) for k in range(len(TIME_SCALES_S))])

    @property
    def share_reached(self) -> Floats:
        """Share of the improvement that is reached after 30 minutes, by time scale and over all, shape (5,)."""
        first, early, last = (self.medians(v) for v in (self.zero, self.curve[EARLY - 1], self.curve[-1]))
        first, early, last = (np.append(values, np.median(values)) for values in (first, early, last))
        return np.asarray((first - early) / (first - last))

    def below_1(self, which: Bools, values: Floats | None = None) -> Floats:
        """Return the share of the questions of `which` with an NMSE below 1, by time scale, shape (n_scales,)."""
        values = self.online if values is None else values
        return np.array([np.mean(values[self.at(k, which)] < 1.0) for k in range(len(TIME_SCALES_S))])


def scores_of(data: Data) -> list[Life]:
    """Return the scores of all lives."""
    return [Life(data, k) for k in range(len(data.learned))]


def _means(found: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(found, axis=0))


def _by_scale(found: Sequence[Floats], form: Callable[[float], str] = "{:.3g}".format) -> str:
    """Return the means over the lives of values by time scale, (n_scales,) for each life, as text."""
    scales = [*(f"{scale:g} s" for scale in TIME_SCALES_S), "over all"]
    return ", ".join(f"{scale} {form(value)}" for scale, value in zip(scales, _means(found), strict=False))


_WHAT = "Medians are over the questions with returns that vary, first within a time scale."
CLAIMS = Claims("abstract (2014)")


@CLAIMS.add(
    "Thousands of predictions are made and learned in real time.",
    "thousands of predictions, each from six thousand features, ten or more updates a second on a laptop",
    f"Mean and 99th percentile of a step below {DEADLINE_MS:g} ms with both numbers of questions.",
    source="abstracts (2012, 2014)",
)
def _real_time(data: Data) -> Finding:
    n_many = len(TIME_SCALES_S) * (len(data.asked.interface.sensors) + data.size.many_bits)
    steps = {len(data.asked.scale): [life.ms for life in data.learned], n_many: [data.many_ms]}
    parts, words = [], []
    for n, times in steps.items():
        mean, late = np.mean([ms.mean() for ms in times]), np.mean([np.percentile(ms, 99) for ms in times])
        parts += [mean < DEADLINE_MS, late < DEADLINE_MS]
        words.append(
            f"{n:,} predictions: mean {mean:.2f} ms, 99th percentile {late:.2f} ms, on average "
            f"{DEADLINE_MS / mean:.0f} times faster than real time"
        )
    return Finding(
        f"{'; '.join(words)}; features and predictions included, while other jobs ran.", list(map(bool, parts))
    )


@CLAIMS.add(
    "Most of the learning takes place within 30 minutes.",
    "substantial accuracy within 30 minutes",
    f"Share of the improvement >= {LEAST_SHARE:g} at each time scale, >= {LEAST_SHARE_OF_ALL:g} over all. {_WHAT}",
)
def _half_an_hour(data: Data) -> Finding:
    shares = [life.share_reached for life in scores_of(data)]
    limits = [LEAST_SHARE] * len(TIME_SCALES_S) + [LEAST_SHARE_OF_ALL]
    early, last = (_by_scale([life.medians(life.curve[k]) for life in scores_of(data)]) for k in (EARLY - 1, -1))
    return Finding(
        f"Share of the improvement: {_by_scale(shares, '{:.1%}'.format)}. Median NMSE in minutes 20-30: {early}; in "
        f"the last ten: {last}. Most of the improvement is the mean of the return, which weights of 0 lack.",
        list(_means(shares) >= limits),
    )


@CLAIMS.add(
    "On-line predictions come near the best off-line solution.",
    "accuracy compares favourably with the optimal off-line solution",
    f"Medians in the last 20 minutes: NMSE at most {MOST_EXCESS:g} above ridge regression on the first half (b), "
    f"at most {MOST_RATIO:g} times that of ridge regression on the whole life (a). {_WHAT}",
)
def _near_offline(data: Data) -> Finding:
    excess = [life.medians(life.online - life.half) for life in scores_of(data)]
    ratio = [life.medians(life.online / np.maximum(life.whole, 1e-12)) for life in scores_of(data)]
    frozen = [life.medians(life.frozen - life.half) for life in scores_of(data)]
    medians = [float(np.median(_means(each))) for each in (excess, ratio)]
    return Finding(
        f"Online minus off-line (b): {_by_scale(excess)}, median {medians[0]:.3g}. Online over off-line (a): "
        f"{_by_scale(ratio)}, median {medians[1]:.3g}.",
        [medians[0] <= MOST_EXCESS, medians[1] <= MOST_RATIO],
        f"The same weights, frozen for ten minutes, exceed (b) by {_by_scale(frozen)}: the rest comes "
        "from weights that move at each step, and grows with the time scale.",
    )


@CLAIMS.add(
    "One representation serves many signals and time scales.",
    "the same features for all signals and time scales",
    f"NMSE < 1 for at least {LEAST_BELOW_1:.0%} of the sensors and of the feature bits that vary, at each scale.",
)
def _one_representation(data: Data) -> Finding:
    found = {
        name: [life.below_1(which) for life in scores_of(data)]
        for name, which in (("sensors", data.asked.is_sensor), ("feature bits that vary", ~data.asked.is_sensor))
    }
    words = "; ".join(f"{name}: {_by_scale(shares, '{:.0%}'.format)}" for name, shares in found.items())
    frozen, half = (
        _by_scale(
            [life.below_1(~data.asked.is_sensor, getattr(life, name)) for life in scores_of(data)], "{:.0%}".format
        )
        for name in ("frozen", "half")
    )
    return Finding(
        f"Share of the questions with NMSE < 1 in the last 20 minutes. {words}.",
        [bool(share >= LEAST_BELOW_1) for shares in found.values() for share in _means(shares)],
        f"Of the feature bits with frozen weights {frozen}; of the off-line solution (b) {half}.",
    )


@CLAIMS.add(
    "Discounts that depend on the state are learned too.",
    "also with state-dependent discounting",
    f"Each of six questions: NMSE below 1, and at most {MOST_EXCESS_OF_EVENT:g} above ridge regression (b).",
)
def _events(data: Data) -> Finding:
    n = len(EVENTS)
    names = ("online", "half", "frozen")
    online, half, frozen = (_means([getattr(life, name)[-n:] for life in scores_of(data)]) for name in names)
    words = [f"{e}: {a:.2f} (off-line {b:.2f})" for e, a, b in zip(EVENTS, online, half, strict=True)]
    return Finding(
        f"NMSE online: {'; '.join(words)}.",
        list((online < 1.0) & (online <= half + MOST_EXCESS_OF_EVENT)),
        f"With weights frozen for ten minutes: {join(frozen, '.2f')}.",
    )


@CLAIMS.add(
    "The features predict better than autoregression on the same sensor.",
    "accuracy compares favourably with autoregression",
    f"At 8 s: a lower NMSE than least squares on the last {LAGS} readings on half of the sensors or more.",
    source="abstract (2011 version)",
)
def _autoregression(data: Data) -> Finding:
    wins = [float(np.mean(life.of_longest < life.autoregression)) for life in scores_of(data)]
    medians = [np.median([life.of_longest, life.autoregression], axis=1) for life in scores_of(data)]
    online, its = _means(medians)
    return Finding(
        f"At 8 s TD(lambda) has the lower NMSE on {mean_ci(wins)} of the sensors; median {online:.2f}, autoregression "
        f"{its:.2f}.",
        [float(np.mean(wins)) >= 0.5],
    )


@CLAIMS.add(
    "The real robot's log: near the off-line solution, and one representation for all.",
    "as above",
    f"As above up to 2 s, with frozen weights on the last 30 % of 99.7 s after {REAL_PASSES} passes over the rest.",
)
def _real_log(data: Data) -> Finding | None:
    if data.log is None:
        return None
    log, scales = data.log, range(len(REAL_SCALES_S))
    asked = Asked(data.asked.interface, data.size.bits, REAL_SCALES_S, events=())
    excess = np.array([np.median((log.td - log.ridge)[log.varies & (asked.scale == k)]) for k in scales])
    words, parts = [], [bool(np.median(excess) <= MOST_EXCESS)]
    for name, kind in (("sensors", asked.is_sensor), ("feature bits that vary", ~asked.is_sensor)):
        groups = [kind & log.varies & (asked.scale == k) for k in scales]
        td, ridge = (np.array([np.mean(of[group] < 1.0) for group in groups]) for of in (log.td, log.ridge))
        words.append(f"{name} {_by_scale([td], '{:.0%}'.format)} (off-line {_by_scale([ridge], '{:.0%}'.format)})")
        parts += list(td >= LEAST_BELOW_1)
    return Finding(
        f"TD(lambda) minus off-line (b), medians: {_by_scale([excess])}. NMSE < 1: {'; '.join(words)}.",
        parts,
        "The best linear predictor of the first 70 s, in parentheses, does not transfer to the last 30 s either.",
    )


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the learning curves by time scale, and the NMSE of every sensor beside the off-line solution's."""
    found = scores_of(data)
    canvas, (left, right) = new_canvas(9.0, 3.4, 2)
    minutes = (np.arange(N_WINDOWS) + 1) * data.size.window * data.asked.interface.period_s / 60
    for k, scale in enumerate(TIME_SCALES_S):
        for curve, style in (("curve", "-"), ("frozen_curve", ":")):
            medians = np.mean([[life.medians(row)[k] for row in getattr(life, curve)] for life in found], axis=0)
            left.plot(minutes, medians, style, color=COLOURS[k], label=f"{scale:g} s" if style == "-" else None)
        left.axhline(np.mean([life.medians(life.half)[k] for life in found]), color=COLOURS[k], lw=0.7, ls="--")
        mine = found[0].at(k, data.asked.is_sensor)
        right.plot(found[0].half[mine], found[0].online[mine], ".", ms=4, color=COLOURS[k], label=f"{scale:g} s")
    right.plot([1e-3, 10], [1e-3, 10], color="0.6", lw=0.8)
    style_axes(left, "median NMSE; dotted: frozen weights", legend=True, xlabel="minutes of life", yscale="log")
    labels = {"xlabel": "NMSE of the off-line solution of the first half", "ylabel": "NMSE online"}
    style_axes(right, "each sensor in the last 20 minutes", legend=False, xscale="log", yscale="log", **labels)
    caption = (
        "Left: median NMSE of all questions that vary, by time scale; dashed: ridge regression on the first half. "
        "Right: every sensor of the first life; below the line TD(lambda) is better."
    )
    return [save(canvas, folder / "nexting.png", caption)]


def tables(data: Data) -> list[Table]:
    """Return the medians and shares by time scale and kind of target, means over the lives."""
    found = scores_of(data)
    rows: list[dict[str, Cell]] = []
    for kind, which in (("sensors", data.asked.is_sensor), ("feature bits", ~data.asked.is_sensor)):
        below = _means([life.below_1(which) for life in found])
        medians = {
            name: _means([life.medians(getattr(life, name), which) for life in found])
            for name in ("online", "frozen", "half", "whole")
        }
        rows += [
            {
                "targets": kind,
                "time scale (s)": scale,
                "online": float(medians["online"][k]),
                "frozen weights": float(medians["frozen"][k]),
                "off-line (b), first half": float(medians["half"][k]),
                "off-line (a), whole life": float(medians["whole"][k]),
                "online below 1": f"{below[k]:.0%}",
            }
            for k, scale in enumerate(TIME_SCALES_S)
        ]
    note = "Median NMSE in the last 20 minutes of the questions with returns that vary; means over the lives."
    return [Table.of("NMSE by time scale", rows, note)]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    return {
        "seeds": study.seed_list,
        "steps scored": N_WINDOWS * data.size.window,
        "questions": len(data.asked.scale),
        "time scales (s)": join(TIME_SCALES_S, "g"),
        "seed of the feature bits": BITS_SEED,
        "seed of the life on which behaviour and events were chosen": TUNING_SEED,
        "rule": "TD(lambda), lambda .9, alpha .1 / active features",
        "ridges": join(RIDGES, "g"),
    }


REMARKS = (
    "This is the simulated robot (planar engine), so absolute errors are not the paper's; pen and wall follower "
    "are this program's. Timing, the order of methods and the shape of curves can be compared.",
    "An online prediction may use the return's recent past through its moving weights; frozen weights cannot.",
)
EXPERIMENT = Experiment("nexting", "Nexting", gather, CLAIMS, pictures, tables, settings, REMARKS, lives)
