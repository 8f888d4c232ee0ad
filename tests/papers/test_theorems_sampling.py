"""Lemma D.1 by simulation: valid confidence intervals, and detected wrong distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import strata
from allocation_sampling import lemma_d_1
from scipy.special import ndtr

from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.core.errors import NumericalError, ParameterError

CELLS = [
    (1.0, 64, 1.13, 8000),
    (1.0, 4, 3.0, 8000),
    (0.6, 100, 3.43, 8000),
    (0.3, 100, 14.5, 8000),
    (1.0, 500, 0.25, 2000),
    (2.0, 1000, 0.02, 1000),
    (1.0, 2, 0.0, 8000),
]


def simulated(sigma, window, epsilon, direction, samples, seed=11):
    return lemma_d_1(
        sigma,
        window,
        epsilon,
        direction,
        samples=samples,
        generator=np.random.default_rng(seed),
    )


def certified(sigma, window, epsilon, direction, side, hint):
    curve = allocation_curve(
        GaussianPair(sigma), window, direction, side, delta_hint=hint, refinement=1
    )
    return float(curve.delta(np.array(math.exp(epsilon))))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("sigma", "window", "epsilon", "samples"), CELLS)
def test_the_simulated_confidence_interval_overlaps_the_certified_bracket(
    sigma, window, epsilon, samples, direction
):
    found = simulated(sigma, window, epsilon, direction, samples)
    hint = min(max(found.value, 1e-12), 0.4)
    assert found.lower <= certified(sigma, window, epsilon, direction, Side.UPPER, hint)
    assert found.upper >= certified(sigma, window, epsilon, direction, Side.LOWER, hint)
    assert found.lower <= found.value <= found.upper
    # It says something, however small δ is (1e-60 for one of the cells).
    assert found.upper < 4 * found.value or found.value < 1e-100


@pytest.mark.parametrize("direction", list(Direction))
def test_confidence_intervals_of_wrong_distributions_miss_the_bracket(direction):
    """Five per cent less noise, half the window, the other direction: none fits the interval."""
    sigma, window, epsilon = 1.0, 64, 0.5
    found = simulated(sigma, window, epsilon, direction, 30_000)

    def fits(sigma, window, direction):
        value = certified(sigma, window, epsilon, direction, Side.UPPER, found.value)
        return found.lower <= value <= found.upper

    assert fits(sigma, window, direction)
    assert not fits(0.95 * sigma, window, direction)
    assert not fits(sigma, window // 2, direction)
    other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
    assert not fits(sigma, window, other)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_the_confidence_interval_of_one_step_contains_the_closed_form(direction, epsilon):
    found = simulated(0.8, 1, epsilon, direction, 30_000)
    curve = PairCurve(GaussianPair(0.8), direction, Side.UPPER)
    exact = float(curve.delta(np.array(math.exp(epsilon))))
    assert found.lower <= exact <= found.upper
    assert found.value == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("direction", list(Direction))
def test_the_confidence_interval_of_two_steps_contains_the_quadrature_value(direction):
    scores = np.linspace(-9, 9, 3001)
    law = np.exp(-(scores**2) / 2)
    law /= law.sum()
    ratio = np.exp(scores - 0.5)
    average, k = (ratio[:, None] + ratio) / 2, math.e
    payoff = average - k if direction is Direction.REMOVE else 1 - k * average
    exact = float(law @ np.maximum(payoff, 0) @ law)
    found = simulated(1.0, 2, 1.0, direction, 60_000)
    assert found.lower <= exact <= found.upper
    assert found.value == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize(("sigma", "window", "epsilon", "_"), CELLS[:4])
def test_sampled_values_are_within_the_bound_of_the_confidence_interval(sigma, window, epsilon, _):
    parts = [
        *strata.remove_strata(1 / sigma, window, math.exp(epsilon)),
        *strata.add_strata(1 / sigma, window, math.exp(epsilon)),
    ]
    for part in parts:
        values = part.values(np.random.default_rng(3), 1000)
        assert values.min() >= 0
        # Values are cut to 1 against rounding; a bound that is too small would show as many ones.
        assert (values == 1.0).sum() == 0


def test_the_strata_partition_the_normal_distribution():
    edges = strata.add_strata(1.0, 10, 2.0)[0].edges
    assert edges[0] == -np.inf
    assert edges[-1] == np.inf
    low, high = edges[:-1], edges[1:]
    masses = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("mu", "window", "threshold", "edge"), [(1.0, 50, 1.5, 2.5), (0.8, 2, 1.1, 0.4)]
)
def test_samples_of_the_stratum_of_large_scores_have_its_conditional_distribution(
    mu, window, threshold, edge
):
    part = strata.JumpStratum(mu, window, threshold, edge)
    generator, rows = np.random.default_rng(5), min(10_000_000 // window, 2_000_000)
    scores = generator.standard_normal((rows, window))
    scores[:, 0] += mu
    jumps = (scores > edge).any(axis=1)
    chance = math.exp(part.log_bound)
    assert abs(jumps.mean() - chance) < 6.2 * math.sqrt(chance * (1 - chance) / rows)
    average = strata.ratios(mu, scores[jumps]).mean(axis=1)
    direct = np.maximum(1 - threshold / average, 0)
    drawn = part.values(np.random.default_rng(6), rows // 2)
    spread = math.sqrt(direct.var() / direct.size + drawn.var() / drawn.size)
    assert abs(direct.mean() - drawn.mean()) < 6.2 * spread


def test_equal_random_generators_give_equal_confidence_intervals():
    first = simulated(1.0, 10, 1.0, Direction.REMOVE, 1000, seed=1)
    assert first == simulated(1.0, 10, 1.0, Direction.REMOVE, 1000, seed=1)
    assert first != simulated(1.0, 10, 1.0, Direction.REMOVE, 1000, seed=2)


def test_a_smaller_error_probability_widens_the_confidence_interval():
    narrow, wide = (
        lemma_d_1(
            1.0,
            10,
            1.0,
            Direction.ADD,
            samples=1000,
            generator=np.random.default_rng(1),
            false_alarm=level,
        )
        for level in (1e-2, 1e-9)
    )
    assert wide.lower < narrow.lower < narrow.upper < wide.upper


def test_invalid_arguments_of_the_simulation_are_refused():
    with pytest.raises(ParameterError, match="samples"):
        simulated(1.0, 10, 1.0, Direction.ADD, 3)
    with pytest.raises(NumericalError, match="exceeds the range of floats"):
        simulated(1.0, 10, 400.0, Direction.ADD, 100)
