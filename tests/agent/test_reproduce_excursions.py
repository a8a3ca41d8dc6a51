"""The first experiment, whole, on a toy body; and the numbers that its verdicts are made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.reproduce.excursions import claims as excursion_claims
from horde_agent.reproduce.excursions import problem as excursions
from horde_agent.reproduce.excursions.claims import claims
from horde_agent.reproduce.excursions.problem import fifth_medians
from horde_agent.reproduce.result import Result
from tests.agent.reproducing import toy_study


@pytest.mark.slow
def test_the_experiment_goes_its_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lives, every variant, tables, pictures and claims; cached results are reused."""
    monkeypatch.setitem(excursions.STEPS, "quick", 2_400)
    study = toy_study(tmp_path, monkeypatch, (0, 1))
    result = excursion_claims.run(study)

    assert len(result.claims) == 11
    assert {claim.verdict for claim in result.claims} <= {"reproduced", "partly reproduced", "not reproduced"}
    per_step = next(claim for claim in result.claims if "exactly" in claim.text)
    assert per_step.verdict == "reproduced"  # 9 questions of each of the toy's three policies
    for figure in result.figures:
        assert (tmp_path / "excursions" / figure.file).stat().st_size > 10_000
    for table in result.tables:
        assert all(len(row) == len(table.header) for row in table.rows), table.title
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json").claims == result.claims

    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    again = excursions.gather(study)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == kept
    assert claims(again) == result.claims


def test_a_rare_state_does_not_lift_a_fifth() -> None:
    """100 tests falling from 5 to 1; one wild value in the fourth fifth leaves its median alone."""
    curve = np.repeat([5.0, 4.0, 3.0, 2.0, 1.0], 20)
    curve[65] = 1e6
    np.testing.assert_array_equal(fifth_medians(curve), [5.0, 4.0, 3.0, 2.0, 1.0])
