"""After any writes, failures and restarts, SQLite equals a model in dictionaries."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_samples import START, block_end, body, create_task, digest, key, release, served

from turnout.core.errors import StorageError
from turnout.service.storage.interface import ConflictError, ParticipationRow

CLIENTS, BLOCK_STEPS, STEPS_AHEAD = 6, 3, 2
clients, ahead = st.integers(0, CLIENTS - 1), st.sampled_from((0, 0, 0, 1, STEPS_AHEAD))


class StorageMachine(RuleBasedStateMachine):
    """State machine that compares the database with its model."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "task.sqlite"
        self.storage = served(self.path)
        with self.storage.transaction() as tx:
            create_task(tx, CLIENTS)
        self.invited: dict[int, bytes | None] = {c: key(c) for c in range(CLIENTS)}
        self.here: dict[int, ParticipationRow] = {}
        self.turns: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.unread = 0
        self.asked: list[int] | None = None
        self.records = []
        self.published = 0

    @property
    def head(self):
        return self.records[-1].head if self.records else START

    @rule(client=clients, ahead=ahead, quota=st.integers(1, 2), answers=st.booleans())
    def check_in(self, client: int, ahead: int, quota: int, answers: bool) -> None:
        step = self.head.steps + ahead
        update = body(client, step) if answers else None
        new = ParticipationRow(client, step, update and digest(update))
        taken = client in self.here or self.turns.get(client, 0) >= quota
        try:
            with self.storage.transaction() as tx:
                try:
                    tx.check_in(new, update, quota)
                    assert not taken
                except ConflictError:
                    assert taken
            assert ahead == 0 or taken
        except StorageError:
            assert ahead > 0
            return
        if not taken:
            self.here[client] = new
            if update is not None:
                self.bodies[client] = update

    @rule(client=clients, ahead=ahead)
    def answer(self, client: int, ahead: int) -> None:
        step = self.head.steps + ahead
        before = self.here.get(client)
        fits = ahead == 0 and before is not None and before.digest is None
        update = b"answer of %d" % client
        with self.storage.transaction() as tx:
            try:
                tx.answer(client, step, digest(update), update)
                assert fits
            except ConflictError:
                assert not fits
        if fits:
            self.here[client] = ParticipationRow(client, step, digest(update))
            self.bodies[client] = update

    @rule(who=st.sets(clients))
    def ask(self, who: set[int]) -> None:
        with self.storage.transaction() as tx:
            try:
                tx.request(self.head.steps, np.array(sorted(who, reverse=True), dtype=np.int64))
                assert self.asked is None
            except ConflictError:
                assert self.asked is not None
        self.asked = sorted(who) if self.asked is None else self.asked

    @rule(salt=st.binary(max_size=2))
    def release(self, salt: bytes) -> None:
        after = release(self.head, salt=salt)
        ends = block_end(after.record.step, BLOCK_STEPS)
        with self.storage.transaction() as tx:
            tx.release(after, ends)
        self.records.append(after.record)
        for client in self.here:
            self.turns[client] = self.turns.get(client, 0) + 1
        if ends == self.head.steps:
            self.turns = {}
        self.unread += len(self.bodies)
        self.here, self.bodies, self.asked = {}, {}, None

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        steps = data.draw(st.integers(0, len(self.records) + 1))
        try:
            with self.storage.transaction() as tx:
                tx.publish(steps, None)
            self.published = max(self.published, steps)
            assert steps <= len(self.records)
        except StorageError:
            assert steps > len(self.records)

    @precondition(lambda self: self.records)
    @rule(salt=st.binary(max_size=2), data=st.data())
    def release_again(self, salt: bytes, data: st.DataObject) -> None:
        step = data.draw(st.integers(0, len(self.records) - 1))
        before = START if step == 0 else self.records[step - 1].head
        with self.storage.transaction() as tx:
            try:
                tx.release(release(before, salt=salt), block_end(step, BLOCK_STEPS))
                raise AssertionError("a step was released twice")
            except ConflictError:
                pass

    @rule(at_most=st.integers(0, 3))
    def reclaim(self, at_most: int) -> None:
        old = min(self.unread, at_most)
        with self.storage.transaction() as tx:
            assert tx.reclaim(at_most) == old
        self.unread -= old

    @rule(thorough=st.booleans())
    def tidy(self, thorough: bool) -> None:
        assert self.storage.tidy(thorough=thorough)

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
                tx.release(release(self.head, salt=salt), self.head.steps + 1)
                tx.invite([bytes(32)])
                if not caught:
                    raise ZeroDivisionError
                with suppress(StorageError):
                    tx.check_in(ParticipationRow(client, -1, None), None, 9)
            raise AssertionError("a broken transaction was committed")
        except (ZeroDivisionError, StorageError):
            pass

    @rule()
    def restart(self) -> None:
        self.storage.close()
        self.storage = served(self.path)

    @rule()
    def crash(self) -> None:
        """Open a copy of the files, as a killed process would leave them."""
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
            assert list(reads.records()) == self.records[: self.published]
        with self.storage.snapshot(whole=True) as reads:
            assert list(reads.records()) == self.records
            step = self.head.steps
            here = [self.here[client] for client in sorted(self.here)]
            assert list(reads.participations(step)) == here
            assert reads.arrived(step).tolist() == sorted(self.here)
            assert dict(reads.bodies(step)) == self.bodies
            asked = reads.asked(step)
            assert (None if asked is None else asked.tolist()) == self.asked
            found, used = reads.participation_counts()
            assert dict(zip(found.tolist(), used.tolist(), strict=True)) == self.turns
            for over in range(step):
                assert reads.arrived(over).size == 0
                assert dict(reads.bodies(over)) == {}
                assert reads.asked(over) is None
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
