"""`horde reproduce all`, whole, on the simulated robot."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.reproduce import EXPERIMENTS, study
from horde_agent.reproduce.excursions import problem as excursions
from horde_agent.reproduce.feedback import claims as loop
from horde_agent.reproduce.feedback import problem as small_worlds
from horde_agent.reproduce.parallel import OnProgress, run_here
from horde_agent.reproduce.policies import claims as policies
from horde_agent.reproduce.reset import problem as reset
from horde_agent.reproduce.result import Result
from horde_agent.types import Floats
from tests.agent.test_reproduce_whole import is_whole


def known_ring(_on_progress: OnProgress) -> loop.Ring:
    known = small_worlds.ring_values()
    return loop.Ring(known, np.full(6, 0.8), known)


def known_corridor(_on_progress: OnProgress, _seed: int) -> Floats:
    return small_worlds.composed_values()


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_the_whole_reproduction_on_the_robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`horde reproduce all`: every experiment on the simulator, with its page; a second run reuses everything.

    Lives are half as long as at `--scale quick`. The small worlds, tested elsewhere, give their known answers. Jobs run
    in this process, but are pickled, as those of the paper's scale are.
    """
    monkeypatch.setitem(excursions.STEPS, "quick", 4_000)
    monkeypatch.setitem(reset.STEPS, "quick", 4_000)
    monkeypatch.setitem(reset.LAMP_STEPS, "quick", 4_000)
    monkeypatch.setitem(reset.CHANGE_AT, "quick", 800)
    monkeypatch.setitem(policies.SIZES, "quick", policies.Size(life=4_000, rules=200, many=150, cycles=50))
    monkeypatch.setattr(loop, "in_the_ring", known_ring)
    monkeypatch.setattr(loop, "in_the_corridor", known_corridor)
    monkeypatch.setattr(study, "run_here", lambda jobs, say: run_here(pickle.loads(pickle.dumps(jobs)), say))
    command = ["reproduce", "all", "--scale", "quick", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    cached = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "kept").iterdir()}
    assert cli.main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "kept").iterdir()} == cached
    for name in EXPERIMENTS:
        result = Result.read(tmp_path / "out" / name / "result.json")
        is_whole(result, tmp_path / "out")
        assert all(figure.file in page for figure in result.figures)
