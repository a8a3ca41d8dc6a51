"""Exercise 3: Baird's star, and GTD. Read 3_baird.md, fill in the gaps, then run `python check.py 3`."""

import numpy as np

from horde_agent.problems.classics import baird

GAMMA = 0.99


def td(weights, features, next_features, rho, cumulant, gamma, step_size):
    """Learn from one step by off-policy TD(0); return the new weights.

    Args:
        weights: Shape (n_features,).
        features, next_features: Of the state left and of the state reached.
        rho: The importance sampling ratio of the action between them.
        cumulant: Sensed in the state reached.
    """
    # gap: as in exercise 1 without a trace, and times rho
    error = cumulant + gamma * weights @ next_features - weights @ features
    return weights + step_size * rho * error * features
    # end


def gtd(weights, secondary, features, next_features, rho, cumulant, gamma, step_size, step_size_w):
    """Learn from one step by GTD(0), also called TDC; return the new weights and secondary weights.

    theta += alpha rho (delta phi - gamma (w.phi) phi')
    w += alpha_w (rho delta - w.phi) phi
    """
    # gap: delta as before; both lines use the old w
    error = cumulant + gamma * weights @ next_features - weights @ features
    expected_error = secondary @ features
    correction = gamma * expected_error * next_features
    new_weights = weights + step_size * rho * (error * features - correction)
    new_secondary = secondary + step_size_w * (rho * error - expected_error) * features
    return new_weights, new_secondary
    # end


def sizes(n_steps=2_000, seed=0):
    """Return |theta| by both rules after each step of the same walk on the star, shape (n_steps, 2).

    Seven states, eight features, no reward: the true values are 0. The behaviour jumps to one of
    the six outer states with probability 6/7; the target policy always goes to the inner one.
    """
    phi = baird().features
    rng = np.random.default_rng(seed)
    by_td = np.ones(phi.shape[1])
    by_td[6] = 10.0
    by_gtd = by_td.copy()
    secondary = np.zeros_like(by_td)
    state = int(rng.integers(7))
    lengths = np.zeros((n_steps, 2))
    for t in range(n_steps):
        if rng.random() < 1 / 7:
            following = 6
            rho = 7.0
        else:
            following = int(rng.integers(6))
            rho = 0.0
        step = (phi[state], phi[following], rho, 0.0, GAMMA)
        by_td = td(by_td, *step, step_size=0.01)
        by_gtd, secondary = gtd(by_gtd, secondary, *step, step_size=0.005, step_size_w=0.05)
        state = following
        lengths[t] = np.linalg.norm(by_td), np.linalg.norm(by_gtd)
    return lengths


def main():
    """Print how long both weight vectors are on the way."""
    lengths = sizes()
    for t in (0, 499, 999, 1_999):
        print(f"step {t + 1:5d}: |theta| by TD {lengths[t, 0]:10.3g}, by GTD {lengths[t, 1]:8.3g}")


if __name__ == "__main__":
    main()
