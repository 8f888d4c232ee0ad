"""Dominating pairs: the law of one likelihood ratio, by its tail functions.

A pair is all that accounting knows of a randomizer. Whoever has another mechanism writes a class
with the members of `Pair`, or gives a table (`pair_of_table`) or two densities (`MonotonePair`).
"""

from turnout.accounting.divergence.pairs.closed_forms import GaussianPair, LaplacePair, PurePair
from turnout.accounting.divergence.pairs.discrete import (
    DiscretePair,
    bounded_variation_pair,
    discrete_gaussian_pair,
    most_deviation,
    pair_of_table,
    rounded_gaussian_pair,
)
from turnout.accounting.divergence.pairs.monotone import MonotonePair
from turnout.accounting.divergence.pairs.prices import (
    UNIT_ROUNDOFF,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
    tail_roundings_above,
    tail_roundings_below,
)

__all__ = [
    "UNIT_ROUNDOFF",
    "DiscretePair",
    "GaussianPair",
    "LaplacePair",
    "MonotonePair",
    "Pair",
    "PurePair",
    "bounded_variation_pair",
    "discrete_gaussian_pair",
    "hockey_stick",
    "hockey_stick_rounding",
    "most_deviation",
    "pair_of_table",
    "reverse_hockey_stick",
    "reverse_hockey_stick_rounding",
    "rounded_gaussian_pair",
    "tail_roundings_above",
    "tail_roundings_below",
]
