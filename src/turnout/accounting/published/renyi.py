"""Rényi curves: what RDP bounds are made of, and how they become (ε, δ).

A curve is a list of ln D_α, D_α = E_Q[X^α], at whole orders α = 0 … A. ln D_α is convex in α, so
the chord between two whole orders is an upper bound at the real orders between them, those
between 1 and 2 included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = np.ndarray
_ORDERS_A_UNIT = 20  # real orders tried between two whole ones


def epsilon_at(orders: FloatArray, divergences: FloatArray, delta: float) -> FloatArray:
    """The ε that each order proves at δ, unrounded: R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).

    Source: Canonne, Kamath and Steinke 2020 (canonne2020discrete), Proposition 12; Lemma 2.1.3 of
    Girgis 2023 (girgis2023thesis).
    """
    lost = (math.log(delta) + np.log(orders)) / (orders - 1)
    return divergences + np.log1p(-1 / orders) - lost


def log_delta_at(orders: FloatArray, divergences: FloatArray, epsilon: float) -> FloatArray:
    """Ln of the δ that each order proves at ε, unrounded: see `epsilon_at`."""
    logs = (orders - 1) * (divergences - epsilon) + orders * np.log1p(-1 / orders)
    return logs - np.log(orders - 1)


@dataclass(frozen=True, slots=True, eq=False)
class RenyiCurve:
    """Upper bounds on ln D_α = (α − 1)·R_α at whole orders, in one direction.

    Attributes:
        log_moments: ln D_0, ln D_1, …, ln D_A, shape (A + 1,), A ≥ 2; the first two are 0.
    """

    log_moments: FloatArray

    def __post_init__(self) -> None:
        if self.log_moments.ndim != 1 or self.log_moments.size < 3:
            raise ParameterError(
                "log_moments", self.log_moments.shape, "orders 0, 1 and 2 at least"
            )

    @property
    def largest_order(self) -> int:
        """A."""
        return self.log_moments.size - 1

    def divergence(self, order: float) -> float:
        """R_α at a real order 1 < α ≤ A, exact at whole ones, by the chord between.

        Raises:
            ParameterError: an order outside of (1, A].
        """
        if not 1 < order <= self.largest_order:
            raise ParameterError("order", order, f"above 1 and at most {self.largest_order}")
        whole = np.arange(self.log_moments.size)
        return float(np.interp(order, whole, self.log_moments)) / (order - 1)

    def composed(self, count: int) -> RenyiCurve:
        """The curve of ``count`` independent runs."""
        checks.count(count=count)
        return RenyiCurve(count * self.log_moments)

    def epsilon(self, delta: float) -> float:
        """The smallest ε that some order proves at δ, at least 0.

        Source: Canonne, Kamath and Steinke 2020 (canonne2020discrete), Proposition 12; Balle,
        Barthe, Gaboardi, Hsu and Sato 2020 (balle2020hypothesis), Theorem 21:
        ε = R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).
        """
        checks.open_unit(delta=delta)
        bounds = epsilon_at(*self._all(), delta)
        return max(0.0, float(np.min(bounds)) + 1e-12)

    def delta(self, epsilon: float) -> float:
        """The smallest δ that some order proves at ε, at most 1.

        Source: as `epsilon`; e^{(α−1)(R_α−ε)}(1 − 1/α)^α/(α − 1), Lemma 2.4 of Feldman and
        Shenfeld 2025.
        """
        checks.non_negative(epsilon=epsilon)
        logs = log_delta_at(*self._all(), epsilon)
        return min(1.0, math.exp(min(0.0, float(np.min(logs)))) * (1 + 1e-12))

    def _all(self) -> tuple[FloatArray, FloatArray]:
        count = (self.largest_order - 1) * _ORDERS_A_UNIT
        orders = 1 + np.arange(1, count + 1) / _ORDERS_A_UNIT
        whole = np.arange(self.log_moments.size)
        return orders, np.interp(orders, whole, self.log_moments) / (orders - 1)
