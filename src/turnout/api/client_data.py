"""Clients' data from files, data frames, arrays, PyTorch data sets or separate clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.values import converting

if TYPE_CHECKING:
    from turnout.data import ClientData
    from turnout.data.tables import Table
    from turnout.plans.data_sections import DataSection

_UNNAMED = {"client": "clients", "inputs": "inputs", "label": "labels"}
"""Names that columns get if the data do not name them."""
_KINDS = (
    "a file's path, a frame, a mapping of columns, arrays (inputs, labels) or (inputs, labels, "
    "clients), a data set of PyTorch, or clients as {client: (inputs, labels)}"
)


def client_data(
    source: Any,
    *,
    client: str | Sequence[Any] | None = None,
    inputs: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    test: Any = None,
    target: str | None = None,
    classes: int | Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    scaling: Mapping[str, tuple[float, float]] | None = None,
    missing: Mapping[str, float | str] | None = None,
    vocabulary: int | str | None = None,
    length: int | None = None,
    progress: bool = False,
) -> ClientData:
    """Records of clients for training with ``turnout.train(plan, data=…)``.

    Classes, categories, scalings, the vocabulary and replacements of missing values are public
    constants that the caller knows. No constant is computed from the data, which are private: a
    statistic of private data needs a privacy guarantee, such as that of
    `turnout.estimate_frequencies` or `turnout.estimate_mean`.

    Args:
        source: source of the records, one of:

            * the path of a file or folder, as in a plan's ``data.path``; its records are copied
              once, sorted by client, into memory-mapped files in the cache;
            * a frame of pandas, polars or pyarrow, any other object that exports Arrow columns, or
              a mapping from column names to arrays;
            * arrays ``(inputs, labels)`` or ``(inputs, labels, clients)``, each with one entry for
              each record;
            * a PyTorch data set that has a length and consists of pairs (input, label);
            * clients: ``{id: (inputs, labels)}`` or an iterable of ``(id, (inputs, labels))``.
        client: name of the column of ids (text or whole numbers); for arrays and data sets the ids
            themselves. If None, the records have no client ids, and the plan assigns each record to
            a client.
        inputs: names of the columns that are the model's inputs, or of one column of arrays.
        label: name of the column to predict, or of several columns of numbers or tags.
        test: test records, on which the model is evaluated; no ε covers them. They are given in
            one of three forms: the fraction of the clients to hold out, chosen by a hash of the
            ids; the name of a column of true and false; or another source.
        target: "class", "tags", "numbers" or "tokens". The default is "class" if ``classes`` is
            given; otherwise the label's type decides, and it is an error if several targets fit.
        classes: number of classes, or the list of their names.
        categories: for each input column of text, the list of its possible values.
        scaling: for each column of numbers, the two values that are mapped to 0 and 1.
        missing: for each column, the text or number that replaces a missing value; a column that is
            not listed must have no missing value.
        vocabulary: number of different tokens, or a text of all characters, if inputs are tokens.
        length: number of tokens of a record, if ``vocabulary`` is a text of all characters.
        progress: whether to show on the terminal how much of a file has been read.

    Returns:
        The clients' records, for the argument ``data`` of `train`.

    Raises:
        ParameterError: a column is unknown, a value is missing or out of range, or a client has no
            records.
        StorageError: a file is damaged.

    >>> visits = {"who": ["ann", "ann", "ben", "cy"], "age": [40, 41, 50, 60], "ill": [0, 1, 1, 0]}
    >>> test = {"age": [30], "ill": [0]}
    >>> data = client_data(visits, client="who", inputs="age", label="ill", classes=2, test=test)
    >>> data.holdings.population, len(data.train), len(data.test)
    (3, 4, 1)
    """
    from turnout.data.layout import lay_out
    from turnout.data.own import texts_cut

    # The keys of a plan's data section.
    keys: dict[str, Any] = {
        "inputs": inputs,
        "label": label,
        "target": target,
        "classes": classes,
        "categories": categories,
        "scaling": scaling,
        "missing": missing,
        "vocabulary": vocabulary,
        "length": length,
    }
    # A file or folder is read as a plan reads it.
    if isinstance(source, str | os.PathLike):
        return _of_file(source, {**keys, "client": client, "test": test}, progress)
    # Data in memory become a table; columns without names get fixed names.
    table, ids = _table(source, client)
    if ids is not None:
        names = _UNNAMED if ids else {key: _UNNAMED[key] for key in ("inputs", "label")}
        keys |= {key: name for key, name in names.items() if keys.get(key) is None}
    else:
        keys["client"] = client
    # A test set is a share of the clients, or data of its own.
    share = isinstance(test, str) or np.isscalar(test) or test is None
    other = None if share else _table(test, None)[0]
    section = _section(keys | {"test": test if share else None})
    # Texts are cut, and the records are laid out by client.
    tables = [None if one is None else texts_cut(one, section) for one in (table, other)]
    assert tables[0] is not None
    return lay_out(tables[0], section, tables[1]).client_data(section)


def _section(keys: Mapping[str, Any]) -> DataSection:
    """Table [data] of a plan, from the arguments of `client_data` by their names.

    Raises:
        ParameterError: a key has an invalid value; the error names the argument.
    """
    from pydantic import ValidationError

    from turnout.plans.data_sections import DataSection
    from turnout.plans.refusals import refusal

    try:
        return DataSection.model_validate(dict(keys))
    except ValidationError as error:
        raise refusal(error, DataSection) from None


def _of_file(source: str | os.PathLike[str], keys: Mapping[str, Any], progress: bool) -> ClientData:
    """Records of a file or folder; a relative path is relative to the current folder."""
    from turnout.data.own import own_data

    test = keys["test"]
    test = os.fspath(test) if isinstance(test, os.PathLike) else test
    section = _section({**keys, "path": os.fspath(source), "test": test})
    if not progress:
        return own_data(section, Path())
    from turnout.reporting.console import Console

    with Console().phase("reading the data") as phase:
        return own_data(section, Path(), phase.rows, phase.note)


def _table(source: Any, client: Any) -> tuple[Table, bool | None]:
    """Pair of the source as a table and a flag: whether the source contains client ids.

    The flag is None if the source has named columns, since ``client`` then names the column of ids.

    Raises:
        InputFileError: code of the source's own library fails, or a value cannot be converted.
    """
    with converting("source"):
        return _converted(source, client)


def _converted(source: Any, client: Any) -> tuple[Table, bool | None]:
    """Result of `_table`; an error of the source's library is raised unchanged."""
    from turnout.data.tables import ArrayTable

    # Data frames and mappings of columns are tables already.
    if hasattr(source, "__arrow_c_stream__"):
        from turnout.data.arrow_tables import frame_table

        return frame_table(source), None
    if isinstance(source, Mapping) and not _are_clients(source.values()):
        return ArrayTable(source), None
    # Arrays, a dataset, or a sequence of clients.
    if isinstance(source, tuple) and len(source) in (2, 3):
        names = ("inputs", "labels", "clients")
        arrays: dict[str, Any] = dict(zip(names, source, strict=False))
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__") and not _is_plain(source):
        arrays = _of_dataset(source)
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | np.ndarray):
        arrays = _of_clients(source.items() if isinstance(source, Mapping) else source)
    else:
        raise ParameterError("source", type(source).__name__, _KINDS)
    # Ids that are given separately.
    if client is not None:
        if isinstance(client, str) or "clients" in arrays:
            raise ParameterError(
                "client", client, "one id for each record, or no value if the source has ids"
            )
        arrays["clients"] = client
    return ArrayTable(arrays), "clients" in arrays


