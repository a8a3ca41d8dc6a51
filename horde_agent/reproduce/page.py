"""The page of a reproduction: claims and measurements, drawn from the results' JSON alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from horde_agent.life.timing import duration
from horde_agent.reproduce.result import Cell, Claim, Result, Table

_SHORT = {"reproduced": "yes", "partly reproduced": "part", "not reproduced": "no"}
SHORT_LIVES = (
    "Short lives: this scale shows that everything works. A verdict about how well something is learned means little "
    "here; the lives of --scale paper are as long as the paper's."
)
PAPER = "White, Modayil & Sutton (2012), Scaling life-long off-policy learning"


def write_page(out: Path, facts: Mapping[str, Cell], results: Sequence[Result]) -> Path:
    """Write index.html and summary.md, and return the path of the page.

    Args:
        out: Folder of the reproduction; an experiment's figures are in out/NAME.
        facts: What holds for all of it: command, scale, seeds, body.
        results: In the order in which they are read.
    """
    body = [_overview(facts, results), *(_section(result) for result in results)]
    page = out / "index.html"
    page.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>The paper, reproduced</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        "<body><main><h1>The paper, reproduced</h1>\n" + "\n".join(body) + "\n</main></body></html>\n",
        encoding="utf-8",
    )
    (out / "summary.md").write_text(_markdown(facts, results), encoding="utf-8")
    return page


# ---- the page -------------------------------------------------------------------------------------------------------


def _overview(facts: Mapping[str, Cell], results: Sequence[Result]) -> str:
    rows = [
        f'<tr><td><a href="#{escape(result.name)}">{escape(result.name)}</a></td><td>{escape(claim.text)}</td>'
        f"<td>{_badge(claim)}</td></tr>"
        for result in results
        for claim in result.claims
    ]
    rows_of_facts = [[name, value] for name, value in facts.items()]
    return (
        f"<section><p>{escape(PAPER)}: every claim of its experiments with the measurement made here. "
        "A verdict is computed from the numbers by the rule shown with it.</p>"
        f"{_warning(facts)}"
        f"<table><tr><th>experiment</th><th>claim</th><th>verdict</th></tr>{''.join(rows)}</table></section>\n"
        f"<section><h2>How it was made</h2>{_table(('', ''), rows_of_facts)}</section>"
    )


def _warning(facts: Mapping[str, Cell]) -> str:
    return f'<p class="note">{escape(SHORT_LIVES)}</p>' if facts.get("scale") == "quick" else ""


def _section(result: Result) -> str:
    parts = [f'<h2 class="large" id="{escape(result.name)}">{escape(result.title)}</h2>']
    parts += [f'<p class="note">{escape(remark)}</p>' for remark in result.remarks]
    parts += [_claim(claim) for claim in result.claims]
    parts += [
        f'<figure><img src="{escape(result.name)}/{escape(figure.file)}" alt="{escape(figure.caption[:80])}">'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in result.figures
    ]
    for table in result.tables:
        note = f"<p>{escape(table.note)}</p>" if table.note else ""
        parts.append(f"<h3>{escape(table.title)}</h3>{note}{_table(table.header, table.rows)}")
    settings = [*result.settings.items(), ("wall time", duration(result.seconds)), *result.versions.items()]
    parts.append(f"<details><summary>Settings and versions</summary>{_table(('', ''), settings)}</details>")
    return f"<section>{''.join(parts)}</section>"


def _claim(claim: Claim) -> str:
    lines = [("The paper", f"{claim.paper} ({claim.source})"), ("Measured", claim.measured)]
    lines += [(name, text) for name, text in (("Verdict by", claim.rule), ("Cause", claim.cause)) if text]
    rows = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in lines)
    return f'<div class="claim"><h3>{escape(claim.text)} {_badge(claim)}</h3><table>{rows}</table></div>'


def _badge(claim: Claim) -> str:
    return f'<span class="verdict {_SHORT[claim.verdict]}">{claim.verdict}</span>'


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    looks = [' class="number"' if all(map(_is_number, column)) else "" for column in zip(*rows, strict=True)]
    looks = looks if any(header) else [""] * len(header)
    top = "".join(f"<th{look}>{escape(name)}</th>" for look, name in zip(looks, header, strict=False))
    lines = [
        "".join(f"<td{look}>{escape(_text(cell))}</td>" for look, cell in zip(looks, row, strict=True)) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table>{f"<tr>{top}</tr>" if any(header) else ""}{body}</table></div>'


def _is_number(cell: Cell) -> bool:
    """Say whether a cell holds a number, or what stands for one, or one with its interval."""
    return not isinstance(cell, str) or re.fullmatch(r"-|-?[\d.][\d.,e+-]*( ?%| [±/] [\d.e+-]+)?", cell) is not None


def _text(cell: Cell) -> str:
    """Return a cell as text: four digits of a float, a dash for a missing value."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


