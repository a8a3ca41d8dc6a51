"""A changed byte in a record: every reader gives the same result, or says that something is damaged.

One run is read in eight ways: learned from again, reported without its tables, resumed, exported as
Parquet and MCAP, and learned from in its exports as Parquet, Minari and LeRobot. The ways to learn
must agree about the same damage.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from horde_agent.record import Recorder
from horde_agent.runs.warm import COMPILING
from tests.agent.commands import summary_of, toy

STEPS = 300
SETTINGS = f"--steps {STEPS} --horizon 8 --excursion-probability 0.05 --seed 1"
DAMAGE_WORDS = (
    "damaged",
    "cut off",
    "cannot",
    "does not",
    "differs",
    "missing",
    "is no ",
    "not from its snapshot",
)
TRACEBACK = -1
RECORDS = (
    "log/life.rec",
    "log/life-2.rec",
    "log/life-3.rec",
    "log/excursions.rec",
    "log/events.jsonl",
)


class Result(NamedTuple):
    """What a way of reading a run made of it."""

    code: int  # exit code
    value: object  # weights, or the contents of the export
    messages: str  # standard error and the log

    @property
    def speaks_of_damage(self) -> bool:
        return any(word in self.messages for word in DAMAGE_WORDS)


@contextmanager
def collected_messages() -> Iterator[io.StringIO]:
    """Collect standard error and warnings of the log."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with redirect_stderr(text), redirect_stdout(io.StringIO()):
            yield text
    finally:
        root.removeHandler(handler)


class Weights(NamedTuple):
    """What was learned, by the summary."""

    sha256: str
    learning_steps: int


def weights_of(run: Path) -> Weights:
    summary = summary_of(run)
    return Weights(summary["weights_sha256"], summary["learning_steps"])


