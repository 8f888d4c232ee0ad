"""`calibrate`: the value of one parameter of a scheme that meets a target ε.

A `CalibratedPrice` is the result. `unknown_of` returns a parameter that can be solved for, and
`with_value` returns a scheme with a new value of a parameter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from turnout.accounting.calibration import DELTA as DELTA_UNKNOWN
from turnout.accounting.calibration import UNKNOWNS, Unknown, most_deviation, with_guessed_start
from turnout.api.price import Price
from turnout.core.errors import ParameterError
from turnout.schemes import (
    GaussianNoise,
    Participation,
    Randomizer,
    Relation,
    Scheme,
    TrustModel,
)
from turnout.schemes.scheme import SelfSamplingShuffle, shuffle_of
from turnout.schemes.settings import noise_setting, settings

if TYPE_CHECKING:
    from turnout.accounting.calibration import Calibration
    from turnout.schemes import DiscreteGaussianNoise, RoundedGaussianNoise

NOISE, DELTA = "noise", "delta"
"""Values of `solve_for` that are not names of parameters."""


def unknown_of(name: str) -> Unknown:
    """Parameter that can be solved for, by its name.

    Raises:
        ParameterError: no parameter with this name can be solved for.
    """
    if name != DELTA and name not in UNKNOWNS:
        raise ParameterError("solve_for", name, f"one of {', '.join(map(repr, UNKNOWNS))}")
    return DELTA_UNKNOWN if name == DELTA else UNKNOWNS[name]


def named(solve_for: str, scheme: Scheme) -> str:
    """Name of the parameter to solve for, in the notation of the command line.

    Raises:
        ParameterError: the scheme has no such parameter, or it cannot be solved for.
    """
    name = str(solve_for).replace("_", "-")
    noise = noise_name(scheme.randomizer)
    allowed = [*([noise] if noise else []), *_places(scheme), DELTA]
    name = noise or name if name == NOISE else name
    if name not in allowed:
        raise ParameterError("solve_for", solve_for, f"one of {', '.join(map(repr, allowed))}")
    return name


def noise_name(randomizer: Randomizer) -> str | None:
    """Name of the parameter that sets the randomizer's noise; None if no parameter does."""
    noise = noise_setting(type(randomizer))
    return None if noise is None else _dashed(noise.key)


def with_value(scheme: Scheme, name: str, value: float) -> Scheme:
    """Scheme with a new value of one parameter other than δ."""
    if name == noise_name(scheme.randomizer):
        key = name.replace("-", "_")
        return replace(scheme, randomizer=replace(scheme.randomizer, **{key: value}))
    place, shuffle = _places(scheme)[name], shuffle_of(scheme)
    participation = scheme.participation
    changed = {place: int(value) if unknown_of(name).whole else value}
    if shuffle is not None:
        shuffle = replace(shuffle, **changed)
        return replace(scheme, participation=shuffle.participation(), population=shuffle.clients)
    # The number of clients is part of some participations; the scheme has it as well.
    if place in {each.name for each in fields(participation)}:
        participation = replace(participation, **changed)
    population = changed.get("population", scheme.population)
    return replace(scheme, participation=participation, population=population)


def _described(scheme: Scheme) -> Any:
    """Object that holds the settings of a scheme: its shuffle, or else its participation."""
    return shuffle_of(scheme) or scheme.participation


def _places(scheme: Scheme) -> dict[str, str]:
    """Dataclass fields of the parameters that can be solved for, by the parameters' names.

    Each field belongs to the shuffle, the participation or the scheme.
    """
    described = _described(scheme)
    names = {_dashed(each.key): each.name for each in settings(type(described))}
    found = {name: place for name, place in names.items() if name in UNKNOWNS}
    counted = scheme.trust is TrustModel.SHUFFLED or scheme.release.shows_counts
    return {"clients": "population"} | found if counted else found


