"""One-line checks: ``checks.positive(noise_multiplier=sigma)``. NaN fails every one of them."""

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
    """Refuses what is no real number inside a range; NaN is inside none."""
    for name, value in parameters.items():
        try:
            number = isinstance(value, Real) and not isinstance(value, bool) and float(value)
        except OverflowError:  # a whole number or a fraction beyond the floats
            number = False
        if number is False or not inside(number):
            raise ParameterError(name, value, expected)


def positive(**parameters: object) -> None:
    """Each parameter is a finite number above 0."""
    _each(parameters, "a finite number above 0", lambda x: 0 < x < math.inf)


def number(**parameters: object) -> None:
    """Each parameter is a finite number."""
    _each(parameters, "a finite number", math.isfinite)


def non_negative(**parameters: object) -> None:
    """Each parameter is a finite number of at least 0."""
    _each(parameters, "a finite number of at least 0", lambda x: 0 <= x < math.inf)


def probability(**parameters: object) -> None:
    """Each parameter lies in [0, 1]."""
    _each(parameters, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def open_unit(**parameters: object) -> None:
    """Each parameter lies strictly between 0 and 1 (a δ, a decay)."""
    _each(parameters, "a number strictly between 0 and 1", lambda x: 0 < x < 1)


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
    """The one parameter as a float array; words and truth values are no numbers."""
    ((name, value),) = parameters.items()
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ParameterError(name, value, "an array of numbers")
    return array.astype(float)


def text(**parameters: object) -> None:
    """Each parameter is a text."""
    for name, value in parameters.items():
        if not isinstance(value, str):
            raise ParameterError(name, value, "a text")


def at_most(limit_name: str, limit: int, **parameters: int) -> None:
    """Each (already checked) count is no larger than another quantity, named in the message."""
    for name, value in parameters.items():
        if value > limit:
            raise ParameterError(name, value, f"at most {limit_name} = {limit}")


def choice(choices: type[Choice], **parameters: object) -> Choice:
    """The member that the one parameter is: given as itself, or by its exact word.

    Code asks ``relation is Relation.ADD_REMOVE``, which the word "add-remove" is not. So every
    public field of such a type goes through here before anything reads it.
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
