"""RobotSpec: every channel of a robot with its name, group, unit and ranges, its actions and its geometry.

The numbers are in `assets/NAME.toml`. Raw units are the wire's integers; the simulators use them to
quantise.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_env.backend import Floats, Observation


def asset(name: str) -> Path:
    """Return the path of a data file, in a wheel and in an editable install alike.

    Raises:
        FileNotFoundError: If neither place holds it.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "assets", package.parent / "assets"):
        if (folder / name).exists():
            return folder / name
    places = f"{package / 'assets'} nor in {package.parent / 'assets'}"
    raise FileNotFoundError(f"the data file {name!r} is neither in {places}")


@dataclass(frozen=True, slots=True)
class Channel:
    """One number of the observation.

    Attributes:
        name: `group` or `group_member`, unique.
        group: What kind of sensor it is.
        unit: SI unit, "1" for a share of full scale.
        lsb, offset: SI value = lsb * raw + offset. An lsb of 0 marks a channel that is not on the
            wire.
        raw_low, raw_high: Range of the wire's integer, inclusive.
        low, high: The specified SI range, which becomes 0..1.
        angle_rad: Direction of the sensor, counter-clockwise from forward; nan if it has none.
        aggregate: One value from a step's packets: the "newest", "mean2" of the last two, or "any"
            of all.
        is_sensor: True for a prediction target, False for a command or state that the robot
            reports.
        role: "speed" of a part that moves the robot, "request" of a motion; "" for all others.

    Examples:
        >>> robot = critterbot()
        >>> channel = robot.channels[robot.index("motor_temperature_100")]
        >>> channel.group, channel.unit, channel.is_sensor
        ('motor_temperature', '1', True)
    """

    name: str
    group: str
    unit: str
    lsb: float
    offset: float
    raw_low: int
    raw_high: int
    low: float
    high: float
    angle_rad: float
    aggregate: Literal["newest", "mean2", "any"]
    is_sensor: bool
    role: Literal["", "speed", "request"] = ""

    @property
    def step(self) -> float | None:
        """Smallest change of the scaled reading; None for a flag and for a channel that is not on the wire."""
        if self.lsb == 0.0 or self.raw_high - self.raw_low <= 1:
            return None
        step = abs(self.lsb) / (self.high - self.low)
        if self.aggregate == "mean2":
            return step / 2
        return step


@dataclass(frozen=True, slots=True)
class Action:
    """One discrete action: a request (vx m/s forward, vy m/s left, yaw rate rad/s counter-clockwise).

    Examples:
        >>> [action.name for action in critterbot().actions]
        ['forward', 'reverse', 'rotate_clockwise', 'rotate_counterclockwise', 'stop']
    """

    name: str
    request: tuple[float, float, float]


def _action(entry: dict[str, Any]) -> Action:
    vx, vy, yaw_rate = map(float, entry["request"])
    return Action(entry["name"], (vx, vy, yaw_rate))


