"""The paper's second experiment: three measures of learning when the weights are lost, and when the world changes.

265 questions at gamma .8 learn from six hours of life. In one run theta := 0 after learning step 40,000, as in the
paper; in the other the lamp is moved at that step, which is the change that the paper speaks of and did not make.
Source: White, Modayil & Sutton (2012), section 5, figure 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.learning.rules import LearnerConfig
from horde_agent.life.bodies import LampMove
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import Stream, read
from horde_agent.reproduce import excursions as first_experiment
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lessons import TrainingData, latest_nmsre, learn
from horde_agent.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_life, simulate_lives
from horde_agent.reproduce.study import Job, OnProgress, Study, cached
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers

GAMMA = 0.8
STEPS = {"paper": 216_000, "quick": 6_000}
"""Six hours at 10 Hz: the first part of the first experiment's life."""
LAMP_STEPS = {"paper": 156_000, "quick": 6_000}
"""The lives with a moved lamp end some 25,000 learning steps after it: nothing later is looked at."""
CHANGE_AT = {"paper": 40_000, "quick": 1_100}
"""Learning step of the change; in a short life as early in proportion."""
EVERY = {"paper": 200, "quick": 20}
"""Learning steps between two looks at the measures."""
SAMPLES_PER_BLOCK = 5
"""Looks between two at m and w in full: 1,000 learning steps at the paper's scale, a tenth of tau."""
WINDOW = 5_000 / 40_000
"""Window compared before a change, as a share of the learning steps before it."""
LONGEST_LAG = 20_000 / 40_000
"""Lags looked at, likewise."""
LAMP, NEW_PLACE = "lamp", (-0.8, -0.8, 0.45)
"""From the north-east corner of the pen to the south-west one."""
LIT = "light"
"""The sensor group that a lamp concerns."""

# ---- learning -------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """One life's measures; those without a shape here are (n_looks, n_questions)."""

    at: Integers  # learning steps at which they were looked at, from 0 on, shape (n_looks,)
    nmsre: Floats  # of each question, its latest test, NaN before its first one
    scalar: Floats  # MSPBE estimate, signed
    vector: Floats  # the same
    later: Floats  # at the end of each block, from 0 on, see `LaterPart`, shape (n_blocks + 1, n_questions)
    sound: Bools  # which questions were not set aside, shape (n_questions,)
    n_updates: int  # learning steps
    n_steps: int  # all steps of the life
    seconds: float  # wall-clock time of learning

    def _sound(self, which: Bools | None) -> Bools:
        return self.sound if which is None else self.sound & which

    def means(self, which: Bools | None = None) -> dict[str, Floats]:
        """Return the mean of each measure over the sound questions (of `which`), each of shape (n_looks,).

        The NMSRE is nan until every one of them was tested.
        """
        curves = {"NMSRE": self.nmsre, "vector": self.vector, "scalar": self.scalar}
        return {name: curve[:, self._sound(which)].mean(axis=1) for name, curve in curves.items()}

    def medians(self, which: Bools | None = None) -> Floats:
        """Return the median NMSRE over the sound questions (of `which`), shape (n_looks,)."""
        return np.asarray(np.median(self.nmsre[:, self._sound(which)], axis=1))

    def share_later(self, block: int) -> float:
        """Return which share of the area between the two estimates is due to what w did later than in a step's block.

        Args:
            block: Learning steps of a block; the sound questions' means are compared at its ends.
        """
        means = self.means()
        between = (means["vector"] - means["scalar"])[self.at % block == 0]
        return float(self.later[:, self.sound].mean(axis=1).sum() / between.sum())


class LaterPart:
    """The part of vector - scalar that is due to what w did after the block of a step; end each by `end_block`.

    Args:
        horde: Which has learned nothing, and keeps the vector estimate.
        block: In learning steps.

    Attributes:
        value: That part of each demon, shape (n_demons,).
    """

    def __init__(self, horde: Horde, block: int) -> None:
        self._decay = (1.0 - 1.0 / horde.config.mspbe_tau) ** block
        self._m, self._w = horde.mspbe_trace(), horde.weights()[1]
        self.value: Floats = np.zeros(horde.n_demons)

    def end_block(self, horde: Horde) -> None:
        """Add the change of w in the block that ends now."""
        w = horde.weights()[1]
        moved = np.einsum("ij,ij->i", self._m, w - self._w, dtype=np.float64)
        self.value = self._decay * (self.value + moved)
        self._m, self._w = horde.mspbe_trace(), w