# ---- the summary ----------------------------------------------------------------------------------------------------


def _markdown(facts: Mapping[str, Cell], results: Sequence[Result]) -> str:
    """Return the claims, figures and tables as Markdown."""
    lines = [f"# {PAPER}: claims and measurements", ""]
    lines += [f"* {name}: {_text(value)}" for name, value in facts.items()]
    lines += ["", SHORT_LIVES] if facts.get("scale") == "quick" else []
    for result in results:
        lines += ["", f"## {result.title}", ""]
        lines += [f"{remark}\n" for remark in result.remarks]
        lines += table_lines(
            Table("", ("claim", "the paper", "measured", "verdict"), [_claim_row(c) for c in result.claims])
        )
        for figure in result.figures:
            lines += ["", f"![{figure.caption}]({result.name}/{figure.file})"]
        for table in result.tables:
            lines += ["", f"### {table.title}", "", *([table.note, ""] if table.note else []), *table_lines(table)]
        settings = "; ".join(f"{name} {_text(value)}" for name, value in result.settings.items())
        lines += ["", f"Settings: {settings}; wall time {duration(result.seconds)}."]
    return "\n".join(lines) + "\n"


def _claim_row(claim: Claim) -> list[Cell]:
    cause = f" Cause: {claim.cause}" if claim.cause else ""
    return [claim.text, f"{claim.paper} ({claim.source})", claim.measured + cause, f"**{claim.verdict}**"]


def table_lines(table: Table) -> list[str]:
    """Return a table as lines of Markdown."""
    rows = [table.header, ["---"] * len(table.header), *([_text(cell) for cell in row] for row in table.rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #f5f5f3; margin: 0; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: .4rem 0 1rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
h2.large { font-size: 1.3rem; } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
section { background: #fff; border: 1px solid #e3e3df; border-radius: 8px; padding: 1rem 1.2rem; margin: 0 0 1rem; }
figure { margin: 1.2rem 0; } img { max-width: 100%; height: auto; display: block; margin: 0 auto; }
p, figcaption { max-width: 54rem; color: #555; } figcaption { font-size: .9rem; margin: .4rem auto 0; }
table { border-collapse: collapse; font-size: .9rem; } .scroll { overflow-x: auto; }
td, th { padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; text-align: left; }
td { font-variant-numeric: tabular-nums; } a { color: #3b6fb6; }
.number { text-align: right; } td.number { white-space: nowrap; }
.claim { border-left: 3px solid #ddd; padding-left: .9rem; } .claim th { color: #666; font-weight: 500; width: 6.5rem; }
.note { border-left: 3px solid #d1622b; padding-left: .7rem; }
.verdict { font-size: .8rem; font-weight: 600; padding: .1rem .5rem; border-radius: 1rem; white-space: nowrap; }
.yes { background: #dff0e2; color: #1d6b35; } .part { background: #fdf0d2; color: #8a5a00; }
.no { background: #f8dcdc; color: #9b1c1c; } details { margin-top: 1rem; } summary { cursor: pointer; color: #555; }
"""
