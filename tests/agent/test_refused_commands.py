"""Commands with invalid input or damaged folders: one sentence, exit code 2, and no file changes."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from examples.reproduce import __main__ as reproduce
from horde_agent import cli
from horde_agent.cli import learn
from tests.agent import commands
from tests.agent.commands import refused
from tests.agent.doubles import ToyBody
from tests.agent.test_data import COLUMNS, stream
from tests.facts import states

Damage = Callable[[Path], object]
PAGES = shutil.ignore_patterns("*.png", "report.html")


class Case(NamedTuple):
    """A command, parts of its message, and damage to `run`, a finished run in the working folder, beforehand."""

    words: str
    said: str | tuple[str, ...]
    damage: Damage = lambda run: None


def write(name: str, content: str) -> Damage:
    return lambda run: (run / name).write_text(content)


def data_set(columns: str) -> Damage:
    def damage(run: Path) -> None:
        (run.parent / "columns.toml").write_text(columns)
        np.savez(run.parent / "t.npz", **stream(50))  # type: ignore[arg-type]

    return damage


def without_log(run: Path) -> None:
    shutil.rmtree(run / "log")


def without_config(run: Path) -> None:
    (run / "config.toml").unlink()


def without_tables(run: Path) -> None:
    without_log(run)
    for file in [*run.glob("*.csv"), *run.glob("*.json")]:
        file.unlink()


def with_page_of_another_version(run: Path) -> None:
    without_log(run)
    (run / "live/facts.json").write_text('{"format": "horde-live", "version": 99}')


# About a channel of the toy body
CONTROL = commands.CONTROL.replace("light_0", "saw")
SERIAL = "learn --backend serial --port /dev/no_such_robot"
ON_A_RUN = ("report", "resume", "doctor", "export", "watch")
PARSED = [
    Case("", "name a command: learn, report"),
    Case("--bogus", "Unrecognized options: --bogus"),
    Case("lern", ("unknown command 'lern': choose learn, report,", "did you mean 'learn'?")),
    Case("nonsense --help", "unknown command 'nonsense'"),
    Case("reproduce chain --seeds 2", "run python -m examples.reproduce NAME"),
    Case("learn --bogus 1", "Unrecognized options: --bogus"),
    Case("learn --step 5", "Unrecognized options: --step; did you mean '--steps'"),
    Case("learn extra", "Unrecognized options: extra; see horde learn --help"),
    Case("learn --steps", "--steps needs a value; see horde learn --help"),
    Case("learn --steps abc", "--steps: 'abc' is no whole number; write 60000 or 6e4"),
    Case("learn --steps inf", "'inf' is no whole number"),
    Case("learn --steps 1e300", "--steps must be at least 1 and at most 1,000,000,000,000"),
    Case(
        "learn --step-size abc",
        "Error parsing --step-size: 'abc' is no number; see horde learn --help",
    ),
    Case("report", "Missing from horde report"),
    Case("report --bogus run", "Unrecognized options: --bogus; see horde report --help"),
    Case("watch run --port x", "Error parsing --port: 'x' is no whole number"),
    Case("evaluate run --gamma y", "Error parsing --gamma: 'y' is no number"),
    Case("bench --stream real", "invalid choice 'real' for argument '--stream'"),
    Case("export run --to mcap --follow", "--follow requires --to tensorboard"),
]
"""Refusals by the command line itself."""
BEFORE_A_BODY = [
    Case("learn --backend simulatr", ("unknown backend 'simulatr'", "did you mean 'simulator'")),
    Case("learn --step-size nan", "--step-size must be a positive number, not nan"),
    Case("learn --behaviour greedy:lamp --epsilon 1.5", "--epsilon must be in [0, 1], not 1.5"),
    Case("learn --algorithm td --secondary-ratio 0.1", "secondary_ratio = 0.1 has no effect"),
    Case("learn --config none.toml", "there is no config file none.toml"),
    Case("learn --backend data", "needs --data FILE"),
    Case("learn --data x.csv", "x.csv does not exist: give the folder of"),
    Case(
        "learn --data t.npz --columns columns.toml",
        "the columns in columns.toml cannot be read: it has no 'period_s'",
        data_set(COLUMNS.replace("period_s = 0.1", "")),
    ),
    Case(
        "evaluate t.npz --policy uniform",
        "a table needs --columns FILE.toml, which describes its columns: `horde columns t.npz",
        data_set(""),
    ),
    Case("learn --out run/config.toml/a", "Not a directory"),
    Case("learn --out run", "run already contains a run"),
    *(Case(f"{command} nowhere", "there is no folder nowhere") for command in ON_A_RUN),
    Case("report run", ("summary.json is damaged (", "remove it"), write("summary.json", "[1, 2]")),
    Case("report run", "there are neither tables nor a log in it", without_tables),
    Case("report run run", "named twice"),
    Case("report run nothing", "there is no folder nothing"),
    Case("resume run", "contains no run", without_config),
    Case("resume run --steps 1e30", "--steps must be at least 1 and at most 1,000,000,000,000"),
    Case("resume run --steps 230", "has taken 1,200 steps, and --steps is 230 in total"),
    Case("export run --to xml", "unknown format 'xml'"),
    Case("export run --to lerobot", "there are neither tables nor a log in it", without_log),
    Case("export run --out run/config.toml", "--out run/config.toml is a file; name a folder"),
    Case("watch run --port 70000", "--port must be from 0 to 65535"),
    Case("watch run", "version 99 of the format horde-live", with_page_of_another_version),
    Case("bench --only w3", "there is no section 'w3'"),
    Case("bench --quick --only tile --out run/config.toml/a", "Not a directory"),
]
"""One refusal of each component that a command calls, before it makes an environment; others are in their own tests."""
BY_A_BODY = [
    Case("learn --backend serial", "no port is known"),
    Case(SERIAL, "there is no port /dev/no_such_robot"),
    Case(
        "learn --env NoSuchThing-v0",
        ("no environment 'NoSuchThing-v0'", "doesn't exist; `python -c", "MODULE:Id-v0"),
    ),
    Case(
        "learn --env CartPole-v1 --questions policies --excursion-probability 0.1",
        "--excursion-probability 0.1: no test excursion would be made, because CartPole-v1 makes them only with "
        "--excursions: add that, or omit it",
    ),
]
"""What needs an environment to be refused."""
TOY = [
    Case(
        "learn --questions nexting --excursion-probability 0.1",
        "because all questions are about the behaviour or have tested = false: ask others, or omit it",
    ),
    Case(
        "learn --questions mine.toml",
        "family, control and option must be",
        write("../mine.toml", "control = 1"),
    ),
    Case(
        "learn --questions mine.toml",
        "question 'lamp': algorithm 'gtd' finds no policies",
        write("../mine.toml", CONTROL.replace('"qrc"', '"gtd"')),
    ),
    Case(
        "learn --questions mine.toml --behaviour greedy:dock",
        "greedy:dock: no question finds this policy; there are lamp",
        write("../mine.toml", CONTROL),
    ),
    Case(
        "learn --questions mine.toml --backend replay --log run/questions.csv",
        "'left/g0.5/age' in mine.toml has another policy",
        write("../mine.toml", '[[family]]\npolicies = ["left"]\ngammas = [0.5]\n'),
    ),
]
"""The same, with a toy body in the robot's place."""


