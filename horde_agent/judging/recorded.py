"""The rows of a data set or of a run as `Episodes`, with their rewards.

A row's reward is that of the transition that led to it. The last action of a truncated episode
counts with its reward, though the state that it led to may be unknown. An episode begins at the first
row, or after a row that ends one; what follows a gap within an episode has no first state and is left
out, unless the rows are cut into stretches of a fixed number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.cells import NO_SHIFT
from horde_agent.formats.columns import OBSERVATION, REWARD_NAMES, shifts_of
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.interface.held import filled_rows
from horde_agent.life.flags import are_broken, borders_of
from horde_agent.life.learner import encoder
from horde_agent.record import Flag, Phase, Stream, read_in_parts
from horde_agent.refusals import BadInput
from horde_agent.runs.config import is_life, run_of
from horde_agent.runs.sources.data_set import open_data_set
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import HeaderEnv
from horde_agent.scoring.episodes import Episodes
from horde_agent.toml import toml_value
from horde_agent.types import Bools, Floats, Integers

_ACTION_GROUP = "action"  # of channels that are parts of a continuous action
_ENDS: int = Flag.TERMINATED | Flag.TRUNCATED


class RecordedData(NamedTuple):
    """Episodes, and what policies see of them.

    Attributes:
        name: Of the data, for messages.
        episodes: The episodes.
        observations: Of each row, without reward and action, shape (n_rows, n_channels).
        channels: Names of these channels.
        actions: Names of the actions.
        notes: Remarks for the report.
        n_unknown_ends: Number of truncated episodes of which the last state is unknown.
    """

    name: str
    episodes: Episodes
    observations: NDArray[np.float32]
    channels: tuple[str, ...]
    actions: tuple[str, ...]
    notes: tuple[str, ...]
    n_unknown_ends: int


def read_recorded(
    data: Path, columns: Path | None = None, horizon: int | None = None
) -> RecordedData:
    """Read a data set or a run; raise BadInput if rewards, actions or their probabilities are missing.

    Args:
        data: A data set, or the folder of a run.
        columns: File that describes the columns of a table.
        horizon: Number of steps of the stretches into which the rows are cut; episodes as they are
            when None.
    """
    if horizon is not None and horizon < 1:
        raise BadInput(f"--horizon must be at least 1, not {horizon}")
    name = str(data)
    run = run_of(data)
    if run is not None and is_life(run):
        if columns is not None:
            raise BadInput(
                f"{name} is a run, which describes its columns itself: leave out --columns"
            )
        folder = RunFolder(run)
        header = folder.extent().header
        if not header.get("b_known", True):  # its rows have 1, as of a sure action
            raise BadInput(f"{_no_b(name)}, and learn from that table again")
        return recorded_data(name, _joined(read_in_parts(folder.life)), header, horizon=horizon)
    table = open_data_set(data, columns, counts_each_reward=True)
    if table.columns.actions.action is None:
        raise BadInput(
            f"{table.where} has no column of discrete actions, which policies choose among: name it "
            "by `action` in the columns file"
        )
    if not table.header["b_known"]:
        raise BadInput(_no_b(table.where))
    _check_whose_reward(table)
    rows = _joined(table)
    return recorded_data(name, rows, table.header, tuple(table.notes), horizon)


def _joined(parts: Iterable[Stream]) -> NDArray[Any]:
    return np.concatenate([part.rows for part in parts])


def _check_whose_reward(table: Table) -> None:
    """Raise BadInput if a channel is a reward that may be, or is, that of the row's action: it is seen too early."""
    columns = table.columns
    is_of_row = columns.episodes.convention == OBSERVATION or columns.run.phase is not None
    for channel in columns.channel:
        if channel.name.lower() not in REWARD_NAMES or channel.transition:
            continue
        column = toml_value(channel.column)
        if channel.column == columns.rewards.next_reward:
            raise BadInput(
                f"{table.where}: the channel {column} shows the reward of an action before it is taken: write "
                "transition = true into its [[channel]], or remove it"
            )
        if not is_of_row and not table.header["reward_known"]:
            raise BadInput(
                f"{table.where}: is {column} the reward of the row's action, or of the transition that led to the row? "
                f"Write transition = true into its [[channel]], or reward = {column} at the top of the columns file"
            )


