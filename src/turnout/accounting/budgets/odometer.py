"""An odometer: a bound on what has been spent that holds whenever a run stops, for whatever reason.

Notation: P, Q the worlds with and without the client; L_n the privacy loss ln(dP/dQ) of the first n
windows, R_n(α) the sum of their Rényi divergences, w_α weights that sum to 1.

However each next window is chosen from earlier releases, M_n = Σ w_α·e^{(α−1)(L_n − R_n(α))} has,
given the past, a mean under P of at most what it was, and starts at 1. So its mean is at most 1
whenever the run stops (optional stopping). Let ε be so large that, for every loss L,

    (1 − e^{ε−L})₊ ≤ δ·Σ w_α·e^{(α−1)(L − R_n(α))}.                                        (*)

The mean of the right side is at most δ when the run stops, and that of the left side is what an
adversary gains beyond e^ε. With one order this is ε = R(α) + ln(c_α/δ)/(α − 1), with c_α =
(1/α)(1 − 1/α)^{α−1} (Canonne, Kamath & Steinke 2020, Proposition 12); with several it is at most
R(α) + ln(c_α/(w_α·δ))/(α − 1) for each. The minimum over orders *without* weights is not a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting.budgets.terms import (
    Entries,
    Entry,
    Terms,
    entries_from,
    require_kind,
    require_terms,
    with_entry,
)
from turnout.accounting.divergence.curves import Direction
from turnout.accounting.divergence.renyi import RenyiBounds, checked_orders, run_renyi
from turnout.core import checks
from turnout.core.errors import BudgetExceededError, NumericalError, ParameterError
from turnout.schemes import Scheme

_KIND = "odometer"
LEFT_OUT_SHARE = 0.01
"""Part of δ that the windows' cut tails may use up."""
CANDIDATES = tuple(1 + 2 ** (k / 4) for k in range(-8, 41))
"""Orders that are considered, from 1.25 to 1025."""
_ORDERS = tuple(1 + 2.0**k for k in range(-1, 9))
_AROUND = {-2: 0.08, -1: 0.17, 0: 0.5, 1: 0.17, 2: 0.08}  # weights by powers of 2 of α − 1
_ROUNDING = 1e-11  # relative, of an ε and of the sums in it


