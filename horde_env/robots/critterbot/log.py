"""RecordedLife: the Critterbot's CSV log as a robot body that repeats the recording.

The log (gzipped or not) has a header and one row per packet, in raw integers as RLPark wrote them:
the columns of `COLUMNS`, then the request `a[0] a[1] a[2] ActionMode`. A log of the year 2010
differs from today's wire: its motor "command", shown as `motor_voltage`, is the echoed request, not
the PWM duty; its infrared distance is the driver's scrambled 8-bit value, times 4 here, right to
two bits in ten at best.

A row with a value that no packet can hold (not a number, infinite, more than 16 bits) is dropped
like a packet with a wrong checksum: the next frame counts it in `crc_errors`, and many in a row are
a gap. A truncated last line is dropped. `RecordedLife.notes` counts both.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Ints
from horde_env.errors import BackendUnavailable
from horde_env.replay import Piece, RecordedRun, Recording, is_run
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.wire import UNITS, MotorMode

GAP_S = 0.05  # packets further apart than this lost something between them
IR_DISTANCE_SCALE = 4.0  # 8 bits of the log -> 10 bits of the wire
WIDEST_FIELD = 2**16  # no field of a packet has more than 16 bits

# Remarks for a reader of results.
NOTES = (
    "The log's firmware is of 2010: its motor_voltage is the echoed request, not the duty of the bridge.",
    "Its ir_distance is the driver's scrambled 8-bit value (times 4 here): two of ten bits are lost, two are mixed.",
    "Its requests were held for seconds and none is one of the five actions: it is played as a stream without choices.",
)

# Channel group -> its columns, in the order of the observation.
COLUMNS: dict[str, tuple[str, ...]] = {
    "bus_voltage": ("BusVoltage",),
    "battery_voltage": ("Bat0", "Bat1", "Bat2"),
    "motor_voltage": ("MotorCommand0", "MotorCommand1", "MotorCommand2"),
    "motor_velocity": ("MotorSpeed0", "MotorSpeed1", "MotorSpeed2"),
    "motor_current": ("MotorCurrent0", "MotorCurrent1", "MotorCurrent2"),
    "motor_temperature": ("MotorTemperature0", "MotorTemperature1", "MotorTemperature2"),
    "acceleration": ("AccelX", "AccelY", "AccelZ"),
    "magnetic": ("MagX", "MagY", "MagZ"),
    "rotational_velocity": ("RotationVel",),
    "ir_distance": tuple(f"IRDistance{i}" for i in range(10)),
    "ir_light": tuple(f"IRLight{i}" for i in range(8)),
    "light": tuple(f"Light{i}" for i in range(4)),
    "thermal": tuple(f"Thermal{i}" for i in range(8)),
}
REQUEST = ("a[0]", "a[1]", "a[2]")
NEEDED = (
    "LocalTime",
    *(name for names in COLUMNS.values() for name in names),
    "MonitorState",
    *REQUEST,
    "ActionMode",
)


class Steps(NamedTuple):
    """The packets that end a step; arrays of shape (n_steps,)."""

    packet: Ints  # index of the newest packet at the end of each step
    age_s: Floats  # of that packet at the step's deadline
    gap: NDArray[np.bool_]  # packets are missing since the step before
    stale: NDArray[np.bool_]  # no packet arrived since the step before


class RecordedLife(Recording):
    """A log as a Backend; see `Recording`.

    Frames have the recorded request as `last_request` and the log's time in seconds since its first
    packet as `t`. The CSV file is read at the first reset.

    Raises:
        BackendUnavailable: If there is no such file.

    Examples:
        >>> import tempfile
        >>> rows = [",".join(NEEDED)]
        >>> rows += [",".join([str(10 * k), *["0"] * (len(NEEDED) - 1)]) for k in range(100)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Path(folder, "life.csv")
        ...     _ = log.write_text(chr(10).join(rows))
        ...     life = RecordedLife(log)
        ...     frame = life.reset(np.random.default_rng(0))
        >>> frame.values.shape, frame.last  # of the one second of packets
        ((57,), False)
    """

    def __init__(self, log: str | Path) -> None:
        super().__init__(Path(log), critterbot())
        self.notes = NOTES
        if not self.path.is_file():
            raise BackendUnavailable(
                f"there is no recorded life at {self.path}; give the path of its CSV file"
            )
        self._piece: Piece | None = None

    def read(self) -> Iterator[Piece]:
        """Yield the log as one piece."""
        if self._piece is None:
            table, is_torn = _read(self.path)
            sound = _is_sound(table)
            if not sound.any():
                raise BackendUnavailable(f"{self.path} is a recorded life without a single packet")
            self._piece = _piece(table, sound, self.spec, self.path)
            n_broken = int((~sound).sum())
            if n_broken:
                self.note(
                    f"{n_broken} of {len(sound)} rows cannot be packets (a value is not a number, infinite or longer "
                    f"than 16 bits) and are dropped like lost packets."
                )
            if is_torn:
                self.note("The log is truncated: the incomplete last line is dropped.")
        yield self._piece


def recording(*, log: str | Path) -> Recording:
    """Return the player of a log, or of the recording in a run's folder.

    Raises:
        BackendUnavailable: If there is no such recording, or it is of another robot.
    """
    if is_run(log):
        return RecordedRun(log, critterbot())
    return RecordedLife(log)


def steps_of(packet_t_s: Floats, period_s: float) -> Steps:
    """Select one packet per period of the robot's time, from increasing times of packets, shape (n_packets,).

    Deadlines are `period_s` apart from the first packet on, and restart after missing packets. If
    packets are more than half a period apart, each is a step.
    """
    pause = np.diff(packet_t_s)
    usual = period_s
    if len(pause):
        usual = float(np.median(pause))
    broken = np.flatnonzero(pause > max(GAP_S, 1.5 * usual)) + 1
    starts = np.concatenate([[0], broken])
    ends = np.concatenate([broken, [len(packet_t_s)]])
    packet = []
    age = []
    gap = []
    for start, end in zip(starts, ends, strict=True):
        t = packet_t_s[start:end]
        if usual > 0.5 * period_s:
            deadlines = t
        else:
            deadlines = t[0] + period_s * np.arange(int((t[-1] - t[0]) / period_s + 1e-9) + 1)
        newest = np.searchsorted(t, deadlines + 1e-9, side="right") - 1
        packet.append(start + newest)
        age.append(deadlines - t[newest])
        gap.append(np.arange(len(newest)) == 0)
    gap[0][0] = False  # nothing is missing before the first packet
    chosen = np.concatenate(packet)
    return Steps(
        chosen,
        np.maximum(np.concatenate(age), 0.0),
        np.concatenate(gap),
        np.diff(chosen, prepend=-1) == 0,
    )


def recorded_request(actions: Floats, modes: Floats, spec: RobotSpec) -> Floats:
    """Return recorded requests as shares of the largest one, shape (n, 3), x forward, y left, yaw counter-clockwise.

    `actions` are the three numbers sent, in wire units, shape (n, 3), `modes` their motor modes,
    shape (n,). Wheel requests go through the inverse kinematics. Other modes (a voltage, none yet)
    request no velocity: 0.
    """
    matrix = np.array(spec.drive["kinematics_1024"], dtype=np.float64) / 1024.0
    wire = np.where(
        (modes == MotorMode.WHEEL_SPACE)[:, None], actions @ np.linalg.inv(matrix).T, actions
    )
    wire[~np.isin(modes, (MotorMode.WHEEL_SPACE, MotorMode.XYTHETA_SPACE))] = 0.0
    return np.asarray(wire * UNITS / spec.largest_request)


def _read(path: Path) -> tuple[Floats, bool]:
    """Return the columns NEEDED, shape (n_rows, n_needed), and whether the file is truncated.

    Raises:
        BackendUnavailable: If it is not such a log.
    """
    lines = list[str]()
    is_torn = False
    try:
        opener: Callable[..., TextIO] = open
        if path.suffix == ".gz":
            opener = gzip.open
        with opener(path, "rt", encoding="utf-8") as file:
            try:
                lines.extend(file)
            except EOFError:  # a compressed file without its end
                is_torn = True
    except (OSError, UnicodeDecodeError, zlib.error) as error:
        raise BackendUnavailable(f"{path} cannot be read as a recorded life: {error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    header = next(csv.reader(lines[:1]), [])
    missing = [name for name in NEEDED if name not in header]
    if missing:
        names = ", ".join(missing[:3])
        if len(missing) > 3:
            names += " ..."
        raise BackendUnavailable(
            f"{path} is not a recorded life: it has no column {names}"
            f"; expected a CSV file with the header LocalTime, BusVoltage, ..., "
            f"Thermal7, MonitorState, a[0], a[1], a[2], ActionMode"
        )
    columns = [header.index(name) for name in NEEDED]
    rows = lines[1:]
    if rows and rows[-1].count(",") + 1 < len(header):
        rows = rows[:-1]
        is_torn = True
    try:
        try:
            table = _numbers(rows, columns)
        except ValueError:
            if is_torn or rows[-1].endswith("\n"):
                raise
            table = _numbers(rows[:-1], columns)
            is_torn = True
    except ValueError as error:
        raise BackendUnavailable(f"{path} is not a recorded life: {error}") from error
    # -1: written before the first packet
    return table[table[:, NEEDED.index("BusVoltage")] != -1.0], is_torn


def _numbers(lines: list[str], columns: list[int]) -> Floats:
    if lines:
        return np.loadtxt(lines, delimiter=",", ndmin=2, usecols=columns)
    return np.zeros((0, len(columns)))


def _is_sound(table: Floats) -> NDArray[np.bool_]:
    """Return which rows can be packets: finite, and of at most 16 bits except the time; shape (n_rows,)."""
    is_time = np.array([name == "LocalTime" for name in NEEDED])
    can_be = np.isfinite(table) & (is_time | (np.abs(table) < WIDEST_FIELD))
    return np.asarray(can_be.all(axis=1) & (table[:, NEEDED.index("BusVoltage")] >= 0.0))


def _piece(table: Floats, sound: NDArray[np.bool_], spec: RobotSpec, path: Path) -> Piece:
    log = dict(zip(NEEDED, table[sound].T, strict=True))
    t_s = (log["LocalTime"] - log["LocalTime"][0]) / 1000.0
    if (np.diff(t_s) < 0.0).any():
        raise BackendUnavailable(
            f"{path} runs backwards: LocalTime must increase from packet to packet"
        )
    steps = steps_of(t_s, spec.period_s)
    n_broken = np.cumsum(~sound)[sound]  # before each packet
    return Piece(
        values=_values(log, steps, spec),
        t=t_s[steps.packet],
        sensor_age_s=steps.age_s,
        crc_errors=np.diff(n_broken[steps.packet], prepend=0),
        stale=steps.stale,
        gap=steps.gap,
        applied=np.ones(len(steps.packet), dtype=np.bool_),
        extras={},
    )


def _values(log: dict[str, Floats], steps: Steps, spec: RobotSpec) -> Floats:
    """Return the SI values of all channels at each step, shape (n_steps, n_channels)."""
    newest = steps.packet
    previous_row = np.maximum(steps.packet - 1, 0)
    sensors = np.column_stack([log[name] for names in COLUMNS.values() for name in names])
    raw = np.zeros((len(newest), spec.n_channels))
    raw[:, : spec.n_sensors] = sensors[newest]
    mean2 = np.array([channel.aggregate == "mean2" for channel in spec.channels[: spec.n_sensors]])
    raw[:, : spec.n_sensors][:, mean2] = 0.5 * (
        sensors[newest][:, mean2] + sensors[previous_row][:, mean2]
    )
    raw[:, spec.group("ir_distance")] *= IR_DISTANCE_SCALE
    raw[:, spec.index("overheating")] = log["MonitorState"][newest].astype(np.int64) & 1
    values = spec.to_si(raw)
    # A row holds the request made after its packet, so the request that led to a packet is in the
    # row before.
    actions = np.column_stack([log[name] for name in REQUEST])
    values[:, spec.group("last_request")] = recorded_request(
        actions[previous_row], log["ActionMode"][previous_row], spec
    )
    return values
