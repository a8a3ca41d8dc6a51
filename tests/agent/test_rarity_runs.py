"""The setting `rarity` of runs: its default, its refusals, and replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horde_agent.learning import LearnerConfig
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, learner_config, read_config, resolve
from tests.agent.commands import horde, refused, summary_of, toy

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
            "--rarity needs the fast engine, which does not support algorithm 'htd' with trace rule 'clipped'",
        ),
        (
            {"trace_rule": "capped"},
            "--rarity needs the fast engine, which does not support algorithm 'gtd' with trace rule 'capped'",
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


@pytest.mark.parametrize("algorithm", ["gtd", "td", "tdrc:beta=0.5", "htd"])
@pytest.mark.parametrize("trace_rule", ["clipped", "plain"])
def test_python_and_the_command_have_the_same_defaults(algorithm: str, trace_rule: Any) -> None:
    cases: Any = [(False, LearnerConfig, "reading"), (True, LearnerConfig.paper, "0")]
    for is_paper, default, offset in cases:
        settings = LearnConfig(algorithm=algorithm, trace_rule=trace_rule, paper=is_paper)
        expected = default(algorithm=algorithm, trace_rule=trace_rule)
        resolved = resolve(settings)
        assert learner_config(resolved) == expected
        assert (resolved.step_size, resolved.offset) == (expected.step_size, offset)


def test_a_replay_of_a_run_without_rarity_has_none_unless_it_is_set(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy("learn --steps 200 --no-rarity --out without", monkeypatch) == 0
    weights = summary_of("without")["weights_sha256"]
    replays = {"": False, "--no-rarity": False, "--rarity": True}
    for n, (flag, rarity) in enumerate(replays.items()):
        assert horde(f"learn --backend replay --log without {flag} --out replay{n}") == 0
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
