"""A bag as a table: its columns file, its checks before anything is written, its rows.

In a columns file, each `[[channel]]` has a `topic` and a `field` instead of a `column`, and so have
`action`, `b`, `reward`, `next_reward`, `terminated`, `episode` and the columns of a recorded run. An
action is a whole number, or numbers cut into `bins`.
"""

from __future__ import annotations

import math
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.bag_draft import draft_bag_columns
from horde_agent.formats.bag_files import SECOND_NS, SUFFIXES, Bag, Message, is_bag, open_bag
from horde_agent.formats.bag_messages import (
    Decoder,
    FieldError,
    decoded,
    decoder,
    has_element,
    has_stamp,
    number_at,
    selected_part,
    stamp_ns,
    steps_of,
)
from horde_agent.formats.bag_rows import (
    AFTER,
    ANY,
    AT,
    BLOCK_ROWS,
    DEFAULT_MAX_AGE_S,
    SUM,
    VALUE,
    Field,
    Losses,
    Resampler,
)
from horde_agent.formats.columns import (
    ESTIMATE,
    MISSING_READING,
    OF_EPISODES,
    TRANSITION,
    Columns,
    numbers_in,
    read_columns_file,
    refuse_unknown,
    tables_in,
)
from horde_agent.formats.format import Format, Growth
from horde_agent.formats.part import Chunk
from horde_agent.formats.tables import Table
from horde_agent.record import READ_FIELDS
from horde_agent.refusals import BadInput, real_number
from horde_agent.types import Floats

LOG = "log"
STAMP = "stamp"
_CLOCKS = (LOG, STAMP)
_CLOCK_TOLERANCE_S = 1.0
"""The clocks of two topics disagree if message stamps minus log times differ by more."""
_N_EXAMPLES = 50  # messages of a topic that are examined first
_HELD_S = 1e9
"""Age of the number of an episode: it holds until the next one."""
_MOST_LATE = 0.01
"""A bag with a larger share of messages that stand too late in the file is refused."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "time"
_EPISODE = "episode"
_ACTION = "action"
_CHANNEL = "[[channel]]"
_ANSWERS = (_ACTION, "b", "next_reward")
"""Keys of what follows a row's observation: by default the first value from its time on counts."""
_AMOUNTS = {"reward": SUM, "next_reward": SUM, "terminated": ANY, "truncated": ANY}
"""Keys of what happens between rows: all of it counts, and nothing without a message."""
_SINGLE_FIELDS = (*(name for name in READ_FIELDS if name != _ACTION), *OF_EPISODES)
"""Keys with one field each; an action may have several."""
_SOURCE_KEYS = ("topic", "field", "max_age_s", "timing", "infinite", "too_near")


class ActionPart(NamedTuple):
    """A number that the action depends on: its topic and column, and the bounds between its bins."""

    topic: str
    column: str
    bins: tuple[float, ...]


class Pairing(NamedTuple):
    """How messages are paired with rows: the keys of a bag's columns file that a table has not.

    Attributes:
        rows: Topic of the messages that are the rows; None for rows at a fixed period.
        clock: "log": messages have the time at which they were recorded. "stamp": that of their
            header, if they have one. None: as "log", but stamps must not contradict.
        max_age_s: Age from which a value is missing in seconds, unless its own table has another.
    """

    rows: str | None
    clock: str | None
    max_age_s: float

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Pairing:
        """Return the keys in a columns file; raise BadInput if one is invalid."""
        rows = table.get("rows")
        clock = table.get("clock")
        for key, text in (("rows", rows), ("clock", clock)):
            if not isinstance(text, str | None):
                raise BadInput(f"{key} must be a text, not {text!r}")
        if clock not in (None, *_CLOCKS):
            raise BadInput(f"clock must be {' or '.join(_CLOCKS)}, not {clock!r}")
        return cls(rows, clock, _numbers(table).get("max_age_s", DEFAULT_MAX_AGE_S))


class BagPlan(NamedTuple):
    """How a bag becomes a table.

    Attributes:
        fields: The numbers that are read.
        columns: Meaning of the table's columns.
        action: What the action depends on; empty without one. One part without bins is the action.
        pairing: How messages are paired with rows.
        episode: Column of the user's episode numbers; None without one.
    """

    fields: tuple[Field, ...]
    columns: Columns
    action: tuple[ActionPart, ...]
    pairing: Pairing
    episode: str | None


