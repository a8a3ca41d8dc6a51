"""Question files: what they may hold, and one sentence for each thing that they may not."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.interface import Interface
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
        {"policies": ["behaviour"], "gammas": [0.8]},
    ],
    "feedback": [
        {"questions": ["*/g0.5/*"], "intervals": [8], "tilings": 2, "range": [0.0, 2.0]},
        {"questions": ["behaviour/*/light_0"], "intervals": [2, 3], "neighbour": 1, "tilings": 1},
    ],
}

WRONG: list[Any] = [
    *(True, False, 0, 1, -1, 8, 1.5, 0.0, -0.5, 1.0, 10**9, 10**400, 1e400, float("nan"), "", "1", "light_0"),
    *([], [0], [1.0], [-1], [8, 8], [1, 2, 3], [10**9], [10**9, 10**9], [True], [1.5], ["a", "b"], ["light_0"] * 2),
    *([[]], [[1]], [[[1]]], [{}], {}, {"a": 1}, [float("nan")], [0.5, 0.5], ["stop", 3], ["behaviour"], [10**400]),
    *([0.0, 10**400], [1e300, -1e300], [2, 1], [0, float("inf")], ["*"], ["?"], ["[["], "*", ["acceleration"]),
]


def toml(value: Any) -> str:
    """Return a value as TOML; tables in lists are written in line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def text_of(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


def read(path: Path, text: str) -> tuple[list[GVF], Interface]:
    path.write_text(text, encoding="utf-8")
    posed = questions.from_file(path, ROBOT)
    return posed, questions.feeding_back(path, ROBOT, posed)


def refusal(path: Path, text: str) -> str | None:
    """Return what was said against a file; None where it gives questions."""
    try:
        posed, _ = read(path, text)
    except ValueError as error:
        return str(error)
    assert posed
    return None


def mistakes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the valid file with one field of one table wrong, left out, or with another name."""
    for kind, tables in VALID.items():
        for wrong in WRONG:
            yield f"{kind} = {wrong!r}"[:60], {**VALID, kind: wrong}
        for k, table in enumerate(tables):
            for key in table:
                for name, change in [
                    *((f"{wrong!r}"[:40], {key: wrong}) for wrong in WRONG),
                    ("left out", {}),
                    ("misspelt", {f"{key}s": table[key]}),
                ]:
                    changed = copy.deepcopy(VALID)
                    changed[kind][k] = {other: v for other, v in table.items() if other != key} | change
                    yield f"{kind} {k}: {key} {name}", changed


def test_the_file_that_is_spoilt_below_is_a_good_one(tmp_path: Path) -> None:
    """2 policies x 2 gammas x (2 channels and a group of 3); then 53 sensors; 10 + 1 predictions are fed back."""
    posed, looped = read(tmp_path / "q.toml", text_of(VALID))
    assert len(posed) == 2 * 2 * 5 + 53
    assert [q.tested for q in posed] == [False] * 20 + [True] * 53
    assert looped.feedback is not None
    assert len(looped.feedback.names) == 10 + 1


def test_whatever_is_wrong_is_said_in_one_sentence_with_the_name_of_the_file(tmp_path: Path) -> None:
    """Wrong types, lengths and ranges in every field; what happens to be allowed must give questions."""
    path, n_refused = tmp_path / "q.toml", 0
    for name, table in mistakes():
        said = refusal(path, text_of(table))
        if said is not None:
            n_refused += 1
            assert said.startswith(f"{path}: "), name
            assert "\n" not in said, name
            assert len(said) < 1_500, name
            assert "[[tiling]]" not in said, name
    assert n_refused > 400


def test_a_file_of_noise_is_refused_or_read(tmp_path: Path) -> None:
    """Single characters of the valid file replaced, left out and doubled, 600 times."""
    rng, text, path = random.Random(0), text_of(VALID), tmp_path / "q.toml"
    for _ in range(600):
        at = rng.randrange(len(text))
        new = rng.choice(["", text[at] * 2, rng.choice('[]{}",=.#\\\n0-tf\x00é')])
        said = refusal(path, text[:at] + new + text[at + 1 :])
        assert said is None or said.startswith(f"{path}: ")


FAMILY = '[[family]]\npolicies = ["stop"]\ngammas = [0.5]\n'
FEEDBACK = FAMILY + '[[feedback]]\nquestions = ["*"]\nintervals = [8]\ntilings = 2\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            FEEDBACK.replace("[8]", "8"),
            r"\[\[feedback\]\] number 1: intervals must be 1 whole number\(s\) in a list, not 8",
        ),
        (FEEDBACK + "range = 5", "number 1: range must be two finite numbers, the lower one first, not 5"),
        (FEEDBACK + 'range = ["a", "b"]', r"range must be two finite numbers, the lower one first, not \['a', 'b'\]"),
        (FEEDBACK.replace("[8]", "[8, 8]") + 'neighbour = "1"', "neighbour must be whole, from -53 to 53, not '1'"),
        (FEEDBACK.replace("[8]", "[8, 8]") + "neighbour = 1.5", "neighbour must be whole, from .* not 1.5"),
        (FEEDBACK.replace("[8]", "[1000000000]"), r"intervals must be whole, from 1 to 16,777,216, not \[1000000000\]"),
        (
            FEEDBACK.replace("[8]", "[10000000]"),
            r"the tiles of \[\[feedback\]\] number 1 and before are 1,060,.* more than",
        ),
        (FEEDBACK.replace("= 2", "= true"), "tilings must be whole, from 1 to 10,000, not True"),
        (FEEDBACK.replace("= 2", "= 1000000000"), "tilings must be whole, from 1 to 10,000, not 1000000000"),
        (
            FEEDBACK + FEEDBACK[len(FAMILY) :].replace("[8]", "[0]"),
            r"\[\[feedback\]\] number 2: intervals must be whole",
        ),
        (FAMILY + "channels = []", r"\[\[family\]\] number 1: channels must be a list that is not empty, not \[\]"),
        (FAMILY + "groups = []", r"groups must be a list that is not empty, not \[\]"),
        (
            FAMILY.replace("0.5", "1.0"),
            "continuation of 1",
        ),
        (FAMILY.replace("[0.5]", "0.5"), "gammas must be a list that is not empty, not 0.5"),
        (FAMILY.replace("[0.5]", "[0.5, 0.5]"), "gammas holds 0.5 twice"),
        (FAMILY.replace('["stop"]', '["stop", "stop"]'), "policies holds 'stop' twice"),
        (FAMILY + 'tested = "no"', "tested must be true or false, not 'no'"),
        (FAMILY + "lam = [0.5]", r"lam must be a number, not \[0.5\]"),
        ("family = " + "[" * 5_000, "nested too deeply|not a TOML file"),
    ],
)
def test_what_is_wrong_is_named_where_it_stands(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "q.toml", text)


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "q.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FAMILY.encode())
    assert len(questions.from_file(path, ROBOT)) == 53


def test_the_worked_example_is_what_its_words_say() -> None:
    """Every field occurs in it; docs/questions.md tells of each."""
    text = EXAMPLE.read_text(encoding="utf-8")
    posed = questions.from_file(EXAMPLE, ROBOT)
    looped = questions.feeding_back(EXAMPLE, ROBOT, posed)
    fields = ("policies", "gammas", "channels", "groups", "lam", "tested", "questions", "intervals", "tilings")
    told = (EXAMPLE.parents[1] / "docs" / "questions.md").read_text(encoding="utf-8")
    for field in (*fields, "neighbour", "range"):
        assert f"\n{field} = " in text, field
        assert f"`{field}`" in told, field
    assert looped.feedback is not None
    assert (len(posed), len(looped.feedback.names)) == (99, 13)
    assert f"{len(posed)} questions; {len(looped.feedback.names)} of their predictions" in told
    assert next(q.name for q in posed if not q.tested) == "rotate_clockwise/g0.95/thermal_0"
    assert text.strip() in told, "the document shows the file as it is"
