"""The frame of an experiment: cache, jobs in processes, results, means with their intervals."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numba
import numpy as np
import pytest

from examples.reproduce.checks import (
    CheckResult,
    Measured,
    Number,
    above,
    at_least,
    at_most,
    below,
    check,
    judge,
    verdict,
    within,
)
from examples.reproduce.command import say
from examples.reproduce.experiment import ExperimentContext, Figure, Result, Table, cached
from examples.reproduce.runner import Job, JobFailed, run_jobs
from examples.reproduce.stats import mean_ci
from horde_agent.scoring.intervals import student_t
from tests.agent import kills

ROOT = Path(__file__).resolve().parents[2]


def context(out: Path, **other: object) -> ExperimentContext:
    return ExperimentContext(
        **{"out": out, "scale": "quick", "seeds": (0,), "backend": "simulator", "say": say, **other}
    )  # type: ignore[arg-type]


class Sums(NamedTuple):
    """A result of a cached job."""

    total: float
    parts: np.ndarray


@cached(Sums)
def adds(context: ExperimentContext, path: Path, parts: tuple[int, ...]) -> Sums:
    path.write_text(path.read_text() + "x")
    return Sums(float(sum(parts)), np.array(parts))


def test_a_cached_job_is_done_once_for_the_same_arguments(tmp_path: Path) -> None:
    """Its name is that of a module's function, so that it can be sent to a process."""
    calls = tmp_path / "calls"
    calls.touch()
    for parts in ((1, 2), (1, 2), (12,)):
        result = adds(context(tmp_path), calls, parts)
        assert (result.total, result.parts.tolist()) == (sum(parts), list(parts))
    assert calls.read_text() == "xx"
    assert pickle.loads(pickle.dumps(adds)) is adds


