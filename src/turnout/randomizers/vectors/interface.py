"""Interface of randomizers of vectors, public randomness, and bits flipped at random.

`VectorRandomizer` encodes blocks of clients and returns unbiased sums. `PublicRandomness` gives
clients and server the same words from one public seed. It carries no privacy: it must be equal on
both sides and independent of every client's data, so the seed is published before the data exist.
`flipped`, `sampled_bit` and `bits_together` flip bits with exact probabilities and price them.

Notation of flips
    p   probability that a bit is flipped, a multiple of 2⁻⁶² that a float holds
    ε   of one bit, ln((1 − p)/p)

`Source.bernoulli` realises such a p exactly. Other changes of a bit before it is flipped (random
rounding, float errors) do no harm: for every input the bit that is sent is 1 with a probability in
[p, 1 − p].
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

_ROUNDING = 1e-9  # how far above the radius a norm may lie and count as rounding


class VectorRandomizer(ABC):
    """A client's vector becomes one message; the server sums the vectors that messages stand for.

    Guarantees:
        `encode` is `epsilon0`-private for one client's whole message (local model, replacement),
        for every vector, and whatever float errors occur before bits are drawn.
        `mean` of the expectation of `total` is the mean of the clients' vectors plus `bias`.

    Attributes:
        dimension: coordinates of a vector.
        radius: largest norm of a vector, in the randomizer's norm.
        norm: p of that norm.
        dtype: of the vectors that `encode` reads; privacy never rests on floats.
    """

    dimension: int
    radius: float
    norm: ClassVar[float]
    dtype: ClassVar[type[np.floating]] = np.float64

    @property
    @abstractmethod
    def epsilon0(self) -> float:
        """ε₀ of one client's whole message, rounded up by less than an ulp."""

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer that prices a whole message: by ε₀ alone where public randomness is used."""
        return PureRandomizer(self.epsilon0)

    @property
    def shuffled_as(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Randomizers that price the parts of a message with a shuffler each, and their numbers."""
        return [(self.priced_as, 1)]

    @property
    @abstractmethod
    def radices(self) -> tuple[int, ...]:
        """Number of possible values of each number of a message."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each number of a message."""
        return tuple(bits_for(radix) for radix in self.radices)

    @property
    def message_bits(self) -> int:
        """Bits of one client's message, without public randomness."""
        return sum(self.widths)

    @property
    def total_size(self) -> int:
        """Number of entries of `total`."""
        return self.dimension

    @property
    def public_randomness(self) -> str:
        """Description of the public randomness that clients and server share beforehand."""
        return "none"

    @abstractmethod
    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> NDArray:
        """Messages of a block of clients, shape (n, numbers of a message).

        Args:
            values: vectors, shape (n, dimension), each of norm at most ``radius``.
            source: of all private randomness.
            first: number of the block's first client; selects the public randomness.
        """

    def encode_updates(self, updates: NDArray[np.floating], source: Source) -> NDArray:
        """Messages of updates of any norm, shape (n, dimension): `encode` of `constrained`."""
        return self.encode(self.constrained(updates), source)

    def constrained(self, updates: NDArray[np.floating]) -> NDArray[np.floating]:
        """Updates scaled into the radius, shape (n, dimension), of `dtype`.

        A row with an entry that is not finite becomes zero. For ℓ∞ each coordinate is clipped; for
        other norms the whole vector is scaled down.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.asarray(updates, dtype=self.dtype)
            if self.norm == np.inf:
                return np.clip(finite_rows(rows), -self.radius, self.radius)
            squared = self.norm == 2
            sizes = np.einsum("ij,ij->i", rows, rows) if squared else np.abs(rows).sum(axis=1)
        norms = (np.sqrt(sizes) if squared else sizes).astype(np.float64)
        finite = np.isfinite(norms)
        if not finite.all():
            rows, norms = np.where(finite[:, None], rows, 0), np.where(finite, norms, 1.0)
        factors = np.minimum(1.0, self.radius / np.maximum(norms, 1e-300))
        return rows * factors.astype(rows.dtype)[:, None]

    @abstractmethod
    def total(self, messages: NDArray, first: int = 0) -> FloatArray:
        """Sum of the vectors that messages stand for; the sums of several blocks add up.

        Args:
            messages: of neighbouring clients, shape (n, numbers of a message).
            first: number of the block's first client; selects the public randomness.
        """

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (dimension,), from the sum over all clients."""
        return total / clients

    @abstractmethod
    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − E y‖₂² of the vector y that each client's message stands for, exact; shape (n,)."""

    @property
    @abstractmethod
    def worst_squared_error(self) -> float:
        """The largest E‖y − E y‖₂² over all vectors of norm at most ``radius``."""

    def bias(self, values: ArrayLike) -> FloatArray:
        """The bias of the estimated mean, shape (dimension,)."""
        return np.zeros(self.dimension)

    @property
    def worst_squared_bias(self) -> float:
        """Upper bound on E‖bias‖₂² over all vectors; more clients do not lower it.

        The expectation is over public randomness, on which the vectors do not depend.
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
        """Bytes of messages of shape (n, …): `message_bits` each, without gaps."""
        return pack_fields(messages, self.widths)

    def unpack(self, data: bytes, clients: int) -> NDArray:
        """The messages that `pack` packed.

        Raises:
            ParameterError: another number of messages, or a number that no message has.
        """
        return unpack_fields(data, clients, self.radices)

    def histogram_bits(self, count: int) -> int:
        """Bits of ``count`` messages of one client, serialised without their order."""
        return self.message_bits if count == 1 else histogram_bits(math.prod(self.radices), count)

    def pack_histogram(self, messages: NDArray) -> bytes:
        """Bytes of one client's messages, of shape (n, …), without their order."""
        words = []
        for row in np.asarray(messages).reshape(len(messages), -1).tolist():
            word = 0
            for number, radix in zip(row, self.radices, strict=True):
                if not 0 <= number < radix:
                    raise ParameterError("messages", number, f"numbers below {radix}")
                word = word * radix + number
            words.append(word)
        return pack_histogram(words, math.prod(self.radices))

    def unpack_histogram(self, data: bytes, count: int) -> NDArray:
        """The messages that `pack_histogram` packed, sorted; shape (count, numbers of a message).

        Raises:
            ParameterError: bytes that are no histogram of ``count`` messages.
        """
        rows = []
        for word in unpack_histogram(data, math.prod(self.radices), count):
            row: list[int] = []
            for radix in reversed(self.radices):
                word, number = divmod(word, radix)  # noqa: PLW2901
                row.append(number)
            rows.append(row[::-1])
        return np.array(rows, dtype=np.int64)

    def single_words(self, messages: NDArray) -> IntArray:
        """Messages of one number each as an array of shape (n,).

        Raises:
            ParameterError: a number that no message has.
        """
        words = np.asarray(messages, dtype=np.int64).reshape(-1)
        if np.any(words < 0) or np.any(words >= self.radices[0]):
            raise ParameterError("messages", "out of range", f"numbers below {self.radices[0]}")
        return words

    def require_shape(self, values: NDArray[np.floating]) -> None:
        """Raise an error unless ``values`` has shape (clients, dimension).

        Raises:
            ParameterError: any other shape.
        """
        if values.ndim != 2 or values.shape[1] != self.dimension:
            raise ParameterError("values", values.shape, f"shape (clients, {self.dimension})")

    def checked(self, values: ArrayLike) -> FloatArray:
        """The vectors as floats, scaled to norm at most 1; shape (n, dimension).

        Raises:
            ParameterError: another shape, a value that is not finite, or a norm above the radius.
        """
        vectors = np.asarray(values, dtype=np.float64)
        self.require_shape(vectors)
        sizes = np.linalg.norm(vectors, ord=self.norm, axis=1) / self.radius
        if not np.all(sizes <= 1 + _ROUNDING):
            largest = float(np.max(sizes)) * self.radius
            raise ParameterError("values", largest, f"norms of at most {self.radius:g}")
        return vectors / (self.radius * np.maximum(sizes, 1.0))[:, None]


