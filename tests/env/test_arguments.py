"""A wrong argument of an environment is refused in one sentence that names the parameter, before anything is opened."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env import make_simulator_env, registry
from horde_env.env import RobotEnv
from horde_env.make import make_env, make_vector_env
from horde_env.robot import ROBOTS
from tests.env.toy import ToyBody

WRONG: list[Any] = [object(), -1, math.nan, math.inf, b"x", [()], {"a": 2}, np.zeros(2)]
SHARED = ("action_type", "task", "render_mode")
OF_ITS_OWN: dict[str, list[Any]] = {
    "lamp_moves": [
        3,
        "ab",
        [(1.0, "a")],
        [(1.0, 2, (0, 0, 0))],
        [("1", "a", (0, 0, 0))],
        [(1.0, "a", (0, 0))],
    ],
    "friction_changes": [
        *(3, "ab", [(1.0, "clockwise")], [(1.0, "left", 2.0)], [(1.0, "clockwise", 0.0)]),
        *([(-1.0, "clockwise", 2.0)], [(1.0, 2.0)]),
    ],
    "baudrate": [0, 9600.0, "9600"],
    "seed": [0.0, "0"],
    "battery_scale": [0.0, "1", True],
    "speed": [0.0, "1", True],
    "signs": ["light_0", {"light_0": 0}],
    "realtime": ["no", 1],
    "guarded": ["no", 1],
    "link": ["radio"],
}
CASES = [
    (kind, backend, name)
    for kind in ROBOTS
    for backend, entry in registry.robot(kind).environments.items()
    for name in (*entry.arguments, *SHARED)
]


@pytest.mark.parametrize(("kind", "backend", "name"), CASES)
def test_a_wrong_argument_is_refused_in_a_sentence_that_names_the_parameter(
    kind: str, backend: str, name: str
) -> None:
    needed = {}
    if backend == "replay":
        needed = {"log": "no.csv"}
    for value in (*WRONG, *OF_ITS_OWN.get(name, [])):
        with pytest.raises(ValueError, match=rf"^{name} must be .*, not "):
            make_env(kind, backend, **needed | {name: value})


@pytest.mark.parametrize("kind", ROBOTS)
def test_an_argument_that_an_environment_does_not_have_is_refused_by_name(kind: str) -> None:
    for entry in registry.robot(kind).environments.values():
        with pytest.raises(
            TypeError, match=f"{entry.id} has no argument 'colour'; it has {entry.arguments[0]}"
        ):
            gymnasium.make(entry.id, colour=1)
    with pytest.raises(ValueError, match="has no backend 'radio'"):
        make_env(kind, "radio")


@pytest.mark.parametrize(
    ("make", "physics"),
    [
        (partial(make_env, "critterbot", "simulator"), "newton"),
        (partial(make_env, "create2", "simulator"), "bullet"),
        (partial(make_env, "create2", "emulated"), "bullet"),
        (partial(make_vector_env, "critterbot", "simulator"), "bullet"),
    ],
)
def test_an_engine_that_a_robot_does_not_have_is_refused(make: Any, physics: str) -> None:
    with pytest.raises(ValueError, match=rf"physics .*{physics}"):
        make(physics=physics)


def test_numbers_of_numpy_and_none_where_it_is_the_default_are_accepted() -> None:
    kwargs: dict[str, Any] = {
        "battery_scale": np.float32(0.5),
        "realtime": np.False_,
        "lamp_moves": np.zeros((0, 3)),
    }
    make_simulator_env(**kwargs, physics=None, task=None, render_mode=None).close()


@pytest.mark.parametrize(
    "options",
    [5, "centre", "", 0, False, [], ["centre"], {"manoeuver": "centre"}, {5: 1, "a": 2}]
    + [{"manoeuvre": name} for name in ("dance", 3, ["centre"], {})]
    + [{"charge_s": 3.0}, {"manoeuvre": "centre", "charge_s": 3.0}],
    ids=repr,
)
def test_wrong_reset_options_are_refused_and_nothing_is_opened(options: Any) -> None:
    body = ToyBody()
    with pytest.raises(ValueError, match=r"option|manoeuvre|charge_s"):
        RobotEnv(body).reset(options=options)
    assert body.log == []


@pytest.mark.parametrize("value", ["glory", []], ids=repr)
@pytest.mark.parametrize("name", SHARED)
def test_an_unknown_choice_of_any_type_is_refused_by_the_environment_itself(
    name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"unknown {name} {re.escape(repr(value))}"):
        RobotEnv(ToyBody(), **{name: value})
