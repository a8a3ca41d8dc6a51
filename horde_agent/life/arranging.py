"""A body whose sensors or actions changed during its life: the life reads it in the order of its record.

Channels of the record that the body no longer has are missing readings; further ones stand at the end,
in a group of their own, so that no tiling reads them and no family asks about them. So the layout, the
weights and the questions of what remains are the same. Questions may name the further channels.

Actions of the record that the body no longer has keep their numbers, and no behaviour takes them; further
ones have the last numbers. A target policy is one over the actions of the time at which it was asked about,
but for policies that questions find, whose weights of further actions begin at 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.features import tables_of
from horde_agent.interface import readable
from horde_agent.refusals import BadInput
from horde_agent.tiles import TileCoder

LATER = "later"
"""Group of channels that were added during a life."""
_KINDS = ("new", "lost")
BODY = "the body"
"""What has channels and actions, in messages."""


class Changes(NamedTuple):
    """What a body has besides what its record has, and what of the record it lacks: channels or actions.

    Attributes:
        flag: The option of the command that names them.
        new, lost: Their names.
    """

    flag: str
    new: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, flag: str, text: str | None) -> Changes:
        """Parse `new:NAME,lost:NAME`, None for nothing; raise BadInput if it is something else."""
        names: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for word in (text or "").split(","):
            if text is None:
                break
            kind, _, name = word.strip().partition(":")
            if kind not in _KINDS or not name:
                raise BadInput(
                    f"{flag} {text}: write new:NAME for what the body has besides that of the record, and lost:NAME "
                    "for what it lacks, with commas between"
                )
            names[kind].append(name)
        return cls(flag, tuple(names["new"]), tuple(names["lost"]))

    def order(
        self,
        recorded: Sequence[str],
        present: Sequence[str],
        lost: set[str],
        holder: str = BODY,
    ) -> list[str]:
        """Return the names of the record, and the new ones behind them.

        Args:
            recorded: Those of the record.
            present: Those of the body.
            lost: Those of the record that the body may lack.
            holder: What has them, for messages.

        Raises:
            BadInput: If one differs that no change names, or a change does not fit.
        """
        parts = self.flag.removeprefix("--")
        sizes = f"{holder} has {len(present)} {parts}, the record {len(recorded)}"
        for name in self.new:
            if name not in present or name in recorded:
                raise BadInput(
                    f"{self.flag} new:{name}: {holder} must have it, and the record must not; {sizes}"
                )
        for name in self.lost:
            if name not in recorded or name in present:
                raise BadInput(
                    f"{self.flag} lost:{name}: the record must have it, and {holder} must not; {sizes}"
                )
        for name in recorded:
            if name not in present and name not in lost:
                raise BadInput(f"{holder} has no {name} any more: add lost:{name} to {self.flag}")
        for name in present:
            if name not in recorded and name not in self.new:
                raise BadInput(
                    f"{holder} has {name} besides the record: add new:{name} to {self.flag}"
                )
        return [*recorded, *self.new]


NO_CHANNELS = Changes("--channels")
NO_ACTIONS = Changes("--actions")


class BodyChanges(NamedTuple):
    """What differs between a body and its record.

    Attributes:
        channels, actions: Those that it has besides, and those that it lacks.
        tilings: `[[tiling]]` tables of further tilings.
    """

    channels: Changes = NO_CHANNELS
    actions: Changes = NO_ACTIONS
    tilings: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, channels: str | None, actions: str | None, tilings: Path | None) -> BodyChanges:
        """Parse the options of a command; raise BadInput if one is invalid."""
        tables: tuple[Mapping[str, Any], ...] = ()
        if tilings is not None:
            tables = tuple(tables_of(tilings, "--tilings"))
        return cls(
            Changes.of(NO_CHANNELS.flag, channels), Changes.of(NO_ACTIONS.flag, actions), tables
        )


NO_CHANGES = BodyChanges()


def consequences(actions: Changes) -> list[str]:
    """Return a sentence about what changed actions mean for the behaviour and the questions."""
    sentences = []
    if actions.new:
        sentences.append(
            f"New actions: {', '.join(actions.new)}. The behaviour chooses them from now on; questions that were asked "
            "before stay about the actions of then, but those that find a policy choose among all, with values that "
            "begin at 0."
        )
    if actions.lost:
        sentences.append(
            f"Lost actions: {', '.join(actions.lost)}. The behaviour does not choose them; a question about a policy "
            "that would take them learns from the other actions alone, and is not tested until they return."
        )
    return sentences


def with_recorded_layouts(
    env: gymnasium.Env[Any, Any], recorded: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return a body with the tile layouts of a record, to which its weights belong.

    Those of this program may be others than those of the version that the life began with.
    """
    env = readable(env)
    layouts = {key: recorded.get(key) for key in ("tile_layout", "chosen_layout")}
    env.metadata = {**env.metadata, **layouts}
    return env


