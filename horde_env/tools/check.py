"""The check of a robot: its readings at rest, then, if it may move, whether it follows its commands; and measurements.

It works on any environment of this package. Nothing moves before `may_move` has agreed, and the
check waits after every drive until the robot has stopped.

A measurement adds ten seconds at rest, and each action for a second and a half; it needs half a
metre of room all round. Its results go into the robot's file, `[measured]`, in SI units:
CHANNEL_at_rest and CHANNEL_noise (standard deviation) of noisy channels, CHANNEL_in_ACTION of
wheels, currents and turning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import gymnasium
import numpy as np

from horde_env import registry
from horde_env.backend import Backend, Floats
from horde_env.env import RobotEnv
from horde_env.hardware.checks import Line, RobotChecks, StepEvent, Verdict
from horde_env.robot import RobotSpec

REST_S = 3.0
DRIVE_S = 0.8  # the wheels reach their speed in 0.35 s
STEADY_S = 0.4  # at the end of a drive, at a steady speed
MEASURED_REST_S = 10.0
MEASURED_DRIVE_S = 1.5
N_ZEROS = 200  # bytes that a robot may skip
STOP_LIMIT_S = 1.5  # the robot coasts; half a second is usual

NOT_CHARGING = 0  # the charge state of every robot that does not charge
# At rest below these
TURNED_M_S = 0.05
TURNED_RAD_S = 0.2
# Of a requested speed
ENOUGH = 1 / 3
TOO_MUCH = 2.0
STRAIGHT_RAD_S = 0.6  # turning while driving straight on

# Subjects that must not fail before the robot is moved.
NEEDED_TO_MOVE = ("link", "frames", "packets", "checksums", "power", "safety")


def host_of(backend: Backend) -> Backend:
    """Return the body that is connected to the robot: that of an emulated robot is inside its backend."""
    return cast(Backend, getattr(backend, "body", backend))


def kept_still(backend: Backend) -> str:
    """Return why a body keeps its robot still; "" if it does not."""
    body = host_of(backend)
    latch = getattr(body, "latch", None)
    stopped = ""
    if latch is not None:
        stopped = latch.reason
    if stopped:
        return f"emergency stop: {stopped}"
    return str(getattr(body, "reason", ""))


class LostDuringCheck(Exception):
    """The body stopped answering, or a recorded life ended."""


class Check:
    """One check of one robot; `lines()` runs it and yields its verdicts.

    Args:
        env: An environment of this package, after its reset. The caller closes it, which stops the
            robot.
        may_move: Called once, before the robot is moved: returns "" to continue, else why it is not
            moved.
        measures: Also measure a robot that has moved and passed its check.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], may_move: Callable[[], str], *, measures: bool = False
    ) -> None:
        self.env = env
        self.robot_env = cast(RobotEnv, env.unwrapped)
        self.spec = self.robot_env.robot
        self.signs: dict[str, int] = {}  # channel -> 1 or -1, as measured by moving
        self.measured: dict[str, float] = {}  # in SI units
        self.is_swapped = False  # left and right encoder
        # Channel -> lowest and highest SI value at rest
        self.ranges: dict[str, tuple[float, float]] = {}
        self._may_move = may_move
        self._measures = measures
        names = [action.name for action in self.spec.actions]
        self._stop = names.index("stop")
        self._drives = [i for i, name in enumerate(names) if name != "stop"]

    def lines(self) -> Iterator[Line]:
        """Check, measure if requested, and yield verdicts."""
        failed: list[str] = []
        try:
            for line in self._at_rest():
                if line.verdict is Verdict.FAIL:
                    failed.append(line.subject)
                yield line
            may_not = not set(failed).isdisjoint(NEEDED_TO_MOVE)
            if may_not:
                refusal = "a check that movement needs has failed above"
            else:
                refusal = self._may_move()
            if refusal:
                yield Line(Verdict.SKIP, "movement", refusal)
            else:
                for line in self._in_motion():
                    if line.verdict is Verdict.FAIL:
                        failed.append(line.subject)
                    yield line
            if self._measures and (failed or refusal):
                yield Line(
                    Verdict.SKIP,
                    "measurement",
                    "only a robot that has moved and passed its check is measured",
                )
            elif self._measures:
                yield from self._measure()
        except LostDuringCheck as lost:
            self.measured = {}
            yield Line(Verdict.FAIL, "link", str(lost))

    def _at_rest(self) -> Iterator[Line]:
        assert self.robot_env.frame is not None, "a check begins after a reset"
        before_t = self.robot_env.frame.t
        events = self._hold(self._stop, REST_S)
        self.ranges = measured_ranges(events, self.spec)
        yield from judge_link(events, before_t, self.spec)
        yield checks_of(self.spec).judge_power(events, self.spec)
        yield judge_safety(events, self.spec)
        yield from judge_sensors(events, self.spec)

    def _in_motion(self) -> Iterator[Line]:
        n_steady = round(STEADY_S / self.spec.period_s)
        stops: list[float | None] = []
        driven: list[StepEvent] = []
        if self._come_to_rest() is None:
            yield Line(
                Verdict.FAIL,
                "stop",
                "the robot moves after a stop was sent: it is not driven further",
            )
            return
        steady: list[tuple[Floats, StepEvent]] = []
        for action in self._drives:
            request = np.array(self.spec.actions[action].request)
            events = self._hold(action, DRIVE_S)
            stops.append(self._come_to_rest())
            driven += events
            steady += [(request, event) for event in events[-n_steady:]]
            line, shows_swap = judge_motion(
                self.spec.actions[action].name, request, events[-n_steady:], self.spec
            )
            self.is_swapped |= shows_swap
            yield line
        yield judge_stops(stops)
        yield judge_motor_readings(driven, self.spec)
        if self.is_swapped:
            self.signs = {}
        else:
            self.signs = measured_signs(steady, self.spec)

    def _come_to_rest(self) -> float | None:
        """Stop; return the seconds until the robot was at rest, or None after the limit."""
        n_limit = round(STOP_LIMIT_S / self.spec.period_s)
        for k in range(n_limit):
            if is_at_rest(self._step(self._stop), self.spec):
                return (k + 1) * self.spec.period_s
        return None

    def _hold(self, action: int, seconds: float) -> list[StepEvent]:
        return [self._step(action) for _ in range(round(seconds / self.spec.period_s))]

    def _step(self, action: int) -> StepEvent:
        _, _, _, truncated, info = self.env.step(action)
        frame = self.robot_env.frame
        if self.robot_env.fault is not None:
            raise LostDuringCheck(str(self.robot_env.fault))
        if truncated or frame is None:
            raise LostDuringCheck("the recording ended before the check was complete")
        if info.get("link_losses", 0):
            loss = getattr(host_of(self.robot_env.backend), "loss", "")
            raise LostDuringCheck(
                f"the link to the robot was lost: {loss}. Look at the cable, then check again"
            )
        return StepEvent(
            frame.values, info, kept_still(self.robot_env.backend) or self.robot_env.disobedience
        )

    # ---- measurements ------------------------------------------------------------------------------------------------

    def _measure(self) -> Iterator[Line]:
        checks = checks_of(self.spec)
        values = _values(self._hold(self._stop, MEASURED_REST_S))
        groups = checks.lively + checks.voltages
        self.measured |= {
            f"{name}_at_rest": mean for name, mean in self._named(values.mean(axis=0), groups)
        }
        self.measured |= {
            f"{name}_noise": noise for name, noise in self._named(values.std(axis=0), groups)
        }
        yield Line(Verdict.OK, "at rest", f"measured over {MEASURED_REST_S:g} s")
        groups = (checks.wheels, *checks.motors, "rotational_velocity", "battery_current")
        driven = [name for name in groups if name in self.spec.groups]
        for action in self._drives:
            steady = self._hold(action, MEASURED_DRIVE_S)[-round(STEADY_S / self.spec.period_s) :]
            self._come_to_rest()
            name = self.spec.actions[action].name
            means = _values(steady).mean(axis=0)
            self.measured |= {
                f"{channel}_in_{name}": mean for channel, mean in self._named(means, driven)
            }
            wheels = [f"{v:.3f}" for _, v in self._named(means, [checks.wheels])]
            yield Line(Verdict.OK, name, f"wheels at {' and '.join(wheels)} m/s")
        yield from self._try_line()

    def _named(self, values: Floats, groups: Sequence[str]) -> list[tuple[str, float]]:
        return [
            (self.spec.channels[i].name, float(values[i]))
            for group in groups
            for i in range(self.spec.group(group).start, self.spec.group(group).stop)
        ]

    def _try_line(self) -> Iterator[Line]:
        """Measure what only the bytes of the line show, if the body can send zeros."""
        host: Any = host_of(self.robot_env.backend)
        if not hasattr(host, "send_zeros"):
            return
        self.measured["mode_offset"] = host.mode_offset
        host.send_zeros(N_ZEROS)
        events = self._hold(self._drives[0], 0.3)
        self._come_to_rest()
        skips = bool(events[-1].info["applied"])
        self.measured["passes_over_zeros"] = float(skips)
        verdict = Verdict.WARN
        outcome = "does not follow"
        if skips:
            verdict = Verdict.OK
            outcome = "follows"
        text = f"after {N_ZEROS} zeros it {outcome} commands; it reports modes {host.mode_offset} too high"
        yield Line(verdict, "line", text)


