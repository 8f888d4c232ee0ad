"""One public message a client, a key for each analyst who may see more of it, and estimates.

`multi_level` builds a `MultiLevel` for given levels; `estimate` gives frequencies at one level,
with error bars. `turnout.refinement.release` writes messages and keys to files.

Everybody sees Y^d = X + U¹ + … + U^d; the analyst of level j also gets L^j = U^{j+1} + … + U^d and
subtracts it: Y^j = Y^d − L^j has the distribution of the ε_j mechanism, exactly. Analysts who pool
their keys know what the one with the largest ε knows.

Unit: one client with one value; T values of one client, each with noise of its own, have T·ε.
Trust: local; the holder of all keys of a release must be trusted like the analyst of the largest ε.
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

    Source: Theorem 7.4.1, Girgis 2023 [girgis2023thesis]. The printed mechanism is `OneBit` in
    its variant "as-printed"; here noise may live in any finite Abelian group, and one level
    may be free of noise.

    Attributes:
        design: what a value becomes; public.
        epsilons: privacy levels, largest first; the last is the public one.
        bits: see `Cascade`.

    Guarantees:
        public messages with key j have exactly the distribution of an ε_j-DP randomizer whose
        ratio of likelihoods is `Level.ratio`, never above e^{ε_j};
        a key without the public message is independent of the value.

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
        object.__setattr__(self, "epsilons", self.cascade.epsilons)
        if math.isinf(self.epsilons[0]) and isinstance(self.design, OneBit):
            raise ParameterError(
                "epsilons",
                self.epsilons,
                "finite levels: one bit does not determine the value; other mechanisms do",
            )

    @cached_property
    def cascade(self) -> Cascade:
        """Noise of all steps."""
        order, heavy_count = self.design.group.order, len(self.design.heavy)
        return Cascade(tuple(self.epsilons), order, heavy_count, self.bits)

    @property
    def size(self) -> int:
        """Number of values."""
        return self.design.size

    @property
    def levels(self) -> tuple[Level, ...]:
        """Exact distribution of the noise at each level."""
        return self.cascade.levels

    @property
    def message_bits(self) -> int:
        """Stored size in bits of a client's public message, and of a client's part of a key."""
        return (self.design.group.order - 1).bit_length()

    @cached_property
    def symbol_type(self) -> np.dtype[np.unsignedinteger]:
        """Integer type of messages and keys."""
        return np.dtype(np.min_scalar_type(self.design.group.order - 1))

    def encode(
        self, values: ArrayLike, source: Source | None = None, first: int = 0
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
        """Public messages of all clients, and the keys of all levels.

        Args:
            values: whole numbers from 0 to size − 1, shape (n,), one a client.
            source: the operating system's by default.
            first: number of the first of these clients; blocks of clients may be encoded
                apart, each client under its own number.

        Returns:
            messages of shape (n,) and keys of shape (d − 1, n), row j for level ``epsilons[j]``.
        """
        held = checked_values(values, self.size)
        source = source or OSRandomness()
        messages = np.empty(len(held), dtype=self.symbol_type)
        keys = np.empty((len(self.epsilons) - 1, len(held)), dtype=self.symbol_type)
        for start in range(0, len(held), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(held)))
            symbols = self.design.symbols(held[block], first + start)
            undone = np.zeros(len(symbols), dtype=np.int64)
            for level in range(len(self.epsilons) - 1, 0, -1):
                undone = self.design.group.add(undone, self._noise(level, len(symbols), source))
                keys[level - 1, block] = undone
            undone = self.design.group.add(undone, self._noise(0, len(symbols), source))
            messages[block] = self.design.group.add(symbols, undone)
        return messages, keys

    def _noise(self, step: int, size: int, source: Source) -> NDArray[np.int64]:
        """Noise U of one step as elements of the group."""
        ranks = self.cascade.steps[step].draw(size, source)
        # Only in the first step with noise may the more probable elements differ from 0.
        first = int(math.isinf(self.epsilons[0]))
        return self._by_rank[ranks] if step == first else ranks

    @cached_property
    def _by_rank(self) -> NDArray[np.int64]:
        """Elements of the group, heavy ones first."""
        light = np.ones(self.design.group.order, dtype=np.bool_)
        light[self.design.heavy] = False
        return np.concatenate([self.design.heavy, np.flatnonzero(light)])

    def at_level(
        self, messages: NDArray[np.unsignedinteger], key: NDArray[np.unsignedinteger]
    ) -> NDArray[np.unsignedinteger]:
        """Messages less the noise that ``key`` removes: what the holder of the key sees."""
        if messages.shape != key.shape:
            raise ParameterError("key", key.shape, f"the messages' shape {messages.shape}")
        seen = self.design.group.subtract(messages.astype(np.int64), key.astype(np.int64))
        return seen.astype(self.symbol_type)

    def totals(self, messages: NDArray[np.unsignedinteger], first: int = 0) -> NDArray[np.int64]:
        """Histogram of messages at any level; histograms of different clients add up."""
        blocks = range(0, len(messages), _BLOCK)
        parts = (
            self.design.totals(messages[start : start + _BLOCK].astype(np.int64), first + start)
            for start in blocks
        )
        return sum(parts, np.zeros(self.design.totals_shape, dtype=np.int64))

    def level_of(self, epsilon: float) -> int:
        """Index of the level with the given ε."""
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
        size: how many values, at least 2.
        epsilons: levels in any order, each once; the smallest is public.
        mechanism: "one-bit": one bit a client, good for ε up to about 1 (thesis §7.4).
            "k-ary": k-ary randomized response, good where e^ε is above ``size``.
            "minimal": the key of least entropy that recovers every value (Theorem 7.5.1), for the
            levels infinity and one other; its heavy elements are chosen so that the public can
            estimate.
            "projective" and "hadamard": log₂ of about ``size`` bits a client, best at
            ``design_epsilon``; the former has the least error, the latter the smaller group.
            None: all analysts must share one, so the one is taken whose largest loss on any
            level, against the best for that level, is smallest.
        design_epsilon: for these two; by default the largest finite level.
        source: for the public seed of "one-bit"; the operating system's by default.
    """
    # Levels in falling order, at least one of them finite.
    for epsilon in epsilons:
        if epsilon != math.inf:
            checks.positive(epsilons=epsilon)
    levels = tuple(sorted((float(epsilon) for epsilon in epsilons), reverse=True))
    finite = [epsilon for epsilon in levels if not math.isinf(epsilon)]
    if not finite:
        raise ParameterError("epsilons", levels, "at least one finite level")
    # The mechanism with the least error, or the one that is named.
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
    """Mechanism whose total variance is near the best at every level, with short messages."""
    designs: dict[OneBit | Direct, None] = {}
    if not math.isinf(epsilons[0]):
        designs[OneBit(size, public_seed(source or OSRandomness()))] = None
    designs[Direct(size)] = None
    finite = [epsilon for epsilon in epsilons if not math.isinf(epsilon)]
    designs.update((make(size, e), None) for make in (hadamard, projective) for e in finite)
    candidates = [MultiLevel(design, epsilons) for design in designs]
    private = [index for index, epsilon in enumerate(epsilons) if not math.isinf(epsilon)]
    errors = np.array(
        [[each.design.total_variance(each.levels[i]) for i in private] for each in candidates]
    )
    losses = (errors / errors.min(axis=0)).max(axis=1)
    # A quarter more variance is no reason to send more bits.
    close = [
        each for each, loss in zip(candidates, losses, strict=True) if loss < losses.min() * 1.25
    ]
    return min(close, key=lambda each: each.message_bits)


