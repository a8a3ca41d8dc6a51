"""Files of tables: JSON and CSV, written as a whole or not at all, and the folders that they are in."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from horde_agent.refusals import BadInput


def next_free(prefix: Path) -> Path:
    """Create and return the next free PREFIX-N; two processes never get the same one."""
    for n in count(1):
        with suppress(FileExistsError):
            path = prefix.with_name(f"{prefix.name}-{n}")
            path.mkdir()
            return path
    raise AssertionError


def unwritable(path: Path, error: OSError) -> str:
    """Return the error message for an output folder that cannot be written."""
    return f"--out {path} cannot be written ({error.strerror or error}); name a folder elsewhere"


def writable(path: Path) -> Path:
    """Create a folder if it does not exist, test that it is writable, and return it; raise BadInput if it is not."""
    probe = path / ".tried"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_text("tried\n", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        raise BadInput(unwritable(path, error)) from None
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; raise OSError if it cannot be written, with its name."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table as JSON; numbers that are not finite become null."""
    write_whole(path, json.dumps(finite(table), indent=2) + "\n")


def write_csv(path: Path, names: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write a CSV with a header; floats with nine digits, empty if not finite."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(names)
    writer.writerows([_cell(value) for value in line] for line in lines)
    write_whole(path, file.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a CSV with a header; an empty list without a file. Raise ValueError if its last line is truncated."""
    if not path.exists():
        return []
    lines, truncated_line = _ended_lines(path)
    if truncated_line:
        raise ValueError(f"its last line is truncated: {truncated_line[:40]!r}")
    return list(csv.DictReader(lines))


def _ended_lines(path: Path) -> tuple[io.StringIO, str]:
    """Return the complete lines of a file, and a truncated one after them or "": its number may lack digits."""
    with path.open(encoding="utf-8", newline="") as file:
        content = file.read()
    n_ended = content.rfind("\n") + 1
    return io.StringIO(content[:n_ended], newline=""), content[n_ended:]


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; raise ValueError if the file contains something else."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, found {str(content)[:40]!r}")
    return content


def read_lines(file: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV but a truncated last one; raise ValueError if another does not fit the header."""
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    lines, _ = _ended_lines(file)
    table_rows = list(csv.DictReader(lines))
    for number, line in enumerate(table_rows, 2):
        if None in line or None in line.values():
            raise ValueError(f"line {number} does not fit the header")
    return table_rows


def number_in(cell: str) -> float:
    """Return the number in a cell of a CSV, NaN if it is empty; raise ValueError if it is none."""
    return float(cell or "nan")


def read_curve(
    path: Path, columns: Sequence[str], most: int, head: Sequence[str] | None = None
) -> list[list[float]]:
    """Return columns of a curve's CSV, thinned to at most `most` points and the last one; NaN for empty cells.

    `head` names all columns; the file's first line does when None. Without the file or a column,
    all are empty.
    """
    try:
        ended_lines, _ = _ended_lines(path)
        lines = csv.reader(ended_lines)
        if head is None:
            head = next(lines, [])
        places = [head.index(column) for column in columns]
        points = [
            [float(line[i] or "nan") for i in places] for line in lines if len(line) == len(head)
        ]
    except (OSError, ValueError, csv.Error):
        points = []
    stride = max(-(-len(points) // most), 1)
    thinned = points[::stride]
    if points and (len(points) - 1) % stride:
        thinned.append(points[-1])
    return [[point[j] for point in thinned] for j in range(len(columns))]


def finite(value: Any) -> Any:
    """Return a JSON value with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def _cell(value: object) -> object:
    if isinstance(value, float):
        if math.isfinite(value):
            return f"{value:.9g}"
        return ""
    return value
