"""What a few seconds of a robot's life say about its health: pure functions from frames to verdicts.

What they need to know of a kind of robot is its `Anatomy`. The thresholds of motion are wide, for slip is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_env.backend import Floats
from horde_env.commands.anatomy import Anatomy, Line, Moment, Verdict
from horde_env.commands.create2 import CREATE2
from horde_env.commands.critterbot import CRITTERBOT
from horde_env.robot import RobotSpec

NOT_CHARGING = 0  # the charge state of a robot that is not, of either kind
TURNED_M_S, TURNED_RAD_S = 0.05, 0.2  # at rest below these
ENOUGH, TOO_MUCH = 1 / 3, 2.0  # of a speed that was asked for
STRAIGHT_RAD_S = 0.6  # turning while driving straight on


def judge_link(moments: Sequence[Moment], before_t: float, spec: RobotSpec) -> list[Line]:
    """Judge how frames and packets came since the robot's time `before_t`, in seconds: that of the frame before them.

    Counts are held against the time that has passed, for a busy machine may take longer than a period for a step.
    """
    n = len(moments)
    stale, gaps = (sum(bool(m.info[key]) for m in moments) for key in ("stale", "gap"))
    ages = 1000.0 * np.array([m.info["sensor_age_s"] for m in moments])
    verdict = _by_share((stale + gaps) / n, 0.0, 0.1)
    seconds = moments[-1].info["t"] - before_t
    text = f"{n} in {seconds:.1f} s: {stale} stale, {gaps} gaps; age {np.median(ages):.0f}, max {ages.max():.0f} ms"
    lines = [Line(verdict, "frames", text)]
    expected = 1.0 / spec.packet_period_s
    if all("packets" in m.info for m in moments):
        rate = sum(m.info["packets"] for m in moments) / seconds if seconds > 0.0 else 0.0
        verdict = _by_share(abs(rate / expected - 1.0), 0.1, 0.5)
        lines.append(Line(verdict, "packets", f"{rate:.1f} a second, where the robot sends {expected:.0f}"))
    else:
        lines.append(Line(Verdict.SKIP, "packets", "this body sends none"))
    errors = sum(m.info["crc_errors"] for m in moments)
    verdict = _by_share(errors / (expected * max(seconds, spec.period_s)), 0.0, 0.05)
    return [*lines, Line(verdict, "checksums", f"{errors} packets were refused")]


def judge_power(moments: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge the batteries by their means."""
    return anatomy_of(spec).judge_power(moments, spec)


