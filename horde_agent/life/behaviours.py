"""Behaviours by name, as `horde learn --behaviour` takes them: each kind checks its settings and makes its policies.

A further kind is a class in `KINDS`, whose policy has a module of its own. Importing this module
needs no compiler: settings are refused before it starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from horde_agent.refusals import BadInput, Rule

if TYPE_CHECKING:
    from horde_agent.gvf import GVF
    from horde_agent.learner import Learner
    from horde_agent.policies import BehaviourPolicy


class Exploration(NamedTuple):
    """How behaviours explore.

    Attributes:
        epsilon: Probability of a random action, or of the random behaviour.
        repeat: Probability that the random behaviour repeats its last action.
        lost: Actions that the body has lost, which only the random behaviour can leave out.
    """

    epsilon: float
    repeat: float
    lost: tuple[int, ...] = ()

    def refuse_lost(self, behaviour: str) -> None:
        """Raise BadInput if the body has lost an action, of a behaviour that may choose each."""
        if self.lost:
            raise BadInput(
                f"--behaviour {behaviour} chooses among all actions, of which {len(self.lost)} are lost (--actions): "
                "only the random behaviour can leave them out; start a new run"
            )


class NamedBehaviour(ABC):
    """A behaviour of a run.

    Attributes:
        WRITE: How it is written.
        HELP: What it is, for --help.
        uses_epsilon: Whether it reads the setting `epsilon`.
        uses_repeat: Whether it reads the setting `repeat`.
        text: As written.
    """

    WRITE: ClassVar[str]
    HELP: ClassVar[str]
    uses_epsilon: ClassVar[bool] = True
    uses_repeat: ClassVar[bool] = True
    text: str

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self | None:
        """Return the behaviour that a text names, None if it names no such one."""

    @abstractmethod
    def policies(
        self, horde: Learner, n_actions: int, n_robots: int, exploration: Exploration
    ) -> Sequence[BehaviourPolicy]:
        """Return the policies of robots that share a Horde; raise BadInput if its questions do not allow them."""

    def rules(self, *, is_paper: bool, questions: str) -> Iterator[Rule]:  # noqa: ARG002
        """Yield the rules of the settings; `questions` is the setting, with its default."""
        return iter(())

    def follows(self, question: str) -> bool:  # noqa: ARG002
        """Return whether it follows what the question of this name finds, which must then stay."""
        return False

    def check_questions(self, questions: Sequence[GVF]) -> None:  # noqa: B027  most need none
        """Raise ValueError if it cannot go on with these questions."""

    def details(self, policies: Sequence[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return facts for details.json from the policies of the robots at the end of a run."""
        return {}


@dataclass(frozen=True)
class RandomBehaviour(NamedBehaviour):
    """The paper's: random actions that repeat."""

    WRITE = "random"
    HELP = "`random`"
    uses_epsilon = False

    text: str = WRITE

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return it if the text is "random"."""
        if text == cls.WRITE:
            return cls()
        return None

    def policies(
        self,
        horde: Learner,  # noqa: ARG002
        n_actions: int,
        n_robots: int,
        exploration: Exploration,
    ) -> Sequence[BehaviourPolicy]:
        """Return a random policy for each robot."""
        from horde_agent.policies import StickyRandom

        return [
            StickyRandom(n_actions, exploration.repeat, exploration.lost) for _ in range(n_robots)
        ]


@dataclass(frozen=True)
class CuriousKind(NamedBehaviour):
    """The options and other policies of the questions by turns: `life.curious`."""

    WRITE = "curious"
    HELP = "`curious`, the options and the other target policies of the questions by turns"

    text: str = WRITE

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return it if the text is "curious"."""
        if text == cls.WRITE:
            return cls()
        return None

    def rules(self, *, is_paper: bool, questions: str) -> Iterator[Rule]:
        """Yield the rules of what it follows."""
        yield (
            is_paper,
            f"--paper has the behaviour random, and --behaviour {self.text} is another: omit one of them",
        )
        yield (
            questions == "nexting",
            f"--behaviour {self.text} follows the target policies of the questions, and those of "
            "nexting are all about the behaviour itself: choose other --questions",
        )

    def policies(
        self, horde: Learner, n_actions: int, n_robots: int, exploration: Exploration
    ) -> Sequence[BehaviourPolicy]:
        """Return a policy for each robot."""
        from horde_agent.life.curious import CuriousBehaviour

        exploration.refuse_lost(self.text)
        try:
            of_robots = [
                CuriousBehaviour(horde, n_actions, exploration.epsilon, exploration.repeat)
                for _ in range(n_robots)
            ]
        except ValueError as error:
            raise BadInput(f"--behaviour {self.text}: {error}") from None
        return of_robots

    def check_questions(self, questions: Sequence[GVF]) -> None:
        """Raise ValueError if questions offer no option, or too many."""
        from horde_agent.life.curious import check_options

        check_options(questions)

    def details(self, policies: Sequence[Any]) -> dict[str, Any]:
        """Return what was followed, and how it would choose at the last step."""
        from horde_agent.life.curious import shares_of

        return {"options": shares_of(policies)}


@dataclass(frozen=True)
class GreedyBehaviour(NamedBehaviour):
    """The policy that a control question finds.

    Attributes:
        question: Its name.
    """

    WRITE = "greedy:NAME with the name of a question"
    HELP = "`greedy:NAME`, the policy that the control question NAME finds"
    uses_repeat = False

    text: str
    question: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the question of "greedy:NAME"."""
        name, colon, question = text.partition(":")
        if name != "greedy" or not colon:
            return None
        return cls(text, question)

    def policies(
        self, horde: Learner, n_actions: int, n_robots: int, exploration: Exploration
    ) -> Sequence[BehaviourPolicy]:
        """Return an epsilon-greedy policy for each robot."""
        from horde_agent.policies import EpsilonGreedy, Follow

        exploration.refuse_lost(self.text)
        control_names = [question.name for question in horde.questions if question.finds_policy]
        if self.question not in control_names:
            raise BadInput(
                f"--behaviour {self.text}: no question finds this policy; there are "
                f"{', '.join(control_names) or 'none'}: add a [[control]] table to a question file (docs/questions.md)"
            )
        greedy = EpsilonGreedy(
            lambda _, tiles: horde.action_values(self.question, tiles),
            n_actions,
            exploration.epsilon,
        )
        return [Follow(greedy) for _ in range(n_robots)]

    def follows(self, question: str) -> bool:
        """Return whether this is its question."""
        return question == self.question


KINDS: tuple[type[NamedBehaviour], ...] = (RandomBehaviour, CuriousKind, GreedyBehaviour)
METAVAR = "|".join(kind.WRITE.split()[0] for kind in KINDS)


def _one_of(texts: Sequence[str], separator: str) -> str:
    return f"{separator.join(texts[:-1])}{separator}or {texts[-1]}"


HELP = f"What the robot does: {_one_of([kind.HELP for kind in KINDS], '; ')}."


def behaviour_of(text: str) -> NamedBehaviour:
    """Return the behaviour that a setting names; raise BadInput if it names none."""
    for kind in KINDS:
        behaviour = kind.parse(text)
        if behaviour is not None:
            return behaviour
    raise BadInput(f"--behaviour {text}: write {_one_of([kind.WRITE for kind in KINDS], ', ')}")
