from __future__ import annotations

import gzip
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from horde_agent.record import Flag, Phase
from horde_env.clock import RealTimeClock, SimulatedClock
from horde_env.errors import BackendUnavailable
from horde_env.replay import RecordedRun
from horde_env.robot import critterbot
from horde_env.robots.critterbot.log import NOTES, RecordedLife, recorded_request, steps_of
from tests.env.recording import REAL_LOG, frames, made_up, packets, record, write

SPEC = critterbot()


@pytest.mark.parametrize(("period_ms", "n_frames"), [(10.0, 40), (9.5, 38)])
def test_steps_are_a_tenth_of_a_second_by_any_robots_clock(
    period_ms: float, n_frames: int, tmp_path: Path
) -> None:
    """400 packets of 10 ms: 3.99 s, so 40 frames; of 9.5 ms: 3.79 s. The row of -1 is not a packet."""
    life = frames(RecordedLife(write(tmp_path / "life.csv", packets(400, period_ms))))
    assert len(life) == n_frames
    np.testing.assert_allclose([f.t for f in life], 0.1 * np.arange(n_frames), atol=0.0105)
    assert max(f.sensor_age_s for f in life) < 0.0105
    assert not any(f.gap or f.stale for f in life)
    assert all(f.applied for f in life)
    assert [f.last for f in life] == [False] * (n_frames - 1) + [True]


def test_raw_integers_become_si(tmp_path: Path) -> None:
    log = packets(100)
    log["BusVoltage"][:] = 165.0
    log["AccelX"][:] = 1024.0
    log["MotorSpeed1"][:] = -20.0
    log["IRDistance3"][:] = 200.0
    log["Thermal7"][:] = 14680.0
    frame = frames(RecordedLife(write(tmp_path / "life.csv.gz", log)))[3]
    expected = {
        "bus_voltage": 16.5,
        "acceleration_x": -9.81,  # the chip is turned by 180 degrees
        "motor_velocity_220": -0.352,
        "ir_distance_3": 800.0 / 1023.0,  # the driver's 8 bits, times 4
        "thermal_7": 293.6,
    }
    for name, value in expected.items():
        assert frame.values[SPEC.index(name)] == pytest.approx(value), name


def test_infrared_light_is_the_mean_of_the_last_two_packets(tmp_path: Path) -> None:
    """The beacon alternates: 20 on even packets, 180 on odd ones. Light, of the same packets, is the newest alone."""
    log = packets(100)
    log["IRLight2"] = np.where(np.arange(100) % 2 == 0, 20.0, 180.0)
    log["Light2"] = np.where(np.arange(100) % 2 == 0, 20.0, 180.0)
    frame = frames(RecordedLife(write(tmp_path / "life.csv", log)))[4]
    assert frame.values[SPEC.index("ir_light_2")] == pytest.approx(100.0 / 255.0)
    assert frame.values[SPEC.index("light_2")] == pytest.approx(20.0 / 1023.0)


def test_overheating_is_bit_zero_of_the_monitor_state(tmp_path: Path) -> None:
    log = packets(100)
    log["MonitorState"][:50] = 0x40
    log["MonitorState"][50:] = 0x81
    hot = [
        f.values[SPEC.index("overheating")]
        for f in frames(RecordedLife(write(tmp_path / "life.csv", log)))
    ]
    assert hot == [0.0] * 5 + [1.0] * 5


@pytest.mark.parametrize(
    ("action", "mode", "request_si"),
    [
        # The firmware's matrix times x = 20, untruncated
        ((-19.6875, 12.8516, 6.8359), 0, (0.352, 0.0, 0.0)),
        ((20.0, 20.0, 20.0), 0, (0.0, 0.0, 3.6625)),  # 20 / 1.0703 theta units of 0.196 rad/s
        ((0.0, 10.0, 0.0), 1, (0.0, -0.176, 0.0)),  # the wire's y points right
        ((50.0, 50.0, 50.0), 2, (0.0, 0.0, 0.0)),  # a voltage asks for no velocity
        ((-1.0, -1.0, -1.0), -1, (0.0, 0.0, 0.0)),  # no request yet
    ],
)
def test_a_recorded_request_goes_through_the_inverse_kinematics(
    action: tuple[float, ...], mode: int, request_si: tuple[float, ...]
) -> None:
    share = recorded_request(np.array([action]), np.array([float(mode)]), SPEC)[0]
    np.testing.assert_allclose(share * SPEC.largest_request, request_si, atol=1e-3)


