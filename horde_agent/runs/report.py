"""report.html: what a run learned, drawn from the files of its folder and from nothing else.

A run that was cut off before its tables were written is learned from again first (`unfinished`). What else is missing
or damaged becomes a note on the page, and the rest is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.timing import duration
from horde_agent.measures.nmsre import nmsre_text
from horde_agent.measures.passes import MOST_DOTS, Course, PastExcursions, courses, curves, dots
from horde_agent.record import A_DAY, Stream, read
from horde_agent.runs import notes, unfinished
from horde_agent.runs.config import BadInput
from horde_agent.runs.curves import shown_channels
from horde_agent.runs.notes import Notes
from horde_agent.runs.run_folder import RunFolder, read_csv, write_whole
from horde_agent.types import Bools, Floats

NO_PICTURES = "Pictures need matplotlib: <code>pip install -e '.[viz]'</code>, then <code>horde report</code> again."
N_WORST = 12
NMSRE_IS = (
    "NMSRE: mean squared error of a prediction against the return that then came, over the variance of that return. 1 "
    "is what always predicting the mean return scores; below 1 a prediction tells more."
)

NEARLY_CONSTANT_IS = (
    "Nearly constant: the return varied by less than the rounding of its channel (variance below step^2 / 12), so its "
    "NMSRE can be very large and can dominate the mean."
)


def write_report(path: Path, console: Console | None = None) -> Path:
    """Draw the report of a run, with its pictures beside it, and return the path of report.html.

    Args:
        path: The run's folder.
        console: Where the progress of learning again is shown, if it comes to that; stderr when None.

    Raises:
        BadInput: If the folder holds no run, its summary is damaged, or nothing can be written there.
    """
    folder, noted = RunFolder(path), Notes()
    _check_folder(folder)
    if unfinished.lacks(folder):
        _learn_again(folder, console or Console(stderr=True), noted)
    summary = _summary(folder)
    config = noted.read(folder.config, notes.settings) or {}
    details = noted.read(folder.details, notes.table) or {}
    questions = noted.read(folder.questions, notes.lines)
    stream = noted.read(folder.life, lambda path: read(path, newest=A_DAY, columns=("step", "pose", "flags")))
    is_tested = summary.get("n_excursions") is not None or details.get("n_on_policy_tests")
    tested = noted.read(folder.excursions, _tested) if is_tested else None
    n_excursions = tested and sum(len(course.step) for course in tested[1] if not course.policy.is_behaviour)
    noted.compare(folder, summary, stream, n_excursions, questions)
    if config and (cut := notes.missing_settings(folder.config)):
        noted.said.append(f"{folder.config.name} is cut off: it lacks {', '.join(cut)}.")
    results, asked = [folder.summary, folder.details], [folder.questions]
    sections = [
        noted.drawn("The headline", results, lambda: _headline(summary, details)),
        *_pictures(folder, noted, tested, questions or [], stream, details),
        noted.drawn("The table of means", asked, lambda: _means_section(questions or [])),
        noted.drawn("The table of the worst questions", asked, lambda: _worst_section(questions or [])),
        noted.drawn("The table of time and health", results, lambda: _timing_section(summary, details)),
        _settings_section(config),
    ]
    marks = _marks(summary, details, config)
    try:
        write_whole(folder.report, _page(path.resolve().name, marks, noted.said, [s for s in sections if s]))
    except OSError as error:
        raise BadInput(f"{folder.report} cannot be written ({error.strerror})") from None
    return folder.report


def _check_folder(folder: RunFolder) -> None:
    """Refuse, before anything is done, a folder that is not there, or not to be read or written.

    Raises:
        BadInput: With what to do instead.
    """
    if not os.path.isdir(folder.path):
        raise BadInput(f"{folder.path} holds no finished run: there is no such folder")
    as_who = {"effective_ids": True} if os.access in os.supports_effective_ids else {}
    if not os.access(folder.path, os.R_OK | os.X_OK, **as_who):
        raise BadInput(f"{folder.path} may not be read; ask its owner for a copy")
    if not os.access(folder.path, os.W_OK, **as_who):
        raise BadInput(f"{folder.report} cannot be written, for its folder is read-only; copy it and name the copy")


def _learn_again(folder: RunFolder, console: Console, noted: Notes) -> None:
    """Make the tables that are not there, or are old; where that cannot be and there is a summary, note why.

    Raises:
        BadInput: If there is no summary and nothing to make it from.
    """
    known = _summary(folder) if folder.summary.is_file() else None
    names, is_old = ", ".join(table.name for table in unfinished.lacks(folder)), unfinished.has_gone_on(folder)
    try:
        learned = unfinished.learn_again(folder, console)
    except (BadInput, OSError) as error:
        if known is None:
            raise BadInput(str(error)) from error
        noted.said.append(f"{names} cannot be made again: {error}.")
        return
    if known is None or is_old:
        return
    noted.said.append(f"{names} was missing and is made again from the log.")
    if known.get("weights_sha256") != learned["weights_sha256"]:
        noted.said.append(
            f"What was learned again differs from what {folder.summary.name} tells of: that is of version "
            f"{known.get('version')}, this is {learned['version']}."
        )


def _summary(folder: RunFolder) -> dict[str, Any]:
    """Return summary.json.

    Raises:
        BadInput: If it is damaged: a page without it would say next to nothing, and it can be made again.
    """
    try:
        return notes.table(folder.summary)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{folder.summary} is damaged ({error}); remove it, and `horde report` makes it again from the log"
        ) from None


_Tested = tuple[PastExcursions, list[Course]]


def _tested(path: Path) -> _Tested:
    """Return the excursions of a run, and what they came to."""
    tests = PastExcursions.read(path)
    return tests, courses(tests)


def _sound(questions: Sequence[dict[str, str]], n_demons: int) -> Bools:
    """Return which demons are not set aside, shape (n_demons,); all, where the questions do not tell."""
    if len(questions) != n_demons:
        return np.ones(n_demons, dtype=bool)
    return np.array([question.get("diverged") != "1" for question in questions])


# ---- pictures -------------------------------------------------------------------------------------------------------


def _pictures(
    folder: RunFolder,
    noted: Notes,
    tested: _Tested | None,
    questions: Sequence[dict[str, str]],
    stream: Stream | None,
    details: dict[str, Any],
) -> list[str]:
    """Draw the pictures that the run has data for, and return their sections."""
    try:
        from horde_agent.runs import pictures  # noqa: F401  matplotlib is an extra
    except ImportError:
        return [f'<section><p class="note">{NO_PICTURES}</p></section>']
    drawn, known = noted.drawn, [folder.excursions]
    curve, facts = [folder.mspbe_curve, folder.life, folder.details], details.get("mspbe")
    return [
        drawn("The picture of the return errors", known, lambda: _nmsre_section(folder, tested, questions)),
        drawn("The picture of the pen", [folder.life], lambda: _pen_section(folder, stream)),
        drawn(
            "The picture of predictions", [*known, folder.details], lambda: _scatter_section(folder, tested, details)
        ),
        drawn("The picture of predictions over time", [folder.traces], lambda: _trace_section(folder)),
        drawn("The picture of the MSPBE", curve, lambda: _mspbe_section(folder, stream, facts)),
    ]


def _nmsre_section(folder: RunFolder, tested: _Tested | None, questions: Sequence[dict[str, str]]) -> str:
    if tested is None or not tested[1]:
        return ""
    from horde_agent.runs.pictures import nmsre_picture

    nmsre_picture(curves(*tested), _sound(questions, tested[0].n_demons), folder.path / "nmsre.png")
    return figure(
        "Return error of the predictions",
        "nmsre.png",
        "A thin line per question, a colour per tested policy; dashed is the median over all questions, bold their "
        "mean. The error is the exponential trace (10 excursions) of the squared difference between the prediction "
        "at the start of a test and the return then measured, over the variance of that question's returns in "
        "the whole life (two passes). Below 1 a prediction tells more than the mean return would.",
    )


def _pen_section(folder: RunFolder, stream: Stream | None) -> str:
    if stream is None or not len(stream):
        return ""
    x, y = (stream.rows["pose"][:, i].astype(np.float64) for i in (0, 1))
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return ""
    from horde_agent.runs.pictures import pen_picture

    first = int(stream.rows["step"][0])
    since = f" From step {first:,} on." if first else ""
    pen_picture(x[known], y[known], folder.path / "pen.png")
    return figure(
        "The robot in its pen",
        "pen.png",
        "Path and visits of the body's centre, seen from above. Within reach means: no nearer to a wall than the "
        "body's radius of 12 cm; what stands in the pen is not left out. The robot itself does not know its position."
        + since,
    )


def _scatter_section(folder: RunFolder, tested: _Tested | None, details: dict[str, Any]) -> str:
    channels, actions = details.get("channels", []), details.get("actions", [])
    groups = {} if tested is None else _scatter_groups(*tested, channels, actions)
    if not groups:
        return ""
    from horde_agent.runs.pictures import scatter_picture

    scatter_picture(groups, folder.path / "predictions.png")
    return figure(
        "Predicted, and what then happened",
        "predictions.png",
        "A dot per test excursion of the second half of the life: the prediction at its start against the discounted "
        f"sum of the scaled reading measured in it, at the longest time scale; of a long life {MOST_DOTS:,} of each "
        "policy, at even distances. On the dotted line a prediction was right.",
    )


def _scatter_groups(
    tests: PastExcursions, tested: Sequence[Course], channels: list[str], actions: list[str]
) -> dict[str, dict[str, tuple[Floats, Floats]]]:
    """Return sensor to policy to (predictions, returns) of the second half of each policy's excursions."""
    columns: dict[int, list[int]] = {}
    names: dict[int, list[str]] = {}
    for course in tested:
        policy = course.policy
        for channel in shown_channels(channels, policy.channel.tolist()):
            mine = np.flatnonzero(policy.channel == channel)
            k = int(mine[np.argmax(policy.gamma[mine])])
            columns.setdefault(course.number, []).append(k)
            names.setdefault(course.number, []).append(f"{channels[channel]}, gamma {policy.gamma[k]:g}")
    found = dots(tests, tested, {number: np.array(places) for number, places in columns.items()})
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = {}
    for number, (predictions, returns) in found.items():
        for j, name in enumerate(names[number]):
            label = tests.policies[number].label(actions)
            groups.setdefault(name, {})[label] = (predictions[:, j], returns[:, j])
    return groups


