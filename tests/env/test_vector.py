"""The vector environment against Gymnasium's own over environments of one robot."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numba
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.random import PCG64DXSM, Generator

from horde_env._jit import DRAWS_IN_KERNEL, addresses_of, draw_noise
from horde_env.robots.critterbot.simulator import batch

PEN = "horde_env:CritterbotPen-v0"
MODES = list(AutoresetMode)


def many(n: int = 3, **arguments: Any) -> VectorEnv:
    return gym.make_vec(
        PEN, num_envs=n, vectorization_mode="vector_entry_point", physics="planar", **arguments
    )


def separate(
    n: int = 3, *, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, **arguments: Any
) -> VectorEnv:
    return SyncVectorEnv(
        [partial(gym.make, PEN, physics="planar", **arguments)] * n, autoreset_mode=autoreset_mode
    )


def assert_same(ours: Any, theirs: Any) -> None:
    """All arrays, dtypes and masks are the same, bit for bit."""
    assert data_equivalence(ours[:-1], theirs[:-1], exact=True)
    assert_same_infos(ours[-1], theirs[-1])


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert sorted(ours) == sorted(theirs)
    for name, value in theirs.items():
        if isinstance(value, dict):
            assert_same_infos(ours[name], value)
        else:
            assert ours[name].dtype == value.dtype, name
            assert data_equivalence(list(ours[name]), list(value), exact=True), name


@pytest.mark.parametrize("mode", MODES)
def test_each_autoreset_mode_gives_the_bits_of_gymnasiums_own_vector_environment(
    mode: AutoresetMode,
) -> None:
    """Sticky random actions, so that the robots meet walls; with a small battery, so that gauges and firmware judge."""
    arguments = {
        "max_episode_steps": 60,
        "task": "light",
        "battery_scale": 0.0001,
        "autoreset_mode": mode,
    }
    ours = many(**arguments)
    theirs = separate(**arguments)
    assert ours.metadata["autoreset_mode"] == mode
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    rng = np.random.default_rng(0)
    actions = np.array([0, 1, 2])
    n_low = 0
    for k in range(150):
        actions = np.where(rng.random(3) < 0.1, rng.integers(5, size=3), actions)
        step = ours.step(actions)
        assert_same(step, theirs.step(actions))
        n_low += int(step[4]["battery_low"].sum())
        over = step[3]
        if mode == AutoresetMode.DISABLED and (over.any() or k == 20):
            # Episodes of different lengths from here on
            if over.any():
                mask = over
            else:
                mask = np.array([False, True, False])
            assert_same(
                ours.reset(options={"reset_mask": mask}), theirs.reset(options={"reset_mask": mask})
            )
    assert n_low > 0


def test_velocities_and_seeds_of_each_robot_give_the_bits_of_single_environments() -> None:
    ours = many(action_type="velocity", task="spin")
    theirs = separate(action_type="velocity", task="spin")
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert_same(ours.reset(seed=[7, 3, 7]), theirs.reset(seed=[7, 3, 7]))
    rng = np.random.default_rng(1)
    for _ in range(30):
        actions = rng.uniform(-1.0, 1.0, (3, 3)).astype(np.float32)
        assert_same(ours.step(actions), theirs.step(actions))
    assert_same(ours.reset(), theirs.reset())  # continues each robot's random numbers


def test_what_a_caller_writes_into_returned_observations_changes_nothing() -> None:
    """Neither a later reward nor, in a reset of some robots, the observations of the others."""
    arguments: dict[str, Any] = {
        "max_episode_steps": 6,
        "task": "light",
        "autoreset_mode": AutoresetMode.DISABLED,
    }
    read = many(**arguments)
    written = many(**arguments)
    for env in (read, written):
        env.reset(seed=5)
    for k in range(5):
        expected = read.step(np.array([0, 2, k % 5]))
        step = written.step(np.array([0, 2, k % 5]))
        assert_same(step, expected)
        step[0][:] = 7.0
    mask = {"reset_mask": np.array([False, True, False])}
    observations, _ = written.reset(options=mask)
    np.testing.assert_array_equal(observations, read.reset(options=mask)[0])
    observations[:] = 7.0
    assert_same(written.step(np.array([0, 1, 2])), read.step(np.array([0, 1, 2])))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_a_copy_of_robots_that_step_together_is_refused(duplicate: Callable[[Any], Any]) -> None:
    """It would step the robots of the original."""
    envs = many(2)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        duplicate(envs)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_create_2s_are_stepped_by_gymnasiums_vector_environment(mode: AutoresetMode) -> None:
    """Made as many Critterbots are, with the same arguments."""
    create = "horde_env:CreatePen-v0"
    env = gym.make_vec(
        create, num_envs=2, max_episode_steps=3, autoreset_mode=mode, physics="planar", task="spin"
    )
    assert isinstance(env, SyncVectorEnv)
    assert env.metadata["autoreset_mode"] == mode
    env.reset(seed=0)
    over = [bool(env.step(np.array([0, 1]))[3].all()) for _ in range(3)]
    assert over == [False, False, True]
    with pytest.raises(ValueError, match="autoreset_mode must be one of"):
        gym.make_vec(create, num_envs=2, autoreset_mode="sometimes")
    with pytest.raises(ValueError, match="num_envs must be a positive integer"):
        gym.make_vec(create, num_envs=0)


def life(n_threads: int = 1) -> np.ndarray:
    env = many(40)
    n_default = numba.get_num_threads()
    numba.set_num_threads(n_threads)
    try:
        return np.array(
            [env.reset(seed=0)[0], *(env.step(np.full(40, k % 5))[0] for k in range(20))]
        )
    finally:
        numba.set_num_threads(n_default)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    np.testing.assert_array_equal(life(1), life(2))


def test_noise_drawn_by_numpy_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    observations = life()
    monkeypatch.setattr(batch, "DRAWS_IN_KERNEL", False)
    np.testing.assert_array_equal(life(), observations)


@pytest.mark.parametrize("draws_in_kernel", sorted({DRAWS_IN_KERNEL, False}))
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_robot_draws_no_noise_in_the_step_in_which_it_is_reset(
    mode: AutoresetMode, draws_in_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next episode continues the numbers of its generator, which is that of an environment of one robot."""
    monkeypatch.setattr(batch, "DRAWS_IN_KERNEL", draws_in_kernel)
    arguments = {"max_episode_steps": 5, "autoreset_mode": mode}
    ours = many(2, **arguments)
    theirs = separate(2, **arguments)
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    for k in range(14):
        actions = np.array([k % 5, 2])
        step = ours.step(actions)
        assert_same(step, theirs.step(actions))
        over = step[3]
        if mode == AutoresetMode.DISABLED and (over.any() or k == 2):
            mask = {"reset_mask": over | np.array([False, k == 2])}
            assert_same(ours.reset(options=mask), theirs.reset(options=mask))


