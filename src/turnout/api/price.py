"""`price`: bounds on the ε of a scheme.

A `Price` is the result; `turnout.api.explain` adds the meaning of ε for one client. `guarantee_by`
returns the guarantee by the analysis that ``method=`` names. `Result` is the base class of the
results of all public functions, with their text, JSON, table in a notebook, and equality.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from turnout.accounting import Guarantee, epsilon_upper, published_epsilon
from turnout.accounting import price as exact_guarantee
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.reporting.answers import Answer
from turnout.reporting.words import rounded_up
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

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from turnout.accounting.meaning.explanation import Explanation
    from turnout.reporting.drawing import Picture
    from turnout.reporting.parts import Part


class Result(ABC):
    """Result of a public function; two results are equal if they differ in running times only."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, which the command line prints with ``--json``."""

    @abstractmethod
    def table(self) -> RenderableType:
        """Table of the result as a ``rich`` renderable, as the command line prints it."""

    def to_json(self, indent: int | None = 2) -> str:
        """JSON text of the whole result."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def parts(self) -> tuple[Part, ...]:
        """Tables and lines of the printed result as plain data, in order."""
        from turnout.reporting.parts import parts_of

        return parts_of(self.table())

    def to_markdown(self) -> str:
        """Markdown of the printed result, for reports and issue trackers."""
        from turnout.reporting.parts import as_markdown

        return as_markdown(self.parts())

    def _repr_html_(self) -> str:
        from turnout.reporting.parts import as_html

        return as_html(self.parts())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, others = self.to_dict(), other.to_dict()
        return {**mine, "seconds": None} == {**others, "seconds": None}

    __hash__ = None  # pyright: ignore[reportAssignmentType]


TIGHTEST, QUICK, PUBLISHED = "tightest", "quick", "published"
_UNPRINTED = "clones 2023"  # an erratum took its proof back; ours is in docs/design/shuffling.md
_OF_ANY = ("clones", "clones KOV", "clones form", "check-ins", "EFM19", _UNPRINTED)
"""Bounds for shuffled messages of randomizers that may depend on earlier messages."""
_OF_ONE = ("blanket", "RDP 5.3.1", "RDP 5.3.2", "RDP 5.4.1")
"""Bounds for shuffled messages of one randomizer that all clients use."""
_BY_NAME = (*_OF_ANY, *_OF_ONE)
METHODS = (TIGHTEST, QUICK, PUBLISHED, *_BY_NAME)
"""Names of all analyses; single published bounds are named as in the tables of `compare`."""


def guarantee_by(method: str | None, scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    """Guarantee of a scheme by one analysis, the tightest by default.

    Args:
        method: name of the analysis, as in `price`; None for "tightest".
        scheme: the scheme.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds on ε at which their refinement stops.

    Returns:
        Bounds on ε in each direction; an upper bound is never below the true ε.

    Raises:
        ParameterError: the analysis is unknown, or δ or the tolerance is outside (0, 1).
        UnsupportedError: the analysis does not cover the scheme.
        NumericalError: no bound can be certified.
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
    """Guarantee with the given upper bound in all directions, and with lower bounds of 0."""
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
    """Smallest published bound on ε that this package implements, and the name of the bound."""
    # The bound on whole runs, then each bound that covers the scheme.
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
    # No bound applies.
    if not found:
        raise UnsupportedError(
            "no published bound in turnout covers both directions of this scheme; use the "
            "method 'tightest', or turnout.compare for bounds on one direction"
        )
    # The smallest bound counts.
    about = min(found, key=found.__getitem__)
    return found[about], about


def _quoted(name: str, scheme: Scheme, delta: float, tolerance: float) -> tuple[float, str]:
    """Bound on ε by one method for shuffled messages, and a description of the method.

    Raises:
        UnsupportedError: the bound does not cover the scheme, or gives no finite ε for it.
    """
    from turnout.accounting.published.comparison import SHUFFLE_METHODS, ShuffleSetting

    setting = ShuffleSetting(**_covered(name, scheme), delta=delta, tolerance=tolerance)
    method = next(each for each in SHUFFLE_METHODS if each.name == name)
    try:
        epsilon = method.quote(setting).epsilon
    except (ParameterError, UnsupportedError) as error:
        raise UnsupportedError(f"{name} does not cover this scheme: {error}") from None
    if not math.isfinite(epsilon):
        raise UnsupportedError(f"{name} gives no finite ε for this scheme")
    return epsilon, f"{name}: {method.about}"


