"""Data sets whose times, actions, probabilities or order of rows do not fit their description."""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, Horde, cli, learn_from
from horde_agent.formats.arrays import chunks_of
from horde_agent.formats.columns import ChannelColumn, Columns, EpisodeColumns
from horde_agent.formats.fit import NothingToLearn
from horde_agent.formats.tables import Table
from horde_agent.record import Flag, Phase, read
from horde_agent.refusals import BadInput
from tests.agent.commands import summary_of
from tests.agent.table_files import columns_of, draft_columns, open_table
from tests.facts import states

N = 200
N_LEARNED = 140  # without actions, the others are for scoring
X = np.sin(np.arange(N) / 9)
NEXT = [GVF("next", Behaviour(), Channel(0), 0.0, lam=0.0)]
CHANNEL = ChannelColumn("x", "x", "x", low=-1.0, high=1.0)


def learned(out: Path, observations: Any = X[:, None], **given: Any) -> Any:
    return learn_from(observations, **{"questions": NEXT, "out": out, **given})


def rows_of(arrays: dict[str, Any], **columns: Any) -> Any:
    described = columns_of(columns.pop("channel", (CHANNEL,)), **columns)
    return np.concatenate(
        [part.rows for part in Table(lambda: chunks_of([arrays]), described, "t")]
    )


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "what"),
    [
        (
            np.arange(N) * 1e3,
            "the median time between rows is 1000 s, and period_s is 1 s.* seem to be milliseconds",
        ),
        (np.arange(N) * 1e9, "seem to be nanoseconds"),
        (np.arange(N) * 0.1, r"the median time between rows is 0\.1 s, and period_s is 1 s"),
        (np.arange(N) * 1.6, "the median time between rows is 1.6 s"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "gap"])
def test_times_that_do_not_fit_the_period_are_refused(
    times: Any, what: str, missing: str, tmp_path: Path
) -> None:
    """Milliseconds, nanoseconds, a forgotten period: before, each row followed a gap, with exit code 0."""
    with pytest.raises(BadInput, match=what):
        learned(tmp_path / "run", times=times, missing=missing)
    assert not (tmp_path / "run").exists()


def test_times_may_differ_from_the_period_by_less_than_a_half(tmp_path: Path) -> None:
    for factor in (0.7, 1.4):
        run = learned(tmp_path / f"{factor}", times=factor * np.arange(N))
        assert (run.summary["learning_steps"], run.summary["gaps"]) == (N_LEARNED - 1, 0)


def test_rows_with_the_newest_first_are_refused(tmp_path: Path) -> None:
    times = np.arange(N)[::-1].astype(float)
    with pytest.raises(BadInput, match=r"row 2, column '.*': 198 must increase within an episode"):
        learned(tmp_path / "run", times=times)
    with pytest.raises(BadInput, match=r"times do not increase.*oldest first"):
        learned(tmp_path / "run", times=times, missing="gap")


def test_the_rounding_of_times_is_in_their_unit() -> None:
    """float32 has steps of 8 ms after 28 hours; as 8 s, they would hide the gap of .1 s before row 100."""
    times_ms = 1e8 + 10.0 * np.arange(N)
    times_ms[100:] += 100.0
    arrays = {"x": X, "t": times_ms.astype(np.float32)}
    rows = rows_of(arrays, time="t", time_unit="ms", period_s=0.01)
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 100]


def test_rounded_times_are_no_gaps(tmp_path: Path) -> None:
    """float32 has steps of .0078 s after 28 hours, so rows 10 ms apart seem to be .0078 or .0156 s apart."""
    times = (1e5 + np.arange(3_000) / 100).astype(np.float32)
    with pytest.warns(UserWarning, match="rounded to more than a quarter of period_s"):
        run = learned(
            tmp_path / "run", np.sin(np.arange(3_000) / 9)[:, None], times=times, period_s=0.01
        )
    assert run.summary["gaps"] == 0
    late = times.copy()
    late[1_000:] += np.float32(0.05)
    with pytest.warns(UserWarning, match="rounded"):
        run = learned(
            tmp_path / "late", np.sin(np.arange(3_000) / 9)[:, None], times=late, period_s=0.01
        )
    assert run.summary["gaps"] == 1


def with_late_rows(every: int) -> Any:
    spacing = np.ones(N)
    spacing[::every] = 3.0
    return np.cumsum(spacing)


def notes_of(run: Path) -> list[str]:
    notes: list[str] = json.loads((run / "details.json").read_text())["notes"]
    return notes


