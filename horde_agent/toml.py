"""Values and settings as TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

_MOST_DOTS = 32
_KEY_AND_DOT = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\"'-])(?:{_KEY_AND_DOT}){{{_MOST_DOTS + 1}}}")
"""A key of more than 32 dots: the standard library takes time proportional to the square of their number."""

_KINDS = {
    Path: "a path in quotes",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of names",
}


def typed(value: Any, kind: Any) -> Any:
    """Return a TOML value as a kind, a type of `_KINDS` or one of them or None; raise ValueError if it is another."""
    if type(None) in get_args(kind):
        base = get_args(kind)[0]
    else:
        base = get_origin(kind) or kind
    if (
        base is tuple
        and isinstance(value, list)
        and value
        and all(isinstance(one, str) for one in value)
    ):
        return tuple(value)
    is_whole = type(value) is float and value.is_integer()  # 6e4
    # Shards = 4
    if (base is Path and isinstance(value, str)) or (base in (float, str) and type(value) is int):
        try:
            return base(value)
        except OverflowError:
            raise ValueError("is a number of more than 300 digits") from None
    if type(value) is not base and not (base is int and is_whole):
        raise ValueError(f"must be {_KINDS[base]}, not {value!r}")
    return base(value)


def to_toml(table: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Return settings and versions as TOML; a setting without a value becomes a comment."""
    lines = [
        f"{k} = {toml_value(v)}" if v is not None else f"# {k} is not set" for k, v in table.items()
    ]
    lines += ["", "[versions]", *(f"{_key(k)} = {toml_value(v)}" for k, v in versions.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    if name.replace("-", "").replace("_", "").isalnum():
        return name
    return toml_value(name)


def toml_value(value: object) -> str:
    """Return a value as TOML: true or false, a number, a list, a table on one line, or a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = [f"{_key(name)} = {toml_value(one)}" for name, one in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    # The escapes of TOML
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file; raise OSError or ValueError if it cannot be read, or is none."""
    # Some editors begin a file with a byte order mark
    return parsed_toml(path.read_text(encoding="utf-8-sig"))


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
