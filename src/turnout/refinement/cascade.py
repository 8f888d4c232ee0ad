"""Noise added in steps: subtracting the last step gives the next, less private, level.

`Cascade` contains the steps; `Level` is the distribution of the noise at one level. `heavy_count`,
`key_entropy` and `least_key_bits` are for two levels: one analyst recovers every value, and
everybody else sees an ε-private message. All weights and probabilities are whole numbers or
fractions.

Notation (thesis Chapter 7 → here):
    ε₁ > … > ε_d    `Cascade.epsilons`; ε_d is the public level
    U¹, …, U^d      noise of the steps; in U¹, a set of "heavy" elements is more probable
    z_j             `Level.light`, the probability of each element that is not heavy
    q_j             ``light / total`` of `Step` j, the probability of each light element
    L^j             U^{j+1} + … + U^d, the key of level j
    k               number of values, and of keys if message = value + key
    s               number of heavy keys; a heavy key has probability e^ε/t, each of the k − s
                    light keys has probability 1/t, where t = s·e^ε + k − s

Values, noise and messages are elements of one group of order m; for m = 2 addition is the XOR of
bits. The first level may be infinite; its step is 0. The step of the first finite level has the
heavy elements. Each later step is the element 0 with probability 1 − (m−1)q, and each other element
with probability q. Equivalently, with probability mq the step is a uniform element, else 0. So the
noise has only two probabilities, heavy and light, at every level.

The two conditions on keys in the thesis (Theorem 7.5.1) are necessary but not sufficient: for two
values, three keys and ε = 0 the key probabilities (0.6, 0.2, 0.2) meet both conditions, but no
mechanism with these keys is private. Lemma 7.5.1 gives a sufficient condition: message = value +
key in a group that has as many elements as there are keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.interface import check_level, exponential_below, level_above
from turnout.randomness import Source


@dataclass(frozen=True, slots=True)
class Step:
    """Distribution of the noise of one step; probabilities are whole weights over `total`.

    Attributes:
        heavy: weight of each heavy element.
        light: weight of each other element.
        heavy_count: number of heavy elements; 1 (the element 0) after the first finite level.
        order: number of elements of the group.
    """

    heavy: int
    light: int
    heavy_count: int
    order: int

    @property
    def total(self) -> int:
        """Sum of all weights; the step is drawn from a uniform number below this sum."""
        return self.heavy * self.heavy_count + self.light * (self.order - self.heavy_count)

    @property
    def entropy_bits(self) -> float:
        """Shannon entropy of the step, in bits."""
        level = Level(Fraction(self.heavy, self.total), Fraction(self.light, self.total))
        return level.entropy_bits(self.heavy_count, self.order)

    def draw(self, size: int, source: Source) -> NDArray[np.int64]:
        """Ranks of ``size`` independent draws, shape (size,).

        A rank below ``heavy_count`` is a heavy element; the other ranks are light elements.
        """
        if self.light == 0:
            return np.zeros(size, dtype=np.int64)
        drawn = source.below(self.total, size)
        light_total = self.light * (self.order - self.heavy_count)
        beyond = drawn - light_total
        return np.where(
            beyond < 0, self.heavy_count + drawn // self.light, beyond // max(self.heavy, 1)
        )


@dataclass(frozen=True, slots=True)
class Level:
    """Distribution of the noise that remains in a message at one level.

    Attributes:
        heavy: probability of each heavy element.
        light: probability of each other element; 0 at a level that recovers the value.
    """

    heavy: Fraction
    light: Fraction

    @property
    def ratio(self) -> Fraction | None:
        """Exact e^ε of the level; None if ε is infinite."""
        return self.heavy / self.light if self.light else None

    @property
    def epsilon(self) -> float:
        """ε of the level: ln of `ratio` rounded up to a float; at most the requested ε."""
        ratio = self.ratio
        return math.inf if ratio is None else level_above(ratio)

    @property
    def contrast(self) -> Fraction:
        """Probability of a heavy element minus that of a light element.

        Dividing an estimate by this number removes its bias.
        """
        return self.heavy - self.light

    def entropy_bits(self, heavy_count: int, order: int) -> float:
        """Shannon entropy of the noise in bits."""
        cells = ((heavy_count, self.heavy), (order - heavy_count, self.light))
        return math.fsum(n * float(p) * -_log2(p) for n, p in cells if n and p > 0) + 0.0


@dataclass(frozen=True)
class Cascade:
    """Noise for analysts at several privacy levels, each of whom can remove a part of the noise.

    Source: (7.36)–(7.38), Theorem 7.4.1, Girgis 2023 [girgis2023thesis], for bits (order 2).
        This class generalises the formulas to any Abelian group and to a first level without noise.

    Attributes:
        epsilons: stated privacy levels ε, strictly decreasing. The last level is finite and public;
            the first may be ``inf``, at which the value is recovered.
        order: number of elements of the group, at least 2.
        heavy_count: number of elements that are more probable than the others in the first step
            with noise, from 1 to order − 1.
        bits: the weights of a step sum to at most 2^bits; from 1 to 62.

    Guarantees:
        The exact ratio of each level (`levels`) is at most e^ε of its stated ε. If ε is below
        (bits − 1)·ln 2 − ln(order), the ratio is within 2^{2−bits}·order of e^ε.
        Several keys together reveal no more than the key of the largest ε, since the levels form
        a Markov chain.

    Raises:
        ParameterError: no level, an infinite last level, levels that do not strictly decrease, or a
            level or number outside its range.
        UnsupportedError: two levels, or a level and 0, are too close for weights of ``bits`` bits.
    """

    epsilons: tuple[float, ...]
    order: int = 2
    heavy_count: int = 1
    bits: int = 62

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", tuple(float(e) for e in self.epsilons))
        # Check each number by itself.
        checks.count(2, order=self.order)
        checks.count(1, heavy_count=self.heavy_count, bits=self.bits)
        checks.at_most("order - 1", self.order - 1, heavy_count=self.heavy_count)
        if self.bits > 62:
            raise ParameterError("bits", self.bits, "at most 62")
        # Check the levels: strictly falling, a finite public level, and only finite ε in range.
        if not self.epsilons:
            raise ParameterError("epsilons", self.epsilons, "at least one privacy level")
        if math.isinf(self.epsilons[-1]):
            raise ParameterError(
                "epsilons", self.epsilons, "a finite smallest level, which is public"
            )
        for more, less in zip(self.epsilons, self.epsilons[1:], strict=False):
            if not more > less:
                raise ParameterError(
                    "epsilons",
                    self.epsilons,
                    "different levels, largest first (analysts at the same level share a key)",
                )
        for epsilon in self.epsilons:
            if not math.isinf(epsilon):
                check_level(epsilon)
        self.levels  # noqa: B018 - levels without weights are refused here, not at first use

    @cached_property
    def _realised(self) -> tuple[tuple[Step, ...], tuple[Level, ...]]:
        """All steps, and the distribution of the noise at all levels."""
        steps: list[Step] = []
        levels: list[Level] = []
        # From the largest ε to the smallest: each level adds noise to the level before.
        for epsilon in self.epsilons:
            before = levels[-1] if levels else Level(Fraction(1), Fraction(0))
            # An infinite ε adds no noise.
            if math.isinf(epsilon):
                steps.append(Step(1, 0, 1, self.order))
                levels.append(before)
                continue
            # Compute the step's weights, rounded such that the ratio is at most e^ε.
            fresh = before.light == 0
            growth = exponential_below(epsilon)
            step = self._first(growth) if fresh else self._next(before, growth)
            steps.append(step)
            levels.append(_after(before, step, fresh))
            # Refuse two levels that are too close for whole weights.
            if levels[-1].contrast <= 0 or (not fresh and step.light == 0):
                raise UnsupportedError(
                    f"epsilon = {epsilon!r} cannot be distinguished from the next level, or from "
                    f"0, with {self.bits}-bit weights in a group of {self.order} elements"
                )
        return tuple(steps), tuple(levels)

    def _first(self, growth: Fraction) -> Step:
        """First step with noise: the largest contrast for which the ratio is at most ``growth``."""
        room, others = 1 << self.bits, self.order - self.heavy_count
        if room < self.order:
            raise ParameterError("bits", self.bits, f"2**bits of at least order = {self.order}")
        least = room / (self.heavy_count * growth + others)
        if self.heavy_count == 1:
            # The one heavy element has all the rest, so the weights sum to a power of two, and
            # no draw is rejected.
            light = -(-least.numerator // least.denominator)
            return Step(room - others * light, light, 1, self.order)
        light = max(1, math.floor(least))
        heavy = min(math.floor(growth * light), (room - others * light) // self.heavy_count)
        return Step(heavy, light, self.heavy_count, self.order)

    def _next(self, before: Level, growth: Fraction) -> Step:
        """Step with the least noise that reduces the ratio of ``before`` to ``growth`` or less."""
        room = 1 << self.bits
        excess = before.heavy - growth * before.light
        least = room * max(excess, Fraction(0)) / (growth - 1 + self.order * excess)
        light = -(-least.numerator // least.denominator)
        return Step(room - (self.order - 1) * light, light, 1, self.order)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Distribution of the noise of each step, U¹, …, U^d."""
        return self._realised[0]

    @property
    def levels(self) -> tuple[Level, ...]:
        """Exact distribution of the noise at each level, in the order of ``epsilons``."""
        return self._realised[1]

    @property
    def randomness_bits(self) -> float:
        """Entropy of the noise of all steps, in bits for each client. Source: (7.42)."""
        return math.fsum(step.entropy_bits for step in self.steps)

    def key_bits(self, level: int) -> float:
        """Entropy of the key of a level, in bits for each client; 0 for the last, public, level.

        Args:
            level: index into ``epsilons``.
        """
        if self.levels[level].light == 0:
            return self.levels[-1].entropy_bits(self.heavy_count, self.order)
        kept = self.levels[-1].contrast / self.levels[level].contrast
        light = (1 - kept) / self.order
        return Level(light + kept, light).entropy_bits(1, self.order)


