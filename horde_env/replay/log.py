"""RecordedLife: a robot's log, played as a body that does what it once did.

The log is a CSV file (gzipped or not) with a header, one row per packet, raw integers as RLPark wrote them: the
columns of `COLUMNS`, then the request `a[0] a[1] a[2] ActionMode`. A log of the year 2010 differs from today's wire:
its motor "command", shown as `motor_voltage`, is the echoed request, not the PWM duty; its infrared distance is the
driver's scrambled 8-bit value, times 4 here, right to two bits in ten at best.

A row that holds what no packet can (no number, an infinity, more than 16 bits) is a broken packet: it is left out, as
the wire's checksum would have had it, counted in the `crc_errors` of the next frame, and so many in a row are a gap. A
last line that was torn off is left out too. `RecordedLife.notes` says how often.
"""

from __future__ import annotations

import csv
import gzip
import logging
import zlib
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Frame, Ints
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, critterbot

GAP_S = 0.05  # packets further apart than this lost something between them
IR_DISTANCE_SCALE = 4.0  # 8 bits of the log -> 10 bits of the wire
WIDEST_FIELD = 2**16  # no field of a packet has more than 16 bits
WHEEL_SPACE, XYTHETA_SPACE = 0, 1

# What a reader of results from such a log must know.
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
NEEDED = ("LocalTime", *(name for names in COLUMNS.values() for name in names), "MonitorState", *REQUEST, "ActionMode")
OPTIONAL = ("action", "b")  # what a recorded life's agent did in the step that ended with the row, and its probability


_log = logging.getLogger(__name__)


class Log(NamedTuple):
    """What a file holds.

    Attributes:
        columns: By name, without the rows that hold no packet; each of shape (n_packets,).
        n_broken: Broken packets between the one before and each, shape (n_packets,).
        n_broken_last: Those after the last one.
        is_torn: Whether the last line, or the compressed file's end, was torn off.
    """

    columns: dict[str, Floats]
    n_broken: Ints
    n_broken_last: int
    is_torn: bool


class Steps(NamedTuple):
    """Which packets of a log end a step.

    Attributes:
        packet: Index of the newest packet at the end of each step, shape (n_steps,).
        age_s: Age of that packet at the step's deadline, in seconds.
        gap: True where packets are missing since the step before.
        stale: True where no packet came since the step before.
    """

    packet: Ints
    age_s: Floats
    gap: NDArray[np.bool_]
    stale: NDArray[np.bool_]


class RecordedLife:
    """A log as a Backend: `exchange` ignores its command, and the frame after the last one never comes.

    Each reset plays the log from its beginning. Frames carry the recorded request as `last_request`, `applied` True,
    the log's time in seconds since its first packet as `t`, and `last` on the final one. Where the log has `action` and
    `b` but they make no sense, they are -1 and NaN, and `applied` is False: nothing can be learned from there.

    Attributes:
        notes: What a reader of results from it must know; of its own faults once it was read.

    Args:
        log: Path of the CSV file.
        spec: The robot that was recorded; the Critterbot when None.

    Raises:
        BackendUnavailable: If there is no such file; from `reset`, if it is not such a log.
    """

    def __init__(self, log: str | Path, spec: RobotSpec | None = None) -> None:
        self.path = Path(log)
        self.notes: tuple[str, ...] = NOTES
        if not self.path.is_file():
            raise BackendUnavailable(f"there is no recorded life at {self.path}; give the path of its CSV file")
        self.spec = spec or critterbot()
        self.period_s = self.spec.period_s
        self._frames: list[Frame] = []
        self._next = 0

    def reset(self, rng: np.random.Generator) -> Frame:  # noqa: ARG002
        """Return the first frame of the log, reading the file if this is the first time.

        Raises:
            BackendUnavailable: If the file does not hold such a log.
        """
        if not self._frames:
            log = _read(self.path)
            self._frames = _frames(log, self.spec, self.path)
            faults = _faults(log, sum(not frame.applied for frame in self._frames))
            self.notes = (*NOTES, *faults)
            for fault in faults:
                _log.warning("%s: %s", self.path, fault)
        self._next = 1
        return self._frames[0]

    def exchange(self, command: Floats) -> Frame:  # noqa: ARG002
        """Return the next frame of the log, whatever the command.

        Raises:
            BackendUnavailable: After the last frame, and before the first reset.
        """
        if not 0 < self._next < len(self._frames):
            raise BackendUnavailable(f"{self.path} has no frame left to play; reset() begins it again")
        self._next += 1
        return self._frames[self._next - 1]

    def close(self) -> None:
        """Let go of the log. Closing twice does nothing."""
        self._frames, self._next = [], 0

    def __len__(self) -> int:
        """Return the number of frames, once the log was read."""
        return len(self._frames)


