"""Randomizer of vectors of bounded ℓ2 norm: a message of b bits is a public random direction.

`SphericalCode` is the randomizer; it is nearly as accurate as messages of real numbers.
`best_preferred` chooses its number of preferred words. `largest_scores`, `largest_normals` and
`mean_length` are expectations on which the mean and the error of the code depend.

Notation
    d, r    number of coordinates of a vector, and its largest norm
    M = 2ᵇ  number of code words of a client: M/2 public random unit vectors and their negatives
    t       number of preferred words: the t words nearest to the client's vector
    P       probability that a message is a preferred word; the t preferred words are equally
            likely, and so are the M − t others
    m       E⟨word, x⟩, which is the same for all unit vectors x

For every vector a word has one of these two probabilities, so ε₀ = ln(P(M − t)/((1 − P)t)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, erfc, gammaln

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import check_level, exponential_below, float_below, level_above
from turnout.randomizers.vectors.interface import (
    FloatArray,
    IntArray,
    PublicRandomness,
    VectorRandomizer,
    normals,
    rounded_by_chance,
)
from turnout.randomness import Source

_NODES, _FARTHEST = 600, 9.0


@lru_cache(maxsize=4096)
def largest_scores(dimension: int, directions: int, preferred: int) -> float:
    """Expected sum of the ``preferred`` largest |⟨u, x⟩| over independent uniform unit vectors u.

    The expectation is ∫₀¹ E min(t, N(z)) dz, computed by Gauss–Legendre quadrature, where t is
    ``preferred`` and N(z), the number of scores |⟨u, x⟩| above z, is binomial.

    Args:
        dimension: number of coordinates of x, a unit vector.
        directions: number of vectors u.
        preferred: t, at most ``directions``.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # Scores are of the order of 1/√d; the substitution z = y² concentrates the nodes near 0.
    roots = (nodes + 1) / 2
    chance = betainc((dimension - 1) / 2, 0.5, 1 - roots**4)
    expected = sum(betainc(rank, directions - rank + 1, chance) for rank in range(1, preferred + 1))
    return float(np.sum(weights * roots * expected))


