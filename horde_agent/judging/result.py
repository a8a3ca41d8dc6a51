"""What `horde evaluate` shows and writes: a table, result.json and report.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as TerminalTable

from horde_agent import html
from horde_agent.judging.recorded import RecordedData
from horde_agent.processes import own_version
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.files import finite, write_json, write_whole
from horde_agent.scoring.judgement import (
    BEHAVIOUR,
    BIASED,
    LABELS,
    Evaluation,
    Judgement,
)
from horde_agent.scoring.shown import EstimateLine, cells, head, number_text, sentence
from horde_agent.scoring.verdict import ENOUGH

RESULT = "result.json"
REPORT = "report.html"

EXPLANATIONS = (
    "A value is the mean return of an episode under the policy. Importance sampling weights each "
    "logged return by the product of the ratios pi/b of its actions; per-decision forms weight each "
    "reward by the ratios before it only. The doubly robust forms correct a fitted Q by the weighted "
    "errors that it makes. Fitted Q and GVF use no products of ratios: their error is that of the "
    "tiles, which no resampling shows. So their interval is that of the weighted doubly robust "
    "estimate.",
    "The effective size is (sum w)^2 / sum w^2, in episodes, or the number of episodes over the "
    "expected square of w, which b shows, if that is smaller: then the heaviest weights were not seen. "
    f"Below {ENOUGH:g} an estimate has no interval, and the policy no verdict.",
)


def as_record(evaluation: Evaluation, data: RecordedData) -> dict[str, Any]:
    """Return the contents of result.json."""
    config = evaluation.config
    episodes = evaluation.episodes
    n_terminated = int(episodes.is_terminated.sum())
    return {
        "data": data.name,
        "gamma": config.gamma,
        "truncated": config.truncated,
        "level": config.level,
        "n_resamples": config.n_resamples,
        "seed": config.seed,
        "n_episodes": episodes.n_episodes,
        "n_transitions": episodes.n_transitions,
        "n_terminated": n_terminated,
        "n_truncated": episodes.n_episodes - n_terminated,
        "smallest_effective_size": ENOUGH,
        "behaviour": _numbers(evaluation.behaviour),
        "policies": [_policy(judgement) for judgement in evaluation.judgements],
        "notes": list(data.notes),
        "version": own_version(),
    }


def _policy(judgement: Judgement) -> dict[str, Any]:
    difference = None
    if judgement.difference is not None:
        difference = _numbers(judgement.difference)
    return {
        "policy": judgement.policy,
        "verdict": judgement.verdict,
        "can_judge": judgement.can_judge,
        "difference": difference,
        "weight_share": judgement.share._asdict(),
        "mean_weight": finite(judgement.mean_weight),
        "remarks": remarks(judgement),
        "estimates": [_numbers(line) for line in judgement.lines],
    }


def _numbers(line: EstimateLine) -> dict[str, Any]:
    return {key: finite(value) for key, value in line._asdict().items()}


def write_result(evaluation: Evaluation, data: RecordedData, out: Path) -> Path:
    """Write result.json and report.html into a folder, and return the path of the page."""
    try:
        write_json(out / RESULT, as_record(evaluation, data))
        write_whole(out / REPORT, page_of(evaluation, data))
    except OSError as error:
        raise BadInput(f"--out {out} cannot be written ({error.strerror})") from None
    return out / REPORT


def remarks(judgement: Judgement) -> list[str]:
    """Return what a reader of the estimates would miss: which values contradict their interval."""
    names = [
        LABELS[line.estimator]
        for line in judgement.lines
        if line.estimator in BIASED and (line.value < line.low or line.value > line.high)
    ]
    if not names:
        return []
    return [
        f"Outside of the interval: {', '.join(names)}. The interval is that of the weighted doubly robust estimate; "
        "the difference is an error of the tiles or of the learning."
    ]


def terminal_table(evaluation: Evaluation, judgement: Judgement) -> TerminalTable:
    """Return the estimates of a policy as a table of the terminal."""
    table = TerminalTable(title=judgement.policy, title_justify="left", box=None)
    label, *numbers = head(evaluation.config.level)
    table.add_column(label)
    for text in numbers:
        table.add_column(text, justify="right")
    for line in judgement.lines:
        table.add_row(LABELS[line.estimator], *cells(line))
    table.add_row(BEHAVIOUR, *cells(evaluation.behaviour), style="dim")
    return table


# ---- the page ----------------------------------------------------------------------------------------


def page_of(evaluation: Evaluation, data: RecordedData) -> str:
    """Return the page with a section per policy, its intervals drawn."""
    sections = [_summary(evaluation, data)]
    sections += [_section(evaluation, judgement) for judgement in evaluation.judgements]
    explanations = "".join(html.element("p", text) for text in EXPLANATIONS)
    sections.append(html.section("What the estimators are", explanations))
    if data.notes:
        sections.append(html.section("Remarks on the data", html.items(data.notes)))
    title = f"Policies judged from {data.name}"
    return html.page(f"{title} · horde", sections, heading=title)


def _summary(evaluation: Evaluation, data: RecordedData) -> str:
    episodes = evaluation.episodes
    behaviour = evaluation.behaviour
    tiles = html.tiles(
        [
            ("episodes", f"{episodes.n_episodes:,}"),
            ("steps", f"{episodes.n_transitions:,}"),
            ("terminated", f"{int(episodes.is_terminated.sum()):,}"),
            ("gamma", f"{evaluation.config.gamma:g}"),
            ("mean logged return", number_text(behaviour.value)),
        ]
    )
    rows = [[judgement.policy, judgement.verdict] for judgement in evaluation.judgements]
    note = html.element("p", f"Actions: {', '.join(data.actions)}.")
    return html.section("Verdicts", tiles, html.table(["policy", "verdict"], rows), note)


def _section(evaluation: Evaluation, judgement: Judgement) -> str:
    lines = [[_short_label(line.estimator), *cells(line)] for line in judgement.lines]
    lines.append([BEHAVIOUR, *cells(evaluation.behaviour)])
    verdict = html.element("p", sentence(judgement.verdict))
    if not judgement.can_judge:
        verdict = html.notes([sentence(judgement.verdict)])
    picture = _picture(evaluation.behaviour, judgement.lines)
    table = html.table(head(evaluation.config.level), lines)
    below = "".join(html.element("p", text) for text in remarks(judgement))
    return html.section(judgement.policy, verdict, picture, table, below)


def _picture(behaviour: EstimateLine, lines: Sequence[EstimateLine]) -> str:
    """Return the values and intervals as an image."""
    from horde_agent.runs.reporting.pictures import interval_picture  # takes long to import

    by_name = {_short_label(line.estimator): line for line in lines}
    return html.image(
        html.png(interval_picture(by_name, BEHAVIOUR, behaviour)), "values and intervals"
    )


def _short_label(estimator: str) -> str:
    """Return the name of an estimator, for narrow screens."""
    return LABELS[estimator].replace("importance sampling", "IS")