def steps_of(packet_t_s: Floats, period_s: float) -> Steps:
    """Cut packets into steps: one packet per period of the robot's own time.

    Deadlines are `period_s` apart from the first packet on, and begin again after missing packets. Where packets are
    about as rare as steps, each is a step.

    Args:
        packet_t_s: Times of the packets in seconds, increasing, shape (n_packets,).
        period_s: Duration of a step in seconds.
    """
    pause = np.diff(packet_t_s)
    usual = float(np.median(pause)) if len(pause) else period_s
    broken = np.flatnonzero(pause > max(GAP_S, 1.5 * usual)) + 1
    starts, ends = np.concatenate([[0], broken]), np.concatenate([broken, [len(packet_t_s)]])
    packet, age, gap = [], [], []
    for start, end in zip(starts, ends, strict=True):
        t = packet_t_s[start:end]
        deadlines = (
            t if usual > 0.5 * period_s else t[0] + period_s * np.arange(int((t[-1] - t[0]) / period_s + 1e-9) + 1)
        )
        newest = np.searchsorted(t, deadlines + 1e-9, side="right") - 1
        packet.append(start + newest)
        age.append(deadlines - t[newest])
        gap.append(np.arange(len(newest)) == 0)
    gap[0][0] = False  # nothing is missing before the first packet
    chosen = np.concatenate(packet)
    return Steps(chosen, np.maximum(np.concatenate(age), 0.0), np.concatenate(gap), np.diff(chosen, prepend=-1) == 0)


def recorded_request(actions: Floats, modes: Floats, spec: RobotSpec) -> Floats:
    """Return recorded requests as shares of the largest one, shape (n, 3), x forward, y left, yaw counter-clockwise.

    Wheel requests go through the inverse kinematics. Other modes (a voltage, none yet) ask for no velocity: 0.

    Args:
        actions: The three numbers sent, in wire units, shape (n, 3).
        modes: Their motor modes, shape (n,).
        spec: The robot.
    """
    matrix = np.array(spec.drive["kinematics_1024"], dtype=np.float64) / 1024.0
    wire = np.where((modes == WHEEL_SPACE)[:, None], actions @ np.linalg.inv(matrix).T, actions)
    wire[~np.isin(modes, (WHEEL_SPACE, XYTHETA_SPACE))] = 0.0
    # The wire's y points right.
    unit = np.array([spec.drive["translation_unit"], -spec.drive["translation_unit"], spec.drive["rotation_unit"]])
    return np.asarray(wire * unit / spec.largest_request)


def _read(path: Path) -> Log:
    """Return what a file holds.

    Raises:
        BackendUnavailable: If it does not hold such a log.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            lines, is_cut = _lines(file)
    except (OSError, UnicodeDecodeError, zlib.error) as error:
        raise BackendUnavailable(f"{path} cannot be read as a recorded life: {error}") from error
    header = next(csv.reader(lines[:1]), [])
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise BackendUnavailable(
            f"{path} is not a recorded life: it has no column {', '.join(missing[:3])}"
            f"{' ...' if len(missing) > 3 else ''}; expected a CSV file with the header LocalTime, BusVoltage, ..., "
            f"Thermal7, MonitorState, a[0], a[1], a[2], ActionMode"
        )
    names = [*NEEDED, *(name for name in OPTIONAL if name in header)]
    table, is_torn = _table(lines[1:], header, names, path)
    table = table[table[:, names.index("BusVoltage")] != -1.0]  # a row of -1 was written before the first packet
    sound = _is_sound(table, names)
    if not sound.any():
        raise BackendUnavailable(f"{path} is a recorded life without a single packet")
    before = np.diff(np.flatnonzero(sound), prepend=-1) - 1
    columns = dict(zip(names, table[sound].T, strict=True))
    return Log(columns, before, int((~sound).sum() - before.sum()), is_torn or is_cut)


def _lines(file: TextIO) -> tuple[list[str], bool]:
    """Return a file's lines, without empty ones at its end, and whether the end of a compressed file is missing."""
    lines, is_cut = [], False
    try:
        for line in file:
            lines.append(line)  # noqa: PERF402  what comes before a missing end is kept
    except EOFError:
        is_cut = True
    while lines and not lines[-1].strip():
        lines.pop()
    return lines, is_cut


def _table(lines: list[str], header: list[str], names: list[str], path: Path) -> tuple[Floats, bool]:
    """Return the columns with these names, shape (n_rows, n_names), and whether the last line was torn off.

    A line that ends before its time is left out if it is the last one; others are none of a recorded life.
    """
    columns = [header.index(name) for name in names]
    is_short = bool(lines) and lines[-1].count(",") + 1 < len(header)
    is_open = bool(lines) and not lines[-1].endswith("\n")
    try:
        if not is_short:
            return _numbers(lines, columns), False
    except ValueError as error:
        if not is_open:
            raise BackendUnavailable(f"{path} is not a recorded life: {error}") from error
    try:
        return _numbers(lines[:-1], columns), True
    except ValueError as error:
        raise BackendUnavailable(f"{path} is not a recorded life: {error}") from error


