"""Distribution of the number of runs of a private search: families, tables, exact draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from turnout.accounting import Stopping
from turnout.core.errors import ParameterError
from turnout.randomness import SimulationStreams, Source


class At(Source):
    """A source whose one draw is given."""

    secure = False

    def __init__(self, position):
        self.position = position

    def below(self, n, size):
        assert (n, size) == (2**62, 1)
        return np.array([self.position])


@pytest.mark.parametrize("position", [0, 2**61 - 1, 2**61, 2**62 - 1])
def test_draws_follow_the_probability_table_exactly(position):
    distribution = Stopping((2**61, 0, 2**60, 2**60))
    expected = {0: 1, 2**61 - 1: 1, 2**61: 3, 2**62 - 1: 4}[position]
    assert distribution.draw(At(position)) == expected


def test_the_geometric_number_of_runs_has_geometric_probabilities():
    distribution = Stopping.negative_binomial(4.0, 1.0, most=1000)
    chances = np.array(distribution.weights[:30]) / 2**62
    np.testing.assert_allclose(chances, stats.geom.pmf(np.arange(1, 31), 0.25), rtol=1e-9)


def test_the_logarithmic_number_of_runs_has_logarithmic_probabilities():
    distribution = Stopping.negative_binomial(5.0, 0.0, most=4000)
    ratio = distribution.weights[1] / distribution.weights[0]  # (1 − γ) / 2
    np.testing.assert_allclose(
        np.array(distribution.weights[:20]) / 2**62,
        stats.logser.pmf(np.arange(1, 21), 2 * ratio),
        rtol=1e-9,
    )


def test_the_poisson_number_of_runs_has_poisson_probabilities_above_0():
    distribution = Stopping.poisson(6.0, most=200)
    rate = 2.0 * distribution.weights[1] / distribution.weights[0]
    pmf = stats.poisson.pmf(np.arange(1, 20), rate) / -math.expm1(-rate)
    np.testing.assert_allclose(np.array(distribution.weights[:19]) / 2**62, pmf, rtol=1e-9)


@pytest.mark.parametrize("mean", [1.0, 1.5, 10.0, 300.0])
def test_probability_tables_of_the_number_of_runs_have_the_given_mean(mean):
    for distribution in (Stopping.negative_binomial(mean), Stopping.poisson(mean)):
        assert distribution.mean == pytest.approx(mean, rel=1e-9)
        assert distribution.most == max(1, math.ceil(10 * mean))


def test_the_slope_equals_the_derivative_of_the_generating_function():
    distribution = Stopping.negative_binomial(3.0, 0.5, most=12)
    chances = np.array(distribution.weights) / 2**62
    polynomial = np.polynomial.Polynomial([0.0, *chances]).deriv()
    gaps = np.array([0.0, 1e-9, 0.3, 0.9, 1.0])
    np.testing.assert_allclose(distribution.slope(gaps), polynomial(1.0 - gaps), rtol=1e-11)


def test_drawn_numbers_of_runs_fit_their_distribution_and_no_other_mean():
    distribution, other = Stopping.negative_binomial(3.0), Stopping.negative_binomial(4.0)
    source = SimulationStreams(3).source("stopping")
    counts = np.bincount(
        [distribution.draw(source) for _ in range(8000)], minlength=distribution.most + 1
    )[1:7]
    for each, kept in ((distribution, True), (other, False)):
        expected = np.array(each.weights[:6]) / 2**62 * 8000.0
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert bool(stats.chi2.sf(chi, 6) > 1e-9) is kept


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Stopping.negative_binomial(0.5), "mean"),
        (lambda: Stopping.negative_binomial(math.nan), "mean"),
        (lambda: Stopping.negative_binomial(5.0, -1.0), "shape"),
        (lambda: Stopping.negative_binomial(5.0, math.nan), "shape"),
        (lambda: Stopping.poisson(5.0, most=5), "most"),
        (lambda: Stopping.poisson(5.0, most=10**6), "most"),
        (lambda: Stopping.fixed(0), "runs"),
        (lambda: Stopping((1, 2)), "weights"),
        (lambda: Stopping(()), "weights"),
        (lambda: Stopping((2**62 + 1, -1)), "weights"),
    ],
)
def test_errors_about_invalid_arguments_of_a_search_name_the_argument(call, name):
    with pytest.raises(ParameterError, match=name):
        call()
