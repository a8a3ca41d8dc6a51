"""The command `horde-robot`: check, monitor, emulate and stop a robot.

Exit codes: 2 after bad input, with one sentence on stderr; 1 if the robot is not well; after a
signal, which stops the robot first, 130 (Ctrl-C), 143 (SIGTERM) or 129 (terminal closed). A second
Ctrl-C sets the emergency stop.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NoReturn, cast

from horde_env.env import RobotEnv
from horde_env.errors import HordeEnvError
from horde_env.hardware import robot_file
from horde_env.hardware.checks import Verdict
from horde_env.hardware.settings import PARITIES
from horde_env.robot import DEFAULT_ROBOT, ROBOTS
from horde_env.tools import running, terminal

if TYPE_CHECKING:
    from horde_env.tools.check import Check

BROKEN_PIPE = 128 + 13  # the exit code of a program that SIGPIPE ends, which Windows has not

COMMANDS = ("check", "monitor", "emulate", "stop")
QUESTION = (
    "The robot will now drive 0.3 m forward and back, and turn by 80 degrees each way. Is it on the floor, with half a "
    "metre of room around it, and is a person near its switch? [y/N]"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: Words after `horde-robot`; those of the process when None.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    words = list(arguments)
    try:
        _check_command(words)
        command = _parser().parse_args(words)
        return int(command.run(command))
    except running.BadInput as error:
        return terminal.complain(str(error), running.BAD_INPUT)
    except HordeEnvError as error:
        return terminal.complain(str(error), running.UNWELL)
    except running.Interrupted as end:
        return terminal.complain(
            f"ended by {signal.Signals(end.signum).name}; a stop was sent to the robot",
            128 + end.signum,
        )
    except BrokenPipeError:  # `horde-robot monitor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


class _Parser(argparse.ArgumentParser):
    """Reports bad input as `BadInput`, in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise running.BadInput(f"{message}; see {self.prog} --help")


def _check_command(words: Sequence[str]) -> None:
    """Raise BadInput if there is no command, or an unknown one."""
    names = ", ".join(COMMANDS)
    if not words:
        raise running.BadInput(f"name a command: {names}; see horde-robot --help")
    if words[0].startswith("-") or words[0] in COMMANDS:
        return
    message = f"unknown command {words[0]!r}: choose {names}"
    for nearest in get_close_matches(words[0], COMMANDS, n=1):
        message += f"; did you mean {nearest!r}?"
    raise running.BadInput(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="horde-robot", description="Check a robot, show its sensors, emulate it, stop it."
    )
    parser.add_argument("--version", action="version", version=_own_version())
    commands = parser.add_subparsers(required=True, metavar=" | ".join(COMMANDS))

    _add_check(commands)
    _add_monitor(commands)
    _add_emulate(commands)
    _add_stop(commands)
    return parser


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check", help="check every sensor, then drive a little; exit code 1 if not well"
    )
    running.add_arguments(check)
    check.add_argument("--yes", action="store_true", help="drive without asking first")
    check.add_argument(
        "--save", action="store_true", help="save port, signs and ranges in the robot's file"
    )
    check.add_argument(
        "--measure", action="store_true", help="then measure noise, speeds and currents, for --save"
    )
    check.set_defaults(run=_check)


def _add_monitor(commands: Any) -> None:
    monitor = commands.add_parser("monitor", help="show all channels live; the robot stands still")
    running.add_arguments(monitor)
    monitor.add_argument("--once", action="store_true", help="show one frame and end")
    monitor.set_defaults(run=_monitor)


def _add_emulate(commands: Any) -> None:
    emulate = commands.add_parser(
        "emulate", help="emulate a robot on a pseudo terminal, with the real one's bytes"
    )
    add = emulate.add_argument
    add("--robot", choices=ROBOTS, default=DEFAULT_ROBOT, help="the robot to emulate")
    add("--tcp", metavar="ADDRESS", help="serve the serial line over TCP too: HOST:PORT or PORT")
    add(
        "--drops",
        metavar="ADDRESS",
        nargs="?",
        const="",
        help="serve drops over TCP too; port 2330 by default",
    )
    add("--speed", type=float, default=1.0, metavar="X", help="seconds of the robot per second")
    add(
        "--faults",
        default="",
        metavar="RATES",
        help='faults per second: "loss=0.5,unplug=0.01" or "all=0.02"',
    )
    add(
        "--battery-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="battery capacity; 1 lasts 12 hours",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of pose, noise, faults and jitter")
    emulate.set_defaults(run=_emulate)


def _add_stop(commands: Any) -> None:
    stop = commands.add_parser("stop", help="stop the robot, and keep it stopped until --clear")
    add = stop.add_argument
    add("--robot", metavar="NAME", help=f"the robot's name; default: {DEFAULT_ROBOT}")
    add(
        "--backend",
        choices=running.ON_A_PORT,
        help="how the port is reached; default: as in the robot's file, or serial",
    )
    add("--port", help="send a stop to this port; default: the port in the robot's file")
    add("--parity", choices=tuple(PARITIES), help="parity of a serial line; the robot's is odd")
    add("--reason", default="", help="the reason, stored with the stop")
    add("--clear", action="store_true", help="clear the stop: the robot can move again")
    stop.set_defaults(run=running.stop_robot)


def _own_version() -> str:
    try:
        return version("horde-gvf")
    except PackageNotFoundError:
        return "0+unknown"