# ---- verdicts on a few seconds; the thresholds of motion are wide, because slip is unknown ---------------------------


def judge_link(events: Sequence[StepEvent], before_t: float, spec: RobotSpec) -> list[Line]:
    """Judge the rates of frames, packets and checksum errors since the robot's time `before_t`, seconds.

    Counts are compared with the elapsed time, because on a busy machine a step may take longer than
    a period.
    """
    n = len(events)
    stale, gaps = (sum(bool(e.info[key]) for e in events) for key in ("stale", "gap"))
    ages = 1000.0 * np.array([e.info["sensor_age_s"] for e in events])
    verdict = _by_share((stale + gaps) / n, 0.0, 0.1)
    seconds = events[-1].info["t"] - before_t
    text = f"{n} in {seconds:.1f} s: {stale} stale, {gaps} gaps; age {np.median(ages):.0f}, max {ages.max():.0f} ms"
    lines = [Line(verdict, "frames", text)]
    expected = 1.0 / spec.packet_period_s
    if all("packets" in e.info for e in events):
        rate = 0.0
        if seconds > 0.0:
            rate = sum(e.info["packets"] for e in events) / seconds
        verdict = _by_share(abs(rate / expected - 1.0), 0.1, 0.5)
        lines.append(
            Line(verdict, "packets", f"{rate:.1f} a second; the robot sends {expected:.0f}")
        )
    else:
        lines.append(Line(Verdict.SKIP, "packets", "this body has no packets"))
    errors = sum(e.info["crc_errors"] for e in events)
    verdict = _by_share(errors / (expected * max(seconds, spec.period_s)), 0.0, 0.05)
    return [*lines, Line(verdict, "checksums", f"{errors} packets were rejected")]


