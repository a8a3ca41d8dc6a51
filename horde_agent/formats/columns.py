"""Meaning of the columns of a table: a TOML file, or the arguments of `learn_from`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from horde_agent.formats.cells import NO_SHIFT, TIME_UNITS_S, Shift, category_of
from horde_agent.record import READ_FIELDS
from horde_agent.record.kinds import COLUMNS
from horde_agent.refusals import BadInput, real_number
from horde_agent.toml import read_toml, toml_value, typed

_T = TypeVar("_T")
ESTIMATE = "estimate"
REWARD_NAMES = ("reward", "rewards", "r")
"""Usual names of a reward, in lower case."""
TERMINATED_NAMES = (
    "terminated",
    "terminal",
    "terminals",
    "termination",
    "terminations",
    "is_terminal",
    "done",
    "dones",
    "d",
)
"""Usual names of `terminated`, in lower case."""
TRUNCATED_NAMES = (
    "truncated",
    "truncation",
    "truncations",
    "is_truncated",
    "timeout",
    "timeouts",
    "time_limit",
    "timelimit.truncated",
)
"""Usual names of `truncated`, in lower case."""
USUAL_NAMES = {
    "time": (
        "time",
        "t",
        "timestamp",
        "stamp",
        "seconds",
        *(f"{name}_{unit}" for unit in TIME_UNITS_S for name in ("time", "timestamp", "t")),
        "unix_time",
        "epoch",
    ),
    "action": ("action", "a", "actions"),
    "b": ("b", "prob", "probability", "action_prob", "action_probability", "propensity"),
    "reward": REWARD_NAMES,
    "episode": ("episode", "episode_index", "episode_id", "trajectory", "e"),
    "terminated": TERMINATED_NAMES,
    "truncated": TRUNCATED_NAMES,
    "step": ("step", "steps", "timestep", "time_step", "frame_index"),
}
"""Usual names of a table's columns and of the last parts of a bag's topics, in lower case, by key of `Columns`."""
TERMINATED = "terminated"
TRUNCATED = "truncated"
OBSERVATION = "observation"
TRANSITION = "transition"
SHIFTS = "shifts"
"""Key of a header: origin and scale of each channel that has them."""
_NUMBER_KEYS = ("low", "high", "step", "origin", "scale")
OF_EPISODES = ("next_reward", "episode", "episode_step", "terminated", "truncated")
"""Keys of columns from which the rewards and the flags of rows follow."""
_OTHERS = ("time", *READ_FIELDS, *OF_EPISODES)
SEPARATORS = (",", ";", "\t", "|")
"""Of a CSV file, in the order in which they are looked for."""


def unnamed(i: int) -> str:
    """Return the name of column i, counted from 0, that has none in the file."""
    return f"column_{i}"


MISSING_READING = "reading"
MISSING_GAP = "gap"
MISSING_ERROR = "error"
"""What a row is in which a channel has no value: see `Columns`."""


class ChannelColumn(NamedTuple):
    """A column that is a channel of the observation.

    Attributes:
        column: Its name in the table; NAME_3 is number 3 of a column NAME of vectors.
        name, group, unit: Of the channel; the column's name, the name and "1" when empty.
        low, high: Range of its readings, scaled to [0, 1]; that of the table when None. Infinite:
            unbounded.
        sensor: Whether families of questions include it.
        step: Quantisation step of its readings.
        origin, scale: The reading is (value - origin) x scale, computed in float64 before it is
            stored as float32; unit, range, step and predictions are those of the readings.
        hold_s: For how long the last reading stands for a missing one in the features, in seconds; 1 s
            when None.
        role: "speed" of a part that moves the machine, "request" of a motion, both at the middle of their range
            at rest: `--surprise` tests no block in which it stands although it is driven.
        transition: True if a row has the reading of the transition to the next row, as a reward;
            the next row gets it. It has no tiles by default.
        categories: Texts or whole numbers that the column may hold, each of which has a tile; the
            reading is the number of the text in this list. Empty for a column of numbers.
        lost: Whether rows may lack the column, since its sensor went in the middle of a run; a reading is
            missing there, whatever `Columns.missing` says.
    """

    column: str
    name: str = ""
    group: str = ""
    unit: str = "1"
    low: float | None = None
    high: float | None = None
    sensor: bool = True
    step: float | None = None
    transition: bool = False
    categories: tuple[str, ...] = ()
    origin: float = NO_SHIFT.origin
    scale: float = NO_SHIFT.scale
    hold_s: float | None = None
    role: str = ""
    lost: bool = False

    @property
    def shift(self) -> Shift:
        """How readings follow from the values in the table."""
        return Shift(self.origin, self.scale)


def _check_choice(key: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise BadInput if the value of a key is not one of the choices."""
    if value is not None and value not in choices:
        shown = ", ".join(map(toml_value, choices))
        raise BadInput(f"{key} must be one of {shown}, not {toml_value(value)}")


