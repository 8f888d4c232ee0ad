"""Randomizer of vectors of bounded ℓ1 norm, and the best randomizer for any ℓp norm.

`L1Randomizer` sends one bit of one random Hadamard coefficient. `best_randomizer` encodes vectors
of any ℓp norm by the ℓ1, ℓ2 or ℓ∞ randomizer of least error, within the radius `contained_radius`.

Notation: d coordinates, D the next power of two, H the D×D Hadamard matrix of ±1, r the norm bound,
p the probability that the bit is flipped, C = 1/(1 − 2p). For q ≥ p ‖x‖_q ≤ ‖x‖_p, and for q < p
‖x‖_q ≤ d^{1/q − 1/p}‖x‖_p.
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
    """Randomizer that sends a uniform row j of H and a flipped bit of mean (1 + ⟨H_j, x⟩/r)/2.

    Source: Algorithm 3.4.1 (girgis2023thesis), after Acharya, Sun and Zhang 2019. It prints *a*
    for r and needs d to be a power of two; here the vector is filled up with zeros, and the
    estimates of these zeros are dropped, so the error stays d·r²C² − ‖x‖².

    Guarantees:
        E‖y − x‖² = d·r²·C² − ‖x‖², with C = (e^{ε₀} + 1)/(e^{ε₀} − 1).

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level reached, at most this.
        radius: r, the largest ‖x‖₁.
        public_seed: seed of public rows, which all parties know: one bit a message. None: the row
            is part of the message, log₂ D + 1 bits.

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
        self.flip  # noqa: B018 ε is checked here, not at first use

    @property
    def rows(self) -> int:
        """Number of rows D, the next power of two above or at d."""
        return 1 << (self.dimension - 1).bit_length()

    @cached_property
    def flip(self) -> float:
        """Probability p that the bit is flipped."""
        return flip_probability(self.epsilon)

    @property
    def epsilon0(self) -> float:
        """ln((1 − p)/p), rounded up by less than an ulp."""
        return epsilon_of_flips([self.flip])

    @property
    def total_size(self) -> int:
        """Number of entries of `total`: one for each row."""
        return self.rows

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer of a uniform row and its bit; ε₀ alone with public rows."""
        if self.public_seed is not None:
            return super().priced_as
        return sampled_bit(self.epsilon0, self.rows)

    @property
    def radices(self) -> tuple[int, ...]:
        """One number: 2D values, or 2 with public rows."""
        return (2,) if self.public_seed is not None else (2 * self.rows,)

    @property
    def public_randomness(self) -> str:
        """Description of the public rows, if a seed was given."""
        return "none" if self.public_seed is None else "which Hadamard row each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, 1): 2·row + bit, or the bit alone with public rows."""
        vectors = self.checked(values)
        if self.public_seed is None:
            rows = source.below(self.rows, len(vectors))
        else:
            rows = self._public_rows(first, len(vectors))
        inner = np.empty(len(vectors))
        for part in self._parts(len(vectors)):
            inner[part] = np.einsum("ij,ij->i", self._entries(rows[part]), vectors[part])
        bits = flipped(rounded_by_chance((1 + inner) / 2, source), self.flip, source)
        return (bits if self.public_seed is not None else 2 * rows + bits)[:, None]

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the messages' signs for each row, shape (D,); `mean` transforms it once."""
        words = self.single_words(messages)
        rows = words >> 1 if self.public_seed is None else self._public_rows(first, len(words))
        sums = np.bincount(rows, weights=2.0 * (words & 1) - 1, minlength=self.rows)
        return sums.astype(np.float64)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        scale = self.radius / ((1 - 2 * self.flip) * clients)
        return walsh_hadamard(total[None])[0, : self.dimension] * scale

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − x‖² of each client's estimate y, exact; shape (n,)."""
        sizes = np.sum(self.checked(values) ** 2, axis=1)
        return self.radius**2 * (self.dimension / (1 - 2 * self.flip) ** 2 - sizes)

    @property
    def worst_squared_error(self) -> float:
        """d·r²·C², reached by x = 0."""
        return self.radius**2 * self.dimension / (1 - 2 * self.flip) ** 2

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message, by its number; with public rows those of client 0."""
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
        """Row H_j for each given row number, shape (len(rows), d)."""
        common = np.bitwise_count(rows[:, None] & np.arange(self.dimension))
        return 1.0 - 2.0 * (common & 1).astype(np.float64)

    def _parts(self, clients: int) -> list[slice]:
        step = max(1, _AT_ONCE // self.dimension)
        return [slice(start, start + step) for start in range(0, clients, step)]


def contained_radius(norm: float, other: float, dimension: int, radius: float) -> float:
    """The least R with ‖x‖_other ≤ R for all x of ‖x‖_norm ≤ ``radius``.

    Args:
        norm: at least 1, may be infinite.
        other: at least 1, may be infinite.
        dimension: d, at least 1.
        radius: above 0.

    >>> contained_radius(1, 2, 100, 1.0), contained_radius(float("inf"), 2, 100, 1.0)
    (1.0, 10.0)
    """
    if not (norm >= 1 and other >= 1):
        raise ParameterError("norm", min(norm, other), "a number of at least 1")
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
    """The randomizer of least error bound for vectors with ‖x‖_p ≤ r.

    Source: Remark 3.4.1 (girgis2023thesis) for p < 2. It puts the ℓp ball inside the ℓ1 ball of the
    same radius. The opposite inclusion is true; the ℓ1 radius needed is d^{1 − 1/p}·r. The ℓ2 ball
    of radius r does contain the ℓp ball, so the rate d/n still holds.

    Args:
        norm: p ≥ 1, may be infinite.
        dimension: d.
        epsilon: ε₀ of one message.
        radius: r.
        message_bits: largest number of bits of a client's message.
        public_seed: seed of public randomness that makes messages short; None: only a rotation is
            public.

    Returns:
        A randomizer whose radius is in its own norm; its ball contains all x with ‖x‖_p ≤ r.

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
    if dimension > 1 and public_seed is not None:
        seed = public_seed
        candidates.append(
            SphericalCode.best(dimension, epsilon, within(2), message_bits, seed=seed)
        )
    elif dimension > 1:
        candidates.append(L2Randomizer.best(dimension, epsilon, within(2), message_bits))
    # Those that fit the budget of bits, and of these the one of least worst-case error.
    fitting = [c for c in candidates if c.message_bits <= message_bits]
    return min(fitting, key=lambda candidate: candidate.worst_squared_error)
