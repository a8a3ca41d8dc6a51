"""Settings: files fill them, and what cannot be done is refused in one sentence."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from horde_agent.life.bodies import make_body
from horde_agent.runs.config import BadInput, LearnConfig, read_config, resolve, to_toml
from horde_env.hardware import robot_file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_log_cannot_answer_questions_about_other_policies(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("x")
    with pytest.raises(BadInput, match="action probabilities"):
        resolve(LearnConfig(backend="replay", log=Path("log.csv"), questions="excursions"))
    assert resolve(LearnConfig(backend="replay", log=Path("log.csv"))).questions == "nexting"


def test_a_folder_with_a_run_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "summary.json").write_text("{}")
    with pytest.raises(BadInput, match="old already contains a run"):
        resolve(LearnConfig(out=Path("old")))
    (tmp_path / "empty").mkdir()
    assert resolve(LearnConfig(out=Path("empty"))).out == Path("empty")


def test_a_config_file_fills_and_the_rest_keeps_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('steps = 500\nstep_size = 1\ntrace_rule = "plain"\nout = "here"\n')
    assert read_config(Path("mine.toml")) == LearnConfig(steps=500, step_size=1.0, trace_rule="plain", out=Path("here"))


def test_shards_may_be_a_number_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("shards = 4\n")
    assert read_config(Path("mine.toml")).shards == "4"


def test_shards_without_ray_are_refused_by_naming_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horde_agent.runs.config.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="--shards needs the extra `ray`"):
        resolve(LearnConfig(shards="2"))


def test_a_whole_number_with_an_exponent_is_one_in_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("steps = 6e4\nseed = 1e0\n")
    assert read_config(Path("mine.toml")) == LearnConfig(steps=60_000, seed=1)


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step = 5", "unknown setting 'step' in c.toml; did you mean 'steps'"),
        ('steps = "many"', "steps in c.toml must be a whole number, not 'many'"),
        ("steps = true", "steps in c.toml must be a whole number"),
        ("seed = 1.5", "seed in c.toml must be a whole number"),
        ("out = 3", "out in c.toml must be a path in quotes"),
        ("realtime = 1", "realtime in c.toml must be true or false"),
        ("steps = ", "cannot be read"),
    ],
)
def test_a_wrong_config_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(BadInput, match=words):
        read_config(Path("c.toml"))


def test_a_missing_config_file_is_refused() -> None:
    with pytest.raises(BadInput, match=r"there is no config file none\.toml"):
        read_config(Path("none.toml"))


def test_awkward_text_survives_toml() -> None:
    text = 'a "quoted" \\ path\nand more'
    assert tomllib.loads(to_toml({"log": text}, {}))["log"] == text


def test_a_config_file_that_begins_with_a_byte_order_mark_is_read() -> None:
    Path("mine.toml").write_bytes(b"\xef\xbb\xbfsteps = 77\n")
    assert read_config(Path("mine.toml")).steps == 77
