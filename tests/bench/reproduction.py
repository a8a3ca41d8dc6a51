"""Put what a reproduction measured into docs/results.md.

    python -m tests.bench.reproduction runs/paper

Between `<!-- measured NAME -->` and `<!-- end -->` stands, for each experiment, what its result.json says, and `facts`
what holds for all. The first figure of each goes to docs/images. Nothing is written by hand there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from horde_agent.life.timing import duration
from horde_agent.reproduce import EXPERIMENTS
from horde_agent.reproduce.page import table_lines
from horde_agent.reproduce.result import Claim, Result

DOCS = Path(__file__).resolve().parents[2] / "docs"
LONGEST_TABLE = 14
"""Rows; longer ones are on the run's own page alone."""


def main(words: Sequence[str]) -> int:
    """Fill in every experiment that the folder holds."""
    out, page = Path(words[0]), DOCS / "results.md"
    text = page.read_text(encoding="utf-8")
    results = [Result.read(path) for name in EXPERIMENTS if (path := out / name / "result.json").is_file()]
    text = filled(text, "facts", facts(out, results))
    for result in results:
        text = filled(text, result.name, section(result, copied(out, result)))
    page.write_text(text, encoding="utf-8")
    print(f"{page}: {', '.join(result.name for result in results)}")
    return 0


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """Return a text with the lines between the marks of a name.

    Raises:
        ValueError: If the marks are not there.
    """
    mark = re.compile(rf"(<!-- measured {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not mark.search(text):
        raise ValueError(f"the page has no place marked <!-- measured {name} --> ... <!-- end -->")
    return mark.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text)


def facts(out: Path, results: Sequence[Result]) -> list[str]:
    """Return what holds for the whole run."""
    settings = json.loads((out / "settings.json").read_text(encoding="utf-8"))
    lives_s = float(json.loads((out / "lives-took-s.json").read_text(encoding="utf-8")))
    whole = duration(lives_s + sum(result.seconds for result in results))
    verdicts = [claim.verdict for result in results for claim in result.claims]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(sorted(verdicts, reverse=True)))
    return [
        f"`--scale {settings['scale']}`, seeds {settings['seeds']}: {whole}, of which the lives, which the experiments "
        f"share, took {duration(lives_s)}. Of {len(verdicts)} claims: {counts}.",
    ]


def section(result: Result, picture: str) -> list[str]:
    """Return one experiment: claims with their causes, the first figure, the short tables."""
    settings = "; ".join(f"{name} {value}" for name, value in result.settings.items() if value is not None)
    lines = [f"{duration(result.seconds)}. {settings}.", ""]
    if picture:
        lines += [f"![{result.title}](images/{picture})", "", result.figures[0].caption, ""]
    for claim in result.claims:
        lines += said(claim)
    for table in result.tables:
        if len(table.rows) <= LONGEST_TABLE:
            lines += ["", f"**{table.title}.** {table.note}".rstrip(), "", *table_lines(table)]
    return [*lines, ""]


def said(claim: Claim) -> list[str]:
    """Return a claim in one item of a list."""
    cause = f" *Cause:* {claim.cause}" if claim.cause else ""
    return [f"* *{claim.text.rstrip('.')}* ({claim.source}): **{claim.verdict}**. {claim.measured}{cause}"]


def copied(out: Path, result: Result) -> str:
    """Copy the first figure to the docs, in 128 colours, and return its name."""
    if not result.figures:
        return ""
    name = f"reproduce-{result.name}.png"
    with Image.open(out / result.name / result.figures[0].file) as picture:
        picture.convert("RGB").quantize(128).save(DOCS / "images" / name, optimize=True)
    return name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
