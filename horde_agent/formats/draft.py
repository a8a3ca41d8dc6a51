"""A complete `columns.toml` for a table: what its columns seem to be, with every key and what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats import cells
from horde_agent.formats.cells import TIME_UNITS_S, Cells
from horde_agent.formats.columns import (
    COPIED_FIELDS,
    MISSING_READING,
    REWARD_NAMES,
    TERMINATED,
    TERMINATED_NAMES,
    TRANSITION,
    TRUNCATED,
    TRUNCATED_NAMES,
    USUAL_NAMES,
    CsvForm,
    unnamed,
)
from horde_agent.toml import toml_value
from horde_agent.types import Bools, Floats


class Key(NamedTuple):
    """A key of the file: its value if it is not used, and its meaning."""

    example: str
    meaning: str


_KEYS = {
    "period_s": Key("1.0", "duration of a step in seconds; required"),
    "time": Key('"t"', "column of times, increasing in an episode"),
    "time_unit": Key('"s"', "of these times: s, ms, us or ns"),
    "action": Key('"a"', "the action taken from the row's observation: 0, 1, ..., or a name"),
    "actions": Key('["left", "right"]', "their names"),
    "b": Key('"b"', 'its probability in (0, 1]; or "estimate"'),
    "next_reward": Key('"reward"', "the reward of the row's action"),
    "reward": Key('"reward"', "instead: the reward of the transition to the row"),
    "episode": Key('"episode"', "number of the episode, never decreasing"),
    "episode_step": Key('"step"', "instead: an episode begins where it does not increase"),
    "terminated": Key('"done"', "true at the end of an episode, not at a time limit"),
    "truncated": Key('"timeout"', "true at its time limit: the next row follows a gap"),
    "both": Key(f'"{TRUNCATED}"', f'what a row is that is marked as both; or "{TERMINATED}"'),
    "convention": Key(
        f'"{TRANSITION}"', 'terminated is of the row, "observation", or of its action, "transition"'
    ),
    "step": Key('"step"', "number of the step; else rows are counted"),
    "missing": Key(
        '"reading"', 'a row may lack a reading; or "gap": such rows are dropped; or "error"'
    ),
    "separator": Key('";"', "of a CSV file; found if it is not given"),
    "decimal": Key('","', "its decimal mark; found unless commas separate cells"),
    "header": Key("true", "false: the columns are column_0, column_1, ..."),
    "missing_values": Key("[-200, -999]", "numbers that stand for a missing one"),
    "tile_layout": Key('"[[tiling]]\\ngroup = \\"speed\\"\\nintervals = [8]\\ntilings = 8"', ""),
    "phase": Key('"phase"', "of a recorded run, as the keys that follow"),
    "flags": Key('"flags"', ""),
    "tests_excursions": Key("false", ""),
    **{name: Key(toml_value(name), "") for name in COPIED_FIELDS},
}
CHANNEL_KEYS = {
    "name": Key('"speed"', ""),
    "group": Key('"speed"', ""),
    "unit": Key('"m/s"', ""),
    "low": Key("0.0", "range; that of the table by default"),
    "high": Key("1.0", ""),
    "sensor": Key("true", "families of questions include it"),
    "step": Key("0.01", "quantisation step"),
    "hold_s": Key("1.0", "for so long the last reading stands for a missing one in the features"),
    "role": Key('"speed"', 'or "request", of a motion: --surprise leaves out standstills'),
    "origin": Key("0.0", "the reading, of 24 binary digits, is (value - origin) x scale"),
    "scale": Key("1.0", ""),
    "categories": Key('["dry", "wet"]', "texts or whole numbers, each with a tile"),
    "transition": Key("false", "a reading of the row's action, as a reward of rows (s, a, r)"),
    "lost": Key("false", "rows may lack the column: its sensor went in the middle of the run"),
}
_MOST_CATEGORIES = 12
_DRAFTED = ("time", "action", "b", "episode", "terminated", "truncated", "step")
"""Keys of columns that are recognised by their usual names."""
_IDENTIFIER = re.compile(
    r"(.*_)?(ids?|uuid|guid|index|idx|user|customer|client|patient|subject|person|participant|session|"
    r"episode|trajectory)|unnamed: 0"
)
"""Names of columns that identify a person, a thing or an episode, in lower case."""
_IDENTIFIES = "They identify a person, a thing or an episode"
_OF_NEXT_ROW = re.compile(r"next[_.]|new_(obs|state)|(obs|observations?|state)_?(tp1|next)\b")
_MARK_NAMES = (*TERMINATED_NAMES, *TRUNCATED_NAMES, "is_first", "is_last")
_EPOCHS = {"ms": 1e3, "us": 1e6, "ns": 1e9}
_YEAR_1990_S = 6.3e8
_YEAR_2100_S = 4.1e9


def draft_table_columns(table_name: str, rows: Mapping[str, Cells], form: CsvForm) -> str:
    """Return a `columns.toml` for a table by its first rows.

    Columns are recognised by their names, if their first rows hold what the names promise.

    Args:
        table_name: Its name.
        rows: Its first rows, columns by name.
        form: Of the table if it is a CSV file.
    """
    kinds = _by_kind(rows)
    numbers = kinds.numbers
    settings = _settings(rows, kinds)
    if not form.header:
        settings["header"] = False
    if form.decimal is not None:
        settings["decimal"] = form.decimal
    used = {value for key, value in settings.items() if key in (*_DRAFTED, "episode_step")}
    readings = [name for name in (*numbers, *kinds.categories) if name not in used]
    roles = {name: _role(name, numbers.get(name), form) for name in readings}
    channels = [name for name, role in roles.items() if role is None]
    lines = [
        f"# Columns of {table_name}, recognised by their names: check them. Lines behind # are not used.",
        *_findings(settings, kinds),
        "",
    ]
    lines += key_lines(_KEYS, {"period_s": 1.0} | settings)
    left_out: dict[str, list[str]] = {}
    for name in [*kinds.texts, *(name for name in kinds.dates if name not in used)]:
        left_out.setdefault("No numbers", []).append(name)
    for name, role in roles.items():
        if role is not None:
            left_out.setdefault(role, []).append(name)
    for role, role_names in left_out.items():
        lines += ["", f"# {role}, so no channels: {', '.join(role_names)}"]
        if role == _IDENTIFIES and "episode" not in settings:
            lines.append("# If one numbers the episodes and never decreases, name it by `episode`.")
    for i, name in enumerate(channels):
        given: dict[str, Any] = {"name": name}
        if name in kinds.categories:
            given["categories"] = kinds.categories[name]
        if name in numbers:
            given |= shift_keys(cells.as_numbers(numbers[name]))
        # Most tables with actions have rows (s, a, r): no row shows which action the reward belongs to
        if name.lower() in REWARD_NAMES and "action" in settings:
            given["transition"] = True
        keys = {key: Key("", "") for key in given}
        if i == 0:  # one channel shows all keys
            keys = CHANNEL_KEYS
        lines += ["", "[[channel]]", f"column = {toml_value(name)}", *key_lines(keys, given)]
    return "\n".join(lines) + "\n"


def _findings(settings: Mapping[str, Any], kinds: _Kinds) -> list[str]:
    """Return comments on the columns that decide what can be asked, and where episodes begin."""
    comments = []
    if "action" not in settings:
        comments.append(
            '# No column of actions was recognised. Name it, action = "NAME", whole numbers from 0 or names that'
        )
        comments.append(
            "# `actions` lists, to ask about other policies; without actions ask `--questions nexting`."
        )
    counter = settings.get("episode_step")
    if counter is not None:
        column = kinds.numbers[counter]
        n_restarts = int((np.diff(cells.as_numbers(column)) <= 0).sum())
        comments.append(
            f"# {counter} starts again {n_restarts:,} times in the first {len(column):,} rows: an episode begins there."
        )
    if settings.get("time_unit", "s") != "s":
        comments.append(f"# {settings['time']} seems to be in {settings['time_unit']}.")
    return comments


def _role(name: str, column: Cells | None, form: CsvForm) -> str | None:
    """Return what a column seems to be if it is no reading; `column` is None if it holds texts."""
    if _is_identifier(name, column, form):
        return _IDENTIFIES
    if _OF_NEXT_ROW.match(name.lower()):
        return "They are of the next row"
    if column is None:
        return None
    if name_called(_MARK_NAMES, [name]) is not None and fits("terminated", column):
        return "They mark ends of episodes"
    if name_called(USUAL_NAMES["b"], [name]) is not None and fits("b", column):
        return "They are probabilities of actions"
    return None


def _is_identifier(name: str, column: Cells | None, form: CsvForm) -> bool:
    """Return whether a column seems to identify a person, a thing or an episode; `column` is None if it holds texts.

    So does a column without a name that counts the rows, as tables of pandas have.
    """
    if _IDENTIFIER.fullmatch(name.lower()):
        values = np.zeros(0)
        if column is not None:
            values = cells.as_numbers(column)
        present = values[np.isfinite(values)]
        return bool((present == np.floor(present)).all())
    if not form.header or name != unnamed(0) or column is None:
        return False
    return bool((np.diff(cells.as_numbers(column)) == 1).all())


def shift_keys(values: Floats) -> dict[str, float]:
    """Return the keys origin and scale of a channel, if float32 does not hold its numbers, shape (n,)."""
    shift = cells.shift_for(values)
    if shift is None:
        return {}
    if shift.scale == 1.0:
        return {"origin": shift.origin}
    return shift._asdict()


def key_lines(keys: Mapping[str, Key], given: Mapping[str, Any]) -> list[str]:
    """Return a line for each key, behind # unless its value is given."""
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