def test_more_than_a_fifth_of_gaps_is_said_at_once_and_fewer_in_the_report(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"66 of 200 rows \(33%\) follow a gap, .* period_s is 1 s"
    ):
        run = learned(tmp_path / "many", times=with_late_rows(3))
    assert run.summary["gaps"] == 66
    run = learned(tmp_path / "few", times=with_late_rows(14))
    assert run.summary["gaps"] == 14
    assert [note for note in notes_of(run.path) if "14 of 200 rows (7%) follow a gap" in note]


def test_the_command_prints_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    columns = tmp_path / "c.toml"
    table.write_text(
        "t,x\n" + "".join(f"{t},{x}\n" for t, x in zip(with_late_rows(3), X, strict=True))
    )
    columns.write_text('period_s = 1\ntime = "t"\n[[channel]]\ncolumn = "x"\n')
    for source in (f"--data {table}", f"--backend replay --log {table} --passes 2"):
        run = tmp_path / f"run{len(source)}"
        assert cli.main(f"learn {source} --columns {columns} --out {run}".split()) == 0
        assert "66 of 200 rows (33%) follow a gap" in " ".join(capsys.readouterr().err.split())
        assert "66 of 200 rows (33%) follow a gap" in (run / "report.html").read_text()


# ---- nothing to learn ------------------------------------------------------------------------------------------------