class RobotSpec:
    """The robot as data: channels, actions, geometry, and the conversions between raw, SI and scaled values.

    Attributes:
        channels: All channels in the order of the observation; the sensors come first.
        actions: The discrete actions in their order.
        period_s: Duration of one step, in seconds.
        packet_period_s: Time between two sensor packets of the body, in seconds.
        largest_request: Largest request per axis (m/s, m/s, rad/s), shape (3,); 0 along an axis it
            cannot move in.
        axes: The axes it can move along, among 0 (x), 1 (y) and 2 (yaw): those of `last_request`.
        low, high, lsb, offset, raw_low, raw_high: The channels' numbers as arrays of shape
            (n_channels,).
        is_mean, is_any: Which channels are aggregated so, shape (n_channels,).
        drive, body, battery: The tables of the same name in the TOML file; the last may be missing.
            It has the volts at which the lowest battery is low, urgent and full enough (`low_v`,
            `urgent_v`, `full_v`), and those of the bus at a dock (`dock_v`), if a voltage shows it.
        tile_layout: Text of the robot's tile layout.
        chosen_layout: Text of a layout that was chosen by the errors of predictions; "" without one.

    Examples:
        >>> robot = critterbot()
        >>> robot.n_channels, robot.n_sensors, robot.period_s
        (57, 53, 0.1)
        >>> robot.group("light")  # where its readings are in an observation
        slice(41, 45, None)
    """

    def __init__(self, table: dict[str, Any], tile_layout: str, chosen_layout: str = "") -> None:
        self.name: str = table["name"]
        self.period_s = float(table["period_s"])
        self.packet_period_s = float(table["packet_period_s"])
        self.channels = tuple(channel for group in table["group"] for channel in _channels(group))
        self.actions = tuple(_action(entry) for entry in table["action"])
        self.drive: dict[str, Any] = table["drive"]
        self.body: dict[str, Any] = table["body"]
        self.battery: dict[str, Any] = table.get("battery", {})
        self.largest_request = np.array(self.drive["largest_request"], dtype=np.float64)
        self.axes = np.flatnonzero(self.largest_request)
        self.requests = np.array([a.request for a in self.actions])
        self.tile_layout = tile_layout
        self.chosen_layout = chosen_layout
        self._groups = {group["name"]: group for group in table["group"]}
        self._index = {channel.name: i for i, channel in enumerate(self.channels)}
        self.is_mean = np.array([channel.aggregate == "mean2" for channel in self.channels])
        self.is_any = np.array([channel.aggregate == "any" for channel in self.channels])
        for column in ("low", "high", "lsb", "offset", "raw_low", "raw_high"):
            setattr(
                self,
                column,
                np.array([getattr(c, column) for c in self.channels], dtype=np.float64),
            )
        self._span = self.high - self.low
        self._to_unit: Callable[..., int] | None = None
        names = [channel.group for channel in self.channels]
        self._slices = {
            name: slice(names.index(name), names.index(name) + names.count(name))
            for name in self._groups
        }

    low: Floats
    high: Floats
    lsb: Floats
    offset: Floats
    raw_low: Floats
    raw_high: Floats

    @property
    def n_channels(self) -> int:
        """Length of an observation (57 for the Critterbot)."""
        return len(self.channels)

    @property
    def n_sensors(self) -> int:
        """Number of prediction targets (53 for the Critterbot)."""
        return sum(channel.is_sensor for channel in self.channels)

    def index(self, name: str) -> int:
        """Return the position of the channel `name` in an observation.

        Raises:
            ValueError: If there is no such channel.
        """
        if name not in self._index:
            raise ValueError(f"unknown channel {name!r}; the robot has {', '.join(self._index)}")
        return self._index[name]

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the channel groups, in the order of the observation."""
        return tuple(self._slices)

    def group(self, name: str) -> slice:
        """Return the slice of the observation that holds a group's channels.

        Raises:
            ValueError: If there is no such group.
        """
        if name not in self._slices:
            raise ValueError(f"unknown group {name!r}; the robot has {', '.join(self._slices)}")
        return self._slices[name]

    def positions(self, group: str) -> Floats:
        """Return a group's sensor positions in the body frame, metres, shape (n, 2); on the rim by default."""
        channels = self.channels[self.group(group)]
        if "positions_m" in self._groups[group]:
            return np.array(self._groups[group]["positions_m"], dtype=np.float64)
        angles = np.array([channel.angle_rad for channel in channels])
        return float(self.body["radius_m"]) * np.column_stack([np.cos(angles), np.sin(angles)])

    def angles(self, group: str) -> Floats:
        """Return a group's sensor directions, radians counter-clockwise from forward, shape (n,)."""
        return np.array([channel.angle_rad for channel in self.channels[self.group(group)]])

    def shares(self, request: Floats) -> Floats:
        """Return a request (m/s, m/s, rad/s) as `last_request` holds it: shares of the largest one, shape (n_axes,)."""
        return np.asarray(
            np.asarray(request, dtype=np.float64)[self.axes] / self.largest_request[self.axes]
        )

    def to_si(self, raw: Floats) -> Floats:
        """Convert the wire's integers, shape (n_channels,), to SI values."""
        return np.asarray(self.lsb * raw + self.offset)

    def scale(self, values: Floats) -> tuple[Observation, int]:
        """Scale SI values by the specified ranges to [0, 1].

        Returns:
            The observation, float32 of shape (n_channels,), and the number of readings that had to
            be clipped. A reading that is not finite is missing, NaN.
        """
        if self._to_unit is None:  # imported here, because a robot's description needs no compiler
            from horde_env._jit import scale_to_unit

            self._to_unit = scale_to_unit
        observation = np.empty(self.n_channels, dtype=np.float32)
        n_clipped: int = self._to_unit(values, self.low, self._span, observation)
        return observation, n_clipped

    def unscale(self, observation: NDArray[np.floating[Any]]) -> Floats:
        """Return the SI values of a scaled observation (exact only without clipping)."""
        return np.asarray(
            self.low + (self.high - self.low) * np.asarray(observation, dtype=np.float64)
        )

    def observation_space(self) -> spaces.Box:
        """Return Box(0, 1, (n_channels,), float32)."""
        return spaces.Box(0.0, 1.0, (self.n_channels,), np.float32)


