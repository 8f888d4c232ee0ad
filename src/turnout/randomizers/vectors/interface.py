"""Interface of randomizers of vectors, public randomness, and bits flipped at random.

`VectorRandomizer` is the interface: it encodes the vectors of a block of clients and estimates
their sum. `PublicRandomness` gives clients and server the same random words from one public seed.
Privacy does not depend on these words, but they must be independent of every client's data, so the
seed is published before the data exist. `flipped` flips bits with exact probabilities;
`sampled_bit` and `bits_together` return the accountant's randomizers of such bits.

Notation of flips
    p   probability that a bit is flipped, a multiple of 2⁻⁶² that a float represents exactly
    ε   privacy level of one bit, ln((1 − p)/p)

`Source.bernoulli` draws with such a p exactly. Changes of a bit before it is flipped (random
rounding, float errors) cannot weaken privacy: for every input the bit that is sent is 1 with a
probability in [p, 1 − p].
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import (
    check_level,
    exponential_below,
    level_above,
    on_grid_above,
    randomizer_within,
)
from turnout.randomizers.packing import (
    bits_for,
    histogram_bits,
    pack_fields,
    pack_histogram,
    unpack_fields,
    unpack_histogram,
)
from turnout.randomness import Source
from turnout.schemes.randomizers import (
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    SampledBitResponse,
)

_ROUNDING = 1e-9  # relative excess of a norm over the radius that is accepted as rounding


class VectorRandomizer(ABC):
    """Randomizer of one client's vector; the server estimates the sum of vectors from the messages.

    Guarantees:
        `encode` is `epsilon0`-private for one client's whole message (local model, replacement),
        for every vector and whatever float errors occur before bits are drawn. `mean` of the
        expectation of `total` is the mean of the clients' vectors plus `bias`.

    Attributes:
        dimension: number of coordinates of a vector.
        radius: largest norm of a vector, in the randomizer's ℓp norm.
        norm: p of that norm.
        dtype: floating-point type in which `encode` reads vectors; it does not affect privacy.
    """

    dimension: int
    radius: float
    norm: ClassVar[float]
    dtype: ClassVar[type[np.floating]] = np.float64

    @property
    @abstractmethod
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of one client's whole message, rounded up by less than one ulp."""

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a whole message.

        With public randomness clients use different randomizers, so that only ε₀ is known.
        """
        return PureRandomizer(self.epsilon0)

    @property
    def shuffled_as(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Accountant's randomizers of a message's parts, if each part has its own shuffler.

        Each randomizer is returned with the number of parts to which it applies.
        """
        return [(self.priced_as, 1)]

    @property
    @abstractmethod
    def radices(self) -> tuple[int, ...]:
        """Number of values of each number in a message, shape (numbers of a message,)."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of bits of each number in a message, shape (numbers of a message,)."""
        return tuple(bits_for(radix) for radix in self.radices)

    @property
    def message_bits(self) -> int:
        """Number of bits of one client's message, without public randomness."""
        return sum(self.widths)

    @property
    def total_size(self) -> int:
        """Number of entries of the array that `total` returns."""
        return self.dimension

    @property
    def public_randomness(self) -> str:
        """Description of the public randomness that clients and server share; "none" without it."""
        return "none"

    @abstractmethod
    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> NDArray:
        """Messages of a block of clients, shape (n, numbers of a message).

        Args:
            values: vectors, shape (n, dimension), each of norm at most ``radius``.
            source: source of all private randomness.
            first: number of the block's first client; selects the public randomness.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """

    def encode_updates(self, updates: NDArray[np.floating], source: Source) -> NDArray:
        """Messages of updates of any norm, shape (n, numbers of a message).

        The updates, of shape (n, dimension), are first scaled by `constrained`.
        """
        return self.encode(self.constrained(updates), source)

    def constrained(self, updates: NDArray[np.floating]) -> NDArray[np.floating]:
        """Updates scaled down to norms of at most `radius`, shape (n, dimension), of `dtype`.

        A row with an entry that is not finite becomes zero. For ℓ∞ each coordinate is clipped; for
        other norms the whole vector is scaled down.
        """
        # For ℓ∞, clip. For other norms, compute each row's norm.
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.asarray(updates, dtype=self.dtype)
            if self.norm == np.inf:
                return np.clip(finite_rows(rows), -self.radius, self.radius)
            squared = self.norm == 2
            sizes = np.einsum("ij,ij->i", rows, rows) if squared else np.abs(rows).sum(axis=1)
        norms = (np.sqrt(sizes) if squared else sizes).astype(np.float64)
        # Replace rows whose norm is not finite by zeros.
        finite = np.isfinite(norms)
        if not finite.all():
            rows, norms = np.where(finite[:, None], rows, 0), np.where(finite, norms, 1.0)
        # Scale rows whose norm is above the radius; the lower limit avoids a division by zero.
        factors = np.minimum(1.0, self.radius / np.maximum(norms, 1e-300))
        return rows * factors.astype(rows.dtype)[:, None]

    @abstractmethod
    def total(self, messages: NDArray, first: int = 0) -> FloatArray:
        """Sum of the unbiased estimates from all messages, shape (`total_size`,).

        The sums of several blocks of clients may be added.

        Args:
            messages: messages of clients with successive numbers, shape (n, numbers of a message).
            first: number of the block's first client; selects the public randomness.
        """

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (dimension,), from the `total` over all clients.

        Args:
            total: sum of `total` over all blocks of clients, shape (`total_size`,).
            clients: number of clients n, at least 1.
        """
        return total / clients

    @abstractmethod
    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − E y‖₂² of the estimate y from each client's message, shape (n,)."""

    @property
    @abstractmethod
    def worst_squared_error(self) -> float:
        """The largest E‖y − E y‖₂² over all vectors of norm at most ``radius``."""

    def bias(self, values: ArrayLike) -> FloatArray:
        """The bias of the estimated mean, shape (dimension,)."""
        return np.zeros(self.dimension)

    @property
    def worst_squared_bias(self) -> float:
        """Upper bound on E‖bias‖₂² over all vectors, for any number of clients.

        The expectation is over the public randomness, which is independent of the vectors.
        """
        return 0.0

    def mse_bound(self, clients: int) -> float:
        """Upper bound on E‖estimate − mean‖₂² over all vectors of n clients, bias included."""
        return self.worst_squared_error / clients + self.worst_squared_bias

    def mean_squared_error(self, values: ArrayLike) -> float:
        """Exact E‖estimate − mean‖₂² for these clients, given the public randomness."""
        errors = self.squared_error(values)
        return float(errors.sum() / len(errors) ** 2 + np.sum(self.bias(values) ** 2))

    def pack(self, messages: NDArray) -> bytes:
        """Messages of shape (n, …) as bytes: `message_bits` bits for each, without gaps."""
        return pack_fields(messages, self.widths)

    def unpack(self, data: bytes, clients: int) -> NDArray:
        """The messages that `pack` packed, shape (clients, numbers of a message).

        Raises:
            ParameterError: a wrong number of bytes, or a number out of range.
        """
        return unpack_fields(data, clients, self.radices)

    def histogram_bits(self, count: int) -> int:
        """Number of bits of ``count`` messages of one client, packed without their order."""
        return self.message_bits if count == 1 else histogram_bits(math.prod(self.radices), count)

    def pack_histogram(self, messages: NDArray) -> bytes:
        """One client's messages, of shape (n, …), as bytes that do not reveal the messages' order.

        Raises:
            ParameterError: a number out of range.
        """
        # Write each message as one whole number, then pack the numbers as a histogram.
        words = []
        for row in np.asarray(messages).reshape(len(messages), -1).tolist():
            word = 0
            for number, radix in zip(row, self.radices, strict=True):
                if not 0 <= number < radix:
                    raise ParameterError("messages", number, f"numbers from 0 to {radix - 1}")
                word = word * radix + number
            words.append(word)
        return pack_histogram(words, math.prod(self.radices))

    def unpack_histogram(self, data: bytes, count: int) -> NDArray:
        """The messages that `pack_histogram` packed, sorted; shape (count, numbers of a message).

        Raises:
            ParameterError: ``data`` is not a packed histogram of ``count`` messages.
        """
        # Split each whole number into the numbers of its message, the last one first.
        rows = []
        for word in unpack_histogram(data, math.prod(self.radices), count):
            row: list[int] = []
            for radix in reversed(self.radices):
                word, number = divmod(word, radix)  # noqa: PLW2901
                row.append(number)
            rows.append(row[::-1])
        return np.array(rows, dtype=np.int64)

    def single_words(self, messages: NDArray) -> IntArray:
        """Messages that have one number each, as an array of shape (n,).

        Raises:
            ParameterError: a number out of range.
        """
        words = np.asarray(messages, dtype=np.int64).reshape(-1)
        wrong = words[(words < 0) | (words >= self.radices[0])]
        if wrong.size:
            expected = f"numbers from 0 to {self.radices[0] - 1}"
            raise ParameterError("messages", int(wrong[0]), expected)
        return words

    def require_shape(self, values: NDArray[np.floating]) -> None:
        """Raise an error unless ``values`` has shape (clients, dimension).

        Raises:
            ParameterError: any other shape.
        """
        if values.ndim != 2 or values.shape[1] != self.dimension:
            given = f"array of shape {values.shape}"
            raise ParameterError("values", given, f"shape (clients, {self.dimension})")

    def checked(self, values: ArrayLike) -> FloatArray:
        """The vectors divided by the radius, as floats of shape (n, dimension).

        Raises:
            ParameterError: a wrong shape, a value that is not finite, or a norm above the radius.
        """
        vectors = np.asarray(values, dtype=np.float64)
        self.require_shape(vectors)
        sizes = np.linalg.norm(vectors, ord=self.norm, axis=1) / self.radius
        if not np.all(sizes <= 1 + _ROUNDING):
            largest = float(np.max(sizes)) * self.radius
            given = f"a vector of norm {largest:g}"
            raise ParameterError("values", given, f"norms of at most {self.radius:g}")
        return vectors / (self.radius * np.maximum(sizes, 1.0))[:, None]


