"""Exercise 1: nexting by hand. Read 1_nexting.md, fill in the gaps, then run `python check.py 1`."""

import numpy as np

GAMMA = 0.8
LAMBDA = 0.9
N_PLACES = 6


def returns(cumulants, gamma):
    """Return G_t for each step t but the last: the discounted sum of the cumulants *after* it.

    Args:
        cumulants: C_0 .. C_n, shape (n + 1,); C_t is what was sensed at step t.
        gamma: The continuation.

    Returns:
        G_0 .. G_{n-1}, shape (n,), where G_t = C_{t+1} + gamma C_{t+2} + gamma^2 C_{t+3} + ...
    """
    # YOUR CODE: begin at the end, where G_{n-1} = C_n, and go backwards
    raise NotImplementedError


def td_lambda(weights, trace, features, next_features, cumulant, gamma, lam, step_size):
    """Learn from one step by TD(lambda); return the new weights and the new trace, as new arrays.

    Args:
        weights, trace: Before the step, shape (n_features,).
        features, next_features: Of the state left and of the state reached, shape (n_features,).
        cumulant: C_{t+1}, sensed in the state reached.
        gamma, lam, step_size: The continuation, the trace decay, the step size.
    """
    # YOUR CODE: first the TD error, with the old weights; then the trace; then the weights
    raise NotImplementedError


def main():
    """A lamp stands at place 0 of a ring of six; predict, in each place, the light to come."""
    place_features = np.eye(N_PLACES)
    weights = np.zeros(N_PLACES)
    trace = np.zeros(N_PLACES)
    for t in range(3_000):
        place = t % N_PLACES
        next_place = (t + 1) % N_PLACES
        light = float(next_place == 0)
        weights, trace = td_lambda(
            weights,
            trace,
            place_features[place],
            place_features[next_place],
            light,
            gamma=GAMMA,
            lam=LAMBDA,
            step_size=0.1,
        )
    lights = np.array([float(t % N_PLACES == 0) for t in range(100)])
    measured = returns(lights, GAMMA)[:N_PLACES]
    for place in range(N_PLACES):
        print(f"place {place}: predicted {weights[place]:.3f}, measured {measured[place]:.3f}")


if __name__ == "__main__":
    main()
