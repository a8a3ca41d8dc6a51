"""Learning from a life that was recorded: other questions, or other settings, about what was once seen and done.

What was done, and with what probability, is in the record, so that questions about other policies than the one that
was followed are learned off-policy, as in the life. The same questions under the same settings learn the same, bit for
bit.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.record import Stream, read
from horde_agent.record.segments import parts
from horde_agent.runs import unfinished
from horde_agent.runs.config import BadInput, LearnConfig, is_life, read_config
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.run import Described, make_run
from horde_agent.runs.run_folder import RunFolder
from horde_agent.runs.warm import CompileNotice, warm_up


def as_lived(config: LearnConfig) -> tuple[LearnConfig, LearnConfig]:
    """Return the settings with what follows from the life that is learned from, and the settings of that life.

    The horizon of its excursions is the life's; so are its questions and seed, unless questions are asked for.

    Raises:
        BadInput: If that life does not tell.
    """
    assert is_life(config.log), "only a life can be learned from so"
    recorded = RunFolder(Path(str(config.log)))
    if not recorded.config.is_file():
        raise BadInput(f"{recorded.path} does not tell how its life was lived: there is no config.toml in it")
    lived = read_config(recorded.config)
    if config.questions is None:
        asked = lived.questions or "excursions"
        own = str(recorded.question_file) if asked.endswith(".toml") else asked
        config = replace(config, questions=own, seed=lived.seed)
    return replace(config, horizon=lived.horizon), lived


def relive(config: LearnConfig, lived: LearnConfig, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a recorded life at full speed, write the tables, and return the summary.

    Args:
        config: Resolved settings.
        lived: Those of the life.
        folder: For the results; the record is linked into it.
        console: Where progress is shown.

    Raises:
        BadInput: If the record cannot be learned from.
    """
    recorded = RunFolder(Path(str(config.log)))
    try:
        stream = read(recorded.life)
    except (OSError, ValueError) as error:
        raise BadInput(f"{recorded.life} cannot be read: {error}") from None
    for fault in stream.faults:
        console.print(f"{fault}.", highlight=False, soft_wrap=True)
    if config.steps is not None:
        stream = Stream(stream.rows[stream.rows["step"] <= config.steps], stream.header, stream.faults)
    if not len(stream):
        raise BadInput(f"{recorded.life} holds nothing to learn from: no step was lived in it")
    file = Path(str(config.questions)) if str(config.questions).endswith(".toml") else None
    try:
        run = make_run(Described(stream.header), config, folder, file, lived=lived)
    except ValueError as error:
        raise BadInput(str(error)) from None
    run.end = End.of(Cause.LOG_END if config.steps is None else Cause.STEPS)
    for path in parts(recorded.life):
        _link(path, folder.log / path.name)
    with CompileNotice(console).installed():
        run.compile_s = warm_up(run.horde, run.interface)
    return unfinished.relearned(run, stream, folder, console)


def _link(path: Path, to: Path) -> None:
    """Have a file in a second place, without a second copy where the disk can do that."""
    with suppress(OSError):
        os.link(path, to)
        return
    shutil.copy2(path, to)
