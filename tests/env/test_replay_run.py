"""The recording of a run as a robot body: its observations, actions and their probabilities again."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import horde_env  # noqa: F401  registers the environments
from horde_agent.record import rows, segments
from horde_env import replay as run
from horde_env.backend import Frame
from horde_env.errors import BackendUnavailable
from horde_env.replay import RecordedRun
from tests.env import recorded_run
from tests.env.recorded_run import CENTRE, made_up, record, write


def frames(body: RecordedRun) -> list[Frame]:
    found = [body.reset(np.random.default_rng(0))]
    while not found[-1].last:
        found.append(body.exchange(np.zeros(3)))
    return found


def test_every_observation_is_replayed_bit_for_bit_with_the_action_that_led_to_it(tmp_path: Path) -> None:
    """Also across files. Row k holds the action taken from it, so frame k + 1 has it."""
    rows = made_up(30)
    env = gymnasium.make("CritterbotReplay-v0", log=record(tmp_path / "run", 30, further=12))
    observation, info = env.reset()
    assert info["action"] == -1.0
    for k in range(30):
        np.testing.assert_array_equal(observation, rows["observation"][k])
        assert info["t"] == pytest.approx(0.1 * k)
        assert info["x_m"] == rows["pose"][k][0]
        if k == 29:
            break
        observation, _, terminated, truncated, info = env.step(0)
        assert (info["action"], info["b"]) == (rows["action"][k], rows["b"][k])
        assert (info["applied"], info["gap"]) == (1, 0)
        assert (terminated, truncated) == (False, k == 28)


def test_a_drive_has_no_actions(tmp_path: Path) -> None:
    rows = made_up(20)
    rows["phase"][5:9], rows["action"][5:9], rows["b"][5:9] = CENTRE, -1, np.nan
    rows["flags"][9], rows["flags"][12] = 1, 2
    rows["step"][15:] += 600  # a minute at the dock with one recorded frame
    run = record(tmp_path / "run", 20)
    write(run / "log" / "life.rec", rows, 0)
    found = frames(RecordedRun(run))
    assert [k for k, frame in enumerate(found) if not frame.applied] == [6, 7, 8, 9, 12]
    assert [k for k, frame in enumerate(found) if frame.gap] == [9, 15]
    assert found[6].extras["action"] == -1.0
    assert np.isnan(found[6].extras["b"])


def test_a_damaged_row_is_dropped_and_noted(tmp_path: Path) -> None:
    """The next row follows a gap; so does the second file after the truncated end of the first."""
    run = record(tmp_path / "run", 20, further=8)
    path = run / "log" / "life.rec"
    data = bytearray(path.read_bytes())
    data[16_384 + 4 * made_up(1).itemsize + 30] ^= 8
    path.write_bytes(data[:-5])
    body = RecordedRun(run)
    found = frames(body)
    assert [round(frame.t / 0.1) for frame in found] == [k for k in range(20) if k not in (4, 11)]
    assert [round(frame.t / 0.1) for frame in found if frame.gap] == [5, 12]
    assert len(body.notes) == 1
    assert "1 of 11 rows and 271 further bytes" in body.notes[0]


def test_a_recording_without_a_pose_has_none_in_its_frames(tmp_path: Path) -> None:
    rows = made_up(14)
    rows["pose"] = np.nan
    run = record(tmp_path / "run", 14)
    write(run / "log" / "life.rec", rows, 0)
    assert frames(RecordedRun(run))[3].extras.keys() == {"action", "b"}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"version": 3}, "version 3"),
        ({"version": 1}, "version 1"),
        ({"format": "mcap"}, "format"),
        ({"channels": [{"name": "bumper"}]}, "1 channels, bumper"),
    ],
)
def test_another_format_version_or_robot_is_refused(tmp_path: Path, facts: dict[str, object], message: str) -> None:
    run = record(tmp_path / "run", 14, **facts)
    with pytest.raises(BackendUnavailable, match=message):
        gymnasium.make("CritterbotReplay-v0", log=run)


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="no recording"):
        RecordedRun(tmp_path)
    assert not (tmp_path / "log").exists()


def test_both_packages_use_the_same_record_format() -> None:
    """Neither package imports the other, so each describes the file."""
    assert np.dtype(recorded_run.FIELDS) == rows.row_dtype(recorded_run.SPEC.n_channels)
    assert (run.FORMAT, run.VERSION) == (rows.FORMAT, segments.FORMAT_VERSION)
    assert (run.GAP, run.NOT_APPLIED, run.STALE) == (rows.Flag.GAP, rows.Flag.NOT_APPLIED, rows.Flag.STALE)
    phases = rows.Phase.BEHAVE, rows.Phase.CENTRE, rows.Phase.END
    assert phases == (recorded_run.BEHAVE, recorded_run.CENTRE, recorded_run.END)
