"""The command `horde-robot`: check, monitor, emulate and stop a robot.

Bad input is answered by one sentence on stderr and exit code 2. Exit code 1: the robot is not well. A signal ends a
command with a stop of the robot, and 130 (Ctrl-C), 143 (SIGTERM) or 129 (the terminal is gone); a second Ctrl-C
meanwhile sets the emergency stop.
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
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn, cast

from horde_env.commands.emergency import stop_robot
from horde_env.commands.running import (
    BAD_INPUT,
    UNWELL,
    WELL,
    BadInput,
    Interrupted,
    answered,
    ending_on_signals,
    running,
)
from horde_env.commands.target import ON_A_PORT, Target, add_arguments, target_of
from horde_env.commands.terminal import complain, has_blocks, has_colour, print_line, screen, show, width
from horde_env.env import PenEnv
from horde_env.errors import HordeEnvError
from horde_env.hardware import robot_file
from horde_env.hardware.folders import ROBOT
from horde_env.hardware.settings import PARITIES
from horde_env.robot import ROBOTS

QUESTION = (
    "The robot will now drive 0.3 m forward and back, and turn by 80 degrees each way. Is it on the floor, with half a "
    "metre of room around it, and a hand near its switch? [y/N]"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: Words after `horde-robot`; those of the process when None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = _parser().parse_args(words)
        return int(command.run(command))
    except BadInput as error:
        return complain(str(error), BAD_INPUT)
    except HordeEnvError as error:
        return complain(str(error), UNWELL)
    except Interrupted as end:
        return complain(f"ended by {signal.Signals(end.signum).name}; the robot was told to stop", 128 + end.signum)
    except BrokenPipeError:  # `horde-robot monitor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="horde-robot", description="Look after a robot: is it well, what does it sense, stop.")
    parser.add_argument("--version", action="version", version=_own_version())
    commands = parser.add_subparsers(required=True, metavar="check | monitor | emulate | stop")

    check = commands.add_parser("check", help="look at every sensor, then drive a little; exit code 1 if not well")
    add_arguments(check)
    check.add_argument("--yes", action="store_true", help="drive without asking first")
    check.add_argument("--host", action="store_true", help="look at this machine instead: clock, disk, swap, load")
    check.add_argument("--save", action="store_true", help="keep port, signs and ranges in the robot's file")
    check.add_argument("--measure", action="store_true", help="then measure noise, speeds and currents, for --save")
    check.set_defaults(run=_check)

    monitor = commands.add_parser("monitor", help="show all channels live; the robot is kept still")
    add_arguments(monitor)
    monitor.add_argument("--once", action="store_true", help="show one frame and end")
    monitor.set_defaults(run=_monitor)

    emulate = commands.add_parser("emulate", help="play a robot on a pseudo terminal: the same bytes as the real one")
    add = emulate.add_argument
    add("--robot", choices=ROBOTS, default=ROBOT, help="which robot to play")
    add("--tcp", metavar="ADDRESS", help="the serial line's bytes over TCP too: HOST:PORT or PORT")
    add("--drops", metavar="ADDRESS", nargs="?", const="", help="drops over TCP too; port 2330 if bare")
    add("--speed", type=float, default=1.0, metavar="X", help="robot seconds per second")
    add("--faults", default="", metavar="RATES", help='per second: "loss=0.5,unplug=0.01" or "all=0.02"')
    add("--battery-scale", type=float, default=1.0, metavar="X", help="1 lasts 12 hours")
    add("--seed", type=int, default=0, metavar="N", help="of pose, noise, faults and jitter")
    emulate.set_defaults(run=_emulate)

    stop = commands.add_parser("stop", help="stop the robot, and keep it stopped until --clear")
    stop.add_argument("--robot", default=ROBOT, metavar="NAME", help="the robot's name")
    stop.add_argument("--backend", choices=ON_A_PORT, help="what answers at the port; serial if nothing says")
    stop.add_argument("--port", help="also send a stop there; by default to the port in the robot's file")
    stop.add_argument("--parity", choices=tuple(PARITIES), help="of a serial line; the robot's is odd")
    stop.add_argument("--reason", default="", help="why, for whoever finds the robot stopped")
    stop.add_argument("--clear", action="store_true", help="let it move again")
    stop.set_defaults(run=stop_robot)
    return parser


def _own_version() -> str:
    try:
        return version("horde-gvf")
    except PackageNotFoundError:
        return "0+unknown"


# ---- check -----------------------------------------------------------------------------------------------------------


def _check(words: argparse.Namespace) -> int:
    """Print a verdict per line and return 1 if one of them is FAIL."""
    from horde_env.commands.anatomy import Verdict
    from horde_env.commands.check import Check
    from horde_env.commands.measure import Measurement

    if words.host:
        return _check_host()
    with answered():
        target = target_of(words)
        if words.save and target.backend == "replay":
            raise BadInput("a recorded life is no robot: there is nothing to --save")
    counts: Counter[Verdict] = Counter()
    with running(target, realtime=False) as env:
        print(target.title, flush=True)
        check = (Measurement if words.measure else Check)(env, _may_move(target, words.yes))
        for line in check.lines():
            counts[line.verdict] += 1
            print_line(line.verdict.value, line.subject, line.text)
    said = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
    print(f"{'not well' if counts[Verdict.FAIL] else 'well'}: {said}")
    if words.save:
        measured = check.measured if isinstance(check, Measurement) else {}
        _save(target, check.signs, check.ranges, check.is_swapped, measured)
    return UNWELL if counts[Verdict.FAIL] else WELL


def _check_host() -> int:
    """Print what is found of this machine and return 1 if something is FAIL."""
    from horde_env.commands import host
    from horde_env.commands.anatomy import Verdict

    is_well = True
    for line in host.lines():
        is_well &= line.verdict is not Verdict.FAIL
        print_line(line.verdict.value, line.subject, line.text)
    print("fit for 10 Hz" if is_well else "not fit for 10 Hz")
    return WELL if is_well else UNWELL


def _may_move(target: Target, yes: bool) -> Callable[[], str]:
    """Return what asks whether the robot may be driven: "" or why not."""

    def ask() -> str:
        if target.backend == "replay":
            return "a recorded life cannot be driven"
        if yes or not target.moves_something:
            return ""
        try:
            answer = input(textwrap.fill(QUESTION, width()) + " ")
        except EOFError:
            print()
            return "nobody answered; --yes drives without asking"
        return "" if answer.strip().lower() in ("y", "yes") else "not wanted"

    return ask


def _save(
    target: Target,
    signs: dict[str, int],
    ranges: dict[str, tuple[float, float]],
    is_swapped: bool,
    measured: dict[str, float],
) -> None:
    """Write the robot's file; what was measured was put right by the signs of the file before, which go into it."""
    if not ranges:
        print("nothing was measured, so nothing is saved")
        return
    file = target.file
    path = robot_file.default_path(target.robot)
    signs = dict(file.signs) | {name: sign * file.signs.get(name, 1) for name, sign in signs.items()}
    kept = replace(file, signs=signs, ranges=ranges, swapped_encoders=file.swapped_encoders != is_swapped)
    kept = replace(kept, measured=measured or file.measured, parity=file.parity if target.has_parity else "")
    robot_file.save(kept, path)
    print(f"saved in {path}")


