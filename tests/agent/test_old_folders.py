"""Folders of runs made by commit ff1b85a0 open, report, resume, replay and export.

`folders_ff1b85a0` has four short runs, of which the pictures and the live page were removed, and in
`expected.json` what ff1b85a0 itself made of them:

* critterbot: 230 steps in the planar simulator, with test excursions, a question file with a
  control question, and questions added and removed at step 150;
* create2: 200 steps in the planar simulator, with test excursions and a question file;
* data: two passes over a CSV table of 160 rows, with b, and a question file;
* log: the same table without actions, learned from in two passes and scored on its last part.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.record.rows import LATER_FIELDS
from horde_agent.runs.storage.folder import RunFolder
from tests.agent.commands import horde, summary_of

FOLDERS = Path(__file__).parent / "folders_ff1b85a0"
EXPECTED: dict[str, Any] = json.loads((FOLDERS / "expected.json").read_text())
RUNS = list(EXPECTED)
LIVES = ["critterbot", "create2"]


def unpacked(name: str, place: Path) -> Path:
    """Unpack a stored run, and return its folder."""
    with tarfile.open(FOLDERS / f"{name}.tar.xz") as archive:
        archive.extractall(place, filter="data")
    return place / name


def weights(run: Path) -> str:
    """Return the SHA-256 of a run's weights, of its summary."""
    digest: str = summary_of(run)["weights_sha256"]
    return digest


@pytest.mark.parametrize("name", RUNS)
def test_a_folder_is_whole_and_its_report_has_the_same_means(name: str, tmp_path: Path) -> None:
    run = unpacked(name, tmp_path)
    assert horde(f"doctor {run}") == 0
    assert horde(f"report {run}") == 0
    page = (run / "report.html").read_text()
    assert "Missing or damaged" not in page
    match = re.search(r"<h2>By policy and time scale</h2>(.*?)</section>", page, re.DOTALL)
    cells = []
    if match is not None:
        cells = re.findall(r"<td[^>]*>(.*?)</td>", match[1])
    expected_rows = EXPECTED[name]["means"]
    assert cells == [cell for row in expected_rows for cell in row]


@pytest.mark.parametrize("name", RUNS)
def test_missing_tables_are_learned_again_from_the_log(name: str, tmp_path: Path) -> None:
    run = unpacked(name, tmp_path)
    stored_questions = (run / "questions.csv").read_text().splitlines()
    for table in [*run.glob("*.csv"), *run.glob("*.json")]:
        table.unlink()
    assert horde(f"report {run}") == 0
    assert weights(run) == EXPECTED[name]["weights_sha256"]["stored"]
    assert len((run / "questions.csv").read_text().splitlines()) == len(stored_questions)


def test_a_restored_life_resumes_with_the_same_weights(tmp_path: Path) -> None:
    run = unpacked("critterbot", tmp_path)
    assert horde(f"resume {run} --steps 300") == 0
    assert weights(run) == EXPECTED["critterbot"]["weights_sha256"]["resumed"]


def test_a_life_without_the_state_of_its_body_continues(tmp_path: Path) -> None:
    """ff1b85a0 stored no state of a Create 2. Since then, such a run continues with new random numbers."""
    run = unpacked("create2", tmp_path)
    assert horde(f"resume {run} --steps 300") == 0
    assert summary_of(run)["steps"] == 300
    resumed = weights(run)
    assert resumed != EXPECTED["create2"]["weights_sha256"]["stored"]
    out = tmp_path / "replayed"
    assert horde(f"learn --backend replay --log {run} --out {out}") == 0
    assert weights(out) == resumed


def test_a_data_set_resumes_with_the_same_weights(tmp_path: Path) -> None:
    """As after a kill before the first snapshot: from the first row."""
    run = unpacked("data", tmp_path)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoint")
    assert horde(f"resume {run}") == 0
    assert weights(run) == EXPECTED["data"]["weights_sha256"]["resumed"]


@pytest.mark.parametrize("name", LIVES)
def test_a_life_is_replayed_with_the_same_weights(name: str, tmp_path: Path) -> None:
    run = unpacked(name, tmp_path)
    out = tmp_path / "replayed"
    assert horde(f"learn --backend replay --log {run} --out {out}") == 0
    assert weights(out) == EXPECTED[name]["weights_sha256"]["replayed"]


@pytest.mark.parametrize("name", RUNS)
def test_a_folder_exports_the_same_tables(name: str, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    run = unpacked(name, tmp_path)
    assert horde(f"export {run} --to parquet") == 0
    folder = RunFolder(run).exported
    table = dataset.dataset(folder, format="parquet", partitioning=None).to_table()
    digest = hashlib.sha256()
    for column in table.column_names:
        values = np.asarray(table[column].to_numpy())
        if column in LATER_FIELDS:
            assert np.isnan(values).all(), f"ff1b85a0 recorded no {column}"
        else:
            digest.update(values.tobytes())
    assert digest.hexdigest() == EXPECTED[name]["parquet_sha256"]
