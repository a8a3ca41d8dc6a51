"""`horde columns`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from horde_agent.runs.data.draft import draft_columns


@dataclass(frozen=True)
class ColumnsConfig:
    """Print a columns.toml for a table, with every key: what its columns seem to be.

    Attributes:
        file: The table: a Parquet, CSV or npz file, or a folder of Parquet files.
    """

    file: tyro.conf.Positional[Path]


def columns(command: ColumnsConfig) -> None:
    """Print the draft of a `columns.toml`; raise BadInput if the table cannot be read."""
    print(draft_columns(command.file), end="")
