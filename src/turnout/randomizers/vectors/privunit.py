"""Randomizers of unit vectors at full precision: PrivUnit and PrivUnitG.

`PrivUnit` and `PrivUnitG` draw a vector from the cap around the client's vector with probability p,
and from outside the cap otherwise. `CapRandomizer` is their base class.

Notation
    x       the client's unit vector
    V       the vector that the client sends
    γ, q    the cap is the set of V with ⟨x, V⟩ ≥ γ; q is its probability under the uniform
            distribution
    p       probability that V is in the cap; V is uniform inside it, and uniform outside it
    m       E⟨x, V⟩, so that V/m has mean x

The density of V relative to the uniform distribution is p/q in the cap and (1 − p)/(1 − q) outside
it, for every x. So ε₀ = ln(p(1 − q)/((1 − p)q)).

These randomizers have the smallest error that messages of d real numbers reach. Their ε₀ holds for
real numbers only: the last digits of the floats in a message do not have the distribution of the
analysis, and may reveal x. Where privacy matters, use `SphericalCode`, whose probabilities are
exact; its messages have a few bits, and its error is nearly as small.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betainc, betaincinv, betaln, ndtr, ndtri

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import check_level, exponential_below, float_below, level_above
from turnout.randomizers.vectors.interface import FloatArray, VectorRandomizer, rounded_by_chance
from turnout.randomness import Source
from turnout.randomness.source import LARGEST_RANGE

_SLACK = 2.0**-36
"""Allowance for the relative error of the computed probability q, which is at most 1e-12."""


@dataclass(frozen=True)
class CapRandomizer(VectorRandomizer):
    """Base class of PrivUnit and PrivUnitG.

    Attributes:
        dimension: number of coordinates d, at least 2.
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest ‖x‖₂. A shorter vector x is first replaced by r·x/‖x‖ or its
            negative, at random with mean x.
        cut: γ; if None, the value with the smallest error.

    Raises:
        ParameterError: a parameter outside its domain.
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    cut: float | None = None
    norm: ClassVar[float] = 2

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(radius=self.radius)
        checks.count(2, dimension=self.dimension)
        if self.cut is None:
            object.__setattr__(self, "cut", _best_cut(type(self), self.dimension, self.epsilon))
        checks.non_negative(cut=self.cut)
        if not 0 < self.share < 1:
            expected = "a value whose cap has a probability above 0 and below 1"
            raise ParameterError("cut", self.cut, expected)

    @property
    def gamma(self) -> float:
        """The value γ: a vector V is in the cap if ⟨x, V⟩ is at least γ."""
        assert self.cut is not None
        return self.cut

    @property
    @abstractmethod
    def share(self) -> float:
        """Probability q of the cap under the uniform distribution."""

    @property
    @abstractmethod
    def _mean_in_cap(self) -> float:
        """E[⟨x, V⟩·1(V in the cap)] under the uniform distribution."""

    @property
    @abstractmethod
    def _squared_length(self) -> float:
        """Mean squared length E‖V‖² of the vector sent."""

    @abstractmethod
    def _along(self, chances: FloatArray) -> FloatArray:
        """Values that ⟨x, V⟩ exceeds with the given probabilities if V is uniform."""

    @abstractmethod
    def _across(self, along: FloatArray, others: FloatArray) -> FloatArray:
        """The part of V orthogonal to x, computed from normal vectors orthogonal to x."""

    @cached_property
    def preference(self) -> Fraction:
        """Probability p of the cap, rounded down to a float that is a multiple of 2⁻⁶²."""
        # The largest p whose level is at most ε is e^ε·q/(1 − q + e^ε·q).
        q = Fraction(self.share * (1 - _SLACK))
        odds = exponential_below(self.epsilon) * q / (1 - q)
        return float_below(odds / (1 + odds))

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ = ln(p(1 − q)/((1 − p)q)) for real numbers V, rounded up."""
        # The level decreases with q, so use the least q that the computed value allows.
        q = Fraction(self.share * (1 - _SLACK))
        return level_above(self.preference * (1 - q) / ((1 - self.preference) * q))

    @cached_property
    def alignment(self) -> float:
        """The alignment m = E⟨x, V⟩."""
        # Under the uniform distribution the mean outside the cap is minus the mean inside it.
        p, q = float(self.preference), self.share
        return self._mean_in_cap * (p / q - (1 - p) / (1 - q))

    @property
    def radices(self) -> tuple[int, ...]:
        """Empty tuple, since a message consists of floats instead of whole numbers."""
        return ()

    @property
    def message_bits(self) -> int:
        """Number of bits of a client's message, 32·d."""
        return 32 * self.dimension

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> NDArray[np.float32]:
        """The vector V of each client, shape (n, d).

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        vectors = self.checked(values)
        # A random sign for each client, such that the mean of ± x/‖x‖ is x/r.
        lengths = np.linalg.norm(vectors, axis=1)
        signs = 2.0 * rounded_by_chance((1 + lengths) / 2, source) - 1
        pointing = np.where(lengths[:, None] > 0, vectors, np.eye(1, self.dimension))
        pointing *= (signs / np.where(lengths > 0, lengths, 1.0))[:, None]
        # The component along x: in the cap with probability p, and uniform inside and outside it.
        inside = source.bernoulli(float(self.preference), len(vectors))
        uniform = _uniform(len(vectors), source)
        q = self.share
        along = self._along(np.where(inside, q * uniform, q + (1 - q) * uniform))
        # The component orthogonal to x: a normal vector minus its part along x.
        drawn = ndtri(_uniform(vectors.size, source)).reshape(vectors.shape)
        across = drawn - np.sum(drawn * pointing, axis=1, keepdims=True) * pointing
        sent = along[:, None] * pointing + self._across(along, across)
        return sent.astype(np.float32)

    def total(self, messages: NDArray, first: int = 0) -> FloatArray:
        """Sum of the clients' vectors V, shape (d,).

        Raises:
            ParameterError: messages of a wrong shape, or a number that is not finite.
        """
        sent = np.asarray(messages)
        if sent.ndim != 2 or sent.shape[1] != self.dimension or not np.all(np.isfinite(sent)):
            given = f"array of shape {sent.shape}"
            expected = f"finite numbers of shape (clients, {self.dimension})"
            raise ParameterError("messages", given, expected)
        return sent.sum(axis=0, dtype=np.float64)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return total * (self.radius / (self.alignment * clients))

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − x‖² of the estimate y from each client's message, shape (n,)."""
        sizes = np.sum(self.checked(values) ** 2, axis=1)
        return self.radius**2 * (self._squared_length / self.alignment**2 - sizes)

    @property
    def worst_squared_error(self) -> float:
        """Largest E‖y − x‖² over all vectors: r²·E‖V‖²/m², reached by x = 0."""
        return self.radius**2 * self._squared_length / self.alignment**2

    def pack(self, messages: NDArray) -> bytes:
        """The vectors, shape (n, d), as little-endian 32-bit floats."""
        return np.ascontiguousarray(messages, dtype="<f4").tobytes()

    def unpack(self, data: bytes, clients: int) -> NDArray[np.float32]:
        """The messages that `pack` packed, shape (clients, d).

        Raises:
            ParameterError: a wrong number of bytes.
        """
        if len(data) != 4 * self.dimension * clients:
            expected = f"{4 * self.dimension * clients} bytes"
            raise ParameterError("data", f"{len(data)} bytes", expected)
        return np.frombuffer(data, dtype="<f4").reshape(clients, self.dimension)


