"""A study on a toy body, all in one process: the whole way of an experiment in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from horde_agent.reproduce import streams
from horde_agent.reproduce.study import Job, Study
from tests.agent.doubles import ToyBody


class InOneProcess(Study):
    """A study whose jobs are done one after another, here, so that what a test replaced stays replaced."""

    def in_parallel(self, jobs: Sequence[Job]) -> list[Any]:
        """Do the jobs."""
        return [job.function(lambda share: None, *job.args) for job in jobs]


class LitToy(ToyBody):
    """A toy body that takes its last channel for a light sensor."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata["channels"][2]["group"] = "light"


def toy_study(folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: tuple[int, ...] = (0,)) -> Study:
    """Return a study whose body is a toy."""
    monkeypatch.setattr(streams, "make_body", lambda *_, **__: LitToy())
    return InOneProcess(folder, "quick", seeds, "simulator", lambda line: None)
