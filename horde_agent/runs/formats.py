"""Which formats the parts of a snapshot are in, and how a snapshot that is older is read all the same.

Each part of a state has a number of its own, which a snapshot's manifest tells. Whoever gives a part other names,
shapes or meanings raises its number in `NOW` and writes, in `MIGRATIONS`, how a state of the number before becomes one
of this: `tests/agent/test_formats.py` notices where that was forgotten. A migration stays for as long as lives of its
time may be resumed. A part in a format that is newer than this program is refused by name.

    0            snapshots that do not tell their formats: those of version 0.1.0 until November 2026
    world 1      the battery's gauge counted no steps at a charger: until 24 November 2026
    student 1    the mean online NMSRE after each excursion is here, and not in its record: until 23 November 2026
    student 2    the behaviour itself was not tested: until 24 November 2026
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from horde_agent.record.snapshots import Snapshot
from horde_agent.runs.config import BadInput
from horde_agent.runs.run_folder import own_version
from horde_agent.saving import State

Migration = Callable[[State], State]

PARTS = {
    "life/student/horde/": "horde",
    "life/student/": "student",
    "life/world/": "world",
    "life/": "life",
    "": "observers",
}
"""Of which part an array is, by the longest of these that its name begins with."""

NOW = {"horde": 1, "student": 3, "world": 2, "life": 1, "observers": 1}
"""The format in which this program writes each part."""


def _unchanged(state: State) -> State:
    """Take a part as it is."""
    return state


def _signals_renamed(state: State) -> State:
    """Call what a Horde's fast engine is told, and what it flags, by the names of now."""
    engine, names = "life/student/horde/engine/", {"told_anew": "signal_changes", "alarm": "flags"}
    names |= {f"told_{signal}": f"signal_{signal}" for signal in ("rho", "c", "gamma", "lam", "z")}
    now = {engine + before: engine + after for before, after in names.items()}
    return {now.get(name, name): array for name, array in state.items()}


def _means_in_records(state: State) -> State:
    """Keep how many excursions there were, and the mean after the last: of those before, it is known no more."""
    errors, state = "life/student/errors/", dict(state)
    if f"{errors}steps" in state:
        means = state.pop(f"{errors}online_means")
        state[f"{errors}n_excursions"] = np.array(len(state.pop(f"{errors}steps")))
        state[f"{errors}latest_mean"] = means[-1] if len(means) else np.array(np.nan)
    return state


def _gauge_counts(state: State) -> State:
    """Rename the gauge's flag of a low voltage and begin its count of steps at a charger."""
    gauge, state = "life/world/gauge/", dict(state)
    if f"{gauge}is_low" in state:
        state[f"{gauge}_is_below"], state[f"{gauge}_n_held"] = state.pop(f"{gauge}is_low"), np.array(0)
    return state


MIGRATIONS: dict[tuple[str, int], Migration] = {
    **{(part, 0): _unchanged for part in NOW},
    ("horde", 0): _signals_renamed,
    ("student", 1): _means_in_records,
    ("student", 2): _unchanged,
    ("world", 1): _gauge_counts,
}
"""By part and number: what makes its arrays, by their names in the whole state, those of the next number."""


def part_of(name: str) -> str:
    """Return the part of which an array is.

    Example:
        >>> part_of("life/student/horde/engine/theta"), part_of("life/steps"), part_of("sampler/next")
        ('horde', 'life', 'observers')
    """
    return PARTS[max((begin for begin in PARTS if name.startswith(begin)), key=len)]


def brought_up(kept: Snapshot, run: object) -> Snapshot:
    """Return a snapshot with all of its parts in the formats of now.

    Args:
        kept: As it was read.
        run: The run's folder, for what is said.

    Raises:
        BadInput: If a part is in a format that is newer than this program, or too old for it.
    """
    told: Mapping[str, Any] = kept.facts.get("formats", dict.fromkeys(NOW, 0))
    again = f"or learn from its record again: horde learn --backend replay --log {run}"
    theirs, mine = kept.facts.get("version"), own_version()
    for part, number in told.items():
        if number > NOW.get(part, -1):
            raise BadInput(
                f"{kept.path} has its part {part!r} in format {number}, and this version, {mine}, knows formats up to "
                f"{NOW.get(part, 'none')}: resume it with version {theirs}, which wrote it, or a later one, {again}"
            )
    parts: dict[str, State] = {part: {} for part in NOW}
    for name, array in kept.state.items():
        parts[part_of(name)][name] = array
    for part, now in NOW.items():
        for number in range(int(told.get(part, 0)), now):
            if (part, number) not in MIGRATIONS:
                raise BadInput(
                    f"{kept.path} has its part {part!r} in format {number}, and this version, {mine}, reads none "
                    f"before {_oldest(part)}: resume it with version {theirs}, which wrote it, {again}"
                )
            parts[part] = MIGRATIONS[part, number](parts[part])
    return kept._replace(state={name: array for part in parts.values() for name, array in part.items()})


def _oldest(part: str) -> int:
    """Return the oldest format of a part that can still be brought up to that of now."""
    number = NOW[part]
    while (part, number - 1) in MIGRATIONS:
        number -= 1
    return number
