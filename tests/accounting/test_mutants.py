"""Guarantees broken on purpose: each named mutant makes a named check fail.

The checks are the suite's own, run here on an engine with one part replaced.
"""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import allocation, blocks, convex_order, decomposition, runs, sums
from turnout.accounting.allocation import allocation_curve
from turnout.accounting.curves import Direction, Side
from turnout.accounting.pairs import GaussianPair
from turnout.accounting.pricing import price
from turnout.core.errors import NumericalError
from turnout.spec import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme

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
        for module in (allocation, runs)
        for value in vars(module).values()
        if hasattr(value, "cache_clear")
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


def one_client_costs_twice_the_sensitivity() -> bool:
    """Displacing another client's update moves the release by 2C."""
    alone = Scheme(GaussianNoise(2.0), CheckIn(64), Relation.ADD_REMOVE, ReleaseRule.ONE_CLIENT)
    return price(alone, 1e-6).epsilon.upper >= price(CHECK_IN, 1e-6).epsilon.lower


def lower_adds_stay_below_uppers() -> bool:
    """At every ε, lower add curves made sharp elsewhere stay below the best upper one."""
    k = np.exp(np.linspace(0.0, 0.3, 200))
    pair = GaussianPair(1.0)
    lower, upper = (
        [
            allocation_curve(
                pair, 10_000, Direction.ADD, side, delta_hint=hint, fewest_log2=14
            ).delta(k)
            for hint in (0.1, 1e-2, 1e-4, 1e-7)
        ]
        for side in (Side.LOWER, Side.UPPER)
    )
    return bool(np.all(np.max(lower, axis=0) <= np.min(upper, axis=0)))


def drop_the_size_bias(monkeypatch):
    power = sums.power
    monkeypatch.setattr(
        sums,
        "power",
        lambda *a, **k: power(*a, **{**k, "bias": (1.0, 0.0) if "bias" in k else None}),
    )


def swap_the_directions(monkeypatch):
    remove, add = allocation._remove_curve, allocation._add_curve
    frames = allocation._remove_frame, allocation._add_frame
    monkeypatch.setattr(allocation, "_remove_curve", add)
    monkeypatch.setattr(allocation, "_add_curve", remove)
    monkeypatch.setattr(allocation, "_remove_frame", frames[1])
    monkeypatch.setattr(allocation, "_add_frame", frames[0])


def round_down_instead_of_spreading(monkeypatch):
    def rounded(pair, grid):
        above = pair.q_above(grid.points[1:])
        return np.append(np.cumsum(above[::-1])[::-1] * grid.step, 0.0)

    monkeypatch.setattr(convex_order, "upper_calls", rounded)


def forget_a_window(monkeypatch):
    compose = runs.ComposedCurve.of
    monkeypatch.setattr(
        runs.ComposedCurve,
        "of",
        staticmethod(lambda side, parts: compose(side, [(pmf, max(n - 1, 1)) for pmf, n in parts])),
    )


def ignore_the_probability(monkeypatch):
    monkeypatch.setattr(blocks, "diluted", lambda base, direction, probability: base)


def forget_the_displaced_client(monkeypatch):
    blocks_of = decomposition.blocks_of
    monkeypatch.setattr(
        decomposition,
        "blocks_of",
        lambda law, upper, lower, steps: blocks_of(law, lower, lower, steps),
    )


def forget_what_wraps_in_from_below(monkeypatch):
    monkeypatch.setattr(allocation, "mass_below", lambda *a: 0.0)
    monkeypatch.setattr(allocation, "_LOWER_REACH", 1e9)
    monkeypatch.setattr(allocation, "_LOG_TILTED_TAIL", 2.0)


MUTANTS = [
    (drop_the_size_bias, golden_holds),
    (swap_the_directions, golden_holds),
    (round_down_instead_of_spreading, golden_holds),
    (forget_a_window, composition_holds),
    (ignore_the_probability, dilution_holds),
    (forget_the_displaced_client, one_client_costs_twice_the_sensitivity),
    (forget_what_wraps_in_from_below, lower_adds_stay_below_uppers),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda f: f.__name__)
def test_mutants_are_caught(monkeypatch, mutant, check):
    assert check()
    clear_caches()
    mutant(monkeypatch)
    assert not check()
