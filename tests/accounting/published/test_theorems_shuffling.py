"""Published shuffling bounds: printed numbers, ranges, and never below the exact value."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from turnout.accounting.published import (
    RESULTS,
    Status,
    check_ins,
    shuffling,
)
from turnout.accounting.published.shuffling import stronger_clones_2023
from turnout.accounting.shuffling import clones_2021
from turnout.core.errors import ParameterError, TurnoutError, UnsupportedError

SINGLE_ROUND = {  # proved bounds as functions of (ε₀, n, δ)
    "EFM19 Corollary 9": shuffling.efm19_corollary_9,
    "EFM19 Theorem 7": shuffling.efm19_theorem_7,
    "check-ins Theorem 5.1": check_ins.theorem_5_1,
    "privacy blanket 2019, Hoeffding": shuffling.blanket_2019_hoeffding,
    "privacy blanket 2019, Bennett": shuffling.blanket_2019_bennett,
    "clones 2021, closed form": shuffling.clones_2021_closed_form,
    "clones 2021, numeric": clones_2021,
    "thesis Theorem 5.3.1": shuffling.theorem_5_3_1_epsilon,
    "thesis Theorem 5.3.2": shuffling.theorem_5_3_2_epsilon,
}
TABLE = ((0.5, 10**4, 1e-6), (1.0, 10**5, 1e-6), (2.0, 10**6, 1e-8), (4.0, 10**6, 1e-8))
MODULES = (
    "renyi",
    "shuffling",
    "shuffling_rdp",
    "shuffled_training",
)
HELPERS = {
    "clones_2021_limit",
    "amplified",
    "blanket_size",
    "require_setting",
    "sub_gaussian_moments",
    "unusual_count_delta",
    "epsilons_by_order",
    "log_delta_at",
    "log_moment_below",
    "log_excess",
    "thesis_epsilons",
}


def three_digits(value: float) -> str:
    return f"{value:.3g}"


def two_valued(local_epsilon: float, clients: int, epsilon: float) -> float:
    """δ of shuffled binary randomized response, the worst split and direction, summed up here."""
    p = 1 / (math.exp(local_epsilon) + 1)
    found, k_ratio = 0.0, math.exp(min(epsilon, 700.0))
    for ones in range(clients):
        distribution = [0.0] * (clients + 1)
        for a, b in itertools.product(range(ones + 1), range(clients - ones)):
            distribution[a + b] += binom.pmf(a, ones, 1 - p) * binom.pmf(b, clients - 1 - ones, p)
        one = [
            p * distribution[k] + (1 - p) * (distribution[k - 1] if k else 0.0)
            for k in range(clients + 1)
        ]
        zero = [
            (1 - p) * distribution[k] + p * (distribution[k - 1] if k else 0.0)
            for k in range(clients + 1)
        ]
        for first, second in ((one, zero), (zero, one)):
            pairs = zip(first, second, strict=True)
            found = max(found, sum(max(x - k_ratio * y, 0.0) for x, y in pairs))
    return found


def kary(local_epsilon: float, clients: int, categories: int, epsilon: float) -> float:
    """δ of shuffled k-ary response where all others hold the last value, summed up here.

    What matters are the counts of the victim's two values among the messages.
    """
    total = math.exp(local_epsilon) + categories - 1
    high, low = math.exp(local_epsilon) / total, 1 / total
    others = {}
    for a in range(clients):
        for b in range(clients - a):
            rest = clients - 1 - a - b
            choices = math.comb(clients - 1, a) * math.comb(clients - 1 - a, b)
            others[a, b] = choices * low ** (a + b) * (1 - 2 * low) ** rest
    found, k_ratio = 0.0, math.exp(min(epsilon, 700.0))
    for a in range(clients + 1):
        for b in range(clients + 1 - a):
            first, second = others.get((a - 1, b), 0.0), others.get((a, b - 1), 0.0)
            both = (1 - high - low) * others.get((a, b), 0.0)
            one = high * first + low * second + both
            found += max(one - k_ratio * (low * first + high * second + both), 0.0)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_of_a_shuffle_is_listed(name):
    module = importlib.import_module(f"turnout.accounting.published.{name}")
    public = {
        member
        for member, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not member.startswith("_")
    }
    assert public - {result.function.__name__ for result in module.RESULTS} <= HELPERS
    assert set(module.RESULTS) <= set(RESULTS)


def test_conjectured_and_unsafe_results_are_not_listed_as_bounds():
    conjectured = [result for result in RESULTS if result.status is Status.CONJECTURED]
    names = {result.name for result in conjectured}
    assert names == {"thesis Lemma 3.3.2"}
    assert all(result.function.__doc__.startswith("CONJECTURED") for result in conjectured)
    status = {result.function: result.status for result in RESULTS}
    assert {status[function] for function in SINGLE_ROUND.values()} == {Status.PROVED}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (check_ins.theorem_5_1, (".0723", ".128", ".787", "365")),
        (shuffling.theorem_5_3_1_epsilon, (".0409", ".0374", ".0729", ".989")),
        (shuffling.theorem_5_3_2_epsilon, (".0641", ".0693", ".174", "5.07")),
        (shuffling.clones_2021_closed_form, (".0939", ".0726", ".0712", ".226")),
        (shuffling.clones_2021, (".0204", ".0153", ".0176", ".0642")),
        (shuffling.stronger_clones_2023, (".0181", ".0124", ".0130", ".0451")),
    ],
)
def test_published_bounds_of_one_round_equal_the_reference_table(function, expected):
    for setting, printed in zip(TABLE, expected, strict=True):
        assert float(three_digits(function(*setting))) == float(printed)


def test_theorem_5_3_2_is_vacuous_at_epsilon0_four():
    assert shuffling.theorem_5_3_2_epsilon(*TABLE[3]) > 4


def test_corollary_9_gives_the_value_of_the_table():
    assert three_digits(shuffling.efm19_corollary_9(*TABLE[0])) == "0.223"


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ((0.5000001, 10**4, 1e-6), "local_epsilon"),
        ((0.4, 999, 1e-6), "clients"),
        ((0.4, 1000, 0.01), "delta"),
    ],
)
def test_corollary_9_refuses_outside_of_its_range(setting, name):
    with pytest.raises(ParameterError, match=name):
        shuffling.efm19_corollary_9(*setting)


@given(st.floats(0.01, 0.5), st.integers(1000, 10**7), st.floats(2.1, 60))
@settings(max_examples=60, deadline=None)
def test_theorem_5_1_implies_corollary_9_up_to_a_half_and_theorem_7(epsilon0, clients, digits):
    setting = epsilon0, clients, 10**-digits
    smaller = check_ins.theorem_5_1(*setting)
    assert smaller <= shuffling.efm19_corollary_9(*setting)
    assert smaller <= shuffling.efm19_theorem_7(*setting) == shuffling.efm19_theorem_8(*setting)


def test_theorem_7_equals_its_formula_at_small_and_large_epsilon0():
    assert shuffling.efm19_theorem_7(0.5, 10**4, 1e-6) == pytest.approx(0.18663, abs=1e-5)
    first = 2 * math.exp(2) * (math.e - 1) / 10**5
    expected = first * math.sqrt(2e5 * math.log(1e6)) + 1e5 * first * math.expm1(first)
    assert shuffling.efm19_theorem_7(1.0, 10**5, 1e-6) == pytest.approx(expected, rel=1e-11)
    assert shuffling.efm19_theorem_7(300.0, 10, 1e-6) == math.inf


def test_the_closed_form_of_clones_is_refused_above_its_limit():
    limit = shuffling.clones_2021_limit(10**4, 1e-6)
    assert limit == pytest.approx(math.log(10**4 / (16 * math.log(2e6))), rel=1e-10)
    assert shuffling.clones_2021_closed_form(limit, 10**4, 1e-6) > 0
    with pytest.raises(UnsupportedError, match="needs epsilon_0"):
        shuffling.clones_2021_closed_form(limit + 1e-9, 10**4, 1e-6)
    with pytest.raises(UnsupportedError, match="no such limit"):
        shuffling.clones_2021_closed_form(0.1, 100, 1e-6)


def test_result_6_10_as_printed_allows_an_epsilon0_that_exceeds_delta():
    local = shuffling.thesis_6_10_as_printed(4.0, 10**4, 1e-6)
    assert local == pytest.approx(9.72, abs=0.005)
    # All hold a zero, or all but the victim: one sum over the number of ones.
    p, clients = 1 / (math.exp(local) + 1), 10**4
    true = 0.0
    for k in range(40):
        ratio = k / clients * math.exp(local) + (1 - k / clients) * math.exp(-local)
        true += binom.pmf(k, clients, p) * max(1 - math.exp(4.0) * ratio, 0.0)
    assert true == pytest.approx(0.55, abs=0.005)
    with pytest.raises(UnsupportedError):
        shuffling.clones_2021_closed_form(local, clients, 1e-6)
    assert shuffling.clones_2021(local, clients, 1e-6) > 4


def test_the_first_part_of_lemma_2_3_1_equals_its_formula_within_its_range():
    value = shuffling.lemma_2_3_1_first(0.5, 10**4, 1e-6, constant=2.0)
    assert value == pytest.approx(math.exp(0.5) * math.sqrt(math.log(1e6) / 10**4))
    with pytest.raises(UnsupportedError, match="epsilon_0"):
        shuffling.lemma_2_3_1_first(3.3, 10**4, 1e-6)


BOUNDS = (*SINGLE_ROUND.values(), stronger_clones_2023)


@pytest.mark.parametrize("epsilon0", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("clients", [1, 2, 5, 12])
def test_no_published_bound_is_below_epsilon_of_binary_response(epsilon0, clients):
    for function in BOUNDS:
        for delta in (1e-1, 1e-3):
            try:
                epsilon = function(epsilon0, clients, delta)
            except TurnoutError:
                continue
            assert two_valued(epsilon0, clients, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("epsilon0", [0.5, 2.0])
@pytest.mark.parametrize(("clients", "categories"), [(8, 3), (25, 3), (25, 6)])
def test_no_published_bound_is_below_epsilon_of_kary_response(epsilon0, clients, categories):
    bounds = [
        *BOUNDS,
        lambda *given: shuffling.blanket_2019_hoeffding(*given, categories=categories),
        lambda *given: shuffling.blanket_2019_bennett(*given, categories=categories),
    ]
    for function in bounds:
        for delta in (1e-1, 1e-4):
            try:
                epsilon = function(epsilon0, clients, delta)
            except TurnoutError:
                continue
            assert kary(epsilon0, clients, categories, epsilon) <= delta * (1 + 1e-9)


@given(st.floats(0.02, 4.0), st.integers(1, 7), st.floats(0.3, 8.0))
@settings(max_examples=30, deadline=None)
def test_no_published_bound_is_below_epsilon_of_binary_response_at_random_settings(
    epsilon0, clients, digits
):
    delta = 10**-digits
    for function in BOUNDS:
        try:
            epsilon = function(epsilon0, clients, delta)
        except TurnoutError:
            continue
        assert two_valued(epsilon0, clients, epsilon) <= delta * (1 + 1e-9)


def shuffled(messages: list[tuple[Fraction, ...]]) -> Counter[tuple[int, ...]]:
    """The exact distribution of how often each value comes."""
    total = Counter({(0,) * len(messages[0]): Fraction(1)})
    for distribution in messages:
        grown: Counter[tuple[int, ...]] = Counter()
        for counts, chance in total.items():
            for value, own in enumerate(distribution):
                grown[(*counts[:value], counts[value] + 1, *counts[value + 1 :])] += chance * own
        total = grown
    return total


def price(victim: list[str], other: list[str], clients: int, k: int) -> Fraction:
    """H_K of the shuffles in which the victim sends by a law, or by it with two values swapped."""
    own, rest = (tuple(map(Fraction, distribution)) for distribution in (victim, other))
    swapped = (own[1], own[0], *own[2:])
    one, two = (
        shuffled([distribution, *[rest] * (clients - 1)]) for distribution in (own, swapped)
    )
    return sum((max(chance - k * two[event], Fraction(0)) for event, chance in one.items()))


def test_lemma_3_5_of_the_stronger_clones_fails():
    """It reduces any randomizer with R(x) >= p(Q0 + Q1) to neutral messages that look alike."""
    epsilon0, e, p = math.log(3), 3, Fraction(1, 10)
    victim, other = ["0.3", "0.1", "0.375", "0.225"], ["0.1", "0.1", "0.125", "0.675"]
    distributions = [
        tuple(map(Fraction, distribution))
        for distribution in (victim, [victim[i] for i in (1, 0, 2, 3)], other)
    ]
    for one, two in itertools.permutations(distributions, 2):
        assert sum(one) == 1
        assert all(x <= e * y for x, y in zip(one, two, strict=True))
    # The decomposition with p < 1/(e + 1): both worlds' victim, and p of either for the others.
    assert p < Fraction(1, e + 1)
    assert distributions[0][:2] == (e * p, p)
    assert distributions[2][:2] == (p, p)
    truth, lemma = (
        price(victim, other, 2, 2),
        price(["0.3", "0.1", "0.6"], ["0.1", "0.1", "0.8"], 2, 2),
    )
    assert truth == Fraction(55, 1000)
    assert lemma == Fraction(30, 1000)
    # Ours, and the theorem that rested on the lemma, lie above.
    stronger = price(["0.75", "0.25", "0"], ["0.25", "0.25", "0.5"], 2, 2)
    assert stronger == Fraction(1875, 10000) > truth
    assert shuffling.clones_2021(epsilon0, 2, float(truth)) > math.log(2)


def test_a_bound_computed_for_too_many_clients_is_detected():
    # The mutant: twice as many clients as there are.
    epsilon = shuffling.stronger_clones_2023(1.0, 24, 1e-3)
    assert two_valued(1.0, 12, epsilon) > 1e-3
    epsilon = shuffling.blanket_2019_hoeffding(2.0, 200, 1e-1, 3)
    assert kary(2.0, 25, 3, epsilon) > 1e-1


def test_the_closed_form_for_kary_response_solves_its_equation():
    # γ = 14k ln(2/δ)/((n − 1)ε²) at the ε found.
    epsilon = shuffling.blanket_2019_kary(2.0, 10**5, 1e-6, 4)
    gamma = 4 / (math.exp(2.0) + 3)
    assert 14 * 4 * math.log(2e6) / ((10**5 - 1) * epsilon**2) == pytest.approx(gamma, rel=1e-9)
    assert epsilon > shuffling.blanket_2019_hoeffding(2.0, 10**5, 1e-6, 4)
    # Where δ is large the other branch counts.
    gamma = 100 / (math.exp(2.0) + 99)
    epsilon = shuffling.blanket_2019_kary(2.0, 5321, 0.99, 100)
    assert epsilon == pytest.approx(27 * 100 / (5320 * gamma))


def test_the_closed_form_for_kary_response_is_refused_above_epsilon_one():
    with pytest.raises(UnsupportedError, match="epsilon <= 1"):
        shuffling.blanket_2019_kary(2.0, 100, 1e-6, 4)
    with pytest.raises(UnsupportedError):
        shuffling.blanket_2019_kary(800.0, 100, 1e-6, 4)


def test_the_blanket_bounds_never_exceed_the_local_epsilon():
    for function in (
        shuffling.blanket_2019_hoeffding,
        shuffling.blanket_2019_bennett,
    ):
        assert function(3.0, 2, 1e-9) <= 3.0
        assert function(1.0, 10**6, 1e-6) < function(1.0, 10**5, 1e-6) < 1.0
        assert function(1.0, 10**5, 1e-6, 2) < function(1.0, 10**5, 1e-6)


def test_the_bennett_bound_is_accurate_at_small_epsilon():
    # u crosses 1e-4 at about ε = 1e-4 for n large.
    for clients in (10**8, 10**9, 10**10, 10**11):
        bennett = shuffling.blanket_2019_bennett(0.5, clients, 1e-6, 3)
        hoeffding = shuffling.blanket_2019_hoeffding(0.5, clients, 1e-6, 3)
        assert 0.6 < bennett / hoeffding < 0.85


def test_the_largest_epsilon0_values_have_finite_bounds():
    for function in (
        shuffling.blanket_2019_hoeffding,
        shuffling.blanket_2019_bennett,
    ):
        for epsilon0 in (200.0, 300.0):
            assert function(epsilon0, 1000, 1e-6) == epsilon0
