"""Compiled kernels: their announcement, their cache, threads and forks."""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from rich.console import Console

import horde_agent
from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.learning.compiling import COMPILING
from horde_agent.runs import session
from horde_agent.runs.warm import CompileNotice
from tests import fresh
from tests.agent.doubles import ToyBody
from tests.agent.short_lives import hashes, weights

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    line = [sys.executable, *words]
    process = subprocess.run(
        line, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == 0, process.stderr
    return process


def output_of(code: str, folder: Path = ROOT, **environment: str) -> str:
    """Return what code prints in another process."""
    process = fresh.run(code, folder=folder, environment={**os.environ, **environment})
    assert process.returncode == 0, process.stderr
    return process.stdout


def lived(**environment: str) -> list[str]:
    """Return the hashes of another process."""
    return run("-m", "tests.agent.short_lives", **environment).stdout.split()


def test_cached_kernels_round_as_the_process_that_compiled_them() -> None:
    """`make test` begins with an empty cache: this process compiles the kernels that the others read from it."""
    own_hashes = hashes()
    assert len(set(own_hashes)) == 2  # the modes round differently
    assert lived() == own_hashes
    assert lived(NUMBA_THREADING_LAYER="workqueue") == own_hashes  # as without OpenMP


@pytest.mark.slow
def test_a_processor_without_wide_vectors_has_the_same_weights(tmp_path: Path) -> None:
    plain = lived(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert plain == hashes()


@pytest.mark.slow  # compiles all kernels again: 90 s each
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-4)])
def test_a_life_without_native_kernels_learns_the_same(
    tmp_path: Path, dtype: str, tolerance: float
) -> None:
    file = tmp_path / "found.npz"
    process = run("-m", "tests.agent.short_lives", str(file), dtype, HORDE_PLAIN_KERNELS="1")
    assert process.stdout == "portable\n", process.stderr
    with np.load(file) as found:
        for got, want in zip(found.values(), weights(dtype), strict=True):
            assert np.abs(want).max() > 0
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


_COMPUTE_RATIOS = """
import numpy as np
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.policies import Gibbs
rng, out = np.random.default_rng(0), np.zeros(2_048)
table = GibbsTable([Gibbs.random(rng, 3, 40, 4) for _ in out], np.arange(2_048))
table.ratios(np.arange(5), 1, 0.5, out)
print(table._n_threads, float(out.sum()))
"""


