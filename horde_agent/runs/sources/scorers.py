"""How rows are scored, by whether they have actions.

Rows with actions are learned from as a whole. Their test excursions are scored while they are
learned from, and the off-policy questions of a data set on its last 30 %, by importance sampling
(`runs.held_out`). Rows without actions are learned from on-policy, up to 70 %, and scored on the
rest by their own returns (`runs.log_nexting`), unless the run watches for surprises: it then learns from
all, and stretches of the behaviour are scored while it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from horde_agent.record import Stream
from horde_agent.runs import held_out, log_nexting
from horde_agent.runs.storage import frozen
from horde_agent.runs.storage.folder import Extent
from horde_agent.runs.storage.question_table import write_held_out
from horde_agent.runs.storage.run import Run, learns_all_rows
from horde_agent.runs.storage.tables import SessionOutcome

_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)


class RowScorer(ABC):
    """Scores what a run learns from rows.

    Attributes:
        learned: The rows that are learned from, in each pass.
        is_tested: Whether test excursions and stretches of the behaviour are scored while learning.
    """

    learned: Extent
    is_tested: bool

    def steps(self, reached: int) -> int:
        """Return the number of steps of a run that has learned up to step `reached`."""
        return reached

    def after_row(self, n_rows: int) -> None:  # noqa: B027  most have nothing to do
        """Called after each row, with the number of rows that were learned from."""

    @abstractmethod
    def completed(
        self, outcome: SessionOutcome, *, n_rows: int, reached: int, learning_steps: int
    ) -> SessionOutcome:
        """Return the outcome with the scores, after `n_rows` rows up to step `reached`.

        Rows and steps are counted on from pass to pass.
        """


class PolicyScorer(RowScorer):
    """Scores rows that are all learned from: by tests along the way.

    The off-policy questions of a data set are scored on held-out rows.

    Args:
        run: The run.
        extent: What its recording has.
    """

    def __init__(self, run: Run, extent: Extent) -> None:
        self.learned = extent
        self.is_tested = True
        self._run = run
        self._estimate: dict[str, Any] | None = extent.header.get("b_estimate")
        self._first_held_out = 0
        is_data = run.config.backend == "data" and not run.folder.is_streamed
        is_one_horde = run.shards is None and run.interface.feedback is None
        is_scorable = is_data and is_one_horde and extent.header["b_known"]
        if is_scorable and held_out.has_scorable(run.horde.questions):
            self._first_held_out = held_out.first_held_out(run.folder.life, extent.n_rows)

    def after_row(self, n_rows: int) -> None:
        """Score the off-policy questions on the rows that follow, by a copy of the Horde.

        Predictions of the Horde itself would end its batch of queued steps, which changes rounding.
        """
        if n_rows != self._first_held_out:
            return
        run = self._run
        rows = held_out.held_out_rows(run.folder.life, self._first_held_out)
        horde = frozen.restored_horde(run, run.horde.state())
        scores = held_out.score(rows, horde, run.interface, run.config.seed)
        if scores:
            write_held_out(run.folder.held_out, scores)

    def completed(
        self,
        outcome: SessionOutcome,
        *,
        n_rows: int,  # noqa: ARG002
        reached: int,  # noqa: ARG002
        learning_steps: int,
    ) -> SessionOutcome:
        """Return the outcome with the notes about a data set."""
        run = self._run
        if run.config.backend != "data" or run.folder.is_streamed:
            return outcome
        notes = [*outcome.details["notes"], *run.notes]
        if run.folder.held_out.is_file():
            notes.append(held_out.summary_of(run.folder.held_out))
        if self._estimate is not None:
            size = run.watch.effective_sample_size().mean()
            notes.append(_ESTIMATED.format(**self._estimate, size=size, n_steps=learning_steps))
        details = {**outcome.details, "notes": notes, "passes": run.config.passes}
        return outcome._replace(details=details)


class ReturnScorer(RowScorer):
    """Scores rows without actions on their last 30 %, by their own returns.

    Args:
        run: The run.
        rows: All its rows.
        header: Of its recording.

    Raises:
        BadInput: If there are too few rows to learn from and to score.
    """

    def __init__(self, run: Run, rows: Iterable[Stream], header: dict[str, Any]) -> None:
        self._run = run
        self._rows = rows
        self._border = log_nexting.border_of(rows)
        self.learned = Extent(header, self._border.n_learned, self._border.last_learned_step)
        self.is_tested = False

    def steps(self, reached: int) -> int:  # noqa: ARG002
        """Return the number of steps of the log: those that are not learned from are scored."""
        return self._border.n_steps

    def completed(
        self,
        outcome: SessionOutcome,
        *,
        n_rows: int,
        reached: int,
        learning_steps: int,  # noqa: ARG002
    ) -> SessionOutcome:
        """Return the outcome with the scores of the predictions by the final weights."""
        run = self._run
        score = log_nexting.score(self._rows, run.horde, run.interface, self._border)
        history = frozen.frozen_snapshot(run.folder)
        if history is not None:
            horde = frozen.restored_horde(run, history.state)
            by_history = log_nexting.score(self._rows, horde, run.interface, self._border)
            score = score._replace(by_history=by_history)
        return outcome._replace(
            robot={**outcome.robot, "gaps": score.n_gaps},
            score=score,
            passes=n_rows / score.n_learned,
            learned_up_to=reached,
        )


def scorer_of(run: Run, rows: Iterable[Stream], extent: Extent) -> RowScorer:
    """Return the scorer of a run's recorded rows; raise BadInput if they are too few to learn from and to score."""
    if learns_all_rows(run.config, extent.header) or run.folder.is_streamed:
        return PolicyScorer(run, extent)
    return ReturnScorer(run, rows, extent.header)
