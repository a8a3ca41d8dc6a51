"""Two short lives, eager and deferred, whose weights a test compares between processes: `python -m` prints hashes."""

from __future__ import annotations

from horde_agent.bench import workload
from horde_agent.bench.competitors import Learning


def hashes() -> list[str]:
    """Return the SHA-256 of what each life has learned."""
    stream, lives = workload.stream(301), []
    for mode in ("eager", "deferred"):
        learning = Learning(workload.constant_action_questions()[:300], stream, mode)  # type: ignore[arg-type]
        for t in range(300):
            learning(t)
        lives.append(learning.horde.weights_sha256())
    return lives


if __name__ == "__main__":
    print(*hashes(), sep="\n")