def _trace_section(folder: RunFolder) -> str:
    panels: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for line in read_csv(folder.traces):
        values = (float(line["t_s"]), float(line["prediction"]), float(line["actual"]))
        panels.setdefault((line["channel"], line["panel"]), []).append(values)
    if not panels:
        return ""
    from horde_agent.runs.pictures import trace_picture

    columns = {key: tuple(np.array(values).T) for key, values in panels.items()}
    trace_picture(columns, folder.path / "traces.png")
    return figure(
        "Predictions over time",
        "traces.png",
        "What the robot predicts at each moment at the end of its life (orange) and the discounted sum of the scaled "
        "reading that then came (grey), along observations that it never learned from.",
    )


def _mspbe_section(folder: RunFolder, stream: Stream | None, facts: dict[str, Any] | None) -> str:
    lines = read_csv(folder.mspbe_curve)
    if len(lines) < 2:
        return ""
    from horde_agent.runs.pictures import mspbe_picture

    step, mspbe = (np.array([float(line[c] or "nan") for line in lines]) for c in ("step", "mspbe_scalar_mean"))
    period_s = float(stream.header.get("period_s", 1.0)) if stream is not None else 1.0
    mspbe_picture(step, mspbe, period_s, folder.path / "mspbe.png")
    return figure(
        "Online measure of learning",
        "mspbe.png",
        "The scalar estimate of the mean squared projected Bellman error, mean over all questions that are not set "
        "aside. It starts at 0 and rises while the secondary weights w learn. The MSPBE itself is never negative; the "
        "estimate is where w lags behind theta: read that as near 0. " + _validity(facts),
    )


