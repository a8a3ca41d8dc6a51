"""Data sets: arrays, tables and files, learned from as a life is."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Channel, ConstantAction, PolicyFunction, cli, learn_from, questions
from horde_agent.formats import behaviour
from horde_agent.formats.arrays import chunks_of
from horde_agent.formats.behaviour import LogisticPolicy, estimate_behaviour
from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.life.observers import Progress
from horde_agent.record import Flag, Phase, Recorder, new_rows, read
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, with_backend
from horde_agent.runs.sources.recorded_rows import Recording
from horde_agent.runs.storage.folder import Extent
from horde_agent.runs.storage.run import HeaderEnv
from tests.agent.commands import summary_of
from tests.agent.doubles import horde_of
from tests.agent.table_files import columns_of, open_table, read_columns
from tests.facts import states

N = 1_200
COLUMNS = """
period_s = 0.1
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


def stream(n: int = N, seed: int = 3) -> dict[str, np.ndarray]:
    """Two actions with b = .25 and .75; x shows the action before, y a sawtooth; float32 as in a record."""
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.75).astype(np.int64)
    x = np.append(0, a[:-1])
    y = (np.arange(n) % 7) / 7
    return {
        "x": x.astype(np.float32),
        "y": y.astype(np.float32),
        "a": a,
        "p": np.where(a == 1, 0.75, 0.25),
    }


def learned(out: Path, table: Any, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "b": "p",
        "channels": ["x", "y"],
        "ranges": [[0, 1]] * 2,
        "action_names": ["left", "right"],
    }
    given |= {"questions": "excursions", "out": out, "period_s": 0.1}
    return learn_from(table, "a", **{**given, **changes}).summary


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    file = tmp_path / "columns.toml"
    file.write_text(COLUMNS)
    return file


def test_arrays_tables_and_files_give_the_same_weights(tmp_path: Path, columns: Path) -> None:
    """The weights are those of a Horde that is fed by hand, whatever holds the rows, and by each name of a table.

    A table named by --log has its actions too: without them it would be asked about the behaviour alone.
    """
    table = stream()
    interface = Interface.of(
        HeaderEnv(Table(lambda: chunks_of([table]), Columns.read(columns), "table").header)
    )
    horde = horde_of(
        questions.excursions(interface),
        interface,
        "deferred",
        offset="reading",
        average=10_000.0,
        rarity=True,
    )
    observations = np.column_stack([table["x"], table["y"]])
    horde.begin(observations[0], interface.encode(observations[0]))
    for t in range(1, N):
        horde.learn(
            int(table["a"][t - 1]),
            float(table["p"][t - 1]),
            observations[t],
            interface.encode(observations[t]),
        )
        if t == 1000:
            horde.catch_up()  # as a run does for its sample of the MSPBE
    expected = horde.weights_sha256()
    pa, pq, pd = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet", "pandas"))
    halves = [{k: v[:500] for k, v in table.items()}, {k: v[500:] for k, v in table.items()}]
    vectors = {"observation": observations, "a": table["a"], "p": table["p"]}
    tables = {
        "a dict": table,
        "pandas": pd.DataFrame(table),
        "pyarrow": pa.table(table),
        "parts": [pa.table(half) for half in halves],
        "read once": (half for half in halves),
        "a function": lambda: iter(halves),
    }
    for k, (name, given) in enumerate(tables.items()):
        assert learned(tmp_path / f"{k}", given)["weights_sha256"] == expected, name
    by_array = {
        "channels": ["x", "y"],
        "b": table["p"],
        "ranges": [[0, 1]] * 2,
        "questions": "excursions",
    }
    run = learn_from(observations, table["a"], period_s=0.1, out=tmp_path / "array", **by_array)
    assert run.summary["weights_sha256"] == expected == run.horde.weights_sha256()
    pq.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=300)
    np.savez(tmp_path / "t.npz", **table)
    rows = zip(*(values.tolist() for values in table.values()), strict=True)
    lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "vectors.toml").write_text(
        COLUMNS.replace('"x"', '"observation_0"').replace('"y"', '"observation_1"')
    )
    np.savez(tmp_path / "v.npz", **vectors)
    for file in ("t.parquet", "t.npz", "t.csv", "v.npz"):
        columns_file = columns
        if file == "v.npz":
            columns_file = tmp_path / "vectors.toml"
        source = f"--data {tmp_path / file}"
        if file == "t.csv":
            source = f"--backend replay --log {tmp_path / file}"
        out = tmp_path / file.replace(".", "-")
        assert cli.main(f"learn {source} --columns {columns_file} --out {out}".split()) == 0
        assert summary_of(out)["weights_sha256"] == expected, file


