"""Questions by the million: described, and made where they are needed.

A list of ten million questions takes some 20 GB as objects. A `Family` takes a few hundred bytes: a function makes any
of its questions alone, from its number and a few arguments, and names follow from a rule.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, overload

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.policies import Gibbs
from horde_agent.types import Integers

_DIGITS = 8


@dataclass(frozen=True)
class Family:
    """Many questions, each about a target policy of its own.

    Args:
        function: Where the function is that makes them, "package.module:function": called with (numbers, **arguments),
            it returns the questions with these numbers, a list. Each depends on its number and the arguments alone.
        n: How many there are, numbered from 0.
        prefix: Of their names: question 7 is called prefix + "00000007".
        arguments: Plain values, which are sent to all shards.
        largest_decay: No product of a continuation and a trace decay is larger; 1 where a function gives one.
        is_gibbs: Whether the policies are `Gibbs` ones.

    Raises:
        ClusterError: If `n` is below 1, or `function` does not name one.
    """

    function: str
    n: int
    prefix: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    largest_decay: float = 1.0
    is_gibbs: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ClusterError(f"the family {self.prefix!r} must have at least 1 question, not {self.n}")
        self.maker()

    def maker(self) -> Callable[..., list[GVF]]:
        """Return the function that makes its questions."""
        module, _, name = self.function.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ClusterError(
                f"the family {self.prefix!r} names the function {self.function!r}, which must be "
                f'"package.module:function": {error}'
            ) from None
        return found  # type: ignore[no-any-return]

    def make(self, numbers: Sequence[int] | Integers) -> list[GVF]:
        """Return the questions with these numbers, shape (n,).

        Raises:
            ClusterError: If they are not what the family says of itself.
        """
        made = self.maker()(numbers, **self.arguments)
        names = [question.name for question in made]
        expected = [self.name(int(number)) for number in numbers]
        if names != expected:
            wrong = next((pair for pair in zip(names, expected, strict=False) if pair[0] != pair[1]), None)
            what = f"{wrong[0]!r} in the place of {wrong[1]!r}" if wrong else f"{len(names)} instead of {len(expected)}"
            raise ClusterError(f"the family {self.prefix!r} made other questions than it was asked for: {what}")
        return made

    def name(self, number: int) -> str:
        """Return the name of a question."""
        return f"{self.prefix}{number:0{_DIGITS}d}"

    def number(self, name: str) -> int | None:
        """Return the number of the question with this name; None where there is none."""
        digits = name[len(self.prefix) :]
        if not (name.startswith(self.prefix) and digits.isascii() and digits.isdigit()):
            return None
        number = int(digits)
        return number if number < self.n and self.name(number) == name else None

    def may_share_names(self, other: Family) -> bool:
        """Say whether another family's rule gives a name that this one gives too."""
        short, long = sorted((self, other), key=lambda family: len(family.prefix))
        rest = long.prefix[len(short.prefix) :]
        return long.prefix.startswith(short.prefix) and (not rest or rest.isdigit())


def gibbs_family(
    n: int,
    seed: int,
    *,
    n_features: int,
    n_actions: int,
    channels: Sequence[int],
    gammas: Sequence[float] = (0.0, 0.5, 0.8, 0.95),
    lam: float = 0.9,
    prefix: str = "gibbs_",
) -> Family:
    """Return n questions, each about a random Gibbs policy of its own, of 60 parameters.

    Args:
        n: How many.
        seed: From which, with its number, each question is drawn.
        n_features: Of the body's tile coder.
        n_actions: Of the body.
        channels: That are asked about: places in the observation.
        gammas: Continuations that are drawn from.
        lam: Trace decay.
        prefix: Of the names.

    Source: White, Modayil & Sutton (2012), section 6.
    """
    arguments = {
        "seed": seed,
        "n_features": n_features,
        "n_actions": n_actions,
        "channels": tuple(channels),
        "gammas": tuple(gammas),
        "lam": lam,
        "prefix": prefix,
    }
    made_by = f"{gibbs_questions.__module__}:{gibbs_questions.__name__}"
    return Family(made_by, n, prefix, arguments, largest_decay=max(gammas) * lam, is_gibbs=True)


