"""RobotFile: settings and measurements of one robot, a TOML file in the user's config folder.

    backend = "serial"
    port = "/dev/serial/by-id/..."
    parity = "odd"             # optional
    baudrate = 115200

    [signs]                     # 1 as specified, -1 for a channel with reversed sign
    rotational_velocity = 1

    [ranges]                    # measured, in SI units: [lowest, highest]
    light_0 = [0.11, 0.31]

    [measured]                  # by `horde-robot check --measure`, SI units
    wheel_velocity_left_in_forward = 0.189

Every key is optional; an unknown one is an error, because a mistyped setting would be ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from horde_env.errors import BackendUnavailable
from horde_env.hardware.folders import checked_name, config_folder, write_whole
from horde_env.hardware.settings import PARITIES
from horde_env.robot import DEFAULT_ROBOT, ROBOTS, RobotSpec, parsed_toml, spec_of

BACKENDS = ("simulator", "serial", "drops", "emulated", "replay")


@dataclass(frozen=True)
class RobotFile:
    """Connection settings and measurements of one robot; "" if unset.

    Raises:
        ValueError: If a value is invalid.
    """

    backend: str = ""  # one of BACKENDS
    port: str = ""
    parity: str = ""  # the robot's if unset
    baudrate: int = 115_200
    signs: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # One of `robot.ROBOTS`; if unset, the file's name if that is a robot, else the Critterbot
    kind: str = ""
    swapped_encoders: bool = False  # left and right, as on some Roomba 500
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in (("backend", BACKENDS), ("kind", ROBOTS), ("parity", tuple(PARITIES))):
            value = getattr(self, name)
            if value and value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if not isinstance(self.swapped_encoders, bool):
            raise ValueError(
                f"swapped_encoders must be true or false, not {self.swapped_encoders!r}"
            )
        if not isinstance(self.port, str):
            raise ValueError(f"port must be a text, not {self.port!r}")
        if (
            not _is_number(self.baudrate)
            or self.baudrate != int(self.baudrate)
            or self.baudrate <= 0
        ):
            raise ValueError(f"baudrate must be a positive whole number, not {self.baudrate!r}")
        for section, (is_fine, text) in TABLES.items():
            for name, value in getattr(self, section).items():
                if not is_fine(value):
                    raise ValueError(f"{section}.{name} must be {text}, not {value!r}")


def default_path(robot: str = DEFAULT_ROBOT) -> Path:
    """Return the path of a robot's file.

    Raises:
        ValueError: If the robot's name is no valid file name.
    """
    return config_folder() / "robots" / f"{checked_name(robot)}.toml"


def load(path: Path, spec: RobotSpec | None = None) -> RobotFile:
    """Read a robot's file; `spec` has its channels, by the file's kind or name when None.

    Raises:
        BackendUnavailable: If the file is missing or unreadable.
        ValueError: If it is not TOML, or has an unknown key or channel, or an invalid value.
    """
    try:
        table = parsed_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        writer = f"`horde-robot check --robot {path.stem} --save`"
        raise BackendUnavailable(f"there is no robot file {path}; {writer} writes one") from error
    except OSError as error:
        raise BackendUnavailable(
            f"cannot read the robot file {path}: {error.strerror or error}"
        ) from error
    except ValueError as error:
        raise ValueError(f"the robot file {path} is not valid TOML: {error}") from error
    try:
        return _checked(table, spec or spec_of(kind_of(path.stem, str(table.get("kind", "")))))
    except ValueError as error:
        raise ValueError(f"the robot file {path} is invalid: {error}") from None


def known(robot: str = DEFAULT_ROBOT, spec: RobotSpec | None = None) -> RobotFile:
    """Return a robot's file, or the defaults if it has none. `spec` is as for `load`.

    Raises:
        ValueError: If the name or the file is invalid.
        BackendUnavailable: If the file is unreadable.
    """
    path = default_path(robot)
    if path.exists():
        return load(path, spec)
    return RobotFile()


def kind_of(robot: str, kind: str = "") -> str:
    """Return a robot's kind: `kind` if not "", else its name if that is a robot, else the Critterbot."""
    return kind or (robot if robot in ROBOTS else DEFAULT_ROBOT)


def kind_in(path: Path) -> str:
    """Return the kind that a robot's file names, even if the rest is invalid; "" if none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    kind = re.search(r'^\s*kind\s*=\s*["\'](\w+)["\']', text, re.MULTILINE)
    if kind and kind[1] in ROBOTS:
        return kind[1]
    return ""


def save(file: RobotFile, path: Path) -> None:
    """Write a robot's file atomically, and its folder if it does not exist.

    Raises:
        BackendUnavailable: If writing fails.
    """
    lines = [
        f"{key} = {_text(getattr(file, key))}" for key in ("backend", "port", "parity", "baudrate")
    ]
    lines = [line for line in lines if line != 'parity = ""']
    if file.kind:
        lines.append(f"kind = {_text(file.kind)}")
    if file.swapped_encoders:
        lines.append("swapped_encoders = true")
    lines += ["", "[signs]  # 1 as specified, -1 for a channel with reversed sign"]
    lines += [f"{name} = {sign}" for name, sign in file.signs.items()]
    lines += ["", "[ranges]  # measured: lowest, highest, SI units"]
    lines += [
        f"{name} = [{float(low)!r}, {float(high)!r}]" for name, (low, high) in file.ranges.items()
    ]
    if file.measured:
        lines += ["", "[measured]  # by `horde-robot check --measure`, SI units"]
        lines += [f"{_text(name)} = {float(number)!r}" for name, number in file.measured.items()]
    try:
        write_whole(path, "\n".join(lines) + "\n")
    except OSError as error:
        raise BackendUnavailable(
            f"cannot write the robot file {path}: {error.strerror or error}"
        ) from error


def _checked(table: dict[str, Any], spec: RobotSpec) -> RobotFile:
    keys = [f.name for f in fields(RobotFile)]
    for key in table:
        if key not in keys:
            raise ValueError(f"unknown key {key!r}; expected {', '.join(keys)}")
    channel_names = {channel.name for channel in spec.channels}
    for section in TABLES:
        names = table.get(section, {})
        if not isinstance(names, dict):
            raise ValueError(f"{section} must be a table, not {names!r}")
        unknown = [name for name in names if name not in channel_names]
        if unknown and section != "measured":
            raise ValueError(f"unknown channel {unknown[0]!r} in [{section}]")
    ranges = {
        name: tuple(v) if isinstance(v, list) else v for name, v in table.get("ranges", {}).items()
    }
    return RobotFile(**{**table, "ranges": ranges})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(pair: Any) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(map(_is_number, pair))
        and pair[0] <= pair[1]
    )


TABLES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "signs": (lambda sign: sign in (1, -1), "1 or -1"),
    "ranges": (_is_range, "[lowest, highest]"),
    "measured": (_is_number, "a number"),
}
"""The file's tables: the test of a value, and what it must be."""


def _text(value: str | int) -> str:
    """Return a value in TOML, whose strings differ from JSON's in one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