def gather(study: Study) -> Data:
    """Live with and without a moved lamp, and learn from both."""
    seeds, scale = study.seeds, study.scale
    lived = dict(zip(seeds, simulate_lives(study, first_experiment.lives_of(study)), strict=True))
    moved = [Job(f"the lamp moves in life {s}", _learn_moved, (study, s, lived[s]), 3.0) for s in seeds]
    moved = moved if study.backend == "simulator" else []
    reset = [Job(f"theta := 0 in life {s}", _learn, (study, lived[s], CHANGE_AT[scale], True)) for s in seeds]
    runs = study.in_parallel([*moved, *reset])
    interface = interface_of(study)
    return Data(
        interface,
        asked(interface),
        CHANGE_AT[scale],
        EVERY[scale],
        SAMPLES_PER_BLOCK * EVERY[scale],
        dict(zip(seeds, runs[len(moved) :], strict=True)),
        dict(zip(seeds, runs[: len(moved)], strict=False)),
    )


def asked(interface: Interface) -> list[GVF]:
    """Return the questions at gamma .8: 265 for the Critterbot."""
    return excursions(interface, gammas=(GAMMA,))


def first_steps(stream: Stream, steps: int) -> Stream:
    """Return the first part of a life."""
    return stream[: int(np.searchsorted(stream.rows["step"], steps, side="right"))]


def lamp_move(stream: Stream, change_at: int) -> LampMove:
    """Return the move of the lamp that the packet after learning step `change_at` is the first to see.

    Raises:
        ValueError: If the life has fewer learning steps.
    """
    n_learned = TrainingData(stream).n_learned
    if n_learned[-1] <= change_at:
        raise ValueError(
            f"the life has {n_learned[-1]} learning steps, and the change is due after {change_at}: live longer"
        )
    row = int(np.searchsorted(n_learned, change_at))
    between = 0.5 * float(stream.rows["t"][row] + stream.rows["t"][row + 1])
    return between, LAMP, NEW_PLACE


def _learn_moved(on_progress: OnProgress, study: Study, seed: int, life: Path) -> Run:
    """Live the life again with the lamp moved, and learn from that; `life` is the one in which it stays."""
    steps = LAMP_STEPS[study.scale]
    move = lamp_move(first_steps(read(life), steps), CHANGE_AT[study.scale])
    path = simulate_life(lambda share: on_progress(0.8 * share), study, LifeSpec(seed, steps, lamp_moves=(move,)))
    return _learn(lambda share: on_progress(0.8 + 0.2 * share), study, path, CHANGE_AT[study.scale], resets=False)


@cached(Run)
def _learn(on_progress: OnProgress, study: Study, life: Path, change_at: int, resets: bool) -> Run:
    """Learn from a life and return its measures over training time; if it `resets`, theta := 0 at the change."""
    lessons, interface = TrainingData(first_steps(read(life), STEPS[study.scale])), interface_of(study)
    questions, every = asked(interface), EVERY[study.scale]
    horde = new_horde(interface, questions, mode="deferred")
    warm_up(horde, interface)
    looked: list[tuple[int, Any, Any]] = [(0, horde.mspbe_scalar, horde.mspbe_vector())]
    block = SAMPLES_PER_BLOCK * every
    part, later = LaterPart(horde, block), [np.zeros(horde.n_demons)]

    def look(n: int) -> None:
        if n == change_at and resets:
            horde.reset_weights()
        if n % every == 0:
            looked.append((n, horde.mspbe_scalar.copy(), horde.mspbe_vector()))
        if n % block == 0:
            part.end_block(horde)
            later.append(part.value)

    learned = learn(lessons, horde, interface, after=look, on_progress=on_progress)
    at, scalar, vector = (np.array(column) for column in zip(*looked, strict=True))
    nmsre = latest_nmsre(lessons, questions, learned.predictions, at)
    sound, n_steps = sound_demons(horde), lessons.stream.n_steps
    return Run(at, nmsre, scalar, vector, np.array(later), sound, learned.n_updates, n_steps, learned.seconds)


