"""Open the folder of a run, to learn from its recording or to continue from its newest snapshot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from horde_agent.life.life import Life
from horde_agent.life.observers import Sampler
from horde_agent.record import FORMAT, read_in_parts
from horde_agent.record.segments import read_header, read_segment, record_files, started_files
from horde_agent.runs.config import BadInput, LearnConfig, read_config
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import (
    change,
    check_excursions,
    resumption,
    snapshot_digests,
)
from horde_agent.runs.storage.run import (
    GIVEN_IN_PYTHON,
    IN_PYTHON,
    HeaderEnv,
    Run,
    load_state,
    make_run,
    new_life,
)


@dataclass(frozen=True)
class RecordedRun:
    """A run in its folder, whose settings are sound (`open_recorded`).

    Attributes:
        folder: Its folder.
        config: Its settings.
    """

    folder: RunFolder
    config: LearnConfig

    @property
    def replayed(self) -> LearnConfig | None:
        """Settings of the run that this one replayed, None if it replayed none.

        If the folder of that run is gone, its mode is unknown: they are those of this run, with a
        simulator.
        """
        config = self.config
        if config.backend != "replay" or config.columns is not None:
            return None
        if not self.folder.is_imported():
            return None
        try:
            replayed_run = open_recorded(RunFolder(Path(str(config.log))))
        except BadInput:
            return replace(config, backend="simulator")
        return replayed_run.recorded_settings

    @property
    def recorded_settings(self) -> LearnConfig:
        """Settings of the run whose robot acted in this recording."""
        return self.replayed or self.config

    @property
    def single_horde_settings(self) -> LearnConfig:
        """Settings of the run for one Horde: it learns the same weights as shards, bit for bit."""
        return replace(self.config, out=self.folder.path, shards=None, ray=None)

    def settings_of_replay(self, config: LearnConfig) -> LearnConfig:
        """Return the settings of a new run that learns from this recording, completed from this run.

        The horizon is taken from this run; so are questions and seed, unless `config` names
        questions, and the offset, the averages, no rarity and the features, unless `config` names
        them: the recording gives the weights that its run had.

        Raises:
            BadInput: If the questions of this run were given in Python, and `config` names none.
        """
        if config.questions is None:
            question_source = self.config.questions or "excursions"
            if question_source == IN_PYTHON:
                raise BadInput(f"{GIVEN_IN_PYTHON}, or name other --questions")
            if question_source.endswith(".toml"):
                question_source = str(self.folder.question_file)
            config = replace(config, questions=question_source, seed=self.config.seed)
        if config.offset is None and not config.paper:
            config = replace(config, offset=self.config.offset)
        if config.average is None and not config.paper:
            config = replace(config, average=self.config.average)
        if config.rarity is None and not self.config.rarity:
            config = replace(config, rarity=False)
        if config.features is None and not config.paper:
            config = replace(config, features=self.config.features)
        # There is no live page of a recording
        return replace(config, horizon=self.config.horizon, watch=False)

    def rebuild(self, header: dict[str, Any], config: LearnConfig, out: RunFolder) -> Run:
        """Return a run with the same questions, without its robot.

        Args:
            header: Of the recording.
            config: Settings of the run, such as `single_horde_settings`.
            out: Folder of the results; the run's own folder, to continue it.

        Raises:
            BadInput: If its Horde cannot be created.
        """
        question_file = None
        if str(config.questions).endswith(".toml"):
            question_file = self.folder.question_file
        life = self.folder.life
        try:
            env = HeaderEnv(header)
            return make_run(env, config, out, question_file, recorded=self.replayed)
        except KeyError as error:
            raise BadInput(
                f"the header of {life} lacks {error}, which learning from it requires"
            ) from None
        except (ValueError, TypeError) as error:
            raise BadInput(f"{life} cannot be learned from again: {error}") from None

    def rebuild_elsewhere(self, header: dict[str, Any], elsewhere: Path) -> Run:
        """Return a run of one Horde like this one, with its recording, whose results go to an empty folder."""
        rebuilt = RunFolder(elsewhere)
        rebuilt.life = self.folder.life
        rebuilt.log.mkdir()
        return self.rebuild(header, self.single_horde_settings, rebuilt)


def open_recorded(folder: RunFolder) -> RecordedRun:
    """Open a run's folder; raise BadInput if its settings or its data set are not whole, or were changed."""
    if not folder.config.is_file():
        raise BadInput(f"{folder.path} contains no run: config.toml is missing")
    config = read_config(folder.config)
    if "versions" not in folder.settings():
        raise BadInput(
            f"{folder.config} is cut off before its versions, so settings may be missing"
        )
    refuse_part(folder)
    folder.refuse_changes(snapshot_digests(folder))
    return RecordedRun(folder, config)


