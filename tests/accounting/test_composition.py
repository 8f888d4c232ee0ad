"""Loss distributions keep their curves: total mass 1, no noise where steps are tiny."""

import numpy as np
import pytest

from turnout.accounting.blocks import PairBlock
from turnout.accounting.composition import ComposedCurve, CurvePair, to_pld
from turnout.accounting.curves import Curve, Direction, PairCurve, Side
from turnout.accounting.pairs import GaussianPair

K = np.exp(np.array([0.0, 1e-6, 1e-5, 1e-4]))


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("direction", Direction)
def test_a_tiny_rate_leaves_no_mass_to_rounding(side, direction):
    block = PairBlock(GaussianPair(1.0), 1e-6)
    pld = to_pld(block.curves(side, 1e-9, 0), direction, 2.5e-8, 1e-14)
    assert pld._probs.sum() + pld._infinity_mass == pytest.approx(1.0, abs=1e-12)
    exact = block.curve(direction, side, 1e-9, 0).delta(K)
    composed = ComposedCurve.of(side, [(pld, 1)]).delta(K)
    if side is Side.UPPER:
        assert np.all(composed >= exact)
    else:
        assert np.all(composed <= exact)
    np.testing.assert_allclose(composed, exact, rtol=2e-3, atol=1e-12)


def test_losses_below_zero_of_any_size_do_not_overflow():
    block = PairBlock(GaussianPair(0.05), 0.01)
    for direction in Direction:
        pld = to_pld(block.curves(Side.UPPER, 1e-3, 0), direction, 0.5, 1e-5)
        curve = ComposedCurve.of(Side.UPPER, [(pld, 4)])
        assert curve.losses[0] < -720
        assert 0 < float(curve.delta(np.exp(np.array(600.0)))) <= 1


def test_an_upper_curve_that_is_useless_near_one_still_gives_a_law():
    class Useless:
        def __init__(self, base: Curve, start: float):
            self.base, self.start = base, start

        def delta(self, k):
            return np.where(k < self.start, 1.0, self.base.delta(k))

        def slope(self, k):
            return self.base.slope(k)

    pair = GaussianPair(1.0)
    add = Useless(PairCurve(pair, Direction.ADD, Side.UPPER), 1.3)
    curves = CurvePair(Side.UPPER, [PairCurve(pair, Direction.REMOVE, Side.UPPER)], [add])
    for direction in Direction:
        pld = to_pld(curves, direction, 0.02, 1e-8)
        assert pld._probs.sum() + pld._infinity_mass == pytest.approx(1.0, abs=1e-12)
        k = np.exp(np.linspace(0.0, 3.0, 50))
        composed = ComposedCurve.of(Side.UPPER, [(pld, 1)]).delta(k)
        assert np.all(composed >= PairCurve(pair, direction, Side.LOWER).delta(k))