@pytest.fixture
def here(toy_run: Path, elsewhere: Path) -> Path:
    """A run in the working folder; it may be damaged."""
    return Path(shutil.copytree(toy_run, elsewhere / "run", ignore=PAGES))


def check_refused(case: Case, capsys: pytest.CaptureFixture[str], *, is_alone: bool = True) -> None:
    """Check that a command is refused in one line with the parts of the case's message."""
    err = refused(case.words.split(), capsys, is_alone=is_alone)
    parts = case.said
    if isinstance(parts, str):
        parts = (parts,)
    assert states(err, *parts), err


@pytest.mark.parametrize("case", PARSED, ids=lambda case: case.words[:60] or "nothing")
def test_words_that_are_no_command_are_refused(
    case: Case, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(case, capsys)


@pytest.mark.parametrize(
    "case", BEFORE_A_BODY, ids=lambda case: f"{case.words[:50]}: {case.said}"[:80]
)
def test_a_command_refuses_before_it_makes_a_body(
    case: Case, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "make_env", lambda _config: pytest.fail("a body was made"))
    case.damage(here)
    check_refused(case, capsys, is_alone=False)


@pytest.mark.parametrize("case", BY_A_BODY, ids=lambda case: case.words[:60])
def test_a_body_that_cannot_be_is_refused(
    case: Case, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(case, capsys)


@pytest.mark.parametrize("case", TOY, ids=lambda case: f"{case.words[:50]}: {case.said}"[:80])
def test_questions_that_a_body_does_not_fit_are_refused(
    case: Case, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    case.damage(here)
    check_refused(case, capsys, is_alone=False)


EXPERIMENTS = "python -m examples.reproduce"
WITH_HELP = (
    EXPERIMENTS,
    "learn",
    "report",
    "resume",
    "doctor",
    "export",
    "bench",
    "warm",
    "watch",
    "columns",
    "evaluate",
)


def early_ends(shown: str) -> list[str]:
    """Return the lines of a help text in frames that end although the first word of the next one fits on them.

    A description ends with its default in parentheses.
    """
    lines = [line[2:].rstrip(" │") for line in shown.splitlines() if line[:1] in (" ", "│")]
    width = max(map(len, lines))
    ended = []
    for line, following in itertools.pairwise(lines):
        is_flag_alone = line.startswith("-") and "  " not in line
        if is_flag_alone or not following.startswith("    ") or line.endswith(")"):
            continue
        if len(line) + 1 + len(following.split()[0]) <= width:
            ended.append(line)
    return ended


@pytest.mark.parametrize("command", WITH_HELP)
def test_the_help_of_a_command_names_its_arguments_and_breaks_no_sentence(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default of None, "" or () was shown as such; the parser ends a line before one that begins with a mark."""
    monkeypatch.setenv("COLUMNS", "110")
    main = cli.main
    words = [command, "--help"]
    if command == EXPERIMENTS:
        main = reproduce.main
        words = ["--help"]
    with pytest.raises(SystemExit):
        main(words)
    shown = capsys.readouterr().out
    unhelpful = r"\{None\}|when None|default: (None|''|\)|\[\])|\b(STR|INT)\b"
    assert not re.search(unhelpful, shown), shown
    assert early_ends(shown) == []


FAST = (
    "--help",
    "learn --help",
    "resume --help",
    "lern",
    "learn --bogus",
    "learn --steps abc",
    "learn --config none.toml",
    "learn --questions none.toml",
    "learn --backend replay --log none.csv",
    "learn --data none.csv --columns none.toml",
    "learn --backend simulatr",
    "learn --repeat 1",
    "report nowhere",
    "resume nowhere",
    "doctor nowhere",
    "export nowhere",
    "watch nowhere",
)
HEAVY = ("numba", "gymnasium")
SEEN_AT_ONCE = f"""
import sys
from horde_agent.cli import main

codes = []
for command in {FAST}:
    try:
        codes.append(main(command.split()))
    except SystemExit as end:
        codes.append(end.code)
print(codes, [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def test_help_and_refusals_come_before_the_compiler_is_imported(tmp_path: Path) -> None:
    """Numba and Gymnasium take most of a second to import."""
    ended = subprocess.run(
        [sys.executable, "-c", SEEN_AT_ONCE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    codes = [0 if "--help" in command else 2 for command in FAST]
    assert ended.stderr.splitlines()[-1] == f"{codes} []"


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("ray", "learn --shards 2", "--shards needs the extra `ray`"),
        ("starlette", "watch run", "pip install -e '.[dash]'"),
        ("starlette", "learn --watch --steps 20", "pip install -e '.[dash]'"),
        (
            "tensorboard.compat.proto.event_pb2",
            "export run --to tensorboard",
            "pip install -e '.[tensorboard]'",
        ),
        (
            "horde_env",
            "bench --stream simulator --only tile",
            "--stream simulator needs the simulated robot: ",
        ),
    ],
)
def test_a_missing_extra_is_named(
    module: str,
    words: str,
    said: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert said in refused(words.split(), capsys, is_alone=False)


def test_a_space_that_does_not_fit_is_refused_with_the_wrapper_that_helps(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def made() -> ToyBody:
        env = ToyBody()
        env.action_space = gymnasium.spaces.MultiDiscrete([2, 3])  # type: ignore[assignment]
        return env

    monkeypatch.setitem(
        gymnasium.registry,
        "Odd-v0",
        gymnasium.envs.registration.EnvSpec("Odd-v0", entry_point=made),
    )
    assert "gymnasium.wrappers.TransformAction" in refused(
        ["learn", "--env", "Odd-v0", "--steps", "20"], capsys
    )