@dataclass(frozen=True)
class TimeColumns:
    """Keys about time.

    Attributes:
        period_s: Time between two rows, in seconds.
        time: Column of seconds, increasing within an episode; a row more than 1.5 periods late
            follows a gap.
        time_unit: Unit of these times if they are numbers: "s", "ms", "us" or "ns".
        step: Column of the number of the step; rows are counted when None.
    """

    period_s: float = 1.0
    time: str | None = None
    time_unit: str = "s"
    step: str | None = None

    def __post_init__(self) -> None:
        """Raise BadInput at an invalid value."""
        if not 0.0 < self.period_s < math.inf:
            raise BadInput(f"period_s must be > 0, not {self.period_s}")
        _check_choice("time_unit", self.time_unit, tuple(TIME_UNITS_S))

    @property
    def unit_s(self) -> float:
        """The unit of the times in seconds."""
        return TIME_UNITS_S[self.time_unit]


@dataclass(frozen=True)
class ActionColumns:
    """Keys about actions.

    Attributes:
        action: Column of the discrete action taken from the row's observation; None if actions are
            unknown. A cell that is a number is the action's number, a text its name.
        actions: Names of the actions; action_0.. when empty.
        b: Column of the action's probability, or "estimate"; None if it is unknown.
    """

    action: str | None = None
    actions: tuple[str, ...] = ()
    b: str | None = None

    def __post_init__(self) -> None:
        """Raise BadInput at a probability of nothing, and at two actions of one name."""
        twice = [name for name in self.actions if self.actions.count(name) > 1]
        if twice:
            raise BadInput(f"two actions have the name {twice[0]!r}: give each its own")
        if self.b is not None and self.action is None:
            raise BadInput("b is the probability of an action: name the column `action` too")


@dataclass(frozen=True)
class RewardColumns:
    """Keys about rewards, which are unknown without both.

    Attributes:
        next_reward: Column of the reward of the row's action, as in rows (s, a, r, done).
        reward: Column of the reward of the transition that led to the row, as in recorded runs.
    """

    next_reward: str | None = None
    reward: str | None = None

    def __post_init__(self) -> None:
        """Raise BadInput if both are named."""
        if self.reward is not None and self.next_reward is not None:
            raise BadInput(
                "reward and next_reward are both named: name next_reward if a row has the reward of its action, "
                "reward if it has that of the transition to it"
            )


@dataclass(frozen=True)
class EpisodeColumns:
    """Keys about where episodes begin and how they end.

    Attributes:
        episode: Column of the episode's number, which does not decrease; the last row of an episode
            has no action.
        episode_step: Column of a counter or a time that starts again in each episode: an episode
            begins where it does not increase.
        terminated: Column that is true in the terminal observation of an episode, which has no
            action; see `convention`.
        truncated: Column that is true in the last row of an episode that did not terminate, as at a
            time limit. The next row follows a gap. Nothing is learned from the row's action: the
            state that it led to is not in the table, whatever the `convention`.
        both: "terminated" or "truncated": what a row is that is marked as both. None: it is
            refused.
        convention: Meaning of `terminated`. "observation": the row's observation is terminal, and
            its action does not count. "transition": the row's action led to a terminal state, as in
            rows (s, a, r, done); a terminal row is added. None: "observation", but a terminal row
            with an action and its b is refused.
    """

    episode: str | None = None
    episode_step: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    both: str | None = None
    convention: str | None = None

    def __post_init__(self) -> None:
        """Raise BadInput at an invalid value."""
        _check_choice("both", self.both, (TERMINATED, TRUNCATED))
        _check_choice("convention", self.convention, (OBSERVATION, TRANSITION))


