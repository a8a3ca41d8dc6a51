"""Rows whose columns changed during a run: they are read in the order of its record, as of a body (`life.arranging`).

The recording continues in a new file. Its header has the new channels and actions, and the name of the
file that describes the columns of the rows in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.formats.columns import ChannelColumn, Columns, is_column_in
from horde_agent.formats.format import Format, TableFile
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.life.arranging import LATER, NO_CHANGES, ArrangedBody, BodyChanges
from horde_agent.record.rows import OF_BODY
from horde_agent.record.segments import KEYS_OF_FILE, file_at
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import frozen_snapshot
from horde_agent.runs.storage.question_changes import RequestedChanges
from horde_agent.runs.storage.run import HeaderEnv, record_header
from horde_agent.toml import toml_value

_COLUMNS = "columns"
"""Key of a header: the name of the file of the columns, in the run's folder."""
_FREE_KEYS = ("actions", "tile_layout", "separator", "decimal", "header")
"""Keys of a columns file that may differ from those before; `refuse_other_actions` compares the first."""
_FIXED = tuple(name for name in ChannelColumn._fields if name not in ("column", "lost"))
"""Keys of a channel that stay."""


class RowChanges(NamedTuple):
    """What a command says about further rows.

    Attributes:
        body: Channels and actions that came or went, and further tilings.
        columns: File that describes the rows of now; None without one.
        questions: Those to add and to remove; None for none.
    """

    body: BodyChanges = NO_CHANGES
    columns: Path | None = None
    questions: RequestedChanges | None = None

    @classmethod
    def of(
        cls,
        *,
        columns: str | Path | None,
        channels: str | None,
        actions: str | None,
        tilings: str | Path | None,
        add: str | Path | None,
        remove: str | None,
        learns: bool = False,
    ) -> RowChanges:
        """Parse the options of a command; raise BadInput if one is invalid."""
        questions: RequestedChanges | None = None
        if add is not None or remove is not None:
            questions = RequestedChanges(_path(add), remove, learns)
        body = BodyChanges.of(channels, actions, _path(tilings))
        return cls(body, _path(columns), questions)

    @property
    def is_of_rows(self) -> bool:
        """Whether the changes concern the further rows."""
        return self.body != NO_CHANGES or self.columns is not None


def _path(path: str | Path | None) -> Path | None:
    if path is None:
        return None
    return Path(path)


NO_ROW_CHANGES = RowChanges()


class ArrangedRows(NamedTuple):
    """How further rows are read and recorded.

    Attributes:
        columns: Of the rows, with the channels in the order of the record.
        header: Of the recording from now on.
        is_changed: Whether the header differs from that before.
    """

    columns: Columns
    header: dict[str, Any]
    is_changed: bool = False

    def write(self, folder: RunFolder) -> None:
        """Write the file of the columns that the header names; raise OSError if that fails."""
        folder.write_columns(self.columns.to_toml(), self.header[_COLUMNS])
        folder.seal()


def columns_file(folder: RunFolder, header: dict[str, Any]) -> Path:
    """Return the file of the columns of a run on data, by the header of its recording."""
    return folder.path / str(header.get(_COLUMNS, folder.columns.name))


def columns_of(folder: RunFolder, header: dict[str, Any]) -> Columns:
    """Return the columns of a run on data, with the ranges that it found; raise BadInput if it has none.

    `header` is that of its recording.
    """
    file = columns_file(folder, header)
    if not file.is_file():
        raise BadInput(
            f"{folder.path} has no data set with columns, so no further rows continue it"
        )
    return Columns.read(file)


def refuse_changes(folder: RunFolder, changes: RowChanges) -> None:
    """Raise BadInput if a run has frozen weights, which have no other columns or questions."""
    if changes != NO_ROW_CHANGES and frozen_snapshot(folder) is not None:
        raise BadInput(
            f"{folder.path} compares with frozen weights, which have no other columns or questions: move "
            f"{folder.frozen} out of the run to continue without them"
        )


