"""`horde doctor` finds and repairs damage; a second call changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import snapshots


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_run, tmp_path / "run"))


def doctor(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    capsys.readouterr()
    code = cli.main(["doctor", str(run)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def test_a_sound_run_is_sound_in_every_part(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    assert all(line.startswith("sound") for line in lines)
    names = {line.split()[1].rstrip(":") for line in lines}
    assert {"config.toml", "log/life.rec", "log/excursions.rec", "summary.json", "checkpoint/000000001200"} <= names


def test_a_file_without_a_header_is_removed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a kill between the making of a further file and its first line leaves it."""
    (run / "log/life-2.rec").write_bytes(b'{"form')
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    assert "repaired log/life-2.rec: it contains no header, and was removed" in lines
    assert all(line.startswith("sound") for line in doctor(run, capsys)[1])


def kinds(run: Path) -> dict[str, Path]:
    """Return a file of each kind in a run folder, except pages and pictures."""
    top = ("config.toml", "summary.json", "details.json", "questions.csv", "learning_curve.csv", "mspbe_curve.csv")
    names = (*top, "traces.csv", "sums.sha256", "log/life.rec", "log/excursions.rec", "log/events.jsonl")
    snapshot = next(snapshots.found(run / "checkpoint"))
    return {name: run / name for name in names} | {path.name: path for path in snapshot.iterdir()}


def means_nothing(data: bytes, place: int, file: Path) -> bool:
    """Return whether a byte is padding of a recording's header."""
    end = data.find(b"\n")
    return file.suffix == ".rec" and len(data[:end].rstrip()) <= place < end


@pytest.mark.parametrize("n", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_any_file_is_found_and_named(run: Path, n: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a file that can still be read: another digit in a table, another letter in an event."""
    rng = np.random.default_rng(17)
    for _ in range(n):
        for name, file in kinds(run).items():
            sound = file.read_bytes()
            place = int(rng.integers(len(sound)))
            if means_nothing(sound, place, file):
                continue
            data = bytearray(sound)
            data[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(bytes(data))
            said = [line for line in doctor(run, capsys)[1] if not line.startswith("sound")]
            assert said, (name, place)
            assert any(name in line or file.parent.name in line or "sums.sha256" in line for line in said), (name, said)
            for aside in (run / "checkpoint").glob("damaged-*"):
                aside.rename(aside.with_name(aside.name.removeprefix("damaged-")))
            file.write_bytes(sound)
    assert doctor(run, capsys)[0] == 0


def test_a_torn_end_is_repaired_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "log" / "life.rec"
    file.write_bytes(file.read_bytes()[:-7])
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    (line,) = [line for line in lines if line.startswith("repaired")]
    assert "log/life.rec" in line
    assert "its end was torn off" in line
    size = file.stat().st_size
    assert not [line for line in doctor(run, capsys)[1] if line.startswith("repaired")]
    assert file.stat().st_size == size


def test_a_row_that_is_damaged_stays_and_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "log" / "life.rec"
    data = bytearray(file.read_bytes())
    data[-500] ^= 1
    file.write_bytes(bytes(data))
    for _ in range(2):
        code, _, said = doctor(run, capsys)
        assert code == 1
        assert "damaged and not repairable: log/life.rec" in said
    assert file.read_bytes() == bytes(data)
