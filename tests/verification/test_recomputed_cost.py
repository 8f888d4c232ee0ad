"""Verifier's own accountant: its bracket contains ε, is narrow, and detects small errors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from turnout.accounting import epsilon_upper, price
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
)
from turnout.verification import windows
from turnout.verification.cost import least, recomputed
from turnout.verification.windows import (
    OrderSide,
    RatioDistribution,
    added,
    epsilon_of_windows,
    multiplied,
    remove_delta,
)

ADD, ZERO, REPLACE = Relation.ADD_REMOVE, Relation.ZERO_OUT, Relation.REPLACE_ONE


def scheme(noise, participation, relation=ADD, release=ReleaseRule.AGGREGATED):
    return Scheme(GaussianNoise(noise), participation, relation, release)


EXACT = [
    (1.0, CheckIn(1000), ADD, 1e-6),
    (0.6, CheckIn(100), ADD, 1e-6),
    (1.0, CheckIn(10, 30), ADD, 1e-6),
    (0.8, CheckIn(10, 1, 0.5), ZERO, 1e-8),
    (2.0, CheckIn(50, 100, 0.3), ADD, 1e-5),
    (1.0, SlidingWindow(50, 200), ADD, 1e-6),
    (1.0, PoissonSampling(0.01, 1000), ADD, 1e-6),
    (0.7, SelfSampling(0.3, 7), ADD, 1e-6),
    (10.0, EveryStep(50), ADD, 1e-6),
    (10.0, EveryStep(50), REPLACE, 1e-6),
    (3.0, FixedAssignment(20, 5), ADD, 1e-6),
    (1.5, KSubset(20, 1, 3), ADD, 1e-6),
]


@pytest.mark.parametrize(("noise", "participation", "relation", "delta"), EXACT, ids=str)
def test_recomputed_epsilon_agrees_with_the_accountant_for_exact_analyses(
    noise, participation, relation, delta
):
    found, _ = recomputed(scheme(noise, participation, relation), participation.steps, delta)
    other = price(scheme(noise, participation, relation), delta).epsilon
    assert found.lower <= other.upper
    assert other.lower <= found.upper
    assert found.relative_width < 0.003


BETWEEN = [
    # noise, participation, relation, release, how wide the bracket may be
    (2.0, PoissonSampling(0.3, 5), REPLACE, ReleaseRule.AGGREGATED, 0.1),
    (2.0, KSubset(12, 3, 2), ADD, ReleaseRule.AGGREGATED, 0.1),
    (4.0, CheckIn(5, 6), ADD, ReleaseRule.ONE_CLIENT, 0.6),
    (4.0, CheckIn(5), ZERO, ReleaseRule.ONE_CLIENT, 0.8),
    (8.0, EveryStep(9), ZERO, ReleaseRule.ONE_CLIENT, 0.003),
]


@pytest.mark.parametrize(
    ("noise", "participation", "relation", "release", "width"), BETWEEN, ids=str
)
def test_the_recomputed_bracket_overlaps_that_of_the_accountant_for_inexact_analyses(
    noise, participation, relation, release, width
):
    asked = scheme(noise, participation, relation, release)
    found, _ = recomputed(asked, participation.steps, 1e-6)
    other = price(asked, 1e-6, tolerance=0.02).epsilon
    assert found.lower <= other.upper
    assert other.lower <= found.upper
    assert found.relative_width < width
    if release is ReleaseRule.ONE_CLIENT and isinstance(participation, CheckIn):
        assert other.upper < found.upper


def test_recomputed_epsilon_of_k_subset_is_below_that_of_k_certain_steps():
    found, _ = recomputed(scheme(2.0, KSubset(3, 2)), 3, 1e-6)
    every, _ = recomputed(scheme(2.0, EveryStep(2)), 2, 1e-6)
    assert found.upper < 0.99 * every.lower


def test_recomputed_bounds_under_replace_one_enclose_the_bracket_of_the_accountant():
    """The reference bracket is a constant that `price` returned at its default tolerance."""
    found, _ = recomputed(scheme(4.0, CheckIn(10, 30), REPLACE), 300, 1e-6)
    assert found.lower <= 4.153375
    assert found.upper >= 4.151371
    assert found.relative_width < 0.02


@pytest.mark.parametrize("steps", [1, 6, 7, 17])
@pytest.mark.parametrize(
    "participation", [CheckIn(6, 3, 0.7), SlidingWindow(6, 23), FixedAssignment(6, 3)], ids=str
)
def test_recomputed_epsilon_of_a_partial_run_agrees_with_the_accountant(participation, steps):
    asked = scheme(1.2, participation)
    found, _ = recomputed(asked, steps, 1e-5)
    other = epsilon_upper(asked, 1e-5, steps)
    assert found.lower <= other <= found.upper * 1.02


def test_recomputed_epsilon_of_one_gaussian_step_encloses_its_closed_form():
    def delta(epsilon: float, mu: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))

    for noise in (0.3, 1.0, 20.0):
        truth: Any = brentq(lambda e, n=noise: delta(e, 1 / n) - 1e-6, 0, 100, xtol=1e-12)
        found, _ = recomputed(scheme(noise, EveryStep(1)), 1, 1e-6)
        assert found.lower <= truth <= found.upper
        assert found.relative_width < 0.002


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.05, 200), (0.7, 0.2, 10)])
def test_recomputed_epsilon_of_poisson_sampling_agrees_with_dp_accounting(noise, rate, steps):
    found, _ = recomputed(scheme(noise, PoissonSampling(rate, steps)), steps, 1e-6)
    for pessimistic in (True, False):
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            noise,
            pessimistic_estimate=pessimistic,
            sampling_prob=rate,
            value_discretization_interval=1e-3,
            use_connect_dots=pessimistic,
        ).self_compose(steps)
        epsilon = loss.get_epsilon_for_delta(1e-6)
        assert epsilon >= found.lower if pessimistic else epsilon <= found.upper


WRONG = {
    "2 % less noise": lambda: scheme(0.98, CheckIn(10, 30)),
    "a step less a window": lambda: scheme(1.0, CheckIn(9, 30)),
    "a window more": lambda: scheme(1.0, CheckIn(10, 31)),
    "coming surely, not nearly": lambda: scheme(1.0, CheckIn(10, 30, 1.0)),
}


@pytest.mark.parametrize("name", WRONG)
def test_schemes_with_a_slightly_larger_epsilon_than_claimed_are_detected(name):
    honest = CheckIn(10, 30, 0.97 if "surely" in name else 1.0)
    claimed = epsilon_upper(scheme(1.0, honest), 1e-6)
    assert least(scheme(1.0, honest), 300, 1e-6) <= claimed
    wrong = WRONG[name]()
    assert least(wrong, wrong.participation.steps, 1e-6) > claimed


@pytest.mark.parametrize(
    "asked",
    [
        scheme(1.0, FixedSize(2, 10, 5), ZERO),
        scheme(1.0, CheckIn(5), ZERO, ReleaseRule.AVERAGED),
    ],
    ids=["fixed size", "averaged"],
)
def test_recomputing_schemes_without_an_analysis_is_refused(asked):
    with pytest.raises(UnsupportedError):
        recomputed(asked, 5, 1e-6)


HOPELESS = [
    (0.02, CheckIn(5), 1e-6),
    (0.06, CheckIn(1, 40), 1e-6),
    (0.05, EveryStep(3), 1e-6),
    (5e-324, CheckIn(5), 1e-6),
    (1.0, CheckIn(10**400, 3), 1e-6),
    (1.0, PoissonSampling(0.5, 10**400), 1e-6),
    (1e-9, KSubset(10, 10, 2), 1e-6),
    (0.3, KSubset(10**400, 3), 5e-324),
    (1.0, PoissonSampling(0.01, 10**9), 1e-6),
]


@pytest.mark.parametrize(
    ("noise", "participation", "delta"), HOPELESS, ids=lambda value: str(value)[:40]
)
def test_an_epsilon_beyond_the_range_of_float64_is_refused(noise, participation, delta):
    with pytest.raises(NumericalError):
        recomputed(scheme(noise, participation), participation.steps, delta)


@pytest.mark.parametrize("noise", [1e9, 1e18, 1e308])
def test_epsilon_is_recomputed_for_small_and_large_noise(noise):
    for participation in (CheckIn(5, 2), EveryStep(3), PoissonSampling(1e-300, 5)):
        assert recomputed(scheme(noise, participation), participation.steps, 1e-6)[0].upper < 1e-6


def test_recomputed_epsilon_of_zero_steps_is_zero():
    for participation in (CheckIn(5, 2, 0.0), PoissonSampling(0.0, 10)):
        assert recomputed(scheme(1.0, participation), 10, 1e-6)[0].upper == 0.0
    assert recomputed(scheme(1.0, CheckIn(5, 2)), 0, 1e-6)[0].upper == 0.0


# Convex order, on distributions whose sums and products can be written out


atoms = st.lists(
    st.tuples(st.floats(0.0, 50.0).filter(lambda x: x == 0 or x > 1e-6), st.floats(1e-6, 1.0)),
    min_size=1,
    max_size=30,
    unique_by=lambda atom: atom[0],
).filter(lambda pairs: any(value > 0 for value, _ in pairs))


def distribution_of(pairs) -> RatioDistribution:
    values, masses = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    masses = masses / masses.sum()
    return RatioDistribution(values, masses)


def prices(
    distribution: RatioDistribution, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E[(v − k)₊] including infinity mass, and E[(k − v)₊], for each threshold k."""
    gaps = distribution.values[:, None] - thresholds
    return distribution.masses @ np.maximum(
        gaps, 0
    ) + distribution.infinity_mass, distribution.masses @ np.maximum(-gaps, 0)