def limited(
    unknown: Unknown,
    scheme: Scheme,
    epsilon: float,
    delta: float,
    made: Callable[[float], Scheme],
) -> Unknown:
    """Copy of ``unknown`` with the search limits and start value that the scheme implies.

    The other settings of the scheme limit the parameter. The function ``made`` returns the scheme
    for a value of the parameter.
    """
    # A setting that another one limits, or that limits another one.
    described = _described(scheme)
    for each in settings(type(described)):
        if each.at_most and _dashed(each.key) == unknown.name:
            most = getattr(described, each.at_most)
            unknown = replace(unknown, most=min(unknown.most, most))
        elif each.at_most and _dashed(each.at_most) == unknown.name:
            least = getattr(described, each.name)
            unknown = replace(unknown, least=max(unknown.least, least))
    if scheme.trust is TrustModel.SHUFFLED:
        return with_guessed_start(made, _shuffled(unknown, scheme, epsilon), epsilon, delta)
    if unknown.name == "standard-deviation":
        lattice = cast("DiscreteGaussianNoise | RoundedGaussianNoise", scheme.randomizer)
        moved = 2 * lattice.sensitivity  # where others move as well
        least = unknown.least * moved
        return replace(unknown, least=least, most=most_deviation(moved), start=float(moved))
    return unknown


def _shuffled(unknown: Unknown, scheme: Scheme, epsilon: float) -> Unknown:
    """Copy of ``unknown``; for ε₀, with a start value and the p for which ε is about ∝ ε₀^p."""
    if unknown.name == "epsilon0":
        unshuffled = epsilon / scheme.participation.steps  # costs no more with a shuffler
        start = min(max(unshuffled, unknown.least), unknown.most)
        unknown = replace(unknown, start=start, power=max(1.0, start / 2))  # about as e^{ε₀/2}
    return unknown


def _dashed(key: str) -> str:
    return key.replace("_", "-")


