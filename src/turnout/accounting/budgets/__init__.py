"""The ledger: what has been spent, what is left, and who may go on.

A plan that is fixed in advance: `spent` along it, `remaining`, `Ledger` for several phases.
A run that looks at its own results: `Filter`s refuse a window before the budget would be exceeded,
an `Odometer` says at any time what has been spent. docs/design/ledger.md says which to take.
"""

from turnout.accounting.budgets.choice import filter_for
from turnout.accounting.budgets.entries import Filter
from turnout.accounting.budgets.gaussian_filter import GaussianFilter
from turnout.accounting.budgets.menu_filter import MenuFilter, MenuItem
from turnout.accounting.budgets.odometer import Odometer
from turnout.accounting.budgets.plan import Ledger, Phase, Remaining, remaining
from turnout.accounting.budgets.renyi_filter import RenyiFilter
from turnout.accounting.budgets.spending import running, spent
from turnout.accounting.budgets.terms import Terms

__all__ = [
    "Filter",
    "GaussianFilter",
    "Ledger",
    "MenuFilter",
    "MenuItem",
    "Odometer",
    "Phase",
    "Remaining",
    "RenyiFilter",
    "Terms",
    "filter_for",
    "remaining",
    "running",
    "spent",
]
