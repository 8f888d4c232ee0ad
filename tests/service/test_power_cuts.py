"""A power cut at any moment loses no acknowledged update and damages no data."""

from __future__ import annotations

import math
import os
import random

import pytest
from powercut import Disk
from powercut_lives import Fault, HastyWriter, History, Outcome, Wrongs, suffer
from storage_samples import create_task, released, served

LIVES, CUTS = 3, 20  # lives, and power cuts in each, per seed
SEEDS = math.ceil(int(os.environ.get("TURNOUT_POWER_CUTS", "1200")) / (LIVES * CUTS))
BLOCKS = 4


def cut(seeds: range, wrongs: Wrongs | None = None) -> tuple[int, dict[int, list[str]]]:
    """Number of power cuts, and faults found, by seed."""
    outcomes = {seed: suffer(seed, CUTS, lives=LIVES, wrongs=wrongs) for seed in seeds}
    faults = {seed: outcome.faults for seed, outcome in outcomes.items() if outcome.faults}
    return sum(outcome.cuts for outcome in outcomes.values()), faults


@pytest.mark.parametrize("block", range(BLOCKS))
def test_power_cuts_lose_no_acknowledged_update(block):
    seeds = range(block, SEEDS, BLOCKS)
    cuts, faults = cut(seeds)
    assert faults == {}
    assert cuts == len(seeds) * LIVES * CUTS


@pytest.mark.parametrize(
    ("wrongs", "fault"),
    [
        (Wrongs(synchronous="NORMAL"), "were acknowledged and"),
        (Wrongs(synchronous="OFF"), "were acknowledged and"),
        (Wrongs(writer=HastyWriter), "were acknowledged and"),
        (Wrongs(piecemeal=True), "stored or deleted in part"),
    ],
    ids=["synchronous is NORMAL", "synchronous is OFF", "acknowledged too early", "piecemeal"],
)
def test_a_coordinator_that_does_not_sync_its_files_is_detected(wrongs, fault):
    _, faults = cut(range(2), wrongs)
    assert len(faults) == 2
    assert all(any(fault in text for text in found) for found in faults.values())


def test_a_seed_reproduces_its_power_cuts():
    first, second = (suffer(5, 8, wrongs=Wrongs(synchronous="NORMAL")) for _ in range(2))
    assert first == second
    assert first != Outcome()


def test_a_second_release_of_a_step_is_detected(tmp_path):
    storage = served(tmp_path / "task.sqlite")
    with storage.transaction() as tx:
        create_task(tx)
        released(tx, 2)
    history = History(published={1: bytes(32)})
    with pytest.raises(Fault, match="in part"):
        history.check(storage, 0, 0)
    with pytest.raises(Fault, match="different bytes"):
        history._check_ledger(storage, storage._write.raw)
    storage.close()


def test_the_simulated_disk_keeps_synced_data():
    seen = set()
    for seed in range(400):
        disk = Disk({"a": b"old" + bytes(5)})
        for entry in [
            ("write", "a", 0, b"new"),
            ("sync", "a"),
            ("write", "a", 3, b"x" * 5),
            ("write", "b", 510, b"1234"),
            ("begun", 3),
        ]:
            disk.apply(entry)
        after = disk.after_a_cut(random.Random(seed))
        assert after["a"] in (b"new" + bytes(5), b"newxxxxx")
        seen.add((after["a"], after.get("b")))
    gap = bytes(510)
    parts = {None, b"", gap + b"12", bytes(512) + b"34", gap + b"1234"}
    assert {b for _, b in seen} == parts
    assert len(seen) == 2 * len(parts)
