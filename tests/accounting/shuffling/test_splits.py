"""Splits of shuffled bits: exact distributions, the supremum, and mutants."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from response_truths import binary_delta
from scipy.stats import binom

from turnout.accounting.shuffling import binary_response
from turnout.accounting.shuffling.binary_response import split_prices, worst_split

LOCAL_EPSILONS = st.floats(0.02, 8.0)
SHARES = st.floats(0.0, 0.999)
# The truth is itself a sum of rounded terms.
SLACK, FLOOR = 1e-11, 1e-15


@settings(max_examples=120, deadline=None)
@given(LOCAL_EPSILONS, SHARES, st.integers(0, 70))
def test_bounds_of_every_split_enclose_its_exact_delta(local_epsilon, share, others):
    epsilon = local_epsilon * share**2
    ones = np.arange(others + 1)
    prices = split_prices(local_epsilon, ones, others - ones, np.array(math.exp(epsilon)))
    truths = np.array([binary_delta(local_epsilon, j, others - j, epsilon) for j in ones])
    assert np.all(prices.lower <= truths * (1 + SLACK) + FLOOR)
    assert np.all(prices.upper >= truths * (1 - SLACK) - FLOOR)
    assert np.all(prices.upper - prices.lower <= 1e-8 * truths + FLOOR)


@settings(max_examples=60, deadline=None)
@given(LOCAL_EPSILONS, SHARES, st.integers(0, 40), st.sampled_from([0.0, 0.01, 0.1]))
def test_the_bound_over_all_splits_is_slightly_above_the_worst_split(
    local_epsilon, share, others, tolerance
):
    epsilon = local_epsilon * share**2
    lower, upper = worst_split(local_epsilon, others, math.exp(epsilon), tolerance)
    truth = max(binary_delta(local_epsilon, j, others - j, epsilon) for j in range(others + 1))
    assert lower <= truth * (1 + SLACK) + FLOOR
    assert upper >= truth * (1 - SLACK) - FLOOR
    assert upper <= lower * (1 + tolerance + 1e-8) + FLOOR


@pytest.mark.parametrize(("ones", "zeros"), [(0, 2500), (2500, 0), (700, 1800)])
@pytest.mark.parametrize("local_epsilon", [0.5, 3.0])
def test_bounds_for_thousands_of_clients_agree_with_exact_distributions(local_epsilon, ones, zeros):
    for epsilon in (0.0, 0.05, 0.2, 0.3):
        truth = binary_delta(local_epsilon, ones, zeros, epsilon)
        prices = split_prices(
            local_epsilon, np.array(ones), np.array(zeros), np.array(math.exp(epsilon))
        )
        assert float(prices.lower) == pytest.approx(truth, rel=1e-8, abs=1e-15)
        assert float(prices.upper) == pytest.approx(truth, rel=1e-8, abs=1e-15)


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "epsilon"),
    [(2.0, 10**6, 0.009), (0.5, 10**6, 0.0015), (4.0, 10**6, 0.03), (1.0, 10**7, 0.001)],
)
def test_delta_of_a_million_clients_agrees_with_two_binomial_tails(local_epsilon, clients, epsilon):
    """With identical other records the best event is a tail of m, with threshold ratio c₂/c₁."""
    q, k, m = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon), clients - 1
    p = q * math.exp(-local_epsilon)
    ratio = (k * q - p) / (q - k * p) * q / p
    t = math.ceil((m + 1) * ratio / (1 + ratio)) - 1
    truth = max(
        (q - k * p) * binom.pmf(u, m, q) - (k - 1) * binom.sf(u, m, q) for u in (t - 1, t, t + 1)
    )
    prices = split_prices(local_epsilon, np.array(m), np.array(0), np.array(k))
    assert float(prices.lower) == pytest.approx(truth, rel=1e-7)
    assert float(prices.upper) == pytest.approx(truth, rel=1e-7)


def test_tiny_deltas_of_splits_have_small_relative_errors():
    local_epsilon, m, epsilon = 1.0, 300, 0.85
    with mpmath.workdps(60):
        q = 1 / (1 + mpmath.exp(-mpmath.mpf(local_epsilon)))
        k = mpmath.exp(mpmath.mpf(epsilon))
        distribution = [mpmath.binomial(m, u) * q**u * (1 - q) ** (m - u) for u in range(m + 1)]
        distribution = [mpmath.mpf(0), *distribution, mpmath.mpf(0)]
        first, second = q - k * (1 - q), k * q - (1 - q)
        gains = [first * distribution[c] - second * distribution[c + 1] for c in range(m + 2)]
        truth = float(mpmath.fsum(gain for gain in gains if gain > 0))
    prices = split_prices(local_epsilon, np.array(m), np.array(0), np.array(math.exp(epsilon)))
    assert truth < 1e-30
    assert float(prices.lower) <= truth <= float(prices.upper)
    assert float(prices.upper) == pytest.approx(float(prices.lower), rel=1e-9)


@pytest.mark.parametrize("k", [1.0, 1.3, 2.4])
def test_the_slope_of_the_bound_is_its_derivative(k):
    step = 1e-6
    here, there = (split_prices(1.0, np.array(9), np.array(4), np.array(x)) for x in (k, k + step))
    slope = (float(there.lower) - float(here.lower)) / step
    assert float(here.slope) == pytest.approx(slope, rel=1e-4)


def test_delta_is_zero_at_the_local_epsilon():
    at, near = np.array(math.exp(2.0) * (1 + 1e-14)), np.array(math.exp(2.0) * (1 - 1e-12))
    assert float(split_prices(2.0, np.array(5), np.array(5), at).upper) == 0.0
    prices = split_prices(2.0, np.array(5), np.array(0), near)
    assert 0.0 <= float(prices.lower) <= float(prices.upper) < 1e-11


def test_a_bound_that_treats_undecided_bits_as_known_is_detected_as_too_small(monkeypatch):
    """A mutant: the bound of an interval of splits is that of its first split."""
    honest = binary_response.split_prices

    def narrow(local_epsilon, ones, zeros, k):
        return honest(local_epsilon, ones, 23 - np.asarray(ones), k)

    truth = max(binary_delta(1.0056, j, 23 - j, 0.412) for j in range(24))
    assert worst_split(1.0056, 23, math.exp(0.412), 0.5)[1] >= truth
    monkeypatch.setattr(binary_response, "split_prices", narrow)
    assert worst_split(1.0056, 23, math.exp(0.412), 0.5)[1] < 0.95 * truth


def test_a_maximum_over_the_two_extreme_splits_is_too_small():
    """A mutant: the larger of the two extreme splits, though another split may be the worst."""
    truth = max(binary_delta(3.2, j, 23 - j, 0.001) for j in range(24))
    ends = split_prices(3.2, np.array([0, 23]), np.array([23, 0]), np.array(math.exp(0.001)))
    assert float(ends.upper.max()) < 0.85 * truth


def test_a_bound_smaller_than_its_rounding_error_is_refused():
    many = np.array(10**14)
    prices = split_prices(1.0, many, np.array(0), np.array(1.0))
    assert math.isinf(float(prices.upper))
    # Any event is a lower bound: here the first-order value of the largest mass.
    p, q = 1 / (1 + math.e), math.e / (1 + math.e)
    first_order = (q - p) / math.sqrt(2 * math.pi * p * q * 10**14)
    assert float(prices.lower) == pytest.approx(first_order, rel=1e-2)
    assert float(prices.lower) <= first_order
    assert math.isinf(worst_split(1.0, 10**14, 1.0, 0.1)[1])
