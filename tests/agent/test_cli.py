"""The command `horde`: physics, scores, environments of other packages."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.gvf import GVF, Channel
from horde_agent.life.bodies import make_body
from horde_agent.policies import Behaviour, ConstantAction, StickyRandom
from horde_agent.runs.config import LearnConfig, resolve
from horde_agent.scoring.trace_growth import heavy_traces, unsafe_rules
from horde_env.hardware import robot_file
from tests.agent.commands import refused, summary_of, toy
from tests.agent.shared import REFERENCE
from tests.facts import states

REAL_LOG = REFERENCE / "data" / "critterbot_real_wandering_2010-10-05.csv.gz"


def test_physics_bullet_without_pybullet_is_refused(
    elsewhere: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = tmp_path_factory.mktemp("nowhere")
    (nowhere / "pybullet.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(nowhere)
    for module in [name for name in sys.modules if name.startswith("horde_env.sim")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pybullet", None)
    message = refused(["learn", "--steps", "30", "--physics", "bullet"], capsys)
    assert "PyBullet is not installed" in message
    assert "physics='planar'" in message


def test_without_pybullet_the_planar_engine_is_used(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pybullet", None)
    assert cli.main(["learn", "--steps", "30", "--questions", "nexting", "--out", "here"]) == 0
    assert "physics planar: PyBullet is not installed, nor needed" in capsys.readouterr().err
    assert 'physics = "planar"' in (elsewhere / "here" / "config.toml").read_text()


def test_a_bug_is_no_bad_input(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(config: Any) -> gymnasium.Env[Any, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(learn, "make_env", make)
    with pytest.raises(ZeroDivisionError):
        cli.main(["learn"])


@pytest.mark.slow
def test_warm_compiles_and_says_how_long_it_took(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It leaves no run behind, and takes no further word."""
    assert toy("warm", monkeypatch) == 0
    out, _ = capsys.readouterr()
    assert re.fullmatch(r"compiled in \d+\.\d s; .*\n", out)
    assert list(elsewhere.iterdir()) == []
    assert "7" in refused(["warm", "7"], capsys)


def test_an_unknown_rule_to_warm_is_refused_before_a_robot_is_made(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "make_env", lambda _config: pytest.fail("a robot was made"))
    assert "algorithm must be one of" in refused(["warm", "--algorithm", "nope"], capsys)


