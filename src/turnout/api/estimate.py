"""`estimate_frequencies` and `estimate_mean`: private estimates of values in memory.

`EstimatedFrequencies` and `EstimatedMean` are the results. Values are given as arrays, lists,
series or frames, which are read as by `turnout.client_data`; a frame is any object with named
columns (pandas, polars, pyarrow, or a mapping of arrays).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.api.price import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.core.values import canonical, converting, refuse_inexact
from turnout.estimation.private import estimates
from turnout.estimation.private.answers import EstimateCost, Frequencies, Mean, PrivacyRequest
from turnout.estimation.private.columns import Rows, array_entries, array_vectors, chosen_columns
from turnout.randomness import OSRandomness, Source
from turnout.reporting.words import rounded_up
from turnout.schemes import PrivacyUnit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.data.tables import Column, Table
    from turnout.reporting.drawing import Picture

_ONLY = "values"
"""Name that is given to a column without a name."""
_UNNAMED = "no column name, since these values have no named columns"
_SHAPE = "numbers, of shape (clients,) or (clients, dimension)"


@runtime_checkable
class HeldRows(Rows, Protocol):
    """Interface of values in memory or from a stream, in columns with or without names."""

    names: Sequence[str]


def rows_of(values: Any) -> Path | HeldRows:
    """Path of the file with the values, or the values as columns in memory.

    Raises:
        ParameterError: the values are not a path, an array, a list, a series or a frame.
        InputFileError: the values cannot be converted.
    """
    if isinstance(values, str | os.PathLike):
        return Path(os.fspath(values))
    return values if isinstance(values, HeldRows) else _TableRows(values)


class _TableRows:
    """Columns of values in memory; ``names`` is empty if the values had no column names."""

    def __init__(self, values: Any) -> None:
        with converting(_ONLY):
            self._table, named = _table(values)
        self.names: Sequence[str] = self._table.names if named else ()

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """Blocks of entries of the named column, or of the only column; a missing value is None."""
        (name,) = self._chosen(() if column is None else (column,), single=True)
        found = (_entries(name, held[name]) for held in self._columns([name]))
        yield from _joined(found, array_entries)

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Blocks of vectors from the named columns, or from all columns; a missing value is NaN."""
        names = self._chosen(columns, single=False)
        named = bool(self.names)
        found = (
            _beside([_numbers(name, held[name], named) for name in names])
            for held in self._columns(names)
        )
        yield from _joined(found, array_vectors)

    def _columns(self, names: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        from turnout.data.tables import Kind

        for batch in self._table.batches(dict.fromkeys(names, Kind.NUMBERS)):
            yield batch.columns

    def _chosen(self, columns: Sequence[str], *, single: bool) -> Sequence[str]:
        if self.names:
            return chosen_columns(columns, self.names, single=single)
        if columns:
            raise ParameterError("column", columns[0], _UNNAMED)
        return self._table.names


def _table(values: Any) -> tuple[Table, bool]:
    """Values as a table, and whether the columns have names."""
    from turnout.data.tables import ArrayTable

    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        from turnout.data.arrow_tables import frame_table, series_table

        named = hasattr(values, "columns")
        return frame_table(values) if named else series_table(values, _ONLY), named
    if isinstance(values, Mapping):
        return ArrayTable(values), True
    if hasattr(values, "__array__") or isinstance(values, Sequence):
        return ArrayTable({_ONLY: values}), False
    kind = type(values).__name__
    raise ParameterError("values", kind, "an array, a list, a series, a frame, or a file's path")


def _joined(
    parts: Iterator[NDArray[Any]], cut: Callable[[NDArray[Any]], Iterator[NDArray[Any]]]
) -> Iterator[NDArray[Any]]:
    """Rows of all parts, divided by ``cut`` into blocks of equal size; the last may be smaller."""
    held: NDArray[Any] | None = None
    for part in parts:
        held = part if held is None else np.concatenate((held, part))
        blocks = list(cut(held))
        whole = len(blocks) > 1 and len(blocks[-1]) == len(blocks[0])
        held = None if whole else blocks.pop()
        yield from blocks
    if held is not None:
        yield held


def _entries(name: str, column: Column) -> NDArray[Any]:
    """Entries of a one-dimensional column as texts, numbers or None, shape (rows,)."""
    if column.values.ndim != 1:
        raise ParameterError(name, f"shape {column.values.shape}", "one value for each client")
    found = column.values
    if column.texts is not None:
        found = np.array(column.texts, dtype=object)[found]
    if column.missing is None or not column.missing.any():
        return found
    found = found.astype(object)
    found[column.missing] = None
    return found


def _numbers(name: str, column: Column, named: bool) -> NDArray[np.float64]:
    """Numbers of a column, shape (rows, entries of a row); true and false are 1 and 0."""
    values = column.values
    if column.texts is not None or values.ndim > 2 - named:
        given = "text" if column.texts is not None else f"shape {values.shape}"
        raise ParameterError(name, given, _SHAPE)
    refuse_inexact(name, values)
    found = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    if column.missing is not None:
        found = np.where(column.missing[:, None], np.nan, found)
    return found


def _beside(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


_TOP = 20


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedFrequencies(Result, Frequencies):
    """Estimated share of the clients that hold each value, with intervals and the guarantee.

    Attributes:
        categories: possible values, shape (k,), in the order of all other arrays.
    """

    categories: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the most frequent value first."""
        from turnout.reporting.estimates import frequency_record

        return frequency_record(self, self.categories)

    def table(self, top: int = _TOP) -> RenderableType:
        """Table of the ``top`` most frequent values and the guarantee, as a ``rich`` renderable."""
        from turnout.reporting.estimates import frequency_table

        return frequency_table(self, self.categories, top)

    def plot(self, top: int = _TOP) -> Picture:
        """Picture of the most frequent values with their intervals.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import frequency_picture

        return frequency_picture(self, self.categories, top)

    def __repr__(self) -> str:
        return _described(self, f"{len(self.categories):,} values")


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedMean(Result, Mean):
    """Estimated mean of the clients' vectors, with its errors and the guarantee.

    Attributes:
        names: name of each coordinate, shape (dimension,); its number if it has no name.
    """

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mean, names: Sequence[str]) -> EstimatedMean:
        """Estimated mean with the given coordinate names, or with numbers if ``names`` is empty."""
        return cls(**vars(found), names=tuple(names) or tuple(map(str, range(found.value.size))))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the estimate and its guarantee."""
        from turnout.reporting.estimates import mean_record

        return mean_record(self, self.names)

    def table(self, top: int = _TOP) -> RenderableType:
        """Table of the first ``top`` coordinates and of the guarantee, as a ``rich`` renderable."""
        from turnout.reporting.estimates import mean_table

        return mean_table(self, self.names, top)

    def plot(self, top: int = _TOP) -> Picture:
        """Picture of the first coordinates with intervals of ± two standard errors.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import mean_picture

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
    missing: object = None,
    source: Source | None = None,
) -> EstimatedFrequencies:
    """Estimated share of the clients that hold each value, from private messages of the clients.

    Each row is the value of one client. Randomness is drawn from the operating system: each call
    returns another estimate, and the ε of several calls on the same clients adds up.

    Args:
        values: one value for each client: an array, a list, a series or a frame (of numpy,
            pandas, polars or pyarrow), or the path of a .npy, .csv or .parquet file.
        categories: the possible values: a number k for the values 0 to k − 1, or the names of the
            values. They are public and must not be taken from the data.
        epsilon: ε of the estimate; under local trust ε₀ of each client's message.
        trust: trust model: "local" (a client trusts no other party), "shuffled" (a client trusts
            the shuffler) or "central" (a client trusts the party that calls this function).
        delta: δ, below 1; required for "shuffled", optional for "central", None for "local".
        relation: for "central" trust, "add-remove" if the number of clients is private, else
            "replace-one". "local" and "shuffled" always have "replace-one".
        bits: upper limit on the number of bits that a client sends; None sets no limit.
        column: name of the column, if a frame or a file has several.
        mechanism: name of a mechanism, or "auto". Among the mechanisms whose error bound is at
            most 5 % above the smallest error bound, "auto" chooses the one that sends the fewest
            bits. Under central trust "auto" chooses the mechanism with less noise.
        post_processing: how unbiased estimates become shares: "simplex", "empirical-bayes", "clip"
            or "normalise"; "raw" returns the unbiased estimates.
        confidence: coverage probability of each interval, from 0.5 to below 1.
        missing: category, a public constant, that replaces a missing value; if None, a missing
            value is an error.
        source: source of randomness for tests and simulations, whose results have no privacy; None
            draws from the operating system.

    Returns:
        Estimated shares with intervals, shape (k,), and the privacy cost, whose ε is never below
        the true ε.

    Raises:
        ParameterError: a value is missing or is not a category, or an argument is outside its
            domain.
        UnsupportedError: no sound analysis is known for this combination.

    >>> from turnout.randomness import SimulationStreams
    >>> estimate_frequencies([0, 1, 1, 2] * 500, categories=3, epsilon=2.0, trust="local",
    ...     source=SimulationStreams(1).source("doctest"))
    EstimatedFrequencies(3 values, 2,000 clients (public); local, ε₀ = 2, replace-one, client)
    """
    # The privacy of the answer, and the possible values.
    privacy = PrivacyRequest(epsilon, trust, delta, relation, bits)
    size, names = categories_of(categories)
    # The estimate from private messages, drawn from the operating system's randomness.
    found = _estimated(
        estimates.frequencies,
        rows_of(values),
        size,
        privacy,
        OSRandomness() if source is None else source,
        labels=names,
        column=column,
        mechanism=mechanism,
        post_processing=post_processing,
        confidence=confidence,
        missing=missing,
    )
    # Categories by name, or by number where they have no names.
    return EstimatedFrequencies(
        **vars(found), categories=names or tuple(map(str, range(found.values.size)))
    )


