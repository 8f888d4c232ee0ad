"""Grid distributions bracket a likelihood ratio in convex order, at many thresholds."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from test_brute_force import PAIRS

from turnout.accounting.divergence import convex_order
from turnout.accounting.divergence.pairs import (
    GaussianPair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)

GRIDS = [(0.003, 900), (0.05, 150), (0.2, 9), (0.7, 5), (3.0, 4)]
RATIOS = {
    **{f"σ = {sigma}": GaussianPair(sigma) for sigma in (0.3, 0.7, 1.5, 6.0)},
    **PAIRS,
}


def grid_hockey_sticks(grid, distribution, k):
    """E[(Y − k)₊] for k up to the cap: what lies above it has the price ``beyond``."""
    return (distribution.masses * np.maximum(grid.points - k[:, None], 0.0)).sum(
        axis=1
    ) + distribution.beyond


def grid_reverse_hockey_sticks(grid, distribution, k):
    return (distribution.masses * np.maximum(k[:, None] - grid.points, 0.0)).sum(axis=1)


@pytest.mark.parametrize(("step", "cells"), GRIDS)
@pytest.mark.parametrize("name", RATIOS)
def test_grids_from_chords_lie_above_and_grids_from_tangents_below_the_curve(name, step, cells):
    pair = RATIOS[name]
    upper_grid = convex_order.Grid(step, cells)
    lower_grid = convex_order.lower_grid(pair, step, upper_grid.cap)
    upper = convex_order.upper_distribution(pair, upper_grid)
    for grid, distribution in (
        (upper_grid, upper),
        (lower_grid, convex_order.lower_distribution(pair, lower_grid, by_hockey_sticks=True)),
        (lower_grid, convex_order.lower_distribution(pair, lower_grid, by_hockey_sticks=False)),
    ):
        k = np.random.default_rng(7).uniform(0.0, grid.cap, 2000)
        slack = (
            8 * (hockey_stick_rounding(pair, k) + reverse_hockey_stick_rounding(pair, k)) + 1e-14
        )
        if distribution is upper:
            assert np.all(
                grid_hockey_sticks(grid, distribution, k) >= hockey_stick(pair, k) - slack
            )
            assert np.all(
                grid_reverse_hockey_sticks(grid, distribution, k)
                >= reverse_hockey_stick(pair, k) - slack
            )
            assert distribution.masses @ grid.points + distribution.beyond == pytest.approx(
                1.0, abs=1e-12
            )
        else:
            hockey_sticks = np.all(
                grid_hockey_sticks(grid, distribution, k) <= hockey_stick(pair, k) + slack
            )
            reverse_hockey_sticks = np.all(
                grid_reverse_hockey_sticks(grid, distribution, k)
                <= reverse_hockey_stick(pair, k) + slack
            )
            assert hockey_sticks or reverse_hockey_sticks
    by_hockey_sticks = convex_order.lower_distribution(pair, lower_grid, by_hockey_sticks=True)
    assert np.all(
        grid_hockey_sticks(lower_grid, by_hockey_sticks, k) <= hockey_stick(pair, k) + slack
    )
    by_reverse_hockey_sticks = convex_order.lower_distribution(
        pair, lower_grid, by_hockey_sticks=False
    )
    assert np.all(
        grid_reverse_hockey_sticks(lower_grid, by_reverse_hockey_sticks, k)
        <= reverse_hockey_stick(pair, k) + slack
    )
    for distribution in (upper, by_hockey_sticks, by_reverse_hockey_sticks):
        assert np.all(distribution.masses >= -1e-12)
        assert distribution.masses.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_the_width_of_a_grid_bracket_falls_with_the_square_of_the_grid_step(sigma):
    """Mean-preserving, so second order; rounding up would be first order."""
    pair = GaussianPair(sigma)
    widths = []
    for step in (0.08, 0.04, 0.02):
        grid = convex_order.Grid(step, round(12 / step))
        below = convex_order.lower_grid(pair, step, grid.cap)
        k = np.linspace(0.3, 8.0, 500)
        upper_prices = grid_hockey_sticks(grid, convex_order.upper_distribution(pair, grid), k)
        lower_prices = grid_hockey_sticks(
            below, convex_order.lower_distribution(pair, below, by_hockey_sticks=True), k
        )
        widths.append(float(np.sum(upper_prices - lower_prices)))
    assert widths[0] > 3.4 * widths[1]
    assert widths[1] > 3.4 * widths[2]


@pytest.mark.parametrize("step", [0.01, 5.0, 400.0])
@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 20.0])
def test_the_first_point_of_the_lower_grid_is_a_conditional_mean(sigma, step):
    pair = GaussianPair(sigma)
    grid = convex_order.lower_grid(pair, step, 1.5 + 4 * step)
    edge = np.array(grid.edge)
    mass = float(pair.q_below(edge))
    if mass > 1e-300:
        assert float(pair.p_below(edge)) / mass == pytest.approx(grid.origin, abs=1e-9 * step)
    assert 0 <= grid.origin <= 1
    assert grid.origin <= grid.edge <= grid.origin + 1.01 * grid.step


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.3])
def test_a_coarse_lower_distribution_keeps_a_heavy_tail(sigma):
    """With a step far above most of the mass, tangents at the middles would cut the tail off."""
    pair, step = GaussianPair(sigma), 1e3
    grid = convex_order.lower_grid(pair, step, 1e6)
    distribution = convex_order.lower_distribution(pair, grid, by_hockey_sticks=True)
    k = np.array([1e5, 5e5])
    assert np.all(grid_hockey_sticks(grid, distribution, k) >= 0.98 * hockey_stick(pair, k))


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 20.0, 1000.0])
def test_rounding_errors_of_hockey_sticks_are_within_their_bound(sigma):
    pair, scores = GaussianPair(sigma), np.random.default_rng(3).uniform(-9.0, 9.0, 60)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(sigma)
        for score in scores:
            k = float(np.exp(score / sigma))
            at = mpmath.log(mpmath.mpf(k)) / mu
            above = mpmath.ncdf(mu / 2 - at) - k * mpmath.ncdf(-mu / 2 - at)
            below = k * mpmath.ncdf(at + mu / 2) - mpmath.ncdf(at - mu / 2)
            point = np.array(k)
            assert abs(float(hockey_stick(pair, point) - above)) <= float(
                hockey_stick_rounding(pair, point)
            )
            assert abs(float(reverse_hockey_stick(pair, point) - below)) <= float(
                reverse_hockey_stick_rounding(pair, point)
            )


def _falling_slopes(kind, size, random):
    """Slopes that fall at many places, at a few, by rounding alone, or at the last cell."""
    slopes = np.sort(random.normal(size=size))
    if kind == "many":
        return random.normal(size=size)
    if kind == "few":
        slopes[random.integers(0, size, 3)] -= 5.0
    elif kind == "rounding":
        slopes = np.round(slopes, 1) + 1e-16 * random.normal(size=size)
    else:
        slopes[-1] = -50.0
    return slopes


@pytest.mark.parametrize("kind", ["many", "few", "rounding", "last"])
def test_slopes_made_convex_equal_the_isotonic_regression_of_the_slopes(kind):
    random = np.random.default_rng(3)
    for size in (2, 3, 17, 300, 2000):
        for widths in (None, random.uniform(0.1, 10.0, size)):
            slopes = _falling_slopes(kind, size, random)
            found = convex_order.convex_slopes(slopes, widths)
            truth = isotonic_regression(slopes, weights=widths).x
            assert np.all(np.diff(found) >= 0)
            assert found == pytest.approx(truth, rel=1e-13, abs=1e-13)
