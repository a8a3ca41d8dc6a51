"""The folder of a run: exclusive, checked first, and removed again if the run does not start."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import horde_agent.bench.command  # noqa: F401  the user of `closed` may not be able to import it
from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.record import Flag, Phase, Recorder, Row, header_of, snapshots
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs import session
from horde_agent.runs.config import LearnConfig, resolve
from horde_agent.runs.storage.files import (
    read_csv,
    read_curve,
    read_lines,
    writable,
    write_csv,
    write_json,
)
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import refuse_over, resume_settings, resumption
from tests.agent.commands import edited_manifest, refused, summary_of
from tests.agent.doubles import ToyBody
from tests.facts import states

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the environment is made, which happens before compiling."""

    def make(_config: LearnConfig) -> None:
        raise AssertionError("the folder was not tried first")

    monkeypatch.setattr(learn, "make_env", make)


def at_once(config: LearnConfig, n: int = 16) -> list[Path | str]:
    """Create a run's folder in `n` threads at once; return the folders and error messages."""

    def create(_: int) -> Path | str:
        try:
            return RunFolder.create(config).path
        except BadInput as error:
            return str(error)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(create, range(n)))


def test_lives_that_begin_at_once_get_folders_of_their_own() -> None:
    Path("runs/simulator-2").mkdir(parents=True)
    folders = at_once(resolve(LearnConfig()))
    assert sorted(folders, key=str) == sorted(
        (Path(f"runs/simulator-{n}") for n in (1, *range(3, 18))), key=str
    )


def test_of_several_processes_one_gets_a_named_folder() -> None:
    results = at_once(resolve(LearnConfig(out=Path("mine"))))
    assert results.count(Path("mine")) == 1
    assert results.count("--out mine already contains a run; name a new folder") == 15
    assert (Path("mine") / "config.toml").stat().st_size > 0


def test_a_folder_that_is_given_back_was_never_there() -> None:
    """Existing folders and other files stay."""
    Path("old").mkdir()
    for out in ("new/deep/run", "old", "old/run"):
        RunFolder.create(resolve(LearnConfig(out=Path(out)))).give_back()
        assert [path.name for path in Path.cwd().rglob("*")] == ["old"]
    folder = RunFolder.create(resolve(LearnConfig(out=Path("new/run"))))
    Path("new/note.txt").touch()
    folder.give_back()
    assert sorted(map(str, Path("new").rglob("*"))) == ["new/note.txt"]


@pytest.fixture
def closed() -> Iterator[Path]:
    """A read-only folder; root, who may write anywhere, becomes another user."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        folder = Path(outer) / "closed"
        (folder / "log").mkdir(parents=True)  # as a run has
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)  # nobody
        yield folder
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    """By default it would be in a folder `runs`; nothing is left. `horde bench --out` is refused alike."""
    Path("file").touch()
    Path("runs").touch()
    for make in (
        lambda: RunFolder.create(resolve(LearnConfig(out=Path("file/a")))),
        lambda: writable(Path("file/a")),
    ):
        with pytest.raises(
            BadInput, match=r"^--out file/a cannot be written \(Not a directory\); "
        ):
            make()
    with pytest.raises(BadInput, match=r"^--out runs cannot be written \(File exists\); name a f"):
        RunFolder.create(resolve(LearnConfig()))
    with pytest.raises(BadInput, match=r"^--out n+ cannot be written \(File name too long\); name"):
        writable(Path("n" * 300))
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["file", "runs"]


@pytest.mark.parametrize("words", ["learn", "bench --quick --only tile"])
def test_a_folder_without_permission_is_refused(
    words: str,
    no_body: None,
    closed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(closed.parent)
    message = refused([*words.split(), "--out", str(closed / "run")], capsys)
    assert states(message, f"--out {closed / 'run'}", "Permission denied", "elsewhere")


def test_a_report_in_a_read_only_folder_is_refused(
    closed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(closed.parent)
    message = refused(["report", str(closed)], capsys)
    assert states(message, closed / "report.html", "read-only")
    monkeypatch.setattr(os, "access", lambda _path, mode, **_: not mode & os.R_OK)
    assert f"{closed} is not readable; ask its owner for a copy" in refused(
        ["report", str(closed)], capsys
    )


def test_a_disk_without_room_for_the_record_is_refused_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """100,000 rows of 3 channels: 2 x 8 + 2 x 3 x 4 + 2 x 4 + 4 + 2 x 8 = 68 bytes each, and 2 MB for tables."""

    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    monkeypatch.setattr(session, "warm_up", lambda *_: pytest.fail("it was compiled first"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(6_500_000))
    message = refused(["learn", "--steps", "100000", "--out", "a"], capsys)
    assert states(message, "--out a", "6.5 MB", "9.6 MB")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(6_900_000))
    monkeypatch.setattr(session, "warm_up", lambda *_: 0.0)
    assert cli.main(["learn", "--steps", "90", "--out", "a"]) == 0


def test_a_disk_that_becomes_full_is_refused_without_leaving_a_folder(
    no_body: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("horde_agent.runs.storage.folder.to_toml", full)
    assert "No space left" in refused(["learn", "--out", "new/run"], capsys)


def test_a_body_behind_a_port_is_opened_closed_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First without a drive, to check the port; it is closed while kernels are compiled."""
    done: list[Any] = []

    class Robot(ToyBody):
        def reset(self, **options: Any) -> Any:
            done.append(options.get("options"))
            return super().reset(**options)

        def close(self) -> None:
            done.append("closed")

    monkeypatch.setattr(learn, "make_env", lambda _config: Robot())
    monkeypatch.setattr(session, "warm_up", lambda *_: done.append("compiled"))
    words = [
        "learn",
        "--backend",
        "serial",
        "--port",
        "/dev/robot",
        "--steps",
        "30",
        "--excursion-probability",
        "0",
    ]
    assert cli.main([*words, "--out", "a"]) == 0
    assert done == [{"manoeuvre": "stay"}, "closed", "compiled", None, "closed"]


