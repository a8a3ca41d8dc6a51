"""A run in Python that learns from rows as they are given: what `horde learn -` is for other programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.formats.arrivals import refuse_open
from horde_agent.formats.columns import MISSING_READING, OBSERVATION, Columns
from horde_agent.formats.lines import cells_of_mapping, one_row
from horde_agent.formats.part import Chunk
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.observers import Progress
from horde_agent.refusals import BadInput
from horde_agent.runs.config import IN_PYTHON, STANDARD_INPUT, refuse_no_command, resolve
from horde_agent.runs.session import Session
from horde_agent.runs.sources.arranged_rows import NO_ROW_CHANGES, ArrangedRows, RowChanges
from horde_agent.runs.sources.learn_from import channel_tables, data_settings
from horde_agent.runs.sources.streamed_rows import (
    ContinuedRun,
    StreamedRows,
    continued_run,
    longest_silence_s,
)
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import NEW, resume_settings
from horde_agent.runs.storage.run import HeaderEnv, Questions, make_run
from horde_agent.types import Floats

_WHERE = "the stream"
_KEYS = ("action", "b", "time", "reward", "terminated", "truncated")
"""Arguments of a row, which become columns."""


class _GivenRows(StreamedRows):
    """Rows that a caller gives."""

    def learn(self, progress: Progress) -> None:  # noqa: ARG002
        """End the stream: its rows have been learned from."""
        self.end()


class StreamRun:
    """A run that learns from rows as they are given, in a new folder.

    It records them, skips gaps, tests the behaviour, and writes snapshots and tables, as `horde learn`
    does. `horde resume RUN --data -` and `StreamRun.resume` continue it.

    Args:
        channels: Names of the readings in an observation.
        ranges: Lowest and highest reading of each channel, shape (n_channels, 2).
        questions: Family (`excursions`, `nexting`, `policies`), question file, GVFs, or a function
            of the interface.
        action_names: Names of the actions 0, 1, ...; without them, rows have no actions.
        has_times: Whether rows have times: one that comes more than 1.5 periods after the one before
            follows a gap. Else one that is given after 1.5 periods, and at least a second, does.
        period_s: Time between two rows in seconds.
        tile_layout: TOML text of the tiles; a default when None.
        missing: What a row is in which a reading is NaN: "reading", a row without that reading; "gap", no
            row; "error", refused.
        columns: TOML file that describes the rows, as for `horde learn -`, instead of the arguments
            above but `questions`: an observation is then a mapping with everything by column.
        out: New folder for the results; the next free runs/data-N when None.
        clock: Time in seconds, from any point on.
        settings: As of `horde learn`: seed, algorithm, step_size, snapshot_every, on_alarm, ...

    Attributes:
        horde: The demons.
        interface: Channels, actions and tiles.
        path: The run's folder.

    Raises:
        BadInput: If an argument is invalid.

    Examples:
        >>> import tempfile
        >>> from horde_agent import GVF, Behaviour, Channel
        >>> question = GVF("next", Behaviour(), Channel(0), continuation=0.0)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     with StreamRun(["x"], [[0, 1]], questions=[question], has_times=False, out=f"{out}/run") as learner:
        ...         for t in range(400):
        ...             predictions = learner.row([t % 2])
        >>> predictions.round(1)
        array([0.])
    """

    def __init__(
        self,
        channels: Sequence[str] = (),
        ranges: Any = None,
        *,
        questions: str | Path | Questions,
        action_names: Sequence[str] = (),
        has_times: bool = True,
        period_s: float = 1.0,
        tile_layout: str | None = None,
        missing: str = MISSING_READING,
        columns: str | Path | None = None,
        out: str | Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        if columns is not None:
            described = Columns.read(Path(columns))
        else:
            keys = {key: _free(key, channels) for key in _KEYS}
            if not has_times:
                del keys["time"]
            if not action_names:
                del keys["action"]
                del keys["b"]
            facts = {
                "channel": channel_tables([(name, name) for name in channels], ranges, ()),
                "period_s": period_s,
                "actions": tuple(action_names),
                "missing": missing,
                "convention": OBSERVATION,
            }
            described = Columns.of(facts | keys).with_keys(tile_layout=tile_layout)
        refuse_open(described)
        given_questions: Questions | None = None
        name = "nexting"
        if isinstance(questions, str | Path):
            name = str(questions)
        else:
            given_questions = questions
        config = data_settings(settings, name, out)
        config = resolve(replace(config, data=STANDARD_INPUT, predictions=IN_PYTHON))
        if given_questions is not None:
            config = replace(config, questions=IN_PYTHON)
        folder = RunFolder.create(config)
        config = replace(config, out=folder.path)
        self._folder = folder
        self._lock = ExitStack()
        self._lock.enter_context(folder.locked())
        try:
            table = Table(lambda: (), described, _WHERE)
            run = make_run(HeaderEnv(table.header), config, folder, own=given_questions)
            folder.write_columns(table.columns.to_toml())
            arranged = ArrangedRows(table.columns, table.header)
            self._begin(ContinuedRun(run, table, NEW, arranged), clock)
        except BaseException:
            self._lock.close()
            folder.give_back()
            raise

    @classmethod
    def resume(
        cls,
        path: str | Path,
        *,
        questions: Questions | None = None,
        on_alarm: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        columns: str | Path | None = None,
        channels: str | None = None,
        actions: str | None = None,
        tilings: str | Path | None = None,
        add: str | Path | None = None,
        remove: str | None = None,
    ) -> StreamRun:
        """Return a run that continues with further rows: one of `StreamRun`, or of `horde learn` on data.

        Rows have the columns that they had, in a mapping if a file described them; an observation has a
        reading of each channel of `interface`, NaN for a lost one. After a kill the first one follows a
        gap.

        Args:
            path: The run's folder.
            questions: Those that were given in Python; None for others.
            on_alarm: Command to run at alarms, as of `horde learn`; the one of before is not run.
            clock: As of `StreamRun`.
            columns: As of `horde resume`: file that describes the rows from now on.
            channels: Those that rows have or lack from now on, "new:NAME,lost:NAME".
            actions: Likewise.
            tilings: File of further tilings.
            add: File of further questions.
            remove: Shell pattern of the names of questions to remove.

        Raises:
            BadInput: If no rows can continue it, or the changes do not fit.
        """
        changes = RowChanges.of(
            columns=columns,
            channels=channels,
            actions=actions,
            tilings=tilings,
            add=add,
            remove=remove,
        )
        folder = RunFolder(Path(path))
        config = replace(resume_settings(folder, None), predictions=IN_PYTHON, on_alarm=on_alarm)
        if on_alarm is not None:
            refuse_no_command(on_alarm)
        stream = cls.__new__(cls)
        stream._folder = folder
        with ExitStack() as lock:
            lock.enter_context(folder.locked())
            continued = continued_run(folder, config, _WHERE, questions, changes)
            stream._begin(continued, clock, changes)
            stream._lock = lock.pop_all()
        return stream

    def _begin(
        self,
        continued: ContinuedRun,
        clock: Callable[[], float],
        changes: RowChanges = NO_ROW_CHANGES,
    ) -> None:
        """Compile, and begin to record."""
        run = continued.run
        table = continued.table
        self._columns = table.columns
        self._clock = clock
        self._longest_silence_s = longest_silence_s(table.columns)
        self._given_at_s: float | None = None
        self._summary: dict[str, Any] | None = None
        self._source = _GivenRows(
            run, table, continued.resumed, arranged=continued.arranged, changes=changes
        )
        self._session = Session(self._source, Console(stderr=True, quiet=True))
        self._session.begin()
        self.horde: Learner = run.horde
        self.interface: Interface = run.interface
        self.path = run.folder.path

    def row(
        self,
        observation: Any,
        action: int | str | None = None,
        b: float | None = None,
        time: Any = None,
        *,
        reward: float | None = None,
        terminated: bool = False,
        truncated: bool = False,
    ) -> Floats:
        """Learn from the transition to a row, and return the predictions at it.

        Args:
            observation: Readings of the channels, shape (n_channels,), NaN where one is missing; or
                a mapping with the cells of all columns by name, instead of the other arguments.
            action: The action taken from it, by number or name; None only in the last row of an episode.
            b: Probability with which it was drawn.
            time: Its time in seconds, or a date.
            reward: Of the transition that led to it; None if unknown.
            terminated: Whether the observation is terminal.
            truncated: Whether the row is the last one of an episode that did not terminate.

        Returns:
            Shape (n_demons,), in the order of `horde.names`; NaN if the row was dropped.

        Raises:
            BadInput: If it is invalid: nothing is learned from it, and the next one follows a gap.
        """
        now_s = self._clock()
        is_late = False
        if self._given_at_s is not None and self._columns.times.time is None:
            is_late = now_s - self._given_at_s > self._longest_silence_s
        cells = {
            "action": action,
            "b": b,
            "time": time,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        try:
            chunk = self._chunk(observation, cells)
        except BadInput:
            self._source.rows.skip()
            raise
        row = self._source.take(chunk, is_late=is_late)
        self._given_at_s = now_s
        if row is None:
            return np.full(self.horde.n_demons, np.nan)
        predictions = np.array(self._source.student.predictions, dtype=np.float64)
        self.horde.work_ahead()  # as after a row that is learned from again after a kill
        return predictions

    def _chunk(self, observation: Any, cells: Mapping[str, Any]) -> Chunk:
        """Return the cells of a row by column, each of shape (1,)."""
        if isinstance(observation, Mapping):
            return cells_of_mapping(observation, self._columns.names)
        names = [channel.column for channel in self._columns.channel]
        readings = np.asarray(observation, dtype=np.float64)
        if readings.shape != (len(names),):
            raise BadInput(
                f"an observation must have the shape ({len(names)},), one reading of each channel, not {readings.shape}"
            )
        columns = self._columns.others
        for key, value in cells.items():
            if key not in columns and value not in (None, False):
                raise BadInput(
                    f"{key} = {value!r}: the rows of this run have no {key}; leave it out"
                )
        other_cells = {column: cells.get(key) for key, column in columns.items()}
        chunk = cells_of_mapping(other_cells, list(other_cells))
        return {**one_row(names, readings), **chunk}

    def close(self) -> dict[str, Any]:
        """End the run: write the last snapshot and the tables; return the summary. Closing twice does nothing more.

        Raises:
            BadInput: If no row was given; nothing is left of a new run.
        """
        if self._summary is None:
            with self._lock:
                try:
                    self._summary = self._session.learn()
                except BadInput:
                    if not self._source.n_rows:
                        self._folder.give_back()
                    raise
                finally:
                    self._session.close()
        return self._summary

    def __enter__(self) -> StreamRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free(key: str, channels: Sequence[str]) -> str:
    """Return the name of the column of an argument, which is not that of a channel."""
    name = key
    while name in channels:
        name += "_"
    return name
