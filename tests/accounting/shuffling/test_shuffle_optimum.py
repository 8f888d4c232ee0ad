"""Theorem 3 of docs/design/shuffling.md against the exact optimum over all adaptive randomizers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from shuffle_optimum import Optimum, replayed, theorem_3

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import worst_pair

ES = [Fraction(5, 4), Fraction(2), Fraction(3), Fraction(8)]
SHARES = [0.0, 0.03, 0.1, 0.2, 0.35, 0.6, 0.9]  # of ε₀
ALIKE, APART = {2: (1,), 3: (2,)}, (1, 1)


def ratio(e: Fraction, share: float) -> Fraction:
    """A K of few digits near e^{share·ε₀}."""
    return max(Fraction(float(e) ** share).limit_denominator(40), Fraction(1))


@pytest.mark.parametrize("e", ES)
@pytest.mark.parametrize("share", SHARES)
def test_the_optimum_of_two_clients_attains_the_bound_and_that_of_three_is_below(e, share):
    k = ratio(e, share)
    two = Optimum(e, k, ALIKE[2]).delta()
    assert two == theorem_3(2, e, k)
    three = Optimum(e, k, ALIKE[3]).delta()
    assert 0.92 * theorem_3(3, e, k) < three <= theorem_3(3, e, k)
    # Where others on one record are the worst, n clients attain it as well.
    if k >= (2 * e + 1) / (2 + e):
        assert three == theorem_3(3, e, k)
    for clients, truth in ((2, two), (3, three)):
        curve = BlanketCurve(worst_pair(math.log(e)), clients, Side.UPPER)
        assert float(curve.delta(np.array(float(k)))) >= float(truth) * (1 - 1e-12)


@pytest.mark.parametrize(("e", "k"), [(Fraction(2), Fraction(1)), (Fraction(3), Fraction(6, 5))])
def test_the_optimum_of_three_clients_with_different_records_is_below_the_bound(e, k):
    three = Optimum(e, k, APART).delta()
    assert Optimum(e, k, ALIKE[3]).delta() <= three <= theorem_3(3, e, k)
    assert k > 1 or three == theorem_3(3, e, k)


@pytest.mark.parametrize(
    ("e", "k"), [(Fraction(2), Fraction(10, 9)), (Fraction(3), Fraction(6, 5))]
)
def test_the_optimum_of_four_clients_is_below_the_bound(e, k):
    four = Optimum(e, k, (3,)).delta()
    assert 0.88 * theorem_3(4, e, k) < four < theorem_3(4, e, k)


@pytest.mark.parametrize(
    ("e", "k"), [(Fraction(2), Fraction(10, 9)), (Fraction(3), Fraction(6, 5))]
)
@pytest.mark.parametrize("types", [(1,), (2,)])
def test_delta_of_the_best_strategy_equals_its_enumeration_over_all_orders(e, k, types):
    """The dynamic program agrees with the definition, a mean over all permutations."""
    optimum = Optimum(e, k, types)
    assert max(replayed(optimum)) == optimum.delta()


def test_the_optimum_of_three_messages_reaches_the_documented_share_of_the_bound():
    """docs/design/shuffling.md: three messages reach 0.928 of δ at ε₀ = ln 2, K = 1.11."""
    e, k = Fraction(2), Fraction(111, 100)
    share = Optimum(e, k, ALIKE[3]).delta() / theorem_3(3, e, k)
    assert float(share) == pytest.approx(0.928, abs=1e-3)


@pytest.mark.parametrize("e", ES[1:])
@pytest.mark.parametrize("share", SHARES[:-1])
def test_bounds_from_smaller_pairs_are_below_the_optimum(e, share):
    """Negative controls: a smaller total variation, or one client too many."""
    k = ratio(e, share)
    truth = Optimum(e, k, ALIKE[2]).delta()
    assert truth > theorem_3(2, e, k, Fraction(9, 10) / (e + 1))
    assert truth > theorem_3(3, e, k)


@pytest.mark.parametrize("e", ES)
def test_the_reference_bound_equals_the_curve_of_the_worst_pair(e):
    for clients in (1, 2, 3, 7):
        for share in SHARES:
            k = ratio(e, share)
            curve = BlanketCurve(worst_pair(math.log(e)), clients, Side.UPPER)
            bound = float(theorem_3(clients, e, k))
            assert float(curve.delta(np.array(float(k)))) == pytest.approx(bound, rel=1e-8)
