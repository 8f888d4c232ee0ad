"""What a law promises on average: check-ins a step, and steps in which nobody comes.

Notation
    n  population
    m  window
    p₀ check-in probability
    k  picks
"""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.participation.drawing import check_population
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)


def expected_check_ins(law: ParticipationLaw, population: int) -> NDArray[np.float64]:
    """The expected number of clients who come at each step, exact up to rounding.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1.

    Returns:
        float64 array of shape (steps,).

    Raises:
        ParameterError: a population that does not fit the law.
        UnsupportedError: an unknown law.

    >>> expected_check_ins(CheckIn(window=4, probability=0.5), 16)
    array([2., 2., 2., 2.])
    """
    check_population(law, population)
    if isinstance(law, AvailabilityCheckIn):
        return _chances(law).sum(axis=0)
    clients, chance = _candidates(law, population)
    return np.full(law.steps, clients * chance)


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
        UnsupportedError: an unknown law.

    >>> round(expected_empty_steps(CheckIn(window=1000), 1000), 3)
    367.695
    """
    check_population(law, population)
    if isinstance(law, FixedSize):
        return 0.0
    with np.errstate(divide="ignore"):
        if isinstance(law, AvailabilityCheckIn):
            return float(np.exp(np.log1p(-_chances(law)).sum(axis=0)).sum())
        clients, chance = _candidates(law, population)
        return float(law.steps * np.exp(clients * np.log1p(-chance)))


def empty_steps_bound(law: CheckIn | SlidingWindow, population: int) -> float:
    """The paper's bound on the expected number of dummy updates.

    Source: check-in paper, Proposition 3.4: m·e^{−c} a window, c = n·p₀/m; Proposition 4.4:
    (n − m + 1)/e for one client a slot, and by the same proof (n − m + 1)·e^{−c} for c.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1.

    Returns:
        never below `expected_empty_steps`.
    """
    check_population(law, population)
    clients, chance = _candidates(law, population)
    return law.steps * math.exp(-clients * chance)


@singledispatch
def _candidates(law: ParticipationLaw, population: int) -> tuple[int, float]:
    """How many clients may come at a step, and the chance of each."""
    raise UnsupportedError(f"no expectations are known for the law {type(law).__name__}")


@_candidates.register
def _(law: EveryStep, population: int) -> tuple[int, float]:
    return population, 1.0


@_candidates.register(PoissonSampling | SelfSampling)
def _(law: PoissonSampling | SelfSampling, population: int) -> tuple[int, float]:
    return population, law.rate


@_candidates.register
def _(law: FixedSize, population: int) -> tuple[int, float]:
    return population, law.size / law.population


@_candidates.register(CheckIn | FixedAssignment)
def _(law: CheckIn | FixedAssignment, population: int) -> tuple[int, float]:
    return population, law.probability / law.window


@_candidates.register
def _(law: KSubset, population: int) -> tuple[int, float]:
    return population, law.picks / law.window


@_candidates.register
def _(law: SlidingWindow, population: int) -> tuple[int, float]:
    # After the warm-up each slot lies in the windows of exactly those who woke in the last m.
    return law.window * law.clients_per_slot, 1 / law.window


def _chances(law: AvailabilityCheckIn) -> NDArray[np.float64]:
    """Chance of each client to come at each step, shape (clients, steps)."""
    sizes = np.repeat(law.window_sizes(), law.window, axis=1)[:, : law.steps]
    chances = np.zeros(law.available.shape)
    np.divide(law.probability, sizes, out=chances, where=law.available)
    return chances
