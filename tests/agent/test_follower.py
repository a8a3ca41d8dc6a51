"""A follower learns the same as from the record, and the life never waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import Follower
from horde_agent.life.student import Student, relearn
from horde_agent.policies import ConstantAction, StickyRandom
from horde_agent.record import Recorder, read
from tests.agent.doubles import ToyBody

EXCURSIONS = ExcursionConfig(0.05, 10)


def horde(names: str, face: Interface, kind: type[Horde] = Horde, **options: Any) -> Any:
    asked = [
        GVF(f"{action}/{name}", ConstantAction(action, 3), Channel(name), 0.8)
        for action in range(3)
        for name in names.split()
    ]
    coder = face.coder
    return kind(asked, n_features=coder.n_features, n_active=coder.n_active, channels=face.names, **options)


class Slow(Horde):
    """A Horde that waits in `begin` until `may_learn` is set."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.may_learn, self.has_begun = threading.Event(), threading.Event()

    def begin(self, *args: Any) -> np.ndarray:
        self.has_begun.set()
        assert self.may_learn.wait(60.0)
        return super().begin(*args)


def lived(follower: Follower, steps: int, recorder: Recorder | None = None, faults: Any = None) -> Life:
    """Return a finished life with another Horde."""
    env = ToyBody(faults)
    face = Interface.of(env)
    options: dict[str, Any] = {"excursions": EXCURSIONS, "recorder": recorder, "observers": [follower]}
    rng = np.random.default_rng(1)
    with Life(env, horde("saw", face), StickyRandom(3, 0.5), rng, interface=face, **options) as life:
        life.run(steps)
    return life


def test_it_learns_the_same_as_from_the_record(tmp_path: Path) -> None:
    """With gaps, broken steps, drives and excursions: weights, scores and counts are the same to the bit."""
    face = Interface.of(ToyBody())
    far = Student(horde("age saw last", face, mode="deferred"), face, EXCURSIONS)
    faults = {90: {"gap": 1}, 200: {"applied": 0}, 333: {"stale": 1}}
    follower = Follower(far)
    life = lived(follower, 700, Recorder(3, tmp_path / "life.rec"), faults)
    follower.close()
    again = relearn(
        read(tmp_path / "life.rec"), horde("age saw last", face, mode="deferred"), face, excursions=EXCURSIONS
    )
    assert far.horde.weights_sha256() == again.horde.weights_sha256()
    np.testing.assert_array_equal(far.errors.nmsre(), again.errors.nmsre())
    assert (far.learning_steps, far.n_updated) == (again.learning_steps, again.n_updated)
    assert far.errors.n_excursions == life.student.errors.n_excursions > 5
    assert follower.n_left_out == 0


def test_rows_that_exceed_the_queue_are_counted_and_leave_a_gap() -> None:
    """Fifty rows wait while the life runs and nothing is learned; the stream then continues after a gap."""
    face = Interface.of(ToyBody())
    slow = horde("saw", face, Slow)
    follower = Follower(Student(slow, face, ExcursionConfig(0.0)), most_waiting=50)
    begins: list[float] = []
    begin, learn, learned = slow.begin, slow.learn, []
    slow.begin = lambda observation, tiles: (begins.append(float(observation[0])), begin(observation, tiles))[1]  # type: ignore[method-assign]
    slow.learn = lambda *args, **kw: (learned.append(float(args[2][0])), learn(*args, **kw))[1]  # type: ignore[method-assign]
    env = ToyBody()
    options: dict[str, Any] = {"interface": face, "excursions": ExcursionConfig(0.0), "observers": [follower]}
    with Life(env, horde("saw", face), StickyRandom(3, 0.5), np.random.default_rng(0), **options) as life:
        assert life.run(1) is None
        assert slow.has_begun.wait(60.0)  # the first row was taken from the queue
        life.run(80)
        slow.may_learn.set()
        while follower.n_waiting:
            threading.Event().wait(0.001)
        life.run(20)
    follower.close()
    assert follower.n_left_out == 30
    ages = [round(10_000 * age) for age in (*begins, *learned)]
    assert ages == [0, 81, *range(1, 51), *range(82, 102)]


def test_an_error_of_the_student_ends_the_follower_only(caplog: pytest.LogCaptureFixture) -> None:
    face = Interface.of(ToyBody())
    broken = horde("saw", face)
    broken.learn = lambda *args, **kw: 1 / 0  # type: ignore[method-assign]
    follower = Follower(Student(broken, face, EXCURSIONS))
    life = lived(follower, 100)
    assert life.steps == 100
    with pytest.raises(ZeroDivisionError):
        follower.close()
    assert "follower stopped (division by zero)" in caplog.text
    assert follower.n_left_out > 50
