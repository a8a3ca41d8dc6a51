"""The live page as a child process of a run: it ends when its standard input is closed, even if the run is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from horde_agent.runs.config import BadInput
from horde_agent.watch.command import WatchConfig, watch


def main(folder: Path) -> int:
    """Serve the page of a run at a free port, and return the exit code."""
    try:
        watch(WatchConfig(run=folder, port=0), sys.stdin.read)
    except BadInput as error:
        print(f"horde: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
