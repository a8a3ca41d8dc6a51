"""When a life's state is kept: every so often while it is lived, by a thread, and in its end.

No step waits for the disk: a state is copied between two steps, and written meanwhile. Only what the record holds on
the disk by then is kept, so that the two always fit together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from horde_agent.life.life import Life
from horde_agent.life.observers import Sampler
from horde_agent.record import Recorder, RecordLost
from horde_agent.runs import formats, snapshots
from horde_agent.runs.run import Run
from horde_agent.runs.run_folder import digests, own_version, versions
from horde_agent.saving import State, nested

_LARGE_BYTES = 500_000_000  # of a snapshot whose writing takes longer than anybody expects

_log = logging.getLogger(__name__)


class Keeper:
    """Keeps snapshots of a life in its run's folder.

    Args:
        run: Whose life it is.
        recorder: Of the same life.
        sampler: An observer of it.
        every_s: Seconds between two snapshots; None keeps the one in the end alone.
        changes: Which questions came and went since the life began.
        lived_s: Seconds that the life took before this process.

    Attributes:
        n_kept: Snapshots that this process wrote.
        pending: Lets questions come and go, and returns which, as soon as the life has come to where it was before.
    """

    def __init__(
        self,
        run: Run,
        recorder: Recorder,
        sampler: Sampler,
        every_s: float | None,
        changes: list[dict[str, Any]],
        lived_s: float = 0.0,
    ) -> None:
        self._run, self._recorder, self._sampler, self._every_s = run, recorder, sampler, every_s
        self.changes, self._versions, self.n_kept = changes, versions(), 0
        self.pending: Callable[[], list[dict[str, Any]]] | None = None
        self._began, self._lived_s = time.monotonic(), lived_s
        self._kept_at = self._began
        self._thread: threading.Thread | None = None
        self._before_cut: tuple[int, State, dict[str, Any]] | None = None
        self._last: tuple[int, State, dict[str, Any]] | None = None

    def start(self) -> None:
        """Count the time from now on."""
        self._began = self._kept_at = time.monotonic()

    def __call__(self, life: Life) -> None:
        """Keep the life's state if it is time, and the one before is written."""
        if self.pending is not None and not self._recorder.is_redoing:
            change, self.pending = self.pending, None
            self.changes += change()
            self.keep(life)
            return
        if life.may_be_cut:
            self._before_cut = self._copied(life)
        if self._every_s is None or time.monotonic() - self._kept_at < self._every_s:
            return
        if (self._thread is not None and self._thread.is_alive()) or self._recorder.is_paused:
            return
        self.keep(life)

    def keep(self, life: Life) -> None:
        """Keep the life's state now: copied, then written by a thread.

        Where no step waits to be learned from, choosing an action does not change the Horde. Then what is large is
        copied when that action has left, so that the robot does not wait for it.
        """
        self._kept_at = time.monotonic()
        waits = life.horde.n_waiting > 0
        step, state, facts = self._copied(life, has_horde=waits)

        def write() -> None:
            if not waits:
                state.update(nested(life=life.horde_state()))
            self._thread = threading.Thread(target=self._write, args=(step, state, facts), name="keeping", daemon=True)
            self._thread.start()

        if waits:
            write()
        else:
            life.before_learning = write

    def at_end(self, life: Life) -> None:
        """Take note of the state in which a life ends; it is written by `finish`, when the body has been stopped.

        A life whose last drive was cut short is no life that never stopped: there it is the state before that drive, or
        the snapshot before.
        """
        is_other = life.is_cut and life.can_live_again
        self._last = self._before_cut if is_other else self._copied(life)

    def finish(self) -> None:
        """Write what is not written yet."""
        if self._thread is not None:
            self._thread.join()
        if self._last is not None:
            last, self._last = self._last, None
            if (n_bytes := sum(array.nbytes for array in last[1].values())) > _LARGE_BYTES:
                _log.warning("writing a snapshot of %.1f GB, which takes a while; the body stands", n_bytes / 1e9)
            self._write(*last)

    def _copied(self, life: Life, *, has_horde: bool = True) -> tuple[int, State, dict[str, Any]]:
        """Return step, state and facts."""
        observers = {"sampler": self._sampler.state(), "watch": self._run.watch.state()}
        state = nested(life=life.state(has_horde=has_horde), **observers)
        facts = {
            "n_rows": self._recorder.n_rows - self._recorder.n_lost,
            "n_lost": self._recorder.n_lost,
            "steps": self._run.config.steps,
            "wall_s": self.lived_s,
            "changes": list(self.changes),
            "version": own_version(),
            "formats": dict(formats.NOW),
            "versions": self._versions,
            "asked": digests(self._run.folder),
        }
        return life.steps, state, facts

    @property
    def lived_before_s(self) -> float:
        """Seconds that the life took before this process."""
        return self._lived_s

    @property
    def lived_s(self) -> float:
        """Seconds that the life took so far, in all processes."""
        return self._lived_s + time.monotonic() - self._began

    def _write(self, step: int, state: State, facts: dict[str, Any]) -> None:
        """Write a snapshot, when the record has come as far; where the disk is full, say so and go on."""
        folder = self._run.folder
        try:
            self._recorder.sync()
            self._run_errors_sync()
            if self._recorder.is_paused or self._recorder.n_lost != facts["n_lost"]:
                _log.warning("no snapshot is kept at step %d, for the record pauses", step)
                return
            snapshots.write(folder.checkpoint, step, state, facts)
            folder.note({"step": step, "event": "snapshot", "row": facts["n_rows"]})
            self.n_kept += 1
        except (RecordLost, OSError) as error:
            _log.warning(
                "the snapshot at step %d cannot be written (%s); the one before it stays", step, error.strerror
            )

    def _run_errors_sync(self) -> None:
        """Have the disk keep the excursions."""
        self._run.folder.sync_excursions()