def _are_clients(values: Iterable[Any]) -> bool:
    """Whether the source is a sequence of pairs (inputs, labels), one pair for each client."""
    first = next(iter(values), None)
    return isinstance(first, tuple) and len(first) == 2


def _is_plain(source: Any) -> bool:
    return isinstance(source, Mapping | list | tuple | str | bytes | np.ndarray)


def _of_dataset(source: Any) -> dict[str, Any]:
    """Arrays of a dataset that returns a pair (input, label) for each index."""
    first = source[0] if len(source) else None
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise ParameterError("source", type(source).__name__, _KINDS)
    pairs = [source[number] for number in range(len(source))]
    return {
        "inputs": [x if isinstance(x, str) else np.asarray(x) for x, _ in pairs],
        "labels": [y if isinstance(y, str) else np.asarray(y) for _, y in pairs],
    }


def _of_clients(clients: Iterable[Any]) -> dict[str, Any]:
    """Arrays of all clients' records, concatenated in the order of the clients.

    Raises:
        ParameterError: a client has no records, or its numbers of inputs and labels differ.
    """
    from turnout.data.tables import plain_array

    inputs, labels, names, counts = [], [], [], []
    # Each client has at least one record, and all records have one shape.
    for entry in clients:
        name, held = _pair(entry)
        x, y = map(plain_array, held)
        if not len(x) or len(x) != len(y):
            given = f"{len(x)} inputs and {len(y)} labels"
            raise ParameterError(
                f"client {name!r}", given, "at least one record, each with a label"
            )
        if inputs and x.shape[1:] != inputs[0].shape[1:]:
            expected = f"inputs of shape {inputs[0].shape[1:]}, like those of other clients"
            raise ParameterError(f"client {name!r}", x.shape[1:], expected)
        inputs.append(x)
        labels.append(y)
        names.append(name)
        counts.append(len(x))
    # Without clients there is no array to concatenate.
    if not names:
        raise ParameterError("source", "no clients", _KINDS)
    # Records of all clients in a row, each with its client.
    return {
        "inputs": _joined(inputs),
        "labels": _joined(labels),
        "clients": [name for name, count in zip(names, counts, strict=True) for _ in range(count)],
    }


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenation of arrays: a masked array if one of the arrays is masked."""
    masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
    return np.ma.concatenate(parts) if masked else np.concatenate(parts)


def _pair(entry: Any) -> tuple[Any, Any]:
    """Entry of a client as (id, (inputs, labels))."""
    try:
        name, (x, y) = entry
    except (TypeError, ValueError):
        raise ParameterError("source", type(entry).__name__, _KINDS) from None
    if not all(hasattr(part, "__len__") for part in (x, y)):
        raise ParameterError("source", type(entry).__name__, _KINDS)
    return name, (x, y)
