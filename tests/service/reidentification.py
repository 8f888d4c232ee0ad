"""Attacker with all files of a task, its public models and 200 candidate data sets.

An update is a function of the public model and the records. An attacker who guesses the records can
therefore compute the update, and find the update or its digest in a file together with a client and
a step.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import apsw
import numpy as np

from turnout.service.contract.charter import Charter

CANDIDATES, RECORDS = 200, 8


def data_set(number: int) -> bytes:
    """Records of a candidate."""
    return hashlib.sha256(b"records %d" % number).digest()


def update_of(charter: Charter, model: bytes, records: bytes) -> bytes:
    """Update that a device with these records sends for a model; it involves no randomness."""
    seed = int.from_bytes(hashlib.sha256(model + records).digest(), "big")
    drawn = np.random.default_rng(seed).normal(size=charter.encoding.dimension)
    longest = 0.9 * charter.encoding.clip_norm / charter.encoding.step
    return charter.encoding.encode(
        np.rint(drawn / np.linalg.norm(drawn) * longest).astype(np.int32)
    )


@dataclass(frozen=True)
class Finding:
    """Information that the attacker finds in the files.

    Attributes:
        traces: (candidate, steps of the model) whose update or digest is in the bytes.
        named: (client, step, candidate) found in a row of the database.
        joined: (client, step) found in one row of the database.
    """

    traces: frozenset[tuple[int, int]]
    named: frozenset[tuple[int, int, int]]
    joined: frozenset[tuple[int, int]]


def attack(folder: Path, charter: Charter, models: list[bytes]) -> Finding:
    """Findings of an attacker with 200 candidates and all files in a folder.

    Args:
        folder: folder with the database, its logs and other files.
        charter: public terms of the task.
        models: public model after 0, 1, … steps.
    """
    guesses: dict[bytes, tuple[int, int]] = {}
    for steps, model in enumerate(models):
        for candidate in range(CANDIDATES):
            update = update_of(charter, model, data_set(candidate))
            guesses[update] = guesses[hashlib.sha256(update).digest()] = candidate, steps
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    traces = {guess for data in files.values() for guess in _found(data, guesses)}
    named, joined = _rows(folder / "turnout.sqlite", guesses)
    return Finding(frozenset(traces), frozenset(named), frozenset(joined))


def _found(data: bytes, guesses: dict[bytes, tuple[int, int]]) -> set[tuple[int, int]]:
    """Candidates whose update or digest is in the bytes, found by its first eight bytes."""
    starts: dict[int, list[bytes]] = {}
    for needle in guesses:
        starts.setdefault(int.from_bytes(needle[:8], "little"), []).append(needle)
    wanted, found = np.array(list(starts), dtype="<u8"), set()
    for offset in range(8):
        whole = data[offset : offset + (len(data) - offset) // 8 * 8]
        windows = np.frombuffer(whole, "<u8")
        for place in np.flatnonzero(np.isin(windows, wanted)):
            at = offset + 8 * int(place)
            found |= {
                guesses[needle]
                for needle in starts[int(windows[place])]
                if data[at : at + len(needle)] == needle
            }
    return found


def _rows(path: Path, guesses: dict[bytes, tuple[int, int]]) -> tuple[set, set]:
    with tempfile.TemporaryDirectory() as copies:
        for file in path.parent.glob(path.name + "*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copies)
        return _rows_of_a_copy(Path(copies) / path.name, guesses)


def _rows_of_a_copy(path: Path, guesses: dict[bytes, tuple[int, int]]) -> tuple[set, set]:
    named, joined = set(), set()
    database = apsw.Connection(str(path))
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    for (table,) in database.execute(tables).fetchall():
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        if not {"client", "step"} <= set(columns):
            continue
        for values in database.execute(f"SELECT * FROM {table}"):
            row = dict(zip(columns, values, strict=True))
            joined.add((row["client"], row["step"]))
            for value in values:
                if isinstance(value, bytes) and value in guesses:
                    named.add((row["client"], row["step"], guesses[value][0]))
    database.close()
    return named, joined
