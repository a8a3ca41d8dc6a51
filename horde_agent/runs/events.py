"""The events of a life, in a small table of JSON lines beside its record (log/events.jsonl).

    began          the life began                 resumed     it went on, from a snapshot and its record
    snapshot       its state was kept             questions   some came or went
    gap            frames were lost, the link was gone, or the body was reset; drives do not count
    disobeyed      the body does not do as it is told: a safety stop, a fault; told once, when it begins
    late           a step came more than 50 ms late
    aside          a demon was set aside          ended       the life ended: `cause` (a code), `why` (in words)

Each line has the `step`, the `row` of the record where that matters, and the `time` (UTC).
"""

from __future__ import annotations

from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.record import Flag, Recorder
from horde_agent.runs.run_folder import RunFolder


class Events(LifeHooks):
    """An observer of a life that notes what happens to it. What is lived once more after a kill is not told again.

    Args:
        folder: Of its run.
        recorder: Of the same life.
    """

    def __init__(self, folder: RunFolder, recorder: Recorder) -> None:
        self._folder, self._recorder = folder, recorder
        self._counts: dict[str, int] | None = None

    def after_step(self, event: StepEvent) -> None:
        """Note what is new since the step before; the Horde is asked only where no step waits."""
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
                self._folder.note({"step": event.row.step, "event": name, "row": self._recorder.n_rows - 1})
