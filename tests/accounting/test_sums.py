"""The law of a sum by one FFT: equal to exact convolution, and its round-off bound holds."""

import mpmath
import numpy as np
import pytest

from turnout.accounting import sums


def law(seed: int, cells: int) -> np.ndarray:
    """Masses whose mean is not on the grid, some of them zero."""
    generator = np.random.default_rng(seed)
    masses = generator.exponential(size=cells + 1) ** 3
    masses[generator.random(cells + 1) < 0.3] = 0.0
    return masses / masses.sum()


def exact_power(masses: np.ndarray, count: int) -> np.ndarray:
    """Repeated convolution in extended precision, where there is one; its own error is below
    ``count`` times 1e-15 of each mass, for all terms are positive.
    """
    result = np.ones(1, dtype=np.longdouble)
    for _ in range(count):
        result = np.convolve(result, masses.astype(np.longdouble))
    return result


def wrapped(masses: np.ndarray, size: int, first: int) -> np.ndarray:
    """Masses of bins 0, 1, … folded into the window first … first + size − 1."""
    folded = np.zeros(size, dtype=masses.dtype)
    np.add.at(folded, (np.arange(masses.size) - first) % size, masses)
    return folded


CASES = [(11, 1, 64, 0), (11, 2, 64, 0), (40, 5, 512, 17), (40, 60, 1536, 300), (90, 9, 256, 5)]


@pytest.mark.parametrize(("cells", "count", "size", "first"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_powers_agree_with_convolution_within_the_bound(seed, cells, count, size, first):
    masses = law(seed, cells)
    result = sums.power(sums.calls_in_bins(masses), count, size, first)
    truth = wrapped(exact_power(masses, count), size, first)
    error = float(np.linalg.norm((result.masses - truth).astype(float)))
    assert result.first == first
    assert error <= result.l2_error
    assert result.l2_error < 1e-9


@pytest.mark.parametrize("seed", [1, 2])
def test_one_power_too_few_is_noticed(seed):
    """Negative control for the test above."""
    masses = law(seed, 40)
    result = sums.power(sums.calls_in_bins(masses), 4, 512, 17)
    truth = wrapped(exact_power(masses, 5), 512, 17)
    assert float(np.linalg.norm((result.masses - truth).astype(float))) > 1e3 * result.l2_error


@pytest.mark.parametrize("count", [10**3, 10**6])
def test_round_off_does_not_grow_with_the_number_of_terms(count):
    """Sums of binomials are binomial, known to forty digits."""
    likely, size = 0.25, 1 << 14
    masses = np.array([(1 - likely) ** 2, 2 * likely * (1 - likely), likely**2])
    mean = round(2 * likely * count)
    first = max(0, mean - size // 2)
    result = sums.power(sums.calls_in_bins(masses), count, size, first)
    with mpmath.workdps(40):
        successes = np.arange(mean - 60, mean + 60)
        truth = [float(binomial(2 * count, int(k), likely)) for k in successes]
    error = float(np.linalg.norm(result.masses[successes - first] - np.array(truth)))
    assert error <= result.l2_error
    assert result.l2_error < 1e-13


def binomial(count: int, successes: int, likely: float):
    log = mpmath.loggamma(count + 1) - mpmath.loggamma(successes + 1)
    log -= mpmath.loggamma(count - successes + 1)
    log += successes * mpmath.log(likely) + (count - successes) * mpmath.log1p(-likely)
    return mpmath.e**log


def test_an_error_of_the_prices_is_charged():
    """Prices that are off by what they may be off by move the law by no more than the bound."""
    masses, count, size = law(5, 30), 20, 1024
    calls = sums.calls_in_bins(masses)
    generator = np.random.default_rng(6)
    relative, absolute = 1e-9, 1e-10
    noise = generator.choice([-1.0, 1.0], calls.size)
    noise[0] = 0.0  # the mean, which K absorbs
    moved = calls * (1 + relative * noise)
    exact = sums.power(calls, count, size, 0)
    charged = sums.power(moved, count, size, 0, relative_error=relative)
    assert np.linalg.norm(charged.masses - exact.masses) <= charged.l2_error
    errors = np.where(calls > 0, absolute, 0.0)
    errors[0] = 0.0
    charged = sums.power(calls + errors * noise, count, size, 0, price_errors=errors)
    difference = float(np.linalg.norm(charged.masses - exact.masses))
    assert difference <= charged.l2_error
    assert difference > sums.power(calls, count, size, 0).l2_error  # not charged, not covered


@pytest.mark.parametrize("cells", [1, 2, 3, 10, 1000, 60_000])
def test_calls_are_double_tail_sums(cells):
    masses = law(8, cells)
    exact = np.zeros(cells + 1, dtype=np.longdouble)
    tails = np.cumsum(masses[::-1].astype(np.longdouble))[::-1]
    exact[:-1] = np.cumsum(tails[:0:-1])[::-1]
    calls = sums.calls_in_bins(masses)
    assert np.all(np.abs(calls - exact) <= sums.calls_rounding(cells) * exact)


def test_a_transform_that_vanishes_is_no_trouble():
    masses = np.array([0.5, 0.5])  # φ(π) = 0
    result = sums.power(sums.calls_in_bins(masses), 2, 8, 0)
    np.testing.assert_allclose(result.masses, [0.25, 0.5, 0.25, 0, 0, 0, 0, 0], atol=1e-15)


def test_logarithm_and_turn_without_cancellation():
    small = np.array([1e-9 + 2e-9j, 0.03 - 0.02j, 0.3 + 0.2j])
    omega = np.array([1e-7, 0.01, 0.9, 1.1, 3.0])
    with mpmath.workdps(40):
        for value, found in zip(small, sums._log1p_minus(small), strict=True):
            truth = complex(mpmath.log(1 + mpmath.mpc(value)) - mpmath.mpc(value))
            assert abs(found - truth) <= 1e-14 * abs(truth)
        for value, found in zip(omega, sums._turn_minus(omega), strict=True):
            exact = mpmath.e ** (-1j * mpmath.mpf(value)) - 1 + 1j * mpmath.mpf(value)
            assert abs(found - complex(exact)) <= 1e-14 * abs(complex(exact))