def judge_safety(events: Sequence[StepEvent], spec: RobotSpec) -> Line:
    """Judge whether the robot may move, by the body's own report and by the readings."""
    supervisor = checks_of(spec).supervisor(spec)
    judged = [supervisor.judge(event.values, NOT_CHARGING, event.info["t"]) for event in events]
    reason = events[-1].reason or judged[-1]
    if reason:
        return Line(Verdict.FAIL, "safety", reason)
    if not events[-1].info["applied"]:
        return Line(Verdict.FAIL, "safety", "the robot follows no commands: is it charging?")
    return Line(Verdict.OK, "safety", "it may move: cool, charged, and not charging")


def judge_sensors(events: Sequence[StepEvent], spec: RobotSpec) -> list[Line]:
    """Judge each group of sensors except the voltages by noise and by range."""
    values = _values(events)
    groups = [g for g in spec.groups if spec.channels[spec.group(g).start].is_sensor]
    return [
        _judge_group(values, name, spec) for name in groups if name not in checks_of(spec).voltages
    ]


def _judge_group(values: Floats, name: str, spec: RobotSpec) -> Line:
    where = spec.group(name)
    checks = checks_of(spec)
    readings = values[:, where]
    channels = spec.channels[where]
    low = channels[0].low
    high = channels[0].high
    unit = channels[0].unit
    slack = np.abs(spec.lsb[where]) + 1e-9
    outside = ~((readings >= low - slack) & (readings <= high + slack))  # NaN is outside
    frozen = (np.ptp(readings, axis=0) == 0.0) & (name in checks.lively)
    broken = outside.mean(axis=0) > 0.5
    measured = f"{readings.min():.3g} .. {readings.max():.3g}"
    if unit != "1":
        measured += f" {unit}"
    span = f"{measured} of {low:g} .. {high:g}"
    faults = [
        f"{channels[i].name} is frozen at {readings[-1, i]:.4g}" for i in np.flatnonzero(frozen)
    ]
    faults += [
        f"{channels[i].name} reads {np.median(readings[:, i]):.4g}"
        for i in np.flatnonzero(broken & ~frozen)
    ]
    if faults:
        verdict = Verdict.FAIL
        if name in checks.may_rest and not broken.any():
            verdict = Verdict.WARN
        return Line(verdict, name, f"{span}; {', '.join(faults)}")
    if outside.any():
        return Line(Verdict.WARN, name, f"{span}; {np.count_nonzero(outside)} readings outside")
    if name in checks.lively:
        return Line(Verdict.OK, name, f"{span}, alive")
    return Line(Verdict.OK, name, f"{span}, in range")


