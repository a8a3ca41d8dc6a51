"""A recording reads back as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from horde_agent.record import NO_ACTION, Flag, Phase, Recorder, Row, read

N_INPUTS = 4


def row(k: int) -> Row:
    observation = np.full(N_INPUTS, k / 7, dtype=np.float32)
    return Row(k, 0.1 * k, observation, k % 5, 0.6, Phase.BEHAVE, Flag.GAP if k == 0 else Flag.NONE, (0.1, -0.2, 3.0))


def write(path: Path, n: int) -> None:
    with Recorder(N_INPUTS, path, {"period_s": 0.1, "actions": ["forward", "stop"]}) as recorder:
        for k in range(n):
            recorder.write(row(k))


@pytest.mark.parametrize("n", [0, 1, 1024, 2500])
def test_what_was_written_is_read(tmp_path: Path, n: int) -> None:
    write(tmp_path / "life.rec", n)
    stream = read(tmp_path / "life.rec")

    assert stream.rows["step"].tolist() == list(range(n))
    assert stream.header["period_s"] == 0.1
    if n:
        last = stream.rows[-1]
        np.testing.assert_array_equal(last["observation"], row(n - 1).observation)
        assert (last["action"], last["b"], last["t"]) == ((n - 1) % 5, 0.6, 0.1 * (n - 1))
        assert (last["phase"], stream.rows[0]["flags"]) == (Phase.BEHAVE, Flag.GAP)
        assert stream.n_steps == n - 1


def test_memory_and_file_hold_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "life.rec", 1500)
    recorder = Recorder(N_INPUTS)
    for k in range(1500):
        recorder.write(row(k))

    assert recorder.stream().rows.tobytes() == read(tmp_path / "life.rec").rows.tobytes()


def test_rows_are_there_before_the_recorder_is_closed(tmp_path: Path) -> None:
    recorder = Recorder(N_INPUTS, tmp_path / "life.rec")
    for k in range(1030):
        recorder.write(row(k))

    assert len(read(tmp_path / "life.rec")) == 1024
    recorder.close()
    assert len(read(tmp_path / "life.rec")) == 1030


def test_the_file_explains_itself_without_this_program(tmp_path: Path) -> None:
    path = tmp_path / "life.rec"
    write(path, 3)
    with path.open("rb") as file:
        header = json.loads(file.readline())
    dtype = np.dtype([(f[0], f[1], tuple(f[2])) if len(f) == 3 else tuple(f) for f in header["dtype"]])

    assert header["offset"] % 64 == 0
    assert np.fromfile(path, dtype=dtype, offset=header["offset"])["action"].tolist() == [0, 1, 2]


def test_a_step_without_an_action_says_so(tmp_path: Path) -> None:
    with Recorder(N_INPUTS, tmp_path / "life.rec") as recorder:
        recorder.write(row(3)._replace(action=NO_ACTION, b=np.nan, phase=Phase.CENTRE))

    stored = read(tmp_path / "life.rec").rows[0]
    assert stored["action"] == -1
    assert np.isnan(stored["b"])


def test_an_existing_record_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "life.rec", 3)
    with pytest.raises(FileExistsError):
        Recorder(N_INPUTS, tmp_path / "life.rec")


@pytest.mark.parametrize("content", [b"", b"step,action\n1,2\n", b'{"format": "something else"}\n', b"[1, 2]\n"])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ValueError, match="does not contain records"):
        read(tmp_path / "other")
