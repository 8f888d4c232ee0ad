"""Feldman and Shenfeld's theorems against brute force and quadrature, and cases outside them."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import product

import allocation_forms
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair, PurePair
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.accounting.published import random_allocation
from turnout.accounting.published.renyi import RenyiCurve
from turnout.core.errors import ParameterError, UnsupportedError


def partitions(total, largest):
    if total == 0:
        yield []
    for first in range(min(total, largest), 0, -1):
        for rest in partitions(total - first, first):
            yield [first, *rest]


def theorem_4_6_by_partitions(moment, order, window):
    """The sum over integer partitions as the paper means it (its binomials are multinomials)."""
    total = mpmath.mpf(0)
    for partition in partitions(order, order):
        if len(partition) > window:
            continue
        places = mpmath.factorial(window) / mpmath.factorial(window - len(partition))
        for value in set(partition):
            places /= mpmath.factorial(partition.count(value))
        ways = mpmath.factorial(order)
        for part in partition:
            ways = ways / mpmath.factorial(part) * moment(part)
        total += places * ways
    return total / mpmath.mpf(window) ** order


def true_epsilon(sigma, window, delta):
    """A proved lower bound on ε in the remove direction."""
    curve = allocation_curve(
        GaussianPair(sigma), window, Direction.REMOVE, Side.LOWER, delta_hint=delta, refinement=1
    )
    return epsilon_at(curve, delta, Side.LOWER)


@pytest.mark.parametrize("window", [1, 2, 3, 10, 1000, 10**7])
def test_theorem_4_6_agrees_with_the_sum_over_partitions(window):
    sigma, local = 0.8, 1.3
    gauss = random_allocation.corollary_4_7(sigma, window, largest_order=9)
    moments = allocation_forms.randomized_response_log_moments(local, 9)
    response = random_allocation.theorem_4_6(moments, window)
    flip = 1 / (1 + mpmath.exp(local))
    for order in range(2, 10):
        exact = mpmath.log(
            theorem_4_6_by_partitions(
                lambda p: mpmath.exp(p * (p - 1) / (2 * mpmath.mpf(sigma) ** 2)), order, window
            )
        )
        assert 0 <= gauss.log_moments[order] - exact <= 1e-10 * (1 + exact)
        exact = mpmath.log(
            theorem_4_6_by_partitions(
                lambda p: flip * mpmath.exp(p * local) + (1 - flip) * mpmath.exp(-p * local),
                order,
                window,
            )
        )
        assert 0 <= response.log_moments[order] - exact <= 1e-10 * (1 + exact)


def test_theorem_4_6_agrees_with_quadrature_of_two_steps():
    sigma, order = 0.9, 5
    scores, weights = np.polynomial.hermite_e.hermegauss(120)
    ratio = np.exp(scores / sigma - 0.5 / sigma**2)
    average = (ratio[:, None] + ratio) / 2
    distribution = np.multiply.outer(weights, weights) / (2 * math.pi)
    expected = math.log(float((distribution * average**order).sum()))
    curve = random_allocation.corollary_4_7(sigma, 2, largest_order=order)
    assert curve.log_moments[order] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("window", [10, 10**4, 10**7])
def test_the_renyi_divergence_of_order_two_has_its_closed_form(window):
    curve = random_allocation.corollary_4_7(1.5, window, largest_order=64)
    exact = mpmath.log1p(mpmath.expm1(1 / mpmath.mpf(1.5) ** 2) / window)
    assert 0 <= curve.log_moments[2] - exact <= 1e-10


def test_renyi_divergences_of_high_order_agree_with_high_precision():
    window, sigma, order = 1000, 2.0, 60
    with mpmath.workdps(60):
        series = [
            mpmath.exp(p * (p - 1) / mpmath.mpf(8)) / mpmath.factorial(p) for p in range(order + 1)
        ]
        # h = f^t by n·f₀·hₙ = Σ (k t − n + k) fₖ hₙ₋ₖ.
        power = [mpmath.mpf(1)]
        for n in range(1, order + 1):
            terms = ((k * window - n + k) * series[k] * power[n - k] for k in range(1, n + 1))
            power.append(mpmath.fsum(terms) / n)
        exact = mpmath.log(power[order] * mpmath.factorial(order) / mpmath.mpf(window) ** order)
    curve = random_allocation.corollary_4_7(sigma, window, largest_order=order)
    assert 0 <= curve.log_moments[order] - exact <= 1e-7


def test_renyi_divergences_at_real_orders_lie_above_the_exact_ones():
    curve = RenyiCurve(random_allocation.gaussian_log_moments(1.0, 8))
    for order in (1.01, 1.5, 2.0, 2.25, 7.9):
        assert curve.divergence(order) >= order / 2 - 1e-12
    assert curve.divergence(3) == pytest.approx(1.5)
    for order in (1.0, 8.5):
        with pytest.raises(ParameterError, match="order"):
            curve.divergence(order)


def test_renyi_conversion_equals_the_published_formula():
    orders = [1.5, 2, 3, 8, 20]
    curve = random_allocation.corollary_4_7(1.0, 20, largest_order=20)
    divergences = [curve.divergence(order) for order in orders]
    for delta in (1e-3, 1e-6):
        theirs, _ = compute_epsilon(orders, divergences, delta)
        assert curve.epsilon(delta) <= theirs + 1e-9
    alone = RenyiCurve(np.array([0.0, 0.0, 1.0]))
    assert alone.epsilon(1e-6) == pytest.approx(compute_epsilon([2], [1.0], 1e-6)[0])


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 5.0), st.integers(1, 5000), st.floats(1e-12, 0.1))
def test_epsilon_and_delta_of_a_renyi_curve_are_inverse_functions(sigma, window, delta):
    curve = random_allocation.corollary_4_7(sigma, window, largest_order=32)
    epsilon = curve.epsilon(delta)
    if epsilon > 0:
        assert curve.delta(epsilon) == pytest.approx(delta, rel=1e-6)
    assert curve.composed(3).epsilon(delta) >= epsilon


CELLS = [(1.0, 1000, 1e-6), (0.6, 100, 1e-5), (2.0, 10_000, 1e-8), (1.0, 64, 1e-6), (3.0, 10, 1e-4)]


@pytest.mark.parametrize(("sigma", "window", "delta"), CELLS)
def test_published_bounds_are_never_below_the_exact_epsilon(sigma, window, delta):
    truth, pair = true_epsilon(sigma, window, delta), GaussianPair(sigma)
    assert random_allocation.corollary_4_7(sigma, window).epsilon(delta) >= truth
    assert allocation_forms.dong_2025(sigma, window, 1).epsilon(delta) >= truth
    assert random_allocation.theorem_4_1(pair, window, delta) >= truth
    for bound in (allocation_forms.theorem_3_2, allocation_forms.theorem_3_2_by_variance):
        try:
            assert bound(pair, window, delta) >= truth
        except UnsupportedError as error:
            assert "does not apply" in str(error)  # noqa: PT017


def test_theorem_4_1_is_within_its_stated_factor_of_the_exact_epsilon():
    for window, sigma in ((1000, 1.0), (200, 3.0)):
        truth = true_epsilon(sigma, window, 1e-6)
        assert truth < random_allocation.theorem_4_1(GaussianPair(sigma), window, 1e-6) < 2 * truth


def test_theorem_3_2_is_close_to_exact_for_large_noise_and_many_steps():
    pair, delta = GaussianPair(4.0), 1e-6
    truth = true_epsilon(4.0, 10_000, delta)
    sinh = allocation_forms.theorem_3_2(pair, 10_000, delta)
    variance = allocation_forms.theorem_3_2_by_variance(pair, 10_000, delta)
    printed = allocation_forms.theorem_3_2_as_printed(pair, 10_000, delta, 1.8)
    assert truth < variance < sinh < printed
    assert variance < 1.2 * truth
    with pytest.raises(UnsupportedError, match="does not apply"):
        allocation_forms.theorem_3_2(pair, 10, delta)
    with pytest.raises(UnsupportedError, match="does not apply"):
        allocation_forms.theorem_3_2_by_variance(pair, 10, delta)
    with pytest.raises(UnsupportedError, match="no delta is left"):
        allocation_forms.theorem_3_2_as_printed(pair, 10_000, delta, 0.5)


def test_simulated_sums_exceed_the_rate_of_theorem_3_2_as_rarely_as_stated():
    """Σ(1 − Xⱼ) ≤ γt throughout, on simulated paths, and not by a wide margin."""
    generator = np.random.default_rng(7)
    window, pair, chance = 2000, GaussianPair(2.0), 0.1
    ratios = np.exp(generator.standard_normal((4000, window)) / 2 - 1 / 8)
    worst = np.maximum.accumulate(np.cumsum(1 - ratios, axis=1), axis=1)[:, -1]
    rate = -math.log(chance) / window
    variance = pair.second_moment - 1
    gamma = rate / 3 + math.sqrt(rate**2 / 9 + 2 * variance * rate)
    # 4,000 paths: a true chance of 0.1 gives more than 520 with probability below 1e-9.
    assert (worst > gamma * window).sum() <= binom.isf(1e-9, 4000, chance)
    assert (worst > gamma / 2 * window).sum() > binom.isf(1e-9, 4000, chance)


def test_corollary_3_12_for_gaussian_noise_is_above_the_exact_epsilon():
    bound = allocation_forms.corollary_3_12_gaussian(40.0, 100, 1e-4)
    assert bound >= true_epsilon(40.0, 100, 1e-4)
    with pytest.raises(UnsupportedError, match="noise multiplier above"):
        allocation_forms.corollary_3_12_gaussian(20.0, 100, 1e-4)
    with pytest.raises(ParameterError, match="multiple"):
        allocation_forms.corollary_3_12_gaussian(60.0, 100, 1e-4, picks=3)


def test_published_epsilon_rises_with_the_number_of_picks():
    pair = GaussianPair(4.0)
    costs = [
        allocation_forms.theorem_3_2_by_variance(pair, 10_000, 1e-6, picks) for picks in (1, 2, 5)
    ]
    assert costs == sorted(costs)
    assert random_allocation.corollary_3_12(pair, 10_000, 1e-6, 2) > costs[1]


@cache
def response_law(local, window):
    """Exact laws of two-valued randomized response: P and Q of the number of ones, as fractions."""
    growth = Fraction(math.exp(local))
    flip = 1 / (1 + growth)
    absent, present = [], []
    for ones in range(window + 1):
        mass = math.comb(window, ones) * flip**ones * (1 - flip) ** (window - ones)
        ratio = (ones * growth + (window - ones) / growth) / window
        absent.append(mass)
        present.append(mass * ratio)
    return present, absent


def hockey_stick(first, second, epsilon):
    k = Fraction(math.exp(epsilon))
    return float(sum(max(a - k * b, Fraction(0)) for a, b in zip(first, second, strict=True)))


def poisson_delta(local, window, rate, epsilon):
    """Remove direction of t Poisson steps of randomized response, all 2^t views."""
    growth = math.exp(local)
    flip = 1 / (1 + growth)
    total = 0.0
    for view in product((0, 1), repeat=window):
        masses = [flip if v else 1 - flip for v in view]
        ratios = [1 - rate + rate * (growth if v else 1 / growth) for v in view]
        total += math.prod(masses) * max(math.prod(ratios) - math.exp(epsilon), 0.0)
    return total


def test_theorems_4_1_and_4_6_do_not_cover_the_add_direction():
    local, window, epsilon = 3.0, 5, 2.0
    present, absent = response_law(local, window)
    remove = hockey_stick(present, absent, epsilon)
    add = hockey_stick(absent, present, epsilon)
    assert remove == pytest.approx(0.0179, abs=5e-5)
    assert add == pytest.approx(0.496, abs=5e-4)
    # Theorem 4.1, by brute force.
    taken = 1 - (1 - 1 / window) ** window
    inner = math.log1p(taken * math.expm1(epsilon))
    decomposed = poisson_delta(local, window, 1 / window, inner) / taken
    assert remove <= decomposed < 0.7 * add
    # Theorem 4.1 says that this ε would do at δ = 0.35. Both directions together need more.
    promised = random_allocation.theorem_4_1(PurePair(local), window, 0.35)
    assert promised < epsilon
    assert hockey_stick(absent, present, promised) > 0.35 > hockey_stick(present, absent, promised)
    # Theorem 4.6.
    moments = allocation_forms.randomized_response_log_moments(local, 40)
    renyi = random_allocation.theorem_4_6(moments, window).delta(epsilon)
    assert remove <= renyi < 0.7 * add
    for result in random_allocation.RESULTS:
        assert result.directions == ("remove",)


def test_theorem_4_1_conditions_poisson_sampling_on_at_least_one_participation():
    window, local, rate, delta = 6, 2.0, 0.3, 0.01

    def poisson(_, rate, steps, delta):
        low, high = 0.0, steps * local
        for _ in range(60):
            middle = (low + high) / 2
            above = poisson_delta(local, steps, rate, middle) > delta
            low, high = (middle, high) if above else (low, middle)
        return high

    epsilon = random_allocation.theorem_4_1(None, window, delta, rate, poisson=poisson)
    taken = 1 - (1 - rate) ** window
    inner = math.log1p(taken * math.expm1(epsilon))
    assert poisson_delta(local, window, rate, inner) / taken == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("local", "window"), [(0.5, 4), (1.0, 8), (3.0, 5), (2.0, 10)])
def test_theorem_4_6_is_above_the_delta_of_randomized_response(local, window):
    present, absent = response_law(local, window)
    moments = allocation_forms.randomized_response_log_moments(local, 80)
    curve = random_allocation.theorem_4_6(moments, window)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert curve.delta(epsilon) >= hockey_stick(present, absent, epsilon)


@pytest.mark.parametrize(("window", "picks"), [(4, 1), (5, 2), (6, 3), (4, 4)])
def test_the_bound_of_dong_et_al_equals_its_published_table(window, picks):
    sigma = 1.2
    exact = allocation_forms.dong_2025_exact(sigma, window, picks, 4)
    bound = allocation_forms.dong_2025(sigma, window, picks, 4)
    blocks = random_allocation.corollary_4_7(sigma, window, picks, 4)
    assert bound.log_moments[2] == pytest.approx(exact.log_moments[2])
    assert np.all(bound.log_moments >= exact.log_moments - 1e-10)
    assert np.all(blocks.log_moments >= exact.log_moments - 1e-10)
    if picks == 1:
        assert exact.log_moments == pytest.approx(blocks.log_moments)
    if picks == window:
        orders = np.arange(5)
        full = picks * orders * (orders - 1) / (2 * sigma**2)
        assert exact.log_moments == pytest.approx(full)
        assert bound.log_moments == pytest.approx(full)


def test_the_bound_of_dong_et_al_is_looser_for_few_picks_and_tighter_for_many():
    few, many = ((1024, 4), (1024, 500))
    for window, picks in (few, many):
        theirs = allocation_forms.dong_2025(1.0, window, picks, 64).epsilon(1e-6)
        blocks = random_allocation.corollary_4_7(1.0, window, picks, 64).epsilon(1e-6)
        assert (blocks < theirs) == ((window, picks) == few)


def test_the_bound_of_dong_et_al_is_exact_for_long_windows():
    window, picks = 10**7, 100
    curve = allocation_forms.dong_2025(1.0, window, picks, 2)
    with mpmath.workdps(40):
        distribution = [
            mpmath.binomial(picks, j) * mpmath.binomial(window - picks, picks - j) * mpmath.exp(j)
            for j in range(picks + 1)
        ]
        exact = mpmath.log(mpmath.fsum(distribution) / mpmath.binomial(window, picks))
    assert 0 <= curve.log_moments[2] - exact <= 1e-11


def test_a_window_with_too_many_subsets_is_refused():
    with pytest.raises(UnsupportedError, match="too many"):
        allocation_forms.dong_2025_exact(1.0, 100, 3, 4)


def test_invalid_renyi_moments_are_refused():
    with pytest.raises(ParameterError, match="log_moments"):
        random_allocation.theorem_4_6(np.array([0.0, 0.5, 1.0]), 3)
    with pytest.raises(ParameterError, match="log_moments"):
        RenyiCurve(np.zeros(2))


def test_theorem_4_1_is_far_below_epsilon_without_amplification():
    pair = GaussianPair(1.0)
    alone = epsilon_at(PairCurve(pair, Direction.REMOVE, Side.LOWER), 1e-6, Side.LOWER)
    assert random_allocation.theorem_4_1(pair, 1000, 1e-6) < alone / 5
    assert random_allocation.theorem_4_1(pair, 1, 1e-6) == pytest.approx(alone, rel=1e-6)
