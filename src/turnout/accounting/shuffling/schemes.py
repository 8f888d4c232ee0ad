"""From a scheme of shuffled messages to its blocks."""

from __future__ import annotations

from turnout.accounting.blocks import Block
from turnout.accounting.hops import Decomposition, Hop
from turnout.accounting.shuffling.messages import one_round
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.spec import EveryStep, FixedSize, Relation, ReleaseRule, Scheme


def shuffled(scheme: Scheme, steps: int) -> Decomposition:
    """The blocks of a scheme's first ``steps`` rounds, each shuffled afresh.

    Raises:
        ParameterError: a population that is missing, or is not the law's.
        UnsupportedError: no sound analysis is known.
    """
    _require_analysis(scheme)
    law, clients = scheme.participation, _population(scheme)
    if isinstance(law, EveryStep):
        found = one_round(scheme.randomizer, clients)
        return _rounds(found.upper, found.lower, steps, found.method)
    raise UnsupportedError(
        f"no analysis of shuffled messages is known under {type(law).__name__}; every step, "
        "fixed-size and self-sampling have one"
    )


def _rounds(upper: Block, lower: Block | None, rounds: int, method: str) -> Decomposition:
    method = method if rounds == 1 else f"{method}, rounds composed as PLD"
    beneath = [(lower, rounds)] if lower is not None and rounds else []
    above = [(upper, rounds)] if rounds else []
    return Decomposition(Hop(above, beneath, method, tight=False, symmetric=True))


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
    if scheme.population not in (None, population):
        raise ParameterError("population", scheme.population, f"the law's, {population}")
    return population
