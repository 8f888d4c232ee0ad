"""Every promise of storage.interface, on SQLite and on Postgres."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from storage_samples import (
    CHARTER,
    KEY,
    PARAMETERS,
    START,
    body,
    check_in,
    digest,
    key,
    release,
    released,
    with_update,
)

from turnout.core.errors import StorageError
from turnout.service.storage.interface import (
    ConflictError,
    Event,
    Invitation,
    Participation,
    Release,
    Scored,
    WitnessReceipt,
)


def same(left: Release | None, right: Release | None) -> bool:
    return left is not None and right is not None and vars_of(left) == vars_of(right)


def vars_of(release: Release) -> tuple:
    return tuple(getattr(release, field.name) for field in dataclasses.fields(release))


def test_an_empty_storage_has_no_task(empty):
    with empty.snapshot() as reads:
        assert reads.charter() is None
        assert reads.last_release() is None
        assert (reads.invited(), reads.enrolled()) == (0, 0)
        assert list(reads.records()) == list(reads.arrivals(0)) == reads.events(9) == []
        with pytest.raises(StorageError, match="no task"):
            reads.signing_key()


def test_a_task_is_founded_once(storage):
    with storage.transaction() as tx:
        with pytest.raises(ConflictError):
            tx.found(b"{}", bytes(32), b"")
        assert (tx.charter(), tx.signing_key(), tx.initial_parameters()) == (
            CHARTER,
            KEY,
            PARAMETERS,
        )


def test_invitations_have_rising_ids_and_are_used_once(empty):
    secrets = [digest(b"%d" % n) for n in range(5)]
    with empty.transaction() as tx:
        assert tx.invite(secrets[:2]) == 0
        assert tx.invite([]) == 2
        assert tx.invite(secrets[2:]) == 2
        assert (tx.invited(), tx.enrolled()) == (5, 0)
        assert tx.invitation(3) == Invitation(3, secrets[3], None)
        assert tx.invitation(5) is None
        tx.enrol(3, key(3))
        tx.enrol(3, key(3))
        with pytest.raises(ConflictError, match="another key"):
            tx.enrol(3, key(4))
        with pytest.raises(ConflictError, match="no such"):
            tx.enrol(5, key(5))
        assert tx.invitation(3) == Invitation(3, secrets[3], key(3))
        assert (tx.invited(), tx.enrolled()) == (5, 1)


def test_all_keys_are_read_by_client(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.SMALL_ROWS", 3)
    with storage.transaction() as tx:
        tx.invite([digest(b"a"), digest(b"b")])
        tx.enrol(9, key(9))
        assert list(tx.keys()) == [(client, key(client)) for client in (*range(8), 9)]


def test_a_check_in_is_unique_by_turn_and_by_step(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 5)
        with pytest.raises(ConflictError):
            check_in(tx, 1, 5)
        with pytest.raises(ConflictError):
            check_in(tx, 1, 6)  # the same turn
        with pytest.raises(ConflictError):
            check_in(tx, 1, 5, turn=1)  # the same step
        check_in(tx, 1, 6, turn=1)
        check_in(tx, 1, 9, block=1)
        check_in(tx, 2, 5)
    with storage.snapshot() as reads:
        assert reads.participations(1, 0) == [with_update(1, 5), with_update(1, 6, turn=1)]
        assert reads.participations(1, 1) == [with_update(1, 9, block=1)]
        assert reads.participations(3, 0) == []
        assert reads.participation_at(1, 6) == with_update(1, 6, turn=1)
        assert reads.participation_at(2, 6) is None


def test_a_conflict_leaves_the_transaction_as_it_was(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 5)
        with pytest.raises(ConflictError):
            tx.check_in(Participation(1, 0, 0, 6, digest(b"x")), b"x")
        check_in(tx, 2, 5)
    with storage.snapshot() as reads:
        assert reads.arrived(5).tolist() == [1, 2]
        assert reads.arrived(6).tolist() == []
        assert dict(reads.bodies(6)) == {}


def test_only_who_enrolled_checks_in(storage):
    with storage.transaction() as tx:
        tx.invite([digest(b"another")])
    for client in (8, 9):
        with pytest.raises(StorageError), storage.transaction() as tx:
            check_in(tx, client, 0)
    with storage.snapshot() as reads:
        assert reads.arrived(0).tolist() == []


def test_an_update_and_its_digest_come_together(storage):
    for participation, update in [
        (with_update(1, 0), None),
        (Participation(1, 0, 0, 0, None), b""),
    ]:
        with pytest.raises(StorageError, match="together"), storage.transaction() as tx:
            tx.check_in(participation, update)


def test_an_answer_is_stored_once_and_only_of_who_checked_in(storage):
    with storage.transaction() as tx:
        for client in (1, 2):
            tx.check_in(Participation(client, 0, 0, 4, None), None)
        check_in(tx, 3, 4)
        tx.answer(1, 4, digest(b"mine"), b"mine")
        with pytest.raises(ConflictError, match="stored"):
            tx.answer(1, 4, digest(b"other"), b"other")
        with pytest.raises(ConflictError, match="stored"):
            tx.answer(3, 4, digest(b"other"), b"other")
        with pytest.raises(ConflictError, match="check in"):
            tx.answer(4, 4, digest(b"other"), b"other")
        assert tx.participation_at(1, 4) == Participation(1, 0, 0, 4, digest(b"mine"))
        assert tx.participation_at(2, 4) == Participation(2, 0, 0, 4, None)
        assert dict(tx.bodies(4)) == {1: b"mine", 3: body(3, 4)}


def test_who_is_asked_is_stored_once_and_ascends(storage):
    with storage.transaction() as tx:
        assert tx.asked(0) is None
        tx.ask(0, np.array([], dtype=np.int64))
        tx.ask(1, np.array([5, 2], dtype=np.int64))
        with pytest.raises(ConflictError):
            tx.ask(1, np.array([5], dtype=np.int64))
        with pytest.raises(StorageError, match="twice"):
            tx.ask(2, np.array([5, 5]))
    with storage.snapshot() as reads:
        found = [reads.asked(step) for step in range(3)]
    assert [None if clients is None else clients.tolist() for clients in found] == [
        [],
        [2, 5],
        None,
    ]
    assert found[1] is not None
    assert found[1].dtype == np.int64


def test_arrivals_are_by_step_and_client(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.SMALL_ROWS", 3)
    came = {2: [0, 3, 7], 3: [1], 6: [2, 4, 5, 6]}
    with storage.transaction() as tx:
        for step, clients in reversed(came.items()):
            for client in reversed(clients):
                check_in(tx, client, step)
        assert {step: found.tolist() for step, found in tx.arrivals(0)} == came
        assert [step for step, _ in tx.arrivals(3)] == [3, 6]
        assert [step for step, _ in tx.arrivals(4)] == [6]
        assert list(tx.arrivals(7)) == []
        assert tx.arrived(6).tolist() == [2, 4, 5, 6]


def test_bodies_come_by_client_whatever_their_number(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.BODIES", 3)
    with storage.transaction() as tx:
        for client in (5, 3, 7, 0, 1, 2, 6):
            check_in(tx, client, 2)
        assert list(tx.bodies(2)) == [(client, body(client, 2)) for client in (0, 1, 2, 3, 5, 6, 7)]
        assert list(tx.bodies(1)) == []


def test_a_body_that_is_not_the_acknowledged_one_is_not_handed_out(storage):
    with storage.transaction() as tx:
        tx.check_in(with_update(1, 0), b"something else")
        with pytest.raises(StorageError, match="damaged"):
            dict(tx.bodies(0))


def test_releases_read_back_bit_for_bit(storage):
    costs = [0.0, 5e-324, 0.1 + 0.2, 1.0, math.nextafter(1.0, 2.0), 1e300]
    before, stored = START, []
    with storage.transaction() as tx:
        for epsilon in costs:
            after = release(before, epsilon=epsilon)
            tx.release(after)
            before = after.record.head
            stored.append(after)
    with storage.snapshot() as reads:
        assert list(reads.records()) == [after.record for after in stored]
        assert list(reads.records(4)) == [after.record for after in stored[4:]]
        assert same(reads.last_release(), stored[-1])
        assert all(same(reads.release_at(step), stored[step]) for step in range(len(costs)))
        assert reads.release_at(len(costs)) is None
        assert list(reads.counts()) == [(step, 2, 1) for step in range(len(costs))]
        assert [record.epsilon.hex() for record in reads.records()] == [c.hex() for c in costs]


def test_a_step_is_released_once(storage):
    with storage.transaction() as tx:
        released(tx, 2)
        with pytest.raises(ConflictError):
            tx.release(release(START, salt=b"other noise"))
    with storage.snapshot() as reads:
        assert same(reads.release_at(0), release(START))


def test_what_does_not_belong_into_the_ledger_is_refused(storage):
    with storage.transaction() as tx:
        before = released(tx, 2)
    right = release(before)
    for name, value, message in [
        ("step", 3, "does not follow"),
        ("previous", bytes(32), "does not follow"),
        ("task", "0" * 64, "does not follow"),
        ("model_digest", bytes(32), "other parameters"),
        ("epsilon", math.nan, "costs"),
        ("epsilon", math.inf, "costs"),
        ("epsilon", -1e-9, "costs"),
        ("epsilon", -0.0, "costs"),
        ("delta", math.nan, "costs"),
    ]:
        record = dataclasses.replace(right.record, **{name: value})
        wrong = dataclasses.replace(right, record=record)
        with pytest.raises(StorageError, match=message), storage.transaction() as tx:
            tx.release(wrong)
    with storage.snapshot() as reads:
        assert len(list(reads.records())) == 2


def test_nothing_is_added_to_a_released_step(storage):
    with storage.transaction() as tx:
        tx.check_in(Participation(1, 0, 0, 0, None), None)
        released(tx, 1)
    for late in (
        lambda tx: check_in(tx, 2, 0),
        lambda tx: tx.answer(1, 0, digest(b"x"), b"x"),
        lambda tx: tx.ask(0, np.array([1])),
    ):
        with pytest.raises(StorageError, match="released"), storage.transaction() as tx:
            late(tx)


def test_updates_are_forgotten_only_when_released(storage):
    with storage.transaction() as tx:
        for step in range(3):
            for client in range(4):
                check_in(tx, client, step, turn=step)
        assert tx.forget_bodies(9, 99) == 0
        released(tx, 2)
        assert tx.forget_bodies(0, 99) == 0
        assert tx.forget_bodies(9, 3) == 3
        assert [client for client, _ in tx.bodies(0)] == [3]
        assert tx.forget_bodies(1, 99) == 1
        assert tx.forget_bodies(9, 99) == 4
        assert [len(dict(tx.bodies(step))) for step in range(3)] == [0, 0, 4]
        assert tx.arrived(0).tolist() == [0, 1, 2, 3]
        assert tx.participation_at(1, 0) == with_update(1, 0)


def test_scores_keep_the_first_and_survive_a_diverged_model(storage):
    with storage.transaction() as tx:
        tx.score(Scored(10, 0.5, 2.0))
        tx.score(Scored(10, 0.9, 0.1))
        tx.score(Scored(5, math.nan, math.inf))
        assert repr(list(tx.scores())) == repr(
            [Scored(5, math.nan, math.inf), Scored(10, 0.5, 2.0)]
        )


def test_the_log_gives_its_last_lines(storage):
    lines = [
        Event(0.5 + n, level, "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n % ? $1")
        for n, level in enumerate(("info", "warning", "error"))
    ]
    with storage.transaction() as tx:
        for line in lines:
            tx.log(line)
        assert tx.events(2) == lines[1:]
        assert tx.events(99) == lines


def test_receipts_of_witnesses_are_kept_and_never_changed(storage):
    first, second = (WitnessReceipt(digest(b"witness"), steps, bytes(64)) for steps in (3, 4))
    other = WitnessReceipt(digest(b"another"), 1, bytes([1] * 64))
    with storage.snapshot() as reads:
        assert reads.last_receipt() is None
    for receipt in (first, second, first):
        with storage.transaction() as tx:
            tx.keep_receipt(receipt)
    with storage.snapshot() as reads:
        assert reads.last_receipt() == second  # the copy of the first was dropped
    with storage.transaction() as tx:
        tx.keep_receipt(other)
    with storage.snapshot() as reads:
        assert reads.last_receipt() == other
