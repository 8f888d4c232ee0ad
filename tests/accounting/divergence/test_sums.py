"""Distribution of a sum by one FFT: equal to exact convolution within its rounding bound."""

import mpmath
import numpy as np
import pytest

from turnout.accounting.divergence import sums


def power(masses, count, size, first, **errors):
    return sums.convolve([sums.Factor(masses, count, **errors)], size, first)


def distribution(seed: int, cells: int) -> np.ndarray:
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
def test_convolution_powers_agree_with_exact_convolution_within_the_error_bound(
    seed, cells, count, size, first
):
    masses = distribution(seed, cells)
    result = power(masses, count, size, first)
    truth = wrapped(exact_power(masses, count), size, first)
    error = float(np.linalg.norm((result.masses - truth).astype(float)))
    assert result.first == first
    assert error <= result.l2_error
    assert result.l2_error < 1e-9


@pytest.mark.parametrize("seed", [1, 2])
def test_a_convolution_power_with_another_number_of_summands_is_detected(seed):
    """Negative control for the test above."""
    masses = distribution(seed, 40)
    result = power(masses, 4, 512, 17)
    truth = wrapped(exact_power(masses, 5), 512, 17)
    assert float(np.linalg.norm((result.masses - truth).astype(float))) > 1e3 * result.l2_error


@pytest.mark.parametrize("count", [10**3, 10**6])
def test_round_off_does_not_grow_with_the_number_of_terms(count):
    """Sums of binomials are binomial, known to forty digits."""
    likely, size = 0.25, 1 << 14
    masses = np.array([(1 - likely) ** 2, 2 * likely * (1 - likely), likely**2])
    mean = round(2 * likely * count)
    first = max(0, mean - size // 2)
    result = power(masses, count, size, first)
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


def test_the_rounding_error_of_hockey_sticks_is_added():
    """Errors of hockey sticks change the masses computed from them by at most the bound."""
    masses, count, size = distribution(5, 30), 20, 1024
    errors = np.full(masses.size + 2, 1e-10)
    noise = np.random.default_rng(6).choice([-1.0, 1.0], errors.size) * errors
    noise[[0, 1, -2, -1]] = 0.0  # mass and mean stay
    moved = masses + np.diff(noise, 2)
    exact = power(masses, count, size, 0)
    charged = power(moved, count, size, 0, price_errors=errors[1:-1])
    difference = float(np.linalg.norm(charged.masses - exact.masses))
    assert difference <= charged.l2_error
    assert difference > exact.l2_error  # not charged, not covered


def test_sums_of_a_distribution_far_from_zero_have_small_errors():
    """Rounding errors depend on the variance, not on the distance from the first bin."""
    masses = np.zeros(4001)
    masses[3990:] = distribution(9, 10)
    near, far = power(distribution(9, 10), 10**4, 1 << 12, 10**4), power(masses, 10**4, 1 << 12, 0)
    assert far.l2_error <= 4 * near.l2_error
    np.testing.assert_allclose(
        np.roll(far.masses, -(3990 * 10**4 + 10**4) % (1 << 12)), near.masses, atol=1e-14
    )


@pytest.mark.parametrize("cells", [1, 2, 3, 10, 1000, 60_000])
def test_hockey_sticks_on_a_grid_are_sums_of_tail_sums(cells):
    masses = distribution(8, cells)
    exact = np.zeros(cells + 1, dtype=np.longdouble)
    tails = np.cumsum(masses[::-1].astype(np.longdouble))[::-1]
    exact[:-1] = np.cumsum(tails[:0:-1])[::-1]
    hockey_sticks = sums.hockey_sticks_in_bins(masses)
    assert np.all(np.abs(hockey_sticks - exact) <= sums.hockey_sticks_rounding(cells) * exact)


def test_a_distribution_whose_fourier_transform_has_zeros_is_convolved_exactly():
    masses = np.array([0.5, 0.5])  # φ(π) = 0
    result = power(masses, 2, 8, 0)
    np.testing.assert_allclose(result.masses, [0.25, 0.5, 0.25, 0, 0, 0, 0, 0], atol=1e-15)


def test_the_complex_logarithm_is_computed_without_cancellation():
    small = np.array([1e-9 + 2e-9j, 0.03 - 0.02j, 0.3 + 0.2j])
    omega = np.array([1e-7, 0.01, 0.9, 1.1, 3.0])
    with mpmath.workdps(40):
        for value, found in zip(small, sums._log1p_minus(small), strict=True):
            truth = complex(mpmath.log(1 + mpmath.mpc(value)) - mpmath.mpc(value))
            assert abs(found - truth) <= 1e-14 * abs(truth)
        for value, found in zip(omega, sums._turn_minus(omega), strict=True):
            exact = mpmath.e ** (-1j * mpmath.mpf(value)) - 1 + 1j * mpmath.mpf(value)
            assert abs(found - complex(exact)) <= 1e-14 * abs(complex(exact))


def test_sums_of_different_distributions_agree_with_convolution():
    first, second = distribution(11, 30), distribution(12, 50)
    factors = [
        sums.Factor(first, 3),
        sums.Factor(second, 2),
    ]
    result = sums.convolve(factors, 512, 0)
    exact = np.convolve(exact_power(first, 3), exact_power(second, 2))
    truth = wrapped(exact, 512, 0)
    assert float(np.linalg.norm((result.masses - truth).astype(float))) <= result.l2_error
    # Negative control: the other way round it is another sum.
    swapped = sums.convolve([sums.Factor(first, 2), sums.Factor(second, 3)], 512, 0)
    assert float(np.linalg.norm((swapped.masses - truth).astype(float))) > 1e3 * result.l2_error
