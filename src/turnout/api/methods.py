"""The analyses that a price can be asked of by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnout.accounting import Guarantee, epsilon_upper, published_epsilon
from turnout.accounting import price as exact_guarantee
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import (
    EveryStep,
    FixedSize,
    PureRandomizer,
    Relation,
    Scheme,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.randomizers import is_adaptive

TIGHTEST, QUICK, PUBLISHED = "tightest", "quick", "published"
_UNPRINTED = "clones 2023"  # an erratum took its proof back; ours is in docs/design/shuffling.md
_OF_ANY = ("clones", "clones KOV", "clones form", "check-ins", "EFM19", _UNPRINTED)
"""Bounds for shuffled messages of randomizers that messages before may choose."""
_OF_ONE = ("blanket", "RDP 5.3.1", "RDP 5.3.2", "RDP 5.4.1")
"""Bounds for shuffled messages of one randomizer that all clients use."""
_BY_NAME = (*_OF_ANY, *_OF_ONE)
METHODS = (TIGHTEST, QUICK, PUBLISHED, *_BY_NAME)
"""All names; those of single bounds as in the tables of `turnout.compare`."""


def guarantee_by(method: str | None, scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    """The guarantee of a scheme by one analysis, by default the tightest.

    Raises:
        ParameterError: no such analysis, or δ or the tolerance is outside (0, 1).
        UnsupportedError: it does not cover the scheme.
        NumericalError: nothing can be certified.
    """
    checks.open_unit(delta=delta, tolerance=tolerance)
    if method is None or method == TIGHTEST:
        return exact_guarantee(scheme, delta, tolerance)
    if method not in METHODS:
        raise ParameterError("method", method, f"one of {', '.join(map(repr, METHODS))}")
    if method == QUICK:
        upper, about = epsilon_upper(scheme, delta), "upper bound on one grid"
    elif method == PUBLISHED:
        upper, about = _published(scheme, delta, tolerance)
    else:
        upper, about = _quoted(method, scheme, delta, tolerance)
    return _upper_only(scheme, upper, delta, tolerance, about)


def _upper_only(
    scheme: Scheme, upper: float, delta: float, tolerance: float, about: str
) -> Guarantee:
    """A guarantee without a lower bound, of all directions together."""
    bounds = Bounds(0.0, upper)
    names = ("replace",) if scheme.relation is Relation.REPLACE_ONE else ("remove", "add")
    return Guarantee(
        bounds,
        delta,
        dict.fromkeys(names, bounds),
        scheme.relation,
        scheme.unit,
        scheme.trust,
        about,
        tolerance=tolerance,
        exact=False,
    )


def _published(scheme: Scheme, delta: float, tolerance: float) -> tuple[float, str]:
    """The smallest bound in print, and its name."""
    found: dict[str, float] = {}
    composed = published_epsilon(scheme, delta)
    if composed is not None:
        found["clones 2021, Theorem 3.1"] = composed
    for name in _BY_NAME:
        try:
            if name != _UNPRINTED:
                upper, about = _quoted(name, scheme, delta, tolerance)
                found[about] = upper
        except (UnsupportedError, NumericalError):
            continue
    if not found:
        raise UnsupportedError(
            "no bound in print covers this scheme, or it is the tightest analysis itself; "
            "turnout.compare has bounds of one direction"
        )
    about = min(found, key=found.__getitem__)
    return found[about], about


def _quoted(name: str, scheme: Scheme, delta: float, tolerance: float) -> tuple[float, str]:
    """ε by a bound of the comparison of shuffles, and what the bound is.

    Raises:
        UnsupportedError: the bound does not cover the scheme, or is vacuous there.
    """
    from turnout.accounting.published.comparison import SHUFFLE_METHODS, ShuffleSetting

    setting = ShuffleSetting(**_covered(name, scheme), delta=delta, tolerance=tolerance)
    method = next(each for each in SHUFFLE_METHODS if each.name == name)
    try:
        epsilon = method.quote(setting).epsilon
    except (ParameterError, UnsupportedError) as error:
        raise UnsupportedError(f"{name} does not cover this scheme: {error}") from None
    if not math.isfinite(epsilon):
        raise UnsupportedError(f"{name}: no finite ε follows from it")
    return epsilon, f"{name}: {method.about}"


def _covered(name: str, scheme: Scheme) -> Mapping[str, Any]:
    """The setting of a bound for shuffled messages.

    Raises:
        UnsupportedError: the bound is about other schemes.
    """
    randomizer, law = scheme.randomizer, scheme.participation
    if scheme.trust is not TrustModel.SHUFFLED or not isinstance(randomizer, PureRandomizer):
        raise UnsupportedError(f"{name} is about shuffled messages of ε₀-DP randomizers")
    if not isinstance(law, EveryStep | FixedSize) or scheme.population is None:
        raise UnsupportedError(f"{name} is about rounds of all clients or of a sample of one size")
    if scheme.relation is not Relation.REPLACE_ONE:
        raise UnsupportedError(f"{name} is about replace-one")
    if is_adaptive(randomizer):
        if name in _OF_ONE:
            raise UnsupportedError(f"{name} is about one randomizer that all clients use")
        if scheme.order is not SpeakingOrder.HIDDEN:
            raise UnsupportedError(f"{name} needs an order of speaking that is hidden")
    return {
        "epsilon0": randomizer.epsilon0,
        "clients": scheme.population,
        "rounds": law.steps,
        "sampled": law.size if isinstance(law, FixedSize) else None,
    }
