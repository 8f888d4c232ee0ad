"""Data of the user: a file or folder, laid out by client once and memory-mapped afterwards.

`own_data` opens the data that the [data] section of a plan names, and `own_records` the file with
the records of one client.
"""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from turnout.core.errors import InputFileError, ParameterError
from turnout.core.values import canonical
from turnout.data.layout import Tell, all_records, content_digest, kept_layout, lay_out, untold
from turnout.data.records import ClientData, Records
from turnout.data.tables import ArrayTable, CharacterTable, Table
from turnout.plans.data_sections import DataSection

_KINDS = "a .parquet, .csv, .npz or .arrow file, or a folder of .npy or .arrow files or of images"
_STATE, _SPLITS = "state.json", "dataset_dict.json"
_DAMAGED = (
    *(OSError, ValueError, EOFError, KeyError, AttributeError, TypeError, MemoryError),
    *(ArithmeticError, RuntimeError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Exceptions that NumPy raises for a file in another format or a truncated file."""
_MIB = 2**20


def open_table(path: Path) -> Table:
    """Table of a data file or folder of any supported format.

    Raises:
        ParameterError: the file or folder does not exist, or its format is not supported.
        InputFileError: the file is damaged.
        MissingExtraError: pyarrow or Pillow is needed, but not installed.
    """
    if path.is_dir():
        return _folder_table(path)
    if not path.is_file():
        raise ParameterError("data", str(path), f"{_KINDS}, that exists")
    if path.suffix == ".npz":
        return _npz_table(path)
    if path.suffix in (".parquet", ".csv", ".arrow"):
        from turnout.data import arrow_tables

        if path.suffix == ".parquet":
            return arrow_tables.parquet_table(path)
        if path.suffix == ".csv":
            return arrow_tables.CsvTable(path)
        return arrow_tables.arrow_folder(path.parent, [path.name])
    raise ParameterError("data", str(path), _KINDS)


def texts_cut(table: Table, data: DataSection) -> Table:
    """Table with texts cut into records of characters, if ``vocabulary`` lists the characters."""
    if not isinstance(data.vocabulary, str):
        return table
    assert data.inputs is not None
    assert data.length is not None
    if data.inputs[0] not in table.names:
        return table  # refused, with all names, where columns are checked
    return CharacterTable(table, data.inputs[0], data.vocabulary, data.length)


def own_data(
    data: DataSection, folder: Path, tell: Tell = untold, say: Callable[[str], object] = str
) -> ClientData:
    """Data set that the path in a plan's [data] section names.

    Args:
        data: [data] section with a path.
        folder: folder that contains the path.
        tell: progress callback, called with the current activity and the number of rows done.
        say: function that is called with one line of text if a new layout is created.

    Raises:
        ParameterError: a file or column is missing, or a value does not fit the [data] section.
        StorageError: a file is damaged (`InputFileError`), or the cache cannot be written.
    """
    # Open the table, and the separate test set if one is set.
    assert data.path is not None
    path = folder / data.path
    table = open_table(path)
    other = _other_file(table, data, folder)
    held_out = None if other is None else open_table(other)
    # Settings and contents identify the layout; the path of the test set does not matter.
    settings = data.model_dump(mode="json", exclude={"path", "clients", "dealing"})
    digests = [content_digest(one, tell) for one in (path, other) if one is not None]
    if other is not None:
        settings["test"] = None
    # Lay the records out by client, unless the cache has this layout.
    tables = [None if one is None else texts_cut(one, data) for one in (table, held_out)]
    assert tables[0] is not None
    train = tables[0]
    layout, shelf, made = kept_layout(
        [settings, digests], lambda allocate: lay_out(train, data, tables[1], allocate, tell)
    )
    if made:
        size = shelf.size_bytes() / _MIB
        say(f"{data.title} laid out by client in {shelf.folder}: {size:,.1f} MiB, a private copy")
    return layout.client_data(data)


def own_records(data: DataSection, path: Path) -> Records:
    """All records of a file or folder in memory, as the records of one client.

    Args:
        data: columns and constants; the keys path, client and test are ignored.
        path: file or folder of the records.

    Raises:
        ParameterError: a file or column is missing, or a value does not fit the [data] section.
        InputFileError: the file is damaged.
    """
    return all_records(texts_cut(open_table(path), data), data)


def _other_file(table: Table, data: DataSection, folder: Path) -> Path | None:
    """Path of a separate test set; None if the key ``test`` is a fraction or a column."""
    if not isinstance(data.test, str) or canonical(data.test) in table.names:
        return None
    other = folder / data.test
    if other.exists():
        return other
    known = ", ".join(table.names[:20])
    expected = f"a share of the clients, a file that exists, or one of the columns {known}"
    raise ParameterError("test", data.test, expected)


def _folder_table(folder: Path) -> Table:
    """Table of a folder of arrays, of a Hugging Face data set, or of images."""
    # A Hugging Face data set with several splits: the user must choose a split.
    if (folder / _SPLITS).is_file():
        names = _json(folder / _SPLITS).get("splits", [])
        expected = f"one of its splits: {', '.join(str(folder / str(name)) for name in names)}"
        raise ParameterError("data", str(folder), expected)
    # A Hugging Face data set: its state file names the files, which must be in this folder.
    if (folder / _STATE).is_file():
        files = [str(one.get("filename")) for one in _json(folder / _STATE).get("_data_files", [])]
        if not files or any(Path(name).name != name for name in files):
            raise InputFileError(
                f"{folder / _STATE} names files outside this folder: expected names of files in it"
            )
        return _arrow_folder(folder, files)
    # A folder of arrays or of Arrow files; any other folder is read as images.
    for suffix, read in ((".npy", _npy_table), (".arrow", _arrow_folder)):
        if files := sorted(path.name for path in folder.glob(f"*{suffix}")):
            return read(folder, files)
    from turnout.data.images import ImageFolderTable

    return ImageFolderTable(folder)


def _arrow_folder(folder: Path, files: list[str]) -> Table:
    from turnout.data.arrow_tables import arrow_folder

    return arrow_folder(folder, files)


def _json(path: Path) -> dict[str, list]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InputFileError(f"{path} is not a JSON object")
    return found


def _npz_table(path: Path) -> Table:
    """Table of the arrays of an .npz file, loaded into memory."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return ArrayTable({name: arrays[name] for name in arrays.files})
    except ParameterError:
        raise
    except _DAMAGED as error:
        raise InputFileError(f"{path} is not a complete .npz file: {_line(error)}") from None


def _npy_table(folder: Path, files: list[str]) -> Table:
    """Table of memory-mapped .npy files, with the file names as column names."""
    arrays = {}
    for name in files:
        try:
            arrays[Path(name).stem] = np.load(folder / name, mmap_mode="r")
        except _DAMAGED as error:
            raise InputFileError(
                f"{folder / name} is not a complete .npy file: {_line(error)}"
            ) from None
    return ArrayTable(arrays)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