@pytest.mark.skipif(not DRAWS_IN_KERNEL, reason="NumPy draws")
@pytest.mark.parametrize("make_bits", [np.random.PCG64, PCG64DXSM, np.random.SFC64])
def test_a_kernel_draws_what_numpys_generators_draw(make_bits: Any) -> None:
    """The second one of two robots, whose turn does not touch the first one's row."""
    ours = Generator(make_bits(3))
    theirs = Generator(make_bits(3))
    normal = np.zeros((2, 97))
    uniform = np.zeros((2, 2, 10))
    addresses = addresses_of(ours)
    for _ in range(50):  # the ziggurat's tail has a chance of 1 in 3,600 per number
        draw_noise(addresses, normal[1], uniform[1])
        np.testing.assert_array_equal(normal[1], theirs.standard_normal(97))
        np.testing.assert_array_equal(uniform[1], theirs.random((2, 10)))
    assert not normal[0].any()
    assert ours.random() == theirs.random()


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ValueError, "num_envs", {"n": 0}),
        (ValueError, "max_episode_steps", {"max_episode_steps": 0}),
        (ValueError, "max_episode_steps", {"max_episode_steps": 2.5}),
        (ValueError, "autoreset_mode", {"autoreset_mode": "Never"}),
        (ValueError, "battery_scale", {"battery_scale": 0.0}),
        (ValueError, "task", {"task": "lihgt"}),
        (TypeError, "lamp_moves", {"lamp_moves": ()}),
        (TypeError, "render_mode", {"render_mode": "rgb_array"}),
    ],
)
def test_an_invalid_argument_is_named(
    error: type[Exception], match: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        many(**arguments)


@pytest.mark.parametrize(
    ("action_type", "actions"),
    [
        ("discrete", [0, 1, 5]),
        ("discrete", [0, 1]),
        ("discrete", [0.0, 1.0, 2.0]),
        ("discrete", "abc"),
        ("velocity", np.zeros((2, 3))),
        ("velocity", np.full((3, 3), np.nan)),
    ],
)
def test_no_robot_moves_if_one_action_is_invalid(action_type: str, actions: Any) -> None:
    env = many(action_type=action_type)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action"):
        env.step(actions)
    if action_type == "discrete":
        still = np.full(3, 4)
    else:
        still = np.zeros((3, 3))
    assert (env.step(still)[4]["t"] == 0.1).all()


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("seed", {"seed": [1, 2]}),
        ("options", {"options": {"manoeuvre": "centre"}}),
        ("options", {"options": {"reset_mask": np.zeros(3, np.bool_)}}),
        ("options", {"options": {"reset_mask": [True, True, True]}}),
    ],
)
def test_an_invalid_reset_is_refused(match: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=match):
        many().reset(**arguments)


def test_a_step_needs_a_reset_of_every_robot() -> None:
    env = many(autoreset_mode="Disabled", max_episode_steps=1)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(3, int))
    env.reset(options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(3, int))
    env.reset()
    env.step(np.zeros(3, int))
    with pytest.raises(ResetNeeded, match="robot 0"):
        env.step(np.zeros(3, int))
    env.close()
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(3, int))
