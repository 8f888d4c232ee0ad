"""Gaussian fit of a privacy profile: its guarantees hold between grid points and in the tails."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from test_quadrature import add_delta, remove_delta
from trade_off_truths import (
    average,
    backward_delta,
    forward_delta,
    gaussian_delta,
    misses,
    profile_of,
    randomized_response,
)

from turnout.accounting.meaning.explanation import GaussianFit, gaussian_fit
from turnout.accounting.meaning.membership import TradeOff, gaussian_trade_off
from turnout.accounting.meaning.profile import Profile, privacy_profile
from turnout.core.errors import NumericalError, ParameterError
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, PoissonSampling, Relation, Scheme

DELTA = 1e-5


def profile(participation, sigma: float, reach: float, points: int = 601) -> Profile:
    scheme = Scheme(GaussianNoise(sigma), participation, Relation.ADD_REMOVE)
    return privacy_profile(scheme, np.linspace(0.0, reach, points), sharp_to=DELTA / 10)


@pytest.mark.parametrize(("sigma", "reach"), [(0.5, 14.0), (1.0, 5.5), (5.0, 0.9), (40.0, 0.1)])
def test_the_gaussian_fit_of_gaussian_noise_has_the_mu_of_the_noise(sigma, reach):
    fit = gaussian_fit(profile(EveryStep(1), sigma, reach), DELTA)
    assert fit.mu.lower <= 1 / sigma <= fit.mu.upper
    assert fit.mu.relative_width <= 1e-4
    assert fit.delta <= DELTA


def test_a_coarser_grid_never_makes_the_fitted_mu_smaller():
    fits = [gaussian_fit(profile(EveryStep(1), 1.0, 5.5, n), DELTA).mu for n in (12, 50, 200)]
    assert fits[0].upper > fits[1].upper > fits[2].upper >= 1.0
    # Second order: sixteen times the points, less than a hundredth of the excess.
    assert fits[2].upper - 1 < (fits[0].upper - 1) / 100


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_the_gaussian_fit_holds_between_points_of_a_coarse_grid(sigma):
    """Guarantee 1 and 2 against quadrature, for one of two steps."""
    fit = gaussian_fit(profile(CheckIn(2), sigma, 9.0 / sigma, 40), DELTA)
    for epsilon in np.linspace(0.0, fit.epsilon, 60)[:-1]:
        allowed = gaussian_delta(float(epsilon), fit.mu.upper)
        assert remove_delta(float(epsilon), 2, sigma) <= allowed
        assert add_delta(float(epsilon), 2, sigma) <= allowed
    for epsilon in (fit.epsilon, 1.2 * fit.epsilon):
        assert max(remove_delta(epsilon, 2, sigma), add_delta(epsilon, 2, sigma)) <= fit.delta


def test_the_gaussian_fit_has_the_smallest_valid_mu():
    """The lower bound: a smaller μ is exceeded somewhere in the range."""
    fit = gaussian_fit(profile(CheckIn(2), 0.7, 12.0), DELTA)
    less = 0.999 * fit.mu.lower
    epsilons = np.linspace(0.0, fit.epsilon, 400)
    assert any(remove_delta(float(e), 2, 0.7) > gaussian_delta(float(e), less) for e in epsilons)
    assert fit.mu.relative_width < 1e-3


def respects(fit: GaussianFit, participation, delta) -> bool:
    """Guarantee 1 for an enumerated direction, on a grid much finer than the fit's."""
    mu = fit.mu.upper
    return all(
        float(delta(participation, Fraction(math.exp(e)))) <= gaussian_delta(e, mu) + 1e-12
        for e in np.linspace(0.0, fit.epsilon, 300)
    )


