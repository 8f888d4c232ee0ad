"""Specs: what the sampler executes, accounting prices and the protocol enforces."""

from typing import TYPE_CHECKING, Any

from turnout.spec.randomizers import (
    ApproximateRandomizer,
    AttainedVariation,
    BoundedVariation,
    DiscreteGaussianNoise,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    LaplaceNoise,
    NonAdaptiveRandomizer,
    PairRandomizer,
    PureRandomizer,
    Randomizer,
    RepeatedMessages,
    RoundedGaussianNoise,
    SampledBitResponse,
    TableRandomizer,
)
from turnout.spec.registry import ParticipationLaw, law_class
from turnout.spec.scheme import (
    PrivacyUnit,
    Relation,
    ReleaseRule,
    Scheme,
    SpeakingOrder,
    TrustModel,
)

if TYPE_CHECKING:
    from turnout.spec.laws.availability_check_in import AvailabilityCheckIn
    from turnout.spec.laws.check_in import CheckIn
    from turnout.spec.laws.every_step import EveryStep
    from turnout.spec.laws.fixed_assignment import FixedAssignment
    from turnout.spec.laws.fixed_size import FixedSize
    from turnout.spec.laws.k_subset import KSubset
    from turnout.spec.laws.poisson_sampling import PoissonSampling
    from turnout.spec.laws.self_sampling import SelfSampling
    from turnout.spec.laws.sliding_window import SlidingWindow

__all__ = [
    "ApproximateRandomizer",
    "AttainedVariation",
    "AvailabilityCheckIn",
    "BoundedVariation",
    "CheckIn",
    "DiscreteGaussianNoise",
    "EveryStep",
    "FixedAssignment",
    "FixedSize",
    "GaussianNoise",
    "HadamardResponse",
    "KSubset",
    "KaryResponse",
    "LaplaceNoise",
    "NonAdaptiveRandomizer",
    "PairRandomizer",
    "ParticipationLaw",
    "PoissonSampling",
    "PrivacyUnit",
    "PureRandomizer",
    "Randomizer",
    "Relation",
    "ReleaseRule",
    "RepeatedMessages",
    "RoundedGaussianNoise",
    "SampledBitResponse",
    "Scheme",
    "SelfSampling",
    "SlidingWindow",
    "SpeakingOrder",
    "TableRandomizer",
    "TrustModel",
]


def __getattr__(name: str) -> Any:
    """A participation law, whose file is loaded once it is asked for."""
    law = law_class(name)
    if law is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = law
    return law
