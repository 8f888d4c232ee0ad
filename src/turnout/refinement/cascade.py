"""Noise in steps: each step undone gives the next, less private, level. All in whole numbers.

`Cascade` holds the steps, `Level` the distribution of one level. `heavy_count`, `key_entropy` and
`least_key_bits` treat the case in which one analyst gets every value back and everybody else ε.

Notation (thesis Chapter 7 → here):
    ε₁ > … > ε_d    `Cascade.epsilons`; ε_d is the public level
    U¹, …, U^d      the steps; U¹ may be concentrated on a set of "heavy" elements
    z_j             `Level.light`, the probability of each element that is not heavy
    q_j             ``light / total`` of step j
    L^j             U^{j+1} + … + U^d, the key of level j
    k, s, t         values; heavy keys of probability e^ε/t, k − s light ones of 1/t,
                    t = s·e^ε + k − s

One group of order m carries all of it: XOR of bits is m = 2. A step after the first finite one is
the element 0 with probability 1 − (m−1)q and each other element with probability q, that is: with
probability mq everything is replaced by a uniform element. So a distribution with two
probabilities, heavy and light, keeps that form on every level.

The thesis' two conditions on keys (Theorem 7.5.1) are necessary and not sufficient: for k = 2 and
ε = 0 the keys (0.6, 0.2, 0.2) meet both, and no mechanism with them is private. Lemma 7.5.1 is
sufficient: message = value + key in a group of as many elements as keys.
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
    """Noise of one step, with whole numbers as weights.

    Attributes:
        heavy: weight of each of ``heavy_count`` elements.
        light: weight of each other element.
        heavy_count: 1 (the element 0) after the first finite level.
    """

    heavy: int
    light: int
    heavy_count: int
    order: int

    @property
    def total(self) -> int:
        """Sum of all weights, which is the bound of the uniform draws."""
        return self.heavy * self.heavy_count + self.light * (self.order - self.heavy_count)

    @property
    def entropy_bits(self) -> float:
        """Shannon entropy of the step."""
        level = Level(Fraction(self.heavy, self.total), Fraction(self.light, self.total))
        return level.entropy_bits(self.heavy_count, self.order)

    def draw(self, size: int, source: Source) -> NDArray[np.int64]:
        """Array of ``size`` ranks: below ``heavy_count`` for heavy elements, at least that for
        light ones.
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
    """Distribution of all noise that remains at one level.

    Attributes:
        heavy: probability of each heavy element.
        light: probability of each other element; 0 where the value is recovered.
    """

    heavy: Fraction
    light: Fraction

    @property
    def ratio(self) -> Fraction | None:
        """Exact e^ε of the level; None where it is infinite."""
        return self.heavy / self.light if self.light else None

    @property
    def epsilon(self) -> float:
        """Smallest float that is not below ln of `ratio`, which is at most the requested ε."""
        ratio = self.ratio
        return math.inf if ratio is None else level_above(ratio)

    @property
    def contrast(self) -> Fraction:
        """Probability of a heavy element less that of a light one, by which estimates are
        divided.
        """
        return self.heavy - self.light

    def entropy_bits(self, heavy_count: int, order: int) -> float:
        """Shannon entropy of the noise in bits."""
        cells = ((heavy_count, self.heavy), (order - heavy_count, self.light))
        return math.fsum(n * float(p) * -_log2(p) for n, p in cells if n and p > 0) + 0.0


