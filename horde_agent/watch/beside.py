"""The page of a life, started by it: it ends with the life, which holds the other end of its standard input.

A life that is killed can end nothing, but its end of the pipe is closed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Thread

from horde_agent.runs.config import BadInput
from horde_agent.watch.command import WatchConfig, watch


def _end_with_life() -> None:
    sys.stdin.read()
    os._exit(0)


def main(folder: Path) -> int:
    """Serve the page of a run at a free port, and return the exit code."""
    Thread(target=_end_with_life, daemon=True).start()
    try:
        watch(WatchConfig(run=folder, port=0))
    except BadInput as error:
        print(f"horde: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