def test_a_table_that_cannot_be_written_leaves_the_one_before_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_csv(Path("t.csv"), ["a"], [[1.0]])
    content = Path("t.csv").read_bytes()

    def full(self: Path, *_: Any, **__: Any) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=r"No space left on device: 't\.csv'"):
        write_csv(Path("t.csv"), ["a"], [[2.0]])
    with pytest.raises(OSError, match=r"'t\.json'"):
        write_json(Path("t.json"), {"a": 1})
    assert Path("t.csv").read_bytes() == content
    assert [path.name for path in Path.cwd().iterdir()] == ["t.csv"]


def test_a_table_has_lines_that_every_reader_knows() -> None:
    write_csv(Path("t.csv"), ["name", "x"], [["a,b", float("nan")], ["c", 1 / 3]])
    assert Path("t.csv").read_bytes() == b'name,x\r\n"a,b",\r\nc,0.333333333\r\n'


class Replayed(ToyBody):
    """A recorded life of some steps."""

    def __init__(self, n_steps: int) -> None:
        super().__init__()
        self.n_steps = n_steps

    def step(self, action: int) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.age >= self.n_steps, info


def replay(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    Path("log.csv").touch()
    monkeypatch.setattr(learn, "make_env", lambda _config: Replayed(n_steps))
    return ["learn", "--backend", "replay", "--log", "log.csv", "--passes", "2", "--out", "a"]


def test_a_log_that_is_too_short_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = replay(9, monkeypatch)
    message = refused(words, capsys)
    assert states(message, "9 steps", "10")
    assert cli.main(replay(10, monkeypatch)) == 0


def test_an_interrupted_log_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second of a thousand passes over 70 rows: 69 updates in the first, 29 in the second."""
    rows = itertools.count(1)

    def is_due(*_: Any) -> bool:
        if next(rows) == 100:
            signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr("horde_agent.life.observers.Progress.is_due", is_due)
    words = replay(99, monkeypatch)
    words[words.index("2")] = "1000"
    assert cli.main(words) == 130
    summary = summary_of("a")
    assert (summary["steps"], summary["stopped_early"], summary["learning_steps"]) == (
        99,
        True,
        69 + 29,
    )
    page = Path("a/report.html").read_text()
    assert "Stopped early, after 99 steps: SIGINT" in page
    assert "Learned in 1.43 passes" in page  # 100 of 70 rows
    assert summary["mean_nmsre"] is not None


def test_a_log_whose_tables_are_gone_is_learned_from_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(replay(200, monkeypatch)) == 0
    old_summary = summary_of("a")
    questions = Path("a/questions.csv").read_text()
    for table in ("summary.json", "questions.csv"):
        Path("a", table).unlink()
    assert cli.main(["report", "a"]) == 0
    new_summary = summary_of("a")
    timed = {"wall_s", "steps_per_s", "learn_ms", "stopped_early"}
    assert {k: v for k, v in new_summary.items() if k not in timed} == {
        k: v for k, v in old_summary.items() if k not in timed
    }
    assert Path("a/questions.csv").read_text() == questions
    assert cli.main(["learn", "--data", "log.csv", "--passes", "2", "--out", "b"]) == 0, (
        "without --columns"
    )
    assert summary_of("b")["weights_sha256"] == old_summary["weights_sha256"]
    assert "(unfinished)" in Path("a/report.html").read_text()


def test_a_long_curve_is_read_at_even_distances_and_to_its_end(tmp_path: Path) -> None:
    """100 lines, at most ten points and the last one; a cell without a number is NaN, a line cut off is left out."""
    path = tmp_path / "curve.csv"
    write_csv(
        path,
        ("step", "name", "nmsre"),
        [[k, "a", float("nan") if k == 0 else k / 2] for k in range(100)],
    )
    with path.open("a") as file:
        file.write("100,")
    steps, nmsre = read_curve(path, ("step", "nmsre"), 10)
    assert len(steps) <= 11
    assert np.unique(np.diff(steps[:-1])).size == 1
    assert (steps[0], steps[-1]) == (0.0, 99.0)
    assert np.isnan(nmsre[0])
    assert nmsre[1:] == [step / 2 for step in steps[1:]]
    assert read_curve(path, ("step", "nmsre"), 1000)[0] == list(range(100))
    assert read_curve(tmp_path / "none.csv", ("step",), 10) == [[]]
    assert read_curve(path, ("other",), 10) == [[]]
    path.write_text("1,0.5\n2,1.5\n")  # without a head
    assert read_curve(path, ("b", "a"), 10, ["a", "b"]) == [[0.5, 1.5], [1.0, 2.0]]


def test_a_line_without_its_end_is_no_line_as_its_number_may_lack_digits(tmp_path: Path) -> None:
    """The cells 2 and 12.5 fit the header, but 12.5625 was written."""
    path = tmp_path / "table.csv"
    write_csv(path, ("step", "nmsre"), [[1, 0.5], [2, 12.5625]])
    whole = path.read_bytes()
    assert [line["nmsre"] for line in read_csv(path)] == ["0.5", "12.5625"]
    assert read_lines(path) == read_csv(path)
    path.write_bytes(whole[: whole.index(b"625")])
    assert [line["nmsre"] for line in read_lines(path)] == ["0.5"]
    assert read_curve(path, ("nmsre",), 10) == [[0.5]]
    with pytest.raises(ValueError, match=r"truncated: '2,12\.5'"):
        read_csv(path)


# ---- what a folder says, and what of it is damaged -------------------------------------------------------------------


@pytest.fixture
def folder() -> RunFolder:
    """A new run's folder."""
    return RunFolder.create(resolve(LearnConfig(out=Path("run"))))


@pytest.mark.parametrize(
    ("n_damaged", "n_resumes", "is_imported", "fault"),
    [
        (0, 1, True, ""),
        (1, 2, True, "1 of its lines (number 1) do not match"),
        (3, 3, False, "3 of its lines (number 2, 3, 4) do not match"),
        (4, 4, True, "4 of its lines (number 1, 2, 3, ...) do not match"),
    ],
)
def test_events_are_read_with_their_damage(
    n_damaged: int, n_resumes: int, is_imported: bool, fault: str, folder: RunFolder
) -> None:
    """A damaged line counts as a resume, and a damaged first line as the end of the import."""
    for kind in ("began", "imported", "snapshot", "resumed"):
        folder.events.append({"step": 0, "event": kind}, is_needed=kind == "resumed")
    lines = folder.events.path.read_bytes().splitlines(keepends=True)
    first = 1 if n_damaged == 3 else 0
    for number in range(first, first + n_damaged):
        lines[number] = lines[number].replace(b'"step": 0', b'"step": 9')
    folder.events.path.write_bytes(b"".join(lines))
    recorded = folder.events.read()
    assert len(recorded.events) == 4 - n_damaged
    assert recorded.damaged == list(range(first + 1, first + 1 + n_damaged))
    assert (recorded.n_resumes, recorded.is_imported) == (n_resumes, is_imported)
    assert fault in recorded.fault
    assert bool(recorded.fault) is bool(n_damaged)
    assert (recorded.began.year == 1970) is (1 in recorded.damaged)


def test_an_event_that_is_needed_is_refused_if_it_cannot_be_written(folder: RunFolder) -> None:
    folder.events.path.mkdir()
    folder.events.append({"step": 0, "event": "snapshot"})
    with pytest.raises(BadInput, match=r"events\.jsonl cannot be written \(Is a directory\)"):
        folder.events.append({"step": 0, "event": "resumed"}, is_needed=True)
    recorded = folder.events.read()
    assert (recorded.events, recorded.damaged) == ([], [])


def test_a_line_of_the_sums_whose_end_is_damaged_is_no_line(folder: RunFolder) -> None:
    """One flipped bit makes another end of line of a line feed: both lines were taken for sound."""
    digest = folder.sealed().digests["config.toml"]
    folder.sums.write_text(f"{digest}  config.toml\x0b{digest}  questions.toml\n")
    sealed = folder.sealed()
    assert sealed.digests == {}
    assert len(sealed.damaged) == 1
    folder.sums.unlink()
    assert folder.sealed() == ({}, [])


def test_each_changed_setting_file_is_a_fault(folder: RunFolder) -> None:
    assert folder.setting_faults() == []
    assert folder.sound_settings().out == folder.path
    folder.question_file.write_text("")
    folder.seal()
    folder.question_file.write_text("# changed")
    text = folder.config.read_text()
    folder.config.write_text(text[: text.index("[versions]")])
    (cut, *changed) = folder.setting_faults()
    assert states(cut, "run/config.toml is cut off before its versions")
    assert len(changed) == 2
    assert states(changed[0], "run/config.toml was changed", "SHA-256", "sums.sha256")
    assert states(changed[1], "run/questions.toml was changed")
    with pytest.raises(BadInput, match="is cut off before its versions"):
        folder.sound_settings()


def test_the_extent_of_a_recording_ends_at_its_last_sound_row(folder: RunFolder) -> None:
    """Two files of three rows, of steps that begin at 7; the last one is cut, then its file holds none."""
    with pytest.raises(BadInput, match="there are neither tables nor a log in it"):
        folder.extent(may_be_empty=True)
    recorder = Recorder(1, folder.life, {"period_s": 1.0}, segment_s=3.0)
    assert folder.extent(may_be_empty=True)[1:] == (0, 0)
    with pytest.raises(BadInput, match="its log is empty"):
        folder.extent()
    with recorder:
        for step in range(7, 13):
            reading = np.zeros(1, dtype=np.float32)
            recorder.write(
                Row(step, step - 7.0, reading, 0, 1.0, Phase.BEHAVE, Flag.NONE, (0.0,) * 3)
            )
    assert [path.name for path in record_files(folder.life)] == ["life.rec", "life-2.rec"]
    assert folder.extent().header["period_s"] == 1.0
    assert folder.extent()[1:] == (6, 12)
    second = folder.life.with_name("life-2.rec")
    os.truncate(second, second.stat().st_size - 1)
    assert folder.extent()[1:] == (5, 11)
    os.truncate(second, header_of(second)["offset"])
    assert folder.extent()[1:] == (3, 9)
    folder.life.write_text("no record")
    with pytest.raises(BadInput, match=r"log/life\.rec cannot be read"):
        folder.extent()


# ---- what cannot be resumed ------------------------------------------------------------------------------------------


def of_another_version(run: Path) -> None:
    with edited_manifest(next(snapshots.found(run / "checkpoint"))) as manifest:
        manifest |= {"version": 8, "program": "7.1"}


def with_another_step_size(run: Path) -> None:
    file = run / "config.toml"
    file.write_text(file.read_text().replace("step_size = 0.05", "step_size = 0.2"))


def find_place(folder: RunFolder, steps: int | None) -> None:
    """Do what `horde resume` does before it makes a robot."""
    config = resume_settings(folder, steps)
    refuse_over(folder, resumption(folder), config.steps)


@pytest.mark.parametrize(
    ("damage", "steps", "facts"),
    [
        (lambda run: (run / "config.toml").unlink(), None, ["run contains no run: config.toml"]),
        (
            lambda run: (run / "log/life.rec").unlink(),
            None,
            ["run contains no run to resume: log/life.rec is missing"],
        ),
        (
            lambda run: None,
            230,
            ["has taken 1,200 steps, and --steps is 230 in total: choose a larger --steps"],
        ),
        (with_another_step_size, 1300, ["config.toml was changed after the run began"]),
        (
            of_another_version,
            1300,
            ["version 8 of the format horde-snapshot", "install the version that wrote it, 7.1,"],
        ),
    ],
)
def test_a_run_that_cannot_be_resumed_is_refused(
    damage: Callable[[Path], object], steps: int | None, facts: list[str], toy_run: Path
) -> None:
    folder = RunFolder(Path(shutil.copytree(toy_run, "run")))
    damage(folder.path)
    with pytest.raises(BadInput) as refusal:
        find_place(folder, steps)
    assert states(str(refusal.value), *facts)
