"""Commands with invalid input or damaged folders: one sentence, exit code 2, and no file changes."""

from __future__ import annotations

import itertools
import os
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
from horde_agent.record import read, snapshots
from horde_agent.record.segments import encode_header
from tests.agent import commands
from tests.agent.commands import edited_manifest, refused
from tests.agent.doubles import ToyBody
from tests.agent.test_data import COLUMNS, stream

Damage = Callable[[Path], object]
PAGES = shutil.ignore_patterns("*.png", "report.html")


class Case(NamedTuple):
    """A command in a folder with a finished run, `run`; parts of its message; damage to the run beforehand."""

    words: str
    said: str | tuple[str, ...]
    damage: Damage = lambda run: None


def write(name: str, content: str | bytes) -> Damage:
    data = content
    if isinstance(content, str):
        data = content.encode()
    return lambda run: (run / name).write_bytes(data)


def edit(name: str, change: Callable[[str], str]) -> Damage:
    return lambda run: (run / name).write_text(change((run / name).read_text()))


def remove(*names: str) -> Damage:
    def damage(run: Path) -> None:
        for name in names:
            shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()

    return damage


def both(*damages: Damage) -> Damage:
    return lambda run: [damage(run) for damage in damages]


def no_tables(run: Path) -> None:
    for file in [*run.glob("*.csv"), *run.glob("*.json")]:
        file.unlink()


def other_snapshot_version(run: Path) -> None:
    with edited_manifest(next(snapshots.found(run / "checkpoint"))) as manifest:
        manifest["version"] = 8
        manifest["facts"]["version"] = "7.1"


def header_without_low(run: Path) -> None:
    stream = read(run / "log/life.rec")
    header = {name: value for name, value in stream.header.items() if name != "low"}
    (run / "log/life.rec").write_bytes(encode_header(header) + stream.rows.tobytes())


def question_file(content: str) -> Damage:
    return write("../mine.toml", content)


def data_set(columns: str) -> Damage:
    def damage(run: Path) -> None:
        (run.parent / "columns.toml").write_text(columns)
        np.savez(run.parent / "t.npz", **stream(50))  # type: ignore[arg-type]

    return damage


