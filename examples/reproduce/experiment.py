"""The frame of an experiment: its context, its module, and its result as JSON.

An experiment caches expensive results and runs independent work in spawned processes:

    @cached(Scores)  # a NamedTuple
    def learn(context: ExperimentContext, seed: int) -> Scores: ...

    jobs = {seed: Job(f"seed {seed}", learn, (context, seed)) for seed in context.seeds}
    scores = context.in_parallel(jobs)
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np

from examples.reproduce.checks import CheckResult, judge
from examples.reproduce.runner import Job, run_here, run_jobs
from examples.reproduce.stats import Mean, join
from horde_agent.runs.storage.files import write_json

Scale = Literal["quick", "paper"]
Arrays = TypeVar("Arrays", bound=Any)
Arguments = ParamSpec("Arguments")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class ExperimentContext:
    """Input of an experiment."""

    out: Path  # folder of the whole reproduction
    scale: Scale  # "quick" or "paper"
    seeds: tuple[int, ...]  # one life each
    backend: str  # the robot, a name of `horde learn --backend`
    say: Callable[[str], None]  # takes a line for the user
    port: str | None = None  # of a real robot, or None

    @property
    def is_quick(self) -> bool:
        """True at the quick scale: short lives."""
        return self.scale == "quick"

    @property
    def seed_list(self) -> str:
        """The seeds as people read them."""
        return ", ".join(map(str, self.seeds))

    def at_least(self, n: int) -> tuple[int, ...]:
        """Return the seeds 0, 1, ..., at least `n`: for an experiment whose runs are cheaper than lives."""
        return tuple(range(max(n, len(self.seeds))))

    def folder(self, name: str) -> Path:
        """Return the folder of an experiment's own files, made if need be; its figures go there."""
        path = self.out / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def cached(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return a cached file; make it first if it is missing. Several processes may do this for different names.

        A folder belongs to one scale, backend and version (see `command`); everything else that a
        file depends on is part of its name.

        Args:
            name: Of the file, in `out`/kept.
            make: Writes the file at the path it is given; it is moved into place when complete.
        """
        path = self.out / "kept" / name
        if not path.exists():
            part = path.with_name(f".{name}.part")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            make(part)
            os.replace(part, path)
        return path

    def in_parallel(self, jobs: Mapping[Key, Job]) -> dict[Key, Any]:
        """Run jobs in spawned processes, one per core, and return their results by the same keys, in the same order.

        Ctrl-C ends all. At the quick scale they are done one after another in this process:
        starting worker processes, which load all kernels again, takes longer.
        """
        if self.is_quick:
            results = run_here(list(jobs.values()), self.say)
        else:
            results = run_jobs(list(jobs.values()), self.say)
        return dict(zip(jobs, results, strict=True))


Work = Callable[Concatenate[ExperimentContext, Arguments], Arrays]
"""The function of a job, called as work(context, *args)."""


def cached(kind: type[Arrays]) -> Callable[[Work[Arguments, Arrays]], Work[Arguments, Arrays]]:
    """Return the decorator of a job that is done once for the same arguments; its result is cached.

    Its other arguments are numbers, strings, paths, and tuples of numbers and strings; `kind` is
    the class of its result, a NamedTuple of arrays and numbers.
    """

    def decorate(work: Work[Arguments, Arrays]) -> Work[Arguments, Arrays]:
        @functools.wraps(work)
        def read_or_work(
            context: ExperimentContext, /, *args: Arguments.args, **options: Arguments.kwargs
        ) -> Arrays:
            def write(path: Path) -> None:
                with path.open("wb") as file:
                    np.savez(file, **work(context, *args, **options)._asdict())

            words = [work.__module__.split(".")[2], work.__name__]  # the experiment
            words += [
                arg.name if isinstance(arg, Path) else str(arg)
                for arg in (*args, *options.values())
            ]
            with np.load(
                context.cached(re.sub(r"[^\w.]+", "-", "-".join(words)) + ".npz", write)
            ) as file:
                arrays = [file[name] for name in kind._fields]
            result: Arrays = kind(*(array if array.ndim else array.item() for array in arrays))
            return result

        return read_or_work

    return decorate


# ---- the result -----------------------------------------------------------------------------------------------------

Cell = str | int | float | None


@dataclass(frozen=True)
class Figure:
    """A picture in the experiment's folder."""

    file: str  # name of the PNG in `ExperimentContext.folder(experiment)`
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
    claims: list[CheckResult] = field(default_factory=list)  # in the order in which they are read
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
        table["claims"] = [CheckResult(**claim) for claim in table["claims"]]
        table["figures"] = [Figure(**figure) for figure in table["figures"]]
        table["tables"] = [Table(**inner) for inner in table["tables"]]
        return cls(**table)


def run_experiment(name: str, context: ExperimentContext) -> Result:
    """Measure, judge the claims and draw the figures of an experiment: one module of this package.

    The module has, in this order:

    * `TITLE` and settings.
    * `run(context)`, which measures, or reads cached results. It returns the data that all else
      takes, and everything needed to repeat the measurement except the context's seeds, by name.
    * Checks of the paper's claims, in the paper's order (see `checks`), and `REMARKS`, sentences
      about how to read the result.
    * `pictures(data)`, figures of matplotlib with their captions by name, and perhaps
      `tables(data)`.
    """
    experiment = import_module(f"{__package__}.{name}")
    from horde_agent.runs.reporting.pictures import save  # needs matplotlib

    data, settings = experiment.run(context)
    figures = []
    for file, picture in experiment.pictures(data).items():
        save(picture.canvas, context.folder(name) / f"{file}.png")
        figures.append(Figure(f"{file}.png", picture.caption))
    tables: list[Table] = []
    if hasattr(experiment, "tables"):
        tables = experiment.tables(data)
    settings = {"seeds": context.seeds, **settings}
    return Result(
        name=name,
        title=experiment.TITLE,
        claims=judge(experiment, data),
        figures=figures,
        tables=tables,
        settings={key: as_cell(value) for key, value in settings.items()},
        remarks=list(experiment.REMARKS),
    )
