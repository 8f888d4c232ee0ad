"""Lower bounds on the privacy loss of shuffled messages, and blocks that have both bounds.

`LowerBoundBlock` is a round of any ε₀-randomizers, with an upper and a lower bound.
`IdenticalOthersBlock`, `identical_others_block` and `IdenticalGaussianBlock` are rounds in which
all others hold the same record. `kary_response_block` and `hadamard_response_block` have both
bounds of two known randomizers. `messages` makes these blocks; they build on `blanket`,
`binary_response` and `participation.check_ins`.

A claim (ε, δ) is false if, for one choice of the others' records, some event is likelier than
(ε, δ) allows. So every choice of the others' records gives a lower bound on ε, and so does every
function of the messages. docs/design/shuffling.md, "What is attained", gives the reasons for the
choices here.

Notation
    ε₀        of the randomizer      e = e^{ε₀}
    x⁰, x¹    the victim's two records
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock
from turnout.accounting.divergence.curves import BestCurve, Curve, Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair, bounded_variation_pair, pair_of_table
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.shuffling.binary_response import (
    BinaryResponseBlock,
    BinaryResponseCurve,
    Bits,
)
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    hadamard_pair,
    kary_pair,
    stronger_clones_pair,
    third_value_pair,
)
from turnout.core import checks

_NEARER = 1e-9
_FEW_OF_OTHERS = 2.0  # ε₀ from which P/Q of what the victim does not prefer matters little
_FEW_TO_COMPOSE = 10_000  # Gaussian messages up to which their exact distribution is composed


@dataclass(frozen=True, slots=True)
class LowerBoundBlock:
    """Round of messages of any ε₀-randomizers, adaptive or not, with an upper and a lower bound.

    The upper curve is that of the pair proved for all ε₀-randomizers. There are two candidates for
    the lower curve: binary response with identical others, and three-valued response if all others
    hold the third value. The second candidate has the larger δ for many clients if ε₀ > ln 2. For
    one round the lower curve is the larger of the two at each K; for composition it is the
    candidate with the larger total variation. If all other records are identical, no randomizer has
    a larger χ² than the larger χ² of the two candidates (docs/design/shuffling.md). The REMOVE
    direction of binary response usually has the larger δ; both directions of three-valued response
    are equal.

    Attributes:
        local_epsilon: ε₀ of each message, under replacement.
        clients: n, number of clients, each of which sends one message.
    """

    local_epsilon: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio of the upper pair, at most 1."""
        return self._third.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one side; a lower curve is the larger of two randomizers' curves at each K."""
        if side is Side.UPPER:
            return self._third.curve(direction, side, delta, refinement)
        blocks = (self._binary, self._third)
        return BestCurve(side, [b.curve(direction, side, delta, refinement) for b in blocks])

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of one side; the lower curves are the two directions of one randomizer."""
        third = self._third.curves(side, delta, refinement)
        if side is Side.UPPER:
            return third
        binary, one = self._binary.curves(side, delta, refinement), np.ones(1)
        larger = third.remove[0].delta(one) > binary.remove[0].delta(one)
        return third if bool(larger[0]) else binary

    @property
    def _binary(self) -> BinaryResponseBlock:
        return BinaryResponseBlock(self.local_epsilon, self.clients)

    @property
    def _third(self) -> BlanketBlock:
        upper = stronger_clones_pair(self.local_epsilon)
        return BlanketBlock(upper, self.clients, third_value_pair(self.local_epsilon))


@dataclass(frozen=True, slots=True)
class IdenticalOthersBlock(Bits):
    """Round of binary response in which all others hold the bit that the victim holds in Q.

    In P the victim holds the other bit. So a sample without the victim is the same in both worlds,
    as `sampled_rounds` requires. The upper curve is that of the pair proved for all
    ε₀-randomizers.
    """

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one side; a lower curve is exact at every K."""
        if side is Side.LOWER:
            return self._exact(direction)
        return self._above.curve(direction, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of one side; lower curves are exact in both directions."""
        if side is Side.LOWER:
            remove, add = (self._exact(direction) for direction in Direction)
            return CurvePair(side, [remove], [add])
        return self._above.curves(side, delta, refinement)

    def _exact(self, direction: Direction) -> Curve:
        return BinaryResponseCurve(self.local_epsilon, self.clients, 0, direction, Side.LOWER)

    @property
    def _above(self) -> BlanketBlock:
        return BlanketBlock(stronger_clones_pair(self.local_epsilon), self.clients)


def identical_others_block(
    local_epsilon: float, total_variation: float, clients: int
) -> AllocationBlock:
    """Block for lower bounds: all other clients hold the record that the victim holds in Q.

    The victim's two records have the largest loss ε₀ and the total variation distance τ that the
    randomizer allows. The likelihood ratio is the mean of the ratios of n messages, as in random
    allocation of one step among n. The block is a lower bound, because the distance of the pair is
    slightly reduced and, where ε₀ is large, messages that the victim does not prefer are merged.
    Merging loses a fraction e^{−ε₀} of the variance and makes the distribution of the sum of many
    messages ten times as fast to compute.

    Args:
        local_epsilon: ε₀ of each message, under replacement.
        total_variation: τ in (0, 1].
        clients: n, number of clients, each of which sends one message.
    """
    nearer = total_variation * (1.0 - _NEARER)
    if local_epsilon < _FEW_OF_OTHERS:
        return AllocationBlock(bounded_variation_pair(local_epsilon, nearer), clients)
    other = nearer / math.expm1(local_epsilon)
    own = other + nearer
    pair, _ = pair_of_table([own, 1.0 - own], [other, 1.0 - other])
    return AllocationBlock(pair, clients)


@dataclass(frozen=True, slots=True)
class IdenticalGaussianBlock:
    """Round of Gaussian messages if all others hold −C and the victim holds C in P and −C in Q.

    The likelihood ratio is then the mean of n Gaussian ratios, as in random allocation of one step
    among n. For many messages only their sum is used, which is faster and gives a lower bound.

    Attributes:
        noise_multiplier: σ, standard deviation of one message's noise over the clip norm C.
        clients: n, number of clients, each of which sends one message.
    """

    noise_multiplier: float
    clients: int

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, at most 1."""
        return self._steps.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Exact curve, rounded to the given side."""
        return self._steps.curve(direction, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Exact curves for few messages, lower curves of the messages' sum for many messages."""
        many = self.clients > _FEW_TO_COMPOSE and side is Side.LOWER
        return (self._sum if many else self._steps).curves(side, delta, refinement)

    @property
    def _steps(self) -> AllocationBlock:
        return AllocationBlock(GaussianPair(0.5 * self.noise_multiplier), self.clients)

    @property
    def _sum(self) -> PairBlock:
        return PairBlock(GaussianPair(0.5 * self.noise_multiplier * math.sqrt(self.clients)))


def kary_response_block(local_epsilon: float, values: int, clients: int) -> Block:
    """Round of k-ary randomized response, with bounds from both sides.

    Source: docs/design/shuffling.md, "What is attained".

    Args:
        local_epsilon: ε₀ of each message, under replacement.
        values: k, number of values, at least 2.
        clients: n, number of clients, each of which sends one message.

    Returns:
        Block whose curves depend on k = ``values``. For k = 2 the upper curve is the supremum over
        all splits of the others' bits, and the lower curve is that of identical others. For k > 2
        the upper curve is that of the blanket of the victim's two values and the neutral values; in
        the lower curve all others hold one value that the victim never holds, and the k − 2 values
        other than the victim's two are merged.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.count(2, values=values)
    if values == 2:
        return BinaryResponseBlock(local_epsilon, clients)
    upper = kary_pair(local_epsilon, values)
    return BlanketBlock(upper, clients, _others_elsewhere(upper))


def hadamard_response_block(local_epsilon: float, clients: int) -> Block:
    """Round of Hadamard response, with any number of values and bounds from both sides.

    Source: docs/design/shuffling.md, "What is attained".

    Args:
        local_epsilon: ε₀ of each message, under replacement.
        clients: n, number of clients, each of which sends one message.

    Returns:
        Block whose upper curve is that of the blanket of any two values. In the lower curve, for
        three values or more, all others hold the value whose Hadamard row is the product of the
        rows of the victim's two values.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    upper = hadamard_pair(local_epsilon)
    return BlanketBlock(upper, clients, _others_elsewhere(upper))


def _others_elsewhere(upper: BlanketPair) -> BlanketPair:
    """Blanket pair with the victim's masses in which every message not high or low is neutral."""
    return BlanketPair(upper.high, upper.low, upper.share, 1.0 - 2.0 * upper.share)