def test_last_request_led_to_the_frame(tmp_path: Path) -> None:
    """A row holds the request made after its packet: the request of row 20 shows first in the frame of row 30."""
    log = packets(60)
    log["a[0]"][:] = 0.0
    log["a[2]"][:] = 0.0
    log["ActionMode"][:] = 1.0
    log["a[0]"][20:] = 25.0
    requests = [
        f.values[SPEC.index("last_request_x")]
        for f in frames(RecordedLife(write(tmp_path / "l.csv", log)))
    ]
    np.testing.assert_allclose(requests, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(("pause_s", "gaps"), [(0.06, [10]), (0.04, []), (0.01, [])])
def test_a_pause_above_50_ms_is_a_gap_and_restarts_the_steps(
    pause_s: float, gaps: list[int]
) -> None:
    t = np.concatenate([np.arange(100) * 0.01, 0.99 + pause_s + np.arange(100) * 0.01])
    steps = steps_of(t, 0.1)
    assert list(np.flatnonzero(steps.gap)) == gaps
    assert all(t[steps.packet[k]] == pytest.approx(1.05) for k in gaps)


@pytest.mark.parametrize("kind", ["log", "run"])
def test_its_end_truncates_a_step_beyond_is_a_gap_and_a_reset_plays_it_again(
    kind: str, tmp_path: Path
) -> None:
    """A CSV log, and the recording in a run's folder."""
    if kind == "log":
        log = write(tmp_path / "life.csv", packets(100))
    else:
        log = record(tmp_path / "run", made_up(10))
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=log).unwrapped
    passes = []
    for _ in range(2):
        observations = [env.reset()[0]]
        truncated = False
        while not truncated:
            observation, _, terminated, truncated, info = env.step(2)
            observations.append(observation)
            assert not terminated
        passes.append(np.array(observations))
        assert (info["applied"], info["gap"]) == (1, 0)
        extra_observation, reward, terminated, truncated, info = env.step(0)
        np.testing.assert_array_equal(extra_observation, observation)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert (info["gap"], info["applied"], info["stale"]) == (1, 0, 1)
    assert passes[0].shape == (10, 57)
    np.testing.assert_array_equal(passes[0], passes[1])


@pytest.mark.parametrize(("realtime", "clock"), [(False, SimulatedClock), (True, RealTimeClock)])
def test_a_life_is_replayed_at_the_requested_speed(
    tmp_path: Path, realtime: bool, clock: type
) -> None:
    log = write(tmp_path / "life.csv", packets(65))
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=log, realtime=realtime).unwrapped
    assert type(env.clock) is clock
    env.reset()
    env.step(0)
    start = time.monotonic()
    n_steps = 0
    while not env.step(0)[3]:
        n_steps += 1
    # All but one: the first may have ended late
    assert not realtime or time.monotonic() - start > 0.1 * n_steps


def bad_logs() -> dict[str, str | bytes]:
    log = packets(3)
    header = ",".join(log)
    rows = [",".join(str(float(log[name][k])) for name in log) for k in range(3)]
    minus = ",".join(["-1"] * len(log))
    damaged = bytearray(gzip.compress("\n".join([header, *rows]).encode()))
    middle = len(damaged) // 2
    damaged[middle : middle + 40] = bytes(40)
    return {
        "another table": "a,b\n1,2\n",
        "empty": "",
        "no rows": header + "\n",
        "no packet": f"{header}\n{minus}\n",
        "words": f"{header}\n{rows[0]}\n{rows[1].replace('41.0', 'forty')}\n",
        "words in the middle": f"{header}\n{rows[0]}\n{rows[1].replace('41.0', 'forty')}\n{rows[2][:40]}",
        "nothing but broken packets": f"{header}\n{rows[0].replace('40.0', 'nan')}\n",
        "backwards": f"{header}\n{rows[2]}\n{rows[0]}\n",
        "text named as compressed": "\n".join([header, *rows]),
        "damaged and compressed": bytes(damaged),
        "binary": b"\x80\xff\xfe" * 50,
    }


# ---- broken packets, truncated ends ----------------------------------------------------------------------------------

NO_PACKETS = ("nan", "-inf", "1e30", "65536")


def broken(
    log: dict[str, np.ndarray], rows: slice, value: str, column: str = "Light2"
) -> dict[str, np.ndarray]:
    """Return a log in which one column of `rows` holds `value`."""
    column_of = log[column].copy()
    column_of[rows] = float(value)
    return {**log, column: column_of}


def without(log: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: np.delete(values, np.r_[rows]) for name, values in log.items()}


