"""Specs: what the sampler executes, accounting prices and the protocol enforces."""

from turnout.spec.neighbours import PrivacyUnit, Relation, TrustModel
from turnout.spec.participation import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.spec.randomizers import GaussianNoise
from turnout.spec.releases import ReleaseRule
from turnout.spec.scheme import Scheme

__all__ = [
    "AvailabilityCheckIn",
    "CheckIn",
    "EveryStep",
    "FixedSize",
    "GaussianNoise",
    "KSubset",
    "ParticipationLaw",
    "PoissonSampling",
    "PrivacyUnit",
    "Relation",
    "ReleaseRule",
    "Scheme",
    "SelfSampling",
    "SlidingWindow",
    "TrustModel",
]
