"""Names of a curious behaviour's drives, apart from `curious`, which imports the compiler."""

from __future__ import annotations

OPTION_DRIVES = ("ude", "change", "variance", "alike")
"""Drives of a curious behaviour, the default first."""
