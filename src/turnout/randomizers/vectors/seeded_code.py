"""Randomizer of vectors of bounded ℓ2 norm: a message is a seed and one of the seed's directions.

`SeededCode` is the randomizer. It is suited to a shuffler, since all clients use the same
distributions.

Notation
    d, r       number of coordinates of a vector, and its largest norm
    K          number of directions of a seed
    B, D       B = ⌈d/K⌉ and D = B·K; vectors are padded to D coordinates
    W          matrix of the directions of a seed: K orthonormal rows of entries ±1/√D
    words      the K directions of a seed and their negatives
    t          number of preferred words: the t directions w of largest |⟨w, x⟩|, each with the sign
               of ⟨w, x⟩
    P          probability that a message has a preferred word; the t preferred words are equally
               likely, and so are the 2K − t others
    m          E⟨word, x⟩ for a unit vector x for which W x is about normal

A message is a uniform seed and one of the seed's 2K words; ε₀ = ln(P(2K − t)/((1 − P)t)). No public
randomness depends on the client's number, so all clients use the same non-adaptive randomizer, and
a shuffler may mix their messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomizers.interface import (
    check_level,
    exponential_below,
    float_below,
    level_above,
    randomizer_within,
)
from turnout.randomizers.vectors.interface import (
    FloatArray,
    IntArray,
    PublicRandomness,
    VectorRandomizer,
    mixed_words,
    rounded_by_chance,
)
from turnout.randomizers.vectors.spherical_code import largest_normals, mean_length
from turnout.randomness import Source
from turnout.schemes.randomizers import NonAdaptiveRandomizer

_SIGN_CLASSES = 64
_AT_ONCE = 1 << 20  # coordinates that are held at a time
_MOST_SEED_BITS, _MOST_SEEDS = 48, 1 << 12
_LARGEST_BLOCK = 1 << 10
_ROUNDING = 1e-3  # relative rounding error of a norm in float32 that is accepted
_NEARLY_ONE = 1e-5  # a length this close to 1 after clipping in float32 counts as 1
_SMALLEST_RADIUS = 1e-12  # radius whose square float32 can still represent


@dataclass(frozen=True)
class SeededCode(VectorRandomizer):
    """Randomizer that sends a seed and one of its 2K signed directions, likely one near the vector.

    Source: subset selection (Ye and Barg 2018) among the code words of a random rotation, as Isik,
        Chen, Özgür, Weissman and No 2023 (isik2023exact) propose with shared randomness. This class
        makes two changes. The seed is a part of the message. And the directions are the rows of
        (v ⊗ H)·diag(s)/√D, where H is the K×K Hadamard matrix, v ∈ {±1}ᴮ is determined by the seed,
        and s ∈ {±1}ᴰ is one of 64 fixed public vectors of signs; so a client computes all ⟨w, x⟩ in
        about D steps. A vector x shorter than r is first replaced by r·x/‖x‖ or its negative, at
        random with mean x.

    Guarantees:
        The randomizer is non-adaptive, of level ε₀ and total variation P − (1 − P)t/(2K − t).
        E y = x + `bias`, and E‖y‖² = r²d/(m²D) exactly. The bias is small if W x is about normal,
        as for dense vectors of hundreds of coordinates. For vectors of a few nonzero coordinates,
        such as one-hot vectors, it may be as large as x.

    Attributes:
        dimension: number of coordinates d, at least 2.
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest ‖x‖₂.
        directions: number K of directions of a seed, a power of two, at most d and at most 1,024.
        preferred: number t of preferred words, from 1 to K.
        seed_bits: number of bits of a seed, from 1 to 48.
        public_seed: seed of the public signs.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> code = SeededCode(300, epsilon=4.0)
    >>> code.message_bits, round(code.worst_squared_error)
    (37, 145)
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    directions: int = 16
    preferred: int = 2
    seed_bits: int = 32
    public_seed: int = 0
    norm: ClassVar[float] = 2
    dtype: ClassVar[type[np.floating]] = np.float32

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(radius=self.radius)
        if not _SMALLEST_RADIUS <= self.radius <= 1 / _SMALLEST_RADIUS:
            expected = f"a number from {_SMALLEST_RADIUS:g} to {1 / _SMALLEST_RADIUS:g}"
            raise ParameterError("radius", self.radius, expected)
        checks.count(2, dimension=self.dimension)
        checks.count(directions=self.directions, preferred=self.preferred, seed_bits=self.seed_bits)
        # The Hadamard matrix needs a power of two, and a block at most d coordinates.
        largest = 1 << (min(_LARGEST_BLOCK, self.dimension).bit_length() - 1)
        if self.directions > largest or self.directions & (self.directions - 1):
            expected = f"a power of two of at most {largest}"
            raise ParameterError("directions", self.directions, expected)
        checks.at_most("directions", self.directions, preferred=self.preferred)
        if self.seed_bits > _MOST_SEED_BITS:
            raise ParameterError("seed_bits", self.seed_bits, f"at most {_MOST_SEED_BITS}")

    @property
    def width(self) -> int:
        """Number of coordinates D of a padded vector."""
        return self._folds * self.directions

    @property
    def _folds(self) -> int:
        """Number B of blocks of K coordinates."""
        return -(-self.dimension // self.directions)

    @property
    def _others(self) -> int:
        """Number of words that are not preferred."""
        return 2 * self.directions - self.preferred

    @cached_property
    def preference(self) -> Fraction:
        """Probability P of a preferred word, rounded down to a float and a multiple of 2⁻⁶²."""
        odds = exponential_below(self.epsilon) * self.preferred / self._others
        return float_below(odds / (1 + odds))

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ = ln(P(2K − t)/((1 − P)t)), rounded up by less than one ulp."""
        p = self.preference
        return level_above(p * self._others / ((1 - p) * self.preferred))

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer of level ε₀ and of the total variation that x and −x attain."""
        # The vectors x and −x have no preferred word in common.
        p = self.preference
        apart = p - (1 - p) * self.preferred / self._others
        return randomizer_within(self.epsilon0, apart, attained=True)

    @cached_property
    def _weight(self) -> float:
        """Probability of a preferred word minus the probability of another word."""
        p = float(self.preference)
        return p / self.preferred - (1 - p) / self._others

    @cached_property
    def alignment(self) -> float:
        """The alignment m = E⟨word, x⟩ for a unit vector x for which W x is about normal."""
        # The scores ⟨word, x⟩ of all words sum to 0, so the scores of the other words sum to minus
        # the sum over the preferred words.
        return self._weight * self._largest

    @cached_property
    def _largest(self) -> float:
        """Expected sum of a seed's t largest |⟨w, x⟩| over directions w, for a uniform unit x."""
        # A normal vector is a uniform unit vector times its length, which are independent.
        return largest_normals(self.directions, self.preferred) / mean_length(self.width)

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values of each of a message's two numbers, the seed and the word."""
        return (1 << self.seed_bits, 2 * self.directions)

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, 2): seed, and 2·direction plus 1 for the negative direction.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        # A random sign for each client, such that the mean of ± x/‖x‖ is x/r.
        vectors, lengths = self._vectors_and_lengths(values)
        signs = 2.0 * rounded_by_chance((1 + lengths) / 2, source) - 1
        # A uniform seed, and a word that depends on the scores of the seed's directions.
        seeds = source.below(1 << self.seed_bits, len(vectors))
        scores = self._scores(vectors, seeds) * signs[:, None].astype(np.float32)
        return np.stack([seeds, self._named(scores, source)], axis=1)

    def _vectors_and_lengths(self, values: ArrayLike) -> tuple[NDArray[np.float32], FloatArray]:
        """The vectors in float32, shape (n, d), and their norms divided by r, shape (n,).

        Rounding errors of the vectors and norms do not affect privacy.

        Raises:
            ParameterError: a wrong shape, a value that is not finite, or a norm above the radius.
        """
        vectors = np.asarray(values)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            given = f"array of shape {vectors.shape}"
            raise ParameterError("values", given, f"shape (clients, {self.dimension})")
        vectors = np.asarray(vectors, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)) / self.radius
        if not np.all(lengths <= 1 + _ROUNDING):
            largest = float(np.max(lengths)) * self.radius
            given = f"a vector of norm {largest:g}"
            raise ParameterError("values", given, f"norms of at most {self.radius:g}")
        # A norm that rounding made smaller than 1 counts as 1.
        return vectors, np.where(lengths > 1 - _NEARLY_ONE, 1.0, lengths)

    def _scores(
        self, vectors: NDArray[np.float32], seeds: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Scores √D·W x of each client's vector x and seed, shape (n, K)."""
        # For as many clients at a time as memory allows: multiply by the public signs, sum the B
        # blocks with the seed's signs, and apply the Hadamard transform.
        folded = np.empty((len(vectors), self.directions), dtype=np.float32)
        step = max(1, _AT_ONCE // self.width)
        wide = np.zeros((min(step, len(vectors)), self.width), dtype=np.float32)
        for start in range(0, len(vectors), step):
            some = vectors[start : start + step]
            own = seeds[start : start + step]
            signs = self._signs[own % len(self._signs), : self.dimension]
            np.multiply(some, signs, out=wide[: len(some), : self.dimension])
            table = wide[: len(some)].reshape(-1, self._folds, self.directions)
            np.matmul(self._high(own)[:, None, :], table, out=folded[start : start + step, None, :])
        return walsh_hadamard(folded)

    @cached_property
    def _signs(self) -> NDArray[np.float32]:
        """The fixed public vectors of signs s, one for each class of seeds, shape (classes, D)."""
        classes = min(_SIGN_CLASSES, 1 << self.seed_bits)
        public = PublicRandomness(self.public_seed, "seeded signs")
        return _as_signs(public.words(0, classes, -(-self.width // 64)), self.width)

    def _high(self, seeds: NDArray[np.int64]) -> NDArray[np.float32]:
        """The signs v ∈ {±1}ᴮ of each seed, shape (n, B)."""
        return _as_signs(mixed_words(seeds, -(-self._folds // 64)), self._folds)

    def _named(self, scores: NDArray[np.float32], source: Source) -> IntArray:
        """The word that each client sends, given its scores of the K directions; shape (n,)."""
        # All words in the order of their scores; choose a preferred word with probability P.
        clients, t = len(scores), self.preferred
        ranked = _ranked(scores)
        favoured = source.bernoulli(float(self.preference), clients)
        inside = source.below(t, clients)
        outside = source.below(self._others, clients) + t
        place = np.where(favoured, inside, outside)
        back = place >= self.directions  # the negatives of all directions, in the same order
        return ranked[np.arange(clients), np.where(back, place - self.directions, place)] ^ back

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the clients' words times √D, shape (d,); its entries are whole numbers.

        Raises:
            ParameterError: a number out of range.
        """
        seeds, words = self._checked_messages(messages)
        named = np.zeros((len(words), self.directions), dtype=np.float32)
        named[np.arange(len(words)), words >> 1] = 1 - 2 * (words & 1)
        return self._summed(seeds, named)

    def _summed(self, seeds: IntArray, named: NDArray[np.float32]) -> FloatArray:
        """Sum of √D·Wᵀv over all messages, shape (d,).

        W is the matrix of the directions of a message's seed, and v its row of ``named``.
        """
        # Sum seeds with the same public signs first, which then need only one transform.
        classes = seeds % len(self._signs)
        order = np.argsort(classes, kind="stable")
        ends = np.cumsum(np.bincount(classes, minlength=len(self._signs)))
        total = np.zeros(self.dimension)
        for signs, own in zip(self._signs, np.split(order, ends[:-1]), strict=True):
            if own.size:
                rows = walsh_hadamard(self._high(seeds[own]).T @ named[own])
                total += (rows.reshape(-1) * signs)[: self.dimension]
        return total

    def _checked_messages(self, messages: IntArray) -> tuple[IntArray, IntArray]:
        """Seeds and words of the messages, each of shape (n,).

        Raises:
            ParameterError: a number out of range.
        """
        table = np.asarray(messages, dtype=np.int64).reshape(-1, 2)
        wrong = table[(table < 0) | (table >= np.array(self.radices))]
        if wrong.size:
            expected = f"a seed below {self.radices[0]} and a word below {self.radices[1]}"
            raise ParameterError("messages", int(wrong[0]), expected)
        return table[:, 0], table[:, 1]

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return total * (self.radius / (self.alignment * math.sqrt(self.width) * clients))

    def _expected(self, values: ArrayLike) -> FloatArray:
        """Exact E y of each client's estimate over all seeds, given the public signs; shape (n, d).

        Raises:
            UnsupportedError: ``seed_bits`` is above 12.
        """
        # Enumerate all seeds, if there are few enough.
        count = 1 << self.seed_bits
        if count > _MOST_SEEDS:
            raise UnsupportedError(
                f"seed_bits = {self.seed_bits}: exact moments enumerate all seeds and are computed"
                " for at most 12 bits"
            )
        vectors, lengths = self._vectors_and_lengths(values)
        # For each client: the mean word of each seed, summed over all seeds.
        seeds, rows = np.arange(count), np.arange(count)[:, None]
        means = np.empty(vectors.shape)
        for client, vector in enumerate(vectors):
            best = _ranked(self._scores(np.repeat(vector[None], count, axis=0), seeds))
            best = best[:, : self.preferred]
            chosen = np.zeros((count, self.directions), dtype=np.float32)
            chosen[rows, best >> 1] = 1 - 2 * (best & 1)
            means[client] = self.mean(self._summed(seeds, chosen) * self._weight, count)
        return means * lengths[:, None]

    def bias(self, values: ArrayLike) -> FloatArray:
        """Exact bias of the estimated mean given the public signs, shape (d,).

        Raises:
            UnsupportedError: ``seed_bits`` is above 12.
        """
        return np.mean(self._expected(values) - np.asarray(values, dtype=np.float64), axis=0)

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − E y‖² of the estimate y from each client, given the public signs; shape (n,).

        Raises:
            UnsupportedError: ``seed_bits`` is above 12.
        """
        return self.worst_squared_error - np.sum(self._expected(values) ** 2, axis=1)

    @property
    def worst_squared_error(self) -> float:
        """Upper bound on E‖y − E y‖² over all vectors: E‖y‖² = r²d/(m²D), reached by x = 0."""
        return (self.radius / self.alignment) ** 2 * self.dimension / self.width

    @property
    def worst_squared_bias(self) -> float:
        """Upper bound on the squared bias over all vectors, in the mean over uniform public signs.

        The bound holds if the seeds have so many bits that the number of seeds does not matter. Let
        c/√D be the mean sum of the t largest scores. For a unit vector u, E⟨y, u⟩ ≤
        (r/c)·√(tD)·√E‖W u‖² = r·√(tK)/c, since E WᵀW = K/D. And E⟨y, x⟩ ≥ r²·t/(c·√2) for ‖x‖ = r,
        since the t largest absolute scores of a seed sum to at least t/K times the sum of all K,
        and E|⟨w, x⟩| ≥ ‖x‖/√(2D) (Szarek 1976).
        """
        largest = self._largest * math.sqrt(self.width)
        sent = self.preferred * self.directions / largest**2
        return self.radius**2 * (1 + sent - math.sqrt(2) * self.preferred / largest)

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message for a vector of norm r, shape (number of seeds · 2K,)."""
        # Find the preferred words of every seed.
        vectors, _ = self._vectors_and_lengths(np.atleast_2d(np.asarray(value)))
        seeds = np.arange(1 << self.seed_bits)
        best = _ranked(self._scores(np.repeat(vectors, len(seeds), axis=0), seeds))
        preferred = np.zeros((len(seeds), 2 * self.directions), dtype=bool)
        np.put_along_axis(preferred, best[:, : self.preferred], True, axis=1)
        # Preferred words have probability P/t and others (1 − P)/(2K − t), given the seed.
        p, t = float(self.preference), self.preferred
        distribution = np.where(preferred, p / t, (1 - p) / self._others)
        return distribution.reshape(-1) / len(seeds)


def _ranked(scores: NDArray[np.float32]) -> IntArray:
    """The words of non-negative score, largest score first, shape (n, K).

    The negative of a word has the number ``word ^ 1``.
    """
    order = np.argsort(-np.abs(scores), axis=1, kind="stable")
    return 2 * order + (np.take_along_axis(scores, order, axis=1) < 0)


def _as_signs(words: NDArray[np.uint64], count: int) -> NDArray[np.float32]:
    """The first ``count`` bits of each row of words as signs 1 and −1, shape (n, count)."""
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    return _SIGNS[bits[:, :count]]


_SIGNS = np.array([1, -1], dtype=np.float32)
