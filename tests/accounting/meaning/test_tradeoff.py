"""Trade-off curves: no attack is below the lower curve, and some attack reaches the upper one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from trade_off_truths import (
    average,
    brackets,
    gaussian_misses,
    phi,
    profile_of,
    randomized_response,
)

from turnout.accounting.meaning.membership import TradeOff, gaussian_trade_off
from turnout.accounting.meaning.profile import Profile, privacy_profile
from turnout.core.errors import ParameterError
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, PoissonSampling, Relation, Scheme

ALPHAS = np.concatenate([[0.0], np.geomspace(1e-4, 0.5, 20), np.linspace(0.55, 1.0, 10)])
FINE = np.linspace(0.0, 10.0, 1001)
E3 = Fraction(math.exp(3.0))


def profile(participation, epsilons: np.ndarray, sigma: float = 1.0) -> Profile:
    return privacy_profile(
        Scheme(GaussianNoise(sigma), participation, Relation.ADD_REMOVE), epsilons
    )


def holds(curve: TradeOff, alphas: np.ndarray, truth: np.ndarray) -> bool:
    slack = 1e-12
    return bool(
        np.all(curve.lower(alphas) <= truth + slack)
        and np.all(truth <= curve.upper(alphas) + slack)
    )


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("grid", [FINE, np.array([0.0, 0.4, 1.0, 3.0])], ids=["fine", "coarse"])
def test_gaussian_noise_has_the_trade_off_curve_of_two_gaussians(mu, grid):
    curve = TradeOff.of(profile(EveryStep(1), min(mu, 1.0) * grid, 1 / mu))
    inner = ALPHAS[1:-1]
    truth = np.array([gaussian_misses(a, mu) for a in inner])
    for side in (curve, curve.inverse(), curve.symmetric()):
        assert holds(side, inner, truth)
    if grid is FINE:
        assert np.all(curve.upper(inner) - curve.lower(inner) <= 2e-5)
    for wrong in (0.97 * mu, 1.03 * mu):  # negative controls
        off = np.array([gaussian_misses(a, wrong) for a in inner])
        assert grid is not FINE or not holds(curve, inner, off)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_advantage_against_gaussian_noise_equals_the_closed_form(mu):
    advantage = TradeOff.of(profile(EveryStep(1), FINE, 1 / mu)).advantage
    assert advantage.lower <= 2 * phi(mu / 2) - 1 <= advantage.upper
    assert advantage.relative_width <= 1e-12


def test_the_gaussian_trade_off_function_equals_its_closed_form():
    for alpha in (1e-9, 0.01, 0.3, 0.99):
        expected = gaussian_misses(alpha, 0.7)
        assert float(gaussian_trade_off(0.7, np.array(alpha))) == pytest.approx(expected, rel=1e-6)
    ends = gaussian_trade_off(0.7, np.array([0.0, 1.0]))
    assert ends.tolist() == [1.0, 0.0]


LAWS = {
    "randomized response": randomized_response(Fraction(3)),
    "three values": {
        Fraction(1, 4): Fraction(8, 33),
        Fraction(1): Fraction(2, 3),
        Fraction(3): Fraction(1, 11),
    },
    "one of five, ε₀ = 3": average(randomized_response(E3), 5),
    "one of two, three values": average(
        {
            Fraction(1, 4): Fraction(8, 33),
            Fraction(1): Fraction(2, 3),
            Fraction(3): Fraction(1, 11),
        },
        2,
    ),
}


@pytest.mark.parametrize("points", [3, 8, 400])
@pytest.mark.parametrize("name", LAWS)
def test_trade_off_bounds_enclose_the_best_test_of_an_enumerated_mechanism(name, points):
    curve = TradeOff.of(profile_of(LAWS[name], np.linspace(0.0, 3.2, points)))
    assert brackets(curve, LAWS[name], ALPHAS)
    if points == 400:
        assert np.all(curve.upper(ALPHAS) - curve.lower(ALPHAS) <= 6e-3)


def test_a_trade_off_curve_with_swapped_directions_is_detected():
    """Negative control: remove taken for add brackets the inverse of f, not f."""
    participation = LAWS["one of five, ε₀ = 3"]
    curve = TradeOff.of(profile_of(participation, np.linspace(0.0, 3.2, 400)))
    assert brackets(curve, participation, ALPHAS)
    assert not brackets(curve.inverse(), participation, ALPHAS)


def test_the_maximum_over_a_grid_is_no_upper_bound_on_a_trade_off_curve():
    """Negative control: from lower bounds on δ at grid points alone, f is too low."""
    participation = LAWS["one of two, three values"]
    exact = profile_of(participation, np.linspace(0.0, 3.2, 8))
    careless = TradeOff.of(exact).lower(ALPHAS)  # upper and lower δ's agree here
    careful = TradeOff.of(exact).upper(ALPHAS)
    truth = TradeOff.of(profile_of(participation, np.linspace(0.0, 3.2, 400)))
    assert np.any(careless < truth.lower(ALPHAS) - 1e-4)
    assert np.all(careful >= truth.lower(ALPHAS))


def above(threshold: float, weighted: bool, mu: float) -> float:
    """E[(1 or S); S > threshold] for S = (X₁ + X₂)/2, by quadrature over X₂."""

    def tail(k: float, shift: float) -> float:
        return 1.0 if k <= 0 else phi(-(math.log(k) / mu) + shift * mu / 2)

    def integrand(z: float) -> float:
        x = math.exp(mu * z - mu * mu / 2)
        rest = 2 * threshold - x
        value = tail(rest, -1.0)
        if weighted:
            value = 0.5 * (tail(rest, 1.0) + x * value)
        return value * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    edge = (math.log(2 * threshold) + mu * mu / 2) / mu  # above it X₂ alone exceeds 2k
    parts = [quad(integrand, a, b, epsrel=1e-10, epsabs=0)[0] for a, b in ((-9, edge), (edge, 11))]
    return sum(parts)


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_the_trade_off_curve_of_one_of_two_steps_agrees_with_quadrature(sigma):
    """Accusing where S > K errs with α = Q(S > K) and misses with 1 − P(S > K): a point of f."""
    curve = TradeOff.of(profile(CheckIn(2), np.linspace(0.0, 5.0, 601), sigma))
    thresholds = (0.5, 0.8, 1.0, 1.3, 2.0, 4.0)
    alphas = np.array([above(k, False, 1 / sigma) for k in thresholds])
    truth = np.array([1 - above(k, True, 1 / sigma) for k in thresholds])
    assert np.all(curve.lower(alphas) <= truth + 1e-8)
    assert np.all(truth <= curve.upper(alphas) + 1e-8)
    assert np.all(curve.upper(alphas) - curve.lower(alphas) <= 1e-4)
    swapped = curve.inverse()
    assert np.any(swapped.lower(alphas) > truth + 1e-5) or np.any(
        swapped.upper(alphas) < truth - 1e-5
    )


@pytest.mark.parametrize(
    "participation", [CheckIn(30), CheckIn(10, 4), PoissonSampling(0.05, 20)], ids=repr
)
def test_trade_off_curves_are_decreasing_and_convex_and_have_correct_inverses(participation):
    """The curves lie between 0 and 1 − α, and the symmetric curve is its own inverse."""
    curve = TradeOff.of(profile(participation, np.linspace(0.0, 3.0, 301)))
    alphas = np.linspace(0.0, 1.0, 101)
    for side in (curve.lower, curve.upper, curve.symmetric().lower, curve.symmetric().upper):
        values = side(alphas)
        assert np.all(np.diff(values) <= 1e-15)
        assert np.all(np.diff(values, 2) >= -1e-14)
        assert np.all((values >= 0) & (values <= 1 - alphas))
    inner = alphas[1:60]
    for one, other in ((curve, curve.inverse()), (curve.symmetric(), curve.symmetric())):
        np.testing.assert_allclose(other.lower(one.lower(inner)), inner, atol=1e-12)
    assert np.all(curve.symmetric().lower(alphas) <= curve.lower(alphas))
    assert np.all(curve.symmetric().lower(alphas) <= curve.inverse().lower(alphas))


def test_the_true_positive_rate_is_one_minus_the_false_negative_rate():
    curve = TradeOff.of(profile(CheckIn(30), np.linspace(0.0, 3.0, 301)))
    for rate in (0.0, 0.001, 0.01, 0.1, 1.0):
        found = curve.true_positive_rate(rate)
        assert rate * (1 - 1e-12) <= found.upper <= 1.0
        assert found.upper >= 1 - float(curve.lower(np.array(rate)))
        assert found.lower <= 1 - float(curve.upper(np.array(rate)))
    gaussian = TradeOff.of(profile(EveryStep(1), FINE)).true_positive_rate(0.01)
    assert gaussian.lower <= 1 - gaussian_misses(0.01, 1.0) <= gaussian.upper


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_a_false_positive_rate_out_of_range_is_refused(alpha):
    curve = TradeOff.of(profile(EveryStep(1), FINE))
    for call in (curve.lower, curve.upper):
        with pytest.raises(ParameterError, match="alpha"):
            call(np.array([alpha]))
    with pytest.raises(ParameterError, match="alpha"):
        curve.true_positive_rate(alpha)
