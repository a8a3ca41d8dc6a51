"""`horde bench`: time learning on this machine against NumPy and dense baselines, in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from horde_agent.runs.config import BadInput

# Every key of the answer, and the section that fills it.
KEYS: dict[str, str] = {
    "w1_ms": "w1",
    "w1_f64_ms": "w1",
    "w1_vs_numpy": "w1",
    "w1_every_step_ms": "w1",
    "w2_ms": "w2",
    "w2_f64_ms": "w2",
    "w2_vs_numpy": "w2",
    "w2_vs_dense": "w2",
    "w2_deferred_ms": "w2",
    "w10k_ms": "w10k",
    "w10k_deferred_ms": "w10k",
    "w50k_ms": "w50k",
    "w50k_max_ms": "w50k",
    "max_demons_at_10hz": "max",
    "max_demons_ms": "max",
    "max_demons_worst_ms": "max",
    "env_steps_per_s": "env",
    "life_261681_s": "life",
    "tile_us": "tile",
    "cluster_vs_one": "cluster",
    "cluster_ask_ms": "cluster",
    "cluster_ask_p99_ms": "cluster",
    "cluster_driver_ms": "cluster",
    "threads": "",
    "cpu": "",
}
SECTIONS = tuple(dict.fromkeys(section for section in KEYS.values() if section))


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Measure what learning costs on this machine; progress goes to stderr.

    Attributes:
        json: Print one JSON object, null where something was not or could not be measured; else a table.
        out: Folder for bench.json (the object) and details.json.
        only: Sections to run, with commas between: w1, w2, w10k, w50k, max, env, life, tile, cluster.
        skip: Sections to leave out.
        stream: "synthetic", 53 random walks, or "simulator", the simulated robot's, recorded before the timing.
        quick: Few steps: to see that it works, not to be quoted.
        full: The paper's 7.3 hours of life too, simulator included.
    """

    json: bool = False
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: none)")] = None
    only: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    skip: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    stream: Literal["synthetic", "simulator"] = "synthetic"
    quick: bool = False
    full: bool = False

    def sections(self) -> list[str]:
        """Return the sections to run, in their order.

        Raises:
            BadInput: If `only` or `skip` names an unknown one.
        """
        only, skip = ([name.strip() for name in words.split(",") if name.strip()] for words in (self.only, self.skip))
        unknown = [name for name in (*only, *skip) if name not in SECTIONS]
        if unknown:
            raise BadInput(f"there is no section {unknown[0]!r} of the benchmark; there are {', '.join(SECTIONS)}")
        chosen = [name for name in SECTIONS if (name in only if only else name != "life" or self.full)]
        return [name for name in chosen if name not in skip]