def gibbs_questions(
    numbers: Sequence[int] | Integers,
    *,
    seed: int,
    n_features: int,
    n_actions: int,
    channels: Sequence[int],
    gammas: Sequence[float],
    lam: float,
    prefix: str,
) -> list[GVF]:
    """Return the questions of `gibbs_family` with these numbers, shape (n,): each has a generator of its own."""
    questions = []
    for number in numbers:
        rng = np.random.default_rng([seed, int(number)])
        policy = Gibbs.random(rng, n_actions, n_features)
        channel, gamma = int(rng.choice(channels)), float(rng.choice(gammas))
        name = f"{prefix}{int(number):0{_DIGITS}d}"
        questions.append(GVF(name, policy, Channel(channel), gamma, lam=lam, tested=False))
    return questions


class Some(NamedTuple):
    """Some questions of a family, by their numbers, shape (n,)."""

    family: Family
    numbers: range | Integers


class Questions(Sequence[GVF]):
    """Questions one after another, some in full and some as families; those of families are made when asked for.

    Args:
        parts: Each a question or a family.

    Attributes:
        parts: Tuples of questions, and families, in their order.
        first: Place of each part's first question, and the number of all, shape (n_parts + 1,).
        names: Their names.

    Raises:
        ClusterError: If there is none, or two have one name.
    """

    def __init__(self, parts: Sequence[GVF | Family]) -> None:
        self.parts: list[tuple[GVF, ...] | Family] = []
        for is_family, run in groupby(parts, key=lambda part: isinstance(part, Family)):
            some: list[Any] = list(run)
            self.parts += some if is_family else [tuple(some)]
        if not self.parts:
            raise ClusterError("questions must hold at least one question")
        sizes = [part.n if isinstance(part, Family) else len(part) for part in self.parts]
        self.first = np.concatenate([[0], np.cumsum(sizes)])
        self._place = {
            question.name: int(first) + i
            for part, first in zip(self.parts, self.first, strict=False)
            if isinstance(part, tuple)
            for i, question in enumerate(part)
        }
        self._refuse_equal_names()
        self.names: Sequence[str] = Names(self) if self.families else [question.name for question in self]

    @property
    def families(self) -> list[Family]:
        """The families among the parts."""
        return [part for part in self.parts if isinstance(part, Family)]

    @property
    def one_by_one(self) -> list[GVF | Family]:
        """The parts, with each question that is given in full a part."""
        return [one for part in self.parts for one in (part if isinstance(part, tuple) else (part,))]

    def without(self, places: Integers) -> list[GVF | Family]:
        """Return the parts without the questions at these places, shape (n,).

        Raises:
            ValueError: If one of them belongs to a family, or one that stays is about its prediction.
        """
        gone = {self.names[place] for place in places.tolist()}
        of_family = next((name for name in gone if name not in self._place), None)
        if of_family is not None:
            raise ValueError(f"{of_family!r} belongs to a family: only questions given one by one can be removed")
        stays = [one for one in self.one_by_one if isinstance(one, Family) or one.name not in gone]
        for one in stays:
            if isinstance(one, GVF) and isinstance(one.cumulant, Prediction) and one.cumulant.name in gone:
                raise ValueError(f"question {one.name!r}: there is no demon {one.cumulant.name!r} in this Horde")
        return stays

    def _refuse_equal_names(self) -> None:
        """Raise ClusterError where two questions have one name."""
        in_full = [question.name for part in self.parts if isinstance(part, tuple) for question in part]
        twice = next((name for name, n in Counter(in_full).items() if n > 1), "")
        families = self.families
        for k, family in enumerate(families):
            other = next((other for other in families[:k] if family.may_share_names(other)), None)
            if other:
                raise ClusterError(
                    f"the families {other.prefix!r} and {family.prefix!r} give two questions one name; choose prefixes "
                    "that differ before the number"
                )
            twice = twice or next((name for name in in_full if family.number(name) is not None), "")
        if twice:
            raise ClusterError(f"questions must have different names in all shards; {twice!r} is there twice")

    def __len__(self) -> int:
        return int(self.first[-1])

    @overload
    def __getitem__(self, i: int) -> GVF: ...
    @overload
    def __getitem__(self, i: slice) -> list[GVF]: ...
    def __getitem__(self, i: int | slice) -> GVF | list[GVF]:
        """Return a question, or some."""
        places = range(len(self))[i]
        if isinstance(places, int):
            return self.some(np.array([places]))[0]
        return self.some(np.asarray(places))

    def __iter__(self) -> Iterator[GVF]:
        """Yield all, those of families a thousand at a time."""
        for part in self.parts:
            if isinstance(part, tuple):
                yield from part
            else:
                for first in range(0, part.n, 1_000):
                    yield from part.make(range(first, min(first + 1_000, part.n)))

    def some(self, places: Integers) -> list[GVF]:
        """Return the questions at these places, ascending, shape (n,)."""
        found: list[GVF] = []
        for part in self.cut(places):
            found += part.family.make(part.numbers) if isinstance(part, Some) else part
        return found

    def cut(self, places: Integers) -> list[list[GVF] | Some]:
        """Return what describes the questions at these places, ascending, shape (n,)."""
        out: list[list[GVF] | Some] = []
        for part, first, last in zip(self.parts, self.first, self.first[1:], strict=False):
            own = places[np.searchsorted(places, first) : np.searchsorted(places, last)] - first
            if own.size and isinstance(part, Family):
                is_range = own[-1] - own[0] + 1 == own.size
                out.append(Some(part, range(int(own[0]), int(own[-1]) + 1) if is_range else own))
            elif own.size and isinstance(part, tuple):
                out.append([part[i] for i in own.tolist()])
        return out

    def place(self, name: str) -> int:
        """Return the place of the question with this name.

        Raises:
            ValueError: If there is none.
        """
        if name in self._place:
            return self._place[name]
        for part, first in zip(self.parts, self.first, strict=False):
            number = part.number(name) if isinstance(part, Family) else None
            if number is not None:
                return int(first) + number
        raise ValueError(f"there is no demon {name!r} in this Horde")