@dataclass(frozen=True, slots=True)
class Odometer:
    """The account of everything spent so far, without a budget.

    Guarantee: for each δ, whenever a run stops (for whatever reason, releases included) and for
    every event A that its releases decide,

        P(A) ≤ E_Q[e^ε; A] + δ,   Q(A) ≤ E_P[e^ε; A] + δ,

    where ε is `bound` at the time it stopped. So whoever stops only while the bound is at most a
    number fixed in advance is (that number, δ)-DP.

    Source: odometers of Rogers, Roth, Ullman & Vadhan 2016, from mixtures of supermartingales as in
    Whitehouse, Ramdas, Rogers & Wu 2023, here of Rényi orders (Feldman & Zrnic 2021 for a single
    one) and with the hockey stick in place of a tail: docs/design/ledger.md.

    Attributes:
        orders: α's, rising.
        weights: of the orders, summing to at most 1. They must not depend on releases.
        left_out: probability that may be cut off a window's tails.
        most_windows: how many windows may be recorded; their cuts are paid for in advance.
    """

    terms: Terms
    orders: tuple[float, ...] = _ORDERS
    weights: tuple[float, ...] = (1.0 / len(_ORDERS),) * len(_ORDERS)
    left_out: float = 1e-11
    most_windows: int = 1000
    entries: Entries = ()

    def __post_init__(self) -> None:
        require_terms(self.terms)
        checks.open_unit(left_out=self.left_out)
        checks.count(most_windows=self.most_windows)
        checked_orders(self.orders)
        positive = all(weight > 0 for weight in self.weights)  # also false for what is no number
        even = len(self.weights) == len(self.orders)
        if not even or not positive or math.fsum(self.weights) > 1 + 1e-12:
            raise ParameterError(
                "weights", self.weights, "a share above 0 an order, at most 1 in all"
            )
        if self.windows > self.most_windows:
            raise ParameterError("entries", self.windows, f"at most {self.most_windows} windows")
        for charge in (entry.charge for entry in self.entries):
            if charge.orders != tuple(self.orders) or charge.left_out > self.left_out:
                raise ParameterError("entries", charge, "charges of the odometer's own orders")

    @classmethod
    def of(
        cls, expected: Scheme, windows: int, delta: float, *, most_windows: int = 1000
    ) -> Odometer:
        """An odometer that is sharpest at one δ after about ``windows`` windows of one kind.

        Whatever is really run, and whenever it ends, the guarantee holds.

        Args:
            expected: a typical window; its relation, unit and trust are the odometer's.
            windows: after how many of them it should be sharpest.
            delta: the δ at which it will be read.
            most_windows: the most windows that will be run.
        """
        checks.open_unit(delta=delta)
        checks.count(windows=windows, most_windows=most_windows)
        terms, left_out = Terms.of(expected), LEFT_OUT_SHARE * delta / most_windows
        curve = run_renyi(terms.run_of(expected), CANDIDATES, left_out)
        rates = map(max, curve.remove, curve.add)
        costs = [
            windows * rate - renyi_budget(0.0, delta, order)
            for order, rate in zip(CANDIDATES, rates, strict=True)
        ]
        best = CANDIDATES[costs.index(min(costs))]
        orders = tuple(1 + (best - 1) * 2.0**power for power in _AROUND)
        return cls(terms, orders, tuple(_AROUND.values()), left_out, most_windows)

    @property
    def spent(self) -> RenyiBounds:
        """Sum of the divergences of everything recorded so far."""
        total = RenyiBounds.zero(self.orders)
        for entry in self.entries:
            total = total + entry.count * entry.charge
        return total

    @property
    def windows(self) -> int:
        """Windows recorded so far."""
        return sum(entry.count for entry in self.entries)

    def charge(self, scheme: Scheme) -> RenyiBounds:
        """Rényi bounds of one scheme as a whole."""
        return run_renyi(self.terms.run_of(scheme), self.orders, self.left_out)

    def record(self, scheme: Scheme, label: str = "", times: int = 1) -> Odometer:
        """The odometer after a scheme was recorded ``times`` times, before it runs.

        Raises:
            BudgetExceededError: more windows than their cut tails were paid for.
        """
        left = self.most_windows - self.windows
        if times > left:
            raise BudgetExceededError(times, left, "windows")
        fresh = Entry(self.charge(scheme), times, label)
        return replace(self, entries=with_entry(self.entries, fresh))

    def bound(self, delta: float) -> float:
        """ε at this time; see the class for what it means.

        Args:
            delta: δ, above ``left_out * most_windows`` and the same at all times.

        Returns:
            A bound rounded up; 0 before anything was recorded.

        Raises:
            ParameterError: the windows' cut tails use up all of δ.
        """
        return self.bound_of(self.spent, delta)

    def bound_of(self, total: RenyiBounds, delta: float) -> float:
        """`bound` if the sum of all divergences were ``total``."""
        checks.open_unit(delta=delta)
        cuts = self.left_out * self.most_windows
        rest = (delta - cuts) * (1 - 1e-12)
        if rest <= 0:
            raise ParameterError("delta", delta, f"more than the {cuts:g} that cut tails use up")
        worst = (
            mixture_epsilon(self.orders, self.weights, total.of(direction), rest)
            for direction in Direction
        )
        return max(worst) if any(total.remove + total.add) else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        return {
            "kind": _KIND,
            "terms": self.terms.to_dict(),
            "orders": list(self.orders),
            "weights": list(self.weights),
            "left_out": self.left_out,
            "most_windows": self.most_windows,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Odometer:
        """The odometer that `to_dict` wrote."""
        require_kind(data, _KIND)
        return cls(
            Terms.from_dict(data["terms"]),
            tuple(data["orders"]),
            tuple(data["weights"]),
            data["left_out"],
            data["most_windows"],
            entries_from(data),
        )


def mixture_epsilon(
    orders: tuple[float, ...],
    weights: tuple[float, ...],
    divergences: tuple[float, ...],
    delta: float,
) -> float:
    """The least ε ≥ 0 for which (*) holds at every loss L, rounded up.

    It is the largest value of g(L) = L + ln(1 − δ·Σ w·e^{(α−1)(L − R)}), which is concave; a
    tangent at the left end of a bracket of its maximum bounds it.

    Raises:
        NumericalError: a divergence is infinite at every order.
    """
    terms = [
        (order - 1, math.log(weight * delta) - (order - 1) * divergence)
        for order, weight, divergence in zip(orders, weights, divergences, strict=True)
        if math.isfinite(divergence)
    ]
    if not terms:
        raise NumericalError("every Rényi divergence is infinite")

    def value_and_slope(loss: float) -> tuple[float, float]:
        parts = [(slope, math.exp(min(slope * loss + start, 1.0))) for slope, start in terms]
        rest = 1.0 - math.fsum(part for _, part in parts)
        if rest <= 0:
            return -math.inf, -math.inf
        gained = math.fsum(slope * part for slope, part in parts)
        return loss + math.log(rest), 1.0 - gained / rest

    high = min(-start / slope for slope, start in terms)  # one term alone is 1 there
    low = min(0.0, high) - 1.0
    while value_and_slope(low)[1] < 0:
        low -= 2 * (high - low)
    while high - low > 1e-12 * (1 + abs(high)):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if value_and_slope(middle)[1] >= 0 else (low, middle)
    value, slope = value_and_slope(low)
    found = value + slope * (high - low)
    return max(found + _ROUNDING * (1 + abs(found)), 0.0)


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """The largest Rényi divergence of one order that implies (ε, δ); may be below 0.

    Source: Canonne, Kamath & Steinke 2020, "The discrete Gaussian for differential privacy",
    Proposition 12. Not rounded: it only chooses orders and steers grids.
    """
    log_c = -math.log(order) + (order - 1) * math.log1p(-1 / order)
    return epsilon + (math.log(delta) - log_c) / (order - 1)