def finite_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows, shape (n, d), with zeros for each row that has a value that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.sum(axis=1, dtype=np.float64))
    return rows if finite.all() else np.where(finite[:, None], rows, 0)


_WORDS = 4  # words of one step of Philox's counter


@dataclass(frozen=True, slots=True)
class PublicRandomness:
    """Random words determined by (seed, label, client, position), in any order and any blocks.

    Source: Philox 4×64 (Salmon, Moraes, Dror and Shaw 2011), whose stream NumPy keeps stable.

    Attributes:
        seed: at least 0; public.
        label: purpose of the words; different labels give independent words.
    """

    seed: int
    label: str

    def __post_init__(self) -> None:
        checks.count(0, seed=self.seed)

    def words(self, first: int, clients: int, per_client: int) -> NDArray[np.uint64]:
        """Words of neighbouring clients, shape (clients, per_client).

        Args:
            first: number of the first client.
            clients: number of clients.
            per_client: words of each client.
        """
        steps = -(-per_client // _WORDS)
        philox = np.random.Philox(key=self._key(), counter=first * steps)
        raw = philox.random_raw(clients * steps * _WORDS)
        return raw.reshape(clients, steps * _WORDS)[:, :per_client]

    def chosen_words(
        self, clients: NDArray[np.int64], parts: NDArray[np.int64], part_words: int, all_parts: int
    ) -> NDArray[np.uint64]:
        """One part of the words of each given client, shape (len(clients), part_words).

        Args:
            clients: numbers of the clients, shape (n,).
            parts: part of each client's words, from 0 to ``all_parts`` − 1, shape (n,).
            part_words: words in a part, a multiple of 4.
            all_parts: number of parts of each client.
        """
        steps = part_words // _WORDS
        philox, key = np.random.Philox, self._key()
        found = np.empty((len(clients), part_words), dtype=np.uint64)
        starts = (clients.astype(object) * all_parts + parts) * steps
        for row, start in enumerate(starts):
            found[row] = philox(key=key, counter=start).random_raw(part_words)
        return found

    def below(self, first: int, clients: int, limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers below each limit, uniform to 2⁻⁵³, shape (clients, len(limits))."""
        uniform = (self.words(first, clients, len(limits)) >> np.uint64(11)) * 2.0**-53
        return np.minimum((uniform * limits).astype(np.int64), limits - 1)

    def _key(self) -> int:
        text = f"{self.seed}|{self.label}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def normals(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Two standard normal numbers for each word, by Box and Muller, shape (…, 2·words).

    Each is computed from two 32-bit uniforms, so none exceeds 6.7; directions made of them are
    uniform on the sphere to about 1e-7.
    """
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape[:-1], -1, 2)
    first = (halves[..., 0].astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2.0) * np.log(np.minimum(first, np.float32(1 - 2.0**-24))))
    angle = halves[..., 1].astype(np.float32) * np.float32(2 * np.pi * 2.0**-32)
    result = np.empty((*words.shape[:-1], 2 * words.shape[-1]), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=result[..., 0::2])
    np.multiply(radius, np.sin(angle), out=result[..., 1::2])
    return result