def checked_values(values: ArrayLike, size: int) -> NDArray[np.int64]:
    """Values as whole numbers below ``size``, shape (n,)."""
    held = np.asarray(values)
    checks.count(2, size=size)
    if held.ndim != 1 or (held.size and not np.issubdtype(held.dtype, np.integer)):
        raise ParameterError("values", f"{held.dtype} of shape {held.shape}", "whole numbers, (n,)")
    if held.size and not (held.min() >= 0 and held.max() < size):
        raise ParameterError("values", "a value outside", f"values from 0 to {size - 1}")
    return held.astype(np.int64)


@dataclass(frozen=True, eq=False)
class LevelEstimate:
    """Estimate of the distribution of values at one level.

    Attributes:
        epsilon: the level's stated ε: pure, of one client's message, local model.
        clients: how many sent.
        raw: unbiased frequencies, shape (size,); some may be negative.
        frequencies: `raw` projected on the simplex, which never moves away from the truth.
        standard_errors: of `raw` about the population of which the values are independent draws:
            noise and sampling together.
    """

    epsilon: float
    clients: int
    raw: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    @property
    def guarantee(self) -> str:
        """Sentence on the guarantee of the level: unit, relation, trust."""
        if math.isinf(self.epsilon):
            return "no privacy: this key gives every client's value back"
        return (
            f"epsilon = {self.epsilon:g}, pure, of one client's message, replace-one, local model"
        )

    def interval(self, confidence: float = 0.95) -> NDArray[np.float64]:
        """Normal intervals of each value, cut to [0, 1], shape (2, size)."""
        checks.open_unit(confidence=confidence)
        width = float(ndtri((1 + confidence) / 2)) * self.standard_errors
        return np.clip([self.raw - width, self.raw + width], 0, 1)


def estimate(levels: MultiLevel, totals: NDArray[np.int64], level: int) -> LevelEstimate:
    """Estimated frequencies from a histogram of messages at one level.

    Args:
        levels: mechanism of all levels.
        totals: histogram from `MultiLevel.totals` of the messages *at that level*, summed over
            clients.
        level: index into ``levels.epsilons``.
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
