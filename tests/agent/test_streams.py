"""Streams: rows of another program are learned from as they come."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from horde_agent import Horde, Interface, StreamRun, cli, questions
from horde_agent.cli import learn
from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.formats.tables import Table
from horde_agent.life.learner import predict_along
from horde_agent.record import Flag, read
from horde_agent.refusals import BadInput
from horde_agent.runs.reporting.report import write_report
from horde_agent.runs.sources import line_reader
from horde_agent.runs.sources.followed_file import FollowedFile
from horde_agent.runs.sources.followed_folder import followed_folder
from horde_agent.runs.sources.line_reader import LineReader
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import read_frozen
from horde_agent.runs.storage.question_table import read_questions
from horde_agent.runs.storage.resume import open_trained
from horde_agent.runs.storage.run import HeaderEnv
from horde_agent.scoring.excursion_table import ExcursionTable
from tests.agent.bags import SECOND_NS, START_NS, Recorded, write_json
from tests.agent.commands import summary_of
from tests.agent.kills import FORKS, rows_of, run_command

DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = """
period_s = 0.1
time = "t"
action = "a"
b = "p"
actions = ["left", "right"]
[[channel]]
column = "x"
low = 0.0
high = 1.0
[[channel]]
column = "y"
low = 0.0
high = 1.0
"""
OF_BAGS = """
period_s = 0.1
action = { topic = "/command", field = "a" }
b = { topic = "/command", field = "p" }
actions = ["left", "right"]
[[channel]]
topic = "/state"
field = "x"
name = "x"
low = 0.0
high = 1.0
[[channel]]
topic = "/slow"
field = "y"
name = "y"
low = 0.0
high = 1.0
"""
OF_EPISODES = 'episode = "e"\nterminated = "end"\nnext_reward = "r"\n'


def as_bytes(line: str | bytes) -> bytes:
    """Return a line, text or not, as bytes."""
    if isinstance(line, str):
        return line.encode()
    return line


def rows(n: int = 300) -> dict[str, np.ndarray]:
    """Two actions with b = .25 and .75; x is a running mean of the actions, y a sawtooth; 10 rows an episode."""
    rng = np.random.default_rng(3)
    actions = (rng.random(n) < 0.75).astype(int)
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = 0.9 * x[t - 1] + 0.1 * actions[t - 1]
    return {
        "t": np.arange(n) / 10,
        "x": x.round(3),
        "y": (np.arange(n) % 7) / 8,
        "a": actions,
        "p": np.where(actions == 1, 0.75, 0.25),
        "e": np.arange(n) // 10,
        "end": np.arange(n) % 10 == 9,
        "r": rng.random(n).round(2),
    }


def csv_lines(table: dict[str, np.ndarray]) -> list[str]:
    columns = [column.tolist() for column in table.values()]
    return [",".join(table), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]


def json_lines(table: dict[str, np.ndarray]) -> list[str]:
    columns = [column.tolist() for column in table.values()]
    return [json.dumps(dict(zip(table, row, strict=True))) for row in zip(*columns, strict=True)]


class Folder:
    """A folder in which commands run, with a columns file and standard input."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._patch = patch
        patch.chdir(path)
        # Tables and weights are compared: a report takes longer than its run
        patch.setattr(learn, "write_report", lambda run: run / "report.html")
        self.describe(COLUMNS)

    def describe(self, columns: str) -> None:
        (self.path / "columns.toml").write_text(columns)

    def run(self, words: str, lines: Iterable[str | bytes] = ()) -> int:
        """Run a command with these lines on standard input."""
        data = b"".join(as_bytes(line) + b"\n" for line in lines)
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return cli.main(words.split())

    def weights(self, run: str) -> str:
        return str(summary_of(run)["weights_sha256"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


LEARN = "learn - --columns columns.toml"


def without_ends(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the table with empty actions in the last rows of episodes, of which nothing else tells."""
    ends = table["end"]
    table["a"] = np.where(ends, "", table["a"].astype(str))
    return table


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        pytest.param("", dict, id="one episode"),
        pytest.param('episode = "e"\nnext_reward = "r"\n', without_ends, id="episodes by number"),
        pytest.param(OF_EPISODES + 'convention = "transition"\n', dict, id="transitions"),
        pytest.param('episode_step = "y"\n', dict, id="a counter"),
        pytest.param('truncated = "end"\nmissing = "gap"\n', dict, id="time limits"),
    ],
)
def test_a_stream_is_recorded_and_learned_as_the_table_of_its_rows(
    keys: str, change: Any, folder: Folder
) -> None:
    """Lines that come one by one give the rows and the weights of the whole table, to the bit.

    If each row were complete when it comes, the last rows of episodes would have actions.
    """
    folder.describe(keys + COLUMNS)
    lines = csv_lines(change(rows()))
    (folder.path / "table.csv").write_text("\n".join(lines) + "\n")

    assert folder.run(f"{LEARN} --out stream", lines) == 0
    assert folder.run("learn --data table.csv --columns columns.toml --out table") == 0

    assert folder.weights("stream") == folder.weights("table")
    streamed, of_table = (read(Path(run) / "log" / "life.rec").rows for run in ("stream", "table"))
    for name in set(of_table.dtype.names) - {"unix_s", "crc"}:
        np.testing.assert_array_equal(streamed[name], of_table[name], err_msg=name)
    assert np.isfinite(streamed["unix_s"]).all()


def test_objects_are_read_as_the_lines_of_a_table(folder: Folder) -> None:
    """The keys of an object stand in any order, and those that no column names are not read."""
    table = rows(60)
    objects = json_lines(dict(reversed(table.items())))

    assert folder.run(f"{LEARN} --out csv", csv_lines(table)) == 0
    assert folder.run(f"{LEARN} --out json", objects) == 0

    assert folder.weights("json") == folder.weights("csv")


def test_a_cell_that_is_not_there_is_a_missing_reading(folder: Folder) -> None:
    """A key that an object lacks is an empty cell of a table: a row without one reading is a row."""
    table = rows(60)
    objects = [json.loads(line) for line in json_lines(table)]
    del objects[20]["x"]
    lines = csv_lines(table)
    lines[21] = lines[21].replace(",".join(lines[21].split(",")[:2]), "2.0,", 1)

    assert folder.run(f"{LEARN} --out csv", lines) == 0
    assert folder.run(f"{LEARN} --out json", map(json.dumps, objects)) == 0

    recorded = read(Path("json/log/life.rec")).rows
    assert np.argwhere(np.isnan(recorded["observation"])).tolist() == [[20, 0]]
    assert summary_of("json")["gaps"] == 0
    assert folder.weights("json") == folder.weights("csv")


def test_a_header_may_come_again_in_another_order(folder: Folder) -> None:
    """A program that was started again writes its header again; by the first one, y would be read as x."""
    table = rows(60)
    lines = csv_lines(table)
    reversed_lines = csv_lines(dict(reversed(table.items())))

    assert folder.run(f"{LEARN} --out first", lines) == 0
    assert (
        folder.run(f"{LEARN} --out again", [*lines[:31], reversed_lines[0], *reversed_lines[31:]])
        == 0
    )

    assert folder.weights("again") == folder.weights("first")


def test_actions_by_name_teach_what_their_numbers_teach(folder: Folder) -> None:
    """In CSV, in JSON, and in Python."""
    table = rows(60)
    names = table | {"a": np.array(["left", "right"])[table["a"]]}
    assert folder.run(f"{LEARN} --horizon 10 --out numbers", csv_lines(table)) == 0
    assert folder.run(f"{LEARN} --horizon 10 --out csv", csv_lines(names)) == 0
    assert folder.run(f"{LEARN} --horizon 10 --out json", json_lines(names)) == 0
    with stream_run(out="python of numbers", questions="excursions") as learner:
        give(learner, table, 0, 60)
    with stream_run(out="python", questions="excursions") as learner:
        for t in range(60):
            observation = [table["x"][t], table["y"][t]]
            learner.row(observation, str(names["a"][t]), table["p"][t], table["t"][t])

    assert summary_of("numbers")["learning_steps"] == 59
    assert folder.weights("csv") == folder.weights("json") == folder.weights("numbers")
    assert folder.weights("python") == folder.weights("python of numbers")


def test_a_row_of_texts_alone_is_no_header(folder: Folder) -> None:
    """21 rows of a category and an action by name have 20 transitions, and all are learned."""
    folder.describe(
        'period_s = 0.1\naction = "a"\nactions = ["left", "right"]\n[[channel]]\ncolumn = "x"\n'
        'categories = ["dry", "wet"]\n'
    )
    lines = ["x,a", *(f"{('dry', 'wet')[t % 3 % 2]},{('left', 'right')[t % 2]}" for t in range(21))]

    assert folder.run(f"{LEARN} --questions nexting --out run", lines) == 0

    assert summary_of("run")["learning_steps"] == 20


def known_predictions(table: dict[str, np.ndarray]) -> list[list[float]]:
    """Return the predictions of a Horde that learns from each row, shape (n_rows, n_questions)."""
    described = Table(lambda: (), Columns.read(Path("columns.toml")), "rows")
    interface = Interface.of(HeaderEnv(described.header))
    horde = Horde(
        questions.excursions(interface),
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
    )
    observations = np.column_stack([table["x"], table["y"]]).astype(np.float32)
    tiles = [interface.encode(observation) for observation in observations]
    predictions = [horde.begin(observations[0], tiles[0]).tolist()]
    for t in range(1, len(observations)):
        action = int(table["a"][t - 1])
        b = float(table["p"][t - 1])
        predictions.append(horde.learn(action, b, observations[t], tiles[t]).tolist())
    return predictions


class Program(threading.Thread):
    """Another program: it writes a row when it has the answer to the one before.

    Attributes:
        answers: The lines that it received.
    """

    def __init__(self, lines: Sequence[str], n_before: int, server: socket.socket) -> None:
        super().__init__(daemon=True)
        self.answers: list[dict[str, Any]] = []
        read_end, self._write_end = os.pipe()
        self.rows = os.fdopen(read_end, "rb")
        self._lines = lines
        self._n_before = n_before
        self._server = server

    def run(self) -> None:
        with os.fdopen(self._write_end, "wb", buffering=0) as pipe:
            for line in self._lines[: self._n_before]:
                pipe.write(line.encode() + b"\n")
            connection, _ = self._server.accept()
            connection.settimeout(60.0)
            with connection, connection.makefile("rb") as answers:
                for line in self._lines[self._n_before :]:
                    pipe.write(line.encode() + b"\n")
                    self.answers.append(json.loads(answers.readline()))


def test_the_predictions_at_a_row_come_before_the_next_row(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that waits for each answer gets it: a Horde that waited for the next row would stand still.

    The predictions are those after learning the transition to the row.
    """
    table = rows(40)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("answers")
        server.listen()
        program = Program(csv_lines(table), 1, server)
        program.start()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=program.rows))

        with program.rows:
            words = f"{LEARN} --predictions answers --predict right/* --out run"
            assert cli.main(words.split()) == 0
        program.join(60.0)

    names = [f"right/g{gamma}/{channel}" for gamma in ("0", "0.5", "0.8") for channel in "xy"]
    assert [answer["time"] for answer in program.answers] == (np.arange(40) / 10).tolist()
    answers = [[answer["predictions"][name] for name in names] for answer in program.answers]
    expected = np.array(known_predictions(table))[:, 6:]
    np.testing.assert_allclose(answers, expected, rtol=1e-8)


UNREADABLE = {
    "an action of none": ("0.5,.5,.5,2,.5,0,False,0", "2 must be a whole number in 0..1"),
    "a probability of none": ("0.5,.5,.5,1,1.5,0,False,0", "1.5 must be in (0, 1]"),
    "a time that goes back": ("0.2,.5,.5,1,.5,0,False,0", "0.2 must increase"),
    "a time again": ("0.4,.5,.5,1,.5,0,False,0", "0.4 must increase"),
    "too few cells": ("0.5,.5", "cells: 2 and"),
    "bytes": (b"\xff\xfe\x00,\x93", "no UTF-8"),
    "a text": ("0.5,warm,.5,1,.5,0,False,0", "'warm' must be a finite number"),
    "a quote without an end": ('0.5,".5,.5,1,.5,0,False,0', "unexpected end of data"),
    "a line of 100 MB": (b"9" * 100_000_000, "a line of more than 16,777,216 bytes"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_row_that_cannot_be_read_is_a_gap_with_its_number_and_text(
    kind: str, folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of 21 rows, of which the sixth is unreadable, 18 transitions are learned: neither to it nor from it."""
    table = {name: np.delete(column, 5) for name, column in rows(21).items()}
    lines: list[str | bytes] = [*csv_lines(table)]
    line, why = UNREADABLE[kind]
    lines.insert(6, line)

    assert folder.run(f"{LEARN} --out run", lines) == 0

    (message,) = [text for text in capfd.readouterr().err.splitlines() if "left out" in text]
    assert why in message
    assert "row 6 is left out" in message
    shown = as_bytes(line).decode(errors="backslashreplace")
    assert repr(shown[:60])[1:20] in message
    assert summary_of("run")["learning_steps"] == 18
    assert summary_of("run")["gaps"] == 1
    assert json.loads(Path("run/details.json").read_text())["n_unreadable"] == 1


def test_an_object_of_other_columns_is_no_row_that_lacks_its_readings(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of 20 rows in the middle, none is learned from; with one column of two they are rows that lack a reading."""
    folder.describe("period_s = 0.1\n" + COLUMNS[COLUMNS.index("[[channel]]") :])
    lines = [json.dumps({"x": 0.5, "y": t / 60}) for t in range(60)]
    strange_lines = [json.dumps({"u": 0.5, "v": t / 60}) for t in range(20)]
    halves = [json.dumps({"x": 0.5, "v": t / 60}) for t in range(20)]
    words = f"{LEARN} --questions nexting"

    assert folder.run(f"{words} --out others", [*lines[:20], *strange_lines, *lines[40:]]) == 0
    assert "the object has no column 'x'; there are u, v" in capfd.readouterr().err
    assert folder.run(f"{words} --out halves", [*lines[:20], *halves, *lines[40:]]) == 0

    assert summary_of("others")["learning_steps"] == 19 + 19
    assert summary_of("halves")["learning_steps"] == 59


def test_a_reader_of_predictions_that_disconnects_ends_no_run(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It closes its end after the first answer, before the other rows come: one sentence, and all are learned from."""
    header, *lines = csv_lines(rows(40))
    read_end, write_end = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("answers")
        server.listen()

        def write() -> None:
            with os.fdopen(write_end, "wb", buffering=0) as pipe:
                pipe.write(f"{header}\n{lines[0]}\n".encode())
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as answers:
                    assert json.loads(answers.readline())["time"] == 0.0
                pipe.write("\n".join(lines[1:]).encode())

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        with os.fdopen(read_end, "rb") as pipe:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=pipe))
            assert cli.main(f"{LEARN} --predictions answers --out run".split()) == 0
        thread.join(60.0)

    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "predictions cannot be written to answers (Broken pipe): no further ones are; learning continues"
    )
    assert summary_of("run")["learning_steps"] == 39


def test_rows_below_a_header_of_other_columns_are_left_out(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """Read by the first header, 20 further rows would be learned from."""
    lines = csv_lines(rows(41))

    code = folder.run(f"{LEARN} --out run", [*lines[:21], "time,u,v,w,z,f,g,h", *lines[21:]])

    assert code == 0
    assert summary_of("run")["learning_steps"] == 19
    assert "continues with other columns, of which none is 'x'" in capfd.readouterr().err


def test_a_thousand_unreadable_rows_in_a_row_end_a_run(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """With other rows among them they do not; without any row before them, nothing is left."""
    garbage = ["?"] * 999
    lines = csv_lines(rows(41))
    once_again = [*lines[:21], *garbage, *lines[21:31], *garbage, *lines[31:]]

    assert folder.run(f"{LEARN} --out run", once_again) == 0
    assert summary_of("run")["learning_steps"] == 19 + 9 + 10
    assert capfd.readouterr().err.count("left out") == 1
    assert folder.run(f"{LEARN} --out ended", [*lines[:21], *garbage, "?", *lines[21:]]) == 1
    assert "1,000 rows of standard input in a row cannot be read" in capfd.readouterr().err
    assert summary_of("ended")["learning_steps"] == 19
    assert json.loads(Path("ended/details.json").read_text())["ended_by"] == "unreadable"
    assert folder.run(f"{LEARN} --out none", [lines[0], *garbage, "?"]) == 1
    assert not Path("none").exists()


REFUSED = {
    "no columns file": ("learn -", COLUMNS, "needs --columns FILE.toml"),
    "a column that is not there": (LEARN, COLUMNS.replace('"y"', '"z"'), "no column 'z'"),
    "no range": (LEARN, COLUMNS.replace("high = 1.0", ""), "gives no range of 'x'"),
    "no names": (LEARN, COLUMNS.replace('actions = ["left", "right"]', ""), "name the actions"),
    "no b": (LEARN, COLUMNS.replace('b = "p"', 'b = "estimate"'), "needs a whole table"),
    "two passes": (f"{LEARN} --passes 2", COLUMNS, "a stream passes once"),
    "no such question": (
        f"{LEARN} --predictions p --predict no*",
        COLUMNS,
        "no question's name matches",
    ),
    "no place for predictions": (f"{LEARN} --predictions no/p", COLUMNS, "cannot be written"),
    "no predictions": (f"{LEARN} --predict *", COLUMNS, "needs --predictions"),
    "another period": (LEARN, COLUMNS.replace("0.1", "1.0"), "median time between rows is 0.1 s"),
    "no stream": ("learn --data t.csv --columns columns.toml --predictions p", COLUMNS, "omit it"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_stream_that_cannot_be_is_refused_in_a_sentence(
    kind: str, folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a run is left."""
    words, columns, why = REFUSED[kind]
    folder.describe(columns)

    assert folder.run(f"{words} --out run", csv_lines(rows())) == 2

    *_, sentence = capfd.readouterr().err.splitlines()
    assert why in sentence
    assert not Path("run").exists()


def test_an_empty_stream_is_refused(folder: Folder) -> None:
    assert folder.run(f"{LEARN} --out run") == 2
    assert folder.run(f"{LEARN} --out run", csv_lines(rows())[:1]) == 2
    assert not Path("run").exists()


class Bursts:
    """A pipe in which pieces are there at their times; reading one waits for it."""

    def __init__(self, *pieces: tuple[float, bytes]) -> None:
        self._pieces = list(pieces)
        self.now_s = 0.0

    def read1(self, size: int, /) -> bytes:
        if not self._pieces:
            return b""
        at_s, data = self._pieces.pop(0)
        self.now_s = max(self.now_s, at_s)
        return data


def test_lines_are_put_together_and_say_for_how_long_none_was_there() -> None:
    """A line is there when its end is; of two that come together, the second one did not wait."""
    pipe = Bursts((1.0, b"a\r\nb"), (4.0, b"b\nccc\n"), (4.5, b"dd"))

    lines = list(LineReader(pipe, clock=lambda: pipe.now_s))

    assert [(line.data, line.silent_s) for line in lines] == [
        (b"a", 1.0),
        (b"bb", 3.0),
        (b"ccc", 0.0),
        (b"dd", 0.5),
    ]


def test_a_command_ends_while_its_pipe_is_open() -> None:
    """A thread waits for the next row. With the lock of a buffer Python would abort, exit code -6."""
    program = (
        "from horde_agent.runs.sources.line_reader import LineReader, standard_input\n"
        "reader = LineReader(standard_input())\n"
        "lines = iter(reader)\n"
        "print(next(lines).data, flush=True)\n"
        "reader.stop()\n"
        "assert list(lines) == []\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a row\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"b'a row'\n"
        assert process.wait(60) == 0


def test_the_rest_of_a_line_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept whole, a line of 100 MB would take ten times the memory of the longest row."""
    monkeypatch.setattr(line_reader, "MOST_BYTES", 10)
    pipe = Bursts(*[(0.0, b"12345678")] * 100, (0.0, b"\nshort\n"))

    first, second = LineReader(pipe)

    assert first.is_cut
    assert len(first.data) <= 10 + 8
    assert (second.data, second.is_cut) == (b"short", False)


@pytest.mark.parametrize("has_times", [False, True])
def test_a_producer_that_is_silent_for_an_hour_and_goes_on_leaves_a_gap(
    has_times: bool,
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By arrival or by times: of 20 rows, the tenth comes after an hour, so 18 transitions are learned, not 19.

    It is said once.
    """
    table = rows(20)
    table["t"][9:] += 3_600.0
    if not has_times:
        folder.describe(COLUMNS.replace('time = "t"', ""))
    lines = [line.encode() + b"\n" for line in csv_lines(table)]
    pipe = Bursts((0.0, b"".join(lines[:10])), (3_600.0, b"".join(lines[10:])))
    reader = LineReader(pipe, clock=lambda: pipe.now_s)
    monkeypatch.setattr("horde_agent.runs.sources.streamed_rows.LineReader", lambda _: reader)

    assert folder.run(f"{LEARN} --out run") == 0

    assert summary_of("run")["learning_steps"] == 18
    assert summary_of("run")["gaps"] == 1
    (gap,) = np.flatnonzero(read(Path("run/log/life.rec")).rows["flags"][1:] & Flag.GAP)
    assert gap == 8
    sentence = "standard input gave no row for 3,600 s, so row 10 follows a gap"
    assert capfd.readouterr().err.count(sentence) == 1


def test_rows_that_come_faster_than_they_are_learned_from_wait_and_that_is_said_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a clock in which each piece waits ten seconds to be taken, in memory; all rows are learned from."""
    pieces = [(0.0, f"{line}\n".encode()) for line in csv_lines(rows(40))]
    ticks = itertools.count(step=10)
    reader = LineReader(Bursts(*pieces), clock=lambda: float(next(ticks)))
    monkeypatch.setattr("horde_agent.runs.sources.streamed_rows.LineReader", lambda _: reader)

    assert folder.run(f"{LEARN} --out run") == 0

    assert (
        capfd.readouterr().err.count("has rows faster than they are learned from: they wait") == 1
    )
    assert summary_of("run")["learning_steps"] == 39
    assert summary_of("run")["gaps"] == 0


# ---- further rows ----------------------------------------------------------------------------------------------------

QUESTIONS = """
[[family]]
policies = ["left", "behaviour"]
gammas = [0.5, 0.8]
channels = ["x", "y"]
"""


def split(folder: Folder, at: int, n: int = 300) -> tuple[list[str], list[str]]:
    """Write a table and its two parts to files, and return the lines of the parts."""
    (folder.path / "questions.toml").write_text(QUESTIONS)
    header, *lines = csv_lines(rows(n))
    parts = [header, *lines[:at]], [header, *lines[at:]]
    for name, part in zip(("table", "first", "second"), ([header, *lines], *parts), strict=True):
        (folder.path / f"{name}.csv").write_text("\n".join(part) + "\n")
    return parts


OF_FILE = "learn --data {} --columns columns.toml --questions questions.toml --horizon 10"
SCORES = ("weights_sha256", "learning_steps", "steps", "gaps", "mean_nmsre", "n_excursions")


def same(run: str, other: str) -> None:
    """Check that two runs learned and tested the same, and have the same rows."""
    for key in SCORES:
        assert summary_of(run)[key] == summary_of(other)[key], key
    recorded, expected = (read(Path(name) / "log" / "life.rec").rows for name in (run, other))
    for name in set(expected.dtype.names or ()) - {"unix_s", "crc"}:
        np.testing.assert_array_equal(recorded[name], expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        pytest.param("", 137, id="within an episode"),
        pytest.param(OF_EPISODES + 'convention = "transition"\n', 137, id="within a short one"),
        pytest.param(OF_EPISODES + 'convention = "transition"\n', 140, id="after a terminal row"),
        pytest.param('episode = "e"\n', 140, id="after the last row of one"),
        pytest.param('episode_step = "y"\n', 138, id="within a tooth"),
        pytest.param('episode_step = "y"\n', 140, id="after a tooth"),
    ],
)
@pytest.mark.parametrize("more", ["second.csv", "-", "days"])
def test_a_run_on_data_continues_with_further_rows_as_with_one_table(
    keys: str, at: int, more: str, folder: Folder
) -> None:
    """History first, then further rows: weights, tests and rows are those of the whole table, to the bit.

    Also if they are in two files of a folder.

    If the last row of the first part ended its episode, a transition would be lost there, and the
    test of the behaviour that is under way.
    """
    folder.describe(keys + COLUMNS)
    _, second = split(folder, at)
    if more == "days":
        Path("days").mkdir()
        write_parquet(rows(), at, 203, "days/9.parquet")
        write_parquet(rows(), 203, 300, "days/10.parquet")

    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
    assert folder.run(OF_FILE.format("first.csv") + " --out run") == 0
    assert folder.run(f"resume run --data {more}", second) == 0

    same("run", "whole")


@pytest.mark.parametrize("more", ["-", "middle.csv", "middle.jsonl", "days"])
def test_a_stream_continues_with_further_rows_as_one(more: str, folder: Folder) -> None:
    """Three pieces, one after another, are one pipe: the second may be a file or a folder."""
    first, second = split(folder, 100)
    third = [second[0], *second[101:]]
    Path("middle.csv").write_text("\n".join(second[:101]) + "\n")
    Path("middle.jsonl").write_text("\n".join(json_lines(rows())[100:200]) + "\n")
    Path("days").mkdir()
    if more == "days":
        write_parquet(rows(), 100, 150, "days/9.parquet")
        write_parquet(rows(), 150, 200, "days/10.parquet")
    words = f"{LEARN} --questions questions.toml --horizon 10"

    assert folder.run(f"{words} --out whole", [*first, *second[1:]]) == 0
    assert folder.run(f"{words} --out run", first) == 0
    assert folder.run(f"resume run --data {more}", second[:101]) == 0
    assert folder.run("resume run --data -", third) == 0

    same("run", "whole")


def test_further_rows_that_do_not_continue_a_stream_leave_it_as_it_was(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are checked before one is learned from; a file that was followed has no place behind others."""
    header, *lines = csv_lines(rows(100))
    split(folder, 0)
    append("\n".join([header, *lines[:50]]) + "\n")
    Path("more.csv").write_text("\n".join([header, *lines[50:]]) + "\n")
    Path("again.csv").write_text("\n".join([header, *lines[50:90], lines[10]]) + "\n")
    Path("other.csv").write_text("t,x,z,a,p\n9.0,0,0,1,0.5\n9.1,0,0,1,0.5\n")
    words = f"{FOLLOW} --steps 49"
    assert folder.run(f"{words} --out run") == 0
    files = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    for more, why in (
        ("again.csv", "again.csv, row 41, column 't'"),
        ("other.csv", "no y any more: add lost:y to --channels"),
        ("none.csv", "does not exist"),
    ):
        assert folder.run(f"resume run --steps 99 --data {more}") == 2
        assert why in capfd.readouterr().err
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == files

    assert folder.run("resume run --steps 99 --data more.csv --predictions p") == 0
    assert summary_of("run")["learning_steps"] == 99
    assert len(Path("p").read_text().splitlines()) == 50
    assert folder.run("resume run --steps 200") == 2
    assert "was continued with other rows than those of log.csv" in capfd.readouterr().err


def test_a_history_without_actions_is_learned_as_a_whole_before_the_stream(folder: Folder) -> None:
    """Of 200 rows a table learns 140 and scores the others; the stream begins when they are learned, too.

    From then on stretches of the behaviour are tested: 299 transitions, ten terms each.
    """
    columns = COLUMNS.replace('action = "a"\nb = "p"\nactions = ["left", "right"]', "")
    folder.describe(columns)
    _, second = split(folder, 200)

    words = "learn --data first.csv --columns columns.toml --questions nexting --horizon 10"
    assert folder.run(f"{words} --out run") == 0
    assert summary_of("run")["learning_steps"] == 139
    assert folder.run("resume run --data -", second) == 0

    assert summary_of("run")["learning_steps"] == 299
    tests = json.loads(Path("run/details.json").read_text())["n_on_policy_tests"]
    assert tests == 9


def test_rows_that_do_not_continue_a_run_leave_it_as_it_was(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """An invalid row far down, other channels, several passes, no data set."""
    _, second = split(folder, 200)
    (folder.path / "invalid.csv").write_text(
        "\n".join([*second[:-1], second[-1].replace(",", ";")])
    )
    (folder.path / "other.csv").write_text("t,x,z,a,p\n30.0,0,0,1,0.5\n30.1,0,0,1,0.5\n")
    assert folder.run(OF_FILE.format("first.csv") + " --out run") == 0
    assert folder.run(OF_FILE.format("first.csv") + " --passes 2 --out passes") == 0
    recorded = read(Path("run/log/life.rec")).rows.tobytes()
    capfd.readouterr()

    for run, more, why in (
        ("run", "invalid.csv", "row 100"),
        ("run", "other.csv", "no y any more: add lost:y to --channels"),
        ("run", "none.csv", "does not exist"),
        ("passes", "second.csv", "2 passes"),
        ("passes", "-", "2 passes"),
        ("run", "first.csv", "must increase"),
    ):
        assert folder.run(f"resume {run} --data {more}", second) == 2
        assert why in capfd.readouterr().err
    assert read(Path("run/log/life.rec")).rows.tobytes() == recorded

    assert folder.run("resume run --data second.csv") == 0
    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
    same("run", "whole")


def test_a_signal_ends_the_wait_for_a_row_and_the_stream_continues_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe stays open and silent: a command that waits in a read would ignore SIGTERM."""
    first, second = split(folder, 100)
    words = f"{LEARN} --questions questions.toml --horizon 10"
    assert folder.run(f"{words} --out whole", [*first, *second[1:]]) == 0
    read_end, write_end = os.pipe()
    os.write(write_end, "".join(f"{line}\n" for line in first).encode())

    with sigterm_after(lambda: wait_for_rows(99)), os.fdopen(read_end, "rb") as pipe:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=pipe))
        assert cli.main(f"{words} --out run".split()) == 143
        os.close(write_end)
    assert json.loads(Path("run/details.json").read_text())["ended_by"] == "sigterm"

    assert folder.run("resume run --data -", second) == 0
    same("run", "whole")


def run_with_input(words: Sequence[str], messages: Path, pipe: Path) -> None:
    """Run a command with a named pipe as its standard input."""
    with pipe.open("rb") as rows:
        sys.stdin = SimpleNamespace(buffer=rows)  # type: ignore[assignment]
        run_command(list(words), messages)


@pytest.mark.slow
def test_after_a_kill_a_stream_continues_behind_a_gap(folder: Folder) -> None:
    """What was recorded is learned again; the newest row is lost, as its action was not known yet.

    Continued without a gap, a transition from row 99 to row 101 would be learned.
    """
    first, second = split(folder, 100)
    words = f"{LEARN} --questions questions.toml --horizon 10 --out run"
    os.mkfifo("pipe")
    process = FORKS.Process(
        target=run_with_input, args=(words.split(), Path("messages"), Path("pipe"))
    )
    process.start()
    with open("pipe", "w") as pipe:
        pipe.write("\n".join(first) + "\n")
        pipe.flush()
        wait_for_rows(99)
        process.kill()
        process.join()

    assert folder.run("resume run", second) == 2
    assert folder.run("resume run --data -", second) == 0

    recorded = read(Path("run/log/life.rec")).rows
    assert len(recorded) == 99 + 200
    assert np.flatnonzero(recorded["flags"] & Flag.GAP).tolist() == [0, 99]
    assert summary_of("run")["learning_steps"] == 98 + 199


PROGRAMS = {
    "bin/mosquitto_sub": r"""#!/bin/sh
first=0
[ -d plant ] && first=1000
awk -v first=$first 'BEGIN {
    for (t = first; t < first + 1200; t++)
        printf "{\"time\": %d, \"x\": %.3f, \"y\": %.3f}\n", t, sin(t) ^ 2, t % 7
}'
""",
    "bin/horde": f"""#!/bin/sh
exec {sys.executable} -m horde_agent.cli "$@"
""",
    "plant.awk": 'BEGIN { print "time,x,y"; for (t = 0; t < 50; t++) print t "," sin(t) ^ 2 "," t % 7 }',
    "bag.toml": OF_BAGS,
}
"""What the recipes of the page need: a stub of a client of MQTT, which sends on, the command, and the user's files."""


def test_the_recipes_of_the_page_lead_from_a_pipe_to_pictures(folder: Folder) -> None:
    """Each line of the first block of "A stream" is run by a shell as it stands there."""
    page = (DOCS / "data.md").read_text(encoding="utf-8")
    block = page.partition("## A stream")[2].split("```")[1]
    *recipes, follow_bags = block.strip().splitlines()
    for name, text in PROGRAMS.items():
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    Path("bags").mkdir()
    write_bag(rows(60), 0, 60, "bags/0.mcap")
    environment = os.environ | {"PATH": f"{folder.path / 'bin'}:{os.environ['PATH']}"}

    def run(lines: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            "set -e\n" + "\n".join(lines),
            shell=True,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    robot = run([f"{follow_bags} --steps 40"])
    plant = run(recipes)
    shown, messages = plant.communicate(timeout=240.0)
    assert plant.returncode == 0, messages
    _, messages = robot.communicate(timeout=240.0)
    assert robot.returncode == 0, messages

    assert summary_of("plant")["learning_steps"] == 2_199
    assert "<img" in Path("plant/report.html").read_text()
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert answers[-1]["time"] == 2199
    last = json.loads(shown.splitlines()[-1])
    assert last["time"] == 49
    assert {name.rpartition("/")[2] for name in last["predictions"]} == {"x"}
    assert summary_of("robot")["learning_steps"] == 40


# ---- in Python -------------------------------------------------------------------------------------------------------


def stream_run(**changes: Any) -> StreamRun:
    given: dict[str, Any] = {
        "channels": ["x", "y"],
        "ranges": [[0, 1]] * 2,
        "questions": "questions.toml",
        "action_names": ["left", "right"],
        "period_s": 0.1,
        "horizon": 10,
    }
    return StreamRun(**{**given, **changes})


def give(learner: StreamRun, table: dict[str, np.ndarray], first: int, end: int) -> np.ndarray:
    """Give rows [first, end) to a run, and return the predictions at the last one."""
    for t in range(first, end):
        observation = [table["x"][t], table["y"][t]]
        action = int(table["a"][t])
        predictions = learner.row(observation, action, table["p"][t], table["t"][t])
    return predictions


def test_rows_in_python_are_a_stream_and_continue_as_one(folder: Folder) -> None:
    """200 rows in one run, then 100 in it resumed, are the 300 of `horde learn -` with predictions."""
    first, second = split(folder, 200)
    table = rows()
    words = f"{LEARN} --questions questions.toml --horizon 10 --predictions p.jsonl --predict left*"
    assert folder.run(f"{words} --out whole", [*first, *second[1:]]) == 0

    with stream_run(out="run") as learner:
        give(learner, table, 0, 200)
    learner = StreamRun.resume("run")
    predictions = give(learner, table, 200, 300)
    summary = learner.close()

    same("run", "whole")
    assert summary == learner.close() == summary_of("run")
    *_, answer = Path("p.jsonl").read_text().splitlines()
    names = [name for name in learner.horde.names if name.startswith("left")]
    assert list(json.loads(answer)["predictions"]) == names
    expected = [predictions[learner.horde.names.index(name)] for name in names]
    np.testing.assert_allclose(
        list(json.loads(answer)["predictions"].values()), expected, rtol=1e-8
    )


def test_a_row_in_python_that_is_invalid_raises_and_the_next_one_follows_a_gap(
    folder: Folder,
) -> None:
    """Of 20 rows the tenth is invalid: 17 transitions are learned, and its number is in the message."""
    split(folder, 200)
    table = rows(20)
    with stream_run(out="run") as learner:
        give(learner, table, 0, 9)
        for given, why in (
            ({"action": 2}, "row 10, column 'action': 2 must be"),
            ({"action": 1, "b": 0.0}, "row 11, column 'b'"),
            ({"action": 1, "b": 0.5, "time": 0.2}, "row 12, column 'time'"),
            ({"action": 1, "b": 0.5, "time": np.nan}, "row 13, column 'time'"),
        ):
            with pytest.raises(BadInput, match=why):
                learner.row([0.5, 0.5], **{"b": 0.5, "time": 0.9, **given})
        with pytest.raises(BadInput, match=r"shape \(2,\)"):
            learner.row([0.5], 1, 0.5, 0.9)
        give(learner, table, 10, 20)
        summary = learner.close()

    assert summary["learning_steps"] == 8 + 9
    assert summary["gaps"] == 1


def test_a_pause_between_rows_without_times_is_a_gap(folder: Folder) -> None:
    """By the clock: a pause of 1.4 s is none at a period of 1 s, and one of 1.6 s is."""
    now_s = 0.0
    learner = stream_run(
        questions="nexting",
        action_names=(),
        has_times=False,
        period_s=1.0,
        out="run",
        clock=lambda: now_s,
    )
    for pause_s in (0.0, 1.0, 1.4, 1.6, 1.0):
        now_s += pause_s
        learner.row([0.5, 0.5])

    assert learner.close()["learning_steps"] == 3
    assert (read(Path("run/log/life.rec")).rows["flags"] & Flag.GAP).tolist() == [1, 0, 0, 1, 0]


def test_a_run_in_python_without_a_row_leaves_nothing(folder: Folder) -> None:
    for name in ("nexting", "none.toml"):
        with pytest.raises(BadInput):
            stream_run(questions=name, out="run").close()
        assert not Path("run").exists()


# ---- files that grow -------------------------------------------------------------------------------------------------

FOLLOW = (
    "learn --data log.csv --follow --columns columns.toml --questions questions.toml --horizon 10"
)


def wait_for_rows(n_rows: int, run: str = "run") -> None:
    """Return when a run has recorded a number of rows; its file is there a moment before its header."""
    recorded = Path(run).absolute() / "log" / "life.rec"
    while not recorded.exists() or not recorded.read_bytes().count(b"\n"):
        time.sleep(0.02)
    while len(read(recorded)) < n_rows:
        time.sleep(0.02)


@contextmanager
def sigterm_after(act: Callable[[], object]) -> Iterator[None]:
    """Return a context in which a thread acts and then, after a fault too, sends SIGTERM to this process."""
    is_left = threading.Event()

    def act_and_end() -> None:
        try:
            act()
        finally:
            if not is_left.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    # A signal that comes when the command has ended would kill the tests, and hide why it ended
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=act_and_end, daemon=True).start()
    try:
        yield
    finally:
        is_left.set()
        signal.signal(signal.SIGTERM, former)


def follow(
    folder: Folder, words: str, n_rows: int, write: Callable[[], object], run: str = "run"
) -> None:
    """Run a command that follows a file, while a thread writes it, until it has recorded a number of rows."""

    def write_all() -> None:
        write()
        wait_for_rows(n_rows, run)

    with sigterm_after(write_all):
        assert folder.run(words) == 143


def append(text: str, path: str = "log.csv") -> None:
    with open(path, "a") as file:
        file.write(text)


def test_a_file_is_followed_while_it_grows_and_when_it_is_replaced(folder: Folder) -> None:
    """Lines come in pieces; the file is renamed twice at once, the second time with its last line unended.

    A follower of the name alone would lose what the first of the two had.
    """
    header, *lines = split(folder, 0)[1]
    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
    append(f"{header}\n{lines[0][:5]}")

    def write() -> None:
        text = "\n".join(lines[:100])[5:]
        for k in range(0, len(text), 500):
            append(text[k : k + 500])
            time.sleep(0.01)
        append(f"\n{lines[100]}")
        os.rename("log.csv", "log.csv.2")
        append("\n".join([header, *lines[101:200]]), "log.csv.1")
        append("\n".join([header, *lines[200:]]) + "\n")

    follow(folder, f"{FOLLOW} --out run", 299, write)

    same("run", "whole")


def test_a_file_of_objects_is_a_table_that_grows(folder: Folder) -> None:
    """It is learned from as CSV of the same rows, whole, in two parts and while it grows, to the bit.

    Also with a cell that is not there, and lists for columns x_0 and x_1.
    """
    header, *lines = split(folder, 0)[1]
    table = rows()
    cells = lines[20].split(",")
    cells[2] = ""
    lines[20] = ",".join(cells)
    Path("table.csv").write_text("\n".join([header, *lines]) + "\n")
    objects = [json.loads(line) for line in json_lines(table)]
    del objects[20]["y"]
    texts = [json.dumps(one) for one in objects]
    Path("table.jsonl").write_text("\n".join(texts) + "\n\n")
    Path("first.jsonl").write_text("\n".join(texts[:200]))
    Path("second.jsonl").write_text("\n".join(texts[200:]))

    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
    assert folder.run(OF_FILE.format("table.jsonl") + " --out objects") == 0
    assert folder.run(OF_FILE.format("first.jsonl") + " --out parts") == 0
    assert folder.run("resume parts --data second.jsonl") == 0
    append("\n".join(texts[:100]) + "\n", "log.jsonl")
    words = FOLLOW.replace("log.csv", "log.jsonl")
    follow(folder, f"{words} --out run", 99, dict)
    follow(folder, "resume run", 299, lambda: append("\n".join(texts[100:]) + "\n", "log.jsonl"))
    for run in ("objects", "parts", "run"):
        same(run, "whole")

    folder.describe(COLUMNS.replace('"x"', '"v_0"').replace('"y"', '"v_1"'))
    for one in objects:
        one["v"] = [one.pop("x"), one.pop("y", None)]
    Path("table.jsonl").write_text("\n".join(map(json.dumps, objects)))
    words = "learn --data table.jsonl --columns columns.toml --questions nexting --out lists"
    assert folder.run(words) == 0
    recorded, expected = (read(Path(run) / "log" / "life.rec").rows for run in ("lists", "whole"))
    np.testing.assert_array_equal(recorded["observation"], expected["observation"])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[0.5]", "line 3: the line is no JSON object, but a list"),
        ('{"t": 0.1, "x": 0.5', "line 3: the line is no JSON object"),
        ('{"u": 0.5}', "rows 1 to 4: the object has no column 'x'"),
        ('{"t": 0.1, "x": {"v": 1}}', "rows 1 to 4: 'x' is an object, expected a number"),
    ],
)
def test_a_line_that_is_no_row_is_refused_with_its_number(
    line: str, why: str, folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """A table is refused as a whole, as it can be corrected; an empty line is none."""
    texts = json_lines(rows(3))
    Path("table.jsonl").write_text("\n".join([texts[0], "", line, *texts[1:]]))
    assert folder.run("learn --data table.jsonl --columns columns.toml --out run") == 2
    assert why in capfd.readouterr().err
    assert not Path("run").exists()


def test_a_followed_file_is_resumed_behind_the_rows_that_were_learned_from(folder: Folder) -> None:
    """Also when it was renamed meanwhile: three sessions are one."""
    header, *lines = split(folder, 0)[1]
    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0

    append("\n".join([header, *lines[:100]]) + "\n")
    follow(folder, f"{FOLLOW} --out run", 99, dict)
    append("\n".join(lines[100:150]) + "\n")
    os.rename("log.csv", "log.csv.1")
    append("\n".join([header, *lines[150:200]]) + "\n")
    follow(folder, "resume run", 199, dict)
    append("\n".join(lines[200:]) + "\n")
    follow(folder, "resume run", 299, dict)

    same("run", "whole")


def test_a_place_behind_a_header_is_in_the_file_in_which_it_was(tmp_path: Path) -> None:
    """Two renamed files and the present one begin with the same header: by its bytes, the oldest one has the place.

    The place is found in a copy, too, if no other file has its first bytes.
    """
    path = tmp_path / "log.csv"
    for k, name in enumerate(("log.csv.2", "log.csv.1", "log.csv")):
        (tmp_path / name).write_text(f"t,x\n{k},0\n")
        os.utime(tmp_path / name, (k, k))

    def first_row(file: FollowedFile) -> bytes:
        with closing(file):
            return next(iter(file)).data

    lines = FollowedFile(path)
    for line in lines:
        if line.data == b"2,0":
            break
    place = lines.place(is_behind=False)
    lines.close()
    assert first_row(FollowedFile(path, place)) == b"2,0"
    path.rename(tmp_path / "log.csv.0")
    path.write_text("t,x\n3,0\n")
    assert first_row(FollowedFile(path, place)) == b"2,0"
    with pytest.raises(BadInput, match="is gone"):
        FollowedFile(path, place._replace(inode=0))
    behind = place._replace(inode=0, offset=8, digest=hashlib.sha256(b"t,x\n0,0\n").hexdigest())
    assert first_row(FollowedFile(path, behind)) == b"t,x"


def test_a_file_that_is_cut_is_read_from_its_beginning(folder: Folder) -> None:
    """As by a rotation that copies it; of 40 rows, five are lost, so that the next one comes late."""
    header, *lines = split(folder, 0, n=40)[1]
    append("\n".join([header, *lines[:20]]) + "\n")

    def write() -> None:
        wait_for_rows(19)
        Path("log.csv").write_text("\n".join([header, *lines[25:30]]) + "\n")
        wait_for_rows(24)
        append("\n".join(lines[30:]) + "\n")

    follow(folder, f"{FOLLOW} --out run", 34, write)

    assert summary_of("run")["learning_steps"] == 19 + 14
    assert summary_of("run")["gaps"] == 1


def write_parquet(table: dict[str, np.ndarray], first: int, end: int, path: str) -> None:
    """Write rows [first, end) to a file that is whole when it has its name."""
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: column[first:end] for name, column in table.items()}
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), f"{path}.part")
    os.rename(f"{path}.part", path)


N_AWAITED = 12
"""Rows of a folder of bags whose messages of the next second have not come."""


def write_bag(table: dict[str, np.ndarray], first: int, end: int, path: str) -> None:
    """Write rows [first, end) to a bag that is whole when it has its name; a y comes with each third row."""
    pytest.importorskip("mcap")
    messages = []
    for t in range(first, end):
        time_ns = START_NS + t * SECOND_NS // 10
        messages.append(Recorded("/state", "state", time_ns, {"x": float(table["x"][t])}))
        if t % 3 == 0:
            messages.append(Recorded("/slow", "slow", time_ns, {"y": float(table["y"][t])}))
        command = {"a": int(table["a"][t]), "p": float(table["p"][t])}
        messages.append(Recorded("/command", "command", time_ns + SECOND_NS // 100, command))
    write_json(Path(f"{path}.part"), iter(messages))
    os.rename(f"{path}.part", path)


def learn_whole_bag(folder: Folder, n: int) -> str:
    """Learn from one bag of n rows in one go, and return the command that follows the folder of such bags."""
    folder.describe(OF_BAGS)
    (folder.path / "questions.toml").write_text(QUESTIONS)
    Path("days").mkdir()
    write_bag(rows(n), 0, n, "whole.mcap")
    assert folder.run(OF_FILE.format("whole.mcap") + " --out whole") == 0
    return FOLLOW.replace("log.csv", "days")


def test_a_folder_that_gets_further_bags_is_one_bag(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A bag begins within three rows that have one y: read for itself, its first rows would lack it."""
    monkeypatch.setattr("horde_agent.runs.sources.arriving_files.PATIENCE_S", 0.3)
    words = learn_whole_bag(folder, 300)
    table = rows(300 + N_AWAITED + 50)

    write_bag(table, 0, 100, "days/9.mcap")
    follow(folder, f"{words} --out run", 149, lambda: write_bag(table, 100, 162, "days/10.mcap"))
    write_bag(table, 162, 212, "days/11.mcap")
    follow(folder, "resume run", 199, dict)
    end = 300 + N_AWAITED
    follow(folder, "resume run", 299, lambda: write_bag(table, 212, end, "days/100.mcap"))
    same("run", "whole")

    Path("days/101.mcap").write_text("garbage")
    write_bag(table, end, end + 50, "days/102.mcap")
    follow(folder, "resume run", 349, dict)
    assert "'101.mcap'" in capfd.readouterr().err
    os.remove("days/10.mcap")
    assert folder.run("resume run") == 2
    assert "bags of days that were read have changed or are gone" in capfd.readouterr().err


def test_a_folder_that_gets_further_files_is_followed_and_resumed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the order of their numbers; a file that is no Parquet is left out once it changes no more."""
    monkeypatch.setattr("horde_agent.runs.sources.arriving_files.PATIENCE_S", 0.3)
    split(folder, 0)
    table = rows()
    Path("days").mkdir()
    words = FOLLOW.replace("log.csv", "days")
    assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0

    write_parquet(table, 0, 100, "days/9.parquet")
    follow(
        folder, f"{words} --out run", 149, lambda: write_parquet(table, 100, 150, "days/10.parquet")
    )
    write_parquet(table, 150, 200, "days/11.parquet")
    follow(folder, "resume run", 199, dict)
    follow(folder, "resume run", 299, lambda: write_parquet(table, 200, 300, "days/100.parquet"))
    same("run", "whole")

    Path("days/101.parquet").write_text("garbage")
    write_parquet({**table, "t": table["t"] + 30}, 0, 50, "days/102.parquet")
    follow(folder, "resume run", 349, dict)
    assert summary_of("run")["learning_steps"] == 299 + 49
    assert "'101.parquet'" in capfd.readouterr().err


def test_a_rename_while_files_are_listed_loses_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed before the second rename, "b" would be missing between "a" and "c"."""
    path = tmp_path / "log"
    path.write_text("a\n")
    file = FollowedFile(path)
    lines = iter(file)
    assert next(lines).data == b"a"
    path.rename(tmp_path / "log.1")
    path.write_text("b\n")
    listed = Path.glob

    def listed_late(self: Path, pattern: str) -> list[Path]:
        files = list(listed(self, pattern))
        if not (tmp_path / "log.2").exists():
            path.rename(tmp_path / "log.2")
            path.write_text("c\n")
        return files

    monkeypatch.setattr(Path, "glob", listed_late)
    assert [next(lines).data for _ in range(2)] == [b"b", b"c"]
    file.close()


def test_files_of_a_folder_may_be_removed_once_they_were_read(folder: Folder) -> None:
    """Without its place in the order, the run would read the other files again."""
    table = rows()
    Path("days").mkdir()
    for k in range(3):
        write_parquet(table, 10 * k, 10 * (k + 1), f"days/{k}.parquet")
    described = tuple(ChannelColumn(name, name) for name in table)
    files = followed_folder(Path("days"), Columns(described))
    lines = iter(files)
    times = [float(next(lines).cells["t"][0]) for _ in range(15)]
    Path("days/1.parquet").unlink()
    times += [float(next(lines).cells["t"][0]) for _ in range(15)]
    write_parquet(table, 30, 40, "days/3.parquet")
    Path("days/2.parquet").unlink()
    times += [float(next(lines).cells["t"][0]) for _ in range(10)]
    assert times == table["t"][:40].tolist()


def test_what_cannot_be_followed_is_refused_in_a_sentence(
    folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    header, *lines = split(folder, 0)[1]
    for name in ("log.csv.gz", "log.parquet", "log.mcap"):
        Path(name).write_text("a file of it")
    Path("empty").mkdir()
    for words, why in (
        (f"{FOLLOW} --out run", "log.csv does not exist"),
        (
            FOLLOW.replace("log.csv", "empty") + " --out run",
            "a folder of Parquet or MCAP files: empty has none",
        ),
        (FOLLOW.replace("log.csv", "/dev/null") + " --out run", "and /dev/null is none"),
        (FOLLOW.replace("log.csv", "log.csv.gz") + " --out run", "log.csv.gz is no such file"),
        (FOLLOW.replace("log.csv", "log.parquet") + " --out run", "log.parquet is no such file"),
        (FOLLOW.replace("log.csv", "log.mcap") + " --out run", "log.mcap is no such file"),
        (FOLLOW.replace("--data log.csv", "") + " --out run", "needs --data FILE"),
        (FOLLOW.replace("log.csv", "-") + " --out run", "needs --data FILE"),
    ):
        assert folder.run(words) == 2
        assert why in capfd.readouterr().err
        assert not Path("run").exists()
    append("\n".join([header, *lines[:100]]) + "\n")
    follow(folder, f"{FOLLOW} --out run", 99, dict)
    Path("log.csv").write_text("\n".join([header, *lines[100:]]) + "\n")
    assert folder.run("resume run") == 2
    assert "is gone" in capfd.readouterr().err


# ---- frozen weights --------------------------------------------------------------------------------------------------


def changing(n_before: int, n: int) -> list[str]:
    """Return a table in which x is 1 - y of the row before; from a row on it is y, so that learning pays."""
    rng = np.random.default_rng(1)
    table = rows(n)
    table["y"] = rng.integers(0, 2, n).astype(float)
    previous_y = np.append(0.0, table["y"][:-1])
    table["x"] = np.where(np.arange(n) < n_before, 1.0 - previous_y, previous_y)
    return csv_lines(table)


NEXT_X = """
[[family]]
policies = ["behaviour"]
gammas = [0.0, 0.5]
channels = ["x"]
"""


def expected_scores(first: int) -> dict[str, float]:
    """Return the scores of "the next x" in the tests from a row on, by the answers and by the weights of the history.

    A test begins at each tenth learning step. Its return is the next reading; both predictors' errors are over
    the variance of the same returns.
    """
    answers = [json.loads(line) for line in Path("answers").read_text().splitlines()]
    x = read(Path("run/log/life.rec")).rows["observation"][:, 0].astype(np.float64)
    history = open_trained(RunFolder(Path("history")), Console(quiet=True))
    assert history is not None
    frozen = predict_along(read(Path("run/log/life.rec")), history.horde, history.interface)[:, 0]
    (tests,) = ExcursionTable.read(Path("run/log/excursions.rec")).outcomes()
    steps = tests.step[tests.step >= first]
    learned = np.array([answers[t - first]["predictions"]["behaviour/g0/x"] for t in steps])
    scores = {"n_tests": float(len(steps))}
    halves = {"": slice(None), "late_": slice(len(steps) // 2, None)}
    for name, half in halves.items():
        returns = x[steps[half] + 1]
        for suffix, predicted in (("", learned), ("_frozen", frozen[steps])):
            error = np.mean((predicted[half] - returns) ** 2)
            scores[f"{name}nmsre{suffix}"] = float(error / np.var(returns))
    return scores


def test_further_rows_are_scored_by_the_weights_before_them_too(folder: Folder) -> None:
    """By its answers, the run learns the change; by the weights of the history, it would be worse than the mean.

    The weights, scores and rows are those of a run that compares nothing. Followed, the history ends where the
    command waits for the first time.
    """
    Path("questions.toml").write_text(NEXT_X)
    header, *lines = changing(200, 600)
    Path("first.csv").write_text("\n".join([header, *lines[:200]]) + "\n")
    Path("second.csv").write_text("\n".join([header, *lines[200:]]) + "\n")
    for run in ("history", "run", "piped", "plain", "file"):
        assert folder.run(OF_FILE.format("first.csv") + f" --out {run}") == 0
    second = [header, *lines[200:]]

    words = "resume run --data - --compare-frozen --predictions answers"
    assert folder.run(words, second) == 0
    assert folder.run("resume piped --data - --compare-frozen", second) == 0
    assert folder.run("resume plain --data -", second) == 0
    same("piped", "plain")
    expected = expected_scores(200)
    (score, _) = read_frozen(Path("run/frozen.csv"))
    assert score.question == "behaviour/g0/x"
    assert expected["nmsre_frozen"] > 1.0 > 0.5 > expected["nmsre"]
    for name, value in expected.items():
        assert getattr(score, name) == pytest.approx(value, rel=1e-6), name
    report = write_report(Path("run")).read_text()
    assert "Frozen against learning" in report

    assert folder.run("resume file --data second.csv --compare-frozen") == 0
    assert Path("file/frozen.csv").read_text() == Path("piped/frozen.csv").read_text()
    append("\n".join([header, *lines[:200]]) + "\n")

    def write() -> None:
        wait_for_rows(199, "followed")
        append("\n".join(lines[200:]) + "\n")

    follow(folder, f"{FOLLOW} --compare-frozen --out followed", 599, write, run="followed")
    (of_followed, _) = read_frozen(Path("followed/frozen.csv"))
    assert of_followed.nmsre_frozen == pytest.approx(score.nmsre_frozen, rel=0.3)

    for table in ("frozen.csv", "summary.json"):
        Path("run", table).unlink()
    write_report(Path("run"))
    assert read_frozen(Path("run/frozen.csv"))[0] == score


def test_a_log_without_actions_is_scored_by_the_weights_of_its_history(folder: Folder) -> None:
    """On the last 30 % of all rows, where the relation has changed: frozen weights are worse than the mean."""
    columns = COLUMNS.replace('action = "a"\nb = "p"\nactions = ["left", "right"]', "")
    folder.describe(columns)
    Path("questions.toml").write_text(NEXT_X)
    header, *lines = changing(200, 800)
    Path("first.csv").write_text("\n".join([header, *lines[:200]]) + "\n")
    Path("second.csv").write_text("\n".join([header, *lines[200:]]) + "\n")
    words = "learn --data first.csv --columns columns.toml --questions questions.toml --out run"
    assert folder.run(words) == 0
    assert folder.run("resume run --data second.csv --compare-frozen") == 0

    score, _ = read_frozen(Path("run/frozen.csv"))
    assert score.nmsre_frozen > 1.0 > 0.5 > score.nmsre
    assert score.nmsre == pytest.approx(read_questions(Path("run/questions.csv"))[0].nmsre)


def test_frozen_weights_need_a_history(folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    first, _ = split(folder, 100)
    assert folder.run(f"{LEARN} --compare-frozen --out run", first) == 2
    assert "needs a history and further rows" in capfd.readouterr().err
    assert folder.run(OF_FILE.format("first.csv") + " --out run") == 0
    assert folder.run("resume run --compare-frozen") == 2
    assert "give them by --data" in capfd.readouterr().err


class GrowingFile:
    """A file of lines that gets a piece within a line, and is renamed now and then."""

    path = "log.csv"
    n_awaited = 0

    def __init__(self, folder: Folder, rng: np.random.Generator) -> None:
        split(folder, 0, n=3_001)
        assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
        self._header, *self._lines = csv_lines(rows(3_001))
        self._rng = rng
        append(f"{self._header}\n")

    def grow(self, first: int, end: int) -> Iterator[None]:
        """Append rows [first, end); in two parts, between which a command may read."""
        text = "\n".join(self._lines[first:end]) + "\n"
        cut = int(self._rng.integers(len(text)))
        append(text[:cut])
        yield
        append(text[cut:])
        if self._rng.random() < 0.1:
            os.rename("log.csv", f"log.csv.{first}")
            append(f"{self._header}\n")


class GrowingFolder:
    """A folder that gets files."""

    path = "days"
    n_awaited = 0

    def __init__(self, folder: Folder, rng: np.random.Generator) -> None:
        split(folder, 0, n=3_001)
        assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
        self._rows = rows(3_001)
        self._rng = rng
        Path("days").mkdir()
        write_parquet(self._rows, 0, 0, "days/0.parquet")

    def grow(self, first: int, end: int) -> Iterator[None]:
        """Write rows [first, end) to two files."""
        middle = int(self._rng.integers(first, end))
        write_parquet(self._rows, first, middle, f"days/{first + 1}.parquet")
        yield
        write_parquet(self._rows, middle, end, f"days/{first + 2}.parquet")


class GrowingObjects:
    """A file of objects, of which a line comes in pieces."""

    path = "log.jsonl"
    n_awaited = 0

    def __init__(self, folder: Folder, rng: np.random.Generator) -> None:
        split(folder, 0, n=3_001)
        assert folder.run(OF_FILE.format("table.csv") + " --out whole") == 0
        self._lines = json_lines(rows(3_001))
        self._rng = rng
        append("", self.path)

    def grow(self, first: int, end: int) -> Iterator[None]:
        """Append rows [first, end), in two parts."""
        text = "\n".join(self._lines[first:end]) + "\n"
        cut = int(self._rng.integers(len(text)))
        append(text[:cut], self.path)
        yield
        append(text[cut:], self.path)


class GrowingBags:
    """A folder that gets bags."""

    path = "days"
    n_awaited = N_AWAITED

    def __init__(self, folder: Folder, rng: np.random.Generator) -> None:
        learn_whole_bag(folder, 3_001)
        self._rows = rows(3_001 + N_AWAITED)
        self._rng = rng
        write_bag(self._rows, 0, 20, "days/0.mcap")

    def grow(self, first: int, end: int) -> Iterator[None]:
        """Write rows [first, end) to two files."""
        first = max(first, 20)
        middle = int(self._rng.integers(first, end))
        write_bag(self._rows, first, middle, f"days/{first + 1}.mcap")
        yield
        write_bag(self._rows, middle, end, f"days/{first + 2}.mcap")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GrowingFile, GrowingObjects, GrowingFolder, GrowingBags])
def test_no_kill_loses_or_repeats_a_row_that_is_followed(kind: Any, folder: Folder) -> None:
    """50 kills at random moments, while the data grow: rows, tests and weights of the whole table."""
    rng = np.random.default_rng(0)
    data = kind(folder, rng)
    for k in range(50):
        command = f"{FOLLOW.replace('log.csv', data.path)} --snapshot-every 0.2s --out run"
        if Path("run/log/life.rec").exists():
            command = "resume run"
        n_before = rows_of(Path("run"))
        # A run begins with the file of that time: the first one must have begun before a rename
        is_awaited = k == 0 or rng.random() < 0.8
        process = FORKS.Process(target=run_command, args=(command.split(), Path("messages")))
        process.start()
        growing = data.grow(60 * k, 60 * (k + 1))
        next(growing)
        if is_awaited:
            while rows_of(Path("run")) <= n_before and process.is_alive():
                time.sleep(0.01)
        next(growing, None)
        process.join(rng.uniform(0.0, 0.3))
        assert process.is_alive(), Path("messages").read_text()
        process.kill()
        process.join()

    follow(folder, "resume run", 3_000, lambda: list(data.grow(3_000, 3_001 + data.n_awaited)))

    same("run", "whole")
