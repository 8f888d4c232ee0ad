"""Verification of a ledger file: the order of the checks, and the printed verdict.

`verify` is the entry; `chain_faults` checks that records follow each other and agree with the
charter, `model_faults` that model files match the records, and `show` prints the verdict.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.verification.cost import least, recomputed
from turnout.verification.document import (
    Cost,
    DamagedError,
    Document,
    DocumentTerms,
    LedgerFault,
    NotInstalledError,
    RecordLine,
    VerificationOutcome,
    VerificationVerdict,
    decode_terms,
    head_of,
    parsed,
)


def chain_faults(document: Document, terms: DocumentTerms) -> Iterator[LedgerFault]:
    """Faults of the records and the head, in the order of the file; none if the chain is intact."""
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
) -> Iterator[LedgerFault]:
    step = record.step
    if record.task != task:
        yield LedgerFault(f"belongs to the task {record.task[:16]}…, not to this charter", step)
    if step in seen:
        yield LedgerFault("is in the ledger more than once", step)
    elif step > due:
        yield LedgerFault(f"is missing: the next record is of step {step}", due)
    elif step < due:
        yield LedgerFault(f"is out of order: expected the record of step {due}", step)
    if record.previous != previous:
        before = "the charter" if step == 0 else "the record before it"
        yield LedgerFault(f"does not hold the digest of {before}", step)


def _charge_faults(record: RecordLine, terms: DocumentTerms, spent: float) -> Iterator[LedgerFault]:
    step, epsilon = record.step, record.epsilon
    if record.delta != terms.delta:
        yield LedgerFault(f"delta = {record.delta!r}, the charter states {terms.delta!r}", step)
    if epsilon < spent:
        yield LedgerFault(f"epsilon falls from {spent!r} to {epsilon!r}", step)
    if epsilon > terms.target:
        yield LedgerFault(f"epsilon = {epsilon!r} is above the target {terms.target!r}", step)
    if step >= terms.steps:
        yield LedgerFault(f"the run ends after {terms.steps} steps", step)
    elif epsilon != (due := terms.charge(step + 1)):
        yield LedgerFault(f"epsilon = {epsilon!r}, the charter charges {due!r}", step)


def _head_faults(document: Document, terms: DocumentTerms, last: bytes) -> Iterator[LedgerFault]:
    head, released = document.head, len(document.records)
    if head.steps != released:
        yield LedgerFault(
            f"the head states {head.steps} released steps, but the ledger has {released}",
            min(head.steps, released),
        )
    elif head.digest != last:
        yield LedgerFault("the head has another digest than the last record", released - 1)
    if not _signed(terms.coordinator_key, head.signature, head.signed(document.task)):
        step = released - 1 if released else None
        yield LedgerFault("the head is not signed with the coordinator's key in the charter", step)


def _signed(key: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


_STEP_FILE = re.compile(r"step-(\d{6,})\.f32")


def model_faults(folder: Path, document: Document, terms: DocumentTerms) -> Iterator[LedgerFault]:
    """Faults of a folder that should hold the initial model and the model after every step."""
    expected = [("initial.f32", terms.initial_model, None)]
    expected += [(f"step-{r.step:06d}.f32", r.model_digest, r.step) for r in document.records]
    for name, digest, step in expected:
        try:
            data = (folder / name).read_bytes()
        except OSError:
            yield LedgerFault(f"its model file {name} is missing", step)
            continue
        yield from _content_faults(name, data, digest, terms.dimension, step)
    known = {name for name, _, _ in expected}
    for path in sorted(folder.iterdir()):
        if path.name not in known and (found := _STEP_FILE.fullmatch(path.name)):
            yield LedgerFault(f"{path.name} was released, but is not in the ledger", int(found[1]))


def _content_faults(
    name: str, data: bytes, digest: bytes, dimension: int, step: int | None
) -> Iterator[LedgerFault]:
    if hashlib.sha256(data).digest() != digest:
        yield LedgerFault(f"{name} is not the model whose digest the ledger holds", step)
    elif len(data) != 4 * dimension:
        yield LedgerFault(f"{name} has {len(data)} bytes: expected {4 * dimension}", step)
    elif not np.isfinite(np.frombuffer(data, "<f4")).all():
        yield LedgerFault(f"{name} has parameters that are NaN or infinite", step)


_EARLIER_POINTS = 3
"""Number of steps before the last step at which the lower bound on ε is recomputed as well."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Head that a ledger had earlier: its number of steps, and the digest of its last record."""

    steps: int
    digest: bytes

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Head from the text ``steps:digest``; a signature after a second colon is ignored.

        Raises:
            ParameterError: the text has another form.
        """
        try:
            return cls(*head_of(":".join(text.strip().split(":")[:2])))
        except ValueError:
            expected = "STEPS:DIGEST, a number of steps and 64 lower-case hexadecimal digits"
            raise ParameterError("head", text, expected) from None


def verify(
    data: bytes, known: KnownHead | None = None, models: Path | None = None
) -> VerificationVerdict:
    """Verdict on an exported ledger, from its bytes alone.

    The cost is recomputed only if no other fault is found. Faults are in the verdict; no error is
    raised.

    Args:
        data: bytes of the ledger's file.
        known: head seen earlier, which the ledger must continue; None compares no head.
        models: folder with the released models, whose digests are compared with the ledger.
    """
    # A damaged file has no other faults.
    task = ""
    try:
        document = parsed(data)
        task = document.task
        terms = decode_terms(document.charter)
    except DamagedError as error:
        return VerificationVerdict(task=task, faults=(error.fault,))
    except NotInstalledError as error:
        return VerificationVerdict(task=task, not_checked=str(error))
    # Faults of the chain, of a head that was seen before, and of the models.
    faults = list(chain_faults(document, terms))
    if known is not None:
        faults += _known_faults(document, known)
    if models is not None:
        faults += model_faults(models, document, terms)
    # The verdict without a recomputed ε; faults make a recomputation useless.
    last = document.records[-1] if document.records else None
    scheme = terms.scheme
    found = VerificationVerdict(
        task=document.task,
        steps=len(document.records),
        head=f"{document.head.steps}:{document.head.digest.hex()}",
        epsilon=last.epsilon if last else 0.0,
        delta=terms.delta,
        relation=f"{scheme.relation.value}, one {scheme.unit.value}, {scheme.trust.value} trust",
        faults=tuple(faults),
        models=None if models is None else len(document.records) + 1,
    )
    return found if faults else _priced(found, document, terms)


def _known_faults(document: Document, known: KnownHead) -> Iterator[LedgerFault]:
    """Faults of a ledger that is older than a head seen earlier, or does not continue it."""
    # An older ledger cannot be compared.
    released = len(document.records)
    if known.steps > released:
        yield LedgerFault(
            f"this ledger is older than the known head: the ledger has {released} steps, "
            f"the head {known.steps}",
            released,
        )
        return
    # The digest after the known number of steps; after 0 steps it is the charter's.
    here = document.records[known.steps - 1].digest if known.steps else bytes.fromhex(document.task)
    if here != known.digest:
        place = f"step {known.steps - 1}" if known.steps else "the charter"
        yield LedgerFault(
            f"this ledger forks from the known head: the records up to {place} differ",
            max(known.steps - 1, 0),
        )


def _priced(
    found: VerificationVerdict, document: Document, terms: DocumentTerms
) -> VerificationVerdict:
    """Verdict with ε recomputed where an independent analysis exists."""
    # Without an independent analysis ε stays as the ledger claims it.
    if not document.records:
        return replace(found, method="nothing is released")
    try:
        costs, method = _costs(document, terms)
    except (UnsupportedError, NumericalError) as error:
        return replace(found, not_recomputed=str(error))
    # A claimed ε below the lower bound is a fault: more privacy was spent than the ledger states.
    faults = tuple(
        LedgerFault(
            f"claims too little: epsilon = {cost.claimed:.6g} after this step, "
            f"but at least {cost.lower:.6g} is spent",
            cost.steps - 1,
        )
        for cost in costs
        if not cost.enough
    )
    # A claimed ε above the upper bound is allowed, since it errs on the safe side.
    remarks = tuple(
        f"the ledger charges ε = {cost.claimed:.6g}, but at most {cost.upper:.6g} can be spent; "
        "this is allowed, since a larger ε errs on the safe side"
        for cost in costs
        if cost.loose
    )
    return replace(found, faults=faults, costs=tuple(costs), method=method, remarks=remarks)


def _costs(document: Document, terms: DocumentTerms) -> tuple[list[Cost], str]:
    """Costs after some numbers of steps, the last one with an upper bound too, and the method."""
    released = len(document.records)
    before = [steps for steps in terms.charged_steps if 0 < steps < released]
    some = range(min(_EARLIER_POINTS, len(before)))
    points = [before[i * len(before) // len(some)] for i in some]
    costs = [
        Cost(steps, terms.charge(steps), least(terms.scheme, steps, terms.delta))
        for steps in points
    ]
    bounds, method = recomputed(terms.scheme, released, terms.delta)
    costs.append(Cost(released, terms.charge(released), bounds.lower, bounds.upper))
    return costs, method


_SHOWN = 10
"""Faults that are printed; the others are counted."""


def show(verdict: VerificationVerdict, console: Console | None = None) -> None:
    """Print a verdict as a table, then the faults, and the outcome as the last line."""
    console = console or Console()
    if verdict.task:
        console.print(_facts(verdict))
    if verdict.costs:
        console.print(_cost_table(verdict))
    for remark in verdict.remarks:
        console.print(f"note: {escape(remark)}", soft_wrap=True)
    for fault in verdict.faults[:_SHOWN]:
        console.print(f"[red]wrong:[/red] {escape(str(fault))}", soft_wrap=True, highlight=False)
    if len(verdict.faults) > _SHOWN:
        console.print(f"… and {len(verdict.faults) - _SHOWN} more")
    console.print(_last_line(verdict), soft_wrap=True, highlight=False)


def _facts(verdict: VerificationVerdict) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _rows(verdict):
        table.add_row(name, escape(value))
    return table


def _rows(verdict: VerificationVerdict) -> Iterator[tuple[str, str]]:
    yield "task", verdict.task
    if verdict.head:
        yield "head", verdict.head
        yield "released", f"{verdict.steps} steps"
    if verdict.epsilon is not None:
        yield "claimed", f"ε = {verdict.epsilon:.6g} at δ = {verdict.delta:g}"
        yield "protects", verdict.relation
    if verdict.models is not None:
        yield "models", f"{verdict.models} files expected"
    if verdict.method:
        yield "recomputed", verdict.method


def _cost_table(verdict: VerificationVerdict) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("steps", "ε claimed", "ε lower bound", "ε upper bound", ""):
        table.add_column(name, justify="right")
    for cost in verdict.costs:
        most = "" if cost.upper is None else f"{cost.upper:.6g}"
        row = (str(cost.steps), f"{cost.claimed:.6g}", f"{cost.lower:.6g}", most, _mark(cost))
        table.add_row(*row)
    return table


def _mark(cost: Cost) -> str:
    if not cost.enough:
        return "[red]too little[/red]"
    return "loose" if cost.loose else "ok"


def _last_line(verdict: VerificationVerdict) -> str:
    match verdict.outcome:
        case VerificationOutcome.GOOD:
            return "[green]good:[/green] the chain is whole and claims no less than was spent"
        case VerificationOutcome.BAD:
            return "[red]BAD:[/red] do not rely on this ledger"
        case VerificationOutcome.COST_NOT_RECOMPUTED:
            reason = escape(verdict.not_recomputed)
            return f"[yellow]sound, but cost not recomputed:[/yellow] {reason}"
        case VerificationOutcome.NOT_CHECKED:
            return f"[yellow]not checked:[/yellow] {escape(verdict.not_checked)}"