@dataclass(frozen=True)
class RunColumns:
    """Keys of a recorded run (`horde_agent.record`).

    Attributes:
        phase, flags: Its columns.
        tests_excursions: Whether the recorded robot made test excursions.
    """

    phase: str | None = None
    flags: str | None = None
    tests_excursions: bool = False


_OF_OTHER_KEYS = {
    key.name
    for record in (TimeColumns, ActionColumns, RewardColumns, RunColumns)
    for key in fields(record)
}
COPIED_FIELDS = tuple(name for name in READ_FIELDS if name not in _OF_OTHER_KEYS)
"""Fields of a row that are copied from their column, whatever the other columns say."""
CopiedColumns = make_dataclass(
    "CopiedColumns",
    [(name, str | None, None) for name in COPIED_FIELDS],
    frozen=True,
    namespace={"__doc__": "Keys of a recorded run: the column of each of `COPIED_FIELDS`."},
)
_NOTHING_COPIED = CopiedColumns()


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file is written.

    Attributes:
        separator: Between two cells; found when None: a comma, or else a semicolon, a tab or a bar.
        decimal: The decimal mark; when None a point, or also a comma if commas separate no cells.
        header: Whether the first line has the names; else they are column_0, column_1, ...; so is a
            column without a name.
    """

    separator: str | None = None
    decimal: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        """Raise BadInput at an invalid value."""
        _check_choice("separator", self.separator, SEPARATORS)
        _check_choice("decimal", self.decimal, (".", ","))


FOUND_FORM = CsvForm()
"""A form that is found in the file, with a header."""


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table with a row per step; the keys of a file are those of its records.

    Attributes:
        channel: The channels of the observation, in order.
        times, actions, rewards, episodes, run, copied, csv: Keys by what they are about.
        tile_layout: TOML text of the tiles; a default for the number of channels when None.
        missing: What a row is in which a channel has no value: "reading", a row without that reading;
            "gap", no row, and times need not increase; "error", refused.
        missing_values: Numbers that stand for a missing one in the channels, such as -999.
    """

    channel: tuple[ChannelColumn, ...] = ()
    times: TimeColumns = TimeColumns()
    actions: ActionColumns = ActionColumns()
    rewards: RewardColumns = RewardColumns()
    episodes: EpisodeColumns = EpisodeColumns()
    run: RunColumns = RunColumns()
    copied: CopiedColumns = _NOTHING_COPIED  # type: ignore[valid-type]  # made of the fields of a row
    csv: CsvForm = FOUND_FORM
    tile_layout: str | None = None
    missing: str = MISSING_READING
    missing_values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise BadInput at keys or channels that do not fit together."""
        _check_choice("missing", self.missing, (MISSING_READING, MISSING_GAP, MISSING_ERROR))
        ends = {
            'convention = "transition"': self.episodes.convention == TRANSITION,
            "truncated": self.episodes.truncated is not None,
            "episode_step": self.episodes.episode_step is not None,
        }
        for key, is_used in ends.items():
            if is_used and self.run.phase is not None:
                raise BadInput(
                    f"{key} is not for recorded runs: the column of `phase` ends their episodes"
                )
        names = [channel.name for channel in self.channel]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise BadInput(f"two channels have the name {twice[0]!r}")

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of a file with their values, without the channels."""
        keys: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if is_dataclass(value):
                keys |= vars(value)
            elif field.name != "channel":
                keys[field.name] = value
        return keys

    def with_keys(self, **keys: Any) -> Columns:
        """Return columns with other values of some keys; raise BadInput if they are invalid."""
        changes: dict[str, Any] = {}
        for field in fields(self):
            record = getattr(self, field.name)
            if is_dataclass(record):
                values = {key: keys.pop(key) for key in vars(record) if key in keys}
                changes[field.name] = replace(record, **values)  # type: ignore[type-var]
        return replace(self, **changes, **keys)

    def reward_column(self, *, is_of_action: bool) -> str | None:
        """Return the column of the rewards of the rows' actions, or of the transitions to them; None without one.

        Without a key, a channel with the usual name of a reward has them.
        """
        named = self.rewards.reward
        if is_of_action:
            named = self.rewards.next_reward
        if named is not None:
            return named
        for channel in self.channel:
            if channel.name.lower() in REWARD_NAMES and channel.transition == is_of_action:
                return channel.column
        return None

    @cached_property
    def others(self) -> Mapping[str, str]:
        """Names of the columns that are no channels, by key."""
        keys = self.keys
        return {key: keys[key] for key in _OTHERS if keys[key] not in (None, ESTIMATE)}

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read."""
        return [*(c.column for c in self.channel), *self.others.values()]

    @property
    def has_lost(self) -> bool:
        """Whether rows may lack a column."""
        return any(channel.lost for channel in self.channel)

    def names_in(self, columns_there: Collection[str]) -> list[str]:
        """Return the names of the columns that are read from a table with these columns; it may lack lost ones."""
        lost = {channel.column for channel in self.channel if channel.lost}
        return [
            name for name in self.names if name not in lost or is_column_in(name, columns_there)
        ]

    @classmethod
    def of_header(cls, header: Mapping[str, Any], column: str = "{name}", **named: str) -> Columns:
        """Return the columns of an exported run.

        Args:
            header: Of its recording.
            column: Column of a channel, with {name} and {i} for its name and number.
            named: The other columns, by key; b is left out if it is unknown.
        """
        if not header.get("b_known", True):
            named.pop("b", None)
        shifts = shifts_of(header)
        channels = []
        for i, described in enumerate(header["channels"]):
            channel = ChannelColumn(
                column=column.format(name=described["name"], i=i),
                name=described["name"],
                group=described["group"],
                unit=described["unit"],
                low=bound_of(header["low"][i], -math.inf),
                high=bound_of(header["high"][i], math.inf),
                sensor=described["is_sensor"],
                step=described["step"],
                hold_s=described.get("hold_s"),
                role=described.get("role", ""),
            )
            shift = shifts.get(channel.name, NO_SHIFT)
            channels.append(channel._replace(origin=shift.origin, scale=shift.scale))
        return cls(tuple(channels)).with_keys(
            period_s=header["period_s"],
            tile_layout=header["tile_layout"],
            actions=tuple(header["actions"]),
            tests_excursions=bool(header.get("tests_excursions")),
            **named,
        )

    def to_toml(self) -> str:
        """Return the file that `read` reads."""
        keys = {key: value for key, value in self.keys.items() if value not in (None, ())}
        if self.csv.header:
            del keys["header"]
        if self.times.time_unit == "s":
            del keys["time_unit"]
        lines = toml_lines(keys)
        for channel in self.channel:
            lines += ["", "[[channel]]", *toml_lines(channel_facts(channel))]
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, file: Path | None, base: Columns | None = None) -> Columns:
        """Read a TOML file, with `base` for the keys that it lacks; raise BadInput if it is invalid.

        Args:
            file: The file; None if `base` describes all columns.
            base: Columns of a data set that describes itself.
        """
        if file is None:
            return base or cls()
        return read_columns_file(file, lambda table: cls.of(table, base))

    @classmethod
    def of(cls, table: Mapping[str, Any], base: Columns | None = None) -> Columns:
        """Check a table with the keys of a file; raise BadInput if one is unknown, missing or invalid."""
        kinds = _kinds()
        if base is None:
            for key in ("channel", "period_s"):
                if key not in table:
                    raise BadInput(f"it has no {key!r}")
        keys: dict[str, Any] = {}
        for key, value in table.items():
            if key not in kinds:
                raise BadInput(f"unknown key {key!r}: choose {', '.join(kinds)}")
            try:
                if key == "channel":
                    keys[key] = _channels(value)
                elif key == "missing_values":
                    keys[key] = _numbers(key, value)
                else:
                    keys[key] = typed(value, kinds[key])
            except BadInput:
                raise
            except ValueError as error:
                raise BadInput(f"{key} {error}") from None
        return (base or cls()).with_keys(**keys)


def read_columns_file(file: Path, parse: Callable[[dict[str, Any]], _T]) -> _T:
    """Return what `parse` makes of the tables in a TOML file; raise BadInput if it cannot be read, or is invalid.

    A run's own file has a stamp, and may be of an older format.
    """
    try:
        return parse(COLUMNS.read_table(read_toml(file), file))
    except (OSError, TypeError, ValueError) as error:
        raise BadInput(f"the columns in {file} cannot be read: {error}") from None


@cache
def _kinds() -> dict[str, Any]:
    """Return the types of the keys of a file."""
    kinds: dict[str, Any] = {}
    for name, kind in get_type_hints(Columns).items():
        if is_dataclass(kind):
            kinds |= get_type_hints(kind)
        else:
            kinds[name] = kind
    return kinds


def toml_lines(keys: Mapping[str, Any]) -> list[str]:
    """Return keys and values as lines of a TOML file."""
    return [f"{key} = {toml_value(value)}" for key, value in keys.items()]


def bound_of(number: float | None, unbounded: float) -> float:
    """Return a bound in a header as a number; there, None stands for an infinite one."""
    if number is None:
        return unbounded
    return number


def channel_facts(channel: ChannelColumn) -> dict[str, Any]:
    """Return the keys of a channel's [[channel]] and their values, without those that say nothing."""
    facts = {key: value for key, value in channel._asdict().items() if value not in (None, (), "")}
    if channel.shift == NO_SHIFT:
        del facts["origin"]
        del facts["scale"]
    if not channel.lost:
        del facts["lost"]
    return facts


