"""Calibration: the one parameter that is not given, from a target ε."""

from turnout.accounting.calibration.targets import (
    Calibration,
    calibrate,
    calibrate_delta,
    calibrate_noise,
)
from turnout.accounting.calibration.unknowns import UNKNOWNS, Unknown

__all__ = [
    "UNKNOWNS",
    "Calibration",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
]