def refuse_unended(folder: RunFolder) -> None:
    """Raise BadInput: recorded rows of a run are to be learned from before it changes."""
    raise BadInput(
        f"{folder.path} was not ended in order, and has rows to learn from: resume it first as it is, then with other "
        "columns or questions"
    )


def present_columns(before: Columns, changes: RowChanges, where: str) -> Columns:
    """Return the columns that further rows have, in their order.

    Args:
        before: Those of the rows before, in the order of the record.
        changes: What the command says.
        where: Name of the rows, for messages.

    Raises:
        BadInput: If they do not fit those before.
    """
    channels = changes.body.channels
    described = before
    if changes.columns is not None:
        described = Columns.read(changes.columns)
        refuse_other_meaning(before, described, changes.columns)
        present = _with_former_meaning(before, described.channel)
    else:
        present = [channel for channel in before.channel if channel.name not in channels.lost]
        further = set(channels.new) - {channel.name for channel in before.channel}
        for name in channels.new:
            if name in further:
                present.append(ChannelColumn(column=name, name=name, group=LATER))
    for channel in present:
        if channel.name in channels.new and channel.transition:
            raise BadInput(
                f"{channels.flag} new:{channel.name}: a reading of transitions cannot come in the middle of a run; "
                "give each row that of its observation"
            )
    columns = replace(before, channel=tuple(present))
    action_names = _present_actions(before, described, changes, where)
    return replace(columns, csv=described.csv).with_keys(actions=action_names)


def _with_former_meaning(
    before: Columns, described: Sequence[ChannelColumn]
) -> list[ChannelColumn]:
    """Return channels of which those that were there before keep all but their column."""
    channel_before = {channel.name: channel for channel in before.channel}
    channels = []
    for channel in described:
        former = channel_before.get(channel.name)
        if former is not None:
            channel = former._replace(column=channel.column, lost=channel.lost)
        channels.append(channel)
    return channels


def _present_actions(
    before: Columns, described: Columns, changes: RowChanges, where: str
) -> tuple[str, ...]:
    """Return the names of the actions of further rows; raise BadInput if they are numbered otherwise than before."""
    actions = changes.body.actions
    if before.actions.action is None:
        if actions.new or actions.lost:
            raise BadInput(f"{actions.flag}: the rows of {where} have no actions; omit it")
        return before.actions.actions
    former = before.actions.actions
    names = described.actions.actions
    if changes.columns is None or not names:
        return (*former, *(name for name in actions.new if name not in former))
    if names[: len(former)] != former:
        raise BadInput(
            f"{changes.columns} names the actions {', '.join(names)}, and the record {', '.join(former)}: name these "
            "first, as their numbers stay, and further ones behind them"
        )
    return names


def refuse_other_meaning(before: Columns, described: Columns, file: Path) -> None:
    """Raise BadInput if a columns file gives a column another meaning than the one before."""
    remedy = "only channels and actions may come and go: write it as it was, or start a new run"
    keys = described.keys
    for key, value in before.keys.items():
        if key not in _FREE_KEYS and keys[key] != value:
            raise BadInput(f"{file}: {key} is {keys[key]!r}, which was {value!r}; {remedy}")
    layout = described.tile_layout
    if layout is not None and layout != before.tile_layout:
        raise BadInput(f"{file} has another tile_layout than before: add tilings by --tilings")
    channel_before = {channel.name: channel for channel in before.channel}
    for channel in described.channel:
        refuse_other_channel(channel_before.get(channel.name), channel, file)


def refuse_other_channel(
    before: ChannelColumn | None, described: ChannelColumn, where: Path
) -> None:
    """Raise BadInput if a description gives the readings of a channel another meaning; a range may be left out."""
    if before is None:
        return
    for key in _FIXED:
        value_before = getattr(before, key)
        described_value = getattr(described, key)
        if key in ("low", "high") and described_value is None:
            continue
        if key == "group" and LATER in (value_before, described_value):
            continue
        if key == "sensor" and before.group == LATER:
            continue
        if described_value != value_before:
            raise BadInput(
                f"{where}: {key} of the channel {described.name!r} is {toml_value(described_value)}, which was "
                f"{toml_value(value_before)}; "
                "write it as it was, as the weights belong to its readings"
            )