OWN = "learn --questions mine.toml"
COLUMNED = "learn --columns columns.toml --questions excursions --data"
CONTROL = commands.CONTROL.replace("light_0", "saw")
SERIAL = "learn --backend serial --port /dev/no_such_robot"
LONG = "n" * 300
OTHERS = ("bench --quick --only tile",)
NO_FOLDER = ("x", "run/config.toml/x")
ON_A_RUN = ("report", "resume", "doctor", "export", "watch")
SETTINGS = [
    Case("learn --backend simulatr", ("unknown backend 'simulatr'", "did you mean 'simulator'")),
    Case("learn --backend serial", "no port is known"),
    Case("learn --backend drops --port 127.0.0.1:1", "127.0.0.1"),
    Case(SERIAL, "there is no port /dev/no_such_robot"),
    Case("learn --port /dev/x", "--port belongs to a real robot"),
    Case("learn --parity odd --backend serial --robot create2", "--parity belongs"),
    Case("learn --parity mark --backend serial", "unknown parity 'mark': choose odd, even, none"),
    Case("learn --steps 0", "--steps must be at least 1"),
    Case("learn --horizon 0", "--horizon"),
    Case("learn --step-size nan", "--step-size"),
    Case("learn --repeat 1", "--repeat must be in [0, 1)"),
    Case("learn --epsilon 0.2", "--epsilon 0.2 requires --behaviour greedy:NAME or curious"),
    Case("learn --behaviour curiosity", "write random, curious, or greedy:NAME"),
    Case("learn --behaviour curious:udes", ("unknown drive 'udes'", "did you mean 'ude'")),
    Case("learn --behaviour curious:", "unknown drive ''"),
    Case(
        "learn --paper --behaviour curious",
        "--paper has the behaviour random, and --behaviour curious is another: omit one of them",
    ),
    Case("learn --behaviour curious --questions nexting", "all about the behaviour itself"),
    Case("learn --env CartPole-v1 --behaviour curious", "all about the behaviour itself"),
    Case("learn --env Pendulum-v1 --behaviour curious --questions policies", "Discrete"),
    Case("learn --behaviour curious --shards 2", "--shards does not gather"),
    Case(
        "learn --backend replay --log run/questions.csv --behaviour curious",
        "--behaviour requires a robot that can act; omit it with --backend replay",
    ),
    Case(
        "learn --passes 30",
        "--passes 30 requires a log or a data set; omit it with --backend simulator",
    ),
    Case(
        "learn --backend replay --log run --passes 30",
        "--passes 30: a recorded run is learned from once",
    ),
    Case("learn --backend replay --log run --repeat 0.2", "--repeat requires a robot that can act"),
    Case(
        "learn --backend replay --log run --excursion-probability 0.2",
        "--excursion-probability requires a robot",
    ),
    Case(
        "learn --env CartPole-v1 --questions policies --excursion-probability 0.1",
        "--excursion-probability 0.1: no test excursion would be made, because CartPole-v1 makes them only with "
        "--excursions: add that, or omit it",
    ),
    Case(
        "learn --physics planar --questions nexting --excursion-probability 0.1",
        "because all questions are about the behaviour or have tested = false: ask others, or omit it",
    ),
    Case("learn --backend replay --log run --realtime", "--realtime requires a robot that can act"),
    Case("learn --algorithm tdrc:beta=.1,beta=.2", "gives 'beta' twice: give it once"),
    Case(
        "learn --physics planar --algorithm td --secondary-ratio 0.1",
        "secondary_ratio = 0.1 has no effect: omit it",
    ),
    Case(
        "learn --physics planar --algorithm td --w-rule importance-weighted",
        "does not support w_rule",
    ),
    Case(
        "learn --physics planar --algorithm intentional_td --step-size 0.3",
        "step_size = 0.3 has no effect",
    ),
    Case("learn --steps abc", "--steps: 'abc' is no whole number; write 60000 or 6e4"),
    Case("learn --steps inf", "'inf' is no whole number"),
    Case("reproduce chain --seeds 2", "run python -m examples.reproduce NAME"),
    Case("learn --bogus 1", "Unrecognized options: --bogus"),
    Case(
        "learn --questions excursion",
        ("unknown questions 'excursion'", "did you mean 'excursions'"),
    ),
    Case("learn --questions none.toml", "there is no question file"),
    Case("learn --trace-rule clip", ("unknown trace rule 'clip'", "did you mean 'clipped'")),
    Case("learn --w-rule never", "unknown w rule 'never'"),
    Case("learn --config none.toml", "there is no config file"),
    Case("learn --backend replay", "needs --log"),
    Case("learn --backend replay --log none.csv", "there is no log none.csv"),
    Case(
        "learn --backend replay --log run/questions.csv --questions excursions",
        "action probabilities",
    ),
    Case("learn --log x.csv", "--log requires --backend replay"),
    Case("learn --columns run/config.toml", "--columns requires --backend replay"),
    Case("learn --ray 10.0.0.1:6379", "--ray requires --shards"),
    Case("learn --shards 0", "--shards 0: write a number of processes, 1 or more, or auto"),
    Case("learn --shards 2 --backend replay --log run/config.toml", "--shards cannot be combined"),
    Case("learn --on-alarm no-such-command-anywhere", "there is no such command"),
    Case("learn --physics planer", "did you mean 'planar'"),
    Case(f"{SERIAL} --physics planar", "critterbot with the backend serial has its own"),
    Case("learn --robot create2 --physics bullet", "Create 2"),
    Case("learn --env CartPole-v1 --physics planar", "the body of CartPole-v1 has its own"),
    Case("learn --env CartPole-v1 --robot create2", "leave out --robot create2"),
    Case(
        "learn --env NoSuchThing-v0",
        ["no environment 'NoSuchThing-v0'", "doesn't exist; `python -c", "MODULE:Id-v0"],
    ),
    Case("learn --env CartPole-v1 --backend replay", "has its own body"),
    Case("learn --backend gymnasium", "needs --env ID"),
    Case("learn --env CartPole-v1 --realtime", "no clock to keep"),
    Case("learn --robots 1001", "--robots"),
    Case("learn --robots 2 --backend emulated", "--backend emulated"),
    Case("learn --robots 2 --shards 2", "--shards"),
    Case("learn --robots 2 --realtime", "--realtime"),
    Case("learn --data x.csv", "x.csv does not exist: give the folder of"),
    Case("learn --data x --backend serial", "stands in the robot's place"),
    Case("learn --data x --minari y", "--minari"),
    Case("learn --backend data", "needs --data FILE"),
    Case("learn --data x --columns y --behaviour greedy:q", "requires a robot that can act"),
    Case("learn --out run", "run already contains a run"),
    Case("learn --out run/log/x/../..", "already contains a run"),
    Case("learn --out run/config.toml/a", "Not a directory"),
    Case(f"learn --out {LONG}", "File name too long"),
    Case(f"learn --out {os.fsdecode(bytes([0xE9]))}", "is not UTF-8"),
    *(Case(f"{other} --out run/config.toml/a", "Not a directory") for other in OTHERS),
    *(Case(f"{other} --out {LONG}", "File name too long") for other in OTHERS),
    Case("bench --only w3", "'w3'"),
    Case("bench --skip nothing", "'nothing'"),
    Case("watch nowhere", "there is no folder nowhere"),
    Case("watch .", "contains no run"),
    Case("watch run --port 70000", "--port must be from 0 to 65535"),
    Case("watch run --host no.such.host.invalid", "no.such.host.invalid"),
    Case("learn --questions mine", "unknown questions 'mine'"),
    Case("learn --questions=", "unknown questions ''"),
    Case("learn --steps 1e300", "--steps must be at least 1 and at most 1,000,000,000,000"),
    Case("learn --seed 1e19", "--seed must be at least 0 and at most 9,223,372,036,854,775,807"),
    Case("learn --horizon 1e7", "--horizon must be at least 1 and at most 1,000,000"),
    Case(
        "learn --step-size abc",
        "Error parsing --step-size: 'abc' is no number; see horde learn --help",
    ),
    Case("learn --steps", "--steps needs a value; see horde learn --help"),
    Case("learn --step 5", "Unrecognized options: --step; did you mean '--steps'"),
    Case("learn extra", "Unrecognized options: extra; see horde learn --help"),
    Case("learn --config run", "the config file run cannot be read (Is a directory)"),
    Case("learn --data x.csv --columns none.toml", "there is no columns file none.toml"),
    Case("learn --wrap flatten", "--wrap flatten belongs to an environment of --env"),
    Case("learn --env CartPole-v1 --wrap discretize(5)", "there is no wrapper 'discretize(5)'"),
    Case(
        "learn --env CartPole-v1 --wrap discretize:3",
        "--wrap discretize does not fit the environment",
    ),
    Case(
        "learn --env nowhere:Corridor-v0",
        "there is no module nowhere, neither installed nor in the current folder",
    ),
    Case("learn --env CartPole-v99", "CartPole"),
    Case("report --bogus run", "Unrecognized options: --bogus; see horde report --help"),
    Case("watch run --port x", "Error parsing --port: 'x' is no whole number"),
    Case("evaluate run --gamma y", "Error parsing --gamma: 'y' is no number"),
    Case("bench --stream real", "invalid choice 'real' for argument '--stream'"),
    Case("export run --out run/config.toml", "--out run/config.toml is a file; name a folder"),
    Case("report", "Missing from horde report"),
    Case("lern", "unknown command 'lern': choose learn, report,"),
    Case("lern", "did you mean 'learn'?"),
    Case("nonsense --help", "unknown command 'nonsense'"),
    Case("--bogus", "Unrecognized options: --bogus"),
    Case("", "name a command: learn, report"),
]
QUESTIONS = [
    Case(
        f"{OWN} --backend replay --log run/questions.csv",
        "'left/g0.5/age' in mine.toml has another policy",
        question_file('[[family]]\npolicies = ["left"]\ngammas = [0.5]\n'),
    ),
]
CONTROLS = {
    "question 'lamp': algorithm 'gtd' finds no policies": CONTROL.replace('"qrc"', '"gtd"'),
    "algorithm must be the name of an update rule, not 1": CONTROL.replace('"qrc"', "1"),
    "[[control]] number 1": CONTROL.replace("gamma = 0.9", "gamma = 1.0"),
    "[[control]] number 1 names the unknown sensor 'smell'": CONTROL.replace('"saw"', '"smell"', 1),
    "[[control]] number 1 needs 'gamma'": CONTROL.replace("gamma = 0.9", ""),
    "[[control]] number 1 has an unknown key 'speed'": CONTROL.replace(
        "gamma = 0.9", "gamma = 0.9\nspeed = 1"
    ),
    "[[family]] number 1 names the unknown policy 'greedy:dock'": CONTROL.replace(
        "greedy:lamp", "greedy:dock"
    ),
    "family and control must be": "control = 1",
}
BEHAVIOURS = {
    "greedy:dock": "greedy:dock: no question finds this policy; there are lamp",
    "greedy": "--behaviour greedy: write random, curious, or greedy:NAME",
    "curious:variance": "'variance' needs questions about variances of returns",
    "greedy:lamp --repeat 0.2": "--repeat 0.2 belongs to --behaviour random; omit it",
    "greedy:lamp --epsilon 1.5": "--epsilon must be in [0, 1], not 1.5",
}
WRONG_COLUMNS = {
    "has no column 'z'": COLUMNS.replace('"x"', '"z"'),
    "unknown key 'nothing'": f"{COLUMNS}nothing = 1\n",
    "low must be below high": COLUMNS.replace("low = 0.0", "low = 2.0", 1),
    "b is the probability of an action": COLUMNS.replace('action = "a"', ""),
    "it has no 'period_s'": COLUMNS.replace("period_s = 0.1", ""),
    "the action probabilities of this data set are unknown": COLUMNS.replace('b = "p"', ""),
    "b must be a text": COLUMNS.replace('b = "p"', "b = 0.5"),
    'missing must be one of "error", "gap"': f'missing = "drop"\n{COLUMNS}',
}
WITHOUT_B = COLUMNS.replace('b = "p"', "")
CUT_BY_B = {
    "--algorithm tree_backup": "the trace rule 'tree-backup' of 'behaviour/",
    "--algorithm abtd": "the trace rule 'abtd' of 'behaviour/",
    "--trace-rule tree-backup": "the trace rule 'tree-backup' of 'behaviour/",
}
QUESTIONS += [
    *(
        Case(
            f"learn --data t.npz --columns columns.toml {words}",
            (said, "give b"),
            data_set(WITHOUT_B),
        )
        for words, said in CUT_BY_B.items()
    ),
    *(Case(OWN, said, question_file(text)) for said, text in CONTROLS.items()),
    *(
        Case(f"{OWN} --behaviour {name}", said, question_file(CONTROL))
        for name, said in BEHAVIOURS.items()
    ),
    *(Case(f"{COLUMNED} t.npz", said, data_set(text)) for said, text in WRONG_COLUMNS.items()),
    Case(f"{COLUMNED} columns.toml", "is no data set: give the folder of", data_set(COLUMNS)),
    *(
        Case(
            f"{COLUMNED} {name}",
            f"{name} cannot be read",
            both(data_set(COLUMNS), write(f"../{name}", "PK nothing")),
        )
        for name in ("bad.npz", "bad.parquet")
    ),
]
CONFIGS = {
    "step = 5": "unknown setting 'step' in c.toml; did you mean 'steps'",
    'steps = "many"': "steps in c.toml must be a whole number, not 'many'",
    "out = 3": "out in c.toml must be a path in quotes",
    "realtime = 1": "realtime in c.toml must be true or false",
    "steps = ": "cannot be read",
}
NEWER_PAGE = '{"format": "horde-live", "version": 99}'
WRONG = {"list": "[1, 2]", "half": '{"a": ', "deep": "[" * 200_000}
UNFINISHED = {
    "config.toml is cut off before its versions": edit(
        "config.toml", lambda text: text[: text.index("[versions]")]
    ),
    "config.toml cannot be read": edit("config.toml", lambda text: text[:15]),
    "unknown setting 'speed'": edit("config.toml", lambda text: f"speed = 3\n{text}"),
    "config.toml is missing": remove("config.toml"),
    "neither tables nor a log": remove("log/life.rec"),
    "life.rec lacks 'low'": header_without_low,
    "its log is empty": lambda run: os.truncate(
        run / "log/life.rec", read(run / "log/life.rec").header["offset"]
    ),
}
FOLDERS = [
    Case("learn", "--out runs cannot be written", write("../runs", "a file")),
    *(
        Case("learn --config c.toml", said, write("../c.toml", text))
        for text, said in CONFIGS.items()
    ),
    *(Case(f"report {p}", f"there is no folder {p}") for p in NO_FOLDER),
    *(Case(f"report {p}", f"{p} cannot be read (File name too long)") for p in (LONG,)),
    *(
        Case(f"{command} mine.toml", "mine.toml is a file, not a folder", question_file(""))
        for command in ON_A_RUN
    ),
    *(Case(f"{command} nowhere", "there is no folder nowhere") for command in ON_A_RUN),
    *(
        Case(
            "report run",
            ("summary.json is damaged (", "remove it, and"),
            write("summary.json", content),
        )
        for content in (*WRONG.values(), b"\xff\xfe\x00")
    ),
    *(Case("report run", said, both(no_tables, damage)) for said, damage in UNFINISHED.items()),
    Case("report run run", "named twice"),
    Case("report run nothing", "there is no folder nothing"),
    Case("doctor .", "contains no run"),
    Case("export run --to xml", "unknown format 'xml'"),
    Case("export run --to lerobot", "log", remove("log")),
    Case("export run --to mcap --follow", "--follow requires --to tensorboard"),
    *(
        Case("resume run", "contains no run", remove(name))
        for name in ("config.toml", "log/life.rec")
    ),
    Case("resume run --steps 1e30", "and at most 1,000,000,000,000, got 1000"),
    Case(
        "resume run --steps 230",
        "has taken 1,200 steps, and --steps is 230 in total: choose a larger --steps",
    ),
    Case(
        "resume run --steps 1300",
        "config.toml was changed after the run began",
        edit("config.toml", lambda text: text.replace("step_size = 0.05", "step_size = 0.2")),
    ),
    Case(
        "resume run --steps 1300",
        (
            "horde-snapshot 8",
            "resume it with version 7.1",
            "horde learn --backend replay --log run",
        ),
        other_snapshot_version,
    ),
    Case("learn --backend replay --log .", "there is no log"),
    Case(
        "watch run", "of another version", both(remove("log"), write("live/facts.json", NEWER_PAGE))
    ),
]


@pytest.fixture
def here(toy_run: Path, elsewhere: Path) -> Path:
    """A run in the working folder; it may be damaged."""
    return Path(shutil.copytree(toy_run, elsewhere / "run", ignore=PAGES))


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case.words[:60] or "nothing")
def test_invalid_settings_are_refused(
    case: Case, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(case.words.split(), capsys)
    assert all(part in err for part in ([case.said] if isinstance(case.said, str) else case.said))


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
    "case", [*QUESTIONS, *FOLDERS], ids=lambda case: f"{case.words[:30]}: {case.said}"[:80]
)
def test_invalid_questions_and_damaged_runs_are_refused(
    case: Case, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    case.damage(here)
    err = refused(case.words.split(), capsys, is_alone=False)
    assert all(
        part in err for part in ([case.said] if isinstance(case.said, str) else case.said)
    ), err


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
