"""comparison.html: several runs beside each other, from the files of their folders and from nothing else.

Questions are matched by name. Where two runs tested the same one, the better is the one with the smaller NMSRE; runs of
other seeds met other excursions, so that a ratio near 1 says nothing.
"""

from __future__ import annotations

import base64
import math
import tomllib
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from horde_agent.measures.nmsre import nmsre_text
from horde_agent.measures.passes import MOST_POINTS
from horde_agent.runs import notes
from horde_agent.runs.config import BadInput
from horde_agent.runs.report import NMSRE_IS, NO_PICTURES, STYLE, figure, html_table, number
from horde_agent.runs.run_folder import RunFolder, read_csv, read_curve, unwritable

N_SHOWN = 12  # questions that a run answers so much better, or so much worse, than the first
_ROWS = (
    ("backend", ""),
    ("seed", "d"),
    ("steps", ",d"),
    ("learning_steps", ",d"),
    ("n_questions", ",d"),
    ("n_excursions", ",d"),
    ("median_nmsre", "nmsre"),
    ("mean_nmsre", "nmsre"),
    ("share_nmsre_below_1", ".1%"),
    ("n_nearly_constant", ",d"),
    ("mspbe_scalar_mean", ".3g"),
    ("max_trace", ".3g"),
    ("steps_per_s", ",.0f"),
    ("deadlines_missed", ",d"),
    ("gaps", ",d"),
)


class Lived(NamedTuple):
    """What is compared of a run; `nmsre` by question, those that were tested and not set aside."""

    name: str
    summary: dict[str, Any]
    config: dict[str, Any]
    nmsre: dict[str, float]
    curves: dict[str, tuple[list[float], list[float]]]