def estimate_mean(
    values: Any,
    *,
    norm: str | None = None,
    radius: float | None = None,
    low: float | None = None,
    high: float | None = None,
    epsilon: float,
    trust: str,
    delta: float | None = None,
    relation: str | None = None,
    bits: int | None = None,
    columns: str | Sequence[str] = (),
    mechanism: str = "auto",
    missing: float | None = None,
    source: Source | None = None,
) -> EstimatedMean:
    """Estimated mean of the clients' vectors, each of which is clipped to a ball.

    Each row is the value of one client. Randomness is drawn from the operating system: each call
    returns another estimate, and the ε of several calls on the same clients adds up.

    Args:
        values: a number or a vector for each client: an array of shape (clients,) or (clients,
            dimension), a list, a series or a frame (of numpy, pandas, polars or pyarrow), or the
            path of a .npy, .csv or .parquet file.
        norm: norm in which each client's vector is bounded: "l1", "l2" or "linf". It may be left
            out if each client has one number, since all norms of a number are equal.
        radius: upper bound on this norm, in the unit of the values; vectors with a larger norm are
            clipped to the radius. The radius is public and must not be taken from the data.
        low: lower limit of the values, given together with ``high`` instead of ``radius`` if each
            client has one number. Values are clipped to [low, high]. The error is as for the radius
            (high − low)/2. Both limits are public and must not be taken from the data.
        high: upper limit of the values, above ``low``.
        epsilon: ε of the estimate; under local trust ε₀ of each client's message.
        trust: trust model: "local", "shuffled" or "central", as in `estimate_frequencies`.
        delta: δ, below 1; required for "shuffled", optional for "central", None for "local".
        relation: for "central" trust, "add-remove" or "replace-one"; the other trust models always
            have "replace-one".
        bits: upper limit on the number of bits that a client sends; None sets no limit.
        columns: names of the columns of a frame or a file; by default all columns.
        mechanism: number of messages of a client under shuffled trust: "one-message",
            "several-messages" or "auto", which chooses several messages if this lowers the
            predicted error by more than 5 %.
        missing: number, a public constant, that replaces a missing number; if None, a missing
            number is an error.
        source: source of randomness for tests and simulations, whose results have no privacy; None
            draws from the operating system.

    Returns:
        Estimated mean with standard errors, shape (dimension,), and the privacy cost, whose ε is
        never below the true ε.

    Raises:
        ParameterError: a value is missing or is not a number, or an argument is outside its domain.
        UnsupportedError: no sound analysis is known for this combination.

    >>> from turnout.randomness import SimulationStreams
    >>> ages = [20, 30, 40, 54] * 500
    >>> found = estimate_mean(ages, low=0, high=100, epsilon=1, trust="central",
    ...     relation="replace-one", source=SimulationStreams(1).source("doctest"))
    >>> found.value.round().tolist(), found.noise_errors.round(2).tolist()
    ([36.0], [0.07])
    """
    # The privacy of the answer, and the columns that hold the vectors.
    privacy = PrivacyRequest(epsilon, trust, delta, relation, bits)
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    rows = rows_of(values)
    # The estimate from private messages, drawn from the operating system's randomness.
    found = _estimated(
        estimates.mean,
        rows,
        norm,
        radius,
        privacy,
        OSRandomness() if source is None else source,
        interval=(low, high),
        columns=chosen,
        mechanism=mechanism,
        missing=missing,
    )
    # Names of the coordinates, if the columns have names.
    names = chosen if isinstance(rows, Path) else chosen or rows.names
    return EstimatedMean.of(found, names)


