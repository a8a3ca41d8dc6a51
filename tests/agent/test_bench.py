"""`horde bench`: its keys, its yardsticks against the Horde, and what it says when something cannot be measured."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.bench import KEYS, BenchConfig, sections, workload
from horde_agent.bench.dense import DenseFused
from horde_agent.bench.measure import Effort, bandwidth, measure
from horde_agent.bench.numpy_horde import OwnTraces
from horde_agent.bench.page import bytes_per_demon_step
from horde_agent.config import BadInput
from horde_agent.horde import Horde
from horde_agent.learner import LearnerConfig
from horde_agent.signals import PolicyTable


def own_traces(kind: str, gamma: Any) -> Any:
    """Return a yardstick."""
    alpha = 0.1 / workload.N_ACTIVE
    if kind == "dense":
        return DenseFused(gamma, workload.N_FEATURES, 0.9, alpha, 0.001 * alpha)
    return OwnTraces(gamma, workload.N_FEATURES, 0.9, alpha, 0.001 * alpha, by_feature=kind == "feature-major")


@pytest.mark.parametrize("kind", [pytest.param("dense", marks=pytest.mark.slow), "learner-major", "feature-major"])
def test_yardsticks_learn_what_the_horde_learns(kind: str) -> None:
    """The same predictions over 60 steps, within float32: else the ratios would compare different work."""
    stream, questions = workload.stream(61), workload.gibbs_questions(40)
    config = LearnerConfig(w_rule="importance-weighted", vector_mspbe=False, dtype="float64")
    horde = Horde(questions, n_features=workload.N_FEATURES, n_active=workload.N_ACTIVE, config=config)
    table = PolicyTable([q.target_policy for q in questions], workload.N_FEATURES)
    yardstick = own_traces(kind, np.array([q.continuation for q in questions]))
    channel = [q.cumulant.index for q in questions]  # type: ignore[union-attr]
    horde.begin(stream.sensors[0], stream.tiles[0])
    for t in range(60):
        action, b = int(stream.actions[t]), float(stream.probabilities[t])
        rho = table.ratios(action, b, stream.sensors[t], stream.tiles[t]).astype(np.float32)
        want = horde.learn(action, b, stream.sensors[t + 1], stream.tiles[t + 1])
        c = stream.sensors[t + 1, channel].astype(np.float32)
        got = yardstick.learn(stream.tiles[t], stream.tiles[t + 1], rho, c)
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


def test_the_object_has_exactly_the_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Null where nothing was measured; the page says what was; progress stays on stderr."""
    assert cli.main(["bench", "--json", "--quick", "--only", "tile", "--out", str(tmp_path / "b")]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert list(answer) == list(KEYS)
    assert len(KEYS) == 21
    assert 0 < answer["tile_us"] < 1e4
    assert answer["w1_ms"] is answer["life_261681_s"] is None
    assert answer["threads"] >= 1
    assert json.loads((tmp_path / "b" / "bench.json").read_text()) == answer
    assert "Roofline" in (tmp_path / "b" / "bench.html").read_text()
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
    assert sections_of(full=True, skip="w50k,max")[-2:] == ["life", "tile"]


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
    thin = workload.thinned(stream, 0.5)
    assert thin.tiles.shape[1] == pytest.approx(228, abs=1)
    assert np.unique(thin.tiles).size == thin.tiles.max() + 1


def test_bytes_follow_from_the_stream() -> None:
    """Of two tiles one switches on each step: 2 rows x 2 kinds x 4 bytes read, and three rows written."""
    tiles = np.array([[0, 1 + t % 2] for t in range(65)])
    stream = workload.Stream(tiles, np.zeros((65, 1)), np.zeros(65, np.int64), np.ones(65))
    assert bytes_per_demon_step(stream) == {"base rows": 16.0, "writing": 3 * 16 / 64}


def test_bandwidth_is_a_number_of_gigabytes_per_second() -> None:
    assert 0.01 < bandwidth(4_000_000, 2, np.random.default_rng(0), at_random=True) < 1e4
