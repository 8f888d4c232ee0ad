"""Infinity mass (outcomes possible in one world only), against enumeration in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pair_truths as truths
import pytest

from turnout.accounting import epsilon_upper, price
from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.composition import run_curve
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import dominating
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.fixed_size import SubstitutedCohortBlock
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    KSubset,
    PairRandomizer,
    PoissonSampling,
    Relation,
    Scheme,
    TableRandomizer,
)

RATIOS = np.exp([0.0, 0.01, 0.1, 0.5, 0.69, 0.8, 1.5])
RATIO, DELTA0 = 2, Fraction(1, 64)
EPSILON0 = math.log(2)  # e^{ε₀} is the float 2
KOV = truths.four_outcomes(RATIO, DELTA0)
TABLES = {
    "two outcomes": ([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]),
    "equal ratios": ([Fraction(n, 8) for n in (4, 2, 2)], [Fraction(n, 8) for n in (2, 1, 5)]),
    "zero": ([Fraction(n, 8) for n in (5, 3, 0)], [Fraction(n, 8) for n in (2, 5, 1)]),
    "infinity_mass": ([Fraction(n, 8) for n in (4, 3, 1)], [Fraction(n, 8) for n in (3, 5, 0)]),
    "both": ([Fraction(n, 16) for n in (8, 7, 1, 0)], [Fraction(n, 16) for n in (3, 11, 0, 2)]),
}


def floats(law):
    return tuple(float(p) for p in law)


def table(present, absent):
    return dominating(TableRandomizer(floats(present), floats(absent)), 1.0)


def values(block, direction, side, count=1):
    """A run's curve; alone, it is exact."""
    return run_curve([(block, count)], direction, side, 1e-3, 0).delta(RATIOS)


def bracketed(block, laws, direction, width, count=1):
    """That both bounds hold what is enumerated, and are near it."""
    lower, upper = (values(block, direction, side, count) for side in (Side.LOWER, Side.UPPER))
    for low, high, k in zip(lower, upper, RATIOS, strict=True):
        exact = truths.hockey_stick(laws, direction, float(k))
        assert Fraction(low) <= exact <= Fraction(high)
        assert high - low <= width


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("name", TABLES)
def test_a_window_of_a_table_randomizer_agrees_with_enumeration(name, window, direction):
    worst = table(*TABLES[name])
    laws = truths.window_laws(*TABLES[name], window, Fraction(1))
    # K·(1 − leak) < 1 is not exact in the add direction.
    width = 1e-9 + (worst.infinity_mass if direction is Direction.ADD else 0.0)
    bracketed(AllocationBlock(worst.pair, window, 1.0, worst.infinity_mass), laws, direction, width)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("window", [2, 3, 5])
def test_a_window_of_an_approximate_randomizer_agrees_with_enumeration(window, direction):
    worst = dominating(ApproximateRandomizer(EPSILON0, float(DELTA0)), 1.0)
    laws = truths.window_laws(*KOV, window, Fraction(1))
    width = 1e-9 + (worst.infinity_mass if direction is Direction.ADD else 0.0)
    bracketed(AllocationBlock(worst.pair, window, 1.0, worst.infinity_mass), laws, direction, width)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", ["zero", "infinity_mass", "both"])
def test_a_window_with_optional_participation_agrees_with_enumeration(name, direction):
    worst, share = table(*TABLES[name]), Fraction(1, 4)
    laws = truths.window_laws(*TABLES[name], 3, share)
    block = AllocationBlock(worst.pair, 3, float(share), worst.infinity_mass)
    bracketed(block, laws, direction, float(share) * worst.infinity_mass + 1e-9)
    laws = truths.window_laws(*TABLES[name], 1, share)
    block = PairBlock(worst.pair, float(share), worst.infinity_mass)
    bracketed(block, laws, direction, float(share) * worst.infinity_mass + 1e-9)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("window", [2, 5])
def test_the_infinity_mass_counts_once_in_a_window(window, direction):
    worst = dominating(ApproximateRandomizer(EPSILON0, float(DELTA0)), 1.0)
    exact = [
        truths.hockey_stick(truths.window_laws(*KOV, window, Fraction(1)), direction, float(k))
        for k in RATIOS
    ]

    def lies_between(infinity_mass: float) -> bool:
        block = AllocationBlock(worst.pair, window, 1.0, infinity_mass)
        lower, upper = (values(block, direction, side) for side in (Side.LOWER, Side.UPPER))
        return all(
            Fraction(low) <= truth <= Fraction(high)
            for low, truth, high in zip(lower, exact, upper, strict=True)
        )

    assert lies_between(worst.infinity_mass)
    assert not lies_between(window * worst.infinity_mass)
    if direction is Direction.REMOVE:
        assert not lies_between(0.0)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("name", "window", "probability", "count"),
    [
        ("zero", 1, Fraction(1), 3),
        ("infinity_mass", 1, Fraction(1), 3),
        ("both", 1, Fraction(1), 3),
        ("both", 1, Fraction(1, 4), 4),
        ("both", 2, Fraction(1), 2),
        ("both", 2, Fraction(1, 2), 2),
        ("two outcomes", 3, Fraction(1), 3),
    ],
)
def test_compositions_with_an_infinity_mass_are_bracketed(
    name, window, probability, count, direction
):
    worst = table(*TABLES[name])
    laws = truths.product(truths.window_laws(*TABLES[name], window, probability), count)
    blocks = [AllocationBlock(worst.pair, window, float(probability), worst.infinity_mass)]
    if window == 1:
        blocks.append(PairBlock(worst.pair, float(probability), worst.infinity_mass))
    for block in blocks:
        bracketed(block, laws, direction, 0.08 + worst.infinity_mass, count)


