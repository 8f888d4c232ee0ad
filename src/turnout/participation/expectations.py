"""What a law promises on average: check-ins a step, and steps in which nobody comes.

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
from collections.abc import Sequence
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
        law: who takes part when; one that clients can draw by themselves.
        population: clients of the run, at least 1.
        clients: ids, each in 0 … population − 1.
        steps: how many steps count, from the first one on.

    Returns:
        μ, exact up to rounding, and never less than σ².

    Raises:
        ParameterError: a population that does not fit the law.
        UnsupportedError: an unknown law.

    >>> expected_turns(CheckIn(window=4, windows=2, probability=0.5), 16, range(8), 8)
    (8.0, 4.0)
    """
    check_population(law, population)
    steps = min(steps, law.steps)
    if steps <= 0 or not clients:
        return 0.0, 0.0
    chances, alike = _own_chances(law, population, clients)
    length = getattr(law, "window", 1) if not isinstance(law, SlidingWindow) else law.steps
    sums = np.add.reduceat(chances[:, :steps], np.arange(0, steps, length), axis=1)
    most = law.picks if isinstance(law, KSubset) else 1
    repeats = sums.shape[1] if isinstance(law, FixedAssignment) else 1
    spread = np.maximum(0.0, sums * (1 - sums / most))
    return alike * float(sums.sum()), alike * repeats * float(spread.sum())


def _own_chances(
    law: ParticipationLaw, population: int, clients: Sequence[int]
) -> tuple[NDArray[np.float64], int]:
    """Chance of clients to come at each step, shape (rows, steps); and clients a row."""
    chosen = np.asarray(clients)
    if isinstance(law, AvailabilityCheckIn):
        return _chances(law)[chosen], 1
    if isinstance(law, SlidingWindow):
        first = chosen // law.clients_per_slot - (law.window - 1)
        ahead = np.arange(law.steps) - first[:, np.newaxis]
        return ((ahead >= 0) & (ahead < law.window)) / law.window, 1
    each = expected_check_ins(law, population) / population
    return each[np.newaxis], len(chosen)


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
