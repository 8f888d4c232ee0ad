"""Privacy theorems of the check-in paper against their proofs and brute force, and misprints."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import check_in_forms
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from turnout.accounting.published import check_ins
from turnout.core.errors import ParameterError, UnsupportedError

EPSILONS = st.floats(0.01, 6.0)
DELTAS = st.floats(1e-12, 0.5)


def response_deltas(local_epsilon, window, epsilon):
    """(remove, add) of one check-in with two-valued randomized response, by binomial sums."""
    k, growth = math.exp(epsilon), math.exp(local_epsilon)
    ones = np.arange(window + 1)
    ratio = (ones * growth + (window - ones) / growth) / window
    distribution = binom.pmf(ones, window, 1 / (1 + growth))
    return float(distribution @ np.maximum(ratio - k, 0)), float(
        distribution @ np.maximum(1 - k * ratio, 0)
    )


def root(delta_of, delta, high):
    """The ε at which a falling δ(ε) reaches δ."""
    low = 0.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return low


def response_epsilon(local_epsilon, window, delta):
    """What replace-one really costs at least: everybody else sends 0, she 1 or 0."""
    return root(lambda e: max(response_deltas(local_epsilon, window, e)), delta, local_epsilon)


def step_sum(steps, delta):
    """The proofs' own last line, summed: heterogeneous advanced composition."""
    terms = [(mpmath.expm1(e) * e / (mpmath.exp(e) + 1), e * e) for e in steps]
    square = sum(t[1] for t in terms)
    return float(sum(t[0] for t in terms) + mpmath.sqrt(-2 * mpmath.log(delta) * square))


def test_published_numbers_of_the_check_in_paper_are_reproduced():
    assert check_ins.theorem_3_2(1.0, 1000, 1e-6) == pytest.approx(0.47493, abs=1e-5)
    assert check_in_forms.theorem_4_1_best_split(1.0, 10**6, 10**3, 1e-6) == pytest.approx(
        2.49, abs=0.01
    )
    assert check_ins.theorem_5_1(0.5, 10**4, 1e-6) == pytest.approx(0.0723, abs=1e-4)
    assert check_ins.theorem_5_1(1.0, 10**5, 1e-6) == pytest.approx(0.1283, abs=1e-4)
    # The branch for approximate randomizers at ε₀ = 0.5 is the pure one at 4.
    assert check_ins.theorem_5_1(4.0, 10**6, 1e-6) == pytest.approx(347.4, abs=0.1)


@settings(max_examples=40, deadline=None)
@given(EPSILONS, st.integers(1, 300), DELTAS, st.floats(0.05, 1.0))
def test_theorem_a_4_is_above_the_sum_in_its_proof(local, window, delta, weight):
    steps = [
        mpmath.log1p(weight * mpmath.expm1(local) / (window - (i - 1) * (1 - mpmath.exp(-local))))
        for i in range(1, window + 1)
    ]
    bound = check_ins.theorem_a_4(local, window, delta, weight)
    assert bound >= step_sum(steps, delta)
    square = mpmath.mpf(weight) ** 2 * mpmath.exp(local) * mpmath.expm1(local) ** 2 / window
    closed = square / 2 + mpmath.sqrt(-2 * square * mpmath.log(delta))
    assert float(closed) <= bound <= float(closed) * (1 + 1e-11)


@settings(max_examples=40, deadline=None)
@given(EPSILONS, st.integers(2, 300), DELTAS)
def test_theorem_5_1_is_above_the_sum_in_its_proof(local, users, delta):
    growth = mpmath.exp(local)
    steps = [
        mpmath.log1p(growth**2 * (growth - 1) / (growth**2 + i - 1 + (users - i) * growth))
        for i in range(1, users + 1)
    ]
    assert check_ins.theorem_5_1(local, users, delta) >= step_sum(steps, delta)


@settings(max_examples=40, deadline=None)
@given(EPSILONS, st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any), DELTAS)
def test_theorem_a_5_is_above_the_sum_in_its_proof(local, loads, delta):
    growth = mpmath.exp(local)
    steps = [mpmath.log1p(growth**2 * (growth - 1) * load / sum(loads)) for load in loads]
    assert check_in_forms.theorem_a_5(local, loads, delta) >= step_sum(steps, delta)


