"""`compare`: ε of a scheme by several methods, for several values of one parameter.

A `Comparison` is the result; `turnout.plans.sweeps` computes the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from turnout.api.price import Result
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.plans import sweeps
from turnout.plans.refusals import refusal
from turnout.plans.sweeps import CheckInSweep, ShuffleSweep, Sweep
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    PureRandomizer,
    Scheme,
    TrustModel,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.reporting.drawing import Picture

Watch = Callable[[int, int], None]
"""Function that is called with the number of computed points and the number of all points."""


def _unwatched(done: int, of: int) -> None:
    """Progress callback that does nothing, the default of the argument ``watch``."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result, sweeps.SweepComparison):
    """Values of ε by every method and for every value of one parameter.

    Two comparisons are equal if they differ in running times only.
    """

    @classmethod
    def of(cls, asked: Sweep, watch: Watch = _unwatched) -> Comparison:
        """Comparison of all methods at each value of a sweep's parameter."""
        return cls(**vars(sweeps.compared(asked, watch)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the comparison; None where a method has no bound."""
        from turnout.reporting.comparison import comparison_record

        return comparison_record(self)

    def table(self) -> RenderableType:
        """Table of the values as a ``rich`` renderable, as ``turnout compare`` prints it."""
        from turnout.reporting.comparison import comparison_text

        return comparison_text(self)

    def plot(self) -> Picture:
        """Picture of each method's ε, and of its ratio to the first method's ε, over the sweep.

        Raises:
            UnsupportedError: no parameter was swept.
            MissingExtraError: the extra `plots` is not installed.
        """
        if self.sweep.against is None:
            raise UnsupportedError("no parameter was swept, so there is no curve to draw")
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import comparison_picture

        return comparison_picture(self)

    def __repr__(self) -> str:
        values, swept = self.values, self.sweep.against or "delta"
        ends = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"
        return f"Comparison({len(self.curves)} methods, {swept} {ends})"


def compare(
    scheme: Scheme,
    *,
    against: str | None = None,
    values: Iterable[float] = (),
    delta: float | None = None,
    clients: int | None = None,
    tolerance: float = 1e-2,
    beside: Sequence[str] = (),
    watch: Watch = _unwatched,
) -> Comparison:
    """Values of ε of a scheme by every applicable method, for values of one parameter.

    For check-ins with Gaussian noise the methods are the tightest analysis, the bounds in the
    papers on check-ins, and the bounds for Poisson sampling, for shuffling and without
    amplification. For shuffled messages of an ε₀-DP randomizer the methods are all bounds that hold
    for every ε₀-DP randomizer.

    Args:
        scheme: check-ins with Gaussian noise, or shuffled messages of an ε₀-DP randomizer. The
            scheme's own value of the parameter ``against`` is ignored.
        against: name of the parameter that varies. For check-ins: "noise_multiplier", "window" or
            "windows". For shuffled messages: "epsilon0", "clients", "rounds" or "delta". None
            compares the methods at one point, the scheme itself.
        values: at least two values of the parameter ``against``; empty if it is None.
        delta: δ, strictly between 0 and 1; None if ``against`` is "delta".
        clients: number of clients for the method "shuffling", where the scheme has check-ins.
        tolerance: relative width of the interval between the lower and the upper bound on ε.
        beside: further participations to compare with check-ins, or further randomizers of shuffled
            messages. Each is a text with a name and with those settings that the scheme does not
            have, such as "k-subset picks=2".
        watch: function that is called with the number of computed points and the number of all
            points.

    Returns:
        The values of ε, one curve for each method; None where a method has no bound. An upper bound
        is never below the true ε in the directions that its method covers.

    Raises:
        ParameterError: a value is outside its domain, or ``values`` has fewer than two values.
        UnsupportedError: the scheme has neither check-ins with Gaussian noise nor shuffled
            messages of an ε₀-DP randomizer.
    """
    # The values, each once.
    listed = tuple(dict.fromkeys(values))
    if not all(isinstance(value, Real) and math.isfinite(value) for value in listed):
        raise ParameterError("values", listed, "finite numbers")
    # The methods that apply to the scheme, and its parameters.
    family, setting = _setting(scheme)
    if clients is not None and family is CheckInSweep:
        setting["clients"] = clients
    key = None if against is None else against.replace("-", "_")
    given = {**setting, "delta": delta, "tolerance": tolerance, "beside": tuple(beside)}
    # One point, or a sweep over at least two values.
    if key is None:
        if listed:
            raise ParameterError("values", listed, "no values unless against is given")
    else:
        if len(listed) < 2:
            raise ParameterError("values", listed, "at least two different values")
        given |= {
            "against": key.replace("_", "-"),
            "listed": listed,
            "first": min(listed),
            "last": max(listed),
        }
        given.pop(key, None)
    return Comparison.of(_checked(family, given, delta), watch)


def _setting(scheme: Scheme) -> tuple[type[Sweep], dict[str, Any]]:
    """Class of the sweeps that apply to the scheme, and the values of the scheme's parameters."""
    participation, randomizer = scheme.participation, scheme.randomizer
    setting = {"clients": scheme.population, "relation": scheme.relation}
    match scheme.trust, participation, randomizer:
        case TrustModel.SHUFFLED, EveryStep() | FixedSize(), PureRandomizer():
            sampled = participation.size if isinstance(participation, FixedSize) else None
            shuffled = {"rounds": participation.steps, "sampled": sampled}
            return ShuffleSweep, {**setting, **shuffled, "epsilon0": randomizer.epsilon0}
        case TrustModel.CENTRAL, CheckIn(probability=1), GaussianNoise(noise_multiplier=sigma):
            windows = {"window": participation.window, "windows": participation.windows}
            return CheckInSweep, {**setting, **windows, "noise_multiplier": sigma}
    raise UnsupportedError(
        "methods can be compared only for check-ins with Gaussian noise and probability 1, and for "
        "shuffled messages of ε₀-DP randomizers"
    )


def _checked(family: type[Sweep], given: dict[str, Any], delta: float | None) -> Sweep:
    """Sweep of the given class, after a check of all values against their domains."""
    # The sweep as a whole, and the setting at each of its values.
    try:
        asked = family.model_validate(given)
        values = tuple(map(_whole, asked.listed)) if asked.whole else asked.listed
        for value in values:
            family.model_validate({**given, asked.key: value})
    except ValidationError as error:
        raise refusal(error, family) from None
    # δ is given or swept, and a sample is no larger than the smallest number of clients.
    if (delta is None) != (asked.against == "delta"):
        expected = "no value, since δ is swept" if delta else "a number strictly between 0 and 1"
        raise ParameterError("delta", delta, expected)
    sampled = getattr(asked, "sampled", None)
    least = min(values, default=0) if asked.against == "clients" else asked.clients
    if sampled is not None and least is not None and sampled > least:
        raise ParameterError("clients", least, f"at least sampled = {sampled}")
    return asked.model_copy(update={"listed": values})


def _whole(value: float) -> float:
    """Nearest whole number if only a rounding error separates it from the value; else the value."""
    return round(value) if abs(value - round(value)) <= 1e-9 * abs(value) else value
