"""The live page of a run: `life.status` writes small files next to the recording, `server` shows them in a browser.

The run writes at most twenty times a second, into files of a fixed size; another process reads
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

PORT = 8420


@dataclass(frozen=True)
class WatchConfig:
    """Show a run on a page in the browser, while it is running or after it has ended.

    Attributes:
        run: The run's folder.
        host: Address to listen on. Outside the loopback a token is required, which is printed.
        port: Port to listen on; 0 chooses a free one.
    """

    run: tyro.conf.Positional[Path]
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = PORT
