"""Claims of papers' results, in a form that a program can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from turnout.schemes import Relation


class Status(StrEnum):
    """The status of a result."""

    PROVED = "proved"
    """A proved bound in the range that the function accepts."""
    UNSAFE = "as printed, unsafe"
    """Known to promise more than is true, or more than its proof gives; for comparison only."""
    CONJECTURED = "conjectured"
    """No counterexample is known, but the proof has a gap or covers special cases only."""
    REPRODUCTION = "reproduction only"
    """Not known to be wrong, but a step of its proof is missing or its constants are not stated."""
    SAMPLED = "holds with the stated confidence"
    """A confidence interval: wrong with at most the false-alarm probability that it names."""


class PrivacyPoint(NamedTuple):
    """One (ε, δ) guarantee."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Result:
    """A numbered result of a paper and the function that evaluates it.

    Attributes:
        name: short and unique, as "check-ins 3.2".
        source: the number in the paper, with the key of docs/references.bib.
        status: how far it may be trusted.
        relation: the neighbouring relation; None where it says nothing about privacy.
        directions: "remove", "add" or "replace": what it covers. A bound that covers *remove*
            alone is no guarantee.
        randomizer: what it needs to know of the randomizer.
        range: where it holds; outside of it the function refuses.
        function: evaluates it.
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
    """A paper whose results are listed: how their names begin, and its key in docs/references.bib.

    ``relation`` is that of all of them, None for what is no guarantee on its own.
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
    ) -> Result:
        """The entry of one result; ``number`` may say, after a comma, which form it is."""
        name, source = f"{self.name} {number}", f"{self.key}, {number}"
        directions = _DIRECTIONS[self.relation]
        return Result(name, source, status, self.relation, directions, randomizer, holds, function)


THESIS = Paper("thesis", "girgis2023thesis", None)
