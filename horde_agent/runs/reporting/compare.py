"""comparison.html: several runs side by side, from the files in their folders only.

Questions are matched by name; a smaller NMSRE is better. A difference is called one if the interval
of the ratio, from the test excursions of both runs, excludes 1, and a question better or worse if
its NMSRE also differs by a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, count
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from horde_agent.html import element, figure, page, png, section, table
from horde_agent.kernels.rules import names as rule_names
from horde_agent.kernels.rules import rule
from horde_agent.refusals import BadInput
from horde_agent.runs.reporting.held_out import comparison_section
from horde_agent.runs.reporting.nmsre_ratio import FEWEST, Ratios, newest_tests, nmsre_ratios
from horde_agent.runs.reporting.report import NEARLY_CONSTANT_IS, NMSRE_IS, number
from horde_agent.runs.storage.files import read_curve, read_json, unwritable
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.one_place import parted_at
from horde_agent.runs.storage.question_table import HeldOutScore, read_held_out, read_questions
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import nmsre_text
from horde_agent.scoring.two_pass_nmsre import MOST_POINTS

N_SHOWN = 12  # questions in each table of the largest differences
MUCH = 1.25
"""Ratio of NMSRE, or its inverse, from which on a question is answered better or worse."""
ROUNDING = 5e-4
"""Of the ratios as they are printed."""
LITTLE = 1.05
"""Median ratio, or its inverse, up to which a difference does not matter."""
_ROWS = (
    ("backend", ""),
    ("seed", "d"),
    ("steps", ",d"),
    ("learning_steps", ",d"),
    ("n_questions", ",d"),
    ("n_excursions", ",d"),
    ("share_nmsre_below_1", ".1%"),
    ("share_better_than_persistence", ".1%"),
    ("median_nmsre", "nmsre"),
    ("mean_nmsre", "nmsre"),
    ("n_nearly_constant", ",d"),
    ("mspbe_scalar_mean", ".3g"),
    ("max_trace", ".3g"),
    ("steps_per_s", ",.0f"),
    ("deadlines_missed", ",d"),
    ("gaps", ",d"),
)


class FinishedRun(NamedTuple):
    """A run to compare; `nmsre`, `persistence` and `group` by question, of tested ones that have not diverged."""

    name: str
    summary: dict[str, Any]
    config: dict[str, Any]
    nmsre: dict[str, float]
    persistence: dict[str, float]  # the NMSRE of "the present reading lasts"
    group: dict[str, str]  # policy and time scale
    names: list[str]  # of all questions, in the order of the demons
    excursions: Path  # the table of test excursions, which a log has not
    held_out: list[HeldOutScore]  # empty without held_out.csv
    curves: dict[str, tuple[list[float], list[float]]]


def write_comparison(paths: Sequence[Path]) -> Path:
    """Write the next free comparison-N.html here, against the first run; raise BadInput if a run is not finished."""
    places = [path.resolve() for path in paths]
    twice = next((path for path in places if places.count(path) > 1), None)
    if twice:
        raise BadInput(f"{twice} is named twice; name each run once")
    runs = _named([_read(path) for path in paths])
    candidates = (Path(f"comparison-{k}.html") for k in count(1))
    out = next(path for path in candidates if not path.exists())
    sections = [
        _headline(runs),
        *_copies(paths),
        _settings(runs),
        _pictures(runs),
        _families(runs),
        *_pairs(runs),
    ]
    for run in runs[1:]:
        names = [runs[0].name, run.name]
        sections.append(comparison_section(names, runs[0].held_out, run.held_out))
    title = "Comparison of runs: " + ", ".join(run.name for run in runs)
    try:
        out.write_text(page(title, sections), encoding="utf-8")
    except OSError as error:
        raise BadInput(unwritable(out, error)) from None
    return out


def _copies(paths: Sequence[Path]) -> list[str]:
    """Return a section for copies of one life that went on in two places."""
    sentences = []
    for one, other in combinations(paths, 2):
        step = parted_at(RunFolder(one), RunFolder(other))
        if step is not None:
            sentences.append(
                f"{one} and {other} are copies of one life, which went on apart from step {step:,} on."
            )
    if not sentences:
        return []
    return [section("The same life in two places", *[element("p", text) for text in sentences])]


def _read(path: Path) -> FinishedRun:
    folder = RunFolder(path)
    if not folder.summary.is_file():
        raise BadInput(
            f"{path} contains no finished run (no summary.json); `horde report {path}` completes it from its log"
        )
    try:
        summary = read_json(folder.summary)
        questions = read_questions(folder.questions)
        held_out = read_held_out(folder.held_out)
    except (OSError, ValueError, LookupError, RecursionError) as error:
        raise BadInput(
            f"{path} is damaged ({error}); `horde report {path}` repairs it if possible"
        ) from None
    scored = [question for question in questions if question.is_scored]
    curves = {
        "median NMSRE": _curve(path / "learning_curve.csv", "median_nmsre"),
        "mean NMSRE, online": _curve(path / "learning_curve.csv", "mean_nmsre_online"),
        "mean MSPBE estimate": _curve(path / "mspbe_curve.csv", "mspbe_scalar_mean"),
    }
    return FinishedRun(
        name=path.resolve().name,
        summary=summary,
        config=folder.settings(),
        nmsre={question.name: question.nmsre for question in scored},
        persistence={question.name: question.nmsre_of_persistence for question in scored},
        group={
            question.name: question.about.group or question.about.family or question.name
            for question in scored
        },
        names=[question.name for question in questions],
        excursions=folder.excursions,
        held_out=held_out,
        curves=curves,
    )


def _curve(path: Path, column: str) -> tuple[list[float], list[float]]:
    """Return steps and values of a curve, thinned for a picture; empty lists without a file."""
    steps, values = read_curve(path, ("step", column), MOST_POINTS)
    points = [
        (x, y) for x, y in zip(steps, values, strict=True) if math.isfinite(x) and math.isfinite(y)
    ]
    return [x for x, _ in points], [y for _, y in points]


def _named(runs: list[FinishedRun]) -> list[FinishedRun]:
    names = [run.name for run in runs]
    return [
        run._replace(name=f"{run.name} ({k + 1})" if names.count(run.name) > 1 else run.name)
        for k, run in enumerate(runs)
    ]


def _headline(runs: Sequence[FinishedRun]) -> str:
    rows = []
    for key, form in _ROWS:
        values = [run.summary.get(key) for run in runs]
        if any(value is not None for value in values):
            cells = [
                str(v)
                if isinstance(v, str)
                else nmsre_text(v)
                if form == "nmsre"
                else number(v, form)
                for v in values
            ]
            rows.append([key.replace("_", " "), *cells])
    rows.append(["diverged", *(str(len(run.summary.get("diverged") or [])) for run in runs)])
    head = ["", *(run.name for run in runs)]
    explanations = [element("p", text) for text in _explanations(runs)]
    return section("Summary", table(head, rows), *explanations)


def _explanations(runs: Sequence[FinishedRun]) -> list[str]:
    """Return what the measures mean that are on the page."""
    texts = []
    scores = ("median_nmsre", "mean_nmsre", "share_nmsre_below_1")
    if any(run.nmsre or any(run.summary.get(key) is not None for key in scores) for run in runs):
        texts.append(NMSRE_IS)
    if any(run.summary.get("n_nearly_constant") for run in runs):
        texts.append(NEARLY_CONSTANT_IS)
    without_w = sorted({name for run in runs for name in [_rule_without_w(run)] if name})
    if without_w:
        texts.append(
            f"The update rule {', '.join(without_w)} has no estimate of its MSPBE, which needs secondary weights w."
        )
    return texts


def _rule_without_w(run: FinishedRun) -> str:
    """Return the name of a run's update rule if it has no secondary weights, else ""."""
    name = str(run.config.get("algorithm", "")).partition(":")[0]
    if name in rule_names() and "w" not in rule(name).vectors:
        return name
    return ""


