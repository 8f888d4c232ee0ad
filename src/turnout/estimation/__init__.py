"""Estimates from clients' messages: tallies of messages, and estimates with standard errors."""

from turnout.estimation.frequencies import FrequencyEstimate, estimate_frequencies
from turnout.estimation.tallies import (
    FrequencyTally,
    clip_and_normalise,
    collect,
    normalise,
    project_simplex,
)

__all__ = [
    "FrequencyEstimate",
    "FrequencyTally",
    "clip_and_normalise",
    "collect",
    "estimate_frequencies",
    "normalise",
    "project_simplex",
]
