"""Privacy loss distributions: total mass 1, correct curves, no rounding noise at tiny rates.

Compositions against closed forms, however small δ and however many blocks.
"""

import numpy as np
import pytest

from turnout.accounting.divergence import composition
from turnout.accounting.divergence.blocks import CurvePair, PairBlock, loss_distribution
from turnout.accounting.divergence.composition import ComposedCurve, run_epsilon
from turnout.accounting.divergence.curves import Curve, Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair

K = np.exp(np.array([0.0, 1e-6, 1e-5, 1e-4]))


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("direction", Direction)
def test_a_loss_distribution_with_a_tiny_sampling_rate_has_total_mass_one(side, direction):
    block = PairBlock(GaussianPair(1.0), 1e-6)
    pld = loss_distribution(block.curves(side, 1e-9, 0), direction, 2.5e-8, 1e-14)
    assert pld.masses.sum() + pld.infinity == pytest.approx(1.0, abs=1e-12)
    exact = block.curve(direction, side, 1e-9, 0).delta(K)
    curves = [ComposedCurve.of(side, [(pld, 1)], hint).delta(K) for hint in (1e-7, 1e-8, 3e-12)]
    composed = np.min(curves, axis=0) if side is Side.UPPER else np.max(curves, axis=0)
    if side is Side.UPPER:
        assert np.all(composed >= exact)
    else:
        assert np.all(composed <= exact)
    np.testing.assert_allclose(composed, exact, rtol=2e-3, atol=1e-12)


def test_a_loss_distribution_with_large_negative_losses_does_not_overflow():
    block = PairBlock(GaussianPair(0.05), 0.01)
    for direction in Direction:
        pld = loss_distribution(block.curves(Side.UPPER, 1e-3, 0), direction, 0.5, 1e-5)
        curve = ComposedCurve.of(Side.UPPER, [(pld, 4)], 0.5)
        assert 0 < float(curve.delta(np.exp(np.array(600.0)))) <= 1


def test_an_upper_curve_with_the_value_1_at_small_k_gives_a_valid_loss_distribution():
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
        pld = loss_distribution(curves, direction, 0.02, 1e-8)
        assert pld.masses.sum() + pld.infinity == pytest.approx(1.0, abs=1e-12)
        k = np.exp(np.linspace(0.0, 3.0, 50))
        composed = ComposedCurve.of(Side.UPPER, [(pld, 1)], 1e-8).delta(k)
        assert np.all(composed >= PairCurve(pair, direction, Side.LOWER).delta(k))


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 2), (3.0, 30), (40.0, 1000), (2000.0, 10**6)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15, 1e-60])
def test_composed_gaussian_steps_equal_one_gaussian_step_with_less_noise(sigma, steps, delta):
    """Composed as loss distributions, against the closed form of their sum."""
    run = [(PairBlock(GaussianPair(sigma)), steps)]
    total = PairBlock(GaussianPair(sigma / steps**0.5))
    for direction in Direction:
        truth = epsilon_at(total.curve(direction, Side.UPPER, delta, 0), delta, Side.UPPER)
        lower = run_epsilon(run, direction, Side.LOWER, delta, 0, near=truth)
        upper = run_epsilon(run, direction, Side.UPPER, delta, 0)
        assert lower <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= upper
        assert upper - lower <= 5e-3 * truth
        # Negative control: one step more is told apart.
        more = PairBlock(GaussianPair(sigma / (1.1 * steps) ** 0.5))
        costlier = epsilon_at(more.curve(direction, Side.LOWER, delta, 0), delta, Side.LOWER)
        assert upper < costlier


class ReadTooFarOut:
    """Curve read at thresholds rounded up by a relative η, so below the curve itself."""

    def __init__(self, curve: Curve, eta: float) -> None:
        self.curve, self.eta = curve, eta

    def delta(self, k):
        return self.curve.delta(k * (1.0 + self.eta))

    def slope(self, k):
        return (1.0 + self.eta) * self.curve.slope(k * (1.0 + self.eta))


@pytest.mark.parametrize("direction", Direction)
def test_the_rounding_error_of_thresholds_is_added_once_per_block(direction, mutate):
    """η is far larger than rounding is, so that what it does shows; uncharged, it does."""
    eta, count = 1e-4, 16
    pair = GaussianPair(4.0)
    off = [ReadTooFarOut(PairCurve(pair, d, Side.UPPER), eta) for d in Direction]
    distribution = loss_distribution(
        CurvePair(Side.UPPER, off[:1], off[1:]), direction, 2e-3, 1e-12
    )
    points = np.exp(np.linspace(0.0, 4.0, 9))
    truth = PairCurve(GaussianPair(1.0), direction, Side.LOWER).delta(points)
    uncharged = ComposedCurve.of(Side.UPPER, [(distribution, count)], 1e-5).delta(points)
    assert np.any(uncharged < truth)
    mutate(composition, "_ROUNDINGS_A_THRESHOLD", 2 * eta / UNIT_ROUNDOFF)
    charged = ComposedCurve.of(Side.UPPER, [(distribution, count)], 1e-5).delta(points)
    assert np.all(charged >= truth)
