"""From a file to a verdict: what is read, in which order it is checked, what may stop it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.verification.chain import chain_faults, model_faults
from turnout.verification.cost import least, recomputed
from turnout.verification.document import DamagedError, Document, head_of, parsed
from turnout.verification.terms import Terms, decoded
from turnout.verification.verdict import Cost, Fault, Verdict

_EARLIER_POINTS = 3
"""Charged steps before the last at which the cost is recomputed too (its lower bound)."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head that somebody saw: ``steps`` were released, and the last record had ``digest``."""

    steps: int
    digest: bytes

    @classmethod
    def parsed(cls, text: str) -> Self:
        """From ``steps:digest``; a signature behind it, as a device keeps it, is left aside.

        Raises:
            ParameterError: anything else.
        """
        try:
            return cls(*head_of(":".join(text.strip().split(":")[:2])))
        except ValueError:
            raise ParameterError("head", text, "steps:digest") from None


def verify(data: bytes, known: KnownHead | None = None, models: Path | None = None) -> Verdict:
    """The verdict on an exported ledger, from its bytes alone.

    The ledger must continue ``known``; ``models`` is a folder with the released models, to be
    compared with it. Cost is recomputed only where nothing else is at fault.
    """
    task = ""
    try:
        document = parsed(data)
        task = document.task
        terms = decoded(document.charter)
    except DamagedError as error:
        return Verdict(task=task, faults=(error.fault,))
    faults = list(chain_faults(document, terms))
    if known is not None:
        faults += _known_faults(document, known)
    if models is not None:
        faults += model_faults(models, document, terms)
    last = document.records[-1] if document.records else None
    scheme = terms.scheme
    found = Verdict(
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


def _known_faults(document: Document, known: KnownHead) -> Iterator[Fault]:
    released = len(document.records)
    if known.steps > released:
        yield Fault(
            f"this ledger is older than the head that you know: it has {released} steps, "
            f"you saw {known.steps}",
            released,
        )
        return
    here = document.records[known.steps - 1].digest if known.steps else bytes.fromhex(document.task)
    if here != known.digest:
        place = f"step {known.steps - 1}" if known.steps else "the charter"
        yield Fault(
            f"this ledger forks from the head that you know: it is not the same up to {place}",
            max(known.steps - 1, 0),
        )


def _priced(found: Verdict, document: Document, terms: Terms) -> Verdict:
    """The verdict with the cost recomputed, where it can be."""
    if not document.records:
        return replace(found, method="nothing is released")
    try:
        costs, method = _costs(document, terms)
    except (UnsupportedError, NumericalError) as error:
        return replace(found, not_recomputed=str(error))
    faults = tuple(
        Fault(
            f"claims too little: epsilon = {cost.claimed:.6g} after it, "
            f"but at least {cost.lower:.6g} is spent",
            cost.steps - 1,
        )
        for cost in costs
        if not cost.enough
    )
    remarks = tuple(
        f"the ledger charges {cost.claimed:.6g}, no more than {cost.upper:.6g} can be spent: "
        "allowed, it errs on the safe side"
        for cost in costs
        if cost.loose
    )
    return replace(found, faults=faults, costs=tuple(costs), method=method, remarks=remarks)


def _costs(document: Document, terms: Terms) -> tuple[list[Cost], str]:
    """Lower bounds at some charged steps, and both at the last one."""
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
