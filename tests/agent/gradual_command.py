"""The command `horde`, whose snapshots are copied over many steps however few demons there are, a piece in each."""

from __future__ import annotations

import sys
from unittest.mock import patch

from horde_agent import cli
from horde_agent.runs import gradually, keeping

SETTINGS = ((keeping, "AT_ONCE_BYTES", 0), (gradually, "BYTES_A_STEP", 1))

if __name__ == "__main__":
    for module, name, value in SETTINGS:
        patch.object(module, name, value).start()
    sys.exit(cli.main(sys.argv[1:]))
