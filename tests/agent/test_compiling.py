"""The first start announces that it compiles."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numba
import pytest
from rich.console import Console

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.runs.jobs import job as jobs
from horde_agent.runs.jobs.warm import COMPILING, CompileNotice
from tests.agent.doubles import ToyBody

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")


def kernel(module: str) -> Any:
    """Return a function of a module's that is not compiled yet."""

    def twice(x: float) -> float:
        return 2.0 * x

    twice.__module__ = module
    return numba.njit(twice)


def test_compiling_is_announced_once_before_the_first_kernel_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    file, when_done = io.StringIO(), []
    notice = CompileNotice(Console(file=file))
    monkeypatch.setattr(notice, "on_end", lambda event: when_done.append(file.getvalue()))
    for name in ("mine", "other"):
        with notice.installed():
            kernel(f"horde_agent.kernels.{name}")(1.0)
    assert when_done == [f"{COMPILING}\n"] * 2


def test_the_command_learn_announces_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel is compiled while the Horde is built, and another before the robot moves."""
    make_run, warm_up = learn.make_run, jobs.warm_up

    def first(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.first")(1.0)
        return make_run(*arguments)

    def second(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.second")(1.0)
        return warm_up(*arguments)

    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    monkeypatch.setattr(learn, "make_run", first)
    monkeypatch.setattr(jobs, "warm_up", second)
    assert cli.main(["learn", "--steps", "5", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.count(COMPILING) == 1


def test_kernels_from_the_cache_and_of_others_are_not_announced() -> None:
    file = io.StringIO()
    done = kernel("horde_agent.kernels.mine")
    done(1.0)
    with CompileNotice(Console(file=file)).installed():
        done(2.0)
        kernel("somebody.else")(1.0)
    assert file.getvalue() == ""
