"""The documents say what there is: their links lead somewhere, and their tables are whole."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import horde_env  # noqa: F401  registers the ids
from horde_env import make
from horde_env.env import PenEnv
from horde_env.spaces import MANOEUVRES
from horde_env.tasks import TASKS
from horde_env.testing import INFO_KEYS
from tests.env.toy import ToyBody

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ENVIRONMENT = (ROOT / "docs" / "ENVIRONMENT.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_page_is_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[2:] if f"docs/{page.name}" not in readme] == []
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.toml")]
    assert [path.name for path in examples if f"examples/{path.name}" not in readme] == []


def test_the_environments_their_arguments_and_their_rewards_are_told() -> None:
    ids = [id_ for id_ in gymnasium.registry if id_.startswith("Critterbot")]
    assert len(ids) == 5
    for id_ in ids:
        line = next(line for line in ENVIRONMENT.splitlines() if f"`horde_env:{id_}`" in line)
        entry = getattr(make, str(gymnasium.spec(id_).entry_point).split(":")[1])
        own = [p.name for p in inspect.signature(entry).parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert [name for name in own if f"`{name}`" not in line] == [], id_
    shared = ("action_type", "task", "render_mode")
    assert set(shared) < set(inspect.signature(PenEnv).parameters)
    for word in (*shared, *INFO_KEYS, *(f'"{name}"' for name in (*TASKS, *MANOEUVRES))):
        assert word in ENVIRONMENT, word


def test_a_task_of_ones_own_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "steady", lambda before, request, after, spec: 0.5)
    env = PenEnv(ToyBody(), task="steady")
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5


def test_the_body_of_the_document_is_a_body() -> None:
    """Its class, with a toy's verbs behind its words, is an environment's body."""
    code = ENVIRONMENT.split("class MyRobot:")[1].split("```")[0]
    names: dict[str, type] = {}
    exec("class MyRobot:" + code, names)
    toy = ToyBody()

    class Robot(names["MyRobot"]):  # type: ignore[misc]
        def reset(self, rng: np.random.Generator) -> object:
            return toy.reset(rng)

        def exchange(self, command: np.ndarray) -> object:
            return toy.exchange(command)

    told = {"reset", "exchange", "close"}
    assert told == {
        name for name in vars(names["MyRobot"]) if callable(getattr(names["MyRobot"], name)) and "_" not in name
    }
    env = PenEnv(Robot())
    assert env.reset(seed=0)[1]["gap"] == 1
    assert env.step(0)[4]["applied"] == 1
    env.close()