def test_episodes_and_late_rows_end_what_is_learned() -> None:
    """Rows 0-3 end by termination, 4-6 by another episode; row 9 is two periods late; the last row has no action."""
    columns = Columns.of(
        {
            "channel": [{"column": "x", "low": 0.0, "high": 1.0}],
            "period_s": 1.0,
            "time": "t",
            "action": "a",
            "actions": ["one"],
            "episode": "e",
            "terminated": "end",
        }
    )
    table = {
        "x": np.zeros(11),
        "a": np.zeros(11),
        "e": np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]),
        "end": np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        "t": np.array([0, 1, 2, 3, 0, 1, 2, 0, 1, 3, 4]),
    }
    whole = np.concatenate([part.rows for part in Table(lambda: chunks_of([table]), columns, "t")])
    assert np.flatnonzero(whole["flags"] & Flag.GAP).tolist() == [0, 4, 7, 9]
    assert np.flatnonzero(whole["flags"] & Flag.TERMINATED).tolist() == [3]
    assert np.flatnonzero(whole["phase"] == Phase.END).tolist() == [3, 6, 10]
    assert whole["action"][whole["phase"] == Phase.END].tolist() == [-1] * 3
    assert whole["step"].tolist() == [0, 1, 2, 3, 3, 4, 5, 5, 6, 7, 8]
    for cut in range(1, 11):
        halves = [{k: v[:cut] for k, v in table.items()}, {k: v[cut:] for k, v in table.items()}]
        parts = [part.rows for part in Table(lambda h=halves: chunks_of(h), columns, "t")]  # type: ignore[misc]
        assert np.concatenate(parts).tobytes() == whole.tobytes(), cut


def test_two_passes_are_two_passes_of_one_horde(tmp_path: Path) -> None:
    one_pass, twice = (learned(tmp_path / f"{n}", stream(), passes=n) for n in (1, 2))
    assert (one_pass["learning_steps"], twice["learning_steps"]) == (N - 1, 2 * (N - 1))
    assert (twice["steps"], twice["gaps"]) == (2 * (N - 1), 0)
    assert one_pass["weights_sha256"] != twice["weights_sha256"]


