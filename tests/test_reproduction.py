"""`python -m examples.reproduce all`, whole, on the simulated robot."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples.reproduce import (
    EXPERIMENTS,
    LATER,
    chain,
    conditioning,
    curiosity,
    exam,
    excursions,
    experiment,
    horde2011,
    loop,
    measures,
    nexting,
    offline,
    policies,
    reset,
    swifttd,
)
from examples.reproduce import __main__ as reproduce
from examples.reproduce.experiment import Result
from examples.reproduce.runner import run_here
from horde_agent.learning import span_storage as layout


def check_whole(result: Result, folder: Path) -> None:
    assert {claim.verdict for claim in result.claims} <= {
        "reproduced",
        "partly reproduced",
        "not reproduced",
    }
    for figure in result.figures:
        assert (folder / result.name / figure.file).stat().st_size > 10_000
    for table in result.tables:
        assert table.rows
        assert all(len(row) == len(table.header) for row in table.rows), table.title


@pytest.mark.sim
@pytest.mark.parametrize(
    ("tested", "size", "n_claims"),
    [
        (conditioning, conditioning.ConditioningSize(4_000, 2_000, 1), 5),
        (curiosity, curiosity.CuriositySize(700, 700, 1), 5),
        pytest.param(
            exam,
            exam.ExamSize(2, (60, 120), 60, 60, 60, 60, 10, 1),
            3,
            marks=pytest.mark.slow,
        ),
        (horde2011, horde2011.Horde2011Size(600, 8), 5),
        pytest.param(
            measures, measures.MeasuresSize(2_600, 600, 50, 53), 6, marks=pytest.mark.slow
        ),
        pytest.param(
            nexting,
            nexting.NextingSize(60, 20, 40, 100),
            6 + nexting.REAL_LOG.exists(),
            marks=pytest.mark.slow,
        ),
        pytest.param(swifttd, swifttd.SwiftTDSize(60, 40, 16, 2), 5, marks=pytest.mark.slow),
    ],
    ids=["conditioning", "curiosity", "exam", "horde2011", "measures", "nexting", "swifttd"],
)
def test_an_experiment_runs_whole(
    tested: ModuleType,
    size: Any,
    n_claims: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`python -m examples.reproduce NAME` on the simulator, smaller than at `--scale quick`.

    In narrow blocks, whose kernels compile in a third of the time: nexting is TD(lambda) in the span
    engine, which compiles for 15 s, and so slow.
    """
    monkeypatch.setattr(layout, "WIDEST", 48)
    name = tested.__name__.split(".")[-1]
    monkeypatch.setitem(tested.SIZES, "quick", size)
    monkeypatch.setattr(measures, "BAIRD_RUNS", 2)
    monkeypatch.setattr(
        swifttd, "RIVALS", [rival for rival in swifttd.RIVALS if rival.rule == "td"]
    )
    assert reproduce.main([name, "--scale", "quick", "--out", str(tmp_path)]) == 0
    result = Result.read(tmp_path / name / "result.json")
    check_whole(result, tmp_path)
    assert result.figures
    assert len(result.claims) == n_claims
    if name == "conditioning":
        assert {row[0] for row in result.tables[0].rows} >= {
            *tested.LOOPS,
            *tested.REPRESENTATIONS,
        }


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_later_experiments_run_whole_at_the_quick_scale(tmp_path: Path) -> None:
    """`python -m examples.reproduce later`: 38 s on two idle cores, once compiled; in `make test-all`."""
    assert reproduce.main(["later", "--scale", "quick", "--out", str(tmp_path)]) == 0
    for name in LATER:
        check_whole(Result.read(tmp_path / name / "result.json"), tmp_path)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_reproduction_on_the_robot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m examples.reproduce all`: every experiment, with its page; a second run reuses everything.

    Lives are shorter than at `--scale quick`, with fewer runs and policies, and two of the rules
    are compared. The small worlds, tested elsewhere, give their known answers. Jobs run in this
    process, but are pickled, as those of the paper's scale are.
    """
    monkeypatch.setattr(chain, "N_RUNS", 10)
    monkeypatch.setattr(chain, "GAMMAS", (0.9,))
    monkeypatch.setitem(excursions.STEPS, "quick", 3_700)
    monkeypatch.setattr(excursions, "RULES", excursions.RULES[::4])  # clipped and plain
    monkeypatch.setattr(excursions, "LARGER_STEPS", excursions.LARGER_STEPS[-1:])
    monkeypatch.setattr(excursions, "SMALLER_RATIOS", excursions.SMALLER_RATIOS[-1:])
    monkeypatch.setattr(offline, "RIDGES", (1e-2, 1.0))
    monkeypatch.setitem(reset.STEPS, "quick", 3_700)
    monkeypatch.setitem(reset.LAMP_STEPS, "quick", 3_700)
    monkeypatch.setitem(reset.CHANGE_AT, "quick", 700)
    monkeypatch.setattr(policies, "FEW", 100)
    monkeypatch.setattr(policies, "MANY", 200)
    monkeypatch.setattr(policies, "TRACE_RULES", ("clipped", "plain"))
    monkeypatch.setitem(
        policies.SIZES, "quick", policies.PoliciesSize(life=4_200, rules=100, many=100, cycles=50)
    )
    monkeypatch.setitem(loop.STEPS, "quick", 4_200)
    monkeypatch.setattr(loop, "learn_ring", lambda *_, **__: loop.ring_values())
    monkeypatch.setattr(loop, "learn_corridor", lambda _rng: loop.composed_values())
    monkeypatch.setattr(
        experiment, "run_here", lambda jobs, say: run_here(pickle.loads(pickle.dumps(jobs)), say)
    )
    command = ["all", "--scale", "quick", "--out", str(tmp_path / "out")]
    assert reproduce.main(command) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    cached = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "kept").iterdir()}
    assert reproduce.main(command) == 0
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "kept").iterdir()
    } == cached
    n_claims = {}
    for name in EXPERIMENTS:
        result = Result.read(tmp_path / "out" / name / "result.json")
        check_whole(result, tmp_path / "out")
        assert all(figure.file in page for figure in result.figures)
        n_claims[name] = len(result.claims)
    assert n_claims == {"chain": 5, "excursions": 11, "reset": 7, "policies": 4, "loop": 3}
