"""Estimates from clients' messages: tallies that merge, and estimates with error bars."""

from turnout.estimation.frequencies import FrequencyEstimate, estimate_frequencies
from turnout.estimation.frequency_tallies import FrequencyTally, collect
from turnout.estimation.simplex import clip_and_normalise, normalise, project_simplex

__all__ = [
    "FrequencyEstimate",
    "FrequencyTally",
    "clip_and_normalise",
    "collect",
    "estimate_frequencies",
    "normalise",
    "project_simplex",
]
