"""The setting `rarity` of runs: its default, its refusals, and runs of versions that had none."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from horde_agent.runs.config import BadInput, LearnConfig, read_config, resolve
from tests.agent.commands import edited_manifest, horde, refused, summary_of, toy


def forget_rarity(run: Path) -> None:
    """Remove the setting from a run's files, as if written by a version that did not know it."""
    settings = run / "config.toml"
    text = settings.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert "rarity = false\n" in text
    text = text.replace("rarity = false\n", "")
    settings.write_text(text)
    later_digest = hashlib.sha256(text.encode()).hexdigest()
    sums = run / "sums.sha256"
    assert digest in sums.read_text()
    sums.write_text(sums.read_text().replace(digest, later_digest))
    for snapshot in (run / "checkpoint").iterdir():
        with edited_manifest(snapshot) as manifest:
            assert manifest["facts"]["asked"]["config.toml"] == digest
            manifest["facts"]["asked"]["config.toml"] = later_digest


DEFAULTS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"algorithm": "tdrc:beta=0.5", "trace_rule": "plain"}, True),
    ({"algorithm": "abtd"}, True),
    ({"offset": "0", "average": 0.0}, True),
    ({"rarity": False}, False),
    ({"paper": True}, False),
    ({"paper": True, "rarity": False}, False),
    ({"algorithm": "htd"}, False),
    ({"trace_rule": "capped"}, False),
    ({"algorithm": "htd", "rarity": False}, False),
]


@pytest.mark.parametrize(("settings", "rarity"), DEFAULTS)
def test_a_run_learns_with_rarity_where_the_fast_engine_can(
    settings: dict[str, Any], rarity: bool
) -> None:
    resolved = resolve(LearnConfig(**settings))
    assert resolved.rarity is rarity
    assert resolve(resolved) == resolved


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"paper": True}, "--paper learns without rarity, and --rarity is on: omit one of them"),
        (
            {"algorithm": "htd"},
            "--rarity needs the fast engine, which does not support --algorithm htd with --trace-rule clipped",
        ),
        (
            {"trace_rule": "capped"},
            "--rarity needs the fast engine, which does not support --algorithm gtd with --trace-rule capped",
        ),
    ],
)
def test_a_run_that_cannot_learn_with_rarity_is_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        resolve(LearnConfig(rarity=True, **settings))
    assert sentence in str(refusal.value)


def test_the_flags_override_a_file_of_settings(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.toml").write_text("rarity = false\nsteps = 70\n")
    for n, (flag, rarity) in enumerate([("", False), ("--rarity", True), ("--no-rarity", False)]):
        assert toy(f"learn --config mine.toml {flag} --out run{n}", monkeypatch) == 0
        assert read_config(Path(f"run{n}/config.toml")).rarity is rarity
    capsys.readouterr()
    assert "neither true nor false" in refused(["learn", "--rarity=on"], capsys)
    assert "Unrecognized options: --no-rarity" in refused(["report", "--no-rarity"], capsys)


def test_runs_that_do_not_state_rarity_resume_and_replay_without_it(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's settings lose the line, as of a version that did not know it."""
    assert toy("learn --steps 200 --no-rarity --out without", monkeypatch) == 0
    shutil.copytree("without", "old")
    forget_rarity(Path("old"))
    for run in ("without", "old"):
        assert toy(f"resume {run} --steps 300", monkeypatch) == 0
    weights = summary_of("old")["weights_sha256"]
    assert weights == summary_of("without")["weights_sha256"]
    replays = {"": False, "--no-rarity": False, "--rarity": True}
    for n, (flag, rarity) in enumerate(replays.items()):
        assert horde(f"learn --backend replay --log old {flag} --out replay{n}") == 0
        assert read_config(Path(f"replay{n}/config.toml")).rarity is rarity
        assert (summary_of(f"replay{n}")["weights_sha256"] == weights) is not rarity


def test_a_replay_of_a_run_with_rarity_has_it_where_its_own_rule_can(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy("learn --steps 200 --out run", monkeypatch) == 0
    assert read_config(Path("run/config.toml")).rarity is True
    assert horde("learn --backend replay --log run --out same") == 0
    assert summary_of("same")["weights_sha256"] == summary_of("run")["weights_sha256"]
    for n, flag in enumerate(("--paper", "--trace-rule capped")):
        assert horde(f"learn --backend replay --log run {flag} --out other{n}") == 0
        assert read_config(Path(f"other{n}/config.toml")).rarity is False