@lru_cache(maxsize=4096)
def largest_normals(count: int, largest: int) -> float:
    """Expected sum of the ``largest`` largest |g| over ``count`` independent normal numbers g.

    The expectation is ∫₀^∞ E min(t, N(z)) dz, computed by Gauss–Legendre quadrature, where t is
    ``largest`` and N(z), the number of |g| above z, is binomial.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    at = (nodes + 1) / 2 * _FARTHEST
    above = erfc(at / math.sqrt(2))
    expected = sum(betainc(rank, count - rank + 1, above) for rank in range(1, largest + 1))
    return float(np.sum(weights * expected) * _FARTHEST / 2)


def mean_length(dimension: int) -> float:
    """E‖g‖ of a standard normal vector g of ``dimension`` coordinates."""
    return math.sqrt(2) * math.exp(gammaln((dimension + 1) / 2) - gammaln(dimension / 2))


_AT_ONCE = 1 << 22  # coordinates of directions that are held at a time
_MOST_BITS = 12


@dataclass(frozen=True)
class SphericalCode(VectorRandomizer):
    """Randomizer that sends one of M public random directions, likely one near the client's vector.

    Source: Isik, Chen, Özgür, Weissman and No 2023 (isik2023exact) show that optimal schemes with
        shared randomness have rotationally symmetric code words, and that for a rotated simplex it
        is optimal to prefer the nearest words. This class makes two changes. The words are
        independent directions and their negatives instead of a rotated simplex, so that no d×d
        rotation is needed. And P is chosen exactly. The distribution of the word sent is symmetric
        about x, so its mean is m·x for every unit vector x. A shorter x is first replaced by
        r·x/‖x‖ or its negative, at random with mean x.

    Guarantees:
        E y = x in the mean over the public directions; E‖y − x‖² = r²/m² − ‖x‖².

    Attributes:
        dimension: number of coordinates d, at least 2.
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest ‖x‖₂.
        code_bits: number of bits b of a message, from 1 to 12.
        preferred: number t of preferred words, from 1 to M/2. If None, `best_preferred` chooses t.
        seed: seed of the public directions.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> code = SphericalCode(300, epsilon=4.0, code_bits=4)
    >>> code.message_bits, round(code.worst_squared_error)
    (4, 159)
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    code_bits: int = 1
    preferred: int | None = None
    seed: int = 0
    norm: ClassVar[float] = 2

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(radius=self.radius)
        checks.count(2, dimension=self.dimension)
        checks.count(code_bits=self.code_bits)
        if self.code_bits > _MOST_BITS:
            raise ParameterError("code_bits", self.code_bits, f"at most {_MOST_BITS}")
        if self.preferred is None:
            best = best_preferred(self.dimension, self.epsilon, self.code_bits)
            object.__setattr__(self, "preferred", best)
        checks.count(preferred=self.preferred)
        checks.at_most("directions", self.directions, preferred=self._t)

    @classmethod
    def best(
        cls,
        dimension: int,
        epsilon: float,
        radius: float = 1.0,
        message_bits: float = math.inf,
        *,
        slack: float = 0.05,
        seed: int = 0,
    ) -> SphericalCode:
        """The code with the fewest bits and an error of at most 1 + ``slack`` times the smallest.

        Longer messages lower the error only slightly, but the work of a client grows as 2ᵇ·d.

        Args:
            dimension: number of coordinates d, at least 2.
            epsilon: ε₀ of one message.
            radius: r, the largest ‖x‖₂.
            message_bits: largest number of bits of a client's message; at most 12 are used.
            slack: accepted relative excess over the smallest error with ``message_bits`` bits.
            seed: seed of the public directions.

        Raises:
            ParameterError: an argument outside its domain.
        """
        # More than about ε/ln 2 bits never lower the error.
        most = int(min(message_bits, _MOST_BITS, max(1, math.ceil(epsilon / math.log(2)) + 1)))
        checks.count(message_bits=most)
        codes = [cls(dimension, epsilon, radius, bits, None, seed) for bits in range(1, most + 1)]
        least = min(code.worst_squared_error for code in codes)
        return next(code for code in codes if code.worst_squared_error <= (1 + slack) * least)

    @property
    def _t(self) -> int:
        assert self.preferred is not None
        return self.preferred

    @property
    def directions(self) -> int:
        """Number of directions M/2; each direction and its negative are two words."""
        return 1 << (self.code_bits - 1)

    @cached_property
    def preference(self) -> Fraction:
        """Probability P of a preferred word, rounded down to a float and a multiple of 2⁻⁶²."""
        odds = exponential_below(self.epsilon) * self._t / (2 * self.directions - self._t)
        return float_below(odds / (1 + odds))

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ = ln(P(M − t)/((1 − P)t)), rounded up by less than one ulp."""
        p, t = self.preference, self._t
        return level_above(p * (2 * self.directions - t) / ((1 - p) * t))

    @cached_property
    def alignment(self) -> float:
        """The alignment m = E⟨word, x⟩ for a unit vector x."""
        p, t = float(self.preference), self._t
        # The scores ⟨word, x⟩ of all words sum to 0, so the scores of the other words sum to minus
        # the sum over the preferred words.
        return (p / t - (1 - p) / (2 * self.directions - t)) * largest_scores(
            self.dimension, self.directions, t
        )

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values that a message can take, shape (1,): M words."""
        return (2 * self.directions,)

    @property
    def public_randomness(self) -> str:
        """Description of the public directions."""
        return f"{self.directions} random directions a client"

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages, shape (n, 1): 2·direction, plus 1 for the negative direction.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        vectors = self.checked(values)
        # A random sign for each client, such that the mean of ± x/‖x‖ is x/r.
        lengths = np.linalg.norm(vectors, axis=1)
        signs = 2.0 * rounded_by_chance((1 + lengths) / 2, source) - 1
        # Scores of all directions, for as many clients at a time as memory allows.
        step = max(1, _AT_ONCE // (self.directions * self.dimension))
        scores = np.empty((len(vectors), self.directions), dtype=np.float32)
        for start in range(0, len(vectors), step):
            part = slice(start, start + step)
            pointing = (vectors[part] * signs[part, None]).astype(np.float32)
            words = self._directions(first + start, len(pointing))
            scores[part] = np.matmul(words, pointing[:, :, None])[:, :, 0]
        return self._named(scores, source)[:, None]

    def _named(self, scores: NDArray[np.float32], source: Source) -> IntArray:
        """The word that each client sends, given the scores of its directions; shape (n,)."""
        # Sort the words of non-negative score, largest score first; the first t are preferred.
        clients, t = len(scores), self._t
        order = np.argsort(-np.abs(scores), axis=1, kind="stable")
        negative = np.take_along_axis(scores, order, axis=1) < 0
        ranked = 2 * order + negative  # word ^ 1 is the negative of a word
        # Choose a uniform preferred word with probability P, else a uniform other word.
        favoured = source.bernoulli(float(self.preference), clients)
        inside = source.below(t, clients)
        outside = source.below(2 * self.directions - t, clients) + t
        place = np.where(favoured, inside, outside)
        back = place >= self.directions  # the negatives of all directions, in the same order
        named = ranked[np.arange(clients), np.where(back, place - self.directions, place)]
        return named ^ back

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the clients' words, shape (d,).

        Raises:
            ParameterError: a number out of range.
        """
        # Compute only the directions that were sent, for as many clients as memory allows.
        named = self.single_words(messages)
        clients = np.arange(first, first + len(named))
        step = max(1, _AT_ONCE // self.dimension)
        total = np.zeros(self.dimension)
        for start in range(0, len(named), step):
            part = slice(start, start + step)
            words = self._public.chosen_words(
                clients[part], named[part] >> 1, self._words_per_direction, self.directions
            )
            signs = 1.0 - 2.0 * (named[part] & 1)
            total += signs @ self._unit_vectors(words).astype(np.float64)
        return total

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return total * (self.radius / (self.alignment * clients))

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − x‖² of the estimate y from each client's message, shape (n,).

        The expectation is over the public directions as well as over the client's draws.
        """
        sizes = np.sum(self.checked(values) ** 2, axis=1)
        return self.radius**2 * (1 / self.alignment**2 - sizes)

    @property
    def worst_squared_error(self) -> float:
        """The largest E‖y − x‖² over ‖x‖ ≤ r: r²/m², reached by x = 0."""
        return self.radius**2 / self.alignment**2

    def probabilities(self, value: ArrayLike) -> FloatArray:
        """Probability of each word for client 0 and a vector of norm r, shape (M,)."""
        vector = self.checked(np.atleast_2d(np.asarray(value)))[0].astype(np.float32)
        scores = self._directions(0, 1)[0] @ vector
        order = np.argsort(-np.abs(scores), kind="stable")[: self._t]
        preferred = np.zeros(2 * self.directions, dtype=bool)
        preferred[2 * order + (scores[order] < 0)] = True
        p = float(self.preference)
        return np.where(preferred, p / self._t, (1 - p) / (2 * self.directions - self._t))

    @cached_property
    def _public(self) -> PublicRandomness:
        return PublicRandomness(self.seed, "directions")

    @property
    def _words_per_direction(self) -> int:
        """Number of random 64-bit words for one direction, a multiple of 4."""
        # Each word gives two coordinates.
        return 4 * -(-self.dimension // 8)

    def _directions(self, first: int, clients: int) -> NDArray[np.float32]:
        """All directions of clients with successive numbers, shape (n, M/2, d)."""
        words = self._public.words(first, clients, self.directions * self._words_per_direction)
        return self._unit_vectors(
            words.reshape(clients, self.directions, self._words_per_direction)
        )

    def _unit_vectors(self, words: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Uniform unit vectors from random words, shape (…, d): normal vectors, normalised."""
        drawn = normals(words)[..., : self.dimension]
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


@lru_cache(maxsize=1024)
def best_preferred(dimension: int, epsilon: float, code_bits: int) -> int:
    """The number t of preferred words with the largest alignment m, found by ternary search.

    Args:
        dimension: number of coordinates d, at least 2.
        epsilon: requested ε₀ of one message.
        code_bits: number of bits b of a message.
    """
    # As t grows, m first increases and then decreases, so each step can discard a third.

    def alignment(t: int) -> float:
        return SphericalCode(dimension, epsilon, 1.0, code_bits, t).alignment

    low, high = 1, 1 << (code_bits - 1)
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        if left == right or alignment(left) < alignment(right):
            low = left + (left == low)
        else:
            high = right - (right == high)
    return max(range(low, high + 1), key=alignment)
