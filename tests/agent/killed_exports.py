"""Kill `horde export` at each of its operations on files.

A forked child exports a run and kills itself at its k-th operation on a file there, for k = 1,
1 + `every`, ... until a child ends by itself. For each, a line of JSON has the files under the final
name, and the result of a repeat.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from horde_agent import cli

OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")


def export(run: Path, kind: str, out: Path, kill_at: int | None) -> int:
    """Export in a forked child, and return its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        n_operations = 0

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal n_operations
            if event in OPERATIONS and str(out.parent) in f"{arguments[:1]}":
                n_operations += 1
                if n_operations == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        if kill_at is not None:
            sys.addaudithook(count)
        code = 1
        try:
            code = cli.main(["export", str(run), "--to", kind, "--out", str(out)])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def import_what_exports_import(run: Path, kind: str, out: Path) -> None:
    """Export once in a child, and import its modules here, where each further child finds them."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            cli.main(["export", str(run), "--to", kind, "--out", str(out)])
        finally:
            os.write(writing, "\n".join(sorted(sys.modules)).encode())
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        names = pipe.read().splitlines()
    os.waitpid(pid, 0)
    for name in names:
        with contextlib.suppress(ImportError):  # a name that is no module's
            importlib.import_module(name)


def final_files(kind: str, out: Path) -> dict[str, int]:
    """Return the sizes of the files under the final names of an export, by path."""
    place = out
    if kind == "minari":
        place = out / "horde" / "run-v0"
    if kind == "mcap":
        place = out / "life.mcap"
    if place.is_file():
        files = [place]
    else:
        files = [path for path in place.rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.stat().st_size for path in files}


def export_with_kills(run: Path, kind: str, out: Path, every: int, lines: Path) -> None:
    """Write a line for each kill into a file, in a process that prints nothing."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    import_what_exports_import(run, kind, out.with_name("warm"))
    kill_at = 1
    while True:
        shutil.rmtree(out.parent)
        out.parent.mkdir()
        code = export(run, kind, out, kill_at)
        files_left = final_files(kind, out)
        repeated = None
        if code < 0:
            repeated = export(run, kind, out, None)
        result = {"kill_at": kill_at, "code": code, "left": files_left, "repeated": repeated}
        result |= {"after": final_files(kind, out), "beside": sorted(os.listdir(out.parent))}
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        if code >= 0:
            break
        kill_at += every
