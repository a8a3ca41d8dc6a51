"""Learn from arrays and tables in memory, or from any iterator over parts of a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from horde_agent.formats.arrays import as_chunk, chunks_of, is_table
from horde_agent.formats.columns import ESTIMATE, MISSING_READING, Columns
from horde_agent.formats.format import TableFile
from horde_agent.formats.minari import open_minari
from horde_agent.formats.part import Chunk
from horde_agent.formats.registry import format_of
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.learner import predict_along
from horde_agent.policies import is_policy
from horde_agent.record import Stream, new_rows, read
from horde_agent.refusals import BadInput
from horde_agent.runs.config import IN_PYTHON, LearnConfig, resolve
from horde_agent.runs.sources.data_set import act_by, data_session, open_data_set
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import HeaderEnv, Questions
from horde_agent.types import Floats


class Learned(NamedTuple):
    """A Horde that has learned from a data set.

    Attributes:
        horde: The demons.
        interface: Channels, actions and tiles of the data set.
        summary: As in summary.json.
        path: The run's folder.
    """

    horde: Learner
    interface: Interface
    summary: dict[str, Any]
    path: Path

    def predictions(self, observations: Any = None) -> Floats:
        """Return the predictions at each row by the present weights; nothing is learned.

        Args:
            observations: Readings of the channels, after origin and scale, shape (n_rows,
                n_channels), consecutive in time; the rows that were learned from, and those held out, when None.

        Returns:
            Shape (n_rows, n_demons), float64, in the order of `horde.names`. Rows that were dropped
            for a missing number have no prediction. `horde export RUN --predictions` writes them
            with the number of each step, unless the questions were given in Python.

        Raises:
            ValueError: If the observations have another shape.
            FileNotFoundError: If the run's record was removed.
        """
        if observations is None:
            rows = read(RunFolder(self.path).life)
        else:
            rows = Stream(
                _rows_with(np.asarray(observations, dtype=np.float32), len(self.interface.channels))
            )
        return predict_along(rows, self.horde, self.interface)


def learn_from(
    observations: Any,
    actions: Any = None,
    *,
    questions: str | Path | Questions,
    b: Any = None,
    terminations: Any = None,
    truncations: Any = None,
    episodes: Any = None,
    times: Any = None,
    channels: Sequence[str] | None = None,
    rewards: Any = None,
    action_names: Sequence[str] = (),
    ranges: Any = None,
    period_s: float = 1.0,
    tile_layout: str | None = None,
    missing: str = MISSING_READING,
    convention: str | None = None,
    columns: str | Path | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Learned:
    """Learn from a data set, off-policy if b is known, and write a run's folder.

    Row t is the observation after t steps, the action taken from it, and the probability b of that
    action. Rows of transitions, (s, a, r, done), need `convention="transition"` and the names of
    the channels that are `rewards`.

    Args:
        observations: Array of shape (n_rows, n_channels); or a table with named columns (pandas,
            pyarrow, a dict of arrays), an iterable of consecutive tables, or a function that
            returns one. Memory holds one table at a time. An iterator that can be read only once
            requires `ranges` and, with actions, `action_names`. Or the path of a table: a CSV,
            Parquet or npz file, or a folder of Parquet files. Or a Minari data set, its name, or
            the folder of a LeRobot data set, which need no other columns. Or a robot's bag, with
            `columns`.
        actions: Discrete action from each row, shape (n_rows,); None if unknown: then the first
            70 % of the rows are learned from, and scored on the others. With tables, this and the
            next arguments name columns.
        questions: Family (`excursions`, `nexting`, `policies`), question file, GVFs, or a function
            of the interface.
        b: Probability of each action in (0, 1], shape (n_rows,); or the policy that chose them; or
            "estimate". None if it is unknown: then questions must be about the behaviour.
        terminations: Which observations are terminal, shape (n_rows,); such a row has no action.
            See `convention`.
        truncations: Which rows are the last ones of episodes that did not terminate, as at a time
            limit, shape (n_rows,); the next row follows a gap. A row must not be both.
        episodes: Number of each row's episode, not decreasing, shape (n_rows,); an episode's last
            row has no action.
        times: Time of each row in seconds, shape (n_rows,); a late row follows a gap.
        channels: Names of the observation's columns; obs_0.. for arrays, all other columns of a
            table.
        rewards: Reward of each row's action, shape (n_rows,), or with tables the name of its
            column: what `Reward()` is. A list of names instead makes channels of rewards: those
            with a reading of the transition from the row to the next one, which gets it; the first
            of them is then the reward, too. Unknown when None.
        action_names: Names of the actions; action_0.. by default.
        ranges: Lowest and highest reading of each channel, shape (n_channels, 2); those of the data
            when None.
        period_s: Duration of a step in seconds.
        tile_layout: TOML text of the tiles (docs/questions.md); a default when None.
        missing: What a row is in which a channel has no value (NaN, None): "reading", a row without that
            reading; "gap", no row, and times need not increase; "error", refused.
        convention: "observation" if `terminations` are about the observations of the rows,
            "transition" if about the states that the actions led to. When None, as "observation",
            but a terminal row with an action and its b is refused.
        columns: TOML file that describes the columns of a file, as --columns of `horde learn`,
            instead of the other arguments; a bag needs one.
        out: New folder for the results; the next free runs/data-N when None.
        settings: As of `horde learn`: passes, steps, seed, algorithm, step_size, ...

    Returns:
        The Horde and where its results are.

    Raises:
        BadInput: If an argument or a row is invalid, or no step can be learned from; nothing is
            left in `out`.

    Warns:
        UserWarning: If much of the data set is unusual: many gaps, an action that never occurs, b =
            1 everywhere.

    Examples:
        >>> import tempfile
        >>> from horde_agent import GVF, Channel, ConstantAction
        >>> observations, actions = np.tile([[0.0], [1.0]], (200, 1)), np.zeros(400, dtype=int)
        >>> question = GVF("next", ConstantAction(0, n_actions=1), Channel(0), continuation=0.0)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     learned = learn_from(observations, actions, b=np.ones(400), questions=[question], out=f"{out}/run")
        >>> learned.summary["learning_steps"], learned.horde.predictions.round(1)
        (399, array([0.]))
    """
    own_questions: Questions | None = None
    if isinstance(questions, str | Path):
        config = resolve(data_settings(settings, str(questions), out))
    else:
        own_questions = questions
        config = replace(resolve(data_settings(settings, "nexting", out)), questions=IN_PYTHON)
    policy = None
    if is_policy(b) or (isinstance(b, str) and b == ESTIMATE):
        policy = b
        b = None
    named_rewards = rewards
    if _is_list_of_names(rewards) and not rewards:
        named_rewards = None
    described_by_itself = {
        "actions": actions,
        "terminations": terminations,
        "truncations": truncations,
        "episodes": episodes,
        "times": times,
        "channels": channels,
        "rewards": named_rewards,
        "action_names": action_names or None,
        "ranges": ranges,
        "tile_layout": tile_layout,
        "convention": convention,
        "b": b,
    }
    if columns is not None or _is_data_set(observations):
        table = _opened(observations, columns, missing, described_by_itself)
    else:
        names = {
            "action": actions,
            "terminated": terminations,
            "truncated": truncations,
            "episode": episodes,
            "time": times,
            "b": b,
        }
        channels_of_rewards: tuple[str, ...] = ()
        if _is_list_of_names(rewards):
            channels_of_rewards = tuple(rewards)
        else:
            names["next_reward"] = rewards
        facts = {
            "period_s": period_s,
            "actions": tuple(action_names),
            "tile_layout": tile_layout,
            "missing": missing,
            "convention": convention,
        }
        channel_names = _ChannelNames(channels, channels_of_rewards)
        table = _table(observations, names, channel_names, ranges, facts)
    if policy is not None:
        act_by(table, policy)
    return _learn(table, config, own_questions)


def _learn(table: Table, config: LearnConfig, own_questions: Questions | None) -> Learned:
    """Learn from a table in a new folder; `own_questions` replace those of the settings."""
    folder = RunFolder.create(config)
    config = replace(config, out=folder.path)
    with folder.locked():
        try:
            console = Console(stderr=True, quiet=True)
            session = data_session(table, config, folder, console, questions=own_questions)
            for remark in table.remarks:
                warnings.warn(remark, stacklevel=3)
            session.begin()
            summary = session.learn()
        except BaseException:
            if not folder.summary.is_file():
                folder.give_back()
            raise
    return Learned(session.run.horde, session.run.interface, summary, folder.path)


def _rows_with(observations: NDArray[np.float32], n_channels: int) -> NDArray[Any]:
    """Return rows of a record with these observations and nothing else."""
    if observations.ndim != 2 or observations.shape[1] != n_channels:
        raise ValueError(
            f"observations must have the shape (n_rows, {n_channels}), not {observations.shape}"
        )
    rows = new_rows(len(observations), n_channels)
    rows["observation"] = observations
    return rows


def interface_of(data: Any) -> Interface:
    """Return channels, actions and tiles of a data set, to ask questions about.

    Args:
        data: A Minari data set, or its name; or the folder of a LeRobot data set.

    Raises:
        BadInput: If it cannot be read, or has other spaces.

    Examples:
        >>> import json, tempfile
        >>> import pyarrow, pyarrow.parquet
        >>> from horde_agent import interface_of
        >>> features = {"observation.state": {"dtype": "float32", "shape": [2], "names": ["elbow", "wrist"]}}
        >>> features["action"] = {"dtype": "int64", "shape": [1]}
        >>> info = {"codebase_version": "v3.0", "fps": 10, "features": features}
        >>> frames = {"observation.state": [[0.1, 0.7], [0.2, 0.6]], "action": [0, 1]}
        >>> frames |= {"episode_index": [0, 0], "timestamp": [0.0, 0.1]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("meta", "data"):
        ...         Path(folder, name).mkdir()
        ...     _ = Path(folder, "meta", "info.json").write_text(json.dumps(info))
        ...     pyarrow.parquet.write_table(pyarrow.table(frames), f"{folder}/data/frames.parquet")
        ...     interface = interface_of(folder)
        >>> interface.names, interface.period_s
        (('elbow', 'wrist'), 0.1)
    """
    return Interface.of(HeaderEnv(_opened(data, None, MISSING_READING, {}).header))


def _array(observations: Any) -> NDArray[Any]:
    try:
        return np.asarray(observations)
    except ValueError as error:  # lists of several lengths
        raise BadInput(f"observations must have the shape (n_rows, n_channels): {error}") from None


class _ChannelNames(NamedTuple):
    """Names of the channels, None for the default, and of those among them that belong to transitions."""

    channels: Sequence[str] | None
    rewards: tuple[str, ...]


def _is_list_of_names(rewards: Any) -> bool:
    """Return whether the argument `rewards` names channels."""
    return isinstance(rewards, list | tuple) and all(isinstance(name, str) for name in rewards)


def _is_data_set(data: Any) -> bool:
    """Return whether an argument is a data set, or its path or name, that no arguments can describe."""
    if isinstance(data, str | Path):
        return not isinstance(format_of(Path(data)), TableFile)
    return hasattr(data, "iterate_episodes")


def _opened(
    data: Any, columns: str | Path | None, missing: str, others: Mapping[str, Any]
) -> Table:
    """Return a data set that a file or itself describes; raise BadInput if one of the other arguments is given."""
    reason = "is in the columns file"
    if columns is None:
        reason = "is not for a data set that describes itself"
    for name, value in others.items():
        if value is not None:
            raise BadInput(f"{name} {reason}: leave it out")
    if columns is not None:
        if not isinstance(data, str | Path):
            raise BadInput("columns describes a file: pass its path, or leave columns out")
        return open_data_set(Path(data), Path(columns))
    if isinstance(data, str | Path):
        table = open_data_set(Path(data), None)
    else:
        table = open_minari(data)
    table.columns = Columns.of({"missing": missing}, table.columns)
    return table


def _table(
    observations: Any,
    names: Mapping[str, Any],
    channel_names: _ChannelNames,
    ranges: Any,
    facts: Mapping[str, Any],
) -> Table:
    """Return the table of `learn_from`; `names` are arrays or names of columns, `facts` other attributes of columns."""
    chunks: Callable[[], Iterable[Chunk]]
    channels = channel_names.channels
    where = "the data set"
    is_sequence = isinstance(observations, list | tuple)
    if isinstance(observations, np.ndarray) or (
        is_sequence and not (observations and is_table(observations[0]))
    ):
        named = {k: k for k, v in names.items() if v is not None}
        arrays = {"observation": _array(observations), **{k: np.asarray(names[k]) for k in named}}
        shape = arrays["observation"].shape
        if len(shape) != 2:
            raise BadInput(f"observations must have the shape (n_rows, n_channels), not {shape}")
        chunks = lambda: chunks_of([arrays])  # noqa: E731
        described = [
            (f"observation_{i}", f"obs_{i}" if channels is None else channels[i])
            for i in range(shape[1])
        ]
    else:
        named = {key: str(name) for key, name in names.items() if name is not None}
        used = set(named.values())
        if isinstance(observations, str | Path):
            where = str(observations)
            path = Path(observations)
            source = format_of(path)
            assert isinstance(source, TableFile)
            columns_there = source.names(path)
            chunks = lambda: source.chunks(path, wanted)  # noqa: E731
        else:
            chunks, first = _of_tables(observations)
            columns_there = list(first)
        chosen = channels or [column for column in columns_there if column not in used]
        described = [(str(column), str(column)) for column in chosen]
        wanted = [column for column, _ in described] + [*used]
    settings = {"channel": channel_tables(described, ranges, channel_names.rewards), **named}
    for column, name in described:
        if name in channel_names.rewards[:1]:
            settings["next_reward"] = column
    columns = Columns.of(settings, Columns().with_keys(**facts))
    return Table(chunks, columns, where)


def data_settings(
    settings: Mapping[str, Any], questions: str, out: str | Path | None
) -> LearnConfig:
    """Return the settings of a run on data in Python; raise BadInput at an unknown one."""
    try:
        path = None if out is None else Path(out)
        return replace(LearnConfig(), backend="data", questions=questions, out=path, **settings)
    except TypeError:
        unknown = sorted(set(settings) - set(vars(LearnConfig())))
        raise BadInput(f"unknown setting {unknown[0]!r}: see horde learn --help") from None


def _of_tables(tables: Any) -> tuple[Callable[[], Iterable[Chunk]], Chunk]:
    """Return a function that yields tables in parts, and the first table."""
    if is_table(tables):
        return lambda: chunks_of([tables]), as_chunk(tables)
    if not callable(tables) and not isinstance(tables, Iterable):
        raise BadInput(
            f"observations must be an array, a table, or tables one after another, not {tables!r}"
        )
    is_once = not callable(tables) and iter(tables) is tables

    def start() -> Iterator[Any]:
        if callable(tables):
            return iter(tables())
        return iter(tables)

    iterator = start()
    first = next(iterator, None)
    if first is None or not is_table(first):
        raise BadInput(
            f"observations must be an array, a table, or tables one after another, not {type(first)}"
        )
    remaining = []
    if is_once:
        remaining = [chain([first], iterator)]

    def chunks() -> Iterator[Chunk]:
        if is_once and not remaining:
            raise BadInput(
                "this iterator can be read only once: pass a function that returns it, or `ranges`, `action_names` and "
                "b as a column, which otherwise need a first reading"
            )
        return chunks_of(remaining.pop() if is_once else start())

    return chunks, as_chunk(first)


def channel_tables(
    described: Sequence[tuple[str, str]], ranges: Any, rewards: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the [[channel]] tables of pairs of column and name; `rewards` names those of transitions."""
    tables: list[dict[str, Any]] = [
        {"column": column, "name": name, "transition": name in rewards}
        for column, name in described
    ]
    unknown = sorted(set(rewards) - {name for _, name in described})
    if unknown:
        raise BadInput(f"rewards names {unknown[0]!r}, which is no channel: add it to channels")
    if ranges is not None:
        bounds = np.asarray(ranges, dtype=np.float64)
        if bounds.shape != (len(tables), 2):
            raise BadInput(f"ranges must have the shape ({len(tables)}, 2), not {bounds.shape}")
        for table, (low, high) in zip(tables, bounds.tolist(), strict=True):
            table |= {"low": low, "high": high}
    return tables