class BagFormat(Format):
    """A bag or a folder of bags."""

    described = f"a robot's bag *{', *'.join(SUFFIXES)}, a folder of bags"

    def matches(self, path: Path) -> bool:
        """Return whether a path is a file with the name of a bag, or a folder with bags."""
        return path.exists() and is_bag(path)

    def growth(self, path: Path) -> Growth:
        """Return that a folder gets further bags."""
        if path.is_dir():
            return Growth.FILES
        return Growth.NONE

    def open(self, path: Path, columns: Path | None) -> Table:
        """Return a bag as a table; raise BadInput if it cannot be read, or does not fit the columns file."""
        return open_bag_table(path, columns)

    def draft(self, path: Path) -> str:
        """Return a columns file, by the first messages of the topics."""
        return draft_bag_columns(path)


FORMAT = BagFormat()


def open_bag_table(
    path: Path, columns: Path | None, check: Callable[[Columns], None] = lambda _: None
) -> BagTable:
    """Return a bag as a table; raise BadInput if it cannot be read, or does not fit the columns file.

    Args:
        path: The bag, or a folder of bags.
        columns: Describes its topics and fields.
        check: Raises BadInput if the columns do not suit the caller, before messages are read.
    """
    if columns is None:
        raise BadInput(
            f"a bag needs --columns FILE.toml, which names its topics and fields: `horde columns {path} > "
            "columns.toml` writes one"
        )
    plan = read_columns_file(columns, lambda table: _PlanReader(table).plan())
    check(plan.columns)
    return BagTable(open_bag(path), plan)


# ---- the columns file ------------------------------------------------------------------------------------------------


