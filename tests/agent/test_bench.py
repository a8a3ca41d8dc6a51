"""`horde bench`: its keys; the baselines of `python -m tests.bench numpy` against the Horde."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.bench import KEYS, SECTIONS, BenchConfig, command, workload
from horde_agent.bench.learning import Learning
from horde_agent.bench.workload import recorded
from horde_agent.cluster import sharded
from horde_agent.horde import check_size
from horde_agent.refusals import BadInput
from horde_agent.types import listed
from tests.agent.test_cluster import LocalCluster
from tests.bench.bench_trips import trip_of
from tests.bench.competitors import of_constant_actions, of_own_policies, ratios


@pytest.mark.parametrize(
    ("is_dense", "n"), [(False, 2), pytest.param(True, 1, marks=pytest.mark.slow)]
)
def test_baselines_learn_what_the_horde_learns(is_dense: bool, n: int) -> None:
    """The same predictions over 60 steps, within their type: else the ratios would compare different work."""
    stream = workload.stream(61)
    questions = workload.gibbs_questions(40)
    steps = of_own_policies(questions, stream, ratios(questions, stream, 60))
    baselines = {name: step for name, step in steps.items() if (name == "dense pass") is is_dense}
    assert len(baselines) == n
    check_against(Learning(questions, stream, dtype="float64"), baselines)


def test_the_baselines_of_constant_actions_learn_what_the_horde_learns() -> None:
    """Under the w rule "importance-weighted": a demon is not updated unless its action is taken."""
    stream = workload.stream(31)
    questions = workload.constant_action_questions()
    few = Learning(questions[::20], stream, dtype="float64")
    check_against(few, of_constant_actions(questions, stream, 30), 30, every=20)


def check_against(
    learning: Learning, baselines: dict[str, Any], n_steps: int = 60, every: int = 1
) -> None:
    """Check that baselines predict what a Horde of every n-th question does, within 1e-4 of the largest prediction."""
    for t in range(n_steps):
        learning(t)
        results = {name: step(t)[::every] for name, step in baselines.items()}
    want = learning.horde.predictions
    assert np.abs(want).max() > 0.1
    for name, values in results.items():
        np.testing.assert_allclose(
            values, want, rtol=0, atol=1e-4 * np.abs(want).max(), err_msg=name
        )


def test_the_object_has_exactly_the_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Null for missing values; the same object in the folder; progress stays on stderr."""
    assert (
        cli.main(["bench", "--json", "--quick", "--only", "tile", "--out", str(tmp_path / "b")])
        == 0
    )
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert list(answer) == list(KEYS)
    assert len(KEYS) == 22
    assert 0 < answer["tile_us"] < 1e4
    assert answer["w1_ms"] is answer["life_261681_s"] is None
    assert answer["threads"] >= 1
    assert json.loads((tmp_path / "b" / "bench.json").read_text()) == answer
    assert "--full" in err


@pytest.mark.parametrize("words", [{"only": "tile,w3"}, {"skip": "w3"}])
def test_an_unknown_section_is_refused_with_the_known_ones(words: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="there is no section 'w3' of the benchmark; there are w1,"):
        BenchConfig(**words).sections()


def test_shards_are_timed_until_all_of_them_have_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting for shards had another name than that of one Horde, and the section ended in an AttributeError."""
    pytest.importorskip("ray")
    clusters: list[LocalCluster] = []

    def start(*_: Any) -> LocalCluster:
        clusters.append(LocalCluster())
        return clusters[-1]

    monkeypatch.setattr(sharded, "Cluster", start)
    monkeypatch.setattr(command, "N_SHARDS", 2)
    answer = command.Bench(command.QUICK, lambda _: None).cluster()
    assert tuple(answer) == SECTIONS["cluster"]
    assert all(figure is not None and figure > 0 for figure in answer.values())
    assert len(clusters) == 3
    assert all(cluster.is_closed for cluster in clusters)


def test_the_workload_is_that_of_the_paper() -> None:
    """457 of 6,065 features, three tenths of the active ones switching per step; the coder has the same size."""
    stream = workload.stream(300)
    coder = workload.coder()
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (6065, 457, 53)
    assert np.mean(stream.tiles[1:] != stream.tiles[:-1]) == pytest.approx(0.3, abs=0.03)


@pytest.mark.sim
def test_the_simulators_stream_is_coded_by_its_own_layout() -> None:
    """57 channels, 457 of 6,065 features; b is 0.2 at first, then 0.6 or 0.1; the same seed, the same stream."""
    stream, coder = recorded(40)
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (6065, 457, 57)
    assert (stream.n_features, stream.n_active, stream.sensors.shape) == (6065, 457, (40, 57))
    assert set(np.round(stream.probabilities[1:], 3)) <= {0.1, 0.6}
    assert 0.0 < np.mean(stream.tiles[1:] != stream.tiles[:-1]) < 0.6
    np.testing.assert_array_equal(stream.tiles[7], coder.encode(stream.sensors[7]))
    np.testing.assert_array_equal(recorded(40)[0].tiles, stream.tiles)


@pytest.mark.parametrize(
    ("ms_per_demon", "memory", "disturbed_ms", "tried"),
    [
        # 63,000 fit; then the number that their slowest step allows
        (0.0010, 20e9, 0.0, [63_000, 95_000]),
        (0.0016, 20e9, 0.0, [63_000, 59_000]),  # too slow, and fewer do
        (0.0010, 4e9, 0.0, [63_000]),  # memory allows no more than 65,000: not worth another try
        # Others had the processors in a step of the first try
        (0.0010, 20e9, 57.0, [63_000, 49_000, 56_000]),
    ],
)
def test_the_most_demons_are_sought_by_time_and_memory(
    ms_per_demon: float,
    memory: float,
    disturbed_ms: float,
    tried: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10,000 take 10 ms in the mean, of which the slowest step is guessed at 15."""
    sizes: list[int] = []
    bench = command.Bench(command.Effort(2, 2, 1, 0), lambda _: None)

    def many(name: str, n: int) -> command.Times:
        sizes.append(n)
        return command.Times(
            0.5 * ms_per_demon * n, ms_per_demon * n + disturbed_ms * (len(sizes) == 1)
        )

    monkeypatch.setattr(command, "available_memory", lambda: memory)
    monkeypatch.setattr(command, "Learning", lambda *_: None)
    monkeypatch.setattr(command, "measure", lambda *_: {"float32": command.Times(10.0, 50.0)})
    monkeypatch.setattr(bench, "gibbs_questions", lambda n: [None] * n)
    monkeypatch.setattr(bench, "measure_many", many)
    answer = bench.max()
    assert sizes == tried
    assert answer["max_demons_at_10hz"] == sizes[-1]
    assert answer["max_demons_worst_ms"] == pytest.approx(ms_per_demon * sizes[-1])


def test_a_trip_counts_each_function_of_the_packages_once() -> None:
    """Two functions, one of them twice, in two files; those of NumPy and of this test do not count."""

    def step() -> None:
        listed(["a"])
        listed(["b"])
        np.linspace(0.0, 1.0, num=3)
        check_size(n_features=2, n_active=1, mode="eager")

    trip = trip_of(step)
    assert (trip.files, trip.functions) == (2, 2)
    assert trip.functions_by_file == {
        "horde_agent/horde.py": ["check_size"],
        "horde_agent/types.py": ["listed"],
    }