@pytest.mark.parametrize("passes", [1, 2])
def test_a_stopped_run_is_resumed_to_the_same_weights(
    passes: int, tmp_path: Path, columns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at row 700 of 1,200: the run ends in order, and `horde resume` and `horde report` know how far it came."""
    file = tmp_path / "t.npz"
    n_looks = 0
    np.savez(file, **stream())
    words = f"learn --data {file} --columns {columns} --passes {passes} --out".split()
    assert cli.main([*words, f"{tmp_path / 'whole'}"]) == 0

    def interrupt(*_: object) -> bool:
        nonlocal n_looks
        n_looks += 1
        if n_looks == 700:
            signal.raise_signal(signal.SIGINT)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "is_due", interrupt)
        assert cli.main([*words, f"{tmp_path / 'cut'}"]) == 130
    cut = summary_of(tmp_path / "cut")
    assert (cut["steps"], cut["stopped_early"]) == (699, True)
    assert cli.main(["resume", f"{tmp_path / 'cut'}"]) == 0
    resumed = summary_of(tmp_path / "cut")
    whole = summary_of(tmp_path / "whole")
    for key in ("steps", "learning_steps", "gaps", "weights_sha256", "mean_nmsre", "stopped_early"):
        assert resumed[key] == whole[key], key
    assert cli.main(["resume", f"{tmp_path / 'cut'}"]) == 2
    (tmp_path / "cut/summary.json").unlink()
    assert cli.main(["report", f"{tmp_path / 'cut'}"]) == 0
    assert summary_of(tmp_path / "cut")["weights_sha256"] == whole["weights_sha256"]
    (tmp_path / "cut/summary.json").unlink()
    shutil.rmtree(tmp_path / "cut/checkpoint")  # as after a kill before the first snapshot
    assert cli.main(["resume", f"{tmp_path / 'cut'}"]) == 0
    assert summary_of(tmp_path / "cut")["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.parametrize(
    ("changes", "row", "column", "what"),
    [
        ({"x": (700, np.inf)}, 701, "x", "inf must be a finite number"),
        ({"p": (5, 0.0)}, 6, "p", "0 must be in (0, 1]"),
        ({"p": (900, np.nan)}, 901, "p", "nan must be in (0, 1]"),
        ({"a": (10, 2)}, 11, "a", "2 must be a whole number in 0..1"),
        ({"t": (20, 1.9)}, 21, "t", "1.9 must increase"),
        ({"e": (30, 0)}, 31, "e", "0 must not decrease"),
    ],
)
def test_an_invalid_value_is_named_before_anything_is_learned(
    changes: dict[str, tuple[int, float]],
    row: int,
    column: str,
    what: str,
    tmp_path: Path,
    columns: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """File, row, column and value in one sentence; no folder is left behind."""
    table: dict[str, np.ndarray] = {k: v.astype(float) for k, v in stream().items()}
    table |= {"t": 0.1 * np.arange(N), "e": (np.arange(N) >= 25).astype(float)}
    for name, (i, value) in changes.items():
        table[name][i] = value
    columns.write_text('time = "t"\nepisode = "e"\n' + COLUMNS)
    np.savez(tmp_path / "bad.npz", **table)  # type: ignore[arg-type]
    out = tmp_path / "out"
    assert (
        cli.main(f"learn --data {tmp_path / 'bad.npz'} --columns {columns} --out {out}".split())
        == 2
    )
    message = " ".join(capsys.readouterr().err.split())
    assert f"bad.npz, row {row}, column '{column}': {what}" in message
    assert not out.exists()


def test_arguments_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = stream(50)
    iterator = iter([stream(50)])
    out = tmp_path / "o"
    with pytest.raises(BadInput, match="ranges must have the shape"):
        learned(out, table, ranges=[[0, 1]])
    with pytest.raises(BadInput, match="read only once"):
        learned(out, iterator, ranges=None)
    with pytest.raises(BadInput, match="unknown setting 'colour'"):
        learned(out, table, colour=1)
    with pytest.raises(BadInput, match="the same number of rows"):
        learn_from(np.zeros((5, 2)), np.zeros(4), questions="nexting", out=out)
    with pytest.raises(BadInput, match="b is the probability of an action"):
        learn_from(np.zeros((5, 2)), b=np.ones(5), questions="nexting", out=out)
    with pytest.raises(BadInput, match="shape"):
        learn_from(np.zeros(5), questions="nexting", out=out)
    never = PolicyFunction(lambda *_: [1.0, 0.0], n_actions=2)
    with pytest.raises(BadInput, match=r"gives action 1 of step \d+ the probability 0.0"):
        learned(out, table, b=never)
    assert not out.exists()


def biased(n: int, seed: int) -> tuple[Table, np.ndarray]:
    """Actions drawn with logits that are linear in x: b(1) = 1 / (1 + exp(3 - 6 x)), from 5 to 95 %."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    p = 1 / (1 + np.exp(3 - 6 * x))
    a = (rng.random(n) < p).astype(int)
    columns = columns_of(
        (ChannelColumn("x", "x", "x", low=0.0, high=1.0),), action="a", actions=("0", "1")
    )
    return Table(lambda: chunks_of([{"x": x, "a": a}]), columns, "biased"), np.where(
        a == 1, p, 1 - p
    )


def test_an_estimated_b_is_near_the_true_one_and_calibrated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log-loss cannot be below the entropy of b, .46 here; the frequencies alone reach log 2 = .69."""
    monkeypatch.setattr(behaviour, "ENOUGH_ROWS", 24_000)
    table, b = biased(8_000, seed=5)
    interface = Interface.of(HeaderEnv(table.header))
    policy, facts = estimate_behaviour(table, interface)
    entropy = float(-np.log(b).mean())
    assert entropy - 0.03 < facts["log_loss"] < entropy + 0.03
    assert facts["log_loss_of_frequencies"] == pytest.approx(np.log(2), abs=0.01)
    assert 0.8 < facts["temperature"] < 1.25
    at = np.linspace(0.05, 0.95, 19)
    estimated = [policy.probabilities(np.zeros(1), interface.encode(np.array([x])))[1] for x in at]
    np.testing.assert_allclose(estimated, 1 / (1 + np.exp(3 - 6 * at)), atol=0.1)


def with_other_actions(share: str, n: int = 6_000) -> Table:
    """Return the biased table with the actions of one share of its batches of 256 rows exchanged."""
    table, _ = biased(n, seed=5)
    batch = np.arange(n) // 256
    is_held_out = batch % 5 == 4
    is_judged = is_held_out & ((batch // 5) % 2 == 1)
    shares = {
        "none": np.zeros(n, dtype=bool),
        "judged": is_judged,
        "chosen": is_held_out & ~is_judged,
    }
    shares["learned"] = ~is_held_out

    def chunks() -> Iterator[dict[str, np.ndarray]]:
        rows = np.concatenate([part.rows for part in table])
        actions = np.where(rows["action"] < 0, 0, rows["action"])
        yield {"x": rows["observation"][:, 0], "a": np.where(shares[share], 1 - actions, actions)}

    return Table(chunks, table.columns, share)


def test_an_estimated_b_uses_each_share_of_the_rows_for_one_thing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four fifths teach the weights, half of the rest chooses the temperature, the other half gives the log-loss.

    Exchanged actions in one share must not change what the other shares decide.
    """
    monkeypatch.setattr(behaviour, "ENOUGH_ROWS", 1)
    interface = Interface.of(HeaderEnv(biased(100, seed=5)[0].header))
    fits = {}
    for share in ("none", "judged", "chosen", "learned"):
        policy, facts = estimate_behaviour(with_other_actions(share), interface)
        fits[share] = policy.weights.tobytes(), policy.temperature, facts["log_loss"]
    weights, temperature, log_loss = fits["none"]
    assert facts["temperature"] == policy.temperature
    assert fits["judged"][:2] == (weights, temperature)
    assert fits["judged"][2] > 2 * log_loss
    assert fits["chosen"][0] == weights
    assert fits["chosen"][1] == 4.0  # the flattest: the actions contradict the weights
    assert fits["learned"][0] != weights


def test_an_estimated_probability_is_tempered_and_never_below_a_millionth() -> None:
    """Logits 0 and 4 at T = 2: 1 / (1 + e^2). At T = 1 it would be 1 / (1 + e^4)."""
    policy = LogisticPolicy(np.array([[0.0, 1.0], [0.0, 3.0]]), temperature=2.0)
    p = policy.probabilities(np.zeros(1), np.array([0, 1]))
    assert p.tolist() == pytest.approx([1 / (1 + np.exp(2.0)), 1 / (1 + np.exp(-2.0))])
    p = LogisticPolicy(np.array([[0.0, 500.0, 0.0]])).probabilities(np.zeros(1), np.array([0]))
    assert p.tolist() == pytest.approx([1e-6, 1.0, 1e-6], rel=1e-5)


def test_the_report_says_how_b_was_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "b": "estimate",
        "questions": [GVF("q", ConstantAction(0, 2), Channel("y"), 0.5)],
    }
    monkeypatch.setattr(behaviour, "ENOUGH_ROWS", 8_000)
    learned(tmp_path / "run", stream(4_000), **given)
    (held_out, note) = json.loads((tmp_path / "run/details.json").read_text())["notes"]
    assert "1 of 1 off-policy questions" in held_out
    assert "b was estimated from 3,999 actions" in note
    assert "effective sample size" in note
    assert "biases" in note
    b = read(tmp_path / "run/log/life.rec").rows
    assert abs(b["b"][b["action"] == 1].mean() - 0.75) < 0.05


