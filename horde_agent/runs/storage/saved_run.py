"""A run in its folder: its settings, its recording and its newest snapshot, and the run that they make again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from horde_agent.record import header_of, read_in_parts
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, read_config
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import change_questions, resumption
from horde_agent.runs.storage.run import GIVEN_IN_PYTHON, IN_PYTHON, HeaderEnv, Run, make_run
from horde_agent.saving import inner

_OF_HORDE = "life/student/horde"  # state of the demons, in a snapshot


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


@dataclass(frozen=True)
class SavedRun:
    """A run in its folder, whose settings are sound (`open_run`).

    Attributes:
        folder: Its folder.
        config: Its settings; questions of its own are those in the folder.
    """

    folder: RunFolder
    config: LearnConfig

    @cached_property
    def extent(self) -> Extent:
        """Header and length of its recording; raises BadInput if it cannot be read or has no row."""
        return read_extent(self.folder)

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
            replayed_run = open_run(RunFolder(Path(str(config.log))))
        except BadInput:
            return replace(config, backend="simulator")
        return replayed_run.acting_settings

    @property
    def acting_settings(self) -> LearnConfig:
        """Settings of the run whose robot acted in this recording."""
        return self.replayed or self.config

    @property
    def is_log(self) -> bool:
        """Whether it learned from a log without actions."""
        return self.config.backend == "replay" and self.replayed is None

    @property
    def settings_of_one_horde(self) -> LearnConfig:
        """Its settings for one Horde: it learns the same weights as shards, bit for bit."""
        return replace(self.config, shards=None, ray=None)

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

    def build(self, header: dict[str, Any] | None = None) -> Run:
        """Return the run at its start, without its robot; nothing is written.

        Args:
            header: Of its recording; read when None, from one with rows.

        Raises:
            BadInput: If its recording or its questions cannot be read.
        """
        life = self.folder.life
        header = header or self.extent.header
        try:
            env = HeaderEnv(header)
            return make_run(env, self.settings_of_one_horde, self.folder, recorded=self.replayed)
        except KeyError as error:
            raise BadInput(
                f"the header of {life} lacks {error}, which learning from it requires"
            ) from None
        except (ValueError, TypeError) as error:
            raise BadInput(f"{life} cannot be learned from again: {error}") from None

    def build_trained(self, console: Console) -> Run | None:
        """Return the run with the weights of its newest snapshot, to predict; None without a usable one.

        A line on the console says from which step they are, or why there are none.

        Raises:
            BadInput: As `build`.
        """
        run = self.build()
        try:
            resumed = resumption(self.folder)
            if not resumed.state or resumed.shards is not None:
                return None
            change_questions(run.horde, run.interface, self.folder, resumed.changes)
            run.horde.restore(inner(resumed.state, _OF_HORDE))
        except (BadInput, ValueError, LookupError, OSError) as error:
            console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
            return None
        for note in (*resumed.notes, f"from its snapshot at step {resumed.step:,}"):
            console.print(note, highlight=False, soft_wrap=True)
        return run


def open_run(folder: RunFolder) -> SavedRun:
    """Open a run's folder; raise BadInput if its settings or its data set are not whole, or were changed."""
    if not folder.config.is_file():
        raise BadInput(f"{folder.path} contains no run: config.toml is missing")
    config = replace(read_config(folder.config), out=folder.path)
    if "versions" not in folder.settings():
        raise BadInput(
            f"{folder.config} is cut off before its versions, so settings may be missing"
        )
    folder.refuse_part()
    folder.refuse_changes()
    if str(config.questions).endswith(".toml"):
        config = replace(config, questions=str(folder.question_file))
    return SavedRun(folder, config)


def resume_settings(folder: RunFolder, steps: int | None) -> LearnConfig:
    """Return the settings of a run to resume; raise BadInput if it replayed a log or has no recording."""
    config = open_run(folder).config
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
    return replace(config, steps=steps)


def read_extent(folder: RunFolder) -> Extent:
    """Return header and length of a run's recording; raise BadInput if it cannot be read or has no row."""
    with as_bad_input(folder):
        header = header_of(folder.life)
        last_row = folder.last_row()
    if not last_row.n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    return Extent(header=header, n_rows=last_row.n_rows, last_step=last_row.step)


def is_reward_known(recording: Path) -> bool:
    """Return whether a row of a recording has a reward: data may have none."""
    parts = read_in_parts(recording, on_fault=lambda _: None)
    return any(np.isfinite(part.rows["reward"]).any() for part in parts)


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