class _PlanReader:
    """Turns the tables of a columns file into fields and columns."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._pairing = Pairing.of(table)
        self._table = {key: value for key, value in table.items() if key not in Pairing._fields}
        self._fields: dict[str, Field] = {}
        self._drops = table.get("missing", MISSING_READING) != MISSING_READING

    def plan(self) -> BagPlan:
        """Return the plan."""
        table = self._table
        for key in (_TIME, "time_unit"):
            if key in table:
                raise BadInput(f"a bag has its own times: leave out `{key}`")
        channels = tables_in(table.get("channel"))
        if not channels:
            raise BadInput("it has no [[channel]] tables, each with a topic and a field")
        table["channel"] = [self._channel(channel) for channel in channels]
        action = self._action(table.pop(_ACTION, None))
        if action:
            table[_ACTION] = _ACTION
            if action[0].bins and "actions" not in table:
                n_actions = math.prod(len(part.bins) + 1 for part in action)
                table["actions"] = [f"action_{a}" for a in range(n_actions)]
        for key in _SINGLE_FIELDS:
            source = table.get(key)
            if source is not None and (key, source) != ("b", ESTIMATE):
                table[key] = self._column(key, source)
        episode = None
        if "phase" not in table:
            episode = table.pop(_EPISODE, None)
            if action or episode is not None:
                table[_EPISODE] = _EPISODE
            table[_TIME] = _TIME
        return BagPlan(
            fields=tuple(self._fields.values()),
            columns=Columns.of(table),
            action=action,
            pairing=self._pairing,
            episode=episode,
        )

    def _channel(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return a [[channel]] with a column instead of a topic and a field."""
        channel = {key: value for key, value in table.items() if key not in _SOURCE_KEYS}
        source = {key: value for key, value in table.items() if key in _SOURCE_KEYS}
        if "column" in channel:
            raise BadInput(
                f"[[channel]] of a bag has a topic and a field, not the column {channel['column']!r}"
            )
        column = self._column(_CHANNEL, source, is_of_action=bool(table.get("transition")))
        return {"column": column, "name": column.removeprefix("/").replace("/", "."), **channel}

    def _action(self, action: Any) -> tuple[ActionPart, ...]:
        """Return the parts of an action, none without one."""
        if action is None:
            return ()
        if isinstance(action, dict):
            action = [action]
        tables = tables_in(action)
        if not tables:
            raise BadInput(
                'action must be { topic = "/cmd_vel", field = "angular.z" }, or a list of such'
            )
        parts = []
        for table in tables:
            source = {key: value for key, value in table.items() if key != "bins"}
            bins = table.get("bins", [])
            bounds = isinstance(bins, list) and [real_number("bins", bound) for bound in bins]
            if not isinstance(bounds, list) or bounds != sorted(set(bounds)):
                raise BadInput(
                    f"bins must be increasing numbers, the bounds between bins, not {bins!r}"
                )
            if len(tables) > 1 and not bounds:
                raise BadInput("each of several fields of an action needs bins")
            column = self._column(_ACTION, source)
            parts.append(ActionPart(source["topic"], column, tuple(bounds)))
        return tuple(parts)

    def _column(self, key: str, source: Any, *, is_of_action: bool = False) -> str:
        """Add the field of a topic, of the row's action if so, and return the name of its column."""
        if not isinstance(source, dict):
            raise BadInput(f'{key} must be {{ topic = "/name", field = "name" }}, not {source!r}')
        refuse_unknown(key, source, _SOURCE_KEYS)
        for name in ("topic", "field"):
            if not isinstance(source.get(name), str):
                raise BadInput(f"{key} needs a {name}, a text")
        column = f"{source['topic']}.{source['field']}"
        if key != _CHANNEL:
            column += f" ({key})"
        if _AMOUNTS.get(key) == ANY:
            is_of_action = self._table.get("convention") == TRANSITION
        timing = AT
        if is_of_action or key in _ANSWERS:
            timing = AFTER
        timing = source.get("timing", timing)
        if timing not in (AT, AFTER):
            raise BadInput(f"timing must be {AT} or {AFTER}, not {timing!r}")
        numbers = _numbers(source)
        max_age_s = self._pairing.max_age_s
        if key == _EPISODE:
            max_age_s = _HELD_S
        field = Field(
            column=column,
            topic=source["topic"],
            steps=steps_of(source["field"]),
            timing=timing,
            kind=_AMOUNTS.get(key, VALUE),
            max_age_s=numbers.get("max_age_s", max_age_s),
            infinite=numbers.get("infinite"),
            too_near=numbers.get("too_near"),
            is_needed=key != _CHANNEL or self._drops,
        )
        if self._fields.setdefault(column, field) != field:
            raise BadInput(f"{column} is named twice, with different keys")
        return column


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a table with a topic and a field by key; raise ValueError at another value."""
    numbers = numbers_in(table, ("max_age_s", "infinite", "too_near"))
    if not 0.0 < numbers.get("max_age_s", 1.0) < math.inf:
        raise BadInput(f"max_age_s must be > 0, not {numbers['max_age_s']}")
    return numbers


# ---- the table -------------------------------------------------------------------------------------------------------


class BagTable(Table):
    """The rows of a bag as a table, read once, and from a temporary file from then on.

    Raises BadInput if the plan does not fit the bag.
    """

    def __init__(self, bag: Bag, plan: BagPlan) -> None:
        self._bag = bag
        self._plan = plan
        topics = [field.topic for field in plan.fields]
        if plan.pairing.rows is not None:
            topics.append(plan.pairing.rows)
        self._topics = list(dict.fromkeys(topics))
        self._refuse_absent()
        self._decoders = {name: decoder(bag.topics[name]) for name in self._topics}
        self._stamped = _examine(bag, plan, self._topics, self._decoders)
        self._losses = Losses()
        self._n_without_action = 0
        self._row_file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the table
        weakref.finalize(self, self._row_file.close)
        self._is_read = False
        super().__init__(self._bag_chunks, plan.columns, str(bag.path))

    def _refuse_absent(self) -> None:
        """Raise BadInput if a topic is not there, or has no message."""
        topics = self._bag.topics
        for name in self._topics:
            if name not in topics:
                topic_names = ", ".join(sorted(topics))
                raise BadInput(f"{self._bag.path} has no topic {name!r}; there are {topic_names}")
            if not topics[name].n_messages:
                raise BadInput(
                    f"{self._bag.path}: the topic {name} has no message: leave it out, or record it again"
                )

    def rows_of(self, messages: Iterable[Message]) -> Iterator[Chunk]:
        """Yield the rows of messages as columns by name, each of shape (1,), as soon as they are complete."""
        self._losses = Losses()
        return self._chunks_of(self._resampled(messages, most_rows=1))

    def messages_of(self, bag: Bag) -> Iterator[Message]:
        """Yield the messages of a bag that continues this one.

        Raises:
            BadInput: If it encodes a topic otherwise, at once.
        """
        for name in self._topics:
            topic = bag.topics.get(name)
            if topic is None:
                continue
            kind = topic._replace(n_messages=0)
            if kind != self._bag.topics[name]._replace(n_messages=0):
                raise BadInput(
                    f"{bag.path}: the messages of {name} are of another type than those before: start a new run"
                )
        return bag.messages(self._topics)

    def _bag_chunks(self) -> Iterator[Chunk]:
        """Yield the rows as columns by name."""
        yield from self._chunks_of(self._blocks())
        self._refuse_without_rows()

    def _chunks_of(self, blocks: Iterable[Floats]) -> Iterator[Chunk]:
        """Yield blocks of rows as columns by name."""
        episodes = _Episodes()
        self._n_without_action = 0
        for rows in blocks:
            values = {field.column: rows[:, i + 1] for i, field in enumerate(self._plan.fields)}
            chunk: dict[str, NDArray[Any]] = {_TIME: rows[:, 0], **values}
            has_action = np.ones(len(rows), dtype=bool)
            if self._plan.action:
                chunk[_ACTION] = _action(self._plan.action, values)
                has_action = np.isfinite(chunk[_ACTION])
                self._n_without_action += int((~has_action).sum())
            if self._plan.columns.episodes.episode == _EPISODE:
                numbers = None
                if self._plan.episode is not None:
                    numbers = values[self._plan.episode]
                chunk[_EPISODE] = episodes.numbers(numbers, has_action)
            yield chunk

    def _refuse_without_rows(self) -> None:
        """Raise BadInput if no row has a number in each field, a value of each topic, or an action."""
        if not self._losses.n_rows:
            raise BadInput(
                f"{self._bag.path} has no row with a number in each field: {self._gaps()}"
            )
        for topic, n_missing in self._losses.n_missing.items():
            if n_missing == self._losses.n_rows:
                raise BadInput(
                    f"{self._bag.path} has no row with a value of {topic}: {_old_values(self._losses.n_missing)}"
                )
        if self._plan.action and self._n_without_action == self._losses.n_rows:
            raise BadInput(
                f"{self._bag.path}: no row has an action, because no message of {self._action_topics} is at most "
                "max_age_s before it: set a larger one"
            )

    def _blocks(self) -> Iterator[Floats]:
        """Yield the rows of the bag in blocks, and store them; those that are stored when called again."""
        if self._is_read:
            shape = (self._losses.n_rows, 1 + len(self._plan.fields))
            stored = np.memmap(self._row_file, dtype=np.float64, mode="r", shape=shape)
            yield from np.split(stored, range(BLOCK_ROWS, len(stored), BLOCK_ROWS))
            return
        self._losses = Losses()
        self._row_file.seek(0)
        self._row_file.truncate()
        for rows in self._resampled(self._bag.messages(self._topics), BLOCK_ROWS):
            rows.tofile(self._row_file)
            yield rows
        self._refuse_disorder()
        self._is_read = True

    def _resampled(self, messages: Iterable[Message], most_rows: int) -> Iterator[Floats]:
        """Yield the rows of messages in blocks, and count what is left out."""
        resampler = Resampler(
            self._plan.fields,
            self._decoders,
            self._plan.columns.times.period_s,
            self._plan.pairing.rows,
        )
        if self._plan.pairing.clock == STAMP:
            messages = self._by_stamp(messages)
        return resampler.blocks(messages, self._losses, most_rows)

    def _refuse_disorder(self) -> None:
        """Raise BadInput if many messages stand too late in a file that has no index to sort them by."""
        n_late = self._losses.n_late.total()
        if n_late <= _MOST_LATE * self._losses.n_messages:
            return
        ((topic, _),) = self._losses.n_late.most_common(1)
        raise BadInput(
            f"{self._bag.path} is not in the order of time, and has no index by which to sort it: {n_late:,} of "
            f"{self._losses.n_messages:,} messages, most of them of {topic}, stand more than a second behind later "
            "ones: `mcap recover` writes a file with an index"
        )

    def _by_stamp(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield messages with the times of their headers, if they have a header with a time."""
        for message in messages:
            time_ns = None
            if message.topic in self._stamped:
                time_ns = stamp_ns(self._bag.topics[message.topic], message.data)
            if time_ns is not None:
                message = Message(message.topic, time_ns, message.data)
            yield message

    @property
    def remarks(self) -> list[str]:
        """What the user should see at once; complete after the bag was read."""
        return [*self._loss_remarks(), *super().remarks]

    def _loss_remarks(self) -> list[str]:
        """Say what is in no row."""
        remarks = []
        losses = self._losses
        if self._bag.cut:
            remarks.append(
                f"The bag was cut off and is read up to the cut: {self._bag.cut}. {self._share_read()}"
            )
        if losses.jumps_s:
            topic, back_s = losses.jumps_s[0]
            times = "once"
            if len(losses.jumps_s) > 1:
                times = f"{len(losses.jumps_s):,} times, first"
            remarks.append(
                f"The clock jumps back {times} by {back_s:.4g} s, in {topic}, as when a simulation restarts: the "
                "messages that follow are read after a gap."
            )
        for topic, n_late in losses.n_late.items():
            remarks.append(
                f"{n_late:,} messages of {topic} stand more than a second behind later ones, and are left out."
            )
        if losses.n_unreadable:
            remarks.append(
                f"{losses.n_unreadable:,} messages have no value, because their bytes do not fit their type."
            )
        for topic, n_unpaired in losses.n_in_no_row.items():
            remarks.append(
                f"{n_unpaired:,} messages of {topic} count in no row, because no row is at their time."
            )
        n_gaps = max(losses.n_gaps.values(), default=0)
        if n_gaps > 0.2 * (losses.n_rows + n_gaps):
            remarks.append(f"Many times have no row: {self._gaps()}.")
        if max(losses.n_missing.values(), default=0) > 0.2 * losses.n_rows:
            remarks.append(f"Many rows lack a reading: {_old_values(losses.n_missing)}.")
        if self._plan.action and self._n_without_action > 0.2 * losses.n_rows:
            remarks.append(
                f"{self._n_without_action:,} of {losses.n_rows:,} rows have no action, because the newest message of "
                f"{self._action_topics} is older than max_age_s; nothing is learned from them."
            )
        return remarks

    def _share_read(self) -> str:
        """Say how much of a bag that was cut off was read."""
        n_messages = sum(self._bag.topics[name].n_messages for name in self._topics)
        losses = self._losses
        assert losses.start_ns is not None
        text = f"{losses.n_messages:,} of {n_messages:,} messages of its topics were read"
        if not self._bag.is_indexed:
            text = f"{losses.n_messages:,} messages of its topics were read, and nothing counts those behind the cut"
        return f"{text}: from {_date(losses.start_ns)} to {_date(losses.end_ns)}."

    @property
    def facts(self) -> list[str]:
        """How long after its row an action came, or that it is one in force; complete after the bag was read."""
        if not self._plan.action:
            return []
        topic = self._plan.action[0].topic
        lags_ms = self._losses.lags_ms[topic]
        if not lags_ms:
            return []
        lags = sorted(lags_ms)
        n_up_to = np.cumsum([lags_ms[lag_ms] for lag_ms in lags])
        median_ms = lags[np.searchsorted(n_up_to, n_up_to[-1] / 2)]
        text = f"Actions follow their rows by {median_ms} ms"
        if not median_ms:
            text = "Actions have the time of their rows"
        n_in_force = self._losses.n_in_force[topic]
        if n_in_force:
            text += f"; {n_in_force:,} of {self._losses.n_rows:,} rows have the action in force"
        return [f"{text}."]

    @property
    def notes(self) -> list[str]:
        """Remarks for the report; complete after the bag was read."""
        notes = []
        if self._losses.start_ns is not None:
            notes.append(
                f"Times are since the bag's first message, {_date(self._losses.start_ns)}."
            )
        if self._losses.n_gaps:
            notes.append(f"Rows were left out: {self._gaps()}.")
        if self._losses.n_missing:
            notes.append(f"Rows lack a reading: {_old_values(self._losses.n_missing)}.")
        return [*notes, *self.facts, *super().notes]

    def _gaps(self) -> str:
        return _old_values(self._losses.n_gaps) or "no message has one"

    @property
    def _action_topics(self) -> str:
        return ", ".join(dict.fromkeys(part.topic for part in self._plan.action))