def test_a_data_set_without_a_transition_ends_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1; nothing is left."""
    with pytest.raises(NothingToLearn, match="because each episode has one row"):
        learned(tmp_path / "run", episodes=np.arange(N))
    times = np.cumsum(np.tile([1.0, 1.0, 9.0], 7))[:20]
    with pytest.raises(
        NothingToLearn,
        match=r"more than 1.5 periods.* 9 s.*period_s",
    ):
        learned(tmp_path / "run", X[:3, None], times=np.array([0.0, 9.0, 18.0]))
    with pytest.warns(UserWarning, match="6 of 20 rows"):
        assert learned(tmp_path / "some", X[:20, None], times=times).summary["learning_steps"] == 9
    table = tmp_path / "t.csv"
    columns = tmp_path / "c.toml"
    table.write_text("e,x\n" + "".join(f"{i},{x}\n" for i, x in enumerate(X)))
    columns.write_text('period_s = 1\nepisode = "e"\n[[channel]]\ncolumn = "x"\n')
    for source in (
        f"--data {table}",
        f"--data {table} --steps 5",
        f"--backend replay --log {table}",
    ):
        assert cli.main(f"learn {source} --columns {columns} --out {tmp_path / 'run'}".split()) == 1
        assert states(capsys.readouterr().err, "no step", "one row")
    assert not (tmp_path / "run").exists()


# ---- actions and b ---------------------------------------------------------------------------------------------------


def acted(n_actions: int, first: int = 0) -> Any:
    return np.random.default_rng(1).integers(first, first + n_actions, N)


def test_an_action_that_never_occurs_is_remarked_unless_it_was_named(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "actions": acted(3, first=1),
        "b": np.full(N, 1 / 3),
        "questions": "excursions",
    }
    with pytest.warns(
        UserWarning,
        match="from 0 to 3.*0 never occurs.*subtract 1",
    ):
        run = learned(tmp_path / "run", **given)
    assert run.interface.actions == ("action_0", "action_1", "action_2", "action_3")
    learned(tmp_path / "named", **given, action_names=["none", "a", "b", "c"])
    learned(tmp_path / "all", **{**given, "actions": acted(3)})


def test_b_of_one_for_two_actions_is_remarked(tmp_path: Path) -> None:
    given: dict[str, Any] = {"questions": "excursions", "b": np.ones(N)}
    with pytest.warns(UserWarning, match="b is 1 in every row, but 2 actions were taken"):
        learned(tmp_path / "two", actions=acted(2), **given)
    learned(tmp_path / "one", actions=np.zeros(N, dtype=int), **given)
    learned(
        tmp_path / "half",
        actions=acted(2),
        questions="excursions",
        b=np.where(np.arange(N) == 7, 0.5, 1.0),
    )
    learned(tmp_path / "unknown", actions=acted(2))


# ---- rows of transitions ---------------------------------------------------------------------------------------------


def chain(n_episodes: int = 400) -> dict[str, Any]:
    """Rows (s, a, r, done) of five states in a row; the last one gives 1 and ends the episode."""
    states = np.tile(np.eye(5), (n_episodes, 1))
    table: dict[str, Any] = {name: states[:, i] for i, name in enumerate("vwxyz")}
    table["r"] = np.tile([0, 0, 0, 0, 1.0], n_episodes)
    return table | {
        "d": table["r"] == 1,
        "a": np.zeros(5 * n_episodes, dtype=int),
        "b": np.ones(5 * n_episodes),
    }


RETURN = [GVF("return", Behaviour(), Channel("r"), 0.9)]
CHAIN: dict[str, Any] = {
    "b": "b",
    "terminations": "d",
    "channels": [*"vwxyz", "r"],
    "questions": RETURN,
}


@pytest.mark.parametrize("kind", ["dict", "csv", "parquet", "array"])
def test_rows_of_transitions_are_learned_with_their_last_reward(kind: str, tmp_path: Path) -> None:
    """The values are .9^k for k steps before the end: .66, .73, .81, .9, 1. One row off: .73, .81, .9, 1, .53."""
    table = chain()
    source: Any = table
    arguments = {**CHAIN, "rewards": ["r"], "convention": "transition", "out": tmp_path / "run"}
    if kind == "csv":
        source = tmp_path / "chain.csv"
        rows = zip(*(values.tolist() for values in table.values()), strict=True)
        source.write_text(
            "\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n"
        )
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        source = tmp_path / "chain.parquet"
        pq.write_table(pa.table(table), source)
    if kind == "array":
        source = np.column_stack([table[name] for name in CHAIN["channels"]])
        run = learn_from(
            source, table["a"], **{**arguments, "b": table["b"], "terminations": table["d"]}
        )
    else:
        run = learn_from(source, "a", **arguments)
    assert run.summary["learning_steps"] == 2_000
    values = [
        run.horde.predict(run.interface.encode(reading), reading)[0]
        for reading in np.column_stack([np.eye(5), np.zeros(5)])
    ]
    np.testing.assert_allclose(values, 0.9 ** np.arange(4, -1, -1), atol=0.01)


@pytest.mark.parametrize("size", [1, 2, 3, 11])
def test_terminal_rows_are_added_where_actions_led_to_them(size: int) -> None:
    """Two episodes that end by termination, one that is cut off; the reward of each row moves to the next one."""
    table = {
        "x": np.arange(8) / 8,
        "r": np.arange(1.0, 9.0),
        "a": np.zeros(8),
        "b": np.ones(8),
        "d": np.array([0, 0, 1, 0, 1, 0, 0, 0]),
        "e": np.array([0, 0, 0, 1, 1, 2, 2, 2]),
        "t": np.array([0.0, 1, 2, 0, 1, 5, 6, 7]),
    }
    columns = columns_of(
        (CHANNEL, ChannelColumn("r", "r", "r", low=0.0, high=9.0, transition=True)),
        **{
            "action": "a",
            "actions": ("one",),
            "b": "b",
            "time": "t",
            "episode": "e",
            "terminated": "d",
        },
        convention="transition",
    )
    parts = [
        {name: values[k : k + size] for name, values in table.items()} for k in range(0, 8, size)
    ]
    rows = np.concatenate([part.rows for part in Table(lambda: chunks_of(parts), columns, "t")])
    end = int(Phase.END)
    terminal = np.array([3, 6])
    assert rows["observation"][:, 1].tolist() == [0, 1, 2, 3, 0, 4, 5, 0, 6, 7]
    assert (rows["observation"][:, 0] * 8).tolist() == [0, 1, 2, 2, 3, 4, 4, 5, 6, 7]
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == terminal.tolist()
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 4, 7]
    assert rows["phase"].tolist() == [0, 0, 0, end, 0, 0, end, 0, 0, end]
    assert rows["action"].tolist() == [0, 0, 0, -1, 0, 0, -1, 0, 0, -1]
    assert rows["step"].tolist() == [0, 1, 2, 3, 3, 4, 5, 5, 6, 7]
    assert rows["t"].tolist() == [0, 1, 2, 3, 0, 1, 2, 5, 6, 7]
    assert np.isnan(rows["b"][terminal]).all()


# ---- time limits -----------------------------------------------------------------------------------------------------


def limited(n: int = 200, length: int = 20) -> dict[str, Any]:
    """What `env.step` returned beside the observation and the action: each episode ends at its time limit."""
    i = np.arange(n)
    return {
        "x": i % length / length,
        "a": i % 2,
        "b": np.full(n, 0.5),
        "r": i.astype(float),
        "terminated": np.zeros(n, dtype=bool),
        "truncated": i % length == length - 1,
        "episode": i // length,
        "step": i % length,
        "t": 0.1 * (i % length),
    }


LIMITED: dict[str, Any] = {"action": "a", "actions": ("l", "r"), "b": "b"}


def in_parts(table: dict[str, Any], size: int, **columns: Any) -> Any:
    """Return the rows of a table that is read in parts of `size` rows."""
    n = len(table["x"])
    parts = [{k: v[first : first + size] for k, v in table.items()} for first in range(0, n, size)]
    described = columns_of((CHANNEL,), **LIMITED, **columns)
    return np.concatenate([part.rows for part in Table(lambda: chunks_of(parts), described, "t")])


@pytest.mark.parametrize("size", [1, 7, 20, 200])
@pytest.mark.parametrize(
    "columns",
    [
        {"truncated": "truncated"},
        {"truncated": "truncated", "terminated": "terminated"},
        {"truncated": "truncated", "terminated": "terminated", "convention": "transition"},
        {"truncated": "truncated", "next_reward": "r", "convention": "transition"},
        {"episode_step": "step"},
        {"episode_step": "t", "time": "t", "period_s": 0.1},
        {"episode_step": "step", "truncated": "truncated", "episode": "episode"},
    ],
)
def test_a_time_limit_ends_an_episode_as_its_number_does(
    columns: dict[str, Any], size: int
) -> None:
    """10 episodes of 20 rows: 10 gaps and 190 transitions. With the mark as a sensor 1 gap and 199 transitions."""
    table = limited()
    rows = in_parts(table, size, **columns)
    numbered = {key: value for key, value in columns.items() if key in ("time", "period_s")}
    if "next_reward" in columns:
        numbered["next_reward"] = "r"
    expected = in_parts(table, 200, episode="episode", **numbered)
    for field in ("observation", "action", "b", "phase", "flags", "step", "t", "reward"):
        np.testing.assert_array_equal(rows[field], expected[field], err_msg=field)
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == list(range(0, 200, 20))
    assert int((rows["phase"] == Phase.BEHAVE).sum()) == 190


@pytest.mark.parametrize("kind", ["array", "csv", "npz", "parquet", "feather"])
def test_a_truncation_teaches_the_weights_of_the_table_with_episode_numbers(
    kind: str, tmp_path: Path
) -> None:
    """In each form of a table."""
    table = limited()
    source: Any = table
    names: dict[str, Any] = {"b": "b", "terminations": "terminated", "channels": ["x"]}
    if kind == "csv":
        source = tmp_path / "t.csv"
        rows = zip(*(values.tolist() for values in table.values()), strict=True)
        lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
        source.write_text("\n".join(lines) + "\n")
    elif kind == "npz":
        source = tmp_path / "t.npz"
        np.savez(source, **table)
    elif kind != "array":
        pa = pytest.importorskip("pyarrow")
        source = tmp_path / f"t.{kind}"
        writers = {
            "parquet": pytest.importorskip("pyarrow.parquet").write_table,
            "feather": pytest.importorskip("pyarrow.feather").write_feather,
        }
        writers[kind](pa.table(table), source)
    question = [GVF("next", Behaviour(), Channel("x"), 0.9)]
    runs = []
    for name, key in (("truncated", "truncations"), ("episode", "episodes")):
        arguments = {**names, key: name, "questions": question, "out": tmp_path / name}
        if kind == "array":
            for argument in ("b", "terminations", key):
                arguments[argument] = table[arguments[argument]]
            runs.append(learn_from(table["x"][:, None], table["a"], **arguments))
        else:
            runs.append(learn_from(source, "a", **arguments))
    hashes = [run.summary["weights_sha256"] for run in runs]
    assert [run.summary["learning_steps"] for run in runs] == [190, 190]
    assert hashes[0] == hashes[1]


def test_a_row_that_is_terminated_and_truncated_is_what_the_columns_say() -> None:
    """An old `done` is true at a time limit, too; of Gymnasium's marks, terminated decides what the last state is."""
    table = limited(40)
    table["terminated"] = table["truncated"] | (np.arange(40) == 4)
    marks = {"terminated": "terminated", "truncated": "truncated", "convention": "transition"}
    with pytest.raises(
        BadInput, match=r"row 20, column 'truncated': True marks .* write both = \"truncated\" if"
    ):
        in_parts(table, 40, **marks)
    rows = in_parts(table, 40, **marks, both="truncated")
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [5]
    assert np.flatnonzero(rows["phase"] == Phase.END).tolist() == [5, 20, 40]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 6, 21]
    rows = in_parts(table, 40, **marks, both="terminated")
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [5, 21, 42]
    with pytest.raises(BadInput, match='both must be one of "terminated", "truncated", not "done"'):
        Columns.of({"period_s": 1.0, "channel": [{"column": "x"}], "both": "done"})