def test_a_process_may_begin_with_a_parallel_loop_from_the_cache() -> None:
    """The second process calls it from the cache before it uses numba's threads in any other way."""
    outputs = [output_of(_COMPUTE_RATIOS, NUMBA_NUM_THREADS="2") for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("2 ")


_LOAD_THREADS = """
import os
from horde_agent.kernels import _jit
print(os.environ.get("GOMP_SPINCOUNT"), _jit.THREADING_LAYER)
"""


@pytest.mark.parametrize(
    ("environment", "spins", "is_left"),
    [({}, "2000", "None"), ({"GOMP_SPINCOUNT": "77"}, "77", "77")],
)
def test_threads_of_openmp_spin_briefly_unless_the_environment_says_how_long(
    environment: dict[str, str], spins: str, is_left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GNU OpenMP prints the values that it has read; the environment is as before afterwards."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    process = run("-c", _LOAD_THREADS, OMP_DISPLAY_ENV="verbose", **environment)
    if "GOMP" not in process.stderr:
        pytest.skip("GNU OpenMP is not here")
    assert process.stdout.split() == [is_left, "omp"]
    assert f"GOMP_SPINCOUNT = '{spins}'" in process.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_continues_with_one_thread() -> None:
    """OpenMP terminates a fork that uses its parent's threads, and a Pool then starts another one, without end."""
    words = run("-m", "tests.agent.forked_lives", NUMBA_NUM_THREADS="2").stdout.split()
    continued, created, parent = (words[k : k + 3] for k in (0, 3, 6))
    assert continued == created == parent
    assert len(set(parent)) == 3


def test_two_threads_learn_the_same_as_one_after_the_other() -> None:
    """Numba's work queue, as without OpenMP, aborts a process in which two threads run parallel loops."""
    process = run(
        "-m", "tests.agent.threaded_lives", NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS="2"
    )
    hashes_of_lives = process.stdout.split()
    n_lives = len(hashes_of_lives) // 3
    in_turn, forwards, backwards = (
        hashes_of_lives[k * n_lives : (k + 1) * n_lives] for k in range(3)
    )
    assert forwards == backwards == in_turn
    assert len(set(in_turn)) == n_lives == 6


def test_a_cached_kernel_notices_a_change_in_the_file_of_a_kernel_that_it_calls(
    tmp_path: Path,
) -> None:
    """Numba's own cache does not: after an upgrade it would use the old kernels."""
    package = tmp_path / "horde_agent"
    shutil.copytree(
        Path(horde_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    head = "from horde_agent.kernels._jit import inner_kernel, kernel\n"
    (package / "kernels" / "caller.py").write_text(
        f"{head}from horde_agent.kernels.callee import times\n@kernel\ndef twice(x):\n    return times(x)\n"
    )
    code = "from horde_agent.kernels.caller import twice; print(twice(1.0), sum(twice.stats.cache_hits.values()))"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    outputs: list[list[str]] = []
    callee = package / "kernels" / "callee.py"
    for factor in (1, 1, 2):
        callee.write_text(f"{head}@inner_kernel\ndef times(x):\n    return {factor} * x\n")
        # Python itself reads old byte code if a file of the same length is changed within a second
        os.utime(callee, (len(outputs), len(outputs)))
        outputs.append(output_of(code, tmp_path, **environment).split())
    assert outputs == [["1.0", "0"], ["1.0", "1"], ["2.0", "0"]]


TORN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda index: index[:0],
    "cut short": lambda index: index[: len(index) // 2],
    # As of another version
    "of other types": lambda index: index.replace(b"numba.core", b"numba.gone"),
    "of a module that is gone": lambda index: (
        index[: len(pickle.dumps(numba.__version__))] + b"cgone\nthing\n."
    ),
    "text": lambda _: b"there is nothing here\n",
}


@pytest.mark.parametrize("how", TORN)
def test_an_index_of_cached_kernels_that_cannot_be_read_counts_as_empty(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade or a power failure: the kernel is compiled and cached again."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "mine.py"
    source.write_text(
        "from horde_agent.kernels._jit import kernel\n@kernel\ndef twice(x):\n    return 2.0 * x\n",
        encoding="utf-8",
    )

    def imported() -> Any:
        spec = spec_from_file_location("mine", source)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "mine", module)
        spec.loader.exec_module(module)
        return module.twice

    hits = []
    for step in range(4):
        twice = imported()
        assert twice(21.0) == 42.0
        hits.append(sum(twice.stats.cache_hits.values()))
        if step == 1:
            (index,) = (tmp_path / "cache").rglob("*.nbi")
            index.write_bytes(TORN[how](index.read_bytes()))
    assert hits == [0, 1, 0, 1]


def kernel(module: str) -> Any:
    """Return a function of a module's that is not compiled yet."""

    def twice(x: float) -> float:
        return 2.0 * x

    twice.__module__ = module
    return numba.njit(twice)


def test_the_command_learn_announces_compiling_once_before_the_first_kernel_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel is compiled while the Horde is built, and another before the robot moves."""
    make_run = learn.make_run
    warm_up = session.warm_up
    messages = list[str]()
    monkeypatch.setattr(
        CompileNotice, "on_end", lambda *_: messages.append(capsys.readouterr().err)
    )

    def first(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.first")(1.0)
        return make_run(*arguments)

    def second(*arguments: Any) -> Any:
        kernel("horde_agent.kernels.second")(1.0)
        return warm_up(*arguments)

    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    monkeypatch.setattr(learn, "make_run", first)
    monkeypatch.setattr(session, "warm_up", second)
    assert cli.main(["learn", "--steps", "5", "--out", str(tmp_path / "run")]) == 0
    assert [COMPILING in text for text in messages] == [True] + [False] * (len(messages) - 1)
    assert len(messages) >= 2
    assert COMPILING not in capsys.readouterr().err


def test_a_terminal_counts_the_kernels_that_are_compiled_and_the_seconds() -> None:
    """Two of this project and one of somebody else; the line stays with its last numbers."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    with CompileNotice(console).installed():
        for name in ("horde_agent.kernels.one", "somebody.else", "horde_agent.kernels.two"):
            kernel(name)(1.0)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).replace("\r", "\n").split("\n")
    shown = [line for line in lines if line]
    form = r"compiling once, about a minute: [012] kernels in \d+ s \(in advance: `horde warm`\)"
    assert all(re.fullmatch(form, line) for line in shown)
    assert ": 2 kernels in" in shown[-1]


@pytest.mark.parametrize(
    ("compiled_by_command", "announcements"), [("somebody.else", 1), ("horde_agent.kernels.x", 0)]
)
def test_python_announces_compiling_once_unless_a_command_did(
    compiled_by_command: str, announcements: int
) -> None:
    """The log's warnings go to standard error unless the program has set it up."""
    code = (
        "import io, numba, horde_agent; from rich.console import Console\n"
        "from horde_agent.runs.warm import CompileNotice\n"
        "def kernel(module, n):\n"
        "    def add(x): return x + n\n"
        "    add.__module__ = module\n"
        "    numba.njit(add)(1.0)\n"
        "kernel('somebody.else', 1)\n"
        "with CompileNotice(Console(file=io.StringIO())).installed():\n"
        f"    kernel({compiled_by_command!r}, 2)\n"
        "print('first', flush=True)\n"
        "kernel('horde_agent.kernels.x', 3)\n"
        "kernel('horde_env.sim.y', 4)\n"
    )
    process = fresh.run(code, folder=ROOT, environment=os.environ)
    assert (process.returncode, process.stdout) == (0, "first\n")
    assert process.stderr == f"{COMPILING}\n" * announcements


COMPILED_SINCE = """
import gymnasium, io, numpy as np, sys
from numba.core import event
from horde_agent import GVF, Behaviour, Channel, Horde, Interface, LearnerConfig, Life, StickyRandom, cli, questions
from horde_agent.learning.compiling import is_own_kernel

class Listener(event.Listener):
    def on_start(self, e):
        if is_own_kernel(e): print(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass

event.register("numba:compile", Listener())
places, light = np.arange(40), np.ones((40, 1))
question = GVF("light over the next ten steps", Behaviour(), Channel(0), continuation=0.9)
horde = Horde([question], n_features=40, n_active=1, config=LearnerConfig.paper(step_size=0.02))
horde.begin(light[0], places[:1])
for t in range(1, 40): horde.learn(0, 1.0, light[t], places[t : t + 1])
for name in ("CritterbotPen", "CreatePen"):
    env = gymnasium.make(f"horde_env:{name}-v0", physics="planar")
    interface = Interface.of(env)
    coder, n = interface.coder, len(interface.actions)
    horde = Horde(questions.excursions(interface), n_features=coder.n_features, n_active=coder.n_active)
    with Life(env, horde, StickyRandom(n), np.random.default_rng(0), interface=interface) as life: life.run(100)
    robots = gymnasium.make_vec(f"horde_env:{name}-v0", num_envs=4)
    robots.reset(seed=0)
    robots.step(np.zeros(4, dtype=int))
    robots.close()
sys.stdout = io.StringIO()
for settings in ("", "--paper"):
    words = f"learn --physics planar --steps 1200 {settings} --out {sys.argv[1]}/run{settings}"
    assert cli.main(words.split()) == 0
print(*(line for line in sys.stdout.getvalue().splitlines() if "report.html" not in line), file=sys.__stdout__)
"""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_after_horde_warm_runs_the_readme_the_robots_and_vector_environments_compile_nothing(
    tmp_path: Path,
) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "from horde_agent import cli; cli.main(['warm'])"]
    subprocess.run(
        command,
        env={**os.environ, **cache},
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=1_200,
    )
    assert run("-c", COMPILED_SINCE, str(tmp_path), **cache).stdout.strip() == ""


def test_kernels_from_the_cache_and_of_others_are_not_announced() -> None:
    file = io.StringIO()
    own_kernel = kernel("horde_agent.kernels.mine")
    own_kernel(1.0)
    with CompileNotice(Console(file=file)).installed():
        own_kernel(2.0)
        kernel("somebody.else")(1.0)
    assert file.getvalue() == ""
