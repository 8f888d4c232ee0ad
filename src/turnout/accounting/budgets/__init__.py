"""Budgets: what has been spent, what is left, and whether one more window may run.

A plan that is fixed in advance: `spent` along it, `remaining`, `Ledger` for several phases.
A run that looks at its own results: a `RenyiFilter` refuses a window before the budget would be
exceeded, an `Odometer` says at any time what has been spent. docs/design/ledger.md says which to
take.
"""

from turnout.accounting.budgets.odometer import Odometer, RenyiFilter, running, spent
from turnout.accounting.budgets.plan import BudgetPhase, BudgetTerms, Ledger, Remaining, remaining

__all__ = [
    "BudgetPhase",
    "BudgetTerms",
    "Ledger",
    "Odometer",
    "Remaining",
    "RenyiFilter",
    "remaining",
    "running",
    "spent",
]