def write_comparison(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page that compares runs, and return its path.

    Args:
        paths: The runs' folders, two or more; the first is what the others are compared with.
        out: Where to write; the next free comparison-N.html of this folder when None.

    Raises:
        BadInput: If a folder holds no finished run, one is named twice, or the page cannot be written.
    """
    places = [path.resolve() for path in paths]
    if twice := next((path for path in places if places.count(path) > 1), None):
        raise BadInput(f"{twice} is named twice; name each run once")
    runs = _named([_read(path) for path in paths])
    page = out or next(free for k in count(1) if not (free := Path(f"comparison-{k}.html")).exists())
    sections = [_headline(runs), _settings(runs), _pictures(runs), _families(runs), *_pairs(runs)]
    title = "Runs of the Horde: " + ", ".join(run.name for run in runs)
    head = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>{head}'
        f"<style>{STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(unwritable(page, error)) from None
    return page


def _read(path: Path) -> Lived:
    folder = RunFolder(path)
    if not folder.summary.is_file():
        raise BadInput(
            f"{path} holds no finished run (no summary.json); `horde report {path}` finishes it from its log"
        )
    try:
        summary = notes.table(folder.summary)
        questions = read_csv(folder.questions)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({error}); `horde report {path}` says what can be made again") from None
    try:
        config = tomllib.loads(folder.config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    known = {q["name"]: float(q["nmsre"]) for q in questions if q.get("nmsre") and q.get("diverged") != "1"}
    curves = {
        "median NMSRE": _curve(path / "learning_curve.csv", "median_nmsre"),
        "mean NMSRE, online": _curve(path / "learning_curve.csv", "mean_nmsre_online"),
        "mean MSPBE estimate": _curve(path / "mspbe_curve.csv", "mspbe_scalar_mean"),
    }
    return Lived(path.resolve().name, summary, config, known, curves)


def _curve(path: Path, column: str) -> tuple[list[float], list[float]]:
    """Return steps and values of a curve, as many as a picture shows; none where there is no such file."""
    steps, values = read_curve(path, ("step", column), MOST_POINTS)
    known = [(x, y) for x, y in zip(steps, values, strict=True) if math.isfinite(x) and math.isfinite(y)]
    return [x for x, _ in known], [y for _, y in known]


def _named(runs: list[Lived]) -> list[Lived]:
    """Return the runs with names that tell them apart."""
    names = [run.name for run in runs]
    return [
        run._replace(name=f"{run.name} ({k + 1})" if names.count(run.name) > 1 else run.name)
        for k, run in enumerate(runs)
    ]


def _headline(runs: Sequence[Lived]) -> str:
    rows = []
    for key, form in _ROWS:
        values = [run.summary.get(key) for run in runs]
        if any(value is not None for value in values):
            cells = [
                str(v) if isinstance(v, str) else nmsre_text(v) if form == "nmsre" else number(v, form) for v in values
            ]
            rows.append([key.replace("_", " "), *cells])
    rows.append(["set aside", *(str(len(run.summary.get("diverged") or [])) for run in runs)])
    head = ["", *(run.name for run in runs)]
    return f"<section><h2>In numbers</h2>{html_table(head, rows)}<p>{NMSRE_IS}</p></section>"


def _settings(runs: Sequence[Lived]) -> str:
    """Return what the runs were asked differently."""
    keys = dict.fromkeys(key for run in runs for key, value in run.config.items() if not isinstance(value, dict))
    rows = [
        [key, *(str(run.config.get(key, "-")) for run in runs)]
        for key in keys
        if key != "out" and len({str(run.config.get(key)) for run in runs}) > 1
    ]
    if not rows:
        return "<section><h2>Settings</h2><p>All of them are the same.</p></section>"
    return f"<section><h2>Settings that differ</h2>{html_table(['', *(run.name for run in runs)], rows)}</section>"


def _pictures(runs: Sequence[Lived]) -> str:
    if find_spec("matplotlib") is None:
        return f"<section><p>{NO_PICTURES}</p></section>"
    from horde_agent.runs.pictures import comparison_picture

    sections = []
    for title in runs[0].curves:
        curves = {run.name: run.curves[title] for run in runs if run.curves[title][0]}
        if curves:
            picture = base64.b64encode(comparison_picture(curves, title)).decode()
            sections.append(figure(title[0].upper() + title[1:], f"data:image/png;base64,{picture}", ""))
    return "\n".join(sections)


def _families(runs: Sequence[Lived]) -> str:
    """Return the median NMSRE per policy and time scale: the first two parts of the names."""
    shared = set.intersection(*(set(run.nmsre) for run in runs))
    groups: dict[str, list[str]] = {}
    for name in runs[0].nmsre:
        if name in shared:
            groups.setdefault("/".join(name.split("/")[:-1]) or name, []).append(name)
    if not groups:
        return "<section><p>No question was tested twice in all of these runs, so none can be compared.</p></section>"
    rows = [
        [group, str(len(names)), *(nmsre_text(median([run.nmsre[name] for name in names])) for run in runs)]
        for group, names in groups.items()
    ]
    every = [[run.nmsre[name] for name in shared] for run in runs]
    rows.append(["all, median", str(len(shared)), *(nmsre_text(median(values)) for values in every)])
    rows.append(["all, mean", str(len(shared)), *(nmsre_text(fmean(values)) for values in every)])
    head = ["questions that all of them tested", "n", *(run.name for run in runs)]
    return f"<section><h2>Median NMSRE by family</h2>{html_table(head, rows)}</section>"


def _pairs(runs: Sequence[Lived]) -> list[str]:
    """Return, for each run but the first, which questions it answers better than that and which worse."""
    first, sections = runs[0], []
    for run in runs[1:]:
        shared = [name for name in first.nmsre if name in run.nmsre]
        ratios = {name: _ratio(run.nmsre[name], first.nmsre[name]) for name in shared}
        if not ratios:
            continue
        ordered = sorted(ratios, key=lambda name, ratios=ratios: ratios[name])  # type: ignore[misc]
        better = [name for name in ordered if ratios[name] < 1.0]
        worse = [name for name in reversed(ordered) if ratios[name] > 1.0]
        said = (
            f"Of {len(shared)} questions that both tested, {run.name} answers {len(better)} better and {len(worse)} "
            f"worse than {first.name}; the median of the ratios of NMSRE is {median(ratios.values()):.3f}."
        )
        parts = [f"<h2>{escape(run.name)} against {escape(first.name)}</h2><p>{escape(said)}</p>"]
        for title, names in (("Much better", better[:N_SHOWN]), ("Much worse", worse[:N_SHOWN])):
            rows = [[n, nmsre_text(first.nmsre[n]), nmsre_text(run.nmsre[n]), nmsre_text(ratios[n])] for n in names]
            if rows:
                parts.append(f"<h3>{title}</h3>{html_table(['question', first.name, run.name, 'ratio'], rows)}")
        sections.append(f"<section>{''.join(parts)}</section>")
    return sections


def _ratio(value: float, before: float) -> float:
    if before > 0.0:
        return value / before
    return 1.0 if value == 0.0 else math.inf