@pytest.mark.parametrize(
    ("column", "value"),
    [("Light2", value) for value in NO_PACKETS]
    + [(column, "nan") for column in ("BusVoltage", "ActionMode")],
)
def test_a_row_that_cannot_be_a_packet_is_dropped_and_counted(
    tmp_path: Path, value: str, column: str
) -> None:
    """Packets 57 and 58 of a log at 100 Hz: no gap, but two refused packets in the frame of packet 60, and a note."""
    log = packets(100)
    rows = slice(57, 59)
    life = RecordedLife(write(tmp_path / "life.csv", broken(log, rows, value, column)))
    replay = frames(life)
    expected = frames(RecordedLife(write(tmp_path / "lost.csv", without(log, rows))))

    assert [f.crc_errors for f in replay] == [0] * 6 + [2] + [0] * 3
    assert not any(f.gap or f.stale for f in replay)
    np.testing.assert_array_equal([f.values for f in replay], [f.values for f in expected])
    assert [f.t for f in replay] == [f.t for f in expected]
    assert life.notes[-1].startswith("2 of 100 rows")


@pytest.mark.parametrize(
    ("period_ms", "n", "rows", "gap", "t", "n_broken"),
    [
        (10.0, 100, slice(57, 69), 6, 0.69, 12),  # 130 ms without a packet: restarts with packet 69
        (100.0, 20, slice(7, 8), 7, 0.8, 1),  # recorded step by step
    ],
)
def test_dropped_rows_are_a_gap_if_the_pause_is_long(
    tmp_path: Path, period_ms: float, n: int, rows: slice, gap: int, t: float, n_broken: int
) -> None:
    log = broken(packets(n, period_ms), rows, "nan")
    life = frames(RecordedLife(write(tmp_path / "life.csv", log)))
    assert [k for k, f in enumerate(life) if f.gap] == [gap]
    error_frame = next(f for f in life if f.crc_errors)
    assert (error_frame.t, error_frame.crc_errors) == (pytest.approx(t), n_broken)


def test_a_truncated_last_line_is_dropped_wherever_it_ends(tmp_path: Path) -> None:
    """The writer was killed; a last line that lacks only its newline is complete."""
    log = packets(31)
    text = write(tmp_path / "whole.csv", log).read_text()
    last = text.rstrip().rindex("\n") + 1
    expected = frames(RecordedLife(write(tmp_path / "before.csv", without(log, slice(30, 31)))))
    last_comma = text.rindex(",")
    for end in [*range(last + 1, last_comma, 49), last_comma, last_comma + 1]:
        path = tmp_path / f"torn-{end}.csv"
        path.write_text(text[:end])
        life = RecordedLife(path)
        assert [f.t for f in frames(life)] == [f.t for f in expected]
        assert life.notes[:-1] == NOTES
        assert "truncated" in life.notes[-1]
    whole = tmp_path / "no-end.csv"
    whole.write_text(text.rstrip("\n"))
    life = RecordedLife(whole)
    assert len(frames(life)) == len(expected) + 1
    assert life.notes == NOTES


def test_a_truncated_number_is_not_read_as_another_one(tmp_path: Path) -> None:
    """A further column follows the ones that are read: without the check, ActionMode 20.0 would be read as 2."""
    log = packets(31)
    log["ActionMode"] = np.full(31, 20.0)
    text = write(tmp_path / "whole.csv", {**log, "Further": np.zeros(31)}).read_text()
    path = tmp_path / "life.csv"
    path.write_text(text[: text.rindex("20.0") + 1])
    life = RecordedLife(path)
    assert len(frames(life)) == 3
    assert "truncated" in life.notes[-1]


def test_a_truncated_compressed_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    whole = write(tmp_path / "life.csv.gz", packets(400))
    expected = frames(RecordedLife(whole))
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    life = RecordedLife(torn)
    replay = frames(life)
    assert 3 < len(replay) < len(expected)
    np.testing.assert_array_equal(
        [f.values for f in replay], [f.values for f in expected[: len(replay)]]
    )
    assert "truncated" in life.notes[-1]


def test_the_environment_has_the_notes_once_the_log_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = write(tmp_path / "life.csv", broken(packets(100), slice(57, 58), "nan"))
    env = gymnasium.make("horde_env:CritterbotReplay-v0", log=log)
    assert env.metadata["notes"] == list(NOTES)
    env.reset()
    assert len(env.metadata["notes"]) == len(NOTES) + 1
    infos = [env.step(0)[4] for _ in range(9)]
    assert [info["crc_errors"] for info in infos] == [0] * 5 + [1] + [0] * 3
    assert "1 of 100 rows" in caplog.text


@pytest.mark.parametrize("kind", bad_logs())
def test_other_files_are_refused_by_their_name(tmp_path: Path, kind: str) -> None:
    text = bad_logs()[kind]
    path = tmp_path / ("life.csv.gz" if "compressed" in kind else "life.csv")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BackendUnavailable, match=r"life\.csv"):
        RecordedLife(path).reset(np.random.default_rng(0))