def test_a_gaussian_fit_to_the_remove_direction_alone_is_invalid():
    participation = average(randomized_response(Fraction(math.exp(3.0))), 5)
    exact = profile_of(participation, np.linspace(0.0, 3.2, 81))
    fit = gaussian_fit(exact, 0.05)
    assert respects(fit, participation, forward_delta)
    assert respects(fit, participation, backward_delta)
    # Negative control: fitted to remove alone, add is far above.
    remove = gaussian_fit(Profile(exact.forward, exact.forward, exact.relation), 0.05)
    assert respects(remove, participation, forward_delta)
    assert not respects(remove, participation, backward_delta)


ONE_OF_FIVE = average(randomized_response(Fraction(math.exp(3.0))), 5)
TELL_TALE = {Fraction(100): Fraction(1, 5000), Fraction(4900, 4999): Fraction(4999, 5000)}
"""A rare view that gives her away: with chance 1/50 where she took part."""


@pytest.mark.parametrize(("participation", "delta"), [(ONE_OF_FIVE, 0.05), (TELL_TALE, 0.015)])
def test_the_trade_off_curve_of_a_scheme_is_above_its_gaussian_fit(participation, delta):
    """Guarantees 3 and 4 against the best tests of an enumerated mechanism, in both directions."""
    fit = gaussian_fit(profile_of(participation, np.linspace(0.0, 5.0, 251)), delta)
    alphas = np.concatenate([np.geomspace(1e-9, 1e-2, 60), np.linspace(0.0, 1.0, 201)])
    gaussian = gaussian_trade_off(fit.mu.upper, alphas)
    inside = (alphas >= fit.alpha_lower) & (alphas <= fit.alpha_upper)
    assert 0 < inside.sum() < alphas.size
    for ratios in (participation, {1 / x: x * m for x, m in participation.items()}):
        truth = np.array([float(misses(ratios, Fraction(a))) for a in alphas])
        assert np.all(truth >= gaussian - fit.delta - 1e-12)
        assert np.all(truth[inside] >= gaussian[inside] - 1e-12)


def test_a_gaussian_fit_is_invalid_below_its_smallest_false_positive_rate():
    """Negative control: f ≥ G_μ everywhere is false at tiny α, where outputs reveal the client."""
    fit = gaussian_fit(profile_of(TELL_TALE, np.linspace(0.0, 5.0, 251)), 0.015)
    alpha = Fraction(1, 5000)
    assert float(misses(TELL_TALE, alpha)) == pytest.approx(0.98)
    assert gaussian_trade_off(fit.mu.upper, np.array(float(alpha))) > 0.98 + 1e-6
    assert float(alpha) < fit.alpha_lower


def test_the_lower_trade_off_bound_is_above_its_gaussian_fit():
    found = profile(PoissonSampling(0.05, 20), 1.0, 4.0)
    fit = gaussian_fit(found, DELTA)
    alphas = np.linspace(0.0, 1.0, 201)
    lower = TradeOff.of(found).symmetric().lower(alphas)
    assert np.all(lower >= gaussian_trade_off(fit.mu.upper, alphas) - fit.delta - 1e-4)


def test_a_client_that_never_participates_has_mu_zero():
    fit = gaussian_fit(profile(PoissonSampling(0.0, 5), 1.0, 1.0), DELTA)
    assert fit.mu.upper <= 1e-11
    assert (fit.delta, fit.epsilon) == (0.0, 0.0)
    assert (fit.alpha_lower, fit.alpha_upper) == pytest.approx((0.5, 0.5))


def test_schemes_without_a_gaussian_fit_are_refused():
    with pytest.raises(NumericalError, match="does not fall to"):
        gaussian_fit(profile(EveryStep(1), 1.0, 1.0), DELTA)
    with pytest.raises(ParameterError, match="delta"):
        gaussian_fit(profile(EveryStep(1), 1.0, 1.0), 0.0)
    certain = profile_of(
        {Fraction(0): Fraction(1, 2), Fraction(2): Fraction(1, 2)}, np.array([0.0, 1.0])
    )
    assert gaussian_fit(certain, 0.6).mu.upper > 1.3  # total variation ½ needs 2Φ⁻¹(¾) = 1.349