def test_b_of_a_policy_is_that_of_its_column(tmp_path: Path) -> None:
    policy = PolicyFunction(lambda *_: [0.25, 0.75], n_actions=2)
    one = learned(tmp_path / "a", stream())
    by_policy = learned(tmp_path / "b", stream(), b=policy)
    assert one["weights_sha256"] == by_policy["weights_sha256"]


def test_b_of_a_policy_depends_on_the_observation_before_the_action(tmp_path: Path) -> None:
    """b(1|x) = x, drawn in a random order: asked of any other row, the weights differ."""
    rng = np.random.default_rng(0)
    x = rng.choice([0.1, 0.25, 0.5, 0.9], N)
    a = (rng.random(N) < x).astype(int)
    policy = PolicyFunction(lambda seen, _: [1.0 - float(seen[0]), float(seen[0])], n_actions=2)
    question = [GVF("q", ConstantAction(1, n_actions=2), Channel(0), 0.5)]
    given: dict[str, Any] = {"actions": a, "questions": question, "ranges": [[0, 1]]}
    column = learn_from(
        x[:, None],
        b=np.where(a == 1, np.float32(x), 1 - np.float32(x)),
        out=tmp_path / "column",
        **given,
    )
    policy_run = learn_from(x[:, None], b=policy, out=tmp_path / "policy", **given)
    recorded = [read(run.path / "log/life.rec").rows["b"][:-1] for run in (column, policy_run)]
    np.testing.assert_allclose(recorded[0], recorded[1], rtol=1e-6)


