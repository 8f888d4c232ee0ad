"""Randomizer of vectors of bounded ℓ2 norm whose message names a seed and one of its directions.

`SeededCode` is the randomizer. It suits a shuffler, since all clients use the same one.

Notation
    d, r       coordinates of a vector, its largest norm
    K, B, D    directions of a seed, ⌈d/K⌉, B·K: vectors are padded to D coordinates
    W          the directions of a seed: K orthonormal rows of ±1/√D
    t          preferred words, the signed directions of the t largest |⟨w, x⟩|
    P          probability that a message names a preferred word; preferred words are equally
    likely, and so are the 2K − t others
    m          E⟨word, x⟩ of a unit vector x where W x is about normal

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
_ROUNDING = 1e-3  # allowance for norms of many coordinates in float32
_NEARLY_ONE = 1e-5  # a length this close to 1 after clipping in float32 counts as 1
_SMALLEST_RADIUS = 1e-12  # radius whose square float32 can still represent


@dataclass(frozen=True)
class SeededCode(VectorRandomizer):
    """A seed, and the index of one of its 2K signed directions, likely near the client's vector.

    Source: subset selection (Ye and Barg 2018) among the code words of a random rotation, as Isik,
    Chen, Özgür, Weissman and No 2023 (isik2023exact) propose with shared randomness. Two changes:
    the seed is in the message, and the directions are the rows of (v ⊗ H)·diag(s)/√D, where H is
    the Hadamard matrix of K, v ∈ {±1}ᴮ is the seed's and s ∈ {±1}ᴰ is one of 64 that are fixed and
    public. A client computes its scores in D steps. A vector x shorter than r is first replaced by
    r·x/‖x‖ or its negative, with mean x.

    Guarantees:
        `priced_as`: a non-adaptive randomizer of ε₀ and of total variation P − (1 − P)t/(2K − t).
        E y = x + `bias`, and E‖y‖² = r²d/(m²D) exactly. The bias is small where W x is about
        normal, as for dense vectors of hundreds of coordinates, and as large as x for vectors of a
        few nonzero coordinates, such as one-hot vectors.

    Attributes:
        dimension: d ≥ 2.
        epsilon: requested ε₀, above 0; `epsilon0` is the level reached, at most this.
        radius: r, the largest ‖x‖₂.
        directions: K, a power of two of at most d and 1,024.
        preferred: t, from 1 to K.
        seed_bits: number of bits of a seed, from 1 to 48.
        public_seed: seed of the public signs.

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
        largest = 1 << (min(_LARGEST_BLOCK, self.dimension).bit_length() - 1)
        if self.directions > largest or self.directions & (self.directions - 1):
            expected = f"a power of two of at most {largest}"
            raise ParameterError("directions", self.directions, expected)
        checks.at_most("directions", self.directions, preferred=self.preferred)
        checks.at_most("the most", _MOST_SEED_BITS, seed_bits=self.seed_bits)

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
        """Probability P of a preferred word, a multiple of 2⁻⁶² that a float represents."""
        odds = exponential_below(self.epsilon) * self.preferred / self._others
        return float_below(odds / (1 + odds))

    @property
    def epsilon0(self) -> float:
        """ln(P(2K − t)/((1 − P)t)), rounded up by less than an ulp."""
        p = self.preference
        return level_above(p * self._others / ((1 - p) * self.preferred))

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Randomizer of ε₀ and of the total variation of x and −x, who share no preferred word."""
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
        """The alignment m = E⟨word, x⟩ of a unit vector x."""
        # The scores of all words sum to 0, so those of the others sum to minus the preferred ones.
        return self._weight * self._largest

    @cached_property
    def _largest(self) -> float:
        """E of the sum of a seed's t largest scores of a unit vector."""
        # A uniform unit vector is a normal one over its length, which does not depend on it.
        return largest_normals(self.directions, self.preferred) / mean_length(self.width)

    @property
    def radices(self) -> tuple[int, ...]:
        """Possible values of the two numbers of a message: 2ˢ seeds and 2K words."""
        return (1 << self.seed_bits, 2 * self.directions)

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, 2): seed, and 2·direction plus 1 for the negative direction."""
        vectors, lengths = self._unit(values)
        signs = 2.0 * rounded_by_chance((1 + lengths) / 2, source) - 1
        seeds = source.below(1 << self.seed_bits, len(vectors))
        scores = self._scores(vectors, seeds) * signs[:, None].astype(np.float32)
        return np.stack([seeds, self._named(scores, source)], axis=1)

    def _unit(self, values: ArrayLike) -> tuple[NDArray[np.float32], FloatArray]:
        """The vectors, in float32, and their lengths over r; no privacy rests on either.

        Raises:
            ParameterError: another shape, a value that is not finite, or a norm above the radius.
        """
        vectors = np.asarray(values)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ParameterError("values", vectors.shape, f"shape (clients, {self.dimension})")
        vectors = np.asarray(vectors, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)) / self.radius
        if not np.all(lengths <= 1 + _ROUNDING):
            largest = float(np.max(lengths)) * self.radius
            raise ParameterError("values", largest, f"norms of at most {self.radius:g}")
        return vectors, np.where(lengths > 1 - _NEARLY_ONE, 1.0, lengths)

    def _scores(
        self, vectors: NDArray[np.float32], seeds: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Scores √D·W x of each client, shape (n, K)."""
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
        """The public signs of each class of seeds, shape (classes, D)."""
        classes = min(_SIGN_CLASSES, 1 << self.seed_bits)
        public = PublicRandomness(self.public_seed, "seeded signs")
        return _as_signs(public.words(0, classes, -(-self.width // 64)), self.width)

    def _high(self, seeds: NDArray[np.int64]) -> NDArray[np.float32]:
        """The signs v of each seed, shape (n, B)."""
        return _as_signs(mixed_words(seeds, -(-self._folds // 64)), self._folds)

    def _named(self, scores: NDArray[np.float32], source: Source) -> IntArray:
        """The word that each client sends, from the scores of its seed's directions."""
        clients, t = len(scores), self.preferred
        ranked = _ranked(scores)
        favoured = source.bernoulli(float(self.preference), clients)
        inside = source.below(t, clients)
        outside = source.below(self._others, clients) + t
        place = np.where(favoured, inside, outside)
        back = place >= self.directions  # the negatives of all directions, in the same order
        return ranked[np.arange(clients), np.where(back, place - self.directions, place)] ^ back

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the named words times √D, whole numbers, shape (d,)."""
        seeds, words = self._checked_messages(messages)
        named = np.zeros((len(words), self.directions), dtype=np.float32)
        named[np.arange(len(words)), words >> 1] = 1 - 2 * (words & 1)
        return self._summed(seeds, named)

    def _summed(self, seeds: IntArray, named: NDArray[np.float32]) -> FloatArray:
        """Sum of √D·Wᵀn over seeds and their rows n of ``named``, shape (d,)."""
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
            ParameterError: a number that no message has.
        """
        table = np.asarray(messages, dtype=np.int64).reshape(-1, 2)
        if np.any(table < 0) or np.any(table >= self.radices):
            raise ParameterError("messages", "out of range", f"numbers below {self.radices}")
        return table[:, 0], table[:, 1]

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return total * (self.radius / (self.alignment * math.sqrt(self.width) * clients))

    def _expected(self, values: ArrayLike) -> FloatArray:
        """E y of each client over all seeds, given the public signs; shape (n, d).

        Raises:
            UnsupportedError: more than 12 bits of seeds.
        """
        count = 1 << self.seed_bits
        if count > _MOST_SEEDS:
            raise UnsupportedError(f"seed_bits = {self.seed_bits}: moments are known up to 12")
        vectors, lengths = self._unit(values)
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
        """The bias of the estimated mean given the public signs, shape (d,), exact.

        Raises:
            UnsupportedError: more than 12 bits of seeds.
        """
        return np.mean(self._expected(values) - np.asarray(values, dtype=np.float64), axis=0)

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − E y‖² of each client's estimate y given the public signs, exact; shape (n,).

        Raises:
            UnsupportedError: more than 12 bits of seeds.
        """
        return self.worst_squared_error - np.sum(self._expected(values) ** 2, axis=1)

    @property
    def worst_squared_error(self) -> float:
        """Upper bound r²d/(m²D) on E‖y − E y‖²: it is E‖y‖², reached by x = 0."""
        return (self.radius / self.alignment) ** 2 * self.dimension / self.width

    @property
    def worst_squared_bias(self) -> float:
        """Upper bound on the squared bias over all vectors and uniform signs, for long seeds.

        For a unit vector u, E⟨y, u⟩ ≤ (r/c)·√(tD)·√E‖W u‖² = r·√(tK)/c with c/√D the mean sum of
        the t largest scores, as E WᵀW = K/D; and E⟨y, x⟩ ≥ r²·t/(c·√2) for ‖x‖ = r, since a seed's
        t largest scores sum to at least t/K of all and E|⟨w, x⟩| ≥ ‖x‖/√(2D) (Szarek 1976).
        """
        largest = self._largest * math.sqrt(self.width)
        sent = self.preferred * self.directions / largest**2
        return self.radius**2 * (1 + sent - math.sqrt(2) * self.preferred / largest)

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each message for a vector of norm r, shape (2ˢ·2K,)."""
        vectors, _ = self._unit(np.atleast_2d(np.asarray(value)))
        seeds = np.arange(1 << self.seed_bits)
        best = _ranked(self._scores(np.repeat(vectors, len(seeds), axis=0), seeds))
        preferred = np.zeros((len(seeds), 2 * self.directions), dtype=bool)
        np.put_along_axis(preferred, best[:, : self.preferred], True, axis=1)
        p, t = float(self.preference), self.preferred
        distribution = np.where(preferred, p / t, (1 - p) / self._others)
        return distribution.reshape(-1) / len(seeds)


def _ranked(scores: NDArray[np.float32]) -> IntArray:
    """The words of positive score, largest first, shape (n, K); word ^ 1 is the negative."""
    order = np.argsort(-np.abs(scores), axis=1, kind="stable")
    return 2 * order + (np.take_along_axis(scores, order, axis=1) < 0)


def _as_signs(words: NDArray[np.uint64], count: int) -> NDArray[np.float32]:
    """The first bits of each row of words as signs, shape (n, count)."""
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    return _SIGNS[bits[:, :count]]


_SIGNS = np.array([1, -1], dtype=np.float32)
