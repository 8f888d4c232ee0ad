"""Every guarantee of the storage, on SQLite and on Postgres."""

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
    InvitationRow,
    LogEvent,
    ParticipationRow,
    ReleaseRow,
    Scored,
    WitnessReceipt,
)
from turnout.service.storage.opening import open_storage
from turnout.service.storage.reads import SHARD_CLIENTS


def same(left: ReleaseRow | None, right: ReleaseRow | None) -> bool:
    return left is not None and right is not None and vars_of(left) == vars_of(right)


def vars_of(release: ReleaseRow) -> tuple:
    return tuple(getattr(release, field.name) for field in dataclasses.fields(release))


def test_an_empty_storage_has_no_task(empty):
    with empty.snapshot() as reads:
        assert reads.charter() is None
        assert reads.last_release() is None
        assert (reads.invited(), reads.enrolled()) == (0, 0)
        assert list(reads.records()) == list(reads.participations(0)) == reads.events(9) == []
        with pytest.raises(StorageError, match="no task"):
            reads.signing_key()


def test_a_task_is_created_once(storage):
    with storage.transaction() as tx:
        with pytest.raises(ConflictError):
            tx.create_task(b"{}", bytes(32), b"")
        assert (tx.charter(), tx.signing_key(), tx.initial_parameters()) == (
            CHARTER,
            KEY,
            PARAMETERS,
        )


def test_invitations_are_numbered_consecutively_and_used_once(empty):
    secrets = [digest(b"%d" % n) for n in range(5)]
    with empty.transaction() as tx:
        assert tx.invite(secrets[:2]) == 0
        assert tx.invite([]) == 2
        assert tx.invite(secrets[2:]) == 2
        assert (tx.invited(), tx.enrolled()) == (5, 0)
        assert tx.invitation(3) == InvitationRow(3, secrets[3], None)
        assert tx.invitation(5) is None
        tx.enrol(3, key(3))
        tx.enrol(3, key(3))
        with pytest.raises(ConflictError, match="another key"):
            tx.enrol(3, key(4))
        with pytest.raises(ConflictError, match="no such"):
            tx.enrol(5, key(5))
        assert tx.invitation(3) == InvitationRow(3, secrets[3], key(3))
        assert (tx.invited(), tx.enrolled()) == (5, 1)


