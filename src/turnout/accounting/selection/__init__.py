"""Private selection: the price of releasing the best of a random number of runs."""

from turnout.accounting.selection.best_of import (
    selected,
    selected_deltas,
    selection_epsilon,
)
from turnout.accounting.selection.calibrated import calibrate_selection
from turnout.accounting.selection.stopping import Stopping

__all__ = [
    "Stopping",
    "calibrate_selection",
    "selected",
    "selected_deltas",
    "selection_epsilon",
]
