"""Accounting: upper and lower bounds on the ε of a scheme.

`price` returns the ε of a scheme, `calibrate_noise` the noise with which the scheme meets a target
ε, `calibrate` the value of any other parameter for a target ε, and `spent` the ε after some of the
steps.

Modules and packages, from the lowest layer: ``divergence`` (pairs, curves, composition),
``participation`` and ``shuffling`` (blocks of participation and of shuffled messages),
``decomposition`` (from a scheme to its blocks), ``pricing``; above it ``calibration``, ``meaning``
(what an ε means for a person), ``published`` (the papers' bounds by name), ``privacy_curve``
(composition by + and ×), ``selection`` (the best of several runs) and ``budgets``. Other packages
import only from this package and from its ``calibration``, ``meaning`` and ``published``.
"""

from typing import TYPE_CHECKING

from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.accounting.budgets import (
        BudgetTerms,
        Ledger,
        Odometer,
        Remaining,
        RenyiFilter,
        remaining,
        running,
        spent,
    )
    from turnout.accounting.calibration import (
        UNKNOWNS,
        Calibration,
        Unknown,
        calibrate,
        calibrate_delta,
        calibrate_noise,
    )
    from turnout.accounting.divergence.curves import Side
    from turnout.accounting.divergence.pairs import MonotonePair, Pair, pair_of_table
    from turnout.accounting.guarantee import ClientGuarantees, Guarantee, with_released_counts
    from turnout.accounting.pricing import (
        client_guarantees,
        epsilon_upper,
        gaussian_epsilon,
        price,
        published_epsilon,
        shuffled_method,
        shuffled_price,
    )
    from turnout.accounting.privacy_curve import PrivacyCurve
    from turnout.accounting.selection import (
        Stopping,
        calibrate_selection,
        selected,
        selected_deltas,
        selection_epsilon,
    )

__getattr__ = loaded_on_demand(
    __name__,
    {
        "budgets": "Ledger Odometer Remaining RenyiFilter BudgetTerms remaining running spent",
        "calibration": "Calibration UNKNOWNS Unknown calibrate calibrate_delta calibrate_noise",
        "divergence.curves": "Side",
        "divergence.pairs": "MonotonePair Pair pair_of_table",
        "guarantee": "ClientGuarantees Guarantee with_released_counts",
        "pricing": (
            "client_guarantees epsilon_upper gaussian_epsilon price published_epsilon "
            "shuffled_method shuffled_price"
        ),
        "privacy_curve": "PrivacyCurve",
        "selection": "Stopping calibrate_selection selected selected_deltas selection_epsilon",
    },
)

__all__ = [
    "UNKNOWNS",
    "BudgetTerms",
    "Calibration",
    "ClientGuarantees",
    "Guarantee",
    "Ledger",
    "MonotonePair",
    "Odometer",
    "Pair",
    "PrivacyCurve",
    "Remaining",
    "RenyiFilter",
    "Side",
    "Stopping",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
    "calibrate_selection",
    "client_guarantees",
    "epsilon_upper",
    "gaussian_epsilon",
    "pair_of_table",
    "price",
    "published_epsilon",
    "remaining",
    "running",
    "selected",
    "selected_deltas",
    "selection_epsilon",
    "shuffled_method",
    "shuffled_price",
    "spent",
    "with_released_counts",
]