def is_column_in(name: str, columns_there: Collection[str]) -> bool:
    """Return whether a column is one of those that are there, or number 3 of vectors NAME for NAME_3."""
    vector, _, place = name.rpartition("_")
    return name in columns_there or (place.isdecimal() and vector in columns_there)


def shifts_of(header: Mapping[str, Any]) -> dict[str, Shift]:
    """Return how readings follow from the values in the file, by channel, of a recording; those that differ."""
    return {name: Shift(*numbers) for name, numbers in header.get(SHIFTS, {}).items()}


def _numbers(key: str, values: Any) -> tuple[float, ...]:
    """Return a list of numbers; raise BadInput if the value is no such list."""
    if not isinstance(values, list | tuple):
        raise BadInput(f"{key} must be a list of numbers, not {values!r}")
    return tuple(real_number(key, value) for value in values)


def unscaled(columns: Sequence[tuple[str, str]]) -> list[ChannelColumn]:
    """Return channels of unknown range in the group "action", of pairs of column and name; families leave them out."""
    return [
        ChannelColumn(*one, "action", low=-math.inf, high=math.inf, sensor=False) for one in columns
    ]


def layout_without_transitions(columns: Sequence[ChannelColumn]) -> str | None:
    """Return a layout with the default tilings for each group of channels that belong to rows; None for the default.

    Channels of transitions have no tiles, and each category has one. Without any of the two, the
    layout is that of `TileCoder.default`.
    """
    if not any(channel.transition or channel.categories for channel in columns):
        return None
    n_categories: dict[str, int] = {}
    for channel in columns:
        group = channel.group or channel.name or channel.column
        if n_categories.setdefault(group, len(channel.categories)) != len(channel.categories):
            raise BadInput(
                f"the channels of the group {group!r} have different numbers of categories: give each a group"
            )
    groups = [
        channel.group or channel.name or channel.column
        for channel in columns
        if not channel.transition
    ]
    tables = []
    for group in dict.fromkeys(groups):
        n_tiles = n_categories[group]
        if n_tiles:
            name = toml_value(group)
            tables.append(f"[[tiling]]\ngroup = {name}\nintervals = [{n_tiles}]\ntilings = 1\n")
            continue
        tables.append(default_tilings(group, groups.count(group)))
    return "".join(tables)


