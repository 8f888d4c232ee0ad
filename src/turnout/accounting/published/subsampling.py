"""Subsampling without replacement, as the thesis quotes it.

Source: Lemma 2.1.1 of Girgis 2023 (girgis2023thesis), after Kasiviswanathan et al. and Ullman;
Balle, Barthe and Gaboardi 2018 (balle2018subsampling), Theorem 9, has the proof.
"""

from __future__ import annotations

import math

from turnout.accounting.published.results import Paper, PrivacyPoint
from turnout.core import checks
from turnout.core.errors import ParameterError

_ROUNDING = 1e-12


def lemma_2_1_1(point: PrivacyPoint, sampled: int, population: int) -> PrivacyPoint:
    """(ln(1 + q(e^ε − 1)), qδ) of a mechanism that sees a uniform subset, q = k/n.

    Source: Lemma 2.1.1 of Girgis 2023 (girgis2023thesis); Theorem 9 of Balle, Barthe and Gaboardi
    2018 (balle2018subsampling). The mechanism must be (ε, δ)-private under replace-one and blind
    to the order of its records, and nobody may see who was drawn.

    Returns:
        (ε', δ') under replace-one, rounded up.

    >>> lemma_2_1_1(PrivacyPoint(1.0, 1e-5), 10, 1000).epsilon < 0.0171
    True
    """
    checks.non_negative(epsilon=point.epsilon, delta=point.delta)
    if point.delta >= 1:
        raise ParameterError("delta", point.delta, "below 1")
    checks.count(sampled=sampled, population=population)
    checks.at_most("population", population, sampled=sampled)
    share = sampled / population
    large = point.epsilon >= 700
    epsilon = point.epsilon if large else math.log1p(share * math.expm1(point.epsilon))
    return PrivacyPoint(epsilon * (1 + _ROUNDING), share * point.delta * (1 + _ROUNDING))


RESULTS = (
    Paper("thesis", "girgis2023thesis").states(
        "Lemma 2.1.1",
        lemma_2_1_1,
        "(epsilon, delta) under replace-one",
        "k of n without replacement; nobody sees who was drawn",
    ),
)
