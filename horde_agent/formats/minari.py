"""Minari data sets as tables, and recorded runs as Minari data sets.

An observation is a flat Box, or a Dict of flat Boxes in the order of its keys. The reward of the
transition that led to the row is its reward, and a channel too. A continuous action is a channel
for each of its numbers, and so is its density, which `Gaussian` target policies need; families of
questions leave these out. Rewards and actions have no tiles. Episodes end as the data set says: by
termination, or by a gap.

Infos are those that `reset` and `step` returned: `infos/b` of a row belongs to the action that
*led* to it, as do all other infos. The column `b` has the probability of the action taken *from*
each row, which is `infos/b` of the next row. If the infos of a data set have b in the row of its
action, read it with `b = "infos/b"` in --columns.

Source: Younis et al. (2024), Minari.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.formats.columns import (
    SHIFTS,
    ChannelColumn,
    Columns,
    bound_of,
    default_tilings,
    unscaled,
)
from horde_agent.formats.format import Format
from horde_agent.formats.part import Chunk
from horde_agent.formats.tables import Episode, Table
from horde_agent.record import NO_ACTION
from horde_agent.refusals import BadInput, imported, one_line

HEADER = "horde_header"  # of a recording, in the metadata of an exported data set
_NEEDS = "Minari data sets need the package: pip install -e '.[minari]'"
_ALIGNED = (
    "b was read from the info of the step that took the action. If it is in the row of its action, write "
    'b = "infos/b" in a file for --columns.'
)
_NAME = re.compile(r"-v\d+$")
_B = "b"
_INFO_B = "infos/b"
# In the metadata: whether the rewards of an exported data set are known; without it they are 0
_REWARDS = "horde_rewards_known"


class Minari(Format):
    """A Minari data set, by its name."""

    described = "the name of a Minari data set, such as NAMESPACE/NAME-v0"

    def matches(self, path: Path) -> bool:
        """Return whether a path, which does not exist, has the form of a name."""
        return _NAME.search(path.name) is not None and not path.exists()

    def open(self, path: Path, columns: Path | None) -> Table:
        """Return the data set of a name as a table; `columns` may change its columns."""
        return open_minari(path.as_posix(), columns)


FORMAT = Minari()


def open_minari(data: Any, columns: Path | None = None) -> Table:
    """Return a Minari data set, or that of a name, with other `columns`; raise BadInput if it cannot be read."""
    if isinstance(data, str):
        data = _loaded(data)
    where = f"the Minari data set {data.id}"
    header = data.storage.metadata.get(HEADER)
    to_columns = _flattener(data.observation_space, where)
    if header is None:
        base = _columns_of(data, where)
    else:
        # The observations are readings, whatever they were computed from
        facts = {**json.loads(header), "tests_excursions": False, SHIFTS: {}}
        columns_by_key = {key: key for key in ("action", "episode", "terminated", _B)}
        if data.storage.metadata.get(_REWARDS):
            columns_by_key["reward"] = "reward"
        base = Columns.of_header(facts, "observations_{i}", **columns_by_key, step="infos/step")
    first_action = int(getattr(data.action_space, "start", 0))

    def chunks() -> Iterator[Chunk]:
        for number, episode in enumerate(_episodes_in(data, where)):
            try:
                observations = to_columns(episode.observations)
            except ValueError as error:
                raise BadInput(
                    f"{where}, episode {number}: its observations do not fit together: {error}"
                ) from None
            yield _rows_of_episode(episode, number, observations, first_action, where)

    described = Columns.read(columns, base)
    notes: tuple[str, ...] = ()
    if header is None and _B in described.names:
        notes = (_ALIGNED,)
    return Table(chunks, described, where, notes)


def _episodes_in(data: Any, where: str) -> Iterator[Any]:
    """Yield the episodes of a Minari data set; raise BadInput if its files cannot be read."""
    try:
        yield from data.iterate_episodes()
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise BadInput(f"{where} cannot be read: {one_line(error)}") from None


def _rows_of_episode(
    episode: Any, number: int, observations: NDArray[Any], first_action: int, where: str
) -> dict[str, NDArray[Any]]:
    """Return the columns of an episode of n steps, n + 1 rows, by name; raise BadInput if they do not fit together."""
    n_steps = len(episode.rewards)
    n_rows = n_steps + 1
    lengths = {
        "observations": (len(observations), n_rows),
        "actions": (len(episode.actions), n_steps),
        "terminations": (len(episode.terminations), n_steps),
    }
    for name, (length, expected) in lengths.items():
        if length != expected:
            raise BadInput(
                f"{where}, episode {number}: {n_steps} rewards and {length} {name}, expected {expected}"
            )
    columns = {"observations": observations}
    for name, values in _flat_infos(episode.infos or {}).items():
        is_of_steps = values.ndim > 0 and len(values) in (n_steps, n_rows)
        if name == "b" and not is_of_steps:
            raise BadInput(
                f"{where}, episode {number}: {n_steps} rewards and {values.size} values of b in its infos"
            )
        if values.dtype.kind in "fiub" and is_of_steps:
            columns[f"infos/{name}"] = _with_first(values, n_rows)
    if _INFO_B in columns:
        columns[_B] = np.append(columns[_INFO_B][1:], np.nan)
    actions = np.asarray(episode.actions)
    if actions.ndim == 1:
        columns["action"] = np.append(actions - first_action, NO_ACTION)
    # The last row has no action: its numbers are repeated, because channels must have readings
    else:
        columns["action"] = np.concatenate([actions, actions[-1:]])
        if _B in columns and n_steps:
            columns[_B][-1] = columns[_B][-2]
    columns["reward"] = np.append(0.0, episode.rewards)
    columns["episode"] = np.full(n_rows, number)
    columns["terminated"] = np.append(False, episode.terminations)
    return columns


def _loaded(name: str) -> Any:
    minari = imported("minari", _NEEDS)
    try:
        return minari.load_dataset(name)
    except (OSError, ValueError, KeyError, AssertionError, ImportError) as error:
        raise BadInput(
            f"the Minari data set {name} cannot be read: {one_line(error)}; see `minari download {name}`"
        ) from None


def _columns_of(data: Any, where: str) -> Columns:
    """Return the columns of a data set of any environment."""
    space: Any = spaces.flatten_space(data.observation_space)
    n = space.shape[0]
    channels = [
        ChannelColumn(
            f"observations_{i}",
            f"obs_{i}",
            "obs",
            low=float(space.low[i]),
            high=float(space.high[i]),
        )
        for i in range(n)
    ]
    channels.append(ChannelColumn("reward", "reward", "reward"))
    layout = default_tilings("obs", n)
    first = None
    if data.total_episodes:
        first = next(iter(data.iterate_episodes([0])), None)
    if first is None:
        raise BadInput(f"{where} has no episode")
    has_b = _has_b(first)
    ends: dict[str, Any] = {"episode": "episode", "terminated": "terminated", "reward": "reward"}
    match data.action_space:
        case spaces.Discrete(n=n_actions):
            names = tuple(f"action_{a}" for a in range(int(n_actions)))
            if has_b:
                ends["b"] = _B
            return Columns(tuple(channels), tile_layout=layout).with_keys(
                action="action", actions=names, **ends
            )
        case spaces.Box(shape=(n_numbers,)):
            action_names = [f"action_{i}" for i in range(n_numbers)]
            if has_b:
                action_names.append(_B)
            channels += unscaled([(name, name) for name in action_names])
            return Columns(tuple(channels), tile_layout=layout).with_keys(**ends)
    raise BadInput(
        f"{where}: the action space must be Discrete or a flat Box, not {data.action_space}"
    )


def _flattener(space: Any, where: str) -> Callable[[Any], NDArray[Any]]:
    """Return the function from an episode's observations to an array, shape (n_rows, n)."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return np.asarray
    if isinstance(space, spaces.Dict):
        parts = {key: _flattener(inner, where) for key, inner in space.spaces.items()}
        return lambda values: np.hstack([of(values[key]) for key, of in parts.items()])
    raise BadInput(
        f"{where}: the observation space must be a flat Box or a Dict of flat Boxes, not {space}"
    )


