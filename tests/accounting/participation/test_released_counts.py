"""Noisy counts released with noisy sums: the guarantee covers both together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnout.accounting import price
from turnout.accounting.guarantee import with_released_counts
from turnout.accounting.meaning.profile import privacy_profile
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    GaussianNoise,
    LaplaceNoise,
    Relation,
    ReleaseRule,
    Scheme,
)

SIGMA, COUNT_NOISE, WINDOW = 1.2, 0.9, 5
SUMS = Scheme(GaussianNoise(SIGMA), CheckIn(WINDOW), Relation.ADD_REMOVE)


def test_delta_of_sums_released_with_counts_agrees_with_simulation():
    """Monte Carlo of a window of sums and counts, with a margin of six standard errors."""
    epsilon, runs = 0.5, 400_000
    noise = np.random.default_rng(23).standard_normal((2, runs, WINDOW))
    sums, counts = noise[0] * SIGMA, noise[1] * COUNT_NOISE
    sums[:, 0] += 1.0  # the client takes part; its step does not change the distribution
    counts[:, 0] += 1.0
    ratios = np.exp((sums - 0.5) / SIGMA**2 + (counts - 0.5) / COUNT_NOISE**2).mean(axis=1)
    gains = np.maximum(1.0 - math.exp(epsilon) / ratios, 0.0)
    error = 6.0 * gains.std() / math.sqrt(runs)
    both = privacy_profile(with_released_counts(SUMS, COUNT_NOISE), np.array([epsilon]))
    bounds = both.forward.at(epsilon)
    assert bounds.lower - error <= gains.mean() <= bounds.upper + error
    # Negative control: the bound for sums alone does not cover the counts.
    assert gains.mean() - error > privacy_profile(SUMS, np.array([epsilon])).forward.at(0.5).upper


def test_a_sum_and_a_count_of_one_step_are_one_gaussian_release():
    known = Scheme(GaussianNoise(3.0), EveryStep(1), Relation.ADD_REMOVE)
    both = with_released_counts(known, 4.0)
    assert both.randomizer.noise_multiplier == pytest.approx(2.4)
    assert both.randomizer.noise_multiplier < 2.4
    assert with_released_counts(known, math.inf).randomizer.noise_multiplier == pytest.approx(3.0)
    assert price(both, 1e-5).epsilon.upper > price(known, 1e-5).epsilon.upper


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan])
def test_counts_without_noise_are_refused(deviation):
    with pytest.raises(ParameterError, match="standard_deviation"):
        with_released_counts(SUMS, deviation)


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(GaussianNoise(1.0), CheckIn(5), Relation.ZERO_OUT),
        Scheme(GaussianNoise(1.0), CheckIn(5), Relation.ADD_REMOVE, ReleaseRule.ONE_CLIENT),
        Scheme(LaplaceNoise(1.0), CheckIn(5), Relation.ADD_REMOVE),
    ],
)
def test_released_counts_with_an_unsupported_scheme_are_refused(scheme):
    with pytest.raises(UnsupportedError, match="noisy counts"):
        with_released_counts(scheme, 1.0)
