"""Specs: what the sampler executes, accounting prices and the protocol enforces."""

from turnout.spec.neighbours import PrivacyUnit, Relation, SpeakingOrder, TrustModel
from turnout.spec.participation import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.spec.randomizers import (
    ApproximateRandomizer,
    BitResponse,
    DiscreteGaussianNoise,
    FixedRandomizer,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    LaplaceNoise,
    PairRandomizer,
    PureRandomizer,
    Randomizer,
    RoundedGaussianNoise,
    TableRandomizer,
)
from turnout.spec.releases import ReleaseRule
from turnout.spec.scheme import Scheme

__all__ = [
    "ApproximateRandomizer",
    "AvailabilityCheckIn",
    "BitResponse",
    "CheckIn",
    "DiscreteGaussianNoise",
    "EveryStep",
    "FixedAssignment",
    "FixedRandomizer",
    "FixedSize",
    "GaussianNoise",
    "HadamardResponse",
    "KSubset",
    "KaryResponse",
    "LaplaceNoise",
    "PairRandomizer",
    "ParticipationLaw",
    "PoissonSampling",
    "PrivacyUnit",
    "PureRandomizer",
    "Randomizer",
    "Relation",
    "ReleaseRule",
    "RoundedGaussianNoise",
    "Scheme",
    "SelfSampling",
    "SlidingWindow",
    "SpeakingOrder",
    "TableRandomizer",
    "TrustModel",
]
