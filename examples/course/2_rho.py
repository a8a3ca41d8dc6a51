"""Exercise 2: rho, and a wrong b. Read 2_rho.md, fill in the gaps, then run `python check.py 2`."""

import numpy as np

from horde_agent import GVF, Channel, Horde, LearnerConfig, PolicyFunction

GAMMA = 0.5
TARGET = np.array([0.5, 0.5])  # pi: of action 0, of action 1
TRUE_B = np.array([0.2, 0.8])
REWARDS = np.array([0.0, 1.0])  # action 1 pays


def ratio(action, target, behaviour):
    """Return rho, the importance sampling ratio of an action.

    Args:
        action: The action that was taken, 0 or 1.
        target, behaviour: Probabilities of the actions under pi and under b, shape (2,).
    """
    # YOUR CODE: one division
    raise NotImplementedError


def mean_reward(actions, rewards, target, behaviour):
    """Return an unbiased estimate of the mean reward of a step under the target policy.

    Args:
        actions: Drawn by the behaviour, shape (n,).
        rewards: What each of them paid, shape (n,).
    """
    # YOUR CODE: weight each reward by its ratio; divide by the number of steps
    raise NotImplementedError


def what_a_demon_learns(target, true_b, reported_b, rewards, gamma):
    """Return the value on which TD settles in a world of one state, if it is told another b.

    Actions are drawn with `true_b`, but the ratios are made of `reported_b`. TD stands still where
    the expected value of rho (R + gamma v - v) is 0.
    """
    # YOUR CODE: solve that equation for v; the expectation is over actions drawn with true_b
    raise NotImplementedError


def learned_by_a_horde(reported_b, n_steps=3_000):
    """Return what a Horde learns in that world if it is told `reported_b`."""
    policy = PolicyFunction(lambda observation, tiles: TARGET, 2)
    question = GVF("reward", policy, Channel(0), continuation=GAMMA, lam=0.0)
    config = LearnerConfig.paper(step_size=0.02)
    horde = Horde([question], n_features=1, n_active=1, config=config)
    state = np.array([0])
    rng = np.random.default_rng(0)
    horde.begin(np.zeros(1), state)
    values = []
    for _ in range(n_steps):
        action = int(rng.random() < TRUE_B[1])
        values.append(horde.learn(action, reported_b[action], REWARDS[[action]], state)[0])
    return float(np.mean(values[n_steps // 2 :]))


def main():
    """The value under the target policy is .5 / (1 - .5) = 1; three ways to tell a Horde b."""
    for name, b in (("true", TRUE_B), ("a guess", [0.5, 0.5]), ("forgotten", [1.0, 1.0])):
        b = np.array(b)
        expected = what_a_demon_learns(TARGET, TRUE_B, b, REWARDS, GAMMA)
        print(f"b {name}: you expect {expected:.2f}, a Horde learns {learned_by_a_horde(b):.2f}")


if __name__ == "__main__":
    main()