@pytest.mark.parametrize(
    ("period_s", "reason"),
    [
        (10**400, "period_s is a number of more than 300 digits"),
        (0, "period_s must be > 0, not 0.0"),
        (float("nan"), "period_s must be > 0, not nan"),
    ],
)
def test_a_period_that_is_no_duration_is_refused(period_s: float, reason: str) -> None:
    """TOML has whole numbers of any size."""
    with pytest.raises(BadInput, match=reason):
        Columns.of({"period_s": period_s, "channel": [{"column": "x"}]})


def test_a_counter_without_a_number_is_refused_or_ends_nothing_in_a_dropped_row() -> None:
    table = limited(60)
    table["step"] = table["step"].astype(float)
    table["step"][[5, 20, 39]] = np.nan
    with pytest.raises(BadInput, match="row 6, column 'step': nan must be a number, which starts"):
        in_parts(table, 60, episode_step="step")
    for size in (1, 7, 60):
        rows = in_parts(table, size, episode_step="step", missing="gap")
        assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 21, 40]


def test_a_counter_that_stands_still_begins_an_episode_with_each_row() -> None:
    """Episodes of 1, 1, 3 and 1 rows: steps 0, 0, 0, 1, 2, 0."""
    table = limited(6)
    table["step"] = np.array([0, 0, 0, 1, 2, 0])
    rows = in_parts(table, 6, episode_step="step")
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 1, 2, 5]
    assert np.flatnonzero(rows["phase"] == Phase.BEHAVE).tolist() == [2, 3]


