"""Calibration: the one parameter that is not given, from a target ε."""

from turnout.accounting.calibration.costs import log_gaussian_mu
from turnout.accounting.calibration.guesses import guessed, guessed_delta
from turnout.accounting.calibration.targets import (
    Calibration,
    calibrate,
    calibrate_delta,
    calibrate_noise,
)
from turnout.accounting.calibration.unknowns import DELTA, UNKNOWNS, Unknown
from turnout.accounting.divergence.pairs import most_deviation

__all__ = [
    "DELTA",
    "UNKNOWNS",
    "Calibration",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
    "guessed",
    "guessed_delta",
    "log_gaussian_mu",
    "most_deviation",
]
