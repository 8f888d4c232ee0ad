"""Published Rényi bounds on shuffles: on the stated side of exact sums; search over orders."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import binom, norm
from shuffled_renyi.divergence import blanket_renyi

from turnout.accounting.published import renyi, shuffling_rdp
from turnout.accounting.published.renyi import RenyiCurve, RenyiFormula
from turnout.accounting.published.shuffling_rdp import log_excess
from turnout.accounting.shuffling.blanket_pairs import stronger_clones_pair
from turnout.core.errors import ParameterError, UnsupportedError

UPPER = (shuffling_rdp.efm19_remark_1, shuffling_rdp.theorem_5_3_1, shuffling_rdp.theorem_5_3_2)


def divergence(one: np.ndarray, other: np.ndarray, order: float) -> float:
    """R_α of two laws over the same events."""
    some = (one > 0) & (other > 0)
    logs = order * np.log(one[some]) + (1 - order) * np.log(other[some])
    return float(logsumexp(logs)) / (order - 1)


def two_valued(local_epsilon: float, clients: int, ones: int) -> tuple[np.ndarray, np.ndarray]:
    """How many ones binary response sends, the victim's record a one or a zero."""
    p = 1 / (math.exp(local_epsilon) + 1)
    others = np.convolve(
        binom.pmf(np.arange(ones + 1), ones, 1 - p),
        binom.pmf(np.arange(clients - ones), clients - 1 - ones, p),
    )
    zero = np.append((1 - p) * others, 0) + np.append(0, p * others)
    one = np.append(p * others, 0) + np.append(0, (1 - p) * others)
    return one, zero


