"""Layout of the packages, and that tests read no private name of them."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_AT_THE_TOP = 16


@pytest.fixture(params=["horde_agent", "horde_env"])
def package(request: pytest.FixtureRequest) -> Path:
    return ROOT / str(request.param)


def test_there_are_few_modules_at_the_top(package: Path) -> None:
    assert len(list(package.glob("*.py"))) <= MOST_AT_THE_TOP


def test_each_folder_of_modules_is_a_package(package: Path) -> None:
    """A folder without `__init__.py` can be imported, but neither import-linter nor mypy checks it."""
    folders = {path.parent for path in package.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.skipif(not shutil.which("git") or not (ROOT / ".git").exists(), reason="no checkout")
def test_git_ignores_no_module(package: Path) -> None:
    """A line of .gitignore meant for results ("runs/") would also exclude a package of that name."""
    modules = "\n".join(str(path) for path in package.rglob("*.py"))
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=ROOT,
        input=modules,
        capture_output=True,
        text=True,
    )
    assert ignored.stdout == ""


def test_there_are_no_circular_imports(package: Path) -> None:
    """Including imports within functions and for types only."""
    graph = grimp.build_graph(package.name, cache_dir=None)
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while leaves := {module for module, imported in below.items() if not imported & below.keys()}:
        below = {module: imported for module, imported in below.items() if module not in leaves}
    upstream = {module for imported in below.values() for module in imported}
    assert sorted(upstream & below.keys()) == []


# ---- private names in tests -----------------------------------------------------------------------------------------

# Names with an underscore that are public, or another project's.
PUBLIC = {
    "_exit": "os._exit ends a forked process without its handlers",
    "_fields": "of named tuples",
    "_field_defaults": "of named tuples",
    "_asdict": "of named tuples",
    "_replace": "of named tuples",
    "_repr_html_": "the method by which a notebook shows an object",
    "_last_obs": "stable-baselines3 has no other name for the observation before an action",
    "_on_step": "the method that a callback of stable-baselines3 overrides",
    "_socket": "pyserial has no other name for the socket of a line",
    "_jit": "the numba options of a package",
}
# Seams for faults, and arrays of kernels that a slow twin is compared with.
SEAMS = {
    "_accept": "a connection of the emulated line, which a test takes at once",
    "_client": "likewise: whether there is one",
    "_slot": "likewise: the control that waits for its turn",
    "_outbox": "likewise: bytes that wait for a host that reads nothing",
    "_adopt": "gives a link a port that fails",
    "_advance": "virtual time of a line in lockstep",
    "_plug": "applies a fault of a line at once",
    "_ends": "ends a fault of a line at once",
    "_faults": "the faults of an emulated robot, which a test counts and ends",
    "_share": "the rates of these faults",
    "_connect": "where a soak test begins to watch an emulated body",
    "_cycle": "a bug in the emulator's own thread",
    "_drop": "packets of the original simulator",
    "_run_control": "counts the modes that a robot was sent",
    "_banner": "a robot that has no console",
    "_drive": "a robot that ignores its drive commands; the body of a benchmark",
    "_bytes": "what is left in the robot's ring of bytes",
    "_link": "the link of a body, which a test loses or reads from",
    "_port": "the port of this link",
    "_keep_alive": "whether this link still repeats a command",
    "_serial": "pyserial's object of a port",
    "_rng": "the state of a machine's random numbers",
    "_normal": "the draws of a machine's kernel",
    "_uniform": "likewise",
    "_scene": "arguments of a simulator's kernel",
    "_eyes": "likewise",
    "_steps": "likewise",
    "_LOWEST": "the range of each reading on the wire",
    "_HIGHEST": "likewise",
    "_frame": "the frame of a body that a test replaces",
    "_window": "a window that a test replaces",
    "_picture": "the picture that a window shows",
}
SETTERS = {"getattr", "setattr", "delattr", "hasattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each private attribute of something else, and of each private import."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name) if is_private(name):
                yield node.lineno, name
            case ast.ImportFrom(module=module):
                names = [*(module or "").split("."), *(alias.name for alias in node.names)]
                yield from ((node.lineno, name) for name in names if is_private(name))
            case ast.Import():
                names = [name for alias in node.names for name in alias.name.split(".")]
                yield from ((node.lineno, name) for name in names if is_private(name))
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                if function in SETTERS:
                    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                    names = [str(text).rpartition(".")[2] for text in texts]
                    yield from ((node.lineno, name) for name in names if is_private(name))


def test_tests_read_no_private_name_of_the_packages() -> None:
    """A rebuild may change such names; what a test needs has a public name, or is a seam listed above."""
    places = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for line, name in private_names(ast.parse(path.read_text(encoding="utf-8"))):
            is_seam = name in SEAMS and not path.is_relative_to(ROOT / "tests" / "agent")
            if name not in PUBLIC and not is_seam:
                places.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert places == []


@pytest.mark.parametrize(
    "line",
    [
        "life._step(choice)",
        "from horde_agent.learning.plain import _learned",
        "import horde_env._seams",
        'monkeypatch.setattr(Life, "_step", step)',
        'monkeypatch.setattr("horde_agent.runs._step", step)',
    ],
)
def test_a_private_name_is_noticed(line: str) -> None:
    assert len(list(private_names(ast.parse(line)))) == 1
    assert list(private_names(ast.parse("self._step(__name__)"))) == []
