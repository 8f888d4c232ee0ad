"""Sampled coordinates, each as a few randomly flipped bits: the base of ℓ∞ randomizers.

`SampledBits` is the form of a message, `BitRandomizer` the base class of its randomizers in `linf`.
`water_filled` divides a privacy budget among bits of unequal weight.

Notation
    D, s    coordinates, and the number that a client reports: one of each of s groups
    a       coordinates in a group
    m, w_k  bit levels of a coordinate and their weights: x = Σ w_k·c_k, c_k = ±1, w = ½, ¼, …,
            2^{1−m}, 2^{1−m}; the last bit is rounded by chance, so that E Σ w_k·c_k = x
    ε_k     budget of level k, Σ ε_k = ε
    p_k     probability that a bit of level k is flipped, 1/(1 + e^{ε_k})
    C_k     1/(1 − 2p_k), which makes the flipped bit unbiased

A client's message is a row of words. With shared coordinates a word is one coordinate and its m
bits; with separate coordinates each level samples its own and a word has one bit. A level adds
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
    """Weights w_1, …, w_m: ½, ¼, …, the last two equal, so that they sum to 1; shape (m,)."""
    weights = 2.0 ** -np.arange(1, levels + 1, dtype=np.float64)
    weights[-1] = 2.0 ** (1 - levels)
    return weights


def mean_bits(values: FloatArray, levels: int) -> FloatArray:
    """Bits of values in [−1, 1], most significant first; of the last bit its expectation.

    Returns:
        Shape (*values.shape, levels).
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
    """Largest a·E(Σ w_k·c_k)² − x² over x, of a coordinate in a group of a; shape of ``sizes``.

    The largest |x| leaves only the last bit random, with mean c, and then the value is
    (a − 1)(1 − w_m(1 − c))² + a·w_m²(1 − c²).

    Args:
        sizes: a of each coordinate.
        last: w_m, the weight of the last bit.
    """
    c = np.clip((sizes - 1) * (1 - last) / last, -1.0, 1.0)
    return (sizes - 1) * (1 - last * (1 - c)) ** 2 + sizes * last**2 * (1 - c**2)


