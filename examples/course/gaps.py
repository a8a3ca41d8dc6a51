"""Write the exercises: the solutions with their answers taken out.

    python examples/course/gaps.py

What stands between `# gap: HINT` and `# end` in solutions/N_NAME.py becomes the hint and a
NotImplementedError in N_NAME.py.
"""

from __future__ import annotations

import re
from pathlib import Path

COURSE = Path(__file__).resolve().parent
GAP = re.compile(r"^( *)# gap(?:: ([^\n]*))?\n.*?^ *# end\n", re.DOTALL | re.MULTILINE)


def with_gaps(solution: str) -> str:
    """Return the text of an exercise."""

    def gap(found: re.Match[str]) -> str:
        indent = found[1]
        hint = ""
        if found[2]:
            hint = f": {found[2]}"
        return f"{indent}# YOUR CODE{hint}\n{indent}raise NotImplementedError\n"

    return GAP.sub(gap, solution)


def main() -> None:
    """Write all exercises."""
    for solution in sorted((COURSE / "solutions").glob("*.py")):
        text = with_gaps(solution.read_text(encoding="utf-8"))
        (COURSE / solution.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
