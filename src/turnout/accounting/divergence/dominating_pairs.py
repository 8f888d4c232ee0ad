"""The pair that dominates one step of a randomizer, and its infinity mass.

`dominating` returns the `DominatingPair` of a randomizer and has one implementation per type of
randomizer. `participation` and `decomposition` build blocks from such pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import cast

from turnout.accounting.divergence.pairs import (
    GaussianPair,
    LaplacePair,
    Pair,
    PurePair,
    bounded_variation_pair,
    discrete_gaussian_pair,
    pair_of_table,
    rounded_gaussian_pair,
)
from turnout.accounting.divergence.unhidden import UNKNOWN, ClosedForm
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    BoundedVariation,
    DiscreteGaussianNoise,
    GaussianNoise,
    LaplaceNoise,
    PairRandomizer,
    PureRandomizer,
    RoundedGaussianNoise,
    TableRandomizer,
)

_TABLE_ROUNDING = 1e-8  # a table's probabilities may sum to as much less or more than 1


@dataclass(frozen=True, slots=True)
class DominatingPair:
    """Dominating pair and infinity mass of one step in which a client takes part.

    Attributes:
        pair: distribution of the likelihood ratio, scaled to mean 1.
        infinity_mass: probability of an output that only the client's participation can produce.
    """

    pair: Pair
    infinity_mass: float = 0.0


@singledispatch
def dominating(randomizer: object, sensitivity: float) -> DominatingPair:
    """Dominating pair of one step of a randomizer.

    Args:
        randomizer: any randomizer of `schemes`.
        sensitivity: largest change of the step's sum by one contribution, in units of the clip
            norm: 1 against a null contribution, 2 if the contribution may displace another one.

    Raises:
        UnsupportedError: no dominating pair is known for the randomizer, or at this sensitivity.
    """
    raise UnsupportedError(f"no dominating pair is known for {type(randomizer).__name__}")


@dominating.register
def _(randomizer: GaussianNoise, sensitivity: float) -> DominatingPair:
    return DominatingPair(GaussianPair(randomizer.noise_multiplier / sensitivity))


@dominating.register
def _(randomizer: LaplaceNoise, sensitivity: float) -> DominatingPair:
    return DominatingPair(LaplacePair(randomizer.scale / sensitivity))


@dominating.register
def _(randomizer: PureRandomizer, sensitivity: float) -> DominatingPair:
    # The guarantee holds between any two inputs, however far apart.
    return DominatingPair(PurePair(randomizer.epsilon0))


@dominating.register
def _(randomizer: BoundedVariation, sensitivity: float) -> DominatingPair:
    return DominatingPair(bounded_variation_pair(randomizer.epsilon0, randomizer.total_variation))


@dominating.register
def _(randomizer: ApproximateRandomizer, sensitivity: float) -> DominatingPair:
    return DominatingPair(PurePair(randomizer.epsilon0, randomizer.delta0), randomizer.delta0)


@dominating.register
def _(randomizer: DiscreteGaussianNoise, sensitivity: float) -> DominatingPair:
    units = round(sensitivity * randomizer.sensitivity)
    return DominatingPair(discrete_gaussian_pair(randomizer.standard_deviation, units))


@dominating.register
def _(randomizer: RoundedGaussianNoise, sensitivity: float) -> DominatingPair:
    units = round(sensitivity * randomizer.sensitivity)
    return DominatingPair(rounded_gaussian_pair(randomizer.standard_deviation, units))


@dominating.register
def _(randomizer: TableRandomizer, sensitivity: float) -> DominatingPair:
    _only_against_absence(randomizer, sensitivity)
    return _of_table(randomizer)


@lru_cache(maxsize=64)
def _of_table(randomizer: TableRandomizer) -> DominatingPair:
    return DominatingPair(*pair_of_table(randomizer.present, randomizer.absent))


@dominating.register
def _(randomizer: PairRandomizer, sensitivity: float) -> DominatingPair:
    _only_against_absence(randomizer, sensitivity)
    return DominatingPair(cast(Pair, randomizer.pair), randomizer.infinity_mass)


def _only_against_absence(randomizer: object, sensitivity: float) -> None:
    if sensitivity != 1.0:
        raise UnsupportedError(
            f"{type(randomizer).__name__} can only be analysed against an absent contribution; "
            "replace-one and one-client releases compare two contributions"
        )


@singledispatch
def closed_form(randomizer: object, sensitivity: float) -> ClosedForm:
    """Closed-form upper bounds on one step of a randomizer; `UNKNOWN` if there are none.

    Args:
        randomizer: any randomizer of `schemes`.
        sensitivity: as for `dominating`.
    """
    return UNKNOWN


@closed_form.register
def _(randomizer: GaussianNoise, sensitivity: float) -> ClosedForm:
    return ClosedForm.gaussian(sensitivity / randomizer.noise_multiplier)


@closed_form.register
def _(randomizer: RoundedGaussianNoise, sensitivity: float) -> ClosedForm:
    # Rounding is postprocessing.
    units = round(sensitivity * randomizer.sensitivity)
    return ClosedForm.gaussian(units / randomizer.standard_deviation)


@closed_form.register
def _(randomizer: DiscreteGaussianNoise, sensitivity: float) -> ClosedForm:
    # Canonne, Kamath & Steinke 2020, Theorem 4: concentrated as a Gaussian is.
    units = round(sensitivity * randomizer.sensitivity)
    return ClosedForm(epsilon0=math.inf, rho=0.5 * (units / randomizer.standard_deviation) ** 2)


@closed_form.register
def _(randomizer: LaplaceNoise, sensitivity: float) -> ClosedForm:
    return ClosedForm.pure(sensitivity / randomizer.scale)


@closed_form.register
def _(randomizer: PureRandomizer, sensitivity: float) -> ClosedForm:
    return ClosedForm.pure(randomizer.epsilon0)


@closed_form.register
def _(randomizer: ApproximateRandomizer, sensitivity: float) -> ClosedForm:
    return ClosedForm.pure(randomizer.epsilon0, randomizer.delta0)


@closed_form.register
def _(randomizer: TableRandomizer, sensitivity: float) -> ClosedForm:
    outcomes = zip(randomizer.present, randomizer.absent, strict=True)
    possible = [(p, q) for p, q in outcomes if p or q]
    if sensitivity != 1.0 or not all(p and q for p, q in possible):
        return UNKNOWN
    largest = max(abs(math.log(p) - math.log(q)) for p, q in possible)
    return ClosedForm.pure(largest + _TABLE_ROUNDING)
