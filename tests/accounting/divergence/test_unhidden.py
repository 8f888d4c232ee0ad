"""Closed-form bounds without amplification, and one Gaussian release computed in logarithms."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import pytest
from scipy.stats import binom

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.unhidden import (
    UNKNOWN,
    ClosedForm,
    Unhidden,
    UnhiddenBlock,
    gaussian_epsilon,
    most_blocks,
)


def true_delta(mu: float, epsilon: Any) -> Any:
    """δ of N(μ, 1) against N(0, 1) in sixty digits (Balle & Wang 2018, Theorem 8)."""
    x = epsilon / mu - mp.mpf(mu) / 2
    there = mp.erfc((x + mu) / mp.sqrt(2)) / 2
    return mp.erfc(x / mp.sqrt(2)) / 2 - mp.exp(epsilon) * there


@pytest.mark.parametrize(
    ("mu", "delta"),
    [
        (1e-8, 1e-30),
        (1e-3, 1e-6),
        (1.0, 0.5),
        (1.0, 1e-300),
        (20.0, 1e-6),
        (1 / 0.03, 1e-6),  # ε = 713.07, beyond what e^ε can be
        (1e3, 1e-15),
    ],
)
def test_bounds_of_one_gaussian_release_enclose_epsilon_of_any_size(mu, delta):
    with mp.workdps(60):
        upper, lower = (mp.mpf(gaussian_epsilon(mu, delta, side)) for side in Side)
        assert true_delta(mp.mpf(mu), upper) <= delta
        assert lower == 0 or true_delta(mp.mpf(mu), lower) >= delta
        assert upper - lower <= mp.mpf(2e-7) * upper
    assert gaussian_epsilon(1e-6, 1e-3, Side.UPPER) == 0.0


def test_parameters_of_closed_forms_add_up_under_composition():
    both = Unhidden([(UnhiddenBlock(ClosedForm.gaussian(1.0), releases=2), 3)])
    assert both.upper(1e-6) == pytest.approx(gaussian_epsilon(math.sqrt(6), 1e-6, Side.UPPER))
    # A little above what grids find of the same release, whose digits stand in documents.
    assert both.upper(1e-6) > gaussian_epsilon(math.sqrt(6), 1e-6, Side.UPPER) * (1 + 1e-9)
    pure = Unhidden([(UnhiddenBlock(ClosedForm.pure(0.5)), 4)])
    assert (pure * 3).upper(0.0) == 6.0
    # Many pure releases cost less than the sum of their ε₀ (bun2016concentrated, 1.3 and 1.4).
    many = pure * 10_000
    rho = 40_000 * 0.125
    assert many.upper(1e-6) == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e6)))
    # A release that shows the client for sure with δ₀ leaves the rest of δ.
    assert Unhidden([(UnhiddenBlock(ClosedForm.pure(1.0, 1e-3)), 5)]).upper(5.1e-3) == 5.0
    assert Unhidden([(UnhiddenBlock(ClosedForm.pure(1.0, 1e-3)), 5)]).upper(4.9e-3) == math.inf
    assert Unhidden([(UnhiddenBlock(UNKNOWN), 1)]).upper(0.5) == math.inf


@pytest.mark.parametrize(
    ("count", "chance", "tail"), [(1000, 0.01, 1e-7), (50, 0.8, 1e-4), (10**9, 1e-7, 1e-12)]
)
def test_the_number_of_releases_exceeds_its_chernoff_bound_with_small_probability(
    count, chance, tail
):
    most = most_blocks(count, chance, tail)
    assert binom.sf(most, count, chance) <= tail
    assert most < count
    assert most_blocks(count, chance, 0.0) == count
    # Chernoff loses a factor, not the exponent.
    assert binom.sf(most - 1 - round(0.3 * math.sqrt(count * chance)), count, chance) > 0.01 * tail


def test_the_lower_bound_is_that_of_one_release_less_the_log_of_the_number_of_step_sets():
    """δ(ε) ≥ δ'(ε + ln A), A sets of steps; for one release in one of two steps by quadrature."""
    mu, delta = 6.0, 1e-6
    turns = Unhidden(below=[(UnhiddenBlock(ClosedForm.gaussian(mu), log_sets=math.log(2)), 1)])
    epsilon = turns.lower(delta, certain=False)
    alone = gaussian_epsilon(mu, delta, Side.LOWER)
    assert epsilon == pytest.approx(alone - math.log(2), rel=1e-8)
    # The adversary's event: one of the two ratios exceeds 2e^ε.
    k = epsilon + math.log(2)
    here, absent = (0.5 * math.erfc((k / mu + s * mu / 2) / math.sqrt(2)) for s in (-1, 1))
    present = 1 - (1 - here) * (1 - absent)
    assert present - math.exp(epsilon) * (2 * absent) >= delta * (1 - 1e-6)
    assert turns.lower(delta, certain=True) == 0.0
    # A client who comes with a chance of 1/2 only: half of that event's gain.
    rare = Unhidden(below=[(UnhiddenBlock(ClosedForm.gaussian(mu), 0.5), 1)])
    assert rare.lower(delta, certain=False) == pytest.approx(
        gaussian_epsilon(mu, 2 * delta, Side.LOWER) - math.log(2), rel=1e-8
    )