@pytest.mark.parametrize("direction", Direction)
def test_compositions_of_the_worst_approximate_randomizer_are_bracketed(direction):
    worst = dominating(ApproximateRandomizer(EPSILON0, float(DELTA0)), 1.0)
    laws = truths.product(truths.window_laws(*KOV, 2, Fraction(1)), 2)
    bracketed(AllocationBlock(worst.pair, 2, 1.0, worst.infinity_mass), laws, direction, 0.05, 2)
    laws = truths.product(list(zip(*KOV, strict=True)), 4)
    bracketed(PairBlock(worst.pair, 1.0, worst.infinity_mass), laws, direction, 0.05, 4)


@pytest.mark.parametrize("direction", Direction)
def test_the_infinity_mass_of_a_fixed_size_subset_scales_with_its_rate(direction):
    """Balle, Barthe & Gaboardi's bound on (1 − q)Q' + qP and (1 − q)Q' + qQ, both directions."""
    worst, rate = table(*TABLES["both"]), Fraction(1, 4)
    present, absent = TABLES["both"]
    laws = [((1 - rate) * q + rate * p, q) for p, q in zip(present, absent, strict=True)]
    curve = SubstitutedCohortBlock(worst.pair, float(rate), worst.infinity_mass)
    for side, better in ((Side.UPPER, np.greater_equal), (Side.LOWER, np.less_equal)):
        exact = [float(truths.hockey_stick(laws, Direction.REMOVE, float(k))) for k in RATIOS]
        found = values(curve, direction, side)
        assert better(found, np.array(exact)).all()
        np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.parametrize(
    ("randomizer", "law", "delta", "infinity_mass"),
    [
        (ApproximateRandomizer(1.0, 1e-3), CheckIn(1000), 1e-6, "0.001"),
        (ApproximateRandomizer(1.0, 1e-3), CheckIn(1000), 1e-3, "0.001"),
        (ApproximateRandomizer(1.0, 1e-3), CheckIn(1000, 1, 0.5), 1e-4, "0.0005"),
        (ApproximateRandomizer(1.0, 1e-8), CheckIn(1000, 101), 1e-6, "1.01e-06"),
        (ApproximateRandomizer(1.0, 1e-3), PoissonSampling(0.1, 10), 1e-4, "0.001"),
        (ApproximateRandomizer(1.0, 1e-3), EveryStep(10), 1e-3, "0.00996"),
        (ApproximateRandomizer(1.0, 1e-3), KSubset(100, 2), 1e-3, "0.002"),
        (
            ApproximateRandomizer(1.0, 1e-3),
            AvailabilityCheckIn(np.ones((1, 2), dtype=bool), 2),
            1e-3,
            "0.001",
        ),
        (TableRandomizer((0.6, 0.4, 0.0), (0.4, 0.5, 0.1)), CheckIn(3), 1e-6, "0.001"),
    ],
)
def test_a_delta_below_the_infinity_mass_is_refused(randomizer, law, delta, infinity_mass):
    scheme = Scheme(randomizer, law, Relation.ADD_REMOVE)
    with pytest.raises(
        UnsupportedError, match=f"delta = {delta:g}: expected more than {infinity_mass}, "
    ):
        price(scheme, delta)


def test_a_delta_below_the_infinity_mass_of_a_replaced_record_is_refused():
    scheme = Scheme(ApproximateRandomizer(1.0, 1e-3), CheckIn(100), Relation.REPLACE_ONE)
    with pytest.raises(UnsupportedError, match=r"delta = 0\.0001: expected more than 0\.001"):
        price(scheme, 1e-4)


def test_a_delta_just_above_the_infinity_mass_is_accepted():
    for law in (CheckIn(30), CheckIn(1, 2), EveryStep(2)):
        scheme = Scheme(ApproximateRandomizer(1.0, 1e-4), law, Relation.ADD_REMOVE)
        steps = 1 if law == CheckIn(30) else 2
        bounds = price(scheme, steps * 1e-4 * 1.01).epsilon
        assert 0 < bounds.upper <= steps * 1.001
        with pytest.raises(UnsupportedError):
            price(scheme, steps * 1e-4 * 0.999)


def test_the_quick_bound_below_the_infinity_mass_raises_a_numerical_error():
    scheme = Scheme(ApproximateRandomizer(1.0, 1e-3), CheckIn(100), Relation.ADD_REMOVE)
    with pytest.raises(NumericalError):
        epsilon_upper(scheme, 1e-4)


def test_a_custom_pair_with_infinity_mass_has_the_epsilon_of_its_table():
    worst = table(*TABLES["both"])
    own = Scheme(PairRandomizer(worst.pair, worst.infinity_mass), CheckIn(5), Relation.ADD_REMOVE)
    present, absent = (floats(law) for law in TABLES["both"])
    named = Scheme(TableRandomizer(present, absent), CheckIn(5), Relation.ADD_REMOVE)
    assert price(own, 0.1).directions == price(named, 0.1).directions
