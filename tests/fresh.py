"""Processes that have imported numba and nothing else: forks of one, since the import takes most of their time."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SERVER = """
import json
import os
import sys

import numba

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()

# Only a fork comes here: it becomes what `python -c` begins with
for number, name in enumerate(("stdin", "stdout", "stderr")):
    os.dup2(os.open(request[name], os.O_RDONLY if name == "stdin" else os.O_WRONLY), number)
os.chdir(request["folder"])
os.environ.clear()
os.environ.update(request["environment"])
numba.config.reload_config()
sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
sys.argv = ["-c", *request["words"]]
exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)
    return server


def run(
    code: str, *words: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE WORDS` in a folder, with these variables of the environment alone."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as texts:
        files = {name: Path(texts) / name for name in ("stdin", "stdout", "stderr")}
        for file in files.values():
            file.touch()
        request = {
            "code": code,
            "words": words,
            "folder": str(folder),
            "environment": dict(environment),
            **{name: str(file) for name, file in files.items()},
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return subprocess.CompletedProcess(
            args=["-c", *words],
            returncode=int(server.stdout.readline()),
            stdout=files["stdout"].read_text(encoding="utf-8"),
            stderr=files["stderr"].read_text(encoding="utf-8"),
        )
