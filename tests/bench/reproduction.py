"""Write the measurements of a reproduction into docs/results.md and docs/results/*.csv.

    python -m tests.bench.reproduction runs/paper

Text between `<!-- measured NAME -->` and `<!-- end -->` is replaced: for each experiment by the
verdicts on its claims (with the measurement if one is not reproduced), its first figure and links
to its tables, for `facts` by a summary of the whole run, and for `later` by the verdicts on the
experiments of later papers. Every claim and every table is a CSV file in docs/results. A folder may
hold some of the experiments.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from examples.reproduce import EXPERIMENTS, FURTHER, LATER
from examples.reproduce.experiment import Cell, Result
from horde_agent.life.counts import duration

DOCS = Path(__file__).resolve().parents[2] / "docs"


def results_in(out: Path, names: Iterable[str]) -> list[Result]:
    """Return the results of those experiments that have a file of them."""
    paths = [out / name / "result.json" for name in names]
    return [Result.read(path) for path in paths if path.is_file()]


def main(words: Sequence[str]) -> int:
    out = Path(words[0])
    page = DOCS / "results.md"
    text = page.read_text(encoding="utf-8")
    results = results_in(out, EXPERIMENTS)
    later = results_in(out, FURTHER)
    if results:
        text = filled(text, "facts", facts(out, results))
    for result in later:
        copied(out, result)
        section(result, "")
    text = filled(text, "later", verdicts_on_later(later))
    for result in results:
        text = filled(text, result.name, section(result, copied(out, result)))
    page.write_text(text, encoding="utf-8")
    print(f"{page}: {', '.join(result.name for result in (*results, *later))}")
    return 0


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """Return a text with `lines` between the marks of `name`.

    Raises:
        ValueError: If the marks are missing.
    """
    mark = re.compile(rf"(<!-- measured {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not mark.search(text):
        raise ValueError(f"the page has no place marked <!-- measured {name} --> ... <!-- end -->")
    return mark.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text)


def facts(out: Path, results: Sequence[Result]) -> list[str]:
    """Return a summary of the whole run."""
    settings = json.loads((out / "settings.json").read_text(encoding="utf-8"))
    whole = duration(sum(result.seconds for result in results))
    verdicts = [claim.verdict for result in results for claim in result.claims]
    names = ", ".join(result.name for result in results)
    counts = ", ".join(
        f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(sorted(verdicts, reverse=True))
    )
    return [
        f"`--scale {settings['scale']}`, seeds {settings['seeds']}: {whole}. Of {len(verdicts)} claims of {names}: "
        f"{counts}.",
    ]


def verdicts_on_later(results: Sequence[Result]) -> list[str]:
    """Return the table of verdicts of all experiments of later papers, after renewing the rows of these in its CSV."""
    path = DOCS / "results" / "later.csv"
    header = ("experiment", "reproduced", "partly", "not", "seeds", "wall time")
    rows: dict[str, Sequence[Cell]] = {}
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            rows = {row[0]: row for row in list(csv.reader(file))[1:]}
    for result in results:
        verdicts = [claim.verdict.split()[0] for claim in result.claims]
        counts = (verdicts.count(kind) for kind in ("reproduced", "partly", "not"))
        rows[result.name] = (
            result.name,
            *counts,
            result.settings.get("seeds"),
            duration(result.seconds),
        )
    ordered = [rows[name] for name in LATER if name in rows]
    _written(path, "", header, ordered)
    linked = [(*map(str, row), f"[claims](results/{row[0]}-claims.csv)") for row in ordered]
    return [
        f"| {' | '.join(row)} |"
        for row in ((*header, "claims"), ["---"] * (len(header) + 1), *linked)
    ]


def section(result: Result, picture: str) -> list[str]:
    """Return one experiment: first figure, verdicts, links to its tables, which this writes."""
    settings = "; ".join(
        f"{name} {value}" for name, value in result.settings.items() if value is not None
    )
    lines = [f"{duration(result.seconds)}. {settings}.", ""]
    if picture:
        lines += [f"![{result.title}](images/{picture})", "", result.figures[0].caption, ""]
    for claim in result.claims:
        measured = ""
        if claim.verdict != "reproduced":
            measured = f" {claim.measured}"
        cause = ""
        if claim.cause:
            cause = f" *Cause:* {claim.cause}"
        lines.append(
            f"* *{claim.text.rstrip('.')}* ({claim.source}): **{claim.verdict}**.{measured}{cause}"
        )
    folder = DOCS / "results"
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{result.name}-*.csv"):
        old.unlink()
    claims = [
        (c.text, c.source, c.paper, c.measured, c.verdict, c.rule, c.cause) for c in result.claims
    ]
    header = ("claim", "source", "paper", "measured", "verdict", "rule", "cause")
    links = [
        _written(
            folder / f"{result.name}-claims.csv",
            "claims",
            header,
            claims,
        )
    ]
    for table in result.tables:
        slug = re.sub(r"\W+", "-", table.title.lower()).strip("-")
        links.append(
            _written(folder / f"{result.name}-{slug}.csv", table.title, table.header, table.rows)
        )
    return [*lines, "", f"Tables: {'; '.join(links)}.", ""]


def copied(out: Path, result: Result) -> str:
    """Copy the first figure to the docs, in 128 colours, and return its name."""
    if not result.figures:
        return ""
    name = f"reproduce-{result.name}.png"
    with Image.open(out / result.name / result.figures[0].file) as picture:
        picture.convert("RGB").quantize(128).save(DOCS / "images" / name, optimize=True)
    return name


def _written(path: Path, title: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Write a table as CSV, numbers with at most six digits, and return a link to it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(
            [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows
        )
    return f"[{title}](results/{path.name})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