def _flat_infos(infos: Mapping[str, Any], prefix: str = "") -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, values in infos.items():
        if isinstance(values, Mapping):
            found |= _flat_infos(values, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}"] = np.asarray(values)
    return found


def _has_b(episode: Any) -> bool:
    """Return whether the infos of an episode have numbers b."""
    values = _flat_infos(episode.infos or {}).get("b")
    return values is not None and values.dtype.kind in "fiub"


def _with_first(values: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Return infos with NaN for the first row, if there are only those of the steps, shape (n_rows, ...)."""
    n_lacking = n_rows - len(values)
    if not n_lacking:
        return values
    return np.concatenate([np.full((n_lacking, *values.shape[1:]), np.nan), values])


# ---- a run as a data set ---------------------------------------------------------------------------------------------


def write_minari(
    root: Path, name: str, header: Mapping[str, Any], episodes: Iterator[Episode]
) -> None:
    """Write episodes below a folder, for MINARI_DATASETS_PATH; raise BadInput at a taken name or without an episode.

    An unknown reward is written as 0.
    """
    minari = imported("minari", _NEEDS)
    collector = imported("minari.data_collector", _NEEDS)
    low = np.array([bound_of(bound, -np.inf) for bound in header["low"]], dtype=np.float32)
    high = np.array([bound_of(bound, np.inf) for bound in header["high"]], dtype=np.float32)
    facts: dict[str, Any] = {
        "observation_space": spaces.Box(low, high),
        "action_space": spaces.Discrete(len(header["actions"])),
        "algorithm_name": "behaviour policy of a Horde of GVFs",
        "description": "Transitions that a Horde learned from; infos b: probability of the action that led to the row.",
    }
    data = None
    are_rewards_known = True
    with _datasets_at(root), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about facts that a run does not have
        for episode in episodes:
            n = len(episode.action)
            infos: dict[str, Any] = {"b": np.append(np.nan, episode.b[:-1]), "step": episode.step}
            are_rewards_known &= bool(np.isfinite(episode.reward).all())
            if episode.predictions is not None:
                infos["predictions"] = episode.predictions
            buffer = collector.EpisodeBuffer(
                observations=episode.observation,
                actions=episode.action,
                rewards=np.nan_to_num(episode.reward),
                terminations=[*[False] * (n - 1), episode.is_terminated],
                truncations=[*[False] * (n - 1), not episode.is_terminated],
                infos=infos,
            )
            try:
                if data is None:
                    data = minari.create_dataset_from_buffers(name, [buffer], **facts)
                else:
                    data.update_dataset_from_buffer([buffer])
            except ValueError as error:
                raise BadInput(f"{name} cannot be written in {root}: {error}") from None
        if data is None:
            raise BadInput("the run has learned from no step, so there is nothing to export")
        facts_of_run = {
            HEADER: json.dumps(dict(header)),
            _REWARDS: are_rewards_known,
        }
        data.storage.update_metadata(facts_of_run)


@contextmanager
def _datasets_at(root: Path) -> Iterator[None]:
    """Make Minari read and write below a folder."""
    previous_path = os.environ.get("MINARI_DATASETS_PATH")
    root.mkdir(parents=True, exist_ok=True)
    # Minari appends to files of an absolute path alone
    os.environ["MINARI_DATASETS_PATH"] = str(root.resolve())
    try:
        yield
    finally:
        if previous_path is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = previous_path
