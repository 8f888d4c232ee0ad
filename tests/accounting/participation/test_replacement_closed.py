"""Replace-one with Gaussian noise: closed forms of one of two steps and of k of 2k steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import turnout as tn

DRAWS = 200_000


def likelihood_ratios(mu: float, steps: int, picks: int, seed: int):
    """Values of dP/dP' under P', by the definition, for opposite updates in k of t steps."""
    rng = np.random.default_rng(seed)
    subsets = np.array(list(itertools.combinations(range(steps), picks)))
    outputs = rng.standard_normal((DRAWS, steps))
    drawn = subsets[rng.integers(len(subsets), size=DRAWS)]
    outputs[np.arange(DRAWS)[:, None], drawn] -= mu

    def mean(sign):
        ratios = np.exp(sign * mu * outputs - mu * mu / 2)
        return sum(ratios[:, subset].prod(axis=1) for subset in subsets) / len(subsets)

    return mean(1.0) / mean(-1.0)


def scheme(mu: float, steps: int, picks: int, windows: int = 1) -> tn.Scheme:
    participation = tn.CheckIn(steps, windows) if picks == 1 else tn.KSubset(steps, picks, windows)
    return tn.Scheme(tn.GaussianNoise(1 / mu), participation, relation="replace-one")


@pytest.mark.parametrize(("steps", "picks"), [(2, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_delta_of_half_of_the_steps_agrees_with_simulated_likelihood_ratios(steps, picks, epsilon):
    mu = 0.7
    gains = np.maximum(likelihood_ratios(mu, steps, picks, seed=3) - math.exp(epsilon), 0.0)
    error = gains.std() / DRAWS**0.5
    found = tn.PrivacyCurve.of(scheme(mu, steps, picks)).delta(epsilon)
    assert found.upper - found.lower <= 1e-12
    assert abs(gains.mean() - found.upper) <= 6 * error
    # Negative control: noise that is smaller by 1.3 is told apart.
    other = tn.PrivacyCurve.of(scheme(mu * 1.3, steps, picks)).delta(epsilon)
    assert abs(gains.mean() - other.upper) > 6 * error


@pytest.mark.parametrize(
    ("sigma", "delta", "epsilon"),
    [(0.4, 3.01372e-8, 24.8010), (0.3, 1e-3, 24.9132), (0.3, 1e-9, 38.7414)],
)
def test_two_steps_with_little_noise_have_a_closed_form(sigma, delta, epsilon):
    found = tn.price(scheme(1 / sigma, 2, 1), delta=delta).epsilon
    assert found.lower <= found.upper
    assert found.upper == pytest.approx(epsilon, abs=1e-4)
    assert found.upper - found.lower < 1e-6


def test_one_of_two_steps_equals_one_gaussian_step_with_less_noise():
    """The ratio of two steps is that of a Gaussian pair at √2 times the distance from P to P'."""
    two = tn.price(scheme(0.5, 2, 1), delta=1e-6).epsilon
    single = tn.Scheme(tn.GaussianNoise(math.sqrt(2.0)), tn.EveryStep(1), relation="zero-out")
    assert two.upper == pytest.approx(tn.price(single, delta=1e-6).epsilon.upper, rel=1e-6)


def test_windows_of_half_of_the_steps_compose_as_gaussian_releases():
    """Each window is one Gaussian release, so n of them are one with √n times less noise."""
    windows = tn.price(scheme(0.5, 4, 2, windows=5), delta=1e-6).epsilon
    single = tn.Scheme(tn.GaussianNoise(1.0), tn.EveryStep(5), relation="zero-out")
    exact = tn.price(single, delta=1e-6).epsilon
    assert windows.lower <= exact.upper
    assert windows.upper >= exact.lower
    assert windows.upper == pytest.approx(exact.upper, rel=1e-3)
