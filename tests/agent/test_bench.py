"""`horde bench`: its keys, its yardsticks against the Horde, and what it says when something cannot be measured."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.bench import KEYS, BenchConfig, estimates, sections, workload
from horde_agent.bench.competitors import Learning, of_constant_actions, of_own_policies, ratios
from horde_agent.bench.curves import Curve
from horde_agent.bench.estimates import Cost
from horde_agent.bench.measure import MODERATE, THOROUGH, Effort, Neighbours, Times, bandwidth, measure
from horde_agent.bench.page import MEANINGS, write_page
from horde_agent.bench.recorded import recorded
from horde_agent.bench.roofline import BATCH, deferred_bytes, eager_bytes, followed_bytes, period, roofline
from horde_agent.runs.config import BadInput


def gibbs_steps(dtype: Any = "float32") -> dict[str, Any]:
    """Return W2's yardsticks for 40 questions over 60 steps."""
    stream, questions = workload.stream(61), workload.gibbs_questions(40)
    return of_own_policies(questions, stream, ratios(questions, stream, 60), dtype)


def test_yardsticks_learn_what_the_horde_learns() -> None:
    """The same predictions over 60 steps, within their type: else the ratios would compare different work."""
    horde = Learning(workload.gibbs_questions(40), workload.stream(61), dtype="float64")
    yardsticks = {(name, 1e-4): step for name, step in gibbs_steps().items() if name != "dense pass"}
    yardsticks |= {(name, 1e-6): step for name, step in gibbs_steps("float64").items()}  # rho comes in float32
    assert len(yardsticks) == 4
    check_against(horde, yardsticks)


@pytest.mark.slow
def test_the_dense_pass_learns_what_the_horde_learns() -> None:
    horde = Learning(workload.gibbs_questions(40), workload.stream(61), dtype="float64")
    check_against(horde, {("dense pass", 1e-4): gibbs_steps()["dense pass"]})


def test_the_yardsticks_of_constant_actions_learn_what_the_horde_learns() -> None:
    """Under the w rule "importance-weighted": a demon whose action is not taken has nothing to do."""
    stream, questions = workload.stream(31), workload.constant_action_questions()
    yardsticks: dict[tuple[str, float], Any] = {}
    for dtype, within in (("float32", 1e-4), ("float64", 1e-6)):
        steps = of_constant_actions(questions, stream, 30, dtype)  # type: ignore[arg-type]
        yardsticks |= {(name, within): step for name, step in steps.items()}
    check_against(Learning(questions, stream, dtype="float64"), yardsticks, 30)


def check_against(learning: Learning, yardsticks: dict[tuple[str, float], Any], n_steps: int = 60) -> None:
    """Check that yardsticks predict what a Horde predicts in the end, within a share of the largest prediction."""
    for t in range(n_steps):
        learning(t)
        got = {key: step(t) for key, step in yardsticks.items()}
    want = learning.horde.predictions
    assert np.abs(want).max() > 0.1
    for (name, within), values in got.items():
        np.testing.assert_allclose(values, want, rtol=0, atol=within * np.abs(want).max(), err_msg=name)


