"""One contract, every body."""

from __future__ import annotations

from pathlib import Path

import pytest

from horde_env.backend import Backend
from horde_env.replay import RecordedLife
from horde_env.testing import BackendContract
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
        return pytest.importorskip("horde_env.sim.backend").SimulatedBody()
