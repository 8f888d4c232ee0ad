"""Signs of several Kashin coefficients, sent together by k-ary randomized response.

Notation: D coefficients within ±K·r/√D, s of them in a message, P the probability of the true
string of signs; all other strings are equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import check_level, exponential_below, float_below, level_above
from turnout.randomizers.vectors.interface import (
    FloatArray,
    IntArray,
    PublicRandomness,
    VectorRandomizer,
    rounded_by_chance,
)
from turnout.randomizers.vectors.rotations import KashinFrame, level_of
from turnout.randomness import Source

_MOST_SAMPLES = 20


@dataclass(frozen=True)
class SampledSigns(VectorRandomizer):
    """Subsampled and quantised Kashin's randomized response, SQKR.

    Source: Chen, Kairouz and Özgür 2020 (chen2020breaking), Section 3. Coordinates are one of each
    of s groups, and P is exact.

    Attributes:
        dimension: d.
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest ‖x‖₂.
        samples: s, the bits of a message.
        width: D > d, a multiple of s; None: about 4d.
        seed: seed of the frame and of the coordinates that each client reports.
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    samples: int = 1
    width: int | None = None
    seed: int = 0
    norm: ClassVar[float] = 2

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(radius=self.radius)
        checks.count(dimension=self.dimension, samples=self.samples)
        if self.samples > _MOST_SAMPLES:
            raise ParameterError("samples", self.samples, f"at most {_MOST_SAMPLES}")
        if self.width is None:
            object.__setattr__(self, "width", self.samples * -(-4 * self.dimension // self.samples))
        if self.frame.width % self.samples:
            raise ParameterError("width", self.width, f"a multiple of {self.samples}")

    @cached_property
    def frame(self) -> KashinFrame:
        """Public Kashin frame."""
        return KashinFrame(self.dimension, self.seed, self.width)

    @property
    def bound(self) -> float:
        """Largest coefficient, K·r/√D."""
        return level_of(self.frame.width / self.dimension) * self.radius / self.frame.width**0.5

    @cached_property
    def preference(self) -> Fraction:
        """Probability P of the true signs, a multiple of 2⁻⁶² that a float represents exactly."""
        e = exponential_below(self.epsilon)
        return float_below(e / (e + 2**self.samples - 1))

    @property
    def epsilon0(self) -> float:
        """ε₀ of a message, ln(P(2^s − 1)/(1 − P)), rounded up by less than an ulp."""
        return level_above(self.preference * (2**self.samples - 1) / (1 - self.preference))

    @property
    def gain(self) -> float:
        """Factor by which the mean of a sign shrinks: P − (1 − P)/(2^s − 1)."""
        return float(self.preference - (1 - self.preference) / (2**self.samples - 1))

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values of a message, 2^s."""
        return (1 << self.samples,)

    @property
    def public_randomness(self) -> str:
        """Public randomness that determines the frame and the coordinates of each client."""
        return "the frame, which coordinates each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages of shape (n, 1), each with the signs as one number."""
        spread = self.frame.bounded(self.checked(values) * self.radius, self.bound) / self.bound
        seen = np.take_along_axis(spread, self._places(first, len(spread)), axis=1)
        bits = rounded_by_chance((1 + seen) / 2, source)
        true = bits @ (1 << np.arange(self.samples))
        others = (1 << self.samples) - 1
        kept = source.bernoulli(float(self.preference), len(true))
        moved = (true + 1 + source.below(others, len(true))) & others
        return np.where(kept, true, moved)[:, None]

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sums of the signs of each coordinate, shape (D,)."""
        words = self.single_words(messages)
        signs = 2.0 * ((words[:, None] >> np.arange(self.samples)) & 1) - 1
        places = self._places(first, len(words))
        width = self.frame.width
        sums = np.bincount(places.ravel(), weights=signs.ravel(), minlength=width)
        return sums.astype(np.float64)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """Estimated mean, shape (d,)."""
        scale = self.bound * self.frame.width / (self.samples * self.gain * clients)
        return self.frame.backward(total[None] * scale)[0]

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Upper bound on E‖y − x‖² of each client, with bounds on products of two signs."""
        sizes = np.sum((self.checked(values) * self.radius) ** 2, axis=1)
        return np.maximum(self.worst_squared_error - sizes, 0.0)

    @property
    def worst_squared_error(self) -> float:
        """Upper bound on E‖y‖² over all inputs."""
        group = self.frame.width / self.samples
        own = group * self.bound**2 * self.dimension / self.gain**2
        # Each product of two signs has its mean times the gain: at most (1/gain)·‖x‖².
        return own + self.radius**2 / self.gain

    def _places(self, first: int, clients: int) -> IntArray:
        size = self.frame.width // self.samples
        public = PublicRandomness(self.seed, "coordinates")
        local = public.below(first, clients, np.full(self.samples, size))
        return local + size * np.arange(self.samples)