@dataclass(frozen=True)
class PrivUnit(CapRandomizer):
    """PrivUnit: V is uniform on the part of the unit sphere in the cap, or on the part outside it.

    Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018 (bhowmick2018reconstruction). The
        paper divides ε₀ between p and γ; this class chooses the γ with the smallest error, and then
        the largest p that ε₀ permits. Asi, Feldman and Talwar 2022 (asi2022optimal) show that this
        is optimal in a large family of mechanisms.

    Guarantees:
        E‖y − x‖² = r²(1/m² − 1) for ‖x‖ = r.

    >>> round(PrivUnit(300, epsilon=4.0).worst_squared_error, 1)
    130.9
    """

    @property
    def share(self) -> float:
        """Probability of the cap under the uniform distribution, q = ½·I_{1−γ²}((d − 1)/2, ½)."""
        return 0.5 * float(betainc((self.dimension - 1) / 2, 0.5, 1 - self.gamma**2))

    @property
    def _mean_in_cap(self) -> float:
        half = (self.dimension - 1) / 2
        log_density = half * math.log1p(-(self.gamma**2)) - float(betaln(half, 0.5))
        return math.exp(log_density) / (2 * half)

    @property
    def _squared_length(self) -> float:
        return 1.0

    def _along(self, chances: FloatArray) -> FloatArray:
        upper = np.minimum(chances, 1 - chances)
        rest = betaincinv((self.dimension - 1) / 2, 0.5, 2 * upper)
        return np.where(chances < 0.5, 1.0, -1.0) * np.sqrt(np.maximum(1 - rest, 0.0))

    def _across(self, along: FloatArray, others: FloatArray) -> FloatArray:
        lengths = np.linalg.norm(others, axis=1)
        return others * (np.sqrt(np.maximum(1 - along**2, 0.0)) / lengths)[:, None]


