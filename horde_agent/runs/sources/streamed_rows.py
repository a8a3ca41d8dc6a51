"""Rows that another program writes as the source of a run: they are recorded and learned from as they arrive.

The transition to a row is learned when it arrives, so that there are predictions at it before the next
one is read; its action counts from then on (`formats.arrivals`).
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from horde_agent.formats import bags
from horde_agent.formats.arrivals import ArrivingRows, completed, refuse_open
from horde_agent.formats.bags import BagTable, open_bag_table
from horde_agent.formats.columns import Columns
from horde_agent.formats.fit import LATE, NothingToLearn, UnfitPeriod
from horde_agent.formats.format import Growth
from horde_agent.formats.lines import LineParser, UnfitHeader
from horde_agent.formats.part import Chunk
from horde_agent.formats.registry import FORMATS
from horde_agent.formats.tables import Position, RowBefore, Table
from horde_agent.life.arranging import consequences
from horde_agent.life.counts import Durations
from horde_agent.life.learner import rows_of
from horde_agent.life.observers import Progress
from horde_agent.record import Flag, Phase, Recorder, Row, Stream, header_of
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, is_streamed
from horde_agent.runs.exit_reason import ExitReason, SignalHandler
from horde_agent.runs.session import Session
from horde_agent.runs.sources.arranged_rows import (
    NO_ROW_CHANGES,
    ArrangedRows,
    RowChanges,
    arranged_rows,
    columns_file,
    columns_of,
    present_columns,
    refuse_changes,
    refuse_open_range,
    refuse_unended,
)
from horde_agent.runs.sources.arriving_files import FollowedFiles
from horde_agent.runs.sources.data_set import (
    FurtherRows,
    further_rows,
    place_behind,
    remove_unfinished,
)
from horde_agent.runs.sources.followed_bags import BagPlace, followed_bags
from horde_agent.runs.sources.followed_file import FollowedFile, Place
from horde_agent.runs.sources.followed_folder import FolderPlace, followed_folder
from horde_agent.runs.sources.line_reader import (
    MOST_BYTES,
    Line,
    LineReader,
    Lines,
    TableLines,
    standard_input,
)
from horde_agent.runs.sources.predictions import PredictionWriter
from horde_agent.runs.sources.row_source import RowSource
from horde_agent.runs.storage.event_log import STREAMED
from horde_agent.runs.storage.events import ClockEvents, Clocks
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import freeze, frozen_snapshot, refuse_without_horde
from horde_agent.runs.storage.one_place import began_event
from horde_agent.runs.storage.question_changes import QuestionChange
from horde_agent.runs.storage.resume import NEW, TESTS, Resumption, resumption
from horde_agent.runs.storage.row_learner import RowLearner
from horde_agent.runs.storage.run import (
    HeaderEnv,
    Questions,
    Run,
    learns_all_rows,
    make_run,
    new_recorder,
    open_run,
)
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from horde_agent.runs.storage.tables import SessionOutcome

MOST_UNREADABLE = 1_000
"""Unreadable rows in a row after which a run ends."""
_STANDARD_INPUT = "standard input"
_MESSAGE_EVERY_S = 60.0
_LEAST_SILENCE_S = 1.0
"""A shorter time without a row is no gap: programs write several rows at once."""
_MOST_SHOWN = 60  # characters of a row
_WAITING_S = 1.0


class UnreadableRows(Exception):
    """So many rows in a row could not be read that the stream is not what its columns say."""


class StreamedRows(RowSource):
    """Rows of a stream, as they arrive.

    Args:
        run: The run.
        table: Describes the rows; nothing is read from it.
        resumed: Where the run starts.
        arranged: How the rows are read and recorded if a command changed it; None if it is as before.
        changes: What the command says about them.
        clocks: Those of the computer; they decide nothing that is learned.

    Attributes:
        rows: Converts their cells.
        n_rows: Number of rows that were learned to.
        n_unreadable, n_without_action: Numbers of rows that were left out, and of those without an
            action.
        cycle_s: Durations from the arrival of a row to its predictions, in seconds.

    Raises:
        BadInput: If it cannot be recorded, or the columns leave something open.
    """

    def __init__(
        self,
        run: Run,
        table: Table,
        resumed: Resumption = NEW,
        *,
        arranged: ArrangedRows | None = None,
        changes: RowChanges = NO_ROW_CHANGES,
        clocks: Clocks | None = None,
    ) -> None:
        self.arranged: ArrangedRows | None = None
        if arranged is not None and arranged.is_changed:
            self.arranged = arranged
        self.rows = ArrivingRows(table)
        is_tested = run.config.is_streamed or learns_all_rows(run.config, table.header)
        super().__init__(run, RowLearner(run, is_tested=is_tested), run.config.steps)
        run.horde.work_ahead()  # compiles before the first row
        self.cycle_s = Durations()
        self._where = table.where
        self._table = table
        self._clocks = clocks or Clocks()
        self._is_ended = False
        self.n_rows = 0
        self.n_unreadable = 0
        self.n_without_action = 0
        self._n_unreadable_in_a_row = 0
        self._message_due_s = -np.inf
        self._resumed = resumed
        if resumed.number:
            self.recorder = self._continued_recorder(resumed)
        else:
            self.recorder = self._new_recorder()
        self._snapshot_writer = SnapshotWriter(run, self.learner.sampler, resumed, self.recorder)
        self._snapshot_writer.source_state = self._state
        self._question_change = QuestionChange(run, changes.questions, changes.body.actions.lost)
        self._is_changed = self.arranged is not None or changes.questions is not None
        self._clock_events = ClockEvents(run.folder.events, self.recorder, self._clocks)
        self._snapshot_writer.clock_state = self._clock_events.reading
        if not is_tested and not any(TESTS in change for change in resumed.changes):
            self.student.begin_tests()
            self._snapshot_writer.changes.append({TESTS: True})

    def _new_recorder(self) -> Recorder:
        run = self.run
        recorder = new_recorder(run, HeaderEnv(self._table.header), has_tests=False)
        self.student.errors.table.record_to(run.folder.excursions)
        return recorder

    def _continued_recorder(self, resumed: Resumption) -> Recorder:
        """Restore the snapshot, learn from the rows recorded since, and return the recorder.

        The next row continues the stream after an orderly end, and the data set of a run that had
        no stream before. After a kill rows were lost.
        """
        folder = self.run.folder
        follows_gap = self.learner.resume(resumed, folder.excursions)
        recorder = Recorder.resume(
            folder.life, resumed.n_rows, is_redone=False, body=self.changed_body
        )
        later_rows = recorder.since
        source = resumed.source
        is_whole = not folder.is_streamed
        if source is not None:
            is_whole = source["is_ended"] and len(later_rows) <= 1 and _are_ends(later_rows)
            place = Position.of_state(source["rows"])
        elif is_streamed(folder.settings()):
            place = Position(RowBefore())
        else:
            place = place_behind(folder).place
        place = self._continued_place(place, follows_gap=follows_gap)
        self.rows.continue_at(place)
        open_row = place.open
        if is_whole and open_row is not None:
            n_ends = int(_are_ends(later_rows[-1:]))
            later_rows = later_rows[: len(later_rows) - n_ends]
        if follows_gap:
            later_rows.rows["flags"][:1] |= np.uint8(Flag.GAP)
        newest: Row | None = None
        for row in rows_of([later_rows]):
            self.take_row(row)
            self.run.horde.work_ahead()
            newest = row
        n_rows = resumed.n_rows + len(later_rows)
        self.n_rows = n_rows
        if not is_whole:
            self.rows.continue_after(newest)
        elif open_row is not None:
            recorder = Recorder.resume(folder.life, n_rows, is_redone=True, body=self.changed_body)
            if not self.student.position.is_observed:
                self._observe(open_row)
        return recorder

    @property
    def changed_body(self) -> dict[str, Any] | None:
        """What the header of the recording says from now on; None if it is as before."""
        if self.arranged is None:
            return None
        return self.arranged.header

    def _continued_place(self, place: Position, *, follows_gap: bool) -> Position:
        """Return a place for further rows with the present columns; its open row follows a gap if `follows_gap`."""
        place = place.with_channels(len(self._table.columns.channel))
        open_row = place.open
        if open_row is None or not follows_gap:
            return place
        return place._replace(open=open_row._replace(flags=open_row.flags | Flag.GAP))

    def _state(self) -> dict[str, Any]:
        """Return what the rows after a snapshot depend on, in JSON types."""
        return {
            "rows": self.rows.position(is_complete=not self._is_ended).state(),
            "is_ended": self._is_ended,
        }

    def open(self) -> None:
        """Begin to record, or continue."""
        resumed = self._resumed
        folder = self.run.folder
        event = began_event()
        if resumed.number:
            event = {
                "step": resumed.step,
                "event": "resumed",
                "row": resumed.n_rows,
                "number": resumed.number,
            }
        folder.events.append({**event, **self._beginning()})
        if not folder.is_streamed:
            event = {"step": self.learner.steps, "event": STREAMED, "row": self.recorder.n_rows}
            folder.events.append(event, is_needed=True)
        self._clock_events.compare_with(resumed.clocks, self.recorder.since.rows, resumed.step)
        if self.arranged is not None:
            self.arranged.write(folder)
        self.recorder.open_last()
        writer = self._snapshot_writer
        writer.start()
        if self._is_changed:
            question_changes = self._question_change.apply(
                self.learner,
                step=self.learner.steps,
                n_rows=self.recorder.n_rows,
                n_before=len(writer.changes),
            )
            writer.add_changes(question_changes)
            writer.take_snapshot(self.learner)

    def _beginning(self) -> dict[str, Any]:
        """Return further facts about the place of the first row, in JSON types."""
        return {}

    def end_history(self) -> None:
        """Store the weights as they are, by which later tests are scored, too."""
        freeze(self.run, self.n_rows, self.learner.steps)

    def take(self, chunk: Chunk, *, is_late: bool = False) -> Row | None:
        """Learn from the transition to a row, given its cells, each of shape (1,).

        Returns:
            The newest row; None if it was dropped.

        Raises:
            UnfitPeriod: If the times of the rows do not fit the period.
            BadInput: If it is invalid: it is left out, and the next one follows a gap.
        """
        open_row = self.rows.open
        arrival = self.rows.arrive(chunk, is_late=is_late, unix_s=self._clocks.unix())
        self._n_unreadable_in_a_row = 0
        if open_row is not None:
            self._complete(open_row, is_last=arrival.ends_previous)
        if arrival.lacks_action:
            self.n_without_action += 1
            self._report(
                f"{self._where}, row {self.rows.n_read - 1:,} has no action: nothing is learned from it"
            )
        newest = None
        for row in arrival.rows:
            newest = row
            self._observe(row)
            if row.phase != Phase.BEHAVE or row is not arrival.rows[-1]:
                self._complete(row)
        return newest

    @property
    def is_redoing(self) -> bool:
        """Whether rows are learned from again after a resume: their predictions were written."""
        return self.recorder.is_redoing

    def _observe(self, row: Row) -> None:
        """Learn from the transition to a row."""
        self.n_rows += 1
        self.learner.counts.steps = row.step
        self.student.observe(row.observation, row.flags, reward=row.reward)

    def _complete(self, row: Row, *, is_last: bool = False) -> None:
        """Record a row, and set its action, unless it is the last one of an episode or of the stream."""
        row = completed(row, is_last=is_last)
        self.recorder.write(row)
        self.take_row(row)
        self._clock_events.compare(row.step)
        if not self._is_ended:
            self._snapshot_writer.take_if_due(self.learner)

    def report_unreadable(self, error: BadInput, text: str) -> None:
        """Count a row that could not be read, and say so, at most once a minute.

        Raises:
            UnreadableRows: After 1,000 of them in a row; NothingToLearn if there was no other.
        """
        self.n_unreadable += 1
        self._n_unreadable_in_a_row += 1
        if len(text) > _MOST_SHOWN:
            text = f"{text[:_MOST_SHOWN]}..."
        self._report(
            f"{error}; row {self.rows.n_read:,} is left out, and the next one follows a gap: {text!r}"
        )
        if self._n_unreadable_in_a_row < MOST_UNREADABLE:
            return
        sentence = (
            f"{MOST_UNREADABLE:,} rows of {self._where} in a row cannot be read, up to number {self.rows.n_read:,}: "
            f"{error}"
        )
        if not self.n_rows:
            raise NothingToLearn(sentence)
        raise UnreadableRows(f"{sentence}.")

    def _report(self, sentence: str) -> None:
        """Print a sentence, at most one a minute."""
        now_s = time.monotonic()
        if now_s >= self._message_due_s:
            self._message_due_s = now_s + _MESSAGE_EVERY_S
            self.session.say(f"{sentence}. Further ones are counted.")

    def end(self) -> None:
        """Copy the state for further rows, and record the newest row as the last one. Ending twice does nothing."""
        if self._is_ended:
            return
        self._is_ended = True
        if not self.n_rows:
            return
        self._snapshot_writer.take_last(self.learner)
        if self.rows.open is not None:
            self._complete(self.rows.open, is_last=True)

    def abandon(self) -> None:
        """Close the files; the run does not start."""
        self.student.errors.table.close()
        self.recorder.close()

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Write the last snapshot, close the files, and return what the tables need.

        Raises:
            BadInput: If no row came, or its times do not fit the period before anything was learned.
        """
        for end in (
            self._snapshot_writer.finish,
            self.student.errors.table.close,
            self.recorder.close,
        ):
            try:
                end()
            except BaseException as error:
                fault = fault or error
        if isinstance(fault, BadInput):
            raise fault
        if not self.n_rows:
            raise fault or BadInput(f"{self._where} has no row")
        steps = self.learner.steps
        reason = self.session.end_of_rows(steps)
        if fault is not None:
            reason = ExitReason.of_fault(fault)
        event = {"step": steps, "event": "ended", "row": self.recorder.n_rows}
        self.run.folder.events.append({**event, "why": reason.why, "cause": reason.cause.code})
        return self.outcome(
            steps=steps,
            end=reason,
            details={"n_unreadable": self.n_unreadable, "notes": self._notes()},
            fault=fault,
            cycle_s=self.cycle_s,
            lived_before_s=self._snapshot_writer.lived_before_s,
        )

    def _notes(self) -> list[str]:
        """Return remarks for the report."""
        notes = list(self._table.notes)
        if self.n_unreadable:
            notes.append(f"{self.n_unreadable:,} rows of {self._where} could not be read.")
        if self.n_without_action:
            notes.append(f"{self.n_without_action:,} rows of {self._where} had no action.")
        return notes


