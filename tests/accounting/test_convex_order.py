"""Grid laws bracket a ratio in convex order: prices above and below it on fine sets of points."""

import mpmath
import numpy as np
import pytest
from test_brute_force import PAIRS

from turnout.accounting import convex_order as order
from turnout.accounting.pairs import GaussianPair, call, call_rounding, put, put_rounding

GRIDS = [(0.003, 900), (0.05, 150), (0.2, 9), (0.7, 5), (3.0, 4)]
RATIOS = {
    **{f"σ = {sigma}": GaussianPair(sigma) for sigma in (0.3, 0.7, 1.5, 6.0)},
    **PAIRS,
}


def grid_calls(grid, prices, k):
    """The polygon of call prices; its mass at 0 gives slope −1 to the left of the origin."""
    polygon = np.interp(k, grid.points, prices)
    return np.where(k < grid.origin, prices[0] + grid.origin - k, polygon)


def grid_puts(grid, masses, k):
    return (masses * np.maximum(k[:, None] - grid.points, 0.0)).sum(axis=1)


@pytest.mark.parametrize(("step", "cells"), GRIDS)
@pytest.mark.parametrize("name", RATIOS)
def test_chords_lie_above_and_tangent_polygons_below(name, step, cells):
    pair = RATIOS[name]
    upper_grid, lower_grid = order.Grid(step, cells), order.lower_grid(pair, step, cells)
    for grid in (upper_grid, lower_grid):
        k = np.random.default_rng(7).uniform(0.0, grid.cap, 2000)
        truth_call, truth_put = call(pair, k), put(pair, k)
        slack = 4 * (call_rounding(pair, k) + put_rounding(pair, k)) + 1e-15
        if grid is upper_grid:
            calls = order.upper_calls(pair, grid)
            masses, _ = order.upper_masses(pair, grid)
            overshoot = call(pair, np.array(grid.cap))
            assert np.all(grid_calls(grid, calls, k) + overshoot >= truth_call - slack)
            assert np.all(grid_puts(grid, masses, k) >= truth_put - slack)
            assert masses.sum() == pytest.approx(1.0, abs=1e-12)
            assert masses @ grid.points == pytest.approx(1.0 - overshoot, abs=1e-12)
        else:
            calls = order.lower_calls(pair, grid)
            masses, _ = order.lower_masses(pair, grid)
            assert np.all(grid_calls(grid, calls, k) <= truth_call + slack)
            assert np.all(grid_puts(grid, masses, k) <= truth_put + slack)
            assert masses.sum() <= 1.0 + 1e-12
        assert np.all(masses >= -1e-12)
        slopes = np.diff(calls) / step
        assert np.all(np.diff(slopes) >= -1e-12)
        assert slopes[0] >= -1.0 - 1e-12
        assert slopes[-1] <= 1e-15
        assert calls[-1] == 0


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_both_sides_close_in_as_the_square_of_the_step(sigma):
    """Mean-preserving, so second order; rounding up would be first order."""
    pair = GaussianPair(sigma)
    widths = []
    for step in (0.08, 0.04, 0.02):
        grid = order.Grid(step, round(12 / step))
        lower = order.lower_grid(pair, step, round(12 / step))
        k = np.linspace(0.3, 8.0, 500)
        upper_prices = grid_calls(grid, order.upper_calls(pair, grid), k)
        lower_prices = grid_calls(lower, order.lower_calls(pair, lower), k)
        widths.append(float(np.sum(upper_prices - lower_prices)))
    assert widths[0] > 3.4 * widths[1]
    assert widths[1] > 3.4 * widths[2]


@pytest.mark.parametrize("step", [0.01, 5.0, 400.0])
@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 20.0])
def test_the_lower_grid_starts_at_a_conditional_mean(sigma, step):
    pair = GaussianPair(sigma)
    origin = order.lower_grid(pair, step, 4).origin
    edge = np.array(origin + 0.5 * step)
    mass = float(pair.q_below(edge))
    if mass > 1e-300:
        assert float(pair.p_below(edge)) / mass == pytest.approx(origin, abs=1e-9 * step)
    assert 0 <= origin <= 1


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 20.0, 1000.0])
def test_prices_round_by_no_more_than_their_bound(sigma):
    pair, scores = GaussianPair(sigma), np.random.default_rng(3).uniform(-9.0, 9.0, 60)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(sigma)
        for score in scores:
            k = float(np.exp(score / sigma))
            at = mpmath.log(mpmath.mpf(k)) / mu
            above = mpmath.ncdf(mu / 2 - at) - k * mpmath.ncdf(-mu / 2 - at)
            below = k * mpmath.ncdf(at + mu / 2) - mpmath.ncdf(at - mu / 2)
            point = np.array(k)
            assert abs(float(call(pair, point) - above)) <= float(call_rounding(pair, point))
            assert abs(float(put(pair, point) - below)) <= float(put_rounding(pair, point))