def _validity(facts: dict[str, Any] | None) -> str:
    """Return how many estimates are valid, in a sentence."""
    if facts is None or facts["valid_after_updates"] is None:
        return ""
    not_yet = "none is" if not facts["n_not_yet_valid"] else f"{facts['n_not_yet_valid']:,} are"
    return (
        f"An estimate is valid once its question was updated {facts['valid_after_updates']:,.0f} times, which w needs "
        f"to move: {facts['n_valid']:,} are valid, {not_yet} not yet."
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def _marks(summary: dict[str, Any], details: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Return what a reader must know first of a run that did not come to its end: a word, then a sentence."""
    if not summary.get("stopped_early"):
        return []
    asked, steps = config.get("steps"), number(summary.get("steps"), ",")
    of = f" of {asked:,}" if isinstance(asked, int) else ""
    if details.get("unfinished"):
        return [
            "unfinished",
            f"Unfinished: cut off after {steps}{of} steps, before its tables were written. What they say was learned "
            "again from its log; how long anything took is not known.",
        ]
    why = str(details.get("stopped_by")).rstrip(".")
    return ["stopped early", f"Stopped early, after {steps}{of} steps: {why}."]


def _headline(summary: dict[str, Any], details: dict[str, Any]) -> str:
    known, diverged = summary.get, summary.get("diverged") or []
    tiles = [
        ("questions", number(known("n_questions"), ",")),
        ("robot time", _time(known("robot_time_s"))),
        ("learning steps", number(known("learning_steps"), ",")),
        ("test excursions", number(known("n_excursions"), ",")),
        ("on-policy tests", number(details.get("n_on_policy_tests"), ",")),
        ("median NMSRE", nmsre_text(known("median_nmsre"))),
        ("mean NMSRE", nmsre_text(known("mean_nmsre"))),
        ("NMSRE below 1", number(known("share_nmsre_below_1"), ".1%")),
        ("nearly constant", number(known("n_nearly_constant"), ",")),
        ("diverged", number(len(diverged), ",")),
    ]
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    told = [*details.get("notes", []), *unscored(details.get("not_scored", []))]
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in told)
    aside = ""
    if diverged:
        aside = f"<p>Set aside, because their weights diverged: {escape(', '.join(diverged[:20]))}</p>"
    meaning = f"{NMSRE_IS} {NEARLY_CONSTANT_IS}" if known("n_nearly_constant") else NMSRE_IS
    return f'<section><div class="tiles">{boxes}</div><p>{meaning}</p>{said}{aside}</section>'


def unscored(reasons: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each reason in details.json for which questions have no NMSRE."""
    return [f"Not scored: {r['n']:,} questions ({r['reason']}), the first is {r['first']}." for r in reasons]


def _means_section(questions: list[dict[str, str]]) -> str:
    """Return the table of means per policy and time scale: the first two parts of the questions' names."""
    cells: dict[tuple[str, str], list[float]] = {}
    for question in questions:
        parts = question["name"].split("/")
        if len(parts) == 3 and question["nmsre"] and question["diverged"] != "1":
            cells.setdefault((parts[0], parts[1]), []).append(float(question["nmsre"]))
    if not cells:
        return ""
    rows = [
        [policy, gamma.removeprefix("g"), str(len(v)), nmsre_text(median(v)), nmsre_text(fmean(v)), f"{_below(v):.0%}"]
        for (policy, gamma), v in cells.items()
    ]
    head = ["policy", "gamma", "questions", "median NMSRE", "mean NMSRE", "below 1"]
    return f"<section><h2>By policy and time scale</h2>{html_table(head, rows)}</section>"


def _below(values: Sequence[float]) -> float:
    return sum(value < 1.0 for value in values) / len(values)


def _worst_section(questions: list[dict[str, str]]) -> str:
    scored = [q for q in questions if q["nmsre"] and q["diverged"] != "1"]
    if not scored:
        return ""
    worst = sorted(scored, key=lambda q: -float(q["nmsre"]))[:N_WORST]
    rows = [
        [
            q["name"],
            nmsre_text(float(q["nmsre"])),
            f"{float(q['variance'] or 'nan'):.3g}",
            q["n_tests"],
            "yes" if q.get("nearly_constant") == "1" else "",
        ]
        for q in worst
    ]
    text = (
        "A reading that hardly changes has a tiny variance, so that its NMSRE is large until its value is learned to "
        "the last digit, and one that changes seldom has it where the tests happened to see a change in their last "
        f"steps alone; such questions can dominate the mean. {_weight_of([float(q['nmsre']) for q in scored])}"
    )
    head = ["question", "NMSRE", "variance of its returns (scaled units squared)", "tests", "nearly constant"]
    table = html_table(head, rows)
    return f"<section><h2>The worst questions</h2><p>{text}</p>{table}</section>"


def _weight_of(nmsre: Sequence[float]) -> str:
    """Return what part of the mean the worst hundredth of the questions makes, and the mean of the others."""
    ordered = sorted(nmsre, reverse=True)
    n = max(len(ordered) // 100, 1)
    if len(ordered) <= n or not sum(ordered):
        return ""
    share = sum(ordered[:n]) / sum(ordered)
    others = nmsre_text(fmean(ordered[n:]))
    return f"Here the worst {n} of {len(ordered)} make {share:.1%} of it; the mean of the others is {others}."


def _timing_section(summary: dict[str, Any], details: dict[str, Any]) -> str:
    known = summary.get
    rows = [
        ["steps of 100 ms lived", number(known("steps"), ",")],
        ["wall time", _time(known("wall_s"))],
        ["steps per second", number(known("steps_per_s"), ",.0f")],
        ["compiling the kernels", number(details.get("compile_s"), ".1f", " s")],
        ["one update, or its share of a batch, p50 / p99 / max", _percentiles(known("learn_ms"))],
        ["one cycle, p50 / p99 / max", _percentiles(known("cycle_ms"))],
        ["age of the newest packet when used, p50 / p99 / max", _percentiles(details.get("sensor_age_ms"))],
        ["lateness of a step, p50 / p99 / max", _percentiles(details.get("overrun_ms"))],
        ["steps in which the body was held (charging, safety)", number(details.get("n_not_applied"), ",")],
        ["demons updated per learning step (rho > 0)", number(known("n_updated_per_step"), ".1f")],
        ["largest trace", number(known("max_trace"), ".3g")],
        ["deadlines missed · gaps · checksum errors", _faults(summary)],
        ["excursions discarded because of a gap", number(details.get("n_discarded"), ",")],
        ["weights (SHA-256)", f"{summary.get('weights_sha256', '-')[:16]}..."],
    ]
    return f"<section><h2>Time and health</h2>{html_table(['', ''], rows)}</section>"


def _faults(summary: dict[str, Any]) -> str:
    return " · ".join(number(summary.get(key), ",") for key in ("deadlines_missed", "gaps", "crc_errors"))


def _percentiles(ms: dict[str, float] | None) -> str:
    if not ms:
        return "-"
    return " / ".join(f"{ms[key]:.3f}" for key in ("p50", "p99", "max")) + " ms"


def _settings_section(config: dict[str, Any]) -> str:
    tables = [config, *(table for table in config.values() if isinstance(table, dict))]
    rows = [[key, str(value)] for table in tables for key, value in table.items() if not isinstance(value, dict)]
    if not rows:
        return ""
    return f"<section><h2>Settings</h2>{html_table(['setting', 'value'], rows)}</section>"


def number(value: float | None, form: str, unit: str = "") -> str:
    """Return a number in a form, with its unit; a dash where it is not known."""
    return "-" if value is None else f"{value:{form}}{unit}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """Return an HTML table; whatever is in its cells is text."""
    top = _row("th", head) if any(head) else ""
    return f"<table>{top}{''.join(_row('td', row) for row in rows)}</table>"


def _row(tag: str, cells: list[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def figure(title: str, picture: str, text: str) -> str:
    """Return a section with a picture, its title above and a text below."""
    return (
        f'<section><h2>{escape(title)}</h2><img src="{picture}" alt="{escape(title)}"><p>{escape(text)}</p></section>'
    )


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #f5f5f3; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: .4rem 0 1rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
section { background: #fff; border: 1px solid #e3e3df; border-radius: 8px; padding: 1rem 1.2rem; margin: 0 0 1rem; }
img { max-width: 100%; height: auto; display: block; margin: 0 auto; } p { max-width: 52rem; color: #555; }
table { border-collapse: collapse; font-size: .9rem; } th { text-align: left; font-weight: 600; }
td, th { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; overflow-wrap: anywhere; }
td { font-variant-numeric: tabular-nums; } code { background: #f0f0ee; padding: 0 .25em; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; } .tiles b { display: block; font-size: 1.25rem; }
.tiles span { color: #666; font-size: .85rem; } .note { border-left: 3px solid #d1622b; padding-left: .7rem; }
"""


def _page(name: str, marks: Sequence[str], said: Sequence[str], sections: Sequence[str]) -> str:
    title = f"A life of the Horde: {name}" + (f" ({marks[0]})" if marks else "")
    first = "".join(f'<p class="note">{escape(sentence)}</p>' for sentence in marks[1:])
    if said:
        first += f"<h2>What is missing or damaged</h2><ul>{''.join(f'<li>{escape(s)}</li>' for s in said)}</ul>"
    parts = [f"<section>{first}</section>", *sections] if first else sections
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)} · horde</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )
