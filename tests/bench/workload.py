"""The benchmark stream; it lives in the package, for `horde bench`."""

from __future__ import annotations

from horde_agent.bench.workload import *  # noqa: F403
