"""The format of a snapshot does not change unnoticed, and a file of another version is refused with what to do.

`snapshot_names.txt` lists the arrays of a small life, each with its kind and number of dimensions. If a change of the
program changes this list, earlier snapshots cannot be resumed: after a release, increase
`record.snapshots.FORMAT_VERSION`. Then write the list again: `python -m tests.agent.test_formats`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from horde_agent import cli
from horde_agent.record import read, snapshots

KNOWN = Path(__file__).with_name("snapshot_names.txt")
OWN = """
[[family]]
policies = ["forward", "behaviour"]
gammas = [0.0, 0.9]
channels = ["light_0"]
"""


def names_of(folder: Path) -> str:
    """Live 60 steps of the planar simulator and return the arrays of its snapshot, as `KNOWN` has them."""
    (folder / "own.toml").write_text(OWN)
    words = f"learn --physics planar --steps 60 --questions {folder / 'own.toml'} --out {folder / 'run'}"
    assert cli.main(words.split()) == 0
    (path,) = snapshots.found(folder / "run" / "checkpoint")
    state = snapshots.read(path).state
    return "".join(f"{name} {state[name].dtype.kind}{state[name].ndim}\n" for name in sorted(state))


def test_no_part_of_a_snapshot_changes_unnoticed(tmp_path: Path) -> None:
    found, known = set(names_of(tmp_path).splitlines()), set(KNOWN.read_text().splitlines())
    assert sorted(found - known) == sorted(known - found) == [], __doc__


@pytest.mark.parametrize("version", [1, 3])
def test_a_record_of_another_version_is_refused(version: int, tmp_path: Path) -> None:
    path = tmp_path / "life.rec"
    path.write_text(json.dumps({"format": "horde-life", "version": version}) + "\n")
    with pytest.raises(ValueError, match=f"version {version} of the format horde-life, expected 2: read it with"):
        read(path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as elsewhere:
        KNOWN.write_text(names_of(Path(elsewhere)))
