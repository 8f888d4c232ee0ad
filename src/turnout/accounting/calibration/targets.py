"""Parameters that meet a target ε: the inverse of pricing, always ending on the private side."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from turnout.accounting.calibration.costs import CostModel, Target, Tried
from turnout.accounting.calibration.search import Search
from turnout.accounting.calibration.unknowns import DELTA, UNKNOWNS, Unknown
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.pricing import epsilon_upper, price
from turnout.core import checks
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import Scheme

MOST_EVALUATIONS = 10
"""Bounds that `calibrate` computes; a few more only where none of them met the target."""
_TOLERANCE = 1e-4  # relative, for values that are not whole
_QUICK_LOOK = 0.1  # tolerance at which a price is asked for its reasons only
_GAIN = 1e-4  # part of ε by which `price` must be sharper to look on with it


@dataclass(frozen=True, slots=True)
class Calibration:
    """The value that was asked for.

    Attributes:
        value: as it should be printed: a whole number, or at most six digits.
        epsilon: proved upper bound on ε at that value; at most the target.
        refused: the nearest value on the costlier side that was tried and is not certified to meet
            the target. For whole numbers it is the next one, unless the count of evaluations was
            used up before. None where the value is the limit of the search, or where it leaves
            nothing worth looking for.
        guarantee: what `price` says at the value; None if no tolerance was asked for.
    """

    unknown: Unknown
    value: float
    epsilon: float
    refused: float | None
    evaluations: int
    guarantee: Guarantee | None = None


def calibrate(
    scheme_for: Callable[[float], Scheme],
    unknown: Unknown,
    epsilon: float,
    delta: float,
    *,
    tolerance: float | None = None,
) -> Calibration:
    """The value of one parameter that spends a target ε.

    Args:
        scheme_for: the scheme as a function of the unknown; whole numbers come as int.
        unknown: one of `UNKNOWNS`, or one with limits of its own.
        epsilon: target ε.
        delta: δ.
        tolerance: certify the value by `price` at this tolerance, which leaves less unspent, and
            not by `epsilon_upper`, which is quicker.

    Returns:
        The smallest value that is certified to meet the target where ε falls with it, else the
        largest, to a relative 10⁻⁴ where it is not whole; its own bound is at most ``epsilon``.
        The limit of the search, where that meets the target. See `Calibration` for how near the
        next value is.

    Raises:
        UnsupportedError: no value of the search meets the target, or the scheme has no analysis.
        NumericalError: nothing near the answer can be certified.
    """
    checks.open_unit(delta=delta)

    def scheme_of(value: float) -> Scheme:
        return scheme_for(int(value) if unknown.whole else value)

    return _calibrated(unknown, scheme_of, lambda _: delta, epsilon, tolerance)


def calibrate_delta(
    scheme: Scheme,
    epsilon: float,
    *,
    tolerance: float | None = None,
    unknown: Unknown = DELTA,
) -> Calibration:
    """The smallest δ at which a scheme has a target ε.

    Args:
        scheme: what happens.
        epsilon: target ε.
        tolerance: as for `calibrate`.
        unknown: δ, with a start of its own where one is known.

    Returns:
        A δ of six digits, never below the true one.

    Raises:
        UnsupportedError: no δ up to 0.999999 is enough, or the scheme has no analysis.
        NumericalError: nothing near the answer can be certified.
    """
    return _calibrated(unknown, lambda _: scheme, lambda value: value, epsilon, tolerance)


def calibrate_noise(
    scheme_for: Callable[[float], Scheme],
    epsilon: float,
    delta: float,
    relative_tolerance: float = 1e-4,
) -> float:
    """The smallest noise multiplier, to a relative tolerance, whose ε is at most a target.

    Args:
        scheme_for: the scheme as a function of the noise multiplier.
        epsilon: target ε.
        delta: δ.
        relative_tolerance: how far above the smallest sufficient multiplier the answer may be.

    Returns:
        A noise multiplier of few digits whose proved upper bound on ε is at most ``epsilon``.

    Raises:
        UnsupportedError: no noise up to 10⁶ reaches the target.
        NumericalError: no multiplier near the answer can be certified.
    """
    checks.positive(epsilon=epsilon, relative_tolerance=relative_tolerance)
    checks.open_unit(delta=delta)
    digits = max(6, 2 + math.ceil(-math.log10(relative_tolerance)))
    unknown = replace(UNKNOWNS["noise-multiplier"], digits=digits)
    target = Target(lambda sigma: epsilon_upper(scheme_for(sigma), delta), epsilon, lambda _: delta)
    return _met(Search.to_the_end(target, unknown, relative_tolerance)).value


def _calibrated(
    unknown: Unknown,
    scheme_of: Callable[[float], Scheme],
    delta_of: Callable[[float], float],
    epsilon: float,
    tolerance: float | None,
) -> Calibration:
    """A search by the quick bound; with a tolerance, one by `price` that goes on from its end."""
    checks.positive(epsilon=epsilon)

    def quick(value: float) -> float:
        return epsilon_upper(scheme_of(value), delta_of(value))

    search = Search.of(Target(quick, epsilon, delta_of), unknown, _TOLERANCE)
    quick_ones = MOST_EVALUATIONS - (tolerance is not None)
    search.run(lambda search: _used_up(search, quick_ones), unknown.start)
    try:
        found = _met(search)
    except UnsupportedError:
        with suppress(NumericalError):  # there may be a reason that a quick bound does not know
            price(scheme_of(unknown.private_limit), delta_of(unknown.private_limit), _QUICK_LOOK)
        raise
    guarantees: dict[float, Guarantee] = {}
    if tolerance is not None:
        checks.open_unit(tolerance=tolerance)

        def sharp(value: float) -> float:
            try:
                guarantees[value] = price(scheme_of(value), delta_of(value), tolerance)
            except UnsupportedError as error:  # δ is too small for this value alone
                raise NumericalError(str(error)) from error
            return guarantees[value].epsilon.upper

        search = _polished(search, Target(sharp, epsilon, delta_of))
        found = _met(search)
    refused = None if search.missed is None else search.missed.value
    guarantee = guarantees.get(found.value)
    return Calibration(unknown, found.value, found.epsilon, refused, search.evaluations, guarantee)


def _used_up(search: Search, evaluations: int = MOST_EVALUATIONS) -> bool:
    return search.met is not None and search.evaluations >= evaluations


def _polished(search: Search, target: Target) -> Search:
    """The same search with a sharper bound, begun at the value that the first one found.

    The first one itself where the bound is hardly sharper there, or refuses to be so.
    """
    found, unknown = _met(search), search.model.unknown
    model = CostModel(unknown, target, search.model.slope)
    final = Search(model, search.tolerance, evaluations=search.evaluations)
    final.run(lambda _: True, found.value)
    if final.met is None or final.met.epsilon > (1 - _GAIN) * found.epsilon:
        search.evaluations = final.evaluations
        return search
    if not _used_up(final):
        final.run(_used_up)
    return final


def _met(search: Search) -> Tried:
    """The value that was found; refuses where even the most private one costs too much."""
    unknown, met, missed = search.model.unknown, search.met, search.missed
    if met is not None:
        return met
    assert missed is not None
    bound = f"ε ≤ {missed.epsilon:.4g}" if missed.certified else "no ε can be certified"
    limits = f"{unknown.said(unknown.least)} to {unknown.said(unknown.most)}"
    raise UnsupportedError(
        f"no value of {unknown.name} from {limits} meets epsilon = "
        f"{search.model.target.epsilon:g}: at {unknown.said(missed.value)} {bound}"
    )
