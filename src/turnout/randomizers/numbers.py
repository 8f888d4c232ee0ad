"""Randomizers of one client's number in [−C, C]: noise in whole steps of a lattice.

`on_lattice` rounds numbers to the lattice; `NoisyNumber` is the base class of the randomizers.
`GaussianRandomizer` adds rounded Gaussian noise, so that the Gaussian analysis holds;
`LaplaceRandomizer` adds Laplace noise whose probabilities are fractions.

Notation of Laplace noise: C is the clip; there are L steps between −C and C. The noise is ±(G + ½)
steps, where G ≥ 0 is called the level and both signs have probability ½. The probability of a level
halves every m steps: P(G ≥ g + m) = P(G ≥ g)/2.

So G = a·m + r, where a has the geometric distribution P(a = j) = 2^{−j−1}, drawn exactly, and r < m
is drawn with integer weights w_r in units of 2⁻⁶². The weights follow 2^{−r/m}, rounded so that
they are non-increasing. Two inputs differ by at most L steps, and the ratio of the noise's
probabilities at two values that differ by L steps is a fraction. The largest value of this ratio is
`LaplaceRandomizer.ratio`; L is the largest number of steps at which this largest value is at most
e^ε.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import check_level, exponential_below, level_above
from turnout.randomness import Source, rounded_gaussian
from turnout.randomness.source import LARGEST_RANGE
from turnout.schemes.randomizers import GaussianNoise, NonAdaptiveRandomizer

_GRID = 2**53


def on_lattice(values: ArrayLike, clip: float, steps: int, source: Source) -> NDArray[np.int64]:
    """Whole numbers from 0 to ``steps`` whose means are (value + C)·steps/2C, shape (n,).

    Values beyond ±C are clipped. Each value is rounded at random to one of the two nearest lattice
    points, so that rounding adds no bias. Rounding costs no privacy: the randomizer's guarantee
    holds between any two lattice points, hence also between mixtures of them.

    Args:
        values: finite numbers, shape (n,).
        clip: C, above 0, in the unit of the values.
        steps: number of steps from −C to C.
        source: source of the randomness of rounding; not used if all values lie on the lattice.

    Raises:
        ParameterError: values that are not finite, or of a wrong shape.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        given = f"array of shape {numbers.shape}"
        raise ParameterError("values", given, "finite numbers of shape (clients,)")
    # Position of each clipped value, in steps above −C.
    scaled = (np.clip(numbers / clip, -1, 1) + 1) / 2 * steps
    # Round up with the probability of the fractional part, to 2⁻⁵³, and down otherwise.
    lower = np.floor(scaled)
    rest = scaled - lower
    if rest.any():
        lower += source.below(_GRID, numbers.size) < rest * _GRID
    return lower.astype(np.int64)


