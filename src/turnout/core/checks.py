"""One-line checks: ``checks.positive(noise_multiplier=sigma)``. NaN fails every one of them."""

from __future__ import annotations

import math
from numbers import Integral, Real

from turnout.core.errors import ParameterError


def _real(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise ParameterError(name, value, expected)
    return float(value)


def positive(**parameters: object) -> None:
    """Each parameter is a finite number above 0."""
    expected = "a finite number above 0"
    for name, value in parameters.items():
        number = _real(name, value, expected)
        if not 0 < number < math.inf:
            raise ParameterError(name, value, expected)


def non_negative(**parameters: object) -> None:
    """Each parameter is a finite number of at least 0."""
    expected = "a finite number of at least 0"
    for name, value in parameters.items():
        number = _real(name, value, expected)
        if not 0 <= number < math.inf:
            raise ParameterError(name, value, expected)


def probability(**parameters: object) -> None:
    """Each parameter lies in [0, 1]."""
    expected = "a number from 0 to 1"
    for name, value in parameters.items():
        number = _real(name, value, expected)
        if not 0 <= number <= 1:
            raise ParameterError(name, value, expected)


def open_unit(**parameters: object) -> None:
    """Each parameter lies strictly between 0 and 1 (a δ, a decay)."""
    expected = "a number strictly between 0 and 1"
    for name, value in parameters.items():
        number = _real(name, value, expected)
        if not 0 < number < 1:
            raise ParameterError(name, value, expected)


def count(minimum: int = 1, **parameters: object) -> None:
    """Each parameter is a whole number of at least ``minimum``."""
    expected = f"a whole number of at least {minimum}"
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            raise ParameterError(name, value, expected)


def at_most(limit_name: str, limit: int, **parameters: int) -> None:
    """Each (already checked) count is no larger than another quantity, named in the message."""
    for name, value in parameters.items():
        if value > limit:
            raise ParameterError(name, value, f"at most {limit_name} = {limit}")