def test_the_object_has_exactly_the_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Null where nothing was measured; the page says what was; progress stays on stderr."""
    assert cli.main(["bench", "--json", "--quick", "--only", "tile", "--out", str(tmp_path / "b")]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert list(answer) == list(KEYS)
    assert len(KEYS) == 25
    assert 0 < answer["tile_us"] < 1e4
    assert answer["w1_ms"] is answer["life_261681_s"] is None
    assert answer["threads"] >= 1
    assert json.loads((tmp_path / "b" / "bench.json").read_text()) == answer
    assert "What learning costs" in (tmp_path / "b" / "bench.html").read_text()
    assert "--full" in err


def test_an_unknown_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--only", "w3"]) == 2
    assert "'w3'" in capsys.readouterr().err
    with pytest.raises(BadInput):
        sections_of(skip="nothing")


def sections_of(**words: Any) -> list[str]:
    """Return the sections that words choose."""
    return BenchConfig(**words).sections()


def test_sections_are_chosen_and_skipped() -> None:
    assert sections_of(only="tile, w1") == ["w1", "tile"]
    assert "life" not in sections_of()
    assert sections_of(full=True, skip="w50k,max")[-3:] == ["life", "tile", "cluster"]


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    bench = sections.Bench(Effort(2, 2, 1, 0), said.append)
    monkeypatch.setattr(sections, "available_memory", lambda: 10**8)
    assert bench.w10k() == bench.w50k() == bench.max() == {}
    assert all("memory" in words for words in said)
    assert len(said) == 3


def test_steps_are_taken_in_order_and_warm_ups_do_not_count() -> None:
    """Every competitor takes every step once; 3 first steps and 1 of each chunk of 4 are slow, and do not show."""
    seen: list[int] = []

    def slow_at_first(t: int) -> None:
        seen.append(t)
        if t < 3 or t in (3, 7):
            time.sleep(0.05)

    times = measure({"a": slow_at_first, "b": lambda _: None}, Effort(first=3, chunk=4, n_chunks=2, warm_up=1))
    assert seen == list(range(11))
    assert times["a"].mean < times["a"].worst < 50.0


def test_the_workload_is_that_of_the_paper() -> None:
    """457 of 6,065 features, three tenths of the active ones switching per step; the coder has the same size."""
    stream, coder = workload.stream(300), workload.coder()
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (6065, 457, 53)
    assert np.mean(stream.tiles[1:] != stream.tiles[:-1]) == pytest.approx(0.3, abs=0.03)
    assert stream.share_switched == pytest.approx(0.3, abs=0.03)
    few = workload.thinned(stream, 0.5, is_renumbered=False)
    assert (few.n_active, few.n_features) == (228, 6065)
    thin = workload.thinned(stream, 0.5)
    assert thin.tiles.max() == thin.n_features - 1  # the bias is kept, and is the last
    assert thin.n_features == pytest.approx(6065 / 2, rel=0.05)
    np.testing.assert_array_equal(workload.thinned(stream, 1.0).tiles, stream.tiles)
    assert thin.tiles.shape[1] == pytest.approx(228, abs=1)


def flickering(n_states: int = 65, actions: Any = None) -> workload.Stream:
    """Return a stream of which tile 0 is always on, and one of two others by turns."""
    tiles = np.array([[0, 1 + t % 2] for t in range(n_states)])
    actions = np.zeros(n_states, np.int64) if actions is None else actions
    return workload.Stream(tiles, np.zeros((n_states, 1)), actions, np.ones(n_states), 3)


def test_bytes_follow_from_the_stream() -> None:
    """Of two tiles one switches on each step: 2 rows x 2 kinds x 4 bytes read, and three rows written in K steps."""
    moved = eager_bytes(flickering())
    assert period(is_deferred=False) == 64
    assert moved == (16.0, 3 * 16 / 64, 0.0)
    assert eager_bytes(flickering(), itemsize=8).total == 2 * moved.total


def test_rows_come_from_memory_once_in_a_batch() -> None:
    """Deferred: three rows of two kinds are read once in 64 steps; the writing, once in 128, finds them in cache."""
    k = period(is_deferred=True)
    assert deferred_bytes(flickering(129)) == (3 * 8 / BATCH, (4 * 4 * 3 - 2 * 4 * 3) / k, 0.0)


def test_who_follows_an_action_reads_w_where_it_is_taken() -> None:
    """Actions 0, 0, 1: theta's 2 rows are read on each step; w's for action 0, 0 and 1: 2 of 2 rows, three times of 15.

    Action 0's writing has all three features, action 1's (from t = 2 to 3) two of them.
    """
    moved = followed_bytes(flickering(4, np.array([0, 0, 1, 4])))
    assert moved.reading == pytest.approx(4 * (2 + (2 + 2 + 2) / 15))
    assert moved.writing == pytest.approx(4 * 4 * (3 + 3) / 15)


def test_the_roofline_shares_out_the_limit() -> None:
    """A step of 1,000 demons that took a millisecond moved their bytes at so many GB/s, of those that were measured."""
    stream = workload.stream(70)
    details = {"stream": {}, "w2": {"float32": {"mean": 1.0, "worst": 2.0, "n_demons": 1000, "numbers_kept": 100.0}}}
    (row,), found = roofline(details, stream, np.random.default_rng(0))
    assert row.moved == eager_bytes(stream)._replace(past=400.0)
    assert row.reached == pytest.approx(1e-3 * row.moved.total)
    assert row.share == pytest.approx(row.reached / next(iter(found.values())))
    assert row.floor_ms == pytest.approx(row.share * 1.0)


def test_a_demon_looks_back_on_the_steps_since_its_last_writing() -> None:
    """A trace that decays at once keeps rho, g, delta, h and q of the steps owed: at most K of them."""
    learning = Learning(workload.gibbs_questions(40, gammas=(0.0,)), workload.stream(141))
    for t in range(70):
        learning(t)
    assert 5 < learning.numbers_kept(70, 64) < 5 * 64


def test_bandwidth_is_a_number_of_gigabytes_per_second() -> None:
    assert 0.01 < bandwidth(4_000_000, 2, np.random.default_rng(0)) < 1e4
    assert 0.01 < bandwidth(4_000_000, 1, np.random.default_rng(0), row_bytes=256) < 1e4


def test_what_counts_of_a_chunk_is_whole_batches() -> None:
    """Two batches of 64 steps, so that no burst is counted too often or left out; 512 steps in all."""
    for effort in (THOROUGH, MODERATE):
        assert (effort.chunk - effort.warm_up) % (2 * BATCH) == 0
    assert THOROUGH.n_chunks * (THOROUGH.chunk - THOROUGH.warm_up) == 512


def test_a_slow_yardstick_takes_fewer_steps_in_its_own_order() -> None:
    seen: list[int] = []
    effort = Effort(first=20, chunk=50, n_chunks=2, warm_up=1)
    measure({"a": seen.append, "b": lambda _: None}, effort, {"a": effort.of_yardstick(is_slow=True)})
    assert seen == list(range(16 + 2 * 48))


def test_the_page_explains_every_key() -> None:
    assert set(KEYS) < set(MEANINGS)


def test_the_page_holds_what_was_measured(tmp_path: Path) -> None:
    """Figures, ratios without a key, the roofline's rows, the estimates' costs and the curves."""
    stream = workload.stream(70)
    details: dict[str, Any] = {
        "stream": {
            "name": "simulator",
            "n_features": 6065,
            "n_active": 457,
            "active_share": 0.075,
            "switched_share": 0.25,
        },
        "w2": {"float32": {"mean": 1.0, "worst": 2.0, "n_demons": 1000, "numbers_kept": 100.0}},
        "ratios": {"w2_f64_vs_numpy_f64": 123.4},
        "estimates": {"vector": Cost(1.0, 1.25)},
        "curves": {"demons": Curve(x=[1.0, 2.0], eager=[1.0, 2.0], deferred=[0.5, 1.0])},
    }
    rows, details["bandwidth"] = roofline(details, stream, np.random.default_rng(0))
    answer = {**dict.fromkeys(KEYS), "w2_ms": 0.5, "threads": 2, "cpu": "a < b"}
    text = write_page(tmp_path, answer, details, rows).read_text(encoding="utf-8")
    for words in (
        "0.500",
        "123.40",
        "w2, float32",
        "+25.00%",
        "data:image/png",
        "a &lt; b",
        "25.0% of the active ones",
    ):
        assert words in text


@pytest.mark.sim
def test_the_simulators_stream_is_coded_by_its_own_layout() -> None:
    """57 channels, 457 of 6,065 features; b is 0.2 at first, then 0.6 or 0.1; the same seed, the same stream."""
    stream, coder = recorded(40)
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (6065, 457, 57)
    assert (stream.n_features, stream.n_active, stream.sensors.shape) == (6065, 457, (40, 57))
    assert set(np.round(stream.probabilities[1:], 3)) <= {0.1, 0.6}
    assert 0.0 < stream.share_switched < 0.6
    np.testing.assert_array_equal(stream.tiles[7], coder.encode(stream.sensors[7]))
    np.testing.assert_array_equal(recorded(40)[0].tiles, stream.tiles)
    assert workload.strided(stream, 4).tiles.shape == (10, 457)


def test_a_missing_simulator_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(*args: Any, **kwargs: Any) -> Any:
        raise ImportError("the simulator needs `pip install horde-gvf[sim]`")

    monkeypatch.setattr("horde_agent.bench.recorded.gymnasium.make", make)
    assert cli.main(["bench", "--stream", "simulator", "--only", "tile"]) == 2
    assert "--stream simulator needs the simulated robot: the simulator needs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ms_per_demon", "memory", "tried"),
    [
        (0.0010, 20e9, [63_000, 95_000]),  # 63,000 are sure to do; then as many as their slowest step allows
        (0.0016, 20e9, [63_000, 59_000]),  # too slow, and fewer do
        (0.0010, 4e9, [63_000]),  # memory allows no more than 65,000: not worth another try
    ],
)
def test_the_most_demons_are_sought_by_time_and_memory(
    ms_per_demon: float, memory: float, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 take 10 ms in the mean, of which the slowest step is guessed at 15."""
    sizes: list[int] = []
    bench = sections.Bench(Effort(2, 2, 1, 0), lambda _: None)

    def many(name: str, n: int) -> Times:
        sizes.append(n)
        return Times(0.5 * ms_per_demon * n, ms_per_demon * n)

    monkeypatch.setattr(sections, "available_memory", lambda: memory)
    monkeypatch.setattr(sections, "Learning", lambda *_: None)
    monkeypatch.setattr(sections, "measure", lambda *_: {"float32": Times(10.0, 50.0)})
    monkeypatch.setattr(bench, "_gibbs", lambda n: [None] * n)
    monkeypatch.setattr(bench, "_many", many)
    answer = bench.max()
    assert sizes == tried
    assert answer["max_demons_at_10hz"] == sizes[-1]
    assert answer["max_demons_worst_ms"] == pytest.approx(ms_per_demon * sizes[-1])


