"""What `horde-robot check --host` finds of a machine, from the files in which the system tells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from horde_env import cli
from horde_env.commands import host

FILES = {
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    "sys/bus/usb-serial/devices/ttyUSB0/latency_timer": "1",
    "proc/meminfo": "MemTotal: 8000000 kB\nSwapTotal: 1000000 kB\nSwapFree: 1000000 kB",
    "proc/loadavg": "0.01 0.05 0.10 1/200 4242",
}


def found(root: Path, **files: str) -> dict[str, tuple[str, str]]:
    """Return verdict and text by subject, of a system that tells these files."""
    told = dict(FILES)
    for word, content in files.items():
        told[next(name for name in FILES if word in name)] = content
    for name, content in told.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content + "\n")
    return {line.subject: (line.verdict.value, line.text) for line in host.lines(root, root)}


def test_a_good_machine_is_fit(tmp_path: Path) -> None:
    verdicts = found(tmp_path)
    assert {verdicts[name][0] for name in ("clock", "governor", "adapter", "swap", "load")} == {"ok"}


@pytest.mark.parametrize(
    ("word", "content", "subject", "said"),
    [
        ("clocksource", "hpet", "clock", "clock source hpet: each look"),
        ("cpu1", "powersave", "governor", "performance, powersave: a processor that rests"),
        ("latency", "16", "adapter", "ttyUSB0 holds bytes back for 16 ms: every packet comes up to 16 ms late"),
        ("meminfo", "SwapTotal: 1000000 kB\nSwapFree: 488000 kB", "swap", "500 MB are in use"),
        ("loadavg", "900.0 1 1 1/1 1", "load", "900.0 on"),
    ],
)
def test_what_is_not_well_is_said_with_what_it_means(
    tmp_path: Path, word: str, content: str, subject: str, said: str
) -> None:
    verdict, text = found(tmp_path, **{word: content})[subject]
    assert verdict == "warn"
    assert said in text


@pytest.mark.parametrize(("gigabytes", "verdict"), [(100, "ok"), (2, "warn"), (0.1, "FAIL")])
def test_the_disk_is_counted_in_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gigabytes: float, verdict: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=gigabytes * 1e9))
    assert found(tmp_path)["disk"][0] == verdict


def test_a_system_that_tells_nothing_is_passed_over(tmp_path: Path) -> None:
    verdicts = {line.subject: line.verdict.value for line in host.lines(tmp_path, tmp_path)}
    assert {verdicts[name] for name in ("clock", "governor", "swap", "load")} == {"skip"}
    assert "adapter" not in verdicts


def test_the_command_looks_at_this_machine_and_opens_no_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--host"]) in (0, 1)
    said = capsys.readouterr().out
    assert "disk" in said
    assert "fit for 10 Hz" in said
