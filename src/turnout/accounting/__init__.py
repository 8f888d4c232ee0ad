"""Accounting: what a scheme costs in privacy, as proved bounds.

``price`` answers "what ε do I really have", ``calibrate_noise`` "how much noise do I need",
``spent`` "how much is gone after so many steps".
"""

from turnout.accounting.calibration import calibrate_noise
from turnout.accounting.guarantee import ClientGuarantees, Guarantee
from turnout.accounting.ledger import spent
from turnout.accounting.pricing import epsilon_upper, price

__all__ = [
    "ClientGuarantees",
    "Guarantee",
    "calibrate_noise",
    "epsilon_upper",
    "price",
    "spent",
]
