"""The parts of the k-subset bounds: ranges, moments, payoffs, levels, tilted tails, grouping."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.accounting.divergence.curves import BestCurve, Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair, hockey_stick, reverse_hockey_stick
from turnout.accounting.participation.k_subset import ChordCurve, levels_that_fit, multiset_curve
from turnout.accounting.participation.k_subset_conditional import (
    ChernoffTail,
    ConditionalBound,
    MomentCells,
    StatisticRange,
    conditional_moments,
    grouping,
    hockey_stick_bound,
    largest_ratios,
    overlap_chances,
    reverse_hockey_stick_bound,
    smallest_ratios,
)
from turnout.accounting.participation.k_subset_levels import (
    RatioBounds,
    SubsetProblem,
    levels_for_hockey_sticks,
    levels_for_reverse_hockey_sticks,
    valley,
)
from turnout.accounting.participation.k_subset_statistic import BinSum, bin_masses, largest_ratio
from turnout.core.errors import NumericalError


def subset_mean(x, picks):
    products = [math.prod(chosen) for chosen in itertools.combinations(x, picks)]
    return math.fsum(products) / len(products)


GROUPS = [(3, 2), (4, 2), (5, 4), (6, 3)]


@pytest.mark.parametrize(("groups", "picks"), GROUPS)
@pytest.mark.parametrize("scale", [0.05, 0.7, 20.0])
def test_the_subset_mean_of_random_ratios_stays_in_its_range(groups, picks, scale):
    """Random values, many of them at an end of their range, keep S within its range."""
    generator = np.random.default_rng(groups)
    ranges = StatisticRange(scale, 0.2, 6.0)
    x = generator.uniform(0.2, 6.0, (4000, groups)) ** generator.uniform(0.2, 2.0, (4000, 1))
    x = np.clip(x, 0.2, 6.0)
    x[generator.random(x.shape) < 0.25], x[generator.random(x.shape) < 0.25] = 0.2, 6.0
    s = np.array([subset_mean(row, picks) for row in x])
    statistic = np.log1p(scale * x).sum(axis=1)
    order = np.argsort(statistic)
    s, statistic = s[order], statistic[order]
    least = smallest_ratios(statistic, ranges, groups, picks)
    low = least < 1.0  # the bound is precise only there
    assert np.all(s <= largest_ratios(statistic, scale, groups, picks))
    assert np.all(s >= least)
    assert np.min(s[low] / least[low]) < 1.3


@pytest.mark.parametrize(("groups", "picks"), GROUPS)
def test_extremal_ratios_reach_the_ends_of_the_range(groups, picks):
    """S is largest with equal values and zeros, smallest with all values but one at an end."""
    scale = 0.5
    for positive in range(picks, groups + 1):
        x = [2.0] * positive + [0.0] * (groups - positive)
        statistic = np.array([sum(math.log1p(scale * value) for value in x)])
        assert largest_ratios(statistic, scale, groups, picks)[0] >= subset_mean(x, picks)
    ranges = StatisticRange(scale, 0.1, 3.0)
    x = [3.0] * (picks - 1) + [0.5] + [0.1] * (groups - picks)
    statistic = np.array([sum(math.log1p(scale * value) for value in x)])
    smallest = smallest_ratios(statistic, ranges, groups, picks)[0]
    assert 0.0 < smallest <= subset_mean(x, picks)


def test_the_overlap_of_two_random_subsets_is_hypergeometric():
    chances = overlap_chances(6, 3)
    counts = [0] * 4
    for subset in itertools.combinations(range(6), 3):
        counts[len({0, 1, 2} & set(subset))] += 1
    assert chances == pytest.approx([count / 20 for count in counts], rel=1e-15)


@pytest.mark.parametrize(("groups", "picks"), [(3, 2), (4, 1), (4, 3), (5, 2), (4, 4)])
def test_conditional_moments_agree_with_enumeration(groups, picks):
    levels, masses = np.array([0.2, 0.9, 2.0, 3.1]), np.array([0.4, 0.3, 0.2, 0.1])
    cells = conditional_moments(levels, masses, groups, picks, 3 * groups + 1)
    wanted = np.zeros((3, 3 * groups + 1))
    for index in itertools.product(range(4), repeat=groups):
        s = subset_mean(levels[list(index)], picks)
        wanted[:, sum(index)] += math.prod(masses[list(index)]) * np.array([1.0, s, s * s])
    for got, expected in zip((cells.mass, cells.first, cells.second), wanted, strict=True):
        assert np.all(np.abs(got / expected - 1) <= cells.rounding)
    short = conditional_moments(levels, masses, groups, picks, 5)
    assert short.second == pytest.approx(cells.second[:5], rel=1e-13)


@pytest.mark.parametrize("picks", [0, 2])
def test_the_chernoff_bound_is_above_the_tail_of_the_statistic(picks):
    levels, masses = np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.375, 0.0625])
    tail = ChernoffTail.of(levels, masses, 6, picks)
    cells = conditional_moments(levels, masses, 6, max(picks, 1), 13)
    values = cells.first if picks else cells.mass
    for cell in range(13):
        assert values[cell:].sum() <= tail.mass(cell) * (1 + 1e-12)
    assert tail.mass(13) == 0.0
    assert values[tail.cells(math.log(1e-3)) :].sum() <= 1e-3


@given(
    values=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=6),
    weights=st.lists(st.floats(1e-6, 1.0), min_size=6, max_size=6),
    threshold=st.floats(0.05, 6.0),
    margin=st.floats(0.0, 1.0),
)
def test_hockey_stick_bounds_from_moments_are_above_the_exact_hockey_sticks(
    values, weights, threshold, margin
):
    """One cell with an arbitrary distribution, given by its moments and a range."""
    s, q = np.array(values), np.array(weights[: len(values)])
    moments = (np.array([float(q @ s**power)]) for power in range(3))
    cells = MomentCells(*moments, rounding=1e-15)
    above = hockey_stick_bound(cells, np.array([s.max() * (1 + margin)]), threshold)
    below = reverse_hockey_stick_bound(cells, np.array([s.min() * (1 - margin)]), threshold)
    assert above >= float(q @ np.maximum(s - threshold, 0.0)) - 1e-15
    assert below >= float(q @ np.maximum(threshold - s, 0.0)) - 1e-15


def test_hockey_stick_bounds_from_moments_are_attained():
    """Exact without spread; two points with the threshold halfway attain Scarf's bound."""
    sure = MomentCells(np.array([0.5]), np.array([1.0]), np.array([2.0]), 0.0)
    assert hockey_stick_bound(sure, np.array([9.0]), 1.5) == pytest.approx(0.25, rel=1e-6)
    assert hockey_stick_bound(sure, np.array([2.0]), 2.0) == 0.0
    two = MomentCells(np.array([1.0]), np.array([2.0]), np.array([5.0]), 0.0)
    assert hockey_stick_bound(two, np.array([9.0]), 2.0) == pytest.approx(0.5, rel=1e-6)
    assert reverse_hockey_stick_bound(two, np.array([0.0]), 2.0) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 8])
