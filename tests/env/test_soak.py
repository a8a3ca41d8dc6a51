"""A short soak (`tests.bench.soak`): faults of every kind in a life, every packet and every motor watched."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pybullet")
from tests.bench.soak import soak
from tests.bench.witness import Ledger, Sent

pytestmark = [pytest.mark.sim, pytest.mark.hardware]

OFTEN = "loss=2,flip=2,burst=2,stall=0.4,unplug=0.2,reboot=0.1,low_battery=0.05,heat=0.05,stuck_wheel=0.3"


@pytest.mark.parametrize("link", ["serial", "drops"])
def test_a_life_among_faults_of_every_kind_is_sound(link: Any, caplog: pytest.LogCaptureFixture) -> None:
    """No bad packet is accepted, every fault is seen, motors stop in time, and learning continues after each loss."""
    n_faults = 150 if link == "serial" else 320  # few of those of a drop's line reach its packets
    said = soak(link, n_faults, OFTEN)

    assert said["failed"] == [], said
    assert [r.message for r in caplog.records if r.name.startswith("horde_env") and r.levelname == "ERROR"] == []
    assert said["faults"] >= n_faults
    if link == "serial":
        assert said["packets_refused"] > 0.8 * said["packets_damaged"] > 20
    else:  # of a packet with a wrong parity the driver makes no drop
        assert said["drops_refused"] > 0.15 * said["packets_damaged"] > 4


PACKETS = [bytes([k]) * 83 for k in range(4)]


class Finder:
    """Finds packets of 83 bytes."""

    def __init__(self) -> None:
        self.skipped_bytes = 0

    def find(self, data: bytes) -> list[bytes]:
        return [data[k : k + 83] for k in range(0, len(data), 83)]


def ledger(*fates: str) -> Ledger:
    it = Ledger()
    for packet, fate in zip(PACKETS, fates, strict=False):
        it.put(Sent(packet, fate, 83))
    return it


def test_the_witness_knows_a_packet_that_nobody_sent_or_that_comes_twice() -> None:
    it = ledger("sound", "sound")
    finder = it.watch(Finder())
    finder.find(PACKETS[0] + PACKETS[3])
    assert (it.n_accepted, it.n_forged) == (1, 1)
    finder.find(PACKETS[0])
    assert (it.n_accepted, it.n_forged) == (1, 2)
    finder.find(PACKETS[1])
    assert (it.n_accepted, it.n_forged) == (2, 2)


def test_the_witness_knows_damage_that_was_not_counted_and_packets_that_were_lost() -> None:
    it = ledger("sound", "damaged", "sound", "sound")
    finder = it.watch(Finder())
    finder.find(PACKETS[0])
    finder.skipped_bytes = 83
    finder.find(PACKETS[2])
    assert (it.n_damaged, it.n_missing, it.n_unseen) == (1, 0, 0)

    it = ledger("sound", "damaged", "sound", "sound")
    finder = it.watch(Finder())
    finder.find(PACKETS[0])
    finder.skipped_bytes = 82
    finder.find(PACKETS[3])
    assert (it.n_damaged, it.n_missing, it.n_unseen) == (1, 1, 1)
