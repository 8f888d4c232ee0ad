"""Sets in ℤ_v any two shifts of which share equally many elements, for many densities.

Notation: q a prime, r = m + 1, v = (q^r − 1)/(q − 1) the points of the projective space over
GF(q) of dimension m; s = (q^m − 1)/(q − 1) the points of a hyperplane.

Modulo a suitable polynomial f of degree r the powers of x run through all v points, so a
hyperplane is a set of exponents modulo v, and its shifts are the other hyperplanes.

Source: Singer, A theorem in finite projective geometry, Trans. AMS 43 (1938).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.refinement.groups import LARGEST_ORDER

Polynomial = tuple[int, ...]
"""Coefficients modulo q of 1, x, …, x^{r−1}."""


def is_prime(number: int) -> bool:
    """Whether a small number is prime.

    >>> [number for number in range(12) if is_prime(number)]
    [2, 3, 5, 7, 11]
    """
    return number > 1 and prime_factors(number) == [number]


def prime_factors(number: int) -> list[int]:
    """The different primes that divide ``number``, ascending."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def points(prime: int, dimension: int) -> int:
    """Points of the projective space of a dimension over GF(prime).

    >>> points(2, 2), points(3, 1)
    (7, 4)
    """
    return (prime ** (dimension + 1) - 1) // (prime - 1)


@lru_cache(maxsize=64)
def singer_set(prime: int, dimension: int) -> NDArray[np.int64]:
    """A hyperplane as a set of exponents, ascending, read-only.

    >>> singer_set(2, 2).tolist()
    [0, 1, 3]
    """
    checks.count(2, prime=prime, dimension=dimension)
    if not is_prime(prime):
        raise ParameterError("prime", prime, "a prime number")
    if dimension > 24 or points(prime, dimension) > LARGEST_ORDER:
        raise ParameterError("dimension", dimension, "a space of at most 2**24 points")
    tail = _generator(prime, dimension + 1)
    found = np.flatnonzero(_last_coefficients(tail, prime, points(prime, dimension)) == 0)
    found.flags.writeable = False
    return found


def _generator(q: int, r: int) -> Polynomial:
    """The first x^r = tail under which the powers of x reach every point.

    Each point then is a power of x times a number, so nothing but 0 lacks an inverse: the
    polynomials modulo x^r − tail are a field, which need not be tested apart.
    """
    order = points(q, r - 1)
    proper = [order // p for p in prime_factors(order)]
    for number in range(1, q**r):
        tail = tuple(number // q**place % q for place in range(r))
        if tail[0] == 0 or not _is_number(_power_of_x(order, tail, q)):
            continue
        if not any(_is_number(_power_of_x(exponent, tail, q)) for exponent in proper):
            return tail
    raise AssertionError("every finite field has a primitive element")


def _is_number(polynomial: Polynomial) -> bool:
    return not any(polynomial[1:])


def _power_of_x(exponent: int, tail: Polynomial, q: int) -> Polynomial:
    """X to a power, by squaring."""
    result = (1, *(0,) * (len(tail) - 1))
    for digit in f"{exponent:b}":
        result = _product(result, result, tail, q)
        if digit == "1":
            result = _times_x(result, tail, q)
    return result


def _times_x(factor: Polynomial, tail: Polynomial, q: int) -> Polynomial:
    last = factor[-1]
    return tuple((low + last * t) % q for low, t in zip((0, *factor[:-1]), tail, strict=True))


def _product(left: Polynomial, right: Polynomial, tail: Polynomial, q: int) -> Polynomial:
    """Horner's rule in x."""
    result = (0,) * len(tail)
    for coefficient in reversed(left):
        shifted = _times_x(result, tail, q)
        result = tuple((a + coefficient * b) % q for a, b in zip(shifted, right, strict=True))
    return result


def _last_coefficients(tail: Polynomial, q: int, count: int) -> NDArray[np.int64]:
    """The coefficient of x^{r−1} in x⁰, x¹, …, x^{count−1}."""
    r = len(tail)
    shift = np.zeros((r, r), dtype=np.int64)
    shift[1:, :-1] = np.eye(r - 1, dtype=np.int64)
    shift[:, -1] = tail
    powers = np.eye(r, 1, dtype=np.int64)
    while powers.shape[1] < count:
        powers = np.concatenate([powers, shift @ powers % q], axis=1)
        shift = shift @ shift % q
    return powers[-1, :count]
