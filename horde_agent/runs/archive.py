"""Each file of a record that is complete becomes a Parquet table, by a process that lives as long as that takes.

A life of months does not carry the library that writes Parquet, some 130 MB. A table appears whole or not at all: where
its process dies, nothing of the record is lost, and `horde export` writes what is missing.

    python -m horde_agent.runs.archive RUN FILE
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread

from horde_agent.processes import python
from horde_agent.runs.export import table_of
from horde_agent.runs.run_folder import RunFolder

_NICER_BY = 10  # than the life, whose steps have their deadlines

_log = logging.getLogger(__name__)


class Archive:
    """Has a table made of each file of a record that is complete, one at a time; without pyarrow it does nothing.

    Args:
        folder: Of the run; the tables are in its `export`.

    Attributes:
        threads: Those that wait for a table.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._is_able = folder, find_spec("pyarrow") is not None
        self._one_at_a_time = Lock()
        self.threads: list[Thread] = []

    def __call__(self, path: Path) -> None:
        """Begin with a file; what fails is told, and left to `horde export`."""
        if self._is_able:
            self.threads = [thread for thread in self.threads if thread.is_alive()]
            self.threads.append(Thread(target=self._write, args=(path,), name="archive", daemon=True))
            self.threads[-1].start()

    def _write(self, path: Path) -> None:
        """Run in a thread: wait for the process, which ends by itself where the life ends before it."""
        folders = str(self._folder.path.resolve()), str(path.resolve())
        command, environment = python("horde_agent.runs.archive", *folders)
        try:
            with self._one_at_a_time:
                done = subprocess.run(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # a Ctrl-C is the life's
                    check=False,
                )
        except OSError as error:  # a table is not worth a life
            why = str(error)
        else:
            if done.returncode == 0:
                return
            why = (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[-1]
        _log.warning("%s is not made a table (%s); `horde export` does it later", path.name, why)


def main(run: Path, file: Path) -> int:
    """Write the tables of one file, and return the exit code."""
    if hasattr(os, "nice"):
        os.nice(_NICER_BY)
    table_of(RunFolder(run), file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
