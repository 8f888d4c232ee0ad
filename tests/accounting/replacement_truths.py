"""True δ under replace-one: quadrature and enumeration, independent of the package's formulas.

Notation as in docs/design/replacement.md: Y = X − K·X', δ(K) = (p/t)·E[(ΣY − c₀)₊].
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy.special import ndtr

Triple = list[tuple[Fraction, Fraction, Fraction]]
"""Outcomes with their probabilities under Q, P and P'."""


def threshold(k: float, window: int, probability: float) -> float:
    return window * (k - 1.0) * (1.0 - probability) / probability


def gaussian_ratios(z: np.ndarray, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """X and X' for shifts of +μ and −μ, at noise of z standard deviations."""
    return np.exp(mu * z - mu * mu / 2), np.exp(-mu * z - mu * mu / 2)


def gaussian_hockey_stick(c: np.ndarray, k: float, mu: float) -> np.ndarray:
    """E[(X − K·X' − c)₊], by bisection for the root of the payoff, which increases in z."""
    low, high = np.full(c.shape, -60.0 / mu), np.full(c.shape, 60.0 / mu + mu)
    for _ in range(70):
        middle = 0.5 * (low + high)
        x, other = gaussian_ratios(middle, mu)
        below = x - k * other < c
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return ndtr(mu - high) - k * ndtr(-mu - high) - c * ndtr(-high)


def gaussian_delta(
    k: float, window: int, sigma: float, probability: float = 1.0, points: int = 360
) -> float:
    """δ of two opposite records in a window of at most three steps, by the trapezoidal rule.

    The integrand is smooth and vanishes at both ends, so the rule converges fast, but for little
    noise, which needs more points.
    """
    mu = 1.0 / sigma
    z = np.linspace(-9.0 - mu, 9.0 + mu, points)
    density = np.exp(-z * z / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    x, other = gaussian_ratios(z, mu)
    values, weights = np.zeros(1), np.ones(1)
    for _ in range(window - 1):
        values = np.add.outer(values, x - k * other).ravel()
        weights = np.multiply.outer(weights, density).ravel()
    start = threshold(k, window, probability)
    return probability / window * float(weights @ gaussian_hockey_stick(start - values, k, mu))


def mean_excess(triples: list[Triple], k: Fraction, probability: Fraction = Fraction(1)) -> float:
    """δ of a window of independent steps, each given as a triple, by enumeration."""
    window, total = len(triples), Fraction(0)
    for outcome in itertools.product(*triples):
        absent = math.prod((q for q, _, _ in outcome), start=Fraction(1))
        if absent == 0:
            continue
        here = sum((p / q for q, p, _ in outcome), start=Fraction(0)) / window
        there = sum((r / q for q, _, r in outcome), start=Fraction(0)) / window
        rest = 1 - probability
        gain = rest + probability * here - k * (rest + probability * there)
        total += absent * max(gain, Fraction(0))
    return float(total)


def extreme_rays(a: Fraction) -> list[tuple[Fraction, Fraction, Fraction]]:
    """All (q, p, p') with pairwise ratios of 1 or a that are not all equal."""
    one = Fraction(1)
    return [
        (q, p, other)
        for q, p, other in itertools.product((one, a), repeat=3)
        if len({q, p, other}) == 2
    ]


def random_triple(a: Fraction, generator: np.random.Generator, outcomes: int = 4) -> Triple:
    """Random ε₀-private triple, a = e^{ε₀}: a mixture of rays, merged by a random channel."""
    vertices = extreme_triples(a)
    shares = [Fraction(int(n)) for n in generator.integers(0, 6, len(vertices))]
    shares[int(generator.integers(len(vertices)))] += 1
    whole = sum(shares)
    merged = [[Fraction(0)] * 3 for _ in range(outcomes)]
    for triple, share in zip(vertices, shares, strict=True):
        for masses in triple:
            channel = [Fraction(int(n)) for n in generator.integers(0, 4, outcomes)]
            channel[int(generator.integers(outcomes))] += 3
            for i, part in enumerate(channel):
                for j in range(3):
                    merged[i][j] += share / whole * part / sum(channel) * masses[j]
    return [(q, p, r) for q, p, r in merged if q > 0]


def extreme_triples(a: Fraction) -> list[Triple]:
    """All extreme distributions on the rays with Q = P = P' = 1, by solving 3 × 3 systems."""
    found: list[Triple] = []
    for chosen in itertools.combinations(extreme_rays(a), 3):
        scales = _solve([[ray[i] for ray in chosen] for i in range(3)])
        if scales is None or min(scales) < 0:
            continue
        triple = [
            (s * ray[0], s * ray[1], s * ray[2])
            for s, ray in zip(scales, chosen, strict=True)
            if s > 0
        ]
        if sorted(triple) not in [sorted(other) for other in found]:
            found.append(triple)
    return found


def _solve(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """Solution of a 3 × 3 system with right side 1, by Cramer's rule; None if singular."""

    def determinant(m: list[list[Fraction]]) -> Fraction:
        return sum(
            (
                m[0][i] * (m[1][(i + 1) % 3] * m[2][(i + 2) % 3])
                - m[0][i] * (m[1][(i + 2) % 3] * m[2][(i + 1) % 3])
                for i in range(3)
            ),
            start=Fraction(0),
        )

    whole = determinant(rows)
    if whole == 0:
        return None
    replaced = [
        [[Fraction(1) if j == i else row[j] for j in range(3)] for row in rows] for i in range(3)
    ]
    return [determinant(m) / whole for m in replaced]


def adaptive_supremum(a: Fraction, k: Fraction, window: int, start: Fraction) -> float:
    """Largest E[(ΣY − c₀)₊]/t over extreme distributions that may depend on earlier steps."""
    distributions = [
        [(q, p / q - k * r / q) for q, p, r in triple if q > 0] for triple in extreme_triples(a)
    ]

    def best(total: Fraction, steps: int) -> Fraction:
        if steps == 0:
            return max(total, Fraction(0))
        return max(
            sum((q * best(total + y, steps - 1) for q, y in one), start=Fraction(0))
            for one in distributions
        )

    return float(best(-start, window)) / window
