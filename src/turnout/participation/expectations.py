"""Expectations under a law: check-ins a step, and steps in which nobody comes.

Notation
    n  population
    m  window
    p₀ check-in probability
    k  picks
    μ  expected turns of some clients
    σ  their standard deviation, or an upper bound on it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from turnout.spec.forms import DrawTable, Span


def expected_check_ins(law: ParticipationLaw, population: int) -> NDArray[np.float64]:
    """The expected number of clients who come at each step, exact up to rounding.

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

    >>> from turnout.spec import CheckIn
    >>> round(expected_empty_steps(CheckIn(window=1000), 1000), 3)
    367.695
    """
    spans = check_population(law, population).spans
    with np.errstate(divide="ignore"):
        return sum(
            EXPECTED[span.draw].empty_steps(span.draw, population, span.steps) for span in spans
        )


FAR_DEVIATIONS, FAR_SHARE = 6.0, 0.05


def is_far_below(count: float, expected: float, variance: float) -> bool:
    """Whether fewer came than chance explains: below μ − 6σ, and more than 5 % below μ.

    A law that is kept falls below μ − 6σ with a chance of about 1e-9. The 5 % keep laws without
    variance (everybody comes once a window) from raising an alarm at the first device that is off
    line.

    Args:
        count: how many came.
        expected: μ.
        variance: σ², or an upper bound on it.

    >>> is_far_below(312, 960.0, 0.0), is_far_below(930, 960.0, 0.0), is_far_below(4, 20.0, 20.0)
    (True, False, False)
    """
    far = expected - max(FAR_DEVIATIONS * math.sqrt(variance), FAR_SHARE * expected)
    return count < far


def expected_turns(
    law: ParticipationLaw, population: int, clients: Sequence[int], steps: int
) -> tuple[float, float]:
    """Expected turns of some clients in the first steps of a run, and a bound on their variance.

    Clients draw independently. Within a window a client's turns exclude each other, so with the
    sum S of its chances there, of at most k turns, their variance is at most S(1 − S/k); that is
    exact for a whole window.

    Args:
        law: one that clients can draw by themselves.
        population: clients of the run, at least 1.
        clients: ids, each in 0 … population − 1.
        steps: how many steps count, from the first one on.

    Returns:
        μ, exact up to rounding, and never less than σ².

    >>> from turnout.spec import CheckIn
    >>> expected_turns(CheckIn(window=4, windows=2, probability=0.5), 16, range(8), 8)
    (8.0, 4.0)
    """
    spans = check_population(law, population).spans
    mean = bound = 0.0
    for span in spans if clients else ():
        counted = min(steps, span.steps)
        if counted <= 0:
            break
        turns = _turns(span, population, np.asarray(clients), counted)
        mean, bound = mean + turns[0], bound + turns[1]
        steps -= counted
    return mean, bound


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
"""The number of clients that may come at each step, and the chance of each."""


def _turns(
    span: Span, population: int, clients: NDArray[np.int64], steps: int
) -> tuple[float, float]:
    """μ of clients in a span's first steps, and the bound on their variance."""
    draw = span.draw
    chances, alike = EXPECTED[draw].turns(draw, clients, population, steps)
    length, together = draw.steps, 1
    if isinstance(draw, Kept):  # a client's turns of all epochs come and stay away together
        length, together = draw.slot.steps, draw.epochs
    sums = np.add.reduceat(chances, np.arange(0, steps, length), axis=1)
    most = draw.picks if isinstance(draw, KOf) else 1
    spread = np.maximum(0.0, sums * (1 - sums / most))
    repeats = min(together, sums.shape[1])
    return alike * float(sums.sum()), alike * repeats * float(spread.sum())


def _mean_check_ins(draw: Draw, population: int, steps: int) -> NDArray[np.float64]:
    clients, chance = _CANDIDATES[draw](draw, population)
    return np.full(steps, clients * chance)


def _mean_empty_steps(draw: Draw, population: int, steps: int) -> float:
    clients, chance = _CANDIDATES[draw](draw, population)
    return float(steps * np.exp(clients * np.log1p(-chance)))


def _chances(draw: OneOfOwn) -> NDArray[np.float64]:
    """Chance of each client to come at each step, shape (clients, steps)."""
    sizes = np.repeat(draw.block_sizes(), draw.steps, axis=1)[:, : draw.available.shape[1]]
    chances = np.zeros(draw.available.shape)
    np.divide(draw.probability, sizes, out=chances, where=draw.available)
    return chances


def _alike_turns(
    draw: Draw, clients: NDArray[np.int64], population: int, steps: int
) -> tuple[NDArray[np.float64], int]:
    return _mean_check_ins(draw, population, steps)[np.newaxis] / population, len(clients)


def _staggered_turns(
    draw: Staggered, clients: NDArray[np.int64], population: int, steps: int
) -> tuple[NDArray[np.float64], int]:
    first = clients // draw.clients_per_slot - (draw.window - 1)
    ahead = np.arange(steps) % draw.steps - first[:, np.newaxis]
    return ((ahead >= 0) & (ahead < draw.window)) / draw.window, 1


class _Expected(NamedTuple):
    """Expectations of a span, by its draw, the population and its steps.

    Attributes:
        check_ins: of clients at each step.
        empty_steps: of steps in which nobody comes.
        turns: chance of given clients to come at each of the span's first steps, shape
            (rows, steps), and clients a row.
    """

    check_ins: Callable[[Any, int, int], NDArray[np.float64]] = _mean_check_ins
    empty_steps: Callable[[Any, int, int], float] = _mean_empty_steps
    turns: Callable[[Any, NDArray[np.int64], int, int], tuple[NDArray[np.float64], int]] = (
        _alike_turns
    )


EXPECTED: DrawTable[_Expected] = DrawTable(
    "an expectation",
    {
        Always: _Expected(),
        Bernoulli: _Expected(),
        Cohort: _Expected(empty_steps=lambda draw, n, steps: 0.0),
        OneOf: _Expected(),
        KOf: _Expected(),
        Kept: _Expected(),
        Staggered: _Expected(turns=_staggered_turns),
        OneOfOwn: _Expected(
            check_ins=lambda draw, n, steps: _chances(draw).sum(axis=0),
            empty_steps=lambda draw, n, steps: float(
                np.exp(np.log1p(-_chances(draw)).sum(axis=0)).sum()
            ),
            turns=lambda draw, clients, n, steps: (_chances(draw)[clients, :steps], 1),
        ),
    },
)