def _old_values(counts: Counter[str]) -> str:
    """Return how often the topics that were missing most often were, empty without any."""
    return "; ".join(
        f"{topic} had no value, or one older than its max_age_s, {n:,} times"
        for topic, n in counts.most_common(3)
    )


def _date(time_ns: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_ns // 1000)).isoformat()


class _Episodes:
    """Numbers episodes: a new one begins after a row without an action, and where a number changes."""

    def __init__(self) -> None:
        self._number = 0
        self._had_action = True
        self._previous = math.nan

    def numbers(self, given: Floats | None, has_action: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number of each row's episode, shape (n_rows,)."""
        begins = ~np.append(self._had_action, has_action[:-1])
        if given is not None:
            changes = np.diff(given, prepend=self._previous)
            begins |= np.isfinite(changes) & (changes != 0)
            self._previous = float(given[-1])
        numbers = self._number + np.cumsum(begins)
        self._number = int(numbers[-1])
        self._had_action = bool(has_action[-1])
        return np.asarray(numbers, dtype=np.int64)


def _action(parts: Sequence[ActionPart], values: Mapping[str, Floats]) -> Floats:
    """Return the number of each row's action, NaN without one: bins count the last part fastest."""
    if not parts[0].bins:
        return values[parts[0].column]
    action = np.zeros(len(values[parts[0].column]))
    for part in parts:
        numbers = values[part.column]
        digit = np.digitize(numbers, part.bins).astype(np.float64)
        digit[~np.isfinite(numbers)] = np.nan
        action = action * (len(part.bins) + 1) + digit
    return action


# ---- checks before anything is written -------------------------------------------------------------------------------


def _examine(
    bag: Bag, plan: BagPlan, topics: Sequence[str], decoders: Mapping[str, Decoder]
) -> set[str]:
    """Check each field in the first message of its topic, and the clocks; return the topics with stamps.

    Raise BadInput if a field is not there or is no number, or if the clocks disagree.
    """
    offsets_s: dict[str, list[float]] = {}
    first_messages = bag.first_messages(topics, _N_EXAMPLES)
    for name in topics:
        examples = first_messages.get(name)
        if not examples:
            raise BadInput(
                f"{bag.path}: no message of {name} can be read; {bag.cut or 'it is empty'}"
            )
        topic = bag.topics[name]
        where = f"{bag.path}: {name} ({topic.type or topic.encoding})"
        try:
            contents = decoded(decoders[name], (example.data for example in examples))
        except ValueError as error:
            raise BadInput(f"{where} has a message that is not of this type: {error}") from None
        for field in plan.fields:
            if field.topic == name:
                _examine_field(field, contents, where)
        if has_stamp(topic, contents[0]):
            stamps_ns = [stamp_ns(topic, message.data) for message in examples]
            offsets_s[name] = [
                (stamp - message.time_ns) / SECOND_NS
                for stamp, message in zip(stamps_ns, examples, strict=True)
                if stamp
            ]
    medians = {name: float(np.median(offsets)) for name, offsets in offsets_s.items() if offsets}
    _check_clocks(bag.path, plan, topics, medians)
    return set(medians)


def _examine_field(field: Field, contents: Sequence[Any], where: str) -> None:
    """Raise BadInput if the first message with the elements that a field chooses does not hold a number there."""
    chosen = (one for one in contents if has_element(one, selected_part(field.steps)))
    try:
        number_at(next(chosen, contents[0]), field.steps, may_be_short=False)
    except FieldError as error:
        raise BadInput(f"{where}: {error}") from None


def _check_clocks(
    path: Path, plan: BagPlan, topics: Sequence[str], offsets_s: Mapping[str, float]
) -> None:
    """Raise BadInput if message stamps minus log times of two topics differ, unless the plan chose the log times."""
    if plan.pairing.clock == LOG or not offsets_s:
        return
    all_offsets_s = dict(offsets_s)
    if plan.pairing.clock == STAMP:
        # A topic without stamps has its log times
        all_offsets_s |= {name: 0.0 for name in topics if name not in offsets_s}
    lowest = min(all_offsets_s, key=lambda name: all_offsets_s[name])
    highest = max(all_offsets_s, key=lambda name: all_offsets_s[name])
    if all_offsets_s[highest] - all_offsets_s[lowest] <= _CLOCK_TOLERANCE_S:
        return
    remedy = 'choose clock = "log" for the log times of all topics'
    if plan.pairing.clock is None:
        remedy += ', or "stamp"'
    raise BadInput(
        f"{path}: the clocks of two topics disagree: stamps minus log times are {all_offsets_s[lowest]:.6g} s in "
        f"{lowest} and {all_offsets_s[highest]:.6g} s in {highest}, expected a difference below "
        f"{_CLOCK_TOLERANCE_S:g} s: {remedy}"
    )
