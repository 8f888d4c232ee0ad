"""Gaussian noise on a client's number, in whole steps, so that the Gaussian analysis holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.lattice_numbers import NoisyNumber, on_lattice
from turnout.randomness import Source, rounded_gaussian
from turnout.schemes import GaussianNoise

_HALF_STEPS = 2**20
_SLACK = 2.0**-44


@dataclass(frozen=True)
class GaussianRandomizer(NoisyNumber):
    """A number in [−C, C] plus Gaussian noise of standard deviation σ·C, rounded to steps.

    The number is put on a lattice first; a whole number plus rounded noise is the rounded sum, a
    function of the Gaussian mechanism's output. So its privacy is that of the Gaussian mechanism
    with sensitivity 2C, and no float's gaps show.

    Source: Balle, Wang, Improving the Gaussian mechanism, ICML 2018, Theorem 8 (`delta`);
        Mironov, CSF 2017, Proposition 7 (`rdp`).

    Attributes:
        noise_multiplier: σ, from 2⁻¹⁰ to 2²⁰.
        clip: C, above 0; values beyond ±C are clipped.
    """

    noise_multiplier: float
    clip: float

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier, clip=self.clip)
        if not 2.0**-10 <= self.noise_multiplier <= _HALF_STEPS:
            raise ParameterError("noise_multiplier", self.noise_multiplier, "from 2**-10 to 2**20")

    @property
    def half_steps(self) -> int:
        """Steps between 0 and C."""
        return _HALF_STEPS // max(1, math.ceil(self.noise_multiplier))

    @property
    def epsilon0(self) -> float:
        """Infinite: Gaussian noise has no pure level; ask `delta` or `rdp`."""
        return math.inf

    @property
    def law(self) -> GaussianNoise:
        """The law that prices the message."""
        return GaussianNoise(self.noise_multiplier)

    def delta(self, epsilon: float) -> float:
        """The δ at which the message is (``epsilon``, δ)-private (replace-one), rounded up."""
        checks.non_negative(epsilon=epsilon)
        shift = 2 / self.noise_multiplier
        first = special.log_ndtr(shift / 2 - epsilon / shift)
        second = epsilon + special.log_ndtr(-shift / 2 - epsilon / shift)
        gap = -math.expm1(min(second - first, 0.0)) + _SLACK * (1 + abs(first) + abs(second))
        # The smallest float stands for what is smaller still.
        return min(max(math.exp(first) * gap, 5e-324), 1.0)

    def rdp(self, order: float) -> float:
        """Rényi level at ``order`` α > 1 (replace-one): α(2C)²/(2(σC)²) = 2α/σ², rounded up."""
        if not 1 < order < math.inf:
            raise ParameterError("order", order, "a finite number above 1")
        return 2 * order / self.noise_multiplier**2 * (1 + _SLACK)

    @property
    def variance_bound(self) -> float:
        """Variance of `decode` at most: noise, rounding of the noise and of the value."""
        return (self.noise_multiplier * self.clip + self.unit / 2) ** 2 + self.unit**2 / 4

    @property
    def unit(self) -> float:
        """A step."""
        return self.clip / self.half_steps

    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Steps from −C, of any size."""
        places = on_lattice(values, self.clip, 2 * self.half_steps, source)

        def read(size: int) -> bytes:
            return source.below(256, size).astype(np.uint8).tobytes()

        deviation = self.noise_multiplier * self.half_steps
        return places + rounded_gaussian(deviation, places.size, read)
