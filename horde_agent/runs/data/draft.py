"""A complete `columns.toml` for a table: what its columns seem to be, with every key and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.runs.config import BadInput
from horde_agent.runs.data import cells
from horde_agent.runs.data.bag_draft import draft_bag_columns
from horde_agent.runs.data.bag_files import is_bag
from horde_agent.runs.data.cells import Cells
from horde_agent.runs.data.columns import REWARD_NAMES, TRANSITION
from horde_agent.runs.data.csv_form import CsvForm
from horde_agent.runs.data.files import columns_in, is_csv, read_files, table_files
from horde_agent.runs.data.lerobot import is_lerobot, open_lerobot
from horde_agent.runs.toml import toml_value
from horde_agent.types import Floats


class _Key(NamedTuple):
    """A key of the file: its value if it is not used, and its meaning."""

    example: str
    meaning: str


_KEYS = {
    "period_s": _Key("1.0", "duration of a step in seconds; required"),
    "time": _Key('"t"', "column of seconds, increasing in an episode"),
    "action": _Key('"a"', "the action taken from the row's observation: 0, 1, ..."),
    "actions": _Key('["left", "right"]', "their names"),
    "b": _Key('"b"', 'its probability in (0, 1]; or "estimate"'),
    "next_reward": _Key('"reward"', "the reward of the row's action"),
    "reward": _Key('"reward"', "instead: the reward of the transition to the row"),
    "episode": _Key('"episode"', "number of the episode, never decreasing"),
    "terminated": _Key('"done"', "true at the end of an episode, not at a time limit"),
    "convention": _Key(
        f'"{TRANSITION}"', 'terminated is of the row, "observation", or of its action, "transition"'
    ),
    "step": _Key('"step"', "number of the step; else rows are counted"),
    "missing": _Key('"error"', 'or "gap": rows without a number are dropped'),
    "separator": _Key('";"', "of a CSV file; found if it is not given"),
    "decimal": _Key('","', "its decimal mark; found unless commas separate cells"),
    "header": _Key("true", "false: the columns are column_0, column_1, ..."),
    "missing_values": _Key("[-200, -999]", "numbers that stand for a missing one"),
    "phase": _Key('"phase"', "of a recorded run, as the next three"),
    "flags": _Key('"flags"', ""),
    "policy": _Key('"policy"', ""),
    "tests_excursions": _Key("false", ""),
    "tile_layout": _Key('"[[tiling]]\\ngroup = \\"speed\\"\\nintervals = [8]\\ntilings = 8"', ""),
}
_CHANNEL_KEYS = {
    "name": _Key('"speed"', ""),
    "group": _Key('"speed"', ""),
    "unit": _Key('"m/s"', ""),
    "low": _Key("0.0", "range; that of the table by default"),
    "high": _Key("1.0", ""),
    "sensor": _Key("true", "families of questions include it"),
    "step": _Key("0.01", "quantisation step"),
    "origin": _Key("0.0", "the reading, of 24 binary digits, is (value - origin) x scale"),
    "scale": _Key("1.0", ""),
    "categories": _Key('["dry", "wet"]', "texts or whole numbers, each with a tile"),
    "transition": _Key("false", "a reading of the row's action, as a reward of rows (s, a, r)"),
}
_MOST_CATEGORIES = 12
_USUAL_NAMES = {
    "time": ("time", "t", "timestamp", "stamp", "time_s", "seconds"),
    "action": ("action", "a", "actions"),
    "b": ("b", "prob", "probability", "action_prob", "action_probability", "propensity"),
    "episode": ("episode", "episode_index", "episode_id", "trajectory", "e"),
    "terminated": ("terminated", "terminal", "is_terminal", "done", "d"),
    "step": ("step", "steps"),
}


def draft_columns(path: Path) -> str:
    """Return a `columns.toml` for a table, a bag or a LeRobot folder; raise BadInput if it cannot be read.

    Columns are recognised by their names, if their first rows hold what the names promise.
    """
    if is_lerobot(path):
        return f"# Columns of {path}; `horde learn --data` needs no such file.\n{open_lerobot(path).columns.to_toml()}"
    if is_bag(path):
        return draft_bag_columns(path)
    files = table_files(path)
    form = _found_form(files[0])
    names = list(dict.fromkeys(columns_in(files[0], form)))
    rows = next(iter(read_files(files, names, form)), None)
    if rows is None:
        raise BadInput(f"{path} has no row")
    kinds = _by_kind(rows)
    numbers = kinds.numbers
    settings = _settings(numbers, kinds.dates)
    if not form.has_header:
        settings["header"] = False
    if form.decimal is not None:
        settings["decimal"] = form.decimal
    used = {value for key, value in settings.items() if key in _USUAL_NAMES}
    channels = [name for name in numbers if name not in used]
    lines = [
        f"# Columns of {path.name}, recognised by their names: check them. Lines behind # are not used.",
        "",
    ]
    lines += _lines(_KEYS, {"period_s": 1.0} | settings)
    unused = [*kinds.texts, *(name for name in kinds.dates if name not in used)]
    if unused:
        lines += ["", f"# No numbers, so no channels: {', '.join(unused)}"]
    for i, name in enumerate([*channels, *kinds.categories]):
        given: dict[str, Any] = {"name": name}
        if name in kinds.categories:
            given["categories"] = kinds.categories[name]
        if name in numbers:
            given |= _shift(cells.as_numbers(numbers[name]))
        # Most tables with actions have rows (s, a, r): whose reward it is shows in no row
        if name.lower() in REWARD_NAMES and "action" in settings:
            given["transition"] = True
        keys = {key: _Key("", "") for key in given}
        if i == 0:  # one channel shows all keys
            keys = _CHANNEL_KEYS
        lines += ["", "[[channel]]", f"column = {toml_value(name)}", *_lines(keys, given)]
    return "\n".join(lines) + "\n"


def _shift(values: Floats) -> dict[str, float]:
    """Return the keys origin and scale of a channel, if float32 does not hold its numbers."""
    shift = cells.shift_for(values)
    if shift is None:
        return {}
    if shift.scale == 1.0:
        return {"origin": shift.origin}
    return shift._asdict()


def _found_form(file: Path) -> CsvForm:
    """Return the form of a CSV file: without a header if its first line has numbers alone."""
    form = CsvForm()
    if not is_csv(file):
        return form
    headless = CsvForm(has_header=False)
    names = columns_in(file, headless)
    rows = next(iter(read_files([file], names, headless)), {})
    if rows and all(np.isfinite(cells.as_numbers(column[:1])).all() for column in rows.values()):
        form = headless
    elif any(_are_decimal_commas(column[1:]) for column in rows.values()):
        form = CsvForm(decimal=",")
    return form


def _are_decimal_commas(column: Cells) -> bool:
    texts = [str(cell) for cell in column.tolist()]
    return bool(texts) and all(
        point != text for point, text in zip(cells.with_decimal_points(texts), texts, strict=True)
    )


def _lines(keys: Mapping[str, _Key], given: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, (example, meaning) in keys.items():
        line = f"# {key} = {example}"
        if key in given:
            line = f"{key} = {toml_value(given[key])}"
        if meaning:
            line += f"  # {meaning}"
        lines.append(line)
    return lines


class _Kinds(NamedTuple):
    """The columns of a table by what their first rows hold."""

    numbers: dict[str, Cells]  # NAME_0.. for vectors
    dates: dict[str, Cells]
    categories: dict[str, list[str]]  # the texts of columns with few
    texts: list[str]


def _by_kind(rows: Mapping[str, Cells]) -> _Kinds:
    kinds = _Kinds(numbers={}, dates={}, categories={}, texts=[])
    for name, column in rows.items():
        if column.ndim == 2:
            kinds.numbers.update({f"{name}_{i}": column[:, i] for i in range(column.shape[1])})
        elif column.ndim == 1 and _has_values(column):
            kinds.numbers[name] = column
        elif column.ndim == 1 and np.isfinite(_seconds(column)).mean() > 0.5:
            kinds.dates[name] = column
        else:
            texts = _categories(column)
            if texts:
                kinds.categories[name] = texts
            else:
                kinds.texts.append(name)
    return kinds


def _seconds(column: Cells) -> Floats:
    if column.dtype.kind not in "MOUT":
        return np.full(len(column), np.nan)
    if column.dtype.kind in "UT":
        column = column.astype(object)
    return cells.as_seconds(column)


def _categories(column: Cells) -> list[str]:
    """Return the texts of a column in order; none if they are one or many."""
    if column.ndim != 1:
        return []
    texts = {cells.category_of(cell) for cell in column.tolist()}
    texts.discard("")
    if not 1 < len(texts) <= _MOST_CATEGORIES:
        return []
    return sorted(texts)


def _has_values(column: Cells) -> bool:
    """Return whether most cells are numbers, or true and false."""
    if column.dtype.kind not in "fiubO":
        return False
    is_number = np.isfinite(cells.as_numbers(column))
    _, is_claim = cells.as_claims(column)
    return bool((is_number | is_claim).mean() > 0.5)


def _settings(columns: Mapping[str, Cells], dates: Mapping[str, Cells]) -> dict[str, Any]:
    """Return the keys that follow from the names of columns and their first rows."""
    found: dict[str, Any] = {}
    for key, usual_names in _USUAL_NAMES.items():
        name = _column_called(usual_names, list(columns))
        if name is not None and _fits(key, columns[name]):
            found[key] = name
    if "time" not in found and dates:
        usual_name = _column_called(_USUAL_NAMES["time"], list(dates))
        found["time"] = usual_name or next(iter(dates))
    if "action" in found:
        n_actions = int(np.nanmax(cells.as_numbers(columns[found["action"]]))) + 1
        found["actions"] = [f"action_{a}" for a in range(n_actions)]
    else:
        found.pop("b", None)
    if "time" in found:
        times = {**columns, **dates}[found["time"]]
        spacing_s = np.diff(cells.as_seconds(times))
        forward_s = spacing_s[spacing_s > 0]
        if len(forward_s):
            found["period_s"] = float(f"{np.median(forward_s):.4g}")
    if "terminated" in found and "action" in found:
        is_terminal, _ = cells.as_claims(columns[found["terminated"]])
        action = cells.as_numbers(columns[found["action"]])
        if (is_terminal & (action >= 0)).any():
            found["convention"] = TRANSITION
    found["missing"] = "error"
    return found


def _column_called(usual_names: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first column with a usual name, in upper or lower case; None without one."""
    by_lower_case = {name.lower(): name for name in reversed(names)}
    for usual_name in usual_names:
        if usual_name in by_lower_case:
            return by_lower_case[usual_name]
    return None


def _fits(key: str, column: Cells) -> bool:
    """Return whether the cells are what a key needs."""
    if key == "terminated":
        return bool(cells.as_claims(column)[1].all())
    values = cells.as_numbers(column)
    present = values[np.isfinite(values)]
    if not len(present):
        return False
    is_whole = (present == np.floor(present)).all()
    match key:
        case "time":
            return len(values) == 1 or bool(np.median(np.diff(values)) > 0)
        case "action":
            return bool(is_whole and present.min() >= -1 and present.max() < 1000)
        case "b":
            return bool(present.min() >= 0.0 and present.max() <= 1.0)
        case _:
            return bool(is_whole and (np.diff(present) >= 0).all())
