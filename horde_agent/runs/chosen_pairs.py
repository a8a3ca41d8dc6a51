"""`horde features`: the pairs of channels that a run's predictions lack most, as tilings for other runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.life.learner import StreamLearner, rows_of
from horde_agent.refusals import BadInput
from horde_agent.runs.sources.recorded_rows import Recording
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import open_run
from horde_agent.scoring.pair_errors import PairErrors
from horde_agent.toml import toml_value

_SETTLED_AFTER = 1 / 3  # of the rows; errors before are those of weights that have not settled


def chosen_pairs(path: Path, n: int) -> str:
    """Learn from a run's record again, and return the `n` pairs of channels that explain most of its errors, as TOML.

    Args:
        path: The run's folder.
        n: Largest number of pairs.

    Raises:
        BadInput: If the record cannot be learned from, the run has fewer than two channels that
            vary, or no pair explains an error.
    """
    if n < 1:
        raise BadInput(f"--pairs must be at least 1, got {n}")
    folder = RunFolder(path)
    folder.refuse_removed("be searched for pairs")
    run = open_run(folder)
    extent = folder.extent()
    first_row = int(extent.n_rows * _SETTLED_AFTER)
    try:
        errors = PairErrors(
            run.interface, run.horde.n_demons, extent.n_rows - first_row, run.config.seed
        )
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    student = StreamLearner(run.horde, run.interface, is_tested=False)
    latest: dict[int, np.ndarray] = {}  # observation of each robot
    with folder.reading():
        for number, row in enumerate(rows_of(Recording(folder.life, extent))):
            n_steps = student.learning_steps
            student.take_row(row)
            if student.learning_steps > n_steps and number >= first_row:
                errors.add(latest[row.robot], run.horde.rho * run.horde.td_error)
            latest[row.robot] = row.observation.copy()
    chosen = errors.best(n)
    if not chosen:
        raise BadInput(
            f"no pair of channels explains an error in {path}: its predictions are exact, or its "
            f"{extent.n_rows:,} rows are too few; learn for longer"
        )
    lines = [
        f"# Chosen from {len(errors.tables):,} pairs of channels by the errors of {run.horde.n_demons:,} predictions "
        f"in {extent.n_rows:,} rows."
    ]
    for table, share in chosen:
        lines += ["", f"[[tiling]]  # explains {share:.2%} of the squared errors"]
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"
