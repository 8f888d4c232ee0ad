"""One check-in with a randomizer of few likelihood ratios: exact against independent sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp
import numpy as np
import pair_truths as truths
import pytest

from turnout.accounting import price
from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import (
    DiscretePair,
    LaplacePair,
    Pair,
    PurePair,
    discrete_gaussian_pair,
    pair_of_table,
)
from turnout.accounting.divergence.sums import (
    MultinomialCurve,
    binomial_masses,
    multinomial_curve,
)
from turnout.accounting.participation.check_ins import AllocationCurve, allocation_curve
from turnout.schemes import CheckIn, PureRandomizer, Relation, Scheme


def curve(pair: Pair, window: int, direction: Direction, side: Side) -> MultinomialCurve:
    found = multinomial_curve(pair, window, direction, side)
    assert found is not None
    return found


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("epsilon0", "window", "epsilons"),
    [
        (1.0, 1000, (0.0, 0.1161, 0.1266)),
        (0.1, 10**5, (0.0, 1e-3, 2e-3)),
        (3.0, 10**7, (0.0, 0.02)),
        (0.01, 10**6, (0.0, 5e-5)),
        (8.0, 50, (0.5, 4.0)),
        (200.0, 3, (0.5, 190.0)),
    ],
)
def test_curve_of_two_values_equals_the_binomial_sum(epsilon0, window, epsilons, direction):
    k = np.exp(epsilons)
    lower, upper = (
        curve(PurePair(epsilon0), window, direction, side).delta(k)
        for side in (Side.LOWER, Side.UPPER)
    )
    for low, high, ratio in zip(lower, upper, k, strict=True):
        exact = truths.binomial_price(
            epsilon0, window, direction, float(ratio), digits=250 if epsilon0 > 50 else 40
        )
        assert low <= exact <= high
        assert high - low <= 1e-6 * float(exact)


def test_epsilon_of_a_window_equals_its_reference_value():
    scheme = Scheme(PureRandomizer(1.0), CheckIn(1000), Relation.ADD_REMOVE)
    directions = price(scheme, 1e-6).directions
    assert directions["remove"].upper == pytest.approx(0.1161, abs=5e-5)
    assert directions["add"].upper == pytest.approx(0.1266, abs=5e-5)
    for bounds in directions.values():
        assert bounds.relative_width < 1e-8


@dataclass(frozen=True)
class Unlisted:
    """A pair that does not say that its values are few."""

    pair: DiscretePair

    @property
    def second_moment(self):
        return self.pair.second_moment

    def q_below(self, k):
        return self.pair.q_below(k)

    def q_above(self, k):
        return self.pair.q_above(k)

    def p_below(self, k):
        return self.pair.p_below(k)

    def p_above(self, k):
        return self.pair.p_above(k)


def listed(pair: PurePair) -> DiscretePair:
    """The same law as a table."""
    values, masses = pair.atoms
    zero = float(masses[values == 0].sum())
    return DiscretePair(values[values > 0], masses[values > 0], zero)


THREE = pair_of_table([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])[0]
ZEROS = pair_of_table([0.5, 0.3, 0.2, 0.0], [0.2, 0.3, 0.4, 0.1])[0]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("pair", "window", "delta"),
    [
        (listed(PurePair(1.0)), 1000, 1e-6),
        (listed(PurePair(3.0)), 20, 1e-4),
        (listed(PurePair(1.0, 1e-4)), 300, 1e-6),
        (THREE, 100, 1e-6),
        (ZEROS, 100, 1e-6),
        (discrete_gaussian_pair(0.3, 1), 3, 1e-5),
    ],
)
def test_grid_bounds_agree_with_exact_bounds(pair, window, delta, direction):
    """Two methods that share nothing but the pair agree."""
    gridded, exact = {}, {}
    for side in Side:
        by_grid = allocation_curve(
            Unlisted(pair), window, direction, side, delta_hint=delta, refinement=2
        )
        assert isinstance(by_grid, AllocationCurve)
        gridded[side] = epsilon_at(by_grid, delta, side)
        exact[side] = epsilon_at(curve(pair, window, direction, side), delta, side)
    assert exact[Side.UPPER] == pytest.approx(exact[Side.LOWER], rel=1e-7)
    assert gridded[Side.LOWER] <= exact[Side.UPPER]
    assert gridded[Side.UPPER] >= exact[Side.LOWER]
    assert gridded[Side.UPPER] == pytest.approx(exact[Side.UPPER], rel=2e-3)
    assert gridded[Side.LOWER] == pytest.approx(exact[Side.LOWER], rel=0.25)


@pytest.mark.parametrize("direction", Direction)
def test_the_table_of_randomized_response_has_the_curve_of_its_pure_pair(direction):
    k = np.exp([0.0, 0.1, 0.5, 1.0])
    for pair in (PurePair(1.0), PurePair(1.0, 1e-3)):
        own = curve(pair, 40, direction, Side.UPPER).delta(k)
        table = curve(listed(pair), 40, direction, Side.UPPER).delta(k)
        np.testing.assert_allclose(own, table, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("direction", Direction)
def test_likelihood_ratio_sums_equal_to_a_threshold_are_included(direction):
    """K at a value of S, or next to it: nothing is lost between two floats."""
    fractions = [Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]
    pair = pair_of_table([0.75, 0.25], [0.25, 0.75])[0]
    distributions = truths.window_laws(*fractions, 3, Fraction(1))
    values = [3.0, 19 / 9, 11 / 9, 1.0, 9 / 11, 9 / 19]
    for value in values:
        near = value * (1.0 + np.arange(-3, 4) * 2.0**-52)
        for k in near[near >= 1.0]:
            exact = truths.hockey_stick(distributions, direction, float(k))
            low, high = (
                float(curve(pair, 3, direction, side).delta(k)) for side in (Side.LOWER, Side.UPPER)
            )
            assert Fraction(low) <= exact <= Fraction(high)
            assert high - low < 1e-9


@pytest.mark.parametrize("direction", Direction)
def test_the_slope_of_a_curve_equals_its_numerical_derivative(direction):
    both = curve(ZEROS, 12, direction, Side.UPPER)
    k, step = np.array([1.0113, 1.2345, 1.9123, 3.1234]), 1e-7
    rise = (both.delta(k + step) - both.delta(k - step)) / (2 * step)
    np.testing.assert_allclose(both.slope(k), rise, atol=1e-7)


def test_hockey_sticks_of_ratios_near_one_have_small_relative_errors():
    """Far below the spacing of floats near 1, S − 1 still has most of its digits."""
    epsilon0, window = 1e-6, 10**5
    for direction in Direction:
        k = 1.0 + 6e-9
        exact = truths.binomial_price(epsilon0, window, direction, k)
        low, high = (
            float(curve(PurePair(epsilon0), window, direction, side).delta(np.array(k)))
            for side in (Side.LOWER, Side.UPPER)
        )
        assert low <= exact <= high
        assert high - low < 1e-5 * float(exact)


def test_pairs_with_too_many_likelihood_ratios_use_grids():
    many = discrete_gaussian_pair(50.0, 50)
    for pair, window in ((LaplacePair(1.0), 5), (many, 1000), (THREE, 10**6)):
        assert multinomial_curve(pair, window, Direction.REMOVE, Side.UPPER) is None
    # Two and three values, of which one is rare, go as far as windows do.
    for pair in (PurePair(1.0), PurePair(1.0, 1e-9)):
        assert multinomial_curve(pair, 10**7, Direction.REMOVE, Side.UPPER) is not None


def test_likelihood_ratios_of_zero_with_large_mass_are_included():
    """With t·δ₀ = 20 the sum also runs over the number of zero ratios."""
    ratio, delta0, window = 2, Fraction(1, 4), 80
    pair = PurePair(math.log(ratio), float(delta0))
    with mp.workdps(40):
        large, small = (mp.mpf(x) * 4 / 3 for x in (2, 0.5))
        total = mp.mpf(0)
        for zeros in range(window + 1):
            left = window - zeros
            share = mp.binomial(window, zeros) * mp.mpf(delta0.numerator) ** zeros * 3**left
            share /= mp.mpf(4) ** window
            for high in range(left + 1):
                mass = share * mp.binomial(left, high) * mp.mpf(2) ** (left - high) / 3**left
                gain = (high * large + (left - high) * small) / window - mp.mpf(1.25)
                total += mass * max(gain, 0)
        for side in Side:
            value = float(curve(pair, window, Direction.REMOVE, side).delta(np.array(1.25)))
            assert value >= total if side is Side.UPPER else value <= total
            assert value == pytest.approx(float(total), rel=1e-8)


@pytest.mark.parametrize("trials", [1, 2, 19, 20, 64, 1000, 10**5, 10**7])
@pytest.mark.parametrize("share", [1e-6, 0.01, 0.27, 0.5, 0.9])
def test_binomial_masses_are_accurate_to_eleven_digits(trials, share):
    spread = (trials * share * (1.0 - share)) ** 0.5
    aside = spread * np.linspace(-25.0, 25.0, 9)
    counts = np.unique(np.clip(np.round(trials * share + aside), 0, trials).astype(np.int64))
    counts = np.unique(np.append(counts, [0, 1, trials]))
    found = binomial_masses(counts, np.full(counts.shape, trials), share)
    with mp.workdps(40):
        for count, mass in zip(counts.tolist(), found.tolist(), strict=True):
            ways = mp.binomial(trials, count)
            truth = ways * mp.mpf(share) ** count * (1 - mp.mpf(share)) ** (trials - count)
            if truth > 1e-290:
                assert abs(mass / truth - 1) < 1e-11


def test_with_success_probability_1_all_binomial_mass_is_on_the_number_of_trials():
    found = binomial_masses(np.array([0, 2, 3]), np.array([0, 3, 3]), 1.0)
    assert found.tolist() == [1.0, 0.0, 1.0]
