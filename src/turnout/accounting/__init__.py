"""Accounting: what a scheme costs in privacy, as proved bounds.

``price`` answers "what ε do I really have", ``calibrate_noise`` "how much noise do I need",
``calibrate`` the same of any other parameter, ``spent`` "how much is gone after so many steps".
"""

from turnout.accounting.calibration import (
    UNKNOWNS,
    Calibration,
    Unknown,
    calibrate,
    calibrate_delta,
    calibrate_noise,
)
from turnout.accounting.guarantee import ClientGuarantees, Guarantee
from turnout.accounting.ledger import spent
from turnout.accounting.pricing import epsilon_upper, price

__all__ = [
    "UNKNOWNS",
    "Calibration",
    "ClientGuarantees",
    "Guarantee",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
    "epsilon_upper",
    "price",
    "spent",
]
