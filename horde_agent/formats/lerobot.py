"""LeRobot data sets (versions 2.1 and 3) as tables, and recorded runs as LeRobot data sets; without torch.

A data set is a folder: `meta/info.json` describes the features, `data/chunk-*/file-*.parquet` has a
row per frame (version 2.1: `data/chunk-*/episode_*.parquet`, a file per episode), and
`meta/episodes` a row per episode. `observation.state` is the observation. `action` is the action if
it is one whole number; else each of its numbers is a channel that families of questions leave out.
`next.reward` belongs to the transition to the next frame, and becomes the channel `reward` of that
frame. `next.done` is true in the last frame of each episode, terminal or not, so an episode ends by
a gap; `terminated = "next.done"` with `convention = "transition"` in --columns reads it as
terminations. Other features, such as images and videos, are not read, and a note says so.

Source: Cadene et al. (2024), LeRobot; format of version 3.0.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats.arrays import NEEDS_PYARROW
from horde_agent.formats.arrow_files import PARQUET, parquet_files
from horde_agent.formats.columns import (
    SHIFTS,
    ChannelColumn,
    Columns,
    default_tilings,
    unscaled,
)
from horde_agent.formats.format import Format
from horde_agent.formats.tables import Episode, Table
from horde_agent.refusals import BadInput, imported

STATE = "observation.state"
ACTION = "action"
_INFO = "meta/info.json"
_HEADER = "meta/horde_header.json"
_FILE = "chunk-{:03d}/file-{:03d}.parquet"
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_FILE_BYTES = 100_000_000
_FILES_PER_CHUNK = 1000
_OWN = ("b", "step", "terminated")  # features beyond LeRobot's own
_REWARD = "next.reward"
_DONE = "next.done"
_COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")


class LeRobot(Format):
    """The folder of a LeRobot data set."""

    described = "the folder of a LeRobot data set"

    def matches(self, path: Path) -> bool:
        """Return whether a path is the folder of a LeRobot data set."""
        return (path / _INFO).is_file()

    def open(self, path: Path, columns: Path | None) -> Table:
        """Return a folder as a table; `columns` may change its columns. Raise BadInput if it cannot be read."""
        info = _read_json(path / _INFO)
        version = str(info.get("codebase_version"))
        if not re.fullmatch(r"v(2\.[01]|3(\.\d+)*)", version):
            raise BadInput(
                f"{path / _INFO} has the version {version}, expected v2.0, v2.1 or v3.x: convert the data set with "
                "LeRobot"
            )
        features = _features_in(info, path / _INFO)
        if not parquet_files(path / "data"):
            raise BadInput(f"{path} has no Parquet file in data")
        if (path / _HEADER).is_file():
            base = _columns_of_run(_read_json(path / _HEADER), features)
        else:
            base = _columns_of(features, _frames_per_second(info, path / _INFO))
        resolved = Columns.read(columns, base)
        return Table(
            lambda: PARQUET.chunks(path / "data", resolved.names),
            resolved,
            str(path),
            _notes(features, resolved),
        )


FORMAT = LeRobot()


def _columns_of_run(recorded: Mapping[str, Any], features: Mapping[str, _Feature]) -> Columns:
    """Return the columns of an exported run, by the header of its recording."""
    # The observations are readings, whatever they were computed from
    header = {**recorded, "tests_excursions": False, SHIFTS: {}}
    named = {name: name for name in ("action", *_OWN)}
    if _REWARD in features and header.get("reward_known", True):
        named["next_reward"] = _REWARD
    column = f"{STATE}_{{i}}"
    if len(header["channels"]) == 1:
        column = STATE
    return Columns.of_header(header, column, **named, episode="episode_index")


class _Feature(NamedTuple):
    """A feature of a data set, as `meta/info.json` describes it."""

    dtype: str
    shape: list[int]
    names: list[str]  # of its numbers; empty if they are unknown

    @property
    def is_picture(self) -> bool:
        return self.dtype in ("video", "image")


def _features_in(info: Mapping[str, Any], where: Path) -> dict[str, _Feature]:
    """Return the features by name; raise BadInput if a description is no feature, or there is no observation."""
    described = info.get("features")
    if not isinstance(described, dict) or STATE not in described:
        raise BadInput(f"{where} lacks the feature {STATE}")
    features = {}
    for name, feature in described.items():
        facts = {}
        if isinstance(feature, dict):
            facts = feature
        shape = facts.get("shape")
        dtype = facts.get("dtype")
        is_shape = isinstance(shape, list) and all(isinstance(n, int) and n > 0 for n in shape)
        if not isinstance(dtype, str) or not is_shape:
            raise BadInput(
                f"{where}: the feature {name} must have a dtype, a text, and a shape, a list of numbers"
            )
        assert isinstance(shape, list)
        features[name] = _Feature(dtype, shape, _names_in(facts.get("names")))
    return features


def _names_in(names: Any) -> list[str]:
    """Return the names of a feature's numbers: of a list, of {"motors": list}, or of {name: index}; else none."""
    if isinstance(names, dict) and len(names) == 1 and isinstance(next(iter(names.values())), list):
        names = next(iter(names.values()))
    if isinstance(names, list):
        return [str(name) for name in names]
    if isinstance(names, dict) and sorted(map(str, names.values())) == sorted(
        map(str, range(len(names)))
    ):
        return sorted(names, key=lambda name: int(names[name]))
    return []


