"""RecordedLife: a robot's log, played as a body that does what it once did.

The log is a CSV file (gzipped or not) with a header, one row per packet, raw integers as RLPark wrote them: the
columns of `COLUMNS`, then the request `a[0] a[1] a[2] ActionMode`. A log of the year 2010 differs from today's wire:
its motor "command", shown as `motor_voltage`, is the echoed request, not the PWM duty; its infrared distance is the
driver's scrambled 8-bit value, times 4 here, right to two bits in ten at best.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Frame
from horde_env.errors import BackendUnavailable
from horde_env.robot import Floats, RobotSpec, critterbot

GAP_S = 0.05  # packets further apart than this lost something between them
IR_DISTANCE_SCALE = 4.0  # 8 bits of the log -> 10 bits of the wire
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


class Steps(NamedTuple):
    """Which packets of a log end a step.

    Attributes:
        packet: Index of the newest packet at the end of each step, shape (n_steps,).
        age_s: Age of that packet at the step's deadline, in seconds.
        gap: True where packets are missing since the step before.
        stale: True where no packet came since the step before.
    """

    packet: NDArray[np.int64]
    age_s: Floats
    gap: NDArray[np.bool_]
    stale: NDArray[np.bool_]


class RecordedLife:
    """A log as a Backend: `exchange` ignores its command, and the frame after the last one never comes.

    Each reset plays the log from its beginning. Frames carry the recorded request as `last_request`, `applied` True,
    the log's time in seconds since its first packet as `t`, and `last` on the final one.

    Args:
        log: Path of the CSV file.
        spec: The robot that was recorded; the Critterbot when None.

    Raises:
        BackendUnavailable: If there is no such file; from `reset`, if it is not such a log.
    """

    takes_requests = False  # so that nobody wonders why it does not do what it is asked

    def __init__(self, log: str | Path, spec: RobotSpec | None = None) -> None:
        self.path = Path(log)
        self.notes = NOTES
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
            self._frames = _frames(_read(self.path), self.spec, self.path)
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


def _read(path: Path) -> dict[str, Floats]:
    """Return the columns of a log without its rows that hold no packet."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            return _columns(file, path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BackendUnavailable(f"{path} cannot be read as a recorded life: {error}") from error


def _columns(file: TextIO, path: Path) -> dict[str, Floats]:
    header = next(csv.reader(file), [])
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise BackendUnavailable(
            f"{path} is not a recorded life: it has no column {', '.join(missing[:3])}"
            f"{' ...' if len(missing) > 3 else ''}; expected a CSV file with the header LocalTime, BusVoltage, ..., "
            f"Thermal7, MonitorState, a[0], a[1], a[2], ActionMode"
        )
    names = [*NEEDED, *(name for name in OPTIONAL if name in header)]
    lines = file.readlines()
    if not lines:
        raise BackendUnavailable(f"{path} is a recorded life without a single packet")
    try:
        table = np.loadtxt(lines, delimiter=",", ndmin=2, usecols=[header.index(name) for name in names])
    except ValueError as error:
        raise BackendUnavailable(f"{path} is not a recorded life: {error}") from error
    table = table[table[:, names.index("BusVoltage")] >= 0.0]  # a row of -1 was written before the first packet
    if not len(table):
        raise BackendUnavailable(f"{path} is a recorded life without a single packet")
    return dict(zip(names, table.T, strict=True))


def _frames(log: dict[str, Floats], spec: RobotSpec, path: Path) -> list[Frame]:
    t_s = (log["LocalTime"] - log["LocalTime"][0]) / 1000.0
    if (np.diff(t_s) < 0.0).any():
        raise BackendUnavailable(f"{path} runs backwards: LocalTime must increase from packet to packet")
    steps = steps_of(t_s, spec.period_s)
    values = _values(log, steps, spec)
    extras = [name for name in OPTIONAL if name in log]
    n = len(steps.packet)
    return [
        Frame(
            values=values[k],
            t=float(t_s[i]),
            sensor_age_s=float(steps.age_s[k]),
            stale=bool(steps.stale[k]),
            gap=bool(steps.gap[k]),
            last=k == n - 1,
            extras={name: float(log[name][i]) for name in extras},
        )
        for k, i in enumerate(steps.packet)
    ]


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