class NoisyNumber(ABC):
    """Randomizer of a number in [−C, C]: whole steps plus noise, clipped to 32 bits.

    The clipping to 32 bits is computed from the noisy number only, so it costs no privacy.
    """

    clip: float

    @property
    @abstractmethod
    def unit(self) -> float:
        """Value of one unit of a message, in the unit of ``clip``."""

    @property
    @abstractmethod
    def variance_bound(self) -> float:
        """Upper bound on the variance of `decode`, in squared units of ``clip``."""

    @abstractmethod
    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Noisy numbers (y + C)/`unit` before clipping to 32 bits, shape (n,), where y has mean x.

        Args:
            values: finite numbers x, shape (n,), in the unit of ``clip``; values beyond ±C are
                clipped.
            source: source of the noise.
        """

    @property
    def message_bits(self) -> int:
        """Number of bits of a client's message, 32."""
        return 32

    def mse_bound(self, clients: int) -> float:
        """Upper bound on the expected squared error of the mean of `decode` over n clients.

        Raises:
            ParameterError: ``clients`` is below 1.
        """
        checks.count(clients=clients)
        return self.variance_bound / clients

    def encode(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Messages of the finite ``values``, shape (n,): noisy numbers clipped to 32 bits.

        Raises:
            ParameterError: values that are not finite, or of a wrong shape.
        """
        return np.clip(self.noisy(values, source), -(2**31), 2**31 - 1)

    def decode(self, messages: ArrayLike) -> NDArray[np.float64]:
        """Estimates of the clipped numbers, shape (n,); only the clipping to 32 bits adds bias."""
        return np.asarray(messages) * self.unit - self.clip

    def pack(self, messages: NDArray[np.int64]) -> bytes:
        """Bytes of the messages, (n,): four bytes for each, little-endian, two's complement."""
        return messages.astype("<i4").tobytes()

    def unpack(self, data: bytes, n: int) -> NDArray[np.int64]:
        """The n messages that ``data`` contains, shape (n,).

        Raises:
            ParameterError: the length of ``data`` is not 4·n bytes.
        """
        if len(data) != 4 * n:
            raise ParameterError("data", f"{len(data)} bytes", f"{4 * n} bytes")
        return np.frombuffer(data, dtype="<i4").astype(np.int64)


_HALF_STEPS = 2**20
_SLACK = 2.0**-44


@dataclass(frozen=True)
class GaussianRandomizer(NoisyNumber):
    """A number in [−C, C] plus Gaussian noise of standard deviation σ·C, rounded to steps.

    The number is first rounded to the lattice. A whole number plus rounded noise is the rounded
    sum, hence a function of the Gaussian mechanism's output. So the message is as private as the
    Gaussian mechanism with sensitivity 2C. As messages are whole numbers, the spacing of floats
    reveals nothing.

    Source: Balle, Wang, Improving the Gaussian mechanism, ICML 2018, Theorem 8 (`delta`);
        Mironov, CSF 2017, Proposition 7 (`rdp`).

    Attributes:
        noise_multiplier: σ, from 2⁻¹⁰ to 2²⁰.
        clip: C, above 0; values beyond ±C are clipped.

    Raises:
        ParameterError: a parameter outside its domain.
    """

    noise_multiplier: float
    clip: float

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier, clip=self.clip)
        if not 2.0**-10 <= self.noise_multiplier <= _HALF_STEPS:
            raise ParameterError("noise_multiplier", self.noise_multiplier, "from 2**-10 to 2**20")

    @property
    def half_steps(self) -> int:
        """Number of steps between 0 and C."""
        return _HALF_STEPS // max(1, math.ceil(self.noise_multiplier))

    @property
    def epsilon0(self) -> float:
        """Infinity, since Gaussian noise has no pure privacy level; use `delta` or `rdp`."""
        return math.inf

    @property
    def priced_as(self) -> GaussianNoise:
        """Gaussian noise with which the accountant bounds the privacy loss of a message."""
        return GaussianNoise(self.noise_multiplier)

    def delta(self, epsilon: float) -> float:
        """δ of the message at ``epsilon`` under replacement, never below the true δ.

        Args:
            epsilon: at least 0, in nats.

        Raises:
            ParameterError: ``epsilon`` is below 0 or not a number.
        """
        checks.non_negative(epsilon=epsilon)
        # The two terms of Theorem 8: Φ(a) − e^ε·Φ(b), from logarithms.
        shift = 2 / self.noise_multiplier
        first = special.log_ndtr(shift / 2 - epsilon / shift)
        second = epsilon + special.log_ndtr(-shift / 2 - epsilon / shift)
        gap = -math.expm1(min(second - first, 0.0)) + _SLACK * (1 + abs(first) + abs(second))
        # Below the smallest positive float, that float is an upper bound.
        return min(max(math.exp(first) * gap, 5e-324), 1.0)

    def rdp(self, order: float) -> float:
        """Rényi divergence at ``order`` α under replacement, 2α/σ² = α(2C)²/(2(σC)²), rounded up.

        Args:
            order: α, above 1, finite.

        Raises:
            ParameterError: ``order`` is not a finite number above 1.
        """
        if not 1 < order < math.inf:
            raise ParameterError("order", order, "a finite number above 1")
        return 2 * order / self.noise_multiplier**2 * (1 + _SLACK)

    @property
    def variance_bound(self) -> float:
        """Upper bound on the variance of `decode`, in squared units of ``clip``."""
        # The standard deviations of the noise and of its rounding add up at worst. Rounding the
        # value to the lattice adds a variance of at most unit²/4.
        return (self.noise_multiplier * self.clip + self.unit / 2) ** 2 + self.unit**2 / 4

    @property
    def unit(self) -> float:
        """Length of a step, in the unit of ``clip``."""
        return self.clip / self.half_steps

    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Noisy numbers counted in steps from −C, before clipping to 32 bits, shape (n,)."""
        places = on_lattice(values, self.clip, 2 * self.half_steps, source)

        def read(size: int) -> bytes:
            return source.below(256, size).astype(np.uint8).tobytes()

        deviation = self.noise_multiplier * self.half_steps
        return places + rounded_gaussian(deviation, places.size, read)


HALVING = 2**16
"""Default number m of steps over which the probability of the noise halves."""


@dataclass(frozen=True)
class LaplaceRandomizer(NoisyNumber):
    """A number in [−C, C] plus Laplace noise of scale 2C/ε, in steps of about 2C·ln 2/(m·ε).

    Source: Dwork, McSherry, Nissim, Smith, TCC 2006; Ghosh, Roughgarden, Sundararajan, STOC 2009
        (whole steps). With continuous noise the last digits of floats may reveal the number
        (Mironov, CCS 2012); noise in whole steps avoids this.

    Attributes:
        epsilon: requested privacy level ε, from about 1/``halving`` to 30.
        clip: C, above 0; values beyond ±C are clipped.
        halving: m, the number of steps over which the noise's probability halves, from 2 to 2²⁰.

    Raises:
        ParameterError: a parameter outside its domain, or an ``epsilon`` below about 1/``halving``.

    >>> randomizer = LaplaceRandomizer(epsilon=1.0, clip=1.0)
    >>> 0.9999 < randomizer.epsilon0 <= 1, round(randomizer.variance_bound, 3)
    (True, 8.0)
    """

    epsilon: float
    clip: float
    halving: int = field(default=HALVING, kw_only=True)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(clip=self.clip)
        checks.count(2, halving=self.halving)
        checks.at_most("2**20", 2**20, halving=self.halving)
        if self.steps < 1:
            least = f"at least {1 / self.halving:.2g} (about 1 / halving)"
            raise ParameterError("epsilon", self.epsilon, least)

    @cached_property
    def steps(self) -> int:
        """Number of steps L between −C and C: the largest L whose `shift_ratio` is at most e^ε."""
        bound = exponential_below(self.epsilon)
        steps = math.floor(self.halving * self.epsilon / math.log(2))
        while steps > 0 and shift_ratio(self.halving, steps) > bound:
            steps -= 1
        return steps

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two numbers, exactly."""
        return shift_ratio(self.halving, self.steps)

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of the message, rounded up by less than one ulp."""
        return level_above(self.ratio)

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Randomizer of level ε₀ with which the accountant bounds the privacy loss of a message."""
        return NonAdaptiveRandomizer(self.epsilon0)

    @property
    def step(self) -> float:
        """Length of a step, in the unit of ``clip``."""
        return 2 * self.clip / self.steps

    @property
    def variance_bound(self) -> float:
        """Upper bound on the variance of `decode`, in squared units of ``clip``.

        A value half-way between two lattice points attains the bound. For a value on a lattice
        point the variance is smaller by step²/4.
        """
        m = self.halving
        levels = np.arange(m) + 0.5
        shares = geometric_weights(m) / LARGEST_RANGE
        # In the notation above, a is geometric with parameter ½: E a = 1 and E a² = 3.
        noise = 3 * m**2 + 2 * m * float(shares @ levels) + float(shares @ levels**2)
        return (noise + 0.25) * self.step**2

    @property
    def unit(self) -> float:
        """Length of half a step, in the unit of ``clip``."""
        return self.step / 2

    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Noisy numbers counted in half steps from −C, before clipping to 32 bits, shape (n,)."""
        places = on_lattice(values, self.clip, self.steps, source)
        # The level G = a·m + r, with a geometric and r drawn by its weights, and a random sign.
        levels = halvings(places.size, source) * self.halving
        drawn = source.below(LARGEST_RANGE, places.size)
        levels += np.searchsorted(np.cumsum(geometric_weights(self.halving)), drawn, side="right")
        signs = 2 * source.below(2, places.size) - 1
        return 2 * places + signs * (2 * levels + 1)


@cache
def geometric_weights(halving: int) -> NDArray[np.int64]:
    """Probabilities of the remainder r of a noise level modulo m, in units of 2⁻⁶², shape (m,).

    The probabilities of r = 0, …, m − 1 are whole numbers of units and non-increasing; the first is
    at most twice the last.

    Args:
        halving: m, the number of steps over which the probability halves.
    """
    # Weights 2^{−r/m}, rounded down so that they are non-increasing.
    shares = np.exp2(-np.arange(halving) / halving)
    shares *= LARGEST_RANGE / shares.sum()
    weights = np.minimum.accumulate(np.floor(shares).astype(np.int64))
    # Add the rounded-off part evenly, and its remainder to the first weights: the weights remain
    # non-increasing.
    left = LARGEST_RANGE - int(weights.sum())
    weights += left // halving
    weights[: left % halving] += 1
    # The analysis of `shift_ratio` rests on these three properties.
    assert int(weights.sum()) == LARGEST_RANGE
    assert np.all(np.diff(weights) <= 0)
    assert weights[0] <= 2 * weights[-1]
    weights.flags.writeable = False
    return weights


@cache
def shift_ratio(halving: int, steps: int) -> Fraction:
    """The largest ratio of P(G = g) to P(G = g + ``steps``) over all g ≥ 0, exactly.

    G is the level of the noise ±(G + ½). Its probabilities are non-increasing, so no smaller shift
    has a larger ratio. They halve every m levels, so it suffices to compare the ratios at
    g = 0, …, m − 1.

    Args:
        halving: m, the number of steps over which the probability of the level G halves.
        steps: size of the shift.
    """
    # The ratio at g is weights[g] / later[g] · 2^halved[g], where halved[g] counts the multiples of
    # m between the two levels.
    weights = geometric_weights(halving)
    whole, rest = divmod(steps, halving)
    later = np.roll(weights, -rest)
    halved = whole + (np.arange(halving) >= halving - rest)
    # Select by float arithmetic all ratios that may be the largest, with a margin for rounding.
    rough = weights / later * np.exp2(halved - whole)
    candidates = np.flatnonzero(rough >= rough.max() * (1 - 2.0**-48))
    # Compare the candidates exactly, as fractions.
    best = max(
        {(int(weights[i]), int(later[i]), int(halved[i])) for i in candidates},
        key=lambda c: Fraction(c[0], c[1]) * 2 ** c[2],
    )
    return Fraction(best[0], best[1]) * 2 ** best[2]


def halvings(size: int, source: Source) -> NDArray[np.int64]:
    """Independent draws of j with probability 2^{−j−1} for j = 0, 1, …; shape (size,)."""
    total = np.zeros(size, dtype=np.int64)
    # Each draw of 62 random bits adds the number of zero bits below the lowest set bit. If all
    # 62 bits are zero, add 62 and draw again.
    open_places = np.arange(size)
    while open_places.size:
        drawn = source.below(LARGEST_RANGE, open_places.size)
        lowest = drawn & -drawn
        # `frexp` returns the exponent j + 1 for 2^j, and 0 for 0, where all 62 bits are zero.
        zeros = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1
        total[open_places] += np.where(drawn == 0, 62, zeros)
        open_places = open_places[drawn == 0]
    return total
