"""The frame of an experiment, and its result as JSON: claims with verdicts, figures and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

from horde_agent.reproduce.claims import Claim
from horde_agent.reproduce.means import Mean, join
from horde_agent.reproduce.study import Study
from horde_agent.runs.storage.folder import write_json

Cell = str | int | float | None


@dataclass(frozen=True)
class Figure:
    """A picture in the experiment's folder."""

    file: str  # name of the PNG in `Study.folder(experiment)`
    caption: str  # its caption


@dataclass(frozen=True)
class Table:
    """A table; floats are shown with four digits."""

    title: str  # its heading
    header: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[Cell]]  # a cell per column
    note: str = ""  # how to read it

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, object]], note: str = "") -> Table:
        """Return the table of rows that map the names of the columns, the same in each, to values: see `as_cell`."""
        return cls(title, list(rows[0]), [list(map(as_cell, row.values())) for row in rows], note)


def as_cell(value: object) -> Cell:
    """Return a number or text as it is, a mean with its interval as text, and other sequences with commas between."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Iterable) and not isinstance(value, Mean):
        return join(f"{item:g}" if isinstance(item, float) else item for item in value)
    return str(value)


@dataclass
class Result:
    """Result of an experiment."""

    name: str  # of the experiment, as in the command
    title: str  # a heading for people
    claims: list[Claim] = field(default_factory=list)  # in the order in which they are read
    figures: list[Figure] = field(default_factory=list)  # in this order too
    tables: list[Table] = field(default_factory=list)  # in this order too
    seconds: float = 0.0  # wall-clock time, set by the command; cached work is not counted
    settings: dict[str, Cell] = field(
        default_factory=dict
    )  # everything needed to repeat it: sizes, step sizes, seeds
    remarks: list[str] = field(default_factory=list)  # sentences about how to read the result
    versions: dict[str, str] = field(
        default_factory=dict
    )  # of the program and its libraries, set by the command

    def write(self, path: Path) -> None:
        """Write the result as JSON; numbers that are not finite become null."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write` wrote."""
        table = json.loads(path.read_text(encoding="utf-8"))
        table["claims"] = [Claim(**claim) for claim in table["claims"]]
        table["figures"] = [Figure(**figure) for figure in table["figures"]]
        table["tables"] = [Table(**inner) for inner in table["tables"]]
        return cls(**table)


def run_experiment(name: str, study: Study) -> Result:
    """Measure, judge the claims and draw the figures of an experiment: a folder of three modules.

    * `problem` has `TITLE` and `gather(study)`, which measures, or reads cached results. It returns
      the data that all else takes, and everything needed to repeat the measurement except the
      study's seeds, by name.
    * `claims` has `CLAIMS`, in the order of the paper, and `REMARKS`, sentences about how to read
      the result.
    * `figure` has `pictures(data)`, figures of matplotlib with their captions by name, and perhaps
      `tables(data)`.
    """
    problem, claims, figure = (
        import_module(f"{__package__}.{name}.{part}") for part in ("problem", "claims", "figure")
    )
    from horde_agent.runs.reporting.pictures import save  # needs matplotlib

    data, settings = problem.gather(study)
    figures = []
    for file, (canvas, caption) in figure.pictures(data).items():
        save(canvas, study.folder(name) / f"{file}.png")
        figures.append(Figure(f"{file}.png", caption))
    return Result(
        name,
        problem.TITLE,
        claims.CLAIMS.judge(data),
        figures,
        figure.tables(data) if hasattr(figure, "tables") else [],
        settings={
            name: as_cell(value) for name, value in {"seeds": study.seeds, **settings}.items()
        },
        remarks=list(claims.REMARKS),
    )
