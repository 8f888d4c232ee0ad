"""Vectors: what a client sends about one, in a few bits or at full precision."""

from turnout.randomizers.vectors.binary_vectors import BinaryVectorRandomizer
from turnout.randomizers.vectors.kashin import KashinFrame
from turnout.randomizers.vectors.l1 import L1Randomizer
from turnout.randomizers.vectors.l2 import L2Randomizer
from turnout.randomizers.vectors.linf import LInfRandomizer
from turnout.randomizers.vectors.lp import best_randomizer, contained_radius
from turnout.randomizers.vectors.privunit import PrivUnit, PrivUnitG
from turnout.randomizers.vectors.public import PublicRandomness
from turnout.randomizers.vectors.rotations import CosineRotation, HadamardRotation, Rotation
from turnout.randomizers.vectors.seeded_code import SeededCode
from turnout.randomizers.vectors.spherical_code import SphericalCode
from turnout.randomizers.vectors.vector_randomizer import VectorRandomizer

__all__ = [
    "BinaryVectorRandomizer",
    "CosineRotation",
    "HadamardRotation",
    "KashinFrame",
    "L1Randomizer",
    "L2Randomizer",
    "LInfRandomizer",
    "PrivUnit",
    "PrivUnitG",
    "PublicRandomness",
    "Rotation",
    "SeededCode",
    "SphericalCode",
    "VectorRandomizer",
    "best_randomizer",
    "contained_radius",
]
