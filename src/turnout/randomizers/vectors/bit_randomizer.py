"""The shared base of randomizers that send a few sampled bits, each flipped at random."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.sampled_bits import SampledBits
from turnout.randomizers.vectors.vector_randomizer import FloatArray, IntArray, VectorRandomizer
from turnout.randomness import Source
from turnout.schemes import PureRandomizer

Variant = Literal["default", "as-printed"]


class BitRandomizer(VectorRandomizer):
    """A randomizer whose messages are its `bits`, in one of two variants.

    Attributes:
        samples: s, coordinates that are reported.
        public_seed: from which everybody knows who reports which coordinates; None: they are
            sent.
    """

    samples: int
    variant: Variant
    public_seed: int | None

    @property
    @abstractmethod
    def flips(self) -> tuple[float, ...]:
        """The chances p_k with which bits are turned over, by the variant."""

    @property
    def in_default_shared(self) -> bool:
        """Whether the default's levels report the same coordinates."""
        return True

    def require_parts(self) -> None:
        """Nothing where variant and parts fit together.

        Raises:
            ParameterError: no such variant, or a part out of range.
        """
        if self.variant not in ("default", "as-printed"):
            raise ParameterError("variant", self.variant, "default or as-printed")
        self.bits  # noqa: B018 its parts are checked here, not at first use

    @cached_property
    def bits(self) -> SampledBits:
        """The coordinates and bits that are sent."""
        printed = self.variant == "as-printed"
        return SampledBits(
            self.dimension,
            self.samples,
            self.flips,
            shared=self.in_default_shared and not printed,
            centred=not printed,
            padded=printed,
            public_seed=self.public_seed,
        )

    @property
    def epsilon0(self) -> float:
        """s·Σ_k ln((1 − p_k)/p_k), rounded up by less than an ulp."""
        return self.bits.epsilon0

    @property
    def law(self) -> PureRandomizer:
        """The law that prices a whole message, see `SampledBits.law`."""
        return super().law if self.public_seed is not None else self.bits.law

    @property
    def laws(self) -> Sequence[tuple[PureRandomizer, int]]:
        """The laws that price each word, see `SampledBits.laws`."""
        return super().laws if self.public_seed is not None else self.bits.laws

    @property
    def radices(self) -> tuple[int, ...]:
        """2a or 2^m·a values a word; a = 1 with public coordinates."""
        return self.bits.radices

    @property
    def public_randomness(self) -> str:
        """Coordinates, if a seed was given."""
        return "none" if self.public_seed is None else "which coordinates each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, words), see `SampledBits`."""
        return self.bits.encode(self.checked(values), source, first)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """The sum of the clients' unbiased vectors in [−1, 1]^d, shape (d,)."""
        return self.bits.total(messages, first)

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message, see `SampledBits.probabilities`."""
        return self.bits.probabilities(self.checked(np.atleast_2d(np.asarray(value)))[0])
