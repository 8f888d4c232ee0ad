"""Random groups of changes that are valid for a database, and the facts that each group stores."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from storage_samples import START, TASK, block_end, body, create_task, digest, key, release

from turnout.service.storage.database import Storage
from turnout.service.storage.interface import LogEvent, ParticipationRow, Scored
from turnout.service.storage.writes import Transaction

QUOTA, BLOCK_STEPS = 2, 4
Fact = tuple[Any, ...]
Facts = frozenset[Fact]
Change = Callable[[Transaction], object]


@dataclass
class Group:
    """Changes that are committed together, and the facts that they store and delete."""

    changes: list[Change] = field(default_factory=list)
    effects: list[Callable[[Facts], Facts]] = field(default_factory=list)

    def __call__(self, tx: Transaction) -> None:
        for change in self.changes:
            change(tx)

    def add(self, change: Change, *facts: Fact) -> None:
        self.changes.append(change)
        self.store(*facts)

    def store(self, *facts: Fact) -> None:
        self.effects.append(lambda before: before | frozenset(facts))

    def replace(self, old: Fact, new: Fact) -> None:
        self.effects.append(lambda before: before - {old} | {new})

    def forget(self, *kinds: str) -> None:
        self.effects.append(
            lambda before: frozenset(fact for fact in before if fact[0] not in kinds)
        )

    def after(self, facts: Facts) -> Facts:
        """Stored facts after the group is committed."""
        for effect in self.effects:
            facts = effect(facts)
        return facts


class Author:
    """Generator of groups that are valid for the stored facts, also after a power cut."""

    def __init__(self, rng: random.Random, storage: Storage) -> None:
        self._rng = rng
        with storage.snapshot(whole=True) as reads:
            self._task_created = reads.charter() is not None
            last = reads.last_release()
            self._head = last.record.head if last else START
            self._clients = reads.invited()
            self._turns = dict(
                zip(*(part.tolist() for part in reads.participation_counts()), strict=True)
            )
            self._here = reads.arrived(self._head.steps).tolist()
            self._answered = {
                p.client for p in reads.participations(self._head.steps) if p.digest is not None
            }
            self._asked = reads.asked(self._head.steps) is not None
            self._scored = {scored.steps for scored in reads.scores()}

    def group(self) -> Group:
        group = Group()
        if not self._task_created:
            self._found(group)
            return group
        kinds = (self._check_in,) * 6 + (self._answer, self._ask, self._release, self._other)
        for _ in range(self._rng.randint(1, 5)):
            self._rng.choice(kinds)(group)
        return group

    def _found(self, group: Group) -> None:
        self._task_created, self._clients = True, 8
        facts: list[Fact] = [("task", TASK)]
        facts += [("invited", client, digest(b"secret %d" % client)) for client in range(8)]
        facts += [("enrolled", client, key(client)) for client in range(8)]
        group.add(create_task, *facts)

    def _check_in(self, group: Group) -> None:
        client, step = self._rng.randrange(self._clients), self._head.steps
        if client in self._here or self._turns.get(client, 0) >= QUOTA:
            return
        update = None
        if self._rng.random() < 0.7:
            update = body(client, step, self._rng.choice((40, 3000, 20000, 50000)))
            self._answered.add(client)
        participation = ParticipationRow(client, step, update and digest(update))
        group.add(lambda tx: tx.check_in(participation, update, QUOTA))
        group.store(("in", client, step, participation.digest))
        self._here.append(client)

    def _answer(self, group: Group) -> None:
        step = self._head.steps
        silent = [client for client in self._here if client not in self._answered]
        if not silent:
            return
        client = self._rng.choice(silent)
        update = body(client, step, self._rng.choice((40, 20000)))
        group.add(lambda tx: tx.answer(client, step, digest(update), update))
        group.replace(("in", client, step, None), ("in", client, step, digest(update)))
        self._answered.add(client)

    def _ask(self, group: Group) -> None:
        if self._asked or not self._here:
            return
        step, who = self._head.steps, np.sort(np.array(self._here[:2], dtype=np.int64))
        group.add(lambda tx: tx.request(step, who))
        group.store(("asked", step, who.astype("<i8").tobytes()))
        self._asked = True

    def _release(self, group: Group) -> None:
        after = release(self._head, salt=self._rng.randbytes(8))
        step = after.record.step
        ends = block_end(step, BLOCK_STEPS)
        group.add(lambda tx: tx.release(after, ends))
        group.store(("release", step, after.record.digest, digest(after.parameters)))
        for client in self._here:
            self._turns[client] = self._turns.get(client, 0) + 1
        if ends == step + 1:
            self._turns = {}
        group.forget("in", "asked", "turn")
        group.store(*(("turn", *used) for used in self._turns.items()))
        self._head = after.record.head
        self._here, self._asked, self._answered = [], False, set()
        at_most = self._rng.randint(0, 6)
        group.add(lambda tx: tx.reclaim(at_most))

    def _other(self, group: Group) -> None:
        text = self._rng.randbytes(12).hex()
        group.add(lambda tx: tx.log(LogEvent(0.0, "info", text)), ("event", text))
        steps = self._head.steps
        if steps not in self._scored:
            group.add(lambda tx: tx.score(Scored(steps, 0.5, 1.0)), ("score", steps))
            self._scored.add(steps)
        client, secret = self._clients, self._rng.randbytes(32)
        group.add(lambda tx: tx.invite([secret]), ("invited", client, secret))
        group.add(lambda tx: tx.enrol(client, key(client)), ("enrolled", client, key(client)))
        self._clients += 1
