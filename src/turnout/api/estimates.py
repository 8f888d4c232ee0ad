"""Private estimates of the clients' values: frequencies and means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.api.inputs import rows_of
from turnout.api.results import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.estimation.private import estimates
from turnout.estimation.private.answers import Cost, Frequencies, Mean, PrivacyRequest
from turnout.randomness import OSRandomness, Source
from turnout.reporting.words import rounded_up
from turnout.schemes import PrivacyUnit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.reporting.drawing import Picture

_TOP = 20


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedFrequencies(Result, Frequencies):
    """Estimated shares of the clients, with intervals and with what they cost.

    Attributes:
        categories: the values that there can be, shape (k,), in the order of all other columns.
    """

    categories: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values, the most frequent value first."""
        from turnout.reporting.estimates import frequency_record

        return frequency_record(self, self.categories)

    def table(self, top: int = _TOP) -> RenderableType:
        """The most frequent values, and what they cost, as something that rich prints."""
        from turnout.reporting.estimates import frequency_table

        return frequency_table(self, self.categories, top)

    def plot(self, top: int = _TOP) -> Picture:
        """The most frequent values with their intervals."""
        require("plots", what="plot")
        from turnout.reporting.estimates import frequency_picture

        return frequency_picture(self, self.categories, top)

    def __repr__(self) -> str:
        return _described(self, f"{len(self.categories):,} values")


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedMean(Result, Mean):
    """An estimated mean, with its errors and with what it costs.

    Attributes:
        names: of the coordinates; their numbers where they have none.
    """

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mean, names: Sequence[str]) -> EstimatedMean:
        """The mean, its coordinates named; by their numbers if no names are given."""
        return cls(**vars(found), names=tuple(names) or tuple(map(str, range(found.value.size))))

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        from turnout.reporting.estimates import mean_record

        return mean_record(self, self.names)

    def table(self, top: int = _TOP) -> RenderableType:
        """The first coordinates, and what they cost, as something that rich prints."""
        from turnout.reporting.estimates import mean_table

        return mean_table(self, self.names, top)

    def plot(self, top: int = _TOP) -> Picture:
        """The first coordinates with two standard errors either way."""
        require("plots", what="plot")
        from turnout.reporting.estimates import mean_picture

        return mean_picture(self, self.names, top)

    def __repr__(self) -> str:
        return _described(self, f"dimension {self.value.size:,}")


def estimate_frequencies(
    values: Any,
    *,
    categories: int | Iterable[object],
    epsilon: float,
    trust: str,
    delta: float | None = None,
    relation: str | None = None,
    bits: int | None = None,
    column: str | None = None,
    mechanism: str = "auto",
    post_processing: str = "simplex",
    confidence: float = 0.95,
    source: Source | None = None,
) -> EstimatedFrequencies:
    """Estimated shares of the clients that hold each value; what each client sends is private.

    One row is one client. Randomness is the operating system's, so that each call gives another
    answer, and each costs its ε again.

    Args:
        values: one value a client: an array, a list, a series or a frame (of numpy, pandas, polars
            or pyarrow), or the path of a .npy, .csv or .parquet file.
        categories: which values there can be: k for 0 to k − 1, or all of them by name. Public, not
            taken from the data.
        epsilon: ε; in the local model ε₀ of each message.
        trust: whom a client trusts: "local", nobody; "shuffled", whoever mixes the messages;
            "central", whoever runs this.
        delta: δ; needed for "shuffled", allowed for "central".
        relation: for "central": "add-remove", if the number of clients is private, or
            "replace-one". The others are replace-one.
        bits: most bits that a client sends.
        column: which column of a frame or a file with several.
        mechanism: a name, or "auto": the fewest bits among those whose error bound is within 5 % of
            the least; in the central model the less noise.
        post_processing: from unbiased estimates ("raw") to shares: "simplex", "empirical-bayes",
            "clip" or "normalise".
        confidence: of each interval, from 0.5 to below 1.
        source: other randomness, for tests and simulations: it protects nobody.

    Returns:
        Estimates with intervals, and their cost, whose ε is never below the true one.

    Raises:
        ParameterError: a missing value, a value that is none of the categories, or an argument
            outside its domain.
        UnsupportedError: no sound analysis is known for this combination.

    >>> from turnout.randomness import SimulationStreams
    >>> estimate_frequencies([0, 1, 1, 2] * 500, categories=3, epsilon=2.0, trust="local",
    ...     source=SimulationStreams(1).source("doctest"))
    EstimatedFrequencies(3 values, 2,000 clients; local, ε₀ = 2, replace-one, client)
    """
    privacy = PrivacyRequest(epsilon, trust, delta, relation, bits)
    names = () if isinstance(categories, Integral) else _distinct(categories)
    found = estimates.frequencies(
        rows_of(values),
        int(categories) if isinstance(categories, Integral) else len(names),
        privacy,
        OSRandomness() if source is None else source,
        labels=names,
        column=column,
        mechanism=mechanism,
        post_processing=post_processing,
        confidence=confidence,
    )
    return EstimatedFrequencies(
        **vars(found), categories=names or tuple(map(str, range(found.values.size)))
    )


