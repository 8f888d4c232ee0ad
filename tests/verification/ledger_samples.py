"""Ledgers for tests: valid ones written by the service's classes, and forged copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from turnout.accounting import spent
from turnout.protocol.lattice import Lattice
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, Relation, ReleaseRule, Scheme
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.ledger import Head, Record, SigningKey
from turnout.service.contract.wire import head_bytes
from turnout.service.coordinator.export import ledger_lines
from turnout.service.storage.interface import ReleaseRow

KEY = SigningKey(bytes(range(32)))
OTHER_KEY = SigningKey(bytes(range(1, 33)))
DELTA = 1e-5
DIMENSION = 5
SCHEME = Scheme(GaussianNoise(8.0), EveryStep(12), Relation.ADD_REMOVE, ReleaseRule.AGGREGATED)
"""Scheme whose ε is computed quickly; a task would use `WINDOWS`."""

WINDOWS = replace(SCHEME, randomizer=GaussianNoise(1.5), participation=CheckIn(6, 2))


@cache
def curve(scheme: Scheme, steps: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(spent(scheme, DELTA, steps))


def charter(scheme: Scheme = SCHEME, *, charged_steps=(0, 3, 6, 9, 12), **terms) -> Charter:
    charged = terms.pop("charged", None) or curve(scheme, charged_steps)
    standard = {
        "plan": '[task]\nmodel = "linear"\n',
        "population": 20,
        "scheme": scheme,
        "delta": DELTA,
        "target": max(charged) + 0.5,
        "charged_steps": charged_steps,
        "charged": charged,
        "encoding": Lattice(2.0**-10, 1.0, DIMENSION),
        "expected_check_ins": 20 / 6,
        "minibatch": 1,
        "initial_model": hashlib.sha256(parameters(-1)).digest(),
        "timing": Timing(),
        "coordinator_key": KEY.public,
    }
    return Charter(**(standard | terms))


def parameters(step: int) -> bytes:
    return (np.arange(DIMENSION) + step).astype("<f4").tobytes()


@dataclass
class FakeTransaction:
    """The part of a storage snapshot that a ledger export reads."""

    terms: Charter = field(default_factory=charter)
    released: int = 8
    key: SigningKey = KEY
    model: Callable[[int], bytes] = parameters

    def charter(self) -> bytes | None:
        return self.terms.canonical()

    def signing_key(self) -> bytes:
        return self.key.private

    def initial_parameters(self) -> bytes:
        return self.model(-1)

    def records(self, first_step: int = 0) -> Iterator[Record]:
        previous = bytes.fromhex(self.terms.task)
        for step in range(self.released):
            record = Record(
                self.terms.task,
                step,
                hashlib.sha256(b"sum %d" % step).digest(),
                hashlib.sha256(self.model(step)).digest(),
                self.terms.spent(step + 1),
                self.terms.delta,
                previous,
            )
            previous = record.digest
            if step >= first_step:
                yield record

    def release_at(self, step: int) -> ReleaseRow | None:
        record = list(self.records())[step]
        return ReleaseRow(record, self.model(step), b"", b"", 3, 3)


def exported(transaction: FakeTransaction) -> bytes:
    return b"".join(ledger_lines(transaction))


def forged(data: bytes, change: Callable[[list[dict]], None], key: SigningKey = KEY) -> bytes:
    """Ledger after a change to its JSON lines, with all digests and the signature recomputed."""
    lines = [json.loads(line) for line in data.splitlines()]
    change(lines)
    charter_line, *records, _ = lines
    task = hashlib.sha256(canonical(charter_line["charter"])).hexdigest()
    digest = bytes.fromhex(task)
    for record in records:
        record |= {"task": task, "previous": digest.hex()}
        digest = hashlib.sha256(canonical(record)).digest()
    head = Head(len(records), digest)
    last = {"head": str(head), "signature": key.sign(head_bytes(task, head)).hex()}
    return b"".join(canonical(line) + b"\n" for line in (charter_line, *records, last))


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