def _frames_per_second(info: Mapping[str, Any], where: Path) -> float:
    fps: Any = info.get("fps")
    is_number = type(fps) in (int, float)
    if is_number and 0.0 < fps <= sys.float_info.max:
        return float(fps)
    raise BadInput(f"{where} must have fps, a number > 0, not {fps!r}")


def _notes(features: Mapping[str, _Feature], columns: Columns) -> tuple[str, ...]:
    """Return notes about the features that are not read, and about those of the next frame."""
    read = {*columns.names, *(name.rpartition("_")[0] for name in columns.names)}
    pictures = [name for name, feature in features.items() if feature.is_picture]
    unread = [name for name in features if name not in (*read, *pictures, *_COUNTERS)]
    notes = []
    if pictures:
        notes.append(f"Images and videos are left out: {', '.join(pictures)}.")
    if unread:
        notes.append(f"Not read: {', '.join(unread)}.")
    if any(channel.column == _REWARD for channel in columns.channel):
        notes.append(
            f"{_REWARD} is the reward of the transition to the next frame: a channel of that frame."
        )
    if _DONE in unread:
        notes.append(
            f"{_DONE} ends episodes by a gap, because it does not say whether the last state was terminal. If it was, "
            f'write terminated = "{_DONE}" and convention = "transition" in a file for --columns.'
        )
    return tuple(notes)


def _columns_of(features: Mapping[str, _Feature], fps: float) -> Columns:
    """Return the columns of a data set that is no exported run."""
    names = _names(STATE, features[STATE], "obs")
    channel = [ChannelColumn(*column, "obs") for column in names]
    keys = {"time": "timestamp", "episode": "episode_index"}
    reward = features.get(_REWARD)
    if reward is not None and reward.shape == [1]:
        channel.append(ChannelColumn(_REWARD, "reward", "reward", transition=True))
        keys["next_reward"] = _REWARD
    if "terminated" in features:
        keys["terminated"] = "terminated"
    action = features.get(ACTION)
    if action is not None and "int" in action.dtype and action.shape == [1]:
        keys["action"] = ACTION
        if "b" in features:
            keys["b"] = "b"
    elif action is not None:
        numbers = _names(ACTION, action, ACTION)
        if "b" in features:
            numbers.append(("b", "b"))
        channel += unscaled(numbers)
    columns = Columns(tuple(channel), tile_layout=default_tilings("obs", len(names)))
    return columns.with_keys(period_s=1.0 / fps, **keys)


def _names(column: str, feature: _Feature, short: str) -> list[tuple[str, str]]:
    """Return column and name of each number of a feature; names are short_0.. unless the data set has distinct ones."""
    if len(feature.shape) != 1:
        raise BadInput(f"the feature {column} must be a vector, not of shape {feature.shape}")
    n = feature.shape[0]
    is_named = len(set(feature.names)) == n == len(feature.names)
    if n == 1:
        columns = [column]
    else:
        columns = [f"{column}_{i}" for i in range(n)]
    prefix = "" if short == "obs" else f"{short}_"  # state and action often share their names
    if is_named:
        names = [f"{prefix}{name}" for name in feature.names]
    else:
        names = [f"{short}_{i}" for i in range(n)]
    return list(zip(columns, names, strict=True))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{file} must hold a JSON object")
    return content


# ---- a run as a data set ---------------------------------------------------------------------------------------------