def _log2(p: Fraction) -> float:
    """Base-2 logarithm of a positive fraction, accurate also near 1."""
    if abs(p - 1) < Fraction(1, 2):
        return math.log1p(float(p - 1)) / math.log(2)
    # Take the logarithms of both whole numbers, since float(p) could overflow.
    return (math.log(p.numerator) - math.log(p.denominator)) / math.log(2)


def _after(before: Level, step: Step, fresh: bool) -> Level:
    """Distribution of the sum of the noise ``before`` and the noise of ``step``.

    ``fresh`` is true if ``step`` is the first step with noise.
    """
    heavy, light = Fraction(step.heavy, step.total), Fraction(step.light, step.total)
    if fresh:
        return Level(heavy, light)
    kept = heavy - light
    return Level(before.heavy * kept + light, before.light * kept + light)


_SERIES_BELOW = 0.5
_TERMS = 24


def heavy_optimum(size: int, epsilon: float) -> float:
    """Real number of heavy keys that minimizes the entropy of a key.

    Source: (7.48), Girgis 2023 [girgis2023thesis]: k(e^ε(ε−1)+1)/(e^ε−1)². Near ε = 0 this
        formula loses all digits to cancellation, so a series is summed for ε below 0.5.

    Args:
        size: number of values k, at least 2.
        epsilon: ε of the public message, at least 0, in nats.

    Raises:
        ParameterError: ``size`` or ``epsilon`` outside its range.
    """
    checks.count(2, size=size)
    checks.non_negative(epsilon=epsilon)
    if epsilon < _SERIES_BELOW:
        # The numerator over ε², and (e^ε − 1)/ε, by their series.
        above = math.fsum(
            (n - 1) * epsilon ** (n - 2) / math.factorial(n) for n in range(2, _TERMS)
        )
        below = math.fsum(epsilon ** (n - 1) / math.factorial(n) for n in range(1, _TERMS))
        return size * above / below**2
    decay = math.exp(-epsilon)
    return size * (epsilon - 1 + decay) * decay / math.expm1(-epsilon) ** 2