def test_one_part_of_a_table_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part before the last one is freed when the next is read."""
    alive: list[Any] = []

    class Part(dict[str, np.ndarray]):
        """A part that can be referred to weakly."""

    def parts() -> Iterator[Part]:
        import weakref

        for k in range(6):
            part = Part(
                {name: values[100 * k : 100 * (k + 1)] for name, values in stream(600).items()}
            )
            alive.append(weakref.ref(part))
            assert sum(ref() is not None for ref in alive) <= 3
            yield part

    assert learned(tmp_path / "run", parts)["steps"] == 599


def test_a_run_with_questions_from_python_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned(
        tmp_path / "run", stream(60), questions=[GVF("q", ConstantAction(0, 2), Channel("y"), 0.5)]
    )
    assert 'questions = "python"' in (tmp_path / "run/config.toml").read_text()
    assert (
        cli.main(f"learn --backend replay --log {tmp_path / 'run'} --out {tmp_path / 'b'}".split())
        == 2
    )
    assert "given in Python" in capsys.readouterr().err


def test_after_a_kill_during_the_import_every_command_says_what_to_do(
    tmp_path: Path, columns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed by SIGKILL after the recording was begun, in another process, which cannot clean up."""
    code = (
        "import os, signal, sys; from horde_agent import cli; from horde_agent.record import Recorder\n"
        "Recorder.append = lambda recorder, rows: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main(sys.argv[1:])"
    )
    np.savez(tmp_path / "t.npz", **stream(100))
    words = (
        f"learn --data {tmp_path / 't.npz'} --columns {columns} --out {tmp_path / 'run'}".split()
    )
    assert (
        subprocess.run([sys.executable, "-c", code, *words], check=False).returncode
        == -signal.SIGKILL
    )
    for command in (
        "resume {0}",
        "report {0}",
        "export {0}",
        "learn --backend replay --log {0} --out {0}-again",
    ):
        assert cli.main(command.format(tmp_path / "run").split()) == 2
        assert states(
            capsys.readouterr().err, "import was interrupted", "remove the folder", "`horde learn`"
        )
    assert not (tmp_path / "run/summary.json").exists()
    shutil.rmtree(tmp_path / "run")
    assert cli.main(words) == 0


def test_each_spelling_of_a_source_is_one(tmp_path: Path) -> None:
    """A table or a folder of tables by --log is a data set; a recorded run and the robot's own log stay logs."""
    columns = tmp_path / "columns.toml"
    table = tmp_path / "t.parquet"
    run = tmp_path / "run"
    (run / "log").mkdir(parents=True)
    (run / "log" / "life.rec").touch()
    as_log = LearnConfig(backend="replay", log=table, columns=columns)
    as_data = LearnConfig(data=table, columns=columns)
    assert with_backend(as_log) == with_backend(as_data)
    assert with_backend(as_data).backend == "data"
    folder = replace(as_log, log=tmp_path)
    assert with_backend(folder) == LearnConfig(backend="data", data=tmp_path, columns=columns)
    replayed = LearnConfig(backend="replay", log=run)
    file = run / "log" / "life.rec"
    assert with_backend(LearnConfig(data=file)) == replayed
    assert with_backend(LearnConfig(backend="replay", log=file)) == replayed
    for unchanged in (replayed, replace(replayed, columns=columns), replace(as_log, columns=None)):
        assert with_backend(unchanged) == unchanged
    two_sources = replace(as_log, minari="a/b-v0")
    assert with_backend(two_sources) == two_sources  # refused by both names


