"""What a law promises on average: check-ins a step, and steps in which nobody comes.

Notation
    n  population
    m  window
    p₀ check-in probability
    k  picks
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.participation.drawing import check_population
from turnout.spec import ParticipationLaw
from turnout.spec.draws import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
)
from turnout.spec.forms import DrawTable


def expected_check_ins(law: ParticipationLaw, population: int) -> NDArray[np.float64]:
    """The expected number of clients who come at each step, exact up to rounding.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1.

    Returns:
        float64 array of shape (steps,).

    Raises:
        ParameterError: a population that does not fit the law.
        UnsupportedError: an unknown law or draw.

    >>> from turnout.spec import CheckIn
    >>> expected_check_ins(CheckIn(window=4, probability=0.5), 16)
    array([2., 2., 2., 2.])
    """
    spans = check_population(law, population).spans
    means = [EXPECTED[span.draw].check_ins(span.draw, population, span.steps) for span in spans]
    return means[0] if len(means) == 1 else np.concatenate(means)


def expected_empty_steps(law: ParticipationLaw, population: int) -> float:
    """The expected number of steps in which nobody comes, exact up to rounding.

    Source: the proofs of Propositions 3.4 (`CheckIn`) and 4.4 (`SlidingWindow`) of the
    check-in paper, before their last inequality. The proof of 4.4 prints the range of steps
    as m … n − m + 1; the steps after the warm-up are m … n, which is also what its bound
    counts, and what is counted here.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1.

    Raises:
        ParameterError: a population that does not fit the law.
        UnsupportedError: an unknown law or draw.

    >>> from turnout.spec import CheckIn
    >>> round(expected_empty_steps(CheckIn(window=1000), 1000), 3)
    367.695
    """
    spans = check_population(law, population).spans
    with np.errstate(divide="ignore"):
        return sum(
            EXPECTED[span.draw].empty_steps(span.draw, population, span.steps) for span in spans
        )


def empty_steps_bound(law: ParticipationLaw, population: int) -> float:
    """The paper's bound on the expected number of dummy updates.

    Source: check-in paper, Proposition 3.4: m·e^{−c} a window, c = n·p₀/m; Proposition 4.4:
    (n − m + 1)/e for one client a slot, and by the same proof (n − m + 1)·e^{−c} for c. The
    proofs need no more than that clients are independent and have the same chance.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1.

    Returns:
        never below `expected_empty_steps`.

    Raises:
        ParameterError: a population that does not fit the law.
        UnsupportedError: an unknown law or draw, or clients' chances that differ.
    """
    spans = check_population(law, population).spans
    bounds = []
    for span in spans:
        clients, chance = _CANDIDATES[span.draw](span.draw, population)
        bounds.append(span.steps * math.exp(-clients * chance))
    return sum(bounds)


_CANDIDATES: DrawTable[Callable[[Any, int], tuple[int, float]]] = DrawTable(
    "the same chance of several clients at each step",
    {
        Always: lambda draw, n: (n, 1.0),
        Bernoulli: lambda draw, n: (n, draw.rate),
        Cohort: lambda draw, n: (n, draw.size / draw.population),
        OneOf: lambda draw, n: (n, draw.probability / draw.steps),
        Kept: lambda draw, n: (n, draw.slot.probability / draw.slot.steps),
        KOf: lambda draw, n: (n, draw.picks / draw.steps),
        # After the warm-up each slot lies in the windows of those who woke in the last m.
        Staggered: lambda draw, n: (draw.window * draw.clients_per_slot, 1 / draw.window),
    },
)
"""How many clients may come at each step, and the chance of each."""


def _mean_check_ins(draw: Draw, population: int, steps: int) -> NDArray[np.float64]:
    clients, chance = _CANDIDATES[draw](draw, population)
    return np.full(steps, clients * chance)


def _mean_empty_steps(draw: Draw, population: int, steps: int) -> float:
    clients, chance = _CANDIDATES[draw](draw, population)
    return float(steps * np.exp(clients * np.log1p(-chance)))


def _own_check_ins(draw: OneOfOwn, population: int, steps: int) -> NDArray[np.float64]:
    return _chances(draw).sum(axis=0)


def _own_empty_steps(draw: OneOfOwn, population: int, steps: int) -> float:
    return float(np.exp(np.log1p(-_chances(draw)).sum(axis=0)).sum())


def _chances(draw: OneOfOwn) -> NDArray[np.float64]:
    """Chance of each client to come at each step, shape (clients, steps)."""
    sizes = np.repeat(draw.block_sizes(), draw.steps, axis=1)[:, : draw.available.shape[1]]
    chances = np.zeros(draw.available.shape)
    np.divide(draw.probability, sizes, out=chances, where=draw.available)
    return chances


class _Expected(NamedTuple):
    """Expectations of a span, by its draw, the population and its steps.

    Attributes:
        check_ins: of clients at each step.
        empty_steps: of steps in which nobody comes.
    """

    check_ins: Callable[[Any, int, int], NDArray[np.float64]] = _mean_check_ins
    empty_steps: Callable[[Any, int, int], float] = _mean_empty_steps


EXPECTED: DrawTable[_Expected] = DrawTable(
    "an expectation",
    {
        Always: _Expected(),
        Bernoulli: _Expected(),
        Cohort: _Expected(empty_steps=lambda draw, n, steps: 0.0),
        OneOf: _Expected(),
        KOf: _Expected(),
        Kept: _Expected(),
        Staggered: _Expected(),
        OneOfOwn: _Expected(_own_check_ins, _own_empty_steps),
    },
)