def judge_safety(moments: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge whether the robot may move, by what the body says and by the readings."""
    supervisor = anatomy_of(spec).supervisor(spec)
    judged = [supervisor.judge(moment.values, NOT_CHARGING, moment.info["t"]) for moment in moments]
    if reason := moments[-1].reason or judged[-1]:
        return Line(Verdict.FAIL, "safety", reason)
    if not moments[-1].info["applied"]:
        return Line(Verdict.FAIL, "safety", "the robot takes no commands: is it charging?")
    return Line(Verdict.OK, "safety", "it may move: cool, charged, and not charging")


def judge_sensors(moments: Sequence[Moment], spec: RobotSpec) -> list[Line]:
    """Judge each group of sensors, but for the voltages, by liveness and by range."""
    values = _values(moments)
    groups = [g for g in spec.groups if spec.channels[spec.group(g).start].is_sensor]
    return [_judge_group(values, name, spec) for name in groups if name not in anatomy_of(spec).voltages]


def _judge_group(values: Floats, name: str, spec: RobotSpec) -> Line:
    where, anatomy = spec.group(name), anatomy_of(spec)
    seen, channels = values[:, where], spec.channels[where]
    low, high, unit = channels[0].low, channels[0].high, channels[0].unit
    slack = np.abs(spec.lsb[where]) + 1e-9
    outside = ~((seen >= low - slack) & (seen <= high + slack))  # NaN is outside
    frozen = (np.ptp(seen, axis=0) == 0.0) & (name in anatomy.lively)
    broken = outside.mean(axis=0) > 0.5
    span = f"{seen.min():.3g} .. {seen.max():.3g}{'' if unit == '1' else ' ' + unit} of {low:g} .. {high:g}"
    faults = [f"{channels[i].name} is frozen at {seen[-1, i]:.4g}" for i in np.flatnonzero(frozen)]
    faults += [f"{channels[i].name} reads {np.median(seen[:, i]):.4g}" for i in np.flatnonzero(broken & ~frozen)]
    if faults:
        harmless = name in anatomy.may_rest and not broken.any()
        return Line(Verdict.WARN if harmless else Verdict.FAIL, name, f"{span}; {', '.join(faults)}")
    if outside.any():
        return Line(Verdict.WARN, name, f"{span}; {np.count_nonzero(outside)} readings outside")
    return Line(Verdict.OK, name, f"{span}, {'alive' if name in anatomy.lively else 'in range'}")


def expected_wheels(request: Floats, spec: RobotSpec) -> Floats:
    """Return the speeds (m/s, in the sense of their channels) that a request asks of the wheels, shape (n_wheels,)."""
    return anatomy_of(spec).expected_wheels(request, spec)


def judge_motion(name: str, request: Floats, driven: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge the end of a drive, at a steady speed, by the wheels and by the gyro."""
    kept = [m for m in driven if not m.info["applied"]]
    if kept:
        return Line(Verdict.FAIL, name, f"the robot did not do it: {kept[-1].reason or 'charging, or too hot'}")
    mean = _values(driven).mean(axis=0)
    group = anatomy_of(spec).wheels
    wheels, asked = mean[spec.group(group)], expected_wheels(request, spec)
    turn, wanted = float(mean[spec.index("rotational_velocity")]), float(request[2])
    text = f"wheels {_signed(wheels)} m/s of {_signed(asked)}, turning {turn:+.2f} rad/s of {wanted:+.2f}"
    names = [c.name.rpartition("_")[2] for c in spec.channels[spec.group(group)]]
    if hint := anatomy_of(spec).explain(wheels, asked):
        return Line(Verdict.FAIL, name, f"{text}; {hint}")
    faults = [
        f"wheel {wheel} {fault}"
        for wheel, got, goal in zip(names, wheels, asked, strict=True)
        if (fault := _fault_of(got, goal, TURNED_M_S))
    ]
    if wanted and (fault := _fault_of(turn, wanted, TURNED_RAD_S)):
        faults.append(f"the gyro {fault}")
    if not wanted and abs(turn) > STRAIGHT_RAD_S:
        faults.append("it turns while it should drive straight on")
    return Line(Verdict.FAIL if faults else Verdict.OK, name, "; ".join([text, *faults]))


def is_swapped(request: Floats, driven: Sequence[Moment], spec: RobotSpec) -> bool:
    """Tell whether the end of a drive gives away that the wheels' encoders are swapped."""
    anatomy = anatomy_of(spec)
    mean = _values(driven).mean(axis=0)
    return bool(anatomy.explain(mean[spec.group(anatomy.wheels)], expected_wheels(request, spec)))


def _fault_of(got: float, goal: float, still: float) -> str:
    """Say what is wrong with a speed, "" if it is about the one asked for."""
    if not goal:
        return ""
    share = got / goal
    if abs(got) < still and share < ENOUGH:
        return "does not turn (is something in the way?)"
    if share < 0.0:
        return "turns the wrong way"
    if share < ENOUGH:
        return f"reaches {share:.0%} of its speed"
    return f"turns at {share:.0%} of its speed" if share > TOO_MUCH else ""


def is_at_rest(moment: Moment, spec: RobotSpec) -> bool:
    """Tell whether neither wheels nor body turn."""
    wheels = np.abs(moment.values[spec.group(anatomy_of(spec).wheels)])
    return bool((wheels < TURNED_M_S).all() and abs(moment.values[spec.index("rotational_velocity")]) < TURNED_RAD_S)


def judge_stops(seconds: Sequence[float | None]) -> Line:
    """Judge how long the robot took to come to rest after each drive; None where it did not."""
    if any(s is None for s in seconds):
        return Line(Verdict.FAIL, "stop", "the robot still moved when it should long have come to rest")
    slowest = max(s for s in seconds if s is not None)
    return Line(Verdict.OK, "stop", f"at rest within {slowest:.1f} s of each stop")


def judge_motor_readings(driven: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge whether voltage and current of each motor showed that it was driven."""
    values = _values(driven)
    dead = [
        spec.channels[i].name
        for group in anatomy_of(spec).motors
        for i in range(spec.group(group).start, spec.group(group).stop)
        if np.ptp(values[:, i]) == 0.0
    ]
    if dead:
        return Line(Verdict.FAIL, "motor readings", f"{', '.join(dead)} did not change in all drives")
    what = " and ".join(group.rpartition("_")[2] for group in anatomy_of(spec).motors)
    return Line(Verdict.OK, "motor readings", f"{what} of each motor changed with the drives")


def measured_signs(drives: Sequence[tuple[Floats, Moment]], spec: RobotSpec) -> dict[str, int]:
    """Return for wheels and gyro 1, or -1 where it ran against the request; those that hardly moved are left out.

    Args:
        drives: A request and a moment of steady speed under it, several times.
        spec: The robot.
    """
    wheels, gyro = spec.group(anatomy_of(spec).wheels), spec.index("rotational_velocity")
    asked = np.array([[*expected_wheels(request, spec), request[2]] for request, _ in drives])
    got = np.array([[*moment.values[wheels], moment.values[gyro]] for _, moment in drives])
    names = [*(c.name for c in spec.channels[wheels]), spec.channels[gyro].name]
    share = (asked * got).sum(axis=0) / (asked**2).sum(axis=0)
    return {name: int(np.sign(s)) for name, s in zip(names, share, strict=True) if abs(s) > ENOUGH}


def measured_ranges(moments: Sequence[Moment], spec: RobotSpec) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of each sensor, SI units."""
    values = _values(moments)[:, : spec.n_sensors]
    lowest, highest = values.min(axis=0), values.max(axis=0)
    return {c.name: (float(lowest[i]), float(highest[i])) for i, c in enumerate(spec.channels[: spec.n_sensors])}


def _values(moments: Sequence[Moment]) -> Floats:
    return np.array([moment.values for moment in moments])


def _by_share(share: float, warn_above: float, fail_above: float) -> Verdict:
    return Verdict.FAIL if share > fail_above else Verdict.WARN if share > warn_above else Verdict.OK


def _signed(numbers: Floats) -> str:
    return " ".join(f"{number:+.2f}" for number in numbers)


def anatomy_of(spec: RobotSpec) -> Anatomy:
    """Return what a check must know of a robot."""
    return CREATE2 if spec.name == "create2" else CRITTERBOT
