"""One contract, every body."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from horde_env.backend import Backend
from horde_env.replay import RecordedRun
from horde_env.robots.critterbot.log import RecordedLife
from horde_env.testing import BackendContract, PacedBody
from tests.env.hardware.bodies import behind_a_driver, drops_body, on_a_line, serial_body
from tests.env.hardware.virtual import VirtualRobot
from tests.env.recorded_run import record
from tests.env.recording import REAL_LOG, packets, write
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
        self.run = record(tmp_path / "run", 40)

    def make_backend(self) -> Backend:
        return RecordedRun(self.run)


@pytest.mark.skipif(not REAL_LOG.is_file(), reason="the real robot's log is not here")
class TestRealLog(BackendContract):
    """The real robot's log."""

    obeys = False

    def make_backend(self) -> Backend:
        return RecordedLife(REAL_LOG)


@pytest.mark.sim
class TestSimulatedBody(BackendContract):
    """The simulator."""

    def make_backend(self) -> Backend:
        pytest.importorskip("pybullet")
        return pytest.importorskip("horde_env.robots.critterbot.simulator.backend").SimulatedBody()


class TestPlanarBody(BackendContract):
    """The simulator without PyBullet."""

    def make_backend(self) -> Backend:
        return pytest.importorskip("horde_env.robots.critterbot.simulator.backend").SimulatedBody(physics="planar")


class OverBytes(BackendContract):
    """The physical body, over a robot that has the firmware's rules and no world. Each test has one robot per body."""

    @pytest.fixture(autouse=True)
    def _robots(self, tmp_path: Path) -> Iterator[None]:
        self.folder, self.robots = tmp_path, list[VirtualRobot]()
        yield
        for robot in self.robots:
            robot.line.close()

    @abstractmethod
    def make_robot(self) -> VirtualRobot:
        """Return a robot behind a line."""

    def make_backend(self) -> Backend:
        robot = self.make_robot()
        self.robots.append(robot)
        body = (serial_body if self.folder in Path(robot.line.url).parents else drops_body)(robot)
        return body


@pytest.mark.hardware
class TestSerialBody(OverBytes):
    """Its serial line."""

    def make_robot(self) -> VirtualRobot:
        folder = self.folder / str(len(self.robots))
        folder.mkdir()
        return on_a_line(folder)


@pytest.mark.hardware
class TestDropsBody(OverBytes):
    """Its driver's stream."""

    def make_robot(self) -> VirtualRobot:
        return behind_a_driver()


class Emulated(BackendContract):
    """The physical body over the whole robot: its bytes, its firmware and the simulated world, in lockstep."""

    link: Literal["serial", "drops"]

    def make_backend(self) -> Backend:
        pytest.importorskip("pybullet")
        body = pytest.importorskip("horde_env.robots.critterbot.emulator.emulator").EmulatedBody(link=self.link)
        return PacedBody(body, body.clock)


@pytest.mark.sim
@pytest.mark.hardware
class TestEmulatedSerial(Emulated):
    """On a pseudo terminal."""

    link = "serial"


@pytest.mark.sim
@pytest.mark.hardware
class TestEmulatedDrops(Emulated):
    """Over TCP."""

    link = "drops"