def heavy_count(size: int, epsilon: float) -> int:
    """Whole number s* of heavy keys that minimizes the entropy of a key, from 1 to k − 1.

    Source: Theorem 7.5.1, Girgis 2023 [girgis2023thesis]. The theorem also allows s = 0, which is
        the uniform distribution of keys and never optimal.

    Args:
        size: number of values k, at least 2.
        epsilon: ε of the public message, at least 0, in nats.

    Raises:
        ParameterError: ``size`` or ``epsilon`` outside its range.

    >>> [heavy_count(1000, epsilon) for epsilon in (0.01, 1, 3, 8)]
    [498, 339, 113, 2]
    """
    optimum = heavy_optimum(size, epsilon)
    near = {min(max(round_(optimum), 1), size - 1) for round_ in (math.floor, math.ceil)}
    return min(near, key=lambda heavy: key_entropy(size, epsilon, heavy))


def key_entropy(size: int, epsilon: float, heavy: int) -> float:
    """Entropy in bits of a key, if ``heavy`` of ``size`` keys are heavy.

    Source: (7.47), Girgis 2023 [girgis2023thesis].

    Args:
        size: number of keys k, at least 1.
        epsilon: ln of the ratio of a heavy and a light key's probabilities, at least 0.
        heavy: number of heavy keys s, from 1 to ``size``.

    Raises:
        ParameterError: an argument outside its range.
    """
    checks.count(size=size, heavy=heavy)
    checks.at_most("size", size, heavy=heavy)
    checks.non_negative(epsilon=epsilon)
    decay = math.exp(-epsilon)
    surprise = math.log1p(heavy - 1 + (size - heavy) * decay)  # −ln P(a heavy key)
    light_mass = (size - heavy) * decay / (heavy + (size - heavy) * decay)
    return (surprise + light_mass * epsilon) / math.log(2)


def least_key_bits(size: int, epsilon: float, samples: int = 1) -> float:
    """Least entropy in bits of a key that recovers ``samples`` values from ε-private messages.

    The mechanism "minimal" of `multi_level` attains it, up to the rounding of weights.

    Source: Theorems 7.5.1 and 7.6.1, Girgis 2023 [girgis2023thesis]. A key cannot be reused, so
        the entropy is ``samples`` times the entropy for one value.

    Args:
        size: number of values k, at least 2.
        epsilon: ε of the public message of one value, at least 0, in nats.
        samples: number of values, at least 1.

    Raises:
        ParameterError: an argument outside its range.
    """
    checks.count(samples=samples)
    return samples * key_entropy(size, epsilon, heavy_count(size, epsilon))