def test_the_scalar_estimate_that_is_timed_is_the_filter() -> None:
    """Two rounds at tau = 2: s goes 0, 1.25, 1.875 towards 1 x 2.5, and 0, 2, 3.5 towards 2 x 2, then 2 x 2.5."""
    s = np.zeros(2)
    estimates._filter_often(s, np.array([1.0, 2.0]), np.array([2.0, 2.0]), 0.5, 2)
    assert s.tolist() == [1.875, 3.5]


def test_other_programs_are_told_apart_from_this_one() -> None:
    """A loop of our own is not counted as theirs: the share stays below the part of one processor that it took."""
    neighbours, end = Neighbours(), time.perf_counter() + 0.3
    while time.perf_counter() < end:
        pass
    share = neighbours.share()
    assert share is None or 0.0 <= share <= 1.0


def test_a_disturbed_step_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """63,000 failed, by a step in which others had the processors; 49,000 are quick: what lies between is tried."""
    bench = sections.Bench(Effort(2, 2, 1, 0), lambda _: None)
    worst = {63_000: 120.0, 49_000: 49.0, 56_000: 56.0}
    monkeypatch.setattr(sections, "available_memory", lambda: 20e9)
    monkeypatch.setattr(sections, "Learning", lambda *_: None)
    monkeypatch.setattr(sections, "measure", lambda *_: {"float32": Times(10.0, 50.0)})
    monkeypatch.setattr(bench, "_gibbs", lambda n: [])
    monkeypatch.setattr(bench, "_many", lambda name, n: Times(30.0, worst[n]))
    assert bench.max() == {"max_demons_at_10hz": 56_000, "max_demons_ms": 30.0, "max_demons_worst_ms": 56.0}
