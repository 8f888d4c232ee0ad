"""Blocks of one shuffle: polygons above or below the exact curve and near it; compositions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from shuffle_truths import hockey_stick, pair_delta, response, shuffled, twice, view

from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.shuffling import blanket
from turnout.accounting.shuffling.blanket import BlanketBlock, BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    hadamard_pair,
    kary_pair,
    stronger_clones_pair,
    third_value_pair,
)
from turnout.core.errors import ParameterError, UnsupportedError

SETTINGS = [(0.5, 10**4, 1e-6), (4.0, 10**6, 1e-8), (1.0, 300, 1e-4), (3.0, 10**9, 1e-9)]


@pytest.fixture(autouse=True)
def _forget():
    """No polygon of another test, which may have been made by a mutant."""
    blanket._near.cache_clear()
    blanket._down_to.cache_clear()


def both(pair: BlanketPair, clients: int) -> BlanketBlock:
    return BlanketBlock(pair, clients, pair)


def found(block: BlanketBlock, rounds: int, side: Side, delta: float) -> float:
    return run_epsilon([(block, rounds)], Direction.REMOVE, side, delta, 0)


@pytest.mark.parametrize("make", [clones_pair, hadamard_pair, third_value_pair])
@pytest.mark.parametrize(("local_epsilon", "clients", "delta"), SETTINGS)
def test_upper_and_lower_epsilon_of_one_shuffle_are_close(make, local_epsilon, clients, delta):
    block = both(make(local_epsilon), clients)
    lower, upper = (found(block, 1, side, delta) for side in (Side.LOWER, Side.UPPER))
    assert lower <= upper <= lower * 1.0025
    for side, epsilon in [(Side.LOWER, lower), (Side.UPPER, upper)]:
        curve = BlanketCurve(block.upper, clients, side)
        assert float(curve.delta(np.array(math.exp(epsilon)))) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("make", [stronger_clones_pair, hadamard_pair, third_value_pair])
@pytest.mark.parametrize("delta", [0.9, 0.05, 1e-4])
def test_upper_polygons_are_above_and_lower_polygons_below_the_exact_curve(make, delta):
    pair, clients = make(1.2), 5
    block = both(pair, clients)
    ks = np.exp(np.linspace(0.0, 1.3, 27))
    truths = np.array([pair_delta(pair, clients, float(k)) for k in ks])
    for curves in (block.curves, None):
        for side in Side:
            if curves is None:
                curve = block.curve(Direction.ADD, side, delta, 0)
            else:
                curve = curves(side, delta, 0).add[0]
            values = curve.delta(ks)
            if side is Side.UPPER:
                assert (values >= truths * (1 - 1e-12) - 1e-15).all()
            else:
                assert (values <= truths * (1 + 1e-12) + 1e-15).all()
                lines = values[:, None] + curve.slope(ks)[:, None] * (ks[None, :] - ks[:, None])
                assert (lines <= truths[None, :] + 1e-12).all()


@pytest.mark.parametrize("make", [clones_pair, hadamard_pair])
def test_curves_for_composition_are_close_to_the_exact_curve(make):
    pair, clients = make(0.7), 10**5
    ks = np.exp(np.linspace(0.0, 6.0, 40) * both(pair, clients).loss_deviation)
    upper, lower = (
        both(pair, clients).curves(side, 1e-9, 0).remove[0].delta(ks)
        for side in (Side.UPPER, Side.LOWER)
    )
    exact = BlanketCurve(pair, clients, Side.UPPER, 512).delta(ks)
    sure = exact > 1e-8
    assert (upper[sure] <= exact[sure] * 1.04).all()
    assert (lower[sure] >= exact[sure] * 0.96).all()


@pytest.mark.parametrize("delta", [0.2, 0.03, 0.004])
def test_delta_of_two_rounds_of_a_blanket_pair_is_bracketed(delta):
    pair = third_value_pair(1.0)
    first, second = twice(view(pair, 4)), twice(view(pair, 4, swapped=True))
    lower, upper = (found(both(pair, 4), 2, side, delta) for side in (Side.LOWER, Side.UPPER))
    assert lower < upper < lower * 1.02
    assert hockey_stick(first, second, math.exp(upper)) <= delta
    assert hockey_stick(first, second, math.exp(lower)) >= delta


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.01])
def test_bound_of_two_rounds_is_above_two_enumerated_shuffles(delta):
    distributions = response(1.0, 3)
    first, second = (
        twice(shuffled([distribution, distributions[2], distributions[1]]))
        for distribution in distributions[:2]
    )
    k = math.exp(found(BlanketBlock(kary_pair(1.0, 3), 3), 2, Side.UPPER, delta))
    assert hockey_stick(first, second, k) <= delta
    assert hockey_stick(second, first, k) <= delta


@pytest.mark.parametrize("make", [clones_pair, third_value_pair])
@pytest.mark.parametrize("delta", [1e-12, 1e-40, 1e-120])
def test_bounds_are_close_at_deltas_far_below_the_rounding_error(make, delta):
    block = both(make(1.0), 10**5)
    lower, upper = (found(block, 1, side, delta) for side in (Side.LOWER, Side.UPPER))
    assert lower < upper < lower * 1.001


def test_epsilon_of_a_thousand_rounds_equals_the_published_value():
    """The clones pair has the published ε; the bounds of the third-value pair are close."""
    upper = found(BlanketBlock(clones_pair(0.5), 10**6), 1000, Side.UPPER, 1e-8)
    assert upper == pytest.approx(0.0910, rel=2e-3)
    pair = third_value_pair(0.5)
    lower, upper = (found(both(pair, 10**6), 1000, side, 1e-8) for side in (Side.LOWER, Side.UPPER))
    assert lower < upper < lower * 1.001


@pytest.mark.parametrize("local_epsilon", [100.0, 300.0, 550.0])
def test_a_shuffle_of_few_clients_has_the_local_epsilon(local_epsilon):
    for make in (clones_pair, third_value_pair):
        block = both(make(local_epsilon), 3)
        lower, upper = (found(block, 1, side, 1e-6) for side in (Side.LOWER, Side.UPPER))
        assert local_epsilon * (1 - 1e-6) < lower < upper <= local_epsilon * (1 + 1e-9)


def test_shuffled_epsilon_is_monotone_in_every_parameter():
    def epsilon(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
        return found(BlanketBlock(clones_pair(local_epsilon), clients), rounds, Side.UPPER, delta)

    base = epsilon(1.0, 1000, 1e-6)
    assert epsilon(1.0, 2000, 1e-6) < base < epsilon(1.1, 1000, 1e-6)
    assert epsilon(1.0, 1000, 1e-5) < base < epsilon(1.0, 1000, 1e-6, 2)


def test_a_pair_that_no_randomizer_attains_has_no_lower_curve():
    block = BlanketBlock(clones_pair(1.0), 10)
    for ask in (
        lambda: block.curve(Direction.ADD, Side.LOWER, 1e-6, 0),
        lambda: block.curves(Side.LOWER, 1e-6, 0),
    ):
        with pytest.raises(UnsupportedError, match="no lower bound is known"):
            ask()


def test_a_shuffle_with_separate_pairs_for_upper_and_lower_bound_has_both_bounds():
    block = BlanketBlock(stronger_clones_pair(1.0), 10**5, third_value_pair(1.0))
    assert hash(block) == hash(
        BlanketBlock(stronger_clones_pair(1.0), 10**5, third_value_pair(1.0))
    )
    lower, upper = (found(block, 1, side, 1e-6) for side in (Side.LOWER, Side.UPPER))
    assert lower == pytest.approx(0.01092, rel=1e-3)
    assert upper == pytest.approx(0.01243, rel=1e-3)
    with pytest.raises(ParameterError):
        BlanketBlock(clones_pair(1.0), 0)


def test_a_lower_curve_made_of_chords_is_detected(mutate):
    """A mutant: lower values joined by chords, which lie above the curve between nodes."""

    def chords(nodes, values, slopes):
        return blanket.upper_polygon(nodes, values)

    mutate(blanket, "_under_tangents", chords)
    pair = third_value_pair(1.2)
    ks = np.exp(np.linspace(0.0, 1.2, 60))
    truths = np.array([pair_delta(pair, 4, float(k)) for k in ks])
    values = both(pair, 4).curve(Direction.ADD, Side.LOWER, 0.05, 0).delta(ks)
    assert (values > truths * (1 + 1e-6)).any()


def test_shuffle_curves_of_both_directions_are_equal():
    block = both(hadamard_pair(0.5), 100)
    for side in Side:
        add, remove = (block.curve(d, side, 1e-3, 0) for d in Direction)
        assert epsilon_at(add, 1e-3, side) == epsilon_at(remove, 1e-3, side)