def test_a_dropped_row_may_end_an_episode() -> None:
    """Its reading is missing: the next row begins an episode, in which times start again, and follows no gap."""
    table = limited(40)
    table["x"][19] = np.nan
    described = columns_of(
        (CHANNEL,), **LIMITED, truncated="truncated", time="t", period_s=0.1, missing="gap"
    )
    source = Table(lambda: chunks_of([table]), described, "t")
    rows = np.concatenate([part.rows for part in source])
    assert len(rows) == 39
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 19]
    assert not any("follow a gap" in note for note in source.notes)


def test_an_action_of_probability_zero_is_a_placeholder(tmp_path: Path) -> None:
    """The last row of an episode has an observation and no action: written as action 0, b 0, it is none."""
    i = np.arange(60)
    ends = i % 20 == 19
    table = {"x": i % 7, "a": np.where(ends, 0, i % 2), "b": np.where(ends, 0.0, 0.5), "done": ends}
    file = csv_of(table, tmp_path / "t.csv")
    columns = Columns.of(tomllib.loads(draft_columns(file)))
    assert columns.episodes == EpisodeColumns(terminated="done")
    rows = np.concatenate([part.rows for part in open_table(file, columns)])
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [19, 39, 59]


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (
            {"step": "step"},
            "row 21, column 'step': 0 must not decrease: .* name it by episode_step",
        ),
        (
            {"time": "t", "period_s": 0.1},
            "row 21, column 't': 0 must increase .* starts again in each episode, write episode_step",
        ),
    ],
)
def test_a_counter_that_starts_again_is_refused_with_the_remedy(
    columns: dict[str, Any], what: str
) -> None:
    with pytest.raises(BadInput, match=what):
        in_parts(limited(), 200, **columns)


def csv_of(table: dict[str, Any], path: Path) -> Path:
    cells = [np.asarray(values).astype(float).tolist() for values in table.values()]
    rows = [",".join(f"{cell:g}" for cell in row) for row in zip(*cells, strict=True)]
    path.write_text("\n".join([",".join(table), *rows]) + "\n")
    return path


DRAFTED = ("terminated", "truncated", "both", "convention", "episode", "episode_step", "step")


@pytest.mark.parametrize(
    ("names", "drafted"),
    [
        (
            {"terminated": "terminated", "truncated": "truncated"},
            {"terminated": "terminated", "truncated": "truncated", "convention": "transition"},
        ),
        (
            {"terminated": "terminals", "truncated": "timeouts"},
            {"terminated": "terminals", "truncated": "timeouts", "convention": "transition"},
        ),
        ({"truncated": "Time_Limit"}, {"truncated": "Time_Limit"}),
        (
            {"ended": "done", "truncated": "TimeLimit.truncated"},
            {
                "terminated": "done",
                "truncated": "TimeLimit.truncated",
                "both": "truncated",
                "convention": "transition",
            },
        ),
        (
            {"ended": "terminated", "truncated": "truncated"},
            {
                "terminated": "terminated",
                "truncated": "truncated",
                "both": "terminated",
                "convention": "transition",
            },
        ),
        ({"step": "step"}, {"episode_step": "step"}),
        ({"step": "t"}, {"episode_step": "t"}),
        ({"step": "step", "episode": "episode"}, {"episode": "episode", "episode_step": "step"}),
    ],
)
def test_marks_of_time_limits_and_counters_are_drafted(
    names: dict[str, str], drafted: dict[str, str], tmp_path: Path
) -> None:
    """As the draft comes, the table has 10 gaps, and neither mark nor counter is a channel."""
    table = limited()
    table["ended"] = table["truncated"]
    chosen = {"x": table["x"], "a": table["a"], "b": table["b"]}
    file = csv_of(chosen | {name: table[key] for key, name in names.items()}, tmp_path / "t.csv")
    text = draft_columns(file)
    columns = Columns.of(tomllib.loads(text))
    values = {key: columns.keys[key] for key in DRAFTED}
    assert {key: value for key, value in values.items() if value is not None} == drafted
    assert [channel.column for channel in columns.channel] == ["x"]
    table_rows = np.concatenate([part.rows for part in open_table(file, columns)])
    n_added = 0
    if columns.episodes.both == "terminated":
        n_added = 10
    assert int((table_rows["flags"] & Flag.GAP > 0).sum()) == 10
    assert len(table_rows) == 200 + n_added
    if "episode_step" in drafted:
        counter = drafted["episode_step"]
        assert f"# {counter} starts again 9 times in the first 200 rows: an episode" in text


