"""Sampled coordinates, each as a few bits flipped at random: the base of ℓ∞ randomizers.

`SampledBits` holds the shape of a message, `BitRandomizer` is the randomizer, `water_filled` shares
a privacy budget over bits of unequal weight.

Notation
    D, s    coordinates, and how many of them a client reports: one of each of s groups
    a       coordinates in a group
    m, w_k  bit levels of a coordinate and their weights: x = Σ w_k·c_k, c_k = ±1, w = ½, ¼, …,
            2^{1−m}, 2^{1−m}; the last bit is rounded by chance, so that E Σ w_k·c_k = x
    ε_k     budget of level k, Σ ε_k = ε
    p_k     probability that a bit of level k is flipped, 1/(1 + e^{ε_k})
    C_k     1/(1 − 2p_k), which undoes that on average

A client's message is a row of words. With shared coordinates a word is one coordinate and its m
bits; with separate ones each level picks its own coordinate and a word has one bit. A level adds
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
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer

_LARGEST_LAW = 1 << 20


def bit_weights(levels: int) -> FloatArray:
    """w_1, …, w_m: ½, ¼, …, the last two equal, so that they sum to 1; shape (levels,)."""
    weights = 2.0 ** -np.arange(1, levels + 1, dtype=np.float64)
    weights[-1] = 2.0 ** (1 - levels)
    return weights


def mean_bits(values: FloatArray, levels: int) -> FloatArray:
    """Bits of values in [−1, 1], most significant first, of the last one the expectation.

    Returns:
        shape (*values.shape, levels).
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
    """Max over x of a·E(Σ w_k·c_k)² − x², of a coordinate in a group of a; shape of ``sizes``.

    Args:
        sizes: a.
        last: w_m. The largest |x| leaves only the last bit open, with mean c, and then it is
            (a − 1)(1 − w_m(1 − c))² + a·w_m²(1 − c²).
    """
    c = np.clip((sizes - 1) * (1 - last) / last, -1.0, 1.0)
    return (sizes - 1) * (1 - last * (1 - c)) ** 2 + sizes * last**2 * (1 - c**2)


