"""From a scheme of shuffled messages to its blocks."""

from __future__ import annotations

import math

from turnout.accounting.divergence.blocks import Block, Decomposition, NeighbourBound
from turnout.accounting.shuffling.messages import (
    IdenticalOthersMessages,
    PublishedRandomizer,
    UpperMessages,
    one_round,
)
from turnout.accounting.shuffling.responses.bits import SampledBitsBlock
from turnout.accounting.shuffling.sampling.bits import (
    SelfSampledBits,
    SubsampledBits,
    WorseOrderBlock,
)
from turnout.accounting.shuffling.sampling.blocks import SelfSamplingBlock, SubsampledBlock
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    AttainedVariation,
    PureRandomizer,
    Randomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    SpeakingOrder,
)
from turnout.schemes.normal_form import Always, Bernoulli, Cohort, Draw, Released
from turnout.schemes.randomizers import is_adaptive


def shuffled(
    scheme: Scheme, part: Released, randomizer: Randomizer | PublishedRandomizer
) -> Decomposition:
    """The blocks of the rounds that one draw decided, each shuffled afresh."""
    _require_analysis(scheme)
    draw, rounds = part.draw, part.full
    clients = _population(scheme, draw)
    if isinstance(draw, Always):
        if isinstance(randomizer, RepeatedMessages):  # as many rounds of one message
            randomizer, rounds = randomizer.each, rounds * randomizer.messages
        one = one_round(randomizer, clients)
        lower = one.lower
        if lower is not None and _turned(randomizer):
            lower = WorseOrderBlock(lower, 1.0)
        return _rounds(randomizer, one.upper, lower, rounds, one.method)
    if isinstance(draw, Cohort):
        return _subsampled(randomizer, draw, rounds)
    if isinstance(draw, Bernoulli) and draw.unseen:
        return _self_sampling(randomizer, draw, clients, rounds)
    raise UnsupportedError(
        f"no analysis of shuffled messages is known under {type(scheme.participation).__name__}, "
        f"whose draws are {type(draw).__name__}; every step, fixed-size and self-sampling have one"
    )


def _subsampled(randomizer: object, draw: Cohort, steps: int) -> Decomposition:
    one, rate = one_round(randomizer, draw.size), draw.size / draw.population
    upper: Block = SubsampledBlock(one.upper, rate)
    lower: Block | None = None
    if one.identical_others is not None:
        lower = SubsampledBlock(one.identical_others, rate, identical_others=True)
        if _turned(randomizer):
            lower = WorseOrderBlock(lower, rate)
    if one.bits is not None and draw.size < draw.population:
        upper = SampledBitsBlock(SubsampledBits(one.bits, draw.size, draw.population))
        lower = None if lower is None else WorseOrderBlock(lower, rate)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of a uniform sample")


def _self_sampling(randomizer: object, draw: Bernoulli, clients: int, steps: int) -> Decomposition:
    one = one_round(randomizer, clients)
    if draw.rate == 0:
        return _rounds(randomizer, one.upper, None, 0, "nobody comes")
    upper: Block = SelfSamplingBlock(UpperMessages(randomizer), clients, draw.rate)
    lower: Block | None = None
    if one.identical_others is not None:
        lower = SelfSamplingBlock(
            IdenticalOthersMessages(randomizer), clients, draw.rate, identical_others=True
        )
        if _turned(randomizer):
            lower = WorseOrderBlock(lower, draw.rate)
    if one.bits is not None and draw.rate < 1:
        upper = SampledBitsBlock(SelfSampledBits(one.bits, clients, draw.rate))
        lower = None if lower is None else WorseOrderBlock(lower, draw.rate)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of as many as come")


def _turned(randomizer: object) -> bool:
    """Whether the lower blocks of a randomizer are those of one order of the two worlds."""
    one = randomizer.each if isinstance(randomizer, RepeatedMessages) else randomizer
    return isinstance(one, AttainedVariation)


def _rounds(
    randomizer: object, upper: Block, lower: Block | None, rounds: int, method: str
) -> Decomposition:
    method = method if rounds <= 1 else f"{method}, rounds composed as PLD"
    above = [(upper, rounds)] if rounds else []
    beneath = [(lower, rounds)] if rounds and lower is not None else []
    cap = message_cap(randomizer, rounds)
    return Decomposition(
        NeighbourBound(above, beneath, method, tight=False, symmetric=True, cap=cap)
    )


def message_cap(randomizer: object, messages: int) -> float:
    """ε of ``messages`` messages of one client under its name, at every δ: ε₀ each."""
    pure = isinstance(randomizer, PureRandomizer | PublishedRandomizer)
    return messages * randomizer.epsilon0 if pure else math.inf


def _require_analysis(scheme: Scheme) -> None:
    if scheme.relation is not Relation.REPLACE_ONE:
        raise UnsupportedError(
            "shuffled messages are priced under replace-one: they show how many clients sent "
            f"one, which {scheme.relation.value} would have to hide"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"a shuffler releases all messages; it has no {scheme.release.value} release"
        )
    _require_hidden_order(scheme)


def _require_hidden_order(scheme: Scheme) -> None:
    """Refuses randomizers that the messages before may choose, unless nobody knows who speaks when.

    Who is known to speak first, by binary response, and is followed by clients who repeat that
    answer, is hidden by nobody, though each of their randomizers is private.
    """
    if scheme.order is SpeakingOrder.HIDDEN or not is_adaptive(scheme.randomizer):
        return
    declared = "is not declared" if scheme.order is None else f"is {scheme.order.value!r}"
    pure = isinstance(scheme.randomizer, PureRandomizer)
    other = "use NonAdaptiveRandomizer (non-adaptive)" if pure else "declare it all the same"
    raise UnsupportedError(
        f"the order of speaking {declared}: {type(scheme.randomizer).__name__} may be chosen by "
        "the messages before, which has a price only where that order is uniform and unknown to "
        "the adversary and to whoever chooses the next randomizer; declare order = "
        f"{SpeakingOrder.HIDDEN.value!r} if it is, or {other} where all clients use one "
        "randomizer chosen before the round, with which the order makes no difference"
    )


def _population(scheme: Scheme, draw: Draw) -> int:
    population = draw.population if isinstance(draw, Cohort) else scheme.population
    if population is None:
        raise ParameterError("population", None, "the number of clients, who hide each other")
    return population
