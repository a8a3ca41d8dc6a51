"""Features by name, as `horde learn --features` takes them: each kind parses its text and adds its tilings.

A further kind is a class in `KINDS`. Importing this module needs no compiler: settings are refused
before it starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from horde_agent.refusals import BadInput

if TYPE_CHECKING:
    from horde_agent.interface import Interface


@dataclass(frozen=True)
class Features:
    """Features of a run: the tilings of the layout alone, to which other kinds add.

    Attributes:
        WRITE: How they are written.
        HELP: What they are, for --help.
    """

    WRITE: ClassVar[str] = "fixed"
    HELP: ClassVar[str] = "Tilings of the layout alone, `fixed`"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the features that a text names, None if it names no such ones."""
        if text == cls.WRITE:
            return cls()
        return None

    def resolved(self, seed: int) -> str:  # noqa: ARG002
        """Return the text that names the same features in a run with another seed; `seed` is the run's."""
        return self.WRITE

    def added_to(self, interface: Interface, seed: int) -> Interface:  # noqa: ARG002
        """Return an interface with these features; raise ValueError if they do not fit it."""
        return interface

    def sentence(self, interface: Interface) -> str:  # noqa: ARG002
        """Return a sentence for the report about an interface with these features; "" without one."""
        return ""


@dataclass(frozen=True)
class Pairs(Features):
    """Further tilings over n random pairs of channels.

    Attributes:
        n: Number of tilings.
        seed: Seed that draws them; None for the run's.
    """

    WRITE = "pairs:N with a number of tilings from 1 on"
    HELP = "with `pairs:N` N more over random pairs of channels (docs/questions.md)"

    n: int
    seed: int | None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the pairs of pairs:N or pairs:N,seed=K."""
        match = re.fullmatch(r"pairs:([1-9][0-9]{0,30})(?:,seed=([0-9]{1,30}))?", text)
        if match is None:
            return None
        seed = None
        if match[2] is not None:
            seed = int(match[2])
        return cls(n=int(match[1]), seed=seed)

    def resolved(self, seed: int) -> str:
        """Return the text with the seed of the pairs."""
        return f"pairs:{self.n},seed={self._seed_in(seed)}"

    def added_to(self, interface: Interface, seed: int) -> Interface:
        """Return the interface with the pairs."""
        return interface.with_pairs(self.n, self._seed_in(seed))

    def sentence(self, interface: Interface) -> str:
        """Return how many tilings are over which pairs."""
        names = ", ".join(f"{first} and {second}" for first, second in interface.pairs)
        return f"{len(interface.pairs):,} tilings are over random pairs of channels: {names}."

    def _seed_in(self, seed: int) -> int:
        if self.seed is not None:
            return self.seed
        return seed


KINDS = (Features, Pairs)
METAVAR = "|".join(kind.WRITE.split()[0] for kind in KINDS)
HELP = f"{', or '.join(kind.HELP for kind in KINDS)}."


def features_of(text: str | None) -> Features:
    """Return the features of a setting, those of the layout alone if it is not set; raise BadInput at another text."""
    for kind in KINDS:
        features = kind.parse(text or Features.WRITE)
        if features is not None:
            return features
    raise BadInput(f"--features {text!r}: write {', or '.join(kind.WRITE for kind in KINDS)}")
