"""The events of a run, as JSON lines beside its recording (log/events.jsonl).

    began          the run started                resumed     it was resumed from a snapshot and its recording
    snapshot       a snapshot was written         questions   questions were added or removed
    gap            frames were lost, the link was lost, or the robot was reset; drives do not count
    disobeyed      an action was not applied: a safety stop or a fault; recorded once, at its first step
    late           a step was more than 50 ms late
    aside          a demon diverged               ended       the run ended: `cause` (a code), `why` (in words)

Each line has the `step`, the `row` of the recording if it applies, and the `time` (UTC).
"""

from __future__ import annotations

from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.record import Flag, Recorder
from horde_agent.runs.run_folder import RunFolder


class Events(LifeHooks):
    """Observe a life and record its events; steps replayed after a resume are skipped.

    Args:
        folder: The run's folder.
        recorder: The life's recorder.
    """

    def __init__(self, folder: RunFolder, recorder: Recorder) -> None:
        self._folder, self._recorder = folder, recorder
        self._counts: dict[str, int] | None = None

    def after_step(self, event: StepEvent) -> None:
        """Record the counts that increased in this step; the Horde is read only without pending updates."""
        life = event.life
        counts = {
            "gap": life.gaps,
            "disobeyed": int(bool(event.row.flags & Flag.NOT_APPLIED)),
            "late": life.deadlines_missed,
            "aside": (self._counts or {}).get("aside", 0) if life.horde.n_waiting else life.horde.n_diverged,
        }
        before, self._counts = self._counts or counts, counts
        if counts == before or self._recorder.is_redoing:
            return
        for name, count in counts.items():
            if count > before[name]:
                self._folder.log_event({"step": event.row.step, "event": name, "row": self._recorder.n_rows - 1})
