"""How an evaluation is shown: the cells of its tables, and its form in a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Protocol

UNKNOWN = "unknown"


class Line(Protocol):
    """One estimate of a policy's value."""

    @property
    def value(self) -> float:
        """The estimate, NaN if it is unknown."""

    @property
    def low(self) -> float:
        """Lower end of its interval, NaN without one."""

    @property
    def high(self) -> float:
        """Upper end of its interval, NaN without one."""

    @property
    def effective_size(self) -> float:
        """In episodes."""


def head(level: float) -> list[str]:
    """Return the head of a table of estimates with intervals of a probability."""
    return ["estimator", "value", f"{level:.0%} from", "to", "effective size"]


def cells(line: Line) -> list[str]:
    """Return the numbers of an estimate as texts."""
    value = number_text(line.value)
    if math.isnan(line.value):
        value = UNKNOWN
    size = f"{line.effective_size:,.1f}"
    return [value, number_text(line.low), number_text(line.high), size]


def number_text(value: float) -> str:
    """Return a number with four digits, "-" if it is unknown."""
    if math.isnan(value):
        return "-"
    return f"{value:.4g}"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def html_table(caption: str, table_head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts, which are escaped, with a caption above it."""
    lines = [_row("th", table_head)]
    lines += [_row("td", row) for row in rows]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _row(tag: str, texts: Sequence[str]) -> str:
    elements = "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
    return f"<tr>{elements}</tr>"
