"""The list of the formats of data sets; a new one is a module with a `Format`, and a line here."""

from __future__ import annotations

from pathlib import Path

from horde_agent.formats import (
    arrow_files,
    bags,
    csv_file,
    json_lines,
    lerobot,
    minari,
    npz,
)
from horde_agent.formats.format import Format
from horde_agent.refusals import BadInput

FORMATS: tuple[Format, ...] = (
    lerobot.FORMAT,
    bags.FORMAT,
    arrow_files.PARQUET,
    csv_file.FORMAT,
    json_lines.FORMAT,
    npz.FORMAT,
    arrow_files.FEATHER,
    minari.FORMAT,
)
"""The first one that matches a path reads it."""


def format_of(path: Path) -> Format:
    """Return the format of a data set; raise BadInput if no format matches, or it does not exist."""
    for data_format in FORMATS:
        if data_format.matches(path):
            return data_format
    problem = "is no data set"
    if not path.exists():
        problem = "does not exist"
    *others, last = (data_format.described for data_format in FORMATS)
    raise BadInput(f"{path} {problem}: give {', '.join(others)}, or {last}")