class ArrangedBody(gymnasium.Env[Any, Any]):
    """A body with the channels and actions of a record in its order, and new ones behind them.

    It offers what the body does, but for being put back to an earlier state.

    Args:
        env: The body.
        recorded: Header of the record.
        changes: What differs from it, besides what the header already says.
        holder: What the body is called in messages.

    Raises:
        BadInput: If the body differs in other channels or actions, or the record has none of the
            lost ones.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        recorded: Mapping[str, Any],
        changes: BodyChanges = NO_CHANGES,
        holder: str = BODY,
    ) -> None:
        self._env = env
        body: Any = env.unwrapped
        box = env.observation_space
        if not isinstance(box, spaces.Box) or "channels" not in env.metadata:
            raise BadInput("--channels and --actions are for a body that names them; omit them")
        described = {str(channel["name"]): dict(channel) for channel in env.metadata["channels"]}
        places = {name: place for place, name in enumerate(described)}
        names = [str(channel["name"]) for channel in recorded["channels"]]
        channels, actions, tilings = changes
        lost = {*channels.lost, *recorded.get("lost", ())}
        order = channels.order(names, list(described), lost, holder)
        self._places = np.array([places.get(name, -1) for name in order])
        low = [*recorded["low"], *(float(box.low[places[name]]) for name in order[len(names) :])]
        high = [*recorded["high"], *(float(box.high[places[name]]) for name in order[len(names) :])]
        self.observation_space = spaces.Box(_bounds(low, -np.inf), _bounds(high, np.inf))
        action_places = {name: k for k, name in enumerate(env.metadata["actions"])}
        may_be_lost = {*actions.lost, *recorded.get("lost_actions", ())}
        action_names = actions.order(recorded["actions"], list(action_places), may_be_lost, holder)
        self._body_action = [action_places.get(name) for name in action_names]
        self.action_space = spaces.Discrete(len(action_names))
        channel_tables = [
            {**channel, "sensor": channel["is_sensor"]} for channel in recorded["channels"]
        ]
        for channel in channel_tables:
            if channel["name"] in recorded["ranges"]:
                channel["range"] = recorded["ranges"][channel["name"]]
        channel_tables += [
            {**described[name], "group": LATER, "sensor": False} for name in order[len(names) :]
        ]
        layout = recorded["tile_layout"] or TileCoder.default_of(names).layout
        self.metadata = {
            **body.metadata,
            "channels": channel_tables,
            "tile_layout": layout,
            "chosen_layout": recorded.get("chosen_layout"),
            "restorable": False,
            "lost": sorted(lost),
            "actions": action_names,
            "lost_actions": [name for name in action_names if name not in action_places],
            "later_actions": recorded.get("later_actions", 0) + len(actions.new),
            "later_tilings": [
                *recorded.get("later_tilings", ()),
                *({**table, "later": True} for table in tilings),
            ],
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
        """Take a step of the body; raise ValueError for an action that it has lost."""
        body_action = self._body_action[int(action)]
        if body_action is None:
            raise ValueError(f"the body has lost the action {self.metadata['actions'][action]}")
        observation, reward, terminated, truncated, info = self._env.step(body_action)
        return self._arranged(observation), float(reward), terminated, truncated, info

    def close(self) -> None:
        """Close the body."""
        self._env.close()


def _bounds(values: list[float | None], unbounded: float) -> NDArray[np.float32]:
    return np.array([unbounded if value is None else value for value in values], dtype=np.float32)
