"""Randomizers: a client's messages, with their exact privacy level and their bytes."""

from turnout.randomizers.categorical import KaryRandomizedResponse
from turnout.randomizers.gaussian import GaussianRandomizer
from turnout.randomizers.hadamard import HadamardResponse, OneBitHadamard
from turnout.randomizers.hashing import LocalHashing
from turnout.randomizers.interface import FrequencyRandomizer
from turnout.randomizers.laplace import LaplaceRandomizer
from turnout.randomizers.subset import SubsetSelection
from turnout.randomizers.unary import UnaryEncoding

__all__ = [
    "FrequencyRandomizer",
    "GaussianRandomizer",
    "HadamardResponse",
    "KaryRandomizedResponse",
    "LaplaceRandomizer",
    "LocalHashing",
    "OneBitHadamard",
    "SubsetSelection",
    "UnaryEncoding",
]