def present_table(
    data_format: Format, more: Path, before: Columns, settings: Path | None, changes: RowChanges
) -> Table:
    """Return further rows as a table, whose channels have the former meaning.

    Args:
        data_format: Their format.
        more: File, folder or name.
        before: The columns before, in the order of the record.
        settings: The columns file of the run's settings; None without one.
        changes: What the command says.

    Raises:
        BadInput: If they cannot be read, or do not fit those before.
    """
    if isinstance(data_format, TableFile):
        present = present_columns(before, changes, str(more))
        columns_there = data_format.names(more, present.csv)
        names_before = [channel.name for channel in before.channel]
        column_of = {
            channel.name: channel.column for channel in (*before.channel, *present.channel)
        }
        names_there = [
            name for name, column in column_of.items() if is_column_in(column, columns_there)
        ]
        lost = {channel.name for channel in before.channel if channel.lost}
        channels = changes.body.channels
        channels.order(names_before, names_there, {*lost, *channels.lost}, str(more))
        return data_format.open_as(more, present)
    # The data set describes itself, or its columns are topics
    table = data_format.open(more, changes.columns or settings)
    channel_before = {channel.name: channel for channel in before.channel}
    for channel in table.columns.channel:
        without_range = channel._replace(low=None, high=None)
        refuse_other_channel(channel_before.get(channel.name), without_range, more)
    channels_now = _with_former_meaning(before, table.columns.channel)
    table.arrange(replace(table.columns, channel=tuple(channels_now)))
    return table


def refuse_open_range(present: Columns, changes: RowChanges, file: Path) -> None:
    """Raise BadInput if a new channel of a stream has no range, given the columns file of the run."""
    for channel in present.channel:
        if channel.low is None or channel.high is None:
            raise BadInput(
                f"{changes.body.channels.flag} new:{channel.name}: a stream shows its range only at its end; copy "
                f"{file}, add a [[channel]] with low and high, and name the copy by --columns"
            )


def arranged_rows(
    folder: RunFolder,
    recorded: dict[str, Any],
    before: Columns,
    present: Table,
    changes: RowChanges,
) -> ArrangedRows:
    """Return how further rows are recorded.

    Args:
        folder: The run's folder.
        recorded: Header of its recording.
        before: The columns before, in the order of the record.
        present: Describes the rows of now, with ranges; nothing is read from it.
        changes: What the command says.

    Raises:
        BadInput: If channels or actions differ that the command does not name.
    """
    lost_actions = changes.body.actions.lost
    header_now = dict(present.header)
    header_now["actions"] = [name for name in header_now["actions"] if name not in lost_actions]
    body = ArrangedBody(HeaderEnv(header_now), recorded, changes.body, present.where)
    of_body = record_header(body, Interface.of(body))
    header = {key: value for key, value in recorded.items() if key not in KEYS_OF_FILE}
    header |= {key: value for key, value in of_body.items() if key in OF_BODY}
    present_channels = {channel.name: channel for channel in present.columns.channel}
    former_channels = {channel.name: channel for channel in before.channel}
    lost = set(header["lost"])
    arranged = []
    for channel in header["channels"]:
        name = channel["name"]
        column = present_channels.get(name) or former_channels[name]
        arranged.append(
            column._replace(group=channel["group"], sensor=channel["is_sensor"], lost=name in lost)
        )
    columns = replace(present.columns, channel=tuple(arranged)).with_keys(
        actions=tuple(header["actions"]), tile_layout=header["tile_layout"]
    )
    is_changed = any(
        recorded.get(key) != header.get(key) for key in OF_BODY if key not in ("dtype", _COLUMNS)
    )
    is_changed |= columns != before
    if is_changed:
        header[_COLUMNS] = _free_name(folder)
    return ArrangedRows(columns, header, is_changed)


def _free_name(folder: RunFolder) -> str:
    """Return the name of a columns file that is not there."""
    number = 2
    while file_at(folder.columns, number).exists():
        number += 1
    return file_at(folder.columns, number).name
