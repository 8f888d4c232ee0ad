"""Statistical assertions with a stated false-alarm rate, and their negative controls.

A test that only accepts the right distribution proves little: `assert_rejects` requires that named
wrong distributions *fail* the same assertion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from turnout.core import checks
from turnout.core.errors import ParameterError

FALSE_ALARM = 1e-9
"""Default probability with which an assertion may fail although the distribution is right."""

Observed = TypeVar("Observed")


def assert_frequencies(
    counts: ArrayLike, probabilities: ArrayLike, false_alarm: float = FALSE_ALARM
) -> None:
    """Fail unless multinomial ``counts`` fit ``probabilities``.

    Each cell, and each aligned run of 2, 4, 8, … neighbouring cells, is tested by an exact
    two-sided binomial test, with a Bonferroni correction over all tests. So the false-alarm rate
    holds for any number of draws, and the tests detect a single wrong cell as well as a drift over
    many cells. A cell of probability 0 must be empty.

    Args:
        counts: number of independent draws in each cell, whole numbers, shape (k,).
        probabilities: probability of each cell, shape (k,), with sum 1.
        false_alarm: upper bound on the probability of failing under the right distribution.

    Raises:
        AssertionError: the counts do not fit; the message names the worst cells, with their number
            of draws and its expectation.
        ParameterError: the shapes differ, or ``probabilities`` has a negative number or another
            sum.
    """
    # Counts and probabilities of the same cells.
    observed, expected = np.asarray(counts), np.asarray(probabilities, dtype=np.float64)
    checks.open_unit(false_alarm=false_alarm)
    if observed.shape != expected.shape or observed.ndim != 1:
        raise ParameterError("counts", observed.shape, f"the shape {expected.shape}")
    if not (np.all(expected >= 0) and abs(expected.sum() - 1) < 1e-9):
        raise ParameterError("probabilities", expected.sum(), "numbers >= 0 that sum to 1")
    # Exact p-values of all aligned groups of cells.
    runs = _runs(len(observed))
    total = int(observed.sum())
    seen = np.concatenate([np.add.reduceat(observed, starts) for starts, _ in runs])
    chance = np.concatenate([np.add.reduceat(expected, starts) for starts, _ in runs])
    p_values = _two_sided(seen, total, np.minimum(chance, 1))
    # The smallest p-value, compared with the share of one test in the false alarms.
    worst = int(np.argmin(p_values))
    if p_values[worst] < false_alarm / len(p_values):
        first, last = np.concatenate([np.stack(run, axis=1) for run in runs])[worst]
        raise AssertionError(
            f"cells {first} to {last - 1}: {seen[worst]} of {total} draws where "
            f"{total * chance[worst]:.6g} are expected (p = {p_values[worst]:.3g})"
        )


def assert_binomial(
    successes: int, trials: int, probability: float, false_alarm: float = FALSE_ALARM
) -> None:
    """Fail unless ``successes`` of ``trials`` fits ``probability``, by an exact two-sided test.

    Args:
        successes: number of successes, from 0 to ``trials``.
        trials: number of independent trials.
        probability: probability of a success, in [0, 1].
        false_alarm: upper bound on the probability of failing under the right distribution.

    Raises:
        AssertionError: the number of successes does not fit.
        ParameterError: a number outside its domain.
    """
    checks.count(0, successes=successes, trials=trials)
    checks.at_most("trials", trials, successes=successes)
    checks.probability(probability=probability)
    assert_frequencies([successes, trials - successes], [probability, 1 - probability], false_alarm)


def assert_mean(values: ArrayLike, expected: float, false_alarm: float = FALSE_ALARM) -> None:
    """Fail unless the mean of ``values`` lies within its error bar of ``expected``.

    The error bar is that of the normal approximation, which needs a few hundred independent values
    or more, none of which dominates.

    Args:
        values: shape (n,), with n at least 2.
        expected: mean of the right distribution.
        false_alarm: approximate probability of failing under the right distribution.

    Raises:
        AssertionError: the mean does not fit.
        ParameterError: fewer than two values.
    """
    sample = np.asarray(values, dtype=np.float64)
    checks.count(2, values=sample.size)
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / np.sqrt(sample.size)
    allowed = float(stats.norm.isf(false_alarm / 2)) * error
    rounding = 1e-12 * max(abs(mean), abs(expected))
    if not abs(mean - expected) <= allowed + rounding:
        raise AssertionError(f"the mean is {mean:.8g} ± {error:.2g}: expected {expected:.8g}")


def assert_rejects(
    assertion: Callable[[Observed], object], wrong_distributions: Mapping[str, Observed]
) -> None:
    """Fail unless ``assertion`` fails on the observations of each wrong distribution.

    Args:
        assertion: function of observations, which must raise an AssertionError.
        wrong_distributions: observations of at least one wrong distribution, by its name.

    Raises:
        AssertionError: the assertion accepts a wrong distribution, which the message names.
        ParameterError: no wrong distribution.

    >>> assert_rejects(
    ...     lambda counts: assert_frequencies(counts, [0.5, 0.5]), {"biased": [900, 100]}
    ... )
    """
    if not wrong_distributions:
        raise ParameterError(
            "wrong_distributions", dict(wrong_distributions), "at least one wrong distribution"
        )
    accepted = [
        name for name, observed in wrong_distributions.items() if _accepts(assertion, observed)
    ]
    if accepted:
        raise AssertionError(f"wrong distributions were accepted: {', '.join(accepted)}")


def _accepts(assertion: Callable[[Observed], object], observed: Observed) -> bool:
    """Whether an assertion accepts some observations."""
    try:
        assertion(observed)
    except AssertionError:
        return False
    return True


def _runs(cells: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts and ends of aligned groups of 1, 2, 4, … cells, for group sizes below ``cells``.

    Groups of one cell are always returned.
    """
    runs = []
    width = 1
    while width == 1 or width < cells:
        starts = np.arange(0, cells, width)
        runs.append((starts, np.minimum(starts + width, cells)))
        width *= 2
    return runs


def _two_sided(seen: np.ndarray, total: int, chance: np.ndarray) -> np.ndarray:
    """Exact two-sided binomial p-values, twice the smaller tail."""
    lower = stats.binom.cdf(seen, total, chance)
    upper = stats.binom.sf(seen - 1, total, chance)
    return np.minimum(1, 2 * np.minimum(lower, upper))
