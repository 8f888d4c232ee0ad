"""Mutants of the replace-one bounds: each one makes a named check fail."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from replacement_truths import adaptive_supremum, gaussian_delta

from turnout.accounting.divergence import curves
from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation import (
    replace_one,
    replace_one_expectations,
    replace_one_grids,
    replace_one_steps,
)
from turnout.accounting.participation.replace_one import LocalReplacementBlock, ReplacementBlock


@pytest.fixture(autouse=True)
def _fresh_caches():
    clear_caches()
    yield
    clear_caches()


def clear_caches() -> None:
    cached = [
        value
        for module in (
            replace_one,
            replace_one_expectations,
            replace_one_steps,
            replace_one_expectations,
        )
        for value in vars(module).values()
        if hasattr(value, "cache_clear") and not isinstance(value, type)
    ]
    assert cached
    for function in cached:
        function.cache_clear()


def gaussian_is_bracketed() -> bool:
    """Whether brackets at σ = 0.8, t = 2, p₀ = 1 and 0.4 contain the quadrature."""
    for probability in (1.0, 0.4):
        block = ReplacementBlock(GaussianPair(0.8), 2, probability)
        for epsilon in (0.3, 1.2):
            k = math.exp(epsilon)
            truth = gaussian_delta(k, 2, 0.8, probability)
            lower, upper = (block.delta(k, side) for side in (Side.LOWER, Side.UPPER))
            if not lower * (1 - 1e-7) <= truth <= upper * (1 + 1e-7) <= truth * 1.01:
                return False
    return True


def local_is_the_supremum() -> bool:
    """Whether upper bounds at a = 4, t = 4 are the maximum over all adaptive choices."""
    a = Fraction(4)
    for k in (Fraction(1), Fraction(11, 10)):
        upper = LocalReplacementBlock(math.log(4), 4).delta(float(k), Side.UPPER)
        truth = adaptive_supremum(a, k, 4, Fraction(0))
        if not truth * (1 - 1e-12) <= upper <= truth * 1.01:
            return False
    return True


def polygons_lie_on_their_side() -> bool:
    truth = PairCurve(GaussianPair(2.0), Direction.REMOVE, Side.UPPER)
    nodes, fine = np.exp(np.linspace(0, 1.5, 7)), np.exp(np.linspace(0, 1.5, 301))
    values = truth.delta(nodes)
    lower = curves.lower_polygon(nodes, values, values).delta(fine)
    upper = curves.upper_polygon(nodes, values).delta(fine)
    exact = truth.delta(fine)
    return bool((lower <= exact + 1e-12).all() and (upper >= exact - 1e-12).all())


def couple_on_the_same_side(mutate):
    """The event E is where both ratios are large."""

    def thresholds(pair, k, c):
        threshold = np.maximum(c, 0.0) / np.abs(1.0 - k + 1e-9) + 1e-9
        return threshold, (threshold - c) / k

    mutate(replace_one_steps, "antithetic_thresholds", thresholds)


def forget_the_probability(mutate):
    mutate(replace_one, "sum_threshold", lambda k, window, probability: 0.0)


def forget_one_step(mutate):
    whole = replace_one_grids.power
    mutate(
        replace_one_grids,
        "power",
        lambda distributions, size: whole([(q, max(n - 1, 1)) for q, n in distributions], size),
    )


def round_down_instead_of_spreading(mutate):
    """Every value moves to the grid point below it."""

    def rounded(step, points, *, whole):
        shares = step.share(points[1:])
        width = points[1] - points[0]
        return np.append(np.cumsum(shares[::-1])[::-1] * width, 0.0)

    mutate(
        replace_one_steps.AntitheticStep,
        "upper",
        lambda self, c: (
            rounded(self, c, whole=False)
            if c.size > 1000
            else replace_one_steps.AntitheticStep.tangent(self, c)[0]
        ),
    )


def swap_bounds_of_the_grid(mutate):
    whole = replace_one_grids._lower_polygon
    mutate(
        replace_one_grids, "_lower_polygon", lambda step, points, whole: step.upper(points) + 0.01
    )
    assert whole is not replace_one_grids._lower_polygon


def leave_the_tilt_in(mutate):
    of = replace_one_grids._Tilted.of

    def untouched(parts, tilt, centre):
        one = of(parts, tilt, centre)
        return replace_one_grids._Tilted(one.distributions, 0.0, one.roundings)

    mutate(replace_one_grids._Tilted, "of", staticmethod(untouched))


def forget_ternary_response(mutate):
    distributions = replace_one_expectations.extreme_distributions
    mutate(
        replace_one_expectations,
        "extreme_distributions",
        lambda epsilon0: distributions(epsilon0)[1:],
    )


def interpolate_below(mutate):
    """The value at a grid point below replaces the chord."""
    hockey_sticks = replace_one_expectations._hockey_sticks

    def lowered(total, lattice, lengths):
        return [np.append(p[2:], [0.0, 0.0]) for p in hockey_sticks(total, lattice, lengths)]

    mutate(replace_one_expectations, "_hockey_sticks", lowered)


def extend_chords_as_upper(mutate):
    mutate(
        curves,
        "upper_polygon",
        lambda nodes, values: curves.lower_polygon(nodes, values, values),
    )


def join_points_as_lower(mutate):
    upper = curves.upper_polygon
    mutate(curves, "lower_polygon", lambda nodes, lowers, uppers: upper(nodes, lowers))


MUTANTS = [
    (couple_on_the_same_side, gaussian_is_bracketed),
    (forget_the_probability, gaussian_is_bracketed),
    (forget_one_step, gaussian_is_bracketed),
    (round_down_instead_of_spreading, gaussian_is_bracketed),
    (swap_bounds_of_the_grid, gaussian_is_bracketed),
    (leave_the_tilt_in, gaussian_is_bracketed),
    (forget_ternary_response, local_is_the_supremum),
    (interpolate_below, local_is_the_supremum),
    (extend_chords_as_upper, polygons_lie_on_their_side),
    (join_points_as_lower, polygons_lie_on_their_side),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda f: f.__name__)
def test_replace_one_mutants_are_detected(mutate, mutant, check):
    assert check()
    clear_caches()
    mutant(mutate)
    assert not check()


def test_two_coupled_ratios_cross_their_thresholds_in_the_same_event():
    """{X > k} and {X' < κ} are the same event: its P, P' and Q at c = 0.7."""
    pair = GaussianPair(1.0)
    threshold, other = replace_one_steps.antithetic_thresholds(pair, 1.5, np.array([0.7]))
    present, elsewhere, share = replace_one_steps.antithetic_event(pair, threshold, other)
    place = math.log(float(threshold[0])) + 0.5
    for value, shift in ((present, 1.0), (elsewhere, -1.0), (share, 0.0)):
        assert float(value[0]) == pytest.approx(0.5 * math.erfc((place - shift) / math.sqrt(2)))