def _settings(rows: Mapping[str, Cells], kinds: _Kinds) -> dict[str, Any]:
    """Return the keys that follow from the names of columns and their first rows."""
    columns = dict(kinds.numbers)
    dates = kinds.dates
    found: dict[str, Any] = {}
    for key in _DRAFTED:
        name = name_called(USUAL_NAMES[key], list(columns))
        if name is not None and fits(key, columns[name]):
            found[key] = name
    if "time" not in found and dates:
        usual_name = name_called(USUAL_NAMES["time"], list(dates))
        found["time"] = usual_name or next(iter(dates))
    if "action" in found:
        n_actions = int(np.nanmax(cells.as_numbers(columns[found["action"]]))) + 1
        found["actions"] = [f"action_{a}" for a in range(n_actions)]
    else:
        name = name_called(USUAL_NAMES["action"], list(kinds.categories))
        if name is None:
            found.pop("b", None)
        else:
            found["action"] = name
            found["actions"] = kinds.categories[name]
            columns[name] = rows[name]
    if "time" in found:
        times = {**columns, **dates}[found["time"]]
        unit = _time_unit(found["time"], times)
        if unit != "s":
            found["time_unit"] = unit
        spacing_s = np.diff(cells.as_seconds(times, TIME_UNITS_S[unit]))
        forward_s = spacing_s[spacing_s > 0]
        if len(forward_s):
            found["period_s"] = float(f"{np.median(forward_s):.4g}")
    counter = _counter(columns, found)
    if counter is not None:
        found["episode_step"] = counter
    found |= _marks(columns, found)
    found["missing"] = MISSING_READING
    return found


