"""The settings of a run: what does not fit is refused in a sentence before a robot is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from horde_agent.refusals import BadInput
from horde_agent.runs import config
from horde_agent.runs.config import (
    LearnConfig,
    read_config,
    refuse_no_command,
    refuse_no_run,
    refuse_out_of_range,
    resolve,
)
from horde_agent.toml import to_toml
from tests.facts import states

LONG = "n" * 300
RUN = {"backend": "replay", "log": Path("run")}
LOG = {"backend": "replay", "log": Path("run/questions.csv")}
POLE = {"env": "CartPole-v1"}


@pytest.fixture
def here(toy_run: Path, elsewhere: Path) -> Path:
    """A working folder with a finished run, `run`, which settings only name."""
    (elsewhere / "run").symlink_to(toy_run)
    return elsewhere


SOURCES: list[tuple[dict[str, Any], str]] = [
    ({"backend": "simulatr"}, "unknown backend 'simulatr': choose simulator, serial"),
    ({"backend": "simulatr"}, "did you mean 'simulator'"),
    ({"robot": "create3"}, "unknown robot 'create3': choose critterbot, create2; did you mean"),
    ({"robot": "create3", "data": Path("x")}, "unknown robot 'create3': choose critterbot"),
    (
        {"robot": "create2", "backend": "drops"},
        "the robot create2 has no backend 'drops': choose simulator, serial, emulated",
    ),
    ({"port": "/dev/x"}, "--port belongs to a real robot; the backend 'simulator' has none"),
    ({"parity": "odd", "backend": "serial", "robot": "create2"}, "--parity belongs"),
    ({"parity": "mark", "backend": "serial"}, "unknown parity 'mark': choose odd, even, none"),
    ({"physics": "planer"}, "did you mean 'planar'"),
    (
        {"backend": "serial", "port": "/dev/no_such_robot", "physics": "planar"},
        "critterbot with the backend serial has its own",
    ),
    ({"robot": "create2", "physics": "bullet"}, "leave it out for the Create 2 (planar)"),
    ({**POLE, "physics": "planar"}, "the body of CartPole-v1 has its own"),
    ({**POLE, "robot": "create2"}, "leave out --robot create2"),
    ({**POLE, "backend": "replay"}, "--backend replay has its own body"),
    ({"backend": "gymnasium"}, "--backend gymnasium needs --env ID"),
    ({**POLE, "realtime": True}, "an environment of --env has no clock to keep"),
    ({"wrap": "flatten"}, "--wrap flatten belongs to an environment of --env"),
    ({**POLE, "wrap": "discretize(5)"}, "there is no wrapper 'discretize(5)'"),
    ({"backend": "replay"}, "--backend replay needs --log FILE"),
    ({"backend": "replay", "log": Path("none.csv")}, "there is no log none.csv"),
    ({"backend": "replay", "log": Path()}, "there is no log ."),
    ({"log": Path("x.csv")}, "--log requires --backend replay"),
    ({"columns": Path("run/config.toml")}, "--columns requires --backend replay or --data"),
    ({"data": Path("x.csv"), "columns": Path("none.toml")}, "there is no columns file none.toml"),
    ({"data": Path("x"), "backend": "serial"}, "stands in the robot's place"),
    ({"data": Path("x"), "minari": "y"}, "--minari y and --data x are two data sets: give one"),
]
NUMBERS: list[tuple[dict[str, Any], str]] = [
    ({"steps": 0}, "--steps must be at least 1 and at most 1,000,000,000,000, got 0"),
    ({"steps": 10**12 + 1}, "--steps must be at least 1 and at most 1,000,000,000,000"),
    ({"horizon": 0}, "--horizon must be at least 1 and at most 1,000,000, got 0"),
    ({"horizon": 10**6 + 1}, "--horizon must be at least 1 and at most 1,000,000"),
    ({"passes": 0}, "--passes must be at least 1 and at most 1,000,000, got 0"),
    ({"robots": 1001}, "--robots must be at least 1 and at most 1,000, got 1001"),
    ({"seed": -1}, "--seed must be at least 0"),
    ({"seed": 2**63}, "--seed must be at least 0 and at most 9,223,372,036,854,775,807"),
    ({"step_size": float("nan")}, "--step-size must be a positive number, not nan"),
    ({"step_size": 0.0}, "--step-size must be a positive number, not 0.0"),
    ({"secondary_ratio": -0.1}, "--secondary-ratio must be a number that is not negative"),
    ({"repeat": 1.0}, "--repeat must be in [0, 1), not 1.0"),
    ({"behaviour": "greedy:lamp", "epsilon": 1.5}, "--epsilon must be in [0, 1], not 1.5"),
    (
        {"excursion_probability": 1.5},
        "--excursion-probability must be in [0, 1], not 1.5",
    ),
]
BEHAVIOURS: list[tuple[dict[str, Any], str]] = [
    (
        {"behaviour": "curious", "paper": True},
        "--paper has the behaviour random, and --behaviour curious is another: omit one of them",
    ),
    ({"behaviour": "curious", "questions": "nexting"}, "all about the behaviour itself"),
    ({**POLE, "behaviour": "curious"}, "all about the behaviour itself"),
    ({"epsilon": 0.2}, "--epsilon 0.2 requires --behaviour greedy:NAME or curious"),
    ({"behaviour": "greedy:lamp", "repeat": 0.2}, "--repeat 0.2 belongs to --behaviour random"),
]
RECORDED: list[tuple[dict[str, Any], str]] = [
    (
        {**LOG, "behaviour": "curious"},
        "--behaviour requires a robot that can act; omit it with --backend replay",
    ),
    (
        {"data": Path("x"), "columns": Path("y"), "behaviour": "greedy:q"},
        "--behaviour requires a robot that can act; omit it with --backend data",
    ),
    (
        {"passes": 30},
        "--passes 30 requires a log or a data set; omit it with --backend simulator",
    ),
    ({**RUN, "passes": 30}, "--passes 30: a recorded run is learned from once"),
    ({**RUN, "repeat": 0.2}, "--repeat requires a robot that can act"),
    ({**RUN, "excursion_probability": 0.2}, "--excursion-probability requires a robot"),
    ({**RUN, "realtime": True}, "--realtime requires a robot that can act"),
    (
        {**LOG, "questions": "excursions"},
        "the action probabilities of a replayed log are unknown, so only --questions nexting",
    ),
]
PROCESSES: list[tuple[dict[str, Any], str]] = [
    ({"ray": "10.0.0.1:6379"}, "--ray requires --shards"),
    ({"shards": "0"}, "--shards 0: write a number of processes, 1 or more, or auto"),
    (
        {"shards": "2", "backend": "replay", "log": Path("run/config.toml")},
        "--shards cannot be combined with --backend replay",
    ),
    ({"robots": 2, "backend": "emulated"}, "cannot be combined with --backend emulated"),
    ({"robots": 2, "shards": "2"}, "cannot be combined with --shards"),
    ({"robots": 2, "realtime": True}, "cannot be combined with --realtime"),
]
QUESTIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"questions": "excursion"},
        "unknown questions 'excursion': choose excursions, policies, nexting, values or a .toml",
    ),
    ({"questions": "excursion"}, "did you mean 'excursions'"),
    ({"questions": "mine"}, "unknown questions 'mine'"),
    ({"questions": ""}, "unknown questions ''"),
    ({"questions": "none.toml"}, "there is no question file none.toml"),
]
FILES: list[tuple[dict[str, Any], str]] = [
    ({"out": Path("run")}, "--out run already contains a run"),
    ({"out": Path("run/log/x/../..")}, "--out run/log/x/../.. already contains a run"),
    ({"out": Path("run/config.toml")}, "--out run/config.toml is a file; name a new folder"),
    ({"out": Path(LONG)}, "(File name too long); name another folder"),
    ({"out": Path(os.fsdecode(bytes([0xE9])))}, "is not UTF-8"),
    ({"on_alarm": "no-such-command-anywhere"}, "there is no such command"),
    (
        {"surprise": "0/week"},
        "--surprise 0/week: the rate of false alarms must be a positive number",
    ),
    ({"surprise": "1"}, "such as 1/month, not '1'"),
    ({"snapshot_every": "10"}, "--snapshot-every 10 is not a duration; write 30s"),
]
KEEPING: list[tuple[dict[str, Any], str]] = [
    ({"keep": "3"}, "--keep 3 is neither a duration nor a size; write 12h, 30d, 500MB or 10GB"),
    ({"keep": "0d"}, "--keep 0d is neither a duration nor a size"),
    ({"keep": "90min"}, "less than a resume needs, two files of an hour: choose at least 2h"),
    ({"keep": "127MB"}, "two files of 64 MB: choose at least 128MB"),
    (
        {"keep": "5h", "snapshot_every": "3h", "realtime": True},
        "(--snapshot-every 3h): choose at least 6h",
    ),
    (
        {"keep": "5h", "snapshot_every": "never"},
        "--snapshot-every never takes one: choose a duration",
    ),
    (
        {"keep": "5h", "data": Path("table.csv")},
        "those of a log or a data set are learned from again",
    ),
    ({"archive": True}, "--archive writes what --keep removes: give --keep"),
]
LEARNER: list[tuple[dict[str, Any], str]] = [
    ({"trace_rule": "clip"}, "unknown trace rule 'clip': choose clipped"),
    ({"trace_rule": "clip"}, "did you mean 'clipped'"),
    ({"w_rule": "never"}, "unknown w rule 'never'"),
    ({"algorithm": "tdrc:beta=.1,beta=.2"}, "gives 'beta' twice: give it once"),
    ({"algorithm": "td", "secondary_ratio": 0.1}, "secondary_ratio = 0.1 has no effect: omit it"),
]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        *SOURCES,
        *NUMBERS,
        *BEHAVIOURS,
        *RECORDED,
        *PROCESSES,
        *QUESTIONS,
        *FILES,
        *KEEPING,
        *LEARNER,
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: dict[str, Any], sentence: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the shards' extra, which is looked for after their number."""
    monkeypatch.setattr(config, "find_spec", lambda _name: object())
    with pytest.raises(BadInput) as refusal:
        resolve(LearnConfig(**settings))
    assert sentence in str(refusal.value)


