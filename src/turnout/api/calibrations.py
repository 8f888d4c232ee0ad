"""The value of one parameter of a scheme that a target ε allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from turnout.api.prices import Price
from turnout.api.unknowns import DELTA, NOISE, limited, named, unknown_of, with_value
from turnout.core.errors import ParameterError
from turnout.schemes import GaussianNoise, ParticipationLaw, Relation, Scheme, TrustModel
from turnout.schemes.participation.self_sampling import SelfSampling

if TYPE_CHECKING:
    from turnout.accounting.calibration import Calibration

SchemeOf = Callable[[float], Scheme]
"""A scheme as a function of what is solved for; whole numbers come as int."""


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedPrice(Price):
    """A value that meets a target ε, and the price of the scheme that has it."""

    @property
    def solved_for(self) -> str:
        """The name of what was solved for."""
        return self._calibration.unknown.name

    @property
    def value(self) -> float:
        """The value, whole where it counts something."""
        found = self._calibration
        return int(found.value) if found.unknown.whole else found.value

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of the scheme.

        Raises:
            ParameterError: its randomizer has none; ``value`` is what was solved for.
        """
        randomizer = self.scheme.randomizer
        if not isinstance(randomizer, GaussianNoise):
            raise ParameterError("randomizer", randomizer, "GaussianNoise; else see value")
        return randomizer.noise_multiplier

    @property
    def _calibration(self) -> Calibration:
        assert self.calibration is not None
        return self.calibration

    def __repr__(self) -> str:
        value = self.value if self._calibration.unknown.whole else f"{self.value:g}"
        return super().__repr__().replace("(", f"({self.solved_for} = {value}, ", 1)


def calibrate(
    scheme: Scheme | ParticipationLaw | SchemeOf,
    *,
    epsilon: float,
    delta: float | None = None,
    relation: Relation | str | None = None,
    solve_for: str = NOISE,
    tolerance: float = 1e-3,
) -> CalibratedPrice:
    """The least noise, or the value of another parameter, whose ε is at most a target.

    Args:
        scheme: what happens, where the value in the place of what is solved for does not count; or
            a participation law, with Gaussian noise; or a function that makes a scheme of the
            value.
        epsilon: the ε that must hold.
        delta: δ, unless it is solved for.
        relation: the neighbouring relation; with a law alone.
        solve_for: "noise", or the name of a parameter: of the randomizer, of the law, "clients",
            "rounds" and "sampled" of shuffled messages, or "delta".
        tolerance: relative width of the bounds of the price.

    Returns:
        The smallest noise, window, number of clients or δ, or the largest of anything else, whose
        upper bound on ε is at most ``epsilon``; with the price of the scheme that has it.

    Raises:
        ParameterError: a parameter that the scheme does not have, or a value outside its domain.
        UnsupportedError: no sound analysis is known, or no value meets the target.
        NumericalError: nothing can be certified.

    >>> from turnout.schemes import CheckIn
    >>> calibrate(CheckIn(window=1000), epsilon=1, delta=1e-6, relation="add-remove")
    CalibratedPrice(noise-multiplier = 0.97, ε = 1, δ = 1e-06; add-remove, client, central)
    """
    from turnout.accounting import price

    started = time.perf_counter()
    base, name, made = _asked(scheme, relation, solve_for)
    if (delta is None) != (name == DELTA):
        expected = "a number strictly between 0 and 1" if delta is None else "no δ to solve for δ"
        raise ParameterError("delta", delta, expected)
    if delta is None:
        found = _least_delta(base, epsilon, tolerance)
        solved, delta = base, found.value
    else:
        found = _found(base, name, made, Target(epsilon, delta, tolerance))
        solved = made(int(found.value) if found.unknown.whole else found.value)
    guarantee = found.guarantee or price(solved, delta, tolerance)
    seconds = time.perf_counter() - started
    return CalibratedPrice(solved, guarantee, seconds, calibration=found, target=float(epsilon))


def _asked(
    scheme: Scheme | ParticipationLaw | SchemeOf, relation: Relation | str | None, solve_for: str
) -> tuple[Scheme, str, SchemeOf]:
    """A scheme to read limits from, the unknown's name, and the scheme as a function of it."""
    if callable(scheme):
        return scheme(unknown_of(solve_for).private_limit), solve_for, scheme
    if isinstance(scheme, Scheme):
        if relation is not None:
            raise ParameterError("relation", relation, "none beside a scheme, which has one")
        base = scheme
    else:
        if relation is None:
            allowed = ", ".join(map(repr, Relation))
            raise ParameterError("relation", relation, f"one of {allowed}")
        base = Scheme(GaussianNoise(1.0), scheme, relation)
    name = named(solve_for, base)
    return base, name, lambda value: with_value(base, name, value)


class Target(NamedTuple):
    """A privacy target: the (ε, δ) that must hold, and how closely it is priced."""

    epsilon: float
    delta: float
    tolerance: float


def _found(base: Scheme, name: str, made: SchemeOf, target: Target) -> Calibration:
    """The value of a parameter of the scheme."""
    from turnout.accounting.calibration import calibrate as calibrated

    epsilon, delta, tolerance = target
    # A sharp price of a mixture takes seconds: that of the answer alone must do.
    mixed = base.trust is TrustModel.SHUFFLED and isinstance(base.participation, SelfSampling)
    unknown = limited(unknown_of(name), base, epsilon, delta, made)
    return calibrated(made, unknown, epsilon, delta, tolerance=None if mixed else tolerance)


def _least_delta(scheme: Scheme, epsilon: float, tolerance: float) -> Calibration:
    """The smallest δ of the scheme."""
    from turnout.accounting.calibration import calibrate_delta, guessed_delta

    sought = unknown_of(DELTA)
    if scheme.trust is TrustModel.SHUFFLED:
        sought = guessed_delta(scheme, epsilon)
    return calibrate_delta(scheme, epsilon, tolerance=tolerance, unknown=sought)
