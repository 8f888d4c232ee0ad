"""After any changes, failures and restarts SQLite holds what a dictionary would hold."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_samples import START, body, digest, found, key, release, served

from turnout.core.errors import StorageError
from turnout.service.storage.interface import ConflictError, Participation

CLIENTS, BLOCKS, STEPS_AHEAD = 6, 2, 3
clients, blocks = st.integers(0, CLIENTS - 1), st.integers(0, BLOCKS - 1)
ahead, turns = st.integers(0, STEPS_AHEAD), st.integers(0, 2)


class StorageMachine(RuleBasedStateMachine):
    """The database beside its model."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "task.sqlite"
        self.storage = served(self.path)
        with self.storage.transaction() as tx:
            found(tx, CLIENTS)
        self.invited: dict[int, bytes | None] = {c: key(c) for c in range(CLIENTS)}
        self.here: dict[tuple[int, int], Participation] = {}
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.asked: dict[int, list[int]] = {}
        self.records = []

    @property
    def head(self):
        return self.records[-1].head if self.records else START

    @rule(client=clients, block=blocks, turn=turns, ahead=ahead, answers=st.booleans())
    def check_in(self, client: int, block: int, turn: int, ahead: int, answers: bool) -> None:
        step = self.head.steps + ahead
        update = body(client, step) if answers else None
        new = Participation(client, block, turn, step, update and digest(update))
        taken = (step, client) in self.here or any(
            (p.client, p.block, p.turn) == (client, block, turn) for p in self.here.values()
        )
        with self.storage.transaction() as tx:
            try:
                tx.check_in(new, update)
                assert not taken
            except ConflictError:
                assert taken
        if not taken:
            self.here[step, client] = new
            if update is not None:
                self.bodies[step, client] = update

    @rule(client=clients, ahead=ahead)
    def answer(self, client: int, ahead: int) -> None:
        step = self.head.steps + ahead
        before = self.here.get((step, client))
        fits = before is not None and before.digest is None
        update = b"answer of %d" % client
        with self.storage.transaction() as tx:
            try:
                tx.answer(client, step, digest(update), update)
                assert fits
            except ConflictError:
                assert not fits
        if before is not None and fits:
            stored = Participation(client, before.block, before.turn, step, digest(update))
            self.here[step, client] = stored
            self.bodies[step, client] = update

    @rule(who=st.sets(clients), ahead=ahead)
    def ask(self, who: set[int], ahead: int) -> None:
        step = self.head.steps + ahead
        with self.storage.transaction() as tx:
            try:
                tx.ask(step, np.array(sorted(who, reverse=True), dtype=np.int64))
                assert step not in self.asked
            except ConflictError:
                assert step in self.asked
        self.asked.setdefault(step, sorted(who))

    @rule(salt=st.binary(max_size=2))
    def release(self, salt: bytes) -> None:
        after = release(self.head, salt=salt)
        with self.storage.transaction() as tx:
            tx.release(after)
        self.records.append(after.record)

    @precondition(lambda self: self.records)
    @rule(salt=st.binary(max_size=2), data=st.data())
    def release_again(self, salt: bytes, data: st.DataObject) -> None:
        step = data.draw(st.integers(0, len(self.records) - 1))
        before = START if step == 0 else self.records[step - 1].head
        with self.storage.transaction() as tx:
            try:
                tx.release(release(before, salt=salt))
                raise AssertionError("a step was released twice")
            except ConflictError:
                pass

    @rule(before=st.integers(0, 9), at_most=st.integers(0, 3))
    def forget(self, before: int, at_most: int) -> None:
        old = sorted(k for k in self.bodies if k[0] < min(before, self.head.steps))[:at_most]
        with self.storage.transaction() as tx:
            assert tx.forget_bodies(before, at_most) == len(old)
        for forgotten in old:
            del self.bodies[forgotten]

    @rule(number=st.integers(0, 3))
    def invite(self, number: int) -> None:
        with self.storage.transaction() as tx:
            first = tx.invite([bytes(32)] * number)
        assert first == len(self.invited)
        self.invited |= dict.fromkeys(range(first, first + number))

    @rule(data=st.data(), same=st.booleans())
    def enrol(self, data: st.DataObject, same: bool) -> None:
        client = data.draw(st.integers(0, len(self.invited)))
        name = key(client) if same else key(client + 1)
        fits = client in self.invited and self.invited[client] in (None, name)
        with self.storage.transaction() as tx:
            try:
                tx.enrol(client, name)
                assert fits
            except ConflictError:
                assert not fits
        if fits:
            self.invited[client] = name

    @rule(client=clients, salt=st.binary(max_size=2), caught=st.booleans())
    def fail(self, client: int, salt: bytes, caught: bool) -> None:
        try:
            with self.storage.transaction() as tx:
                tx.release(release(self.head, salt=salt))
                tx.invite([bytes(32)])
                if not caught:
                    raise ZeroDivisionError
                with suppress(StorageError):
                    tx.check_in(Participation(client, 0, 9, -1, None), None)
            raise AssertionError("a broken transaction was committed")
        except (ZeroDivisionError, StorageError):
            pass

    @rule()
    def restart(self) -> None:
        self.storage.close()
        self.storage = served(self.path)

    @rule()
    def crash(self) -> None:
        """Open a copy of the files as a killed process leaves them."""
        files = {f.name: f.read_bytes() for f in self.path.parent.iterdir() if "-shm" not in f.name}
        self.storage.close()
        for name, data in files.items():
            (self.path.parent / name).write_bytes(data)
        self.storage = served(self.path)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "storage"):
            return
        with self.storage.snapshot() as reads:
            assert list(reads.records()) == self.records
            arrived = {(s, c): None for s, found in reads.arrivals(0) for c in found.tolist()}
            assert list(arrived) == sorted(self.here)
            for (step, client), expected in self.here.items():
                assert reads.participation_at(client, step) == expected
            for step in range(self.head.steps + STEPS_AHEAD + 1):
                bodies = {(step, client): found for client, found in reads.bodies(step)}
                assert bodies == {k: b for k, b in self.bodies.items() if k[0] == step}
                asked = reads.asked(step)
                assert (None if asked is None else asked.tolist()) == self.asked.get(step)
            assert reads.invited() == len(self.invited)
            assert reads.enrolled() == sum(name is not None for name in self.invited.values())
            last = reads.last_release()
            assert (last.record if last else None) == (self.records[-1] if self.records else None)

    def teardown(self) -> None:
        if hasattr(self, "storage"):
            self.storage.close()
            self.folder.cleanup()


StorageMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestStorageMachine = StorageMachine.TestCase