def longest_silence_s(columns: Columns) -> float:
    """Return the time in seconds without a row after which the next one, without a time, follows a gap."""
    return max(LATE * columns.times.period_s, _LEAST_SILENCE_S)


def _are_ends(rows: Stream) -> bool:
    """Return whether all rows end the stream."""
    return bool((rows.rows["phase"] == Phase.END).all())


class LineRows(StreamedRows):
    """Rows that another program writes, a line each, and which are answered.

    Args:
        run, table, resumed, options: As of `StreamedRows`.
        lines: Where they are read from.
    """

    def __init__(
        self, run: Run, table: Table, lines: Lines, resumed: Resumption = NEW, **options: Any
    ) -> None:
        self._lines = lines
        self._parser = LineParser(table.columns, table.where)
        self._predictions: PredictionWriter | None = None
        target = run.config.predictions
        if target is not None:
            self._predictions = PredictionWriter(target, run.horde.names, run.config.predict)
        super().__init__(run, table, resumed, **options)
        self._is_timed = table.columns.times.time is not None
        self._longest_silence_s = longest_silence_s(table.columns)
        self._silent_s = 0.0

    def learn(self, progress: Progress) -> None:
        """Learn from each row when it comes, until the last one or a request to stop."""
        self._progress = progress
        has_said_waiting = False
        for line in self._lines:
            self._take_line(line)
            if self.session.stopped_by is not None or self._has_all_steps:
                break
            if not has_said_waiting and self._lines.waited_s > _WAITING_S:
                has_said_waiting = True
                self.session.say(
                    f"{self._where} has rows faster than they are learned from: they wait, and none is lost"
                )
        if self._lines.fault is not None:
            raise self._lines.fault
        self.end()

    @property
    def _has_all_steps(self) -> bool:
        return self.total is not None and self.learner.steps >= self.total

    def _take_line(self, line: Line) -> None:
        """Learn from a line, and write the predictions at its row, or why there are none."""
        began = time.perf_counter()
        self._silent_s += line.silent_s
        if line.begins_file:
            self._parser.begin_file()
        if line.follows_loss:
            self._silent_s = math.inf
        try:
            chunk = self._chunk(line)
        except UnfitHeader as error:
            if self.n_rows:
                raise UnreadableRows(f"{error}.") from None
            raise
        except BadInput as error:
            self.rows.skip()
            self._leave_out(error, line)
            return
        if chunk is None:
            return
        is_late = not self._is_timed and self._silent_s > self._longest_silence_s
        try:
            row = self.take(chunk, is_late=is_late)
        except UnfitPeriod:
            raise
        except BadInput as error:
            self._leave_out(error, line)
            return
        if row is not None and row.flags & Flag.GAP:
            self._report_silence()
        self._silent_s = 0.0
        if self._predictions is not None and not self.is_redoing:
            if row is None:
                self._predictions.write_fault(f"row {self.rows.n_read:,} was dropped")
            else:
                self._predictions.write(row.t, np.asarray(self.student.predictions))
        self.cycle_s.add(time.perf_counter() - began)
        self.run.horde.work_ahead()

    def _chunk(self, line: Line) -> Chunk | None:
        """Return the cells of a line; None for a header or an empty line."""
        if line.fault is not None:
            raise line.fault
        if line.cells is not None:
            return line.cells
        if line.is_cut:
            raise BadInput(f"{self._where} has a line of more than {MOST_BYTES:,} bytes")
        return self._parser.chunk(line.data)

    def _report_silence(self) -> None:
        """Say for how long no row came before the newest one, which follows a gap."""
        if self._longest_silence_s < self._silent_s < math.inf and self.n_rows > 1:
            self._report(
                f"{self._where} gave no row for {self._silent_s:,.0f} s, so row {self.rows.n_read:,} follows a gap"
            )

    def _leave_out(self, error: BadInput, line: Line) -> None:
        if self._predictions is not None:
            self._predictions.write_fault(str(error))
        self.report_unreadable(
            error, line.data[: _MOST_SHOWN + 1].decode(errors="backslashreplace")
        )

    def stop(self) -> None:
        """End after the current row, also while none comes."""
        self._lines.stop()

    def close(self) -> None:
        """Close the target of the predictions, and the file of the rows."""
        self._lines.close()
        if self._predictions is not None:
            self._predictions.close()


