"""Budgets: the ε spent, the ε left, and whether one more window may run.

For a plan that is fixed in advance: `spent` along it, `remaining`, `Ledger` for several phases. For
a run that looks at its own results: a `RenyiFilter` refuses a window before the budget would be
exceeded, an `Odometer` returns at any time the ε spent. docs/design/ledger.md compares them.
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
