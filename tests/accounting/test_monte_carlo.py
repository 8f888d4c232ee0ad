"""Brackets against simulated likelihood ratios, with error bars and negative controls."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnout.accounting import price
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.schemes import CheckIn, GaussianNoise, KSubset, Relation, Scheme

SAMPLES = 200_000
STANDARD_ERRORS = 6.1  # a false alarm in about 1e9


def ratios(sigma: float, window: int, *, present: bool, seed: int) -> np.ndarray:
    """S of one window, drawn with her in it (one of the X's from P) or without."""
    generator = np.random.default_rng(seed)
    z = generator.standard_normal((SAMPLES, window))
    if present:
        z[:, 0] += 1 / sigma
    return np.exp(z / sigma - 0.5 / sigma**2).mean(axis=1)


def remove_payoffs(s: np.ndarray, epsilon: float) -> np.ndarray:
    return np.maximum(1.0 - math.exp(epsilon) / s, 0.0)


def add_payoffs(s: np.ndarray, epsilon: float) -> np.ndarray:
    return np.maximum(1.0 - math.exp(epsilon) * s, 0.0)


def within(payoffs: np.ndarray, direction: Direction, sigma: float, window: int, epsilon: float):
    """Whether the sample agrees with the bracket, error bars included."""
    estimate = payoffs.mean()
    margin = STANDARD_ERRORS * payoffs.std() / math.sqrt(payoffs.size)
    lower, upper = (
        float(
            allocation_curve(
                GaussianPair(sigma), window, direction, side, delta_hint=float(estimate)
            ).delta(np.array(math.exp(epsilon)))
        )
        for side in (Side.LOWER, Side.UPPER)
    )
    assert lower <= upper
    return lower - margin <= estimate <= upper + margin


CELLS = [(1.0, 50, 0.4), (0.6, 20, 1.0), (2.0, 10, 0.3)]


@pytest.mark.parametrize(("sigma", "window", "epsilon"), CELLS)
def test_delta_in_the_remove_direction_is_bracketed(sigma, window, epsilon):
    s = ratios(sigma, window, present=True, seed=1)
    assert within(remove_payoffs(s, epsilon), Direction.REMOVE, sigma, window, epsilon)


@pytest.mark.parametrize(("sigma", "window", "epsilon"), CELLS)
def test_delta_in_the_add_direction_is_bracketed(sigma, window, epsilon):
    s = ratios(sigma, window, present=False, seed=2)
    assert within(add_payoffs(s, epsilon), Direction.ADD, sigma, window, epsilon)


def test_simulated_delta_of_a_wrong_distribution_lies_outside_the_bracket():
    """Negative controls: no size bias, swapped directions, another number of steps."""
    sigma, window, epsilon = 1.0, 50, 0.4
    absent = ratios(sigma, window, present=False, seed=3)
    present = ratios(sigma, window, present=True, seed=4)
    longer = ratios(sigma, 2 * window, present=True, seed=5)
    for wrong, direction in (
        (remove_payoffs(absent, epsilon), Direction.REMOVE),
        (add_payoffs(present, epsilon), Direction.ADD),
        (remove_payoffs(longer, epsilon), Direction.REMOVE),
        (add_payoffs(absent, epsilon), Direction.REMOVE),
    ):
        assert not within(wrong, direction, sigma, window, epsilon)


def test_the_k_subset_bracket_contains_the_simulated_delta():
    """t = 4, k = 2, σ = 1, ε = 3: δ = 0.003984 ± 6e-6 by simulation; two blocks give 0.00556."""
    scheme = Scheme(GaussianNoise(1.0), KSubset(4, 2), Relation.ADD_REMOVE)
    guarantee = price(scheme, 0.003984)
    assert guarantee.epsilon.lower < 3.0 < guarantee.epsilon.upper
    blocks = Scheme(GaussianNoise(1.0), CheckIn(2, 2), Relation.ADD_REMOVE)
    assert price(blocks, 0.00556).epsilon.upper == pytest.approx(3.0, rel=2e-3)