def test_a_ratio_rounded_to_levels_has_larger_hockey_sticks(steps):
    """The levels have larger hockey sticks than the ratio, also between the levels."""
    pair = GaussianPair(0.8)
    ratio_bounds = RatioBounds.of(pair, steps, 1e-7)
    points = np.append(0.0, np.geomspace(0.05, 90.0, 300))
    k = np.geomspace(0.06, 80.0, 997)
    hockey_sticks = levels_for_hockey_sticks(ratio_bounds, points)
    loss_deviation = (
        np.maximum(hockey_sticks.levels - k[:, None], 0.0)
        @ hockey_sticks.masses
        * hockey_sticks.excess
    )
    reverse_hockey_sticks = levels_for_reverse_hockey_sticks(ratio_bounds, points[1:])
    sunk = (
        np.maximum(k[:, None] - reverse_hockey_sticks.levels, 0.0)
        @ reverse_hockey_sticks.masses
        * reverse_hockey_sticks.excess
        + k * reverse_hockey_sticks.beyond
    )
    if steps == 1:
        assert np.all(loss_deviation + hockey_sticks.beyond >= hockey_stick(pair, k) * (1 - 1e-13))
        assert np.all(sunk >= reverse_hockey_stick(pair, k) * (1 - 1e-13))
        assert np.all(loss_deviation <= 1.05 * hockey_stick(pair, k) + 1e-3)
    else:
        assert np.all(
            loss_deviation + hockey_sticks.beyond
            >= ratio_bounds.hockey_sticks(k) * (1 - 1e-2) - 1e-9
        )
    assert hockey_sticks.excess < 1 + 1e-9
    assert float(hockey_sticks.masses @ hockey_sticks.levels) * hockey_sticks.excess >= 1.0