# ---- a log without action probabilities ------------------------------------------------------------------------------

LOG_COLUMNS = """
period_s = 0.5
time = "stamp"
[[channel]]
column = "Light0"
name = "light"
low = 0.0
high = 4.0
[[channel]]
column = "phase"
"""


def log_file(folder: Path, n: int, **changes: list[Any]) -> tuple[Path, Path]:
    """Write a log and its columns: a light that blinks every eight rows of 0.5 s, and its phase."""
    k = np.arange(n)
    columns: dict[str, list[Any]] = {
        "stamp": (100.0 + 0.5 * k).tolist(),
        "Light0": (4.0 * (k % 8 == 0)).tolist(),
        "phase": (k % 8).astype(float).tolist(),
    }
    rows = zip(*(columns | changes).values(), strict=True)
    log = folder / "log.csv"
    described = folder / "log.toml"
    log.write_text(
        "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"
    )
    described.write_text(LOG_COLUMNS)
    return log, described


def test_rows_of_a_log_are_unchanged_and_missing_or_late_ones_are_a_gap(tmp_path: Path) -> None:
    """Row 3 has no number and is dropped; row 6 is 2 s late; row 8 is earlier than row 7."""
    light: list[Any] = [4.0, 0.0, 0.0, "broken", 0.0, 0.0, 0.0, 0.0, 4.0, 0.0]
    file, columns = log_file(
        tmp_path, 10, Light0=light, stamp=[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 5.5, 1.0, 1.5]
    )
    log = open_table(file, replace(Columns.read(columns), missing="gap"))
    rows = np.concatenate([part.rows for part in log])
    assert rows["observation"][:, 1].tolist() == [0, 1, 2, 4, 5, 6, 7, 0, 1]
    assert (rows["flags"] & Flag.GAP).tolist() == [1, 0, 0, 1, 0, 1, 0, 1, 0]
    dropped, gaps = log.notes
    assert dropped.endswith(
        "are dropped; the first is row 4, column 'Light0': 'broken' is no number."
    )
    assert gaps.startswith("3 of 9 rows (33%) follow a gap")
    assert (log.header["low"], log.header["high"]) == ([0, 0], [4, 7])
    assert [channel["name"] for channel in log.header["channels"]] == ["light", "phase"]


@pytest.mark.parametrize("named_by", ["--data", "--backend replay --log"])
def test_a_row_of_a_log_without_a_number_is_refused_by_each_name(
    named_by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No name of a table drops rows: the sentence says what does."""
    log, columns = log_file(tmp_path, 4, Light0=[4.0, 0.0, "broken", 0.0])
    words = f"learn {named_by} {log} --columns {columns} --out {tmp_path / 'run'}"
    assert cli.main(words.split()) == 2
    reason = "row 3, column 'Light0': 'broken' must be a finite number"
    assert states(capsys.readouterr().err, reason, 'missing = "gap" to drop such rows')


def test_predictions_are_learned_from_any_robots_log(tmp_path: Path) -> None:
    """The light of the next row follows from the phase of this one: NMSRE far below 1."""
    log, columns = log_file(tmp_path, 400)
    run = tmp_path / "run"
    assert (
        cli.main(
            f"learn --backend replay --log {log} --columns {columns} --passes 20 --out {run}".split()
        )
        == 0
    )
    summary = summary_of(run)
    assert (summary["steps"], summary["gaps"]) == (399, 0)
    assert summary["median_nmsre"] < 0.2
    rows = read(run / "log" / "life.rec").rows
    assert rows["t"][:3].tolist() == [100.0, 100.5, 101.0]
    assert rows["flags"][0] == Flag.GAP


def results_of(run: Path) -> tuple[Any, ...]:
    """Return the weights of a run and its tables."""
    names = ("questions.csv", "traces.csv", "mspbe_curve.csv", "learning_curve.csv")
    tables = tuple((run / name).read_text() for name in names)
    return (summary_of(run)["weights_sha256"], *tables)


def test_a_log_is_the_same_by_each_name_and_is_resumed_and_learned_from_again_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped in the third of four passes over 280 of 400 rows, and resumed; its tables removed, and made again."""
    log, columns = log_file(tmp_path, 400)
    words = f"--columns {columns} --passes 4 --seed 2"
    whole, data, run = (tmp_path / name for name in ("whole", "data", "run"))
    assert cli.main(f"learn --backend replay --log {log} {words} --out {whole}".split()) == 0
    assert summary_of(whole)["learning_steps"] == 4 * 279
    assert (whole / "mspbe_curve.csv").read_text().splitlines()[-1].startswith("1116,1116,")
    assert cli.main(f"learn --data {log} {words} --out {data}".split()) == 0
    assert results_of(data) == results_of(whole)

    n_rows = 0

    def is_due(*_: Any) -> bool:
        nonlocal n_rows
        n_rows += 1
        if n_rows == 600:
            signal.raise_signal(signal.SIGINT)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "is_due", is_due)
        assert cli.main(f"learn --backend replay --log {log} {words} --out {run}".split()) == 130
    details = json.loads((run / "details.json").read_text())
    assert details["passes"] == pytest.approx(600 / 280)
    assert results_of(run) != results_of(whole)
    capsys.readouterr()
    assert cli.main(["resume", str(run)]) == 0
    assert "resumed at row 600; 520 rows follow" in capsys.readouterr().err
    assert results_of(run) == results_of(whole)
    assert cli.main(["resume", str(run)]) == 2
    assert "has learned from the first 280 rows of its data set" in capsys.readouterr().err

    for name in ("summary.json", "questions.csv", "traces.csv"):
        (run / name).unlink()
    assert cli.main(["report", str(run)]) == 0
    assert "from its snapshot at step" in capsys.readouterr().err
    assert results_of(run) == results_of(whole)
    assert cli.main(["doctor", str(run)]) == 0


