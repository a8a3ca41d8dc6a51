"""Flags and names as settings, by tyro; what does not fit is refused in one sentence.

Numbers are read here, for all commands. Tyro hands out its messages only in a frame on standard
error; what would avoid reading them there (`tyro._errors.on_parse_error`) is private, and newer
than the oldest version that is supported.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import fields
from typing import Any

from tyro import cli
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from horde_agent.refusals import BadInput, did_you_mean

SWITCHES = {"--rarity": "--rarity=true", "--no-rarity": "--rarity=false"}
"""Flags of True, False or None as written, and as parsed: tyro has no flags without a default."""
_FRAME = ("╭", "╰", "─", "---")


def whole(text: str) -> int:
    """Parse a whole number: 60000, 60_000 or 6e4; raise ValueError if it is none."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is no whole number; write 60000 or 6e4")


def number(text: str) -> float:
    """Parse a number; raise ValueError if it is none."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def switched(text: str) -> bool:
    """Parse true or false; raise ValueError if it is neither."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false; write the flag alone")
    return text == "true"


def _spec(kind: type, metavar: str, parse: Callable[[str], Any]) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: parse(words[0]),
        is_instance=lambda value: value is None or type(value) is kind,
        str_from_instance=lambda value: [str(value).lower()],
    )


_SPECS = {
    int: _spec(int, "N", whole),
    float: _spec(float, "FLOAT", number),
}
_SWITCH = _spec(bool, "true|false", switched)
_VALUES = ConstructorRegistry()


@_VALUES.primitive_rule
def _value_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Return how a number, or a switch without a default, is read; None for other kinds of values."""
    for kind, spec in _SPECS.items():
        if info.type in (kind, kind | None):
            return spec
    if info.type == bool | None:
        return _SWITCH
    return None


def parse_command(kind: Any, words: Sequence[str], program: str, **options: Any) -> Any:
    """Return a command with the settings in words.

    Args:
        kind: The dataclass of the command's settings.
        words: The flags and names after the command.
        program: What help and errors call it, such as "horde learn".
        **options: For the parser: `default` has settings that flags override.

    Raises:
        BadInput: If a flag is unknown or a value does not fit.
        SystemExit: With code 0, after --help.
    """
    _refuse_unknown_flags(kind, words, program)
    words = [SWITCHES.get(word.replace("_", "-"), word) for word in words]
    return parse(kind, words, program, **options)


def parse(kind: Any, words: Sequence[str], program: str, **options: Any) -> Any:
    """Return what `parse_command` returns, of any kind that tyro takes; the parser finds the unknown flags."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), _VALUES:
            return cli(kind, args=words, prog=program, **options)
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise BadInput(f"{one_sentence(errors.getvalue())}; see {program} --help") from None


def _refuse_unknown_flags(kind: Any, words: Sequence[str], program: str) -> None:
    """Raise BadInput at a flag that the command does not have; the parser may complain about the word after it."""
    flags = ["--help"]
    for field in fields(kind):
        name = field.name.replace("_", "-")
        flags.append(f"--{name}")
        if isinstance(field.default, bool) or f"--no-{name}" in SWITCHES:
            flags.append(f"--no-{name}")
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and len(word) > 2 and flag not in flags:
            hint = did_you_mean(flag, flags)
            raise BadInput(f"Unrecognized options: {flag}{hint}; see {program} --help")


def one_sentence(box: str) -> str:
    r"""Return the text of a framed message of the argument parser, without its frame and advice.

    Examples:
        >>> one_sentence("╭─ Value error ──╮\n│ --a is no flag. │\n│ ─────────────── │\n│ Helptext │")
        '--a is no flag'
        >>> one_sentence("Value error\n ---------------\n --a is no\n flag.\n ---------------\n Helptext")
        '--a is no flag'
        >>> one_sentence("╭─ Missing ─╮\n│ Missing value for argument '--a'. Expected 1 values. │\n╰────╯")
        '--a needs a value'
        >>> one_sentence("Missing\n Missing value for argument '('--a-b',)'. Expected 1 values.")
        '--a-b needs a value'
    """
    text_lines: list[str] = []
    for line in box.splitlines()[1:]:  # after the title
        text = line.strip(" │|")
        is_frame = not text or text.startswith(_FRAME)
        if is_frame and text_lines:
            break
        if not is_frame:
            text_lines.append(text)
    sentence = " ".join(text_lines).rstrip(".")
    # Before version 1.0.14 it names '('--a',)'
    return re.sub(
        r"Missing value for argument .*?(--[\w-]+).* Expected 1 values",
        r"\1 needs a value",
        sentence,
    )
