"""Storage in dictionaries, which is fast and checks everything that a database checks."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import numpy as np

from turnout.core.errors import StorageError
from turnout.service.storage.interface import (
    ConflictError,
    InvitationRow,
    LogEvent,
    ParticipationRow,
    ReleaseRow,
    Scored,
)


@dataclass
class Tables:
    task: dict = field(default_factory=dict)
    artefacts: dict = field(default_factory=dict)
    invitations: dict = field(default_factory=dict)
    check_ins: dict = field(default_factory=dict)  # client -> row of the open step
    turns: dict = field(default_factory=dict)  # client -> number of check-ins in the open window
    bodies: dict = field(default_factory=dict)  # (step, client) -> bytes
    asked: dict = field(default_factory=dict)
    releases: dict = field(default_factory=dict)
    receipts: dict = field(default_factory=dict)
    publications: dict = field(default_factory=dict)
    scores: dict = field(default_factory=dict)
    events: dict = field(default_factory=dict)

    def copied(self) -> Tables:
        return Tables(**{f.name: dict(getattr(self, f.name)) for f in fields(self)})


class MemoryTransaction:
    def __init__(self, tables: Tables) -> None:
        self.t = tables

    def create_task(self, charter, signing_key, parameters, artefacts=()):
        if self.t.task:
            raise ConflictError("there is a task")
        self.t.artefacts.update((hashlib.sha256(each).digest(), each) for each in artefacts)
        self.t.task.update(charter=charter, key=signing_key, parameters=parameters)

    def artefact(self, digest):
        return self.t.artefacts.get(digest)

    def charter(self):
        return self.t.task.get("charter")

    def signing_key(self):
        return self.t.task["key"]

    def initial_parameters(self):
        return self.t.task["parameters"]

    def invite(self, secret_digests):
        first = len(self.t.invitations)
        for i, digest in enumerate(secret_digests):
            self.t.invitations[first + i] = InvitationRow(first + i, digest, None)
        return first

    def invitation(self, client):
        return self.t.invitations.get(client)

    def invited(self):
        return len(self.t.invitations)

    def enrol(self, client, public_key):
        row = self.t.invitations[client]
        if row.public_key not in (None, public_key):
            raise ConflictError("used with another key")
        self.t.invitations[client] = replace(row, public_key=public_key)

    def enrolled(self):
        return sum(row.public_key is not None for row in self.t.invitations.values())

    def participation_at(self, client, step):
        row = self.t.check_ins.get(client)
        return row if row is not None and row.step == step else None

    def participations(self, step):
        return iter([r for _, r in sorted(self.t.check_ins.items()) if r.step == step])

    def check_in(self, participation, body, quota):
        p = participation
        if p.step != len(self.t.releases):
            raise StorageError("the step is not open")
        if p.client in self.t.check_ins:
            raise ConflictError("checked in at this step")
        if self.t.turns.get(p.client, 0) >= quota:
            raise ConflictError("all turns of the block are used")
        self.t.check_ins[p.client] = p
        if body is not None:
            self.t.bodies[p.step, p.client] = body

    def answer(self, client, step, digest, body):
        row = self.participation_at(client, step)
        if row is None or row.digest is not None:
            raise ConflictError("did not check in, or answered")
        self.t.check_ins[client] = replace(row, digest=digest)
        self.t.bodies[step, client] = body

    def request(self, step, clients):
        if step in self.t.asked:
            raise ConflictError("somebody was asked")
        self.t.asked[step] = tuple(int(c) for c in clients)

    def asked(self, step):
        clients = self.t.asked.get(step)
        return None if clients is None else np.array(clients, dtype=np.int64)

    def arrived(self, step):
        return np.array([row.client for row in self.participations(step)], dtype=np.int64)

    def participation_counts(self):
        used = sorted(self.t.turns.items())
        return tuple(np.array(column, dtype=np.int64) for column in zip(*used, strict=True)) or (
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
        )

    def bodies(self, step):
        for s, client in sorted(self.t.bodies):
            if s == step and step == len(self.t.releases):
                yield client, self.t.bodies[s, client]

    def release(self, release, block_ends):
        step = release.record.step
        if step in self.t.releases:
            raise ConflictError("released")
        self.t.releases[step] = release
        self.take_turns(step, block_ends)
        self.forget(step)

    def take_turns(self, step, block_ends):
        if block_ends <= step + 1:
            self.t.turns.clear()
            return
        for client in self.t.check_ins:
            self.t.turns[client] = self.t.turns.get(client, 0) + 1

    def forget(self, step):
        self.t.check_ins.clear()
        self.t.asked.pop(step, None)

    def reclaim(self, at_most):
        old = [key for key in sorted(self.t.bodies) if key[0] < len(self.t.releases)][:at_most]
        for key in old:
            del self.t.bodies[key]
        return len(old)

    def last_release(self) -> ReleaseRow | None:
        return self.t.releases[max(self.t.releases)] if self.t.releases else None

    def release_at(self, step):
        return self.t.releases.get(step)

    def records(self, first_step=0):
        for step in sorted(self.t.releases):
            if step >= first_step:
                yield self.t.releases[step].record

    def counts(self):
        for step in sorted(self.t.releases):
            yield step, self.t.releases[step].checked_in, self.t.releases[step].served

    def publish(self, steps, receipt):
        if receipt is not None:
            self.t.receipts.setdefault((receipt.witness_key, receipt.steps), receipt)
        self.t.publications[steps] = True

    def last_receipt(self):
        return list(self.t.receipts.values())[-1] if self.t.receipts else None

    def score(self, scored: Scored):
        self.t.scores.setdefault(scored.steps, scored)

    def scores(self):
        return iter(self.t.scores[k] for k in sorted(self.t.scores))

    def log(self, event: LogEvent):
        self.t.events[len(self.t.events)] = event

    def events(self, last):
        return [self.t.events[k] for k in sorted(self.t.events)][-last:]


class MemoryStorage:
    """In-memory storage in which only committed data survive."""

    transaction_class = MemoryTransaction

    def __init__(self) -> None:
        self.committed = Tables()

    @contextmanager
    def transaction(self):
        working = self.committed.copied()
        yield self.transaction_class(working)
        self.committed = working

    @contextmanager
    def snapshot(self, *, whole: bool = False):
        view = self.committed.copied()
        if not whole:
            until = max(view.publications, default=0)
            view.releases = {step: r for step, r in view.releases.items() if step < until}
        yield self.transaction_class(view)

    def tidy(self, *, thorough: bool = False) -> bool:
        return True

    def close(self) -> None:
        pass


__all__ = ["MemoryStorage", "MemoryTransaction", "ParticipationRow", "Tables"]
