"""Exercise 5: find a policy, and test it. Read 5_control.md, fill in the gaps, then run `python check.py 5`."""

import numpy as np

from horde_agent import GVF, Channel, Greedy, Horde, LearnerConfig, Uniform

N_PLACES = 11
LAMP = 8
LEFT, STAY, RIGHT = range(3)
GAMMA = 0.9


def move(place, action):
    """Return the next place on a line of eleven with walls at both ends."""
    return min(max(place + action - 1, 0), N_PLACES - 1)


def light(place):
    """Return the light at a place: 1 at the lamp, less beside it."""
    return float(np.exp(-((place - LAMP) ** 2) / 4))


def question():
    """Return the question that *finds* the policy with the most light, over about ten steps.

    The light is channel 0 of the observation.
    """
    # gap: its target policy is found, not given; call it "lamp"
    return GVF("lamp", Greedy(3), Channel(0), continuation=GAMMA)
    # end


def learn(n_steps=10_000, seed=0):
    """Walk at random, learn the question from that, and return the best action of each place."""
    config = LearnerConfig.paper(step_size=0.1)
    horde = Horde([question()], n_features=N_PLACES, n_active=1, config=config)
    rng = np.random.default_rng(seed)
    place = 5
    horde.begin(np.array([light(place)]), np.array([place]))
    for _ in range(n_steps):
        action = int(rng.integers(3))
        place = move(place, action)
        horde.learn(action, 1 / 3, np.array([light(place)]), np.array([place]))
    values = [horde.action_values("lamp", np.array([i])) for i in range(N_PLACES)]
    return np.argmax(values, axis=1)


def excursion(place, policy, n_steps, gamma, rng):
    """Follow a policy from a place, learn nothing, and return the discounted light that was met.

    Args:
        place: Where the excursion begins; the light there does not count.
        policy: A function of a place that returns the probabilities of the actions, shape (3,).
        n_steps: Its length.
        gamma: The continuation.
        rng: Draws the actions: `rng.choice(3, p=...)`.
    """
    # gap: the light after the first step counts 1, after the second gamma, ...
    total = 0.0
    discount = 1.0
    for _ in range(n_steps):
        place = move(place, int(rng.choice(3, p=policy(place))))
        total += discount * light(place)
        discount *= gamma
    return total
    # end


def mean_and_error(measured):
    """Return the mean of the returns and its standard error."""
    # gap: the deviation of a mean of n is that of one divided by the root of n
    measured = np.asarray(measured)
    return float(measured.mean()), float(measured.std(ddof=1) / np.sqrt(len(measured)))
    # end


def main():
    """Compare the policy found with a random one, by 100 excursions each."""
    best = learn()
    rng = np.random.default_rng(1)
    starts = rng.integers(N_PLACES, size=100)

    def found(place):
        return np.eye(3)[best[place]]

    def random(place):
        return Uniform(3).probabilities(None, None)

    for name, policy in (("found", found), ("random", random)):
        measured = [excursion(place, policy, 50, GAMMA, rng) for place in starts]
        mean, error = mean_and_error(measured)
        print(f"{name}: {mean:.2f} +- {error:.2f}")


if __name__ == "__main__":
    main()