def finite_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows, shape (n, d); a row with a value that is not finite is replaced by zeros."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.sum(axis=1, dtype=np.float64))
    return rows if finite.all() else np.where(finite[:, None], rows, 0)


_WORDS = 4  # number of 64-bit words that Philox returns for one value of its counter


@dataclass(frozen=True, slots=True)
class PublicRandomness:
    """Public random 64-bit words, each determined by seed, label, client and position.

    The words do not depend on the order in which clients are processed, nor on the size of blocks.

    Source: Philox 4×64 (Salmon, Moraes, Dror and Shaw 2011), whose output NumPy keeps stable.

    Attributes:
        seed: public seed, at least 0.
        label: purpose of the words; different labels give independent words.

    Raises:
        ParameterError: ``seed`` is not a whole number of at least 0.
    """

    seed: int
    label: str

    def __post_init__(self) -> None:
        checks.count(0, seed=self.seed)

    def words(self, first: int, clients: int, per_client: int) -> NDArray[np.uint64]:
        """Random words of clients with successive numbers, shape (clients, per_client).

        Args:
            first: number of the first client.
            clients: number of clients.
            per_client: number of words for each client.
        """
        steps = -(-per_client // _WORDS)
        philox = np.random.Philox(key=self._key(), counter=first * steps)
        raw = philox.random_raw(clients * steps * _WORDS)
        return raw.reshape(clients, steps * _WORDS)[:, :per_client]

    def chosen_words(
        self, clients: NDArray[np.int64], parts: NDArray[np.int64], part_words: int, all_parts: int
    ) -> NDArray[np.uint64]:
        """One part of the random words of each given client, shape (len(clients), part_words).

        The words of a client are divided into ``all_parts`` parts of ``part_words`` words.

        Args:
            clients: numbers of the clients, shape (n,).
            parts: number of the part for each client, from 0 to ``all_parts`` − 1, shape (n,).
            part_words: number of words in a part, a multiple of 4.
            all_parts: number of parts of each client.
        """
        # Start the generator at the counter of each part.
        steps = part_words // _WORDS
        philox, key = np.random.Philox, self._key()
        found = np.empty((len(clients), part_words), dtype=np.uint64)
        starts = (clients.astype(object) * all_parts + parts) * steps
        for row, start in enumerate(starts):
            found[row] = philox(key=key, counter=start).random_raw(part_words)
        return found

    def below(self, first: int, clients: int, limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers from 0 to each limit − 1, uniform up to 2⁻⁵³; shape (clients, len(limits))."""
        uniform = (self.words(first, clients, len(limits)) >> np.uint64(11)) * 2.0**-53
        return np.minimum((uniform * limits).astype(np.int64), limits - 1)

    def _key(self) -> int:
        text = f"{self.seed}|{self.label}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def normals(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Two standard normal numbers from each word, by the Box–Muller method, shape (…, 2·words).

    The normal numbers are computed from uniform numbers of 32 bits, so no absolute value exceeds
    6.7. Normalised vectors of such numbers are uniform on the sphere to about 1e-7.
    """
    # Two uniform numbers from each word: the lower and the upper half of its bits.
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape[:-1], -1, 2)
    first = (halves[..., 0].astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2.0) * np.log(np.minimum(first, np.float32(1 - 2.0**-24))))
    angle = halves[..., 1].astype(np.float32) * np.float32(2 * np.pi * 2.0**-32)
    # The Cartesian coordinates of a point with this radius and angle.
    result = np.empty((*words.shape[:-1], 2 * words.shape[-1]), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=result[..., 0::2])
    np.multiply(radius, np.sin(angle), out=result[..., 1::2])
    return result


