"""The check of a robot, and after it what no data sheet tells: noise, speeds, currents, and what its line bears.

Ten seconds at rest, then each action for a second and a half. It needs half a metre of room all round. What is found
goes into the robot's file, `[measured]`, by names that say what it is: CHANNEL_at_rest and CHANNEL_noise (standard
deviation) of what is never still, CHANNEL_in_ACTION of wheels, currents and turning, all in SI units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from horde_env.backend import Floats
from horde_env.commands.anatomy import Line, Moment, Verdict
from horde_env.commands.check import STEADY_S, Check, LostDuringCheck, host_of
from horde_env.commands.verdicts import anatomy_of

REST_S, DRIVE_S = 10.0, 1.5
N_ZEROS = 200  # that a robot passes over, if it passes over zeros at all


class Measurement(Check):
    """A check that measures where the robot turned out to be well; see `Check`.

    Attributes:
        measured: Name -> number, SI units; empty where nothing was measured.
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
            yield Line(Verdict.SKIP, "measurement", "only a robot that moves and passes its check is measured")
            return
        try:
            yield from self._measure()
        except LostDuringCheck as lost:
            self.measured = {}
            yield Line(Verdict.FAIL, "link", str(lost))

    def _measure(self) -> Iterator[Line]:
        anatomy = anatomy_of(self.spec)
        self._note(self._hold(self._stop, REST_S), anatomy.lively + anatomy.voltages)
        yield Line(Verdict.OK, "at rest", f"measured over {REST_S:g} s")
        told = (anatomy.wheels, *anatomy.motors, "rotational_velocity", "battery_current")
        driven = [name for name in told if name in self.spec.groups]
        for action in self._drives:
            steady = self._hold(action, DRIVE_S)[-round(STEADY_S / self.spec.period_s) :]
            self._come_to_rest()
            name = self.spec.actions[action].name
            for channel, mean in self._named(np.mean([m.values for m in steady], axis=0), driven):
                self.measured[f"{channel}_in_{name}"] = mean
            wheels = [f"{v:.3f}" for _, v in self._named(np.mean([m.values for m in steady], axis=0), [anatomy.wheels])]
            yield Line(Verdict.OK, name, f"wheels at {' and '.join(wheels)} m/s")
        yield from self._try_line()

    def _note(self, moments: Sequence[Moment], groups: Sequence[str]) -> None:
        values = np.array([moment.values for moment in moments])
        for (channel, mean), (_, noise) in zip(
            self._named(values.mean(axis=0), groups), self._named(values.std(axis=0), groups), strict=True
        ):
            self.measured[f"{channel}_at_rest"], self.measured[f"{channel}_noise"] = mean, noise

    def _named(self, values: Floats, groups: Sequence[str]) -> list[tuple[str, float]]:
        return [
            (self.spec.channels[i].name, float(values[i]))
            for group in groups
            for i in range(self.spec.group(group).start, self.spec.group(group).stop)
        ]

    def _try_line(self) -> Iterator[Line]:
        """Ask the line what only bytes can tell, where the robot has such questions."""
        host: Any = host_of(self.pen.backend)
        if not hasattr(host, "send_zeros"):
            return
        self.measured["mode_offset"] = host.mode_offset
        host.send_zeros(N_ZEROS)
        moments = self._hold(self._drives[0], 0.3)
        self._come_to_rest()
        skips = bool(moments[-1].info["applied"])
        self.measured["passes_over_zeros"] = float(skips)
        verdict = Verdict.OK if skips else Verdict.WARN
        done = "obeyed" if skips else "did not obey"
        yield Line(
            verdict, "line", f"after {N_ZEROS} zeros it {done}; its modes are reported {host.mode_offset} too high"
        )