@pytest.mark.skipif(not REAL_LOG.is_file(), reason="the real robot's log is not here")
def test_the_real_log_is_a_life_of_998_steps() -> None:
    """99.7 s of the robot in 2010: 16.3 to 16.7 V, a g of 9.37 (low by 4.5 %), four wheel requests, no packet lost."""
    life = frames(RecordedLife(REAL_LOG))
    values = np.array([f.values for f in life])
    assert len(life) == 998
    assert not any(f.gap or f.stale for f in life)
    assert np.diff([f.t for f in life]).mean() == pytest.approx(0.1, abs=2e-4)
    assert (values[:, 0].min(), values[:, 0].max()) == pytest.approx((16.3, 16.7))
    assert np.median(values[:, SPEC.index("acceleration_z")]) == pytest.approx(9.37, abs=0.2)
    assert len(np.unique(np.round(values[:, SPEC.group("last_request")], 6), axis=0)) == 4
    assert sum(SPEC.scale(v)[1] for v in values) < 0.005 * values.size


# ---- the recording of a run ------------------------------------------------------------------------------------------


def test_every_observation_is_replayed_bit_for_bit_with_the_action_that_led_to_it(
    tmp_path: Path,
) -> None:
    """Also across files. Row k holds the action taken from it, so frame k + 1 has it."""
    rows = made_up(30)
    env = gymnasium.make("CritterbotReplay-v0", log=record(tmp_path / "run", rows, 18))
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
    rows["phase"][5:9] = Phase.CENTRE
    rows["action"][5:9] = -1
    rows["b"][5:9] = np.nan
    rows["flags"][[9, 12, 13]] = Flag.GAP, Flag.NOT_APPLIED, Flag.STALE
    rows["step"][15:] += 600  # a minute at the dock with one recorded frame
    replay = frames(RecordedRun(record(tmp_path / "run", rows)))
    assert [k for k, frame in enumerate(replay) if not frame.applied] == [6, 7, 8, 9, 12]
    assert [k for k, frame in enumerate(replay) if frame.gap] == [9, 15]
    assert [k for k, frame in enumerate(replay) if frame.stale] == [13]
    assert replay[6].extras["action"] == -1.0
    assert np.isnan(replay[6].extras["b"])


def test_a_damaged_row_is_dropped_and_noted(tmp_path: Path) -> None:
    """The next row follows a gap; so does the second file after the truncated end of the first."""
    run = record(tmp_path / "run", made_up(20), 12)
    path = run / "log" / "life.rec"
    data = bytearray(path.read_bytes())
    data[-8 * made_up(1).itemsize + 30] ^= 8  # in row 4 of 12
    path.write_bytes(data[:-5])
    body = RecordedRun(run)
    replay = frames(body)
    assert [round(frame.t / 0.1) for frame in replay] == [k for k in range(20) if k not in (4, 11)]
    assert [round(frame.t / 0.1) for frame in replay if frame.gap] == [5, 12]
    assert len(body.notes) == 1
    assert "1 of 11 rows and 287 further bytes" in body.notes[0]


def test_a_missing_file_between_two_others_is_a_gap_and_noted(tmp_path: Path) -> None:
    run = record(tmp_path / "run", made_up(30), 10)
    (run / "log" / "life-2.rec").unlink()
    body = RecordedRun(run)
    replay = frames(body)
    assert [round(frame.t / 0.1) for frame in replay if frame.gap] == [20]
    assert body.notes == (
        "life-3.rec begins with row 20, expected row 10: rows before it are missing",
    )


def test_a_changed_byte_in_the_first_line_is_refused(tmp_path: Path) -> None:
    """Also where it is still JSON: a digit of the period, a letter of a channel."""
    run = record(tmp_path / "run", made_up(14), period_s=0.1)
    path = run / "log" / "life.rec"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b'"period_s": 0.1', b'"period_s": 0.3'))
    with pytest.raises(BackendUnavailable, match=r"the first line of .*life\.rec is damaged"):
        RecordedRun(run)


def test_a_recording_without_a_pose_has_none_in_its_frames(tmp_path: Path) -> None:
    rows = made_up(14)
    rows["pose"] = np.nan
    assert frames(RecordedRun(record(tmp_path / "run", rows)))[3].extras.keys() == {"action", "b"}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"format": "mcap"}, "format"),
        ({"channels": [{"name": "bumper"}]}, "1 channels, bumper"),
    ],
)
def test_another_format_version_or_robot_is_refused(
    tmp_path: Path, facts: dict[str, object], message: str
) -> None:
    run = record(tmp_path / "run", made_up(14), **facts)
    with pytest.raises(BackendUnavailable, match=message):
        gymnasium.make("CritterbotReplay-v0", log=run)


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="no recording"):
        RecordedRun(tmp_path)
    assert not (tmp_path / "log").exists()
