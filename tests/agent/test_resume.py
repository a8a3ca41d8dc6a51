"""A run that was interrupted and resumed equals one without interruption, bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.processes import own_version
from horde_agent.record import Flag, Phase, read, snapshots
from horde_agent.record.rows import FORMAT
from horde_agent.record.segments import encode_header, read_header, record_files, sealed
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from horde_agent.scoring.excursion_table import folded_place
from tests.agent.commands import OPTIONS, QUESTIONS, edited_manifest, flip, horde, summary_of
from tests.agent.commands import toy as in_toy_body
from tests.agent.kills import ROWS, differences, fold_early, lived_with_kills
from tests.agent.test_snapshots import at_step
from tests.facts import states

WORDS = "learn --questions {questions} --excursion-probability 0.05 --horizon 12 --seed 1 --snapshot-every never"
# Without another process, which takes longer to start than the life
LIFE = f"{WORDS} --physics planar"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("questions") / "own.toml"
    file.write_text(QUESTIONS)
    return file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, own: Path) -> Path:
    """A life of 900 steps that never stopped."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert horde(LIFE.format(questions=own), f"--steps 900 --out {run}") == 0
    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, own: Path) -> Path:
    """The same life, asked for 550 steps alone; with two snapshots."""
    run = tmp_path_factory.mktemp("runs") / "stopped"
    assert horde(LIFE.format(questions=own), f"--steps 230 --out {run}") == 0
    assert horde(f"resume {run} --steps 550") == 0
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def newest(run: Path) -> Path:
    return next(snapshots.found(run / "checkpoint"))


pytestmark = pytest.mark.sim


def test_a_run_extended_by_resume_equals_a_longer_run(run: Path, whole: Path) -> None:
    """550 steps end within a drive: its other steps are not counted, and the resumed run repeats the drive."""
    assert horde(f"resume {run} --steps 900") == 0
    assert differences(run, whole) == []
    assert summary_of(run)["steps"] == 900


def half_a_snapshot(run: Path) -> None:
    """As a kill in the middle of writing one leaves it."""
    path = newest(run)
    (path / "manifest.json").unlink()
    path.rename(path.with_name(".unfinished-000000000700"))


