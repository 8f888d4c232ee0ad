"""Updates as vectors of whole numbers, which devices send and a coordinator checks and sums.

Updates are whole numbers because accounting analyses the exact distribution of a release, from
which the distribution of floating-point sums and noise differs (docs/design/lattice.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import IntegerSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.protocol.mechanisms import CLIPPING_SLACK
from turnout.randomness import Source

FINENESS = 1024
"""Default of `Lattice.for_noise`: truncation changes an update by at most C/FINENESS."""

LatticeUpdate = NDArray[np.int32]
"""An update in units of the step, shape ``(dimension,)``."""

_WIRE = np.dtype("<i4")
_EXACT = 2.0**53
"""Limit below which float64 represents every whole number exactly."""
_LIMIT = 2**31


@dataclass(frozen=True)
class Lattice:
    """Lattice of the multiples of ``step``, with a bound on the vector that one client may send.

    Guarantees:
        A vector q that `quantise`, `check` or `decode` accepts has Σq² ≤ (C/step)² exactly, so
        ‖step·q‖ ≤ C in real numbers: a client's sensitivity in units of the lattice is C/step.
        Sums of fewer than 2³² such vectors in int64 are exact, and do not depend on the order.
        The deviation `noise_deviation`(σ) is at least σ times this sensitivity.

    Attributes:
        step: distance of neighbouring lattice points, above 0. A power of two, as `for_noise`
            returns, makes ``update/step`` and ``total·step`` exact; privacy does not need this.
        clip_norm: upper bound C on the ℓ2 norm of one client's update.
        dimension: number d of coordinates of an update.

    Raises:
        ParameterError: a value is outside its domain, or C/step is outside [1, 2³¹).

    >>> lattice = Lattice(step=0.25, clip_norm=1.0, dimension=2)
    >>> lattice.quantise(np.array([0.6, -0.79])).tolist()
    [2, -3]
    >>> lattice.norm_squared_limit, lattice.noise_deviation(2.0)
    (16, 8.0)
    """

    step: float
    clip_norm: float
    dimension: int

    def __post_init__(self) -> None:
        checks.positive(step=self.step, clip_norm=self.clip_norm)
        checks.count(dimension=self.dimension)
        checks.at_most("the wire's limit", _LIMIT - 1, dimension=self.dimension)
        # Different number types of the same value must give the same distribution.
        object.__setattr__(self, "step", float(self.step))
        object.__setattr__(self, "clip_norm", float(self.clip_norm))
        if not 1 <= self._radius < _LIMIT:
            raise ParameterError(
                "step", self.step, f"at most clip_norm = {self.clip_norm}, and above clip_norm/2³¹"
            )

    @classmethod
    def for_noise(
        cls, noise_multiplier: float, clip_norm: float, dimension: int, fineness: float = FINENESS
    ) -> Lattice:
        """Lattice whose step is the largest power of two of at most min(σ, 1/√d)·C/``fineness``.

        Truncation then changes an update by at most C/``fineness`` in ℓ2 norm (by at most twice as
        much if floating-point clipping exceeds C), and the noise has a standard deviation of at
        least ``fineness`` steps. A larger ``fineness``, which is at least 1, uses more of the range
        of int32.

        Raises:
            ParameterError: a value is outside its domain, or C/step is outside [1, 2³¹). C/step is
                always in this range if min(σ, 1/√d)/``fineness`` is from 2⁻³⁰ to 1.
        """
        checks.positive(noise_multiplier=noise_multiplier, clip_norm=clip_norm, fineness=fineness)
        checks.count(dimension=dimension)
        widest = min(noise_multiplier, 1 / math.sqrt(dimension)) * clip_norm / fineness
        _, exponent = math.frexp(widest)
        return cls(math.ldexp(0.5, exponent), clip_norm, dimension)

    @cached_property
    def _radius(self) -> Fraction:
        """Exact quotient C/step."""
        return Fraction(self.clip_norm) / Fraction(self.step)

    @cached_property
    def norm_squared_limit(self) -> int:
        """Largest Σq² of one update: ⌊(C/step)²⌋."""
        return math.floor(self._radius**2)

    @property
    def encoded_size(self) -> int:
        """Size of an encoded update in bytes."""
        return self.dimension * _WIRE.itemsize

    def noise_deviation(self, noise_multiplier: float) -> float:
        """Standard deviation of the noise in units of the step; never below the exact σC/step.

        Args:
            noise_multiplier: σ, above 0.

        Raises:
            ParameterError: ``noise_multiplier`` is not above 0 and finite.
        """
        checks.positive(noise_multiplier=noise_multiplier)
        exact = Fraction(noise_multiplier) * self._radius
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    def quantise(self, update: NDArray[np.floating]) -> LatticeUpdate:
        """Clipped update in units of ``step``, truncated towards zero: int32, shape ``(d,)``.

        Floating-point clipping and division may leave the norm a few roundings too large; then
        the coordinates are scaled down and truncated once more.

        Raises:
            LocalProtocolError: the update has another shape, is not finite, or has a norm above
                C·(1 + 1e-5).
        """
        if update.shape != (self.dimension,):
            raise LocalProtocolError(f"an update has shape {update.shape}, not ({self.dimension},)")
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.trunc(update.astype(np.float64) / self.step)
            norm_squared = float(np.square(scaled).sum())
        # Truncating shortens, so this refuses nothing that was clipped; NaN fails it as well.
        if not norm_squared <= float(self._radius**2) * (1 + CLIPPING_SLACK) ** 2:
            raise LocalProtocolError(
                f"an update is not finite, or not clipped to norm {self.clip_norm}"
            )
        limit = self.norm_squared_limit
        while (exact := norm_squared_of(scaled)) > limit:
            scaled = np.trunc(scaled * (math.sqrt(limit / exact) * (1 - 2.0**-40)))
        return scaled.astype(np.int32)

    def constrained(self, update: NDArray[Any]) -> IntegerSum:
        """Contribution of one client: its update ``(d,)`` after `quantise`, as a sum of one update.

        Raises:
            LocalProtocolError: `quantise` refuses the update.
        """
        return IntegerSum(self.quantise(update), 1)

    def check(self, update: LatticeUpdate) -> None:
        """Raise an error for an update that no client may send; an update is never corrected.

        Raises:
            RemoteProtocolError: the update has another length or type, or Σq² above the limit.
        """
        if update.shape != (self.dimension,):
            raise RemoteProtocolError(
                f"an update has shape {update.shape}, not ({self.dimension},)"
            )
        if update.dtype != np.int32:
            raise RemoteProtocolError(f"an update has type {update.dtype}, not int32")
        if norm_squared_of(update) > self.norm_squared_limit:
            raise RemoteProtocolError(
                f"an update has a norm above {self.clip_norm}: it is not clipped"
            )

    def encode(self, update: LatticeUpdate) -> bytes:
        """Bytes of an update in a message: little-endian int32 values without a header.

        Raises:
            LocalProtocolError: `check` refuses the update.
        """
        try:
            self.check(update)
        except RemoteProtocolError as error:
            raise LocalProtocolError(str(error)) from None
        return update.astype(_WIRE).tobytes()

    def decode(self, data: bytes) -> LatticeUpdate:
        """Copy of the update in ``data``, after a check that a client may send it.

        Raises:
            RemoteProtocolError: the data have another size than `encoded_size`, or Σq² is above the
                limit.
        """
        update = self.read(data).astype(np.int32)
        self.check(update)
        return update

    def read(self, data: bytes) -> LatticeUpdate:
        """View of the update in ``data``; only the length of ``data`` is checked.

        The caller must know that `decode` accepted the same bytes before.

        Raises:
            RemoteProtocolError: the data have another size than `encoded_size`.
        """
        if len(data) != self.encoded_size:
            raise RemoteProtocolError(f"an update has {len(data)} bytes, not {self.encoded_size}")
        return np.frombuffer(data, dtype=_WIRE)

    def packed(self, update: NDArray[np.floating], source: Source) -> bytes:
        """Bytes of a clipped update, given with shape ``(d,)``; ``source`` is not used.

        Raises:
            LocalProtocolError: `quantise` refuses the update.
        """
        return self.encode(self.quantise(update))

    def summed(self, bodies: Iterable[bytes]) -> IntegerSum:
        """Exact sum of updates that `decode` accepted."""
        total, count = np.zeros(self.dimension, np.int64), 0
        for body in bodies:
            total += self.read(body)
            count += 1
        return IntegerSum(total, count)

    def zero(self) -> IntegerSum:
        """Sum of no updates, to which updates and noise are added."""
        return IntegerSum.zero(self.dimension)

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """Released vector ``(d,)`` in the model's units; rounding it is post-processing."""
        return vector.astype(np.float64) * self.step


def norm_squared_of(update: NDArray[np.int32] | NDArray[np.float64]) -> int:
    """Exact sum of squares of fewer than 2³¹ whole numbers of size at most 2³¹, shape ``(d,)``."""
    wide = update.astype(np.float64)
    total = float(np.einsum("i,i->", wide, wide))
    if total < _EXACT:  # then so was every partial sum, and nothing was rounded
        return int(total)
    squares = np.square(update.astype(np.int64))
    return (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())