def _no_b(name: str) -> str:
    return (
        f"{name} has no probability b of the actions taken, by which importance sampling divides: "
        'name its column by `b` in the columns file, or write b = "estimate"'
    )


def recorded_data(
    name: str,
    rows: NDArray[Any],
    header: Mapping[str, Any],
    notes: tuple[str, ...] = (),
    horizon: int | None = None,
) -> RecordedData:
    """Return the episodes of rows of a recording; raise BadInput as `read_recorded` does.

    Args:
        name: Of the data, for messages.
        rows: Shape (n_rows,).
        header: Describes them.
        notes: Remarks on the data.
        horizon: As of `read_recorded`.
    """
    interface = Interface.of(HeaderEnv(header))
    reward = _rewards(name, rows, interface, header)
    pieces = _pieces(name, rows, horizon)
    index = np.concatenate([np.arange(a, b) for a, b in zip(pieces.first, pieces.end, strict=True)])
    is_last = np.zeros(len(index), dtype=bool)
    is_last[np.cumsum(pieces.end - pieces.first) - 1] = True
    acted = index[~is_last]
    b = rows["b"][acted].astype(np.float64)
    if not ((b > 0.0) & (b <= 1.0)).all():
        raise BadInput(_no_b(name))
    rewards = reward[acted + 1]
    is_known = np.isfinite(rewards)
    if not is_known.all():
        step = int(rows["step"][acted[int(is_known.argmin())]])
        raise BadInput(
            f"{name} has no finite reward after step {step:,}: each step of an episode needs one"
        )
    channels = _seen_channels(interface)
    observation = rows["observation"][index]
    is_missing = np.isnan(observation[:, channels])
    # A sensor that was missing before is no unknown state
    is_new = is_missing[1:] & ~is_missing[:-1]
    is_unknown = is_last & np.append(False, is_new.any(axis=1))
    # No estimate reads it, unless a value is asked for after a truncation, which is then refused
    observation[is_unknown] = rows["observation"][index[is_unknown] - 1]
    begins = np.append(True, is_last[:-1])
    filled = filled_rows(observation, begins, interface)
    encode = encoder(interface)
    tiles = np.array([encode(one) for one in filled.for_tiles])
    episodes = Episodes(
        length=pieces.end - pieces.first - 1,
        tiles=tiles,
        n_features=interface.coder.n_features,
        n_actions=len(interface.actions),
        action=rows["action"][acted].astype(np.int64),
        b=b,
        reward=rewards,
        is_terminated=pieces.is_terminated,
    )
    return RecordedData(
        name=name,
        episodes=episodes,
        observations=filled.known[:, channels],
        channels=tuple(interface.names[i] for i in channels),
        actions=interface.actions,
        notes=(*notes, *pieces.notes, *_truncation_notes(episodes, horizon)),
        n_unknown_ends=int(is_unknown.sum()),
    )


def _seen_channels(interface: Interface) -> list[int]:
    """Return the channels that policies see: not the reward, nor parts of the action."""
    return [
        i
        for i, channel in enumerate(interface.channels)
        if channel.name.lower() not in REWARD_NAMES and channel.group != _ACTION_GROUP
    ]


def _rewards(
    name: str, rows: NDArray[Any], interface: Interface, header: Mapping[str, Any]
) -> Floats:
    """Return the reward that led to each row, in its own unit, NaN if unknown, shape (n_rows,)."""
    recorded = rows["reward"].astype(np.float64)
    if not np.isnan(recorded).all():
        return recorded
    for i, channel in enumerate(interface.names):
        if channel.lower() in REWARD_NAMES:
            shift = shifts_of(header).get(channel, NO_SHIFT)
            return shift.values(rows["observation"][:, i])
    raise BadInput(
        f"{name} has no reward, whose sum is the value of a policy: name its column by `next_reward` in the columns "
        f"file, or a channel {' or '.join(REWARD_NAMES)}; there are {', '.join(interface.names)}"
    )


class _Pieces(NamedTuple):
    """Rows [first, end) of each episode, its last state included, shape (n_episodes,); how it ended; remarks."""

    first: Integers
    end: Integers
    is_terminated: Bools
    notes: tuple[str, ...]