def refuse_part(folder: RunFolder) -> None:
    """Raise BadInput if a run's data set was not imported as a whole."""
    if (
        folder.settings().get("backend") == "data"
        and record_files(folder.life)
        and not folder.is_imported()
    ):
        raise BadInput(
            f"{folder.path} holds only a part of its data set, because the import was interrupted: remove the folder "
            "and run the same `horde learn` again"
        )


def resume_settings(folder: RunFolder, steps: int | None) -> LearnConfig:
    """Return the settings of a run to resume; raise BadInput if it replayed a log or has no recording."""
    config = open_recorded(folder).config
    if config.backend == "replay":
        raise BadInput(
            f"{folder.path} replayed a log and cannot be resumed; run `horde learn` again"
        )
    if not record_files(folder.life):
        raise BadInput(
            f"{folder.path} contains no run to resume: log/{folder.life.name} is missing"
        )
    if config.backend == "data" and steps is not None:
        raise BadInput(
            f"--steps {steps}: {folder.path} learns from the rows in its log, whose number cannot change"
        )
    if steps is None:
        steps = config.steps
    return replace(config, out=folder.path, steps=steps)


# ---- the recording ---------------------------------------------------------------------------------------------------


class Extent(NamedTuple):
    """What a recording has.

    Attributes:
        header: It describes the robot (`record_header`).
        n_rows: Number of rows up to the last sound one.
        last_step: The step of that row.
    """

    header: dict[str, Any]
    n_rows: int
    last_step: int


def read_extent(folder: RunFolder) -> Extent:
    """Return header and length of a run's recording; raise BadInput if it cannot be read or has no row."""
    with as_bad_input(folder):
        header = read_header(started_files(folder.life)[0], FORMAT)
        last_row = read_last_row(folder)
    if not last_row.n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    return Extent(header=header, n_rows=last_row.n_rows, last_step=last_row.step)


def is_reward_known(recording: Path) -> bool:
    """Return whether a row of a recording has a reward: data may have none."""
    parts = read_in_parts(recording, on_fault=lambda _: None)
    return any(np.isfinite(part.rows["reward"]).any() for part in parts)


class LastRow(NamedTuple):
    """The last sound row of a recording: how many rows there are with it, and its step; 0 for an empty log."""

    n_rows: int
    step: int


def read_last_row(folder: RunFolder) -> LastRow:
    """Return the last sound row of a run's recording."""
    for file in reversed(started_files(folder.life)):
        segment = read_segment(file, FORMAT)
        n = segment.n_whole
        if n:
            n_rows = int(segment.header.get("first", 0)) + n
            return LastRow(n_rows=n_rows, step=int(segment.records["step"][n - 1]))
    return LastRow(n_rows=0, step=0)


@contextmanager
def as_bad_input(folder: RunFolder) -> Iterator[None]:
    """Turn errors of reading a run's recording into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(
            f"{folder.path} contains no finished run: there are neither tables nor a log in it"
        ) from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(
            f"{folder.life} cannot be read, so it cannot be learned from again: {error}"
        ) from None


# ---- the newest snapshot ---------------------------------------------------------------------------------------------


class RestoredLife(NamedTuple):
    """A life as it was at a snapshot, its samples of the MSPBE, and the number of rows recorded by then."""

    life: Life
    sampler: Sampler
    n_rows: int


def restore(
    recorded: RecordedRun,
    run: Run,
    header: dict[str, Any],
    console: Console,
    n_rows: int | None = None,
) -> RestoredLife | None:
    """Restore the newest snapshot of a recorded run into `run`, which was rebuilt from it.

    Later excursions are scored again and recorded in a copy: the files of the recorded run do not
    change.

    Args:
        recorded: The run with the snapshot.
        run: Like it, with a folder elsewhere; its Horde gets the weights.
        header: Of the recording.
        console: Where a line says from which step, or why not.
        n_rows: Rows to learn from in all; a snapshot of more rows is not used. None for any.

    Returns:
        The life; None without a suitable snapshot.
    """
    folder = recorded.folder
    try:
        resumed = resumption(folder)
        is_later = n_rows is not None and n_rows < resumed.n_rows
        if not resumed.state or resumed.shards is not None or is_later:
            return None
        check_excursions(folder, resumed)
        envs = [HeaderEnv(header) for _ in range(run.config.robots)]
        life, sampler = new_life(envs, run)
        change(life, run.interface, folder, resumed.changes)
        copied = run.folder.log / "copied"
        copied.mkdir()
        for path in record_files(folder.excursions):
            shutil.copy(path, copied)
        life.student.errors.table.resume_in(copied / folder.excursions.name)
        load_state(life, run, sampler, resumed.state)
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        return None
    resumed.state.clear()
    progress = ""
    if n_rows is not None:
        progress = f" on: {n_rows - resumed.n_rows:,} rows"
    for note in (*resumed.notes, f"from its snapshot at step {resumed.step:,}{progress}"):
        console.print(note, highlight=False, soft_wrap=True)
    return RestoredLife(life=life, sampler=sampler, n_rows=resumed.n_rows)