@pytest.mark.parametrize(
    ("truncated", "both"),
    [([19, 39], "truncated"), ([39, 59], "terminated"), ([59], None)],
)
def test_a_done_is_any_end_if_it_is_true_at_each_time_limit(
    truncated: list[int], both: str | None, tmp_path: Path
) -> None:
    """`done` in rows 19 and 39: at each time limit, at one of two, at none."""
    i = np.arange(60)
    table = {"x": i % 7, "a": i % 2, "b": np.full(60, 0.5), "done": np.isin(i, [19, 39])}
    file = csv_of(table | {"timeout": np.isin(i, truncated)}, tmp_path / "t.csv")
    columns = Columns.of(tomllib.loads(draft_columns(file)))
    ends = columns.episodes
    assert (ends.terminated, ends.truncated, ends.both) == ("done", "timeout", both)


def test_a_step_that_falls_a_little_is_no_counter(tmp_path: Path) -> None:
    """It starts again near its smallest number, or it is in no order: then it is a reading."""
    step = np.arange(60)
    step[30:] -= 10
    file = csv_of({"x": np.arange(60) % 7, "step": step}, tmp_path / "t.csv")
    columns = Columns.of(tomllib.loads(draft_columns(file)))
    assert (columns.times.step, columns.episodes.episode_step) == (None, None)
    assert [channel.column for channel in columns.channel] == ["x", "step"]


def test_marks_of_a_data_set_with_continuous_actions_are_of_transitions(tmp_path: Path) -> None:
    """D4RL: vectors of observations and actions, rewards, terminals, timeouts; the next state is in no row."""
    rng = np.random.default_rng(0)
    ends = np.arange(200) % 20 == 19
    file = tmp_path / "d4rl.npz"
    np.savez(
        file,
        observations=rng.random((200, 2)),
        actions=rng.random((200, 2)),
        rewards=np.ones(200),
        terminals=ends & (np.arange(200) < 100),
        timeouts=ends & (np.arange(200) >= 100),
    )
    columns = Columns.of(tomllib.loads(draft_columns(file)))
    ends = columns.episodes
    assert (ends.terminated, ends.truncated) == ("terminals", "timeouts")
    assert columns.episodes.convention == "transition"
    rows = np.concatenate([part.rows for part in open_table(file, columns)])
    assert np.flatnonzero(rows["flags"] & Flag.TERMINATED).tolist() == [20, 41, 62, 83, 104]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [
        *range(0, 105, 21),
        *range(105, 205, 20),
    ]


def test_a_mark_that_is_read_as_a_sensor_is_remarked(tmp_path: Path) -> None:
    table = {key: limited()[key] for key in ("x", "truncated")}
    with pytest.warns(UserWarning, match="channel 'truncated' is read as a sensor.*truncations"):
        learned(tmp_path / "run", table)


def test_an_action_and_b_in_a_terminal_row_are_refused_with_the_remedy(tmp_path: Path) -> None:
    table = chain(2)
    with pytest.raises(
        BadInput,
        match=r"row 5, column 'd': True marks a terminal row .* convention = \"transition\"",
    ):
        learn_from(table, "a", **CHAIN, out=tmp_path / "run")
    run = learn_from(table, "a", **CHAIN, convention="observation", out=tmp_path / "run")
    assert np.flatnonzero(
        read(run.path / "log/life.rec").rows["flags"] & Flag.TERMINATED
    ).tolist() == [4, 9]
    table["a"][4::5] = -1  # such a row has none
    learn_from(table, "a", **CHAIN, out=tmp_path / "none")
    with pytest.raises(
        BadInput, match='convention must be one of "observation", "transition", not "gym"'
    ):
        learn_from(table, "a", **CHAIN, convention="gym", out=tmp_path / "gym")
    with pytest.raises(BadInput, match="rewards names 'q', which is no channel"):
        learn_from(table, "a", **CHAIN, rewards=["q"], out=tmp_path / "q")