# ---- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Everything that was measured."""

    interface: Interface  # of the robot
    questions: Sequence[GVF]  # those learned
    change_at: int  # learning step of the change
    every: int  # learning steps between two looks
    block: int  # learning steps between two looks at all weights
    reset: dict[int, Run]  # runs in which theta := 0 at the change, by seed
    moved: dict[int, Run]  # runs in which the lamp moves then, by seed; empty if the robot has no movable lamp

    @property
    def reach(self) -> int:
        """Learning steps after the change within which a reaction is looked for."""
        return round(LONGEST_LAG * self.change_at)

    @property
    def is_lit(self) -> Bools:
        """Which questions are about light, shape (n_questions,)."""
        lit = {channel.name for channel in self.interface.channels if channel.group == LIT}
        return np.array([question.name.rsplit("/", 1)[-1] in lit for question in self.questions])

    def reaction(self, at: Integers, curve: Floats) -> Reaction:
        """Return how a curve reacts to the change.

        Args:
            at: Learning steps at each look, shape (n_looks,).
            curve: The measure there, shape (n_looks,).
        """
        window = round(WINDOW * self.change_at)
        before = curve[(at > self.change_at - window) & (at <= self.change_at)].mean()
        after = (at > self.change_at) & (at <= self.change_at + self.reach)
        peak = int(np.argmax(curve[after]))
        rest = curve[after][peak:]
        half = before + 0.5 * (rest[0] - before)
        fallen = np.flatnonzero(rest <= half)
        halved = float(at[after][peak + fallen[0]] - self.change_at) if fallen.size else float("nan")
        return Reaction(float(before), float(rest[0]), float(at[after][peak] - self.change_at), halved)

    def agreement(self, at: Integers, nmsre: Floats, estimate: Floats) -> list[Agreement]:
        """Return how an estimate agrees with the NMSRE before and after the change; shapes as in `reaction`."""
        parts = [(at > 0) & (at <= self.change_at), at > self.change_at]
        reach = round(LONGEST_LAG * self.change_at / self.every)
        return [agreement(nmsre[part], estimate[part], self.every, reach) for part in parts]


class Reaction(NamedTuple):
    """How a measure reacts to the change."""

    before: float  # its mean before the change
    peak: float  # its largest value after it
    peak_after: float  # learning steps from the change to that peak
    halved_after: float  # learning steps from the change until half of the rise is gone; NaN if it stays

    @property
    def rise(self) -> float:
        """Rise to the peak over the size of the level before, which an estimate may have below 0."""
        return (self.peak - self.before) / abs(self.before) if self.before else float("inf")


class Agreement(NamedTuple):
    """How an estimate follows the NMSRE."""

    correlation: float  # Pearson's, without a lag; nan where one of them does not vary
    lag: float  # delay of the estimate with the best agreement, in learning steps
    best: float  # the correlation at that lag


