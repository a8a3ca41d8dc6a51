"""The command `horde reproduce`: the experiments in turn, and one page for all that the folder holds."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.life.timing import duration
from horde_agent.reproduce import EXPERIMENTS, FURTHER, LATER, ReproduceConfig, resolve
from horde_agent.reproduce.experiment import Cell, Result, run_experiment
from horde_agent.reproduce.page import write_page
from horde_agent.reproduce.study import Study
from horde_agent.runs.config import BadInput, is_file
from horde_agent.runs.keeping.folder import own_version, versions, writable, write_json

NO_FIGURES = "the figures of a reproduction need matplotlib: pip install -e '.[viz]'"


def run(config: ReproduceConfig) -> Path:
    """Run the experiments and return the path of the page.

    Skips experiments with a result in the folder.

    Raises:
        BadInput: If a setting is invalid or the folder cannot be used; nothing is written then.
    """
    config = resolve(config, (*EXPERIMENTS, *FURTHER))
    names = {"all": EXPERIMENTS, "later": LATER}.get(config.experiment, (config.experiment,))
    if importlib.util.find_spec("matplotlib") is None:
        raise BadInput(NO_FIGURES)
    assert config.out is not None, "the config is resolved"
    assert config.seeds is not None
    scale: Any = config.scale
    study = Study(config.out, scale, tuple(range(config.seeds)), config.backend, say, config.port)
    _claim_folder(study)
    for name in names:
        if _finished_result(study.out, name) is not None:
            say(f"{name}: done before; remove {study.out / name} to run it again")
            continue
        say(f"{name}: {study.scale} scale, seeds {study.seed_list}")
        began = time.perf_counter()
        result = run_experiment(name, study)
        result.seconds, result.versions = time.perf_counter() - began, versions()
        result.write(study.folder(name) / "result.json")
        for claim in result.claims:
            say(f"{name}: {claim.verdict}: {claim.text}")
        _draw(study, config)
    return _draw(study, config)


def say(words: str) -> None:
    """Print a line on stderr. A module-level function, so that a Study can be pickled."""
    Console(stderr=True).print(words, highlight=False, markup=False, soft_wrap=True)


def _claim_folder(study: Study) -> None:
    """Create the folder, or check that it belongs to this reproduction."""
    note = study.out / "settings.json"
    asked: dict[str, Any] = {
        "scale": study.scale,
        "seeds": study.seed_list,
        "backend": study.backend,
        "version": own_version(),
    }
    if is_file(note):
        try:
            there = json.loads(note.read_text(encoding="utf-8"))
            other = [f"{key} {there.get(key)}" for key in asked if there.get(key) != asked[key]]
        except (OSError, ValueError, AttributeError) as error:
            raise BadInput(f"{note} cannot be read ({error}); name another --out") from None
        if other:
            raise BadInput(f"--out {study.out} holds a reproduction with {', '.join(other)}; name another folder")
    elif os.path.isdir(study.out) and any(study.out.iterdir()):
        raise BadInput(f"--out {study.out} holds other files; name a new folder")
    write_json(writable(study.out) / note.name, asked)


def _finished_result(out: Path, name: str) -> Result | None:
    """Return an experiment's stored result, or None."""
    path = out / name / "result.json"
    try:
        return Result.read(path) if path.is_file() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise BadInput(f"{path} is damaged ({said}); remove it to run the experiment again") from None


def _draw(study: Study, config: ReproduceConfig) -> Path:
    """Write the page of every result that the folder holds."""
    results = [result for name in (*EXPERIMENTS, *FURTHER) if (result := _finished_result(study.out, name)) is not None]
    facts: dict[str, Cell] = {
        "command": _command(config),
        "scale": study.scale,
        "seeds": study.seed_list,
        "body": study.backend,
        "experiments": ", ".join(result.name for result in results),
        "wall time": duration(sum(result.seconds for result in results)),
    }
    return write_page(study.out, facts, results)


def _command(config: ReproduceConfig) -> str:
    words = ["horde", "reproduce", config.experiment, "--scale", config.scale, "--seeds", str(config.seeds)]
    words += ["--backend", config.backend, *(["--port", config.port] if config.port else []), "--out", str(config.out)]
    return shlex.join(words)
