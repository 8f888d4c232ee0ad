"""Rényi differential privacy: curves of divergences, composition, and the conversion to (ε, δ).

`RenyiCurve` is a list of divergences at whole orders. `RenyiFormula` is a function that bounds
divergences from above at any order; `RenyiLowerFormula` bounds them from below (no guarantee). Each
can be composed and converted to (ε, δ). `lemma_2_1_3`, `lemma_2_1_4` and `lemma_2_1_5` are results
of the thesis. `random_allocation`, `shuffling_rdp` and `shuffled_training` return such curves.

Source: Girgis 2023 (girgis2023thesis), Chapter 2. Adaptive composition and conversion hold under
any relation, direction by direction.

Notation: D_α = E_Q[(dP/dQ)^α], R_α = ln D_α / (α − 1) the Rényi divergence of order α > 1, in nats,
in one direction; δ in (0, 1).

A curve is a list of ln D_α at whole orders α = 0 … A. ln D_α is convex in α, so the chord between
two whole orders is an upper bound at the real orders between them, including those between 1 and 2.
A list is practical for orders up to some hundreds. Bounds on shuffles need orders in the thousands,
so they are formulas, and a search finds the order that proves the smallest ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.published.results import THESIS, Status
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError

_ORDERS_A_UNIT = 20  # real orders tried between two whole ones


def epsilons_by_order(orders: FloatArray, divergences: FloatArray, delta: float) -> FloatArray:
    """ε that each order α proves at δ from its Rényi divergence R_α, unrounded, shape (n,).

    ε = R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).

    Source: Canonne, Kamath and Steinke 2020 (canonne2020discrete), Proposition 12; Lemma 2.1.3 of
    Girgis 2023 (girgis2023thesis).

    Args:
        orders: α > 1, shape (n,).
        divergences: R_α in nats, shape (n,).
        delta: δ, strictly between 0 and 1.
    """
    lost = (math.log(delta) + np.log(orders)) / (orders - 1)
    return divergences + np.log1p(-1 / orders) - lost


def log_delta_at(orders: FloatArray, divergences: FloatArray, epsilon: float) -> FloatArray:
    """Logarithm of the δ that each order proves at ε, unrounded, shape (n,).

    The conversion is that of `epsilons_by_order`.

    Args:
        orders: α > 1, shape (n,).
        divergences: R_α in nats, shape (n,).
        epsilon: ε, at least 0.
    """
    logs = (orders - 1) * (divergences - epsilon) + orders * np.log1p(-1 / orders)
    return logs - np.log(orders - 1)


@dataclass(frozen=True, slots=True, eq=False)
class RenyiCurve:
    """Upper bounds on ln D_α = (α − 1)·R_α at whole orders α, in one direction.

    R_α is the Rényi divergence, and D_α = E_Q[(dP/dQ)^α] is the moment of the likelihood ratio.

    Attributes:
        log_moments: ln D_0, ln D_1, …, ln D_A, shape (A + 1,), A ≥ 2; the first two are 0.
    """

    log_moments: FloatArray

    def __post_init__(self) -> None:
        if self.log_moments.ndim != 1 or self.log_moments.size < 3:
            shape = self.log_moments.shape
            expected = "a vector of at least three numbers, for the orders 0, 1 and 2"
            raise ParameterError("log_moments", shape, expected)

    @property
    def largest_order(self) -> int:
        """Largest order A of the curve."""
        return self.log_moments.size - 1

    def divergence(self, order: float) -> float:
        """Upper bound on R_α, in nats, at a real order 1 < α ≤ A.

        Between whole orders, (α − 1)·R_α is interpolated linearly, since it is convex in α.

        Raises:
            ParameterError: the order is outside (1, A].
        """
        _check_order(order, self.largest_order)
        whole = np.arange(self.log_moments.size)
        return float(np.interp(order, whole, self.log_moments)) / (order - 1)

    def composed(self, count: int) -> RenyiCurve:
        """Rényi curve of ``count`` independent runs together.

        Raises:
            ParameterError: ``count`` is below 1.
        """
        checks.count(count=count)
        return RenyiCurve(count * self.log_moments)

    def epsilon(self, delta: float) -> float:
        """Smallest ε that some order proves at δ, at least 0.

        Source: Canonne, Kamath and Steinke 2020 (canonne2020discrete), Proposition 12; Balle,
        Barthe, Gaboardi, Hsu and Sato 2020 (balle2020hypothesis), Theorem 21:
        ε = R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).

        Returns:
            ε in the direction of the curve, never below the true value.

        Raises:
            ParameterError: δ is outside (0, 1).
        """
        checks.open_unit(delta=delta)
        bounds = epsilons_by_order(*self._all(), delta)
        return max(0.0, float(np.min(bounds)) + 1e-12)

    def delta(self, epsilon: float) -> float:
        """Smallest δ that some order proves at ε, at most 1.

        Source: as `epsilon`; e^{(α−1)(R_α−ε)}(1 − 1/α)^α/(α − 1), Lemma 2.4 of Feldman and
        Shenfeld 2025.

        Returns:
            δ in the direction of the curve, never below the true value.

        Raises:
            ParameterError: ε is below 0.
        """
        checks.non_negative(epsilon=epsilon)
        logs = log_delta_at(*self._all(), epsilon)
        return min(1.0, math.exp(min(0.0, float(np.min(logs)))) * (1 + 1e-12))

    def _all(self) -> tuple[FloatArray, FloatArray]:
        count = (self.largest_order - 1) * _ORDERS_A_UNIT
        orders = 1 + np.arange(1, count + 1) / _ORDERS_A_UNIT
        whole = np.arange(self.log_moments.size)
        return orders, np.interp(orders, whole, self.log_moments) / (orders - 1)


LogMoments = Callable[[FloatArray], FloatArray]
MOST_ORDERS = 2**16
_RATIO = 1.15  # of neighbouring orders of the first search
_AT_ONCE = 8  # orders of the first search before it looks whether it still gains
_REFINED = 17  # orders a round of the later ones
_ROUNDING = 1e-12  # relative and absolute


@dataclass(frozen=True, slots=True, eq=False)
class RenyiFormula:
    """Upper bounds on ln D_α = (α − 1)·R_α that hold in both directions.

    Attributes:
        log_moments: function from orders to ln D_α, never below the true values, same shape.
        largest_order: A, largest order at which the function is evaluated.
        real_orders: whether the function is valid at every order above 1. If not, it is evaluated
            at whole orders from 2 on only, and chords are the bound between whole orders.
        rounds: number of runs that are composed.
    """

    log_moments: LogMoments
    largest_order: int = MOST_ORDERS
    real_orders: bool = False
    rounds: int = 1

    def divergence(self, order: float) -> float:
        """Upper bound on R_α at a real order 1 < α ≤ A.

        Source: between whole orders (5.6) of Girgis 2023 (girgis2023thesis): ln D_α is convex.

        Raises:
            ParameterError: the order is outside (1, A].
        """
        _check_order(order, self.largest_order)
        return float(self._divergences(np.array([float(order)]))[0])

    def composed(self, count: int) -> RenyiFormula:
        """Rényi bound on ``count`` runs, each of which may depend on earlier runs.

        Raises:
            ParameterError: ``count`` is below 1.
        """
        checks.count(count=count)
        return replace(self, rounds=self.rounds * count)

    def epsilon(self, delta: float) -> float:
        """Smallest ε that a tried order proves at δ, at least 0, rounded up.

        Raises:
            ParameterError: δ is outside (0, 1).
        """
        checks.open_unit(delta=delta)
        found = _least(
            lambda orders: epsilons_by_order(orders, self._divergences(orders), delta),
            self.largest_order,
            whole=False,
        )
        return max(0.0, found * (1 + _ROUNDING) + _ROUNDING)

    def delta(self, epsilon: float) -> float:
        """Smallest δ that a tried order proves at ε, at most 1, rounded up.

        Raises:
            ParameterError: ε is below 0.
        """
        checks.non_negative(epsilon=epsilon)
        found = _least(
            lambda orders: log_delta_at(orders, self._divergences(orders), epsilon),
            self.largest_order,
            whole=False,
        )
        return math.exp(min(0.0, found + _ROUNDING * (1 + abs(found))))

    def _divergences(self, orders: FloatArray) -> FloatArray:
        if self.real_orders:
            logs = self.log_moments(orders)
        else:
            below = np.floor(orders)
            whole, where = np.unique(np.concatenate([below, np.ceil(orders)]), return_inverse=True)
            values = np.zeros(whole.size)
            values[whole >= 2] = self.log_moments(whole[whole >= 2])
            first, second = np.split(values[where.reshape(-1)], 2)
            logs = first + (orders - below) * (second - first)
        return self.rounds * np.maximum(logs, 0.0) / (orders - 1) * (1 + _ROUNDING)


@dataclass(frozen=True, slots=True, eq=False)
class RenyiLowerFormula:
    """Lower bounds on ln D_α at whole orders α ≥ 2 that some randomizer attains: no guarantee.

    Attributes:
        log_moments: function from whole orders to ln D_α, never above the attained values, same
            shape.
        largest_order: A, largest order at which the function is evaluated.
        rounds: number of independent runs that are composed.
    """

    log_moments: LogMoments
    largest_order: int = MOST_ORDERS
    rounds: int = 1

    def divergence(self, order: int) -> float:
        """Lower bound on R_α, at a whole order 2 ≤ α ≤ A.

        Raises:
            ParameterError: the order is not a whole number from 2 to A.
        """
        checks.count(2, order=order)
        _check_order(order, self.largest_order)
        return float(self._divergences(np.array([float(order)]))[0])

    def composed(self, count: int) -> RenyiLowerFormula:
        """Lower bounds on the Rényi divergences of ``count`` independent runs together.

        Raises:
            ParameterError: ``count`` is below 1.
        """
        checks.count(count=count)
        return replace(self, rounds=self.rounds * count)

    def smallest_provable_epsilon(self, delta: float) -> float:
        """NO GUARANTEE: lower bound on every ε that Rényi divergences can prove at δ.

        Source: the "lower bound" curves of Figures 5.3 to 5.6 of Girgis 2023 (girgis2023thesis).
        The curves use a lower bound where `epsilons_by_order` needs an upper bound. So the true ε
        may lie above the curves and, since the conversion is not tight, also below.

        Raises:
            ParameterError: δ is outside (0, 1).
        """
        checks.open_unit(delta=delta)
        found = _least(
            lambda orders: epsilons_by_order(orders, self._divergences(orders), delta),
            self.largest_order,
            whole=True,
        )
        return max(0.0, found)

    def _divergences(self, orders: FloatArray) -> FloatArray:
        logs = np.maximum(self.log_moments(orders), 0.0)
        return self.rounds * logs / (orders - 1) * (1 - _ROUNDING)


def _check_order(order: float, largest: int) -> None:
    if not 1 < order <= largest:
        raise ParameterError("order", order, f"above 1 and at most {largest}")


def _least(bound: Callable[[FloatArray], FloatArray], largest: int, *, whole: bool) -> float:
    """Smallest value of a bound over a grid of orders α that is refined around the minimum.

    Every order gives a valid bound, so a missed minimum only makes the result less tight.
    """
    # A geometric sequence of orders, some at a time, until the bound no longer falls.
    orders = np.round(_RATIO ** np.arange(1, math.log(largest) / math.log(_RATIO)))
    orders = np.unique(np.append(orders[orders >= 2], [2.0, largest]))
    if not whole:
        orders = np.append(1 + np.geomspace(0.01, 0.9, 12), orders)
    values = np.full(orders.size, np.inf)
    for start in range(0, orders.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        values[part] = bound(orders[part])
        if start and values[part].min() > values[:start].min():
            break
    # Closer orders between the neighbours of the best one.
    best, at = float(values.min()), int(values.argmin())
    low, high = orders[max(at - 1, 0)], orders[min(at + 1, orders.size - 1)]
    while high - low > (1.0 if whole else 0.05):
        closer = np.linspace(low, high, _REFINED)
        if whole or high - low > _REFINED:
            closer = np.unique(np.round(closer))
        values = bound(closer)
        best, at = min(best, float(values.min())), int(values.argmin())
        narrower = closer[max(at - 1, 0)], closer[min(at + 1, closer.size - 1)]
        if narrower == (low, high):
            break
        low, high = narrower
    return best


Divergences = Mapping[float, float]
"""Upper bounds on R_α by their orders α > 1."""


def lemma_2_1_3(divergences: Divergences, delta: float) -> float:
    """Smallest ε, at least 0, that one of the given orders proves at δ.

    Source: Lemma 2.1.3 of Girgis 2023 (girgis2023thesis), first part; Canonne, Kamath and Steinke
    2020 (canonne2020discrete), Proposition 12: R_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1).

    Args:
        divergences: upper bounds on R_α, in nats, by their orders α > 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε in the direction of the divergences, rounded up.

    Raises:
        ParameterError: an order is not above 1, a divergence is below 0, or δ is outside (0, 1).

    >>> round(lemma_2_1_3({order: order / 2 for order in (4.0, 5.0, 6.0)}, 1e-5), 4)
    4.7527
    """
    checks.open_unit(delta=delta)
    found = float(np.min(epsilons_by_order(*_listed(divergences), delta)))
    return max(0.0, found + _ROUNDING * (1 + abs(found)))


def lemma_2_1_3_delta(divergences: Divergences, epsilon: float) -> float:
    """Smallest δ, at most 1, that one of the given orders proves at ε.

    Source: Lemma 2.1.3 of Girgis 2023 (girgis2023thesis), second part:
    e^{(α−1)(R_α − ε)}(1 − 1/α)^α/(α − 1), rounded up.

    Args:
        divergences: upper bounds on R_α, in nats, by their orders α > 1.
        epsilon: ε, at least 0.

    Returns:
        δ in the direction of the divergences, never below the true value.

    Raises:
        ParameterError: an order is not above 1, a divergence is below 0, or ε is below 0.
    """
    checks.non_negative(epsilon=epsilon)
    found = float(np.min(log_delta_at(*_listed(divergences), epsilon)))
    return min(1.0, math.exp(min(0.0, found + _ROUNDING * (1 + abs(found)))))


def lemma_2_1_4(first: Divergences, second: Divergences) -> dict[float, float]:
    """Rényi divergences of two adaptively composed mechanisms: the sum at each common order.

    Source: Lemma 2.1.4 of Girgis 2023 (girgis2023thesis); Mironov 2017 (mironov2017renyi),
    Proposition 1. Both bounds must be of the *same* order, and the second bound must hold for every
    output of the first mechanism.

    Args:
        first: upper bounds on R_α of the first mechanism, in nats, by their orders α > 1.
        second: upper bounds on R_α of the second mechanism, for every output of the first.

    Returns:
        The sums at the orders that both mechanisms have, rounded up.

    Raises:
        ParameterError: the mechanisms have no order in common.
    """
    orders = sorted(set(first) & set(second))
    if not orders:
        raise ParameterError("second", sorted(second), f"one of the orders {sorted(first)}")
    for divergences in (first, second):
        _listed(divergences)
    return {order: (first[order] + second[order]) * (1 + 2 * UNIT_ROUNDOFF) for order in orders}


def _listed(divergences: Divergences) -> tuple[FloatArray, FloatArray]:
    """Checked orders and divergences as two arrays."""
    if not divergences:
        raise ParameterError("divergences", {}, "at least one order")
    for order, value in divergences.items():
        if not (1 < order < math.inf and value >= 0):
            expected = "orders above 1 with divergences of at least 0"
            raise ParameterError("divergences", {order: value}, expected)
    return np.array([*divergences], dtype=float), np.array([*divergences.values()], dtype=float)


def lemma_2_1_5(slope: float, delta: float) -> float:
    """Bound ε = 3·max(ρ ln(1/δ), √(ρ ln(1/δ))) if R_α ≤ αρ at every α > 1.

    Source: Lemma 2.1.5 of Girgis 2023 (girgis2023thesis). A step of its proof uses
    ρ ≤ ρ ln(1/δ), so the lemma needs δ ≤ 1/e, which the thesis does not state: at δ = 0.9 and
    ρ = 100 the formula gives ε = 32, where Gaussian noise has a true δ of 1.

    Args:
        slope: ρ with R_α ≤ αρ at every α > 1, positive.
        delta: δ, in (0, 1/e].

    Returns:
        ε in the direction of the divergences, never below the true value.

    Raises:
        ParameterError: δ > 1/e, or an argument is outside its domain.
    """
    checks.positive(slope=slope)
    checks.open_unit(delta=delta)
    if delta > math.exp(-1):
        raise ParameterError("delta", delta, "at most 1/e (Lemma 2.1.5)")
    return lemma_2_1_5_as_printed(slope, delta) * (1 + 8 * UNIT_ROUNDOFF)


def lemma_2_1_5_as_printed(slope: float, delta: float) -> float:
    """UNSAFE for δ > 1/e: the formula of `lemma_2_1_5` at every δ.

    Args:
        slope: ρ with R_α ≤ αρ at every α > 1, positive.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, which may be below the true value if δ > 1/e.

    Raises:
        ParameterError: an argument is outside its domain.
    """
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
