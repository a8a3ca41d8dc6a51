"""When a life's state is kept: every so often while it is lived, by a thread, and in its end.

No step waits for the disk: a state is copied between two steps, and written meanwhile; of very many demons it is
copied a few MB in each step (`learning/gradually.py`). Only what the record holds on the disk by then is kept, so that
the two always fit together.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from horde_agent.learning.gradually import AT_ONCE_BYTES, GradualSnapshot
from horde_agent.life.life import Life
from horde_agent.life.observers import Sampler
from horde_agent.record import Recorder, RecordLost, snapshots
from horde_agent.runs import formats
from horde_agent.runs.run import Run
from horde_agent.runs.run_folder import digests, own_version, versions
from horde_agent.saving import State, nested

_ENGINE = "life/student/horde/engine"  # in a snapshot
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
        self.changes, self.n_kept = changes, 0
        self._version, self._versions = own_version(), versions()  # of what lives, whatever is installed meanwhile
        self.pending: Callable[[], list[dict[str, Any]]] | None = None
        self._began, self._lived_s = time.monotonic(), lived_s
        self._kept_at = self._began
        self._thread: threading.Thread | None = None
        self._gradual: GradualSnapshot | None = None
        self._closing: GradualSnapshot | None = None  # all copied, not all written
        self._has_said_late = False
        self._before_cut: tuple[int, State, dict[str, Any]] | None = None
        self._last: tuple[int, State, dict[str, Any]] | None = None
        self._life: Life | None = None  # whose Horde is yet to be copied, in the end

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
        if life.may_be_cut and not self._is_large(life):
            self._before_cut = self._copied(life)
        if self._gradual is not None:
            self._go_on(life, self._gradual)
        if self._every_s is None or time.monotonic() - self._kept_at < self._every_s:
            return
        if self._is_writing:
            self._say_that_it_waits(life)
        elif not self._recorder.is_paused:
            self.keep(life)

    @property
    def _is_writing(self) -> bool:
        """Whether the snapshot before is not written yet."""
        if self._closing is not None and not self._closing.is_alive:
            self._closing = None
        is_alive = self._thread is not None and self._thread.is_alive()
        return is_alive or self._gradual is not None or self._closing is not None

    def _say_that_it_waits(self, life: Life) -> None:
        """Say once that snapshots take longer than they are apart."""
        if not self._has_said_late:
            self._has_said_late = True
            _log.warning(
                "at step %d the snapshot begun %.0f s ago is not written yet: the next one waits for it; a longer "
                "--snapshot-every is enough",
                life.steps,
                time.monotonic() - self._kept_at,
            )

    def keep(self, life: Life) -> None:
        """Keep the life's state: copied now, then written by a thread; where it is large, copied from now on.

        Where no step waits to be learned from, choosing an action does not change the Horde. Then what is large is
        copied when that action has left, so that the robot does not wait for it.
        """
        self._kept_at = time.monotonic()
        self._abandon()
        if self._is_large(life):
            self._gradual = self._new_gradual(life)
        if self._gradual is not None:
            life.before_learning = self._gradual.advance
            return
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

    # ---- very many demons -------------------------------------------------------------------------------------------

    @staticmethod
    def _is_large(life: Life) -> bool:
        """Whether there is too much to copy between two steps."""
        return life.horde.n_bytes_learned > AT_ONCE_BYTES

    def _new_gradual(self, life: Life) -> GradualSnapshot | None:
        """Begin to copy what is large over many steps; None where that cannot be."""
        copy, before = life.horde.gradual_copy(), [w for w in (self._thread, self._closing) if w is not None]

        def after() -> None:
            for writing in before:
                writing.join()

        folder, may_wait = self._run.folder.checkpoint, not self._run.config.is_real_time
        return None if copy is None else GradualSnapshot(copy, folder, after, may_wait=may_wait, engine=_ENGINE)

    def _go_on(self, life: Life, gradual: GradualSnapshot) -> None:
        """Copy some more when the next action has left; when all is copied, have it written to its end."""
        if gradual.why_not is not None or gradual.is_void:
            if gradual.why_not is not None:
                _log.warning(
                    "the snapshot at step %d cannot be written (%s); the one before it stays",
                    life.steps,
                    gradual.why_not,
                )
            else:
                self._kept_at = -math.inf  # begun anew at once
            gradual.abandon()
            self._gradual, self._closing = None, gradual
        elif gradual.is_complete:
            self._close(life, gradual)
        else:
            life.before_learning = gradual.advance

    def _close(self, life: Life, gradual: GradualSnapshot) -> None:
        """Have a snapshot of which all blocks are copied be that of now, as `keep` does."""
        self._gradual, self._closing = None, gradual
        waits = life.horde.n_waiting > 0
        step, state, facts = self._copied(life, has_horde=False)

        def close() -> None:
            self._finish_gradual(life, gradual, (step, state, facts))

        if waits:
            close()
        else:
            life.before_learning = close

    def _finish_gradual(self, life: Life, gradual: GradualSnapshot, small: tuple[int, State, dict[str, Any]]) -> None:
        """Hand over what is small, and what is left of what is large."""
        step, state, facts = small
        state.update(nested(life=life.horde_state(has_engine=False)))
        gradual.finish(lambda writer: self._write(step, state, facts, writer))

    # ---- the end ----------------------------------------------------------------------------------------------------

    def at_end(self, life: Life) -> None:
        """Take note of the state in which a life ends; it is written by `finish`, when the body has been stopped.

        A life whose last drive was cut short is no life that never stopped: there it is the state before that drive, or
        the snapshot before. Of very many demons, what is small is noted now and what is large copied later, the
        snapshot that is under way going on: nothing more is learned until then.
        """
        if life.is_cut and life.can_live_again:
            self._abandon()
            self._last = self._before_cut
            return
        if not self._is_large(life):
            self._last = self._copied(life)
            return
        life.see()
        if self._gradual is None or self._gradual.is_void or self._gradual.why_not is not None:
            self._abandon()
            self._gradual = self._new_gradual(life)
        self._life = life
        self._last = self._copied(life, has_horde=self._gradual is None)

    def _abandon(self) -> None:
        """Give up the snapshot that is under way, if there is one."""
        if self._gradual is not None:
            self._gradual.abandon()
            self._gradual, self._closing = None, self._gradual

    def finish(self) -> None:
        """Write what is not written yet."""
        last, self._last = self._last, None
        if last is None:
            self._abandon()
        for writing in (self._thread, self._closing):
            if writing is not None:
                writing.join()
        if last is not None and self._gradual is not None:
            assert self._life is not None, "it was noted with the state"
            self._finish_last(self._life, self._gradual, last)
        elif last is not None:
            self._say_how_large(sum(array.nbytes for array in last[1].values()))
            self._write(*last)

    def _finish_last(self, life: Life, gradual: GradualSnapshot, last: tuple[int, State, dict[str, Any]]) -> None:
        """Copy and write all that is left, one block of demons after another."""
        self._say_how_large(life.horde.n_bytes_learned)
        while not gradual.is_complete and gradual.why_not is None:
            gradual.advance(waits=True)
        if gradual.why_not is None:
            self._finish_gradual(life, gradual, last)
        else:
            gradual.abandon()
        gradual.join()
        if gradual.why_not is not None:
            _log.warning(
                "the snapshot at step %d cannot be written (%s); the one before it stays", last[0], gradual.why_not
            )

    @staticmethod
    def _say_how_large(n_bytes: int) -> None:
        if n_bytes > _LARGE_BYTES:
            _log.warning("writing a snapshot of %.1f GB, which takes a while; the body stands", n_bytes / 1e9)

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
            "version": self._version,
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

    def _write(self, step: int, state: State, facts: dict[str, Any], begun: snapshots.Writer | None = None) -> None:
        """Write a snapshot, when the record has come as far; where the disk is full, say so and go on."""
        folder = self._run.folder
        try:
            self._recorder.sync()
            self._run_errors_sync()
            if self._recorder.is_paused or self._recorder.n_lost != facts["n_lost"]:
                _log.warning("no snapshot is kept at step %d, for the record pauses", step)
                if begun is not None:
                    begun.abandon()
                return
            snapshots.write(folder.checkpoint, step, state, facts, begun)
            folder.note({"step": step, "event": "snapshot", "row": facts["n_rows"]})
            self.n_kept += 1
        except (RecordLost, OSError) as error:
            _log.warning(
                "the snapshot at step %d cannot be written (%s); the one before it stays", step, error.strerror
            )

    def _run_errors_sync(self) -> None:
        """Have the disk keep the excursions."""
        self._run.folder.sync_excursions()
