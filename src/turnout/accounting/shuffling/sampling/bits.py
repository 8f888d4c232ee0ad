"""Sampled bits of some of the clients: a uniform subset of them, or self-sampling.

Neighbours differ in one client's record (replace-one). The proofs are in docs/design/shuffling.md,
"Sampled bits".

Notation
    n    clients           N    messages of a round; the N < n who sent one are a uniform subset
    γ    N/n               q    each client's chance of sending one, drawn on its own
    K    e^ε

The bits of a round without the client are N slots for N of the n − 1 others. A round with it is the
same but for one slot, any of them: so the client hides in N slots with chance γ, and nothing has to
be made up. `responses.slots` has the price, which for a given j rises with γ, is convex in it, and
falls as N rises.

**Self-sampling.** N is seen. N₁ ≤ N ≤ N₂ has the price of N₁ slots, with γ spread on N₁/n and N₂/n
so that its mean stays. N = n comes with chance qⁿ and is a round of all clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.curves import BestCurve, Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.responses.bits import SampledBits
from turnout.accounting.shuffling.responses.slots import Slots, flip_of
from turnout.accounting.shuffling.sampling.mixtures import dilutions, grouped
from turnout.core import checks
from turnout.core.errors import ParameterError

_ROUNDING = 1e-9  # relative, of a mixture
_FEW = 4.0  # deviations of N below which every N is a group of its own
_SWAPPED_FROM, _HIDDEN = 1 / 3, 0.3  # γ, and the deviation of the loss of one who surely sends
_EDGES = np.array([-9, -7, -5.5, -4.5, -3.75, *np.arange(-3, 3.1, 0.75), 5])  # of groups of N


@dataclass(frozen=True, slots=True)
class SubsampledBits:
    """One message of each of N of n clients, a uniform subset; N < n."""

    local_epsilon: float
    messages: int
    population: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(messages=self.messages, population=self.population)
        if self.messages >= self.population:
            expected = f"below population = {self.population}"
            raise ParameterError("messages", self.messages, expected)

    @property
    def loss_deviation(self) -> float:
        """That of N messages, times γ."""
        hidden = SampledBits(self.local_epsilon, self.messages).loss_deviation
        return self.messages / self.population * hidden

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        return _hidden(self.local_epsilon, self.messages, self.messages / self.population, k)


@dataclass(frozen=True, slots=True)
class SelfSampledBits:
    """One message of each of n clients that come, each with chance q in (0, 1]."""

    local_epsilon: float
    population: int
    rate: float

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon, rate=self.rate)
        checks.count(population=self.population)
        checks.probability(rate=self.rate)

    @property
    def loss_deviation(self) -> float:
        """That of about the mean number of messages, times q."""
        messages = max(round(self.population * self.rate), 1)
        return self.rate * SampledBits(self.local_epsilon, messages).loss_deviation

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        everybody = math.exp(self.population * math.log(self.rate))
        total = 0.0
        if everybody > 0.0:
            total = everybody * SampledBits(self.local_epsilon, self.population).delta(k)
        for messages, spread in _spread(self.population, self.rate):
            for rate, weight in spread:
                total += weight * _hidden(self.local_epsilon, messages, rate, k)
        return min(total * (1.0 + _ROUNDING), 1.0)


def _hidden(local_epsilon: float, messages: int, rate: float, k: float) -> float:
    """δ(K) of a client hidden in as many slots as there are messages."""
    return Slots(local_epsilon, messages, rate, flip_of(local_epsilon)).delta(k)


@dataclass(frozen=True, slots=True)
class WorseOrderBlock:
    """Messages among others that are alike, the two worlds in whichever order costs more.

    In the base's *remove* the client differs from all others in P, in its *add* in Q. Of one round
    the lower curve is the larger one at each K, composed that of one order.

    Attributes:
        base: rounds in which the client takes part with chance γ, with curves of both directions.
        rate: γ.
    """

    base: Block
    rate: float

    @property
    def loss_deviation(self) -> float:
        """The base's."""
        return self.base.loss_deviation

    @property
    def swapped(self) -> bool:
        """Whether *add* is taken for *remove*.

        To first order in ε it has the larger tail from γ = 1/3 on; but its loss is at most
        −ln(1 − γ), which is little where others hide nobody.
        """
        return self.rate > _SWAPPED_FROM and self.loss_deviation < _HIDDEN * self.rate

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """From below the larger one of both directions at each K."""
        if side is Side.UPPER:
            other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
            return self.base.curve(other if self.swapped else direction, side, delta, refinement)
        curves = [self.base.curve(one, side, delta, refinement) for one in Direction]
        return BestCurve(side, curves)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Both directions of one order."""
        pair = self.base.curves(side, delta, refinement)
        if not self.swapped:
            return pair
        return CurvePair(side, pair.add, pair.remove, (pair.floors[1], pair.floors[0]))


@remembered
def _spread(population: int, rate: float) -> list[tuple[int, list[tuple[float, float]]]]:
    """For each group of N < n its least N, and rates γ with weights; never below the truth."""
    mean = population * rate
    deviation = math.sqrt(mean * (1.0 - rate)) + 1.0
    edges = np.rint(mean + deviation * _EDGES)
    if deviation < _FEW:
        edges = np.append(edges, np.arange(math.floor(mean - 5 * deviation), edges[-1]))
    first = np.unique(np.clip(np.append(edges, 1.0), 1, population)).astype(np.int64)
    found: list[tuple[int, list[tuple[float, float]]]] = []
    for group in grouped(first, population, rate, Side.UPPER):
        if group.first < population:
            last = min(group.last, population - 1)
            fewer = group._replace(last=last, mean=min(group.mean, last))
            found.append((group.first, dilutions(fewer, population, Side.UPPER)))
    return found
