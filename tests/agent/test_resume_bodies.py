"""What a resume of each body gives: the same bits, or new random numbers after a gap that is counted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import Flag, Phase, read, row_dtype
from horde_agent.runs.storage.folder import RunFolder
from horde_env.hardware.latch import EmergencyLatch, default_path
from tests.agent.commands import (
    QUESTIONS,
    files,
    flip,
    horde,
    refused,
    summary_of,
)
from tests.agent.commands import toy as in_toy_body
from tests.agent.doubles import ToyBody
from tests.agent.kills import ROWS, differences, lived_with_kills
from tests.facts import states

TOY = "--horizon 8 --seed 1 --snapshot-every never --out a"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    return lambda words, **body: in_toy_body(words, monkeypatch, **body)


def resumes_of(run: Path | str) -> list[dict[str, Any]]:
    lines = (Path(run) / "log" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "resumed"]


def relearned(run: Path, folder: Path) -> dict[str, Any]:
    """Return the summary that a report makes from the record of a run alone."""
    copy = Path(shutil.copytree(run, folder))
    shutil.rmtree(copy / "checkpoint", ignore_errors=True)
    for table in [*copy.glob("*.csv"), *copy.glob("*.json")]:
        table.unlink()
    assert horde(f"report {copy}") == 0
    return summary_of(copy)


# ---- kills -----------------------------------------------------------------------------------------------------------

CREATE_QUESTIONS = """
[[family]]
policies = ["forward", "uniform"]
gammas = [0.0, 0.9]
channels = ["light_bump_left", "battery_current"]
"""
KILLS = [1, pytest.param(10, marks=pytest.mark.slow)]


@pytest.mark.sim
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_life_of_a_simulated_create_equals_one_without_kills(
    kills: int, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(CREATE_QUESTIONS)
    steps = (
        6_000 + 2_000 * kills
    )  # longer than the first write of its record and the wait for a kill
    words = f"--robot create2 --questions {tmp_path / 'own.toml'} --steps {steps} --snapshot-every 1s --seed 3"
    n_kills = lived_with_kills(
        tmp_path / "killed",
        words.split(),
        np.random.default_rng(0),
        kills=kills,
        span_s=0.2,
        growth=ROWS,
    )
    assert n_kills >= (kills + 1) // 2
    assert resumes_of(tmp_path / "killed")
    assert horde(f"learn {words} --out {tmp_path / 'whole'}") == 0
    assert differences(tmp_path / "killed", tmp_path / "whole") == []
    assert all(event["exact"] for event in resumes_of(tmp_path / "killed"))


# Steps of a life for each kill: more than a second, so that a kill finds it unfinished.
BODIES = {
    "--backend emulated": 1_000,
    "--robot create2 --backend emulated": 1_000,
    "--env CartPole-v1": 5_000,
}


@pytest.mark.sim
@pytest.mark.parametrize(
    ("body", "kills"),
    [
        ("--backend emulated", 1),
        *(pytest.param(body, 10, marks=pytest.mark.slow) for body in BODIES),
    ],
)
def test_a_killed_life_of_a_body_that_cannot_be_restored_repeats_no_observation(
    body: str, kills: int, tmp_path: Path
) -> None:
    """Before, each resume drew the random numbers of the snapshot, or of the beginning, again."""
    run = tmp_path / "run"
    steps = BODIES[body] * kills
    words = f"{body} --questions nexting --steps {steps} --snapshot-every 2s --seed 3"
    n_kills = lived_with_kills(
        run, words.split(), np.random.default_rng(0), kills=kills, span_s=0.3, growth=ROWS
    )
    events = resumes_of(run)
    rows = read(run / "log" / "life.rec").rows
    observed = rows["observation"][rows["phase"] == Phase.BEHAVE]
    is_repeated = np.zeros(len(observed), dtype=bool)
    # A stale frame, or a robot at rest
    is_repeated[1:] = (observed[1:] == observed[:-1]).all(axis=1)
    assert len(np.unique(observed[~is_repeated], axis=0)) == np.count_nonzero(~is_repeated)
    assert n_kills >= (kills + 1) // 2
    assert len(events) >= n_kills - 1  # a kill before the first row is followed by a new beginning
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert not any(event["exact"] for event in events)
    n_resumed = np.count_nonzero(rows["flags"] & Flag.RESUMED)
    summary = summary_of(run)
    replay = relearned(run, tmp_path / "again")
    assert n_resumed == len(events)
    assert summary["gaps"] >= n_resumed > 0
    for key in ("steps", "learning_steps", "weights_sha256", "gaps", "mean_nmsre"):
        assert replay[key] == summary[key], key


# ---- random numbers and gaps -----------------------------------------------------------------------------------------


class Seeded(ToyBody):
    """Notes the seeds of its resets."""

    seeds: list[int | None] = []  # noqa: RUF012  of all bodies of a test

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seeds.append(seed)
        return super().reset(seed=seed, options=options)


def test_robot_time_goes_on_when_the_robots_clock_begins_anew(toy: Callable[..., int]) -> None:
    """It has no tenths of a second from the record: it would begin at 0 after each resume, in drives too."""
    assert toy("learn --steps 100 --excursion-probability 0.1 " + TOY) == 0
    for steps in (200, 300):
        assert toy(f"resume a --steps {steps}") == 0
    rows = read(Path("a/log/life.rec")).rows
    assert np.count_nonzero(rows["phase"] == Phase.CENTRE) > 20
    assert np.all(np.diff(rows["t"])[np.diff(rows["step"]) > 0] > 0.0)
    assert np.all(np.diff(rows["t"]) >= 0.0)
    assert 29.0 < rows["t"][-1] < 32.0


def test_each_resume_of_a_robot_draws_its_own_numbers_which_its_seed_and_number_repeat(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agent.commands.ToyBody", Seeded)
    monkeypatch.setattr(Seeded, "seeds", [])
    assert toy(f"learn --steps 100 {TOY}") == 0
    shutil.copytree("a", "b")
    assert toy("resume a --steps 200") == 0
    assert toy("resume b --steps 200") == 0
    assert toy("resume a --steps 300") == 0
    shutil.rmtree("a/checkpoint")
    assert toy("resume a --steps 400") == 0

    first, second, copied, third, fourth = (seed for seed in Seeded.seeds if seed is not None)
    assert copied == second
    assert len({first, second, third, fourth}) == 4
    assert_equal_but_wall_clock(Path("a"), Path("b"))
    assert [event["number"] for event in resumes_of("a")] == [1, 2, 3]
    rows = read(Path("a/log/life.rec")).rows
    resumed = rows[(rows["flags"] & Flag.RESUMED) > 0]
    assert resumed["step"].tolist() == [100, 200, 300]
    assert (resumed["flags"] & Flag.GAP).all()
    assert summary_of("a")["gaps"] == 3


def assert_equal_but_wall_clock(run: Path, other: Path) -> None:
    """Check that the record of a run begins with the rows of another one's."""
    rows = read(run / "log" / "life.rec").rows
    other_rows = read(other / "log" / "life.rec").rows
    for name in set(rows.dtype.names or ()) - {"unix_s", "crc"}:
        np.testing.assert_array_equal(rows[name][: len(other_rows)], other_rows[name])