def agreement(nmsre: Floats, estimate: Floats, every: int, longest: int) -> Agreement:
    """Return the correlation of two curves, without a lag and at the best one.

    Args:
        nmsre: Shape (n,); looks at which it is nan are left out.
        estimate: Shape (n,).
        every: Learning steps between two looks.
        longest: Largest lag, in looks; at most half of the curve.
    """
    known = np.isfinite(nmsre)
    nmsre, estimate = nmsre[known], estimate[known]
    lags = range(min(longest, len(nmsre) // 2) + 1)
    found = np.array([correlation(nmsre[: len(nmsre) - k], estimate[k:]) for k in lags])
    if not np.isfinite(found).any():
        return Agreement(float("nan"), float("nan"), float("nan"))
    best = int(np.nanargmax(found))
    return Agreement(float(found[0]), float(best * every), float(found[best]))


def correlation(x: Floats, y: Floats) -> float:
    """Return Pearson's correlation of two series of shape (n,); nan where one of the two does not vary."""
    if len(x) < 3 or x.std() == 0.0 or y.std() == 0.0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


# ---- claims ----------------------------------------------------------------------------------------------------------


ESTIMATES = ("vector", "scalar")
MEASURES = ("NMSRE", *ESTIMATES)
REACTS = 0.5
"""A measure reacts if it rises, after the change, by this multiple of its level before."""
SAME_SHAPE = 0.75
ALIKE, LEAST_AREA, LARGEST_AREA = 0.95, 0.8, 1.25
LEAST_COST, LARGEST_COST = 1.5, 2.5


def _reactions(data: Data, runs: Iterable[Run], which: Bools | None = None) -> dict[str, list[Reaction]]:
    """Return how each measure reacts to the change in each run, over the questions `which`, all when None."""
    each = [{name: data.reaction(run.at, curve) for name, curve in run.means(which).items()} for run in runs]
    return {name: [reaction[name] for reaction in each] for name in MEASURES}


def _agreements(data: Data, run: Run) -> dict[str, list[Agreement]]:
    """Return how each estimate of a run agrees with its NMSRE, before and after the change."""
    means = run.means()
    return {name: data.agreement(run.at, means["NMSRE"], means[name]) for name in ESTIMATES}


CLAIMS = Claims("section 5, figure 4")


@CLAIMS.add(
    "Both estimates are initially at zero, since w takes time to adapt",
    "both MSPBE estimates are initially at zero",
    "every estimate is exactly 0 before the first update, and its mean rises above 0 later",
)
def _start_at_zero(data: Data) -> Finding:
    runs = [(run, run.means()) for run in data.reset.values()]
    firsts = [float(np.abs(values[0]).max()) for run, _ in runs for values in (run.vector, run.scalar)]
    tops = [float(means[name].max()) for _, means in runs for name in ESTIMATES]
    rises = [_rise(run.at, means[name], data.change_at) for run, means in runs for name in ESTIMATES]
    return Finding(
        f"largest absolute estimate of any question before the first update: {max(firsts):g}; half of the largest mean "
        f"before the change is reached after {join(rises, ',.0f')} learning steps",
        [first == 0.0 < top for first, top in zip(firsts, tops, strict=True)],
    )


def _rise(at: np.ndarray, curve: np.ndarray, end: int) -> float:
    """Return after how many learning steps a curve first has half of its largest value before `end`."""
    before = curve[at <= end]
    return float(at[np.argmax(before >= 0.5 * before.max())])


@CLAIMS.add(
    "All three measures react quickly when theta is set to zero",
    "all three measures react quickly to the change",
    f"the rise within {{data.reach:,}} learning steps is, in the mean of lives, at least {REACTS} times the level "
    "before the change; one part for each measure",
)
def _all_react(data: Data) -> Finding:
    found = _reactions(data, data.reset.values())
    said = "; ".join(
        f"{name}: {mean_ci([r.rise for r in each])} times its level, after "
        f"{mean_ci([r.peak_after for r in each])} steps"
        for name, each in found.items()
    )
    holds = {name: bool(np.mean([r.rise for r in each]) >= REACTS) for name, each in found.items()}
    weak = [name for name, is_there in holds.items() if not is_there]
    return Finding(
        f"largest rise after the change: {said}",
        list(holds.values()),
        f"{' and '.join(weak)} rise by less than that; w is kept" if weak else "",
    )


@CLAIMS.add(
    "The estimates have the same shape as the NMSRE",
    "the MSPBE measures as computed off-policy have the same shape as the NMSRE",
    f"the correlation at the best lag is at least {SAME_SHAPE}, for each estimate before and after the change",
)
def _same_shape(data: Data) -> Finding:
    runs = [_agreements(data, run) for run in data.reset.values()]
    parts, said = [], []
    for name in ESTIMATES:
        for k, when in enumerate(("before", "after")):
            plain, lag, best = (np.nanmean(values) for values in zip(*(run[name][k] for run in runs), strict=True))
            parts.append(bool(best >= SAME_SHAPE))
            said.append(f"{name} {when} {plain:.2f}, with a lag of {lag:,.0f} {best:.2f}")
    return Finding(
        f"correlations with the NMSRE (means over lives; lags in learning steps): {'; '.join(said)}",
        parts,
        "" if all(parts) else f"learning steps after the change until half of the rise is gone: {_halved(data)}",
    )


@CLAIMS.add(
    "The scalar estimate is almost identical to the vector one",
    "the scalar estimate of the MSPBE performs almost identically to the vector version",
    f"in every life the correlation is at least {ALIKE}, the ratio of areas within {LEAST_AREA} to {LARGEST_AREA}",
)
def _alike(data: Data) -> Finding:
    means = [run.means() for run in data.reset.values()]
    alike = [correlation(m["vector"], m["scalar"]) for m in means]
    areas = [float(m["scalar"].sum() / m["vector"].sum()) for m in means]
    ends = [float(m["scalar"][-1] / m["vector"][-1]) for m in means]
    holds = [bool(c >= ALIKE) for c in alike] + [bool(LEAST_AREA <= a <= LARGEST_AREA) for a in areas]
    return Finding(
        f"correlation {join(alike, '.3f')}; area under the scalar over that under the vector {join(areas, '.2f')}, and "
        f"at the end {join(ends, '.2f')}",
        holds,
        "" if all(holds) else _gap(data),
    )


def _gap(data: Data) -> str:
    """Return why the estimates differ: the samples that w and the trace share, or a drift of w.

    In the long run the blocks would have the share block / (2 tau) of a steady drift: the mean age of the samples is
    tau, and the mean distance to the end of their block is half a block.
    """
    later = [run.share_later(data.block) for run in data.reset.values()]
    return (
        "the two differ by the trace of delta e.(w_t - w_k), by what w did after step k. Of the area between them "
        f"{join([1 - share for share in later], '.0%')} is what it did within the {data.block:,} steps in which step k "
        f"lies, where it takes up the very samples that the trace holds, and {join(later, '.0%')} what it did later; "
        f"of a steady drift of w those {data.block:,} steps would have "
        f"{0.5 * data.block / LearnerConfig().mspbe_tau:.1%}"
    )


@CLAIMS.add(
    "The estimates react and settle more slowly than the NMSRE, since w was not reset",
    "the MSPBE estimates react more slowly to the change because the secondary weights w were not also reset",
    "in every life both estimates take longer than the NMSRE until half of their rise is gone",
)
def _lag(data: Data) -> Finding:
    # What stays above half of its rise until the end of the window takes longer than the window.
    times = {name: np.nan_to_num(values, nan=np.inf) for name, values in _halved_after(data).items()}
    return Finding(
        f"learning steps from the change until half of the rise is gone: {_halved(data)}",
        [bool(a > b) for name in ESTIMATES for a, b in zip(times[name], times["NMSRE"], strict=True)],
    )


def _halved_after(data: Data) -> dict[str, list[float]]:
    return {name: [r.halved_after for r in each] for name, each in _reactions(data, data.reset.values()).items()}


def _halved(data: Data) -> str:
    return "; ".join(f"{name} {join(map(_steps, values))}" for name, values in _halved_after(data).items())


def _steps(value: float) -> str:
    return "not within the window" if np.isnan(value) else f"{value:,.0f}"


@CLAIMS.add(
    "The NMSRE needs twice the wall-clock time of the estimates",
    "the NMSRE requires twice as much wall-clock time as the MSPBE estimates",
    f"robot time per learning step is within {LEAST_COST} to {LARGEST_COST} in every life",
)
def _wall_clock(data: Data) -> Finding:
    cost = [run.n_steps / run.n_updates for run in data.reset.values()]
    return Finding(
        f"{join(cost, '.2f')} steps of robot time per learning step: excursions and the drives after them; the "
        "estimates need none of it",
        [LEAST_COST <= c <= LARGEST_COST for c in cost],
    )


@CLAIMS.add(
    "The measures react to a change in the environment",
    "the MSPBE measures react quickly to a change in the environment; the paper changed theta instead",
    f"the questions about {LIT} rise within {{data.reach:,}} learning steps by {REACTS} times their level before "
    "or more, and more so than the others do; two parts for each measure",
)
def _environment(data: Data) -> Finding | None:
    if not data.moved:
        return None
    lit, other = (
        {name: [r.rise for r in each] for name, each in _reactions(data, data.moved.values(), which).items()}
        for which in (data.is_lit, ~data.is_lit)
    )
    holds = [bool(np.mean(lit[name]) >= REACTS) for name in MEASURES]
    holds += [bool(np.mean(other[name]) < np.mean(lit[name])) for name in MEASURES]
    said, of_others = ("; ".join(f"{name} {mean_ci(rises[name])}" for name in MEASURES) for rises in (lit, other))
    return Finding(
        f"the lamp moves; rise over level before, questions about {LIT}: {said}; all others: {of_others}",
        holds,
        "" if all(holds) else _others(data),
    )


def _others(data: Data) -> str:
    """Return which sensor carries the rise of the NMSRE of the questions that are not about light."""
    run = next(iter(data.moved.values()))
    mine = np.flatnonzero(run.sound & ~data.is_lit)
    after = (run.at > data.change_at) & (run.at <= data.change_at + data.reach)
    at_peak = run.nmsre[after][np.argmax(run.means(~data.is_lit)["NMSRE"][after]), mine]
    sensor = np.array([data.questions[i].name.rsplit("/", 1)[-1] for i in mine.tolist()])
    most = max(dict.fromkeys(sensor), key=lambda name: float(at_peak[sensor == name].sum()))
    rises = [data.reaction(other.at, other.medians(~data.is_lit)).rise for other in data.moved.values()]
    return (
        f"at the peak of the others' mean NMSRE {most} alone holds "
        f"{at_peak[sensor == most].sum() / at_peak.sum():.0%} of it; their median "
        f"rises by {mean_ci(rises)} times its level"
    )


# ---- figures --------------------------------------------------------------------------------------------------------


_LOOKS = {"vector": (COLOURS[0], "-"), "scalar": (COLOURS[1], "--")}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries.

    The paper's figure, and what a moved lamp does to the questions about light and to the others.
    """
    caption = (
        f"The paper's figure 4: means over {len(data.questions)} questions at gamma .8 and {_lives(data.reset)}; "
        f"theta := 0 after learning step {data.change_at:,} (dotted). NMSRE on the left, logarithmic; both MSPBE "
        "estimates on the right. A few near-constant sensors carry the mean NMSRE, so its median is drawn too."
    )
    figures = [_picture(data, data.reset, {"": None}, 9.0, 4.4, folder / "reset.png", caption)]
    if data.moved:
        lit = data.is_lit
        panels: dict[str, Bools | None] = {
            f"{int(lit.sum())} questions about {LIT}": lit,
            f"{(~lit).sum()} other questions": ~lit,
        }
        caption = (
            "The change that the paper speaks of and did not make: the lamp moves to the opposite corner after "
            f"learning step {data.change_at:,} (dotted); theta, w and traces are kept. Means over {_lives(data.moved)}."
        )
        figures.append(_picture(data, data.moved, panels, 11.5, 4.2, folder / "lamp.png", caption))
    return figures


def _lives(runs: dict[int, Run]) -> str:
    return f"{len(runs)} lives" if len(runs) > 1 else "one life"


def _picture(
    data: Data,
    runs: dict[int, Run],
    panels: dict[str, Bools | None],
    width: float,
    height: float,
    path: Path,
    caption: str,
) -> Figure:
    canvas, each = new_canvas(width, height, len(panels))
    for axes, (title, which) in zip(each, panels.items(), strict=True):
        other = _draw(axes, data, list(runs.values()), which)
        axes.set_title(title, fontsize=10)
    lines = [*each[-1].get_lines()[:2], *other.get_lines()]
    canvas.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return save(canvas, path, caption)


def _draw(axes: Axes, data: Data, runs: Sequence[Run], which: Bools | None) -> Axes:
    """Draw the NMSRE on the left axis and both estimates on the right one, means over runs; return the right one."""
    n = min(len(run.at) for run in runs)
    at = runs[0].at[:n] / 1_000
    means = {k: np.mean([run.means(which)[k][:n] for run in runs], axis=0) for k in ("NMSRE", *_LOOKS)}
    median = np.mean([run.medians(which)[:n] for run in runs], axis=0)
    axes.plot(at, means["NMSRE"], color="black", linewidth=1.8, label="NMSRE, mean")
    axes.plot(at, median, color="0.45", linewidth=1.3, label="NMSRE, median")
    other = axes.twinx()
    for name, (colour, style) in _LOOKS.items():
        other.plot(at, means[name], color=colour, linestyle=style, linewidth=1.6, label=f"MSPBE, {name}")
    axes.axvline(data.change_at / 1_000, color="0.35", linewidth=1.0, linestyle=":")
    style_axes(axes, xlabel="training time (thousand learning steps)", ylabel="NMSRE", yscale="log", xlim=(0, at[-1]))
    axes.spines["right"].set_visible(True)
    other.set_ylabel("MSPBE estimate (squared scaled units)")
    other.set_ylim(min(0.0, float(other.get_ylim()[0])), None)
    other.spines["top"].set_visible(False)
    return other


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_agreement(data), _reaction(data), *([_lamp(data)] if data.moved else []), _cost(data)]


def _agreement(data: Data) -> Table:
    columns = [f"{when}: {what}" for when in ("before", "after") for what in ("correlation", "best lag", "at that lag")]
    rows: list[dict[str, Cell]] = [
        {"life": f"seed {seed}", "estimate": name, **dict(zip(columns, (*before, *after), strict=True))}
        for seed, run in data.reset.items()
        for name, (before, after) in _agreements(data, run).items()
    ]
    note = (
        "Pearson's correlation of the means over all questions; lags in learning steps, by which the estimate trails. "
        "Where both curves fall all the time, the best lag is the longest one looked at, and measures no delay."
    )
    return Table.of("The estimates against the NMSRE, before the change and after it", rows, note)


_REACTION = ("mean before", "peak", "peak after", "half of the rise gone after")


def _reaction(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for seed, run in data.reset.items():
        found = {name: each[0] for name, each in _reactions(data, [run]).items()}
        found["median NMSRE"] = data.reaction(run.at, run.medians())
        for name, reaction in found.items():
            rows.append({"life": f"seed {seed}", "measure": name, **dict(zip(_REACTION, reaction, strict=True))})
    return Table.of("The reaction to theta := 0", rows, "The last two columns in learning steps.")


def _lamp(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for what, which in ((f"about {LIT}", data.is_lit), ("all others", ~data.is_lit)):
        for name, each in _reactions(data, data.moved.values(), which).items():
            means = [str(mean_ci(values)) for values in zip(*each, strict=True)]
            row: dict[str, Cell] = {"questions": what, "number": int(which.sum()), "measure": name}
            rise = str(mean_ci([r.rise for r in each]))
            rows.append({**row, **dict(zip(_REACTION, means, strict=True)), "rise / level before": rise})
    return Table.of("The reaction to the moved lamp", rows, "Means over lives; times in learning steps.")


def _cost(data: Data) -> Table:
    rows: list[dict[str, Cell]] = [
        {
            "life": f"seed {seed}",
            "steps of robot time": run.n_steps,
            "learning steps": run.n_updates,
            "robot time per learning step": run.n_steps / run.n_updates,
            "ms per learning step": 1e3 * run.seconds / run.n_updates,
        }
        for seed, run in data.reset.items()
    ]
    note = (
        "The NMSRE costs robot time: without excursions every step is a learning step. The last column is the "
        f"program's own time for {len(data.questions)} questions with both estimates, read every {data.every} steps; "
        "it belongs to the machine."
    )
    return Table.of("What the measures cost", rows, note)


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    config = LearnerConfig()
    return {
        "steps of each life": STEPS[study.scale],
        "steps of each life with a moved lamp": LAMP_STEPS[study.scale] if data.moved else None,
        "questions": len(data.questions),
        "gamma": GAMMA,
        "change at learning step": data.change_at,
        "tau of the MSPBE estimates, learning steps": config.mspbe_tau,
        "1 / (alpha_w active features), learning steps": 1.0 / (config.step_size * config.secondary_ratio),
        "the lamp goes to (x, y, z in m)": join(NEW_PLACE) if data.moved else None,
        "seeds": study.seed_list,
    }


REMARKS = [
    "Training time is counted in learning steps; excursions and drives lie between them and are not drawn.",
    "At theta := 0 the secondary weights w, the traces and the estimates are kept, as in the paper.",
    "The NMSRE is a trace over 10 excursions of a question, each of which is tested about every 250 learning "
    "steps: it shows no change at once either.",
    "The moved lamp changes nothing but what the light and thermal sensors read: actions, poses and all other "
    "sensors of that life are, to the bit, those of the life without it.",
]
TITLE = "Three measures of learning: the weights are lost, the lamp is moved"
# The lives with a moved lamp depend on what these learned when.
LIVES = first_experiment.lives_of
EXPERIMENT = Experiment("reset", TITLE, gather, CLAIMS, pictures, tables, settings, REMARKS, LIVES)
