"""Groups, Hadamard questions and difference sets: the algebra under successive refinement.

`AbelianGroup` is the finite Abelian group in which values, noise and messages are added.
`Questions` asks each client one yes-no question of a Hadamard matrix and inverts the answers.
`singer_set` and `bent_set` return sets of which any two shifts share equally many elements.

**Groups.** A message is a value plus noise, and an analyst who knows the noise subtracts it. Every
group is ℤ_B × ℤ_2^p: B blocks of 2^p elements. An element has the number ``block·2^p + place``;
blocks are added modulo B, and places by exclusive or. For example, ℤ_2 has B = 2 and p = 0.

**Questions.** H is Sylvester's matrix of order K, the least power of two that is at least the
number of values. H[x, c] is +1 if x and c have an even number of binary ones in common, else −1.
Client i is asked whether H[x, c_i] = +1, where x is its value. The column c_i is public and
independent of x.

**Difference sets.** Notation: q is a prime, m the dimension of a projective space over GF(q), and
r = m + 1. The space has v = (q^r − 1)/(q − 1) points; a hyperplane has (q^m − 1)/(q − 1). Modulo
a suitable polynomial of degree r, the powers of x are all v points. So a hyperplane is a set of
exponents modulo v, and the shifts of this set are the other hyperplanes.

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
"""Largest number of elements of a group; the server stores a number for each element."""


@dataclass(frozen=True, slots=True)
class AbelianGroup:
    """Group ℤ_blocks × ℤ_2^place_bits, whose elements are the numbers 0, …, order − 1.

    Attributes:
        blocks: number of blocks B, at least 1.
        place_bits: number of bits p of a place in a block.

    Raises:
        ParameterError: a negative number, no block, or more than 2²⁴ elements.

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
        """Sums ``left + right`` in the group, element by element, with broadcasting."""
        return self._combined(left, right, 1)

    def subtract(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Differences ``left − right`` in the group, element by element, with broadcasting."""
        return self._combined(left, right, -1)

    def _combined(
        self, left: NDArray[np.int64], right: NDArray[np.int64], sign: int
    ) -> NDArray[np.int64]:
        places = (1 << self.place_bits) - 1
        block = (left >> self.place_bits) + sign * (right >> self.place_bits)
        return (block % self.blocks << self.place_bits) | ((left ^ right) & places)

    def spectrum(self, weights: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Fourier transform of ``weights``, which has a number for each element; shape (order,)."""
        return np.fft.fftn(weights.reshape(self._axes)).ravel()

    def from_spectrum(self, spectrum: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Real part of the inverse Fourier transform of ``spectrum``, shape (order,)."""
        return np.fft.ifftn(spectrum.reshape(self._axes)).real.ravel()

    @property
    def _axes(self) -> tuple[int, ...]:
        return (self.blocks, *(2,) * self.place_bits)


def bent_set(place_bits: int) -> NDArray[np.int64]:
    """Support of a bent function f on ℤ_2^{2t}, ascending; 2^{2t−1} − 2^{t−1} of 2^{2t} elements.

    f(x) is the inner product, modulo 2, of the upper and the lower t bits of x. The matrix of signs
    (−1)^{f(x ⊕ y)} is a Hadamard matrix, so any two shifts of the support share equally many
    elements (a Menon difference set).

    Source: Rothaus, On "bent" functions, J. Combin. Theory A 20 (1976).

    Args:
        place_bits: 2t, even and at least 2.

    Raises:
        ParameterError: ``place_bits`` is odd or below 2.
    """
    if place_bits < 2 or place_bits % 2:
        raise ParameterError("place_bits", place_bits, "an even number, at least 2")
    half = place_bits // 2
    places = np.arange(1 << place_bits, dtype=np.int64)
    meeting = np.bitwise_count((places >> half) & places & ((1 << half) - 1))
    return places[meeting % 2 == 1]


SEED_BYTES = 32
_BLOCK = 2**9

Variant = Literal["default", "as-printed"]


def public_seed(source: Source) -> bytes:
    """Random public seed of 32 bytes."""
    return source.below(256, SEED_BYTES).astype(np.uint8).tobytes()


def seeded_words(seed: bytes, label: bytes, first: int, count: int) -> NDArray[np.uint64]:
    """Words ``first``, …, ``first + count − 1`` of a public stream of 64-bit words; shape (count,).

    Each block of 512 words is the SHAKE-256 of the label, the seed and the number of the block. The
    words are the same on every machine. As the seed is public, no privacy depends on the words.
    """
    # Compute the blocks that contain the words.
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
    """Public questions to the clients, one column for each, and estimates from the answers.

    Source: Section 7.3.2, Girgis 2023 [girgis2023thesis], after Acharya and Sun 2019.

    Attributes:
        size: number of possible values k, from 2 to 2²⁴; values are 0, …, k − 1.
        seed: public seed of the columns, 32 bytes.
        variant: "default" draws each client's column uniformly from the K − 1 columns that are
            not constant. "as-printed" assigns column i mod K to client i. This variant also uses
            the constant column, whose answers contain no information, and its estimates are
            unbiased only for values that do not depend on i.

    Raises:
        ParameterError: a parameter outside its domain.
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
        """Columns of ``count`` clients from client ``first`` on, shape (count,)."""
        if self.variant == "as-printed":
            return np.arange(first, first + count, dtype=np.int64) % self.order
        words = seeded_words(self.seed, b"turnout column", first, count)
        # The remainder changes a column's relative probability by less than K·2⁻⁶⁴.
        return 1 + (words % np.uint64(self.order - 1)).astype(np.int64)

    def truths(self, values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """True answers (1 is yes) of clients with ``values``, from client ``first`` on; (n,)."""
        shared = np.bitwise_count(values & self.columns(first, len(values)))
        return 1 - (shared & 1).astype(np.int64)

    def totals(self, answers: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Numbers of answers no and yes for each column, shape (2, K).

        Args:
            answers: answers of the clients, 1 for yes and 0 for no, shape (n,).
            first: number of the first of these clients.
        """
        cells = self.columns(first, len(answers)) + self.order * answers
        return np.bincount(cells, minlength=2 * self.order).reshape(2, self.order)

    def frequencies(self, totals: NDArray[np.int64], contrast: float) -> NDArray[np.float64]:
        """Unbiased frequencies of all values, shape (k,).

        Args:
            totals: sum of `totals` over blocks of clients; at least one answer.
            contrast: Pr[yes | true answer yes] − Pr[yes | true answer no]. The two kinds of false
                answers have equal probability.

        Raises:
            ParameterError: the variant is "as-printed", and a column has no answer.
        """
        # Difference of yes and no, and number of answers, for each column.
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
        """Variance of each of the `frequencies`, shape (k,).

        For "as-printed" it is assumed that all columns are asked equally often.

        Args:
            shares: distribution from which clients' values are independent draws, shape (k,).
            clients: number of clients.
            contrast: as in `frequencies`.
        """
        if self.variant == "as-printed":
            squares = float(np.square(shares).sum())
            return np.full(self.size, (contrast**-2 - squares) / clients)
        order = self.order
        mean = (order * shares - 1) / (order - 1)
        return ((order - 1) / order) ** 2 * (contrast**-2 - np.square(mean)) / clients


Polynomial = tuple[int, ...]
"""Coefficients of 1, x, …, x^{r−1}, modulo q."""


def is_prime(number: int) -> bool:
    """Whether ``number`` is prime, by trial division.

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
    """Number of points of the projective space of ``dimension`` over GF(``prime``).

    >>> points(2, 2), points(3, 1)
    (7, 4)
    """
    return (prime ** (dimension + 1) - 1) // (prime - 1)


@lru_cache(maxsize=64)
def singer_set(prime: int, dimension: int) -> NDArray[np.int64]:
    """Hyperplane of a projective space, as a read-only, ascending array of exponents.

    Any two shifts of the set modulo `points` share equally many elements (Singer difference set).

    Args:
        prime: number of elements q of the field, a prime.
        dimension: dimension m of the space, at least 2.

    Raises:
        ParameterError: ``prime`` is not prime, ``dimension`` is below 2, or the space has more than
            2²⁴ points.

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
    """The first ``tail`` such that the powers of x modulo x^r − tail reach every point.

    Each nonzero polynomial is then a number times a power of x, so it has an inverse. Hence the
    polynomials modulo x^r − tail are a field, and irreducibility needs no separate test.
    """
    # x has the order v modulo numbers if x^v is a number and x^(v/p) is none for primes p of v.
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
    """Power of x modulo x^r − tail, by repeated squaring."""
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
    """Product of two polynomials modulo x^r − tail, by Horner's rule."""
    result = (0,) * len(tail)
    for coefficient in reversed(left):
        shifted = _times_x(result, tail, q)
        result = tuple((a + coefficient * b) % q for a, b in zip(shifted, right, strict=True))
    return result


def _last_coefficients(tail: Polynomial, q: int, count: int) -> NDArray[np.int64]:
    """Coefficient of x^{r−1} in each of x⁰, x¹, …, x^{count−1}, shape (count,)."""
    # Multiplication by x is a matrix.
    r = len(tail)
    shift = np.zeros((r, r), dtype=np.int64)
    shift[1:, :-1] = np.eye(r - 1, dtype=np.int64)
    shift[:, -1] = tail
    # Double the number of powers in each round: multiply all by the matrix, and square it.
    powers = np.eye(r, 1, dtype=np.int64)
    while powers.shape[1] < count:
        powers = np.concatenate([powers, shift @ powers % q], axis=1)
        shift = shift @ shift % q
    return powers[-1, :count]
