"""`estimate_frequencies` and `estimate_mean`: private estimates of values in memory.

`EstimatedFrequencies` and `EstimatedMean` are their answers. `rows_of` reads arrays, lists, series
and frames; a frame is any object with columns by name (pandas, polars, pyarrow, or a mapping of
arrays), whose library is not imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.api.prices import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.estimation.private import estimates
from turnout.estimation.private.answers import EstimateCost, Frequencies, Mean, PrivacyRequest
from turnout.estimation.private.columns import Rows, array_entries, array_vectors, chosen_columns
from turnout.randomness import OSRandomness, Source
from turnout.reporting.words import rounded_up
from turnout.schemes import PrivacyUnit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.reporting.drawing import Picture

_SHOWN = 5
_UNNAMED = "none: these values have no columns with names"


@runtime_checkable
class HeldRows(Rows, Protocol):
    """Values in memory, or streamed from elsewhere, whose columns may have names."""

    names: Sequence[str]


def rows_of(values: Any) -> Path | HeldRows:
    """The values to read: a path where it is one, as text or not, else columns in memory.

    Raises:
        ParameterError: neither a path nor an array, a list, a series or a frame.
    """
    if isinstance(values, str | os.PathLike):
        return Path(os.fspath(values))
    if isinstance(values, HeldRows):
        return values
    if isinstance(values, Mapping):
        return _Frame(values, list(values))
    if hasattr(values, "__array__"):
        names = getattr(values, "column_names", None)  # of a table of pyarrow
        names = getattr(values, "columns", None) if names is None else names
        return _Array(values) if names is None else _Frame(values, list(names))
    if isinstance(values, Sequence):
        return _Array(values)
    kind = type(values).__name__
    raise ParameterError("values", kind, "an array, a list, a series, a frame, or a file's path")


class _Array:
    """An array without names for its columns."""

    names: Sequence[str] = ()

    def __init__(self, values: Any) -> None:
        self._array = _present(values, "values")

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """All entries, of one dimension."""
        _refuse_names(() if column is None else (column,))
        return array_entries(_column(self._array, "values"))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """All rows."""
        _refuse_names(columns)
        return array_vectors(_numbers(self._array, "values"))


class _Frame:
    """Columns by name."""

    def __init__(self, columns: Any, keys: Sequence[Any]) -> None:
        self._columns, self._keys = columns, keys
        self.names: Sequence[str] = [str(key) for key in keys]

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """The column of that name, or the only one."""
        (key,) = self._chosen(() if column is None else (column,), single=True)
        return array_entries(self._array(key))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """The columns of these names, or all."""
        keys = self._chosen(columns, single=False)
        parts = [_numbers(self._array(key), str(key)) for key in keys]
        if len({part.size for part in parts}) > 1:
            raise ParameterError("values", [part.size for part in parts], "columns of one length")
        return array_vectors(np.stack(parts, axis=1))

    def _chosen(self, columns: Sequence[str], *, single: bool) -> list[Any]:
        """The keys of the columns to read; a frame's need not be text."""
        chosen = chosen_columns(columns, self.names, single=single)
        return [self._keys[self.names.index(name)] for name in chosen]

    def _array(self, key: Any) -> NDArray[Any]:
        return _column(_present(self._columns[key], str(key)), str(key))


def _present(values: Any, name: str) -> NDArray[Any]:
    """The values as an array, none of which is missing.

    Raises:
        ParameterError: some are, or there are none, or it is no array.
    """
    array = _array_of(values, name)
    if array.ndim == 0 or not array.size:
        raise ParameterError(name, f"shape {array.shape}", "one row a client, at least one")
    missing = _missing(array)
    if isinstance(values, np.ma.MaskedArray):
        missing = missing | np.ma.getmaskarray(values)
    rows = np.unique(np.nonzero(missing)[0])
    if rows.size:
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", …" if rows.size > _SHOWN else "")
        given = f"missing in {rows.size:,} rows"
        raise ParameterError(name, given, f"a value in every row; counted from 0: {shown}")
    return array


def _array_of(values: Any, name: str) -> NDArray[Any]:
    """The values as an array; a list of several types of values as one of objects.

    As numbers or text, its missing values would be numbers or text too.
    """
    try:
        if hasattr(values, "__array__"):
            return np.asarray(values)
        array = np.asarray(values, dtype=object)
        kinds = {type(value) for value in array.flat}
        plain = len(kinds) == 1 and issubclass(kinds.pop(), int | float | str | np.generic)
        return np.asarray(values) if plain else array
    except (TypeError, ValueError) as error:
        raise ParameterError(name, type(values).__name__, f"an array, but {error}") from None


def _missing(array: NDArray[Any]) -> NDArray[np.bool_]:
    """The places of missing values, of the array's shape."""
    if array.dtype.kind in "fcmM":
        return np.isnat(array) if array.dtype.kind in "mM" else np.isnan(array)
    if array.dtype.kind != "O":
        return np.zeros(array.shape, dtype=np.bool_)
    return np.asarray(np.frompyfunc(_is_missing, 1, 1)(array), dtype=np.bool_)


def _is_missing(value: Any) -> bool:
    """Whether it is None, or differs from itself, as NaN does, or will not say, as pandas.NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124
    except TypeError:
        return True


def _column(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The array, of one dimension."""
    if array.ndim != 1 or array.dtype.names:
        raise ParameterError(name, f"shape {array.shape}", "one dimension, one value a client")
    return array


def _numbers(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The array, of numbers; truth values and text are none."""
    if array.dtype.kind == "O":
        kinds = {type(value) for value in array.flat}
        if all(issubclass(kind, Real) and kind not in (bool, np.bool_) for kind in kinds):
            array = array.astype(np.float64)
    if array.dtype.kind not in "iuf" or array.ndim > 2:
        given = f"{array.dtype} of shape {array.shape}"
        raise ParameterError(name, given, "numbers, of shape (clients,) or (clients, dimension)")
    return array


def _refuse_names(columns: Sequence[str]) -> None:
    if columns:
        raise ParameterError("column", columns[0], _UNNAMED)


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
    cost: EstimateCost = found.cost
    sign = "ε₀" if cost.trust == "local" else "ε"
    delta = f", δ = {cost.delta:g}" if cost.delta else ""
    about = "about " if found.clients is None else ""
    return (
        f"{type(found).__name__}({what}, {about}{found.about:,.0f} clients; {cost.trust}, "
        f"{sign} = {rounded_up(cost.epsilon)}{delta}, {cost.relation}, {PrivacyUnit.CLIENT.value})"
    )
