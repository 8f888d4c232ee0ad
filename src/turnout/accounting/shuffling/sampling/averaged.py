"""Averaged check-ins: who comes to a window draws a step, and a step shows its messages' average.

Algorithm 2 of Balle, Kairouz, McMahan, Thakkar and Guha Thakurta 2020 (balle2020checkins).
Neighbours differ in one client's record (replace-one).

Given how many came to each step, which no record has a say in, the window is a shuffle of all who
came: they are in a uniform order, and a step's randomizer knows the averages of the steps before.
So what is proved of adaptive randomizers applies, whatever the number of steps, to n clients or,
if each comes with a chance, to as many as come. That needs an order of speaking that nobody knows:
each client draws the step by a coin of its own that no step releases, so given the loads every
order is equally likely, and the coordinator moves the model by averages and counts alone.
docs/design/shuffling.md, "Averaged check-ins".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.accounting.divergence.blocks import Block, PairBlock
from turnout.accounting.divergence.curves import BestCurve, Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.shuffling.messages import PublishedRandomizer, UpperMessages
from turnout.accounting.shuffling.responses.attained import IdenticalOthersBlock
from turnout.accounting.shuffling.sampling.blocks import SelfSamplingBlock, SubsampledBlock
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    GaussianNoise,
    NonAdaptiveRandomizer,
    PureRandomizer,
)

SHUFFLED_RANDOMIZERS = (PureRandomizer, PublishedRandomizer, ApproximateRandomizer, GaussianNoise)
"""Those that `averaged_window` knows."""


@dataclass(frozen=True, slots=True)
class AveragedWindow:
    """One window, from above and (None where nothing is known) from below, in both directions."""

    upper: Block
    lower: Block | None


@dataclass(frozen=True, slots=True)
class MinOfBlocks:
    """The smaller of two upper bounds on the same step at each K."""

    one: Block
    other: Block

    @property
    def loss_deviation(self) -> float:
        """The smaller one."""
        return min(self.one.loss_deviation, self.other.loss_deviation)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The smaller of both curves that are sharp near one δ."""
        blocks = (self.one, self.other)
        return BestCurve(side, [b.curve(direction, side, delta, refinement) for b in blocks])

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """All curves of both."""
        one, other = (block.curves(side, delta, refinement) for block in (self.one, self.other))
        floors = min(one.floors[0], other.floors[0]), min(one.floors[1], other.floors[1])
        return CurvePair(side, [*one.remove, *other.remove], [*one.add, *other.add], floors)


def averaged_window(
    randomizer: object, population: int, probability: float, sensitivity: float = 2.0
) -> AveragedWindow:
    """One window of averaged check-ins, or what has been released of it.

    Source: "Averaged check-ins" of docs/design/shuffling.md, Theorems 3 and 4 there in the
    place of Theorem 4.1 of balle2020checkins. Windows are composed: each draws its steps afresh.

    Args:
        randomizer: of every message. The steps choose what it is applied to, so of pure ones no
            more is used than their ε₀.
        population: n, the client included, who all follow the protocol.
        probability: in (0, 1], the chance of having come; p₀·s/m after s steps of m.
        sensitivity: how far apart a client's two records can lie, in units of C: 2 under
            replace-one, 1 where one of them is the null record.
    """
    checks.count(population=population)
    adaptive, attained = _adaptive(randomizer)
    if isinstance(attained, GaussianNoise):
        attained = GaussianNoise(2.0 / sensitivity * attained.noise_multiplier)
    uppers = UpperMessages(adaptive)
    lowers = None if attained is None else SummedMessages(attained)
    lower = None
    if probability == 1.0:
        upper = uppers(population)
        if lowers is not None:
            lower = SubsampledBlock(lowers(population), 1.0, identical_others=True)
    else:
        upper = SelfSamplingBlock(uppers, population, probability)
        if lowers is not None:
            lower = SelfSamplingBlock(lowers, population, probability, identical_others=True)
    if sensitivity < 2.0 and isinstance(randomizer, GaussianNoise):
        # Others' records may lie 2C away from the client's, which without them need not be counted.
        alone = PairBlock(GaussianPair(randomizer.noise_multiplier / sensitivity))
        upper = MinOfBlocks(upper, alone)
    return AveragedWindow(upper, lower)


def _adaptive(randomizer: object) -> tuple[object, object]:
    """The randomizers that price another from above, and from below (None: nothing)."""
    if isinstance(randomizer, PureRandomizer):
        pure = PureRandomizer(randomizer.epsilon0)
        known = type(randomizer) in (PureRandomizer, NonAdaptiveRandomizer)
        return pure, pure if known else None
    if isinstance(randomizer, PublishedRandomizer):
        return randomizer, None
    if isinstance(randomizer, ApproximateRandomizer):
        return randomizer, PureRandomizer(randomizer.epsilon0)
    if isinstance(randomizer, GaussianNoise):
        return randomizer, randomizer
    raise UnsupportedError(
        f"no analysis of averaged messages is known for {type(randomizer).__name__}"
    )


@dataclass(frozen=True, slots=True)
class SummedMessages:
    """The sum of all messages of a window, where all others' records are alike.

    It follows from the averages and the counts. Bits may be told apart by it as well as by the
    messages, for only their number counts; of Gaussian messages it is Gaussian.
    """

    randomizer: object

    def __call__(self, clients: int) -> Block:
        """The block of ``clients`` messages."""
        if isinstance(self.randomizer, PureRandomizer):
            return IdenticalOthersBlock(self.randomizer.epsilon0, clients)
        assert isinstance(self.randomizer, GaussianNoise)
        sigma = self.randomizer.noise_multiplier
        return PairBlock(GaussianPair(0.5 * sigma * math.sqrt(clients)))
