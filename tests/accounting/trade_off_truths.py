"""Reference privacy profiles, independent of the package: closed forms and enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np

from turnout.accounting.meaning.membership import TradeOff
from turnout.accounting.meaning.profile import DeltaBounds, Profile
from turnout.schemes import Relation


def phi(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def quantile(p: float) -> float:
    """Its inverse, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if phi(middle) < p else (low, middle)
    return 0.5 * (low + high)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ of N(μ, 1) against N(0, 1)."""
    return phi(-epsilon / mu + mu / 2) - math.exp(epsilon) * phi(-epsilon / mu - mu / 2)


def gaussian_misses(alpha: float, mu: float) -> float:
    """G_μ(α)."""
    return phi(quantile(1 - alpha) - mu)


Law = dict[Fraction, Fraction]
"""Likelihood ratios X = dP/dQ and their probabilities under Q."""


def randomized_response(ratio: Fraction) -> Law:
    likely = 1 / (ratio + 1)
    return {1 / ratio: 1 - likely, ratio: likely}


def average(law: Law, steps: int) -> Law:
    """The ratio of one random check-in in a window: the mean of independent ratios."""
    total: Law = {}
    for outcome in itertools.product(law.items(), repeat=steps):
        value = sum((x for x, _ in outcome), start=Fraction(0)) / steps
        mass = math.prod((m for _, m in outcome), start=Fraction(1))
        total[value] = total.get(value, Fraction(0)) + mass
    return total


def forward_delta(law: Law, k: Fraction) -> Fraction:
    """H_K(P‖Q)."""
    return sum((m * max(x - k, Fraction(0)) for x, m in law.items()), start=Fraction(0))


def backward_delta(law: Law, k: Fraction) -> Fraction:
    """H_K(Q‖P)."""
    return sum((m * max(1 - k * x, Fraction(0)) for x, m in law.items()), start=Fraction(0))


def misses(law: Law, alpha: Fraction) -> Fraction:
    """f(α) by Neyman and Pearson: accuse where the ratio is largest, the last one by a coin."""
    missed, left = Fraction(1), alpha
    for x, mass in sorted(law.items(), reverse=True):
        taken = min(mass, left)
        missed -= taken * x
        left -= taken
    return missed


def profile_of(law: Law, epsilons: np.ndarray) -> Profile:
    """The exact profile of a law on a grid, rounded outwards."""
    ratios = [Fraction(k) for k in np.exp(epsilons)]
    sides = []
    for delta in (forward_delta, backward_delta):
        values = np.array([float(delta(law, k)) for k in ratios])
        sides.append(DeltaBounds.of(epsilons, values * (1 - 1e-15), values * (1 + 1e-15)))
    return Profile(sides[0], sides[1], Relation.ADD_REMOVE)


def brackets(curve: TradeOff, law: Law, alphas: np.ndarray) -> bool:
    """Whether a law's true trade-off lies between a curve's bounds."""
    truth = np.array([float(misses(law, Fraction(a))) for a in alphas])
    return bool(
        np.all(curve.lower(alphas) <= truth + 1e-15)
        and np.all(truth <= curve.upper(alphas) + 1e-15)
    )
