"""The page of a reproduction: claims and measurements, drawn from the results' JSON alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from examples.reproduce.checks import CheckResult
from examples.reproduce.experiment import Cell, Result
from horde_agent.html import STYLE, element, notes, page, section, table
from horde_agent.life.counts import duration

SHORT_LIVES = (
    "Short lives: this scale shows that everything works. A verdict about how well something is learned means little "
    "here; --scale paper learns from lives as long as the paper's."
)
PAPER = "White, Modayil & Sutton (2012), Scaling life-long off-policy learning, and later papers"


def write_page(out: Path, facts: Mapping[str, Cell], results: Sequence[Result]) -> Path:
    """Write index.html into a folder with each experiment's figures in out/NAME, and return its path.

    `facts` hold for all results: command, scale, seeds, body.
    """
    provenance = section("How it was made", _table(("", ""), list(facts.items())))
    html = page(
        "The paper, reproduced",
        [_overview(facts, results), provenance, *map(_section, results)],
        style=_STYLE,
    )
    (out / "index.html").write_text(html, encoding="utf-8")
    return out / "index.html"


def _overview(facts: Mapping[str, Cell], results: Sequence[Result]) -> str:
    rows = [
        f"<tr><td>{element('a', result.name, href=f'#{result.name}')}</td>{element('td', claim.text)}"
        f"<td>{_badge(claim)}</td></tr>"
        for result in results
        for claim in result.claims
    ]
    text = (
        f"{PAPER}: every claim of the experiments with the measurement made here. A verdict is computed from the "
        "numbers by the rule shown with it."
    )
    head = "<tr><th>experiment</th><th>claim</th><th>verdict</th></tr>"
    warning = notes([SHORT_LIVES] if facts.get("scale") == "quick" else [])
    return section("", element("p", text), warning, f"<table>{head}{''.join(rows)}</table>")


def _section(result: Result) -> str:
    parts = [element("h2", result.title, class_="large", id=result.name), notes(result.remarks)]
    parts += map(_claim, result.claims)
    for figure in result.figures:
        picture = f'<img src="{escape(result.name)}/{escape(figure.file)}" alt="{escape(figure.caption[:80])}">'
        parts.append(f"<figure>{picture}{element('figcaption', figure.caption)}</figure>")
    for numbers in result.tables:
        note = ""
        if numbers.note:
            note = element("p", numbers.note)
        parts.append(element("h3", numbers.title) + note + _table(numbers.header, numbers.rows))
    settings = [
        *result.settings.items(),
        ("wall time", duration(result.seconds)),
        *result.versions.items(),
    ]
    parts.append(
        f"<details><summary>Settings and versions</summary>{_table(('', ''), settings)}</details>"
    )
    return section("", *parts)


def _claim(claim: CheckResult) -> str:
    lines = [("The paper", f"{claim.paper} ({claim.source})"), ("Measured", claim.measured)]
    lines += [
        (name, text) for name, text in (("Verdict by", claim.rule), ("Cause", claim.cause)) if text
    ]
    rows = "".join(f"<tr>{element('th', name)}{element('td', text)}</tr>" for name, text in lines)
    return f'<div class="claim"><h3>{escape(claim.text)} {_badge(claim)}</h3><table>{rows}</table></div>'


def _badge(claim: CheckResult) -> str:
    return element("span", claim.verdict, class_=f"verdict {claim.verdict.split()[0]}")


def _table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    return f'<div class="scroll">{table(header, ([_text(cell) for cell in row] for row in rows))}</div>'


def _text(cell: Cell) -> str:
    """Return a cell as text: four digits of a float, a dash for a missing value."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)


_STYLE = f"""{STYLE}
main {{ max-width: 70rem; }} h2.large {{ font-size: 1.3rem; }} h3 {{ font-size: 1rem; margin: 1.2rem 0 .3rem; }}
figure {{ margin: 1.2rem 0; }} p, figcaption {{ max-width: 54rem; color: #555; }}
figcaption {{ font-size: .9rem; margin: .4rem auto 0; }} .scroll {{ overflow-x: auto; }} a {{ color: #3b6fb6; }}
.claim {{ border-left: 3px solid #ddd; padding-left: .9rem; }}
.claim th {{ color: #666; font-weight: 500; width: 6.5rem; }}
.verdict {{ font-size: .8rem; font-weight: 600; padding: .1rem .5rem; border-radius: 1rem; white-space: nowrap; }}
.reproduced {{ background: #dff0e2; color: #1d6b35; }} .partly {{ background: #fdf0d2; color: #8a5a00; }}
.not {{ background: #f8dcdc; color: #9b1c1c; }} details {{ margin-top: 1rem; }}
summary {{ cursor: pointer; color: #555; }}
"""
