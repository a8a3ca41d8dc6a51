"""The check of a robot: its readings at rest, then, if it may move, whether it follows its commands; and measurements.

It works on any environment of this package. Nothing moves before `may_move` has agreed, and the check waits after every
drive until the robot has stopped.

A measurement adds ten seconds at rest, and each action for a second and a half; it needs half a metre of room all
round. Its results go into the robot's file, `[measured]`, in SI units: CHANNEL_at_rest and CHANNEL_noise (standard
deviation) of noisy channels, CHANNEL_in_ACTION of wheels, currents and turning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import gymnasium
import numpy as np

from horde_env.backend import Backend, Floats
from horde_env.commands import verdicts
from horde_env.commands.verdicts import checks_of
from horde_env.env import PenEnv
from horde_env.hardware.checks import Line, StepEvent, Verdict

REST_S = 3.0
DRIVE_S = 0.8  # the wheels reach their speed in 0.35 s
STEADY_S = 0.4  # at the end of a drive, at a steady speed
MEASURED_REST_S, MEASURED_DRIVE_S = 10.0, 1.5
N_ZEROS = 200  # bytes that a Create 2 may skip
STOP_LIMIT_S = 1.5  # the robot coasts; half a second is usual

# Subjects that must not fail before the robot is moved.
NEEDED_TO_MOVE = ("link", "frames", "packets", "checksums", "power", "safety")


def host_of(backend: Backend) -> Backend:
    """Return the body that is connected to the robot: that of an emulated robot is inside its backend."""
    return cast(Backend, getattr(backend, "body", backend))


def kept_still(backend: Backend) -> str:
    """Return why a body keeps its robot still; "" if it does not."""
    body = host_of(backend)
    latch = getattr(body, "latch", None)
    stopped = latch.reason if latch is not None else ""
    return f"emergency stop: {stopped}" if stopped else str(getattr(body, "reason", ""))


class LostDuringCheck(Exception):
    """The body stopped answering, or a recorded life ended."""


class Check:
    """One check of one robot; `lines()` runs it and yields its verdicts.

    Args:
        env: An environment of this package, after its reset. The caller closes it, which stops the robot.
        may_move: Called once, before the robot is moved: returns "" to continue, else why it is not moved.

    Attributes:
        signs: Channel -> 1 or -1 as measured by moving; empty before.
        ranges: Channel -> lowest and highest SI value at rest.
        is_swapped: Whether left and right encoder are swapped.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], may_move: Callable[[], str]) -> None:
        self.env, self.pen = env, cast(PenEnv, env.unwrapped)
        self.spec = self.pen.robot
        self.signs: dict[str, int] = {}
        self.is_swapped = False
        self.ranges: dict[str, tuple[float, float]] = {}
        self._may_move = may_move
        names = [action.name for action in self.spec.actions]
        self._stop, self._drives = names.index("stop"), [i for i, name in enumerate(names) if name != "stop"]

    def lines(self) -> Iterator[Line]:
        """Check and yield verdicts."""
        healthy = True
        try:
            for line in self._at_rest():
                healthy = healthy and not (line.verdict is Verdict.FAIL and line.subject in NEEDED_TO_MOVE)
                yield line
            refusal = self._may_move() if healthy else "a check that movement needs has failed above"
            if refusal:
                yield Line(Verdict.SKIP, "movement", refusal)
            else:
                yield from self._in_motion()
        except LostDuringCheck as lost:
            yield Line(Verdict.FAIL, "link", str(lost))

    def _at_rest(self) -> Iterator[Line]:
        assert self.pen.frame is not None, "a check begins after a reset"
        before_t = self.pen.frame.t
        events = self._hold(self._stop, REST_S)
        self.ranges = verdicts.measured_ranges(events, self.spec)
        yield from verdicts.judge_link(events, before_t, self.spec)
        yield checks_of(self.spec).judge_power(events, self.spec)
        yield verdicts.judge_safety(events, self.spec)
        yield from verdicts.judge_sensors(events, self.spec)

    def _in_motion(self) -> Iterator[Line]:
        n_steady = round(STEADY_S / self.spec.period_s)
        stops: list[float | None] = []
        driven: list[StepEvent] = []
        if self._come_to_rest() is None:
            yield Line(Verdict.FAIL, "stop", "the robot moves after a stop was sent: it is not driven further")
            return
        steady: list[tuple[Floats, StepEvent]] = []
        for action in self._drives:
            request = np.array(self.spec.actions[action].request)
            events = self._hold(action, DRIVE_S)
            stops.append(self._come_to_rest())
            driven += events
            steady += [(request, event) for event in events[-n_steady:]]
            self.is_swapped |= verdicts.is_swapped(request, events[-n_steady:], self.spec)
            yield verdicts.judge_motion(self.spec.actions[action].name, request, events[-n_steady:], self.spec)
        yield verdicts.judge_stops(stops)
        yield verdicts.judge_motor_readings(driven, self.spec)
        self.signs = {} if self.is_swapped else verdicts.measured_signs(steady, self.spec)

    def _come_to_rest(self) -> float | None:
        """Stop; return the seconds until the robot was at rest, or None after the limit."""
        n_limit = round(STOP_LIMIT_S / self.spec.period_s)
        for k in range(n_limit):
            if verdicts.is_at_rest(self._step(self._stop), self.spec):
                return (k + 1) * self.spec.period_s
        return None

    def _hold(self, action: int, seconds: float) -> list[StepEvent]:
        return [self._step(action) for _ in range(round(seconds / self.spec.period_s))]

    def _step(self, action: int) -> StepEvent:
        _, _, _, truncated, info = self.env.step(action)
        frame = self.pen.frame
        if self.pen.fault is not None:
            raise LostDuringCheck(str(self.pen.fault))
        if truncated or frame is None:
            raise LostDuringCheck("the recording ended before the check was complete")
        if info.get("link_losses", 0):
            loss = getattr(host_of(self.pen.backend), "loss", "")
            raise LostDuringCheck(f"the link to the robot was lost: {loss}. Look at the cable, then check again")
        return StepEvent(frame.values, info, kept_still(self.pen.backend) or self.pen.disobedience)