def _covered(name: str, scheme: Scheme) -> Mapping[str, Any]:
    """Arguments of `ShuffleSetting`, without δ and tolerance, that describe the scheme.

    Raises:
        UnsupportedError: the bound does not cover the scheme.
    """
    randomizer, participation = scheme.randomizer, scheme.participation
    # The bounds are for shuffled pure randomizers under replace-one.
    if scheme.trust is not TrustModel.SHUFFLED or not isinstance(randomizer, PureRandomizer):
        raise UnsupportedError(f"{name} covers shuffled messages of ε₀-DP randomizers only")
    if not isinstance(participation, EveryStep | FixedSize) or scheme.population is None:
        raise UnsupportedError(
            f"{name} covers only rounds in which all clients, or a sample of fixed size, send "
            "messages"
        )
    if scheme.relation is not Relation.REPLACE_ONE:
        raise UnsupportedError(f"{name} covers only the relation replace-one")
    # Adaptive randomizers need a bound for adaptive ones, and a hidden order.
    if is_adaptive(randomizer):
        if name in _OF_ONE:
            raise UnsupportedError(f"{name} covers only one randomizer that all clients use")
        if scheme.order is not SpeakingOrder.HIDDEN:
            raise UnsupportedError(f"{name} covers only messages in a hidden order")
    return {
        "epsilon0": randomizer.epsilon0,
        "clients": scheme.population,
        "rounds": participation.steps,
        "sampled": participation.size if isinstance(participation, FixedSize) else None,
    }


@dataclass(frozen=True, eq=False, repr=False)
class Price(Result, Answer):
    """Bounds on ε of a scheme at δ. Two prices are equal if only running times differ."""

    @property
    def epsilon(self) -> Bounds:
        """Bounds on ε; ``upper`` is the privacy guarantee."""
        return self.guarantee.epsilon

    @property
    def delta(self) -> float:
        """Value of δ at which ε holds."""
        return self.guarantee.delta

    @property
    def directions(self) -> Mapping[str, Bounds]:
        """Bounds on ε of each direction: "remove" and "add", or "replace"."""
        return self.guarantee.directions

    def named(self, randomizer: Mapping[str, Any]) -> Self:
        """Price that shows the randomizer with the name and parameters that the user gave."""
        return replace(self, randomizer=randomizer)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the whole result; ``epsilon`` is the upper bound."""
        from turnout.reporting.answers import answer_record

        return answer_record(self)

    def table(self) -> Table:
        """Table of the bounds as a ``rich`` renderable, as ``turnout account`` prints it."""
        from turnout.reporting.answers import answer_table

        return answer_table(self)

    def plot(self) -> Picture:
        """Picture of the error rates that no attacker can avoid, and of δ against ε.

        Raises:
            MissingExtraError: the extra `plots` is not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import trade_off_picture

        return trade_off_picture(self._meaning)

    @property
    def sentences(self) -> dict[str, str]:
        """Sentences about the meaning of ε for one client; the keys name the subjects."""
        from turnout.reporting.explanation import explanation_rows

        return explanation_rows(self._meaning)

    @property
    def _meaning(self) -> Explanation:
        from turnout.accounting.meaning.explanation import explanation_of

        return self.explanation or explanation_of(self.scheme, self.guarantee)

    def __repr__(self) -> str:
        said = self.guarantee
        return (
            f"{type(self).__name__}(ε = {rounded_up(said.epsilon.upper)}, δ = {said.delta:g}; "
            f"{said.relation.value}, {said.unit.value}, {said.trust.value})"
        )


def price(
    scheme: Scheme, *, delta: float, tolerance: float = 1e-3, method: str | None = None
) -> Price:
    """Upper and lower bound on ε of a scheme at δ.

    Args:
        scheme: participation, randomizer, relation, privacy unit and trust model.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds at which their refinement stops.
        method: name of the analysis: "tightest" (also if None); "quick", an upper bound from a
            single grid; "published", the smallest published bound that turnout implements; or the
            name of a bound in the tables of `compare`.

    Returns:
        The price; ``epsilon.upper`` is never below the true ε, ``epsilon.lower`` never above it.

    Raises:
        ParameterError: an unknown method, or a value outside its domain.
        UnsupportedError: no sound analysis is known for this combination, or the method does not
            cover it.
        NumericalError: no bound can be certified.

    >>> from turnout.schemes import CheckIn, GaussianNoise
    >>> scheme = Scheme(GaussianNoise(1.0), CheckIn(window=1000), relation="add-remove")
    >>> price(scheme, delta=1e-6)
    Price(ε = 0.1718, δ = 1e-06; add-remove, client, central)
    """
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", scheme, "a Scheme, with a randomizer and a relation")
    started = time.perf_counter()
    guarantee = guarantee_by(method, scheme, delta, tolerance)
    return Price(scheme, guarantee, time.perf_counter() - started)