@dataclass(frozen=True)
class SampledBits:
    """One client's sampled bits of a vector in [−1, 1]^D.

    Attributes:
        samples: s, from 1 to D.
        flips: p_k of each level, most significant first.
        shared: whether the levels report the same coordinates.
        centred: whether an unbiased ±1 is sent for a bit; else an unbiased 0 or 1, which is
            noisier and is what the printed algorithms do.
        padded: whether D is filled up to a multiple of s with coordinates of −1, as printed.
        public_seed: seed from which everybody knows the coordinates; None: they are sent.
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
        """Bits of a coordinate, m."""
        return len(self.flips)

    @cached_property
    def epsilon0(self) -> float:
        """Exact: reached between all −1 and all +1, whatever coordinates were sampled."""
        return epsilon_of_flips(self.flips, self.samples)

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """The law that prices all words together, if their coordinates are private."""
        if self.samples * self.levels == 1:
            return sampled_bit(self.epsilon0, self.dimension)
        return bits_together(self.flips, self.samples)

    @property
    def laws(self) -> list[tuple[NonAdaptiveRandomizer, int]]:
        """The laws that price the words one by one, and the number of each."""
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
        """Coordinates in each group, shape (s,)."""
        smaller, larger = divmod(self.dimension, self.samples)
        if self.padded:
            return np.full(self.samples, -(-self.dimension // self.samples), dtype=np.int64)
        sizes = np.full(self.samples, smaller, dtype=np.int64)
        sizes[:larger] += 1
        return sizes

    @cached_property
    def _sizes(self) -> IntArray:
        """Coordinates among which each word chooses, shape (words,)."""
        return np.tile(self.groups, 1 if self.shared else self.levels)

    @cached_property
    def _starts(self) -> IntArray:
        """First coordinate of each word's group, shape (words,)."""
        ends = np.cumsum(self.groups)
        return np.tile(ends - self.groups, 1 if self.shared else self.levels)

    @property
    def group_slices(self) -> list[slice]:
        """Coordinates of each group, dummies left out."""
        ends = np.minimum(np.cumsum(self.groups), self.dimension)
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def largest_second_moment(self) -> float:
        """At least every E y_j² over its a."""
        noise, weights = (1 - 2 * np.array(self.flips)) ** -2.0, self._weights
        if self.shared:
            return 1 + float(weights**2 @ (noise - 1))
        return float(weights**2 @ (noise + (0.0 if self.centred else 3.0)))

    @property
    def _word_bits(self) -> int:
        return self.levels if self.shared else 1

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """The number of values of each word."""
        private = self.public_seed is None
        return tuple((int(a) if private else 1) << self._word_bits for a in self._sizes)

    def encode(
        self, values: NDArray[np.floating], source: Source, first: int = 0, scale: float = 1.0
    ) -> IntArray:
        """Messages of clients with these vectors over the scale, clipped to [−1, 1].

        Only the coordinates that are sampled are read. Shape (n, words).
        """
        clients = len(values)
        local = self._coordinates(clients, source, first)
        places = local + self._starts
        inside = places < self.dimension
        rows = np.arange(clients)[:, None]
        read = values[rows, np.where(inside, places, 0)].astype(np.float64) / scale
        seen = np.where(inside, read, -1.0)
        means = mean_bits(np.clip(seen, -1.0, 1.0), self.levels)
        bits = means.astype(np.int64)
        bits[..., -1] = rounded_by_chance(means[..., -1], source)
        if not self.shared:
            level = np.repeat(np.arange(self.levels), self.samples)
            bits = np.take_along_axis(bits, level[None, :, None], axis=2)
        bits = self._turned(bits, source)
        words = bits @ (1 << np.arange(self._word_bits - 1, -1, -1, dtype=np.int64))
        return words if self.public_seed is not None else (local << self._word_bits) | words

    def _turned(self, bits: IntArray, source: Source) -> IntArray:
        """Bits of shape (n, words, bits of a word), each turned over with its level's chance."""
        result = np.empty_like(bits)
        for level, p in enumerate(self.flips):
            where = self._level(level)
            result[where] = flipped(bits[where], p, source)
        return result

    def _level(self, level: int) -> tuple[slice, slice, slice | int]:
        """The position of the bits of a level in an array of shape (n, words, bits of a word)."""
        if self.shared:
            return slice(None), slice(None), level
        words = slice(level * self.samples, (level + 1) * self.samples)
        return slice(None), words, slice(None)

    def _coordinates(self, clients: int, source: Source, first: int) -> IntArray:
        """Which of its group each word reports, shape (n, words)."""
        if self.public_seed is not None:
            return self._public(self.public_seed, first, clients)
        return np.stack([source.below(int(a), clients) for a in self._sizes], axis=1)

    def _public(self, seed: int, first: int, clients: int) -> IntArray:
        return PublicRandomness(seed, "coordinates").below(first, clients, self._sizes)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """The sum of the clients' unbiased vectors, shape (D,)."""
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
        """The offset that an uncentred code adds to ±1: 1 − 2p, shape (words, 1)."""
        if self.centred:
            return 0.0
        return np.repeat(1 - 2 * np.array(self.flips), self.samples)[:, None]

    def moments(self, values: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """E y_j² and E y_j of what each draw of coordinates says, shapes (n, D).

        There is one draw if coordinates are shared, else one a level. Draws are independent, and
        within a group of a draw at most one y_j is not 0.
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
        """E‖y − x‖² of each client with x in [−1, 1]^D, exact; shape (n,)."""
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
        """The worst variance of level k: its mean c is ±1, or between at the last level."""
        ends = np.array([-1.0, 1.0])
        means = np.broadcast_to(ends, (sizes.size, 2))
        if level == self.levels - 1:
            inner = np.zeros(sizes.size) if self.centred else np.minimum(sizes - 1, 1.0)
            means = np.column_stack([means, inner])
        shift = 0.0 if self.centred else 1.0
        spread = sizes[:, None] * (noise + (2 * means + 1) * shift) - (means + shift) ** 2
        return float(self._weights[level] ** 2 * spread.max(axis=1).sum())

    def probabilities(self, value: FloatArray) -> FloatArray:
        """Probability of each message, words in order of significance; sums to 1.

        Args:
            value: in [−1, 1], shape (D,).

        Returns:
            shape (product of the radices,); the message with words u has the index that
            ``numpy.ravel_multi_index(u, radices)`` gives. Public coordinates are client 0's.
        """
        if np.prod(np.array(self.radices, dtype=float)) > _LARGEST_LAW:
            raise ParameterError("radices", self.radices, f"at most {_LARGEST_LAW} messages")
        law = np.ones(1)
        padded = np.full(int(self.groups.sum()), -1.0)
        padded[: self.dimension] = value
        means = mean_bits(padded, self.levels)
        for word in range(len(self.radices)):
            law = np.multiply.outer(law, self._word_law(word, means)).ravel()
        return law

    def _word_law(self, word: int, means: FloatArray) -> FloatArray:
        """Law of one word, from the expectations of every coordinate's bits."""
        start, size = int(self._starts[word]), int(self._sizes[word])
        levels = range(self.levels) if self.shared else [word // self.samples]
        law = np.ones((size, 1))
        for level in levels:
            p = self.flips[level]
            one = p + (1 - 2 * p) * means[start : start + size, level]
            law = (law[:, :, None] * np.stack([1 - one, one], axis=1)[:, None, :]).reshape(size, -1)
        if self.public_seed is None:
            return (law / size).ravel()
        return law[self._public(self.public_seed, 0, 1)[0, word]]


_HALVINGS = 100
_NEWTON_STEPS = 8
_LARGEST = 100.0  # ln sinh(ε/2) of any budget


@lru_cache(maxsize=4096)
def water_filled(epsilon: float, levels: int) -> tuple[float, ...]:
    """The budgets that make Σ w_k²·coth²(ε_k/2) least; they sum to ``epsilon``.

    The sum is convex in (ε_k), so at its least all w_k²·coth(ε_k/2)/sinh²(ε_k/2) are equal. For
    small ε that gives ε_k ∝ w_k^{2/3}, the printed shares.

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
    """ε with ln(coth(ε/2)/sinh²(ε/2)) as given, at most ``most``; it falls with ε.

    With s = sinh²(ε/2) that is ½·ln(1 + s) − 3/2·ln s, convex in ln s with a slope between −3/2
    and −1, so that Newton's method is at rounding error after a few steps from anywhere.
    """
    log_s = -log_slopes
    for _ in range(_NEWTON_STEPS):
        excess = 0.5 * np.logaddexp(0.0, log_s) - 1.5 * log_s - log_slopes
        log_s = log_s + excess / (1.5 - 0.5 * expit(log_s))
    return np.minimum(2 * np.arcsinh(np.exp(np.minimum(0.5 * log_s, _LARGEST))), most)


def printed_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    """Budgets in the ratio 4^{−1/3} : 4^{−2/3} : … , the last two equal.

    Source: Algorithm 3.5.1, lines 7 and 11 (girgis2023thesis).
    """
    powers = bit_weights(levels) ** (2 / 3)
    return tuple(float(share) for share in epsilon * powers / powers.sum())


def level_flips(
    epsilon: float, samples: int, levels: int, budgets: tuple[float, ...] | None = None
) -> tuple[float, ...]:
    """p_k of the best budgets, or of those given, where ``samples`` coordinates share ε.

    Returns:
        p_k with samples·Σ ln((1 − p_k)/p_k) at most ``epsilon``; budgets that sum to more are
        scaled down.
    """
    shares = [Fraction(share) for share in budgets or water_filled(epsilon / samples, levels)]
    excess = max(Fraction(1), sum(shares, Fraction(0)) * samples / Fraction(epsilon))
    return tuple(flip_probability(_float_below(share / excess)) for share in shares)


def printed_flips(v: float, levels: int, samples: int) -> tuple[float, ...]:
    """p_k = ½(1 − √(q²/(q² + 4))), q = v_k/s, of the printed budgets.

    Source: Algorithms 3.3.1 and 3.5.1 (girgis2023thesis). Such a bit is 2·asinh(q/2)-private,
    less than the q that it is charged, so part of the budget v is never used.
    """
    return tuple(
        flip_probability(2 * math.asinh(v_k / samples / 2)) for v_k in printed_shares(v, levels)
    )


def _float_below(number: Fraction) -> float:
    value = float(number)
    return math.nextafter(value, 0.0) if value > number else value


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
    def priced_as(self) -> PureRandomizer:
        """The law that prices a whole message, see `SampledBits.law`."""
        return super().priced_as if self.public_seed is not None else self.bits.priced_as

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
