"""ε at which a privacy curve reaches δ: on the proved side, and close to the crossing."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.core.errors import NumericalError


@dataclass
class SharpNear:
    """Curve e^(−ε) that is known in one short range of ε only, and trivial outside of it."""

    low: float
    high: float
    side: Side

    def delta(self, k):
        epsilons = np.log(k)
        known = (epsilons >= self.low) & (epsilons <= self.high)
        return np.where(known, 1.0 / k, 1.0 if self.side is Side.UPPER else 0.0)

    def slope(self, k):
        raise AssertionError("the search must not use slopes")


@pytest.mark.parametrize("sigma", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9, 1e-60])
def test_the_epsilon_of_a_crossing_is_found_to_nine_digits_on_the_proved_side(sigma, delta):
    for side in Side:
        curve = PairCurve(GaussianPair(sigma), Direction.REMOVE, side)
        found = epsilon_at(curve, delta, side)
        aside = 1e-8 * found + 1e-11
        if side is Side.UPPER:
            assert curve.delta(np.array(math.exp(found))) <= delta
            assert found < aside or curve.delta(np.array(math.exp(found - aside))) > delta
        elif found > 0:
            assert curve.delta(np.array(math.exp(found))) > delta
            assert curve.delta(np.array(math.exp(found + aside))) <= delta


@pytest.mark.parametrize("side", list(Side))
def test_a_crossing_between_two_points_of_the_first_search_is_found(side):
    root = 7.0
    curve = SharpNear(6.8, 7.15, side)
    assert epsilon_at(curve, math.exp(-root), side) == pytest.approx(root, rel=1e-8)


def test_a_crossing_is_found_with_a_hint_if_the_curve_is_sharp_only_near_the_crossing():
    curve = SharpNear(0.9999, 1.1, Side.LOWER)
    found = epsilon_at(curve, math.exp(-1.0), Side.LOWER, near=1.00001)
    assert found == pytest.approx(1.0, rel=1e-8)


def test_an_upper_curve_that_stays_above_delta_is_refused():
    curve = SharpNear(0.0, 2.0, Side.UPPER)
    with pytest.raises(NumericalError, match="lies below what can be certified"):
        epsilon_at(curve, 1e-3, Side.UPPER)
    assert epsilon_at(SharpNear(0.0, 2.0, Side.LOWER), 2.0, Side.LOWER) == 0.0