def test_the_recording_of_a_log_is_replayed_and_scored_as_the_log(tmp_path: Path) -> None:
    """A recorded run is learned from once, and so is a log, by this name too: 139 updates, and not 30 x 139.

    No policy is tested meanwhile.
    """
    log, columns = log_file(tmp_path, 200)
    log_run = tmp_path / "log"
    replay = tmp_path / "replay"
    words = f"learn --backend replay --log {log} --columns {columns}"
    assert cli.main(f"{words} --out {log_run}".split()) == 0
    assert cli.main(f"learn --data {log_run} --out {replay}".split()) == 0
    assert results_of(replay) == results_of(log_run)
    assert summary_of(replay)["learning_steps"] == 139
    assert "Learned in 1 pass over the first 70%" in (log_run / "report.html").read_text()
    with (log_run / "log" / "excursions.rec").open("rb") as excursions:
        assert json.loads(excursions.readline())["policies"] == []


def test_the_requested_steps_of_a_log_are_learned_from_in_each_pass(tmp_path: Path) -> None:
    """100 rows, of which 70 are learned from: 69 transitions, twice, and not 99 in all."""
    log, columns = log_file(tmp_path, 200)
    words = f"learn --data {log} --columns {columns} --steps 99 --passes 2"
    assert cli.main(f"{words} --out {tmp_path / 'run'}".split()) == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["steps"], summary["learning_steps"]) == (99, 2 * 69)


def test_each_pass_over_a_recording_begins_with_a_gap_and_ends_where_it_shall(
    tmp_path: Path,
) -> None:
    """Steps and rows are counted on, also from the middle of a pass; no row of the recording is flagged."""
    path = tmp_path / "life.rec"
    with Recorder(1, path, {}) as recorder:
        rows = new_rows(10, 1)
        rows["step"] = np.arange(10)
        recorder.append(rows)
    extent = Extent({}, n_rows=7, last_step=6)
    passes = np.concatenate([part.rows for part in Recording(path, extent, passes=3)])
    assert passes["step"].tolist() == [*range(7), *range(6, 13), *range(12, 19)]
    assert np.flatnonzero(passes["flags"] & Flag.GAP).tolist() == [7, 14]
    resumed = Recording(path, extent, passes=3, since=9)
    rows = np.concatenate([part.rows for part in resumed])
    assert rows["step"].tolist() == passes["step"][9:].tolist()


