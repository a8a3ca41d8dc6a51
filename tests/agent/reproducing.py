"""An experiment on a toy body, its lives, and verdicts in short."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples.reproduce import lives as streams
from examples.reproduce.checks import judge
from examples.reproduce.experiment import ExperimentContext
from tests.agent.doubles import ToyBody


class LitToy(ToyBody):
    """A toy body that takes its last channel for a light sensor."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata["channels"][2]["group"] = "light"


def toy_context(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: tuple[int, ...] = (0,)
) -> ExperimentContext:
    """Return the context of an experiment with a toy robot.

    At the quick scale jobs run in this process, so that monkeypatches apply.
    """
    monkeypatch.setattr(streams, "make_body", lambda *_, **__: LitToy())
    return ExperimentContext(folder, "quick", seeds, "simulator", lambda line: None)


def record_life(
    context: ExperimentContext, seed: int, steps: int, kind: streams.Kind = "excursions"
) -> Path:
    """Return the path of one life's recording."""
    return streams.simulate_lives(context, [streams.LifeSpec(seed, steps, kind)])[seed]


def letters(experiment: ModuleType, data: Any) -> str:
    """Return the first letter of each verdict: r, p or n."""
    return "".join(result.verdict[0] for result in judge(experiment, data))