def test_invalid_hockey_sticks_are_refused():
    """Hockey sticks that belong to no distribution, one of them NaN."""

    class Broken(RatioBounds):
        def hockey_sticks(self, points):
            return np.where(points > 2.0, np.nan, np.maximum(1.0 - points, 0.0))

    with pytest.raises(NumericalError):
        levels_for_hockey_sticks(Broken((), ()), np.linspace(0.0, 4.0, 9))


@pytest.mark.parametrize("tilt", [0.0, 0.3, 2.0])
def test_tail_bounds_by_exponential_tilting_bracket_the_exact_convolution(tilt):
    first, second = np.array([0.5, 0.25, 0.0, 0.2, 0.05]), np.array([0.1, 0.6, 0.3])
    product = BinSum((first, second), (5, 7))
    distribution = np.ones(1)
    for part in [first] * 5 + [second] * 7:
        distribution = np.convolve(distribution, part)
    exact = np.cumsum(distribution[::-1])[::-1]
    low, high = product.edges(tilt)
    start, size = math.floor(low), 2 * math.ceil((high - low) / 2 + 1)
    bins = start + np.arange(size)
    inside = (bins >= 0) & (bins < distribution.size)
    lower = product.tails(tilt, start, size, upper=False).bounds[inside]
    upper = product.tails(tilt, start, size, upper=True).bounds[inside]
    truth = exact[bins[inside]]
    assert np.all(lower <= truth)
    assert np.all(truth <= upper)
    typical = np.abs(bins[inside] - product.moments(tilt).mean) < 4
    assert np.all(upper[typical] - lower[typical] < 1e-10 * truth[typical])


def test_exponential_tilts_reach_the_requested_mean_and_tail():
    product = BinSum((np.array([0.5, 0.3, 0.2]),), (100,))
    assert product.moments(product.tilt_to_mean(90.0)).mean == pytest.approx(90.0, rel=1e-6)
    assert product.tilt_to_mean(10.0) == 0.0
    distribution = np.ones(1)
    for _ in range(100):
        distribution = np.convolve(distribution, product.distributions[0])
    mean = product.moments(product.tilt_to_tail(math.log(1e-8))).mean
    assert 0.5e-8 < distribution[math.ceil(mean) :].sum() < 2e-8


def test_bin_probabilities_bracket_the_exact_probabilities():
    pair, edges = GaussianPair(0.7), np.geomspace(0.01, 100.0, 60)
    low, high = bin_masses(pair.q_below(edges), pair.q_above(edges))
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 40
    tails = [mpmath.ncdf((mpmath.log(float(x)) + pair.mu**2 / 2) / pair.mu) for x in edges]
    truth = np.diff([mpmath.mpf(0), *tails, mpmath.mpf(1)])
    assert all(a <= b <= c for a, b, c in zip(low, truth, high, strict=True))
    assert np.all(high - low < 1e-12)


