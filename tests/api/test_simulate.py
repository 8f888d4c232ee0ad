"""`tn.simulate` reports its progress, with and without an algorithm."""

from __future__ import annotations

import turnout as tn


def test_a_simulation_reports_the_number_of_finished_steps():
    told: list[tuple[int, int]] = []
    run = tn.simulate(
        tn.CheckIn(window=4, windows=3), clients=50, watch=lambda done, of: told.append((done, of))
    )
    assert told == [(4, 12), (8, 12), (12, 12)]
    assert run == tn.simulate(tn.CheckIn(window=4, windows=3), clients=50)
