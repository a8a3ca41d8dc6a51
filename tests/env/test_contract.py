"""One contract, every body."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horde_env.backend import Backend
from horde_env.replay import RecordedRun
from horde_env.robot import RobotSpec, create2, critterbot
from horde_env.robots.create2.emulator.emulator import EmulatedCreate
from horde_env.robots.create2.simulator.backend import SimulatedCreate
from horde_env.robots.critterbot.emulator.emulator import EmulatedBody
from horde_env.robots.critterbot.log import RecordedLife
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.testing import BackendContract, PacedBody
from tests.env.engines import NEEDS_PYBULLET
from tests.env.recording import made_up, packets, record, write
from tests.env.toy import ToyBody

HARDWARE = pytest.mark.hardware
WIRE = [pytest.mark.sim, pytest.mark.hardware]


def emulated(make: Callable[..., Any], **arguments: Any) -> Backend:
    """Return a physical body over the bytes of an emulated robot, in lockstep."""
    body = make(**arguments)
    return PacedBody(body, body.clock)


class TestBody(BackendContract):
    """Every body that follows commands."""

    @pytest.fixture(
        autouse=True,
        params=[
            pytest.param((critterbot, ToyBody), id="toy"),
            pytest.param(
                (critterbot, partial(SimulatedBody, physics="bullet")),
                id="bullet",
                marks=[pytest.mark.sim, NEEDS_PYBULLET],
            ),
            pytest.param((critterbot, partial(SimulatedBody, physics="planar")), id="planar"),
            pytest.param(
                (critterbot, partial(emulated, EmulatedBody, link="serial")),
                id="serial",
                marks=WIRE,
            ),
            pytest.param(
                (critterbot, partial(emulated, EmulatedBody, link="drops")), id="drops", marks=WIRE
            ),
            pytest.param((create2, SimulatedCreate), id="create2"),
            pytest.param(
                (create2, partial(emulated, EmulatedCreate)), id="create2-emulated", marks=HARDWARE
            ),
        ],
    )
    def _body(self, request: pytest.FixtureRequest) -> None:
        self.spec_of, self.make = request.param

    def make_backend(self) -> Backend:
        return self.make()

    def make_spec(self) -> RobotSpec:
        return self.spec_of()


class TestRecording(BackendContract):
    """A log of packets, and the record in a run's folder."""

    obeys = False

    @pytest.fixture(autouse=True, params=[RecordedLife, RecordedRun])
    def _recording(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        is_log = request.param is RecordedLife
        if is_log:
            path = write(tmp_path / "life.csv", packets())
        else:
            path = record(tmp_path / "run", made_up(40))
        self.make = partial(request.param, path)

    def make_backend(self) -> Backend:
        return self.make()