def test_a_config_repeats_a_run_and_flags_override_it(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy("learn --steps 4e2 --seed 3.0 --horizon 0_5 --out a", monkeypatch) == 0
    assert toy("learn --config a/config.toml --out b", monkeypatch) == 0
    assert toy("learn --config a/config.toml --seed 8 --out c", monkeypatch) == 0
    a, b, c = (summary_of(elsewhere / name) for name in "abc")
    assert (a["steps"], a["seed"], c["steps"], c["seed"]) == (400, 3, 400, 8)
    assert a["weights_sha256"] == b["weights_sha256"] != c["weights_sha256"]
    assert (a["mean_nmsre"], a["n_excursions"]) == (b["mean_nmsre"], b["n_excursions"])
    assert "Always predicting the mean return scores 1" in capsys.readouterr().err
    assert "horde-gvf" in tomllib.loads(Path("a/config.toml").read_text())["versions"]


def test_unknown_scores_are_null_and_explained(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy("learn --steps 60 --questions nexting --out a", monkeypatch) == 0
    assert "Not scored: 9 questions (fewer than 2 complete tests" in capsys.readouterr().err
    summary = summary_of(elsewhere / "a")
    assert [
        summary[key]
        for key in ("n_excursions", "mean_nmsre", "median_nmsre", "share_nmsre_below_1")
    ] == [None] * 4
    assert summary["n_updated_per_step"] == 9.0


@pytest.mark.slow
@pytest.mark.skipif(not REAL_LOG.is_file(), reason="the real robot's log is not here")
@pytest.mark.usefixtures("pictures")
def test_the_real_robots_log_is_learned_from(elsewhere: Path) -> None:
    """998 observations: 699 are learned from (698 updates in a pass), 298 of the others have a return."""
    assert (
        cli.main(
            [
                "learn",
                "--backend",
                "replay",
                "--log",
                str(REAL_LOG),
                "--passes",
                "1",
                "--out",
                "real",
            ]
        )
        == 0
    )
    summary = summary_of(elsewhere / "real")
    assert (summary["steps"], summary["n_questions"], summary["backend"]) == (997, 159, "replay")
    assert (summary["learning_steps"], summary["gaps"]) == (698, 0)
    report = (elsewhere / "real" / "report.html").read_text()
    assert "last 298 steps" in report
    assert "traces.png" in report


def test_plain_traces_are_warned_of_by_time_scale() -> None:
    """Repeat .5 over five actions: rho 1.667 on repeats gives .864 at gamma .8 and 1.218 at .95 (lambda .9)."""
    questions = [
        GVF(f"{g}/{k}", ConstantAction(k, 5), Channel(0), continuation=g)
        for g in (0.0, 0.5, 0.8, 0.95)
        for k in (0, 3)
    ]
    assert heavy_traces(questions, StickyRandom(5)) == [
        "the traces of 2 questions at gamma 0.8, lambda 0.9 have heavy tails: the second moment is multiplied by 0.864 "
        "per step",
        "the traces of 2 questions at gamma 0.95, lambda 0.9 have infinite variance: the second moment is multiplied "
        "by 1.218 per step",
    ]


def test_a_step_that_removes_more_than_the_error_is_warned_of() -> None:
    """The largest ratio of a constant action is 1 / .1 = 10 under the sticky behaviour; that of the behaviour is 1."""
    questions = [GVF(f"{k}", ConstantAction(k, 5), Channel(0), continuation=0.5) for k in range(3)]
    questions.append(
        GVF("own", Behaviour(), Channel(0), continuation=0.5, algorithm="intentional_td:eta=0.9")
    )
    assert unsafe_rules(questions, "intentional_td", "clipped", StickyRandom(5)) == []
    (warning,) = unsafe_rules(questions, "intentional_td:eta=0.2", "clipped", StickyRandom(5))
    assert re.search(r"eta = 0.2 .* '0' and 2 others, 10, .* at most 0.1", warning)
    (warning,) = unsafe_rules(
        [replace(questions[0], continuation=0.95, algorithm="etd")],
        "gtd",
        "clipped",
        StickyRandom(5),
    )
    assert "etd" in warning


def test_emphases_are_warned_of_whatever_the_questions_lambda() -> None:
    """They grow as traces of lambda 1: at lambda 0 the question's own trace does not grow at all."""
    question = GVF(
        "q", ConstantAction(0, 5), Channel(0), continuation=0.95, lam=0.0, algorithm="etd"
    )
    assert heavy_traces([question], StickyRandom(5)) == []
    (warning,) = unsafe_rules([question], "gtd", "clipped", StickyRandom(5))
    assert states(warning, "etd", "clipped", "1 questions", "gamma 0.95", "lambda 1", "infinite")


def test_only_rules_with_the_plain_trace_are_warned_of_it() -> None:
    """V-trace, tree backup and ABTD keep the trace rule that bounds them under `--trace-rule plain`."""
    question = GVF("q", ConstantAction(0, 5), Channel(0), continuation=0.95)
    bounded = [replace(question, algorithm=name) for name in ("vtrace", "tree_backup", "abtd")]
    assert unsafe_rules(bounded, "gtd", "plain", StickyRandom(5)) == []
    for name in ("vtrace", "tree_backup", "abtd"):
        assert unsafe_rules([question], name, "plain", StickyRandom(5)) == []
    (warning,) = unsafe_rules(
        [*bounded, replace(question, algorithm="td")], "gtd", "plain", StickyRandom(5)
    )
    assert warning.startswith("algorithm td, trace rule plain: the traces of 1 questions")


def test_any_gymnasium_environment_can_be_learned_from(elsewhere: Path) -> None:
    """CartPole terminates often: learning continues in the next episode."""
    Path("mine.toml").write_text(
        '[[family]]\npolicies = ["behaviour", "action_0"]\ngammas = [0.0, 0.9]\nchannels = ["obs_2"]\n'
        '[[family]]\npolicies = ["behaviour"]\ngammas = [0.5]\nchannels = ["obs_1"]\ntested = false\n'
    )
    words = [
        "learn",
        "--env",
        "CartPole-v1",
        "--steps",
        "400",
        "--questions",
        "mine.toml",
        "--out",
        "here",
    ]
    assert cli.main(words) == 0
    summary = summary_of(elsewhere / "here")
    assert summary["backend"] == "gymnasium"
    assert summary["n_questions"] == 5
    assert summary["learning_steps"] > 350
    details = json.loads((elsewhere / "here" / "details.json").read_text())
    assert (summary["n_excursions"], details["n_on_policy_tests"]) == (
        None,
        summary["learning_steps"] // 50,
    )
    assert summary["mean_nmsre"] is not None
    off_policy, untested = details["not_scored"]
    assert (off_policy["n"], off_policy["first"]) == (2, "action_0/g0/obs_2")
    assert "no test excursions" in off_policy["reason"]
    assert (untested["first"], untested["reason"]) == ("behaviour/g0.5/obs_1", "tested = false")
    settings = (elsewhere / "here" / "config.toml").read_text()
    assert 'env = "CartPole-v1"' in settings
    assert "robot =" not in settings, "there is none"
    assert "robot time" not in (elsewhere / "here" / "report.html").read_text()


def test_shell_completion_covers_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--tyro-print-completion", "bash"])
    assert not end.value.code
    output = capsys.readouterr().out
    assert {"learn", "watch", "report", "export"} <= set(re.findall(r"\w+", output))
    assert "--physics" in output


@pytest.mark.parametrize(
    ("named", "kept", "parity"), [("none", "", "none"), (None, "even", "even"), (None, "", "odd")]
)
def test_a_serial_lines_parity_is_that_of_the_flag_else_of_the_robots_file(
    named: str | None, kept: str, parity: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(elsewhere))
    robot_file.save(robot_file.RobotFile("serial", "/dev/robot", kept), robot_file.default_path())
    env = make_body("serial", parity=resolve(LearnConfig(backend="serial", parity=named)).parity)
    backend: Any = env.unwrapped.backend  # type: ignore[attr-defined]
    assert backend.config.parity == parity
