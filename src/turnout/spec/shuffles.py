"""Schemes whose messages go through a shuffler, which hides who sent what."""

from __future__ import annotations

from turnout.core.errors import ParameterError
from turnout.spec.randomizers import Randomizer, is_adaptive
from turnout.spec.registry import ParticipationLaw
from turnout.spec.scheme import Relation, Scheme, SpeakingOrder, TrustModel

RELATION = Relation.REPLACE_ONE
"""The one relation of shuffled messages, whose number everybody sees."""


def shuffled(
    randomizer: Randomizer,
    clients: int,
    rounds: int = 1,
    *,
    sampled: int | None = None,
    rate: float | None = None,
    order: SpeakingOrder | str | None = None,
) -> Scheme:
    """The scheme of clients who send one message a round through a shuffler, under replace-one.

    Args:
        randomizer: of one message.
        clients: clients there are, all of whom follow the protocol.
        rounds: rounds, each of which is shuffled afresh.
        sampled: clients who send in a round, a uniform subset; all if not given.
        rate: probability with which each client, independently, sends in a round.
        order: who may know which client sends which message. Where messages before may choose the
            randomizer it is hidden if nothing is said, which the price then states as an
            assumption.

    Raises:
        ParameterError: both ``sampled`` and ``rate``, or a value outside its domain.

    >>> from turnout.spec import KaryResponse
    >>> shuffled(KaryResponse(1.0), clients=1000, rounds=2).trust.value
    'shuffled'
    """
    if order is None and is_adaptive(randomizer):
        order = SpeakingOrder.HIDDEN
    return Scheme(
        randomizer,
        _law(clients, rounds, sampled, rate),
        RELATION,
        trust=TrustModel.SHUFFLED,
        population=clients,
        order=order,
    )


def _law(clients: int, rounds: int, sampled: int | None, rate: float | None) -> ParticipationLaw:
    """The law of who sends in which round; the files of the other laws stay unloaded."""
    if sampled is not None and rate is not None:
        raise ParameterError("rate", rate, "nothing beside sampled")
    if sampled is not None:
        from turnout.spec.laws.fixed_size import FixedSize

        return FixedSize(sampled, clients, rounds)
    if rate is not None:
        from turnout.spec.laws.self_sampling import SelfSampling

        return SelfSampling(rate, rounds)
    from turnout.spec.laws.every_step import EveryStep

    return EveryStep(rounds)
