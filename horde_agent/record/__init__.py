"""Recordings on disk: what a row is (`dtype`), reader (`rows`), writer (`recorder`) and file format (`segments`)."""

from __future__ import annotations

from horde_agent.record.dtype import (
    BROKEN,
    DRIVES,
    ENDS_TEST,
    FIELDS,
    NO_ACTION,
    NO_POLICY,
    READ_FIELDS,
    UNFIT,
    UNKNOWN_POSE,
    Flag,
    Observation,
    Phase,
    Row,
    columns_of,
    new_rows,
    row_dtype,
    rows_in,
)
from horde_agent.record.recorder import Recorder
from horde_agent.record.rows import (
    A_DAY,
    FORMAT,
    OnFault,
    Stream,
    header_of,
    log_fault,
    read,
    read_in_parts,
)
from horde_agent.record.segments import RecordLost

__all__ = [
    "A_DAY",
    "BROKEN",
    "DRIVES",
    "ENDS_TEST",
    "FIELDS",
    "FORMAT",
    "NO_ACTION",
    "NO_POLICY",
    "READ_FIELDS",
    "UNFIT",
    "UNKNOWN_POSE",
    "Flag",
    "Observation",
    "OnFault",
    "Phase",
    "RecordLost",
    "Recorder",
    "Row",
    "Stream",
    "columns_of",
    "header_of",
    "log_fault",
    "new_rows",
    "read",
    "read_in_parts",
    "row_dtype",
    "rows_in",
]