def test_an_action_in_a_terminal_row_without_b_is_remarked(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="2 terminal rows have an action, which is ignored"):
        learn_from(chain(2), "a", **{**CHAIN, "b": None}, out=tmp_path / "run")


def test_a_reward_that_is_not_marked_in_rows_of_transitions_is_remarked(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="The channel 'r' is read as one of the row's observation"):
        learn_from(chain(2), "a", **CHAIN, convention="transition", out=tmp_path / "run")


def test_rewards_have_no_tiles_by_default(tmp_path: Path) -> None:
    run = learn_from(
        chain(2), "a", **CHAIN, rewards=["r"], convention="transition", out=tmp_path / "run"
    )
    tiles = [run.interface.encode(np.append(np.eye(5)[0], reward)) for reward in (0.0, 1.0)]
    assert tiles[0].tolist() == tiles[1].tolist()


# ---- paths and a file of columns -------------------------------------------------------------------------------------


def test_a_path_is_a_table_a_data_set_or_refused_by_what_it_may_be(tmp_path: Path) -> None:
    table = tmp_path / "x.CSV"
    table.write_text("x,a\n" + "".join(f"{x},0\n" for x in X))
    for path in (table, str(table)):
        run = learn_from(path, "a", questions=NEXT, out=tmp_path / f"run{type(path).__name__}")
        assert (run.interface.names, run.summary["learning_steps"]) == (("x",), N - 1)
    may_be = r"does not exist: give .* \*.parquet, .* or the name of a Minari data set, such as NAMESPACE/NAME-v0"
    for wrong in (str(tmp_path / "none.csv"), tmp_path / "none.csv", "none.txt", Path("none")):
        with pytest.raises(BadInput, match=may_be):
            learn_from(wrong, questions=NEXT, out=tmp_path / "b")
    table.write_text("")
    with pytest.raises(BadInput, match="is empty"):
        learn_from(table, questions=NEXT, out=tmp_path / "b")
    for wrong in (None, 3, [[1.0, 2.0], [3.0]]):
        with pytest.raises(BadInput, match="observations must"):
            learn_from(wrong, questions=NEXT, out=tmp_path / "b")
    table.write_text("x,a\n1,0\n")
    (tmp_path / "note.txt").write_text("x\n1\n")
    with pytest.raises(BadInput, match=r"note.txt is no data set: give .* \*.parquet, .* \*.csv"):
        learn_from(tmp_path / "note.txt", questions=NEXT, out=tmp_path / "b")
    with pytest.raises(BadInput, match="has no column 'q'; there are x, a"):
        learn_from(table, "q", questions=NEXT, out=tmp_path / "b")


def test_the_advice_to_drop_rows_can_be_followed(tmp_path: Path) -> None:
    x = X[:, None].copy()
    x[5] = np.nan
    with pytest.raises(BadInput, match='set missing = "gap" to drop such rows'):
        learned(tmp_path / "run", x, missing="error")
    run = learned(tmp_path / "run", x, missing="gap")
    assert (run.summary["learning_steps"], run.summary["gaps"]) == (N_LEARNED - 3, 1)


TABLE = "stamp,x,note,a,p,e,done\n" + "".join(
    f"{0.1 * i:.1f},{x:.3f},text,{i % 2},0.5,{i // 50},{i % 50 == 49}\n" for i, x in enumerate(X)
)


