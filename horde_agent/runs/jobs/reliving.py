"""Learn from a recorded run, with the same or other questions and settings.

The recording contains the actions and their probabilities, so questions about any policy are learned off-policy. The
same questions and settings give the same weights, bit for bit. Memory does not grow with the recording.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.record.segments import record_files
from horde_agent.runs.config import BadInput, LearnConfig, is_life, read_config
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs import unfinished
from horde_agent.runs.jobs.warm import CompileNotice, warm_up
from horde_agent.runs.keeping.folder import RunFolder
from horde_agent.runs.keeping.run import HeaderEnv, make_run


def recorded_settings(config: LearnConfig) -> tuple[LearnConfig, LearnConfig]:
    """Return the settings completed from the recorded run, and the settings of that run.

    The horizon is taken from the run; so are questions and seed, unless `config` names questions.

    Raises:
        BadInput: If the run has no config.toml.
    """
    assert is_life(config.log), "the log is a run's folder"
    recorded = RunFolder(Path(str(config.log)))
    if not recorded.config.is_file():
        raise BadInput(f"{recorded.path} contains no config.toml, so the settings of the run are unknown")
    lived = read_config(recorded.config)
    if config.questions is None:
        asked = lived.questions or "excursions"
        own = str(recorded.question_file) if asked.endswith(".toml") else asked
        config = replace(config, questions=own, seed=lived.seed)
    return replace(config, horizon=lived.horizon), lived


def relearn_run(config: LearnConfig, lived: LearnConfig, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a recorded run at full speed, write the tables, and return the summary.

    Args:
        config: Resolved settings.
        lived: Settings of the run.
        folder: For the results; the recording is linked into it.
        console: For progress.

    Raises:
        BadInput: If the recording cannot be learned from.
    """
    recorded, header, end = RunFolder(Path(str(config.log))), dict[str, Any](), -1
    last = config.steps if config.steps is not None else sys.maxsize
    try:
        for rows in unfinished.recorded_rows(recorded, last):
            header = header or rows.header
            end = int(rows.rows["step"][-1]) if len(rows) else end
            for fault in rows.faults:
                console.print(f"{fault}.", highlight=False, soft_wrap=True)
    except (OSError, ValueError) as error:
        raise BadInput(f"{recorded.life} cannot be read: {error}") from None
    if end < 0:
        raise BadInput(f"{recorded.life} contains no step to learn from")
    file = Path(str(config.questions)) if str(config.questions).endswith(".toml") else None
    try:
        run = make_run(HeaderEnv(header), config, folder, file, lived=lived)
    except ValueError as error:
        raise BadInput(str(error)) from None
    run.end = End.of(Cause.LOG_END if config.steps is None else Cause.STEPS)
    for path in record_files(recorded.life):
        _link(path, folder.log / path.name)
    with CompileNotice(console).installed():
        run.compile_s = warm_up(run.horde, run.interface)
    log = partial(unfinished.recorded_rows, recorded, last)
    return unfinished.relearned(run, log, end, folder, console)


def _link(path: Path, to: Path) -> None:
    """Hard-link a file, or copy it if the file system has no links."""
    with suppress(OSError):
        os.link(path, to)
        return
    shutil.copy2(path, to)
