"""The experiments in turn, and one page for all that the folder holds."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from examples.reproduce import (
    EXPERIMENTS,
    FURTHER,
    GROUPS,
    LATER,
    TUNING_SEED,
    WITHOUT_BACKEND,
    ReproduceConfig,
)
from examples.reproduce.experiment import Cell, ExperimentContext, Result, Scale, run_experiment
from examples.reproduce.page import write_page
from horde_agent.life.bodies import ONE_AT_A_TIME
from horde_agent.life.counts import duration
from horde_agent.processes import own_version
from horde_agent.refusals import BadInput, check_one_of, one_line
from horde_agent.runs.config import is_file
from horde_agent.runs.storage.files import writable, write_json
from horde_agent.runs.storage.versions import versions

PROGRAM = "python -m examples.reproduce"
BACKENDS = ("simulator", "serial", "drops", "emulated")
DEFAULT_SEEDS = {"quick": 1, "paper": 3}
"""Number of seeds at each scale."""


def run(config: ReproduceConfig) -> Path:
    """Run the experiments and return the path of the page.

    Skips experiments with a result in the folder.

    Raises:
        BadInput: If a setting is invalid or the folder cannot be used; nothing is written then.
    """
    context = _study(config)
    names = {"all": EXPERIMENTS, "later": LATER}.get(config.experiment, (config.experiment,))
    _claim_folder(context)
    for name in names:
        if _finished_result(context.out, name) is not None:
            say(f"{name}: done before; remove {context.out / name} to run it again")
            continue
        say(f"{name}: {context.scale} scale, seeds {context.seed_list}")
        began = time.perf_counter()
        result = run_experiment(name, context)
        result.seconds = time.perf_counter() - began
        result.versions = versions()
        result.write(context.folder(name) / "result.json")
        for claim in result.claims:
            say(f"{name}: {claim.verdict}: {claim.text}")
        _draw(context, config.experiment)
    return _draw(context, config.experiment)


def _study(config: ReproduceConfig) -> ExperimentContext:
    """Check the settings and fill in the defaults that depend on others."""
    names = (*EXPERIMENTS, *FURTHER, *GROUPS)
    scale = config.scale
    if not config.experiment:
        raise BadInput(f"name an experiment: {', '.join(names)}")
    check_one_of("experiment", config.experiment, names)
    check_one_of("scale", scale, DEFAULT_SEEDS)
    check_one_of("backend", config.backend, BACKENDS)
    if config.experiment in WITHOUT_BACKEND and config.backend != ReproduceConfig.backend:
        raise BadInput(
            f"the experiment {config.experiment} uses no robot: omit --backend {config.backend}"
        )
    if config.port is not None and config.backend not in ONE_AT_A_TIME:
        raise BadInput(f"--port belongs to a real robot; the backend {config.backend!r} has none")
    if config.seeds is None:
        n_seeds = DEFAULT_SEEDS[scale]
    else:
        n_seeds = config.seeds
    if n_seeds < 1:
        raise BadInput(f"--seeds must be at least 1, got {n_seeds}")
    if n_seeds > TUNING_SEED:
        raise BadInput(
            f"--seeds must be at most {TUNING_SEED}, got {n_seeds}: settings are chosen on later seeds"
        )
    if config.out is None:
        out = Path("runs") / f"reproduce-{scale}"
    else:
        out = config.out
    if is_file(out):
        raise BadInput(f"--out {out} is a file; name a folder")
    return ExperimentContext(
        out, cast(Scale, scale), tuple(range(n_seeds)), config.backend, say, config.port
    )


def say(words: str) -> None:
    """Print a line on stderr. A module-level function, so that an ExperimentContext can be pickled."""
    Console(stderr=True).print(words, highlight=False, markup=False, soft_wrap=True)


def _claim_folder(context: ExperimentContext) -> None:
    """Create the folder, or check that it belongs to this reproduction."""
    note = context.out / "settings.json"
    asked: dict[str, Any] = {
        "scale": context.scale,
        "seeds": context.seed_list,
        "backend": context.backend,
        "version": own_version(),
    }
    if is_file(note):
        try:
            settings_of_folder = json.loads(note.read_text(encoding="utf-8"))
            differences = [
                f"{key} {settings_of_folder.get(key)}"
                for key in asked
                if settings_of_folder.get(key) != asked[key]
            ]
        except (OSError, ValueError, AttributeError) as error:
            raise BadInput(f"{note} cannot be read ({error}); name another --out") from None
        if differences:
            raise BadInput(
                f"--out {context.out} holds a reproduction with {', '.join(differences)}; name another folder"
            )
    elif os.path.isdir(context.out) and any(context.out.iterdir()):
        raise BadInput(f"--out {context.out} holds other files; name a new folder")
    write_json(writable(context.out) / note.name, asked)


def _finished_result(out: Path, name: str) -> Result | None:
    """Return an experiment's stored result, or None."""
    path = out / name / "result.json"
    try:
        if path.is_file():
            return Result.read(path)
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path} is damaged ({one_line(error)}); remove it to run the experiment again"
        ) from None


def _draw(context: ExperimentContext, experiment: str) -> Path:
    """Write the page of every result that the folder holds."""
    results = []
    for name in (*EXPERIMENTS, *FURTHER):
        result = _finished_result(context.out, name)
        if result is not None:
            results.append(result)
    words = [
        *PROGRAM.split(),
        experiment,
        "--scale",
        context.scale,
        "--seeds",
        str(len(context.seeds)),
    ]
    words += ["--backend", context.backend]
    if context.port:
        words += ["--port", context.port]
    words += ["--out", str(context.out)]
    facts: dict[str, Cell] = {
        "command": shlex.join(words),
        "scale": context.scale,
        "seeds": context.seed_list,
        "body": context.backend,
        "experiments": ", ".join(result.name for result in results),
        "wall time": duration(sum(result.seconds for result in results)),
    }
    return write_page(context.out, facts, results)