def test_the_drafted_columns_have_every_key_and_can_be_used_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the keys that are not used written out, too, it is a table that `Columns` knows."""
    table = tmp_path / "t.csv"
    file = tmp_path / "columns.toml"
    table.write_text(TABLE.replace(",p,", ",b,"))
    assert cli.main(["columns", str(table)]) == 0
    text = capsys.readouterr().out
    file.write_text(text)
    columns = Columns.read(file)
    assert (columns.times.period_s, columns.times.time) == (0.1, "stamp")
    assert (columns.actions.action, columns.actions.b) == ("a", "b")
    expected = EpisodeColumns(episode="e", terminated="done", convention="transition")
    assert columns.episodes == expected
    assert [channel.column for channel in columns.channel] == ["x"]
    assert "No numbers, so no channels: note" in text
    complete = tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert set(complete) == {"channel", *columns.keys}
    of_runs = {key: complete.pop(key) for key in ("phase", "flags", "policy")}
    with pytest.raises(BadInput, match="reward and next_reward are both named"):
        Columns.of(complete)
    del complete["next_reward"]
    assert set(complete["channel"][0]) == set(ChannelColumn._fields)
    assert Columns.of(complete).channel[0].column == "x"
    with pytest.raises(BadInput, match=r'convention = "transition" is not for recorded runs'):
        Columns.of(complete | of_runs)
    for key in ("truncated", "episode_step"):
        with pytest.raises(BadInput, match=f"{key} is not for recorded runs"):
            Columns.of({"period_s": 1.0, "channel": [{"column": "x"}], "phase": "p", key: "q"})
    run = tmp_path / "run"
    assert cli.main(f"learn --data {table} --columns {file} --out {run}".split()) == 0
    assert summary_of(run)["learning_steps"] == N


def test_only_columns_that_hold_what_their_name_promises_are_drafted(tmp_path: Path) -> None:
    """Times that do not increase, actions that are no whole numbers, and b above 1 are channels."""
    table = tmp_path / "t.csv"
    table.write_text(
        "t,a,b,e,d,step\n" + "".join(f"{-i},{i + 0.5},{i},{-i},{i},{-i}\n" for i in range(9))
    )
    columns = Columns.of(tomllib.loads(draft_columns(table)))
    assert [channel.column for channel in columns.channel] == ["t", "a", "b", "e", "d", "step"]
    assert columns.others == {}


@pytest.mark.parametrize("name", ["a\tb", 'a"b', "a\\b", "a\x7fb", "å ", "a\nb"])
def test_any_name_of_a_column_survives_the_file(name: str, tmp_path: Path) -> None:
    columns = columns_of((ChannelColumn(name, name, "g", low=0.0, high=1.0),))
    file = tmp_path / "c.toml"
    file.write_text(columns.to_toml())
    assert Columns.read(file).channel[0].column == name


def test_no_remark_about_a_plain_data_set(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = learned(
            tmp_path / "run",
            actions=acted(2),
            b=np.full(N, 0.5),
            times=np.arange(N),
            questions="excursions",
        )
    (held_out,) = notes_of(run.path)
    assert "are scored on the last 30 % of the rows" in held_out
    assert open_table(run_table(tmp_path), columns_of((CHANNEL,))).remarks == []


def run_table(folder: Path) -> Path:
    file = folder / "plain.csv"
    file.write_text("x\n1\n0\n")
    return file


def test_two_sources_of_steps_are_refused_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, the advice was to leave out --backend gymnasium, which nobody had given."""
    table = run_table(tmp_path)
    assert cli.main(f"learn --data {table} --env CartPole-v1 --out {tmp_path / 'run'}".split()) == 2
    assert states(capsys.readouterr().err, f"--data {table}", "--env CartPole-v1", "give one")


def test_a_table_without_columns_is_refused_with_the_command_that_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = run_table(tmp_path)
    assert cli.main(f"learn --data {table} --out {tmp_path / 'run'}".split()) == 2
    assert f"`horde columns {table} > columns.toml` writes one" in capsys.readouterr().err
    assert cli.main(["columns", str(tmp_path / "none.csv")]) == 2
    assert "none.csv does not exist" in capsys.readouterr().err


def test_an_action_of_a_horde_without_actions_counts_from_zero() -> None:
    horde = Horde(NEXT, n_features=1, n_active=1)
    horde.begin(np.zeros(1), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="action must be a whole number from 0, not -1"):
        horde.learn(-1, 1.0, np.zeros(1), np.zeros(1, dtype=np.int64))


def test_dates_are_times_and_are_refused_as_a_channel(tmp_path: Path) -> None:
    dates = np.datetime64("2026-01-01") + np.arange(N) * np.timedelta64(1, "s")
    assert learned(tmp_path / "run", times=dates).summary["learning_steps"] == N_LEARNED - 1
    with pytest.raises(
        BadInput,
        match=r"holds dates, expected numbers: name it as the time, or convert it by \(t -",
    ):
        learn_from({"x": X, "when": dates}, questions=NEXT, out=tmp_path / "b")


def test_the_first_dropped_row_is_named_by_the_column_that_lacks_a_number() -> None:
    """Not by a column of categories, which has texts in each row."""
    road = ChannelColumn("road", "road", "road", low=-0.5, high=1.5, categories=("dry", "wet"))
    table = {"road": np.array(["dry", "wet", "dry", "wet"]), "x": np.array([1.0, np.nan, 2.0, 3.0])}
    described = columns_of((road, CHANNEL), missing="gap")
    source = Table(lambda: chunks_of([table]), described, "t")
    assert sum(len(part.rows) for part in source) == 3
    assert "the first is row 2, column 'x': nan is no number." in source.notes[0]
