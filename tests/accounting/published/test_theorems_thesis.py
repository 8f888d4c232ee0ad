"""Chapters 2 and 3 of the thesis against brute force, dp-accounting and our own mechanisms."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from scipy.stats import norm

from turnout.accounting.published import (
    PrivacyPoint,
    mean_lower_bounds,
    rdp_conversion,
    subsampling,
)
from turnout.accounting.published.mean_lower_bounds import (
    theorem_3_4_3,
    theorem_3_4_3_order_as_printed,
    theorem_3_6_3,
    theorem_3_6_3_order_as_printed,
    theorem_3_6_4_order_as_printed,
    theorem_3_6_4_pure,
)
from turnout.accounting.published.rdp_conversion import (
    lemma_2_1_3,
    lemma_2_1_3_delta,
    lemma_2_1_4,
    lemma_2_1_5,
)
from turnout.accounting.published.shuffling_rdp import (
    corollary_5_3_1,
    lemma_3_3_1,
    theorem_5_3_3,
)
from turnout.accounting.published.subsampling import lemma_2_1_1
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, PrivUnit

# -- Lemma 2.1.1 ------------------------------------------------------------------------------


def response_count(records, ratio):
    """Law of the number of ones after binary response with e^ε = ``ratio``, as fractions."""
    law = [Fraction(1)]
    for record in records:
        one = Fraction(ratio if record else 1, ratio + 1)
        law = [
            (law[i] if i < len(law) else 0) * (1 - one) + (law[i - 1] * one if i else 0)
            for i in range(len(law) + 1)
        ]
    return law


def sampled(records, size, ratio):
    """Law of the same count for a uniform subset."""
    subsets = list(itertools.combinations(records, size))
    laws = [response_count(subset, ratio) for subset in subsets]
    return [sum(column) / len(subsets) for column in zip(*laws, strict=True)]


def largest_log_ratio(first, second):
    return max(math.log(p / q) for p, q in zip(first, second, strict=True))


def cost_of_sampling(size, population, ratio):
    """The exact ε of binary responses counted after sampling, over all neighbours."""
    found = 0.0
    for ones in range(population):
        fewer = [1] * ones + [0] * (population - ones)
        more = [1] * (ones + 1) + [0] * (population - ones - 1)
        laws = sampled(fewer, size, ratio), sampled(more, size, ratio)
        found = max(found, largest_log_ratio(*laws), largest_log_ratio(*laws[::-1]))
    return found


@pytest.mark.parametrize(("size", "population"), [(1, 4), (2, 4), (3, 5), (4, 4)])
@pytest.mark.parametrize("ratio", [2, 3, 20])
def test_sampling_costs_what_lemma_2_1_1_says(size, population, ratio):
    bound = lemma_2_1_1(PrivacyPoint(math.log(ratio), 0.0), size, population).epsilon
    true = cost_of_sampling(size, population, ratio)
    assert true <= bound
    if size in (1, population):  # attained
        assert bound == pytest.approx(true, rel=1e-9)
        if size < population:  # negative control: q·ε, the order of the lemma's second sentence
            assert true > size / population * math.log(ratio)


def test_lemma_2_1_1_keeps_delta_where_somebody_leaks():
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


def test_lemma_2_1_1_refuses_more_than_there_are():
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
def test_lemma_2_1_3_is_what_others_compute_and_above_the_truth(sigma, delta):
    curve = gaussian(sigma)
    epsilon = lemma_2_1_3(curve, delta)
    theirs, _ = rdp_privacy_accountant.compute_epsilon(ORDERS, [*curve.values()], delta)
    assert epsilon == pytest.approx(theirs, rel=1e-9)
    assert gaussian_delta(sigma, epsilon) <= delta
    other = lemma_2_1_3_delta(curve, epsilon)
    assert other == pytest.approx(delta, rel=1e-8)
    assert gaussian_delta(sigma, epsilon / 2) <= lemma_2_1_3_delta(curve, epsilon / 2)


def test_the_conversion_is_close_to_attained():
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


def test_adaptive_composition_adds_divergences_of_one_order():
    rng = np.random.default_rng(5)
    first = rng.dirichlet(np.ones(3), 2)
    seconds = rng.dirichlet(np.ones(4), (3, 2))  # one pair of laws for each first answer
    for order in (1.5, 2.0, 7.0):
        each = {order: renyi(*first, order)}
        worst = {order: max(renyi(p, q, order) for p, q in seconds)}
        joint = [(first[side][:, None] * seconds[:, side]).ravel() for side in (0, 1)]
        true = renyi(*joint, order)
        bound = lemma_2_1_4(each, worst)[order]
        assert true <= bound
        alike = np.outer(first[0], first[0]).ravel(), np.outer(first[1], first[1]).ravel()
        assert lemma_2_1_4(each, each)[order] == pytest.approx(renyi(*alike, order), rel=1e-12)
        assert renyi(*alike, order) > each[order]  # negative control: the larger of the two


def test_orders_do_not_mix():
    assert set(lemma_2_1_4({2.0: 1.0, 3.0: 2.0}, {3.0: 1.0, 4.0: 5.0})) == {3.0}
    with pytest.raises(ParameterError, match="one of the orders"):
        lemma_2_1_4({2.0: 1.0}, {3.0: 1.0})
    for wrong in ({}, {1.0: 0.1}, {2.0: -0.1}, {2.0: math.nan}, {math.inf: 1.0}):
        with pytest.raises(ParameterError, match="divergences"):
            lemma_2_1_3(wrong, 1e-5)


# -- Lemma 3.3.1 ------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "clients"), [(0.2, 10**4), (1.0, 10**6), (2.0, 10**8)])
def test_lemma_3_3_1_lies_above_the_corollary_and_what_is_attained(level, clients):
    ours, exact = lemma_3_3_1(level, clients), corollary_5_3_1(level, clients)
    assert ours.largest_order == exact.largest_order
    for order in {2, (2 + ours.largest_order) // 2, ours.largest_order}:
        bound = ours.divergence(order)
        printed = 2 * order * math.expm1(level) ** 2 / clients
        assert bound == pytest.approx(printed, rel=1e-9)
        assert theorem_5_3_3(level, clients).divergence(order) <= exact.divergence(order) <= bound
    with pytest.raises(ParameterError, match="order"):
        ours.divergence(ours.largest_order + 1)


def test_lemma_3_3_1_needs_its_condition():
    """ε₀ = 3, n = 1000, α = 32: the printed form is below what binary response attains."""
    with pytest.raises(UnsupportedError, match="leaves no order"):
        lemma_3_3_1(3.0, 1000)
    slope = 2 * math.expm1(3.0) ** 2 / 1000
    printed = math.log1p(32 * 31 * slope) / 31
    assert printed < theorem_5_3_3(3.0, 1000).divergence(32)


# -- Theorems 3.4.3, 3.6.3 and 3.6.4 ----------------------------------------------------------

LEVELS = (0.1, math.log(3), 2.0, 8.0)


@pytest.mark.parametrize("epsilon", LEVELS)
@pytest.mark.parametrize("dimension", [1, 8, 300])
def test_no_mechanism_of_ours_lies_below_the_local_bounds(epsilon, dimension):
    n = 1000
    l1 = L1Randomizer(dimension, epsilon).worst_squared_error
    assert theorem_3_4_3(epsilon, dimension, n) <= l1 / n
    assert theorem_3_4_3(epsilon, dimension, n, norm=1.5) <= l1 / n
    samples = min(dimension, max(1, round(epsilon)))
    linf = LInfRandomizer(dimension, epsilon, samples=samples).worst_squared_error
    assert theorem_3_6_3(epsilon, dimension, n, norm=math.inf) <= linf / n
    if dimension > 1:
        l2 = PrivUnit(dimension, epsilon).worst_squared_error
        assert theorem_3_6_3(epsilon, dimension, n) <= l2 / n
        assert theorem_3_4_3(epsilon, dimension, n, norm=1.5) <= l2 / n


@pytest.mark.parametrize("epsilon", [0.1, 0.7, math.log(3)])
def test_the_l1_randomizer_attains_the_bound_at_unit_vectors(epsilon):
    """Negative control too: a constant 1e-6 larger would be false."""
    randomizer = L1Randomizer(7, epsilon)
    reached = randomizer.squared_error(np.vstack([np.eye(7), -np.eye(7)])).mean()
    assert theorem_3_4_3(randomizer.epsilon0, 7, 1) == pytest.approx(reached, rel=1e-9)


def least_error(channel, points, weights):
    """Least mean E‖y − x‖² of an unbiased y(message), messages by ``channel[x, y]``."""
    root = np.sqrt(weights @ channel)
    decoded = np.linalg.pinv(channel / root) @ points
    assert np.allclose(channel / root @ decoded, points)
    return float((decoded**2).sum() - weights @ (points**2).sum(1))


def random_channel(rng, inputs, epsilon):
    """Randomized response on random functions of the input, a public coin saying which."""
    functions, answers, ratio = 24, int(rng.integers(2, 4)), math.exp(epsilon)
    said = rng.integers(0, answers, (functions, inputs))
    likely = said[:, :, None] == np.arange(answers)
    each = np.where(likely, ratio, 1.0) / (ratio + answers - 1)
    return np.concatenate(list(each), axis=1) / functions


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 4.0])
def test_the_best_decoder_of_any_channel_obeys_the_bounds(epsilon):
    """Brute force: random channels, each with the best unbiased decoder there is."""
    rng = np.random.default_rng(11)
    for dimension in (1, 2, 3):
        for p, points in (
            (1.0, np.vstack([np.eye(dimension), -np.eye(dimension)])),
            (math.inf, np.array(list(itertools.product((-1.0, 1.0), repeat=dimension)))),
        ):
            weights = np.full(len(points), 1 / len(points))
            bound = theorem_3_4_3 if p < 2 else theorem_3_6_3
            for _ in range(20):
                channel = random_channel(rng, len(points), epsilon)
                reached = least_error(channel, points, weights)
                assert bound(epsilon, dimension, 1, norm=p) <= reached * (1 + 1e-9)


def kary_error(ratio, values):
    """Exact worst E|y − x|² of one of so many values in [−1, 1] by k-ary response, rounded."""
    high, low = Fraction(ratio, ratio + values - 1), Fraction(1, ratio + values - 1)
    squares = sum((Fraction(2 * i, values - 1) - 1) ** 2 for i in range(values))
    gap = high - low
    return 1 / gap + low * squares / gap**2 - 1 + Fraction(1, (values - 1) ** 2)


def test_the_printed_orders_hold_with_no_constant():
    """d = 1, ε₀ = 20 (e^{ε₀} rounded down): exact errors far below the printed orders."""
    assert kary_error(3, 2) == 4  # binary response: coth²(ε₀/2) at x = 0
    ratio = math.floor(math.exp(20.0))
    errors = [kary_error(math.floor(math.exp(level)), 512) for level in (16.0, 18.0, 20.0)]
    assert errors[2] == kary_error(ratio, 512)
    small = [
        float(error) / theorem_3_4_3_order_as_printed(level, 1, 1)
        for error, level in zip(errors, (16.0, 18.0, 20.0), strict=True)
    ]
    assert small[0] > small[1] > small[2]
    assert small[2] < 0.0022
    assert float(errors[2]) / theorem_3_6_3_order_as_printed(20.0, 1, 1) < 1.1e-4
    assert theorem_3_4_3(20.0, 1, 1) <= errors[2]
    assert theorem_3_6_3(20.0, 1, 1) <= errors[2]


def test_the_printed_orders_hold_where_the_errata_say_so():
    for epsilon, dimension in itertools.product((0.01, 0.3, 1.0), (1, 2, 50)):
        order = theorem_3_4_3_order_as_printed(epsilon, dimension, 10)
        assert theorem_3_4_3(epsilon, dimension, 10) >= 3 * order * (1 - 1e-9)
    for epsilon, dimension in itertools.product((0.01, 0.5, 1.0, 2.0, 9.0), (4, 8, 50)):
        if min(epsilon, epsilon**2) <= dimension / 4:
            order = theorem_3_6_3_order_as_printed(epsilon, dimension, 10, norm=3.0)
            assert theorem_3_6_3(epsilon, dimension, 10, norm=3.0) >= order / 4


def test_laplace_noise_beats_the_printed_central_order_but_not_ours():
    """(ε, 0) is (ε, δ) for every δ, so ln(1/δ) cannot be in a bound for all δ."""
    n, epsilon = 100, 0.5
    laplace = 2 * (2 / (n * epsilon)) ** 2  # E of Lap(2/(nε))², values in [−1, 1]
    order = theorem_3_6_4_order_as_printed(epsilon, 1e-40, 1, n, bits=1e9)
    assert laplace < 0.09 * order
    for level in (0.01, 0.5, 1.0, 5.0, 20.0):
        assert theorem_3_6_4_pure(level, 1, n) <= 2 * (2 / (n * level)) ** 2
    assert theorem_3_6_4_order_as_printed(epsilon, 1e-5, 100, n, bits=10) == pytest.approx(
        100 / n**2 * max(math.log(1e5) / epsilon**2, 10)
    )


def test_the_pure_central_bound_is_that_of_two_points():
    """d = 1: no unbiased law on a grid, e^ε-close at neighbours, has less variance (n = 1)."""
    from scipy.optimize import linprog

    epsilon, grid = 1.0, np.linspace(-12, 12, 241)
    # laws P of x = −1 and Q of x = 1, means −1 and 1, within a factor e^ε of each other
    size, ratio = grid.size, math.exp(epsilon)
    eye = np.eye(size)
    close = np.vstack([np.hstack([eye, -ratio * eye]), np.hstack([-ratio * eye, eye])])
    ones, none = np.ones(size), np.zeros(size)
    equal = np.vstack([np.r_[ones, none], np.r_[none, ones], np.r_[grid, none], np.r_[none, grid]])
    worst = np.r_[(grid + 1) ** 2, none]
    found = linprog(worst, close, np.zeros(2 * size), equal, [1, 1, -1, 1], method="highs")
    assert found.status == 0
    bound = theorem_3_6_4_pure(epsilon, 1, 1)
    assert bound <= found.fun
    assert found.fun < 1.02 * bound  # attained at this one data set: no larger constant is proved


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (theorem_3_4_3, {"epsilon0": 1.0, "dimension": 2, "clients": 3, "norm": 2.0}),
        (theorem_3_6_3, {"epsilon0": 1.0, "dimension": 2, "clients": 3, "norm": 1.9}),
        (theorem_3_6_3, {"epsilon0": math.nan, "dimension": 2, "clients": 3}),
        (theorem_3_4_3, {"epsilon0": 700.0, "dimension": 2, "clients": 3}),
        (theorem_3_6_4_pure, {"epsilon": 1.0, "dimension": 0, "clients": 3}),
    ],
)
def test_outside_of_its_range_a_bound_refuses(function, arguments):
    with pytest.raises(ParameterError):
        function(**arguments)


def test_a_large_level_proves_nothing_instead_of_less_than_nothing():
    assert theorem_3_4_3(50.0, 3, 10) == 0.0
    assert theorem_3_6_3(50.0, 3, 10) == 0.0
    assert len({r.name for m in MODULES for r in m.RESULTS}) == 12


MODULES = (mean_lower_bounds, rdp_conversion, subsampling)