def _settings(runs: Sequence[FinishedRun]) -> str:
    keys = dict.fromkeys(
        key for run in runs for key, value in run.config.items() if not isinstance(value, dict)
    )
    rows = [
        [key, *(str(run.config.get(key, "-")) for run in runs)]
        for key in keys
        if key != "out" and len({str(run.config.get(key)) for run in runs}) > 1
    ]
    if not rows:
        return section("Settings", element("p", "The runs have the same settings."))
    return section("Settings that differ", table(["", *(run.name for run in runs)], rows))


def _pictures(runs: Sequence[FinishedRun]) -> str:
    from horde_agent.runs.reporting.pictures import comparison_picture  # takes long to import

    sections = []
    for title in runs[0].curves:
        curves = {run.name: run.curves[title] for run in runs if run.curves[title][0]}
        if curves:
            picture = png(comparison_picture(curves, title))
            sections.append(figure(title[0].upper() + title[1:], picture, ""))
    return "\n".join(sections)


def _families(runs: Sequence[FinishedRun]) -> str:
    """Return the median NMSRE by policy and time scale, and beside it that of persistence on each run's tests."""
    shared = set.intersection(*(set(run.nmsre) for run in runs))
    groups: dict[str, list[str]] = {}
    for name in runs[0].nmsre:
        if name in shared:
            groups.setdefault(runs[0].group[name], []).append(name)
    if not groups:
        return section(
            "",
            element(
                "p", "No question was tested at least twice in every run, so none can be compared."
            ),
        )
    scores = {run.name: run.nmsre for run in runs}
    for run in runs:
        scores[f"persistence, {run.name}"] = run.persistence
    rows = []
    for group, names in groups.items():
        medians = [median([of_run[name] for name in names]) for of_run in scores.values()]
        rows.append([group, str(len(names)), *map(nmsre_text, medians)])
    for title, average in (("all, median", median), ("all, mean", fmean)):
        averages = [average([of_run[name] for name in shared]) for of_run in scores.values()]
        rows.append([title, str(len(shared)), *map(nmsre_text, averages)])
    head = ["questions tested in all runs", "n", *scores]
    return section("Median NMSRE by family", table(head, rows))