class FollowedRows(LineRows):
    """Rows that are written to files, which a resumed run reads again from a snapshot on.

    Args:
        run, table, resumed, options: As of `StreamedRows`.
        lines: The file, or the folder of files.
    """

    def __init__(
        self,
        run: Run,
        table: Table,
        lines: FollowedFile | FollowedFiles[Any],
        resumed: Resumption = NEW,
        **options: Any,
    ) -> None:
        self._files = lines
        self._awaits_history = run.config.compare_frozen and frozen_snapshot(run.folder) is None
        if self._awaits_history:
            refuse_without_horde(run)
        super().__init__(run, table, lines, resumed, **options)

    def _continued_recorder(self, resumed: Resumption) -> Recorder:
        """Restore the snapshot; the rows recorded since come again, and are compared."""
        folder = self.run.folder
        follows_gap = self.learner.resume(resumed, folder.excursions)
        source = resumed.source
        if source is not None:
            place = Position.of_state(source["rows"])
            self.rows.continue_at(self._continued_place(place, follows_gap=follows_gap))
            self._parser.restore(source["parser"])
        self.n_rows = resumed.n_rows
        recorder = Recorder.resume(
            folder.life, resumed.n_rows, is_redone=True, body=self.changed_body
        )
        is_whole = source is not None and source["is_ended"] and not len(recorder.since)
        if self.arranged is not None and not is_whole:
            refuse_unended(folder)
        return recorder

    def _take_line(self, line: Line) -> None:
        """Learn from a line; the history ends before the first one that was waited for."""
        if self._awaits_history and self._files.has_waited and self.n_rows:
            self._awaits_history = False
            self.end_history()
        super()._take_line(line)

    def _state(self) -> dict[str, Any]:
        place = self._files.place(is_behind=self._is_ended)
        return {
            **super()._state(),
            "parser": self._parser.state(),
            "place": place._asdict(),
        }

    def _beginning(self) -> dict[str, Any]:
        return {"place": self._files.place(is_behind=True)._asdict()}


