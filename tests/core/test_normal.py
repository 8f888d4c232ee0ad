"""The normal distribution function against scipy's and against 60 digits."""

import mpmath
import numpy as np
import pytest
from scipy import special

from turnout.core.normal import ndtr

AT = np.concatenate(
    [np.linspace(-38.0, 9.0, 200_001), np.random.default_rng(1).standard_normal(10**5)]
)


def test_it_has_the_values_of_scipy():
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 1e300, -1e300, -38.6, 38.6, np.nan])
    for x in (AT, ends, AT[:6].reshape(2, 3), np.float64(-1.5)):
        ours, theirs = ndtr(x), special.ndtr(x)
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=2**-51, atol=0, equal_nan=True)


@pytest.mark.parametrize("x", [-37.0, -20.0, -11.4, -11.3, -5.0, -1.42, -1.41, -0.3, 0.7, 3.0])
def test_its_error_is_at_most_what_it_guarantees(x):
    with mpmath.workdps(60):
        true = mpmath.ncdf(mpmath.mpf(x))
        error = abs(mpmath.mpf(float(ndtr(np.float64(x)))) - true) / true
        assert error <= (16 + 8 * abs(mpmath.log(true))) * mpmath.mpf(2) ** -53
