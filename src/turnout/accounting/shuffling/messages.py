"""Blocks of one round of shuffled messages, by the type of the randomizer.

`one_round` returns a `Round`: the upper and the lower block, and the name of the analysis. It has
one implementation per type of randomizer. `UpperMessages` and `IdenticalOthersMessages` are the
blocks as functions of the number of messages, for rounds of a sample of the clients.
`PublishedRandomizer` stands for any adaptive ε₀-randomizer and has the smallest published bound.
`schemes`, `decomposition` and `pricing` use this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.composition import RepeatedBlock
from turnout.accounting.shuffling.approximate import (
    ApproximateMessagesBlock,
    GaussianMessagesBlock,
    InfinityMassBlock,
)
from turnout.accounting.shuffling.binary_response import BinaryResponseBlock
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    kary_pair,
    worst_pair,
)
from turnout.accounting.shuffling.lower_bounds import (
    IdenticalGaussianBlock,
    IdenticalOthersBlock,
    LowerBoundBlock,
    hadamard_response_block,
    identical_others_block,
    kary_response_block,
)
from turnout.accounting.shuffling.sampled_bits import SampledBitsBlock, SampledBitsRound
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AttainedVariation,
    BoundedVariation,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    RepeatedMessages,
    SampledBitResponse,
)


@dataclass(frozen=True, slots=True)
class Round:
    """Upper and lower block of one round of n messages.

    Attributes:
        upper: block that bounds the loss of every client from above.
        lower: block that bounds the loss of some client from below; None if no such block is known.
        identical_others: lower block if all other clients hold the record that the victim holds in
            one of the two worlds; used for samples of the clients. None if no such block is known.
        method: name of the analysis, in a few words.
        quick: upper block that is faster to compute, for samples of the clients, which need a block
            for each of many numbers of messages; ``upper`` is used if None.
        bits: ε₀ if each message is one randomized bit of the only coordinate, or of a uniform
            coordinate that the message names; samples of such messages have a tighter upper bound.
            None for other messages.
    """

    upper: Block
    lower: Block | None
    identical_others: Block | None
    method: str
    quick: Block | None = None
    bits: float | None = None


@singledispatch
def one_round(randomizer: object, clients: int) -> Round:
    """Blocks of one round in which each of ``clients`` clients sends one message.

    Args:
        randomizer: randomizer of every message.
        clients: n, number of clients.

    Raises:
        UnsupportedError: no analysis of shuffled messages of this randomizer is known.
    """
    raise UnsupportedError(
        f"no analysis of shuffled messages is known for {type(randomizer).__name__}"
    )


@dataclass(frozen=True, slots=True)
class PublishedRandomizer:
    """Any adaptive ε₀-randomizer, analysed by the smallest published bound.

    The class replaces `PureRandomizer` inside accounting; no scheme holds an instance.
    """

    epsilon0: float


@one_round.register
def _(randomizer: PureRandomizer, clients: int) -> Round:
    pair = worst_pair(randomizer.epsilon0)
    return _pure(randomizer, clients, pair, "privacy blanket of the worst adaptive randomizers")


@one_round.register
def _(randomizer: PublishedRandomizer, clients: int) -> Round:
    pair = clones_pair(randomizer.epsilon0)
    return _pure(randomizer, clients, pair, "clones (Feldman et al. 2021) of any randomizers")


@one_round.register
def _(randomizer: NonAdaptiveRandomizer, clients: int) -> Round:
    pair = worst_pair(randomizer.epsilon0)
    return _pure(randomizer, clients, pair, "privacy blanket of the worst one randomizer")


@one_round.register
def _(randomizer: BoundedVariation, clients: int) -> Round:
    upper = BlanketBlock(worst_pair(randomizer.epsilon0, randomizer.total_variation), clients)
    return Round(upper, None, None, "privacy blanket of one randomizer of known total variation")


@one_round.register
def _(randomizer: AttainedVariation, clients: int) -> Round:
    epsilon0, total_variation = randomizer.epsilon0, randomizer.total_variation
    upper = BlanketBlock(worst_pair(epsilon0, total_variation), clients)
    lower = identical_others_block(epsilon0, total_variation, clients)
    method = "privacy blanket of one randomizer of known total variation"
    return Round(upper, lower, lower, method)


def _pure(
    randomizer: PureRandomizer | PublishedRandomizer, clients: int, pair: BlanketPair, method: str
) -> Round:
    epsilon0, upper = randomizer.epsilon0, BlanketBlock(pair, clients)
    return Round(
        upper, LowerBoundBlock(epsilon0, clients), IdenticalOthersBlock(epsilon0, clients), method
    )


@one_round.register
def _(randomizer: KaryResponse, clients: int) -> Round:
    epsilon0, values = randomizer.epsilon0, randomizer.categories
    block = kary_response_block(epsilon0, values, clients)
    if values == 2:
        identical_others = IdenticalOthersBlock(epsilon0, clients)
        quick = BlanketBlock(kary_pair(epsilon0, 2), clients)
        method = "binary response, worst of all others' bits"
        return Round(block, block, identical_others, method, quick, epsilon0)
    return Round(block, block, None, f"privacy blanket of {values}-ary response")


@one_round.register
def _(randomizer: HadamardResponse, clients: int) -> Round:
    block = hadamard_response_block(randomizer.epsilon0, clients)
    return Round(block, block, None, "privacy blanket of Hadamard response")


@one_round.register
def _(randomizer: SampledBitResponse, clients: int) -> Round:
    epsilon0 = randomizer.epsilon0
    upper = SampledBitsBlock(SampledBitsRound(epsilon0, clients))
    # Lower bound: all others hold one word, and the client holds this word or the opposite one.
    # Then only the number of true bits matters, as in binary response.
    lower = BinaryResponseBlock(epsilon0, clients)
    identical_others = IdenticalOthersBlock(epsilon0, clients)
    method = "sampled bits, worst of all others' words"
    return Round(upper, lower, identical_others, method, bits=epsilon0)


@one_round.register
def _(randomizer: ApproximateRandomizer, clients: int) -> Round:
    epsilon0, delta0 = randomizer.epsilon0, randomizer.delta0
    return Round(
        ApproximateMessagesBlock(epsilon0, delta0, clients),
        InfinityMassBlock(LowerBoundBlock(epsilon0, clients), delta0),
        IdenticalOthersBlock(epsilon0, clients),
        "privacy blanket of any randomizers near pure ones",
    )


@one_round.register
def _(randomizer: GaussianNoise, clients: int) -> Round:
    sigma = randomizer.noise_multiplier
    upper = GaussianMessagesBlock(sigma, clients)
    identical_others = IdenticalGaussianBlock(sigma, clients)
    return Round(
        upper,
        identical_others,
        identical_others,
        "privacy blanket of a pure randomizer near the Gaussian",
    )


@one_round.register
def _(randomizer: RepeatedMessages, clients: int) -> Round:
    one, messages = one_round(randomizer.each, clients), randomizer.messages
    others = one.identical_others and RepeatedBlock(one.identical_others, messages)
    method = f"{one.method}, {messages} messages composed as PLD"
    upper = RepeatedBlock(one.upper, messages)
    quick = one.quick and RepeatedBlock(one.quick, messages)
    return Round(upper, others, others, method, quick)


@dataclass(frozen=True, slots=True)
class UpperMessages:
    """Function from a number of messages of one randomizer to the upper block of their round.

    Attributes:
        randomizer: randomizer of every message.
    """

    randomizer: object

    def __call__(self, clients: int) -> Block:
        """Upper block of a round of ``clients`` messages."""
        one = one_round(self.randomizer, clients)
        return one.quick or one.upper


@dataclass(frozen=True, slots=True)
class IdenticalOthersMessages:
    """Function from a number of messages to a lower block; all other clients hold one record.

    Attributes:
        randomizer: randomizer of every message.
    """

    randomizer: object

    def __call__(self, clients: int) -> Block:
        """Lower block of ``clients`` messages in which all other clients hold one record."""
        block = one_round(self.randomizer, clients).identical_others
        assert block is not None
        return block
