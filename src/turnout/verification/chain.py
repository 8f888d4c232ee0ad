"""Whether records follow on each other and say what the charter says, and models are theirs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from turnout.verification.document import Document, RecordLine
from turnout.verification.terms import Terms
from turnout.verification.verdict import Fault


def chain_faults(document: Document, terms: Terms) -> Iterator[Fault]:
    """The faults of the records and the head, in the order of the file."""
    due, previous, spent = 0, bytes.fromhex(document.task), 0.0
    seen: set[int] = set()
    for record in document.records:
        yield from _place_faults(record, document.task, due, previous, seen)
        yield from _charge_faults(record, terms, spent)
        seen.add(record.step)
        due, previous, spent = record.step + 1, record.digest, max(spent, record.epsilon)
    yield from _head_faults(document, terms, previous)


def _place_faults(
    record: RecordLine, task: str, due: int, previous: bytes, seen: set[int]
) -> Iterator[Fault]:
    step = record.step
    if record.task != task:
        yield Fault(f"belongs to the task {record.task[:16]}…, not to this charter", step)
    if step in seen:
        yield Fault("stands in the ledger twice", step)
    elif step > due:
        yield Fault(f"is missing: step {step} comes in its place", due)
    elif step < due:
        yield Fault(f"comes where step {due} is due", step)
    if record.previous != previous:
        before = "the charter" if step == 0 else "the record before it"
        yield Fault(f"does not hold the digest of {before}", step)


def _charge_faults(record: RecordLine, terms: Terms, spent: float) -> Iterator[Fault]:
    step, epsilon = record.step, record.epsilon
    if record.delta != terms.delta:
        yield Fault(f"delta = {record.delta!r}, the charter says {terms.delta!r}", step)
    if epsilon < spent:
        yield Fault(f"epsilon falls from {spent!r} to {epsilon!r}", step)
    if epsilon > terms.target:
        yield Fault(f"epsilon = {epsilon!r} is above the target {terms.target!r}", step)
    if step >= terms.steps:
        yield Fault(f"the run ends after {terms.steps} steps", step)
    elif epsilon != (due := terms.charge(step + 1)):
        yield Fault(f"epsilon = {epsilon!r}, the charter charges {due!r}", step)


def _head_faults(document: Document, terms: Terms, last: bytes) -> Iterator[Fault]:
    head, released = document.head, len(document.records)
    if head.steps != released:
        yield Fault(
            f"the head says that {head.steps} steps are released, the ledger has {released}",
            min(head.steps, released),
        )
    elif head.digest != last:
        yield Fault("the head holds another digest than the last record's", released - 1)
    if not _signed(terms.coordinator_key, head.signature, head.signed(document.task)):
        step = released - 1 if released else None
        yield Fault("the head is not signed by the charter's coordinator", step)


def _signed(key: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


_STEP_FILE = re.compile(r"step-(\d{6,})\.f32")


def model_faults(folder: Path, document: Document, terms: Terms) -> Iterator[Fault]:
    """The faults of a folder that should hold the model after every released step."""
    expected = [("initial.f32", terms.initial_model, None)]
    expected += [(f"step-{r.step:06d}.f32", r.model_digest, r.step) for r in document.records]
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
