"""Brackets of hockey sticks against numerical integration, without grids, tilts or FFTs.

With t = 2 the hockey stick of (X₁ + X₂)/2 is an integral over X₂ of the closed form for X₁; with
t = 3 it is a double integral. The closed forms of the hockey stick and the reverse hockey stick are
written out here with `math.erfc`, independently of the package's.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import allocation_curve

SIGMAS = (0.5, 1.0, 2.5)
EPSILONS = (0.05, 0.4, 1.0, 2.0, 3.5)


def normal_above(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def hockey_stick(threshold: float, mu: float) -> float:
    """E[(X − threshold)₊] for ln X ~ N(−μ²/2, μ²)."""
    if threshold <= 0:
        return 1.0 - threshold
    score = math.log(threshold) / mu
    return normal_above(score - mu / 2) - threshold * normal_above(score + mu / 2)


def reverse_hockey_stick(threshold: float, mu: float) -> float:
    """E[(threshold − X)₊]."""
    if threshold <= 0:
        return 0.0
    score = math.log(threshold) / mu
    return threshold * normal_above(-score - mu / 2) - normal_above(-score + mu / 2)


def expected(payoff, mu: float) -> float:
    """E[payoff(X)] for one such X."""

    def integrand(z: float) -> float:
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return density * payoff(math.exp(mu * z - mu * mu / 2))

    return quad(integrand, -9, 9 + mu, epsabs=0, epsrel=1e-9, limit=400)[0]


def of_sum(stick, threshold: float, terms: int, mu: float) -> float:
    """Hockey stick, or reverse hockey stick, of a sum of independent X."""
    if terms == 1:
        return stick(threshold, mu)
    return expected(lambda x: of_sum(stick, threshold - x, terms - 1, mu), mu)


def remove_delta(epsilon: float, window: int, sigma: float) -> float:
    """E[(S − K)₊]."""
    return of_sum(hockey_stick, window * math.exp(epsilon), window, 1 / sigma) / window


def add_delta(epsilon: float, window: int, sigma: float) -> float:
    """E[(1 − K S)₊] = (K/t)·E[(t/K − Σ)₊]."""
    threshold = window * math.exp(-epsilon)
    return of_sum(reverse_hockey_stick, threshold, window, 1 / sigma) / threshold


TRUTHS = {Direction.REMOVE: remove_delta, Direction.ADD: add_delta}


def assert_bracketed(direction: Direction, window: int, sigma: float, epsilon: float) -> None:
    truth = TRUTHS[direction](epsilon, window, sigma)
    hint = min(max(truth, 1e-14), 0.4)  # smaller δ's are read from a curve made for 1e-14
    k = np.array([math.exp(epsilon)])
    pair = GaussianPair(sigma)
    lower, upper = (
        float(
            allocation_curve(pair, window, direction, side, delta_hint=hint, refinement=1).delta(k)[
                0
            ]
        )
        for side in (Side.LOWER, Side.UPPER)
    )
    slack = 1e-13 + 1e-7 * truth
    assert lower <= truth + slack
    assert truth - slack <= upper
    if truth < 0.02:  # larger δ's are of no use to anybody, and the add curve is not sharp there
        assert upper - lower <= 2e-3 * truth + 1e-14


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_delta_of_a_window_of_two_steps_agrees_with_quadrature(direction, sigma, epsilon):
    assert_bracketed(direction, 2, sigma, epsilon)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "epsilon"), [(0.7, 1.0), (1.5, 0.3)])
def test_delta_of_a_window_of_three_steps_agrees_with_quadrature(direction, sigma, epsilon):
    assert_bracketed(direction, 3, sigma, epsilon)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_window_of_one_step_equals_the_gaussian_mechanism(direction, sigma):
    curve = allocation_curve(GaussianPair(sigma), 1, direction, Side.UPPER, delta_hint=1e-3)
    for epsilon in EPSILONS:
        expected_delta = TRUTHS[direction](epsilon, 1, sigma)
        assert float(curve.delta(np.array(math.exp(epsilon)))) == pytest.approx(
            expected_delta, rel=1e-9, abs=1e-15
        )


def test_remove_and_add_directions_have_different_epsilon():
    """Negative control: swapped directions would be detected."""
    remove, add = remove_delta(1.0, 2, 0.7), add_delta(1.0, 2, 0.7)
    assert abs(remove - add) > 0.05 * max(remove, add)
