"""Mutants of the accounting: each named mutant makes a named check fail.

The checks are the suite's own, run here on an engine with one part replaced.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from turnout.accounting import decomposition
from turnout.accounting.divergence import composition, convex_order
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation import check_ins
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.accounting.pricing import epsilon_upper, price
from turnout.core.errors import NumericalError
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, Relation, ReleaseRule, Scheme

CHECK_IN = Scheme(GaussianNoise(1.0), CheckIn(64), Relation.ADD_REMOVE)


@pytest.fixture(autouse=True)
def _fresh_caches():
    """Curves are cached by what they were asked, not by what computes them."""
    clear_caches()
    yield
    clear_caches()


def clear_caches() -> None:
    cached = [
        value
        for module in (check_ins, composition)
        for value in vars(module).values()
        if hasattr(value, "cache_clear") and not isinstance(value, type)
    ]
    assert cached
    for function in cached:
        function.cache_clear()


def golden_holds() -> bool:
    """σ = 1, t = 64, δ = 1e-6: remove 1.13055, add 0.60933."""
    try:
        directions = price(CHECK_IN, 1e-6).directions
    except NumericalError:
        return False
    return all(
        bounds.lower <= expected * (1 + 1e-5) and bounds.upper >= expected * (1 - 1e-5)
        for bounds, expected in ((directions["remove"], 1.13055), (directions["add"], 0.60933))
    )


def composition_holds() -> bool:
    """σ = 1, 16 of 1024, δ = 1e-6: 3.1940."""
    scheme = Scheme(GaussianNoise(1.0), CheckIn(64, 16), Relation.ADD_REMOVE)
    try:
        epsilon = price(scheme, 1e-6).epsilon
    except NumericalError:
        return False
    return epsilon.lower <= 3.1940 * (1 + 1e-4) and epsilon.upper >= 3.1940 * (1 - 1e-4)


def dilution_holds() -> bool:
    """Coming with probability ½ costs strictly less than surely coming."""
    half = Scheme(GaussianNoise(1.0), CheckIn(64, 1, 0.5), Relation.ADD_REMOVE)
    return price(half, 1e-6).epsilon.upper < 0.9 * price(CHECK_IN, 1e-6).epsilon.lower


def half_holds() -> bool:
    """Coming with probability ½ divides δ of the remove direction by two at ln(1 + 2(K − 1))."""
    half = Scheme(GaussianNoise(1.0), CheckIn(64, 1, 0.5), Relation.ADD_REMOVE)
    epsilon = price(half, 5e-7, tolerance=1e-4).directions["remove"]
    expected = math.log1p(math.expm1(1.13055) / 2)
    return epsilon.lower <= expected * (1 + 1e-5) and epsilon.upper >= expected * (1 - 1e-5)


def one_client_costs_twice_the_sensitivity() -> bool:
    """A client that displaces another one half of the time has half the δ of a move by 2C."""
    alone = Scheme(GaussianNoise(2.0), CheckIn(1), Relation.ADD_REMOVE, ReleaseRule.ONE_CLIENT)
    displaced = Scheme(GaussianNoise(1.0), EveryStep(1), Relation.ADD_REMOVE)
    attack = math.log((1.0 + math.exp(price(displaced, 2e-6).epsilon.lower)) / 2.0)
    return epsilon_upper(alone, 1e-6) >= attack


def lower_adds_stay_below_uppers() -> bool:
    """At every ε, lower add curves made sharp elsewhere stay below the best upper one."""
    k = np.exp(np.linspace(0.0, 0.3, 200))
    pair = GaussianPair(1.0)
    lower, upper = (
        [
            allocation_curve(pair, 10_000, Direction.ADD, side, delta_hint=hint).delta(k)
            for hint in (0.1, 1e-2, 1e-4, 1e-7)
        ]
        for side in (Side.LOWER, Side.UPPER)
    )
    return bool(np.all(np.max(lower, axis=0) <= np.min(upper, axis=0)))


def drop_the_size_bias(mutate):
    """(1 − K/S)₊ under Q, where the payoff belongs under P, whose law of S is size-biased."""
    delta = check_ins.AllocationCurve.delta

    def unbiased(curve, k):
        value = delta(curve, k)
        return value / k if curve.frame.direction is Direction.REMOVE else value

    mutate(check_ins.AllocationCurve, "delta", unbiased)


def swap_the_directions(mutate):
    curve = check_ins.allocation_curve
    other = {Direction.REMOVE: Direction.ADD, Direction.ADD: Direction.REMOVE}
    mutate(
        check_ins,
        "allocation_curve",
        lambda pair, t, d, *a, **k: curve(pair, t, other[d], *a, **k),
    )


def round_down_instead_of_spreading(mutate):
    def rounded(pair, grid):
        masses = np.append(np.diff(pair.q_below(grid.points), prepend=0.0)[1:], 0.0)
        masses[-1] = 1.0 - masses.sum()
        return convex_order.GridDistribution(masses, np.zeros(masses.size), 0.0)

    mutate(convex_order, "upper_distribution", rounded)


def forget_the_tail(mutate):
    """What lies above the cap is worth nothing, where the cap is low."""
    law, frame = convex_order.upper_distribution, check_ins.Framing.frame
    mutate(convex_order, "upper_distribution", lambda *a: replace(law(*a), beyond=0.0))
    mutate(check_ins.Framing, "frame", lambda *a: replace(f := frame(*a), cap=0.5 * f.cap))


def miscount_who_may_come(mutate):
    """p₀ off by one window of sixty-four."""
    curve = check_ins.diluted
    mutate(
        check_ins,
        "diluted",
        lambda base, direction, probability: curve(base, direction, probability * 63 / 64),
    )


def forget_a_window(mutate):
    compose = composition.ComposedCurve.of
    mutate(
        composition.ComposedCurve,
        "of",
        staticmethod(
            lambda side, parts, delta: compose(side, [(p, max(n - 1, 1)) for p, n in parts], delta)
        ),
    )


def ignore_the_probability(mutate):
    mutate(check_ins, "diluted", lambda base, direction, probability: base)


def forget_the_displaced_client(mutate):
    blocks_of = decomposition.blocks_of
    mutate(
        decomposition,
        "blocks_of",
        lambda part, upper, lower: blocks_of(part, lower, lower),
    )


def forget_what_wraps_in_from_below(mutate):
    """What lies outside the edges is charged nothing, where the edges are narrow."""
    mutate(check_ins, "_log_outside", lambda *a: -math.inf)
    frame = check_ins.Framing.frame

    def narrow(*a):
        wide = frame(*a)
        low = 0.5 * (wide.low + wide.threshold)
        return replace(wide, low=low, high=max(wide.high, low + 1.01 * wide.cap))

    mutate(check_ins.Framing, "frame", narrow)


MUTANTS = [
    (drop_the_size_bias, golden_holds),
    (swap_the_directions, golden_holds),
    (round_down_instead_of_spreading, golden_holds),
    (forget_the_tail, golden_holds),
    (miscount_who_may_come, half_holds),
    (forget_a_window, composition_holds),
    (ignore_the_probability, dilution_holds),
    (forget_the_displaced_client, one_client_costs_twice_the_sensitivity),
    (forget_what_wraps_in_from_below, lower_adds_stay_below_uppers),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda f: f.__name__)
def test_a_mutant_of_the_accounting_makes_its_check_fail(mutate, mutant, check):
    assert check()
    clear_caches()
    mutant(mutate)
    assert not check()
