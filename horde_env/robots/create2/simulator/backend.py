"""SimulatedCreate: the Create 2 in its room as a Backend. Time is virtual: as fast as it computes.

Its program (`firmware`) receives the same bytes as the real robot, from the same mode controller, without a
line between.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import Generator

from horde_env.backend import POSE_KEYS, Backend, Floats, Frame, State
from horde_env.commands import CommandMonitor
from horde_env.errors import BackendUnavailable
from horde_env.robot import create2
from horde_env.robots.create2.arena import load_room
from horde_env.robots.create2.mode_controller import ModeController
from horde_env.robots.create2.safety import CreateSupervisor
from horde_env.robots.create2.simulator import tick
from horde_env.robots.create2.simulator.firmware import Firmware
from horde_env.robots.create2.simulator.machine import Machine, check_physics
from horde_env.robots.create2.stream import CreateState
from horde_env.robots.create2.wire import (
    HALT,
    SAFE,
    STREAM_ALL,
    TICK_S,
    Op,
    Sensors,
    drive,
    drive_direct,
)
from horde_env.sim.faults import BodyFault
from horde_env.sim.saving import attributes, inner, nested, restore_attributes

SETTLING_TICKS = 4  # between switching on and the first frame
MOST_TICKS = 7  # of a period
_SAVED = ("_n_steps", "_begin_tick", "_stop_reason")


class SimulatedCreate(Backend):
    """The Create 2 in its room; the arguments are those of `make.make_env`.

    Each frame has the true pose in `extras` (x_m, y_m, heading_rad), for pictures only.
    """

    command_monitor = CommandMonitor
    info_keys = POSE_KEYS

    def __init__(
        self,
        *,
        layout: str | Path | None = None,
        battery_scale: float = 1.0,
        physics: str | None = None,
    ) -> None:
        check_physics(physics)
        self.spec = create2()
        self.room = load_room(layout)
        self.body_faults: dict[str, BodyFault] = {"weak battery": self._drain}
        self.period_s = self.spec.period_s
        self.machine = Machine(self.room, battery_scale=battery_scale)
        self.mode_controller = ModeController(self.spec)
        self._request = self.spec.group("last_request")
        self._firmware: Firmware | None = None
        self._state: CreateState | None = None
        self._raw = np.zeros((MOST_TICKS, self.spec.n_channels))

    @property
    def firmware(self) -> Firmware:
        """The robot's program; BackendUnavailable before the first reset and after close."""
        if self._firmware is None:
            raise BackendUnavailable("the simulated body is not open: call reset() first.")
        return self._firmware

    def reset(self, rng: Generator) -> Frame:
        """Place the robot, just switched on, at a random pose with room around it, and return its first frame."""
        self.machine.place_freely(rng)
        firmware = self._firmware = Firmware(self.machine, rng)
        self._supervisor = CreateSupervisor(self.spec)
        self._stop_reason = ""
        self.mode_controller.reset()
        self._n_steps = 0
        firmware.receive(bytes([Op.START]) + STREAM_ALL + bytes([Op.SAFE]))
        self._live(firmware, SETTLING_TICKS)
        self._begin_tick = firmware.n_cycles
        return self._frame(SETTLING_TICKS, np.zeros(self.spec.axes.size), applied=True, gap=True)

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` (m/s, m/s, rad/s) for one period and return the frame sampled at its end."""
        request = drive(command, self.spec)
        firmware = self.firmware
        if self._stop_reason:
            wheels = HALT
        else:
            wheels = self.mode_controller.override or request
        previous = self._state
        firmware.receive(drive_direct(wheels))
        assert previous is not None
        firmware.receive(self.mode_controller.state_commands(previous, self._t))
        self._n_steps += 1
        # 6.4 ticks: the frame is the newest one at the end of its period.
        due = self._begin_tick + int(self._n_steps * self.period_s / TICK_S + 1e-9)
        n = due - firmware.n_cycles
        state = self._live(firmware, n)
        is_kept_still = bool(self._stop_reason)
        verdict = self.mode_controller.judge(state, wheels, n, is_kept_still=is_kept_still)
        applied = verdict.applied and previous.mode == SAFE and not is_kept_still
        share = self.spec.shares(command)
        frame = self._frame(
            n, share, applied=applied, gap=verdict.came_back, refusal=verdict.refusal
        )
        self._stop_reason = self._supervisor.judge(frame.values, state.charge_state, frame.t)
        return frame

    def _drain(self, _target: str, volts: float) -> None:
        """Lower the battery's voltage."""
        self.machine.sag_v = volts

    def enable_charging(self, enabled: bool) -> None:
        """Send the robot to its dock to charge, or end that; meanwhile requests are not applied."""
        self.mode_controller.charge(enabled)

    def save(self) -> State:
        """Return the body's state, except the generator passed to `reset`."""
        state = self._state
        assert state is not None, "the body was reset"
        newest = {
            "raw": state.raw.copy(),
            "sensors": np.array(state.sensors),
            "mode": np.array(state.mode),
        }
        return nested(
            machine=self.machine.save(),
            firmware=self.firmware.save(),
            pilot=self.mode_controller.save(),
            supervisor=self._supervisor.save(),
            newest=newest,
            scalars=attributes(self, *_SAVED),
        )

    def restore(self, state: State) -> None:
        """Restore a state from `save`, bit for bit; its owner restores the generator."""
        self.machine.restore(inner(state, "machine"))
        self.firmware.restore(inner(state, "firmware"))
        self.mode_controller.restore(inner(state, "pilot"))
        self._supervisor.restore(inner(state, "supervisor"))
        newest = inner(state, "newest")
        sensors = Sensors(*newest["sensors"].tolist())
        self._state = CreateState(newest["raw"].copy(), sensors, int(newest["mode"]), 0)
        restore_attributes(self, inner(state, "scalars"), *_SAVED)

    def close(self) -> None:
        """Switch the robot off. Closing twice does nothing."""
        self._firmware = None

    @property
    def _t(self) -> float:
        return self.firmware.n_cycles * TICK_S

    def _live(self, firmware: Firmware, n: int) -> CreateState:
        """Run ticks and return the state after the last one; write each tick's channels to `_raw`."""
        firmware.run(n, self._raw)
        firmware.forget_way()
        state = self._state = CreateState(self._raw[n - 1], firmware.report(), firmware.mode, 0)
        return state

    def _frame(
        self, n: int, share: Floats, *, applied: bool, gap: bool, refusal: str = ""
    ) -> Frame:
        values = np.empty(self.spec.n_channels)
        tick.gather(n, self._raw, self.spec.is_any, self.spec.lsb, self.spec.offset, values)
        values[self._request] = share
        x, y, heading = self.machine.pose
        extras = {"x_m": x, "y_m": y, "heading_rad": heading}
        # The frame has the period's end as its time, although the last tick may end up to a tick
        # earlier.
        t = self._n_steps * self.period_s
        return Frame(values=values, t=t, applied=applied, gap=gap, extras=extras, refusal=refusal)
