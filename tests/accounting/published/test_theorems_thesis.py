"""Chapter 2 of the thesis against brute force, dp-accounting and our own mechanisms."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from scipy.stats import norm

from turnout.accounting.published import PrivacyPoint
from turnout.accounting.published.renyi import (
    lemma_2_1_3,
    lemma_2_1_3_delta,
    lemma_2_1_4,
    lemma_2_1_5,
)
from turnout.accounting.published.results import lemma_2_1_1
from turnout.accounting.published.shuffling_rdp import corollary_5_3_1, lemma_3_3_1, theorem_5_3_3
from turnout.core.errors import ParameterError, UnsupportedError

# -- Lemma 2.1.1 ------------------------------------------------------------------------------


def response_count(records, ratio):
    """Law of the number of ones after binary response with e^ε = ``ratio``, as fractions."""
    distribution = [Fraction(1)]
    for record in records:
        one = Fraction(ratio if record else 1, ratio + 1)
        distribution = [
            (distribution[i] if i < len(distribution) else 0) * (1 - one)
            + (distribution[i - 1] * one if i else 0)
            for i in range(len(distribution) + 1)
        ]
    return distribution


def sampled(records, size, ratio):
    """Law of the same count for a uniform subset."""
    subsets = list(itertools.combinations(records, size))
    distributions = [response_count(subset, ratio) for subset in subsets]
    return [sum(column) / len(subsets) for column in zip(*distributions, strict=True)]


def largest_log_ratio(first, second):
    return max(math.log(p / q) for p, q in zip(first, second, strict=True))


def cost_of_sampling(size, population, ratio):
    """The exact ε of binary responses counted after sampling, over all neighbours."""
    found = 0.0
    for ones in range(population):
        fewer = [1] * ones + [0] * (population - ones)
        more = [1] * (ones + 1) + [0] * (population - ones - 1)
        distributions = sampled(fewer, size, ratio), sampled(more, size, ratio)
        found = max(
            found, largest_log_ratio(*distributions), largest_log_ratio(*distributions[::-1])
        )
    return found


@pytest.mark.parametrize(("size", "population"), [(1, 4), (2, 4), (3, 5), (4, 4)])
@pytest.mark.parametrize("ratio", [2, 3, 20])
def test_sampled_rounds_have_the_epsilon_of_lemma_2_1_1(size, population, ratio):
    bound = lemma_2_1_1(PrivacyPoint(math.log(ratio), 0.0), size, population).epsilon
    true = cost_of_sampling(size, population, ratio)
    assert true <= bound
    if size in (1, population):  # attained
        assert bound == pytest.approx(true, rel=1e-9)
        if size < population:  # negative control: q·ε, the order of the lemma's second sentence
            assert true > size / population * math.log(ratio)


def test_lemma_2_1_1_is_attained_by_messages_that_identify_their_sender():
    """One record of n, shown with chance δ and otherwise answered: δ' = qδ is attained."""
    n, delta, ratio = 5, Fraction(1, 7), 3
    one = [delta, (1 - delta) * Fraction(ratio, ratio + 1), (1 - delta) * Fraction(1, ratio + 1), 0]
    zero = [0, one[2], one[1], delta]
    mixed = [(one[y] + (n - 1) * zero[y]) / n for y in range(4)]
    bound = lemma_2_1_1(PrivacyPoint(math.log(ratio), float(delta)), 1, n)
    true = sum(
        max(float(p) - math.exp(bound.epsilon) * float(q), 0.0)
        for p, q in zip(mixed, zero, strict=True)
    )
    assert true == pytest.approx(bound.delta, rel=1e-9)
    assert true <= bound.delta


def test_lemma_2_1_1_refuses_samples_above_the_population():
    assert lemma_2_1_1(PrivacyPoint(1e4, 0.0), 1, 10).epsilon >= 1e4
    with pytest.raises(ParameterError, match="sampled"):
        lemma_2_1_1(PrivacyPoint(1.0, 0.0), 3, 2)
    with pytest.raises(ParameterError, match="delta"):
        lemma_2_1_1(PrivacyPoint(1.0, 1.0), 1, 2)


# -- Lemmas 2.1.3 and 2.1.4 -------------------------------------------------------------------

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0, 40.0, 100.0)


def gaussian(sigma):
    return {order: order / (2 * sigma**2) for order in ORDERS}


def gaussian_delta(sigma, epsilon):
    mu = 1 / sigma
    upper = norm.cdf(mu / 2 - epsilon / mu)
    return upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_lemma_2_1_3_equals_other_software_and_is_above_the_exact_epsilon(sigma, delta):
    curve = gaussian(sigma)
    epsilon = lemma_2_1_3(curve, delta)
    theirs, _ = rdp_privacy_accountant.compute_epsilon(ORDERS, [*curve.values()], delta)
    assert epsilon == pytest.approx(theirs, rel=1e-9)
    assert gaussian_delta(sigma, epsilon) <= delta
    other = lemma_2_1_3_delta(curve, epsilon)
    assert other == pytest.approx(delta, rel=1e-8)
    assert gaussian_delta(sigma, epsilon / 2) <= lemma_2_1_3_delta(curve, epsilon / 2)


