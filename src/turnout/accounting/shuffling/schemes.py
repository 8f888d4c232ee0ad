"""From a scheme of shuffled messages to its blocks."""

from __future__ import annotations

import math

from turnout.accounting.blocks import Block
from turnout.accounting.hops import Decomposition, Hop
from turnout.accounting.shuffling.messages import AlikeMessages, UpperMessages, one_round
from turnout.accounting.shuffling.sampling.blocks import SelfSampledBlock, SubsampledBlock
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.spec import (
    EveryStep,
    FixedSize,
    PureRandomizer,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
)


def shuffled(scheme: Scheme, steps: int) -> Decomposition:
    """The blocks of a scheme's first ``steps`` rounds, each shuffled afresh.

    Raises:
        ParameterError: a population that is missing.
        UnsupportedError: no sound analysis is known.
    """
    _require_analysis(scheme)
    law, clients = scheme.participation, _population(scheme)
    if isinstance(law, EveryStep):
        one = one_round(scheme.randomizer, clients)
        return _rounds(scheme.randomizer, one.upper, one.lower, steps, one.method)
    if isinstance(law, FixedSize):
        return _subsampled(scheme.randomizer, law, steps)
    if isinstance(law, SelfSampling):
        return _self_sampled(scheme.randomizer, law, clients, steps)
    raise UnsupportedError(
        f"no analysis of shuffled messages is known under {type(law).__name__}; every step, "
        "fixed-size and self-sampling have one"
    )


def _subsampled(randomizer: object, law: FixedSize, steps: int) -> Decomposition:
    one, rate = one_round(randomizer, law.size), law.size / law.population
    upper = SubsampledBlock(one.upper, rate)
    lower = None if one.alike is None else SubsampledBlock(one.alike, rate, alike=True)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of a uniform sample")


def _self_sampled(randomizer: object, law: SelfSampling, clients: int, steps: int) -> Decomposition:
    one = one_round(randomizer, clients)
    if law.rate == 0:
        return _rounds(randomizer, one.upper, None, 0, "nobody comes")
    upper = SelfSampledBlock(UpperMessages(randomizer), clients, law.rate)
    lower = None
    if one.alike is not None:
        lower = SelfSampledBlock(AlikeMessages(randomizer), clients, law.rate, alike=True)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of as many as come")


def _rounds(
    randomizer: object, upper: Block, lower: Block | None, rounds: int, method: str
) -> Decomposition:
    method = method if rounds <= 1 else f"{method}, rounds composed as PLD"
    above = [(upper, rounds)] if rounds else []
    beneath = [(lower, rounds)] if rounds and lower is not None else []
    cap = message_cap(randomizer, rounds)
    return Decomposition(Hop(above, beneath, method, tight=False, symmetric=True, cap=cap))


def message_cap(randomizer: object, messages: int) -> float:
    """What so many messages of one client cost under her name, at every δ: ε₀ each."""
    return messages * randomizer.epsilon0 if isinstance(randomizer, PureRandomizer) else math.inf


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


def _population(scheme: Scheme) -> int:
    law = scheme.participation
    population = law.population if isinstance(law, FixedSize) else scheme.population
    if population is None:
        raise ParameterError("population", None, "the number of clients, who hide each other")
    return population
