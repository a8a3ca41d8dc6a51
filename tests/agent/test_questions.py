"""Families of questions, and question files: valid ones, and one sentence of error for each mistake."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import questions
from horde_agent.gvf import GVF, Channel
from horde_agent.interface import Interface
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Greedy, Uniform
from tests.agent.commands import CONTROL
from tests.agent.shared import robot_interface

ROBOT = robot_interface()
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "questions.toml"

VALID: dict[str, Any] = {
    "family": [
        {
            "policies": ["forward", "uniform"],
            "gammas": [0.0, 0.5],
            "channels": ["light_0", "thermal_1"],
            "groups": ["acceleration"],
            "lam": 0.5,
            "tested": False,
        },
        {"policies": ["behaviour"], "gammas": [0.8], "channels": ["light_0"]},
    ],
    "feedback": [
        {"questions": ["*/g0.5/*"], "intervals": [8], "tilings": 2, "range": [0.0, 2.0]},
        {"questions": ["behaviour/*/light_0"], "intervals": [2, 3], "neighbour": 1, "tilings": 1},
    ],
}

WRONG: list[Any] = [
    *(
        True,
        False,
        0,
        1,
        -1,
        8,
        1.5,
        0.0,
        -0.5,
        1.0,
        10**9,
        10**400,
        1e400,
        float("nan"),
        "",
        "1",
        "light_0",
    ),
    *(
        [],
        [0],
        [1.0],
        [-1],
        [8, 8],
        [1, 2, 3],
        [10**9],
        [10**9, 10**9],
        [True],
        [1.5],
        ["a", "b"],
        ["light_0"] * 2,
    ),
    *(
        [[]],
        [[1]],
        [[[1]]],
        [{}],
        {},
        {"a": 1},
        [float("nan")],
        [0.5, 0.5],
        ["stop", 3],
        ["behaviour"],
        [10**400],
    ),
    *(
        [0.0, 10**400],
        [1e300, -1e300],
        [2, 1],
        [0, float("inf")],
        ["*"],
        ["?"],
        ["[["],
        "*",
        ["acceleration"],
    ),
]


def toml(value: Any) -> str:
    """Return a value as TOML, with tables in lists inline."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value)


