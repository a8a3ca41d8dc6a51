"""One contract, every body."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from horde_env.backend import Backend
from horde_env.replay import RecordedRun
from horde_env.robots.critterbot.emulator.emulator import EmulatedBody
from horde_env.robots.critterbot.log import RecordedLife
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.testing import BackendContract, PacedBody
from tests.env.recording import made_up, packets, record, write
from tests.env.toy import ToyBody


class TestToyBody(BackendContract):
    """The kinematic toy."""

    def make_backend(self) -> Backend:
        return ToyBody()


class TestRecordedLife(BackendContract):
    """A log made up for this test."""

    obeys = False

    @pytest.fixture(autouse=True)
    def _log(self, tmp_path: Path) -> None:
        self.log = write(tmp_path / "life.csv", packets())

    def make_backend(self) -> Backend:
        return RecordedLife(self.log)


class TestRecordedRun(BackendContract):
    """The record of a life, as a run's folder keeps it."""

    obeys = False

    @pytest.fixture(autouse=True)
    def _run(self, tmp_path: Path) -> None:
        self.run = record(tmp_path / "run", made_up(40))

    def make_backend(self) -> Backend:
        return RecordedRun(self.run)


@pytest.mark.sim
class TestSimulatedBody(BackendContract):
    """The simulator."""

    def make_backend(self) -> Backend:
        return SimulatedBody(physics="bullet")


class TestPlanarBody(BackendContract):
    """The simulator without PyBullet."""

    def make_backend(self) -> Backend:
        return SimulatedBody(physics="planar")


@pytest.mark.sim
@pytest.mark.hardware
class TestEmulatedSerial(BackendContract):
    """The physical body over the whole robot: its bytes, its firmware and the simulated world, in lockstep."""

    link: Literal["serial", "drops"] = "serial"

    def make_backend(self) -> Backend:
        body = EmulatedBody(link=self.link)
        return PacedBody(body, body.clock)


class TestEmulatedDrops(TestEmulatedSerial):
    """Through its on-board driver."""

    link = "drops"
