"""Records of published results for use by programs, and subsampling without replacement.

`PublishedResult` is one result with its `Status` and the function that evaluates it; `Paper.states`
creates one. `PrivacyPoint` is a pair (ε, δ). Each module of this package lists its results in
`RESULTS`, and `published.RESULTS` lists those of all modules.

`lemma_2_1_1` is the subsampling lemma that the thesis quotes. Source: Lemma 2.1.1 of Girgis 2023
(girgis2023thesis), after Kasiviswanathan et al. and Ullman; Balle, Barthe and Gaboardi 2018
(balle2018subsampling), Theorem 9, has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes import Relation


class Status(StrEnum):
    """Status of the proof of a published result."""

    PROVED = "proved"
    """A proved bound in the range that the function accepts."""
    UNSAFE = "as printed, unsafe"
    """Known to claim more than is true, or more than its proof shows; for comparison only."""
    CONJECTURED = "conjectured"
    """No counterexample is known, but the proof has a gap or covers special cases only."""
    REPRODUCTION = "reproduction only"
    """Not known to be wrong, but a step of its proof is missing or its constants are not stated."""
    SAMPLED = "holds with the stated confidence"
    """A confidence interval: wrong with at most the false-alarm probability that it names."""


class PrivacyPoint(NamedTuple):
    """Parameters (ε, δ) of one privacy guarantee."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """Numbered result of a paper, with the function that evaluates it.

    Attributes:
        name: short unique name, such as "check-ins 3.2".
        source: number of the result in the paper, and the paper's key in docs/references.bib.
        status: whether the result is proved.
        relation: neighbouring relation; None if the result is no guarantee by itself.
        directions: directions that the result covers: "remove", "add" or "replace". A bound that
            covers *remove* only is no guarantee.
        randomizer: assumption of the result on the randomizer.
        range: parameters for which the result holds; outside of them the function raises.
        function: function that evaluates the result.
    """

    name: str
    source: str
    status: Status
    relation: Relation | None
    directions: tuple[str, ...]
    randomizer: str
    range: str
    function: Callable[..., object]


_DIRECTIONS = {None: (), Relation.REPLACE_ONE: ("replace",), Relation.ZERO_OUT: ("remove",)}


@dataclass(frozen=True, slots=True)
class Paper:
    """Paper whose results are listed: prefix of the results' names, and key in docs/references.bib.

    ``relation`` is the neighbouring relation of all results of the paper; None if the results are
    no guarantee by themselves.
    """

    name: str
    key: str
    relation: Relation | None = Relation.REPLACE_ONE

    def states(
        self,
        number: str,
        function: Callable[..., object],
        randomizer: str,
        holds: str,
        status: Status = Status.PROVED,
    ) -> PublishedResult:
        """Record of one result of the paper.

        ``number`` may name a variant after a comma, as in "Theorem 3.2, approximate"; ``holds`` is
        the `PublishedResult.range`.
        """
        name, source = f"{self.name} {number}", f"{self.key}, {number}"
        directions = _DIRECTIONS[self.relation]
        return PublishedResult(
            name, source, status, self.relation, directions, randomizer, holds, function
        )


THESIS = Paper("thesis", "girgis2023thesis", None)


_ROUNDING = 1e-12


def lemma_2_1_1(point: PrivacyPoint, sampled: int, population: int) -> PrivacyPoint:
    """Point (ε', δ') = (ln(1 + q(e^ε − 1)), qδ) of a mechanism on a uniform subset, q = k/n.

    Source: Lemma 2.1.1 of Girgis 2023 (girgis2023thesis); Theorem 9 of Balle, Barthe and Gaboardi
    2018 (balle2018subsampling). The mechanism must be (ε, δ)-private under replace-one and
    independent of the order of its records, and the draw must be hidden.

    Args:
        point: (ε, δ) of the mechanism, with ε ≥ 0 and 0 ≤ δ < 1.
        sampled: k, size of the subset, from 1 to n.
        population: n, number of records, at least 1.

    Returns:
        (ε', δ') under replace-one, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.

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