class Names(Sequence[str]):
    """The names of questions, each made when it is asked for."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def __len__(self) -> int:
        return len(self._questions)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        """Return a name, or some."""
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        place = range(len(self))[i]
        k = int(np.searchsorted(self._questions.first, place, side="right")) - 1
        part, number = self._questions.parts[k], place - int(self._questions.first[k])
        return part.name(number) if isinstance(part, Family) else part[number].name

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the place of a name, which must lie in start..stop - 1."""
        place = self._questions.place(value)
        if not start <= place < (len(self) if stop is None else stop):
            raise ValueError(f"{value!r} is not among the names {start}..{stop}")
        return place


def described(parts: Sequence[list[GVF] | Some]) -> bytes:
    """Return what describes a shard's questions, as it is sent.

    Raises:
        ClusterError: If a function of a question cannot be sent.
    """
    try:
        return cloudpickle.dumps(parts)  # type: ignore[no-any-return]
    except Exception as error:
        raise ClusterError(_cannot_be_sent(parts, error)) from None


def _cannot_be_sent(parts: Sequence[list[GVF] | Some], error: Exception) -> str:
    """Return which question cannot be sent."""
    for part in parts:
        for question in part if isinstance(part, list) else []:
            try:
                cloudpickle.dumps(question)
            except Exception as why:
                return (
                    f"the question {question.name!r} holds a function that cannot be sent to another process ({why}): "
                    "write it in a module, without open files, locks or the like"
                )
    return f"the questions cannot be sent to another process: {error}"