def bracketed(joined, operation, one, other, lower=OrderSide.LOWER, upper=OrderSide.UPPER) -> bool:
    values = operation.outer(one.values, other.values).ravel()
    truth = RatioDistribution(values, np.multiply.outer(one.masses, other.masses).ravel())
    thresholds = np.linspace(0, values.max() + 1, 97)
    below, above = (joined(one, other, side, 1e-3) for side in (lower, upper))
    true = prices(truth, thresholds)
    slack = 1e-9 * (1 + thresholds)
    return all(
        (prices(below, thresholds)[i] <= true[i] + slack).all()
        and (true[i] <= prices(above, thresholds)[i] + slack).all()
        for i in (0, 1)
    )


@pytest.mark.parametrize(
    ("joined", "operation"), [(added, np.add), (multiplied, np.multiply)], ids=["sum", "product"]
)
@settings(max_examples=60)
@given(one=atoms, other=atoms)
def test_merged_distributions_lie_on_both_sides_of_the_exact_distribution_in_convex_order(
    joined, operation, one, other
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CELLS", 12)  # far fewer than there are atoms
        assert bracketed(joined, operation, distribution_of(one), distribution_of(other))


def test_distributions_merged_on_the_wrong_side_are_detected():
    rng = np.random.default_rng(5)
    distribution = distribution_of(
        zip(rng.lognormal(size=30), rng.uniform(0.1, 1, 30), strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CELLS", 12)
        for joined, operation in ((added, np.add), (multiplied, np.multiply)):
            assert bracketed(joined, operation, distribution, distribution)
            assert not bracketed(
                joined, operation, distribution, distribution, lower=OrderSide.UPPER
            )
            assert not bracketed(
                joined, operation, distribution, distribution, upper=OrderSide.LOWER
            )


def test_rounding_errors_and_infinity_mass_widen_the_recomputed_bracket():
    plain = windows.gaussian(1.0, OrderSide.UPPER)
    for side, sign in ((OrderSide.UPPER, 1), (OrderSide.LOWER, -1)):
        free, values, both = (
            epsilon_of_windows(dataclasses.replace(plain, value_error=v, mass_error=m), side, 1e-6)
            for v, m in ((0.0, 0.0), (0.01, 0.0), (0.01, 0.1))
        )
        assert sign * (values - free) == pytest.approx(0.01)
        assert sign * (both - values) > 1e-3
    assert remove_delta(dataclasses.replace(plain, infinity_mass=0.25), 500.0) == 0.25


def test_rounding_errors_of_merged_distributions_are_accumulated():
    one = windows.gaussian(1.0, OrderSide.UPPER)
    assert 0 < one.value_error < 1e-8
    two = multiplied(one, one, OrderSide.UPPER, 1e-15)
    assert two.value_error > 2 * one.value_error
    assert two.mass_error > 2 * one.mass_error
    assert abs(one.masses.sum() - 1) < one.mass_error
    assert abs(one.masses @ one.values + one.infinity_mass - 1) < one.value_error