def _pairs(runs: Sequence[FinishedRun]) -> list[str]:
    """Return a section for each further run: how it compares with the first, and on which questions most."""
    first = runs[0]
    sections = []
    for run in runs[1:]:
        ratio_of = {
            name: _ratio(run.nmsre[name], first.nmsre[name])
            for name in first.nmsre
            if name in run.nmsre
        }
        if not ratio_of:
            continue
        intervals = _intervals(first, run, list(ratio_of))
        ordered = sorted(ratio_of, key=ratio_of.__getitem__)
        better = [name for name in ordered if ratio_of[name] <= 1.0 / MUCH]
        worse = [name for name in reversed(ordered) if ratio_of[name] >= MUCH]
        if intervals is not None:
            better = [name for name in better if intervals.questions[name].is_clear]
            worse = [name for name in worse if intervals.questions[name].is_clear]
        middle = median(ratio_of.values())
        sentence = (
            f"Of {len(ratio_of)} questions tested in both runs, {run.name} answers {len(better)} better and "
            f"{len(worse)} worse than {first.name} by a quarter or more; the median ratio of NMSRE is {middle:.3f}"
        )
        if intervals is not None:
            sentence += f", with a 95 % interval [{intervals.low:.3f}, {intervals.high:.3f}]"
        verdict = _verdict(first.name, run.name, middle, intervals)
        parts = [element("p", f"{sentence}."), *(element("p", text) for text in verdict)]
        for title, names in (("Much better", better[:N_SHOWN]), ("Much worse", worse[:N_SHOWN])):
            if not names:
                continue
            head = ["question", first.name, run.name, "ratio"]
            if intervals is not None:
                head += ["95 % from", "to"]
            rows = []
            for name in names:
                numbers = [first.nmsre[name], run.nmsre[name], ratio_of[name]]
                if intervals is not None:
                    question = intervals.questions[name]
                    numbers += [question.low, question.high]
                rows.append([name, *(nmsre_text(number) for number in numbers)])
            if intervals is None:
                title = f"{title}, or by chance"
            parts += [element("h3", title), table(head, rows)]
        sections.append(section(f"{run.name} against {first.name}", *parts))
    return sections


def _intervals(first: FinishedRun, second: FinishedRun, shared: Sequence[str]) -> Ratios | None:
    """Return the ratios with intervals; None without enough excursions of all of these questions."""
    tests = []
    for run in (first, second):
        try:
            excursions = ExcursionTable.read(run.excursions)
            if excursions.n_demons != len(run.names):
                return None
            tests.append(newest_tests(excursions, run.names, shared))
        except (OSError, ValueError):
            return None
    ratios = nmsre_ratios(*tests)
    if ratios is None or not ratios.questions.keys() >= set(shared):
        return None
    return ratios


def _verdict(first: str, second: str, middle: float, intervals: Ratios | None) -> list[str]:
    """Return sentences on whether the second run differs from the first, and how far that can be known."""
    if intervals is None:
        return [
            f"There is no interval, because not every policy has {FEWEST} recorded test excursions in both runs: "
            "the difference may be noise."
        ]
    difference = f"{second} is better than {first}."
    if middle > 1.0:
        difference = f"{second} is worse than {first}."
    if intervals.low < 1.0 + ROUNDING and intervals.high > 1.0 - ROUNDING:
        difference = "The test excursions show no difference."
    elif 1.0 / LITTLE < middle < LITTLE:
        difference = f"There is a difference, of less than {LITTLE - 1:.0%}."
    pairing = "The runs made different excursions, so the interval is wider than that of runs of one seed."
    if intervals.is_paired:
        pairing = "Both runs made the same excursions, so the interval is of pairs."
    return [
        f"{difference} {pairing} It is over excursions: other seeds make other lives, and differ by more.",
        "A question is listed if its ratio differs by a quarter and excludes 1 at a level at which chance lists "
        "any question in 5 % of comparisons.",
    ]


def _ratio(value: float, before: float) -> float:
    if before > 0.0:
        return value / before
    return 1.0 if value == 0.0 else math.inf