def categories_of(categories: object) -> tuple[int, tuple[str, ...]]:
    """Number of categories, and the categories' names; no names if they are whole numbers.

    Raises:
        ParameterError: there are fewer than two names, or a name is empty or occurs twice.
    """
    if isinstance(categories, Integral):
        return int(categories), ()
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise ParameterError("categories", categories, "a whole number, or the names of all values")
    names = tuple(canonical(str(one)) for one in categories)
    if len(names) < 2 or len(set(names)) != len(names) or "" in names:
        raise ParameterError("categories", names, "at least two different names that are not empty")
    return len(names), names


def _described(found: Frequencies | Mean, what: str) -> str:
    """One line of text about an estimate: size, number of clients and privacy guarantee."""
    cost: EstimateCost = found.cost
    sign = "ε₀" if cost.trust == "local" else "ε"
    delta = f", δ = {cost.delta:g}" if cost.delta else ""
    clients = f"{found.about:,.0f} clients"
    clients = f"about {clients}" if found.clients is None else f"{clients} (public)"
    return (
        f"{type(found).__name__}({what}, {clients}; {cost.trust}, "
        f"{sign} = {rounded_up(cost.epsilon)}{delta}, {cost.relation}, {PrivacyUnit.CLIENT.value})"
    )


Made = TypeVar("Made")


def _estimated(compute: Callable[..., Made], *arguments: Any, **settings: Any) -> Made:
    """Result of ``compute``; a terminal shows the elapsed time if it takes over two seconds."""
    from turnout.reporting.progress import spinner

    with spinner("estimating"):
        return compute(*arguments, **settings)