def test_a_report_of_a_resumed_robot_counts_the_same_gaps(
    toy: Callable[..., int], tmp_path: Path
) -> None:
    faults = {50: {"gap": 1}, 70: {"gap": 1}}
    assert toy(f"learn --steps 100 {TOY} --excursion-probability 0", faults=faults) == 0
    assert toy("resume a --steps 200", faults=faults) == 0
    assert summary_of("a")["gaps"] == 5
    replay = relearned(Path("a"), tmp_path / "again")
    assert (replay["gaps"], replay["weights_sha256"]) == (5, summary_of("a")["weights_sha256"])


@pytest.mark.sim
# ---- readings that are not finite ------------------------------------------------------------------------------------


class Unread(ToyBody):
    """A reading is not finite at some ages."""

    bad: dict[int, float] = {}  # noqa: RUF012  reading by age

    def channel_values(self) -> np.ndarray:
        observation = super().channel_values()
        if self.age in self.bad:
            observation[1] = self.bad[self.age]
        return observation


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_reading_that_is_not_finite_is_missing_and_said_once(
    value: float,
    toy: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tests.agent.commands.ToyBody", Unread)
    monkeypatch.setattr(Unread, "bad", {30: value, 60: value, 99: value})
    assert toy(f"learn --steps 100 --excursion-probability 0 {TOY}") == 0
    assert caplog.text.count("so it is missing") == 1
    assert "the reading of saw is" in caplog.text
    rows = read(Path("a/log/life.rec")).rows
    assert np.isfinite(rows["observation"][:, [0, 2]]).all()
    assert rows["step"][np.isnan(rows["observation"][:, 1])].tolist() == [30, 60, 99]
    assert not (rows["flags"] & Flag.STALE).any()
    assert summary_of("a")["gaps"] == 0
    assert summary_of("a")["learning_steps"] == 100
    assert json.loads(Path("a/details.json").read_text())["n_not_finite"] == 3
    weights = summary_of("a")["weights_sha256"]
    assert relearned(Path("a"), tmp_path / "again")["weights_sha256"] == weights
    assert toy("resume a --steps 150") == 0


def test_a_first_reading_that_is_not_finite_and_a_sensor_that_stays_so_end_nothing(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agent.commands.ToyBody", Unread)
    monkeypatch.setattr(Unread, "bad", dict.fromkeys(range(1000), np.nan))
    assert toy(f"learn --steps 50 {TOY}") == 0
    assert summary_of("a")["learning_steps"] == 50
    assert toy("resume a --steps 80") == 0


def test_a_reading_beyond_its_range_is_clipped_and_counted(
    toy: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tile coder refuses it, so a life that recorded it could never be resumed."""
    monkeypatch.setattr("tests.agent.commands.ToyBody", Unread)
    monkeypatch.setattr(Unread, "bad", {30: 1.0000002, 60: -1e30, 80: 3.0})
    assert toy(f"learn --steps 100 --excursion-probability 0 {TOY}") == 0
    assert read(Path("a/log/life.rec")).rows["observation"][[30, 60, 80], 1].tolist() == [
        1.0,
        0.0,
        1.0,
    ]
    assert json.loads(Path("a/details.json").read_text())["n_clipped"] == 3
    weights = summary_of("a")["weights_sha256"]
    assert relearned(Path("a"), tmp_path / "again")["weights_sha256"] == weights
    assert toy("resume a --steps 150") == 0


class Odd(ToyBody):
    """Returns something else than Gymnasium's API at age 60."""

    result: Any = None

    def step(self, action: int) -> Any:
        observation, *rest = super().step(action)
        if self.age == 60:
            return self.result(observation, *rest)
        return (observation, *rest)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda _, *rest: (np.zeros(4), *rest), "an observation of shape (4,), expected (3,)"),
        (lambda _, *rest: (None, *rest), "an observation of shape (), expected (3,)"),
        (lambda _, *rest: ("dark", *rest), "an observation of the type str, expected 3 numbers"),
        (
            lambda o, *rest: (o, *rest[:2], rest[-1]),
            "returned 4 values, expected observation, reward, terminated",
        ),
        (lambda o, *rest: (o, *rest[:3], "fine"), "an info of the type str, expected a dict"),
    ],
    ids=["shape", "None", "text", "four values", "info"],
)
def test_a_result_of_another_form_ends_a_life_in_order_and_it_can_be_resumed(
    result: Any,
    message: str,
    toy: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tests.agent.commands.ToyBody", Odd)
    monkeypatch.setattr(Odd, "result", staticmethod(result))
    assert toy(f"learn --steps 100 {TOY} --excursion-probability 0") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert message in last
    assert "The run until then is in a/report.html" in last
    assert summary_of("a")["stopped_early"] is True
    assert summary_of("a")["steps"] == read(Path("a/log/life.rec")).rows["step"][-1] == 59
    weights = summary_of("a")["weights_sha256"]
    assert relearned(Path("a"), tmp_path / "again")["weights_sha256"] == weights
    monkeypatch.setattr("tests.agent.commands.ToyBody", ToyBody)
    assert toy("resume a") == 0
    assert summary_of("a")["steps"] == 100


def test_an_info_of_none_counts_as_an_empty_one(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agent.commands.ToyBody", Odd)
    monkeypatch.setattr(Odd, "result", staticmethod(lambda o, *rest: (o, *rest[:3], None)))
    assert toy(f"learn --steps 100 {TOY}") == 0
    assert summary_of("a")["gaps"] == 0


# ---- damaged rows ----------------------------------------------------------------------------------------------------


def damage_row(run: Path, number: int) -> None:
    file = run / "log" / "life.rec"
    stream = read(file)
    size = row_dtype(len(stream.header["channels"])).itemsize
    flip(file, stream.header["offset"] + number * size + 20)


@pytest.mark.sim
def test_a_simulated_life_repeats_the_steps_from_a_damaged_row_on(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(QUESTIONS)
    words = f"--physics planar --questions {tmp_path / 'own.toml'} --seed 2 --snapshot-every never"
    run = tmp_path / "run"
    whole = tmp_path / "whole"
    assert horde(f"learn {words} --steps 100 --out {run}") == 0
    checkpoint = Path(shutil.copytree(run / "checkpoint", tmp_path / "kept"))
    assert horde(f"resume {run} --steps 300") == 0
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(checkpoint, run / "checkpoint")
    damage_row(run, 200)
    assert horde(f"resume {run} --steps 400") == 0
    assert horde(f"learn {words} --steps 400 --out {whole}") == 0
    assert differences(run, whole) == []


def test_a_robot_learns_from_the_rows_on_both_sides_of_a_damaged_one(
    toy: Callable[..., int], tmp_path: Path
) -> None:
    assert toy(f"learn --steps 100 {TOY} --excursion-probability 0") == 0
    shutil.rmtree("a/checkpoint")
    damage_row(Path("a"), 60)
    assert toy("resume a --steps 150") == 0
    # Neither the transition to the damaged row nor the one from it is learned from.
    assert summary_of("a")["learning_steps"] == 150 - 2
    assert summary_of("a")["gaps"] == 2
    replay = relearned(Path("a"), tmp_path / "again")
    assert replay["weights_sha256"] == summary_of("a")["weights_sha256"]


# ---- refusals, which write nothing -----------------------------------------------------------------------------------

QUESTION = """
[[family]]
policies = ["left"]
gammas = [{gamma}]
channels = ["saw"]
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--remove zzz*", "no question's name matches"),
        ("--remove *", "questions match; choose a pattern that leaves one"),
        ("--add missing.toml", "missing.toml"),
        ("--add broken.toml", "broken.toml"),
        ("--add taken.toml", "left"),
        ("--remove zzz* --add new.toml", "no question's name matches"),
        ("--on-alarm no-such-command-anywhere", "there is no such command"),
    ],
)
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_refused_resume_writes_nothing(
    words: str,
    message: str,
    is_torn: bool,
    toy: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("own.toml").write_text(QUESTION.format(gamma=0.5))
    Path("taken.toml").write_text(QUESTION.format(gamma=0.5))
    Path("new.toml").write_text(QUESTION.format(gamma=0.8))
    Path("broken.toml").write_text("[[family]\n")
    assert toy(f"learn --steps 100 --questions own.toml {TOY}") == 0
    if is_torn:
        file = Path("a/log/life.rec")
        file.write_bytes(file.read_bytes()[:-7])
    line = refused(["resume", "a", "--steps", "200", *words.split()], capsys, is_alone=False)
    assert message in line


def test_a_body_with_other_channels_is_refused_and_nothing_is_written(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy(f"learn --steps 100 {TOY}") == 0

    class Renamed(ToyBody):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.metadata["channels"][1]["name"] = "blade"

    monkeypatch.setattr("horde_agent.cli.learn.make_env", lambda _config: Renamed())
    assert "with 3 channels, and its body now has 3, such as blade" in refused(
        ["resume", "a", "--steps", "200"], capsys, is_alone=False
    )


def test_a_body_that_fails_in_the_first_reset_of_a_resume_is_a_fault_and_the_record_stays(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 would say that nothing was written: the excursions since the snapshot were learned from again."""
    assert toy(f"learn --steps 100 {TOY}") == 0
    record = Path("a/log/life.rec").read_bytes()

    class Broken(ToyBody):
        def reset(self, **_: Any) -> Any:
            raise ValueError("the cable is not plugged in")

    monkeypatch.setattr("tests.agent.commands.ToyBody", Broken)
    assert toy("resume a --steps 200") == 1
    assert "the cable is not plugged in" in capsys.readouterr().err.splitlines()[-1]
    assert Path("a/log/life.rec").read_bytes() == record
    assert resumes_of("a") == []
    monkeypatch.setattr("tests.agent.commands.ToyBody", ToyBody)
    assert toy("resume a --steps 200") == 0


# ---- settings that were changed --------------------------------------------------------------------------------------


def reports(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(words.split()) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("file", ["config.toml", "questions.toml"])
def test_a_changed_setting_or_question_is_noticed_by_resume_report_and_replay(
    file: str, has_snapshot: bool, toy: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.toml").write_text(QUESTION.format(gamma=0.5))
    assert toy(f"learn --steps 100 --questions own.toml {TOY}") == 0
    if not has_snapshot:
        shutil.rmtree("a/checkpoint")
    changed = Path("a") / file
    text = changed.read_text()
    changed.write_text(text.replace("step_size = 0.05", "step_size = 0.3").replace("0.5", "0.6"))
    assert changed.read_text() != text
    assert toy("report a") == 0
    assert f"{file} was changed after the run began" in Path("a/report.html").read_text()
    Path("a/summary.json").unlink()
    contents = {
        path: path.read_bytes()
        for path in Path("a").rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    for words in ("resume a --steps 200", "report a", "learn --backend replay --log a --out b"):
        assert f"a/{file} was changed after the run began" in reports(words, capsys)
    assert not Path("b").exists()
    assert contents == {path: path.read_bytes() for path in contents}
    changed.write_text(text)
    assert toy("resume a --steps 200") == 0


SETTINGS = {
    "seed": "seed = 2",
    "horizon": "horizon = 9",
    "repeat": "repeat = 0.6",
    "excursion_probability": "excursion_probability = 0.03",
    "step_size": "step_size = 0.3",
    "trace_rule": 'trace_rule = "capped"',
    "offset": 'offset = "mean"',
    "average": "average = 0.0",
    "snapshot_every": 'snapshot_every = "1s"',
}


def test_each_setting_changed_since_the_snapshot_is_refused_also_without_sums(
    toy: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snapshot has the SHA-256 of settings and questions; its weights would go on under other ones."""
    questions = tmp_path / "own.toml"
    questions.write_text('[[family]]\npolicies = ["left"]\ngammas = [0.5]\nchannels = ["saw"]\n')
    assert toy(f"learn --steps 100 {TOY} --questions {questions}") == 0
    Path("a/sums.sha256").unlink()
    config = Path("a/config.toml")
    text = config.read_text()
    edits = {}
    for name, line in SETTINGS.items():
        edits[name] = re.sub(rf"^{name} = .*$", line, text, count=1, flags=re.MULTILINE)
        assert edits[name] != text, name
    edits["a comment"] = f"{text}# seed = 2\n"
    for name, edited in edits.items():
        config.write_text(edited)
        assert toy("resume a --steps 200") == 2, name
        message = "a/config.toml has changed since 000000000100 was written; restore it"
        assert message in capsys.readouterr().err, name
    config.write_text(text)
    question_file = Path("a/questions.toml")
    question_text = question_file.read_text()
    question_file.write_text(question_text.replace("0.5", "0.6"))
    assert toy("resume a --steps 200") == 2
    assert "a/questions.toml has changed since" in capsys.readouterr().err
    question_file.write_text(question_text)
    assert toy("resume a --steps 200") == 0


def test_settings_that_are_changed_while_a_run_goes_on_are_noticed_after_it(
    toy: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The run used what it had read, so neither its last snapshot nor its sums may vouch for the change."""
    config = Path("a/config.toml")

    def edit(age: int) -> None:
        if age == 50:
            config.write_text(config.read_text().replace("step_size = 0.05", "step_size = 0.3"))

    assert toy(f"learn --steps 100 {TOY}", on_step=edit) == 0
    assert "a/config.toml was changed after the run began" in reports(
        "resume a --steps 200", capsys
    )


def test_damaged_sums_do_not_prevent_a_resume_if_a_snapshot_proves_the_settings(
    toy: Callable[..., int],
) -> None:
    assert toy(f"learn --steps 100 {TOY}") == 0
    flip(RunFolder(Path("a")).sums, 5)
    assert toy("resume a --steps 150") == 0


# ---- what can run ----------------------------------------------------------------------------------------------------


def test_the_alarm_command_of_a_folder_is_run_only_if_the_command_line_names_it(
    toy: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of somebody else may name any command. Steps are late from the first on, and count after 100."""
    script = tmp_path / "alarm"
    script.write_text(f"#!/bin/sh\necho $1 >> {tmp_path / 'alarms'}\n")
    script.chmod(0o755)
    hot = {age: {"overrun_s": 0.2} for age in range(1000)}
    assert toy(f"learn --steps 130 {TOY} --on-alarm {script}", faults=hot) == 0
    assert wait_for(tmp_path / "alarms")
    (tmp_path / "alarms").unlink()
    assert toy("resume a --steps 260", faults=hot) == 0
    assert states(capsys.readouterr().err, "not run", f"--on-alarm '{script}'")
    assert not (tmp_path / "alarms").exists()
    assert toy(f"resume a --steps 390 --on-alarm {script}", faults=hot) == 0
    assert wait_for(tmp_path / "alarms")


def wait_for(path: Path) -> bool:
    import time

    end = time.monotonic() + 20.0
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return path.exists()


def test_a_damaged_event_does_not_let_a_resume_repeat_random_numbers(
    toy: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the second resume: the next one would have had its number, 2, again."""
    assert toy(f"learn --steps 100 {TOY}") == 0
    checkpoint = Path(shutil.copytree("a/checkpoint", "kept"))
    assert toy("resume a --steps 150") == 0
    assert toy("resume a --steps 200") == 0
    shutil.rmtree("a/checkpoint")
    shutil.copytree(checkpoint, "a/checkpoint")
    events = Path("a/log/events.jsonl")
    flip(events, events.read_bytes().rindex(b'"resumed"') + 3)
    capsys.readouterr()
    assert toy("resume a --steps 250") == 0
    assert "each counts as a resume" in capsys.readouterr().err
    assert [event["number"] for event in resumes_of("a")] == [1, 3]


# ---- a port that is gone ---------------------------------------------------------------------------------------------

GONE = "--backend serial --port /dev/no_such_robot --questions nexting"


@pytest.mark.parametrize("robot", ["critterbot", "create2"])
def test_a_port_that_was_there_when_the_run_began_is_a_fault_and_a_supervisor_tries_again(
    robot: str,
    toy: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An unplugged cable: exit code 1, at which examples/horde.service starts again, not 2, and no file changes.

    Of a new run it is bad input. A set emergency stop is bad input too, until a person clears it.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with monkeypatch.context() as patch:
        words = f"learn --steps 30 --robot {robot} {GONE} --out a"
        assert in_toy_body(words, patch) == 0
    contents = files()
    capsys.readouterr()
    latch = EmergencyLatch(default_path(robot))
    assert latch.path.is_relative_to(tmp_path)
    assert horde("resume a --steps 60") == 1
    assert "there is no port /dev/no_such_robot" in capsys.readouterr().err
    assert files() == contents
    assert horde(f"learn --steps 30 --robot {robot} {GONE} --out b") == 2

    latch.set("a person pressed it")
    assert horde("resume a --steps 60") == 2
    assert "the emergency stop is set" in capsys.readouterr().err


def test_the_unit_of_systemd_restarts_a_life_after_a_fault_and_not_after_bad_input() -> None:
    unit = (Path(__file__).resolve().parents[2] / "examples" / "horde.service").read_text()
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert codes.split() == [str(cli.BAD_INPUT), "130", "143"]
    assert str(cli.FAULT) not in codes.split()
    assert re.search(r"^StartLimitIntervalSec=0$", unit, re.MULTILINE)
    assert re.search(r"^Restart=on-failure$", unit, re.MULTILINE)