def default_tilings(group: str, n_channels: int) -> str:
    """Return the tilings of a group as in `TileCoder.default`, with pairs of neighbours if it has several channels."""
    name = toml_value(group)
    layout = f"[[tiling]]\ngroup = {name}\nintervals = [8]\ntilings = 8\n"
    if n_channels > 1:
        layout += f"[[tiling]]\ngroup = {name}\nneighbour = 1\nintervals = [4, 4]\ntilings = 4\n"
    return layout


def _channels(tables: Any) -> tuple[ChannelColumn, ...]:
    """Return the channels of `[[channel]]` tables; raise BadInput if a column, a key or a range is invalid."""
    if not tables_in(tables):
        raise BadInput("channel must be [[channel]] tables")
    return tuple(_channel(table) for table in tables)


def tables_in(value: Any) -> list[dict[str, Any]]:
    """Return a list of tables; an empty one for anything else."""
    if isinstance(value, list) and all(isinstance(table, dict) for table in value):
        return value
    return []


def refuse_unknown(where: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raise BadInput if a table has other keys."""
    unknown = sorted(set(table) - set(keys))
    if unknown:
        raise BadInput(f"{where} has an unknown key {unknown[0]!r}: choose {', '.join(keys)}")


def numbers_in(table: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Return the numbers of those keys that a table has; raise ValueError at another value."""
    return {key: real_number(key, table[key]) for key in keys if table.get(key) is not None}


def _channel(table: Mapping[str, Any]) -> ChannelColumn:
    refuse_unknown("[[channel]]", table, ChannelColumn._fields)
    if not isinstance(table.get("column"), str):
        raise BadInput("each [[channel]] needs a column, a text")
    for key in ("sensor", "transition", "lost"):
        if not isinstance(table.get(key, True), bool):
            raise BadInput(
                f"[[channel]] {table['column']!r}: {key} must be true or false, not {table[key]!r}"
            )
    name = str(table.get("name") or table["column"])
    categories = _categories(name, table)
    numbers = numbers_in(table, _NUMBER_KEYS)
    low = numbers.get("low", -math.inf)
    high = numbers.get("high", math.inf)
    if not low < high or math.isnan(numbers.get("step", 0.0)):
        raise BadInput(f"channel {name!r}: low must be below high, not {low} and {high}")
    if categories:
        # The middle of a tile is a category's number
        numbers |= {"low": -0.5, "high": len(categories) - 0.5}
    texts = {"name": name, "group": str(table.get("group") or name)}
    channel = ChannelColumn(**{**table, **numbers, **texts, "categories": categories})
    _check_shift(channel)
    return channel


def _check_shift(channel: ChannelColumn) -> None:
    """Raise BadInput if origin or scale of a [[channel]] makes no reading of a number."""
    name = channel.name
    origin, scale = channel.shift
    if not math.isfinite(origin):
        raise BadInput(f"channel {name!r}: origin must be a finite number, not {origin}")
    if not math.isfinite(scale) or scale == 0.0:
        raise BadInput(f"channel {name!r}: scale must be a finite number other than 0, not {scale}")
    if channel.categories and channel.shift != NO_SHIFT:
        raise BadInput(f"channel {name!r}: categories are no numbers, and have no origin and scale")


def _categories(name: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the categories of a [[channel]]; raise BadInput if they are none."""
    values = table.get("categories", ())
    is_list = isinstance(values, list | tuple)
    if not is_list or not all(isinstance(value, str | int) for value in values):
        raise BadInput(
            f"channel {name!r}: categories must be a list of texts or whole numbers, not {values!r}"
        )
    categories = tuple(category_of(value) for value in values)
    if len(set(categories)) < len(categories):
        raise BadInput(f"channel {name!r}: a category is named twice")
    if categories and table.get("transition"):
        raise BadInput(
            f"channel {name!r}: a reading of a transition is a number, without categories"
        )
    return categories
