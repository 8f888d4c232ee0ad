"""Reference tail functions of dominating pairs from their definitions, to forty digits."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath as mp

from turnout.accounting.divergence.curves import Direction

Price = Callable[[mp.mpf], mp.mpf]


def gaussian_hockey_stick(sigma: float) -> Price:
    """E(X − k)₊ for ln X ~ N(−μ²/2, μ²)."""
    mu = 1 / mp.mpf(sigma)

    def price(k: mp.mpf) -> mp.mpf:
        if k == 0:
            return mp.mpf(1)
        score = mp.log(k) / mu
        return mp.ncdf(mu / 2 - score) - k * mp.ncdf(-mu / 2 - score)

    return price


def laplace_hockey_stick(scale: float) -> Price:
    """E(X − k)₊ by integrals over z ~ Lap(0, b), ln X = (|z| − |z − 1|)/b."""
    b = mp.mpf(scale)

    @functools.cache
    def price(k: mp.mpf) -> mp.mpf:
        def density(z: mp.mpf) -> mp.mpf:
            ratio = mp.exp((abs(z) - abs(z - 1)) / b)
            return max(ratio - k, mp.mpf(0)) * mp.exp(-abs(z) / b) / (2 * b)

        kink = (b * mp.log(k) + 1) / 2 if k > 0 else mp.mpf(0)
        inner = [kink] if 0 < kink < 1 else []
        return mp.quad(density, [-mp.inf, 0, *inner, 1, mp.inf])

    return price


def table_hockey_stick(present: Sequence[Fraction], absent: Sequence[Fraction]) -> Price:
    """E(X − k)₊ of the finite part of P against Q, scaled to mean 1."""
    finite = sum(p for p, q in zip(present, absent, strict=True) if q > 0)

    def price(k: mp.mpf) -> mp.mpf:
        total = mp.mpf(0)
        for p, q in zip(present, absent, strict=True):
            if q > 0:
                share = p / finite
                total += max(_mp(share) - k * _mp(q), mp.mpf(0))
        return total

    return price


def lattice_hockey_stick(mass: Callable[[int], mp.mpf], sensitivity: int, reach: int) -> Price:
    """E(X − k)₊ of a distribution on integers against itself moved by ``sensitivity``."""

    @functools.cache
    def masses() -> list[tuple[mp.mpf, mp.mpf]]:  # once asked for, not where tests are collected
        return [(mass(n - sensitivity), mass(n)) for n in range(-reach, reach + 1)]

    def price(k: mp.mpf) -> mp.mpf:
        return mp.fsum(max(p - k * q, mp.mpf(0)) for p, q in masses())

    return price


def discrete_gaussian_mass(standard_deviation: float) -> Callable[[int], mp.mpf]:
    """Mass ∝ e^{−n²/2s²}, normalized over all integers."""
    s = mp.mpf(standard_deviation)
    reach = math.ceil(20 * standard_deviation)
    total = mp.fsum(mp.exp(-(mp.mpf(n) ** 2) / (2 * s**2)) for n in range(-reach, reach + 1))
    return lambda n: mp.exp(-(mp.mpf(n) ** 2) / (2 * s**2)) / total


def rounded_gaussian_mass(standard_deviation: float) -> Callable[[int], mp.mpf]:
    """P(n − ½ < N(0, s²) < n + ½)."""
    s = mp.mpf(standard_deviation)
    half = mp.mpf(1) / 2

    def mass(n: int) -> mp.mpf:
        far = abs(n)
        return mp.ncdf((half - far) / s) - mp.ncdf((-half - far) / s)

    return mass


def window_laws(
    present: Sequence[Fraction], absent: Sequence[Fraction], window: int, probability: Fraction
) -> list[tuple[Fraction, Fraction]]:
    """P's and Q's probability of each sequence of outcomes of one window, from the definition."""
    laws = []
    for outcome in itertools.product(range(len(present)), repeat=window):
        without = math.prod((absent[i] for i in outcome), start=Fraction(1))
        mixed = Fraction(0)
        for slot in range(window):
            others = (absent[i] for j, i in enumerate(outcome) if j != slot)
            mixed += math.prod(others, start=present[outcome[slot]]) / window
        laws.append((probability * mixed + (1 - probability) * without, without))
    return laws


def product(laws: list[tuple[Fraction, Fraction]], times: int) -> list[tuple[Fraction, Fraction]]:
    """The laws of several independent repetitions."""
    total = [(Fraction(1), Fraction(1))]
    for _ in range(times):
        total = [(p * a, q * b) for p, q in total for a, b in laws]
    return total


def hockey_stick(laws: list[tuple[Fraction, Fraction]], direction: Direction, k: float) -> Fraction:
    """H_K(P‖Q) or H_K(Q‖P)."""
    ratio = Fraction(k)
    gains = ((p - ratio * q) if direction is Direction.REMOVE else (q - ratio * p) for p, q in laws)
    return sum((max(gain, Fraction(0)) for gain in gains), start=Fraction(0))


def four_outcomes(ratio: int, delta0: Fraction) -> tuple[list[Fraction], list[Fraction]]:
    """The pair of Kairouz, Oh & Viswanath for ε₀ = ln ``ratio`` and δ₀."""
    large = (1 - delta0) * Fraction(ratio, ratio + 1)
    small = (1 - delta0) * Fraction(1, ratio + 1)
    return [delta0, large, small, Fraction(0)], [Fraction(0), small, large, delta0]


def binomial_price(
    epsilon0: float, window: int, direction: Direction, k: float, *, digits: int = 40
) -> mp.mpf:
    """δ(K) of one check-in of the two-valued pair, summed until nothing is left."""
    with mp.workdps(digits):
        ratio = mp.exp(mp.mpf(epsilon0))
        likely, threshold = 1 / (ratio + 1), mp.mpf(k)
        odds = likely / (1 - likely)

        def average(large: int) -> mp.mpf:
            return (large * ratio + (window - large) / ratio) / window

        up = direction is Direction.REMOVE
        bound = threshold if up else 1 / threshold
        root = (bound * window - window / ratio) / (ratio - 1 / ratio)
        count = int(mp.floor(root)) + 1 if up else int(mp.ceil(root)) - 1
        count = max(count, 0) if up else min(count, window)
        logs = mp.loggamma(window + 1) - mp.loggamma(count + 1) - mp.loggamma(window - count + 1)
        mass = mp.exp(logs + count * mp.log(likely) + (window - count) * mp.log(1 - likely))
        total, least = mp.mpf(0), mp.mpf(0)
        while 0 <= count <= window and mass > least:
            gain = average(count) - threshold if up else 1 - threshold * average(count)
            total += mass * max(gain, mp.mpf(0))
            least = total * mp.mpf(10) ** -25
            if up:
                mass *= odds * (window - count) / (count + 1)
                count += 1
            else:
                mass *= count / (odds * (window - count + 1))
                count -= 1
        return total


def _mp(value: Fraction) -> mp.mpf:
    return mp.mpf(value.numerator) / value.denominator
