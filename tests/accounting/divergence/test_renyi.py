"""Rényi divergences from privacy curves: against closed forms, enumeration and quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from discrete_blocks import TwoOutcomes, response
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.polynomial.hermite_e import hermegauss

from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.divergence.renyi import (
    RenyiBounds,
    block_renyi,
    divergence_bound,
    run_renyi,
)
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.core.errors import NumericalError, ParameterError

ORDERS = (1.25, 1.5, 2.0, 3.0, 5.0, 9.0, 33.0)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 20.0])
def test_the_renyi_divergence_of_gaussian_noise_is_exact(sigma):
    found = block_renyi(PairBlock(GaussianPair(sigma)), ORDERS, 1e-9)
    exact = [order / (2 * sigma**2) for order in ORDERS]
    assert found.left_out == 0
    for values in (found.remove, found.add):
        assert values == pytest.approx(exact, rel=1e-14)
        assert all(a >= b for a, b in zip(values, exact, strict=True))


@pytest.mark.parametrize("block", [response(0.2), response(2.0), TwoOutcomes(0.1, 0.001)])
def test_renyi_bounds_of_two_outcome_mechanisms_are_slightly_above_exact_divergences(block):
    found = block_renyi(block, ORDERS, 1e-12)
    assert found.left_out < 1e-12
    for direction in Direction:
        exact = [block.divergence(order, direction) for order in ORDERS]
        values = found.of(direction)
        assert all(a >= b for a, b in zip(values, exact, strict=True))
        assert values == pytest.approx(exact, rel=2e-3)


def gaussian_averages(sigma: float, window: int, probability: float, order: float):
    """E_Q[S^α] and E_Q[S^(1−α)] of a diluted average of two or three ratios, by quadrature."""
    nodes, weights = hermegauss(90)
    ratios = np.exp(nodes / sigma - 0.5 / sigma**2)
    average = sum(np.meshgrid(*[ratios] * window)) / window
    chance = math.prod(np.meshgrid(*[weights / weights.sum()] * window))
    diluted = 1 - probability + probability * average
    return [float((chance * diluted**power).sum()) for power in (order, 1 - order)]


@pytest.mark.parametrize(("sigma", "window", "probability"), [(1.0, 2, 1.0), (2.0, 3, 0.4)])
def test_renyi_bounds_of_check_ins_agree_with_quadrature_in_both_directions(
    sigma, window, probability
):
    orders = (1.25, 1.5, 2.0, 3.0)
    found = block_renyi(AllocationBlock(GaussianPair(sigma), window, probability), orders, 1e-12)
    for i, order in enumerate(orders):
        exact = [
            math.log(moment) / (order - 1)
            for moment in gaussian_averages(sigma, window, probability, order)
        ]
        assert (found.remove[i], found.add[i]) == pytest.approx(exact, rel=1e-3)
        # What is cut off is worth less than the grid adds.
        assert found.remove[i] >= exact[0] * (1 - 1e-6)
        assert found.add[i] >= exact[1] * (1 - 1e-6)


def partitions(total: int, largest: int):
    if total == 0:
        yield ()
    for part in range(min(total, largest), 0, -1):
        for rest in partitions(total - part, part):
            yield (part, *rest)


def theorem_4_6(sigma: float, window: int, order: int) -> float:
    """E_Q[S^α] by the sum over integer partitions, as printed."""
    total = 0.0
    for parts in partitions(order, order):
        if len(parts) > window:
            continue
        counts = [len(list(group)) for _, group in itertools.groupby(parts)]
        slots = math.factorial(window) / math.factorial(window - len(parts))
        arrangements = slots / math.prod(math.factorial(count) for count in counts)
        multinomial = math.factorial(order) / math.prod(math.factorial(part) for part in parts)
        moments = math.prod(math.exp(part * (part - 1) / (2 * sigma**2)) for part in parts)
        total += arrangements * multinomial * moments
    return total / window**order


@pytest.mark.parametrize(("sigma", "window"), [(1.0, 64), (2.0, 50), (1.0, 150)])
def test_renyi_bounds_of_check_ins_agree_with_theorem_4_6(sigma, window):
    orders = (2.0, 3.0, 5.0)
    found = block_renyi(AllocationBlock(GaussianPair(sigma), window), orders, 1e-11)
    exact = [math.log(theorem_4_6(sigma, window, int(a))) / (a - 1) for a in orders]
    assert found.remove == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.01), (3.0, 0.3)])
def test_renyi_bounds_of_poisson_sampling_agree_with_dp_accounting_at_low_orders(sigma, rate):
    # dp-accounting gives the remove direction, which is the larger one (Mironov, Talwar & Zhang
    # 2019, Theorem 5).
    orders = (2.0, 3.0, 5.0)
    found = block_renyi(PairBlock(GaussianPair(sigma), rate), orders, 1e-13)
    theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(rate, sigma, orders)
    assert found.remove == pytest.approx(list(np.atleast_1d(theirs)), rel=1e-3)
    assert all(a <= b for a, b in zip(found.add, found.remove, strict=True))


def test_a_larger_left_out_probability_lowers_divergences_of_high_order():
    block = AllocationBlock(GaussianPair(1.0), 100)
    little, much = (block_renyi(block, ORDERS, cut) for cut in (1e-11, 1e-7))
    assert little.left_out <= 1e-11
    assert much.left_out <= 1e-7
    assert much.remove[-1] < 0.6 * little.remove[-1]
    assert much.remove[2] == pytest.approx(little.remove[2], rel=1e-2)


def test_sums_and_repetitions_of_divergences_are_rounded_up():
    one = RenyiBounds((2.0, 4.0), (0.1, 0.3), (0.2, 0.4), 1e-9)
    thrice = 3 * one
    again = one + one + one
    for values, wanted in ((thrice.remove, (0.3, 0.9)), (thrice.add, (0.6, 1.2))):
        assert all(a >= b for a, b in zip(values, wanted, strict=True))
        assert values == pytest.approx(wanted, rel=1e-15)
    assert again.remove == pytest.approx(thrice.remove, rel=1e-15)
    assert thrice.left_out == pytest.approx(3e-9)
    assert 0 * one == RenyiBounds.zero((2.0, 4.0))
    assert RenyiBounds.from_dict(one.to_dict()) == one
    run = [(PairBlock(GaussianPair(1.0)), 3)]
    assert run_renyi(run, (2.0,), 1e-6).remove == pytest.approx((3.0,))


def test_the_left_out_probability_of_a_run_is_divided_among_its_blocks():
    run = [(AllocationBlock(GaussianPair(2.0), 10), 4), (AllocationBlock(GaussianPair(1.0), 9), 1)]
    assert 0 < run_renyi(run, (2.0,), 1e-8).left_out <= 1e-8


def test_hockey_sticks_on_one_side_of_ratio_1_do_not_bound_the_renyi_divergence():
    """The sum needs hockey-stick divergences at ratios on both sides of 1."""
    block, order = response(1.0), 3.0
    losses = np.linspace(-2.0, 2.0, 4001)
    points = np.exp(losses)
    prices = block.curves(Side.UPPER, 1e-9, 0).price_and_slope(Direction.REMOVE, points)[0]
    exact = block.divergence(order, Direction.REMOVE)
    assert divergence_bound(losses, prices, order) >= exact
    for half in (points < 1, points >= 1):
        assert divergence_bound(losses, np.where(half, prices, 0.0), order) < 0.95 * exact
    below = prices * (1 - 0.05)
    assert divergence_bound(losses, below, order) < exact


@pytest.mark.parametrize("orders", [(), (1.0, 2.0), (3.0, 2.0), (2.0, math.inf), (math.nan,)])
def test_renyi_orders_that_are_not_increasing_and_above_one_are_refused(orders):
    with pytest.raises(ParameterError, match="orders"):
        block_renyi(response(1.0), orders, 1e-9)


def test_invalid_divergences_are_refused():
    with pytest.raises(NumericalError):
        RenyiBounds((2.0,), (math.nan,), (0.1,))
    with pytest.raises(ParameterError):
        RenyiBounds((2.0, 3.0), (0.1,), (0.1, 0.2))
    with pytest.raises(ParameterError, match="orders"):
        _ = RenyiBounds.zero((2.0,)) + RenyiBounds.zero((3.0,))