@pytest.mark.parametrize("window", [1, 2, 10, 1000, 10**4])
@pytest.mark.parametrize("local", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_theorem_3_2_is_never_below_epsilon_of_randomized_response(local, window, delta):
    truth = response_epsilon(local, window, delta)
    assert check_ins.theorem_3_2(local, window, delta) >= truth
    assert check_in_forms.theorem_4_3(local, window, delta) >= truth


def replacement_delta(local, window, chance, epsilon):
    """Her record is 1 or 2, everybody else's 0: three-valued randomized response, enumerated."""
    growth = math.exp(local)
    likely, other = growth / (growth + 2), 1 / (growth + 2)
    worlds = []
    for record in (1, 2):
        distribution = []
        for view in product(range(3), repeat=window):
            others = math.prod(likely if v == 0 else other for v in view)
            hers = sum(
                others * (likely if v == record else other) / (likely if v == 0 else other)
                for v in view
            )
            distribution.append((1 - chance) * others + chance * hers / window)
        worlds.append(np.array(distribution))
    gap = np.maximum(worlds[0] - math.exp(epsilon) * worlds[1], 0)
    return float(gap.sum())


@pytest.mark.parametrize(("local", "chance"), [(0.2, 1.0), (1.0, 1.0), (1.0, 0.5)])
def test_theorem_3_2_is_never_below_epsilon_of_the_enumerated_protocol(local, chance):
    window, delta = 8, 0.2
    bound = check_ins.theorem_3_2(local, window, delta, chance)
    assert replacement_delta(local, window, chance, bound) <= delta
    # The enumeration sees something: no amplification at all would be wrong by far.
    assert replacement_delta(local, window, chance, 0.0) > 0.01


def test_the_formula_in_the_proof_of_theorem_3_2_is_below_the_exact_epsilon():
    truth = response_epsilon(1.0, 1000, 1e-6)
    assert truth == pytest.approx(0.1266, abs=2e-4)
    assert check_in_forms.theorem_3_2_as_printed(1.0, 1000, 1e-6) < truth / 5
    assert check_ins.theorem_3_2(1.0, 1000, 1e-6) > truth


def test_theorem_5_1_is_never_below_epsilon_of_shuffled_randomized_response():
    users, delta = 1000, 1e-6
    for local in (0.2, 0.5, 1.0):
        flip = 1 / (1 + math.exp(local))
        rest = binom.pmf(np.arange(users), users - 1, flip)
        zero = np.append(rest * (1 - flip), 0) + np.append(0, rest * flip)
        one = np.append(rest * flip, 0) + np.append(0, rest * (1 - flip))

        def delta_of(epsilon, zero=zero, one=one):
            k = math.exp(epsilon)
            return max(np.maximum(one - k * zero, 0).sum(), np.maximum(zero - k * one, 0).sum())

        assert check_ins.theorem_5_1(local, users, delta) > root(delta_of, delta, local)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 1.0), st.integers(1, 10**6), st.floats(1e-15, 0.01), st.floats(0.0, 1.0))
def test_the_simple_form_of_theorem_3_2_is_above_the_full_form(local, window, delta, chance):
    simple = check_in_forms.theorem_3_2_simple(local, window, delta, chance)
    assert simple >= check_ins.theorem_3_2(local, window, delta, chance)


def test_the_simple_form_of_theorem_3_2_refuses_values_outside_its_range():
    with pytest.raises(ParameterError, match="local_epsilon"):
        check_in_forms.theorem_3_2_simple(1.01, 10, 1e-6)
    with pytest.raises(ParameterError, match="delta"):
        check_in_forms.theorem_3_2_simple(1.0, 10, 0.02)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 1.5), st.integers(1, 40), st.floats(1e-12, 1e-7), st.floats(1.0, 20.0))
