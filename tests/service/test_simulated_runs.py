"""Thousands of simulated service runs, one per seed, in which every guarantee must hold.

TURNOUT_WORLDS sets their number; `make worlds` uses 10,000. A failure reports its seed;
``python tests/service/simulated_world.py SEED`` repeats the run.
"""

import os

import pytest
from simulated_world import World

RUNS, A_PART = int(os.environ.get("TURNOUT_WORLDS", "1500")), 500


@pytest.mark.parametrize("first", range(0, RUNS, A_PART))
def test_every_simulated_service_run_keeps_all_guarantees(first):
    for seed in range(first, first + A_PART):
        try:
            World(seed).run()
        except Exception as error:
            pytest.fail(f"world {seed}: {error!r}")


def test_a_seed_reproduces_its_simulated_service_run():
    for seed in (3, 17, 4711):
        first, again = World(seed).run(), World(seed).run()
        assert first.story == again.story
        assert first.published == again.published


def test_simulated_service_runs_contain_every_kind_of_event():
    """Simulations without faults would not test the guarantees."""
    told = "\n".join(line for seed in range(200) for line in World(seed).run().story)
    for what in (
        "killed before a commit",
        "killed after a commit",
        "killed before a release",
        "killed after a release",
        ": accepted",
        ": late",
        ": early",
        ": conflict",
        ": refused",
        "up at step 1, answers",
    ):
        assert what in told
