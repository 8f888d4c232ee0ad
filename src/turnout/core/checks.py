"""One-line checks: ``checks.positive(noise_multiplier=sigma)``. NaN fails every one of them."""

from __future__ import annotations

import math
from enum import StrEnum
from numbers import Integral, Real
from typing import TypeVar

import numpy as np

from turnout.core.errors import ParameterError

Choice = TypeVar("Choice", bound=StrEnum)


def _real(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError(name, value, expected)
    try:
        number = float(value)
    except OverflowError:  # a whole number or a fraction beyond the floats
        raise ParameterError(name, value, expected) from None
    if math.isnan(number):
        raise ParameterError(name, value, expected)
    return number


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


def flag(**parameters: object) -> None:
    """Each parameter is True or False: any other value would count as one of them."""
    for name, value in parameters.items():
        if not isinstance(value, bool):
            raise ParameterError(name, value, "True or False")


def real_array(**parameters: object) -> np.ndarray:
    """The one parameter as a float array; words and truth values are no numbers.

    Raises:
        ParameterError: anything but whole or real numbers.
    """
    ((name, value),) = parameters.items()
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ParameterError(name, value, "an array of numbers")
    return array.astype(float)


def at_most(limit_name: str, limit: int, **parameters: int) -> None:
    """Each (already checked) count is no larger than another quantity, named in the message."""
    for name, value in parameters.items():
        if value > limit:
            raise ParameterError(name, value, f"at most {limit_name} = {limit}")


def choice(choices: type[Choice], **parameters: object) -> Choice:
    """The member that the one parameter is: given as itself, or by its exact word.

    Code asks ``relation is Relation.ADD_REMOVE``, which the word "add-remove" is not. So every
    public field of such a type goes through here before anything reads it.

    Raises:
        ParameterError: anything else, naming the choices.
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