def mixed_words(seeds: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """The first ``count`` pseudo-random words of each seed, shape (len(seeds), count).

    The function is fast for many seeds at once. The words are public and must not be used for
    privacy.

    Source: SplitMix64 (Steele, Lea and Flood 2014), started at a hash of the seed, so that
        successive seeds do not give shifted copies of the same words.
    """
    with np.errstate(over="ignore"):
        starts = _mixed(seeds.astype(np.uint64) * _ODD + _ODD)
        return _mixed(starts[:, None] + _ODD * np.arange(1, count + 1, dtype=np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The words after the bijective mixing function of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


_STEPS = 2**32  # steps of the probabilities in random rounding, which does not affect privacy
_MOST_OUTCOMES, _MOST_BITS = 1 << 16, 500  # largest problem for which a total variation is summed
_SUM_ROUNDING = 1e-12  # allowance for the rounding error of such a sum


def flip_probability(epsilon: float) -> float:
    """The smallest representable flip probability p of a bit for which the bit is ε-private.

    Args:
        epsilon: above 0, at most 30, in nats.

    Returns:
        p in (0, ½] with ln((1 − p)/p) at most ``epsilon``, so the bit is never less private than
        requested. p exceeds 1/(1 + e^ε) by at most 2⁻⁶² plus one rounding of a float.

    Raises:
        ParameterError: ``epsilon`` outside the domain of randomizers.
    """
    check_level(epsilon)
    exact = on_grid_above(1 / (1 + exponential_below(epsilon)))
    p = float(exact)
    # The next float above p is a multiple of 2⁻⁶² as well, since floats of this size are.
    return math.nextafter(p, 1.0) if p < exact else p


def flip_ratio(p: float) -> Fraction:
    """The exact ratio (1 − p)/p."""
    return (1 - Fraction(p)) / Fraction(p)


def ratio_of_flips(flips: Iterable[float], times: int = 1) -> Fraction:
    """Exact e^ε₀ of a message of bits flipped with these probabilities, ``times`` bits with each.

    Args:
        flips: probability that each bit is flipped, in (0, ½].
        times: number of bits with each of these probabilities.
    """
    return math.prod((flip_ratio(p) for p in flips), start=Fraction(1)) ** times


def epsilon_of_flips(flips: Iterable[float], times: int = 1) -> float:
    """ε₀ of a message of bits flipped with these probabilities, ``times`` each; rounded up.

    Args:
        flips: probability that each bit is flipped, in (0, ½].
        times: number of bits with each of these probabilities.
    """
    return level_above(ratio_of_flips(flips, times))


def sampled_bit(epsilon0: float, coordinates: int) -> NonAdaptiveRandomizer:
    """Accountant's randomizer of a message with a uniform coordinate and its ε₀-private bit.

    Args:
        epsilon0: ε₀ of the bit, in nats.
        coordinates: number of coordinates.
    """
    return KaryResponse(epsilon0, 2) if coordinates == 1 else SampledBitResponse(epsilon0)


def bits_together(flips: tuple[float, ...], samples: int) -> NonAdaptiveRandomizer:
    """Accountant's randomizer of one message with ``samples`` coordinates and their flipped bits.

    Args:
        flips: probability that the k-th bit of a coordinate is flipped, for each k, shape (m,).
        samples: number of coordinates in the message.
    """
    apart = opposite_words_apart(flips, samples)
    return randomizer_within(epsilon_of_flips(flips, samples), apart)


@lru_cache(maxsize=1024)
def opposite_words_apart(flips: tuple[float, ...], samples: int) -> float:
    """Largest total variation between two rows of bits after each bit is flipped at random.

    Two rows that differ in every bit have this distance; mixtures of rows have no larger distance.

    Args:
        flips: flip probability of the k-th bit of a coordinate, for each k, in (0, ½], shape (m,).
        samples: number of coordinates, each with m bits.

    Returns:
        Never below the true total variation; 1 if there are too many bits to compute it.

    >>> round(opposite_words_apart((0.25,), 2), 9)  # (0.75² − 0.25²), as outcomes 01, 10 are equal
    0.5
    """
    # Bits with the same p are exchangeable: only how many of them are flipped matters.
    counts = Counter(flips)
    outcomes = math.prod(samples * count + 1 for count in counts.values())
    if outcomes > _MOST_OUTCOMES or samples * len(flips) > _MOST_BITS:
        return 1.0
    # Joint distribution of these numbers under the first row of bits, and under the second, where
    # a flipped bit is an unflipped one: its table is the same in reverse order.
    first, second = np.ones(1), np.ones(1)
    for p, count in counts.items():
        number = samples * count
        flipped_bits = np.arange(number + 1)
        ways = np.array([float(math.comb(number, k)) for k in range(number + 1)])
        distribution = ways * p**flipped_bits * (1.0 - p) ** (number - flipped_bits)
        first = np.outer(first, distribution).ravel()
        second = np.outer(second, distribution[::-1]).ravel()
    # The total variation, with an allowance for rounding.
    return min(float(np.maximum(first - second, 0.0).sum()) + _SUM_ROUNDING, 1.0)


def flipped(bits: NDArray[np.int64], p: float, source: Source) -> NDArray[np.int64]:
    """The bits after each is flipped independently with probability ``p``; shape of ``bits``."""
    return bits ^ source.bernoulli(p, bits.size).reshape(bits.shape)


def rounded_by_chance(chances: NDArray[np.float64], source: Source) -> NDArray[np.int64]:
    """Random bits that are 1 with the given probabilities to 2⁻³²; same shape as ``chances``.

    Only the rounding of values before bits are flipped may use this function: privacy does not
    depend on such rounding.
    """
    thresholds = np.rint(np.clip(chances, 0.0, 1.0) * _STEPS).astype(np.int64)
    result = (thresholds == _STEPS).astype(np.int64)
    # Draw only where the probability is neither 0 nor 1.
    open_ = (thresholds > 0) & (thresholds < _STEPS)
    drawn = source.below(_STEPS, int(np.count_nonzero(open_)))
    result[open_] = drawn < thresholds[open_]
    return result