def test_both_conditions_of_corollary_3_3_give_epsilon_one_half(local, window, beta, factor):
    growth, change = math.exp(local), math.expm1(local)
    least = max(
        8 * math.sqrt(window) * growth**1.5,
        -(change**2) * growth * math.sqrt(window) * math.log(beta),
    )
    population = window * math.ceil(factor * least / window)
    assert check_ins.theorem_3_2(local, window, beta, window / population) <= 0.5
    closed = check_in_forms.corollary_3_3_closed_form(local, population, window, beta, 1e-6)
    full = check_in_forms.corollary_3_3(local, population, window, beta, 1e-6)
    assert closed.epsilon >= full.epsilon
    assert closed.delta == pytest.approx(full.delta)


def test_one_condition_of_corollary_3_3_does_not_give_epsilon_one_half():
    local, population, beta = 5.0, 14_500, 1e-12
    assert local <= 2 / 3 * math.log(population / 8)
    assert check_ins.theorem_3_2(local, 1, beta, 1 / population) > 0.9
    with pytest.raises(UnsupportedError, match=r"Corollary 3\.3"):
        check_in_forms.corollary_3_3_closed_form(local, population, 1, beta, 1e-6)


def test_corollary_3_3_equals_advanced_composition_of_theorem_3_2():
    first = check_ins.theorem_3_2(0.5, 50, 1e-9, 50 / 1000)
    point = check_in_forms.corollary_3_3(0.5, 1000, 50, 1e-9, 1e-6)
    expected = first * math.sqrt(2 * 20 * math.log(1e6)) + 20 * first * math.expm1(first)
    assert point.epsilon == pytest.approx(expected)
    assert point.delta == pytest.approx(1e-6 + 20e-9)
    with pytest.raises(ParameterError, match="window"):
        check_in_forms.corollary_3_3(0.5, 40, 50, 1e-9, 1e-6)
    with pytest.raises(ParameterError, match="beta"):
        check_in_forms.corollary_3_3(0.5, 1000, 1, 0.01, 1e-6)


@pytest.mark.parametrize("load_delta", [0.9, 0.5, 0.1, 0.01])
def test_lemma_a_6_holds_by_enumeration_of_all_assignments_to_bins(load_delta):
    balls, bins = 7, 3
    bound = check_ins.lemma_a_6(balls, bins, load_delta)
    norms = Counter(
        math.hypot(*(throw.count(b) for b in range(bins)))
        for throw in product(range(bins), repeat=balls)
    )
    beyond = sum(count for norm, count in norms.items() if norm > bound)
    assert beyond / bins**balls <= load_delta


def test_theorem_4_1_equals_theorem_a_5_at_the_loads_of_lemma_a_6():
    point = check_ins.theorem_4_1(0.7, 400, 20, 1e-6, 1e-7)
    norm = math.sqrt(400 + 400**2 / 20) + math.sqrt(400 * math.log(1e7))
    share = norm / 400
    square = (share * math.exp(1.4) * math.expm1(0.7)) ** 2
    assert point.epsilon == pytest.approx(square / 2 + math.sqrt(2 * square * math.log(1e6)))
    assert point.delta == pytest.approx(1.1e-6)
    even = check_in_forms.theorem_a_5(0.7, [20] * 20, 1e-6)
    assert even < point.epsilon
    assert check_in_forms.theorem_4_1_best_split(0.7, 400, 20, 1.1e-6) <= point.epsilon * 1.001


@pytest.mark.parametrize(
    ("local", "window", "delta", "chance"),
    [(0.0, 5, 0.1, 1.0), (1.0, 0, 0.1, 1.0), (1.0, 5, 0.0, 1.0), (1.0, 5, 0.1, 1.5)],
)
def test_theorem_3_2_refuses_invalid_arguments(local, window, delta, chance):
    with pytest.raises(ParameterError):
        check_ins.theorem_3_2(local, window, delta, chance)