def test_the_requested_probability_lies_above_the_largest_kept_ratio():
    pair = GaussianPair(1.0)
    cap = largest_ratio(pair, 1e-6)
    assert float(pair.p_above(np.array(cap))) == pytest.approx(1e-6, rel=1e-4)


@given(st.integers(2, 100_000), st.integers(1, 200), st.integers(0, 3))
def test_groups_of_steps_fit_into_the_window(window, picks, refinement):
    for direction in Direction:
        if picks < window:
            task = SubsetProblem(GaussianPair(1.0), window, picks, direction, 1e-6)
            groups, steps = grouping(task, refinement)
            assert picks < groups
            assert groups * steps <= window < (groups + 1) * steps


def test_an_enumeration_with_too_many_states_is_refused():
    assert math.comb(4 + levels_that_fit(4, 0) - 1, 4) <= 250_000
    assert levels_that_fit(4, 1) > levels_that_fit(4, 0)
    with pytest.raises(NumericalError, match="too many steps"):
        multiset_curve(SubsetProblem(GaussianPair(1.0), 9, 2, Direction.ADD, 1e-3), Side.LOWER, 0)


def test_the_curve_of_chords_lies_above_the_bound_and_meets_it_at_delta():
    class Smooth(ConditionalBound):
        def delta(self, k):
            return math.exp(-3.0 * math.log(k))

    empty = MomentCells(*[np.ones(1)] * 3, rounding=0.0)
    bound = Smooth(Direction.REMOVE, empty, np.ones(1), 1.0, 0.0, 0.0)
    curve = ChordCurve.of(bound, 1e-3)
    k = np.exp(np.linspace(0.0, 4.0, 50))
    assert np.all(curve.delta(k) >= k**-3.0 * (1 - 1e-12))
    root = math.exp(bound.epsilon(1e-3))
    assert float(curve.delta(np.array(root))) == pytest.approx(1e-3, rel=1e-6)
    assert np.all(np.diff(curve.slope(k)) >= 0)
    best = BestCurve(Side.UPPER, [curve, ChordCurve(np.array([1.0, 90.0]), np.array([0.3, 0.0]))])
    assert np.all(best.delta(k) == np.minimum(curve.delta(k), best.curves[1].delta(k)))
    assert float(best.slope(np.array([1.0]))[0]) == pytest.approx(-0.3 / 89)


def test_the_search_for_a_minimum_terminates():
    assert valley(lambda x: (math.log(x) - 3.0) ** 2, 1.0, 1.25) == pytest.approx(20.0, rel=0.15)
    assert valley(lambda x: -x, 1.0, 2.0) == 2.0**16


@pytest.mark.parametrize("size", [700, 1999, 5000])
def test_moments_over_many_levels_agree_with_extended_precision(size):
    """Moments of S from levels so many that products are computed in halves."""
    random = np.random.default_rng(5)
    masses = random.uniform(size=1400) ** 8 * np.exp(-0.02 * np.arange(1400))
    masses /= masses.sum()
    levels = np.linspace(0.0, 3.0, masses.size)
    cells = conditional_moments(levels, masses, 3, 2, size)
    # φ₀³, φ₁²φ₀ and (φ₂²φ₀ + 2·φ₂φ₁²)/3 in extended precision.
    zero, one, two = ((masses * levels**power).astype(np.longdouble) for power in range(3))
    pairs = np.convolve(one, one)
    second = np.convolve(np.convolve(two, two), zero) + 2 * np.convolve(two, pairs)
    truths = np.convolve(np.convolve(zero, zero), zero), np.convolve(pairs, zero), second / 3
    for found, truth in zip((cells.mass, cells.first, cells.second), truths, strict=True):
        expected = truth[:size].astype(float)
        assert found.size == min(size, truth.size)
        assert np.all(np.abs(found - expected) <= cells.rounding * expected)
