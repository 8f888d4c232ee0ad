"""Which filter to take, decided before anything is released."""

from __future__ import annotations

from turnout.accounting.budgets.gaussian_filter import GaussianFilter
from turnout.accounting.budgets.renyi_filter import RenyiFilter
from turnout.accounting.budgets.terms import Terms
from turnout.core.errors import NumericalError, ParameterError
from turnout.spec import Scheme


def filter_for(
    expected: Scheme, epsilon: float, delta: float, *, most_windows: int = 1000
) -> GaussianFilter | RenyiFilter:
    """The filter that allows most windows of the kind that is expected.

    The choice reads nothing but its arguments, so it is one that may be made: what is really run
    may then be anything. Where all windows come from a menu known in advance, `MenuFilter` allows
    more.

    Args:
        expected: a typical window; its relation, unit and trust are the filter's.
        epsilon: ε that holds at the end.
        delta: δ that holds at the end.
        most_windows: the most windows that will be run.

    Raises:
        ParameterError: no filter allows anything at so small an ε.
    """
    terms = Terms.of(expected)
    gaussian = GaussianFilter.of(terms, epsilon, delta, most_windows=most_windows)
    try:
        renyi = RenyiFilter.of(terms, epsilon, delta, expected=expected, most_windows=most_windows)
    except ParameterError:
        return gaussian
    try:
        return gaussian if gaussian.fits(expected) >= renyi.fits(expected) else renyi
    except NumericalError:
        return renyi
