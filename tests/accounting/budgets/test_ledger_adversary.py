"""Privacy filters and odometers against adversaries who try every choice; wrong rules fail."""

from __future__ import annotations

import itertools
import math

import pytest
from discrete_blocks import TERMS, Game, TwoOutcomes, fixed_delta, response, schemes_for

from turnout.accounting.budgets import (
    Odometer,
    RenyiFilter,
)
from turnout.accounting.budgets.odometer import renyi_budget
from turnout.accounting.divergence.curves import Direction
from turnout.core.errors import BudgetExceededError

ROUNDS = 4
BLOCKS = {
    "weak": response(0.3),
    "strong": response(0.9),
    "rare": TwoOutcomes(0.03, 0.002),
    "rare absence": TwoOutcomes(0.002, 0.03),
}


def accepts(start, schemes):
    """Test of whether a filter accepts a list of windows in order."""

    def allowed(names) -> bool:
        state = start
        try:
            for name in names:
                state = state.spend(schemes[name])
        except BudgetExceededError:
            return False
        return True

    return allowed


def game(start, schemes, epsilon) -> Game:
    return Game(BLOCKS, accepts(start, schemes), ROUNDS, lambda names: epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.05), (1.5, 0.1), (2.5, 0.01)])
def test_no_adaptive_adversary_exceeds_the_budget_of_a_renyi_filter(epsilon, delta, monkeypatch):
    schemes = schemes_for(BLOCKS, monkeypatch)
    for expected in (None, schemes["weak"], schemes["rare"]):
        start = RenyiFilter.of(TERMS, epsilon, delta, expected=expected, most_windows=ROUNDS)
        play = game(start, schemes, epsilon)
        for direction in Direction:
            assert play.worst(direction) <= delta
        assert sum(play.known.values()) > 4  # the filter does not refuse everything


def test_no_adaptive_adversary_exceeds_the_budget_of_a_filter_with_several_orders(monkeypatch):
    schemes = schemes_for(BLOCKS, monkeypatch)
    odometer = Odometer(TERMS, (2.0, 4.0, 8.0), (0.3, 0.4, 0.3), 1e-6, ROUNDS)
    play = game(RenyiFilter(2.5, 0.05, odometer), schemes, 2.5)
    for direction in Direction:
        assert 0 < play.worst(direction) <= 0.05


def test_odometer_bounds_hold_under_adaptive_stopping(monkeypatch):
    schemes = schemes_for(BLOCKS, monkeypatch)
    start = Odometer(TERMS, (1.5, 2.0, 3.0, 5.0, 9.0), (0.2,) * 5, 1e-6, ROUNDS)
    bounds: dict[tuple[str, ...], float] = {(): 0.0}
    for count in range(1, ROUNDS + 1):
        for names in itertools.combinations_with_replacement(sorted(BLOCKS), count):
            state = start
            for name in names:
                state = state.record(schemes[name])
            bounds[names] = state.bound(0.05)
    play = Game(BLOCKS, lambda names: True, ROUNDS, bounds.__getitem__)
    for direction in Direction:
        assert 0 < play.worst(direction) <= 0.05
    # Half the bound would not hold.
    halved = Game(BLOCKS, lambda names: True, ROUNDS, lambda names: bounds[names] / 2)
    assert max(halved.worst(direction) for direction in Direction) > 0.05


def test_the_epsilon_of_every_fixed_run_does_not_bound_an_adaptive_run():
    """Each list of windows is (ε, δ)-DP, but an adaptive choice between two lists is not."""
    first, push, jump = response(1.0), response(0.5), TwoOutcomes(0.14, 0.007)
    blocks = {"first": first, "jump": jump, "push": push}
    epsilon = 1.2
    lists = {("first", "push"), ("first", "jump")}
    planned = {
        names: max(fixed_delta([blocks[n] for n in names], epsilon, d) for d in Direction)
        for names in lists
    }
    delta = max(planned.values())
    play = Game(blocks, lambda names: names in lists or names == ("first",), 2, lambda _: epsilon)
    assert play.worst(Direction.REMOVE) > 1.1 * delta


def test_choosing_the_renyi_order_after_a_run_does_not_bound_adaptive_runs(monkeypatch):
    """Each list meets (ε, δ) at some order, but the first release decides at which order."""
    epsilon, delta = 4.5, 1.4e-4
    blocks = {
        "first": TwoOutcomes(0.13, 0.112),
        "high": TwoOutcomes(0.035, 0.035 * math.exp(-4.38)),
        "low": TwoOutcomes(5.6e-4, 5.6e-4 * math.exp(-4.77)),
    }
    orders = (4.5, 33.0)

    def some_order(names) -> bool:
        return all(
            any(
                sum(blocks[name].divergence(order, d) for name in names)
                <= renyi_budget(epsilon, delta, order)
                for order in orders
            )
            for d in Direction
        )

    lists = {("first",), ("first", "high"), ("first", "low")}
    play = Game(blocks, lambda names: names in lists and some_order(names), 2, lambda _: epsilon)
    assert play.worst(Direction.REMOVE) > 1.5 * delta
    assert all(play.known[names] for names in lists)
    # With weights these endings are not both allowed, and what is left holds.
    schemes = schemes_for(blocks, monkeypatch)
    weighted = RenyiFilter(epsilon, delta, Odometer(TERMS, orders, (0.5, 0.5), 1e-9, 2))
    allowed = accepts(weighted, schemes)
    kept = Game(blocks, lambda names: names in lists and allowed(names), 2, lambda _: epsilon)
    assert kept.worst(Direction.REMOVE) <= delta
    assert not all(kept.known[names] for names in lists)