SchemeOf = Callable[[float], Scheme]
"""Function from a value of the parameter to the scheme; a count is passed as int."""


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedPrice(Price):
    """Value of a parameter that meets a target ε, and the guarantee with this value."""

    @property
    def solved_for(self) -> str:
        """Name of the parameter that was solved for."""
        return self._calibration.unknown.name

    @property
    def value(self) -> float:
        """Value of the parameter; a whole number if the parameter is a count."""
        found = self._calibration
        return int(found.value) if found.unknown.whole else found.value

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier σ of the scheme.

        Raises:
            ParameterError: the randomizer of the scheme has no noise multiplier; then read the
                attribute ``value``.
        """
        randomizer = self.scheme.randomizer
        if not isinstance(randomizer, GaussianNoise):
            raise ParameterError(
                "randomizer", randomizer, "GaussianNoise; for other randomizers read value"
            )
        return randomizer.noise_multiplier

    @property
    def _calibration(self) -> Calibration:
        assert self.calibration is not None
        return self.calibration

    def __repr__(self) -> str:
        value = self.value if self._calibration.unknown.whole else f"{self.value:g}"
        return super().__repr__().replace("(", f"({self.solved_for} = {value}, ", 1)


def calibrate(
    scheme: Scheme | Participation | SchemeOf,
    *,
    epsilon: float,
    delta: float | None = None,
    relation: Relation | str | None = None,
    solve_for: str = NOISE,
    tolerance: float = 1e-3,
) -> CalibratedPrice:
    """Least noise, or value of another parameter, for which ε is at most a target.

    Args:
        scheme: in one of three forms: a `Scheme`, whose present value of the parameter that is
            solved for is ignored; a participation, to which Gaussian noise is added; or a function
            that returns the scheme for a value of the parameter.
        epsilon: target, which the upper bound on ε must not exceed.
        delta: δ, strictly between 0 and 1; None if δ is solved for.
        relation: the neighbouring relation; given only if ``scheme`` is a participation, since a
            `Scheme` and the schemes of a function have their own relation.
        solve_for: "noise"; the name of a parameter of the randomizer or of the participation;
            "clients", "rounds" or "sampled" for shuffled messages; or "delta".
        tolerance: relative width of the interval between the lower and the upper bound on ε.

    Returns:
        Value of the parameter and guarantee of the scheme with this value. The value is
        the smallest noise, window, number of clients or δ, or the largest value of any other
        parameter, for which the upper bound on ε is at most ``epsilon``.

    Raises:
        ParameterError: the scheme has no such parameter, or a value is outside its domain.
        UnsupportedError: no sound analysis of the scheme is known, or no value meets the target.
        NumericalError: no bound can be certified.

    >>> from turnout.schemes import CheckIn
    >>> calibrate(CheckIn(window=1000), epsilon=1, delta=1e-6, relation="add-remove")
    CalibratedPrice(noise-multiplier = 0.69428, ε = 0.9998, δ = 1e-06; add-remove, client, central)
    """
    from turnout.accounting import price

    started = time.perf_counter()
    # The parameter to solve for, and the scheme as a function of its value.
    base, name, made = _asked(scheme, relation, solve_for)
    if (delta is None) != (name == DELTA):
        expected = "a number strictly between 0 and 1"
        if delta is not None:
            expected = "no value, since δ is solved for"
        raise ParameterError("delta", delta, expected)
    # Solve for δ, or for a parameter of the scheme.
    if delta is None:
        found = _least_delta(base, epsilon, tolerance)
        solved, delta = base, found.value
    else:
        found = _found(base, name, made, CalibrationTarget(epsilon, delta, tolerance))
        solved = made(int(found.value) if found.unknown.whole else found.value)
    # The guarantee of the solved scheme.
    guarantee = found.guarantee or price(solved, delta, tolerance)
    seconds = time.perf_counter() - started
    return CalibratedPrice(solved, guarantee, seconds, calibration=found, target=float(epsilon))


def _asked(
    scheme: Scheme | Participation | SchemeOf, relation: Relation | str | None, solve_for: str
) -> tuple[Scheme, str, SchemeOf]:
    """Scheme before calibration, parameter to solve for, and function from a value to a scheme."""
    if callable(scheme):
        return scheme(unknown_of(solve_for).private_limit), solve_for, scheme
    if isinstance(scheme, Scheme):
        if relation is not None:
            raise ParameterError("relation", relation, "no value, since the scheme has a relation")
        base = scheme
    else:
        if relation is None:
            allowed = ", ".join(map(repr, Relation))
            raise ParameterError("relation", relation, f"one of {allowed}")
        base = Scheme(GaussianNoise(1.0), scheme, relation)
    name = named(solve_for, base)
    return base, name, lambda value: with_value(base, name, value)


class CalibrationTarget(NamedTuple):
    """Target (ε, δ), and the tolerance with which ε is computed.

    Attributes:
        epsilon: target, which the upper bound on ε must not exceed.
        delta: δ; None if δ is solved for.
        tolerance: relative width of the interval between the lower and the upper bound on ε.
    """

    epsilon: float
    delta: float
    tolerance: float


def _found(base: Scheme, name: str, made: SchemeOf, target: CalibrationTarget) -> Calibration:
    """Value of a scheme parameter at which ε meets the target."""
    from turnout.accounting.calibration import calibrate as calibrated

    epsilon, delta, tolerance = target
    # Tight bounds of a mixture take seconds: only the bounds at the solution are tight.
    mixed = isinstance(shuffle_of(base), SelfSamplingShuffle)
    unknown = limited(unknown_of(name), base, epsilon, delta, made)
    return calibrated(made, unknown, epsilon, delta, tolerance=None if mixed else tolerance)


def _least_delta(scheme: Scheme, epsilon: float, tolerance: float) -> Calibration:
    """Smallest δ at which the scheme meets the target ε."""
    from turnout.accounting.calibration import calibrate_delta, guessed_delta

    sought = unknown_of(DELTA)
    if scheme.trust is TrustModel.SHUFFLED:
        sought = guessed_delta(scheme, epsilon)
    return calibrate_delta(scheme, epsilon, tolerance=tolerance, unknown=sought)
