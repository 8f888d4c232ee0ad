"""Binary randomized response: one bit, flipped with a known probability.

Notation: p the probability of a flip, x = ln((1 − p)/p) = ε₀.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.levels import (
    check_level,
    exponential_below,
    level_above,
    on_grid_above,
)
from turnout.randomizers.packing import pack_codes, unpack_codes
from turnout.randomness import Source
from turnout.spec import KaryResponse

_SLACK = 1 + 2.0**-46
"""Covers the rounding of a handful of float operations, each within 2⁻⁵⁰."""


@dataclass(frozen=True)
class RandomizedResponse:
    """A client's bit, flipped with probability p = 1/(e^ε + 1).

    Source: Warner, JASA 1965; thesis, Section 2.4 (2RR, Theorem 2.4.1).

    Attributes:
        epsilon: privacy level asked for, above 0, at most 30.

    >>> randomizer = RandomizedResponse(epsilon=1.0)
    >>> randomizer.epsilon0, randomizer.message_bits, round(randomizer.variance, 4)
    (1.0, 1, 0.9207)
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_level(self.epsilon)

    @classmethod
    def as_printed(cls, v: float) -> RandomizedResponse:
        """With p = ½(1 − √(v²/(v² + 4))), which spends 2·asinh(v/2) of the v it may spend.

        Source: thesis, Lemma 2.4.1.
        """
        checks.positive(v=v)
        return cls(min(math.nextafter(2 * math.asinh(v / 2), 0), v))

    @cached_property
    def flip(self) -> Fraction:
        """Probability p of a flip."""
        return on_grid_above(1 / (1 + exponential_below(self.epsilon)))

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities, (1 − p)/p, exactly."""
        return (1 - self.flip) / self.flip

    @property
    def epsilon0(self) -> float:
        """Local privacy level of the message, rounded up by less than one ulp."""
        return level_above(self.ratio)

    @property
    def message_bits(self) -> int:
        """Bits of a client's message."""
        return 1

    @property
    def variance(self) -> float:
        """Variance of `decode`, p(1 − p)/(1 − 2p)², whatever the bit: (2.5) is an equality."""
        p = self.flip
        return float(p * (1 - p) / (1 - 2 * p) ** 2)

    def mse_bound(self, clients: int) -> float:
        """Expected squared error of the mean of `decode` over n clients."""
        checks.count(clients=clients)
        return self.variance / clients

    def rdp(self, order: float) -> float:
        """Rényi level at ``order``, rounded up: ln(p^α(1−p)^{1−α} + p^{1−α}(1−p)^α)/(α − 1).

        Source: thesis, (3.4); Mironov, Rényi differential privacy, CSF 2017, Proposition 5. Both
            directions are equal. Here as 1 + (e^{αx} − 1)(1 − e^{−(α−1)x})/(1 + e^x), which does
            not cancel for a small ε.

        Args:
            order: α, above 1; infinity gives ε₀.
        """
        if not order > 1:
            raise ParameterError("order", order, "a number above 1")
        x = self.epsilon0
        if math.isinf(order):
            return x
        if order * x < 30:
            excess = math.expm1(order * x) * -math.expm1((1 - order) * x) / (1 + math.exp(x))
            return min(math.log1p(excess) / (order - 1) * _SLACK, x)
        tail = math.log1p(math.exp((1 - 2 * order) * x)) - math.log1p(math.exp(-x))
        return min((x + tail / (order - 1)) * _SLACK, x)

    @property
    def law(self) -> KaryResponse:
        """What prices the message."""
        return KaryResponse(self.epsilon0, 2)

    def probabilities(self, bit: int) -> list[Fraction]:
        """Probability of each message, 0 and 1."""
        return [self.flip, 1 - self.flip] if bit else [1 - self.flip, self.flip]

    def encode(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """The bits, some flipped.

        Args:
            values: zeros and ones, shape (n,).
            source: where the clients' randomness comes from.
        """
        bits = np.asarray(values)
        if bits.ndim != 1 or not np.all((bits == 0) | (bits == 1)):
            raise ParameterError("values", bits.shape, "zeros and ones of shape (clients,)")
        return bits.astype(np.int64) ^ source.bernoulli(self.flip, bits.size)

    def decode(self, messages: ArrayLike) -> NDArray[np.float64]:
        """Unbiased estimates of the bits, (y − p)/(1 − 2p), shape (n,)."""
        p = self.flip
        return (np.asarray(messages) - float(p)) / float(1 - 2 * p)

    def pack(self, messages: NDArray[np.int64]) -> bytes:
        """The messages as ⌈n / 8⌉ bytes."""
        return pack_codes(messages, 1)

    def unpack(self, data: bytes, n: int) -> NDArray[np.int64]:
        """The n messages in ``data``.

        Raises:
            ParameterError: this is not what n clients sent.
        """
        return unpack_codes(data, n, 1, 2)
