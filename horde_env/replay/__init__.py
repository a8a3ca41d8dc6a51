"""Recordings as robot bodies: a log of the real robot (`log`), or the recording in a run's folder (`run`)."""

from __future__ import annotations

from horde_env.replay.log import NOTES, RecordedLife, recorded_request, steps_of
from horde_env.replay.run import RecordedRun, is_run

__all__ = ["NOTES", "RecordedLife", "RecordedRun", "is_run", "recorded_request", "steps_of"]
