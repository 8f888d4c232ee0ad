"""Calibration: the value of one parameter with which a scheme meets a target ε.

`calibrate` returns a `Calibration` for any parameter of `UNKNOWNS`, `calibrate_delta` for δ, and
`calibrate_noise` a noise multiplier. All results are on the private side: the proved upper bound on
ε at the result is at most the target. `bisection` has the search; `with_guessed_start` chooses the
value from which the search starts. `budgets`, `selection`, `plans` and `api` use this module.

The search starts at the value at which a rule of thumb meets the target. By this rule the privacy
loss of a run is Gaussian, and the variance of the loss is the sum of the squared loss deviations of
the run's blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from turnout.accounting.bisection import (
    DELTA,
    UNKNOWNS,
    BisectionSearch,
    CostModel,
    CostTarget,
    Tried,
    Unknown,
    log_gaussian_mu,
)
from turnout.accounting.decomposition import decompose
from turnout.accounting.divergence.pairs import most_deviation
from turnout.accounting.divergence.work import question
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.pricing import epsilon_upper, price
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import Scheme

__all__ = [
    "DELTA",
    "UNKNOWNS",
    "Calibration",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
    "guessed_delta",
    "log_gaussian_mu",
    "most_deviation",
    "with_guessed_start",
]


_CLOSE = 1e-3  # accuracy of ln value in the guess

_STEP = 0.05  # distance in ln value over which the slope is computed

_BELOW_THE_END = 0.1  # distance in ln deviation below the largest one, for targets beyond it

_LEAST_DELTA, _MOST_DELTA = 1e-30, 0.5  # range of the first guess of δ

_LARGEST_JUMP = 4.0  # largest factor of one step from a guessed start


def with_guessed_start(
    scheme_for: Callable[[float], Scheme], unknown: Unknown, epsilon: float, delta: float
) -> Unknown:
    """Unknown parameter with a start value and a power by the rule of thumb of the module header.

    Args:
        scheme_for: the scheme as a function of the unknown.
        unknown: one of `UNKNOWNS`.
        epsilon: target ε.
        delta: δ of the target, strictly between 0 and 1.

    Returns:
        The unknown parameter with a start near the solution, and with `Unknown.power` fitted to the
        cost near that start. If the rule gives no start, the given unknown is returned unchanged.
        Only the speed of a search depends on start and power.
    """
    if not epsilon > 0 or unknown.power == 0:
        return unknown

    def level(position: float) -> float:
        value = unknown.value(position)
        return _log_loss_deviation(scheme_for(int(value) if unknown.whole else value))

    # A block's loss deviation is capped at 1; a target beyond all deviations is moved within them.
    costly, private = map(unknown.position, (unknown.costly_limit, unknown.private_limit))
    target = min(log_gaussian_mu(epsilon, delta), level(costly) - _BELOW_THE_END)
    if not level(private) < target:
        return unknown
    # Solve the rule for the target, then take its slope there as the power.
    costly, private = bisected(lambda x: not level(x) > target, costly, private, gap=_CLOSE)
    fall = (level(costly - _STEP) - level(private + _STEP)) / (private - costly + 2 * _STEP)
    return replace(
        unknown,
        start=unknown.value(private),
        power=max(fall, 0.5 * unknown.power),
        largest_jump=_LARGEST_JUMP,
    )


def guessed_delta(scheme: Scheme, epsilon: float) -> Unknown:
    """δ as the unknown parameter, with a start value from the rule of thumb of the module header.

    Args:
        scheme: the whole scheme.
        epsilon: target ε, positive.

    Returns:
        δ with a start near the solution; only the speed of a search depends on the start.
    """
    level = _log_loss_deviation(scheme)

    def met(log_delta: float) -> bool:
        return not level - log_gaussian_mu(epsilon, math.exp(log_delta)) > 0

    found = bisected(met, math.log(_LEAST_DELTA), math.log(_MOST_DELTA), gap=_CLOSE)
    return replace(DELTA, start=math.exp(found.holding))


def _log_loss_deviation(scheme: Scheme) -> float:
    """Logarithm of the approximate standard deviation of a scheme's privacy loss."""
    run = decompose(scheme).record_against_null.upper
    variance = sum(count * block.loss_deviation**2 for block, count in run)
    return 0.5 * math.log(variance) if variance > 0 else -math.inf


