"""Policies that run code: a function in a file of Python, and a model of stable-baselines3, whose file is pickled.

What can be known of such a file without running it is checked first: whether it is there, its form,
its size, and what a model observes and does.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import sysconfig
import traceback
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.refusals import BadInput, imported, one_line

RAISED = (Exception, SystemExit)
"""What code of a user can raise, and is answered by a sentence; SystemExit(0) would end the command as a success."""
LARGEST_MODEL = 2**29
"""Largest size of a model's unpacked file, in bytes."""
_FACTS = "data"  # the member of a model's file that describes it, in JSON
_NEEDS = "MODEL.zip needs stable-baselines3: pip install -e '.[sb3]'"
_LIBRARIES = tuple(
    str(Path(folder).resolve())
    for folder in (
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["purelib"],
        sysconfig.get_paths()["platlib"],
        Path(__file__).parents[1],
    )
)


class Function(NamedTuple):
    """A function in a file of Python."""

    file: Path
    name: str

    def check(self) -> None:
        """Raise BadInput if there is no such file, or it is no Python; nothing in it is run."""
        where = f"--policy {self.file}:{self.name}"
        if not self.file.is_file():
            raise BadInput(f"{where}: the file {self.file} does not exist")
        try:
            ast.parse(self.file.read_bytes(), str(self.file))
        except SyntaxError as error:
            raise BadInput(
                f"{where}: {self.file}, line {error.lineno}, is no Python: {error.msg}"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{where}: {self.file} cannot be read: {error}") from None

    def load(self) -> Any:
        """Run the file and return the function; raise BadInput if the file raises, or has no such name."""
        where = f"--policy {self.file}:{self.name}"
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        if spec is None or spec.loader is None:
            raise BadInput(f"{where}: {self.file} is no file of Python")
        module = importlib.util.module_from_spec(spec)
        folder = str(self.file.resolve().parent)
        sys.path.insert(0, folder)
        try:
            spec.loader.exec_module(module)
        except RAISED as error:
            raise BadInput(f"{where}: {self.file} cannot be run: {reason_of(error)}") from None
        finally:
            sys.path.remove(folder)
        if not hasattr(module, self.name):
            names = [key for key, value in vars(module).items() if callable(value)]
            raise BadInput(
                f"{where}: {self.file} has no {self.name!r}; there are {', '.join(names) or 'none'}"
            )
        return getattr(module, self.name)


class Model(NamedTuple):
    """A file in which stable-baselines3 saved a controller."""

    file: Path

    def check(self) -> None:
        """Raise BadInput if it is no such file, or too large; nothing in it is run."""
        self._facts()

    def check_spaces(self, channels: tuple[str, ...], n_actions: int) -> None:
        """Raise BadInput if the model is known to observe or do something else than the data; nothing is run."""
        facts = self._facts()
        observed = _shape(facts.get("observation_space"))
        if observed is not None and observed != [len(channels)]:
            raise BadInput(
                f"the model {self.file} observes numbers of shape {observed}, but the data have {len(channels)} "
                f"channels: {', '.join(channels)}"
            )
        n_done = _n_discrete(facts.get("action_space"))
        if n_done is not None and n_done != n_actions:
            raise BadInput(
                f"the model {self.file} has {n_done} actions, but the data have {n_actions}"
            )

    def load(self) -> Any:
        """Return the controller, of the algorithm that the file shows; this runs the code that is pickled in it."""
        facts = self._facts()
        sb3 = imported("stable_baselines3", _NEEDS)
        algorithm = sb3.A2C
        if "exploration_rate" in facts:
            algorithm = sb3.DQN
        elif "clip_range" in facts:
            algorithm = sb3.PPO
        try:
            return algorithm.load(self.file, device="cpu")
        except RAISED as error:
            raise self._is_none(reason_of(error)) from None

    def _facts(self) -> dict[str, Any]:
        """Return what the file says of the model."""
        if not self.file.is_file():
            raise BadInput(f"--policy {self.file}: the file does not exist")
        try:
            with zipfile.ZipFile(self.file) as archive:
                n_bytes = sum(member.file_size for member in archive.infolist())
                if n_bytes > LARGEST_MODEL:
                    raise BadInput(
                        f"--policy {self.file} has {n_bytes / 2**20:,.0f} MiB unpacked, at most "
                        f"{LARGEST_MODEL / 2**20:,.0f} are read"
                    )
                facts = json.loads(archive.read(_FACTS))
        except KeyError:
            raise self._is_none(f"it has no member {_FACTS!r}") from None
        except (OSError, RuntimeError, ValueError, RecursionError, zipfile.BadZipFile) as error:
            if isinstance(error, BadInput):
                raise
            raise self._is_none(one_line(error)) from None
        if not isinstance(facts, dict):
            raise self._is_none(f"its member {_FACTS!r} is no JSON object")
        return facts

    def _is_none(self, reason: str) -> BadInput:
        return BadInput(
            f"--policy {self.file} is no PPO, A2C or DQN of stable-baselines3: {reason}"
        )


def _shape(space: Any) -> list[int] | None:
    """Return the shape of a Box in a model's file, None if it is unknown."""
    if isinstance(space, dict) and "Box" in str(space.get(":type:")):
        shape = space.get("_shape")
        if isinstance(shape, list):
            return shape
    return None


def _n_discrete(space: Any) -> int | None:
    """Return the number of actions of a Discrete space in a model's file, None if it is unknown."""
    if isinstance(space, dict) and ".Discrete'" in str(space.get(":type:")):
        text = str(space.get("n"))
        if text.isdecimal():
            return int(text)
    return None


def reason_of(error: BaseException) -> str:
    """Return what the code of a user raised, and where: its file and line, below which libraries may have raised it.

    Examples:
        >>> reason_of(ValueError("no such action"))
        'ValueError: no such action'
    """
    reason = type(error).__name__
    if str(error).strip():
        reason = f"{reason}: {one_line(error)}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_library = str(Path(frame.filename).resolve()).startswith(_LIBRARIES)
        if not is_library and not frame.filename.startswith("<"):
            return f"{reason} ({frame.filename}, line {frame.lineno})"
    return reason
