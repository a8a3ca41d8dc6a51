"""`python -m horde_agent.cli`: the command `horde`."""

import sys

from horde_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