def test_settings_at_the_ends_of_their_ranges_are_accepted(elsewhere: Path) -> None:
    """One step further is refused above."""
    least = LearnConfig(
        steps=1,
        horizon=1,
        seed=0,
        repeat=0.0,
        excursion_probability=0.0,
        secondary_ratio=0.0,
        average=1.0,
    )
    most = LearnConfig(
        steps=10**12, horizon=10**6, robots=1000, seed=2**63 - 1, excursion_probability=1.0
    )
    greedy = LearnConfig(behaviour="greedy:lamp", epsilon=1.0)
    for settings in (least, most, greedy):
        assert resolve(settings).horizon == settings.horizon


def test_a_number_of_another_command_has_the_range_of_the_setting() -> None:
    refuse_out_of_range("steps", None)
    refuse_out_of_range("steps", 10**12)
    with pytest.raises(BadInput, match="--steps must be at least 1 and at most 1,000,000,000,000"):
        refuse_out_of_range("steps", 10**12 + 1)


def test_a_command_for_alarms_is_a_line_with_a_program() -> None:
    refuse_no_command("echo 'an alarm'")
    with pytest.raises(BadInput, match="is no command line: No closing quotation"):
        refuse_no_command("echo 'an alarm")


# ---- files of settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            'steps = 500\nstep_size = 1\nout = "here"',
            {"steps": 500, "step_size": 1.0, "out": Path("here")},
        ),
        ("steps = 6e4\nseed = 1e0", {"steps": 60_000, "seed": 1}),
        ("shards = 4", {"shards": "4"}),
        ("\ufeffsteps = 77", {"steps": 77}),  # a byte order mark
        (
            to_toml({"minari": 'a "quoted" \\ name\nand more'}, {}),
            {"minari": 'a "quoted" \\ name\nand more'},
        ),
        (
            to_toml(  # of a run with its settings in a file
                {"config": "a.toml", "out": "a", "offset": "1", "average": 2.0, "rarity": True}, {}
            ),
            {"offset": "1", "average": 2.0, "rarity": True},
        ),
    ],
)
def test_a_config_file_fills_settings_and_the_others_keep_their_defaults(
    text: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    assert read_config(file) == LearnConfig(**settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("step = 5", "unknown setting 'step' in c.toml; did you mean 'steps'"),
        ('steps = "many"', "steps in c.toml must be a whole number, not 'many'"),
        ("out = 3", "out in c.toml must be a path in quotes, not 3"),
        ("realtime = 1", "realtime in c.toml must be true or false, not 1"),
        ("steps = ", "the config file c.toml cannot be read: Invalid value"),
    ],
)
def test_a_wrong_config_file_is_refused_by_its_name(
    text: str, sentence: str, elsewhere: Path
) -> None:
    Path("c.toml").write_text(text)
    with pytest.raises(BadInput) as refusal:
        read_config(Path("c.toml"))
    assert sentence in str(refusal.value)


def test_a_config_file_that_cannot_be_read_is_refused_with_the_reason(here: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no config file none\.toml"):
        read_config(Path("none.toml"))
    with pytest.raises(BadInput, match=r"the config file run cannot be read \(Is a directory\)"):
        read_config(Path("run"))


# ---- the folder of a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("x", "there is no folder x"),
        ("run/config.toml/x", "there is no folder run/config.toml/x"),
        (LONG, f"{LONG} cannot be read (File name too long)"),
        ("a\0b", "embedded null"),  # 3.13 says where: "stat: embedded null character in path"
        ("run/config.toml", "run/config.toml is a file, not a folder"),
        (".", ". contains no run: it has neither config.toml nor log/"),
    ],
)
def test_what_is_no_run_is_refused_with_an_example(folder: str, problem: str, here: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        refuse_no_run(Path(folder))
    assert states(str(refusal.value), problem, "name the folder of a run, for example runs/")


def test_the_folder_of_a_run_is_accepted(here: Path) -> None:
    refuse_no_run(Path("run"))
