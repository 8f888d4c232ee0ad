"""Successive refinement of privacy: a public message, and a key for each analyst of larger ε."""

from turnout.refinement.cascade import (
    Cascade,
    Level,
    Step,
    heavy_count,
    key_entropy,
    least_key_bits,
)
from turnout.refinement.designs import Direct, OneBit, hadamard, projective, spread
from turnout.refinement.limited import LimitedAnswers, enough_randomness
from turnout.refinement.multilevel import LevelEstimate, MultiLevel, estimate, multi_level
from turnout.refinement.release import Key, KeyMismatchError, LayeredRelease, refine

__all__ = [
    "Cascade",
    "Direct",
    "Key",
    "KeyMismatchError",
    "LayeredRelease",
    "Level",
    "LevelEstimate",
    "LimitedAnswers",
    "MultiLevel",
    "OneBit",
    "Step",
    "enough_randomness",
    "estimate",
    "hadamard",
    "heavy_count",
    "key_entropy",
    "least_key_bits",
    "multi_level",
    "projective",
    "refine",
    "spread",
]
