"""The command `horde` with a toy body as its environment: `python -m tests.agent.toy_command FOLDER WORDS...`.

At step 300 the body creates FOLDER/reached and waits for FOLDER/go.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.runs.reporting import report
from tests.agent.doubles import ToyBody

PAUSE_AT = 300


def main(folder: Path, words: list[str]) -> int:
    """Run the command without pictures, and let the body pause once."""

    def pause(age: int) -> None:
        if age == PAUSE_AT:
            (folder / "reached").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)

    learn.make_env = lambda _config: ToyBody(on_step=pause)  # type: ignore[assignment]
    report.draw_pictures = lambda *_: []
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