def judge_motion(
    name: str, request: Floats, driven: Sequence[StepEvent], spec: RobotSpec
) -> tuple[Line, bool]:
    """Judge the end of a drive, at a steady speed, by wheels and gyro; return also whether it shows a wiring fault."""
    refused = [e for e in driven if not e.info["applied"]]
    if refused:
        text = f"the robot did not follow: {refused[-1].reason or 'charging, or too hot'}"
        return Line(Verdict.FAIL, name, text), False
    mean = _values(driven).mean(axis=0)
    group = checks_of(spec).wheels
    wheels = mean[spec.group(group)]
    wheel_requests = checks_of(spec).expected_wheels(request, spec)
    turn = float(mean[spec.index("rotational_velocity")])
    wanted = float(request[2])
    text = f"wheels {_signed(wheels)} m/s of {_signed(wheel_requests)}, turning {turn:+.2f} rad/s of {wanted:+.2f}"
    names = [c.name.rpartition("_")[2] for c in spec.channels[spec.group(group)]]
    hint = checks_of(spec).explain(wheels, wheel_requests)
    if hint:
        return Line(Verdict.FAIL, name, f"{text}; {hint}"), True
    faults = []
    for wheel, speed, wheel_request in zip(names, wheels, wheel_requests, strict=True):
        wheel_fault = _fault_of(speed, wheel_request, TURNED_M_S)
        if wheel_fault:
            faults.append(f"wheel {wheel} {wheel_fault}")
    if wanted:
        gyro_fault = _fault_of(turn, wanted, TURNED_RAD_S)
        if gyro_fault:
            faults.append(f"the gyro {gyro_fault}")
    if not wanted and abs(turn) > STRAIGHT_RAD_S:
        faults.append("it turns during a straight drive")
    if faults:
        return Line(Verdict.FAIL, name, "; ".join([text, *faults])), False
    return Line(Verdict.OK, name, text), False


