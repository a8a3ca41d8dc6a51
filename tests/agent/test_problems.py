"""The small problems: exact values, and the Gymnasium environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from horde_agent import GVF, Channel, Interface, Life, PolicyFunction
from horde_agent.policies import Follow
from horde_agent.problems import NAMES, rooms
from horde_agent.problems.classics import FEATURES, baird, boyan_chain, collision, random_walk
from horde_agent.problems.env import PROBLEMS
from tests.agent import commands
from tests.agent.doubles import horde_of


def test_the_walk_has_the_values_of_a_biased_walk() -> None:
    """V solves V(s) = .4 V(s-1) + .6 V(s+1), so that V(s) = A + B (2/3)^s with -1 at 0 and +1 at 6."""
    power = (2 / 3) ** np.arange(7)
    expected = -1 + 2 * (1 - power) / (1 - power[-1])
    np.testing.assert_allclose(random_walk().values()[0], expected[1:-1], rtol=1e-12)
    np.testing.assert_allclose(random_walk().state_weights()[0], np.array([1, 2, 3, 2, 1]) / 9)


def test_the_walks_features_have_length_1_and_the_published_rank() -> None:
    for kind, rank in zip(FEATURES, (5, 5, 3), strict=True):
        phi = random_walk(kind).features
        np.testing.assert_allclose((phi**2).sum(axis=1), 1.0)
        assert np.linalg.matrix_rank(phi) == rank
    with pytest.raises(ValueError, match="kind"):
        random_walk("tabulated")


def test_boyans_chain_has_the_values_of_its_recursion() -> None:
    """V(11) = -2, V(10) = -3 - 2, and before them V(s) = -3 + (V(s+1) + V(s+2)) / 2."""
    problem = boyan_chain()
    expected = [-2.0, -5.0]
    for _ in range(10):
        expected.append(-3.0 + (expected[-1] + expected[-2]) / 2)
    np.testing.assert_allclose(problem.values()[0], expected[::-1], rtol=1e-12)
    np.testing.assert_allclose(problem.features.sum(axis=1), 1.0)
    d = problem.state_weights()[0]
    np.testing.assert_allclose(d[[0, 1, 2, 11]], [0.117, 0.058, 0.088, 0.117], atol=6e-4)


def test_bairds_star_is_visited_uniformly_and_td_diverges_on_it_in_expectation() -> None:
    problem = baird()
    np.testing.assert_allclose(problem.state_weights(), 1 / 7)
    assert not problem.values().any()
    assert np.linalg.eigvals(problem.expectations().A).real.max() > 0


def test_collision_has_the_published_values_and_visits() -> None:
    problem = collision(np.random.default_rng(3))
    np.testing.assert_allclose(problem.values()[0], 0.9 ** np.arange(7.0, -1.0, -1.0))
    published = [0.0571, 0.1143, 0.1714, 0.2286, 0.2286, 0.1143, 0.0571, 0.0286]
    np.testing.assert_allclose(problem.state_weights()[0], published, atol=5e-5)
    assert set(problem.features.sum(axis=1)) == {3.0}


def test_a_question_of_the_rooms_counts_the_steps_to_its_hallway() -> None:
    """Values are .9^(distance - 1); every cell of the four rooms has two questions, and so has each hallway."""
    problem = rooms.rooms()
    values = problem.values()
    state = {cell: s for s, cell in enumerate(rooms.CELLS)}
    assert len(rooms.CELLS) == 104
    assert set(np.sum([q.is_defined for q in problem.questions], axis=0)) == {2}
    first, second = values[:2]  # from the lower left room to (5, 1) and to (1, 5)
    for cell, steps in {(0, 0): 6, (4, 1): 1, (4, 4): 4, (1, 5): 8}.items():
        assert first[state[cell]] == pytest.approx(0.9 ** (steps - 1))
    assert second[state[5, 1]] == pytest.approx(0.9**7)
    assert first[state[5, 1]] == first[state[6, 1]] == 0.0
    np.testing.assert_allclose(problem.questions[0].target[state[0, 0]], [0.5, 0.0, 0.5, 0.0])


@pytest.mark.parametrize("high_variance", [False, True])
def test_a_question_of_the_rooms_continues_where_its_policy_is_defined_and_ends_elsewhere(
    high_variance: bool,
) -> None:
    """Also at its goal: with .9 there, a learner would bootstrap from its own estimate of the goal, which is no 0."""
    for question in rooms.rooms(high_variance=high_variance).questions:
        np.testing.assert_array_equal(question.gamma, np.where(question.is_defined, 0.9, 0.0))


def test_the_behaviour_of_the_rooms_is_uniform_but_in_four_cells_of_the_high_variance_problem() -> (
    None
):
    """Ghiassian & Sutton (2021): .97 left at (1, 1) and (1, 8), .97 right at (8, 1) and (8, 8), the others .01."""
    state = {cell: s for s, cell in enumerate(rooms.CELLS)}
    plain = rooms.rooms()
    high_variance = rooms.rooms(high_variance=True)
    assert plain.actions == high_variance.actions == ["up", "down", "right", "left"]
    np.testing.assert_array_equal(plain.behaviour, 0.25)
    expected = np.full_like(plain.behaviour, 0.25)
    expected[[state[1, 1], state[1, 8]]] = [0.01, 0.01, 0.01, 0.97]
    expected[[state[8, 1], state[8, 8]]] = [0.01, 0.01, 0.97, 0.01]
    np.testing.assert_array_equal(high_variance.behaviour, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_is_a_sound_environment(name: str) -> None:
    env = gymnasium.make(f"horde_agent/{name}-v0")
    check_env(env.unwrapped)
    interface = Interface.of(env)
    n = len(PROBLEMS[name]().mdp.start)
    tiles = [int(interface.encode(np.array([s, 0.0]))[0]) for s in range(n + 1)]
    assert tiles == list(range(n + 1))


def test_an_episode_that_is_over_must_be_reset() -> None:
    env = gymnasium.make("horde_agent/RandomWalk-v0").unwrapped
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(1)


def test_a_horde_learns_the_exact_values_off_policy_from_a_state_dependent_behaviour() -> None:
    """The walk under the target policy, .6 right; the behaviour goes right with .3 in odd states, .7 in even ones.

    Neighbours have the other b: the b of the wrong observation shifts values by .4, a constant one
    by .28.
    """
    env = gymnasium.make("horde_agent/RandomWalk-v0")
    interface = Interface.of(env)
    target = PolicyFunction(lambda observation, tiles: [0.4, 0.6], n_actions=2)
    question = GVF("right", target, Channel(1), 1.0, lam=0.0, ends=True)
    horde = horde_of([question], interface, step_size=0.02, secondary_ratio=0.0)
    swerving = PolicyFunction(
        lambda seen, tiles: [0.7, 0.3] if seen[0] % 2 else [0.3, 0.7], n_actions=2
    )
    with Life(env, horde, Follow(swerving), np.random.default_rng(0), interface=interface) as life:
        life.run(6_000)
    learned = [horde.predict(np.array([s]))[0] for s in range(5)]
    np.testing.assert_allclose(learned, random_walk().values()[0], atol=0.12)


def test_horde_learn_takes_a_problem_by_its_id(tmp_path: Path) -> None:
    options = "--env horde_agent/Collision-v0 --questions nexting --steps 300"
    assert commands.horde("learn", options, f"--out {tmp_path / 'run'}") == 0
    assert (tmp_path / "run/summary.json").is_file()


@pytest.mark.parametrize("first", ["horde_agent", "gymnasium"])
def test_ids_are_registered_whichever_package_is_imported_first(first: str) -> None:
    """The package does not import Gymnasium by itself, which would delay every command."""
    code = (
        f"import sys, {first}\n"
        "assert ('gymnasium' in sys.modules) == ('horde_agent' not in sys.modules)\n"
        "import gymnasium, horde_agent\n"
        "print(gymnasium.make('horde_agent/RandomWalk-v0').unwrapped.problem.actions)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("(")
