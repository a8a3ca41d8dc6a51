"""A run is a folder: what was asked, what came of it, and the stream itself; all of it readable without this program.

config.toml          the resolved settings, versions, the git commit
summary.json         one value per key, null where a key has no meaning in the run
details.json         what else is worth knowing: counts, compile time, how the replay was scored
questions.csv        a line per question
learning_curve.csv   a line per test excursion
mspbe_curve.csv      a line per 1000 steps
traces.csv           predictions of a few questions beside what then happened
log/life.rec         every observation and action (horde_agent.record)
log/excursions.rec   predictions and returns of every complete excursion (horde_agent.nmsre)
report.html          drawn from the files above, with its pictures beside it
"""

from __future__ import annotations

import csv
import json
import math
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from horde_agent.config import LearnConfig, to_toml

SUMMARY_KEYS = (
    "steps",
    "robot_time_s",
    "wall_s",
    "steps_per_s",
    "learning_steps",
    "n_questions",
    "n_features",
    "n_active",
    "n_excursions",
    "n_updated_per_step",
    "mean_nmsre",
    "median_nmsre",
    "share_nmsre_below_1",
    "diverged",
    "mspbe_vector_mean",
    "mspbe_scalar_mean",
    "max_trace",
    "learn_ms",
    "cycle_ms",
    "deadlines_missed",
    "gaps",
    "crc_errors",
    "backend",
    "seed",
    "weights_sha256",
    "version",
    "link_losses",
    "s_without_link",
)
"""The keys of summary.json, in their order; units are in the names."""

DISTRIBUTION = "horde-gvf"
_PACKAGES = ("numpy", "numba", "gymnasium", "pybullet", "matplotlib")


class RunFolder:
    """The files of one run, by name.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.life = self.log / "life.rec"
        self.excursions = self.log / "excursions.rec"
        self.config = path / "config.toml"
        self.summary = path / "summary.json"
        self.details = path / "details.json"
        self.questions = path / "questions.csv"
        self.learning_curve = path / "learning_curve.csv"
        self.mspbe_curve = path / "mspbe_curve.csv"
        self.traces = path / "traces.csv"
        self.report = path / "report.html"

    @classmethod
    def create(cls, path: Path, config: LearnConfig) -> RunFolder:
        """Make the folder with its config.toml.

        Raises:
            FileExistsError: If the folder holds a run already.
            OSError: If it cannot be made.
        """
        folder = cls(path)
        folder.log.mkdir(parents=True, exist_ok=True)
        with folder.config.open("x", encoding="utf-8") as file:
            file.write(to_toml(asdict(config), versions()))
        return folder


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table as JSON; numbers that are not finite become null."""
    path.write_text(json.dumps(_finite(table), indent=2) + "\n", encoding="utf-8")


def write_csv(path: Path, names: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write lines under a head of names; floats with nine digits, empty where not finite."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([_cell(value) for value in line] for line in lines)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a CSV with a head; an empty list where there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def own_version() -> str:
    """Return the version of the installed distribution, "unknown" where it runs from a bare checkout."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Return what a run needs to be repeated: versions, the platform and the git commit where there is one."""
    found = {DISTRIBUTION: own_version(), "python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = git_commit()
    return {**found, "git_commit": commit} if commit else found


def git_commit() -> str | None:
    """Return the commit of the checkout that this package runs from, with "-dirty" after it where it was changed."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _finite(value: Any) -> Any:
    """Replace what JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return value
