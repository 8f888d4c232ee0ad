"""A disk whose power is cut: what was synced stays, of the rest a torn subset.

A layer below SQLite logs writes and syncs. For any moment of the log the disk can be built as it
might be found after a power cut then: all that was synced, and of the later writes any pieces of
the size of a sector. Real files only serve SQLite while it runs; nothing is really synced.
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
    """The layer, registered with SQLite as `NAME` while it exists; ``log`` is all it has seen."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        super().__init__(NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file: nobody looks for it after a power cut
            return super().xOpen(name, flags)
        return _LoggedFile(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self.log.append(("delete", Path(name).name))
        super().xDelete(name, sync)


@dataclass
class _File:
    """A file on the disk: its synced bytes (None: no entry in its folder), and what came after."""

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
            if self.deleted:  # a new file by that name
                self.synced, self.later, self.deleted = None, [], False
            self.later.append(entry)

    def after_a_cut(self, rng: random.Random) -> bytes | None:
        """What is found; None where there is no such file."""
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
    """A write by sectors of the disk; anything else is one piece."""
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
    """The state of a disk while a log is read.

    Args:
        files: what it holds at the beginning, synced.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = {name: _File(bytearray(data)) for name, data in files.items()}

    def apply(self, entry: Entry) -> None:
        """Go on by one entry of the log; notes of tests change nothing."""
        if entry[0] not in ("write", "truncate", "sync", "delete"):
            return
        file = self._files.setdefault(entry[1], _File())
        if entry[0] == "sync" and file.synced is None and not entry[1].endswith(".sqlite"):
            # SQLite's layer for Unix syncs the folder with a journal's or log's first sync.
            self._files = {n: f for n, f in self._files.items() if not f.deleted}
        file.apply(entry)

    def after_a_cut(self, rng: random.Random) -> dict[str, bytes]:
        """What might be found if the power were cut now."""
        found = {name: file.after_a_cut(rng) for name, file in self._files.items()}
        return {name: data for name, data in found.items() if data is not None}
