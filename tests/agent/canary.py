"""Functions of `kernels/native` on known numbers: `python -m` prints "correct"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import native
from horde_agent.kernels.native import absolute, choose, load, multiply_add, narrow_zeros, store


class Parts(NamedTuple):
    """Numbers, and the output of threads."""

    x: NDArray[np.float32]
    factor: float
    out: NDArray[np.float32]


def work(held: Any, thread: int, task: int) -> int:
    zero = narrow_zeros(held.x)
    x = load(held.x, 16 * thread, zero)
    y = multiply_add(x, held.factor, choose(absolute(x) > 20.0, x, zero + 1.0))
    store(held.out, 16 * thread, y + task)
    return 0


def main() -> None:
    x = np.arange(-32, 32, dtype=np.float32)
    held = native.hold(parts := Parts(x, 0.5, np.zeros(64, np.float32)))
    native.on_threads(native.entry_of(work, held), held, 4, 3)
    right = (parts.out == 0.5 * x + np.where(np.abs(x) > 20, x, 1) + 3).all()
    print("correct" if right else f"wrong: {parts.out}")


if __name__ == "__main__":
    main()