def third_value(local_epsilon: float, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for 3-ary response where all others hold the third value."""
    e = math.exp(local_epsilon)
    mean = clients / (e + 2)
    width = 14 * math.sqrt(mean) + 30
    counts = np.arange(
        max(0, math.floor(mean - width)), min(clients, math.ceil(mean + width)) + 1.0
    )
    a, b = (grid.ravel() for grid in np.meshgrid(counts, counts))
    inside = a + b <= clients
    a, b = a[inside], b[inside]
    c = clients - a - b
    # The blanket law of all messages, and what one of them being the victim's makes of it.
    distribution = gammaln(clients + 1) - gammaln(a + 1) - gammaln(b + 1) - gammaln(c + 1)
    distribution = np.exp(distribution - clients * math.log(e + 2) + c * local_epsilon)
    return distribution * (a * e + b + c / e) / clients, distribution * (
        a + b * e + c / e
    ) / clients


def printed_5_4(local_epsilon: float, clients: int, order: int) -> mpmath.mpf:
    """(5.4), by mpmath."""
    e = mpmath.exp(local_epsilon)
    hidden = mpmath.floor((clients - 1) / (2 * e)) + 1
    total = 1 + mpmath.binomial(order, 2) * (e - 1) ** 2 / (hidden * e)
    ratio = (e**2 - 1) ** 2 / (2 * e**2 * hidden)
    for i in range(3, order + 1):
        total += (
            mpmath.binomial(order, i)
            * i
            * mpmath.gamma(mpmath.mpf(i) / 2)
            * ratio ** (mpmath.mpf(i) / 2)
        )
    total += mpmath.exp(local_epsilon * order - (clients - 1) / (8 * e))
    return mpmath.log(total) / (order - 1)


def printed_5_9(local_epsilon: float, clients: int, order: int) -> mpmath.mpf:
    """(5.9), by mpmath."""
    e = mpmath.exp(local_epsilon)
    p = 1 / (e + 1)
    total = 1 + mpmath.binomial(order, 2) * (e - 1) ** 2 / (clients * e)
    for i in range(3, order + 1):
        moment = mpmath.fsum(
            mpmath.binomial(clients, k) * p**k * (1 - p) ** (clients - k) * (k - clients * p) ** i
            for k in range(clients + 1)
        )
        total += mpmath.binomial(order, i) * ((e**2 - 1) / (clients * e)) ** i * moment
    return mpmath.log(total) / (order - 1)


@pytest.mark.parametrize("order", [2, 3, 7, 40, 300])
@pytest.mark.parametrize(("epsilon0", "clients"), [(0.1, 50), (0.5, 10**4), (2.0, 10**6)])
def test_theorem_5_3_1_equals_equation_5_4_rounded_up(epsilon0, clients, order):
    with mpmath.workdps(50):
        exact = printed_5_4(epsilon0, clients, order)
        found = shuffling_rdp.theorem_5_3_1(epsilon0, clients).divergence(order)
        assert exact <= found <= exact * (1 + mpmath.mpf(10) ** -9)


@pytest.mark.parametrize("order", [2, 3, 6, 15])
@pytest.mark.parametrize(("epsilon0", "clients"), [(0.01, 20), (0.5, 60), (3.0, 60)])
def test_theorem_5_3_3_equals_equation_5_9_rounded_down(epsilon0, clients, order):
    with mpmath.workdps(60):
        exact = printed_5_9(epsilon0, clients, order)
        found = shuffling_rdp.theorem_5_3_3(epsilon0, clients).divergence(order)
        assert exact * (1 - mpmath.mpf(10) ** -8) <= found <= exact


def test_theorem_5_3_2_equals_its_formula_at_whole_and_real_orders():
    e, clients = math.exp(1.0), 10**4
    hidden = math.floor((clients - 1) / (2 * e)) + 1
    for order in (1.3, 2.0, 17.5):
        exact = math.exp(order**2 * (e - 1) ** 2 / hidden)
        exact = math.log(exact + math.exp(order - (clients - 1) / (8 * e))) / (order - 1)
        found = shuffling_rdp.theorem_5_3_2(1.0, clients).divergence(order)
        assert exact <= found * (1 + 1e-14)
        assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("epsilon0", [0.05, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("clients", [1, 2, 10, 100, 1000])
def test_renyi_bounds_enclose_the_divergence_of_binary_response(epsilon0, clients):
    one, zero = two_valued(epsilon0, clients, 0)
    for order in (2, 3, 8, 32):
        attained = divergence(one, zero, order)
        back = divergence(zero, one, order)
        for bound in UPPER:
            assert bound(epsilon0, clients).divergence(order) >= max(attained, back) * (1 - 1e-9)
        lower = shuffling_rdp.theorem_5_3_3(epsilon0, clients).divergence(order)
        assert lower == pytest.approx(attained, rel=1e-6, abs=1e-12)
        assert lower <= attained + 1e-12
        assert shuffling_rdp.corollary_5_3_2(epsilon0, clients).divergence(order) <= lower * (
            1 + 1e-8
        )


@pytest.mark.parametrize(("epsilon0", "clients"), [(0.5, 12), (2.0, 12), (2.0, 60)])
def test_upper_renyi_bounds_are_above_the_divergences_of_binary_and_ternary_response(
    epsilon0, clients
):
    pairs = [two_valued(epsilon0, clients, ones) for ones in range(clients)]
    pairs.append(third_value(epsilon0, clients))
    for order in (2, 5, 20):
        worst = max(divergence(x, y, order) for pair in pairs for x, y in (pair, pair[::-1]))
        for bound in UPPER:
            assert bound(epsilon0, clients).divergence(order) >= worst


@pytest.mark.parametrize(
    ("epsilon0", "ratio"), [(0.5, 0.904), (1.0, 1.15), (2.0, 1.58), (4.0, 1.95)]
)
def test_binary_response_is_not_the_worst_case_for_epsilon0_above_ln_2(epsilon0, ratio):
    """Against Remark 5.3.7."""
    clients = 4000
    attained = shuffling_rdp.theorem_5_3_3(epsilon0, clients).divergence(2)
    one, other = third_value(epsilon0, clients)
    assert divergence(one, other, 2) / attained == pytest.approx(ratio, abs=0.02)
    if epsilon0 > math.log(2):
        # As an upper bound on all randomizers Theorem 5.3.3 would fail; ours does not.
        assert divergence(one, other, 2) > attained
        assert shuffling_rdp.theorem_5_3_1(epsilon0, clients).divergence(2) > divergence(
            one, other, 2
        )


def test_corollary_5_3_1_equals_its_formula_and_is_refused_outside_its_range():
    bound = shuffling_rdp.corollary_5_3_1(0.5, 10**6)
    assert bound.largest_order**4 * math.exp(2.5) < 10**6 / 9
    assert (bound.largest_order + 1) ** 4 * math.exp(2.5) >= 10**6 / 9
    for order in range(2, bound.largest_order + 1):
        expected = math.log1p(order * (order - 1) * 2 * math.expm1(0.5) ** 2 / 10**6) / (order - 1)
        assert bound.divergence(order) == pytest.approx(expected, rel=1e-9)
        assert bound.divergence(order) > shuffling_rdp.theorem_5_3_1(0.5, 10**6).divergence(order)
    with pytest.raises(ParameterError, match="order"):
        bound.divergence(bound.largest_order + 1)
    with pytest.raises(UnsupportedError, match="no order"):
        shuffling_rdp.corollary_5_3_1(1.0, 1000)


def test_corollary_5_3_1_beyond_its_range_is_below_the_exact_divergence():
    # The mutant: no range. Binary response at α = 32, ε₀ = 3, n = 1000.
    log_claim = math.log1p(32 * 31 * 2 * math.expm1(3.0) ** 2 / 1000)
    assert log_claim / 31 < shuffling_rdp.theorem_5_3_3(3.0, 1000).divergence(32)


def test_lemma_3_3_2_within_its_range_is_above_the_divergence_of_the_stronger_clones_pair():
    for epsilon0, clients in ((0.2, 500), (1.0, 500), (2.0, 1000)):
        bound = shuffling_rdp.lemma_3_3_2(epsilon0, clients)
        pair = stronger_clones_pair(epsilon0)
        for order in {2, bound.largest_order}:
            truth = blanket_renyi(pair, clients, (order,)).remove[0]
            assert bound.divergence(order) > truth
        with pytest.raises(ParameterError, match="order"):
            bound.divergence(bound.largest_order + 1)
    with pytest.raises(UnsupportedError, match="no order"):
        shuffling_rdp.lemma_3_3_2(3.0, 1000)


@pytest.mark.parametrize("order", [1.01, 1.5, 2.5, 7.3])
def test_renyi_bounds_at_real_orders_lie_on_the_chord_between_whole_orders(order):
    bound = shuffling_rdp.theorem_5_3_1(1.0, 10**4)
    low, high = math.floor(order), math.ceil(order)
    a = high - order
    below = (low - 1) * bound.divergence(low) if low > 1 else 0.0
    expected = (a * below + (1 - a) * (high - 1) * bound.divergence(high)) / (order - 1)
    assert bound.divergence(order) == pytest.approx(expected, rel=1e-9)
    one, zero = two_valued(1.0, 500, 0)
    assert shuffling_rdp.theorem_5_3_1(1.0, 500).divergence(order) > divergence(one, zero, order)


@pytest.mark.parametrize("order", [1, 0.5, math.nan, 2**17])
def test_invalid_renyi_orders_are_refused(order):
    with pytest.raises(ParameterError, match="order"):
        shuffling_rdp.theorem_5_3_1(1.0, 100).divergence(order)


def test_the_search_for_the_best_order_agrees_with_trying_all_orders():
    for epsilon0, clients, rounds, delta in (
        (1.0, 10**4, 1, 1e-6),
        (0.5, 10**4, 100, 1e-8),
        (3.0, 10**4, 20, 1e-2),
    ):
        bound = shuffling_rdp.theorem_5_3_1(epsilon0, clients).composed(rounds)
        logs = [bound.divergence(order) * (order - 1) for order in range(2, 401)]
        listed = RenyiCurve(np.array([0.0, 0.0, *logs]))
        assert bound.epsilon(delta) == pytest.approx(listed.epsilon(delta), rel=2e-4)
        epsilon = listed.epsilon(delta)
        assert bound.delta(epsilon) == pytest.approx(listed.delta(epsilon), rel=5e-3)
        assert listed.divergence(7) == pytest.approx(bound.divergence(7), rel=1e-12)


def test_renyi_divergences_add_under_composition():
    bound = shuffling_rdp.theorem_5_3_1(0.5, 10**6)
    assert bound.composed(10).composed(100).divergence(5) == pytest.approx(
        1000 * bound.divergence(5), rel=1e-9
    )
    assert f"{bound.composed(1000).epsilon(1e-8):.3g}" == "0.17"
    assert bound.composed(1000).epsilon(1e-8) == pytest.approx(0.1702, abs=5e-5)


def test_a_linear_renyi_curve_has_the_epsilon_of_gaussian_noise():
    # R_α = ασ⁻²/2: the best order is known.
    bound = RenyiFormula(lambda orders: (orders - 1) * orders * 0.02, real_orders=True)
    grid = np.arange(1.01, 60, 0.001)
    values = grid * 0.02 + np.log1p(-1 / grid) - (math.log(1e-6) + np.log(grid)) / (grid - 1)
    assert bound.epsilon(1e-6) == pytest.approx(values.min(), rel=1e-4)
    assert bound.epsilon(1e-6) >= values.min()


def test_a_lower_renyi_bound_has_no_epsilon_or_delta():
    lower = shuffling_rdp.theorem_5_3_3(0.5, 10**4)
    assert not hasattr(lower, "epsilon")
    assert not hasattr(lower, "delta")
    figure = lower.composed(10).smallest_provable_epsilon(1e-6)
    assert 0 < figure < shuffling_rdp.theorem_5_3_1(0.5, 10**4).composed(10).epsilon(1e-6)
    with pytest.raises(ParameterError, match="order"):
        lower.divergence(2.5)


def test_the_lower_renyi_bound_is_continuous_where_its_summation_changes():
    # All counts are summed up to 4,096; windows beyond must not miss what matters.
    for order in (2, 50, 3000):
        at = [shuffling_rdp.theorem_5_3_3(1.0, n).divergence(order) for n in (4096, 4097)]
        assert at[1] == pytest.approx(at[0], rel=1e-3)
        assert at[1] < at[0]


def test_lemma_2_1_5_needs_delta_below_1_over_e():
    def true_delta(epsilon: float, rho: float) -> float:
        mu = math.sqrt(2 * rho)
        lost = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return norm.cdf(mu / 2 - epsilon / mu) - lost

    printed = renyi.lemma_2_1_5_as_printed(100.0, 0.9)
    assert true_delta(printed, 100.0) > 0.99
    with pytest.raises(ParameterError, match="1/e"):
        renyi.lemma_2_1_5(100.0, 0.9)
    for rho, delta in itertools.product((1e-3, 1.0, 30.0), (0.36, 1e-2, 1e-8)):
        assert true_delta(renyi.lemma_2_1_5(rho, delta), rho) <= delta


def test_the_excess_of_a_power_over_its_tangent_is_accurate():
    with mpmath.workdps(60):
        for order, x in itertools.product((2, 3, 9, 2000), (-0.4, -1e-4, 4e-7, 6e-4, 0.2, 50.0)):
            exact = mpmath.log((1 + mpmath.mpf(x)) ** order - 1 - order * mpmath.mpf(x))
            assert float(log_excess(np.array(x), float(order)) - exact) == pytest.approx(
                0, abs=1e-9
            )


@pytest.mark.parametrize(
    "bound", [*UPPER, shuffling_rdp.theorem_5_3_3, shuffling_rdp.corollary_5_3_2]
)
def test_invalid_arguments_are_refused_by_name(bound):
    for epsilon0, clients in (
        (0.0, 10),
        (-1.0, 10),
        (math.nan, 10),
        (1.0, 0),
        (1.0, 2.5),
        (301, 5),
    ):
        with pytest.raises(ParameterError):
            bound(epsilon0, clients)


def test_for_a_huge_ratio_the_excess_of_the_power_over_its_tangent_equals_the_power():
    x = np.array([1e160, 1e250])
    assert log_excess(x, 8.0) == pytest.approx(8.0 * np.log(x), rel=1e-12)
