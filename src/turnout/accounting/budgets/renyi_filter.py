"""A filter that adds up Rényi divergences: an odometer that is stopped in time.

At one order α this is the Rényi filter of Feldman & Zrnic 2021: while Σρ ≤ B, everything released
together has a Rényi divergence of at most B, however each ρ was chosen. For one (ε, δ) a single
order is all that is needed, but which one is best depends on what will be run. It is chosen in
advance, for the windows that are expected, or spread over several orders by weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting.budgets.odometer import (
    CANDIDATES,
    LEFT_OUT_SHARE,
    Odometer,
    renyi_budget,
)
from turnout.accounting.budgets.plan import largest
from turnout.accounting.budgets.terms import Terms, require_kind
from turnout.accounting.divergence.renyi import run_renyi
from turnout.core import checks
from turnout.core.errors import BudgetExceededError, ParameterError
from turnout.schemes import Scheme

_FILTER_KIND = "renyi-filter"


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """An (ε, δ) that holds whatever happens, as long as every window is spent before it runs.

    Guarantee: however each next scheme (its noise, window, probability; whether there is one at
    all) is chosen from earlier releases, everything released is (ε, δ)-DP under ``terms``.

    The choice of the filter itself, its budget included, must not depend on releases. A scheme
    that was spent runs as it was stated; it may end early, but it gives nothing back.

    Source: Feldman & Zrnic 2021, "Individual privacy accounting via a Rényi filter"; Lécuyer 2021,
    "Practical privacy filters and odometers with Rényi differential privacy". Weights over several
    orders, both directions and the cut tails: `Odometer` and docs/design/ledger.md.

    Attributes:
        odometer: what was spent; its bound never exceeds ``epsilon``.
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
        terms: Terms,
        epsilon: float,
        delta: float,
        *,
        expected: Scheme | None = None,
        most_windows: int = 1000,
    ) -> RenyiFilter:
        """A filter of one order, the one that suits what is expected to be run.

        The order is chosen so that most windows like ``expected`` fit; without it, it is the best
        for Gaussian noise. Whatever is really run, the guarantee holds.

        Raises:
            ParameterError: no order allows anything at so small an ε.
        """
        checks.positive(epsilon=epsilon)
        checks.open_unit(delta=delta)
        checks.count(most_windows=most_windows)
        left_out = LEFT_OUT_SHARE * delta / most_windows
        budgets = {a: renyi_budget(epsilon, (1 - LEFT_OUT_SHARE) * delta, a) for a in CANDIDATES}
        orders = tuple(order for order, budget in budgets.items() if budget > 0)
        if not orders:
            raise ParameterError("epsilon", epsilon, "enough for a Rényi filter at this delta")
        charges: Sequence[float] = orders  # of Gaussian noise, but for a factor
        if expected is not None:
            curve = run_renyi(terms.run_of(expected), orders, left_out)
            charges = [max(pair) for pair in zip(curve.remove, curve.add, strict=True)]
        counts = [budgets[a] / max(c, 1e-300) for a, c in zip(orders, charges, strict=True)]
        order = orders[counts.index(max(counts))]
        return cls(epsilon, delta, Odometer(terms, (order,), (1.0,), left_out, most_windows))

    @property
    def terms(self) -> Terms:
        """Relation, unit and trust."""
        return self.odometer.terms

    def spend(self, scheme: Scheme, label: str = "", times: int = 1) -> RenyiFilter:
        """The filter after a scheme was spent ``times`` times, all of which may then run.

        Raises:
            BudgetExceededError: they must not all run; fewer, or another one, may still fit.
        """
        after = self.odometer.record(scheme, label, times)
        bound = after.bound(self.delta)
        if bound > self.epsilon:
            raise BudgetExceededError(bound, self.epsilon, "epsilon after this window")
        return replace(self, odometer=after)

    def fits(self, scheme: Scheme) -> int:
        """Times that a scheme could be spent from here."""
        odometer = self.odometer
        charge, spent = odometer.charge(scheme), odometer.spent
        most = odometer.most_windows - odometer.windows

        def proved(count: int) -> bool:
            return odometer.bound_of(spent + count * charge, self.delta) <= self.epsilon

        return largest(proved, most) if most else 0

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        return {
            "kind": _FILTER_KIND,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "odometer": self.odometer.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RenyiFilter:
        """The filter that `to_dict` wrote."""
        require_kind(data, _FILTER_KIND)
        return cls(data["epsilon"], data["delta"], Odometer.from_dict(data["odometer"]))
