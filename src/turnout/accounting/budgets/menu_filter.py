"""A filter for windows from a menu that is announced in advance: what that proves beyond any other.

Which windows may be chosen, what each costs and how many units there are is fixed; which of them
are run, and when it ends, may depend on every release. Then the worst case is a finite game, and
its value is computed, not bounded (`worst_case`): the ε of a menu of one item is that of a plan of
as many windows, and a menu in which one item is the worst of all costs what that one costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from turnout.accounting.budgets.entries import Entries, entries_from, require_kind, with_entry
from turnout.accounting.budgets.odometer import renyi_budget
from turnout.accounting.budgets.plan import Ledger, run_before
from turnout.accounting.budgets.terms import Terms, require_terms, run_dominates
from turnout.accounting.budgets.worst_case import Game, Item
from turnout.accounting.divergence.neighbour_bounds import Run
from turnout.accounting.divergence.renyi import run_renyi
from turnout.core import checks
from turnout.core.errors import BudgetExceededError, NumericalError, ParameterError
from turnout.spec import Scheme
from turnout.spec.codec import scheme_from_dict, scheme_to_dict

_KIND = "menu-filter"
_ORDERS = tuple(1 + 2 ** (k / 2) for k in range(-6, 17))  # for a first guess at ε
_MOST_UNITS = 5000


@dataclass(frozen=True, slots=True)
class MenuItem:
    """A window that may be chosen.

    Attributes:
        scheme: what is run. Whatever is proved to cost no more (more noise, a longer window, a
            smaller probability) may be run in its place.
        cost: units it uses up.
    """

    scheme: Scheme
    cost: int = 1

    def __post_init__(self) -> None:
        checks.count(cost=self.cost)
        if not isinstance(self.scheme, Scheme):
            raise ParameterError("scheme", self.scheme, "a Scheme")

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        return {"scheme": scheme_to_dict(self.scheme), "cost": self.cost}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MenuItem:
        """What `to_dict` gave."""
        return cls(scheme_from_dict(data["scheme"]), data["cost"])


@dataclass(frozen=True, slots=True)
class MenuFilter:
    """A filter for windows from a menu; see `Filter` for what it guarantees.

    Source: backward induction over pessimistic privacy loss distributions, docs/design/ledger.md.

    Attributes:
        terms: relation, unit and trust.
        epsilon: ε that holds at the end.
        delta: δ that holds at the end.
        menu: what may be chosen.
        units: what all windows together may cost.
        entries: what was spent.
    """

    terms: Terms
    epsilon: float
    delta: float
    menu: tuple[MenuItem, ...]
    units: int
    entries: Entries[MenuItem] = ()

    def __post_init__(self) -> None:
        require_terms(self.terms)
        checks.positive(epsilon=self.epsilon)
        checks.open_unit(delta=self.delta)
        checks.count(0, units=self.units)
        for item in self.menu:
            self.terms.require(item.scheme)
        if self.spent > self.units:
            raise BudgetExceededError(self.spent, self.units, "units")

    @classmethod
    def of_units(
        cls, menu: Sequence[MenuItem], units: int, delta: float, *, before: Ledger | None = None
    ) -> MenuFilter:
        """The filter with a number of units, and the ε that this costs.

        Args:
            menu: what may be chosen, all under the same relation, unit and trust.
            units: what all windows together may cost.
            delta: δ that holds at the end.
            before: what is run before, fixed in advance, composed exactly; its releases may
                decide on everything after it.

        Raises:
            NumericalError: so small a δ cannot be certified.
        """
        checks.open_unit(delta=delta)
        checks.count(units=units)
        checks.at_most("the units of a menu", _MOST_UNITS, units=units)
        terms, items = _items(menu)
        run = run_before(terms, before)
        game = Game(items, run, delta, _guess(items, run, delta, units), units)
        epsilon = next(islice(game.epsilons(), units, None))
        if math.isinf(epsilon):
            raise NumericalError(f"delta = {delta:.3g} cannot be certified for this menu")
        return cls(terms, epsilon, delta, tuple(menu), units)

    @classmethod
    def within(
        cls, menu: Sequence[MenuItem], epsilon: float, delta: float, *, before: Ledger | None = None
    ) -> MenuFilter:
        """The filter with as many units as keep (ε, δ).

        Raises:
            BudgetExceededError: not even the cheapest item fits.
        """
        checks.positive(epsilon=epsilon)
        checks.open_unit(delta=delta)
        terms, items = _items(menu)
        run = run_before(terms, before)
        game = Game(items, run, delta, epsilon, _most_units(items, run, epsilon, delta))
        kept, found = 0, math.inf
        for count, found in enumerate(islice(game.epsilons(), _MOST_UNITS + 1)):
            if found > epsilon:
                break
            kept = count
        if kept < min(item.cost for item in items):
            raise BudgetExceededError(found, epsilon)
        return cls(terms, epsilon, delta, tuple(menu), kept)

    @property
    def spent(self) -> int:
        """Units used up so far."""
        return sum(entry.count * entry.charge.cost for entry in self.entries)

    def charge(self, scheme: Scheme) -> MenuItem:
        """The cheapest item that is proved to cost at least as much as a scheme.

        Raises:
            ParameterError: none is.
        """
        run = self.terms.run_of(scheme)
        fitting = [i for i in self.menu if run_dominates(self.terms.run_of(i.scheme), run)]
        if not fitting:
            raise ParameterError("scheme", scheme, "an item of the menu, or one that costs less")
        return min(fitting, key=lambda item: item.cost)

    def spend(self, scheme: Scheme, label: str = "") -> MenuFilter:
        """See `Filter.spend`."""
        item, left = self.charge(scheme), self.units - self.spent
        if item.cost > left:
            raise BudgetExceededError(item.cost, left, "units")
        return replace(self, entries=with_entry(self.entries, item, label))

    def fits(self, scheme: Scheme) -> int:
        """See `Filter.fits`."""
        return (self.units - self.spent) // self.charge(scheme).cost

    def to_dict(self) -> dict[str, Any]:
        """See `Filter.to_dict`."""
        return {
            "kind": _KIND,
            "terms": self.terms.to_dict(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "menu": [item.to_dict() for item in self.menu],
            "units": self.units,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MenuFilter:
        """What `to_dict` gave."""
        require_kind(data, _KIND)
        return cls(
            Terms.from_dict(data["terms"]),
            data["epsilon"],
            data["delta"],
            tuple(MenuItem.from_dict(item) for item in data["menu"]),
            data["units"],
            entries_from(data, MenuItem.from_dict),
        )


def _items(menu: Sequence[MenuItem]) -> tuple[Terms, list[Item]]:
    if not menu:
        raise ParameterError("menu", menu, "at least one item")
    terms = Terms.of(menu[0].scheme)
    items = [Item(terms.run_of(item.scheme), item.cost) for item in menu]
    if not all(item.run for item in items):
        raise ParameterError("menu", menu, "items that release something about her")
    return terms, items


def _rates(items: Sequence[Item], before: Run, delta: float) -> list[tuple[float, float, float]]:
    """Order, the dearest item's divergence a unit, and what is spent before, at each order."""
    cut = 1e-4 * delta
    worst = [0.0] * len(_ORDERS)
    for item in items:
        curve = run_renyi(item.run, _ORDERS, cut)
        both = map(max, curve.remove, curve.add)
        worst = [max(w, value / item.cost) for w, value in zip(worst, both, strict=True)]
    past = [0.0] * len(_ORDERS)
    if before:
        curve = run_renyi(before, _ORDERS, cut)
        past = list(map(max, curve.remove, curve.add))
    return list(zip(_ORDERS, worst, past, strict=True))


def _guess(items: Sequence[Item], before: Run, delta: float, units: int) -> float:
    """About ε, from Rényi divergences; it only steers the grid."""
    rates = _rates(items, before, delta)
    return min(past + units * rate - renyi_budget(0.0, delta, a) for a, rate, past in rates)


def _most_units(items: Sequence[Item], before: Run, epsilon: float, delta: float) -> int:
    """About how many units ε allows; it only steers the grid."""
    rates = _rates(items, before, delta)
    most = max((renyi_budget(epsilon, delta, a) - past) / rate for a, rate, past in rates)
    return int(min(max(2 * most, 1), _MOST_UNITS))
