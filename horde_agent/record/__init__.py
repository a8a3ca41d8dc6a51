"""Recordings on disk: rows (`rows`), their writer (`recorder`) and the file format (`segments`)."""

from __future__ import annotations

from horde_agent.record.recorder import Recorder
from horde_agent.record.rows import (
    A_DAY,
    BROKEN,
    DRIVES,
    FORMAT,
    NO_ACTION,
    NO_POLICY,
    Flag,
    Observation,
    OnFault,
    Phase,
    Row,
    Stream,
    log_fault,
    new_rows,
    read,
    read_end,
    read_in_parts,
    row_dtype,
)
from horde_agent.record.segments import RecordLost

__all__ = [
    "A_DAY",
    "BROKEN",
    "DRIVES",
    "FORMAT",
    "NO_ACTION",
    "NO_POLICY",
    "Flag",
    "Observation",
    "OnFault",
    "Phase",
    "RecordLost",
    "Recorder",
    "Row",
    "Stream",
    "log_fault",
    "new_rows",
    "read",
    "read_end",
    "read_in_parts",
    "row_dtype",
]
