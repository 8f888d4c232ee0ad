"""Replace-one for ε₀-private randomizers, against enumeration with fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from replacement_truths import (
    adaptive_supremum,
    extreme_triples,
    mean_excess,
    random_triple,
    threshold,
)

from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.participation.replace_one import LocalReplacementBlock
from turnout.accounting.participation.replace_one_expectations import (
    LocalSum,
    extreme_distributions,
    response_excess,
    upper_excess,
)
from turnout.core.errors import ParameterError

RATIOS = (Fraction(6, 5), Fraction(2), Fraction(5))
HERE = Direction.REMOVE  # replace-one is symmetric


def log(a: Fraction) -> float:
    return math.log(float(a))


@pytest.mark.parametrize("a", RATIOS)
def test_the_five_extreme_distributions_are_the_vertices_of_their_polytope(a):
    """The five distributions are the vertices that solving every 3 × 3 system gives."""
    written = {
        tuple(sorted((float(w), float(x), float(y)) for w, x, y in zip(*rows, strict=True)))
        for rows in (
            (
                np.round(distribution.weights, 12),
                np.round(distribution.ratios, 12),
                np.round(distribution.others, 12),
            )
            for distribution in extreme_distributions(log(a))
        )
    }
    solved = {
        tuple(
            sorted(
                (round(float(q), 12), round(float(p / q), 12), round(float(r / q), 12))
                for q, p, r in triple
            )
        )
        for triple in extreme_triples(a)
    }
    assert len(solved) == 5
    assert written == solved


@pytest.mark.parametrize("a", RATIOS)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_upper_bound_equals_the_supremum_over_adaptive_steps(a, window):
    for share in (Fraction(0), Fraction(1, 4), Fraction(3, 4)):
        k = 1 + share * (a - 1)
        truth = adaptive_supremum(a, k, window, Fraction(0))
        upper = upper_excess(LocalSum(log(a), float(k), window, 0.0), 256, 2)
        assert upper >= truth * (1 - 8 * UNIT_ROUNDOFF)
        assert upper <= truth * 1.002 + 1e-12


@pytest.mark.parametrize("a", RATIOS)
def test_random_randomizers_stay_below_the_upper_bound(a):
    """Randomizers with four outcomes and ratios up to a, a new one in each step."""
    generator = np.random.default_rng(7)
    for window in (1, 2, 3):
        for k in (Fraction(1), 1 + (a - 1) / 3):
            triples = [random_triple(a, generator) for _ in range(window)]
            probability = Fraction(int(generator.integers(1, 4)), 3)
            block = LocalReplacementBlock(log(a), window, float(probability))
            assert mean_excess(triples, k, probability) <= block.delta(float(k), Side.UPPER)


def test_adaptive_randomizers_stay_below_the_upper_bound():
    """Two steps; the second randomizer depends on the output of the first."""
    a, k = Fraction(3), Fraction(5, 4)
    generator = np.random.default_rng(8)
    upper = LocalReplacementBlock(log(a), 2).delta(float(k), Side.UPPER)
    for _ in range(20):
        first = random_triple(a, generator)
        total = Fraction(0)
        for q, p, r in first:
            for q2, p2, r2 in random_triple(a, generator):
                gain = (p / q + p2 / q2) / 2 - k * (r / q + r2 / q2) / 2
                total += q * q2 * max(gain, Fraction(0))
        assert float(total) <= upper


@pytest.mark.parametrize("a", RATIOS)
@pytest.mark.parametrize("response", [0, 1, 2])
def test_delta_of_randomized_response_is_exact(a, response):
    names = {0: (3, 3), 1: (1, 2), 2: (2, 2)}
    triple = [
        tuple(Fraction(w).limit_denominator(10**6) * m for m in (1, x, y))
        for w, x, y in zip(
            extreme_distributions(log(a))[response].weights,
            (
                Fraction(x).limit_denominator(10**6)
                for x in extreme_distributions(log(a))[response].ratios
            ),
            (
                Fraction(y).limit_denominator(10**6)
                for y in extreme_distributions(log(a))[response].others
            ),
            strict=True,
        )
    ]
    assert names[response][1] == len(triple)
    for window, k, probability in ((1, 1.1, 1.0), (4, 1.05, 0.5), (5, 1.15, 1.0)):
        truth = mean_excess(
            [triple] * window, Fraction(k).limit_denominator(100), Fraction(probability)
        )
        total = LocalSum(log(a), k, window, threshold(k, window, probability))
        lower, upper = (
            probability * response_excess(total, response, side)
            for side in Side.__members__.values()
        )
        lower, upper = sorted((lower, upper))
        assert lower <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= upper
        assert upper - lower <= 1e-9 * upper + 1e-25


def test_epsilon_at_the_settings_of_the_check_in_paper_has_its_reference_value():
    """ε₀ = 1, t = 1000, δ = 1e-6: Theorem 3.2 gives 0.4749, two hops 0.1161 + 0.1266."""
    block = LocalReplacementBlock(1.0, 1000)
    lower, upper = (
        epsilon_at(block.curve(HERE, s, 1e-6, 0), 1e-6, s) for s in (Side.LOWER, Side.UPPER)
    )
    assert 0.1303 < lower < upper < 0.1310
    assert upper - lower < 3e-3 * upper


@pytest.mark.parametrize("epsilon0", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("window", [20, 300, 20_000])
def test_local_brackets_are_ordered_and_narrow(epsilon0, window):
    block = LocalReplacementBlock(epsilon0, window)
    for score in (0.5, 2.0, 4.0):
        k = math.exp(score * block.loss_deviation)
        if k >= math.exp(epsilon0):
            continue
        lower, upper = block.delta(k, Side.LOWER), block.delta(k, Side.UPPER)
        assert lower <= upper
        # The upper bound may use another distribution in each step, the lower one only one.
        assert upper <= 1.15 * lower


def test_cutting_a_window_into_blocks_raises_the_bound():
    """Shorter blocks give larger upper bounds than the whole window."""
    whole = upper_excess(LocalSum(1.0, 1.3, 120, 0.0), 120)
    cut = [upper_excess(LocalSum(1.0, 1.3, 120, 0.0), longest) for longest in (50, 12, 3, 1)]
    assert whole < cut[0] < cut[1] < cut[2] < cut[3]
    assert cut[0] < 1.2 * whole


def test_delta_is_monotone_in_every_parameter():
    def delta(epsilon0=1.0, window=50, probability=1.0, k=1.2):
        return LocalReplacementBlock(epsilon0, window, probability).delta(k, Side.UPPER)

    assert delta(epsilon0=0.9) < delta() < delta(epsilon0=1.1)
    assert delta(window=80) < delta() < delta(window=30)
    assert delta(probability=0.5) < delta()
    assert delta(k=1.3) < delta() < delta(k=1.1)
    assert delta(k=math.exp(1.0)) == 0


def test_invalid_parameters_of_a_local_replacement_block_are_refused():
    for bad in ({"epsilon0": 0.0}, {"window": 0}, {"probability": 1.5}, {"probability": 0.0}):
        with pytest.raises(ParameterError):
            LocalReplacementBlock(**{"epsilon0": 1.0, "window": 5, **bad})
