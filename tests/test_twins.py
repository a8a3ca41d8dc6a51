"""What both packages have, as neither imports the other: common functions are the same text, keys of info the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from horde_agent.life.backends import ROBOTS, environment_of
from horde_agent.life.counts import FLAG_KEYS, RobotInfo
from horde_agent.record import FIELDS
from horde_env.registry import all_robots
from tests.env.test_environments import CASES, made

ROOT = Path(__file__).resolve().parents[1]
TWINS = {
    "saving": (
        "horde_agent/saving.py",
        "horde_env/sim/saving.py",
        {
            "attributes",
            "nested",
            "inner",
            "text",
            "untext",
            "generator_state",
            "restore_generator",
        },
    ),
    "jit": (
        "horde_agent/kernels/_jit.py",
        "horde_env/_jit.py",
        {"_finds_cache", "_digest", "_warn_if_unwritable", "_PartLibrary", "_PartCompiler"},
    ),
}

NAMED_APART = {"_ChooseLibrary"}
"""Numba knows a pass by its name, which is another in each package."""


def functions_of(file: str) -> dict[str, str]:
    """Return the text of each function and class of a file, decorators and comments included."""
    source = (ROOT / file).read_text(encoding="utf-8")
    lines = source.splitlines()
    functions = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return functions


@pytest.mark.parametrize("name", TWINS)
def test_functions_of_both_packages_are_the_same_text(name: str) -> None:
    """A function that only one of the two has is its own; all that both have are compared."""
    agent_file, env_file, expected = TWINS[name]
    agent = functions_of(agent_file)
    env = functions_of(env_file)
    assert expected <= agent.keys() & env.keys()
    for function in (agent.keys() & env.keys()) - NAMED_APART:
        assert agent[function] == env[function], function


def test_the_learner_names_each_robot_with_its_backends_and_environments() -> None:
    """A robot that is a folder alone would be unknown to `horde learn`; a wrong ending of an id would find nothing."""
    named = {
        name: {backend: environment_of(name, backend) for backend in model.backends}
        for name, model in ROBOTS.items()
    }
    registered = {
        robot.name: {
            backend: f"horde_env:{environment.id}"
            for backend, environment in robot.environments.items()
        }
        for robot in all_robots()
    }
    assert named == registered


def test_the_learner_reads_keys_of_info_that_robots_emit_in_their_units(tmp_path: Path) -> None:
    """A key that only one of the two names or measures in another unit would be read as missing, or wrongly."""
    keys = [key for case in CASES for key in made(*case, tmp_path).info_keys]
    emitted = {key.name: key.unit for key in keys}
    assert {*FLAG_KEYS, *RobotInfo._field_defaults} <= emitted.keys()
    read = {}
    for field in FIELDS.values():
        if field.info:
            read |= dict(zip(field.info, field.unit.split(", "), strict=True))
    assert {"t", "x_m", "y_m", "heading_rad"} <= read.keys() <= emitted.keys()
    assert read == {name: emitted[name] for name in read}