# ---- monitor ---------------------------------------------------------------------------------------------------------


def _monitor(words: argparse.Namespace) -> int:
    """Show all channels until a signal, or a body's last frame, ends it."""
    from horde_env.commands.monitor import Style, Tally, block

    with answered():
        target = target_of(words)
    live = sys.stdout.isatty() and not words.once
    with running(target, realtime=not words.once) as env, screen(live):
        pen = cast(PenEnv, env.unwrapped)
        stop = [action.name for action in pen.robot.actions].index("stop")
        tally, per_second = Tally(pen.robot.period_s), round(1.0 / pen.robot.period_s)
        while True:
            _, _, _, truncated, info = env.step(stop)
            if pen.fault is not None:
                raise pen.fault
            assert pen.frame is not None
            tally.take(info)
            if live or words.once or tally.n_steps % per_second == 0 or truncated:
                style = Style(max(width(), 80), has_colour(), has_blocks())
                picture = block(target.title, pen.frame.values, info, tally, pen.robot, style)
                show(picture + _trouble(pen, info), live)
            if words.once or truncated:
                return WELL


def _trouble(pen: PenEnv, info: Mapping[str, Any]) -> str:
    """Return a further row that says what is wrong, if something is."""
    from horde_env.commands.check import host_of, kept_still

    if info.get("s_without_link", 0.0) > 0.0:
        return f"\nout of reach: {getattr(host_of(pen.backend), 'loss', '')}"
    if reason := kept_still(pen.backend):
        return f"\nkept still: {reason}"
    return f"\n{pen.disobedience}" if pen.disobedience else ""


# ---- emulate ---------------------------------------------------------------------------------------------------------


def _emulate(words: argparse.Namespace) -> int:
    """Play a robot until a signal ends it, then say which faults have happened."""
    with answered():
        from horde_env.commands.serving import serve

        if words.seed < 0:
            raise BadInput(f"--seed must not be negative, and is {words.seed}")
        ended = threading.Event()
        with ending_on_signals(None, ended.set) as signals:
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
                typed=sys.stdin.fileno() if _can_type() else None,
            )
    if counts := {kind: n for kind, n in counts.items() if n}:
        print("faults: " + ", ".join(f"{kind} {n}" for kind, n in counts.items()))
    return 128 + signals.seen[0] if signals.seen else WELL


def _can_type() -> bool:
    """Return whether standard input is a terminal or a pipe, from which lines may come."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return False
    return sys.stdin.isatty() or stat.S_ISFIFO(mode)


if __name__ == "__main__":
    sys.exit(main())
