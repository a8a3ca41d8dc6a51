"""The truncated return: forwards, backwards and by its definition it is one number."""

from __future__ import annotations

import numpy as np

from horde_agent.measures.returns import TruncatedReturn, returns_along
from tests.oracles.evaluation import truncated_return


def test_the_return_is_the_same_forwards_backwards_and_by_its_definition() -> None:
    """Readings 9, 1, 2, 4: from the first row 1 + 2/2 + 4/4 = 3 at gamma 1/2, and 1 at gamma 0; not the 9."""
    cumulants = np.array([[9.0, 9.0], [1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    gamma = np.array([0.5, 0.0])
    forwards = TruncatedReturn(2)
    for c in cumulants[1:]:
        forwards.add(c, gamma)
    assert forwards.value.tolist() == [3.0, 1.0]
    assert returns_along(cumulants, gamma)[0].tolist() == [3.0, 1.0]
    np.testing.assert_allclose(truncated_return(cumulants[1:].T, gamma), [3.0, 1.0])


def test_many_returns_of_random_readings_agree() -> None:
    rng = np.random.default_rng(3)
    cumulants, gamma = rng.normal(size=(51, 4)), rng.random(4)
    forwards = TruncatedReturn(4)
    for c in cumulants[1:]:
        forwards.add(c, gamma)
    np.testing.assert_allclose(forwards.value, returns_along(cumulants, gamma)[0], rtol=1e-12)
    np.testing.assert_allclose(forwards.value, truncated_return(cumulants[1:].T, gamma), rtol=1e-12)


def test_questions_that_stay_keep_their_discount() -> None:
    """Of gammas 1/2 and 1/4 the second stays after one term: 1 + 1/4, and not 1 + 1/2."""
    forwards = TruncatedReturn(2)
    forwards.add(np.ones(2), np.array([0.5, 0.25]))
    forwards.keep(np.array([1]))
    forwards.add(np.ones(1), np.array([0.25]))
    assert forwards.value.tolist() == [1.25]
