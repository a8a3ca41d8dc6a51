"""Settings: files fill them, and what cannot be done is refused in one sentence."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from horde_agent.life.bodies import make_body
from horde_agent.runs.config import BadInput, LearnConfig, read_config, resolve
from horde_agent.runs.toml import to_toml
from horde_env.hardware import robot_file

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_shards_without_ray_are_refused_by_naming_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horde_agent.runs.config.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="--shards needs the extra `ray`"):
        resolve(LearnConfig(shards="2"))


@pytest.mark.parametrize(("named", "kept", "parity"), [("none", "", "none"), (None, "even", "even"), (None, "", "odd")])
def test_a_serial_lines_parity_is_that_of_the_flag_else_of_the_robots_file(
    named: str | None, kept: str, parity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    robot_file.save(robot_file.RobotFile("serial", "/dev/robot", kept), robot_file.default_path())
    env = make_body("serial", parity=resolve(LearnConfig(backend="serial", parity=named)).parity)
    backend: Any = env.unwrapped.backend  # type: ignore[attr-defined]
    assert backend.config.parity == parity


def test_the_resolved_config_reads_back_as_it_was_but_for_its_folder(tmp_path: Path) -> None:
    config = resolve(LearnConfig(steps=7, questions="nexting", realtime=True, seed=3))
    (tmp_path / "config.toml").write_text(to_toml(asdict(config), {"horde-gvf": "1", "git_commit": "abc"}))

    assert read_config(Path("config.toml")) == replace(config, out=None)
    assert tomllib.loads((tmp_path / "config.toml").read_text())["versions"]["git_commit"] == "abc"


def test_awkward_text_survives_toml() -> None:
    text = 'a "quoted" \\ path\nand more'
    assert tomllib.loads(to_toml({"log": text}, {}))["log"] == text


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ('steps = 500\nstep_size = 1\nout = "here"', {"steps": 500, "step_size": 1.0, "out": Path("here")}),
        ("steps = 6e4\nseed = 1e0", {"steps": 60_000, "seed": 1}),
        ("shards = 4", {"shards": "4"}),
        ("\ufeffsteps = 77", {"steps": 77}),  # a byte order mark
    ],
)
def test_a_config_file_fills_settings_and_the_others_keep_their_defaults(text: str, settings: dict[str, Any]) -> None:
    Path("mine.toml").write_text(text, encoding="utf-8")
    assert read_config(Path("mine.toml")) == LearnConfig(**settings)
