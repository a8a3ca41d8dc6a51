"""A Horde: many general value functions learned off-policy and in parallel from one stream of experience.

Public names are loaded when they are first used, and Gymnasium is not imported, so that the command
`horde` answers at once. The ids of `problems` are registered all the same.
"""

from __future__ import annotations

from horde_agent import processes  # noqa: F401  first: it handles Ctrl-C during the other imports

# isort: split
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from horde_agent import problems, questions
    from horde_agent.gvf import GVF, Channel, Feature, Prediction, Reward, TDError
    from horde_agent.horde import Horde
    from horde_agent.interface import Interface, TabularObservation
    from horde_agent.judging.command import evaluate
    from horde_agent.learning.rules import LearnerConfig
    from horde_agent.life.learner import relearn
    from horde_agent.life.life import Life
    from horde_agent.policies import (
        Behaviour,
        BehaviourPolicy,
        ConstantAction,
        EpsilonGreedy,
        Follow,
        Gaussian,
        Gibbs,
        Greedy,
        Policy,
        PolicyFunction,
        StickyRandom,
        Uniform,
    )
    from horde_agent.runs.sources.learn_from import interface_of, learn_from
    from horde_agent.runs.sources.stream_run import StreamRun
    from horde_agent.tiles import TileCoder

__all__ = [
    "GVF",
    "Behaviour",
    "BehaviourPolicy",
    "Channel",
    "ConstantAction",
    "EpsilonGreedy",
    "Feature",
    "Follow",
    "Gaussian",
    "Gibbs",
    "Greedy",
    "Horde",
    "Interface",
    "LearnerConfig",
    "Life",
    "Policy",
    "PolicyFunction",
    "Prediction",
    "Reward",
    "StickyRandom",
    "StreamRun",
    "TDError",
    "TabularObservation",
    "TileCoder",
    "Uniform",
    "evaluate",
    "interface_of",
    "learn_from",
    "problems",
    "questions",
    "relearn",
]

_HOME = {
    "gvf": ("GVF", "Channel", "Feature", "Prediction", "Reward", "TDError"),
    "horde": ("Horde",),
    "interface": ("Interface", "TabularObservation"),
    "judging.command": ("evaluate",),
    "learning.rules": ("LearnerConfig",),
    "life.life": ("Life",),
    "life.learner": ("relearn",),
    "policies": (
        "Behaviour",
        "BehaviourPolicy",
        "ConstantAction",
        "EpsilonGreedy",
        "Follow",
        "Gaussian",
        "Gibbs",
        "Greedy",
        "Policy",
        "PolicyFunction",
        "StickyRandom",
        "Uniform",
    ),
    "runs.sources.learn_from": ("interface_of", "learn_from"),
    "runs.sources.stream_run": ("StreamRun",),
    "tiles": ("TileCoder",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("problems", "questions"):
        return import_module(f"horde_agent.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"horde_agent.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _AfterGymnasium(MetaPathFinder):
    """Registers the small problems once, right after Gymnasium is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return Gymnasium's own specification with a loader that then registers the problems; None for others."""
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                import_module("horde_agent.problems")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("horde_agent.problems")
else:
    sys.meta_path.insert(0, _AfterGymnasium())
