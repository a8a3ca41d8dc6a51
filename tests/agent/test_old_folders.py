"""Recordings of runs made by commit ff1b85a0 are learned from again and exported.

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