@dataclass(frozen=True)
class PrivUnitG(CapRandomizer):
    """PrivUnitG: `PrivUnit` with normal coordinates, N(0, 1/d), instead of a uniform vector.

    The normal distribution replaces the uniform distribution on the sphere; for large d the errors
    are nearly equal.

    Source: Asi, Feldman and Talwar 2022 (asi2022optimal), Algorithm 2.

    >>> round(PrivUnitG(300, epsilon=4.0).worst_squared_error, 1)
    131.6
    """

    @property
    def _standard_cut(self) -> float:
        return self.gamma * math.sqrt(self.dimension)

    @property
    def share(self) -> float:
        """Probability of the cap under the normal distribution, q = Φ(−γ√d)."""
        return float(ndtr(-self._standard_cut))

    @property
    def _mean_in_cap(self) -> float:
        return _density(self._standard_cut) / math.sqrt(self.dimension)

    @property
    def _squared_length(self) -> float:
        z, q, p = self._standard_cut, self.share, float(self.preference)
        inside = q + z * _density(z)
        along = p / q * inside + (1 - p) / (1 - q) * (1 - inside)
        return (along + self.dimension - 1) / self.dimension

    def _along(self, chances: FloatArray) -> FloatArray:
        return -ndtri(chances) / math.sqrt(self.dimension)

    def _across(self, along: FloatArray, others: FloatArray) -> FloatArray:
        return others / math.sqrt(self.dimension)


@lru_cache(maxsize=256)
def _best_cut(kind: type[CapRandomizer], dimension: int, epsilon: float) -> float:
    """The γ with the smallest error, found by minimisation; the error first decreases with γ."""

    def error(standard: float) -> float:
        return math.log(
            kind(dimension, epsilon, 1.0, standard / math.sqrt(dimension)).worst_squared_error
        )

    most = min(0.999 * math.sqrt(dimension), math.sqrt(2 * epsilon) + 2)
    bounds, close = (0.0, most), {"xatol": 1e-7}
    found: Any = minimize_scalar(error, bounds=bounds, method="bounded", options=close)
    return float(found.x) / math.sqrt(dimension)


def _density(z: float) -> float:
    """Density of the standard normal distribution at z."""
    return math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _uniform(size: int, source: Source) -> FloatArray:
    """Uniform numbers strictly between 0 and 1, shape (size,)."""
    return (source.below(LARGEST_RANGE, size) + 0.5) * (1 - 2.0**-53) / LARGEST_RANGE