def mixed_words(seeds: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """The first ``count`` words of each seed's stream, shape (len(seeds), count).

    Source: SplitMix64 (Steele, Lea and Flood 2014), started at the mixed seed, so that neighbouring
    seeds share no words. Use it for many seeds at once; it carries no privacy.
    """
    with np.errstate(over="ignore"):
        starts = _mixed(seeds.astype(np.uint64) * _ODD + _ODD)
        return _mixed(starts[:, None] + _ODD * np.arange(1, count + 1, dtype=np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


_COIN = 2**32  # resolution of coins on which only accuracy rests
_MOST_OUTCOMES, _MOST_BITS = 1 << 16, 500  # of words whose total variation is summed
_SUM_ROUNDING = 1e-12  # of such a sum


def flip_probability(epsilon: float) -> float:
    """The smallest usable p with ln((1 − p)/p) at most ``epsilon``.

    Args:
        epsilon: above 0, at most 30, in nats.

    Returns:
        p in (0, ½], above 1/(1 + e^ε) by less than 2⁻⁵² of itself or 2⁻⁶²: the bit is ε-private.
    """
    check_level(epsilon)
    exact = on_grid_above(1 / (1 + exponential_below(epsilon)))
    p = float(exact)
    # Floats of this size are multiples of 2⁻⁶² or coarser, so the next float up is usable as well.
    return math.nextafter(p, 1.0) if p < exact else p


def flip_ratio(p: float) -> Fraction:
    """The ratio (1 − p)/p, exactly."""
    return (1 - Fraction(p)) / Fraction(p)


def ratio_of_flips(flips: Iterable[float], times: int = 1) -> Fraction:
    """e^ε₀ of bits flipped with these probabilities, ``times`` times each, exactly."""
    return math.prod((flip_ratio(p) for p in flips), start=Fraction(1)) ** times


def epsilon_of_flips(flips: Iterable[float], times: int = 1) -> float:
    """ε₀ of bits flipped with these probabilities, ``times`` times each, rounded up by < 1 ulp."""
    return level_above(ratio_of_flips(flips, times))


def sampled_bit(epsilon0: float, coordinates: int) -> NonAdaptiveRandomizer:
    """Randomizer of a uniform coordinate and its bit, which is true with odds e^{ε₀} to 1."""
    return KaryResponse(epsilon0, 2) if coordinates == 1 else SampledBitResponse(epsilon0)


def bits_together(flips: tuple[float, ...], samples: int) -> NonAdaptiveRandomizer:
    """Randomizer of ``samples`` bits of each level in one message that names coordinates."""
    apart = opposite_words_apart(flips, samples)
    return randomizer_within(epsilon_of_flips(flips, samples), apart)


@lru_cache(maxsize=1024)
def opposite_words_apart(flips: tuple[float, ...], samples: int) -> float:
    """Total variation of randomly flipped bits, between two words that differ in every bit.

    No other two words, and no mixtures of words, have a larger one.

    Args:
        flips: probability that a bit of each level is flipped, in (0, ½].
        samples: bits of each level.

    Returns:
        Never below the true total variation; 1 where there are too many bits to compute it.

    >>> round(opposite_words_apart((0.25,), 2), 9)  # 0.75 − 0.25: one bit of two decides nothing
    0.5
    """
    # Bits with the same p are exchangeable: only the number of flipped ones matters.
    counts = Counter(flips)
    outcomes = math.prod(samples * count + 1 for count in counts.values())
    if outcomes > _MOST_OUTCOMES or samples * len(flips) > _MOST_BITS:
        return 1.0
    # Distributions of these numbers for the first word and for the second, as product tables.
    first, second = np.ones(1), np.ones(1)
    for p, count in counts.items():
        number = samples * count
        ways = np.array([float(math.comb(number, turned)) for turned in range(number + 1)])
        turned = np.arange(number + 1)
        distribution = ways * p**turned * (1.0 - p) ** (number - turned)
        first = np.outer(first, distribution).ravel()
        second = np.outer(second, distribution[::-1]).ravel()
    return min(float(np.maximum(first - second, 0.0).sum()) + _SUM_ROUNDING, 1.0)


def flipped(bits: NDArray[np.int64], p: float, source: Source) -> NDArray[np.int64]:
    """The bits, each flipped independently with probability ``p``; the shape of ``bits``."""
    return bits ^ source.bernoulli(p, bits.size).reshape(bits.shape)


def rounded_by_chance(chances: NDArray[np.float64], source: Source) -> NDArray[np.int64]:
    """1 with about the given probability (to 2⁻³²), else 0; no privacy rests on it."""
    thresholds = np.rint(np.clip(chances, 0.0, 1.0) * _COIN).astype(np.int64)
    result = (thresholds == _COIN).astype(np.int64)
    open_ = (thresholds > 0) & (thresholds < _COIN)
    drawn = source.below(_COIN, int(np.count_nonzero(open_)))
    result[open_] = drawn < thresholds[open_]
    return result