def test_what_was_broken_off_is_not_believed(tmp_path: Path) -> None:
    """A file half made is not there; the next one begins with an empty place."""

    def breaks(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    def makes(path: Path) -> None:
        assert not path.exists()
        path.touch()

    with pytest.raises(KeyboardInterrupt):
        context(tmp_path).cached("life-0", breaks)
    assert not (tmp_path / "kept" / "life-0").exists()
    assert context(tmp_path).cached("life-0", makes).is_file()


def notes(x: int) -> tuple[int, int, float]:
    return x, os.getpid(), time.monotonic()


def fails() -> None:
    raise ValueError("an odd number of wheels")


def dies() -> None:
    os._exit(7)


def sleeps(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(60)


def test_a_process_does_one_job_after_another_the_dearest_first() -> None:
    """Starting one takes longer than many a job; results are in the order of the jobs."""
    jobs = [Job(f"{x}", notes, (x,), cost) for x, cost in enumerate([1.0, 5.0, 2.0])]
    answers = run_jobs(jobs, say, n_workers=1)
    assert [x for x, _, _ in answers] == [0, 1, 2]
    assert len({pid for _, pid, _ in answers} - {os.getpid()}) == 1
    assert sorted(range(3), key=lambda k: answers[k][2]) == [1, 2, 0]


def threads(x: int) -> tuple[int, int, int]:
    return x, os.getpid(), numba.get_num_threads()


def test_at_the_quick_scale_all_jobs_stay_in_this_process(tmp_path: Path) -> None:
    """In their order, whatever they cost, with one thread each, as in processes of their own; one alone has all."""
    n_threads = numba.get_num_threads()
    jobs = [Job(f"{x}", threads, (x,), cost) for x, cost in enumerate([1.0, 5.0])]
    assert list(context(tmp_path).in_parallel(dict(enumerate(jobs))).values()) == [
        (0, os.getpid(), 1),
        (1, os.getpid(), 1),
    ]
    assert context(tmp_path).in_parallel({"only": jobs[0]}) == {"only": (0, os.getpid(), n_threads)}
    with pytest.raises(ValueError, match="wheels"):
        context(tmp_path).in_parallel({"odd": Job("odd", fails)})
    assert numba.get_num_threads() == n_threads


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (fails, "an odd number of wheels"),
        pytest.param(dies, "process died", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_fails_is_named_and_ends_the_others(
    job: object, said: str, tmp_path: Path
) -> None:
    jobs = [Job("sleeper", sleeps, (str(tmp_path / "mark"),)), Job("the bad one", job)]  # type: ignore[arg-type]
    with pytest.raises(JobFailed, match=f"(?s)the bad one.*failed.*{said}"):
        run_jobs(jobs, say, n_workers=2)
    assert not is_alive(tmp_path / "mark")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_jobs_end_with_the_one_who_started_them(how: signal.Signals, tmp_path: Path) -> None:
    """By Ctrl-C, which reaches the whole group, and by a kill, which reaches the parent alone."""
    marks = [tmp_path / "a", tmp_path / "b"]
    code = (
        "from tests.agent.test_reproduce_frame import *\n"
        f"run_jobs([Job(m, sleeps, (m,)) for m in {list(map(str, marks))}], print, n_workers=2)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (os.killpg if how is signal.SIGINT else os.kill)(parent.pid, how)
    _, err = parent.communicate(timeout=60)
    assert err.count(b"Traceback") <= 1  # of the parent alone
    while any(map(is_alive, marks)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_alive(mark: Path) -> bool:
    """Return whether the process that wrote this mark is still running."""
    text = ""
    if mark.exists():
        text = mark.read_text()
    return bool(text) and kills.is_alive(int(text))


def test_student_s_quantiles() -> None:
    """The table of every textbook, two-sided 95 %."""
    quantiles = {
        1: 12.706,
        2: 4.303,
        3: 3.182,
        4: 2.776,
        9: 2.262,
        29: 2.045,
        99: 1.984,
        1000: 1.962,
    }
    for degrees, t in quantiles.items():
        assert student_t(degrees) == pytest.approx(t, abs=6e-4)


def test_one_run_has_no_interval() -> None:
    assert math.isnan(mean_ci([2.0]).half_width)
    assert str(mean_ci([2.0])) == "2"
    assert str(mean_ci([2.0, math.nan])) == "-"
    with pytest.raises(ValueError, match="at least one"):
        mean_ci([])
    with pytest.raises(ValueError, match="at least one"):
        verdict([])


def test_a_limit_is_set_to_the_mean_or_to_each_run() -> None:
    limits = (at_least(2), at_most(2), above(2), below(2), within(1, 2))
    assert [[limit.test(x) for x in (1.0, 2.0, 3.0)] for limit in limits] == [
        [False, True, True],
        [True, True, False],
        [False, False, True],
        [True, False, False],
        [True, True, False],
    ]
    assert at_most(2).holds([1.0, 3.0]) == [True]
    assert at_most(2).in_each().holds([1.0, 3.0]) == [True, False]


def test_numbers_may_have_limits_of_their_own() -> None:
    @check(claim="It is small.", paper="small", source="section 1")
    def small(lengths: list[float]) -> Measured:
        mean = Number("x", lengths, at_most(2))
        per_run = Number("y", lengths, at_most(2).in_each(), ".1f")
        return Measured([mean, per_run], "All of it.")

    result = small.judge([1.0, 3.0])
    assert result is not None
    assert result.measured == "x: 2 ± 13; y: 1.0, 3.0. All of it."
    assert result.rule == "x at most 2; y each at most 2."
    assert result.verdict == "partly reproduced"


def test_a_check_has_its_rule_in_words_and_a_cause_only_if_it_differs() -> None:
    experiment = ModuleType("toy")

    @check(
        claim="It grows.",
        paper="it grows",
        source="section 1",
        terms="Lengths in m:",
        limit=above(1.0),
    )
    def grows(lengths: list[float]) -> Measured | None:
        if lengths:
            return Measured({"length": lengths}, cause=lambda: "too little light")
        return None

    experiment.grows = grows  # type: ignore[attr-defined]
    assert judge(experiment, []) == []
    large, small = (judge(experiment, [length])[0] for length in (2.0, 0.5))
    assert (large.verdict, large.cause, large.rule) == (
        "reproduced",
        "",
        "Lengths in m: length above 1.",
    )
    assert (small.verdict, small.cause) == ("not reproduced", "too little light")
    assert small.measured == "Lengths in m: length: 0.5."


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result(
        name="toy",
        title="A toy",
        claims=[
            CheckResult(
                "It works.", "section 1", "so it says", "so it does", "reproduced", "both", "luck"
            )
        ],
        figures=[Figure("a.png", "a picture")],
        tables=[Table("numbers", ["a", "b"], [[1, 0.5], ["x", None]], "a note")],
        settings={"alpha": 0.1, "of numpy": np.float64(2.0), "unknown": math.nan},  # type: ignore[dict-item]
    )
    result.write(tmp_path / "result.json")
    result_read = Result.read(tmp_path / "result.json")
    assert result_read.settings == {"alpha": 0.1, "of numpy": 2.0, "unknown": None}
    result_read.settings = result.settings
    assert result_read == result


def test_modules_in_the_current_folder_are_not_imported_by_jobs(tmp_path: Path) -> None:
    """Multiprocessing itself needs `socket` before it receives its parent's sys.path."""
    (tmp_path / "socket.py").write_text("raise SystemExit('foreign code runs')")
    code = (
        f"import sys; sys.path[0] = {str(ROOT)!r}\n"
        "from examples.reproduce.runner import Job, run_jobs\n"
        "print(run_jobs([Job(f'{x}', abs, (-x,)) for x in range(2)], print, n_workers=1))\n"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.stdout == "[0, 1]\n", process.stderr