def fingerprint(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


class Reading:
    """Reads one run, as it is now, in all ways; `here` is an empty folder."""

    def __init__(self, run: Path, here: Path, patch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.here = here
        self.patch = patch

    def _command(self, words: str, value: Callable[[], object]) -> Result:
        with collected_messages() as messages:
            try:
                code = toy(words, self.patch)
            except Exception as error:
                return Result(TRACEBACK, repr(error), "")
        result = None
        if code == 0:
            result = value()
        return Result(code, result, messages.getvalue().replace(COMPILING, ""))

    def learn_again(self) -> Result:
        out = self.here / "again"
        return self._command(
            f"learn --backend replay --log {self.run} --out {out}", lambda: weights_of(out)
        )

    def report(self) -> Result:
        """Without tables and snapshots, so that they are learned again from the first row."""
        copy = self.here / "reported"
        shutil.copytree(self.run, copy)
        for name in ("summary.json", "questions.csv"):
            (copy / name).unlink()
        shutil.rmtree(copy / "checkpoint")
        result = self._command(f"report {copy}", lambda: weights_of(copy))
        page = copy / "report.html"
        if page.exists():
            noted = page.read_text().partition("Missing or damaged")[2].partition("</ul>")[0]
            result = result._replace(messages=result.messages + noted.replace("summary.json", ""))
        return result

    def resume(self) -> Result:
        copy = self.here / "resumed"
        shutil.copytree(self.run, copy)
        return self._command(f"resume {copy} --steps {STEPS + 40}", lambda: weights_of(copy))

    def parquet(self) -> Result:
        dataset = pytest.importorskip("pyarrow.dataset")
        out = self.here / "parquet"

        def contents() -> str:
            columns = (
                dataset.dataset(out, partitioning="hive").to_table().sort_by("step").to_pydict()
            )
            events = dataset.dataset(self.here / "parquet-events.parquet").to_table().to_pydict()
            return fingerprint(repr(columns).encode(), repr(events).encode())

        return self._command(f"export {self.run} --out {out}", contents)

    def mcap(self) -> Result:
        pytest.importorskip("mcap")
        out = self.here / "life.mcap"
        return self._command(
            f"export {self.run} --to mcap --out {out}", lambda: fingerprint(out.read_bytes())
        )

    def learn_from_export(self, kind: str, source: str) -> Result:
        """Export a data set, and return the weights that `horde learn` learns from it, with the export's messages."""
        out = self.here / kind
        run = self.here / f"from-{kind}"
        messages = ""
        if not out.exists():
            exported = self._command(f"export {self.run} --to {kind} --out {out}", lambda: None)
            messages = exported.messages
            if exported.code:
                return exported
        # With Minari, `export` sets the environment variable for itself alone.
        self.patch.setenv("MINARI_DATASETS_PATH", str(out))
        words = (
            f"learn {source.format(out)} --out {run} --questions excursions --horizon 8 --seed 1"
        )
        learned = self._command(words, lambda: weights_of(run))
        return learned._replace(messages=messages + learned.messages)

    def all(self) -> dict[str, Result]:
        results = {
            "learn --backend replay": self.learn_again(),
            "report": self.report(),
            "resume": self.resume(),
            "export --to parquet": self.parquet(),
            "export --to mcap": self.mcap(),
        }
        # Messages of this export are those above.
        learned = self.learn_from_export("parquet", "--data {0} --columns {0}-columns.toml")
        messages = results["export --to parquet"].messages + learned.messages
        results["learn from Parquet"] = learned._replace(messages=messages)
        if results["export --to parquet"].code:
            results["learn from Parquet"] = results["export --to parquet"]
        results["learn from Minari"] = self.learn_from_export("minari", "--minari horde/run-v0")
        results["learn from LeRobot"] = self.learn_from_export("lerobot", "--data {0}")
        return results


OF_ALL_ROWS = ("learn --backend replay", "report", "learn from Parquet")
OF_EPISODES = ("learn from Minari", "learn from LeRobot")
"""Data sets without the rows of excursions and drives. They begin a stream less often after damage, which changes the
order of sums, so weights are equal up to rounding only; they are the same, to the bit, without
damage."""


def silently_different(found: dict[str, Result], sound: dict[str, Result]) -> list[str]:
    """Return the ways whose result differs from that of the sound record without a word, or from each other's."""
    silent = []
    for way, result in found.items():
        is_same = result.code == sound[way].code and result.value == sound[way].value
        if not is_same and not result.speaks_of_damage:
            silent.append(way)
    silent += [
        f"{way}: {result.value}" for way, result in found.items() if result.code == TRACEBACK
    ]
    learned = {
        way: found[way].value for way in (*OF_ALL_ROWS, *OF_EPISODES) if found[way].code == 0
    }
    for ways in (OF_ALL_ROWS, OF_EPISODES):
        weights = {learned[way] for way in ways if way in learned}
        if len(weights) > 1:
            silent.append(f"different weights: {learned}")
    steps = {weights.learning_steps for weights in learned.values() if isinstance(weights, Weights)}
    if len(steps) > 1:
        silent.append(f"different numbers of learning steps: {learned}")
    return silent


@pytest.fixture(scope="module")
def flipped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose record has three files."""
    run = tmp_path_factory.mktemp("flips") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Recorder.__init__.__kwdefaults__, "segment_s", 12.0)  # type: ignore[arg-type]
        assert toy(f"learn {SETTINGS} --out {run}", patch) == 0
    assert [name for name in RECORDS if not (run / name).is_file()] == []
    return run


def test_lost_first_lines_of_all_files_of_rows_and_excursions_are_written_again(
    flipped_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of rows say how many are before them."""
    run = tmp_path / "run"
    shutil.copytree(flipped_run, run)
    files = [run / name for name in RECORDS if name.endswith(".rec")]
    sound = [file.read_bytes() for file in files]
    for file, content in zip(files, sound, strict=True):
        end = content.index(b"\n") + 1
        file.write_bytes(b"\xff" * end + content[end:])
    assert toy(f"doctor {run}", monkeypatch) == 0
    assert [file.read_bytes() for file in files] == sound


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n", [2, pytest.param(300, marks=pytest.mark.slow)])
def test_no_changed_byte_of_a_record_changes_a_result_silently(
    n: int, flipped_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte is replaced by another one, at a random place of a file that is chosen by its size."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(47)
    sound = Reading(flipped_run, tmp_path / "sound", monkeypatch)
    sound.here.mkdir()
    expected = sound.all()
    assert {way: result.code for way, result in expected.items()} == dict.fromkeys(expected, 0)
    assert not any(result.speaks_of_damage for result in expected.values()), expected
    assert len({expected[way].value for way in (*OF_ALL_ROWS, *OF_EPISODES)}) == 1

    files = [flipped_run / name for name in RECORDS]
    sizes = np.array([file.stat().st_size for file in files])
    silent: dict[tuple[str, int, int, int], list[str]] = {}
    for k in range(n):
        file = files[int(rng.choice(len(files), p=sizes / sizes.sum()))]
        content = file.read_bytes()
        stamp = file.stat()
        place = int(rng.integers(len(content)))
        changed = content[place] ^ int(rng.integers(1, 256))
        file.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
        folder = tmp_path / f"{k}"
        folder.mkdir()
        differences = silently_different(Reading(flipped_run, folder, monkeypatch).all(), expected)
        if differences:
            silent[file.name, place, content[place], changed] = differences
        shutil.rmtree(folder)
        file.write_bytes(content)
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert silent == {}
