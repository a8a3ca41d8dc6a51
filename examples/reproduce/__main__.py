"""`python -m examples.reproduce NAME`, in a clone of the repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from examples.reproduce import ReproduceConfig
from examples.reproduce.command import PROGRAM, run
from horde_agent.cli import exit_code_of
from horde_agent.cli.errors import Fault, sentence
from horde_agent.cli.parsing import parse_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment that these words name, by default the program's own, and return the exit code.

    It is 0 after the page is written, 1 if files cannot be written, 2 after bad input, 128 + the
    signal after a signal.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return exit_code_of("reproduce", lambda _: _reproduce(words))


def _reproduce(words: Sequence[str]) -> None:
    config: ReproduceConfig = parse_command(ReproduceConfig, words, PROGRAM)
    try:
        page = run(config)
    except OSError as error:
        more = "Finished parts are kept: the same command continues from here."
        raise Fault(f"{sentence(error)} {more}") from error
    print(page)


if __name__ == "__main__":
    sys.exit(main())