class Measurement(Check):
    """A check that goes on to measure a robot that passed; see `Check`.

    Attributes:
        measured: Name -> number, SI units; empty if nothing was measured.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.measured: dict[str, float] = {}

    def lines(self) -> Iterator[Line]:
        """Check, measure, and yield verdicts."""
        is_well = True
        for line in super().lines():
            is_well = is_well and line.verdict not in (Verdict.FAIL, Verdict.SKIP)
            yield line
        if not is_well:
            yield Line(Verdict.SKIP, "measurement", "only a robot that has moved and passed its check is measured")
            return
        try:
            yield from self._measure()
        except LostDuringCheck as lost:
            self.measured = {}
            yield Line(Verdict.FAIL, "link", str(lost))

    def _measure(self) -> Iterator[Line]:
        checks = checks_of(self.spec)
        self._store_rest(self._hold(self._stop, MEASURED_REST_S), checks.lively + checks.voltages)
        yield Line(Verdict.OK, "at rest", f"measured over {MEASURED_REST_S:g} s")
        groups = (checks.wheels, *checks.motors, "rotational_velocity", "battery_current")
        driven = [name for name in groups if name in self.spec.groups]
        for action in self._drives:
            steady = self._hold(action, MEASURED_DRIVE_S)[-round(STEADY_S / self.spec.period_s) :]
            self._come_to_rest()
            name = self.spec.actions[action].name
            means = np.mean([event.values for event in steady], axis=0)
            self.measured |= {f"{channel}_in_{name}": mean for channel, mean in self._named(means, driven)}
            wheels = [f"{v:.3f}" for _, v in self._named(means, [checks.wheels])]
            yield Line(Verdict.OK, name, f"wheels at {' and '.join(wheels)} m/s")
        yield from self._try_line()

    def _store_rest(self, events: Sequence[StepEvent], groups: Sequence[str]) -> None:
        values = np.array([event.values for event in events])
        self.measured |= {f"{name}_at_rest": mean for name, mean in self._named(values.mean(axis=0), groups)}
        self.measured |= {f"{name}_noise": noise for name, noise in self._named(values.std(axis=0), groups)}

    def _named(self, values: Floats, groups: Sequence[str]) -> list[tuple[str, float]]:
        return [
            (self.spec.channels[i].name, float(values[i]))
            for group in groups
            for i in range(self.spec.group(group).start, self.spec.group(group).stop)
        ]

    def _try_line(self) -> Iterator[Line]:
        """Measure what only the bytes of the line show, if the body can send zeros."""
        host: Any = host_of(self.pen.backend)
        if not hasattr(host, "send_zeros"):
            return
        self.measured["mode_offset"] = host.mode_offset
        host.send_zeros(N_ZEROS)
        events = self._hold(self._drives[0], 0.3)
        self._come_to_rest()
        skips = bool(events[-1].info["applied"])
        self.measured["passes_over_zeros"] = float(skips)
        verdict = Verdict.OK if skips else Verdict.WARN
        done = "follows" if skips else "does not follow"
        yield Line(
            verdict, "line", f"after {N_ZEROS} zeros it {done} commands; it reports modes {host.mode_offset} too high"
        )
