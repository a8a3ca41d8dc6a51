"""The command `horde`, whose snapshots are copied a piece in each step, however few demons there are."""

from __future__ import annotations

import sys
from unittest.mock import patch

from horde_agent import cli
from horde_agent.learning import gradually, span
from horde_agent.runs import keeping

SETTINGS = ((keeping, "AT_ONCE_BYTES", 0), (gradually, "BYTES_A_STEP", 1), (span, "_WIDEST", 16))

if __name__ == "__main__":
    for module, name, value in SETTINGS:
        patch.object(module, name, value).start()
    sys.exit(cli.main(sys.argv[1:]))
