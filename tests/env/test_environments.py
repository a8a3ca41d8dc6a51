"""The docstring of each environment, as `help(gymnasium.make(id).unwrapped)` shows it."""

from __future__ import annotations

import pickle
import pydoc
import re
from pathlib import Path
from typing import Any, cast

import gymnasium
import pytest

from horde_env import registry
from horde_env.backend import POSE_KEYS
from horde_env.env import RobotEnv
from horde_env.registry import BodyKind
from horde_env.spaces import AXES
from tests.env.recording import packets, write

CASES = [(robot.name, backend) for robot in registry.all_robots() for backend in robot.environments]


def made(kind: str, backend: str, folder: Path) -> RobotEnv:
    """Return an environment, not opened."""
    entry = registry.robot(kind).environment(backend)
    options: dict[str, Any] = {}
    match entry.body_kind:
        case BodyKind.RECORDED:
            options["log"] = write(folder / "life.csv", packets(100))
        case BodyKind.PHYSICAL:
            options["port"] = "localhost:1"
        case _:
            options["physics"] = "planar"
    env = gymnasium.make(f"horde_env:{entry.id}", disable_env_checker=True, **options)
    return cast(RobotEnv, env.unwrapped)


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of each row of the table below a line that begins with `heading`."""
    lines = text[text.index(heading) :].split("\n\n")[1].splitlines()
    return [re.split(" {2,}", line.strip()) for line in lines[1:]]


@pytest.mark.parametrize(("kind", "backend"), CASES)
def test_help_shows_channels_actions_and_info_of_each_environment(
    kind: str, backend: str, tmp_path: Path
) -> None:
    env = made(kind, backend, tmp_path)
    text = "\n".join(
        line.removeprefix(" |").removeprefix("  ")
        for line in pydoc.plain(pydoc.render_doc(env)).splitlines()
    )

    channels = rows(text, "Observation: Box(0, 1, (")
    assert [row[1] for row in channels] == [c.name for c in env.robot.channels]
    for row, channel in zip(channels, env.robot.channels, strict=True):
        assert row[2] == channel.unit
        low, high = row[3].split(" .. ")
        assert float(low) == pytest.approx(channel.low, rel=1e-5)
        assert float(high) == pytest.approx(channel.high, rel=1e-5)

    *actions, largest = rows(text, "Actions: Discrete(")
    assert [row[1] for row in actions] == [action.name for action in env.robot.actions]
    for row, action in zip(actions, env.robot.actions, strict=True):
        assert [float(word) for word in row[2:]] == pytest.approx(action.request, rel=5e-3)
    assert [float(word) for word in largest[1:]] == pytest.approx(env.robot.largest_request)
    assert ", ".join(AXES[i] for i in env.robot.axes) in text

    assert [row[0] for row in rows(text, "Info,")] == [key.name for key in env.info_keys]
    for name in registry.robot(kind).environment(backend).arguments:
        assert name in text


@pytest.mark.parametrize(("kind", "backend"), CASES)
def test_the_documented_keys_are_those_of_info(kind: str, backend: str, tmp_path: Path) -> None:
    """A real robot's are those of its driver with an emulated robot, but for the true pose."""
    env = made(kind, backend, tmp_path)
    documented = {key.name for key in env.info_keys}
    body_kind = registry.robot(kind).environment(backend).body_kind
    if body_kind == BodyKind.PHYSICAL:
        emulated = made(kind, "emulated", tmp_path)
        assert documented == {key.name for key in emulated.info_keys} - {
            key.name for key in POSE_KEYS
        }
        return
    info = env.reset(seed=0)[1]
    env.close()
    if body_kind == BodyKind.RECORDED:
        recorded_only = {key.name for key in env.backend.info_keys}  # type: ignore[attr-defined]
        assert set(info) == documented - recorded_only
    else:
        assert set(info) == documented


def test_an_environments_class_is_named_after_its_id_and_found_by_pickle(tmp_path: Path) -> None:
    env_class = type(made("critterbot", "simulator", tmp_path))
    assert env_class.__name__ == "CritterbotPen_v0"
    assert pickle.loads(pickle.dumps(env_class)) is env_class
    assert type(made("critterbot", "simulator", tmp_path)) is env_class
    assert type(made("create2", "simulator", tmp_path)) is not env_class