def torn_record(run: Path) -> None:
    """As a kill leaves it, a second after the older snapshot."""
    shutil.rmtree(newest(run))
    file = run / "log" / "life.rec"
    file.write_bytes(file.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        # Excursions are later than the snapshot
        (lambda run: shutil.rmtree(newest(run)), "resumed at step 230"),
        (
            lambda run: shutil.rmtree(run / "checkpoint"),
            "There is no intact snapshot: the run is replayed from its",
        ),
        (torn_record, "life.rec is cut off: its end was torn off"),
        (
            lambda run: flip(newest(run) / "small.bin", 100),
            "using the previous snapshot. resumed at step 230",
        ),
        pytest.param(half_a_snapshot, "resumed at step 230", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_is_the_same_after_any_interruption(
    what: Callable[[Path], None],
    said: str,
    run: Path,
    whole: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: Any,
) -> None:
    what(run)
    assert horde(f"resume {run} --steps 900") == 0
    assert said in " ".join(capsys.readouterr().err.split()) + caplog.text
    assert differences(run, whole) == []
    assert not list((run / "checkpoint").glob(".*"))


@pytest.mark.parametrize("has_doctor", [False, True])
def test_damaged_last_rows_that_a_snapshot_counts_prevent_no_resume(
    has_doctor: bool, run: Path, whole: Path
) -> None:
    """They stay as they are, and the others are repeated. Before, the doctor cut them off: no resume was possible."""
    file = run / "log" / "life.rec"
    n_counted = snapshots.read_manifest(newest(run))["facts"]["n_rows"]
    stream = read(file)
    for number in range(n_counted - 3, len(stream)):
        flip(file, stream.header["offset"] + number * stream.rows.itemsize + 20)
    if has_doctor:
        assert horde(f"doctor {run}") == 1
    assert horde(f"resume {run} --steps 900") == 0
    assert differences(run, whole) == ["log/life.rec"]
    rows = read(file).rows
    whole_rows = read(whole / "log" / "life.rec").rows
    n_after = len(whole_rows) - n_counted
    assert len(rows) == len(whole_rows) - 3
    np.testing.assert_array_equal(
        rows["observation"][-n_after:], whole_rows["observation"][-n_after:]
    )


def test_a_replay_that_differs_from_its_recording_is_logged(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As under another PyBullet: from that step on, the recording contains the new observations."""
    shutil.rmtree(newest(run))
    path = run / "log" / "life.rec"
    stream = read(path)
    rows = stream.rows.copy()
    rows["observation"][400, 20] += 0.25
    path.write_bytes(path.read_bytes()[: stream.header["offset"]] + sealed(rows))
    assert horde(f"resume {run} --steps 900") == 0
    assert states(caplog.text, "observation", f"step {rows['step'][400]}", "recorded")
    assert read(path).rows["step"][-1] == 900


def test_a_run_in_use_by_another_process_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder(run).locked():
        assert horde(f"resume {run} --steps 900") == 2
    assert "is in use by process" in capsys.readouterr().err


def test_another_version_and_processor_are_reported(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with edited_manifest(newest(run)) as manifest:
        manifest["facts"] |= {"version": "0.0.7", "processor": "abacus"}
    assert horde(f"resume {run} --steps 551") == 0
    message = " ".join(capsys.readouterr().err.split())
    assert states(message, own_version(), "0.0.7")
    assert "instead of abacus" in message


def test_other_channel_ranges_than_recorded_are_refused_and_the_recording_stays(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "log" / "life.rec"
    header = read_header(file, FORMAT)
    rows = file.read_bytes()
    header["ranges"]["light_0"] = [0, 1]
    file.write_bytes(encode_header(header) + rows[header["offset"] :])
    content = file.read_bytes()
    assert horde(f"resume {run} --steps 900") == 2
    assert "light_0" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_resuming_a_finished_run_without_tables_writes_them(run: Path, whole: Path) -> None:
    """The last snapshot is there, the tables are those of before, or none."""
    assert horde(f"resume {run} --steps 900") == 0
    for table in [*run.glob("*.csv"), *run.glob("*.json"), *run.glob("*.html")]:
        table.unlink()
    assert horde(f"resume {run}") == 0
    assert differences(run, whole) == []


MORE = """
[[family]]
policies = ["reverse"]
gammas = [0.5]
channels = ["light_0", "light_1", "light_2", "light_3"]
"""


@pytest.mark.parametrize(
    "learns", [pytest.param("", marks=pytest.mark.slow), "--learn-from-record"]
)
def test_questions_can_be_added_and_removed_when_resuming(
    learns: str, run: Path, tmp_path: Path
) -> None:
    """And the life with that change, stopped and resumed, is the life that was not."""
    more = tmp_path / "more.toml"
    more.write_text(MORE)
    run_copy = Path(shutil.copytree(run, tmp_path / "other"))
    change = f"--add {more} --remove stop/* {learns}"
    assert horde(f"resume {run} --steps 900 {change}") == 0
    assert horde(f"resume {run_copy} --steps 650 {change}") == 0
    more.unlink()
    assert horde(f"resume {run_copy} --steps 900") == 0
    assert differences(run, run_copy) == []
    names = [line.split(",")[0] for line in (run / "questions.csv").read_text().splitlines()[1:]]
    assert sum(name.startswith("reverse/") for name in names) == 4
    assert not any(name.startswith("stop/") for name in names)


def test_a_change_of_questions_that_a_short_resume_does_not_reach_is_said(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The drive in which the run was cut is repeated, and lasts beyond step 560."""
    change = "--remove stop/*"
    assert horde(f"resume {run} --steps 560 {change}") == 0
    assert "the questions were not changed: the run ended at step 560" in caplog.text
    assert summary_of(run)["n_questions"] == 24
    caplog.clear()
    assert horde(f"resume {run} --steps 650 {change}") == 0
    assert summary_of(run)["n_questions"] == 16
    assert "not changed" not in caplog.text


def test_lost_files_of_excursions_of_changed_questions_are_written_again(
    run: Path, tmp_path: Path
) -> None:
    """Removing questions begins a file, and adding some another one: the first lines name the demons that stay."""
    more = tmp_path / "more.toml"
    more.write_text(MORE)
    assert horde(f"resume {run} --steps 650 --add {more} --remove stop/*") == 0
    first, second, third = (run / "log" / f"excursions{suffix}.rec" for suffix in ("", "-2", "-3"))
    sound = [file.read_bytes() for file in (first, second, third)]
    first.write_bytes(bytes(first.stat().st_size))
    second.unlink()
    flip(third, 40)
    flip(third, 41)
    assert horde(f"doctor {run}") == 1  # no record of the first file is sound
    first.write_bytes(bytes(64) + sound[0][64:])
    assert horde(f"doctor {run}") == 0
    assert [file.read_bytes() for file in (first, second, third)] == sound
    assert horde(f"resume {run} --steps 700") == 0


def test_a_pattern_without_a_question_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert horde(f"resume {run} --steps 600 --remove none/*") == 2
    assert "no question's name matches" in capsys.readouterr().err


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    return lambda words, **body: in_toy_body(words, monkeypatch, **body)


def test_a_robot_that_kept_moving_learns_from_its_recording_and_continues_after_a_gap(
    toy: Callable[..., int],
) -> None:
    """Rows recorded after the snapshot are learned from again, so nothing is lost.

    The robot skips a step at its age 50, in each of two runs: both gaps are counted, and each
    resume.
    """
    settings = "--horizon 8 --seed 1 --snapshot-every never --out a"
    faults = {50: {"gap": 1}}
    assert toy(f"learn --steps 300 {settings}", faults=faults) == 0
    checkpoint = Path(shutil.copytree("a/checkpoint", "kept"))
    assert toy("resume a --steps 500", faults=faults) == 0
    stopped = summary_of("a")
    shutil.rmtree("a/checkpoint")
    shutil.copytree(checkpoint, "a/checkpoint")
    rows = read(Path("a/log/life.rec")).rows
    assert toy("resume a --steps 502") == 0
    later_rows = read(Path("a/log/life.rec")).rows
    assert later_rows[: len(rows)].tobytes() == rows.tobytes()
    assert later_rows["flags"][len(rows)] & Flag.GAP
    assert rows["phase"][-1] == Phase.END
    summary = summary_of("a")
    assert summary["learning_steps"] - stopped["learning_steps"] in (0, 1, 2)
    assert summary["n_excursions"] == stopped["n_excursions"]
    assert stopped["gaps"] == 3
    assert summary["gaps"] == 4


def test_a_robot_that_kept_moving_never_returns_to_a_snapshot_whose_rows_were_lost(
    toy: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snapshot at step 500 follows rows that others have replaced; no later one could be written."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    settings = "--horizon 8 --seed 1 --snapshot-every never --out a"
    assert toy(f"learn --steps 300 {settings}") == 0
    assert toy("resume a --steps 500") == 0
    file = Path("a/log/life.rec")
    os.truncate(file, file.stat().st_size - 100 * read(file).rows.itemsize)
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "write_file", full)
        assert toy("resume a --steps 520") == 0
    assert len(read(file).rows) > 500
    capsys.readouterr()
    assert toy("resume a --steps 530") == 0
    assert "resumed at step 300" in capsys.readouterr().err


@pytest.mark.parametrize(
    "is_cut", [False, True], ids=["one", "two more while the snapshot is written"]
)
def test_a_run_ended_by_signals_can_be_resumed(
    is_cut: bool, own: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first signal writes a snapshot; an interrupted snapshot is not used."""
    original = snapshots.write_file
    files = itertools.count(1)

    def interrupted(*arguments: Any) -> Any:
        if is_cut and next(files) == 4:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return original(*arguments)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(
            SnapshotWriter, "before_step", at_step(333, lambda: signal.raise_signal(signal.SIGTERM))
        )
        patch.setattr(snapshots, "write_file", interrupted)
        code = horde(LIFE.format(questions=own), f"--steps 900 --out {run}")
    assert code == 128 + signal.SIGTERM
    assert [path.name for path in snapshots.found(run / "checkpoint")] == (
        [] if is_cut else ["000000000334"]
    )
    assert horde(f"resume {run}") == 0
    assert differences(run, whole) == []


def test_a_resume_under_settings_that_the_snapshot_does_not_know_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without the sums of the folder's files: the snapshot has its own; its weights learned by other steps."""
    folder = RunFolder(run)
    folder.sums.unlink()
    text = folder.config.read_text()
    changed = text.replace("step_size = 0.05", "step_size = 0.3")
    assert changed != text
    folder.config.write_text(changed)
    assert horde(f"resume {run} --steps 600") == 2
    message = f"{folder.config} has changed since {newest(run).name} was written; restore it"
    assert message in capsys.readouterr().err


KILLS = [(1, 6000, 0.2), pytest.param(10, 60_000, 1.0, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("kills", "steps", "span_s"), KILLS)
def test_a_killed_and_resumed_run_equals_one_without_kills(
    kills: int, steps: int, span_s: float, own: Path, tmp_path: Path
) -> None:
    """SIGKILL at random moments: see tests/agent/kills.py."""
    words = [*WORDS.format(questions=own).replace("never", "1s").split()[1:], "--steps", str(steps)]
    n_kills = lived_with_kills(
        tmp_path / "killed",
        words,
        np.random.default_rng(0),
        kills=kills,
        span_s=span_s,
        growth=ROWS,
    )
    assert n_kills >= (kills + 1) // 2
    assert "resumed" in (tmp_path / "killed" / "log" / "events.jsonl").read_text()
    assert horde("learn", " ".join(words), f"--out {tmp_path / 'whole'}") == 0
    assert differences(tmp_path / "killed", tmp_path / "whole") == []


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_killed_life_that_keeps_two_hours_equals_one_that_keeps_all(
    own: Path, tmp_path: Path
) -> None:
    """Of four hours, with 8 kills: rows are removed and excursions folded between them, and in none of the other."""
    life = LIFE.format(questions=own).replace("never", "1s").split()[1:]
    life += ["--steps", "150000"]
    n_kills = lived_with_kills(
        tmp_path / "kept",
        [*life, "--keep", "2h"],
        np.random.default_rng(0),
        kills=8,
        span_s=1.5,
        growth=ROWS,
        prepare=fold_early,
    )
    assert n_kills >= 4
    rng = np.random.default_rng(0)
    lived_with_kills(tmp_path / "whole", life, rng, kills=0, span_s=0.0, prepare=fold_early)
    deviations = differences(tmp_path / "kept", tmp_path / "whole")
    assert [name for name in deviations if not name.startswith("log/")] == []
    tables = [tmp_path / name / "log" / "excursions.rec" for name in ("kept", "whole")]
    n_files = [len(record_files(table)) for table in tables]
    assert n_files[0] < n_files[1] - 3
    (folded,) = snapshots.found(folded_place(tables[0]))
    assert snapshots.read_facts(folded)["n_excursions"] >= 64 * (n_files[1] - n_files[0])


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_killed_life_that_follows_options_equals_one_without_kills(tmp_path: Path) -> None:
    """20 kills, also in the middle of an option; what was followed how often is the same, too."""
    (tmp_path / "options.toml").write_text(OPTIONS)
    life = "--behaviour curious --physics planar --features fixed --seed 1 --steps 60000"
    words = f"--questions {tmp_path / 'options.toml'} {life} --snapshot-every 1s".split()
    n_kills = lived_with_kills(
        tmp_path / "killed",
        words,
        np.random.default_rng(0),
        kills=20,
        span_s=0.3,
        growth=ROWS,
    )
    assert n_kills >= 10
    assert horde("learn", " ".join(words), f"--out {tmp_path / 'whole'}") == 0
    # The questions of a model are not tested, so that neither life has this table
    assert differences(tmp_path / "killed", tmp_path / "whole") == ["traces.csv"]
    assert not list(tmp_path.glob("*/traces.csv"))
    followed = []
    for run in ("killed", "whole"):
        details = json.loads((tmp_path / run / "details.json").read_text())
        followed.append(details["options"])
    assert followed[0] == followed[1]
    assert min(option["steps"] for option in followed[1]) > 100


@pytest.mark.parametrize("named_by", ["--backend replay --log", "--data"])
def test_learning_from_a_recording_gives_the_weights_of_the_run(
    named_by: str, whole: Path, tmp_path: Path
) -> None:
    """Off-policy, with the recorded probabilities; the questions are the life's own unless others are asked."""
    run = tmp_path / "again"
    assert horde(f"learn {named_by} {whole} --out {run}") == 0
    assert differences(run, whole) == []


def test_the_tables_of_a_replayed_run_are_learned_again(whole: Path, tmp_path: Path) -> None:
    """Also of a part of a recording, without the folder of the life; such a run can be replayed, too."""
    life = shutil.copytree(whole, tmp_path / "life")
    run = tmp_path / "run"
    second_run = tmp_path / "again"
    assert horde(f"learn --backend replay --log {life} --steps 400 --out {run}") == 0
    assert "Missing or damaged" not in (run / "report.html").read_text()
    first = summary_of(run)
    assert horde(f"learn --backend replay --log {run} --steps 400 --out {second_run}") == 0
    shutil.rmtree(life)
    (run / "summary.json").unlink()
    assert horde(f"report {run}") == 0
    for key in ("steps", "learning_steps", "weights_sha256", "mean_nmsre"):
        assert summary_of(run)[key] == summary_of(second_run)[key] == first[key], key


def test_new_questions_are_learned_from_an_old_life(whole: Path, tmp_path: Path) -> None:
    """They learn the same as in a simulated run: the behaviour does not depend on the questions."""
    more = tmp_path / "more.toml"
    more.write_text(MORE)
    assert (
        horde(
            f"learn --backend replay --log {whole} --questions {more} --steps 400 --out {tmp_path / 'again'}"
        )
        == 0
    )
    summary = summary_of(tmp_path / "again")
    assert (summary["n_questions"], summary["steps"]) == (4, 400)
    assert 0.1 < summary["n_updated_per_step"] / 4 < 0.3, "one of five actions"