def test_published_epsilon_is_infinite_for_very_large_local_epsilon():
    assert check_ins.theorem_3_2(400.0, 10, 1e-6) == math.inf
    assert check_ins.theorem_5_1(400.0, 10, 1e-6) == math.inf
    assert check_ins.theorem_3_2(1.0, 10, 1e-6, 0.0) == 0.0


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 3.0), st.floats(1e-12, 0.5))
def test_lemma_a_3_bounds_the_total_variation_distance(local, slack):
    rounds = check_ins.lemma_a_3_rounds(local, slack)
    largest = check_ins.lemma_a_3_largest_delta(local, slack)
    assert rounds == int(rounds)
    growth = mpmath.exp(local)

    def distance(rounds, delta):
        wrong = (1 - mpmath.exp(-5 * local)) ** rounds
        return wrong + (rounds + 2) * 2 * delta * growth / (1 - 1 / growth)

    assert distance(int(rounds), largest) <= slack
    # With the whole number below T, or a δ₀ that is larger, the lemma's own bound fails.
    assert distance(int(rounds) - 1, largest) > slack / 2
    assert distance(int(rounds), largest * 2.1) > slack


def test_lemma_a_3_needs_a_whole_number_of_rounds():
    local, slack = 0.3, 1e-3
    fraction = math.log(2 / slack) / -math.log1p(-math.exp(-1.5))
    printed = -math.expm1(-local) * slack / (4 * math.exp(local) * (2 + fraction))
    assert check_ins.lemma_a_3_largest_delta(local, slack) < printed


def test_the_inverse_of_lemma_a_3_undoes_the_lemma():
    slack = check_ins.lemma_a_3_slack(0.5, 1e-14)
    largest = check_ins.lemma_a_3_largest_delta(0.5, slack)
    assert 1e-14 <= largest <= 1.001e-14
    with pytest.raises(UnsupportedError, match=r"Lemma A\.3"):
        check_ins.lemma_a_3_slack(5.0, 1e-3)
    assert check_ins.lemma_a_3_largest_delta(200.0, 0.1) == 0.0


def test_theorem_3_2_for_approximate_randomizers_is_the_pure_bound_at_eight_epsilon():
    point = check_ins.theorem_3_2_approximate(0.1, 1e-17, 100, 1e-6, slack=1e-13)
    pure = check_ins.theorem_3_2(0.8, 100, 1e-6)
    assert point.epsilon == pure
    assert point.delta == pytest.approx(1e-6 + 100 * (math.exp(pure) + 1) * 1e-13, rel=1e-9)
    sliding = check_in_forms.theorem_4_3_approximate(0.1, 1e-17, 100, 1e-6, slack=1e-13)
    assert sliding == point
    half = check_ins.theorem_3_2_approximate(0.1, 1e-17, 100, 1e-6, probability=0.5, slack=1e-13)
    assert half.epsilon < point.epsilon


def test_delta_of_bounds_for_approximate_randomizers_counts_every_message():
    right = check_ins.theorem_5_1_approximate(0.05, 1e-18, 1000, 1e-6, slack=1e-14)
    printed = check_ins.theorem_a_7_as_printed(0.05, 1e-18, 1000, 1e-6, messages=10, slack=1e-14)
    assert printed.epsilon == right.epsilon
    assert right.delta - 1e-6 == pytest.approx(100 * (printed.delta - 1e-6), rel=1e-3)
    averaged = check_in_forms.theorem_4_1_approximate(
        0.02, 1e-18, 1000, 10, delta=1e-6, load_delta=1e-7, slack=1e-14
    )
    growth = math.exp(averaged.epsilon) + 1
    assert averaged.delta == pytest.approx(1.1e-6 + 1000 * growth * 1e-14, rel=1e-9)


def test_bounds_for_approximate_randomizers_refuse_values_outside_their_range():
    with pytest.raises(ParameterError, match="local_delta"):
        check_ins.theorem_3_2_approximate(0.5, 1e-9, 10, 1e-6, slack=1e-9)
    with pytest.raises(UnsupportedError, match="vacuous"):
        check_ins.theorem_5_1_approximate(1.0, 1e-30, 100, 1e-6)


def test_bounds_at_a_total_delta_use_nearly_all_of_it():
    def point(delta):
        return check_ins.theorem_3_2_approximate(0.1, 1e-16, 100, delta)

    epsilon = check_ins.at_total_delta(point, 1e-6)
    assert check_ins.theorem_3_2(0.8, 100, 1e-6) <= epsilon
    assert epsilon <= check_ins.theorem_3_2(0.8, 100, 0.9e-6)
    with pytest.raises(UnsupportedError):
        check_ins.at_total_delta(point, 1e-12)