MOST_EVALUATIONS = 10
"""Number of bounds that `calibrate` computes; more only while none of them meets the target."""

_TOLERANCE = 1e-4  # relative, for values that are not whole

_QUICK_LOOK = 0.1  # tolerance of `price` where only its refusal is of interest

_SEARCH = 2  # work that a search may use, in budgets of one `price`; then closed forms end it

_GAIN = 1e-4  # relative gain of `price` over the quick bound from which the search continues


@dataclass(frozen=True, slots=True)
class Calibration:
    """Result of a calibration.

    Attributes:
        unknown: the calibrated parameter.
        value: calibrated value of the parameter: a whole number, or a number of ``unknown.digits``
            digits.
        epsilon: proved upper bound on ε at ``value``; at most the target.
        refused: of the tried values that are not certified to meet the target, the one nearest to
            ``value``. For a whole number this is the next number, unless the evaluations ran out.
            None if no such value was tried, for example because ``value`` is a limit of the search.
        evaluations: number of bounds on ε that were computed.
        guarantee: result of `price` at the value; None if no tolerance was given.
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
    """Value of one parameter with which a scheme meets a target ε.

    Args:
        scheme_for: the scheme as a function of the unknown; receives whole numbers as int.
        unknown: one of `UNKNOWNS`, possibly with other limits or another start.
        epsilon: target ε, positive.
        delta: δ, strictly between 0 and 1.
        tolerance: relative tolerance, strictly between 0 and 1, of the `price` that certifies the
            value; None to certify it by `epsilon_upper`, which is quicker and leaves more of ε
            unused.

    Returns:
        The smallest value that is certified to meet the target if ε falls as the value grows, else
        the largest such value. Values that are not whole are found to a relative 10⁻⁴. The proved
        upper bound on ε at the result is at most ``epsilon``. If even that limit of the search at
        which ε is largest meets the target, this limit is the result.

    Raises:
        ParameterError: ε, δ or the tolerance is out of range.
        UnsupportedError: no value of the search meets the target, or the scheme has no analysis.
        NumericalError: no bound near the solution can be certified.

    Source: the bounds are those of `price` and `epsilon_upper`; the search proves nothing.
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
    """Smallest δ at which a scheme is certified to meet a target ε.

    Args:
        scheme: the whole scheme.
        epsilon: target ε, positive.
        tolerance: relative tolerance of `price`, strictly between 0 and 1; None for the quicker
            `epsilon_upper`, as in `calibrate`.
        unknown: δ as the unknown, possibly with another start (`guessed_delta`).

    Returns:
        A calibration whose value is a δ of six digits, never below the true value.

    Raises:
        ParameterError: ε or the tolerance is out of range.
        UnsupportedError: no δ up to 0.999999 is enough, or the scheme has no analysis.
        NumericalError: no bound near the solution can be certified.

    Source: as for `calibrate`.
    """
    return _calibrated(unknown, lambda _: scheme, lambda value: value, epsilon, tolerance)


def calibrate_noise(
    scheme_for: Callable[[float], Scheme],
    epsilon: float,
    delta: float,
    relative_tolerance: float = 1e-4,
) -> float:
    """Smallest noise multiplier, to a relative tolerance, whose ε is at most a target.

    Args:
        scheme_for: the scheme as a function of the noise multiplier.
        epsilon: target ε, positive.
        delta: δ, strictly between 0 and 1.
        relative_tolerance: largest relative distance of the result above the smallest multiplier
            that meets the target, positive.

    Returns:
        A noise multiplier of few digits (at least six) whose proved upper bound on ε, by
        `epsilon_upper`, is at most ``epsilon``.

    Raises:
        ParameterError: ε, δ or the tolerance is out of range.
        UnsupportedError: no noise multiplier up to 10⁶ meets the target.
        NumericalError: no bound near the solution can be certified.

    Source: as for `calibrate`.
    """
    checks.positive(epsilon=epsilon, relative_tolerance=relative_tolerance)
    checks.open_unit(delta=delta)
    digits = max(6, 2 + math.ceil(-math.log10(relative_tolerance)))
    unknown = replace(UNKNOWNS["noise-multiplier"], digits=digits)
    target = CostTarget(
        lambda sigma: epsilon_upper(scheme_for(sigma), delta), epsilon, lambda _: delta
    )
    with question(_SEARCH):
        return _met(BisectionSearch.to_the_end(target, unknown, relative_tolerance)).value