def _pieces(name: str, rows: NDArray[Any], horizon: int | None) -> _Pieces:
    """Return the rows of each episode; raise BadInput if there is none."""
    first, end = borders_of(rows)
    previous = np.maximum(first - 1, 0)
    begins = (rows["phase"][previous] == Phase.END) | ((rows["flags"][previous] & _ENDS) > 0)
    begins[0] = True
    is_terminated = (rows["flags"][end - 1] & Flag.TERMINATED) > 0
    is_long = end - first > 1
    notes = []
    if horizon is None:
        is_lost = is_long & ~begins
        is_after_gap = is_lost & are_broken(rows["flags"][first])
        if is_after_gap.any():
            raise BadInput(
                _gap_within_an_episode(name, rows, first[is_after_gap], end[is_after_gap])
            )
        n_cut = int(is_lost.sum())
        if n_cut:
            notes.append(
                f"{n_cut:,} stretches after an excursion within an episode were left out, with their "
                "rewards: they have no first state. The episodes count as truncated at the excursion."
            )
        is_whole = is_long & begins
        pieces = _Pieces(first[is_whole], end[is_whole], is_terminated[is_whole], tuple(notes))
    else:
        pieces = _stretches(first[is_long], end[is_long], is_terminated[is_long], horizon)
    if not len(pieces.first):
        advice = "check `episode` and `terminated` in the columns file"
        if horizon is not None:
            advice = "choose a smaller --horizon"
        raise BadInput(f"{name} has no episode with a step from its first state: {advice}")
    return pieces


def _gap_within_an_episode(name: str, rows: NDArray[Any], first: Integers, end: Integers) -> str:
    """Say that stretches [first, end) of rows begin after a gap, where no episode begins."""
    n_rewards = int((end - first).sum())
    step = int(rows["step"][first[0]])
    return (
        f"{name} has {len(first):,} gaps within episodes, the first before step {step:,}: the {n_rewards:,} rewards "
        "after them would be in no return, which begins with an episode; remove these episodes, or judge stretches "
        "by --horizon N"
    )


def _stretches(first: Integers, end: Integers, is_terminated: Bools, horizon: int) -> _Pieces:
    """Return stretches of `horizon` steps; the last of a piece overlaps that before it, or ends by a termination.

    So each reward of a piece of at least `horizon` steps is in some return.
    """
    starts = []
    ends = []
    terminations = []
    n_short = 0
    n_lost = 0
    bounds = zip(first.tolist(), end.tolist(), is_terminated.tolist(), strict=True)
    for begin, stop, terminated in bounds:
        n_steps = stop - 1 - begin
        if n_steps < horizon and not terminated:
            n_short += 1
            n_lost += n_steps
            continue
        for place in range(begin, stop - 1, horizon):
            start = place
            if not terminated:
                start = min(place, stop - 1 - horizon)
            last = min(start + horizon + 1, stop)
            starts.append(start)
            ends.append(last)
            terminations.append(last == stop and terminated)
    notes = [
        f"The rows were cut into {len(starts):,} stretches of {horizon:,} steps; values are those of "
        "the states in which they begin. Neighbouring stretches are not independent, as the "
        "intervals assume: the last before a truncation may overlap that before it."
    ]
    if n_short:
        notes.append(
            f"{n_short:,} pieces of fewer steps than --horizon were left out, with their {n_lost:,} rewards."
        )
    return _Pieces(
        first=np.array(starts, dtype=np.int64),
        end=np.array(ends, dtype=np.int64),
        is_terminated=np.array(terminations, dtype=bool),
        notes=tuple(notes),
    )


def _truncation_notes(episodes: Episodes, horizon: int | None) -> tuple[str, ...]:
    """Return a remark if episodes were truncated."""
    lengths = episodes.length[~episodes.is_terminated]
    if not len(lengths) or horizon is not None:
        return ()
    return (
        f"{len(lengths):,} of {episodes.n_episodes:,} episodes were truncated, after "
        f"{lengths.min():,} to {lengths.max():,} steps. Their returns are those of these stretches, "
        "a finite horizon, unless truncated = fitted adds the fitted Q's value of the last state.",
    )
