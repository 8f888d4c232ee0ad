"""Randomizer of vectors of bounded ℓ1 norm, and choice of a randomizer for any ℓp norm.

`L1Randomizer` sends one bit of one random Hadamard coefficient. `best_randomizer` encodes vectors
of any ℓp norm by the ℓ1, ℓ2 or ℓ∞ randomizer with the smallest error bound; its radius is
`contained_radius`.

Notation: d coordinates, D the next power of two, H the D×D Hadamard matrix of ±1, r the norm bound,
p the probability that the bit is flipped, C = 1/(1 − 2p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomizers.vectors.interface import (
    FloatArray,
    IntArray,
    PublicRandomness,
    VectorRandomizer,
    epsilon_of_flips,
    flip_probability,
    flipped,
    rounded_by_chance,
    sampled_bit,
)
from turnout.randomizers.vectors.l2 import L2Randomizer
from turnout.randomizers.vectors.linf import LInfRandomizer
from turnout.randomizers.vectors.spherical_code import SphericalCode
from turnout.randomness import Source
from turnout.schemes.randomizers import PureRandomizer

_AT_ONCE = 1 << 22  # entries of H that are held at a time


@dataclass(frozen=True)
class L1Randomizer(VectorRandomizer):
    """Randomizer of a vector x of bounded ℓ1 norm: one bit of one random Hadamard coefficient.

    A client draws a uniform row j of H and a bit that is 1 with probability (1 + ⟨H_j, x⟩/r)/2. It
    flips the bit with probability p and sends it, with j if rows are not public.

    Source: Algorithm 3.4.1 (girgis2023thesis), after Acharya, Sun and Zhang 2019. The algorithm
        writes *a* for r and needs a power of two d. This class pads the vector with zeros and drops
        the estimates of these zeros, so that the error below holds for every d.

    Guarantees:
        E‖y − x‖² = d·r²·C² − ‖x‖², with C = (e^{ε₀} + 1)/(e^{ε₀} − 1).

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest ‖x‖₁.
        public_seed: seed from which all parties compute the clients' rows; a message then has one
            bit. None: the row is part of the message, which has log₂ D + 1 bits.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> L1Randomizer(1000, epsilon=1.0).message_bits, L1Randomizer(1000, 1.0, 1.0, 7).message_bits
    (11, 1)
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    public_seed: int | None = None
    norm: ClassVar[float] = 1

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension)
        checks.positive(epsilon=self.epsilon, radius=self.radius)
        self.flip  # noqa: B018 checks ε when the randomizer is built

    @property
    def rows(self) -> int:
        """Number of rows D of the Hadamard matrix, the least power of two that is at least d."""
        return 1 << (self.dimension - 1).bit_length()

    @cached_property
    def flip(self) -> float:
        """Probability p that the bit is flipped."""
        return flip_probability(self.epsilon)

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ = ln((1 − p)/p), rounded up by less than one ulp."""
        return epsilon_of_flips([self.flip])

    @property
    def total_size(self) -> int:
        """Number of entries of `total`: one for each row."""
        return self.rows

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a message.

        With public rows clients use different randomizers, so that only ε₀ is known.
        """
        if self.public_seed is not None:
            return super().priced_as
        return sampled_bit(self.epsilon0, self.rows)

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values that a message can take: 2D, or 2 with public rows; shape (1,)."""
        return (2,) if self.public_seed is not None else (2 * self.rows,)

    @property
    def public_randomness(self) -> str:
        """Description of the public rows; "none" if no seed was given."""
        return "none" if self.public_seed is None else "which Hadamard row each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, 1): 2·row + bit, or only the bit with public rows.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        vectors = self.checked(values)
        # The row of each client.
        if self.public_seed is None:
            rows = source.below(self.rows, len(vectors))
        else:
            rows = self._public_rows(first, len(vectors))
        # The inner products ⟨H_j, x⟩/r, for as many clients at a time as memory allows.
        inner = np.empty(len(vectors))
        for part in self._parts(len(vectors)):
            inner[part] = np.einsum("ij,ij->i", self._entries(rows[part]), vectors[part])
        # A bit of mean (1 + ⟨H_j, x⟩/r)/2, flipped with probability p: privacy rests on the flip.
        bits = flipped(rounded_by_chance((1 + inner) / 2, source), self.flip, source)
        return (bits if self.public_seed is not None else 2 * rows + bits)[:, None]

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the signs (1 for bit 1, −1 for bit 0) of each row's messages, shape (D,).

        Raises:
            ParameterError: a number out of range.
        """
        words = self.single_words(messages)
        rows = words >> 1 if self.public_seed is None else self._public_rows(first, len(words))
        sums = np.bincount(rows, weights=2.0 * (words & 1) - 1, minlength=self.rows)
        return sums.astype(np.float64)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        scale = self.radius / ((1 - 2 * self.flip) * clients)
        return walsh_hadamard(total[None])[0, : self.dimension] * scale

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − x‖² of the estimate y from each client's message, shape (n,)."""
        sizes = np.sum(self.checked(values) ** 2, axis=1)
        return self.radius**2 * (self.dimension / (1 - 2 * self.flip) ** 2 - sizes)

    @property
    def worst_squared_error(self) -> float:
        """Largest E‖y − x‖² over all vectors: d·r²·C², reached by x = 0."""
        return self.radius**2 * self.dimension / (1 - 2 * self.flip) ** 2

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message; entry i belongs to message i, with client 0's public row.

        Args:
            value: vector of norm at most r, shape (d,).
        """
        vector = self.checked(np.atleast_2d(np.asarray(value)))
        rows = np.arange(self.rows)
        if self.public_seed is not None:
            rows = self._public_rows(0, 1)
        one = (1 + (1 - 2 * self.flip) * (self._entries(rows) @ vector[0])) / 2
        return np.stack([1 - one, one], axis=1).ravel() / len(rows)

    def _public_rows(self, first: int, clients: int) -> IntArray:
        limits = np.array([self.rows])
        return PublicRandomness(self.public_seed or 0, "rows").below(first, clients, limits)[:, 0]

    def _entries(self, rows: IntArray) -> FloatArray:
        """The first d entries of row H_j for each given row number j, shape (len(rows), d)."""
        common = np.bitwise_count(rows[:, None] & np.arange(self.dimension))
        return 1.0 - 2.0 * (common & 1).astype(np.float64)

    def _parts(self, clients: int) -> list[slice]:
        """Slices of clients that are small enough to be processed at once."""
        step = max(1, _AT_ONCE // self.dimension)
        return [slice(start, start + step) for start in range(0, clients, step)]


def contained_radius(norm: float, other: float, dimension: int, radius: float) -> float:
    """The least radius R of an ℓq ball that contains the ℓp ball of the given radius.

    Source: ‖x‖_q ≤ ‖x‖_p for q ≥ p, and ‖x‖_q ≤ d^{1/q − 1/p}·‖x‖_p for q < p.

    Args:
        norm: p, at least 1, may be infinite.
        other: q, at least 1, may be infinite.
        dimension: number of coordinates d, at least 1.
        radius: radius of the ℓp ball, above 0.

    Raises:
        ParameterError: an argument outside its domain.

    >>> contained_radius(1, 2, 100, 1.0), contained_radius(float("inf"), 2, 100, 1.0)
    (1.0, 10.0)
    """
    if not (norm >= 1 and other >= 1):
        raise ParameterError("norm", min(norm, other), "a number that is at least 1")
    checks.count(dimension=dimension)
    checks.positive(radius=radius)
    return radius * dimension ** max(0.0, 1 / other - 1 / norm)


def best_randomizer(
    norm: float,
    dimension: int,
    epsilon: float,
    radius: float = 1.0,
    *,
    message_bits: float = math.inf,
    public_seed: int | None = None,
) -> VectorRandomizer:
    """The randomizer with the smallest upper bound on its error, for vectors with ‖x‖_p ≤ r.

    Source: Remark 3.4.1 (girgis2023thesis) for p < 2, with a correction. The remark states that the
        ℓ1 ball contains the ℓp ball of the same radius, but the reverse is true: the ℓ1 ball needs
        the radius d^{1 − 1/p}·r. As the ℓ2 ball of radius r contains the ℓp ball, the rate d/n of
        the remark still holds.

    Args:
        norm: p ≥ 1, may be infinite.
        dimension: number of coordinates d.
        epsilon: ε₀ of one message.
        radius: r, the largest ‖x‖_p.
        message_bits: largest number of bits of a client's message.
        public_seed: seed of public randomness that makes messages shorter; None: the only public
            randomness is that of rotations.

    Returns:
        A randomizer for the ℓ1, ℓ2 or ℓ∞ norm, with a radius so large that its ball contains all x
        with ‖x‖_p ≤ r.

    Raises:
        ParameterError: an argument outside its domain, or a ``message_bits`` too small for any
            message.

    >>> [type(best_randomizer(p, 300, 1.0)).__name__ for p in (1, 1.5, 2, float("inf"))]
    ['L1Randomizer', 'L2Randomizer', 'L2Randomizer', 'LInfRandomizer']
    """
    checks.positive(radius=radius, epsilon=epsilon)

    def within(other: float) -> float:
        return contained_radius(norm, other, dimension, radius)

    # One randomizer for each norm, with the radius that contains the ball.
    candidates: list[VectorRandomizer] = [
        L1Randomizer(dimension, epsilon, within(1), public_seed),
        LInfRandomizer.best(dimension, epsilon, within(math.inf), message_bits, public_seed),
    ]
    # With public randomness a message of the spherical code is only the number of a public
    # direction, shorter than a message of `L2Randomizer` with the same error.
    if dimension > 1 and public_seed is not None:
        seed = public_seed
        candidates.append(
            SphericalCode.best(dimension, epsilon, within(2), message_bits, seed=seed)
        )
    elif dimension > 1:
        candidates.append(L2Randomizer.best(dimension, epsilon, within(2), message_bits))
    # Among the randomizers with short enough messages, choose the least worst-case error.
    fitting = [c for c in candidates if c.message_bits <= message_bits]
    return min(fitting, key=lambda candidate: candidate.worst_squared_error)
