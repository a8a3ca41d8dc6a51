"""The live page's numbers as texts: page/format.js in Node.js if it is installed, and by test_page.py in Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, NamedTuple

import pytest

from horde_agent.watch.server import PAGE

FORMAT = PAGE / "format.js"


class Case(NamedTuple):
    """A call of format.js and its result."""

    call: str
    text: str | list[str]


NUMBERS = [
    Case("formatNumber(99.958)", "100"),
    Case("formatNumber(250)", "250"),
    Case("formatNumber(1e10)", "1e10"),
    Case("formatNumber(10)", "10"),
    Case("formatNumber(100)", "100"),
    Case("formatNumber(-250)", "-250"),
    Case("formatNumber(999.6)", "1,000"),
    Case("formatNumber(1234.5)", "1,235"),
    Case("formatNumber(100000)", "100,000"),
    Case("formatNumber(999999.7)", "1e6"),
    Case("formatNumber(9.996)", "10"),
    Case("formatNumber(11.77)", "11.8"),
    Case("formatNumber(0.5)", "0.5"),
    Case("formatNumber(0.756)", "0.756"),
    Case("formatNumber(0.0724)", "0.0724"),
    Case("formatNumber(0.001)", "0.001"),
    Case("formatNumber(0.00099996)", "0.001"),
    Case("formatNumber(0.0005)", "5e-4"),
    Case("formatNumber(-6.19e-8)", "-6.19e-8"),
    Case("formatNumber(2.00e-20)", "2e-20"),
    Case("formatNumber(0)", "0"),
    Case("formatNumber(-0)", "0"),
    Case("formatNumber(null)", "–"),
    Case("formatNumber(undefined)", "–"),
    Case("formatNumber(NaN)", "–"),
    Case("formatNumber(-Infinity)", "–"),
    Case("formatCount(0)", "0"),
    Case("formatCount(2690)", "2,690"),
    Case("formatCount(null)", "–"),
    Case("formatBytes(0)", "0 B"),
    Case("formatBytes(12345)", "12.3 kB"),
    Case("formatBytes(100e6)", "100.0 MB"),
    Case("formatBytes(80.1e9)", "80.1 GB"),
]
AXES = [
    Case("formatAxis([8.5e-7, 9e-7, 9.5e-7])", ["8.5e-7", "9.0e-7", "9.5e-7"]),
    Case("formatAxis([9.5e-7, 1e-6, 1.05e-6])", ["0.95e-6", "1.00e-6", "1.05e-6"]),
    Case("formatAxis([0, 0.1, 0.2, 0.1 + 0.2])", ["0", "0.1", "0.2", "0.3"]),
    Case("formatAxis([-1, -0.5, 1e-17, 0.5])", ["-1.0", "-0.5", "0", "0.5"]),
    Case("formatAxis([100, 150, 200, 250])", ["100", "150", "200", "250"]),
    Case("formatAxis([0, 5000, 10000])", ["0", "5,000", "10,000"]),
    Case("formatAxis([0, 2e6, 4e6])", ["0", "2e6", "4e6"]),
    Case("formatAxis([null, 1, null])", ["", "1", ""]),
    Case("formatAxis([0])", ["0"]),
    Case("formatAxis([])", []),
    Case("formatAxis([0.01, 0.1, 1, 10, 1000], true)", ["0.01", "0.1", "1", "10", "1,000"]),
    Case("formatAxis([0.5, 1, 2], true)", ["0.5", "1", "2"]),
    Case("formatAxis([1e-5, 0.001, 0.1], true)", ["1e-5", "1e-3", "1e-1"]),
]
CASES = [*NUMBERS, *AXES]
EVALUATED = f"JSON.stringify([{', '.join(case.call for case in CASES)}])"
"""An expression whose value is a JSON list of all results."""


def assert_results(text: str) -> None:
    """Compare the value of EVALUATED with the table."""
    results: list[Any] = json.loads(text)
    for case, result in zip(CASES, results, strict=True):
        assert result == case.text, case.call


def test_numbers_keep_their_digits_and_an_axis_has_one_notation() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js; `make test-page` runs the same table in Chromium")
    script = FORMAT.read_text(encoding="utf-8") + f"\nconsole.log({EVALUATED});\n"
    result = subprocess.run(
        [node, "-"], input=script.encode(), capture_output=True, timeout=60, check=True
    )
    assert_results(result.stdout.decode())