def test_the_renyi_conversion_of_lemma_2_1_3_has_nearly_the_least_valid_delta():
    """A negative control: a little less than the lemma's δ is false for two outcomes.

    Max over t of (1 − e^{ε−t})e^{−(α−1)t}, on which the lemma rests, is attained by a law that
    has ln(α/(α−1)) + ε or nothing.
    """
    alpha, epsilon, share = 4.0, 1.0, 1e-6
    loss = epsilon + math.log(alpha / (alpha - 1))
    rest = (1 - share) / (1 - share * math.exp(-loss))
    moment = share * math.exp((alpha - 1) * loss) + (1 - share) * rest ** (alpha - 1)
    # R_α from the part of the moment that the lemma can see: what is above 1 is not lost.
    divergence = math.log(moment) / (alpha - 1)
    true = share * (1 - math.exp(epsilon - loss))
    bound = lemma_2_1_3_delta({alpha: divergence}, epsilon)
    assert true <= bound
    seen = math.log(share * math.exp((alpha - 1) * loss)) / (alpha - 1)
    assert math.exp((alpha - 1) * (seen - epsilon)) * (1 - 1 / alpha) ** alpha / (
        alpha - 1
    ) == pytest.approx(true, rel=1e-9)


def test_lemma_2_1_5_is_never_below_lemma_2_1_3():
    orders = [1 + 10 ** (k / 40) for k in range(-80, 160)]
    for slope, delta in itertools.product((1e-3, 0.1, 1.0, 20.0), (1e-9, 1e-3, 0.3)):
        curve = {order: slope * order for order in orders}
        assert lemma_2_1_3(curve, delta) <= lemma_2_1_5(slope, delta)


def renyi(first, second, order):
    total = sum(p**order * q ** (1 - order) for p, q in zip(first, second, strict=True))
    return math.log(total) / (order - 1)


def test_adaptive_composition_adds_renyi_divergences_of_the_same_order():
    rng = np.random.default_rng(5)
    first = rng.dirichlet(np.ones(3), 2)
    seconds = rng.dirichlet(np.ones(4), (3, 2))  # one pair of laws for each first answer
    for order in (1.5, 2.0, 7.0):
        each = {order: renyi(first[0], first[1], order)}
        worst = {order: max(renyi(p, q, order) for p, q in seconds)}
        joint = [(first[side][:, None] * seconds[:, side]).ravel() for side in (0, 1)]
        true = renyi(joint[0], joint[1], order)
        bound = lemma_2_1_4(each, worst)[order]
        assert true <= bound
        alike = np.outer(first[0], first[0]).ravel(), np.outer(first[1], first[1]).ravel()
        assert lemma_2_1_4(each, each)[order] == pytest.approx(renyi(*alike, order), rel=1e-12)
        assert renyi(*alike, order) > each[order]  # negative control: the larger of the two


def test_renyi_divergences_of_different_orders_are_not_added():
    assert set(lemma_2_1_4({2.0: 1.0, 3.0: 2.0}, {3.0: 1.0, 4.0: 5.0})) == {3.0}
    with pytest.raises(ParameterError, match="one of the orders"):
        lemma_2_1_4({2.0: 1.0}, {3.0: 1.0})
    for wrong in ({}, {1.0: 0.1}, {2.0: -0.1}, {2.0: math.nan}, {math.inf: 1.0}):
        with pytest.raises(ParameterError, match="divergences"):
            lemma_2_1_3(wrong, 1e-5)


# -- Lemma 3.3.1 ------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "clients"), [(0.2, 10**4), (1.0, 10**6), (2.0, 10**8)])
def test_lemma_3_3_1_is_above_corollary_5_3_1_and_theorem_5_3_3(level, clients):
    ours, exact = lemma_3_3_1(level, clients), corollary_5_3_1(level, clients)
    assert ours.largest_order == exact.largest_order
    for order in {2, (2 + ours.largest_order) // 2, ours.largest_order}:
        bound = ours.divergence(order)
        printed = 2 * order * math.expm1(level) ** 2 / clients
        assert bound == pytest.approx(printed, rel=1e-9)
        assert theorem_5_3_3(level, clients).divergence(order) <= exact.divergence(order) <= bound
    with pytest.raises(ParameterError, match="order"):
        ours.divergence(ours.largest_order + 1)


def test_lemma_3_3_1_outside_its_condition_is_below_the_divergence_of_binary_response():
    """ε₀ = 3, n = 1000, α = 32: the printed form is below what binary response attains."""
    with pytest.raises(UnsupportedError, match="leaves no order"):
        lemma_3_3_1(3.0, 1000)
    slope = 2 * math.expm1(3.0) ** 2 / 1000
    printed = math.log1p(32 * 31 * slope) / 31
    assert printed < theorem_5_3_3(3.0, 1000).divergence(32)
