"""Systems without what Linux has, in processes from which it is hidden (`tests/without_posix.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
IMPORT_ALL = """
import pkgutil
from importlib import import_module

failures = []
for package in ("horde_agent", "horde_env"):
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        try:
            import_module(module.name)
        except Exception as error:
            failures.append(f"{module.name}: {type(error).__name__}: {error}")
print(*failures, sep="\\n", end="")
"""
RUN_COMMANDS = """
import io
import json
import sys
from contextlib import redirect_stderr
from importlib import import_module

answers = {{}}
for package, commands in {commands}.items():
    main = import_module(package + ".cli").main
    for command in commands:
        errors = io.StringIO()
        with redirect_stderr(errors):
            code = main(command.split())
        answers[package + " " + command] = [code, errors.getvalue()]
print(json.dumps(answers))
"""
REFUSALS = {
    "horde_agent": {
        "learn --robot create2 --backend serial --port COM3": "that needs Linux or macOS",
        "learn --robot create2 --backend emulated --realtime": "this machine has no pseudo terminal",
        "doctor .": "contains no run",
    },
    "horde_env": {
        "check --robot create2 --backend serial --port COM3": "that needs Linux or macOS",
        "stop --robot create2 --port COM3": "that needs Linux or macOS",
        "emulate": "this machine has no pseudo terminal",
    },
}


def without_posix(
    code: str, folder: Path, *, with_optional: bool = False, compiled: Path | None = None
) -> str:
    """Run code in a new process without modules, functions and signals of POSIX, and return what it prints.

    `compiled` is a folder for the kernels that it compiles, in place of the tests' one.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    if compiled is not None:
        environment["NUMBA_CACHE_DIR"] = str(compiled)
    program = f"from tests.without_posix import hide\nhide(with_optional={with_optional})\n{code}"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_module_can_be_imported_without_posix(tmp_path: Path) -> None:
    """No module needs fcntl, termios, resource, pwd, os.getuid, os.fork, SIGHUP, ... to be imported."""
    assert without_posix(IMPORT_ALL, tmp_path, with_optional=True) == ""


def test_commands_refuse_in_one_sentence_what_needs_posix(tmp_path: Path) -> None:
    """A Create 2 without a watchdog, whose wheels nothing would stop, and emulated robots on a pseudo terminal.

    Before anything is compiled, which would take a minute.
    """
    program = RUN_COMMANDS.format(commands={name: list(REFUSALS[name]) for name in REFUSALS})
    compiled = tmp_path / "compiled"
    printed = without_posix(program, tmp_path, compiled=compiled)
    answers = json.loads(printed.splitlines()[-1])
    for package, sentences in REFUSALS.items():
        for command, sentence in sentences.items():
            code, errors = answers[f"{package} {command}"]
            assert code == 2, command
            assert sentence in errors.splitlines()[-1], command
            assert "Traceback" not in errors
    assert not list(compiled.rglob("*.nbi"))


@pytest.mark.slow
def test_a_first_life_and_two_learning_threads_run_without_posix(tmp_path: Path) -> None:
    """What the continuous integration runs on macOS and Windows."""
    code = f"from tests.smoke import main\nraise SystemExit(main({str(tmp_path / 'smoke')!r}))"
    assert "two threads learned what each learns alone" in without_posix(code, tmp_path)