def _numbers(lines: list[str], columns: list[int]) -> Floats:
    """Return columns of numbers, shape (n_lines, n_columns)."""
    if not lines:
        return np.zeros((0, len(columns)))
    return np.loadtxt(lines, delimiter=",", ndmin=2, usecols=columns)


def _is_sound(table: Floats, names: list[str]) -> NDArray[np.bool_]:
    """Return which rows can be packets: finite numbers, of at most 16 bits but for the time; shape (n_rows,)."""
    needed = table[:, : len(NEEDED)]
    is_time = np.array([name == "LocalTime" for name in names[: len(NEEDED)]])
    # Written so that NaN fails it.
    can_be = np.isfinite(needed) & (is_time | (np.abs(needed) < WIDEST_FIELD))
    return np.asarray(can_be.all(axis=1) & (needed[:, names.index("BusVoltage")] >= 0.0))


def _faults(log: Log, n_unknown: int) -> list[str]:
    """Return a sentence for each kind of fault of a log; `n_unknown` steps tell of no choice."""
    n_broken, n_sound = int(log.n_broken.sum()) + log.n_broken_last, len(log.n_broken)
    said = []
    if n_broken:
        said.append(
            f"{n_broken} of {n_broken + n_sound} packets hold what no packet can (no number, an infinity, more than 16 "
            f"bits): they are left out, as lost ones are."
        )
    if log.is_torn:
        said.append("The end of the log was torn off: what is left of its last line is left out.")
    if n_unknown:
        said.append(f"{n_unknown} steps name no action, or no probability of it: nothing is learned from them.")
    return said


def _frames(read: Log, spec: RobotSpec, path: Path) -> list[Frame]:
    log = read.columns
    t_s = (log["LocalTime"] - log["LocalTime"][0]) / 1000.0
    if (np.diff(t_s) < 0.0).any():
        raise BackendUnavailable(f"{path} runs backwards: LocalTime must increase from packet to packet")
    steps = steps_of(t_s, spec.period_s)
    values = _values(log, steps, spec)
    n, n_broken = len(steps.packet), np.cumsum(read.n_broken)[steps.packet]
    choices = [_choice(log, int(i)) for i in steps.packet]
    return [
        Frame(
            values=values[k],
            t=float(t_s[i]),
            sensor_age_s=float(steps.age_s[k]),
            crc_errors=int(n_broken[k] - (n_broken[k - 1] if k else 0)),
            stale=bool(steps.stale[k]),
            gap=bool(steps.gap[k]),
            applied=choices[k].is_known,
            last=k == n - 1,
            extras=choices[k].told,
        )
        for k, i in enumerate(steps.packet)
    ]


class Choice(NamedTuple):
    """What a log tells of the choice that led to a packet.

    Attributes:
        told: `action` and `b`, where it has them; -1 and NaN where they make no sense.
        is_known: Whether they make sense.
    """

    told: dict[str, float]
    is_known: bool


def _choice(log: dict[str, Floats], packet: int) -> Choice:
    """Return what a log tells of the choice that led to a packet."""
    told = {name: float(log[name][packet]) for name in OPTIONAL if name in log}
    action, b = told.get("action", 0.0), told.get("b", 1.0)
    if action >= 0.0 and action.is_integer() and 0.0 < b <= 1.0:
        return Choice(told, is_known=True)
    return Choice({name: {"action": -1.0, "b": np.nan}[name] for name in told}, is_known=False)


def _values(log: dict[str, Floats], steps: Steps, spec: RobotSpec) -> Floats:
    """Return the SI values of all channels at each step, shape (n_steps, n_channels)."""
    newest, before = steps.packet, np.maximum(steps.packet - 1, 0)
    sensors = np.column_stack([log[name] for names in COLUMNS.values() for name in names])
    raw = np.zeros((len(newest), spec.n_channels))
    raw[:, : spec.n_sensors] = sensors[newest]
    mean2 = np.array([channel.aggregate == "mean2" for channel in spec.channels[: spec.n_sensors]])
    raw[:, : spec.n_sensors][:, mean2] = 0.5 * (sensors[newest][:, mean2] + sensors[before][:, mean2])
    raw[:, spec.group("ir_distance")] *= IR_DISTANCE_SCALE
    raw[:, spec.index("overheating")] = log["MonitorState"][newest].astype(np.int64) & 1
    values = spec.to_si(raw)
    # A row holds what was decided on its packet, so the request that led to a packet stands in the row before.
    actions = np.column_stack([log[name] for name in REQUEST])
    values[:, spec.group("last_request")] = recorded_request(actions[before], log["ActionMode"][before], spec)
    return values
