"""`horde bench`: time learning on this machine. `python -m tests.bench numpy` compares it with NumPy, in a clone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import tyro

from horde_agent.refusals import BadInput

SECTIONS: dict[str, tuple[str, ...]] = {
    "w1": ("w1_ms", "w1_f64_ms", "w1_every_step_ms"),
    "w2": ("w2_ms", "w2_f64_ms", "w2_deferred_ms"),
    "w10k": ("w10k_ms", "w10k_deferred_ms"),
    "w50k": ("w50k_ms", "w50k_max_ms"),
    "max": ("max_demons_at_10hz", "max_demons_ms", "max_demons_worst_ms"),
    "env": ("env_steps_per_s",),
    "life": ("life_261681_s",),
    "tile": ("tile_us",),
    "cluster": ("cluster_vs_one", "cluster_ask_ms", "cluster_ask_p99_ms", "cluster_driver_ms"),
}
"""The sections, and the keys of the answer that each fills."""
KEYS = (*chain.from_iterable(SECTIONS.values()), "threads", "cpu")


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Measure what learning costs on this machine; progress goes to stderr.

    Attributes:
        json: Print one JSON object, null where something was not or could not be measured; else a
            table.
        out: Folder for bench.json, the object.
        only: Sections to run, with commas between: w1, w2, w10k, w50k, max, env, life, tile,
            cluster.
        skip: Sections to leave out.
        stream: "synthetic", 53 random walks, or "simulator", the simulated robot's, recorded before
            the timing.
        quick: Few steps: to see that it works, not to be quoted.
        full: The paper's 7.3 hours of life too, simulator included.
    """

    json: bool = False
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: none)")
    ] = None
    only: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint="(default: all)")] = ""
    skip: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint="(default: none)")] = ""
    stream: Literal["synthetic", "simulator"] = "synthetic"
    quick: bool = False
    full: bool = False

    def sections(self) -> list[str]:
        """Return the sections to run, in their order; raise BadInput if `only` or `skip` names an unknown one."""
        only, skip = (
            [name.strip() for name in words.split(",") if name.strip()]
            for words in (self.only, self.skip)
        )
        unknown = [name for name in (*only, *skip) if name not in SECTIONS]
        if unknown:
            raise BadInput(
                f"there is no section {unknown[0]!r} of the benchmark; there are {', '.join(SECTIONS)}"
            )
        chosen = [
            name for name in SECTIONS if (name in only if only else name != "life" or self.full)
        ]
        return [name for name in chosen if name not in skip]
