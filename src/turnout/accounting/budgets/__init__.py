"""Privacy budgets: the ε that is spent, the ε that is left, and the number of further windows.

For plans that are fixed in advance, use `spent`, `remaining`, or a `Ledger` of several phases. For
runs in which earlier releases decide about later windows, a `RenyiFilter` refuses a window that
would exceed the budget, and an `Odometer` bounds the ε spent at any time. docs/design/ledger.md
compares ledger, filter and odometer.
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
