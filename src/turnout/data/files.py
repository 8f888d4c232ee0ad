"""Published data files: searched in the TURNOUT_DATA folder, the cache and at mirrors.

A `DataFile` describes a file; `contents` finds, checks and reads the file. The check compares the
SHA-256 of the *decompressed* contents, so a file that was compressed again is valid, and a
truncated or altered file is an error. `first_names` reads how often each first name was given to
children born in the United States in 2017.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import http.client
import io
import os
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import StorageError

DATA_VARIABLE = "TURNOUT_DATA"
"""Environment variable that names a folder with data files."""
OFFLINE_VARIABLE = "TURNOUT_OFFLINE"
"""Environment variable that forbids downloads if its value is not 0."""
_TIMEOUT_SECONDS = 60.0


class MissingFileError(StorageError):
    """Error about a data file that was not found; the message explains how to get the file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """Published gzip file, identified by its checksum, and its download addresses.

    Attributes:
        path: path below a data folder, for example ``mnist/train-labels-idx1-ubyte.gz``.
        sha256: SHA-256 of the decompressed contents.
        mirrors: official addresses, tried in turn; empty if the license forbids a mirror.
    """

    path: str
    sha256: str
    mirrors: tuple[str, ...] = ()


def folders() -> list[Path]:
    """Folders that are searched for data files, in the order of the search."""
    named = os.environ.get(DATA_VARIABLE)
    return [*([Path(named)] if named else []), cache_folder()]


def cache_folder() -> Path:
    """Cache folder of the user: ``$XDG_CACHE_HOME/turnout``, else ``~/.cache/turnout``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "turnout"


def contents(file: DataFile, fetch: Callable[[str], bytes] | None = None) -> bytes:
    """Decompressed contents of a published data file, checked against its SHA-256.

    Args:
        file: the file to find.
        fetch: function that returns the bytes at an address; None downloads them.

    Raises:
        MissingFileError: the file is in no folder, and no mirror sends it.
        StorageError: the file is not a gzip file, or has other contents than the published file.
    """
    for folder in folders():
        place = folder / file.path
        if place.is_file():
            return _checked(_unpacked(place.read_bytes(), str(place)), file, str(place))
    return _downloaded(file, fetch or _fetched)


def _downloaded(file: DataFile, fetch: Callable[[str], bytes]) -> bytes:
    """Decompressed contents from the first mirror that answers, also stored in the cache."""
    # The reason that the error gives if no mirror sends the file.
    reason = "the file is not offered for download"
    mirrors = file.mirrors
    if mirrors and os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
        mirrors, reason = (), f"{OFFLINE_VARIABLE} forbids downloads"
    # Try the mirrors in order; contents with another hash are an error, not a reason to go on.
    for address in mirrors:
        try:
            packed = fetch(address)
        except (OSError, http.client.HTTPException) as error:
            reason = f"{address} does not answer ({_one_line(error)})"
            continue
        data = _checked(_unpacked(packed, address), file, address)
        _keep(packed, cache_folder() / file.path)
        return data
    # No mirror sent the file: the last reason and the remedy.
    raise MissingFileError(
        f"data file {file.path} not found ({reason}): put the file below a folder named by "
        f"{DATA_VARIABLE} or below {cache_folder()}"
    )


def _fetched(address: str) -> bytes:
    """Bytes downloaded from an address."""
    request = urllib.request.Request(address, headers={"User-Agent": "turnout"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        return answer.read()


def _unpacked(packed: bytes, where: str) -> bytes:
    """Decompressed contents of a gzip file; ``where`` is the file's name in errors."""
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(f"{where} is not a gzip file: {_one_line(error)}") from error


def _checked(data: bytes, file: DataFile, where: str) -> bytes:
    """Decompressed contents, after a check of their SHA-256."""
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise StorageError(
            f"{where} is not the published {file.path}: its contents have SHA-256 {found}, "
            f"expected {file.sha256}"
        )
    return data


def _keep(packed: bytes, place: Path) -> None:
    """Store a download in the cache atomically; a cache that cannot be written is ignored."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as partial:
            partial.write(packed)
        os.replace(partial.name, place)
    except OSError:
        return


def _one_line(error: BaseException) -> str:
    """Message of an exception without line breaks."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return " ".join(str(reason).split()) or type(error).__name__


_FILE = DataFile(
    "names/ssa_names_2017_counts.csv.gz",
    "ea0a4a88283119e27220b948dda7d8a1479c91d07e87c7ecc3564b59f5fd100f",
)


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """Number of people who hold each item, with the most frequent item first.

    Attributes:
        items: name of each item, shape (k,).
        counts: number of people who hold each item, int64, shape (k,).
    """

    items: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def people(self) -> int:
        """Number of people, n."""
        return int(self.counts.sum())

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Share of the people who hold each item, shape (k,)."""
        return self.counts / self.people

    def holdings(self) -> NDArray[np.int64]:
        """Item index of each person, int64 of shape (n,), sorted by item."""
        return np.repeat(np.arange(len(self.items)), self.counts)


def first_names(top: int | None = None) -> ItemCounts:
    """Number of children, of both sexes, who received each US first name in 2017.

    Args:
        top: number of the most frequent names to keep, at least 1; None keeps all.

    Raises:
        ParameterError: ``top`` is not a whole number from 1 to the number of names.
        MissingFileError: the file is in no folder, and no mirror sends it.
        StorageError: the file is damaged.

    Source: US Social Security Administration, national data of baby names (names given to fewer
        than five children of a sex are not in it); 29,910 names of 3,546,301 children.
    """
    text = contents(_FILE).decode()
    try:
        rows = [(row["name"], int(row["n"])) for row in csv.DictReader(io.StringIO(text))]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{_FILE.path} is not a table of names and numbers: {error}") from error
    rows.sort(key=lambda row: (-row[1], row[0]))
    if top is not None:
        checks.count(top=top)
        checks.at_most("names", len(rows), top=top)
        rows = rows[:top]
    return ItemCounts(tuple(name for name, _ in rows), np.array([n for _, n in rows]))
