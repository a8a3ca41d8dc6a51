"""Compile kernels before a run needs them (`horde warm`), and announce compiling on the terminal."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numba.core import event
from rich.console import Console
from rich.live import Live
from rich.text import Text

from horde_agent import questions
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.kernels.decimals import MOST_BYTES, write_numbers
from horde_agent.learner import Learner
from horde_agent.learning.compiling import (
    COMPILING,
    announced_otherwise,
    is_own_kernel,
    leave_out_announcement,
)
from horde_agent.learning.lstd import compile_kernels
from horde_agent.learning.rarity import FIRST
from horde_agent.learning.rules import (
    PAPER_CONFIG,
    LearnerConfig,
    parse_algorithm,
)
from horde_agent.life.backends import ROBOTS, environment_of
from horde_agent.life.bodies import make_body
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import encoder
from horde_agent.life.life import Life
from horde_agent.policies import Behaviour, Greedy, Policy, StickyRandom, Uniform

_STEPS = 150
_OFTEN = ExcursionConfig(probability=0.1, horizon=5)
_SHARED_WORK = 100_000  # weights read per step, from which on every engine uses its threads


class CompileNotice(event.Listener):
    """Prints one line when the first kernel of this package is compiled; kernels from the cache print nothing.

    On a terminal the line counts kernels and seconds until the context of `installed` ends.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_printed = False
        self._live: Live | None = None
        self._n_compiled = 0
        self._began_s = 0.0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Return a context during which numba reports to this listener, and to no other of this package."""
        try:
            with announced_otherwise(), event.install_listener("numba:compile", self):
                yield
        finally:
            self._end()

    def on_start(self, event: Any) -> None:
        """Print the line once."""
        if self._is_printed or not is_own_kernel(event):
            return
        self._is_printed = True
        leave_out_announcement()
        self._began_s = time.perf_counter()
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._line)
            self._live.start()
        else:
            self._console.print(COMPILING, highlight=False, soft_wrap=True)

    def on_end(self, event: Any) -> None:
        """Count the kernel."""
        self._n_compiled += is_own_kernel(event)

    def _line(self) -> Text:
        elapsed_s = time.perf_counter() - self._began_s
        counts = f"{self._n_compiled} kernels in {elapsed_s:.0f} s"
        return Text(f"compiling once, about a minute: {counts} (in advance: `horde warm`)")

    def _end(self) -> None:
        """Leave what was compiled on the line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def warm_up(horde: Learner, interface: Interface, n_streams: int = 1) -> float:
    """Compile the kernels of a Horde by a small one of the same kind, for `n_streams`; return the duration in s."""
    began = time.perf_counter()
    # A question of each policy, and enough of them for the threads to share the work: both choose
    # the kernels.
    n = -(-_SHARED_WORK // interface.coder.n_active)
    few = [*horde.questions[:: max(horde.n_demons // n, 1)]]
    if len(few) < horde.n_demons:
        few += [*{id(q.target_policy): q for q in horde.questions}.values()][:8]
    few = [
        replace(q, name=f"{i}", cumulant=lambda *_: 0.0, target_policy=_alone(q))
        for i, q in enumerate(few)
    ]
    small = Horde(
        few,
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        # An average after each step
        config=replace(horde.config, average=min(horde.config.average, 1.0)),
        mode="deferred",
    )
    middle = np.full(len(interface.channels), 0.5, dtype=np.float32)
    tiles = encoder(interface)(middle)
    small.begin(middle, tiles)
    small.predict(tiles, middle)  # by the latest weights, as there are no averages yet
    # After the last of these steps, features are classified by their rarity
    for _ in range(FIRST):
        small.learn(0, 1.0, middle, tiles)
    small.predict(tiles, middle)
    if n_streams > 1:
        for stream in (1, 0):
            small.select_stream(stream)
    if horde.config.lstd:
        compile_kernels()
    small.weights_sha256()  # what reads the estimates reads weights too
    return time.perf_counter() - began


def _alone(question: GVF) -> Policy:
    """Return a policy of the same kind that does not depend on another question."""
    policy = question.target_policy
    if isinstance(policy, Greedy):
        if question.finds_policy:
            return Greedy(policy.n_actions)
        return Uniform(policy.n_actions)
    return policy


def warm(env: gymnasium.Env[Any, Any], algorithm: str = PAPER_CONFIG.algorithm) -> float:
    """Compile into numba's cache what `horde learn`, the README, both robots and vector environments need.

    A short run with the default questions, then two learning steps for every other rule and family
    of questions, also by `algorithm`, and for a small Horde; then a step of each simulated robot,
    alone and in a vector environment. The environment stays open. Return the duration in seconds;
    raise ValueError if there is no such rule, or it finds policies.
    """
    began = time.perf_counter()
    interface = Interface.of(env)
    hordes = _hordes(interface, algorithm)
    rng = np.random.default_rng(0)
    behaviour = StickyRandom(len(interface.actions))
    with Life(env, next(hordes), behaviour, rng, interface=interface, excursions=_OFTEN) as life:
        life.run(_STEPS)
    for horde in hordes:
        warm_up(horde, interface)
    _learn_by_hand()
    _write_by_hand()
    for robot in ROBOTS:
        _step_robots(robot)
    return time.perf_counter() - began


def _learn_by_hand() -> None:
    """Learn two steps with a Horde of one question, as in the README."""
    for policy in (Behaviour(), Uniform(2)):
        question = GVF("q", policy, Channel(0), continuation=0.9)
        horde = Horde([question], n_features=2, n_active=1)
        reading = np.zeros(1)
        tiles = np.zeros(1, dtype=np.int64)
        horde.begin(reading, tiles)
        for _ in range(2):
            horde.learn(0, 0.5, reading, tiles)
        horde.work_ahead()
        horde.predict(tiles, reading)


def _write_by_hand() -> None:
    """Write a prediction, as for another program."""
    text = np.zeros(1 + MOST_BYTES, dtype=np.uint8)
    write_numbers(
        values=np.zeros(1),
        places=np.zeros(1, dtype=np.int64),
        labels=np.zeros(1, dtype=np.uint8),
        label_ends=np.ones(1, dtype=np.int64),
        text=text,
        at=0,
    )


def _step_robots(robot: str) -> None:
    """Step a simulated robot on the planar engine, alone and as two of a vector environment."""
    env = make_body("simulator", robot=robot, physics="planar")
    with closing(env):
        env.reset(seed=0)
        env.step(0)
    vector = gymnasium.make_vec(environment_of(robot, "simulator"), num_envs=2)
    with closing(vector):
        vector.reset(seed=0)
        vector.step(np.zeros(2, dtype=np.int64))


def _hordes(interface: Interface, algorithm: str) -> Iterator[Horde]:
    """Yield one Horde of `horde learn` for each set of kernels, the default first.

    Trace rules, w rules and the rarity of features are numbers that all kernels read. "capped" is
    learned by the plain engine.
    """
    coder = interface.coder
    (name, parameters) = parse_algorithm(algorithm)
    families: list[list[GVF]] = [
        questions.excursions(interface),
        questions.nexting(interface),
        questions.policies(interface, np.random.default_rng(0)),
    ]
    default = LearnerConfig()
    capped = LearnerConfig(trace_rule="capped")
    configs = [default, capped]
    if name != PAPER_CONFIG.algorithm or parameters:
        configs.append(LearnerConfig(algorithm=name, parameters=parameters))
    for config, family in itertools.product(configs, families):
        yield Horde(
            family,
            n_features=coder.n_features,
            n_active=coder.n_active,
            config=config,
        )
