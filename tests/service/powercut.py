"""Simulated disk with power cuts: synced data survive, and of other writes a random subset.

A layer below SQLite logs writes and syncs. For any position in the log, the disk can be rebuilt as
it might be found after a power cut: all synced data, and any sectors of later writes. Real files
serve SQLite only while it runs; nothing is really synced.
"""

# ruff: noqa: N802  (names that apsw prescribes)

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

NAME = "power-cut"

Entry = tuple[Any, ...]
"""("write", file, offset, bytes), ("truncate", file, size), ("sync", file), ("delete", file), or
whatever a test notes."""


class _LoggedFile(apsw.VFSFile):
    def __init__(self, layer: PowerCutLayer, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._layer, self._name = layer, Path(path).name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._layer.log.append(("write", self._name, offset, data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._layer.log.append(("truncate", self._name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._layer.log.append(("sync", self._name))


class PowerCutLayer(apsw.VFS):
    """SQLite VFS registered as `NAME` while it exists; ``log`` contains all writes and syncs."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        super().__init__(NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file, which is not read after a power cut
            return super().xOpen(name, flags)
        return _LoggedFile(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self.log.append(("delete", Path(name).name))
        super().xDelete(name, sync)


@dataclass
class _File:
    """Simulated file: its synced bytes (None without a folder entry) and its later writes."""

    synced: bytearray | None = None
    later: list[Entry] = field(default_factory=list)
    deleted: bool = False

    def apply(self, entry: Entry) -> None:
        if entry[0] == "sync":
            self.synced = bytearray() if self.synced is None else self.synced
            for late in self.later:
                _apply(self.synced, late)
            self.later.clear()
        elif entry[0] == "delete":
            self.deleted = True
        else:
            if self.deleted:  # a new file with that name
                self.synced, self.later, self.deleted = None, [], False
            self.later.append(entry)

    def after_a_cut(self, rng: random.Random) -> bytes | None:
        """Contents after a power cut; None if the file does not exist."""
        if self.deleted and rng.random() < 0.5:
            return None
        if self.synced is None and (not self.later or rng.random() < 0.2):
            return None
        image = bytearray(self.synced or b"")
        sector, kept = rng.choice((512, 4096)), rng.choice((0.0, 0.1, 0.5, 0.9, 0.99, 1.0))
        for late in self.later:
            for piece in _pieces(late, sector):
                if rng.random() < kept:
                    _apply(image, piece)
        return bytes(image)


def _apply(image: bytearray, entry: Entry) -> None:
    if entry[0] == "truncate":
        del image[entry[2] :]
        return
    _, _, offset, data = entry
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _pieces(entry: Entry, sector: int) -> Iterator[Entry]:
    """Write split into sectors of the disk; other log entries stay whole."""
    if entry[0] != "write":
        yield entry
        return
    _, name, offset, data = entry
    start = 0
    while start < len(data):
        end = min(len(data), start + sector - (offset + start) % sector)
        yield ("write", name, offset + start, data[start:end])
        start = end


class Disk:
    """State of the simulated disk while a log is replayed.

    Args:
        files: synced files at the beginning.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = {name: _File(bytearray(data)) for name, data in files.items()}

    def apply(self, entry: Entry) -> None:
        """Apply one entry of the log; notes of tests change nothing."""
        if entry[0] not in ("write", "truncate", "sync", "delete"):
            return
        file = self._files.setdefault(entry[1], _File())
        if entry[0] == "sync" and file.synced is None and not entry[1].endswith(".sqlite"):
            # SQLite's layer for Unix syncs the folder with a journal's or log's first sync.
            self._files = {n: f for n, f in self._files.items() if not f.deleted}
        file.apply(entry)

    def after_a_cut(self, rng: random.Random) -> dict[str, bytes]:
        """Files that might be found after a power cut at this position."""
        found = {name: file.after_a_cut(rng) for name, file in self._files.items()}
        return {name: data for name, data in found.items() if data is not None}