def test_late_rows_of_a_log_follow_a_gap_from_one_and_a_half_periods_on() -> None:
    t = np.cumsum([0.0, 1.0, 1.4, 1.0, 1.6, 0.6, 1.0, 1.49, 1.51, 1.0, 1.0])
    columns = columns_of((ChannelColumn("x", low=0.0, high=1.0),), time="t")
    log = Table(lambda: chunks_of([{"x": np.zeros(11), "t": t}]), columns, "t")
    rows = np.concatenate([part.rows for part in log])
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 4, 8]


def test_rows_of_a_log_without_a_time_are_dropped() -> None:
    table = {"x": np.arange(1.0, 6.0), "t": np.array([0.0, np.nan, 2.0, 3.0, 4.0])}
    columns = columns_of((ChannelColumn("x", low=0.0, high=9.0),), time="t", missing="gap")
    rows = np.concatenate([part.rows for part in Table(lambda: chunks_of([table]), columns, "t")])
    assert rows["observation"][:, 0].tolist() == [1, 3, 4, 5]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 1]


def test_the_files_of_a_folder_are_read_by_their_numbers(tmp_path: Path) -> None:
    """life-2 before life-10, day 9 before day 10, and life before life-1: a record's parts in the order of time."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    names = ["day=9/life", "day=9/life-2", "day=9/life-10", "day=10/life-1", "day=10/life-11"]
    for i in (3, 0, 4, 2, 1):
        path = tmp_path / "table" / f"{names[i]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [2.0 * i, 2.0 * i + 1]}), path)
    hidden = tmp_path / "table" / ".life-0.parquet"
    pq.write_table(pa.table({"x": [99.0]}), hidden)
    chunks = read_columns(tmp_path / "table", ["x"])
    assert np.concatenate([chunk["x"] for chunk in chunks]).tolist() == list(range(10))


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replaced", "by", "sentence"),
    [
        ("[[channel]]", "nothing = 1\n[[channel]]", "unknown key 'nothing'"),
        ("[[channel]]", "[[channel]]\nnothing = 1", "[[channel]] has an unknown key 'nothing'"),
        ("low = 0.0", "low = 2.0", "channel 'x': low must be below high, not 2.0 and 1.0"),
        ('action = "a"', "", "b is the probability of an action: name the column `action` too"),
        ("period_s = 0.1", "", "it has no 'period_s'"),
        ('b = "p"', "b = 0.5", "b must be a text, not 0.5"),
        (
            'b = "p"',
            'missing = "drop"',
            'missing must be one of "reading", "gap", "error", not "drop"',
        ),
    ],
)
def test_a_wrong_file_of_columns_is_refused_by_its_name(
    replaced: str, by: str, sentence: str, columns: Path
) -> None:
    columns.write_text(COLUMNS.replace(replaced, by, 1))
    with pytest.raises(BadInput) as refusal:
        Columns.read(columns)
    assert str(refusal.value).startswith(f"the columns in {columns} cannot be read: ")
    assert sentence in str(refusal.value)


def test_a_column_that_the_table_lacks_is_refused_with_those_that_it_has(
    tmp_path: Path, columns: Path
) -> None:
    file = tmp_path / "t.npz"
    np.savez(file, **stream(50))  # type: ignore[arg-type]
    columns.write_text(COLUMNS.replace('"x"', '"z"'))
    with pytest.raises(BadInput, match=r"t\.npz has no column 'z'; there are x, y, a, p"):
        list(open_table(file, Columns.read(columns)))


@pytest.mark.parametrize("name", ["bad.npz", "bad.parquet"])
def test_a_file_that_is_no_table_of_its_suffix_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("PK nothing")
    with pytest.raises(BadInput, match=f"{name} cannot be read: "):
        open_table(file, Columns((ChannelColumn("x", "x", "x"),)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"questions": "excursions"},
            "the action probabilities of this data set are unknown, .*; 'left/g0/x' in excursions",
        ),
        ({"algorithm": "tree_backup"}, "the trace rule 'tree-backup' of 'behaviour/.*: give b"),
        ({"algorithm": "abtd"}, "the trace rule 'abtd' of 'behaviour/.*: give b"),
        ({"trace_rule": "tree-backup"}, "the trace rule 'tree-backup' of 'behaviour/.*: give b"),
    ],
)
def test_data_without_b_are_refused_for_what_needs_it(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        learned(tmp_path / "run", stream(50), **{"b": None, "questions": "nexting", **settings})
    assert not (tmp_path / "run").exists()
