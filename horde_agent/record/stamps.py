"""Stamps of the files in a run's folder (`kinds`): what is older than this program writes, or newer than it reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.record.kinds import KINDS, Kind
from horde_agent.record.segments import is_sealed
from horde_agent.toml import parsed_toml

_LONGEST_LINE = 1 << 24


class StampedFile(NamedTuple):
    """A file in a run's folder, and the number of its format; the lowest one of its events."""

    path: Path
    kind: Kind
    version: int

    @property
    def is_old(self) -> bool:
        """Whether this program writes a newer format."""
        return self.version < self.kind.version


def stamped_files(run: Path) -> Iterator[StampedFile]:
    """Yield the files in a run's folder whose stamp is sound; raise NewerFormat at a newer one."""
    for kind in KINDS:
        for pattern in kind.places:
            for path in sorted(run.glob(pattern)):
                versions = [kind.version_of(stamp, path) for stamp in _stamps(path)]
                if versions:
                    yield StampedFile(path, kind, min(versions))


def refuse_newer(run: Path) -> None:
    """Raise NewerFormat if a file in a run's folder has a newer format than this program reads."""
    for _ in stamped_files(run):
        pass


def _stamps(path: Path) -> list[Mapping[str, Any]]:
    """Return the stamps in a file: one, or that of each event; none where it is damaged, of which others speak."""
    stamps: list[Mapping[str, Any]] = []
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        if path.suffix == ".rec":
            stamps += _of_line(file.readline(_LONGEST_LINE))
        elif path.suffix == ".jsonl":
            for line in file:
                stamps += _of_line(line)
        elif path.suffix == ".toml":
            content = file.read()
            if _is_as_summed(content, path.name, path.with_name("sums.sha256")):
                stamps.append(parsed_toml(content.decode()))
        else:
            content = file.read()
            sums = path.with_suffix(".sha256")
            if sums.exists() and _is_as_summed(content, path.name, sums):
                stamps.append(json.loads(content))
    return stamps


def _of_line(line: bytes) -> list[Mapping[str, Any]]:
    if is_sealed(line):
        return [json.loads(line)]
    return []


def _is_as_summed(content: bytes, name: str, sums: Path) -> bool:
    """Return whether a content has the SHA-256 in a file of sums, or none is there."""
    digest = hashlib.sha256(content).hexdigest()
    with suppress(OSError):
        for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
            summed, _, summed_name = line.partition("  ")
            if summed_name == name:
                return summed == digest
    return True
