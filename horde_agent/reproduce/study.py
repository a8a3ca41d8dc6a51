"""Study: the input of an experiment: output folder, scale, seeds, robot, cache and worker processes.

An experiment caches expensive results and runs independent work in processes:

    @cached(Scores)  # a NamedTuple
    def learn(on_progress: OnProgress, study: Study, seed: int) -> Scores: ...

    scores = study.in_parallel([Job(f"seed {seed}", learn, (study, seed)) for seed in study.seeds])
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np

from horde_agent.reproduce.parallel import Job, OnProgress, run_here, run_jobs
from horde_agent.reproduce.result import Cell
from horde_agent.runs.keeping.folder import git_commit, own_version

Scale = Literal["quick", "paper"]
Arrays = TypeVar("Arrays", bound=Any)
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Study:
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

    def cached(self, name: str, make: Callable[[Path], None], **settings: Cell) -> Path:
        """Return a cached file or folder; make it first if it is missing or was made with other settings.

        It is moved into place when complete. The key is the settings, scale, backend and version. Different processes
        may call this at once, for different names.

        Args:
            name: Of the file or folder, under `out`/kept; the seed belongs to it.
            make: Writes the file or folder at the path it is given, which does not exist yet.
            settings: Further inputs that it depends on.
        """
        path = self.out / "kept" / name
        note = path.with_name(path.name + ".made-with.json")
        key = {"scale": self.scale, "backend": self.backend, "version": own_version(), **settings}
        if path.exists() and _key_of(note) == key:
            return path
        note.unlink(missing_ok=True)
        part = path.with_name(f".{path.name}.part")
        for stale in (path, part):
            _remove(stale)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(part)
        # In this order: a note without its file is ignored, a file without its note is replaced.
        os.replace(part, path)
        note.write_text(json.dumps({"key": key, "git_commit": git_commit()}, indent=1) + "\n", encoding="utf-8")
        return path

    def in_parallel(self, jobs: Sequence[Job]) -> list[Any]:
        """Run jobs in spawned processes, one per core, and return their results in order.

        Each is called as function(on_progress, *args); see `parallel.Job`. Ctrl-C ends all. At the quick scale they are
        done one after another in this process: starting worker processes, which load all kernels again, takes longer.
        """
        do = run_here if self.is_quick else run_jobs
        return do(jobs, self.say) if jobs else []


Work = Callable[Concatenate[OnProgress, Study, Arguments], Arrays]
"""A job for a worker process, called as work(on_progress, study, *args)."""


def cached(kind: type[Arrays]) -> Callable[[Work[Arguments, Arrays]], Work[Arguments, Arrays]]:
    """Return the decorator of a job that is done once for the same arguments, and whose result is cached.

    Its other arguments are numbers, strings, paths, and tuples of numbers and strings.

    Args:
        kind: The class of its result, a NamedTuple of arrays and numbers.
    """

    def decorate(work: Work[Arguments, Arrays]) -> Work[Arguments, Arrays]:
        @functools.wraps(work)
        def read_or_work(
            on_progress: OnProgress, study: Study, /, *args: Arguments.args, **options: Arguments.kwargs
        ) -> Arrays:
            def write(path: Path) -> None:
                with path.open("wb") as file:
                    np.savez(file, **work(on_progress, study, *args, **options)._asdict())

            words = [work.__module__.rpartition(".")[-1], work.__name__]
            words += [arg.name if isinstance(arg, Path) else str(arg) for arg in (*args, *options.values())]
            with np.load(study.cached(re.sub(r"[^\w.]+", "-", "-".join(words)) + ".npz", write)) as file:
                arrays = [file[name] for name in kind._fields]
            found: Arrays = kind(*(array if array.ndim else array.item() for array in arrays))
            return found

        return read_or_work

    return decorate


def _key_of(note: Path) -> object:
    try:
        return json.loads(note.read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError):
        return None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
