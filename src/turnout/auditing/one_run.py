"""Lower bounds on ε by one run that holds many canaries: how many are guessed right.

| symbol | here | |
|---|---|---|
| m | ``canaries`` | each in the run with probability ½, drawn independently |
| r | ``guesses`` | canaries of which it is guessed whether they were in the run |
| v | ``correct`` | guesses that are right |
| β | ``error`` | the probability that a bound exceeds the true ε |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from turnout.core import checks
from turnout.core.bounds import bisected, grown
from turnout.core.errors import ParameterError

FloatArray = NDArray[np.float64]

LARGEST_EPSILON = 60.0
"""The largest lower bound that is looked for."""
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
"""Of the canaries that are guessed about; each has its share of the error."""
_NARROW = 1e-9


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest chance of so many right guesses under any (ε, δ)-DP run, at most 1.

    Source: Steinke, Nasr and Jagielski, Privacy auditing with one (1) training run
        (steinke2023auditing), Theorem 5.2.

    Args:
        canaries: m.
        guesses: r, at most m; a function of the run's output, as are the guesses.
        correct: v, at most r.
        epsilon: ε, at least 0.
        delta: δ, from 0 to 1.

    Returns:
        Pr[Binomial(r, e^ε/(1 + e^ε)) ≥ v] + 2mδ·max_i Pr[v > Binomial ≥ v − i]/i.
    """
    checks.at_most("canaries", canaries, guesses=guesses)
    checks.at_most("guesses", guesses, correct=correct)
    rate = float(expit(epsilon))
    tail = float(binom.sf(correct - 1, guesses, rate))
    if delta == 0 or correct == 0:
        return min(tail, 1.0)
    i = np.arange(1, correct + 1)
    near = binom.sf(correct - i - 1, guesses, rate) - tail
    return min(tail + 2.0 * canaries * delta * float(np.max(near / i)), 1.0)


def epsilon_by_guesses(
    canaries: int, guesses: int, correct: int, delta: float, error: float
) -> float:
    """A lower bound on ε by right guesses, which exceeds the true ε with probability ``error``.

    Source and arguments as of `p_value`; the bound is the largest ε that is refused.

    >>> round(epsilon_by_guesses(1000, 100, 99, 1e-5, 0.05), 3)
    3.003
    """
    return _largest_refused(
        lambda epsilon: p_value(canaries, guesses, correct, epsilon, delta) <= error
    )


def _largest_refused(refused: Callable[[float], bool]) -> float:
    """The largest ε that is refused, rounded down; 0 if none is."""
    if not refused(0.0):
        return 0.0
    around = grown(lambda epsilon: not refused(epsilon), 1.0, LARGEST_EPSILON)
    if around is None:
        return LARGEST_EPSILON
    return bisected(lambda epsilon: not refused(epsilon), *around, gap=_NARROW).failing


def gaussian_mu_by_guesses(canaries: int, guesses: int, correct: int, error: float) -> float:
    """A lower bound on μ by right guesses, of a run whose trade-off is that of Gaussian DP.

    Source: Mahloujifar, Melis and Chaudhuri, Auditing f-differential privacy in one run
        (mahloujifar2025auditing), the audit of right guesses, with the trade-off
        G_μ. It says nothing of a run with another trade-off.

    Args and probability of error: as of `epsilon_by_guesses`.
    """
    checks.at_most("guesses", guesses, correct=correct)

    def excess(mu: float) -> float:
        return _excess(canaries, guesses, correct, error, mu)

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
        if high > LARGEST_EPSILON:
            return LARGEST_EPSILON
    return bisected(lambda mu: excess(mu) <= 0.0, 0.0, high, gap=_NARROW).failing


def _excess(canaries: int, guesses: int, correct: int, error: float, mu: float) -> float:
    """Above 0 where μ-GDP is refused: by how much the least mass of guesses exceeds what there is.

    h and r are the least probabilities, per canary, of a wrong and of a right guess that go with
    more than i right ones; each step down passes them through the trade-off.
    """
    right = error * correct / canaries
    wrong = error * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = max(wrong, float(ndtr(ndtri(right) - mu)))
        if least == wrong:
            break
        more = min(right + i / (guesses - i) * (least - wrong), 1.0)
        wrong, right = least, more
    return right + wrong - guesses / canaries


@dataclass(frozen=True, slots=True)
class Guessed:
    """Guesses about the canaries of one run, and the lower bounds on ε that follow.

    Attributes:
        canaries: m.
        guesses: r, by the part of the canaries that gave the largest bound.
        correct: v.
        epsilon: lower bound on ε, corrected for the parts that were tried.
        gaussian_mu: lower bound on μ if the trade-off is Gaussian, corrected likewise.
    """

    canaries: int
    guesses: int
    correct: int
    epsilon: float
    gaussian_mu: float


def guessed(scores: FloatArray, inside: NDArray[np.bool_], delta: float, error: float) -> Guessed:
    """The bounds by guesses that follow scores.

    The highest scores are guessed to be in the run, and of some tries the lowest to be out.

    Args:
        scores: larger for canaries that seem to be in the run, shape (m,).
        inside: whether they are, shape (m,).
        delta: δ.
        error: of both bounds, each.

    Raises:
        ParameterError: shapes that differ.
    """
    if scores.shape != inside.shape or scores.ndim != 1:
        raise ParameterError("scores", scores.shape, f"shape {inside.shape}")
    checks.open_unit(error=error)
    ranked = inside[np.argsort(-scores, kind="stable")]
    tries = sorted(_tries(ranked))
    share, m = error / len(tries), len(ranked)
    bounds = [epsilon_by_guesses(m, r, v, delta, share) for r, v in tries]
    best = max(range(len(tries)), key=lambda i: (bounds[i], tries[i][0]))
    mu = max(gaussian_mu_by_guesses(m, r, v, share) for r, v in tries)
    return Guessed(m, *tries[best], bounds[best], mu)


def largest_bound(canaries: int, delta: float, error: float) -> float:
    """The bound of `guessed` where every guess is right: no run of so many canaries gives more."""
    tries = _tries(np.ones(canaries, np.bool_))
    share = error / len(tries)
    return max(epsilon_by_guesses(canaries, r, r, delta, share) for r, _ in tries)


def _tries(ranked: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Guesses and right ones, by the share guessed about: from the top alone, and from both ends.

    The shares do not depend on the run, so the error is divided by their number.
    """
    m, tries = len(ranked), []
    for share in _SHARES:
        r = max(int(share * m), 2)
        half = r // 2
        both = int(ranked[:half].sum()) + int((~ranked[m - (r - half) :]).sum())
        tries.append((r, both))
        if share < 1.0:
            tries.append((r, int(ranked[:r].sum())))
    return tries
