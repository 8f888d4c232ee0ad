"""Checks of parameters in one line: ``checks.positive(noise_multiplier=sigma)``.

NaN fails every check of a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from numbers import Integral, Real
from typing import TypeVar

import numpy as np

from turnout.core.errors import ParameterError

Choice = TypeVar("Choice", bound=StrEnum)


def _each(parameters: Mapping[str, object], expected: str, inside: Callable[[float], bool]) -> None:
    """Raise a ParameterError for a value that is not a real number for which ``inside`` is true."""
    for name, value in parameters.items():
        try:
            number = isinstance(value, Real) and not isinstance(value, bool) and float(value)
        except OverflowError:  # a whole number or a fraction beyond the floats
            number = False
        if number is False or not inside(number):
            raise ParameterError(name, value, expected)


def positive(**parameters: object) -> None:
    """Require a finite number above 0 for each parameter; else raise a ParameterError."""
    _each(parameters, "a finite number above 0", lambda x: 0 < x < math.inf)


def number(**parameters: object) -> None:
    """Require a finite number for each parameter; else raise a ParameterError."""
    _each(parameters, "a finite number", math.isfinite)


def non_negative(**parameters: object) -> None:
    """Require a finite number of at least 0 for each parameter; else raise a ParameterError."""
    _each(parameters, "a finite number of at least 0", lambda x: 0 <= x < math.inf)


def probability(**parameters: object) -> None:
    """Require a number in [0, 1] for each parameter; else raise a ParameterError."""
    _each(parameters, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def open_unit(**parameters: object) -> None:
    """Require a number strictly between 0 and 1 for each parameter; else raise a ParameterError."""
    _each(parameters, "a number strictly between 0 and 1", lambda x: 0 < x < 1)


def count(minimum: int = 1, **parameters: object) -> None:
    """Require a whole number of at least ``minimum`` for each parameter.

    Raises:
        ParameterError: a value is not a whole number, or is below ``minimum``.
    """
    expected = f"a whole number of at least {minimum}"
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            raise ParameterError(name, value, expected)


def flag(**parameters: object) -> None:
    """Require True or False for each parameter; else raise a ParameterError."""
    for name, value in parameters.items():
        if not isinstance(value, bool):
            raise ParameterError(name, value, "True or False")


def real_array(**parameters: object) -> np.ndarray:
    """Value of the one given parameter as a float64 array; ParameterError for text and bools."""
    ((name, value),) = parameters.items()
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ParameterError(name, value, "an array of numbers")
    return array.astype(float)


def text(**parameters: object) -> None:
    """Require a string for each parameter.

    Raises:
        ParameterError: a value is not a string.
    """
    for name, value in parameters.items():
        if not isinstance(value, str):
            raise ParameterError(name, value, "a text")


def at_most(limit_name: str, limit: int, **parameters: int) -> None:
    """Require that each count is at most ``limit``, which the error calls ``limit_name``.

    Raises:
        ParameterError: a count is above ``limit``.
    """
    for name, value in parameters.items():
        if value > limit:
            raise ParameterError(name, value, f"at most {limit_name} = {limit}")


def choice(choices: type[Choice], **parameters: object) -> Choice:
    """Member of an enumeration, given as the member itself or as its exact word.

    Code compares members by identity (``relation is Relation.ADD_REMOVE``). This comparison fails
    for the word "add-remove". So every public field of such a type is converted by this function
    before use. The function takes exactly one parameter.

    Raises:
        ParameterError: the value is neither a member of the enumeration nor a member's word.
    """
    ((name, value),) = parameters.items()
    # Another enumeration's member may have the same word and mean another thing.
    foreign = isinstance(value, StrEnum) and not isinstance(value, choices)
    if isinstance(value, str) and not foreign:
        for member in choices:
            if value == member.value:
                return member
    words = ", ".join(repr(member.value) for member in choices)
    raise ParameterError(name, value, f"one of {words}" if len(choices) > 1 else words)
