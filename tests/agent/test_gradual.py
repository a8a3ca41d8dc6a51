"""A state that was copied over many steps is that of the last of them: a Horde goes on from it with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.learning.gradual import Part
from horde_agent.policies import Behaviour, ConstantAction
from horde_agent.saving import State
from tests.agent.test_states import KINDS, N_ACTIONS, N_ACTIVE, N_FEATURES, answers, family, live, many, stream

FAST = [kind for kind in KINDS if kind.startswith("span")]


def copied(
    horde: Horde, steps: list[Any], *, begins: bool, every: int, wait: int = 0, n_bytes: int = 1
) -> tuple[int, State, bool, list[int]]:
    """Live while the state is copied.

    Args:
        horde: It has begun a stream.
        steps: To be lived.
        begins: Whether the first of them begins a stream.
        every: Steps after which some more is copied.
        wait: Steps for which nothing that is copied is written.
        n_bytes: That are copied at a time; a block has 100,000 and more.

    Returns:
        After how many steps that was done, the state, whether a stream begins next, and how many parts came each step.
    """
    copy, state, n_parts = horde.gradual_copy(), {}, []
    assert copy is not None
    copy.make_buffers()
    waiting: list[Part] = []
    for k, step in enumerate(steps):
        if copy.is_complete and k >= wait:
            parts = [*waiting, *copy.finish()]
            state |= {f"engine/{part.name}": part.whole().copy() for part in parts}
            return k, state | horde.state(has_engine=False), begins, n_parts
        came = copy.advance(n_bytes) if k % every == 0 else []
        n_parts.append(len(came))
        waiting += came
        if k >= wait:
            for part in waiting:
                state[f"engine/{part.name}"] = part.whole().copy()
                if part.buffer is not None:
                    part.buffer[:] = np.nan  # whoever has it next overwrites it
                    copy.give_back(part.buffer)
            waiting = []
        live(horde, [step], begins=begins)
        begins = not begins and step[-1]
    raise AssertionError("the state was never complete")


def live_all(horde: Horde, steps: list[Any], *, begins: bool = True) -> None:
    for step in steps:
        live(horde, [step], begins=begins)
        begins = not begins and step[-1]


def goes_on_alike(new: Callable[[], Horde], steps: list[Any], first: int, every: int, wait: int = 0) -> int:
    """Compare who goes on from a copy begun at step `first` with who never stopped; return the steps that it took."""
    whole, again, never = new(), new(), new()
    live_all(whole, steps[:first])
    begins = bool(steps[first - 1][-1])
    n, state, begins, _ = copied(whole, steps[first:], begins=begins, every=every, wait=wait)
    live(again, stream(90)[::-1], begins=True)  # what it was before is forgotten
    again.restore(state)
    assert again.n_waiting == whole.n_waiting
    for horde in (whole, again):
        live_all(horde, steps[first + n :], begins=begins)
    live_all(never, steps)
    assert answers(whole) == answers(never), "to copy changes nothing"
    assert answers(again) == answers(never)
    return n


@pytest.mark.parametrize("kind", FAST)
def test_a_state_that_was_copied_over_many_steps_is_that_of_the_last(kind: str) -> None:
    """Blocks are copied at steps of their own, over several flushes; streams end and begin meanwhile."""
    questions, config, mode = KINDS[kind]
    is_plain = config.trace_rule == "plain"
    steps = stream(300 if is_plain else 900)

    def new() -> Horde:
        return Horde(questions, n_features=N_FEATURES, n_active=N_ACTIVE, config=config, mode=mode)

    for first in (1, 40) if is_plain else (1, 331):
        assert goes_on_alike(new, steps, first, every=1 if is_plain else 23) > (3 if is_plain else 40)


def of_one_policy(mode: Mode) -> Horde:
    """Return a Horde whose demons are flushed together, in several blocks: with no trace, and with the longest."""
    policy = ConstantAction(0, N_ACTIONS)
    asked = [GVF(f"{g}/{i}", policy, Channel(i % 4), g) for g in (0.0, 0.5, 0.97) for i in range(150)]
    asked += [GVF(f"on/{i}", Behaviour(), Channel(i % 4), 0.9) for i in range(200)]
    return Horde(asked, n_features=N_FEATURES, n_active=N_ACTIVE, mode=mode)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_blocks_that_are_flushed_together_may_be_copied_apart(mode: Mode) -> None:
    """A group keeps as long a tail as any of its blocks needs: one that is not put in yet does not know how long."""
    steps = [(0 if k % 3 else 1, 0.9, *step[2:4], False) for k, step in enumerate(stream(700))]
    for first, wait in ((150, 0), (303, 90)):
        n = goes_on_alike(lambda: of_one_policy(mode), steps, first, every=9, wait=wait)
        assert n > max(130, wait), "several flushes"


def test_what_was_copied_under_some_threads_goes_on_under_another_number() -> None:
    """Of so many demons the work is shared out; what the other lanes hold while a block waits is no matter."""
    steps = [(*step[:4], False) for step in stream(260)]
    whole, again = many(), many()
    live_all(whole, steps[:100])
    n, state, begins, _ = copied(whole, steps[100:], begins=False, every=2)
    live_all(whole, steps[100 + n :], begins=begins)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        again.restore(state)
        live_all(again, steps[100 + n :], begins=begins)
    finally:
        numba.set_num_threads(before)
    assert n > 20
    assert answers(again) == answers(whole)


def test_a_copy_waits_where_nothing_is_written_and_needs_three_blocks_of_memory() -> None:
    horde, steps = of_one_policy("eager"), [(*step[:4], False) for step in stream(500)]
    live_all(horde, steps[:100])
    *_, n_parts = copied(horde, steps[100:], begins=False, every=1, wait=300, n_bytes=1 << 30)
    first, *waited = n_parts[:300]
    assert first > 6, "what all share, and two parts of each of three blocks"
    assert not any(waited)


def test_what_no_journal_tells_of_ends_a_copy() -> None:
    horde = of_one_policy("eager")
    live_all(horde, [(*step[:4], False) for step in stream(100)])
    for change in (horde.reset_weights, lambda: horde.remove(["0.0/0"])):
        copy = horde.gradual_copy()
        assert copy is not None
        copy.make_buffers()
        assert copy.advance(1000)
        assert not copy.is_void
        change()
        assert copy.is_void


def test_the_plain_engine_and_one_that_has_seen_nothing_are_copied_at_once() -> None:
    plain = Horde(family(), n_features=N_FEATURES, n_active=N_ACTIVE, config=LearnerConfig(engine="plain"))
    fast = of_one_policy("eager")
    for horde in (plain, fast):
        assert horde.gradual_copy() is None
        live_all(horde, stream(30))
    assert plain.gradual_copy() is None
    assert fast.gradual_copy() is not None
    assert (plain.n_bytes_learned, fast.n_bytes_learned > 1000) == (0, True)


def test_demons_that_are_set_aside_while_they_are_copied_stay_so() -> None:
    def broken(observation: Any, _tiles: Any) -> float:
        return 1e300 if observation[0] > 0.9 else np.nan if observation[1] > 0.9 else 1.0

    asked = [*family(20), *(GVF(f"lost {g}", ConstantAction(0, N_ACTIONS), broken, g) for g in (0.0, 0.9))]
    steps = [(*step[:4], False) for step in stream(400)]
    large = steps[120][2].copy()
    steps[117] = (*steps[117][:2], large * 50.0, *steps[117][3:])  # bounds rise meanwhile

    def new() -> Horde:
        return Horde(asked, n_features=N_FEATURES, n_active=N_ACTIVE)

    one = new()
    live_all(one, steps[:100])
    before = list(one.diverged)
    live_all(one, steps[100:], begins=False)
    assert len(one.diverged) >= len(before)
    goes_on_alike(new, steps, 1, every=7)
    goes_on_alike(new, steps, 100, every=7)
