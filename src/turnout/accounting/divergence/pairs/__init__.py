"""Dominating pairs: the law of one likelihood ratio, by its tail functions.

A pair is all that accounting knows of a randomizer. Whoever has another mechanism writes a class
with the members of `Pair`, or gives a table (`pair_of_table`) or two densities (`MonotonePair`).
"""

from turnout.accounting.divergence.pairs.closed_forms import GaussianPair, LaplacePair, PurePair
from turnout.accounting.divergence.pairs.discrete import (
    DiscretePair,
    discrete_gaussian_pair,
    most_deviation,
    pair_of_table,
    rounded_gaussian_pair,
)
from turnout.accounting.divergence.pairs.monotone import MonotonePair
from turnout.accounting.divergence.pairs.prices import (
    UNIT_ROUNDOFF,
    Pair,
    call,
    call_rounding,
    put,
    put_rounding,
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
    "call",
    "call_rounding",
    "discrete_gaussian_pair",
    "most_deviation",
    "pair_of_table",
    "put",
    "put_rounding",
    "rounded_gaussian_pair",
    "tail_roundings_above",
    "tail_roundings_below",
]
