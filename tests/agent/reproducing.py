"""A study on a toy body, its lives, and verdicts in short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horde_agent.reproduce import lives as streams
from horde_agent.reproduce.claims import Claims
from horde_agent.reproduce.study import Study
from tests.agent.doubles import ToyBody


class LitToy(ToyBody):
    """A toy body that takes its last channel for a light sensor."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata["channels"][2]["group"] = "light"


def toy_study(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: tuple[int, ...] = (0,)
) -> Study:
    """Return a study with a toy robot; at the quick scale jobs run in this process, so monkeypatches apply."""
    monkeypatch.setattr(streams, "make_body", lambda *_, **__: LitToy())
    return Study(folder, "quick", seeds, "simulator", lambda line: None)


def record_life(study: Study, seed: int, steps: int, kind: streams.Kind = "excursions") -> Path:
    """Return the path of one life's recording."""
    return streams.simulate_lives(study, [streams.LifeSpec(seed, steps, kind)])[seed]


def letters(claims: Claims, data: Any) -> str:
    """Return the first letter of each verdict: r, p or n."""
    return "".join(claim.verdict[0] for claim in claims.judge(data))