def _fault_of(got: float, goal: float, still: float) -> str:
    """Return the fault of a speed; "" if it is close to the requested one."""
    if not goal:
        return ""
    share = got / goal
    if abs(got) < still and share < ENOUGH:
        return "does not turn (is something in the way?)"
    if share < 0.0:
        return "turns the wrong way"
    if share < ENOUGH:
        return f"reaches {share:.0%} of its speed"
    if share > TOO_MUCH:
        return f"turns at {share:.0%} of its speed"
    return ""


def is_at_rest(event: StepEvent, spec: RobotSpec) -> bool:
    """Return whether wheels and body are at rest."""
    wheels = np.abs(event.values[spec.group(checks_of(spec).wheels)])
    return bool(
        (wheels < TURNED_M_S).all()
        and abs(event.values[spec.index("rotational_velocity")]) < TURNED_RAD_S
    )


def judge_stops(seconds: Sequence[float | None]) -> Line:
    """Judge how long the robot took to come to rest after each drive, seconds; None if it did not."""
    if any(s is None for s in seconds):
        return Line(
            Verdict.FAIL,
            "stop",
            "the robot still moved after the time in which it should have come to rest",
        )
    slowest = max(s for s in seconds if s is not None)
    return Line(Verdict.OK, "stop", f"at rest within {slowest:.1f} s of each stop")


def judge_motor_readings(driven: Sequence[StepEvent], spec: RobotSpec) -> Line:
    """Judge whether voltage and current of each motor changed with the drives."""
    values = _values(driven)
    dead = [
        spec.channels[i].name
        for group in checks_of(spec).motors
        for i in range(spec.group(group).start, spec.group(group).stop)
        if np.ptp(values[:, i]) == 0.0
    ]
    if dead:
        return Line(
            Verdict.FAIL, "motor readings", f"{', '.join(dead)} did not change in all drives"
        )
    motors = " and ".join(group.rpartition("_")[2] for group in checks_of(spec).motors)
    return Line(Verdict.OK, "motor readings", f"{motors} of each motor changed with the drives")


def measured_signs(drives: Sequence[tuple[Floats, StepEvent]], spec: RobotSpec) -> dict[str, int]:
    """Return 1 for wheels and gyro, or -1 for those that ran against the request, without those that hardly moved.

    `drives` are pairs of a request and a step of steady speed under it.
    """
    wheels = spec.group(checks_of(spec).wheels)
    gyro = spec.index("rotational_velocity")
    requested = np.array(
        [[*checks_of(spec).expected_wheels(request, spec), request[2]] for request, _ in drives]
    )
    measured = np.array([[*event.values[wheels], event.values[gyro]] for _, event in drives])
    names = [*(c.name for c in spec.channels[wheels]), spec.channels[gyro].name]
    share = (requested * measured).sum(axis=0) / (requested**2).sum(axis=0)
    return {name: int(np.sign(s)) for name, s in zip(names, share, strict=True) if abs(s) > ENOUGH}


def measured_ranges(events: Sequence[StepEvent], spec: RobotSpec) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of each sensor, SI units."""
    values = _values(events)[:, : spec.n_sensors]
    lowest = values.min(axis=0)
    highest = values.max(axis=0)
    return {
        c.name: (float(lowest[i]), float(highest[i]))
        for i, c in enumerate(spec.channels[: spec.n_sensors])
    }


def _values(events: Sequence[StepEvent]) -> Floats:
    return np.array([event.values for event in events])


def _by_share(share: float, warn_above: float, fail_above: float) -> Verdict:
    if share > fail_above:
        return Verdict.FAIL
    if share > warn_above:
        return Verdict.WARN
    return Verdict.OK


def _signed(numbers: Floats) -> str:
    return " ".join(f"{number:+.2f}" for number in numbers)


def checks_of(spec: RobotSpec) -> RobotChecks:
    """Return a robot's own part of a check."""
    return registry.robot(spec.name).checks()
