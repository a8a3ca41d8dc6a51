"""A recording reads back as it was written; several files, checksums, damage, torn ends and full disks."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.life.counts import RobotInfo
from horde_agent.record import (
    Flag,
    Phase,
    Recorder,
    Row,
    columns_of,
    new_rows,
    read,
    read_in_parts,
    row_dtype,
    rows_in,
)
from horde_agent.record import recorder as recorder_module
from horde_agent.record.kinds import LIFE
from horde_agent.record.segments import encode_header, read_segment, record_files
from tests.agent.commands import files_of_at_most, flip

N_INPUTS = 4


def row(k: int, phase: Phase = Phase.BEHAVE) -> Row:
    observation = np.full(N_INPUTS, k % 7 / 7, dtype=np.float32)
    return Row(
        step=k,
        t=0.1 * k,
        observation=observation,
        action=k % 5,
        b=0.6,
        phase=phase,
        flags=Flag.NONE,
        pose=(0.1, -0.2, 3.0),
        reward=0.5 * k,
        unix_s=1.7e9 + 0.1 * k,
    )


def write(path: Path, n: int, **settings: float) -> None:
    with Recorder(N_INPUTS, path, {"period_s": 0.1}, **settings) as recorder:  # type: ignore[arg-type]
        for k in range(n):
            recorder.write(row(k))


def damage(path: Path, rng: np.random.Generator) -> list[int]:
    """Damage the files of a recording at random places; return the numbers of the undamaged rows."""
    size = row_dtype(N_INPUTS).itemsize
    same = []
    for file in record_files(path):
        header = read_segment(file, LIFE).header
        content = file.read_bytes()
        if rng.random() < 0.1 and file != path:
            file.unlink()
            continue
        data = bytearray(content)
        begin = int(header["offset"])
        for at in rng.integers(begin, len(data), size=rng.choice([0, 0, 1, 3])):
            data[at] ^= 1 << rng.integers(8)
        match rng.integers(5):
            case 0:
                del data[rng.integers(begin, len(data) + 1) :]
            case 1:
                data += bytes(rng.integers(1, 2 * size, dtype=int))
        file.write_bytes(data)
        rows = range((len(content) - begin) // size)
        places = [slice(begin + k * size, begin + (k + 1) * size) for k in rows]
        same += [
            header["first"] + k
            for k, at in zip(rows, places, strict=True)
            if data[at] == content[at]
        ]
    return same


@pytest.mark.parametrize("seed", range(15))
def test_sound_rows_of_a_damaged_record_are_read_and_follow_a_gap_where_one_is_missing(
    tmp_path: Path, seed: int
) -> None:
    """Bits are flipped, files cut off at any byte, followed by zeros, or missing."""
    path = tmp_path / "life.rec"
    rng = np.random.default_rng(seed)
    write(path, 60, segment_s=float(rng.choice([0.5, 1.0, 2.0, 9.0])))
    remain = damage(path, rng)
    rows = read(path).rows

    assert rows["step"].tolist() == remain
    is_gap = [k > 0 and k - 1 not in remain for k in remain]
    assert ((rows["flags"] & Flag.GAP) > 0).tolist() == is_gap
    first_step = int(rng.integers(60))
    assert [k for part in read_in_parts(path, first_step) for k in part.rows["step"]] == [
        k for k in remain if k >= first_step
    ]
    end = read(path, newest=20).rows  # nothing is known of the row before its first
    assert end[1:].tobytes() == rows[len(rows) - len(end) + 1 :].tobytes()


def watch_syncs(folders: Sequence[Path], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Assert at each row that the file before is on the disk in full; return these files, which are added later."""
    on_disk = {}
    closed: list[Path] = []
    append = recorder_module.append

    def note_size(fd: int) -> None:
        status = os.fstat(fd)
        on_disk[status.st_ino] = status.st_size

    def check_and_append(file: Any, data: Any, *arguments: Any) -> Any:
        status = os.fstat(file.fileno())
        for folder in folders:
            files = record_files(folder / "life.rec")
            inodes = [path.stat().st_ino for path in files]
            # Its first bytes are the header, before which the file before is not synced yet
            if status.st_size and status.st_ino in inodes[1:]:
                place = inodes.index(status.st_ino)
                previous = files[place - 1]
                assert on_disk[inodes[place - 1]] == previous.stat().st_size
                closed.append(previous)
        return append(file, data, *arguments)

    monkeypatch.setattr(os, "fdatasync", note_size)
    monkeypatch.setattr(recorder_module, "append", check_and_append)
    return closed