def write_lerobot(
    folder: Path, name: str, header: Mapping[str, Any], episodes: Iterator[Episode]
) -> None:
    """Write the episodes of a recording, as one task, into a new folder that LeRobot reads.

    The last frame of an episode has action 0, b 0 and reward 0: nothing is known of an action
    there. An unknown reward is NaN.

    Raises:
        BadInput: If pyarrow or every episode is missing, or the folder is not empty.
    """
    for module in ("pyarrow", "pyarrow.parquet"):
        imported(module, NEEDS_PYARROW)
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a new folder")
    fps = 1.0 / header["period_s"]
    frame_files = _FrameFiles(folder, fps)
    lines = []
    for index, episode in enumerate(episodes):
        place = frame_files.write(episode, index)
        lines.append(
            {
                "episode_index": index,
                "data/chunk_index": place.chunk,
                "data/file_index": place.file,
                "length": place.end - place.first,
                "tasks": [name],
                "dataset_from_index": place.first,
                "dataset_to_index": place.end,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
    if not lines:
        raise BadInput("the run has learned from no step, so there is nothing to export")
    frame_files.close()
    _write_meta(folder / "meta", name, lines)
    names = [channel["name"] for channel in header["channels"]]
    info = _info(names, fps, n_episodes=len(lines), n_frames=frame_files.n_frames)
    (folder / _HEADER).write_text(json.dumps(dict(header)), encoding="utf-8")
    (folder / _INFO).write_text(json.dumps(info, indent=4), encoding="utf-8")


class _Place(NamedTuple):
    """Where the frames of an episode are: numbers of its chunk and file, and its frames [first, end)."""

    chunk: int
    file: int
    first: int
    end: int


class _FrameFiles:
    """Writes frames to Parquet files of about `_FILE_BYTES`.

    Attributes:
        n_frames: Number of frames written.
    """

    def __init__(self, folder: Path, fps: float) -> None:
        self.n_frames = 0
        self._folder = folder
        self._fps = fps
        self._number = -1  # of the open file
        self._n_bytes = 0  # in it, before compression
        self._writer: Any = None

    def write(self, episode: Episode, index: int) -> _Place:
        """Write the frames of an episode into one file; return where they are."""
        frames = _frames(episode, index, self.n_frames, self._fps)
        if self._writer is None or self._n_bytes > _FILE_BYTES:
            self._open_next(frames.schema)
        self._writer.write_table(frames)
        self._n_bytes += frames.nbytes
        first = self.n_frames
        self.n_frames += len(frames)
        chunk, file = divmod(self._number, _FILES_PER_CHUNK)
        return _Place(chunk=chunk, file=file, first=first, end=self.n_frames)

    def _open_next(self, schema: Any) -> None:
        import pyarrow.parquet as pq

        self.close()
        self._number += 1
        self._n_bytes = 0
        path = self._folder / "data" / _FILE.format(*divmod(self._number, _FILES_PER_CHUNK))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, schema, write_page_checksum=True)

    def close(self) -> None:
        """Close the open file."""
        if self._writer is not None:
            self._writer.close()


def _write_meta(meta: Path, name: str, lines: list[dict[str, Any]]) -> None:
    """Write the tables of the episodes and of the only task."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (meta / "episodes" / "chunk-000").mkdir(parents=True)
    episodes_file = meta / "episodes" / _FILE.format(0, 0)
    pq.write_table(pa.Table.from_pylist(lines), episodes_file, write_page_checksum=True)
    tasks = pa.table({"task_index": [0], "__index_level_0__": [name]})
    level = {
        "name": None,
        "field_name": "__index_level_0__",
        "pandas_type": "unicode",
        "numpy_type": "object",
    }
    # LeRobot's index
    pandas = {"index_columns": ["__index_level_0__"], "columns": [level], "pandas_version": "2.0"}
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(pandas)})
    pq.write_table(tasks, meta / "tasks.parquet", write_page_checksum=True)


def _info(names: list[str], fps: float, *, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """Return the contents of info.json."""
    if np.isclose(fps, round(fps)):
        fps = round(fps)
    return {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": n_episodes,
        "total_frames": n_frames,
        "total_tasks": 1,
        "chunks_size": _FILES_PER_CHUNK,
        "data_files_size_in_mb": _FILE_BYTES // 1_000_000,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {"train": f"0:{n_episodes}"},
        "data_path": _DATA,
        "video_path": None,
        "features": _features(names),
    }


def _features(names: list[str]) -> dict[str, Any]:
    kinds = {"float32": ("timestamp",), "float64": ("b", _REWARD), "bool": ("terminated",)}
    whole = (ACTION, "step", "frame_index", "episode_index", "index", "task_index")
    found: dict[str, Any] = {STATE: {"dtype": "float32", "shape": [len(names)], "names": names}}
    for kind, keys in {**kinds, "int64": whole}.items():
        found |= {key: {"dtype": kind, "shape": [1], "names": None} for key in keys}
    return found


def _frames(episode: Episode, index: int, first: int, fps: float) -> Any:
    import pyarrow as pa

    n, width = episode.observation.shape
    frame = np.arange(n)
    state = pa.array(episode.observation.ravel())
    if width > 1:
        state = pa.FixedSizeListArray.from_arrays(state, width)
    return pa.table(
        {
            STATE: state,
            ACTION: np.append(episode.action, 0),
            "b": np.nan_to_num(episode.b),
            _REWARD: np.append(episode.reward, 0.0),
            "step": episode.step,
            "terminated": (frame == n - 1) & episode.is_terminated,
            "timestamp": (frame / fps).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.full(n, index),
            "index": first + frame,
            "task_index": np.zeros(n, dtype=np.int64),
        }
    )
