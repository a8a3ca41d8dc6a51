"""HTML pages of results: sections with text, tables and figures. Every text is escaped here, and nowhere else."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape

LONG_NAME = 16  # characters of a name that may be broken
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #f5f5f3; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: .4rem 0 1rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
section { background: #fff; border: 1px solid #e3e3df; border-radius: 8px; padding: 1rem 1.2rem; margin: 0 0 1rem; }
img { max-width: 100%; height: auto; display: block; margin: 0 auto; } p { max-width: 52rem; color: #555; }
table { border-collapse: collapse; font-size: .9rem; display: block; }
/* What is wider than the page scrolls, with a shadow at the side where it goes on. */
table, .picture { overflow-x: auto; background: linear-gradient(to right, #fff 40%, #fff0) left / 2.5rem 100%,
  linear-gradient(to left, #fff 40%, #fff0) right / 2.5rem 100%,
  linear-gradient(to right, #0004, #0000) left / .7rem 100%,
  linear-gradient(to left, #0004, #0000) right / .7rem 100%;
  background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
th { text-align: left; font-weight: 600; }
td, th { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; overflow-wrap: break-word; }
td { font-variant-numeric: tabular-nums; } .number { white-space: nowrap; }
code { background: #f0f0ee; padding: 0 .25em; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; } .tiles b { display: block; font-size: 1.25rem; }
.tiles span { color: #666; font-size: .85rem; } .note { border-left: 3px solid #d1622b; padding-left: .7rem; }
@media (min-width: 40rem) { wbr { display: none; } }
@media (max-width: 40rem) {
  main { padding: .6rem; } section { padding: .8rem; } table { font-size: .8rem; }
  td, th { padding: .2rem .55rem .2rem 0; } h1 { overflow-wrap: anywhere; }
  .picture img { max-width: none; width: 40rem; mix-blend-mode: multiply; }
}
"""


def page(
    title: str, sections: Iterable[str], *, heading: str | None = None, style: str = STYLE
) -> str:
    """Return a whole page of sections, of which empty ones are omitted; its heading is the title when None."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>\n'
        f"<body><main><h1>{escape(heading or title)}</h1>\n"
        + "\n".join(filter(None, sections))
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section with a title, unless that is empty, above its parts, which are HTML."""
    return f"<section>{element('h2', title) if title else ''}{''.join(parts)}</section>"


def element(tag: str, text: str, **attributes: str) -> str:
    """Return an element that contains text; a final `_` is removed from the attributes' names.

    Examples:
        >>> element("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
    """
    attribute_text = "".join(
        f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{attribute_text}>{escape(text)}</{tag}>"


def notes(texts: Iterable[str]) -> str:
    """Return paragraphs that stand out."""
    return "".join(element("p", text, class_="note") for text in texts)


def items(texts: Iterable[str]) -> str:
    """Return a list with bullets."""
    return f"<ul>{''.join(element('li', text) for text in texts)}</ul>"


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a row of tiles."""
    boxes = "".join(
        f"<div>{element('b', value)}{element('span', name)}</div>" for name, value in values
    )
    return f'<div class="tiles">{boxes}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table of text; without its head if all names there are empty, and without an empty caption."""
    lines = [("td", row) for row in rows]
    if any(head):
        lines.insert(0, ("th", head))
    cells = ("".join(f"<{tag}>{breakable(cell)}</{tag}>" for cell in row) for tag, row in lines)
    above = ""
    if caption:
        above = element("caption", caption)
    return f"<table>{above}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def breakable(text: str) -> str:
    """Return a text as HTML in which long names may end a line after "/", "_" and "-", and numbers may not.

    Examples:
        >>> breakable("a < b/c"), breakable("forward/ir_distance_6")
        ('a &lt; b/c', 'forward/<wbr>ir_<wbr>distance_<wbr>6')
        >>> breakable("-5.9e-08")
        '<span class="number">-5.9e-08</span>'
    """
    if re.fullmatch(r"-?\d[\d.]*e-\d+", text):
        return element("span", text, class_="number")
    words = []
    for word in text.split(" "):
        shown = escape(word)
        if len(word) >= LONG_NAME:
            shown = re.sub(r"([/_-])", r"\1<wbr>", shown)
        words.append(shown)
    return " ".join(words)


def png(picture: bytes) -> str:
    """Return a PNG as the source of an image that is part of the page."""
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def image(source: str, title: str) -> str:
    """Return an image (a file's name, or `png`), which scrolls if it is wider than the page; `title` describes it."""
    return f'<div class="picture"><img src="{escape(source)}" alt="{escape(title)}"></div>'


def figure(title: str, picture: str, text: str) -> str:
    """Return a section with a picture (a file's name, or `png`), its title above and a text below."""
    return section(title, image(picture, title), element("p", text))
