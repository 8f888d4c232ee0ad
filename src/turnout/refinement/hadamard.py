"""Groups, Hadamard questions and difference sets: the algebra under successive refinement.

`AbelianGroup` is the finite Abelian group in which values, noise and messages are added.
`Questions` asks each client one yes-no question of a Hadamard matrix and inverts the answers.
`singer_set` and `bent_set` build sets any two shifts of which share equally many elements.

**Groups.** A message is a value plus noise, and the holder of the noise subtracts it. Every group
is ℤ_B × ℤ_2^m: B blocks of 2^m elements, numbered ``block·2^m + place``; blocks add modulo B and
places by exclusive or. ℤ_2 is B = 2, m = 0.

**Questions.** H is Sylvester's matrix of order K, the least power of two that holds all values:
H[x, c] is +1 where x and c share an even number of binary ones. Client i is asked whether
H[x, c_i] = +1; its column c_i is public and independent of its value.

**Difference sets.** Notation: q a prime, r = m + 1, v = (q^r − 1)/(q − 1) the points of the
projective space over GF(q) of dimension m; s = (q^m − 1)/(q − 1) the points of a hyperplane. Modulo
a suitable polynomial f of degree r the powers of x run through all v points, so a hyperplane is a
set of exponents modulo v, and its shifts are the other hyperplanes.

Source: Singer, A theorem in finite projective geometry, Trans. AMS 43 (1938).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomness import Source

LARGEST_ORDER = 2**24
"""The most elements a group may have: the server keeps one number for each."""


@dataclass(frozen=True, slots=True)
class AbelianGroup:
    """Group ℤ_blocks × ℤ_2^place_bits.

    >>> AbelianGroup(blocks=3, place_bits=1).add(np.array([5]), np.array([3]))
    array([0])
    """

    blocks: int
    place_bits: int = 0

    def __post_init__(self) -> None:
        checks.count(blocks=self.blocks)
        checks.count(0, place_bits=self.place_bits)
        if self.blocks << min(self.place_bits, 64) > LARGEST_ORDER:
            raise ParameterError("size", self.blocks << min(self.place_bits, 64), "at most 2**24")

    @property
    def order(self) -> int:
        """Number of elements of the group."""
        return self.blocks << self.place_bits

    def add(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums ``left + right`` in the group, element by element."""
        return self._combined(left, right, 1)

    def subtract(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Differences ``left − right`` in the group, element by element."""
        return self._combined(left, right, -1)

    def _combined(
        self, left: NDArray[np.int64], right: NDArray[np.int64], sign: int
    ) -> NDArray[np.int64]:
        places = (1 << self.place_bits) - 1
        block = (left >> self.place_bits) + sign * (right >> self.place_bits)
        return (block % self.blocks << self.place_bits) | ((left ^ right) & places)

    def spectrum(self, weights: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Fourier transform of an array with one number for each element, shape (order,)."""
        return np.fft.fftn(weights.reshape(self._axes)).ravel()

    def from_spectrum(self, spectrum: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Array of real numbers, shape (order,), with the given Fourier transform."""
        return np.fft.ifftn(spectrum.reshape(self._axes)).real.ravel()

    @property
    def _axes(self) -> tuple[int, ...]:
        return (self.blocks, *(2,) * self.place_bits)


def bent_set(place_bits: int) -> NDArray[np.int64]:
    """Elements of ℤ_2^{2t} whose indicator has a Fourier transform of constant modulus, ascending.

    The support of the bent function ⟨upper half, lower half⟩: 2^{2t−1} − 2^{t−1} of 2^{2t}
    places, and the matrix of signs (−1)^{f(x ⊕ y)} is a Hadamard matrix (a Menon difference set).

    Source: Rothaus, On "bent" functions, J. Combin. Theory A 20 (1976).

    Args:
        place_bits: 2t, even and at least 2.
    """
    if place_bits < 2 or place_bits % 2:
        raise ParameterError("place_bits", place_bits, "an even number of at least 2")
    half = place_bits // 2
    places = np.arange(1 << place_bits, dtype=np.int64)
    meeting = np.bitwise_count((places >> half) & places & ((1 << half) - 1))
    return places[meeting % 2 == 1]


SEED_BYTES = 32
_BLOCK = 2**9

Variant = Literal["default", "as-printed"]


def public_seed(source: Source) -> bytes:
    """Random public seed."""
    return source.below(256, SEED_BYTES).astype(np.uint8).tobytes()


def seeded_words(seed: bytes, label: bytes, first: int, count: int) -> NDArray[np.uint64]:
    """Words ``first`` … ``first + count − 1`` of a public stream, 64 bits each.

    The words are the SHAKE-256 of the label, the seed and the number of a block of 512 words. They
    are the same on every machine. No privacy depends on them, since the seed is public.
    """
    blocks = range(first // _BLOCK, -(-(first + count) // _BLOCK))
    parts = [
        np.frombuffer(
            hashlib.shake_256(label + seed + block.to_bytes(8, "little")).digest(8 * _BLOCK), "<u8"
        )
        for block in blocks
    ]
    if not parts:
        return np.empty(0, dtype=np.uint64)
    start = first - blocks[0] * _BLOCK
    return np.concatenate(parts)[start : start + count].astype(np.uint64)


@dataclass(frozen=True)
class Questions:
    """Public column that each client answers about, and what the answers mean.

    Source: Section 7.3.2, Girgis 2023 [girgis2023thesis], after Acharya and Sun 2019.

    Attributes:
        size: k, how many values there are: 0, …, k − 1; at least 2.
        seed: public, `SEED_BYTES` bytes: what columns are drawn from.
        variant: "default" draws each client's column uniformly from the K − 1 columns that are
            not constant; "as-printed" gives client i column i mod K, the constant one
            included, which says nothing, and needs values that do not depend on i.
    """

    size: int
    seed: bytes
    variant: Variant = "default"

    def __post_init__(self) -> None:
        checks.count(2, size=self.size)
        if self.size > LARGEST_ORDER:
            raise ParameterError("size", self.size, "at most 2**24")
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise ParameterError("seed", self.seed, f"{SEED_BYTES} bytes")
        if self.variant not in ("default", "as-printed"):
            raise ParameterError("variant", self.variant, "'default' or 'as-printed'")

    @cached_property
    def order(self) -> int:
        """Number K of columns."""
        return 1 << (self.size - 1).bit_length()

    def columns(self, first: int, count: int) -> NDArray[np.int64]:
        """Columns of ``count`` clients from client ``first`` on."""
        if self.variant == "as-printed":
            return np.arange(first, first + count, dtype=np.int64) % self.order
        words = seeded_words(self.seed, b"turnout column", first, count)
        # The remainder favours a column by less than K·2⁻⁶⁴.
        return 1 + (words % np.uint64(self.order - 1)).astype(np.int64)

    def truths(self, values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Honest answers (1 is yes) of the clients from ``first`` on, whose values are given."""
        shared = np.bitwise_count(values & self.columns(first, len(values)))
        return 1 - (shared & 1).astype(np.int64)

    def totals(self, answers: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Number of answers no and yes for each column, shape (2, K)."""
        cells = self.columns(first, len(answers)) + self.order * answers
        return np.bincount(cells, minlength=2 * self.order).reshape(2, self.order)

    def frequencies(self, totals: NDArray[np.int64], contrast: float) -> NDArray[np.float64]:
        """Unbiased frequencies of all values, shape (size,).

        Args:
            totals: of `totals`, summed over any blocks of clients; not empty.
            contrast: Pr[yes | honest yes] − Pr[yes | honest no], answers being symmetric.
        """
        signed = (totals[1] - totals[0]).astype(np.float64)
        asked = totals.sum(axis=0)
        if self.variant == "as-printed":
            if not np.all(asked):
                raise ParameterError("clients", int(asked.sum()), f"at least {self.order}")
            return walsh_hadamard(signed / asked)[: self.size] / (self.order * contrast)
        scale = (self.order - 1) / (self.order * float(asked.sum()) * contrast)
        return 1 / self.order + scale * walsh_hadamard(signed)[: self.size]

    def variance(
        self, shares: NDArray[np.float64], clients: int, contrast: float
    ) -> NDArray[np.float64]:
        """Variance of `frequencies` if values are independent draws from ``shares``, shape (size,).

        For "as-printed" every column is asked of equally many clients.
        """
        if self.variant == "as-printed":
            squares = float(np.square(shares).sum())
            return np.full(self.size, (contrast**-2 - squares) / clients)
        order = self.order
        mean = (order * shares - 1) / (order - 1)
        return ((order - 1) / order) ** 2 * (contrast**-2 - np.square(mean)) / clients


Polynomial = tuple[int, ...]
"""Coefficients modulo q of 1, x, …, x^{r−1}."""


def is_prime(number: int) -> bool:
    """Whether a small number is prime.

    >>> [number for number in range(12) if is_prime(number)]
    [2, 3, 5, 7, 11]
    """
    return number > 1 and prime_factors(number) == [number]


def prime_factors(number: int) -> list[int]:
    """Distinct prime factors of ``number``, ascending."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def points(prime: int, dimension: int) -> int:
    """Number of points of the projective space of a dimension over GF(prime).

    >>> points(2, 2), points(3, 1)
    (7, 4)
    """
    return (prime ** (dimension + 1) - 1) // (prime - 1)


@lru_cache(maxsize=64)
def singer_set(prime: int, dimension: int) -> NDArray[np.int64]:
    """Hyperplane as a set of exponents, ascending, read-only.

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
    """First polynomial x^r = tail for which the powers of x reach every point.

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
    """Power of x modulo the polynomial, by repeated squaring."""
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
    """Product of two polynomials modulo the polynomial, by Horner's rule."""
    result = (0,) * len(tail)
    for coefficient in reversed(left):
        shifted = _times_x(result, tail, q)
        result = tuple((a + coefficient * b) % q for a, b in zip(shifted, right, strict=True))
    return result


def _last_coefficients(tail: Polynomial, q: int, count: int) -> NDArray[np.int64]:
    """Coefficient of x^{r−1} in each of x⁰, x¹, …, x^{count−1}."""
    r = len(tail)
    shift = np.zeros((r, r), dtype=np.int64)
    shift[1:, :-1] = np.eye(r - 1, dtype=np.int64)
    shift[:, -1] = tail
    powers = np.eye(r, 1, dtype=np.int64)
    while powers.shape[1] < count:
        powers = np.concatenate([powers, shift @ powers % q], axis=1)
        shift = shift @ shift % q
    return powers[-1, :count]
