"""Whether model files are those that the ledger released: name, length, numbers, digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from turnout.verification.document import Document
from turnout.verification.terms import Terms
from turnout.verification.verdict import Fault

_STEP_FILE = re.compile(r"step-(\d{6,})\.f32")
INITIAL = "initial.f32"


def step_file(step: int) -> str:
    """Name of the file with the parameters after a step."""
    return f"step-{step:06d}.f32"


def model_faults(folder: Path, document: Document, terms: Terms) -> Iterator[Fault]:
    """What is wrong with a folder that should hold the model after every released step."""
    expected = [(INITIAL, terms.initial_model, None)]
    expected += [(step_file(r.step), r.model_digest, r.step) for r in document.records]
    for name, digest, step in expected:
        try:
            data = (folder / name).read_bytes()
        except OSError:
            yield Fault(f"its model file {name} is missing", step)
            continue
        yield from _content_faults(name, data, digest, terms.dimension, step)
    known = {name for name, _, _ in expected}
    for path in sorted(folder.iterdir()):
        if path.name not in known and (found := _STEP_FILE.fullmatch(path.name)):
            yield Fault(f"{path.name} was released, but is not in the ledger", int(found[1]))


def _content_faults(
    name: str, data: bytes, digest: bytes, dimension: int, step: int | None
) -> Iterator[Fault]:
    if hashlib.sha256(data).digest() != digest:
        yield Fault(f"{name} is not the model whose digest the ledger holds", step)
    elif len(data) != 4 * dimension:
        yield Fault(f"{name} has {len(data)} bytes, {dimension} parameters take 4 each", step)
    elif not np.isfinite(np.frombuffer(data, "<f4")).all():
        yield Fault(f"{name} has parameters that are NaN or infinite", step)