def _time_unit(name: str, times: Cells) -> str:
    """Return the unit of times by the end of their column's name, or by their size if they are since 1970."""
    ending = name.lower().rpartition("_")[2]
    if ending in TIME_UNITS_S and ending != name.lower():
        return ending
    if times.dtype.kind == "M":
        return "s"
    median = float(np.median(np.nan_to_num(cells.as_numbers(times))))
    for unit, n_per_s in _EPOCHS.items():
        if _YEAR_1990_S * n_per_s < median < _YEAR_2100_S * n_per_s:
            return unit
    return "s"


def _counter(columns: Mapping[str, Cells], found: Mapping[str, Any]) -> str | None:
    """Return a column of steps or times that starts again, near its smallest number; None without one."""
    candidates: list[str] = []
    if found.get("time") in columns:
        candidates.append(found["time"])
    steps = name_called(USUAL_NAMES["step"], list(columns))
    if "step" not in found and steps is not None:
        candidates.append(steps)
    for name in candidates:
        counts = cells.as_numbers(columns[name])
        advances = np.diff(counts)
        is_restart = advances <= 0
        if not is_restart.any() or not np.median(advances) > 0:
            continue
        step = np.median(advances[~is_restart])
        if (counts[1:][is_restart] <= counts.min() + 1.5 * step).all():
            return name
    return None


def _marks(columns: Mapping[str, Cells], found: Mapping[str, Any]) -> dict[str, str]:
    """Return `convention` and `both`, if the first rows that end an episode show them."""
    marked = {}
    for key in ("terminated", "truncated"):
        marked[key] = np.zeros(len(next(iter(columns.values()), ())), dtype=bool)
        if key in found:
            marked[key], _ = cells.as_claims(columns[found[key]])
    settings = {}
    is_end = marked["terminated"] | marked["truncated"]
    if "terminated" in found and (is_end & _have_actions(columns, found)).any():
        settings["convention"] = TRANSITION
    are_both = marked["terminated"] & marked["truncated"]
    if are_both.any():
        # A done is true at any end of an episode, and then in each truncated row
        is_done = found["terminated"].lower() in ("done", "dones", "d")
        is_any_end = is_done and bool((are_both == marked["truncated"]).all())
        settings["both"] = TERMINATED
        if is_any_end:
            settings["both"] = TRUNCATED
    return settings


def _have_actions(columns: Mapping[str, Cells], found: Mapping[str, Any]) -> Bools:
    """Return which rows have an action with a probability above 0, or numbers of a continuous one, shape (n_rows,)."""
    if "action" in found:
        actions = cells.as_actions(columns[found["action"]], found["actions"])
        have_actions = np.asarray(actions >= 0)
        if "b" in found:
            have_actions &= cells.as_numbers(columns[found["b"]]) > 0
        return have_actions
    n_rows = len(next(iter(columns.values()), ()))
    numbers = [column for name, column in columns.items() if name.lower().startswith("action")]
    if not numbers:
        return np.zeros(n_rows, dtype=bool)
    are_numbers = np.isfinite([cells.as_numbers(column) for column in numbers])
    return np.asarray(are_numbers.all(axis=0))


def name_called(usual_names: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first column with a usual name; None without one.

    Letters may be upper case, but for a single one: T is a temperature.
    """
    by_lower_case: dict[str, str] = {}
    for name in reversed(names):
        if len(name) == 1:
            by_lower_case[name] = name
        else:
            by_lower_case[name.lower()] = name
    for usual_name in usual_names:
        if usual_name in by_lower_case:
            return by_lower_case[usual_name]
    return None


def fits(key: str, column: Cells) -> bool:
    """Return whether the cells are what a key needs."""
    if key in ("terminated", "truncated"):
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
