"""Randomizers that turn one client's value into a message of exactly known privacy level."""

from turnout.randomizers.hadamard import HadamardRandomizer, OneBitHadamard
from turnout.randomizers.hashing import LocalHashing
from turnout.randomizers.indexed import KaryRandomizedResponse
from turnout.randomizers.interface import FrequencyRandomizer
from turnout.randomizers.numbers import GaussianRandomizer, LaplaceRandomizer
from turnout.randomizers.subset import SubsetSelection, UnaryEncoding

__all__ = [
    "FrequencyRandomizer",
    "GaussianRandomizer",
    "HadamardRandomizer",
    "KaryRandomizedResponse",
    "LaplaceRandomizer",
    "LocalHashing",
    "OneBitHadamard",
    "SubsetSelection",
    "UnaryEncoding",
]