def _calibrated(
    unknown: Unknown,
    scheme_of: Callable[[float], Scheme],
    delta_of: Callable[[float], float],
    epsilon: float,
    tolerance: float | None,
) -> Calibration:
    """Result of a search with `epsilon_upper`, then with `price` if a tolerance is given."""
    checks.positive(epsilon=epsilon)
    with question(_SEARCH):
        return _searched(unknown, scheme_of, delta_of, epsilon, tolerance)


def _searched(
    unknown: Unknown,
    scheme_of: Callable[[float], Scheme],
    delta_of: Callable[[float], float],
    epsilon: float,
    tolerance: float | None,
) -> Calibration:
    """Search of `_calibrated`, without the budget of work within which `_calibrated` runs it."""

    def quick(value: float) -> float:
        return epsilon_upper(scheme_of(value), delta_of(value))

    # Search with the quick bound; one evaluation is kept for `price`.
    search = BisectionSearch.of(CostTarget(quick, epsilon, delta_of), unknown, _TOLERANCE)
    quick_ones = MOST_EVALUATIONS - (tolerance is not None)
    search.run(lambda search: _used_up(search, quick_ones), unknown.start)
    # If the target is out of reach, prefer the reason that `price` gives.
    try:
        found = _met(search)
    except UnsupportedError:
        with suppress(NumericalError):
            price(scheme_of(unknown.private_limit), delta_of(unknown.private_limit), _QUICK_LOOK)
        raise
    # With a tolerance, continue from that value with `price` and keep the guarantees.
    guarantees: dict[float, Guarantee] = {}
    if tolerance is not None:
        checks.open_unit(tolerance=tolerance)

        def sharp(value: float) -> float:
            try:
                guarantees[value] = price(scheme_of(value), delta_of(value), tolerance)
            except UnsupportedError as error:  # δ is too small at this value only
                raise NumericalError(str(error)) from error
            return guarantees[value].epsilon.upper

        search = _polished(search, CostTarget(sharp, epsilon, delta_of))
        found = _met(search)
    # The result holds the value that meets the target and the nearest value that misses it.
    refused = None if search.missed is None else search.missed.value
    guarantee = guarantees.get(found.value)
    return Calibration(unknown, found.value, found.epsilon, refused, search.evaluations, guarantee)


def _used_up(search: BisectionSearch, evaluations: int = MOST_EVALUATIONS) -> bool:
    """True if a search has met its target and used all its evaluations."""
    return search.met is not None and search.evaluations >= evaluations


def _polished(search: BisectionSearch, target: CostTarget) -> BisectionSearch:
    """Search that uses a sharper bound on ε and starts at the value found by a finished search.

    The finished search itself is returned if the sharper bound fails at this value, or if the
    sharper bound is hardly smaller than the first bound.
    """
    found, unknown = _met(search), search.model.unknown
    model = CostModel(unknown, target, search.model.slope)
    final = BisectionSearch(model, search.tolerance, evaluations=search.evaluations)
    final.run(lambda _: True, found.value)
    if final.met is None or final.met.epsilon > (1 - _GAIN) * found.epsilon:
        search.evaluations = final.evaluations
        return search
    if not _used_up(final):
        final.run(_used_up)
    return final


def _met(search: BisectionSearch) -> Tried:
    """Value at which the bound of a search meets the target.

    Raises:
        UnsupportedError: no value meets the target, not even the limit at which ε is smallest.
    """
    unknown, met, missed = search.model.unknown, search.met, search.missed
    if met is not None:
        return met
    assert missed is not None
    bound = f"ε ≤ {missed.epsilon:.4g}" if missed.certified else "no ε can be certified"
    limits = f"{unknown.text(unknown.least)} to {unknown.text(unknown.most)}"
    raise UnsupportedError(
        f"no value of {unknown.name} from {limits} meets epsilon = "
        f"{search.model.target.epsilon:g}: at {unknown.text(missed.value)} {bound}"
    )
