"""Averaged check-ins: who comes to a window draws a step, and a step shows its messages' average.

Algorithm 2 of Balle, Kairouz, McMahan, Thakkar and Guha Thakurta 2020 (balle2020checkins).
Neighbours differ in one client's record (replace-one).

Given how many came to each step, which no record has a say in, the window is a shuffle of all who
came: they are in a uniform order, and a step's randomizer knows the averages of the steps before.
So what is proved of adaptive randomizers applies, whatever the number of steps, to n clients or,
if each comes with a chance, to as many as come. docs/design/shuffling.md, "Averaged check-ins".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.accounting.blocks import Block, PairBlock
from turnout.accounting.pairs import GaussianPair
from turnout.accounting.shuffling.attained import AlikeBlock
from turnout.accounting.shuffling.messages import UpperMessages
from turnout.accounting.shuffling.sampling import SelfSampledBlock, SubsampledBlock
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.spec import ApproximateRandomizer, FixedRandomizer, GaussianNoise, PureRandomizer


@dataclass(frozen=True, slots=True)
class AveragedWindow:
    """One window.

    Attributes:
        upper: never below what it shows of one client, in both directions.
        lower: what an adversary really gets, to be asked for lower curves in both directions; None
            where nothing is known.
    """

    upper: Block
    lower: Block | None


def averaged_window(randomizer: object, population: int, probability: float) -> AveragedWindow:
    """One window of averaged check-ins, or what has been released of it.

    Source: Theorem 3 and "Averaged check-ins" of docs/design/shuffling.md, in the place of Theorem
    4.1 of balle2020checkins. Windows are composed: each draws its steps afresh.

    Args:
        randomizer: of every message. The steps choose what it is applied to, so of pure ones no
            more is used than their ε₀.
        population: n ≥ 1, herself included, who all follow the protocol.
        probability: in (0, 1], the chance of having come; p₀·s/m after s steps of m.

    Raises:
        UnsupportedError: nothing is known of the randomizer's shuffled messages.
    """
    checks.count(population=population)
    adaptive, attained = _adaptive(randomizer)
    upper, lower = UpperMessages(adaptive), None if attained is None else SummedMessages(attained)
    if probability == 1.0:
        whole = None if lower is None else SubsampledBlock(lower(population), 1.0, alike=True)
        return AveragedWindow(upper(population), whole)
    return AveragedWindow(
        SelfSampledBlock(upper, population, probability),
        None if lower is None else SelfSampledBlock(lower, population, probability, alike=True),
    )


def _adaptive(randomizer: object) -> tuple[object, object]:
    """What is used of a randomizer from above, and from below (None: nothing)."""
    if isinstance(randomizer, PureRandomizer):
        pure = PureRandomizer(randomizer.epsilon0)
        known = type(randomizer) in (PureRandomizer, FixedRandomizer)
        return pure, pure if known else None
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
        """Of so many messages."""
        if isinstance(self.randomizer, PureRandomizer):
            return AlikeBlock(self.randomizer.epsilon0, clients)
        assert isinstance(self.randomizer, GaussianNoise)
        sigma = self.randomizer.noise_multiplier
        return PairBlock(GaussianPair(0.5 * sigma * math.sqrt(clients)))
