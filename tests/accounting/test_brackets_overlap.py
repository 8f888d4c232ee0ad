"""Bounds from grids of any size enclose one exact curve: every lower is below every upper one."""

import itertools

import numpy as np
import pytest

from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair, hockey_stick
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.core.errors import NumericalError

RATIOS = np.exp(np.append(0.0, np.geomspace(1e-6, 40.0, 200)))
# noise multiplier, window, δ: each corner of what may be asked for, and two that rounding spoilt.
CASES = [
    (0.15, 60, 1e-10),
    (0.2, 1000, 1e-5),
    (0.3, 2, 1e-3),
    (0.5, 10**7, 1e-10),
    (0.7, 3, 1e-8),
    (0.7, 10**5, 1e-15),
    (1.0, 2, 0.5),
    (1.0, 60, 1e-12),
    (2.0, 1000, 1e-15),
    (5.0, 10**5, 1e-6),
    (20.0, 2, 1e-6),
    (20.0, 10**7, 1e-5),
]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "window", "delta"), CASES)
def test_every_lower_curve_lies_below_every_upper_curve(sigma, window, delta, direction):
    values = {}
    refinements = (0, 1, 2) if window < 10**5 else (0,)
    for side, refinement in itertools.product(Side, refinements):
        try:
            curve = allocation_curve(
                GaussianPair(sigma),
                window,
                direction,
                side,
                delta_hint=delta,
                refinement=refinement,
            )
        except NumericalError:
            continue
        values[side, refinement] = curve.delta(RATIOS)
    assert {side for side, _ in values} == set(Side)
    upper = np.min([v for (side, _), v in values.items() if side is Side.UPPER], axis=0)
    lower = np.max([v for (side, _), v in values.items() if side is Side.LOWER], axis=0)
    assert np.all(lower <= upper)


@pytest.mark.parametrize("window", [2, 3, 7])
def test_the_bracket_of_small_windows_with_large_noise_is_narrow(window):
    curves = [
        allocation_curve(GaussianPair(5.0), window, Direction.REMOVE, side, delta_hint=1e-5)
        for side in Side
    ]
    upper, lower = (epsilon_at(c, 1e-5, side) for c, side in zip(curves, Side, strict=True))
    assert lower <= upper <= 1.001 * lower


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_the_probability_of_ratios_above_the_cap_is_added_to_the_upper_bound(sigma):
    """Above every threshold of the capped distribution an upper curve exceeds one slot's share."""
    window, pair = 4, GaussianPair(sigma)
    curve = allocation_curve(pair, window, Direction.REMOVE, Side.UPPER, delta_hint=1e-3)
    ratios = np.geomspace(1.0, 1e4, 100)
    one_slot = hockey_stick(pair, window * ratios) / window  # (S − K)₊ ≥ (X₁ / t − K)₊
    assert np.all(curve.delta(ratios) >= one_slot)
