"""Budgets of runs whose windows depend on earlier releases: odometer, filter, and ε along a run.

`Odometer` bounds the ε of a run that may stop at any time, even if releases decide when the run
stops (`mixture_epsilon`). `RenyiFilter` contains an odometer and refuses a window that would exceed
the budget. `spent` and `running` return ε after each number of steps of a scheme. This module
builds on `divergence.renyi`, and on `BudgetTerms` and `Entry` of `budgets.plan`.
docs/design/ledger.md has the proofs.

Notation: P, Q the worlds with and without the client; L_n the privacy loss ln(dP/dQ) of the first n
windows, R_n(α) the sum of the Rényi divergences of order α of these windows, w_α weights that sum
to 1.

**Odometer.** Let M_n = Σ w_α·e^{(α−1)(L_n − R_n(α))}. For every rule that chooses the next window
from earlier releases, M_n is a supermartingale under P, and M_0 is at most 1. So the mean of M_n at
the window n at which the run stops is at most 1 (optional stopping). Let ε be so large that, for
every loss L,

    (1 − e^{ε−L})₊ ≤ δ·Σ w_α·e^{(α−1)(L − R_n(α))}.                                        (*)

When the run stops, the mean of the right side is at most δ, and the mean of the left side is the
hockey-stick divergence of the run at e^ε. With one order, ε = R(α) + ln(c_α/δ)/(α − 1) satisfies
(*), where c_α = (1/α)(1 − 1/α)^{α−1} (Canonne, Kamath & Steinke 2020, Proposition 12). With several
orders, ε is at most R(α) + ln(c_α/(w_α·δ))/(α − 1) for each order. Without weights, the minimum
over orders is *not* a bound.

**Filter.** With one order α this is the Rényi filter of Feldman & Zrnic 2021: if the sum of the
windows' divergences is at most B, all releases together have a Rényi divergence of at most B, for
every rule that chooses the windows. For one (ε, δ) a single order is enough, but the best order
depends on the windows. So either the order is chosen in advance for the expected windows, or
several orders are used, with weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting import pricing
from turnout.accounting.budgets.plan import (
    BudgetTerms,
    Entries,
    Entry,
    entries_from,
    largest,
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
    """Upper bound on the ε that a run has spent so far, without a budget.

    Guarantee: for each δ, for every rule that stops a run (the rule may depend on releases) and for
    every event A of the run's releases,

        P(A) ≤ E_Q[e^ε; A] + δ,   Q(A) ≤ E_P[e^ε; A] + δ,

    where ε is `bound` at the time of the stop. So a run that stops only while the bound is at most
    a number ε* fixed in advance is (ε*, δ)-DP.

    Source: odometers of Rogers, Roth, Ullman & Vadhan 2016, from mixtures of supermartingales as in
    Whitehouse, Ramdas, Rogers & Wu 2023, here over Rényi orders (Feldman & Zrnic 2021 for a single
    order) and with the hockey stick instead of a tail probability. Proof: docs/design/ledger.md.

    Attributes:
        terms: relation, unit and trust model of the guarantee.
        orders: increasing orders α.
        weights: weights of the orders, with a sum of at most 1; the weights must not depend on
            releases.
        left_out: probability that may be cut off from the tails of each window's privacy loss.
        most_windows: largest number of windows; the cut tails of so many windows are subtracted
            from δ in advance.
        entries: windows that were recorded so far, with upper bounds on the Rényi divergences.

    Raises:
        ParameterError: a field is out of range, or the entries do not fit the other fields.
    """

    terms: BudgetTerms
    orders: tuple[float, ...] = _ORDERS
    weights: tuple[float, ...] = (1.0 / len(_ORDERS),) * len(_ORDERS)
    left_out: float = 1e-11
    most_windows: int = 1000
    entries: Entries = ()

    def __post_init__(self) -> None:
        # Each field by itself.
        require_terms(self.terms)
        checks.open_unit(left_out=self.left_out)
        checks.count(most_windows=self.most_windows)
        checked_orders(self.orders)
        positive = all(weight > 0 for weight in self.weights)  # false for NaN too
        even = len(self.weights) == len(self.orders)
        if not even or not positive or math.fsum(self.weights) > 1 + 1e-12:
            raise ParameterError(
                "weights", self.weights, "one positive weight per order, with a sum of at most 1"
            )
        # The entries must agree with the fields, so that their charges add up to a bound.
        if self.windows > self.most_windows:
            raise ParameterError("windows", self.windows, f"at most {self.most_windows}")
        for charge in (entry.charge for entry in self.entries):
            if charge.orders != tuple(self.orders) or charge.left_out > self.left_out:
                raise ParameterError(
                    "entries",
                    charge,
                    "Rényi divergences at the odometer's orders, with at most left_out cut off",
                )

    @classmethod
    def of(
        cls, expected: Scheme, windows: int, delta: float, *, most_windows: int = 1000
    ) -> Odometer:
        """Odometer with the tightest bound at one δ after about ``windows`` equal windows.

        The guarantee holds for every run, whenever it ends.

        Args:
            expected: a typical window; the odometer has its relation, unit and trust model.
            windows: the number of windows after which the bound should be tightest.
            delta: the δ at which the bound will be read, strictly between 0 and 1.
            most_windows: largest number of windows that will be run.

        Raises:
            ParameterError: δ or a number of windows is out of range.
            UnsupportedError: filters and odometers have no analysis of such a scheme.
        """
        checks.open_unit(delta=delta)
        checks.count(windows=windows, most_windows=most_windows)
        terms, left_out = BudgetTerms.of(expected), LEFT_OUT_SHARE * delta / most_windows
        # Choose the order at which ε of the expected windows is least, for the worse direction.
        curve = run_renyi(terms.run_of(expected), CANDIDATES, left_out)
        rates = map(max, curve.remove, curve.add)
        costs = [
            windows * rate - renyi_budget(0.0, delta, order)
            for order, rate in zip(CANDIDATES, rates, strict=True)
        ]
        best = CANDIDATES[costs.index(min(costs))]
        # Put weights on several orders around it, since the run may differ from what is expected.
        orders = tuple(1 + (best - 1) * 2.0**power for power in _AROUND)
        return cls(terms, orders, tuple(_AROUND.values()), left_out, most_windows)

    @property
    def spent(self) -> RenyiBounds:
        """Upper bounds on the Rényi divergences of all recorded windows together."""
        total = RenyiBounds.zero(self.orders)
        for entry in self.entries:
            total = total + entry.count * entry.charge
        return total

    @property
    def windows(self) -> int:
        """Number of windows recorded so far."""
        return sum(entry.count for entry in self.entries)

    def charge(self, scheme: Scheme) -> RenyiBounds:
        """Upper bounds on the Rényi divergences of one scheme, at the odometer's orders.

        Raises:
            ParameterError: relation, unit or trust differ from those of the odometer.
            UnsupportedError: filters and odometers have no analysis of such a scheme.
        """
        return run_renyi(self.terms.run_of(scheme), self.orders, self.left_out)

    def record(self, scheme: Scheme, label: str = "", times: int = 1) -> Odometer:
        """Odometer that also counts ``times`` runs of a scheme; record the runs before they start.

        Args:
            scheme: the scheme that will run.
            label: name of the entry in reports.
            times: number of runs of the scheme, at least 1.

        Raises:
            BudgetExceededError: more windows than ``most_windows``.
            ParameterError: relation, unit or trust differ from those of the odometer.
            UnsupportedError: filters and odometers have no analysis of such a scheme.
        """
        left = self.most_windows - self.windows
        if times > left:
            raise BudgetExceededError(times, left, "windows")
        fresh = Entry(self.charge(scheme), times, label)
        return replace(self, entries=with_entry(self.entries, fresh))

    def bound(self, delta: float) -> float:
        """Upper bound on ε of all recorded windows together; `Odometer` states what it guarantees.

        Args:
            delta: δ, above ``left_out * most_windows``; all calls during one run have to use the
                same δ.

        Returns:
            ε rounded up; 0 before anything was recorded.

        Raises:
            ParameterError: δ is outside (0, 1), or not above the probability of all cut tails.
        """
        return self.bound_of(self.spent, delta)

    def bound_of(self, total: RenyiBounds, delta: float) -> float:
        """Upper bound on ε from given total Rényi divergences of all windows.

        Args:
            total: upper bounds on the Rényi divergences of all windows together.
            delta: δ, as in `bound`.

        Returns:
            ε rounded up; 0 if all divergences are 0.

        Raises:
            ParameterError: δ is outside (0, 1), or not above the probability of all cut tails.
        """
        checks.open_unit(delta=delta)
        cuts = self.left_out * self.most_windows
        rest = (delta - cuts) * (1 - 1e-12)
        if rest <= 0:
            raise ParameterError(
                "delta", delta, f"more than {cuts:g}, the total probability of all cut tails"
            )
        worst = (
            mixture_epsilon(self.orders, self.weights, total.of(direction), rest)
            for direction in Direction
        )
        return max(worst) if any(total.remove + total.add) else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Content of the odometer as dictionaries, lists, numbers and strings, for JSON."""
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
        """Odometer restored from the output of `to_dict`.

        Raises:
            ParameterError: the data is not that of an odometer, or a value is out of range.
        """
        require_kind(data, _KIND)
        return cls(
            BudgetTerms.from_dict(data["terms"]),
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
    """Least ε ≥ 0 that satisfies inequality (*) of the module header at every L, rounded up.

    The least ε is the maximum of the concave function g(L) = L + ln(1 − δ·Σ w·e^{(α−1)(L − R)}). A
    tangent at the left end of a bracket of the maximum gives an upper bound.

    Args:
        orders: increasing orders α above 1.
        weights: positive weights of the orders, with a sum of at most 1.
        divergences: upper bounds on the Rényi divergences at the orders.
        delta: δ, strictly between 0 and 1.

    Raises:
        NumericalError: a divergence is infinite at every order.
    """
    # Each order with a finite divergence contributes e^{slope·L + start} to the sum of (*).
    terms = [
        (order - 1, math.log(weight * delta) - (order - 1) * divergence)
        for order, weight, divergence in zip(orders, weights, divergences, strict=True)
        if math.isfinite(divergence)
    ]
    if not terms:
        raise NumericalError(
            "the Rényi divergence is infinite at every order: use more noise or lower orders"
        )

    # g and its slope at one loss; −∞ where the right side of (*) exceeds 1.
    def value_and_slope(loss: float) -> tuple[float, float]:
        parts = [(slope, math.exp(min(slope * loss + start, 1.0))) for slope, start in terms]
        rest = 1.0 - math.fsum(part for _, part in parts)
        if rest <= 0:
            return -math.inf, -math.inf
        gained = math.fsum(slope * part for slope, part in parts)
        return loss + math.log(rest), 1.0 - gained / rest

    # Bracket the maximum of the concave g, then halve the bracket.
    high = min(-start / slope for slope, start in terms)  # one term alone is 1 there
    low = min(0.0, high) - 1.0
    while value_and_slope(low)[1] < 0:
        low -= 2 * (high - low)
    while high - low > 1e-12 * (1 + abs(high)):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if value_and_slope(middle)[1] >= 0 else (low, middle)
    # The tangent at the left end bounds the maximum from above; rounded up.
    value, slope = value_and_slope(low)
    found = value + slope * (high - low)
    return max(found + _ROUNDING * (1 + abs(found)), 0.0)


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """Largest Rényi divergence at one order that implies (ε, δ)-DP, not rounded; may be below 0.

    Source: Canonne, Kamath & Steinke 2020, "The discrete Gaussian for differential privacy",
    Proposition 12. The value only serves to choose orders and grids; no guarantee depends on it.

    Args:
        epsilon: ε.
        delta: δ, strictly between 0 and 1.
        order: Rényi order α > 1.
    """
    log_c = -math.log(order) + (order - 1) * math.log1p(-1 / order)
    return epsilon + (math.log(delta) - log_c) / (order - 1)


_FILTER_KIND = "renyi-filter"


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """Privacy filter: a run is (ε, δ)-DP if every window is recorded by `spend` before it runs.

    Guarantee: all releases together are (ε, δ)-DP under ``terms``, even if earlier releases decide
    whether there is a next window, and with which noise, size and probability.

    The choice of the filter itself, its budget included, must not depend on releases. A scheme that
    was recorded must run as declared. If it ends early, the budget that it spent remains spent.

    Source: Feldman & Zrnic 2021, "Individual privacy accounting via a Rényi filter"; Lécuyer 2021,
    "Practical privacy filters and odometers with Rényi differential privacy". `Odometer` and
    docs/design/ledger.md explain the weights of several orders, the two directions, and the cut
    tails.

    Attributes:
        epsilon: budget of ε, positive.
        delta: δ, strictly between 0 and 1.
        odometer: windows recorded so far; the odometer's bound on ε never exceeds ``epsilon``.

    Raises:
        ParameterError: ε or δ is out of range.
        BudgetExceededError: the odometer's bound on ε exceeds the budget.
    """

    epsilon: float
    delta: float
    odometer: Odometer

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.open_unit(delta=self.delta)
        bound = self.odometer.bound(self.delta)
        if bound > self.epsilon:
            raise BudgetExceededError(bound, self.epsilon)

    @classmethod
    def of(
        cls,
        terms: BudgetTerms,
        epsilon: float,
        delta: float,
        *,
        expected: Scheme | None = None,
        most_windows: int = 1000,
    ) -> RenyiFilter:
        """Filter with a single Rényi order, which is chosen for the expected windows.

        The order is the one at which the most windows like ``expected`` fit into the budget;
        without ``expected``, the order is the best one for Gaussian noise. The guarantee holds for
        every run.

        Args:
            terms: relation, unit and trust model of the guarantee.
            epsilon: budget of ε, positive.
            delta: δ, strictly between 0 and 1.
            expected: a typical window; None for Gaussian noise.
            most_windows: largest number of windows that will be run.

        Raises:
            ParameterError: an argument is out of range, or ε is so small that no order allows any
                divergence.
            UnsupportedError: filters and odometers have no analysis of the expected window.
        """
        checks.positive(epsilon=epsilon)
        checks.open_unit(delta=delta)
        checks.count(most_windows=most_windows)
        left_out = LEFT_OUT_SHARE * delta / most_windows
        budgets = {a: renyi_budget(epsilon, (1 - LEFT_OUT_SHARE) * delta, a) for a in CANDIDATES}
        orders = tuple(order for order, budget in budgets.items() if budget > 0)
        if not orders:
            expected_text = (
                f"a larger value: at delta = {delta:g} no Rényi order allows any divergence"
            )
            raise ParameterError("epsilon", epsilon, expected_text)
        # Choose the order at which most expected windows fit; Gaussian noise by default, for which
        # charges are proportional to the order.
        charges: Sequence[float] = orders
        if expected is not None:
            curve = run_renyi(terms.run_of(expected), orders, left_out)
            charges = [max(pair) for pair in zip(curve.remove, curve.add, strict=True)]
        counts = [budgets[a] / max(c, 1e-300) for a, c in zip(orders, charges, strict=True)]
        order = orders[counts.index(max(counts))]
        return cls(epsilon, delta, Odometer(terms, (order,), (1.0,), left_out, most_windows))

    @property
    def terms(self) -> BudgetTerms:
        """Relation, unit and trust model of the filter's guarantee."""
        return self.odometer.terms

    def spend(self, scheme: Scheme, label: str = "", times: int = 1) -> RenyiFilter:
        """Filter that has also recorded ``times`` runs of a scheme; these runs may then start.

        Args:
            scheme: the scheme that will run.
            label: name of the entry in reports.
            times: number of runs of the scheme, at least 1.

        Raises:
            BudgetExceededError: the budget does not allow all of these runs. It may still allow
                fewer runs, or runs of another scheme.
        """
        after = self.odometer.record(scheme, label, times)
        bound = after.bound(self.delta)
        if bound > self.epsilon:
            raise BudgetExceededError(bound, self.epsilon, "epsilon after this window")
        return replace(self, odometer=after)

    def fits(self, scheme: Scheme) -> int:
        """Number of further runs of a scheme that the budget allows.

        Raises:
            ParameterError: relation, unit or trust differ from those of the filter.
            UnsupportedError: filters and odometers have no analysis of such a scheme.
        """
        odometer = self.odometer
        charge, spent = odometer.charge(scheme), odometer.spent
        most = odometer.most_windows - odometer.windows

        def proved(count: int) -> bool:
            return odometer.bound_of(spent + count * charge, self.delta) <= self.epsilon

        return largest(proved, most) if most else 0

    def to_dict(self) -> dict[str, Any]:
        """Content of the filter as dictionaries, lists, numbers and strings, for JSON."""
        return {
            "kind": _FILTER_KIND,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "odometer": self.odometer.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RenyiFilter:
        """Filter restored from the output of `to_dict`.

        Raises:
            ParameterError: the data is not that of a filter, or a value is out of range.
        """
        require_kind(data, _FILTER_KIND)
        return cls(data["epsilon"], data["delta"], Odometer.from_dict(data["odometer"]))


def spent(
    scheme: Scheme, delta: float, steps: Iterable[int], whole: float = math.inf
) -> list[float]:
    """Upper bounds on ε after each of the given numbers of steps of a scheme; see `running`.

    Args:
        scheme: the whole scheme.
        delta: δ, strictly between 0 and 1.
        steps: numbers of steps, in any order.
        whole: a proved upper bound on ε of the whole run; no result exceeds this bound.

    Returns:
        Bounds in the order of ``steps``, never below the true ε.

    Raises:
        ParameterError: δ or a number of steps is out of range.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: no bound can be certified from some step on.
    """
    last = scheme.participation.steps
    return running(
        lambda step: pricing.epsilon_upper(scheme, delta, step, shared=step < last), steps, whole
    )


def running(
    bound: Callable[[int], float], steps: Iterable[int], whole: float = math.inf
) -> list[float]:
    """Upper bounds on ε along a run, from upper bounds at single numbers of steps.

    Args:
        bound: function from a number of steps, at least 1, to a proved upper bound on ε. It is
            called once per number. If it raises NumericalError, the bound of the next larger number
            is used.
        steps: numbers of steps, in any order.
        whole: a proved upper bound on ε of the whole run; no result exceeds this bound.

    Returns:
        Bounds in the order of ``steps``; 0 before the first step.

    Guarantees:
        The bounds never fall with more steps. Some of the releases reveal no more than all
        releases, so the bound for more steps is valid for fewer steps too.

    Raises:
        ParameterError: ``whole`` is below 0, or a number of steps is not a whole number of at least
            0.
        NumericalError: no bound can be certified from some step on.
    """
    # Check the arguments.
    if whole != math.inf:  # ∞ is a valid bound
        checks.non_negative(whole=whole)
    counts = list(steps)
    checks.count(0, **{f"steps[{i}]": step for i, step in enumerate(counts)})
    # From the last step back: each step gets the least of its bound, later bounds and `whole`.
    bounds: dict[int, float] = {}
    least = whole
    failure: NumericalError | None = None
    for step in sorted(set(counts), reverse=True):
        if step == 0:
            least = 0.0
        else:
            try:
                least = min(least, bound(step))
            except NumericalError as error:
                failure = error
        if math.isinf(least):
            raise failure or NumericalError(f"epsilon after {step} steps is infinite")
        bounds[step] = least
    return [bounds[step] for step in counts]
