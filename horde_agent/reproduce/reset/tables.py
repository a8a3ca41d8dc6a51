"""The tables of the second experiment."""

from __future__ import annotations

from horde_agent.reproduce.excursions.data import over_lives
from horde_agent.reproduce.reset.claims import ESTIMATES, MEASURES, agreements, reactions
from horde_agent.reproduce.reset.data import Data
from horde_agent.reproduce.result import Cell, Table


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_agreement(data), _reaction(data), *([_lamp(data)] if data.moved else []), _cost(data)]


def _agreement(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        found = agreements(data, run)
        for name in ESTIMATES:
            before, after = found[name]
            rows.append([f"seed {seed}", name, *before, *after])
    columns = [f"{when}: {what}" for when in ("before", "after") for what in ("correlation", "best lag", "at that lag")]
    return Table(
        "The estimates against the NMSRE, before the change and after it",
        ("life", "estimate", *columns),
        rows,
        "Pearson's correlation of the means over all questions; lags in learning steps, by which the estimate trails. "
        "Where both curves fall all the time, the best lag is the longest one looked at, and measures no delay.",
    )


def _reaction(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        found = reactions(data, run)
        found["median NMSRE"] = data.reaction(run.at, run.medians())
        rows += [[f"seed {seed}", name, *reaction] for name, reaction in found.items()]
    header = ("life", "measure", "mean before", "peak", "peak after", "half of the rise gone after")
    return Table("The reaction to theta := 0", header, rows, "The last two columns in learning steps.")


def _lamp(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for what, which in ((f"about {data.lit_group}", data.is_lit), ("all others", ~data.is_lit)):
        for name in MEASURES:
            found = [reactions(data, run, which)[name] for run in data.moved.values()]
            columns = [over_lives(values) for values in zip(*found, strict=True)]
            rows.append([what, int(which.sum()), name, *columns, over_lives([r.rise for r in found])])
    header = (
        "questions",
        "number",
        "measure",
        "mean before",
        "peak",
        "peak after",
        "half of the rise gone after",
        "rise / level before",
    )
    return Table("The reaction to the moved lamp", header, rows, "Means over lives; times in learning steps.")


def _cost(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        ms = 1e3 * run.seconds / run.n_updates
        rows.append([f"seed {seed}", run.n_steps, run.n_updates, run.n_steps / run.n_updates, ms])
    return Table(
        "What the measures cost",
        ("life", "steps of robot time", "learning steps", "robot time per learning step", "ms per learning step"),
        rows,
        "The NMSRE costs robot time: without excursions every step is a learning step. The last column is the "
        f"program's own time for {len(data.questions)} questions with both estimates, read every {data.every} steps; "
        "it belongs to the machine.",
    )