@pytest.mark.parametrize("seed", range(8))
def test_a_record_that_was_killed_and_resumed_is_the_same_to_the_byte(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at random rows, its end torn off at any byte, with and without a further file that was hardly begun.

    A file has six rows here. Each one is on the disk, in full, before a row is written to the next.
    """
    rng = np.random.default_rng(seed)
    whole = tmp_path / "whole"
    path = tmp_path / "killed"
    for folder in (whole, path):
        folder.mkdir()
    closed = watch_syncs((whole, path), monkeypatch)

    def live(recorder: Recorder, first: int, last: int) -> None:
        for k in range(first, last):
            recorder.write(row(k))
            if rng.random() < 0.3:
                recorder.flush()
        recorder.close()

    header = {"period_s": 600.0}
    size = row_dtype(N_INPUTS).itemsize
    live(Recorder(N_INPUTS, whole / "life.rec", header), 0, 50)
    live(Recorder(N_INPUTS, path / "life.rec", header), 0, int(rng.integers(1, 50)))
    assert closed
    for end in [*rng.integers(1, 50, 4).tolist(), 50]:
        last = record_files(path / "life.rec")[-1]
        segment = read_segment(last, LIFE)
        torn = 0
        if rng.random() < 0.7:
            torn = int(rng.integers(len(segment.records) * size + 1))
        os.truncate(last, last.stat().st_size - torn)
        n_left = int(segment.header["first"]) + len(segment.records) - -(-torn // size)
        if rng.random() < 0.3:
            (path / f"life-{len(record_files(path / 'life.rec')) + 1}.rec").write_bytes(
                b'{"form'[: rng.integers(7)]
            )
        is_redone = bool(rng.random() < 0.5)
        n_known = n_left
        if is_redone:
            n_known = int(rng.integers(n_left + 1))
        with Recorder.resume(path / "life.rec", n_known, is_redone=is_redone) as recorder:
            assert recorder.since.rows["step"].tolist() == list(range(n_known, n_left))
            recorder.open_last()
            live(recorder, n_known, max(end, n_known))
        assert recorder.differs_at is None
    live(Recorder.resume(path / "life.rec", recorder.n_rows, is_redone=False), recorder.n_rows, 50)
    assert [file.name for file in record_files(path / "life.rec")] == [
        file.name for file in record_files(whole / "life.rec")
    ]
    for file in record_files(whole / "life.rec"):
        assert (path / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "settings",
    [{"segment_s": 3.0}, {"segment_bytes": 30 * row_dtype(N_INPUTS).itemsize + 5}],
    ids=["time", "size"],
)
def test_a_recording_continues_in_another_file_after_a_time_or_size(
    settings: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "life.rec"
    write(path, 70, **settings)
    assert [file.name for file in record_files(path)] == ["life.rec", "life-2.rec", "life-3.rec"]
    assert [len(read_segment(file, LIFE).records) for file in record_files(path)] == [
        30,
        30,
        10,
    ]
    assert read_segment(record_files(path)[2], LIFE).header["first"] == 60
    assert read(path).rows["step"].tolist() == list(range(70))


def test_any_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    """CRC-32 finds every single bit; the row is left out, and the one after it no longer follows."""
    path = tmp_path / "life.rec"
    write(path, 20)
    begin = read(path).header["offset"] + 7 * row_dtype(N_INPUTS).itemsize
    for bit in range(0, 8 * row_dtype(N_INPUTS).itemsize, 37):
        flip(path, begin + bit // 8, bit % 8)
        stream = read(path)
        assert stream.rows["step"].tolist() == [k for k in range(20) if k != 7]
        assert np.flatnonzero(stream.rows["flags"]).tolist() == [7]
        assert stream.faults == (
            "life.rec is damaged: 1 of its 20 records (number 7) do not have the CRC-32 that was written with them, "
            "and are left out",
        )
        flip(path, begin + bit // 8, bit % 8)
    for byte in (3, 40, 150):  # of the first line
        flip(path, byte, 1)
        with pytest.raises(ValueError, match=r"life\.rec"):
            read(path)
        flip(path, byte, 1)


def test_a_torn_end_is_reported(tmp_path: Path) -> None:
    """After a loss of power a file may also end in zeros: their CRC is not 0."""
    path = tmp_path / "life.rec"
    write(path, 20)
    assert read(path).faults == ()
    size = row_dtype(N_INPUTS).itemsize
    path.write_bytes(path.read_bytes()[: -size - 5] + bytes(3 * size))

    stream = read(path)
    assert stream.rows["step"].tolist() == list(range(18))
    assert stream.faults == (
        f"life.rec is cut off: its end was torn off; {5 * size - size - 5} bytes of a row are left out",
    )


def test_a_recording_is_truncated_where_a_replay_differs(tmp_path: Path) -> None:
    path = tmp_path / "life.rec"
    write(path, 35, segment_s=1.0)
    with Recorder.resume(path, 12, is_redone=True) as again:
        for k in range(12, 40):
            again.write(row(k)._replace(action=4 if k == 17 else k % 5))

    assert again.differs_at == 17
    assert [file.name for file in record_files(path)][:2] == ["life.rec", "life-2.rec"]
    assert read(path).rows["step"].tolist() == list(range(40))
    assert read(path).rows["action"][17] == 4


def test_only_the_newest_files_are_read_for_the_end_of_a_recording(tmp_path: Path) -> None:
    """The first file was moved to another disk; the second is damaged beyond reading."""
    path = tmp_path / "life.rec"
    write(path, 45, segment_s=1.0)
    path.unlink()
    (tmp_path / "life-2.rec").write_bytes(b"damaged\n")
    (tmp_path / "life-old.rec").write_bytes(b"another file")
    assert read(path, newest=12).rows["step"].tolist() == list(range(33, 45))
    with Recorder.resume(path, 27, is_redone=True) as recorder:
        assert recorder.since.rows["step"].tolist() == list(range(27, 45))
        for k in range(27, 60):
            recorder.write(row(k))
    assert recorder.differs_at is None
    assert read(path, newest=40).rows["step"].tolist() == list(range(20, 60))
    assert [file.name for file in record_files(path)][:2] == ["life-2.rec", "life-3.rec"]
    with pytest.raises(ValueError, match=r"life-2\.rec does not contain records"):
        read(path)
    (tmp_path / "life-2.rec").unlink()
    assert read(path).rows["step"].tolist() == list(range(20, 60))


def test_rows_reach_the_file_within_a_second_though_few_come(tmp_path: Path) -> None:
    recorder = Recorder(N_INPUTS, tmp_path / "life.rec")
    recorder.write(row(0))
    end = time.monotonic() + 10.0
    while not len(read(tmp_path / "life.rec")) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(read(tmp_path / "life.rec")) == 1
    recorder.close()


def test_recording_pauses_on_a_full_disk_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("horde_agent.record.recorder.FLUSH_S", 3600.0)
    caplog.set_level(logging.WARNING)
    path = tmp_path / "life.rec"
    recorder = Recorder(N_INPUTS, path)
    with files_of_at_most(3003):
        for k in range(3000):
            recorder.write(row(k))
        recorder.flush()
        assert recorder.is_paused
        assert read(path).faults == (), "whole rows alone are in it"
        assert caplog.text.count("recording paused") == 1
    recorder.flush()
    assert not recorder.is_paused
    assert "0 rows were lost" in caplog.text
    recorder.close()
    assert read(path).rows["step"].tolist() == list(range(3000))


def test_rows_beyond_the_buffer_are_lost_and_followed_by_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horde_agent.record.recorder.FLUSH_S", 3600.0)
    monkeypatch.setattr(
        "horde_agent.record.recorder.MOST_WAITING_BYTES", 1500 * row_dtype(N_INPUTS).itemsize
    )
    path = tmp_path / "life.rec"
    recorder = Recorder(N_INPUTS, path)
    with files_of_at_most(800):
        for k in range(3072):
            recorder.write(row(k))
    recorder.flush()
    recorder.write(row(3072))
    recorder.close()
    rows = read(path).rows

    assert recorder.n_lost == 3073 - len(rows) > 0
    assert (np.diff(rows["step"]) > 1).sum() == 1
    assert rows["flags"][1:][np.diff(rows["step"]) > 1].tolist() == [Flag.GAP]


@pytest.mark.parametrize("segment_s", [1.0, 3600.0], ids=["in an earlier file", "in the last file"])
def test_a_simulation_repeats_the_rows_from_a_damaged_one_on(
    tmp_path: Path, segment_s: float
) -> None:
    path = tmp_path / "life.rec"
    whole = tmp_path / "whole.rec"
    write(path, 35, segment_s=segment_s)
    write(whole, 40)
    damaged = path
    if segment_s == 1.0:
        damaged = record_files(path)[1]
    first = int(read_segment(damaged, LIFE).header["first"])
    flip(
        damaged,
        read_segment(damaged, LIFE).header["offset"] + (15 - first) * row_dtype(N_INPUTS).itemsize,
    )
    with Recorder.resume(path, 10, is_redone=True) as recorder:
        assert recorder.since.rows["step"].tolist() == list(range(10, 15))
        for k in range(10, 40):
            recorder.write(row(k))
    assert recorder.differs_at is None
    assert read(path).rows.tobytes() == read(whole).rows.tobytes()
    assert read(path).faults == ()


def test_a_robot_continues_after_a_damaged_row_which_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "life.rec"
    write(path, 20)
    flip(path, read(path).header["offset"] + 15 * row_dtype(N_INPUTS).itemsize)
    with Recorder.resume(path, 10, is_redone=False) as recorder:
        rows = recorder.since.rows
        assert rows["step"].tolist() == [*range(10, 15), *range(16, 20)]
        assert rows["step"][(rows["flags"] & Flag.GAP) > 0].tolist() == [16]
        for k in range(20, 25):
            recorder.write(row(k))
    assert read(path).rows["step"].tolist() == [*range(15), *range(16, 25)]


def test_a_recording_that_is_resumed_but_not_written_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "life.rec"
    write(path, 20)
    os.truncate(path, path.stat().st_size - 3)
    content = path.read_bytes()
    Recorder.resume(path, 10, is_redone=True).close()
    assert path.read_bytes() == content


@pytest.mark.parametrize("n", [0, 1, 2500])
def test_what_was_written_is_read_with_and_without_this_program(tmp_path: Path, n: int) -> None:
    """The first line names the type of the rows, whose steps are not limited to 32 bits (13.6 years)."""
    path = tmp_path / "life.rec"
    with Recorder(N_INPUTS, path, {"period_s": 0.1}) as recorder:
        for k in range(n):
            recorder.write(row(k)._replace(step=2**32 + k))
    stream = read(path)
    with path.open("rb") as file:
        header = json.loads(file.readline())
    rows = np.fromfile(
        path, dtype=[tuple(field) for field in header["dtype"]], offset=header["offset"]
    )

    assert header["offset"] % 64 == 0
    assert stream.header["period_s"] == header["period_s"] == 0.1
    assert stream.rows["step"].tolist() == rows["step"].tolist() == [2**32 + k for k in range(n)]
    if n:
        last = stream.rows[-1]
        np.testing.assert_array_equal(last["observation"], row(n - 1).observation)
        assert (last["action"], last["b"], last["t"]) == ((n - 1) % 5, 0.6, 0.1 * (n - 1))
        assert (last["phase"], last["flags"], last["pose"][2]) == (Phase.BEHAVE, Flag.NONE, 3.0)
        assert rows["action"].tolist() == [k % 5 for k in range(n)]


def test_an_existing_record_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "life.rec", 3)
    with pytest.raises(FileExistsError):
        Recorder(N_INPUTS, tmp_path / "life.rec")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *(
            (content, "does not contain records")
            for content in ("", '{"format": "something else"}\n', "[1, 2]\n")
        ),
        (
            encode_header({"format": "horde-life", "version": 2, "program": "8.3"}).decode(),
            "version 2 of the format horde-life, and .* up to 1: install .* 8.3",
        ),
    ],
)
def test_a_file_that_is_no_record_or_one_of_a_newer_version_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "other").write_text(content)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "other")


# ---- rewards and the wall clock -------------------------------------------------------------------------------------


def test_a_redone_row_keeps_its_first_wall_clock_and_may_not_have_another_reward(
    tmp_path: Path,
) -> None:
    path = tmp_path / "life.rec"
    write(path, 10)
    content = path.read_bytes()
    with Recorder.resume(path, 4, is_redone=True) as again:
        for k in range(4, 10):
            again.write(row(k)._replace(unix_s=1.8e9))
    assert again.differs_at is None
    assert path.read_bytes() == content

    with Recorder.resume(path, 4, is_redone=True) as changed:
        changed.write(row(4)._replace(reward=-1.0))
    assert changed.differs_at == 4


# ---- the fields of a row ---------------------------------------------------------------------------------------------


def test_a_row_has_these_bytes() -> None:
    """Packed: 8 + 8 + 2 * 4 + 3 * 4 + 8 + 4 + 2 + 1 + 1 + 8 + 8 + 4 bytes; in the order of `Row` it began with step."""
    fields = [
        ("t", "<f8"),
        ("b", "<f8"),
        ("observation", "<f4", (2,)),
        ("pose", "<f4", (3,)),
        ("step", "<i8"),
        ("policy", "<u4"),
        ("action", "<i2"),
        ("phase", "|u1"),
        ("flags", "|u1"),
        ("reward", "<f8"),
        ("unix_s", "<f8"),
        ("crc", "<u4"),
    ]
    assert row_dtype(2).descr == fields
    assert row_dtype(2).itemsize == 72
    assert row_dtype(2, n_robots=2).descr == [*fields[:9], ("robot", "<u2"), *fields[9:]]


def test_a_new_row_says_that_nothing_is_known() -> None:
    """As `Row()` does, and not t = 0, action 0 with b = 0, at the origin."""
    (row,) = new_rows(1, 2)
    values = {name: row[name].tolist() for name in row.dtype.names[:-1]}
    assert values.pop("observation") == [0.0, 0.0]
    unknown = Row()._asdict()
    del unknown["observation"], unknown["robot"]
    np.testing.assert_equal(values | {"pose": tuple(values["pose"])}, unknown)
    assert np.isnan([row["t"], row["b"], row["reward"], row["unix_s"], *row["pose"]]).all()
    assert row["action"] == -1


def test_fields_of_a_row_are_read_from_info_and_missing_ones_are_unknown() -> None:
    """Numbers of a pose come from three keys; 0 for a missing one would be a place in the middle."""
    info = {"t": 2.5, "x_m": 1.0, "y_m": -1.0, "heading_rad": 0.5, "gap": 1}
    fields = RobotInfo.of(info).row_fields
    assert (fields["t"], fields["pose"]) == (2.5, (1.0, -1.0, 0.5))
    unknown = RobotInfo.of({"gap": 1}).row_fields
    assert np.isnan([unknown["t"], *unknown["pose"]]).all()


def test_recorded_rows_are_rows() -> None:
    """With one robot they have its number, 0, which the file does not store."""
    rows = new_rows(2, N_INPUTS)
    rows["step"] = [3, 4]
    rows["pose"][1] = [1.0, 2.0, 3.0]
    first, second = rows_in(rows)
    assert (first.step, second.step, second.robot, second.action) == (3, 4, 0, -1)
    assert list(second.pose) == [1.0, 2.0, 3.0]
    assert second.observation.tolist() == [0.0] * N_INPUTS


def test_each_number_of_a_row_is_a_column_of_a_table() -> None:
    rows = new_rows(2, N_INPUTS, n_robots=3)
    rows["pose"] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    rows["robot"] = [2, 1]
    columns = columns_of(rows)
    names = ["step", "t", "action", "b", "phase", "flags", "x_m", "y_m", "heading_rad"]
    names += ["policy", "robot", "reward", "unix_s"]
    assert list(columns)[: len(names)] == names
    assert columns["y_m"].tolist() == [2.0, 5.0]
    assert columns["robot"].tolist() == [2, 1]
    assert "robot" not in columns_of(new_rows(1, N_INPUTS))
