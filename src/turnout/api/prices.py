"""The price of a scheme, and what it means for one client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from turnout.api.results import Result
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.reporting.answers import Answer
from turnout.reporting.words import rounded_up
from turnout.schemes import Scheme

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting.meaning.explanation import Explanation
    from turnout.reporting.drawing import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Price(Result, Answer):
    """A scheme's (ε, δ); two prices are equal if they say the same, running times apart."""

    @property
    def epsilon(self) -> Bounds:
        """Bounds on ε; ``upper`` is what to quote."""
        return self.guarantee.epsilon

    @property
    def delta(self) -> float:
        """The δ at which ε holds."""
        return self.guarantee.delta

    @property
    def directions(self) -> Mapping[str, Bounds]:
        """Bounds on ε of each direction: "remove" and "add", or "replace"."""
        return self.guarantee.directions

    def named(self, randomizer: Mapping[str, Any]) -> Self:
        """The same under the randomizer's name and parameters as a user put them."""
        return replace(self, randomizer=randomizer)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values; ``epsilon`` is the upper bound."""
        from turnout.reporting.answers import answer_record

        return answer_record(self)

    def table(self) -> Table:
        """The table that the command line prints, for rich to print."""
        from turnout.reporting.answers import answer_table

        return answer_table(self)

    def plot(self) -> Picture:
        """Errors that an attacker cannot avoid, and δ against ε.

        Raises:
            MissingExtraError: the extra `plots` is not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.explanation import trade_off_picture

        return trade_off_picture(self._meaning)

    @property
    def sentences(self) -> dict[str, str]:
        """The meaning of ε for one client: sentences by their subjects."""
        from turnout.reporting.explanation import explanation_rows

        return explanation_rows(self._meaning)

    @property
    def _meaning(self) -> Explanation:
        explained = self if self.explanation is not None else explain(self)
        assert explained.explanation is not None
        return explained.explanation

    def __repr__(self) -> str:
        said = self.guarantee
        return (
            f"{type(self).__name__}(ε = {rounded_up(said.epsilon.upper)}, δ = {said.delta:g}; "
            f"{said.relation.value}, {said.unit.value}, {said.trust.value})"
        )


def price(
    scheme: Scheme, *, delta: float, tolerance: float = 1e-3, method: str | None = None
) -> Price:
    """The ε of a scheme at δ, as bounds from above and from below.

    Args:
        scheme: what happens.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds at which refining stops.
        method: which analysis: "tightest" (if none is given), "quick", an upper bound on one
            grid, "published", the smallest bound in print, or the name of a bound in the tables of
            `compare`.

    Returns:
        The price; ``epsilon.upper`` is never below the true ε, ``epsilon.lower`` never above it.

    Raises:
        ParameterError: an unknown method, or a value outside its domain.
        UnsupportedError: no sound analysis is known for this combination, or the method does not
            cover it.
        NumericalError: nothing can be certified.

    >>> from turnout.schemes import CheckIn, GaussianNoise
    >>> scheme = Scheme(GaussianNoise(1.0), CheckIn(window=1000), relation="add-remove")
    >>> price(scheme, delta=1e-6)
    Price(ε = 0.9047, δ = 1e-06; add-remove, client, central)
    """
    from turnout.api.methods import guarantee_by

    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", scheme, "a Scheme, with a randomizer and a relation")
    started = time.perf_counter()
    guarantee = guarantee_by(method, scheme, delta, tolerance)
    return Price(scheme, guarantee, time.perf_counter() - started)


def explain(
    scheme: Scheme | Price, *, delta: float | None = None, prior: float | None = None
) -> Price:
    """A scheme's price with what it means for one client: how well an attacker can do.

    Args:
        scheme: what happens, or its price.
        delta: δ; with a scheme alone.
        prior: what an attacker thinks beforehand of the client's taking part, strictly between 0
            and 1, besides one half.

    Returns:
        The price; its ``explanation`` has the numbers, its table the sentences.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: no sound analysis is known, or clients have windows of their own.
        NumericalError: nothing can be certified.
    """
    from turnout.accounting.meaning.explanation import explain as explained

    if isinstance(scheme, Price):
        if delta is not None:
            raise ParameterError("delta", delta, "nothing beside a price, which has one")
        found = scheme
    else:
        if delta is None:
            raise ParameterError("delta", delta, "a number strictly between 0 and 1")
        found = price(scheme, delta=delta)
    return replace(found, explanation=explained(found.scheme, found.guarantee, prior))
