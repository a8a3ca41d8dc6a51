"""Rows of a recording as Parquet tables, a column per field and channel. This needs pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from horde_agent.formats.columns import shifts_of
from horde_agent.record import Stream, columns_of

SOURCE = b"horde_source"
"""Key in a table's metadata: the recording's files and their times."""


def columns_with_channels(part: Stream) -> dict[str, NDArray[Any]]:
    """Return rows of a recording as columns by name, each of shape (n_rows,)."""
    rows = part.rows
    n_inputs = rows["observation"].shape[1]
    names = [channel["name"] for channel in part.header.get("channels", [])]
    if len(names) != n_inputs:
        names = [f"obs_{i}" for i in range(n_inputs)]
    columns = columns_of(rows)
    shifts = shifts_of(part.header)
    for i, name in enumerate(names):
        columns[name] = rows["observation"][:, i]
        if name in shifts:
            columns[name] = shifts[name].values(columns[name])
    return columns


def write_table(path: Path, columns: dict[str, Any], source: str = "") -> None:
    """Write a Parquet file with a CRC-32 for each page."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    if source:
        table = table.replace_schema_metadata({SOURCE: source.encode()})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
