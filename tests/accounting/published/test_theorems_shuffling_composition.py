"""Strong composition theorems: equal to brute force, and ordered as the papers state."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from turnout.accounting.published import shuffled_training
from turnout.accounting.published.results import PrivacyPoint
from turnout.core.errors import ParameterError


def printed_delta(epsilon: float, rounds: int, i: int) -> mpmath.mpf:
    """δ_i of Theorem 3.3 of Kairouz, Oh and Viswanath, by mpmath."""
    e = mpmath.exp(epsilon)
    total = mpmath.fsum(
        mpmath.binomial(rounds, j) * (e ** (rounds - j) - e ** (rounds - 2 * i + j))
        for j in range(i)
    )
    return total / (1 + e) ** rounds


def brute_force(point: PrivacyPoint, rounds: int, epsilon: float) -> float:
    """δ of the worst mechanism's rounds, every outcome of the four values written down."""
    e = math.exp(point.epsilon)
    one = (point.delta, (1 - point.delta) * e / (1 + e), (1 - point.delta) / (1 + e), 0.0)
    found = 0.0
    for outcome in itertools.product(range(4), repeat=rounds):
        p = math.prod(one[value] for value in outcome)
        q = math.prod(one[3 - value] for value in outcome)
        found += max(p - math.exp(epsilon) * q, 0.0)
    return found


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("point", [PrivacyPoint(0.3, 0.0), PrivacyPoint(1.5, 0.02)])
def test_the_optimal_composition_theorem_equals_brute_force(point, rounds):
    for slack in (0.2, 0.01, 1e-4):
        found = shuffled_training.kov_optimal(point, rounds, slack)
        assert found.delta == pytest.approx(1 - (1 - point.delta) ** rounds * (1 - slack))
        exact = brute_force(point, rounds, found.epsilon)
        assert exact <= found.delta * (1 + 1e-12)
        if found.epsilon > 0:
            assert brute_force(point, rounds, found.epsilon * (1 - 1e-6)) > exact
            # The mutant: one round fewer.
            assert brute_force(point, rounds + 1, found.epsilon) > found.delta


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.02, 1000), (0.5, 60), (2.0, 7)])
def test_theorem_3_3_gives_the_least_valid_epsilon_of_its_list(epsilon, rounds):
    with mpmath.workdps(60):
        for slack in (0.1, 1e-5, 1e-9):
            found = shuffled_training.kov_theorem_3_3(PrivacyPoint(epsilon, 0.0), rounds, slack)
            i = round((rounds - found.epsilon / epsilon) / 2)
            assert found.epsilon == pytest.approx((rounds - 2 * i) * epsilon)
            assert printed_delta(epsilon, rounds, i) <= slack
            assert i == rounds // 2 or printed_delta(epsilon, rounds, i + 1) > slack
            optimal = shuffled_training.kov_optimal(PrivacyPoint(epsilon, 0.0), rounds, slack)
            assert found.epsilon - 2 * epsilon < optimal.epsilon <= found.epsilon


@pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.1, 1.0])
@pytest.mark.parametrize("rounds", [1, 30, 1000, 10**5])
def test_simplified_composition_bounds_are_never_below_the_optimal_one(epsilon, rounds):
    point = PrivacyPoint(epsilon, 1e-13)
    for slack in (1e-2, 1e-8):
        forms = (
            shuffled_training.kov_optimal,
            shuffled_training.kov_theorem_3_3,
            shuffled_training.kov_theorem_3_4,
            shuffled_training.lemma_2_1_2,
        )
        values = [form(point, rounds, slack).epsilon for form in forms]
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(values[:3]))
        assert values[0] <= values[3]
        assert values[0] <= rounds * epsilon * (1 + 1e-9)


def test_optimal_composition_of_many_rounds_agrees_with_mpmath():
    epsilon, rounds, slack = 0.003, 10**4, 1e-8
    found = shuffled_training.kov_optimal(PrivacyPoint(epsilon, 0.0), rounds, slack).epsilon
    least = math.floor((rounds + found / epsilon) / 2) + 1
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        exact = mpmath.mpf(0)
        term = mpmath.binomial(rounds, least)
        for j in range(least, rounds + 1):
            weight = p**j * (1 - p) ** (rounds - j)
            exact += term * weight * (1 - mpmath.exp(found + epsilon * (rounds - 2 * j)))
            term = term * (rounds - j) / (j + 1)
            if j > least + 3000:
                break
    assert exact <= slack
    assert exact == pytest.approx(slack, rel=1e-5)


def test_the_composed_clones_bound_equals_its_reference_values():
    """ε₀ = ½, n = 10⁶, T = 1000, δ = 1e-8: half of δ to the rounds, on Theorem 3.3's list."""
    tilde = 0.5e-8 / 1000
    one = PrivacyPoint(shuffled_training.clones_2021(0.5, 10**6, tilde), tilde)
    listed = shuffled_training.kov_theorem_3_3(one, 1000, 0.5e-8)
    assert f"{listed.epsilon:.3g}" == f"{0.5446:.3g}"
    assert listed.epsilon == pytest.approx(0.5446, abs=1e-4)
    assert listed.delta <= 1e-8
    best = shuffled_training.kov_of_shuffle(0.5, 10**6, 1e-8, 1000)
    assert best == pytest.approx(0.5381, abs=1e-3)
    assert best <= listed.epsilon


def test_composition_splits_delta_between_the_rounds_and_itself():
    calls = []

    def bound(local_epsilon: float, clients: int, delta: float) -> float:
        calls.append(delta)
        return shuffled_training.clones_2021(local_epsilon, clients, delta)

    best = shuffled_training.kov_of_shuffle(0.5, 10**5, 1e-7, 100, bound=bound)
    assert len(calls) == 2
    others = [
        shuffled_training.kov_of_shuffle(0.5, 10**5, 1e-7, 100, share=share)
        for share in (0.1, 0.3, 0.7, 0.9)
    ]
    assert best <= min(others) * 1.005


def test_invalid_arguments_are_refused_by_name():
    for point in (PrivacyPoint(0.0, 0.0), PrivacyPoint(1.0, 1.0), PrivacyPoint(math.nan, 0.0)):
        with pytest.raises(ParameterError):
            shuffled_training.kov_optimal(point, 3, 0.1)
    with pytest.raises(ParameterError, match="slack"):
        shuffled_training.lemma_2_1_2(PrivacyPoint(1.0, 0.0), 3, 0.0)
    assert shuffled_training.lemma_2_1_2(PrivacyPoint(800.0, 0.0), 3, 0.1).epsilon == math.inf
