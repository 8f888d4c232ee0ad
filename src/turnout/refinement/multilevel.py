"""One public message per client, a key for each analyst with a larger ε, and estimates.

`multi_level` builds a `MultiLevel` for given levels; `estimate` returns frequencies at one level,
with error bars. `turnout.refinement.release` writes messages and keys to files.

A client's value is X, its noise is U¹ + … + U^d. Everybody sees Y^d = X + U¹ + … + U^d. The analyst
of level j also gets the key L^j = U^{j+1} + … + U^d and subtracts the key from the message:
Y^j = Y^d − L^j has exactly the distribution of the ε_j mechanism. Analysts who pool their keys
learn only what the analyst of their largest ε knows.

Unit: one client with one value. T values of one client, each with independent noise, have T·ε.
Trust: local. The holder of all keys must be trusted like the analyst of the largest ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation import project_simplex
from turnout.randomness import OSRandomness, Source
from turnout.refinement.cascade import Cascade, Level, heavy_count
from turnout.refinement.designs import Direct, OneBit, hadamard, projective, spread
from turnout.refinement.hadamard import public_seed

Mechanism = Literal["one-bit", "k-ary", "hadamard", "projective", "minimal"]
_BLOCK = 2**18


@dataclass(frozen=True)
class MultiLevel:
    """Mechanism of successive refinement: a public message and d − 1 keys for every client.

    Source: Theorem 7.4.1, Girgis 2023 [girgis2023thesis]. The mechanism of the thesis is `OneBit`
        with the variant "as-printed". This class generalises that mechanism to noise in any finite
        Abelian group and to a level without noise.

    Attributes:
        design: public design, which maps a value to a message before noise.
        epsilons: privacy levels ε₁ > … > ε_d; the last level is public.
        bits: the weights of a step of noise sum to at most 2^bits; from 1 to 62.

    Guarantees:
        Public messages with key j have exactly the distribution of an ε_j-DP randomizer. The
        largest likelihood ratio of this randomizer is `Level.ratio`, never above e^{ε_j}.
        A key without the public message is independent of the value.

    Raises:
        ParameterError: levels that `Cascade` does not accept, or an infinite level with `OneBit`.
        UnsupportedError: two levels are too close for weights of ``bits`` bits.

    >>> from turnout.randomness import SimulationStreams
    >>> source = SimulationStreams(1).source("keys")
    >>> levels = multi_level(4, (1.0, 0.5), "k-ary", source=source)
    >>> public, keys = levels.encode([0, 1, 3], source)
    >>> levels.at_level(public, keys[0]).shape
    (3,)
    """

    design: OneBit | Direct
    epsilons: tuple[float, ...]
    bits: int = 62

    def __post_init__(self) -> None:
        # Building the cascade checks the levels and converts them to floats.
        object.__setattr__(self, "epsilons", self.cascade.epsilons)
        if math.isinf(self.epsilons[0]) and isinstance(self.design, OneBit):
            raise ParameterError(
                "epsilons",
                self.epsilons,
                "finite levels for one-bit, as one bit does not determine the value; "
                "other mechanisms can recover values",
            )

    @cached_property
    def cascade(self) -> Cascade:
        """Distribution of the noise of all steps."""
        order, heavy_count = self.design.group.order, len(self.design.heavy)
        return Cascade(tuple(self.epsilons), order, heavy_count, self.bits)

    @property
    def size(self) -> int:
        """Number of possible values, k."""
        return self.design.size

    @property
    def levels(self) -> tuple[Level, ...]:
        """Exact distribution of the noise at each level."""
        return self.cascade.levels

    @property
    def message_bits(self) -> int:
        """Number of bits that store one client's public message, or one client's noise in a key."""
        return (self.design.group.order - 1).bit_length()

    @cached_property
    def symbol_type(self) -> np.dtype[np.unsignedinteger]:
        """Integer type of messages and keys."""
        return np.dtype(np.min_scalar_type(self.design.group.order - 1))

    def encode(
        self, values: ArrayLike, source: Source | None = None, first: int = 0
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
        """Public messages of the clients, and the keys of all levels but the public one.

        Args:
            values: the clients' values, whole numbers from 0 to k − 1, shape (n,).
            source: source of the noise; None: the operating system's.
            first: number of the first of these clients. Blocks of clients may be encoded
                separately, if each client keeps its number.

        Returns:
            Messages, shape (n,), and keys, shape (d − 1, n); row j is the key of ``epsilons[j]``.

        Raises:
            ParameterError: a value outside the range, or an array of a wrong shape.
        """
        held = checked_values(values, self.size)
        source = source or OSRandomness()
        messages = np.empty(len(held), dtype=self.symbol_type)
        keys = np.empty((len(self.epsilons) - 1, len(held)), dtype=self.symbol_type)
        for start in range(0, len(held), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(held)))
            symbols = self.design.symbols(held[block], first + start)
            # Sum the noise from the last step to the second: each partial sum is a key.
            undone = np.zeros(len(symbols), dtype=np.int64)
            for level in range(len(self.epsilons) - 1, 0, -1):
                undone = self.design.group.add(undone, self._noise(level, len(symbols), source))
                keys[level - 1, block] = undone
            # The noise of all steps hides the value in the public message.
            undone = self.design.group.add(undone, self._noise(0, len(symbols), source))
            messages[block] = self.design.group.add(symbols, undone)
        return messages, keys

    def _noise(self, step: int, size: int, source: Source) -> NDArray[np.int64]:
        """Noise of one step for ``size`` clients, as elements of the group; shape (size,)."""
        ranks = self.cascade.steps[step].draw(size, source)
        # Only the first step with noise may have heavy elements other than 0.
        first = int(math.isinf(self.epsilons[0]))
        return self._by_rank[ranks] if step == first else ranks

    @cached_property
    def _by_rank(self) -> NDArray[np.int64]:
        """Elements of the group by rank: heavy elements first."""
        light = np.ones(self.design.group.order, dtype=np.bool_)
        light[self.design.heavy] = False
        return np.concatenate([self.design.heavy, np.flatnonzero(light)])

    def at_level(
        self, messages: NDArray[np.unsignedinteger], key: NDArray[np.unsignedinteger]
    ) -> NDArray[np.unsignedinteger]:
        """Messages at the level of ``key``: public messages minus the key, shape (n,).

        Raises:
            ParameterError: messages and key have different shapes.
        """
        if messages.shape != key.shape:
            raise ParameterError("key", key.shape, f"the messages' shape {messages.shape}")
        seen = self.design.group.subtract(messages.astype(np.int64), key.astype(np.int64))
        return seen.astype(self.symbol_type)

    def totals(self, messages: NDArray[np.unsignedinteger], first: int = 0) -> NDArray[np.int64]:
        """Histogram of messages at any level; histograms of disjoint sets of clients add up.

        Args:
            messages: public messages, or messages from `at_level`, shape (n,).
            first: number of the first of these clients, as in `encode`.
        """
        blocks = range(0, len(messages), _BLOCK)
        parts = (
            self.design.totals(messages[start : start + _BLOCK].astype(np.int64), first + start)
            for start in blocks
        )
        return sum(parts, np.zeros(self.design.totals_shape, dtype=np.int64))

    def level_of(self, epsilon: float) -> int:
        """Index in ``epsilons`` of the level with the given ε.

        Raises:
            ParameterError: no level has this ε.
        """
        if epsilon not in self.epsilons:
            known = ", ".join(f"{known:g}" for known in self.epsilons)
            raise ParameterError("epsilon", epsilon, f"a level of this release: {known}")
        return self.epsilons.index(epsilon)


def multi_level(
    size: int,
    epsilons: Sequence[float],
    mechanism: Mechanism | None = None,
    *,
    design_epsilon: float | None = None,
    source: Source | None = None,
) -> MultiLevel:
    """Mechanism for analysts at several privacy levels.

    Args:
        size: number of possible values k, at least 2.
        epsilons: different privacy levels in any order; the smallest is public and finite.
        mechanism:
            "one-bit": one bit per client, accurate for ε up to about 1 (thesis §7.4).
            "k-ary": k-ary randomized response, accurate if e^ε is above k.
            "minimal": the key of least entropy that recovers every value (Theorem 7.5.1), for the
            level infinity and one finite level. Its heavy elements are chosen such that public
            estimates are accurate.
            "projective" and "hadamard": about log₂ k bits per client, most accurate at
            ``design_epsilon``. "projective" has the smaller error;
            "hadamard" has the smaller group.
            None: the mechanism with the shortest messages among those whose loss is less than 1.25
            times the smallest loss. The loss of a mechanism is the largest ratio, over all finite
            levels, of its total variance to the least total variance of any mechanism.
        design_epsilon: ε for which "projective" and "hadamard" are chosen; None: the largest
            finite level.
        source: source of the public seed of "one-bit"; None: the operating system's.

    Raises:
        ParameterError: an argument outside its range, no finite level, or equal levels.
        UnsupportedError: two levels are too close for whole weights.
    """
    # Sort the levels; at least one of them is finite.
    for epsilon in epsilons:
        if epsilon != math.inf:
            checks.positive(epsilons=epsilon)
    levels = tuple(sorted((float(epsilon) for epsilon in epsilons), reverse=True))
    finite = [epsilon for epsilon in levels if not math.isinf(epsilon)]
    if not finite:
        raise ParameterError("epsilons", levels, "at least one finite level")
    # Build the requested mechanism, or choose one by its loss.
    if mechanism is None:
        return _least_loss(size, levels, source)
    if mechanism == "one-bit":
        return MultiLevel(OneBit(size, public_seed(source or OSRandomness())), levels)
    if mechanism == "k-ary":
        return MultiLevel(Direct(size), levels)
    if mechanism == "minimal":
        return MultiLevel(spread(size, heavy_count(size, finite[0])), levels)
    if mechanism == "hadamard":
        return MultiLevel(hadamard(size, design_epsilon or finite[0]), levels)
    if mechanism == "projective":
        return MultiLevel(projective(size, design_epsilon or finite[0]), levels)
    raise ParameterError("mechanism", mechanism, f"one of {', '.join(get_args(Mechanism))}")


def _least_loss(size: int, epsilons: tuple[float, ...], source: Source | None) -> MultiLevel:
    """Mechanism with the shortest messages among those whose loss is near the smallest loss.

    The loss is defined in `multi_level`.
    """
    # Collect the designs: one bit, k-ary, and the two families at each finite level.
    designs: dict[OneBit | Direct, None] = {}
    if not math.isinf(epsilons[0]):
        designs[OneBit(size, public_seed(source or OSRandomness()))] = None
    designs[Direct(size)] = None
    finite = [epsilon for epsilon in epsilons if not math.isinf(epsilon)]
    designs.update((make(size, e), None) for make in (hadamard, projective) for e in finite)
    # Compute the loss of each candidate, over the finite levels.
    candidates = [MultiLevel(design, epsilons) for design in designs]
    private = [index for index, epsilon in enumerate(epsilons) if not math.isinf(epsilon)]
    errors = np.array(
        [[each.design.total_variance(each.levels[i]) for i in private] for each in candidates]
    )
    losses = (errors / errors.min(axis=0)).max(axis=1)
    # Among the candidates with less than a quarter more loss, choose the shortest messages.
    close = [
        each for each, loss in zip(candidates, losses, strict=True) if loss < losses.min() * 1.25
    ]
    return min(close, key=lambda each: each.message_bits)


def checked_values(values: ArrayLike, size: int) -> NDArray[np.int64]:
    """The values as an int64 array of shape (n,), after a check of their range.

    Raises:
        ParameterError: a value that is not a whole number from 0 to ``size`` − 1, a wrong shape,
            or a ``size`` below 2.
    """
    held = np.asarray(values)
    checks.count(2, size=size)
    if held.ndim != 1 or (held.size and not np.issubdtype(held.dtype, np.integer)):
        given = f"{held.dtype} array of shape {held.shape}"
        raise ParameterError("values", given, "an array of whole numbers of shape (clients,)")
    if held.size and not (held.min() >= 0 and held.max() < size):
        wrong = int(held.min() if held.min() < 0 else held.max())
        raise ParameterError("values", wrong, f"whole numbers from 0 to {size - 1}")
    return held.astype(np.int64)


@dataclass(frozen=True, eq=False)
class LevelEstimate:
    """Estimated distribution of the clients' values at one level.

    Attributes:
        epsilon: stated ε of the level: pure, for one client's message, in the local model.
        clients: number of clients that sent a message.
        raw: unbiased frequencies, shape (size,); some may be negative.
        frequencies: `raw` projected on the simplex, shape (size,); the projection never increases
            the ℓ2 distance from the true frequencies.
        standard_errors: standard error of each entry of `raw`, shape (size,). The entry estimates a
            frequency in a population from which the clients' values are independent draws, so the
            standard error includes both the privacy noise and the sampling.
    """

    epsilon: float
    clients: int
    raw: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    @property
    def guarantee(self) -> str:
        """Guarantee of the level in words: ε, unit, relation and trust model."""
        if math.isinf(self.epsilon):
            return "no privacy: this key gives every client's value back"
        return (
            f"epsilon = {self.epsilon:g}, pure, of one client's message, replace-one, local model"
        )

    def interval(self, confidence: float = 0.95) -> NDArray[np.float64]:
        """Lower and upper ends of a normal interval for each frequency, shape (2, size).

        Each interval covers its frequency with about the given confidence; ends are clipped to
        [0, 1].

        Raises:
            ParameterError: ``confidence`` is not between 0 and 1.
        """
        checks.open_unit(confidence=confidence)
        width = float(ndtri((1 + confidence) / 2)) * self.standard_errors
        return np.clip([self.raw - width, self.raw + width], 0, 1)


def estimate(levels: MultiLevel, totals: NDArray[np.int64], level: int) -> LevelEstimate:
    """Estimated frequencies from a histogram of messages at one level.

    Args:
        levels: the mechanism.
        totals: histogram, from `MultiLevel.totals`, of the messages of all clients *at that level*;
            shape ``levels.design.totals_shape``.
        level: index of the level in ``levels.epsilons``.

    Raises:
        ParameterError: the histogram contains no message.
    """
    clients = int(totals.sum())
    if not clients:
        raise ParameterError("clients", clients, "at least one client")
    noise = levels.levels[level]
    raw = levels.design.frequencies(totals, noise)
    projected = project_simplex(raw)
    variance = levels.design.variance(projected, clients, noise)
    errors = np.sqrt(np.maximum(variance, 0))
    return LevelEstimate(levels.epsilons[level], clients, raw, projected, errors)