@dataclass(frozen=True)
class SampledBits:
    """Form of a message: one client's sampled bits of a vector in [−1, 1]^D.

    Attributes:
        samples: s, from 1 to D.
        flips: p_k of each level, most significant first, shape (m,).
        shared: whether all levels report the same coordinates.
        centred: whether a bit's unbiased estimate is ±1 scaled; else 0 or 1 scaled, which is
            noisier and is the printed form.
        padded: whether D is filled up to a multiple of s with coordinates of −1, as printed.
        public_seed: seed of public coordinates, which all parties know; None: coordinates are part
            of the message.
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
            raise ParameterError("centred", False, "True where coordinates are shared")

    @property
    def levels(self) -> int:
        """Number m of bits of a coordinate."""
        return len(self.flips)

    @cached_property
    def epsilon0(self) -> float:
        """ε₀ of a message, rounded up: reached between all −1 and all +1 for all coordinates."""
        return epsilon_of_flips(self.flips, self.samples)

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Randomizer that prices all words together, for private coordinates."""
        if self.samples * self.levels == 1:
            return sampled_bit(self.epsilon0, self.dimension)
        return bits_together(self.flips, self.samples)

    @property
    def shuffled_as(self) -> list[tuple[NonAdaptiveRandomizer, int]]:
        """Randomizers that price the words one by one, and the number of words of each."""
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
        """Number of coordinates in each group, shape (s,)."""
        smaller, larger = divmod(self.dimension, self.samples)
        if self.padded:
            return np.full(self.samples, -(-self.dimension // self.samples), dtype=np.int64)
        sizes = np.full(self.samples, smaller, dtype=np.int64)
        sizes[:larger] += 1
        return sizes

    @cached_property
    def _sizes(self) -> IntArray:
        """Number of coordinates among which each word chooses, shape (words,)."""
        return np.tile(self.groups, 1 if self.shared else self.levels)

    @cached_property
    def _starts(self) -> IntArray:
        """First coordinate of each word's group, shape (words,)."""
        ends = np.cumsum(self.groups)
        return np.tile(ends - self.groups, 1 if self.shared else self.levels)

    @property
    def group_slices(self) -> list[slice]:
        """Coordinates of each group, without padding."""
        ends = np.minimum(np.cumsum(self.groups), self.dimension)
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def largest_second_moment(self) -> float:
        """Upper bound on E y_j²/a of every coordinate j of the estimate y."""
        noise, weights = (1 - 2 * np.array(self.flips)) ** -2.0, self._weights
        if self.shared:
            return 1 + float(weights**2 @ (noise - 1))
        return float(weights**2 @ (noise + (0.0 if self.centred else 3.0)))

    @property
    def _word_bits(self) -> int:
        return self.levels if self.shared else 1

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Number of possible values of each word."""
        private = self.public_seed is None
        return tuple((int(a) if private else 1) << self._word_bits for a in self._sizes)

    def encode(
        self, values: NDArray[np.floating], source: Source, first: int = 0, scale: float = 1.0
    ) -> IntArray:
        """Messages of clients whose vectors are ``values`` / ``scale``, clipped to [−1, 1].

        Only the sampled coordinates are read.

        Args:
            values: vectors, shape (n, D).
            source: of all private randomness.
            first: number of the first client; selects public coordinates.
            scale: number by which coordinates are divided, above 0.

        Returns:
            Shape (n, words).
        """
        clients = len(values)
        # The sampled coordinate of each word, relative to its group and absolute.
        local = self._coordinates(clients, source, first)
        places = local + self._starts
        # Its value; a padded coordinate is −1.
        inside = places < self.dimension
        rows = np.arange(clients)[:, None]
        read = values[rows, np.where(inside, places, 0)].astype(np.float64) / scale
        seen = np.where(inside, read, -1.0)
        # Its bits, the last one rounded randomly so that the bits are unbiased.
        means = mean_bits(np.clip(seen, -1.0, 1.0), self.levels)
        bits = means.astype(np.int64)
        bits[..., -1] = rounded_by_chance(means[..., -1], source)
        # With separate coordinates a word keeps the bit of its own level alone.
        if not self.shared:
            level = np.repeat(np.arange(self.levels), self.samples)
            bits = np.take_along_axis(bits, level[None, :, None], axis=2)
        # Flip the bits, the only step on which privacy rests, and write the word.
        bits = self._turned(bits, source)
        words = bits @ (1 << np.arange(self._word_bits - 1, -1, -1, dtype=np.int64))
        return words if self.public_seed is not None else (local << self._word_bits) | words

    def _turned(self, bits: IntArray, source: Source) -> IntArray:
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
            messages: of neighbouring clients, shape (n, words).
            first: number of the first client; selects public coordinates.

        Raises:
            ParameterError: a word that no message has.
        """
        messages = np.asarray(messages, dtype=np.int64).reshape(-1, len(self.radices))
        if np.any(messages < 0) or np.any(messages >= np.array(self.radices)):
            raise ParameterError("messages", "out of range", "words below their radices")
        bits = (messages[..., None] >> np.arange(self._word_bits - 1, -1, -1)) & 1
        if self.public_seed is None:
            local = messages >> self._word_bits
        else:
            local = self._public(self.public_seed, first, len(messages))
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
        """w_k·C_k for each bit of each word, shape (words, bits of a word)."""
        gains = self._weights / (1 - 2 * np.array(self.flips))
        return gains[None, :] if self.shared else np.repeat(gains, self.samples)[:, None]

    @cached_property
    def _shift(self) -> FloatArray | float:
        """Mean 1 − 2p that an uncentred bit has beyond ±1, shape (words, 1); 0 if centred."""
        if self.centred:
            return 0.0
        return np.repeat(1 - 2 * np.array(self.flips), self.samples)[:, None]

    def moments(self, values: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """E y_j² and E y_j of each independent draw of coordinates, two arrays of shape (n, D).

        There is one draw if coordinates are shared, else one for each level. Within a group of a
        draw at most one y_j is not 0.
        """
        weights, noise = self._weights, (1 - 2 * np.array(self.flips)) ** -2.0
        sizes = np.repeat(self.groups, self.groups)[: self.dimension]
        means = 2.0 * mean_bits(values, self.levels) - 1
        if self.shared:
            rounding = weights[-1] ** 2 * (1 - means[..., -1] ** 2)
            second = values**2 + rounding + float(weights**2 @ (noise - 1))
            return [(sizes * second, np.asarray(values))]
        shift = 0.0 if self.centred else 1.0
        found = []
        for k, weight in enumerate(weights):
            second = noise[k] + (2 * means[..., k] + 1) * shift
            found.append((weight**2 * sizes * second, weight * (means[..., k] + shift)))
        return found

    def squared_error(self, values: FloatArray) -> FloatArray:
        """E‖y − x‖² of each client's estimate y for x in [−1, 1]^D, exact; shape (n,)."""
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
        """The largest variance of level k: its mean c is ±1, or interior at the last level."""
        ends = np.array([-1.0, 1.0])
        means = np.broadcast_to(ends, (sizes.size, 2))
        if level == self.levels - 1:
            inner = np.zeros(sizes.size) if self.centred else np.minimum(sizes - 1, 1.0)
            means = np.column_stack([means, inner])
        shift = 0.0 if self.centred else 1.0
        spread = sizes[:, None] * (noise + (2 * means + 1) * shift) - (means + shift) ** 2
        return float(self._weights[level] ** 2 * spread.max(axis=1).sum())

    def probabilities(self, value: FloatArray) -> FloatArray:
        """Probability of each message, most significant word first; sums to 1.

        Args:
            value: in [−1, 1]^D, shape (D,).

        Returns:
            Shape (product of the radices,). The message of words u has the index
            ``numpy.ravel_multi_index(u, radices)``. Public coordinates are those of client 0.

        Raises:
                ParameterError: more than 2²⁰ messages.
        """
        if np.prod(np.array(self.radices, dtype=float)) > _LARGEST_DISTRIBUTION:
            expected = f"at most {_LARGEST_DISTRIBUTION} messages"
            raise ParameterError("radices", self.radices, expected)
        distribution = np.ones(1)
        padded = np.full(int(self.groups.sum()), -1.0)
        padded[: self.dimension] = value
        means = mean_bits(padded, self.levels)
        for word in range(len(self.radices)):
            word_distribution = self._word_distribution(word, means)
            distribution = np.multiply.outer(distribution, word_distribution).ravel()
        return distribution

    def _word_distribution(self, word: int, means: FloatArray) -> FloatArray:
        """Distribution of one word, from the expectations of the bits of each coordinate."""
        start, size = int(self._starts[word]), int(self._sizes[word])
        levels = range(self.levels) if self.shared else [word // self.samples]
        distribution = np.ones((size, 1))
        for level in levels:
            p = self.flips[level]
            one = p + (1 - 2 * p) * means[start : start + size, level]
            both = np.stack([1 - one, one], axis=1)
            distribution = (distribution[:, :, None] * both[:, None, :]).reshape(size, -1)
        if self.public_seed is None:
            return (distribution / size).ravel()
        return distribution[self._public(self.public_seed, 0, 1)[0, word]]


_HALVINGS = 100
_NEWTON_STEPS = 8
_LARGEST = 100.0  # ln sinh(ε/2) of any budget


@lru_cache(maxsize=4096)
def water_filled(epsilon: float, levels: int) -> tuple[float, ...]:
    """The budgets that minimise Σ w_k²·coth²(ε_k/2); they sum to ``epsilon``, shape (m,).

    The sum is convex in (ε_k), so at its minimum all w_k²·coth(ε_k/2)/sinh²(ε_k/2) are equal. For
    small ε this gives ε_k ∝ w_k^{2/3}, the printed shares.

    >>> [round(share, 3) for share in water_filled(1.0, 3)]
    [0.442, 0.279, 0.279]
    """
    checks.positive(epsilon=epsilon)
    checks.count(levels=levels)
    if levels == 1:
        return (epsilon,)
    log_weights = 2 * np.log(bit_weights(levels))

    def paid(price: float) -> bool:
        return not _shares_at(price - log_weights, epsilon).sum() > epsilon

    price = bisected(paid, -1500.0, 1500.0, halvings=_HALVINGS).holding
    shares = _shares_at(price - log_weights, epsilon)
    return tuple(float(share) for share in shares * (epsilon / shares.sum()))


def _shares_at(log_slopes: np.ndarray, most: float) -> np.ndarray:
    """ε with ln(coth(ε/2)/sinh²(ε/2)) as given, at most ``most``; it decreases with ε.

    With s = sinh²(ε/2) that is ½·ln(1 + s) − 3/2·ln s, convex in ln s with a slope between −3/2 and
    −1, so Newton's method reaches the rounding error in a few steps from any start.
    """
    log_s = -log_slopes
    for _ in range(_NEWTON_STEPS):
        excess = 0.5 * np.logaddexp(0.0, log_s) - 1.5 * log_s - log_slopes
        log_s = log_s + excess / (1.5 - 0.5 * expit(log_s))
    return np.minimum(2 * np.arcsinh(np.exp(np.minimum(0.5 * log_s, _LARGEST))), most)


def printed_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    """Printed budgets, in the ratio 4^{−1/3} : 4^{−2/3} : … , the last two equal; shape (m,).

    Source: Algorithm 3.5.1, lines 7 and 11 (girgis2023thesis).
    """
    powers = bit_weights(levels) ** (2 / 3)
    return tuple(float(share) for share in epsilon * powers / powers.sum())


def level_flips(
    epsilon: float, samples: int, levels: int, budgets: tuple[float, ...] | None = None
) -> tuple[float, ...]:
    """Probabilities p_k of the given budgets, or of the best, for ``samples`` coordinates.

    Args:
        epsilon: ε of a message, shared by its coordinates.
        samples: s, number of coordinates.
        levels: m, number of bits of a coordinate.
        budgets: budget of each level of one coordinate; None: `water_filled`.

    Returns:
        p_k with samples·Σ ln((1 − p_k)/p_k) at most ``epsilon``. Budgets that sum to more are
        scaled down.
    """
    shares = [Fraction(share) for share in budgets or water_filled(epsilon / samples, levels)]
    excess = max(Fraction(1), sum(shares, Fraction(0)) * samples / Fraction(epsilon))
    return tuple(flip_probability(_float_below(share / excess)) for share in shares)


def printed_flips(v: float, levels: int, samples: int) -> tuple[float, ...]:
    """Printed probabilities p_k = ½(1 − √(q²/(q² + 4))), with q = v_k/s of the printed budgets.

    Source: Algorithms 3.3.1 and 3.5.1 (girgis2023thesis). Such a bit is 2·asinh(q/2)-private, which
    is less than q, so part of the budget v is never used.
    """
    return tuple(
        flip_probability(2 * math.asinh(v_k / samples / 2)) for v_k in printed_shares(v, levels)
    )


def _float_below(number: Fraction) -> float:
    value = float(number)
    return math.nextafter(value, 0.0) if value > number else value


Variant = Literal["default", "as-printed"]


class BitRandomizer(VectorRandomizer):
    """Base class of randomizers that send sampled bits, in one of two variants.

    Attributes:
        samples: s, number of reported coordinates.
        variant: "default" or "as-printed".
        public_seed: seed of public coordinates, which all parties know; None: coordinates are part
            of the message.
    """

    samples: int
    variant: Variant
    public_seed: int | None

    @property
    @abstractmethod
    def flips(self) -> tuple[float, ...]:
        """Probability p_k that a bit of each level is flipped in this variant."""

    @property
    def in_default_shared(self) -> bool:
        """Whether all levels of the default variant report the same coordinates."""
        return True

    def require_parts(self) -> None:
        """Raise an error unless the variant and its parts fit together.

        Raises:
            ParameterError: an unknown variant, or a part out of range.
        """
        if self.variant not in ("default", "as-printed"):
            raise ParameterError("variant", self.variant, "default or as-printed")
        self.bits  # noqa: B018 its parts are checked here, not at first use

    @cached_property
    def bits(self) -> SampledBits:
        """The form of a message: which coordinates and bits are sent."""
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
    def priced_as(self) -> PureRandomizer:
        """Randomizer that prices a whole message; ε₀ alone with public coordinates."""
        return super().priced_as if self.public_seed is not None else self.bits.priced_as

    @property
    def shuffled_as(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Randomizers that price each word with its own shuffler, and their numbers."""
        return super().shuffled_as if self.public_seed is not None else self.bits.shuffled_as

    @property
    def radices(self) -> tuple[int, ...]:
        """Possible values of each word: 2a or 2^m·a; a = 1 with public coordinates."""
        return self.bits.radices

    @property
    def public_randomness(self) -> str:
        """Description of the public coordinates, if a seed was given."""
        return "none" if self.public_seed is None else "which coordinates each client reports"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, words); see `SampledBits.encode`."""
        return self.bits.encode(self.checked(values), source, first)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the clients' unbiased estimates in units of ``radius``, shape (d,)."""
        return self.bits.total(messages, first)

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message; see `SampledBits.probabilities`."""
        return self.bits.probabilities(self.checked(np.atleast_2d(np.asarray(value)))[0])
