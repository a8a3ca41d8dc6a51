"""The contract of a robot body and of its environment, as tests for any backend.

    class TestMyRobot(BackendContract):
        def make_backend(self) -> Backend:
            return MyRobot(port="loop://")

pytest runs every `test_...` method against a new body; nothing here imports pytest. Set
`deterministic = False` for a body that its seed does not reproduce, and `obeys = False` for a
recording, which ignores commands. Wrap a body that waits for its own deadlines in `PacedBody(body,
clock)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from gymnasium.error import ResetNeeded

from horde_env.backend import FRAME_KEYS, MANOEUVRE_STEPS_KEY, Backend, Floats, Frame
from horde_env.clock import Clock, ManualClock, RealTimeClock
from horde_env.env import RobotEnv
from horde_env.robot import RobotSpec, default_robot

INFO_KEYS = {key.name for key in (*FRAME_KEYS, MANOEUVRE_STEPS_KEY)}
"""The keys of `info` that every environment has."""
STAY = {"manoeuvre": "stay"}  # a real robot drives in any other reset


class BackendContract(ABC):
    """The contract of a body and of the environment over it.

    Attributes:
        deterministic: The same seed gives the same frames.
        obeys: False for a body that ignores commands (a recording).
        n_steps: Number of steps in a test; a recording must be longer.
    """

    deterministic = True
    obeys = True
    n_steps = 12

    @abstractmethod
    def make_backend(self) -> Backend:
        """Return a fresh body."""

    def make_spec(self) -> RobotSpec:
        """Return the body's robot."""
        return default_robot()

    @contextmanager
    def running(self, seed: int = 0) -> Iterator[tuple[Backend, Frame]]:
        """A body after its first reset; closed in any case."""
        backend = self.make_backend()
        try:
            yield backend, backend.reset(np.random.default_rng(seed))
        finally:
            backend.close()

    @contextmanager
    def environment(self) -> Iterator[RobotEnv]:
        """An environment over a fresh body; closed in any case."""
        env = RobotEnv(self.make_backend(), spec=self.make_spec())
        try:
            yield env
        finally:
            env.close()

    # ---- the body --------------------------------------------------------------------------------------------

    def test_every_frame_holds_all_channels(self) -> None:
        """Finite float64 of one shape, from the first frame on, with the same extras in each."""
        spec = self.make_spec()
        with self.running() as (backend, first):
            assert backend.period_s == spec.period_s
            for frame in [first, *(backend.exchange(r) for r in self._requests())]:
                assert frame.values.shape == (spec.n_channels,)
                assert frame.values.dtype == np.float64
                assert np.isfinite(frame.values).all()
                assert frame.extras.keys() == first.extras.keys()
                assert all(np.isscalar(value) for value in frame.extras.values())

    def test_time_advances_by_one_period_per_frame(self) -> None:
        """Frames are a period apart on the robot's clock, to half a period."""
        with self.running() as (backend, first):
            times = [first.t, *(backend.exchange(r).t for r in self._requests())]
            assert (np.abs(np.diff(times) / backend.period_s - 1.0) < 0.5).all()

    def test_a_frame_never_changes_afterwards(self) -> None:
        """A learner stores frames, so a body may not reuse their arrays."""
        with self.running() as (backend, first):
            values_before = first.values.copy()
            for request in self._requests():
                backend.exchange(request)
            assert np.array_equal(values_before, first.values)

    def test_the_request_is_left_alone_and_reported(self) -> None:
        """`last_request` is the request of the step that ended with the frame, as a share of the largest."""
        spec = self.make_spec()
        with self.running() as (backend, _):
            for request in self._requests():
                request_before = request.copy()
                frame = backend.exchange(request)
                assert np.array_equal(request, request_before)
                if self.obeys:
                    share = frame.values[spec.group("last_request")]
                    assert np.allclose(share, spec.shares(request_before), atol=0.05)

    def test_the_same_seed_gives_the_same_frames(self) -> None:
        """On two bodies, and on one body reset twice."""
        if not self.deterministic:
            return
        with self.running(seed=5) as (one, first), self.running(seed=5) as (other, same):
            assert np.array_equal(first.values, same.values)
            life = [one.exchange(r) for r in self._requests()]
            for frame, request in zip(life, self._requests(), strict=True):
                twin = other.exchange(request)
                assert np.array_equal(frame.values, twin.values)
                assert (frame.t, dict(frame.extras)) == (twin.t, dict(twin.extras))
            repeated = one.reset(np.random.default_rng(5))
            assert np.array_equal(first.values, repeated.values)
            for frame, request in zip(life, self._requests(), strict=True):
                assert np.array_equal(frame.values, one.exchange(request).values)

    def test_closing_twice_does_nothing_and_reset_opens_again(self) -> None:
        """Also before anything was opened."""
        backend = self.make_backend()
        backend.close()
        backend.reset(np.random.default_rng(0))
        backend.close()
        backend.close()
        backend.reset(np.random.default_rng(0))
        backend.exchange(np.zeros(3))
        backend.close()

    # ---- the environment over it -----------------------------------------------------------------------------

    def test_observations_and_info_keep_their_shape(self) -> None:
        """The same flat numeric keys in every reset and step."""
        with self.environment() as env:
            observation, info = env.reset(seed=0)
            keys = set(info)
            assert keys >= INFO_KEYS
            assert env.observation_space.contains(observation)
            for i in range(self.n_steps):
                observation, reward, terminated, truncated, info = env.step(i % 5)
                assert env.observation_space.contains(observation)
                assert (reward, terminated, truncated) == (0.0, False, False)
                assert set(info) == keys
                assert all(isinstance(value, (int, float)) for value in info.values())
                assert info["manoeuvre_steps"] == 0
            assert set(env.reset(options=STAY)[1]) == keys

    def test_only_a_reset_makes_a_gap(self) -> None:
        """While nothing is lost, every other frame follows from the last one, and its command was applied."""
        with self.environment() as env:
            _, info = env.reset(seed=0, options=STAY)
            assert (info["gap"], info["manoeuvre_steps"]) == (1, 0)
            for i in range(self.n_steps):
                _, _, _, _, info = env.step(i % 5)
                assert (info["gap"], info["applied"], info["stale"]) == (0, 1, 0)

    def test_a_drive_to_the_centre_returns_its_frames(self) -> None:
        """At most 2 s long; its last frame is the observation that the reset returns."""
        with self.environment() as env:
            env.reset(seed=0)
            t = env.step(0)[4]["t"]
            observation, info = env.reset(options={"manoeuvre": "centre"})
            frames = env.manoeuvre_frames
            assert info["gap"] == 1
            assert info["manoeuvre_steps"] == len(frames) <= round(2.0 / env.robot.period_s)
            assert [frame.t for frame in frames] == sorted(frame.t for frame in frames)
            assert info["t"] >= t
            if frames:
                assert np.array_equal(observation, env.robot.scale(frames[-1].values)[0])
            env.reset(seed=1, options=STAY)
            assert env.manoeuvre_frames == []

    def test_a_refused_action_sends_nothing(self) -> None:
        """The next step is one period later, as if there had been no refused action."""
        with self.environment() as env:
            _, info = env.reset(seed=0, options=STAY)
            for action in (5, -1, 0.5, None):
                _assert_raises(ValueError, env.step, action)
            assert 0.0 < env.step(4)[4]["t"] - info["t"] < 1.5 * env.robot.period_s

    def test_a_step_needs_a_reset(self) -> None:
        """Before the first reset and after close."""
        with self.environment() as env:
            _assert_raises(ResetNeeded, env.step, 0)
            env.reset(seed=0)
            env.step(0)
            env.close()
            _assert_raises(ResetNeeded, env.step, 0)

    def test_a_request_leaves_before_the_wait(self) -> None:
        """The clock waits for the end of a period that began with the request: one sleep per step."""
        spec = self.make_spec()
        hand = ManualClock()
        clock = RealTimeClock(spec.period_s, monotonic=hand.monotonic, sleep=hand.sleep)
        env = RobotEnv(self.make_backend(), clock, spec=spec)
        try:
            env.reset(seed=0, options=STAY)
            for _ in range(3):
                env.step(0)
            assert np.isclose(hand.now_s, 3 * spec.period_s)
        finally:
            env.close()

    def _requests(self) -> list[Floats]:
        actions = self.make_spec().requests
        return [actions[i % len(actions)].copy() for i in range(self.n_steps)]


class PacedBody:
    """Wraps a body that waits by its own clock, and begins that clock's periods, for use in a contract test.

    Args:
        body: The body.
        clock: The body's clock.
    """

    def __init__(self, body: Backend, clock: Clock) -> None:
        self.body = body
        self.clock = clock
        self.period_s = body.period_s

    def reset(self, rng: np.random.Generator) -> Frame:
        """Reset the body."""
        return self.body.reset(rng)

    def exchange(self, command: Floats) -> Frame:
        """Begin a period and exchange with the body during it."""
        self.clock.begin()
        return self.body.exchange(command)

    def close(self) -> None:
        """Close the body."""
        self.body.close()


def _assert_raises(kind: type[Exception], function: object, *arguments: object) -> None:
    try:
        function(*arguments)  # type: ignore[operator]
    except kind:
        return
    raise AssertionError(f"{function} accepted {arguments} instead of raising {kind.__name__}")