def test_all_public_keys_are_read_in_order_of_clients(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.SMALL_ROWS", 3)
    with storage.transaction() as tx:
        tx.invite([digest(b"a"), digest(b"b")])
        tx.enrol(9, key(9))
        assert list(tx.keys()) == [(client, key(client)) for client in (*range(8), 9)]


def test_a_client_checks_in_once_per_step_and_within_its_quota(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
        with pytest.raises(ConflictError):
            check_in(tx, 1, 0, quota=2)  # the same step
        head = released(tx, 1, block_steps=3)
        with pytest.raises(ConflictError):
            check_in(tx, 1, 1)  # the same window
        check_in(tx, 1, 1, quota=2)
        check_in(tx, 2, 1)
        head = released(tx, 1, head, block_steps=3)
        for client, quota in ((1, 2), (2, 1)):
            with pytest.raises(ConflictError):
                check_in(tx, client, 2, quota=quota)
        released(tx, 1, head, block_steps=3)
        check_in(tx, 1, 3)  # another window
    with storage.snapshot() as reads:
        assert list(reads.participations(3)) == [with_update(1, 3)]
        assert reads.participation_at(1, 3) == with_update(1, 3)
        assert reads.participation_at(2, 3) is None
        assert reads.participation_at(1, 2) is None


def test_a_conflicting_check_in_changes_nothing_in_its_transaction(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
        with pytest.raises(ConflictError):
            tx.check_in(ParticipationRow(1, 0, digest(b"x")), b"x", 9)
        check_in(tx, 2, 0)
    with storage.snapshot() as reads:
        assert reads.arrived(0).tolist() == [1, 2]
        assert dict(reads.bodies(0)) == {client: body(client, 0) for client in (1, 2)}


def test_only_enrolled_clients_check_in(storage):
    with storage.transaction() as tx:
        tx.invite([digest(b"another")])
    for client in (8, 9):
        with pytest.raises(StorageError), storage.transaction() as tx:
            check_in(tx, client, 0)
    with storage.snapshot() as reads:
        assert reads.arrived(0).tolist() == []


def test_an_update_is_stored_with_its_digest(storage):
    for participation, update in [
        (with_update(1, 0), None),
        (ParticipationRow(1, 0, None), b""),
    ]:
        with pytest.raises(StorageError, match="together"), storage.transaction() as tx:
            tx.check_in(participation, update, 1)


def test_an_update_is_stored_once_and_only_after_a_check_in(storage):
    with storage.transaction() as tx:
        for client in (1, 2):
            tx.check_in(ParticipationRow(client, 0, None), None, 1)
        check_in(tx, 3, 0)
        tx.answer(1, 0, digest(b"mine"), b"mine")
        for client, step in ((1, 0), (3, 0), (4, 0), (1, 4)):
            with pytest.raises(ConflictError, match=r"stored.*check in"):
                tx.answer(client, step, digest(b"other"), b"other")
        assert tx.participation_at(1, 0) == ParticipationRow(1, 0, digest(b"mine"))
        assert tx.participation_at(2, 0) == ParticipationRow(2, 0, None)
        assert dict(tx.bodies(0)) == {1: b"mine", 3: body(3, 0)}


def test_selected_clients_are_stored_once_in_order(storage):
    with storage.transaction() as tx:
        assert tx.asked(0) is None
        tx.request(0, np.array([], dtype=np.int64))
        nobody = tx.asked(0)
        assert nobody is not None
        assert nobody.tolist() == []
        released(tx, 1)
        with pytest.raises(StorageError, match="twice"):
            tx.request(1, np.array([5, 5]))
        tx.request(1, np.array([5, 2], dtype=np.int64))
        with pytest.raises(ConflictError):
            tx.request(1, np.array([5], dtype=np.int64))
    with storage.snapshot() as reads:
        found = [reads.asked(step) for step in range(3)]
    assert [None if clients is None else clients.tolist() for clients in found] == [
        None,  # the step is released
        [2, 5],
        None,
    ]
    assert found[1] is not None
    assert found[1].dtype == np.int64


def test_check_ins_are_read_in_order_of_clients(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.SMALL_ROWS", 3)
    came = [0, 2, 3, 4, 5, 7]
    with storage.transaction() as tx:
        for client in (5, 0, 7, 3, 4):
            check_in(tx, client, 0)
        tx.check_in(ParticipationRow(2, 0, None), None, 1)
        assert [found.client for found in tx.participations(0)] == came
        assert list(tx.participations(0))[:2] == [with_update(0, 0), ParticipationRow(2, 0, None)]
        assert tx.arrived(0).tolist() == came
        assert list(tx.participations(1)) == tx.arrived(1).tolist() == []


def test_check_ins_of_a_window_are_kept_until_the_window_ends(storage):
    with storage.transaction() as tx:
        tx.invite([digest(b"%d" % n) for n in range(2 * SHARD_CLIENTS)])
        far = 2 * SHARD_CLIENTS + 3
        tx.enrol(far, key(far))
    came, head = [[1, 5], [1, far], [0], [7]], START
    expected = [{1: 1, 5: 1}, {1: 2, 5: 1, far: 1}, {0: 1, 1: 2, 5: 1, far: 1}, {}]
    for step, clients in enumerate(came):
        with storage.transaction() as tx:
            for client in clients:
                check_in(tx, client, step, quota=2)
            head = released(tx, 1, head, block_steps=4)
        with storage.snapshot() as reads:
            found, used = reads.participation_counts()
            assert dict(zip(found.tolist(), used.tolist(), strict=True)) == expected[step]


def test_a_window_of_one_step_leaves_no_check_ins(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
        released(tx, 1, block_steps=1)
        assert tx.participation_counts()[0].size == 0
        check_in(tx, 1, 1)


def test_a_check_in_window_cannot_end_twice(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
        before = released(tx, 1, block_steps=5)
    for ends in (4, 6):
        with pytest.raises(StorageError, match="go back"), storage.transaction() as tx:
            tx.release(release(before), ends)
    with pytest.raises(StorageError, match="not over"), storage.transaction() as tx:
        tx.release(release(before), 2)


@pytest.mark.parametrize("quota", [0, 2**16])
def test_a_check_in_quota_outside_its_domain_is_refused(storage, quota):
    with pytest.raises(StorageError, match=r"quota = .* 1 to 65535"), storage.transaction() as tx:
        check_in(tx, 1, 0, quota=quota)


def test_stored_updates_are_read_in_order_of_clients(storage, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.reads.BODIES", 3)
    with storage.transaction() as tx:
        for client in (5, 3, 7, 0, 1, 2, 6):
            check_in(tx, client, 0)
        assert list(tx.bodies(0)) == [(client, body(client, 0)) for client in (0, 1, 2, 3, 5, 6, 7)]
        assert list(tx.bodies(1)) == []


def test_stored_releases_round_trip_bit_for_bit(storage):
    costs = [0.0, 5e-324, 0.1 + 0.2, 1.0, math.nextafter(1.0, 2.0), 1e300]
    before, stored = START, []
    with storage.transaction() as tx:
        for epsilon in costs:
            after = release(before, epsilon=epsilon)
            tx.release(after, 100)
            before = after.record.head
            stored.append(after)
    with storage.snapshot(whole=True) as reads:
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
            tx.release(release(START, salt=b"other noise"), 100)
    with storage.snapshot(whole=True) as reads:
        assert same(reads.release_at(0), release(START))


def test_ledger_records_that_do_not_continue_the_ledger_are_refused(storage):
    with storage.transaction() as tx:
        before = released(tx, 2)
    right = release(before)
    for name, value, message in [
        ("step", 3, "does not follow"),
        ("previous", bytes(32), "does not follow"),
        ("task", "0" * 64, "does not follow"),
        ("model_digest", bytes(32), "does not have the digest of the released parameters"),
        ("epsilon", math.nan, "expected finite"),
        ("epsilon", math.inf, "expected finite"),
        ("epsilon", -1e-9, "expected finite"),
        ("epsilon", -0.0, "expected finite"),
        ("delta", math.nan, "expected finite"),
    ]:
        record = dataclasses.replace(right.record, **{name: value})
        wrong = dataclasses.replace(right, record=record)
        with pytest.raises(StorageError, match=message), storage.transaction() as tx:
            tx.release(wrong, 100)
    with storage.snapshot(whole=True) as reads:
        assert len(list(reads.records())) == 2


def test_a_released_step_accepts_no_updates(storage):
    with storage.transaction() as tx:
        tx.check_in(ParticipationRow(1, 0, None), None, 1)
        released(tx, 1)
    for other in (
        lambda tx: check_in(tx, 2, 0),
        lambda tx: tx.request(0, np.array([1])),
        lambda tx: check_in(tx, 2, 2),
        lambda tx: tx.request(2, np.array([1])),
    ):
        with pytest.raises(StorageError, match="not open"), storage.transaction() as tx:
            other(tx)
    with pytest.raises(ConflictError), storage.transaction() as tx:
        tx.answer(1, 0, digest(b"x"), b"x")


def test_rows_of_a_released_step_are_deleted_at_once_and_space_freed_gradually(storage):
    with storage.transaction() as tx:
        for client in range(4):
            check_in(tx, client, 0)
        assert tx.reclaim(99) == 0
        head = released(tx, 1, block_steps=2)
        assert dict(tx.bodies(0)) == {}
        assert tx.arrived(0).tolist() == list(tx.participations(0)) == []
        assert tx.participation_at(1, 0) is None
        for client in range(4, 7):
            check_in(tx, client, 1)
        assert tx.reclaim(3) == 3
        assert tx.reclaim(99) == 1
        assert tx.reclaim(99) == 0
        assert dict(tx.bodies(1)) == {client: body(client, 1) for client in range(4, 7)}
        released(tx, 1, head, block_steps=2)
        assert tx.reclaim(99) == 3
    assert storage.tidy()
    assert storage.tidy(thorough=True)


def test_the_first_evaluation_of_a_model_is_kept_even_if_not_finite(storage):
    with storage.transaction() as tx:
        tx.score(Scored(10, 0.5, 2.0))
        tx.score(Scored(10, 0.9, 0.1))
        tx.score(Scored(5, math.nan, math.inf))
        assert repr(list(tx.scores())) == repr(
            [Scored(5, math.nan, math.inf), Scored(10, 0.5, 2.0)]
        )


def test_reading_the_log_returns_its_last_lines(storage):
    lines = [
        LogEvent(0.5 + n, level, "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n % ? $1")
        for n, level in enumerate(("info", "warning", "error"))
    ]
    with storage.transaction() as tx:
        for line in lines:
            tx.log(line)
        assert tx.events(2) == lines[1:]
        assert tx.events(99) == lines


def test_witness_receipts_are_immutable(storage):
    first, second = (WitnessReceipt(digest(b"witness"), steps, bytes(64)) for steps in (3, 4))
    other = WitnessReceipt(digest(b"another"), 1, bytes([1] * 64))
    with storage.snapshot() as reads:
        assert reads.last_receipt() is None
    with storage.transaction() as tx:
        released(tx, 4)
    for receipt in (first, second, first):
        with storage.transaction() as tx:
            tx.publish(receipt.steps, receipt)
    with storage.snapshot() as reads:
        assert reads.last_receipt() == second  # the copy of the first was dropped
    with storage.transaction() as tx:
        tx.publish(1, other)
    with storage.snapshot() as reads:
        assert reads.last_receipt() == other


def test_a_release_is_readable_after_its_publication(storage, url):
    """Before the publication only the coordinator's connection can read the release."""
    with storage.transaction() as tx:
        released(tx, 3)
        for steps in (1, 2, 3):
            tx.score(Scored(steps, 0.5, 1.0))
        tx.publish(2, None)
    other = open_storage(url, serving=False)
    for opened in (storage, other):
        with opened.snapshot() as reads:
            assert [record.step for record in reads.records()] == [0, 1]
            assert reads.last_release().record.step == 1
            assert reads.release_at(2) is None
            assert [step for step, *_ in reads.counts()] == [0, 1]
            assert [scored.steps for scored in reads.scores()] == [1, 2]
    with storage.snapshot(whole=True) as reads:
        assert [record.step for record in reads.records()] == [0, 1, 2]
    with pytest.raises(StorageError, match="only the coordinator"), other.snapshot(whole=True):
        pass
    other.close()


def test_only_released_and_signed_steps_are_published(storage):
    wrong = WitnessReceipt(digest(b"witness"), 2, bytes(64))
    with storage.transaction() as tx:
        released(tx, 1)
    for steps, receipt, message in ((2, None, "not released"), (1, wrong, "witness's receipt")):
        with pytest.raises(StorageError, match=message), storage.transaction() as tx:
            tx.publish(steps, receipt)
    with storage.snapshot() as reads:
        assert reads.last_release() is None