class ResumedStream(NamedTuple):
    """What a command says about the predictions at further rows.

    Attributes:
        more: The data set with the rows; None for standard input.
        predictions, predict: As in the settings.
        compares_frozen: Whether the history ends here, with whose weights the tests are scored, too.
        changes: How the further rows differ from those before.
    """

    more: Path | None
    predictions: str | None
    predict: str | None
    compares_frozen: bool = False
    changes: RowChanges = NO_ROW_CHANGES


def stream_table(columns: Path | None, where: str = _STANDARD_INPUT) -> Table:
    """Return a table without rows that describes those of a stream; raise BadInput if it describes too little."""
    if columns is None:
        raise BadInput(
            "a stream needs --columns FILE.toml, which describes the rows: `horde columns` on a table of such "
            "rows writes one"
        )
    described = Columns.read(columns)
    refuse_open(described)
    return Table(lambda: (), described, where)


def piped_session(
    table: Table, config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session that learns from the rows of standard input."""
    run = make_run(HeaderEnv(table.header), config, folder)
    folder.write_columns(table.columns.to_toml())
    run.end_live_page()
    return Session(LineRows(run, table, LineReader(standard_input())), console, signals)


def resumed_streamed_session(
    command: ResumedStream,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
) -> Session:
    """Return a session that continues a run on data, row by row, with those of standard input or of a data set.

    Raises:
        BadInput: As `continued_run`, or if a row of the data set is invalid or does not follow.
    """
    config = replace(config, predictions=command.predictions, predict=command.predict)
    further: FurtherRows | None = None
    lines: Lines
    where = _STANDARD_INPUT
    if command.more is not None:
        where = str(command.more)
        further = further_rows(folder, command.more, command.changes)
        lines = TableLines(further.table)
    else:
        lines = LineReader(standard_input())
    continued = continued_run(folder, config, where, changes=command.changes, further=further)
    run = continued.run
    source = LineRows(
        run,
        continued.table,
        lines,
        continued.resumed,
        arranged=continued.arranged,
        changes=command.changes,
    )
    if further is not None:
        try:
            _check_rows(further.table, source.rows.position(is_complete=False))
        except BaseException:
            source.abandon()
            raise
    if command.compares_frozen:
        refuse_without_horde(run)
        source.end_history()
    for note in (*continued.resumed.notes, f"resumed at row {source.recorder.n_rows:,}"):
        console.print(note, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(source, console, signals)


def _check_rows(table: Table, place: Position) -> None:
    """Raise BadInput if a row of a table is invalid, or does not continue those before a place."""
    table.start = place
    for _ in table:
        pass


class ContinuedRun(NamedTuple):
    """A run that continues with rows one by one.

    Attributes:
        run: The run at its start.
        table: Describes the rows.
        resumed: Where it continues.
        arranged: How the rows are read and recorded.
    """

    run: Run
    table: Table
    resumed: Resumption
    arranged: ArrangedRows


def continued_run(
    folder: RunFolder,
    config: LearnConfig,
    where: str,
    own: Questions | None = None,
    changes: RowChanges = NO_ROW_CHANGES,
    further: FurtherRows | None = None,
) -> ContinuedRun:
    """Return a run on data to continue.

    Args:
        folder: Its folder.
        config: Its settings, with the predictions to write, the number of steps and the command for alarms of now.
        where: Name of the rows, for messages.
        own: Its questions if they were given in Python.
        changes: What the command says about the rows.
        further: The rows, if they are all there.

    Raises:
        BadInput: If no rows can continue it, or the changes do not fit.
    """
    if config.passes > 1:
        raise BadInput(
            f"{folder.path} learns in {config.passes} passes, to which no rows can be added: start a new run"
        )
    remove_unfinished(folder)
    refuse_changes(folder, changes)
    recorded = header_of(folder.life)
    columns = columns_of(folder, recorded)
    arranged = ArrangedRows(columns, recorded)
    if further is not None:
        arranged = further.arranged or arranged
    elif changes.is_of_rows:
        present = present_columns(columns, changes, where)
        refuse_open_range(present, changes, columns_file(folder, recorded))
        table = Table(lambda: (), present, where)
        arranged = arranged_rows(folder, recorded, columns, table, changes)
    resumed = resumption(folder)
    run = open_run(folder, arranged.header, own=own)
    run.config = replace(
        run.config,
        steps=config.steps,
        predictions=config.predictions,
        predict=config.predict,
        keep=config.keep,
        archive=config.archive,
        on_alarm=config.on_alarm,
    )
    resumed = resumed._replace(notes=[*resumed.notes, *consequences(changes.body.actions)])
    return ContinuedRun(run, Table(lambda: (), arranged.columns, where), resumed, arranged)


def followed_table(path: Path, columns: Path | None) -> Table:
    """Return a table that describes the rows of data that grow.

    Raises:
        BadInput: If they do not grow, or the columns file describes too little.
    """
    if _is_folder_of_bags(path):
        return open_bag_table(path, columns, refuse_open)
    _refuse_still(path)
    return stream_table(columns, str(path))


def _is_folder_of_bags(path: Path) -> bool:
    return path.is_dir() and bags.FORMAT.matches(path)


def _refuse_still(path: Path) -> None:
    """Raise BadInput if nothing can be appended to a file, or a folder holds no file of a format that grows."""
    growths = [one.growth(path) for one in FORMATS if one.matches(path)]
    if path.is_dir() and Growth.FILES not in growths:
        raise BadInput(
            f"--follow needs a file that grows or a folder of Parquet or MCAP files: {path} has none"
        )
    if growths and set(growths) == {Growth.NONE}:
        raise BadInput(
            f"--follow needs lines, CSV or JSON, that are appended to a file: {path} is no such file; put further ones "
            "beside it and follow their folder"
        )


def _followed(
    path: Path, table: Table, place: dict[str, Any] | None
) -> FollowedFile | FollowedFiles[Any]:
    """Return the file or the folder of a path, from a place on; raise BadInput if it cannot be followed."""
    place = place or {}
    if isinstance(table, BagTable):
        return followed_bags(path, table, BagPlace(**place))
    if path.is_dir():
        return followed_folder(path, table.columns, FolderPlace(**place))
    file_place: Place | None = None
    if place:
        file_place = Place(**place)
    return FollowedFile(path, file_place)


def followed_session(
    table: Table, config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session that learns from the rows of a file while it grows."""
    file = _followed(Path(str(config.data)), table, None)
    run = make_run(HeaderEnv(table.header), config, folder)
    folder.write_columns(table.columns.to_toml())
    run.end_live_page()
    return Session(FollowedRows(run, table, file), console, signals)


def resumed_followed_session(
    changes: RowChanges,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
) -> Session:
    """Return a session that continues to follow a file behind the rows that were learned from.

    Raises:
        BadInput: If the file at which its snapshot was taken is gone, or the changes do not fit.
    """
    path = Path(str(config.data))
    if changes.is_of_rows and _is_folder_of_bags(path):
        raise BadInput(
            f"the bags of {path} are read again from the first one on, which has other channels: start a new run"
        )
    continued = continued_run(folder, config, str(path), changes=changes)
    table = continued.table
    if _is_folder_of_bags(path):
        table = open_bag_table(path, config.columns, refuse_open)
        if table.columns != continued.table.columns:
            raise BadInput(
                f"{config.columns} has changed since {folder.path} began, whose weights fit it no more; restore it"
            )
    source = continued.resumed.source or folder.events.read().first("began") or {}
    if continued.resumed.source is not None and "place" not in source:
        raise BadInput(
            f"{folder.path} was continued with other rows than those of {path}, so it has no place in them: continue "
            "with further ones by --data"
        )
    # There is no place after a kill before the first row
    file = _followed(path, table, source.get("place"))
    rows = FollowedRows(
        continued.run,
        table,
        file,
        continued.resumed,
        arranged=continued.arranged,
        changes=changes,
    )
    for note in (*continued.resumed.notes, f"resumed at row {continued.resumed.n_rows:,}"):
        console.print(note, highlight=False, soft_wrap=True)
    continued.run.end_live_page()
    return Session(rows, console, signals)