def estimate_mean(
    values: Any,
    *,
    norm: str,
    radius: float,
    epsilon: float,
    trust: str,
    delta: float | None = None,
    relation: str | None = None,
    bits: int | None = None,
    columns: str | Sequence[str] = (),
    mechanism: str = "auto",
    source: Source | None = None,
) -> EstimatedMean:
    """Estimated mean of the clients' vectors, each clipped to a ball.

    One row is one client. Randomness is the operating system's, so that each call gives another
    answer, and each costs its ε again.

    Args:
        values: one number or vector a client: an array of shape (clients,) or (clients, dimension),
            a list, a series or a frame (of numpy, pandas, polars or pyarrow), or the path of a
            .npy, .csv or .parquet file.
        norm: that bounds a row: "l1", "l2" or "linf".
        radius: the bound, to which rows beyond it are clipped; public, not taken from the data.
        epsilon: ε; in the local model ε₀ of each message.
        trust: whom a client trusts: "local", "shuffled" or "central", as in `estimate_frequencies`.
        delta: δ; needed for "shuffled", allowed for "central".
        relation: for "central": "add-remove" or "replace-one".
        bits: most bits that a client sends.
        columns: which columns of a frame or a file, by default all.
        mechanism: messages of a client in the shuffled model: "one-message", "several-messages", or
            "auto": several where their predicted error is less by more than 5 %.
        source: other randomness, for tests and simulations: it protects nobody.

    Returns:
        The mean with its errors, and its cost, whose ε is never below the true one.

    Raises:
        ParameterError: a missing value, what is no number, or an argument outside its domain.
        UnsupportedError: no sound analysis is known for this combination.
    """
    privacy = PrivacyRequest(epsilon, trust, delta, relation, bits)
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    rows = rows_of(values)
    found = estimates.mean(
        rows,
        norm,
        radius,
        privacy,
        OSRandomness() if source is None else source,
        columns=chosen,
        mechanism=mechanism,
    )
    names = chosen if isinstance(rows, Path) else chosen or rows.names
    return EstimatedMean.of(found, names)


def _distinct(categories: object) -> tuple[str, ...]:
    """The categories by name.

    Raises:
        ParameterError: fewer than two, or one of them twice.
    """
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise ParameterError("categories", categories, "a whole number, or all values by name")
    names = tuple(map(str, categories))
    if len(names) < 2 or len(set(names)) != len(names):
        raise ParameterError("categories", names, "at least two names, all different")
    return names


def _described(found: Frequencies | Mean, what: str) -> str:
    """An estimate and its cost, in one line."""
    cost: Cost = found.cost
    sign = "ε₀" if cost.trust == "local" else "ε"
    delta = f", δ = {cost.delta:g}" if cost.delta else ""
    about = "about " if found.clients is None else ""
    return (
        f"{type(found).__name__}({what}, {about}{found.about:,.0f} clients; {cost.trust}, "
        f"{sign} = {rounded_up(cost.epsilon)}{delta}, {cost.relation}, {PrivacyUnit.CLIENT.value})"
    )