def text_of(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


def read(path: Path, text: str) -> tuple[list[GVF], Interface]:
    path.write_text(text, encoding="utf-8")
    gvfs = questions.from_file(path, ROBOT)
    return gvfs, questions.feeding_back(path, ROBOT, gvfs)


def mistakes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the valid file with one field of one table wrong, missing, or with another name."""
    for kind, tables in VALID.items():
        for wrong in WRONG:
            yield f"{kind} = {wrong!r}"[:60], {**VALID, kind: wrong}
        for k, table in enumerate(tables):
            for key in table:
                for name, change in [
                    *((f"{wrong!r}"[:40], {key: wrong}) for wrong in WRONG),
                    ("missing", {}),
                    ("misspelt", {f"{key}s": table[key]}),
                ]:
                    changed = copy.deepcopy(VALID)
                    changed[kind][k] = {
                        other: v for other, v in table.items() if other != key
                    } | change
                    yield f"{kind} {k}: {key} {name}", changed


def test_the_file_that_the_mistakes_start_from_is_valid(tmp_path: Path) -> None:
    """2 policies x 2 gammas x (2 channels and a group of 3); then 1 channel; 10 + 1 predictions are fed back."""
    gvfs, looped = read(tmp_path / "q.toml", text_of(VALID))
    assert len(gvfs) == 2 * 2 * 5 + 1
    assert [q.tested for q in gvfs] == [False] * 20 + [True]
    assert looped.feedback is not None
    assert len(looped.feedback.names) == 10 + 1


def test_every_mistake_is_one_sentence_with_the_name_of_the_file(tmp_path: Path) -> None:
    """Wrong types, lengths and ranges in every field; valid values must give questions."""
    path = tmp_path / "q.toml"
    n_refused = 0
    for name, table in mistakes():
        try:
            assert read(path, text_of(table))[0], name
        except ValueError as error:
            sentence = str(error)
            n_refused = n_refused + 1
            assert sentence.startswith(f"{path}: "), name
            assert "\n" not in sentence, name
            assert len(sentence) < 1_500, name
            assert "[[tiling]]" not in sentence, name
    assert n_refused > 400


FAMILY = '[[family]]\npolicies = ["stop"]\ngammas = [0.5]\n'
FEEDBACK = FAMILY + '[[feedback]]\nquestions = ["*"]\nintervals = [8]\ntilings = 2\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FEEDBACK + 'range = ["a", "b"]', r"range .*not \['a', 'b'\]"),
        (FEEDBACK.replace("[8]", "[8, 8]") + 'neighbour = "1"', "neighbour .*-53 to 53, not '1'"),
        (FEEDBACK.replace("[8]", "[10000000]"), r"\[\[feedback\]\] number 1 .*1,060,.* more than"),
        (FEEDBACK.replace("= 2", "= true"), "tilings .*1 to 10,000, not True"),
        (
            FEEDBACK + FEEDBACK[len(FAMILY) :].replace("[8]", "[0]"),
            r"\[\[feedback\]\] number 2: intervals",
        ),
        (FAMILY.replace("stop", "dance"), "unknown policy 'dance'; there are forward, reverse"),
        (FAMILY + 'channels = ["smell"]', "unknown sensor 'smell'; there are bus_voltage"),
        (FAMILY + "colour = 1", r"unknown key 'colour'; .*policies, gammas"),
        (FAMILY.replace("0.5", "1.0"), "continuation of 1"),
        (FAMILY.replace("[0.5]", "[0.5, 0.5]"), "gammas .*0.5 twice"),
        (FAMILY + FAMILY, "twice"),
        (
            FAMILY.replace("[0.5]", str([number / 4_000 for number in range(2_000)])),
            "gammas has 2,000 numbers, expected at most 1,000",
        ),
        (CONTROL.replace('"qrc"', "1"), "algorithm must be the name of an update rule, not 1"),
        (
            CONTROL.replace("0.9", "1.0"),
            r"\[\[control\]\] number 1: .*a continuation of 1 never ends",
        ),
        (
            CONTROL.replace("light_0", "smell", 1),
            r"\[\[control\]\] number 1 names the unknown sensor 'smell'",
        ),
        (CONTROL.replace("gamma = 0.9", ""), r"\[\[control\]\] number 1 needs 'gamma'"),
        (
            CONTROL.replace("gamma = 0.9", "gamma = 0.9\nspeed = 1"),
            r"\[\[control\]\] number 1 has an unknown key 'speed'",
        ),
        (
            CONTROL.replace("greedy:lamp", "greedy:dock"),
            r"\[\[family\]\] number 1 names the unknown policy 'greedy:dock'",
        ),
        ("control = 1", "family, control and option must be"),
        ("", "at least one"),
        ("family = [", "not a TOML file"),
        ("family = " + "[" * 5_000, "nested too deeply|not a TOML file"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_table(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        read(tmp_path / "q.toml", text)
    assert str(error.value).startswith(str(tmp_path / "q.toml"))


def test_the_families_of_a_file_ask_a_limited_number_of_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_of_family = len(read(tmp_path / "q.toml", FAMILY)[0])
    monkeypatch.setattr(questions, "MOST_QUESTIONS", 2 * n_of_family)
    two = FAMILY + FAMILY.replace("0.5", "0.6")
    assert len(read(tmp_path / "q.toml", two)[0]) == 2 * n_of_family
    with pytest.raises(ValueError, match="it asks more than"):
        read(tmp_path / "q.toml", two + FAMILY.replace("0.5", "0.7"))
    monkeypatch.setattr(questions, "MOST_QUESTIONS", n_of_family - 1)
    with pytest.raises(
        ValueError,
        match=r"1 policies, 1 gammas and 5. channels are 5. questions, expected at most 5.",
    ):
        read(tmp_path / "q.toml", FAMILY)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read the question file"):
        questions.from_file(tmp_path / "nowhere.toml", ROBOT)


def test_the_worked_example_is_documented() -> None:
    """It has every field; docs/questions.md shows the file and describes each field."""
    text = EXAMPLE.read_text(encoding="utf-8")
    gvfs = questions.from_file(EXAMPLE, ROBOT)
    looped = questions.feeding_back(EXAMPLE, ROBOT, gvfs)
    fields = (
        "policies",
        "gammas",
        "channels",
        "groups",
        "lam",
        "tested",
        "questions",
        "intervals",
        "tilings",
    )
    page = (EXAMPLE.parents[1] / "docs" / "questions.md").read_text(encoding="utf-8")
    for field in (*fields, "neighbour", "range"):
        assert f"\n{field} = " in text, field
        assert f"`{field}`" in page, field
    assert looped.feedback is not None
    assert (len(gvfs), len(looped.feedback.names)) == (99, 13)
    assert f"{len(gvfs)} questions; {len(looped.feedback.names)} of their predictions" in page
    assert next(q.name for q in gvfs if not q.tested) == "rotate_clockwise/g0.95/thermal_0"
    assert text.strip() in page, "the document shows the file as it is"


def test_the_papers_first_experiment_has_795_questions() -> None:
    """5 policies x 3 time scales x 53 sensors, ordered policy, gamma, sensor; 159 share an action."""
    gvfs = questions.excursions(ROBOT)
    assert len(gvfs) == 795
    assert (gvfs[0].name, gvfs[-1].name) == ("forward/g0/bus_voltage", "stop/g0.8/thermal_7")
    assert gvfs[2 * 53 + 41].name == "forward/g0.8/light_0"
    assert gvfs[2 * 53 + 41].cumulant == Channel(41)
    assert sum(q.target_policy == ConstantAction(3, 5) for q in gvfs) == 159
    assert len({q.name for q in gvfs}) == 795


def test_the_papers_last_experiment_has_a_policy_for_each_question() -> None:
    gvfs = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert len({id(q.target_policy) for q in gvfs}) == 40
    assert all(isinstance(q.target_policy, Gibbs) for q in gvfs)
    assert {q.continuation for q in gvfs} <= {0.0, 0.5, 0.8, 0.95}
    repeat = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert [q.name for q in repeat] == [q.name for q in gvfs]
    with pytest.raises(ValueError, match="n must"):
        questions.policies(ROBOT, np.random.default_rng(0), n=0)


def test_columns_say_what_a_question_asks_whatever_its_name() -> None:
    """Policies without a name are called by their action or kind, and numbered if they are several of one kind."""
    n = len(ROBOT.actions)
    light = ROBOT.index("light_0")
    gibbs = [Gibbs.random(np.random.default_rng(k), n, ROBOT.coder.n_features) for k in range(2)]
    asked = [
        GVF("a/b/c/d", ConstantAction(1, n), Channel(light), 0.5),
        GVF("light", Uniform(n), Channel("light_0"), 0.0),
        GVF("x", gibbs[0], Channel(light), lambda *_: 0.5),
        GVF("y", gibbs[1], lambda *_: 1.0, 0.5),
        GVF("z", gibbs[0], Channel(light), 0.5),
        GVF("lamp", Greedy(n), Channel(light), 0.5),
        *questions.family(ROBOT, {"a/b": Behaviour()}, [0.8], ["light_0"], family_name="own"),
    ]
    columns = questions.question_columns(asked, ROBOT)
    assert [(c.family, c.policy, c.channel, c.group) for c in columns] == [
        ("", ROBOT.actions[1], "light_0", f"{ROBOT.actions[1]}/g0.5"),
        ("", "uniform", "light_0", "uniform/g0"),
        ("", "Gibbs", "light_0", "Gibbs"),
        ("", "Gibbs 2", "", "Gibbs 2/g0.5"),
        ("", "Gibbs", "light_0", "Gibbs/g0.5"),
        ("", "greedy:lamp", "light_0", "greedy:lamp/g0.5"),
        ("own", "a/b", "light_0", "a/b/g0.8"),
    ]


def test_families_have_names() -> None:
    rng = np.random.default_rng(0)
    families = {
        "excursions": questions.excursions(ROBOT),
        "nexting": questions.nexting(ROBOT),
        "policies": questions.policies(ROBOT, rng, n=3),
        "family 1": questions.from_file(EXAMPLE, ROBOT)[:1],
    }
    for name, family in families.items():
        assert {question.family for question in family} == {name}