@dataclass(frozen=True)
class Cascade:
    """Noise for analysts at several privacy levels, each of whom can remove a part of it.

    Source: (7.36)–(7.38), Theorem 7.4.1, Girgis 2023 [girgis2023thesis], for bits (order 2);
    here for any Abelian group, with a first level that may have no noise at all.

    Attributes:
        epsilons: stated privacy levels, strictly falling. The last level is finite and public;
            the first may be ``inf``, at which the value is recovered.
        order: number of elements of the group, at least 2.
        heavy_count: number of elements that are more probable than the others in the first noise.
        bits: the weights of a step sum to at most 2^bits.

    Guarantees:
        the exact ratio of each level (`levels`) is at most e^ε of its stated ε, and within
        2^{2−bits}·order of it where ε is below (bits − 1)·ln 2 − ln(order);
        several keys together show no more than the key of the largest ε, since the levels form
        a Markov chain.
    """

    epsilons: tuple[float, ...]
    order: int = 2
    heavy_count: int = 1
    bits: int = 62

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", tuple(float(e) for e in self.epsilons))
        checks.count(2, order=self.order)
        checks.count(1, heavy_count=self.heavy_count, bits=self.bits)
        checks.at_most("order - 1", self.order - 1, heavy_count=self.heavy_count)
        checks.at_most("62", 62, bits=self.bits)
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
                    "different levels, largest first (analysts at one level share its key)",
                )
        for epsilon in self.epsilons:
            if not math.isinf(epsilon):
                check_level(epsilon)
        self.levels  # noqa: B018 - refuses what cannot be realised when built, not when used

    @cached_property
    def _realised(self) -> tuple[tuple[Step, ...], tuple[Level, ...]]:
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
            # The exact weights of the step, rounded so that e^ε is not exceeded.
            fresh = before.light == 0
            growth = exponential_below(epsilon)
            step = self._first(growth) if fresh else self._next(before, growth)
            steps.append(step)
            levels.append(_after(before, step, fresh))
            # Levels that differ too little have no such weights.
            if levels[-1].contrast <= 0 or (not fresh and step.light == 0):
                raise UnsupportedError(
                    f"epsilon = {epsilon!r} cannot be distinguished from the next level, or from "
                    f"0, with {self.bits}-bit weights in a group of {self.order} elements"
                )
        return tuple(steps), tuple(levels)

    def _first(self, growth: Fraction) -> Step:
        """Largest contrast of a first step with a ratio of at most ``growth``."""
        room, others = 1 << self.bits, self.order - self.heavy_count
        if room < self.order:
            raise ParameterError("bits", self.bits, f"2**bits of at least order = {self.order}")
        least = room / (self.heavy_count * growth + others)
        if self.heavy_count == 1:
            # All that is not light is heavy: a power of two in total, nothing is rejected.
            light = -(-least.numerator // least.denominator)
            return Step(room - others * light, light, 1, self.order)
        light = max(1, math.floor(least))
        heavy = min(math.floor(growth * light), (room - others * light) // self.heavy_count)
        return Step(heavy, light, self.heavy_count, self.order)

    def _next(self, before: Level, growth: Fraction) -> Step:
        """Least noise that, added to ``before``, leads to a ratio of at most ``growth``."""
        room = 1 << self.bits
        excess = before.heavy - growth * before.light
        least = room * max(excess, Fraction(0)) / (growth - 1 + self.order * excess)
        light = -(-least.numerator // least.denominator)
        return Step(room - (self.order - 1) * light, light, 1, self.order)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Noise of each step: U¹, …, U^d."""
        return self._realised[0]

    @property
    def levels(self) -> tuple[Level, ...]:
        """Exact distribution of the noise at each level."""
        return self._realised[1]

    @property
    def randomness_bits(self) -> float:
        """Entropy of all steps together, in bits for each client. Source: (7.42)."""
        return math.fsum(step.entropy_bits for step in self.steps)

    def key_bits(self, level: int) -> float:
        """Entropy of the key of a level in bits for each client; 0 for the first level."""
        if self.levels[level].light == 0:
            return self.levels[-1].entropy_bits(self.heavy_count, self.order)
        kept = self.levels[-1].contrast / self.levels[level].contrast
        light = (1 - kept) / self.order
        return Level(light + kept, light).entropy_bits(1, self.order)


def _log2(p: Fraction) -> float:
    """Base-2 logarithm of an exact positive number, accurate near 1 too."""
    if abs(p - 1) < Fraction(1, 2):
        return math.log1p(float(p - 1)) / math.log(2)
    # math.log takes whole numbers of any size, where float(p) might overflow.
    return (math.log(p.numerator) - math.log(p.denominator)) / math.log(2)


def _after(before: Level, step: Step, fresh: bool) -> Level:
    """Distribution of the sum of the noise ``before`` and the noise of ``step``."""
    heavy, light = Fraction(step.heavy, step.total), Fraction(step.light, step.total)
    if fresh:
        return Level(heavy, light)
    kept = heavy - light
    return Level(before.heavy * kept + light, before.light * kept + light)


_SERIES_BELOW = 0.5
_TERMS = 24


def heavy_optimum(size: int, epsilon: float) -> float:
    """Real number l of heavy keys at which the entropy of the key is least.

    Source: (7.48), Girgis 2023 [girgis2023thesis]. As printed, k(e^ε(ε−1)+1)/(e^ε−1)², it
    cancels near 0; there a series is summed.
    """
    checks.count(2, size=size)
    checks.non_negative(epsilon=epsilon)
    if epsilon < _SERIES_BELOW:
        # (ε e^ε − (e^ε − 1))/ε² and (e^ε − 1)/ε, by their series.
        above = math.fsum(
            (n - 1) * epsilon ** (n - 2) / math.factorial(n) for n in range(2, _TERMS)
        )
        below = math.fsum(epsilon ** (n - 1) / math.factorial(n) for n in range(1, _TERMS))
        return size * above / below**2
    decay = math.exp(-epsilon)
    return size * (epsilon - 1 + decay) * decay / math.expm1(-epsilon) ** 2


def heavy_count(size: int, epsilon: float) -> int:
    """Whole number s* of heavy keys with the least entropy of the key.

    Source: Theorem 7.5.1, Girgis 2023 [girgis2023thesis]; 0 heavy keys, which it does not
    exclude, are the uniform distribution, which is never optimal.

    >>> [heavy_count(1000, epsilon) for epsilon in (0.01, 1, 3, 8)]
    [498, 339, 113, 2]
    """
    optimum = heavy_optimum(size, epsilon)
    near = {min(max(round_(optimum), 1), size - 1) for round_ in (math.floor, math.ceil)}
    return min(near, key=lambda heavy: key_entropy(size, epsilon, heavy))


def key_entropy(size: int, epsilon: float, heavy: int) -> float:
    """Entropy in bits of a key with ``heavy`` of ``size`` values heavy. Source: (7.47)."""
    checks.count(size=size, heavy=heavy)
    checks.at_most("size", size, heavy=heavy)
    checks.non_negative(epsilon=epsilon)
    decay = math.exp(-epsilon)
    surprise = math.log1p(heavy - 1 + (size - heavy) * decay)  # −ln of a heavy key
    light_mass = (size - heavy) * decay / (heavy + (size - heavy) * decay)
    return (surprise + light_mass * epsilon) / math.log(2)


def least_key_bits(size: int, epsilon: float, samples: int = 1) -> float:
    """Least entropy of a key that hides ``samples`` values with ε and can recover them.

    Source: Theorems 7.5.1 and 7.6.1, Girgis 2023 [girgis2023thesis]: keys cannot be reused, so
    it is ``samples`` times what one value needs. A necessary amount; `multi_level` with the
    mechanism "minimal" needs no more.
    """
    checks.count(samples=samples)
    return samples * key_entropy(size, epsilon, heavy_count(size, epsilon))
