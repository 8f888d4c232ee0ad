"""Differentially private learning from clients that take part at random times of their choosing.

>>> import turnout as tn
>>> scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window=1000), relation="add-remove")
>>> tn.price(scheme, delta=1e-6)
Price(ε = 0.1718, δ = 1e-06; add-remove, client, central)

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING, Any

from turnout._version import __version__ as __version__
from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.accounting import Guarantee as Guarantee
    from turnout.accounting import PrivacyCurve as PrivacyCurve
    from turnout.api.audit import Audit as Audit
    from turnout.api.audit import audit as audit
    from turnout.api.bandit import bandit as bandit
    from turnout.api.calibrate import calibrate as calibrate
    from turnout.api.client_data import client_data as client_data
    from turnout.api.compare import Comparison as Comparison
    from turnout.api.compare import compare as compare
    from turnout.api.estimate import estimate_frequencies as estimate_frequencies
    from turnout.api.estimate import estimate_mean as estimate_mean
    from turnout.api.explain import explain as explain
    from turnout.api.price import Price as Price
    from turnout.api.price import price as price
    from turnout.api.refine import Refinement as Refinement
    from turnout.api.refine import limited_frequencies as limited_frequencies
    from turnout.api.refine import refine as refine
    from turnout.api.simulate import simulate as simulate
    from turnout.api.train import TrainedModel as TrainedModel
    from turnout.api.train import load as load
    from turnout.api.train import train as train
    from turnout.api.training_run import SamplerComparison as SamplerComparison
    from turnout.api.training_run import compare_samplers as compare_samplers
    from turnout.api.training_run import training_run as training_run
    from turnout.api.tune import tune as tune
    from turnout.core.bounds import Bounds as Bounds
    from turnout.core.errors import BudgetExceededError as BudgetExceededError
    from turnout.core.errors import NumericalError as NumericalError
    from turnout.core.errors import ParameterError as ParameterError
    from turnout.core.errors import TurnoutError as TurnoutError
    from turnout.core.errors import UnsupportedError as UnsupportedError
    from turnout.schemes import ApproximateRandomizer as ApproximateRandomizer
    from turnout.schemes import CheckIn as CheckIn
    from turnout.schemes import DiscreteGaussianNoise as DiscreteGaussianNoise
    from turnout.schemes import EveryStep as EveryStep
    from turnout.schemes import FixedAssignment as FixedAssignment
    from turnout.schemes import FixedSize as FixedSize
    from turnout.schemes import GaussianNoise as GaussianNoise
    from turnout.schemes import HadamardResponse as HadamardResponse
    from turnout.schemes import KaryResponse as KaryResponse
    from turnout.schemes import KSubset as KSubset
    from turnout.schemes import LaplaceNoise as LaplaceNoise
    from turnout.schemes import NonAdaptiveRandomizer as NonAdaptiveRandomizer
    from turnout.schemes import PoissonSampling as PoissonSampling
    from turnout.schemes import PureRandomizer as PureRandomizer
    from turnout.schemes import RoundedGaussianNoise as RoundedGaussianNoise
    from turnout.schemes import SampledBitResponse as SampledBitResponse
    from turnout.schemes import Scheme as Scheme
    from turnout.schemes import SelfSampling as SelfSampling
    from turnout.schemes import SlidingWindow as SlidingWindow
    from turnout.schemes import TableRandomizer as TableRandomizer
    from turnout.schemes.scheme import shuffled as shuffled

_HOMES = {
    "accounting": "Guarantee PrivacyCurve",
    "api.audit": "Audit audit",
    "api.bandit": "bandit",
    "api.calibrate": "calibrate",
    "api.compare": "Comparison compare",
    "api.client_data": "client_data",
    "api.estimate": "estimate_frequencies estimate_mean",
    "api.explain": "explain",
    "api.price": "Price price",
    "api.refine": "Refinement limited_frequencies refine",
    "api.simulate": "simulate",
    "api.train": "TrainedModel load train",
    "api.training_run": "SamplerComparison compare_samplers training_run",
    "api.tune": "tune",
    "core.bounds": "Bounds",
    "core.errors": (
        "BudgetExceededError NumericalError ParameterError TurnoutError UnsupportedError"
    ),
    "schemes": (
        "ApproximateRandomizer CheckIn DiscreteGaussianNoise EveryStep FixedAssignment FixedSize "
        "GaussianNoise HadamardResponse KSubset KaryResponse LaplaceNoise NonAdaptiveRandomizer "
        "PoissonSampling PureRandomizer RoundedGaussianNoise SampledBitResponse Scheme "
        "SelfSampling SlidingWindow TableRandomizer"
    ),
    "schemes.scheme": "shuffled",
}

_listed = loaded_on_demand(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """Public object with the given name, or the registered participation class of this name."""
    if name in __dir__() or name.startswith("_"):
        return _listed(name)
    kind = None
    if name[:1].isupper():
        from turnout.schemes.registry import participation_class

        kind = participation_class(name)
    if kind is None:
        from turnout.core.suggestions import nearest

        meant = nearest(name, __dir__())
        hint = f"; did you mean {meant!r}?" if meant is not None else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    return kind


def __dir__() -> list[str]:
    """Sorted list of the public names."""
    return sorted(" ".join(_HOMES.values()).split())
