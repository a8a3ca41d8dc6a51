"""The check of a robot: first what it says at rest, then, if it may move, whether it does what it is asked.

It goes through any environment of this package. Nothing moves before `may_move` was asked and said yes, and every drive
ends in a stop that is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import gymnasium
import numpy as np

from horde_env.backend import Backend, Floats
from horde_env.commands import verdicts
from horde_env.commands.anatomy import Line, Moment, Verdict
from horde_env.env import PenEnv

REST_S = 3.0
DRIVE_S = 0.8  # the wheels need 0.35 s to their speed
STEADY_S = 0.4  # of it, at its end, at a steady speed
STOP_LIMIT_S = 1.5  # the robot coasts; half a second is usual

# What must be well before the robot is moved.
NEEDED_TO_MOVE = ("link", "frames", "packets", "checksums", "power", "safety")


def host_of(backend: Backend) -> Backend:
    """Return the side of a body that speaks to the robot: an emulated one has it beside the robot."""
    return cast(Backend, getattr(backend, "body", backend))


def kept_still(backend: Backend) -> str:
    """Return why a body keeps its robot still, "" while it does not, or is of a kind that never does."""
    body = host_of(backend)
    latch = getattr(body, "latch", None)
    stopped = latch.reason if latch is not None else ""
    return f"emergency stop: {stopped}" if stopped else str(getattr(body, "reason", ""))


class LostDuringCheck(Exception):
    """The body stopped answering, or a recorded life ended."""


class Check:
    """One check of one robot; `lines()` runs it and yields its verdicts as they come.

    Args:
        env: An environment of this package, after its reset. The caller closes it, which stops the robot.
        may_move: Asked once, before the robot is moved: "" to go on, else why it is not moved.

    Attributes:
        signs: Channel -> 1 or -1 as measured by moving; empty before.
        ranges: Channel -> lowest and highest SI value at rest.
        is_swapped: Whether left and right encoder turned out to be swapped.
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
            refusal = self._may_move() if healthy else "what is needed to move failed above"
            if refusal:
                yield Line(Verdict.SKIP, "movement", refusal)
            else:
                yield from self._in_motion()
        except LostDuringCheck as lost:
            yield Line(Verdict.FAIL, "link", str(lost))

    def _at_rest(self) -> Iterator[Line]:
        assert self.pen.frame is not None, "a check begins after a reset"
        before_t = self.pen.frame.t
        moments = self._hold(self._stop, REST_S)
        self.ranges = verdicts.measured_ranges(moments, self.spec)
        yield from verdicts.judge_link(moments, before_t, self.spec)
        yield verdicts.judge_power(moments, self.spec)
        yield verdicts.judge_safety(moments, self.spec)
        yield from verdicts.judge_sensors(moments, self.spec)

    def _in_motion(self) -> Iterator[Line]:
        n_steady = round(STEADY_S / self.spec.period_s)
        stops: list[float | None] = []
        driven: list[Moment] = []
        if self._come_to_rest() is None:
            yield Line(Verdict.FAIL, "stop", "the robot moves though it was told to stop: it is not driven further")
            return
        steady: list[tuple[Floats, Moment]] = []
        for action in self._drives:
            request = np.array(self.spec.actions[action].request)
            moments = self._hold(action, DRIVE_S)
            stops.append(self._come_to_rest())
            driven += moments
            steady += [(request, moment) for moment in moments[-n_steady:]]
            self.is_swapped |= verdicts.is_swapped(request, moments[-n_steady:], self.spec)
            yield verdicts.judge_motion(self.spec.actions[action].name, request, moments[-n_steady:], self.spec)
        yield verdicts.judge_stops(stops)
        yield verdicts.judge_motor_readings(driven, self.spec)
        self.signs = {} if self.is_swapped else verdicts.measured_signs(steady, self.spec)

    def _come_to_rest(self) -> float | None:
        """Stop; return the seconds until the robot was at rest, None if it was not in time."""
        n_limit = round(STOP_LIMIT_S / self.spec.period_s)
        for k in range(n_limit):
            if verdicts.is_at_rest(self._step(self._stop), self.spec):
                return (k + 1) * self.spec.period_s
        return None

    def _hold(self, action: int, seconds: float) -> list[Moment]:
        return [self._step(action) for _ in range(round(seconds / self.spec.period_s))]

    def _step(self, action: int) -> Moment:
        _, _, _, truncated, info = self.env.step(action)
        frame = self.pen.frame
        if self.pen.fault is not None:
            raise LostDuringCheck(str(self.pen.fault))
        if truncated or frame is None:
            raise LostDuringCheck("the body gave its last frame before the check was over")
        if info.get("link_losses", 0):
            loss = getattr(host_of(self.pen.backend), "loss", "")
            raise LostDuringCheck(f"the link to the robot was lost: {loss}. Look at the cable, then check again")
        return Moment(frame.values, info, kept_still(self.pen.backend) or self.pen.disobedience)
