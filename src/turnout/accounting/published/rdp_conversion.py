"""Rényi differential privacy as in the thesis' Chapter 2: composition, and the way to (ε, δ).

Source: Girgis 2023 (girgis2023thesis), Chapter 2. Adaptive composition and conversion hold under
any relation, direction by direction. `RenyiCurve` and `RenyiFormula` do the same for curves of
many orders and search the best one.

Notation: R_α is the Rényi divergence of order α > 1, in nats, in one direction; δ in (0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.published.renyi import epsilon_at, log_delta_at
from turnout.accounting.published.results import THESIS, Status
from turnout.core import checks
from turnout.core.errors import ParameterError

_ROUNDING = 1e-12
Divergences = Mapping[float, float]
"""Upper bounds on R_α by their orders α > 1."""


def lemma_2_1_3(divergences: Divergences, delta: float) -> float:
    """Smallest ε that one of the orders proves at δ, at least 0.

    Source: Lemma 2.1.3 of Girgis 2023 (girgis2023thesis), first part; Canonne, Kamath and Steinke
    2020 (canonne2020discrete), Proposition 12: R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).

    Returns:
        ε in that direction, rounded up.

    >>> round(lemma_2_1_3({order: order / 2 for order in (4.0, 5.0, 6.0)}, 1e-5), 4)
    4.7527
    """
    checks.open_unit(delta=delta)
    found = float(np.min(epsilon_at(*_listed(divergences), delta)))
    return max(0.0, found + _ROUNDING * (1 + abs(found)))


def lemma_2_1_3_delta(divergences: Divergences, epsilon: float) -> float:
    """Smallest δ that one of the orders proves at ε, at most 1.

    Source: Lemma 2.1.3 of Girgis 2023 (girgis2023thesis), second part:
    e^{(α−1)(R_α − ε)}(1 − 1/α)^α/(α − 1), rounded up.
    """
    checks.non_negative(epsilon=epsilon)
    found = float(np.min(log_delta_at(*_listed(divergences), epsilon)))
    return min(1.0, math.exp(min(0.0, found + _ROUNDING * (1 + abs(found)))))


def lemma_2_1_4(first: Divergences, second: Divergences) -> dict[float, float]:
    """R_α of two mechanisms, the second of which may depend on what the first one said: the sum.

    Source: Lemma 2.1.4 of Girgis 2023 (girgis2023thesis); Mironov 2017 (mironov2017renyi),
    Proposition 1. Both bounds must be of the *same* order, and the second must hold whatever the
    first one said.

    Returns:
        The sums at the orders that both have, rounded up.

    Raises:
        ParameterError: they have no order in common.
    """
    orders = sorted(set(first) & set(second))
    if not orders:
        raise ParameterError("second", sorted(second), f"one of the orders {sorted(first)}")
    for divergences in (first, second):
        _listed(divergences)
    return {order: (first[order] + second[order]) * (1 + 2 * UNIT_ROUNDOFF) for order in orders}


def _listed(divergences: Divergences) -> tuple[np.ndarray, np.ndarray]:
    """Orders and divergences, checked."""
    if not divergences:
        raise ParameterError("divergences", {}, "one order at least")
    for order, value in divergences.items():
        if not (1 < order < math.inf and value >= 0):
            expected = "orders above 1 with divergences of at least 0"
            raise ParameterError("divergences", {order: value}, expected)
    return np.array([*divergences], dtype=float), np.array([*divergences.values()], dtype=float)


def lemma_2_1_5(slope: float, delta: float) -> float:
    """ε = 3·max(ρ ln(1/δ), √(ρ ln(1/δ))) where R_α ≤ αρ at every α > 1.

    Source: Lemma 2.1.5 of Girgis 2023 (girgis2023thesis). A step of its proof takes
    ρ ≤ ρ ln(1/δ), so it needs δ ≤ 1/e, which the thesis does not say: at δ = 0.9 and ρ = 100 it
    gives 32 where Gaussian noise has a true δ of 1.

    Raises:
        ParameterError: δ > 1/e.
    """
    checks.positive(slope=slope)
    checks.open_unit(delta=delta)
    if delta > math.exp(-1):
        raise ParameterError("delta", delta, "at most 1/e (Lemma 2.1.5)")
    return lemma_2_1_5_as_printed(slope, delta) * (1 + 8 * UNIT_ROUNDOFF)


def lemma_2_1_5_as_printed(slope: float, delta: float) -> float:
    """UNSAFE for δ > 1/e: see `lemma_2_1_5`."""
    checks.positive(slope=slope)
    checks.open_unit(delta=delta)
    square = -slope * math.log(delta)
    return 3 * max(square, math.sqrt(square))


_ANY, _LINEAR = "any with bounded Renyi divergences", "any with a linear Renyi curve"
RESULTS = (
    THESIS.states("Lemma 2.1.3", lemma_2_1_3, _ANY, "orders above 1, delta in (0, 1)"),
    THESIS.states("Lemma 2.1.3, delta", lemma_2_1_3_delta, _ANY, "orders above 1, epsilon >= 0"),
    THESIS.states("Lemma 2.1.4", lemma_2_1_4, _ANY, "the same order of both; adaptive"),
    THESIS.states("Lemma 2.1.5", lemma_2_1_5, _LINEAR, "delta <= 1/e"),
    THESIS.states(
        "Lemma 2.1.5, as printed",
        lemma_2_1_5_as_printed,
        _LINEAR,
        "unsafe for delta > 1/e",
        Status.UNSAFE,
    ),
)
