"""TOML texts of other people, read without a crash or a long wait."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_DOTS = 32
_KEY_AND_DOT = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\"'-])(?:{_KEY_AND_DOT}){{{_MOST_DOTS + 1}}}")
"""A key of more than 32 dots: the standard library takes time proportional to the square of their number."""


def parsed_toml(text: str) -> dict[str, Any]:
    """Return a TOML text as a table; raise ValueError if it is none, or its tables or lists are nested too deeply."""
    long_key = _LONG_KEY.search(text)
    if long_key is not None:
        line = text.count("\n", 0, long_key.start()) + 1
        raise ValueError(f"line {line}: a key has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its tables or lists are nested too deeply") from None
