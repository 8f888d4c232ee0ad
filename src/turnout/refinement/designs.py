"""Designs: how a client's value becomes a message before noise, and how the noise is distributed.

Messages and noise are elements of a finite group. A design is public. `OneBit` asks one yes-no
question of each client (thesis §7.4). `Direct` adds noise to the value itself, so that a reader who
knows all of the noise recovers the value (§7.5). `hadamard`, `projective` and `spread` return a
`Direct` with suitable parameters.

Notation: k is ``size``, the number of values; "order" is the number of elements of the group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import check_level
from turnout.refinement.cascade import Level
from turnout.refinement.hadamard import (
    LARGEST_ORDER,
    AbelianGroup,
    Questions,
    Variant,
    bent_set,
    is_prime,
    points,
    seeded_words,
    singer_set,
)

Family = Literal["k-ary", "hadamard", "projective", "spread"]
_DRAWS = 32


@dataclass(frozen=True)
class OneBit:
    """Design whose message is one bit: whether the value is in a public half of the values.

    Source: Theorem 7.4.1, Girgis 2023 [girgis2023thesis].

    Attributes:
        size: number of values k, at least 2.
        seed: public seed of the questions, 32 bytes.
        variant: how questions are assigned to clients; see `Questions`.

    Raises:
        ParameterError: a parameter that `Questions` does not accept.
    """

    size: int
    seed: bytes
    variant: Variant = "default"

    def __post_init__(self) -> None:
        self.questions  # noqa: B018 - invalid parameters are refused here, not at first use

    @cached_property
    def questions(self) -> Questions:
        """Public questions, each of which asks a client about one half of the values."""
        return Questions(self.size, self.seed, self.variant)

    @property
    def family(self) -> str:
        """Name of the design."""
        return "one-bit"

    @property
    def group(self) -> AbelianGroup:
        """Group of the messages: bits under exclusive or."""
        return AbelianGroup(2)

    @property
    def heavy(self) -> NDArray[np.int64]:
        """Noise elements with the larger probability: the element 0, shape (1,)."""
        return np.zeros(1, dtype=np.int64)

    @property
    def totals_shape(self) -> tuple[int, int]:
        """Shape of a histogram of messages: (answers, columns of questions)."""
        return 2, self.questions.order

    def symbols(self, values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Messages of the given values before noise, shape (n,).

        Args:
            values: the clients' values, whole numbers from 0 to k − 1, shape (n,).
            first: number of the first of these clients.
        """
        return self.questions.truths(values, first)

    def totals(self, messages: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Histogram of messages, of shape `totals_shape`; histograms of disjoint clients add up.

        Args:
            messages: the clients' messages, shape (n,).
            first: number of the first of these clients.
        """
        return self.questions.totals(messages, first)

    def frequencies(self, totals: NDArray[np.int64], level: Level) -> NDArray[np.float64]:
        """Unbiased frequencies, shape (k,), from the histogram of messages at ``level``."""
        return self.questions.frequencies(totals, float(level.contrast))

    def total_variance(self, level: Level) -> float:
        """Approximate sum of the variances of `frequencies`, times the number of clients."""
        return self.size / float(level.contrast) ** 2

    def variance(
        self, shares: NDArray[np.float64], clients: int, level: Level
    ) -> NDArray[np.float64]:
        """Variance of each of the `frequencies`, shape (k,).

        Args:
            shares: distribution from which clients' values are independent draws, shape (k,).
            clients: number of clients.
            level: distribution of the noise in the messages.
        """
        return self.questions.variance(shares, clients, float(level.contrast))


@dataclass(frozen=True)
class Direct:
    """Design whose message is the value plus noise in a group.

    Source: Lemma 7.5.1, Girgis 2023 [girgis2023thesis].

    Attributes:
        size: number of values k, from 2 to 2²⁴.
        family: set of heavy (more probable) noise elements.
            "k-ary": only 0, as in k-ary randomized response.
            "hadamard": the support of a bent function in one block. The sets of probable messages
            of any two values of a block then have equally large overlaps, as in Hadamard response.
            "projective": a hyperplane of a projective space. The overlaps are equally large for
            any two values, as in projective geometry response; the hyperplane's share of the
            messages is about 1/``prime``.
            "spread": ``heavy_count`` pseudorandom elements of ℤ_k. Theorem 7.5.1 gives the number
            of heavy elements that minimizes the entropy of a key, but not which elements.
        place_bits: for "hadamard": a block has 2^place_bits messages; an even number.
        prime: for "projective": number of elements of the field.
        dimension: for "projective": dimension of the space, at least 2.
        heavy_count: for "spread": number of heavy elements, from 1 to k − 1.
        draw: for "spread": number of the pseudorandom set; `spread` chooses it.

    Raises:
        ParameterError: a parameter outside its range, a parameter of another family, or a group
            of fewer than k or more than 2²⁴ elements.
    """

    size: int
    family: Family = "k-ary"
    place_bits: int = 0
    prime: int = 0
    dimension: int = 0
    heavy_count: int = 1
    draw: int = 0

    def __post_init__(self) -> None:
        # Check each number by itself.
        checks.count(2, size=self.size)
        checks.count(0, place_bits=self.place_bits, draw=self.draw)
        checks.count(1, heavy_count=self.heavy_count)
        checks.at_most("2**24", LARGEST_ORDER, size=self.size)
        checks.at_most("size - 1", self.size - 1, heavy_count=self.heavy_count)
        # Check that only parameters of the family are given.
        own = {
            "k-ary": (),
            "hadamard": ("place_bits",),
            "projective": ("prime", "dimension"),
            "spread": ("heavy_count", "draw"),
        }
        if self.family not in own:
            raise ParameterError("family", self.family, f"one of {', '.join(own)}")
        for name, unused in (("place_bits", 0), ("prime", 0), ("dimension", 0), ("heavy_count", 1)):
            if name not in own[self.family] and getattr(self, name) != unused:
                raise ParameterError(name, getattr(self, name), f"{unused} for {self.family!r}")
        # Check that the group has an element for each value, and that its heavy set exists.
        if self.group.order < self.size:
            raise ParameterError("size", self.size, f"at most {self.group.order} points")
        self.heavy  # noqa: B018 - a heavy set that does not exist is refused here

    @cached_property
    def group(self) -> AbelianGroup:
        """Group of values, noise and messages; the values are its first ``size`` elements."""
        if self.family == "projective":
            singer_set(self.prime, self.dimension)  # Raises an error if there is no such space.
            return AbelianGroup(points(self.prime, self.dimension))
        return AbelianGroup(-(-self.size >> self.place_bits), self.place_bits)

    @cached_property
    def heavy(self) -> NDArray[np.int64]:
        """Noise elements with the larger probability, ascending, shape (heavy elements,)."""
        if self.family == "k-ary":
            return np.zeros(1, dtype=np.int64)
        if self.family == "hadamard":
            return bent_set(self.place_bits)
        if self.family == "projective":
            return singer_set(self.prime, self.dimension)
        # "spread": the elements with the smallest of k pseudorandom words.
        words = seeded_words(bytes(32), b"turnout heavy%d" % self.draw, 0, self.size)
        return np.sort(np.argsort(words, kind="stable")[: self.heavy_count]).astype(np.int64)

    @cached_property
    def inverse_power(self) -> float:
        """Sum of 1/|f|² over all Fourier coefficients f except the constant one.

        The coefficients are those of the indicator function of the heavy elements. `total_variance`
        is proportional to this sum.
        """
        if self.family == "k-ary":
            return self.group.order - 1
        if self.family == "hadamard":
            return _bent_power(self.group.blocks, self.place_bits)
        if self.family == "projective":
            return _hyperplane_power(self.prime, self.dimension)
        indicator = np.zeros(self.group.order)
        indicator[self.heavy] = 1.0
        powers = np.abs(self.group.spectrum(indicator)[1:]) ** 2
        return float((1 / np.maximum(powers, 1e-300)).sum())

    def total_variance(self, level: Level) -> float:
        """Approximate sum of the variances of `frequencies`, times the number of clients."""
        contrast = float(level.contrast)
        return _total_variance(self.size, self.group.order, self.inverse_power, contrast)

    def law(self, level: Level) -> NDArray[np.float64]:
        """Probability of each noise element, shape (order,)."""
        noise = np.full(self.group.order, float(level.light))
        if level.light == 0:
            noise[0] = 1.0
        else:
            noise[self.heavy] = float(level.heavy)
        return noise

    @property
    def totals_shape(self) -> tuple[int, int]:
        """Shape of a histogram of messages: (1, order)."""
        return 1, self.group.order

    def symbols(self, values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Messages before noise, shape (n,): the given values themselves."""
        del first
        return values

    def totals(self, messages: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Histogram of messages, of shape `totals_shape`; histograms of disjoint clients add up."""
        del first
        return np.bincount(messages, minlength=self.group.order).reshape(1, -1)

    def _inverse(self, level: Level) -> NDArray[np.complex128]:
        """Inverse of the noise's spectrum, by which deconvolution removes the bias; (order,).

        Raises:
            ParameterError: the spectrum has a coefficient of 0, so no estimate is unbiased.
        """
        spectrum = self.group.spectrum(self.law(level))
        if np.abs(spectrum).min() <= 1e-9 * float(level.contrast):
            raise ParameterError("draw", self.draw, "heavy noise whose spectrum has no zero")
        return 1 / spectrum

    def frequencies(self, totals: NDArray[np.int64], level: Level) -> NDArray[np.float64]:
        """Unbiased frequencies, shape (k,), from the histogram of messages at ``level``.

        Raises:
            ParameterError: no unbiased estimate exists for this heavy set.
        """
        shares = self.group.spectrum(totals[0] / totals.sum())
        return self.group.from_spectrum(shares * self._inverse(level))[: self.size]

    def variance(
        self, shares: NDArray[np.float64], clients: int, level: Level
    ) -> NDArray[np.float64]:
        """Variance of each of the `frequencies`, shape (k,).

        Args:
            shares: distribution from which clients' values are independent draws, shape (k,).
            clients: number of clients.
            level: distribution of the noise in the messages.

        Raises:
            ParameterError: no unbiased estimate exists for this heavy set.
        """
        held = np.zeros(self.group.order)
        held[: self.size] = shares
        transformed = self.group.spectrum
        messages = transformed(held) * transformed(self.law(level))
        # The estimate for a value is the mean of g(message − value) over all messages, where the
        # spectrum of g is the conjugate of the noise's inverse spectrum.
        kernel = np.square(self.group.from_spectrum(np.conj(self._inverse(level))))
        seconds = self.group.from_spectrum(messages * np.conj(transformed(kernel)))
        return (seconds[: self.size] - np.square(shares)) / clients


def hadamard(size: int, epsilon: float) -> Direct:
    """Design of Hadamard response with recoverable values, with the block size for ``epsilon``.

    The block size is the power of 4 with the smallest total variance of the estimates at
    ``epsilon``.

    Source: Theorem 7.5.2, Girgis 2023 [girgis2023thesis]. The thesis uses Hadamard response as
        Acharya, Sun and Zhang 2019 define it, from which values cannot be recovered in general:
        with the rows of Sylvester's matrix, one message may be probable for every value, and the
        keys that lead to this message cannot be disjoint. Shifted supports of a bent function have
        the same overlaps and are the rows of a Latin square, so that a message is value plus key.

    Args:
        size: number of values k, at least 2.
        epsilon: ε at which the error of estimates is least, in nats.

    Raises:
        ParameterError: ``size`` or ``epsilon`` outside its range.
    """
    check_level(epsilon)
    checks.count(2, size=size)
    fitting = [2 * t for t in range(1, 13) if -(-size >> 2 * t) << 2 * t <= max(4 * size, 16)]
    best = min(fitting, key=lambda bits: _hadamard_error(size, bits, epsilon))
    return Direct(size, "hadamard", place_bits=best)


def projective(size: int, epsilon: float) -> Direct:
    """Design of projective geometry response with recoverable values, most accurate at ``epsilon``.

    If a projective space of suitable size and density exists, the error is within a few percent of
    that of subset selection, which has the smallest error known for one message. Messages are whole
    numbers, at most 4·k + 15.

    Source: Feldman, Nelson, Nguyen and Talwar, Private frequency estimation via projective
        geometry, ICML 2022. There, the probable messages of a value are any hyperplane; here, all
        hyperplanes are shifts of one set (Singer 1938), so that a message is value plus noise.

    Args:
        size: number of values k, at least 2.
        epsilon: ε at which the error of estimates is least, in nats.

    Raises:
        ParameterError: ``size`` or ``epsilon`` outside its range.
    """
    checks.count(2, size=size)
    check_level(epsilon)
    # Collect all spaces that have a point for each value and are not much larger.
    largest = 4 * size + 16
    spaces = [
        (prime, dimension)
        for prime in range(2, math.isqrt(largest) + 1)
        if is_prime(prime)
        for dimension in range(2, largest.bit_length())
        if size <= points(prime, dimension) <= largest
    ]
    # Choose the space of least total variance.
    prime, dimension = min(spaces, key=lambda space: _projective_error(size, *space, epsilon))
    return Direct(size, "projective", prime=prime, dimension=dimension)


def _projective_error(size: int, prime: int, dimension: int, epsilon: float) -> float:
    order, heavy = points(prime, dimension), points(prime, dimension - 1)
    power = _hyperplane_power(prime, dimension)
    return _total_variance(size, order, power, _contrast(order, heavy, epsilon))


def _hadamard_error(size: int, place_bits: int, epsilon: float) -> float:
    blocks = -(-size >> place_bits)
    order, heavy = blocks << place_bits, _bent_size(place_bits)
    power = _bent_power(blocks, place_bits)
    return _total_variance(size, order, power, _contrast(order, heavy, epsilon))


def _contrast(order: int, heavy: int, epsilon: float) -> float:
    return math.expm1(epsilon) / (heavy * math.expm1(epsilon) + order)


def _total_variance(size: int, order: int, inverse_power: float, contrast: float) -> float:
    """Approximate sum, over all values, of the variances of the frequencies for one client.

    The sum is averaged over the possible values of the client.
    """
    return inverse_power * size / (order * contrast) ** 2


def _bent_size(place_bits: int) -> int:
    return (1 << (place_bits - 1)) - (1 << (place_bits // 2 - 1))


def _bent_power(blocks: int, place_bits: int) -> float:
    """`Direct.inverse_power` of a bent set in one of the blocks."""
    flat = 4.0 ** (place_bits // 2 - 1)
    return (blocks - 1) / _bent_size(place_bits) ** 2 + blocks * ((1 << place_bits) - 1) / flat


def _hyperplane_power(prime: int, dimension: int) -> float:
    """`Direct.inverse_power` of a hyperplane."""
    return (points(prime, dimension) - 1) / float(prime) ** (dimension - 1)


def spread(size: int, heavy_count: int) -> Direct:
    """Design of the family "spread": the smallest variance among 32 pseudorandom sets.

    Args:
        size: number of values k, at least 2.
        heavy_count: number of heavy elements, from 1 to k − 1; for 1, the design is "k-ary".

    Raises:
        ParameterError: ``size`` or ``heavy_count`` outside its range.
    """
    if heavy_count == 1:
        return Direct(size)
    candidates = [Direct(size, "spread", heavy_count=heavy_count, draw=d) for d in range(_DRAWS)]
    return min(candidates, key=lambda design: design.inverse_power)