# ---- check -----------------------------------------------------------------------------------------------------------


def _check(words: argparse.Namespace) -> int:
    """Print a verdict per line and return 1 if one of them is FAIL."""
    from horde_env.tools.check import Check

    with running.user_errors():
        target = running.target_of(words)
        if words.save and target.backend == "replay":
            raise running.BadInput("--save needs a robot: a recorded life has no robot file")
    counts: Counter[Verdict] = Counter()
    with running.opened_robot(target, realtime=False) as env:
        print(target.title, flush=True)
        check = Check(env, _may_move(target, words.yes), measures=words.measure)
        for line in check.lines():
            counts[line.verdict] += 1
            terminal.print_line(line)
    text = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
    code = running.WELL
    result = "well"
    if counts[Verdict.FAIL]:
        code = running.UNWELL
        result = "not well"
    print(f"{result}: {text}")
    if words.save:
        _save(target, check)
    return code


def _may_move(target: running.Target, yes: bool) -> Callable[[], str]:
    """Return a function that asks the user and returns "" if the robot may be driven, else why not."""

    def ask() -> str:
        if target.backend == "replay":
            return "a recorded life cannot be driven"
        if yes or not target.is_physical:
            return ""
        try:
            answer = input(textwrap.fill(QUESTION, terminal.width()) + " ")
        except EOFError:
            print()
            return "no answer; --yes drives without asking"
        if answer.strip().lower() in ("y", "yes"):
            return ""
        return "refused by the user"

    return ask


def _save(target: running.Target, check: Check) -> None:
    """Write the robot's file; the measured signs are relative to those of the file before."""
    if not check.ranges:
        print("nothing was measured, so nothing is saved")
        return
    file = target.file
    path = robot_file.default_path(target.robot)
    signs = dict(file.signs) | {
        name: sign * file.signs.get(name, 1) for name, sign in check.signs.items()
    }
    parity = ""
    if "parity" in target.environment.arguments:
        parity = file.parity
    file = replace(
        file,
        signs=signs,
        ranges=check.ranges,
        swapped_encoders=file.swapped_encoders != check.is_swapped,
        measured=check.measured or file.measured,
        parity=parity,
    )
    robot_file.save(file, path)
    print(f"saved in {path}")


# ---- monitor ---------------------------------------------------------------------------------------------------------


def _monitor(words: argparse.Namespace) -> int:
    """Show all channels until a signal, or the last frame of a recording."""
    with running.user_errors():
        target = running.target_of(words)
    live = sys.stdout.isatty() and not words.once
    with running.opened_robot(target, realtime=not words.once) as env, terminal.screen(live):
        robot_env = cast(RobotEnv, env.unwrapped)
        stop = [action.name for action in robot_env.robot.actions].index("stop")
        tally = terminal.Tally(robot_env.robot.period_s)
        per_second = round(1.0 / robot_env.robot.period_s)
        while True:
            _, _, _, truncated, info = env.step(stop)
            if robot_env.fault is not None:
                raise robot_env.fault
            assert robot_env.frame is not None
            tally.take(info)
            if live or words.once or tally.n_steps % per_second == 0 or truncated:
                style = terminal.Style(max(terminal.width(), 80), terminal.has_colour())
                picture = terminal.block(
                    target.title, robot_env.frame.values, info, tally, robot_env.robot, style
                )
                terminal.show(picture + _warning(robot_env, info), live)
            if words.once or truncated:
                return running.WELL


def _warning(robot_env: RobotEnv, info: Mapping[str, Any]) -> str:
    """Return a further row with a fault, if there is one."""
    from horde_env.tools.check import host_of, kept_still

    if info.get("s_without_link", 0.0) > 0.0:
        return f"\nlink lost: {getattr(host_of(robot_env.backend), 'loss', '')}"
    reason = kept_still(robot_env.backend)
    if reason:
        return f"\nkept still: {reason}"
    if robot_env.disobedience:
        return f"\n{robot_env.disobedience}"
    return ""


# ---- emulate ---------------------------------------------------------------------------------------------------------


def _emulate(words: argparse.Namespace) -> int:
    """Emulate a robot until a signal, then print the faults that have occurred."""
    with running.user_errors():
        from horde_env.tools.serving import serve

        if words.seed < 0:
            raise running.BadInput(f"--seed must not be negative, and is {words.seed}")
        typed = None
        if _can_type():
            typed = sys.stdin.fileno()
        ended = threading.Event()
        with running.SignalHandler(None, ended.set) as signals:
            counts = serve(
                tcp=words.tcp,
                drops=words.drops,
                kind=words.robot,
                speed=words.speed,
                faults=words.faults,
                seed=words.seed,
                battery_scale=words.battery_scale,
                say=lambda text: print(text, flush=True),
                stop=ended,
                typed=typed,
            )
    counts = {kind: n for kind, n in counts.items() if n}
    if counts:
        print("faults: " + ", ".join(f"{kind} {n}" for kind, n in counts.items()))
    if signals.seen:
        return 128 + signals.seen[0]
    return running.WELL


def _can_type() -> bool:
    """Return whether standard input is a terminal or a pipe, and can be waited for, which Windows does not offer."""
    if not hasattr(os, "tcgetpgrp"):
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return False
    return sys.stdin.isatty() or stat.S_ISFIFO(mode)


if __name__ == "__main__":
    sys.exit(main())
