"""A body whose sensors changed during its life: the life reads it in the order of its record.

Channels of the record that the body no longer has are missing readings; further ones stand at the end,
in a group of their own, so that no tiling reads them and no family asks about them. So the layout, the
weights and the questions of what remains are the same. Questions may name the further channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.interface import Interface, readable
from horde_agent.refusals import BadInput
from horde_agent.tiles import TileCoder

LATER = "later"
"""Group of channels that were added during a life."""
_KINDS = ("new", "lost")


class ChannelChanges(NamedTuple):
    """Channels that a body has besides those of its record, and those of the record that it lacks."""

    new: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> ChannelChanges:
        """Parse `new:NAME,lost:NAME`; raise BadInput if it is something else."""
        names: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for word in text.split(","):
            kind, _, name = word.strip().partition(":")
            if kind not in _KINDS or not name:
                raise BadInput(
                    f"--channels {text}: write new:NAME for a channel that the body has besides those of the record, "
                    "and lost:NAME for one that it lacks, with commas between"
                )
            names[kind].append(name)
        return cls(tuple(names["new"]), tuple(names["lost"]))


def with_recorded_layouts(
    env: gymnasium.Env[Any, Any], recorded: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return a body with the tile layouts of a record, to which its weights belong.

    Those of this program may be others than those of the version that the life began with.
    """
    env = readable(env)
    names = [channel["name"] for channel in recorded["channels"]]
    if [channel.name for channel in Interface.of(env).channels] == names:
        layouts = {key: recorded.get(key) for key in ("tile_layout", "chosen_layout")}
        env.metadata = {**env.metadata, **layouts}
    return env


class ArrangedBody(gymnasium.Env[Any, Any]):
    """A body with the channels of a record in its order, and new ones behind them.

    It offers what the body does, but for being put back to an earlier state.

    Args:
        env: The body.
        recorded: Header of the record.
        changes: What differs from it, besides what the header already says.

    Raises:
        BadInput: If the body differs in other channels or actions, or the record has none of the
            lost ones.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], recorded: Mapping[str, Any], changes: ChannelChanges
    ) -> None:
        self._env = env
        body: Any = env.unwrapped
        box = env.observation_space
        if not isinstance(box, spaces.Box) or "channels" not in env.metadata:
            raise BadInput("--channels is for a body that names its channels; omit it")
        described = {str(channel["name"]): dict(channel) for channel in env.metadata["channels"]}
        places = {name: place for place, name in enumerate(described)}
        names = [str(channel["name"]) for channel in recorded["channels"]]
        lost = {*changes.lost, *recorded.get("lost", ())}
        _refuse_unnamed(names, list(described), changes, lost)
        if list(recorded["actions"]) != list(env.metadata["actions"]):
            raise BadInput(
                "the body has other actions than the record, which cannot change: its policies choose among them"
            )
        self._n_actions = len(recorded["actions"])
        order = [*names, *(name for name in changes.new if name not in names)]
        self._places = np.array([places.get(name, -1) for name in order])
        low = [*recorded["low"], *(float(box.low[places[name]]) for name in order[len(names) :])]
        high = [*recorded["high"], *(float(box.high[places[name]]) for name in order[len(names) :])]
        self.observation_space = spaces.Box(_bounds(low, -np.inf), _bounds(high, np.inf))
        self.action_space = env.action_space
        channels = [{**channel, "sensor": channel["is_sensor"]} for channel in recorded["channels"]]
        for channel in channels:
            if channel["name"] in recorded["ranges"]:
                channel["range"] = recorded["ranges"][channel["name"]]
        channels += [
            {**described[name], "group": LATER, "sensor": False} for name in order[len(names) :]
        ]
        layout = recorded["tile_layout"] or TileCoder.default(len(names)).layout
        self.metadata = {
            **body.metadata,
            "channels": channels,
            "tile_layout": layout,
            "chosen_layout": recorded.get("chosen_layout"),
            "restorable": False,
            "lost": sorted(lost),
            "arranged": True,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._env.unwrapped, name)

    def _arranged(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return an observation of the body in the order of the record; NaN where it has no such channel."""
        values = np.asarray(observation, dtype=np.float32)
        return np.where(self._places >= 0, values[self._places], np.float32(np.nan))

    @property
    def manoeuvre_observations(self) -> list[NDArray[Any]]:
        """Those of the last drive."""
        observations = getattr(self._env.unwrapped, "manoeuvre_observations", None) or []
        return [self._arranged(observation) for observation in observations]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Reset the body."""
        observation, info = self._env.reset(seed=seed, options=options)
        return self._arranged(observation), info

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take a step of the body."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return self._arranged(observation), float(reward), terminated, truncated, info

    def close(self) -> None:
        """Close the body."""
        self._env.close()


def _refuse_unnamed(
    recorded: list[str], present: list[str], changes: ChannelChanges, lost: set[str]
) -> None:
    """Raise BadInput if a channel differs that no change names, or a change does not fit."""
    sizes = f"the body has {len(present)} channels, the record {len(recorded)}"
    for name in changes.new:
        if name not in present or name in recorded:
            raise BadInput(
                f"--channels new:{name}: the body must have it, and the record must not; {sizes}"
            )
    for name in changes.lost:
        if name not in recorded or name in present:
            raise BadInput(
                f"--channels lost:{name}: the record must have it, and the body must not; {sizes}"
            )
    for name in recorded:
        if name not in present and name not in lost:
            raise BadInput(f"the body has no {name} any more: add lost:{name} to --channels")
    for name in present:
        if name not in recorded and name not in changes.new:
            raise BadInput(f"the body has {name} besides the record: add new:{name} to --channels")


def _bounds(values: list[float | None], unbounded: float) -> NDArray[np.float32]:
    return np.array([unbounded if value is None else value for value in values], dtype=np.float32)
