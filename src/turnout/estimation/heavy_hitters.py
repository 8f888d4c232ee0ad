"""Which items are frequent, with the chance of naming even one wrong item kept small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.frequency_intervals import binomial_p_values, frequency_intervals
from turnout.estimation.frequency_scores import Evidence


def heavy_hitters(evidence: Evidence, threshold: float, error: float = 0.05) -> NDArray[np.int64]:
    """Items whose frequency is above ``threshold``, the surest first.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 1979,
        on exact binomial p-values (`turnout.estimation.frequency_intervals`).

    Guarantees:
        With probability at least 1 − ``error`` over the clients' coins, none of the items has a
        frequency of ``threshold`` or less, whatever the clients hold.

    Args:
        evidence: what the messages say.
        threshold: in [0, 1).
        error: family-wise error, at most 0.25.

    Returns:
        Item numbers, int64.
    """
    checks.probability(threshold=threshold)
    check_error(error)
    if evidence.counts is None:
        # No exact test: lower limits that hold all at once, each with half of its share of error.
        low = frequency_intervals(evidence, 1 - error, simultaneous=True).low
        found = np.flatnonzero(low > threshold)
        return found[np.argsort(-low[found], kind="stable")]
    mean = evidence.other + evidence.lift * threshold
    return holm(binomial_p_values(evidence.counts, evidence.clients, mean), error)


def check_error(error: float) -> None:
    """One line for a family-wise error at which p-values are not known to hold."""
    checks.open_unit(error=error)
    if error > 0.25:
        raise ParameterError("error", error, "at most 0.25")


def holm(p_values: NDArray[np.float64], error: float) -> NDArray[np.int64]:
    """Hypotheses that are rejected at family-wise error ``error``, by rising p-value.

    >>> holm(np.array([0.5, 0.001, 0.02, 0.026]), 0.06).tolist()
    [1, 2, 3]
    """
    check_error(error)
    order = np.argsort(p_values, kind="stable")
    passed = p_values[order] <= error / np.arange(len(order), 0, -1)
    stop = int(np.argmin(passed)) if not passed.all() else len(order)
    return order[:stop]
