"""Features by name, as `horde learn --features` takes them: each kind parses its text and adds its tilings.

A further kind is a class in `KINDS`. Importing this module needs no compiler: settings are refused
before it starts.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from horde_agent.refusals import BadInput
from horde_agent.toml import read_toml

if TYPE_CHECKING:
    from horde_agent.interface import Interface


@dataclass(frozen=True)
class Features:
    """Features of a run: the tilings of the robot's layout alone, to which other kinds add.

    Attributes:
        WRITE: How they are written.
        HELP: What they are, for --help.
    """

    WRITE: ClassVar[str] = "fixed"
    HELP: ClassVar[str] = "those of its layout alone, `fixed`"

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
class Chosen(Features):
    """The tilings of a layout that was chosen by the errors of predictions; of the layout without such a one."""

    WRITE = "chosen"
    HELP = "Tilings of the robot's chosen layout, `chosen`, if it has one (the Critterbot has)"

    def added_to(self, interface: Interface, seed: int) -> Interface:  # noqa: ARG002
        """Return the interface with the chosen layout."""
        return interface.with_chosen_layout()


@dataclass(frozen=True)
class Pairs(Features):
    """Further tilings over n random pairs of channels.

    Attributes:
        n: Number of tilings.
        seed: Seed that draws them; None for the run's.
    """

    WRITE = "pairs:N with a number of tilings from 1 on"
    HELP = "with `pairs:N` those of `fixed` and N over random pairs of channels (docs/questions.md)"

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


@dataclass(frozen=True)
class Tilings(Features):
    """Further tilings of a file, such as the pairs that `horde features` chooses.

    The settings of a run have the tilings themselves, so that it depends on no file.

    Attributes:
        tables: Its `[[tiling]]` tables.
    """

    WRITE = "FILE.toml with [[tiling]] tables"
    HELP = "with FILE.toml those of `fixed` and of a file, such as `horde features` prints"

    tables: Sequence[dict[str, Any]]

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the tilings of FILE.toml, or of `tilings:` and tables in JSON; raise BadInput at a bad file."""
        if text.startswith(_IN_SETTINGS):
            return cls(_listed_tables(text))
        if text.endswith(".toml"):
            return cls(tables_of(Path(text), "--features"))
        return None

    def resolved(self, seed: int) -> str:  # noqa: ARG002
        """Return the tables as text."""
        return _IN_SETTINGS + json.dumps(self.tables, ensure_ascii=False)

    def added_to(self, interface: Interface, seed: int) -> Interface:  # noqa: ARG002
        """Return the interface with the tilings."""
        return interface.with_tilings(self.tables)

    def sentence(self, interface: Interface) -> str:  # noqa: ARG002
        """Return which tilings were added."""
        names = ", ".join(
            " and ".join(table.get("channels", [table.get("group", "")])) for table in self.tables
        )
        return f"{len(self.tables):,} kinds of tilings were added from a file: over {names}."


@dataclass(frozen=True)
class Unknown(Features):
    """A tile more in each tiling of the chosen layout, for states in which a reading is missing."""

    WRITE = "unknown"
    HELP = "with `unknown` those of `chosen` and a tile more in each, for missing readings"

    def added_to(self, interface: Interface, seed: int) -> Interface:  # noqa: ARG002
        """Return the interface with these tiles."""
        return interface.with_chosen_layout().with_unknown()

    def sentence(self, interface: Interface) -> str:  # noqa: ARG002
        """Return what the tiles are for."""
        return "Each tiling has a tile more, which is active while one of its readings is missing."


_IN_SETTINGS = "tilings:"


def tables_of(path: Path, flag: str) -> list[dict[str, Any]]:
    """Return the `[[tiling]]` tables of an option's file; raise BadInput if it cannot be read, or has others."""
    try:
        content = read_toml(path)
    except OSError as error:
        raise BadInput(f"{flag} {path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise BadInput(f"{flag} {path} is not valid TOML: {error}") from None
    return _checked(content, f"{flag} {path}")


def _listed_tables(text: str) -> list[dict[str, Any]]:
    """Return the tables of a setting that `Tilings.resolved` wrote; raise BadInput at another."""
    where = f"features = {_IN_SETTINGS}..."
    try:
        tables = json.loads(text.removeprefix(_IN_SETTINGS))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not a list of tables in JSON: {error}") from None
    return _checked({"tiling": tables}, where)


def _checked(content: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the tables of a file's content, all about tilings; raise BadInput at anything else."""
    unknown = sorted(set(content) - {"tiling"})
    if unknown:
        raise BadInput(f"{where} has {unknown[0]!r}; it may hold [[tiling]] tables alone")
    tables = content.get("tiling")
    is_list = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    if not is_list or not tables:
        raise BadInput(f"{where} has no [[tiling]] tables; `horde features RUN` prints some")
    return list(tables)


KINDS = (Chosen, Features, Pairs, Tilings, Unknown)
METAVAR = "|".join(kind.WRITE.split()[0] for kind in KINDS)
HELP = f"{', or '.join(kind.HELP for kind in KINDS)}."


def features_of(text: str | None) -> Features:
    """Return the features of a setting, `Chosen` if it is not set; raise BadInput at another text."""
    for kind in KINDS:
        features = kind.parse(text or Chosen.WRITE)
        if features is not None:
            return features
    raise BadInput(f"--features {text!r}: write {', or '.join(kind.WRITE for kind in KINDS)}")


def shown(text: str | None) -> str:
    """Return the text of features for a sentence, shortened: the tables of a file make it thousands of letters long."""
    return textwrap.shorten(text or Chosen.WRITE, width=60, placeholder=" ...")