def _channels(group: dict[str, Any]) -> list[Channel]:
    """Expand one [[group]] table into its channels; `lsb` and `range` are one for all, or a list by member."""
    members: list[str] = group["members"]
    if isinstance(group["lsb"], list):
        lsb = group["lsb"]
    else:
        lsb = [group["lsb"]] * len(members)
    if isinstance(group["range"][0], list):
        ranges = group["range"]
    else:
        ranges = [group["range"]] * len(members)
    angles = group.get("angles_deg", [float("nan")] * len(members))
    names = []
    for member in members:
        name = group["name"]
        if member:
            name = f"{name}_{member}"
        names.append(name)
    return [
        Channel(
            name=name,
            group=group["name"],
            unit=group["unit"],
            lsb=float(lsb[i]),
            offset=float(group.get("offset", 0.0)),
            raw_low=int(group["raw"][0]),
            raw_high=int(group["raw"][1]),
            low=float(ranges[i][0]),
            high=float(ranges[i][1]),
            angle_rad=float(np.deg2rad(angles[i])),
            aggregate=group.get("aggregate", "newest"),
            is_sensor=bool(group.get("sensor", True)),
            role=group.get("role", ""),
        )
        for i, name in enumerate(names)
    ]


_FOLDER = Path(__file__).resolve().parent / "robots"
ROBOTS = tuple(sorted((path.parent.name for path in _FOLDER.glob("*/__init__.py")), reverse=True))
"""The names of all robots: those of the folders in `robots`."""
DEFAULT_ROBOT = "critterbot"
"""The robot of commands and environments that name no robot."""
_MOST_DOTS = 32


def parsed_toml(text: str) -> dict[str, Any]:
    """Return a TOML text as a table.

    Raises:
        ValueError: If it is none, nests too deeply, or has a key of more than 32 dots, for which the
            standard library takes time proportional to the square of their number.
    """
    for number, line in enumerate(text.splitlines(), 1):
        key = line.partition("=")[0]
        if key.count(".") > _MOST_DOTS and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number}: a key has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its tables or lists are nested too deeply") from None


@cache
def spec_of(name: str) -> RobotSpec:
    """Return the robot that `assets/NAME.toml` and `assets/layouts/NAME.toml` describe.

    `assets/layouts/NAME_chosen.toml` is its chosen layout, if it has one.

    Raises:
        ValueError: If there is no such robot.
    """
    check_known(name)
    table = tomllib.loads(asset(f"{name}.toml").read_text(encoding="utf-8"))
    path = asset(f"layouts/{name}.toml")
    chosen = path.with_name(f"{name}_chosen.toml")
    chosen_layout = ""
    if chosen.exists():
        chosen_layout = chosen.read_text(encoding="utf-8")
    return RobotSpec(table, path.read_text(encoding="utf-8"), chosen_layout)


def check_known(name: str) -> None:
    """Raise ValueError unless it is one of `ROBOTS`."""
    if name not in ROBOTS:
        raise ValueError(f"unknown robot {name!r}; there are {', '.join(ROBOTS)}")


def default_robot() -> RobotSpec:
    """Return the robot of `DEFAULT_ROBOT`."""
    return spec_of(DEFAULT_ROBOT)


def critterbot() -> RobotSpec:
    """Return the Critterbot of White, Modayil & Sutton (2012): 53 sensors, 57 channels, five actions.

    Examples:
        >>> robot = critterbot()
        >>> len(robot.actions), robot.largest_request  # m/s forward, m/s to the left, rad/s
        (5, array([0.44, 0.44, 4.6 ]))
    """
    return spec_of("critterbot")


def create2() -> RobotSpec:
    """Return the iRobot Create 2, or Roomba 500 to 900: 50 sensors, 55 channels, five actions."""
    return spec_of("create2")
