"""Schemes: participation, randomizer, release rule and neighbouring relation of a task.

A `Scheme` is the object that the sampler executes, accounting analyses, the protocol enforces and
the verifier checks. The module `scheme` defines the class, and `randomizers` the classes of
randomizers. `participation` has a file for each participation, and `normal_form` defines the random
draws from which participations are composed.
"""

from typing import TYPE_CHECKING, Any

from turnout.schemes.randomizers import (
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
from turnout.schemes.registry import Participation, participation_class
from turnout.schemes.scheme import (
    PrivacyUnit,
    Relation,
    ReleaseRule,
    Scheme,
    SpeakingOrder,
    TrustModel,
)

if TYPE_CHECKING:
    from turnout.schemes.participation.availability_check_in import AvailabilityCheckIn
    from turnout.schemes.participation.check_in import CheckIn
    from turnout.schemes.participation.every_step import EveryStep
    from turnout.schemes.participation.fixed_assignment import FixedAssignment
    from turnout.schemes.participation.fixed_size import FixedSize
    from turnout.schemes.participation.k_subset import KSubset
    from turnout.schemes.participation.poisson_sampling import PoissonSampling
    from turnout.schemes.participation.self_sampling import SelfSampling
    from turnout.schemes.participation.sliding_window import SlidingWindow

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
    "Participation",
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
    """Participation class with this name, whose file is imported at its first use."""
    kind = participation_class(name)
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = kind
    return kind
