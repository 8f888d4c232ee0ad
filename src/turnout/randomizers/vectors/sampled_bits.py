"""Messages of a few sampled coordinates, each as a few randomly flipped bits.

`SampledBits` encodes and decodes such messages; `BitRandomizer` is the base class of the
randomizers of `linf` that use it. `water_filled` divides a privacy budget among bits of unequal
weight.

Notation
    D       number of coordinates of a vector
    s       number of coordinates that a client reports: one of each of s groups
    a       number of coordinates in a group
    m, w_k  number of bits (levels) of a coordinate and their weights: x = Σ w_k·c_k, c_k = ±1,
            w = ½, ¼, …, 2^{1−m}, 2^{1−m}; the last bit is rounded at random so that
            E Σ w_k·c_k = x
    ε_k     privacy budget of level k, Σ ε_k = ε
    p_k     probability that a bit of level k is flipped, 1/(1 + e^{ε_k})
    C_k     1/(1 − 2p_k), the factor that makes the estimate from a flipped bit unbiased

A client's message is a row of whole numbers, called words. If all levels share the coordinates, a
word is the number of one coordinate followed by its m bits. Otherwise each level samples its own
coordinates, and a word is the number of a coordinate followed by one bit. A level adds
w_k²/(1 − 2p_k)² = w_k²·coth²(ε_k/2) to the variance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.interface import (
    PublicRandomness,
    VectorRandomizer,
    bits_together,
    epsilon_of_flips,
    flip_probability,
    flipped,
    rounded_by_chance,
    sampled_bit,
)
from turnout.randomness import Source
from turnout.schemes.randomizers import NonAdaptiveRandomizer, PureRandomizer

_LARGEST_DISTRIBUTION = 1 << 20


def bit_weights(levels: int) -> FloatArray:
    """Weights w_1, …, w_m of the bits, (m,): ½, ¼, …, with the last two equal; they sum to 1."""
    weights = 2.0 ** -np.arange(1, levels + 1, dtype=np.float64)
    weights[-1] = 2.0 ** (1 - levels)
    return weights


def mean_bits(values: FloatArray, levels: int) -> FloatArray:
    """Bits of values in [−1, 1], most significant first; the last entry is the last bit's mean.

    Args:
        values: numbers in [−1, 1], any shape.
        levels: number of bits m of a value.

    Returns:
        Array of shape (*values.shape, levels): bits 0 or 1, and in the last place a number in
        [0, 1], the probability that the last bit is 1.
    """
    rest = (np.asarray(values, dtype=np.float64) + 1) / 2
    means = np.empty((*rest.shape, levels))
    for level in range(levels - 1):
        rest = rest * 2
        means[..., level] = rest >= 1
        rest = rest - means[..., level]
    means[..., -1] = rest
    return means


def worst_spread(sizes: FloatArray, last: float) -> FloatArray:
    """Largest variance, over all x in [−1, 1], of the estimate of one coordinate x without flips.

    A client samples the coordinate with probability 1/a and sends the signs c_k = ±1 of its bits of
    weights w_k, so the variance is a·E(Σ w_k·c_k)² − x². The largest variance occurs where all bits
    but the last one are 1. If c is the mean of the last sign c_m, the variance is then
    (a − 1)(1 − w_m(1 − c))² + a·w_m²(1 − c²).

    Args:
        sizes: size a of the group of each coordinate.
        last: w_m, the weight of the last bit.

    Returns:
        Array of the shape of ``sizes``.
    """
    c = np.clip((sizes - 1) * (1 - last) / last, -1.0, 1.0)
    return (sizes - 1) * (1 - last * (1 - c)) ** 2 + sizes * last**2 * (1 - c**2)


@dataclass(frozen=True)
class SampledBits:
    """Encoder and decoder of one client's sampled bits of a vector in [−1, 1]^D.

    Attributes:
        dimension: number of coordinates D.
        samples: number of reported coordinates s, from 1 to D.
        flips: probability p_k that a bit of level k is flipped, most significant level first, shape
            (m,).
        shared: whether all levels report the same coordinates.
        centred: True: a bit is estimated as a scaled ±1. False: a bit is estimated as a scaled 0 or
            1, as in the thesis; this estimate has a larger variance.
        padded: whether the vector is padded with coordinates of −1 to a multiple of s coordinates,
            as in the thesis.
        public_seed: seed from which all parties compute the sampled coordinates; None: coordinates
            are part of the message.

    Raises:
        ParameterError: a parameter outside its domain, or shared coordinates without centred bits.
    """

    dimension: int
    samples: int
    flips: tuple[float, ...]
    shared: bool = True
    centred: bool = True
    padded: bool = False
    public_seed: int | None = None

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension, samples=self.samples, levels=len(self.flips))
        checks.at_most("dimension", self.dimension, samples=self.samples)
        if self.shared and not self.centred:
            raise ParameterError("centred", False, "True, since shared is True")

    @property
    def levels(self) -> int:
        """Number m of bits of a coordinate."""
        return len(self.flips)

    @cached_property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of a message, rounded up.

        Two vectors attain the level: all coordinates −1, and all coordinates +1.
        """
        return epsilon_of_flips(self.flips, self.samples)

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer of a whole message, if coordinates are not public."""
        if self.samples * self.levels == 1:
            return sampled_bit(self.epsilon0, self.dimension)
        return bits_together(self.flips, self.samples)

    @property
    def shuffled_as(self) -> list[tuple[NonAdaptiveRandomizer, int]]:
        """Accountant's randomizers of single words, each with the number of words that use it."""
        # Words of groups of equal size, and with equal flips, have the same randomizer.
        found: Counter[NonAdaptiveRandomizer] = Counter()
        for size, times in Counter(self.groups.tolist()).items():
            if self.shared and self.levels > 1:
                found[bits_together(self.flips, 1)] += times
                continue
            for p in self.flips:
                found[sampled_bit(epsilon_of_flips([p]), size)] += times
        return list(found.items())

    @cached_property
    def groups(self) -> IntArray:
        """Number of coordinates in each group, shape (s,); sizes differ by at most one."""
        smaller, larger = divmod(self.dimension, self.samples)
        if self.padded:
            return np.full(self.samples, -(-self.dimension // self.samples), dtype=np.int64)
        sizes = np.full(self.samples, smaller, dtype=np.int64)
        sizes[:larger] += 1
        return sizes

    @cached_property
    def _sizes(self) -> IntArray:
        """Number of coordinates in the group of each word, shape (words,)."""
        return np.tile(self.groups, 1 if self.shared else self.levels)

    @cached_property
    def _starts(self) -> IntArray:
        """First coordinate of each word's group, shape (words,)."""
        ends = np.cumsum(self.groups)
        return np.tile(ends - self.groups, 1 if self.shared else self.levels)

    @property
    def group_slices(self) -> list[slice]:
        """Slice of the coordinates of each group, without padding."""
        ends = np.minimum(np.cumsum(self.groups), self.dimension)
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def largest_second_moment(self) -> float:
        """Upper bound on E[y_j²]/a for every coordinate j of the estimate y of a vector.

        a is the number of coordinates in the group of j; the vector lies in [−1, 1]^D.
        """
        noise, weights = (1 - 2 * np.array(self.flips)) ** -2.0, self._weights
        if self.shared:
            return 1 + float(weights**2 @ (noise - 1))
        return float(weights**2 @ (noise + (0.0 if self.centred else 3.0)))

    @property
    def _word_bits(self) -> int:
        return self.levels if self.shared else 1

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Number of values that each word can take, shape (words,)."""
        private = self.public_seed is None
        return tuple((int(a) if private else 1) << self._word_bits for a in self._sizes)

    def encode(
        self, values: NDArray[np.floating], source: Source, first: int = 0, scale: float = 1.0
    ) -> IntArray:
        """Messages of clients whose vectors are ``values`` / ``scale``, clipped to [−1, 1].

        Only the sampled coordinates are read.

        Args:
            values: vectors, shape (n, D).
            source: source of all private randomness.
            first: number of the first client; selects public coordinates.
            scale: number by which coordinates are divided, above 0.

        Returns:
            Words of each client, shape (n, words).
        """
        clients = len(values)
        # The sampled coordinate of each word: its number in its group, and in the vector.
        local = self._coordinates(clients, source, first)
        places = local + self._starts
        # The value of that coordinate; a padded coordinate has the value −1.
        inside = places < self.dimension
        rows = np.arange(clients)[:, None]
        read = values[rows, np.where(inside, places, 0)].astype(np.float64) / scale
        seen = np.where(inside, read, -1.0)
        # The bits of that value. The last bit is rounded at random, so that the bits are unbiased.
        means = mean_bits(np.clip(seen, -1.0, 1.0), self.levels)
        bits = means.astype(np.int64)
        bits[..., -1] = rounded_by_chance(means[..., -1], source)
        # If levels have separate coordinates, a word keeps only the bit of its own level.
        if not self.shared:
            level = np.repeat(np.arange(self.levels), self.samples)
            bits = np.take_along_axis(bits, level[None, :, None], axis=2)
        # Flip the bits, which alone makes them private, and write coordinate and bits as a word.
        bits = self._flip_levels(bits, source)
        words = bits @ (1 << np.arange(self._word_bits - 1, -1, -1, dtype=np.int64))
        return words if self.public_seed is not None else (local << self._word_bits) | words

    def _flip_levels(self, bits: IntArray, source: Source) -> IntArray:
        """Bits of shape (n, words, bits of a word), flipped with the probability of their level."""
        result = np.empty_like(bits)
        for level, p in enumerate(self.flips):
            where = self._level(level)
            result[where] = flipped(bits[where], p, source)
        return result

    def _level(self, level: int) -> tuple[slice, slice, slice | int]:
        """Index of the bits of one level in an array of shape (n, words, bits of a word)."""
        if self.shared:
            return slice(None), slice(None), level
        words = slice(level * self.samples, (level + 1) * self.samples)
        return slice(None), words, slice(None)

    def _coordinates(self, clients: int, source: Source, first: int) -> IntArray:
        """Coordinate, relative to its group, that each word reports; shape (n, words)."""
        if self.public_seed is not None:
            return self._public(self.public_seed, first, clients)
        return np.stack([source.below(int(a), clients) for a in self._sizes], axis=1)

    def _public(self, seed: int, first: int, clients: int) -> IntArray:
        return PublicRandomness(seed, "coordinates").below(first, clients, self._sizes)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the clients' unbiased estimates, shape (D,).

        Args:
            messages: messages of clients with successive numbers, shape (n, words).
            first: number of the first client; selects public coordinates.

        Raises:
            ParameterError: a word out of range.
        """
        messages = np.asarray(messages, dtype=np.int64).reshape(-1, len(self.radices))
        wrong = messages[(messages < 0) | (messages >= np.array(self.radices))]
        if wrong.size:
            expected = f"columns of numbers below {', '.join(map(str, self.radices))}"
            raise ParameterError("messages", int(wrong[0]), expected)
        # Split each word into its bits and its coordinate.
        bits = (messages[..., None] >> np.arange(self._word_bits - 1, -1, -1)) & 1
        if self.public_seed is None:
            local = messages >> self._word_bits
        else:
            local = self._public(self.public_seed, first, len(messages))
        # Add each word's unbiased estimate to the sum of its coordinate.
        amounts = self._sizes * ((2 * bits - 1 + self._shift) * self._gains).sum(axis=2)
        places = local + self._starts
        width = int(self._starts[-1] + self._sizes[-1])
        sums = np.bincount(places.ravel(), weights=amounts.ravel(), minlength=width)
        return sums[: self.dimension].astype(np.float64) - (0.0 if self.centred else len(messages))

    @cached_property
    def _weights(self) -> FloatArray:
        return bit_weights(self.levels)

    @cached_property
    def _gains(self) -> FloatArray:
        """Factor w_k/(1 − 2p_k) of each bit of each word, shape (words, bits of a word).

        w_k is the weight of the bit, and p_k the probability that it is flipped.
        """
        gains = self._weights / (1 - 2 * np.array(self.flips))
        return gains[None, :] if self.shared else np.repeat(gains, self.samples)[:, None]

    @cached_property
    def _shift(self) -> FloatArray | float:
        """Constant added to ±1 before scaling, shape (words, 1): 1 − 2p, or 0 if centred."""
        if self.centred:
            return 0.0
        return np.repeat(1 - 2 * np.array(self.flips), self.samples)[:, None]

    def moments(self, values: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """E y_j² and E y_j of the estimate y from each draw of coordinates; arrays (n, D).

        If all levels share the coordinates, there is one draw; else there is one draw for each
        level. In each group of a draw at most one y_j is not 0.
        """
        weights, noise = self._weights, (1 - 2 * np.array(self.flips)) ** -2.0
        sizes = np.repeat(self.groups, self.groups)[: self.dimension]
        means = 2.0 * mean_bits(values, self.levels) - 1
        # Shared coordinates: the variances of rounding and of all flips add up.
        if self.shared:
            rounding = weights[-1] ** 2 * (1 - means[..., -1] ** 2)
            second = values**2 + rounding + float(weights**2 @ (noise - 1))
            return [(sizes * second, np.asarray(values))]
        # Separate coordinates: one pair of moments for each level.
        shift = 0.0 if self.centred else 1.0
        found = []
        for k, weight in enumerate(weights):
            second = noise[k] + (2 * means[..., k] + 1) * shift
            found.append((weight**2 * sizes * second, weight * (means[..., k] + shift)))
        return found

    def squared_error(self, values: FloatArray) -> FloatArray:
        """Exact E‖y − x‖² of the estimate y from each client's message, shape (n,)."""
        spread = [np.sum(second - mean**2, axis=-1) for second, mean in self.moments(values)]
        return np.sum(spread, axis=0)

    @cached_property
    def worst_squared_error(self) -> float:
        """The largest E‖y − x‖² over x in [−1, 1]^D."""
        noise = 1 / (1 - 2 * np.array(self.flips)) ** 2
        real = np.repeat(self.groups, self.groups)[: self.dimension].astype(float)
        if self.shared:
            spread = float(self._weights**2 @ (noise - 1))
            return float((worst_spread(real, self._weights[-1]) + real * spread).sum())
        return sum(self._worst_level(k, float(noise[k]), real) for k in range(self.levels))

    def _worst_level(self, level: int, noise: float, sizes: FloatArray) -> float:
        """The largest variance that level k adds, summed over the coordinates."""
        # The mean sign c of the level is ±1; at the last level it may lie between them.
        ends = np.array([-1.0, 1.0])
        means = np.broadcast_to(ends, (sizes.size, 2))
        if level == self.levels - 1:
            inner = np.zeros(sizes.size) if self.centred else np.minimum(sizes - 1, 1.0)
            means = np.column_stack([means, inner])
        shift = 0.0 if self.centred else 1.0
        spread = sizes[:, None] * (noise + (2 * means + 1) * shift) - (means + shift) ** 2
        return float(self._weights[level] ** 2 * spread.max(axis=1).sum())

    def probabilities(self, value: FloatArray) -> FloatArray:
        """Probability of each message, shape (product of the radices,).

        Args:
            value: vector in [−1, 1]^D, shape (D,).

        Returns:
            Probabilities that sum to 1. The message with words u has the index
            ``numpy.ravel_multi_index(u, radices)``. Public coordinates are those of client 0.

        Raises:
            ParameterError: more than 2²⁰ messages.
        """
        if np.prod(np.array(self.radices, dtype=float)) > _LARGEST_DISTRIBUTION:
            expected = f"at most {_LARGEST_DISTRIBUTION} different messages"
            raise ParameterError("radices", self.radices, expected)
        # The words are independent, so the distribution is a product.
        distribution = np.ones(1)
        padded = np.full(int(self.groups.sum()), -1.0)
        padded[: self.dimension] = value
        means = mean_bits(padded, self.levels)
        for word in range(len(self.radices)):
            word_distribution = self._word_distribution(word, means)
            distribution = np.multiply.outer(distribution, word_distribution).ravel()
        return distribution

    def _word_distribution(self, word: int, means: FloatArray) -> FloatArray:
        """Distribution of one word, computed from the means of the bits of each coordinate."""
        start, size = int(self._starts[word]), int(self._sizes[word])
        levels = range(self.levels) if self.shared else [word // self.samples]
        # Given its coordinate, the bits of a word are independent.
        distribution = np.ones((size, 1))
        for level in levels:
            p = self.flips[level]
            one = p + (1 - 2 * p) * means[start : start + size, level]
            both = np.stack([1 - one, one], axis=1)
            distribution = (distribution[:, :, None] * both[:, None, :]).reshape(size, -1)
        # The coordinate is uniform in the group, or public.
        if self.public_seed is None:
            return (distribution / size).ravel()
        return distribution[self._public(self.public_seed, 0, 1)[0, word]]


_HALVINGS = 100
_NEWTON_STEPS = 8
_LARGEST = 100.0  # upper limit of ln sinh(ε/2), which avoids an overflow


@lru_cache(maxsize=4096)
def water_filled(epsilon: float, levels: int) -> tuple[float, ...]:
    """The budgets ε_k of sum ``epsilon`` that minimise the variance Σ w_k²·coth²(ε_k/2).

    w_k is the weight of bit k (see `bit_weights`). The variance is convex in the budgets, so at the
    minimum all derivatives, which are proportional to w_k²·coth(ε_k/2)/sinh²(ε_k/2), are equal. For
    small ε this gives ε_k ∝ w_k^{2/3}, the budgets that the thesis prints.

    Args:
        epsilon: privacy budget of one coordinate, above 0.
        levels: number of bits m, at least 1.

    Returns:
        The budget of each level, shape (m,).

    Raises:
        ParameterError: an argument outside its domain.

    >>> [round(share, 3) for share in water_filled(1.0, 3)]
    [0.442, 0.279, 0.279]
    """
    checks.positive(epsilon=epsilon)
    checks.count(levels=levels)
    if levels == 1:
        return (epsilon,)
    log_weights = 2 * np.log(bit_weights(levels))

    # Search for the common logarithm of the derivatives at which the budgets sum to ε.
    def within_budget(log_slope: float) -> bool:
        return not _budgets_at_slopes(log_slope - log_weights, epsilon).sum() > epsilon

    log_slope = bisected(within_budget, -1500.0, 1500.0, halvings=_HALVINGS).holding
    shares = _budgets_at_slopes(log_slope - log_weights, epsilon)
    # Scale away the remaining error of the sum.
    return tuple(float(share) for share in shares * (epsilon / shares.sum()))


def _budgets_at_slopes(log_slopes: np.ndarray, most: float) -> np.ndarray:
    """The ε, at most ``most``, for which ln(coth(ε/2)/sinh²(ε/2)) has each given value.

    With s = sinh²(ε/2) this logarithm is ½·ln(1 + s) − 3/2·ln s. It is convex in ln s, with a slope
    between −3/2 and −1. So Newton's method reaches the rounding error in a few steps from any
    start.
    """
    log_s = -log_slopes
    for _ in range(_NEWTON_STEPS):
        excess = 0.5 * np.logaddexp(0.0, log_s) - 1.5 * log_s - log_slopes
        log_s = log_s + excess / (1.5 - 0.5 * expit(log_s))
    return np.minimum(2 * np.arcsinh(np.exp(np.minimum(0.5 * log_s, _LARGEST))), most)


def printed_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    """The budgets that the thesis prints, with sum ``epsilon``, shape (m,).

    The budget of bit k is proportional to w_k^{2/3}, with w_k its weight (see `bit_weights`).

    Source: Algorithm 3.5.1, lines 7 and 11 (girgis2023thesis).
    """
    powers = bit_weights(levels) ** (2 / 3)
    return tuple(float(share) for share in epsilon * powers / powers.sum())


def level_flips(
    epsilon: float, samples: int, levels: int, budgets: tuple[float, ...] | None = None
) -> tuple[float, ...]:
    """Flip probabilities p_k for the given budgets, or for the optimal budgets; shape (m,).

    Args:
        epsilon: ε of a message, divided equally among its coordinates.
        samples: number of coordinates s in a message.
        levels: number of bits m of a coordinate.
        budgets: budget of each level of one coordinate; None: those of `water_filled`.

    Returns:
        p_k for which samples·Σ ln((1 − p_k)/p_k) is at most ``epsilon``. Budgets whose sum is
        larger are scaled down.
    """
    shares = [Fraction(share) for share in budgets or water_filled(epsilon / samples, levels)]
    excess = max(Fraction(1), sum(shares, Fraction(0)) * samples / Fraction(epsilon))
    return tuple(flip_probability(_float_below(share / excess)) for share in shares)


def printed_flips(v: float, levels: int, samples: int) -> tuple[float, ...]:
    """The flip probabilities that the thesis prints: p_k = ½(1 − √(q²/(q² + 4))) for q = v_k/s.

    Source: Algorithms 3.3.1 and 3.5.1 (girgis2023thesis). Such a bit is 2·asinh(q/2)-private. This
        level is less than q, so that a part of the budget v remains unused.

    Args:
        v: privacy budget of a message; v_k is the part of the budget for level k.
        levels: number of bits m of a coordinate.
        samples: number of coordinates s in a message.
    """
    return tuple(
        flip_probability(2 * math.asinh(v_k / samples / 2)) for v_k in printed_shares(v, levels)
    )


def _float_below(number: Fraction) -> float:
    """The largest float that is at most ``number``."""
    value = float(number)
    return math.nextafter(value, 0.0) if value > number else value


Variant = Literal["default", "as-printed"]


class BitRandomizer(VectorRandomizer):
    """Base class of randomizers that send sampled bits, in one of two variants.

    Attributes:
        samples: number of reported coordinates s.
        variant: "as-printed" for the algorithm of the thesis, "default" for its improved form.
        public_seed: seed from which all parties compute the sampled coordinates; None: coordinates
            are part of the message.
    """

    samples: int
    variant: Variant
    public_seed: int | None

    @property
    @abstractmethod
    def flips(self) -> tuple[float, ...]:
        """Probability p_k that a bit of level k is flipped in this variant, shape (m,)."""

    @property
    def in_default_shared(self) -> bool:
        """Whether all levels of the default variant report the same coordinates."""
        return True

    def require_parts(self) -> None:
        """Raise an error unless the variant is known and all parameters are in range.

        Raises:
            ParameterError: an unknown variant, or a parameter out of range.
        """
        if self.variant not in ("default", "as-printed"):
            raise ParameterError("variant", self.variant, "'default' or 'as-printed'")
        self.bits  # noqa: B018 checks the parameters when the randomizer is built

    @cached_property
    def bits(self) -> SampledBits:
        """Encoder and decoder of the messages of this variant."""
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
        """Local privacy level ε₀ = s·Σ_k ln((1 − p_k)/p_k), rounded up by less than one ulp."""
        return self.bits.epsilon0

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a whole message.

        With public coordinates clients use different randomizers, so that only ε₀ is known.
        """
        return super().priced_as if self.public_seed is not None else self.bits.priced_as

    @property
    def shuffled_as(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Accountant's randomizers of the words, if each word of a message has its own shuffler."""
        return super().shuffled_as if self.public_seed is not None else self.bits.shuffled_as

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values that each word can take, shape (words,).

        The numbers are 2^m·a if all levels share the coordinates, else 2·a, where a is the size of
        the coordinate's group, or 1 for public coordinates.
        """
        return self.bits.radices

    @property
    def public_randomness(self) -> str:
        """Description of the public coordinates; "none" if no seed was given."""
        return "none" if self.public_seed is None else "which coordinates each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, words); see `SampledBits.encode`.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        return self.bits.encode(self.checked(values), source, first)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the clients' unbiased estimates in units of ``radius``, shape (d,)."""
        return self.bits.total(messages, first)

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message for ``value``, (d,); order of `SampledBits.probabilities`."""
        return self.bits.probabilities(self.checked(np.atleast_2d(np.asarray(value)))[0])
