"""Output of a command, in parts that can be compared: numbers bit for bit."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DRAWN = {".svg", ".png", ".pdf", ".html"}
"""Files that are drawn from numbers which are compared in other files."""
_TIMES = re.compile(r"\d+(\.\d+)? ?(s|ms|min|seconds|steps/s)\b|\bin \d+\.\d+")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Part:
    """One output stream or file.

    Attributes:
        whole: the whole text, except times.
        numbers: its numbers, floats in hexadecimal.
        ordered: whether the order of the numbers counts; in JSON it does not.
    """

    whole: str
    numbers: list[str]
    ordered: bool = True


def same(before: Part | None, now: Part | None) -> str:
    """Verdict: same, words (equal numbers, other words or names) or different."""
    if before is None:
        return "words"
    if now is None:
        return "different"
    if before.whole == now.whole:
        return "same"
    if before.ordered or now.ordered:
        left = iter(now.numbers)
        kept = all(number in left for number in before.numbers)
    else:
        kept = not Counter(before.numbers) - Counter(now.numbers)
    return "words" if kept and before.numbers else "different"


def of_text(text: str) -> Part:
    """Part for printed text: JSON by its leaves, other text by its characters."""
    try:
        leaves = list(_leaves(json.loads(text), ""))
    except ValueError:
        masked = _TIMES.sub("#", text)
        return Part(masked, _NUMBER.findall(masked))
    numbers = [value for _, value, is_number in leaves if is_number]
    return Part("\n".join(f"{path} {value}" for path, value, _ in leaves), numbers, False)


_NAMES = {"format", "fingerprint", "data_key", "data_digest"}
"""Text of a checkpoint with its version and the names of settings, without numbers."""


PLACE = "place.txt"
"""Key for the folder in which a run was started, which differs between the versions."""


def of_file(path: Path) -> Part:
    """Part for a written file."""
    if path.name == PLACE or path.suffix in DRAWN:
        word = "place" if path.name == PLACE else "drawn"
        return Part(word, [word])
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held if _timeless(name) and name not in _NAMES}
        # One version may store an accumulator of zeros that the other omits.
        digests = {name: _digest(a.tobytes()) for name, a in arrays.items() if a.any()}
        return Part(json.dumps(digests), list(digests.values()), False)
    if path.suffix == ".safetensors":
        return _of_tensors(path.read_bytes())
    if path.suffix == ".csv":
        return _of_table(path.read_text())
    data = path.read_bytes()
    try:
        return of_text(data.decode())
    except UnicodeDecodeError:
        return Part(_digest(data), [_digest(data)])


def _of_tensors(data: bytes) -> Part:
    """Tensors by their names, shapes and bytes; the metadata of a model file are words."""
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    tensors = f"{json.dumps(header, sort_keys=True)} {_digest(data[begin:])}"
    return Part(f"{tensors} {json.dumps(metadata, sort_keys=True)}", [tensors])


def _of_table(text: str) -> Part:
    rows = list(csv.reader(io.StringIO(text)))
    timed = {place for place, title in enumerate(rows[0]) if not _timeless(title)}
    kept = [[cell for place, cell in enumerate(row) if place not in timed] for row in rows]
    return Part(json.dumps(kept), [cell for row in kept[1:] for cell in row])


def _leaves(value: object, path: str) -> Iterator[tuple[str, str, bool]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if _timeless(key):
                yield from _leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]")
    elif isinstance(value, float):
        yield path, value.hex(), True
    elif isinstance(value, str):
        masked = _TIMES.sub("#", value)
        yield path, masked, False
        yield from ((f"{path}~", number, True) for number in _NUMBER.findall(masked))
    else:
        yield path, json.dumps(value), value is not None


def _timeless(name: str) -> bool:
    return "seconds" not in name or name.endswith(("step_seconds", "check_in_seconds"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
