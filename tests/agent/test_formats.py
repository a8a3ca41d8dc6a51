"""A snapshot of another format is brought up to this one, or refused by name; and no part changes its format unnoticed.

`snapshot_names.txt` lists the arrays of a small life, each with its kind and number of dimensions. Where a change of
the program makes this list another, lives of the version before can no longer be resumed as they are: raise the part's
number in `formats.NOW`, write a migration, and write the list anew: `python -m tests.agent.test_formats`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.record import snapshots
from horde_agent.record.snapshots import Snapshot
from horde_agent.runs import formats
from horde_agent.runs.config import BadInput
from horde_agent.runs.formats import NOW, brought_up, part_of
from horde_agent.runs.run_folder import own_version
from horde_agent.saving import State

KNOWN = Path(__file__).with_name("snapshot_names.txt")
OWN = """
[[family]]
policies = ["forward", "behaviour"]
gammas = [0.0, 0.9]
channels = ["light_0"]
"""


def names_of(folder: Path) -> str:
    """Live 60 steps of the planar simulator and return formats and arrays of its snapshot, as `KNOWN` has them."""
    (folder / "own.toml").write_text(OWN)
    words = f"learn --physics planar --steps 60 --questions {folder / 'own.toml'} --out {folder / 'run'}"
    assert cli.main(words.split()) == 0
    (path,) = snapshots.found(folder / "run" / "checkpoint")
    kept = snapshots.read(path)
    assert kept.facts["formats"] == NOW
    arrays = sorted((part_of(name), name, array.dtype.kind, array.ndim) for name, array in kept.state.items())
    lines = [f"{part} {NOW[part]}: {name} {kind}{n}" for part, name, kind, n in arrays]
    return "\n".join(lines) + "\n"


def test_no_part_of_a_snapshot_changes_without_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "write_report", lambda path: path / "report.html")
    found, known = set(names_of(tmp_path).splitlines()), set(KNOWN.read_text().splitlines())
    assert sorted(found - known) == sorted(known - found) == [], __doc__


def snapshot(told: dict[str, int] | None) -> Snapshot:
    """Return a snapshot of a few numbers, whose parts are in these formats."""
    state = {"life/steps": np.array(7), "life/student/own/n": np.array(3), "sampler/next": np.array(1000)}
    facts = {"version": "0.9"} if told is None else {"version": "0.9", "formats": told}
    return Snapshot(Path("000000000007"), state, facts)


def test_a_part_goes_through_every_format_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 1, where `n` counted, to 2, where it is named `n_steps`, to 3, where it is a float; the others stay."""

    def renamed(state: State) -> State:
        return {name.replace("own/n", "own/n_steps"): array for name, array in state.items()}

    def as_float(state: State) -> State:
        return {name: array.astype(np.float64) for name, array in state.items()}

    monkeypatch.setitem(formats.NOW, "student", 3)
    monkeypatch.setitem(formats.MIGRATIONS, ("student", 1), renamed)
    monkeypatch.setitem(formats.MIGRATIONS, ("student", 2), as_float)
    for told, dtype in (({"student": 1}, float), ({"student": 2}, float), ({"student": 3}, int)):
        state = brought_up(snapshot({**dict.fromkeys(NOW, 1), **told}), "RUN").state
        name = "life/student/own/n_steps" if told["student"] == 1 else "life/student/own/n"
        assert state[name].tolist() == 3
        assert state[name].dtype == dtype
        assert set(state) == {"life/steps", name, "sampler/next"}


def test_a_snapshot_that_tells_no_formats_is_of_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = snapshot(None)
    assert brought_up(kept, "RUN").state == kept.state
    monkeypatch.delitem(formats.MIGRATIONS, ("life", 0))
    with pytest.raises(BadInput) as refusal:
        brought_up(kept, "RUN")
    assert str(refusal.value) == (
        f"000000000007 has its part 'life' in format 0, and this version, {own_version()}, reads none before 1: resume "
        "it with version 0.9, which wrote it, or learn from its record again: horde learn --backend replay --log RUN"
    )


@pytest.mark.parametrize(("part", "number"), [("horde", 2), ("dreams", 1)])
def test_a_format_that_is_newer_than_this_program_is_refused_by_name(part: str, number: int) -> None:
    """Also that of a part which this program does not have."""
    with pytest.raises(BadInput, match=f"part '{part}' in format {number}, and this version, .* knows formats up to"):
        brought_up(snapshot({**NOW, part: number}), "RUN")


def test_a_record_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    from horde_agent.record import read

    path = tmp_path / "life.rec"
    path.write_text(json.dumps({"format": "horde-life", "version": 3}) + "\n")
    with pytest.raises(
        ValueError, match="is of version 3 of the format horde-life, and this program reads versions up"
    ):
        read(path)


def test_a_snapshot_without_formats_has_its_signals_renamed() -> None:
    """As lives of before November 2026 have them; no other array is touched."""
    old = [f"told_{name}" for name in ("rho", "c", "gamma", "lam", "z", "anew")] + ["alarm", "theta"]
    new = [f"signal_{name}" for name in ("rho", "c", "gamma", "lam", "z", "changes")] + ["flags", "theta"]
    state = {f"life/student/horde/engine/{name}": np.array(k) for k, name in enumerate(old)}
    state["life/world/alarm"] = np.array(9)
    kept = brought_up(Snapshot(Path("000000000007"), state, {"version": "0.1.0"}), Path("run"))
    expected = {f"life/student/horde/engine/{name}": k for k, name in enumerate(new)} | {"life/world/alarm": 9}
    assert {name: int(array) for name, array in kept.state.items()} == expected
    known = KNOWN.read_text()
    assert all(f"life/student/horde/engine/{name} " in known for name in new), "which are those of now"


def test_of_older_lives_the_last_mean_stays() -> None:
    """Three excursions, whose means were in the snapshot."""
    errors = "life/student/errors/"
    state = {f"{errors}steps": np.array([5, 9, 13]), f"{errors}online_means": np.array([np.nan, 0.5, 0.25])}
    kept = brought_up(Snapshot(Path("000000000020"), state, {"formats": {**NOW, "student": 1}}), Path("run")).state
    assert {name: array.tolist() for name, array in kept.items()} == {
        f"{errors}n_excursions": 3,
        f"{errors}latest_mean": 0.25,
    }
    none = {f"{errors}steps": np.zeros(0, np.int64), f"{errors}online_means": np.zeros(0)}
    kept = brought_up(Snapshot(Path("000000000020"), none, {"formats": {**NOW, "student": 1}}), Path("run")).state
    assert np.isnan(kept[f"{errors}latest_mean"])


def test_a_gauge_that_counted_no_held_steps_begins_its_count() -> None:
    """Only the gauge of this package's environments has the flag; any other body's numbers stay as they are."""
    gauge = "life/world/gauge/"
    state = {f"{gauge}is_low": np.array(True), f"{gauge}_lowest_v": np.array(14.2), "life/world/is_low": np.array(3)}
    kept = brought_up(Snapshot(Path("000000000020"), state, {"formats": {**NOW, "world": 1}}), Path("run")).state
    assert {name: array.item() for name, array in kept.items()} == {
        f"{gauge}_is_below": True,
        f"{gauge}_n_held": 0,
        f"{gauge}_lowest_v": 14.2,
        "life/world/is_low": 3,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as elsewhere:
        KNOWN.write_text(names_of(Path(elsewhere)))
