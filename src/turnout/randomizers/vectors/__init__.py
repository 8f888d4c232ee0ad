"""Randomizers of vectors of bounded ℓ1, ℓ2 or ℓ∞ norm, and the rotations that they use."""

from turnout.randomizers.vectors.interface import PublicRandomness, VectorRandomizer
from turnout.randomizers.vectors.l1 import L1Randomizer, best_randomizer, contained_radius
from turnout.randomizers.vectors.l2 import L2Randomizer
from turnout.randomizers.vectors.linf import BinaryVectorRandomizer, LInfRandomizer
from turnout.randomizers.vectors.privunit import PrivUnit, PrivUnitG
from turnout.randomizers.vectors.rotations import (
    CosineRotation,
    HadamardRotation,
    KashinFrame,
    Rotation,
)
from turnout.randomizers.vectors.seeded_code import SeededCode
from turnout.randomizers.vectors.spherical_code import SphericalCode

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
