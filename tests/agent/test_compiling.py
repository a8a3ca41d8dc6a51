"""The first start says at once that it compiles, and how far it is."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from rich.console import Console

from horde_agent import cli
from horde_agent.runs import compiling, jobs
from tests.agent.doubles import ToyBody

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")

ROOT = Path(__file__).resolve().parents[2]


def kernel(module: str) -> Any:
    """Return a function of a module's that is not compiled yet."""

    def twice(x: float) -> float:
        return 2.0 * x

    twice.__module__ = module
    return numba.njit(twice)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_compiling_is_said_before_the_first_kernel_is_done(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=200)
    when_done: list[str] = []
    on_end = compiling.Compiling.on_end

    def note(bar: Any, event: Any) -> None:
        when_done.append(file.getvalue())
        on_end(bar, event)

    monkeypatch.setattr(compiling.Compiling, "on_end", note)
    with compiling.shown(console):
        kernel("horde_agent.kernels.mine")(1.0)
        kernel("horde_agent.kernels.other")(1.0)
    assert compiling.SENTENCE in when_done[0]
    assert (f"2/{compiling.N_KERNELS}" in file.getvalue()) is is_terminal
    if not is_terminal:
        assert file.getvalue() == f"{compiling.SENTENCE}\n"


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def later() -> float:
        now[0] += 4.0
        return now[0]

    file = io.StringIO()
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=later))
    with compiling.shown(Console(file=file)):
        for k in range(6):
            kernel(f"horde_agent.kernels.k{k}")(1.0)
    said = [line for line in file.getvalue().splitlines() if "kernels" in line]
    assert said == [f"compiling: {n} of about {compiling.N_KERNELS} kernels" for n in (3, 6)]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_command_that_compiles_twice_says_so_once(is_terminal: bool) -> None:
    """`horde learn` compiles while it builds what learns, and again before the body moves: the count goes on."""
    file = io.StringIO()
    kernels = compiling.Compiling(Console(file=file, force_terminal=is_terminal, width=200))
    for name in ("mine", "other"):
        with kernels.shown():
            kernel(f"horde_agent.kernels.{name}")(1.0)
    if is_terminal:
        assert f"2/{compiling.N_KERNELS}" in file.getvalue()
    else:
        assert file.getvalue() == f"{compiling.SENTENCE}\n"


def test_the_command_learn_says_once_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever else it finds compiled, a kernel more is compiled in either part."""
    make_run, warm_up = cli.make_run, jobs.warm_up

    def first(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.first")(1.0)
        return make_run(*arguments)

    def second(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.second")(1.0)
        return warm_up(*arguments)

    monkeypatch.setattr(cli, "_make_env", lambda _config: ToyBody())
    monkeypatch.setattr(cli, "make_run", first)
    monkeypatch.setattr(jobs, "warm_up", second)
    assert cli.main(["learn", "--steps", "5", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.count(compiling.SENTENCE) == 1


def test_where_nothing_of_ours_is_compiled_nothing_is_said() -> None:
    file = io.StringIO()
    done = kernel("horde_agent.kernels.mine")
    done(1.0)
    with compiling.shown(Console(file=file)):
        done(2.0)
        kernel("somebody.else")(1.0)
    assert file.getvalue() == ""


@pytest.mark.slow
@pytest.mark.sim
def test_the_first_start_compiles_about_as_many_kernels_as_it_says(tmp_path: Path) -> None:
    """The bar need not be exact, but it should neither end at a half nor stand at its end for half of the time."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    code = (
        "from horde_agent import cli\n"
        "from horde_agent.runs import compiling\n"
        "end = compiling.Compiling.stop\n"
        "compiling.Compiling.stop = lambda bar: (print('done', len(bar._done)), end(bar))\n"
        "cli.main(['learn', '--steps', '5', '--out', 'a'])\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.count(compiling.SENTENCE) == 1
    n = max(int(number) for number in re.findall(r"done (\d+)", done.stdout))
    assert 0.8 * compiling.N_KERNELS < n < 1.2 * compiling.N_KERNELS
