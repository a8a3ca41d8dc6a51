"""How text is put on a terminal, or on what is none: width, colours, block characters, pictures drawn in place."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

SUBJECT = 24  # characters
COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "FAIL": "\x1b[31m", "skip": "\x1b[2m"}


def print_line(verdict: str, subject: str, text: str) -> None:
    """Print one verdict, its text wrapped beside its subject."""
    margin = 8 + SUBJECT
    wrapped = textwrap.wrap(text, max(width() - margin, 30)) or [""]
    colour, plain = (COLOURS[verdict], "\x1b[0m") if has_colour() else ("", "")
    print(f"  {colour}{verdict:<4}{plain}  {subject.replace('_', ' '):<{SUBJECT}}{wrapped[0]}")
    for rest in wrapped[1:]:
        print(f"{'':{margin}}{rest}")
    sys.stdout.flush()


@contextmanager
def screen(live: bool) -> Iterator[None]:
    """Hide the cursor while a picture is drawn in place."""
    if not live:
        yield
        return
    sys.stdout.write("\x1b[?25l\x1b[2J")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h")
        sys.stdout.flush()


def show(picture: str, live: bool) -> None:
    """Print a picture: over the last one, or below it."""
    if live:  # each row erases what was longer before, and the last one what was below
        rows = "".join(f"{row}\x1b[K\n" for row in picture.splitlines())
        sys.stdout.write(f"\x1b[H{rows}\x1b[J")
    else:
        sys.stdout.write(picture + "\n\n")
    sys.stdout.flush()


def width() -> int:
    """Return the number of characters in a row."""
    return shutil.get_terminal_size((80, 24)).columns


def has_colour() -> bool:
    """Tell whether ANSI colours are wanted (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def has_blocks() -> bool:
    """Tell whether block characters can be written."""
    try:
        "█·".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def complain(sentence: str, code: int) -> int:
    """Say on stderr what is wrong, and return the exit code."""
    print(f"horde-robot: {' '.join(sentence.split())}", file=sys.stderr)
    return code
