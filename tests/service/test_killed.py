"""Processes killed by SIGKILL at random times: no acknowledged update is lost or counted twice.

``TURNOUT_KILLS`` sets the number of kills; ``make kills`` uses 1,000.
"""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from forked import HANGS_SECONDS
from killing import (
    DIVISOR,
    HIGHEST_TAG,
    MARK,
    TAGS,
    Crowd,
    Diary,
    Server,
    answers,
    counted,
    until,
    with_tagging_noise,
)
from processes import done, free_port, turnout

from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, Record, require_chain
from turnout.service.contract.wire import Invitation, SignedHead
from turnout.service.storage.opening import open_storage
from turnout.service.witness.app import WitnessStore

KILLS = int(os.environ.get("TURNOUT_KILLS", "120"))
RELEASES = 0.3 * KILLS
CLIENTS, WINDOW = 400, 8
PLAN = f"""
[data]
name = "digits"
clients = {CLIENTS}
[model]
name = "logistic"
[participation]
law = "check-in"
window = {WINDOW}
windows = 400
[privacy]
relation = "add-remove"
delta = 1e-3
noise_multiplier = 20.0
[protocol]
expected_check_ins = {DIVISOR}
[optimizer]
learning_rate = 1.0
"""
TIMING = ["--step-seconds", "0.06", "--check-in-seconds", "0.04", "--answer-seconds", "0.005"]


def await_news(crowds, acknowledged, over, *, steps):
    """Wait for more acknowledged updates and more finished steps.

    Args:
        crowds: the clients.
        acknowledged: number of updates.
        over: function that is true if the run has ended.
        steps: number of steps.
    """

    def news():
        return sum(len(crowd.diary.acknowledged) for crowd in crowds)

    def step():
        return max(crowd.diary.step for crowd in crowds)

    enough, later = news() + acknowledged, step() + steps
    until(lambda: over() or (news() >= enough and step() >= later))


@dataclass
class Run:
    """Stored data after all kills, and what the clients saw."""

    database: Path
    witness: Path
    charter: Charter
    diaries: list[Diary]


def kill_again_and_again(server, witness, port, crowds):
    """Kill the coordinator, the witness, or both, many times."""
    dice, kills, life = random.Random(1), 0, 0

    def over():
        """Whether a guarantee was violated, or a process ended without being killed."""
        ran = server.runs and witness.runs
        return not ran or any(crowd.diary.errors for crowd in crowds)

    def ready():
        until(lambda: over() or answers(port))

    while kills < KILLS:
        witness.start()
        server.start()
        if dice.random() < 0.9:
            ready()
            await_news(crowds, dice.randrange(4), over, steps=4 if life % 8 == 0 else 0)
            time.sleep(dice.random() * 0.05)
        else:  # while the process starts
            time.sleep(dice.random() * 0.2)
        victims = dice.choice([(server,), (server,), (witness,), (server, witness)])
        for victim in victims:
            victim.kill()
        kills, life = kills + len(victims), life + 1
    witness.start()
    server.start()
    ready()
    await_news(crowds, 1, over, steps=1)
    for process in (server, witness):
        process.require_running()


@pytest.fixture
def killed(tmp_path):
    """Run whose coordinator and witness were killed many times."""
    plan, database, log = tmp_path / "plan.toml", tmp_path / "task.sqlite", tmp_path / "log.txt"
    plan.write_text(PLAN)
    tokens, witnessed = tmp_path / "tokens.txt", tmp_path / "witness.sqlite"
    enrol = ["enrol", CLIENTS, "--db", database, "--plan", plan, "--out", tokens, *TIMING]
    done(turnout(*enrol, log=log), log)
    invitations = [Invitation.decoded(line) for line in tokens.read_text().split()]
    with closing(open_storage(str(database), serving=False)) as storage, storage.snapshot() as view:
        charter = Charter.from_canonical(view.charter())
    with closing(WitnessStore(witnessed)) as store:
        key = store.key.public.hex()
    port, beside = free_port(), free_port()
    serve = ["serve", plan, "--db", database, "--port", port]
    serve += ["--witness", f"http://127.0.0.1:{beside}", "--witness-key", key]
    server = Server(serve, log, with_tagging_noise)
    witness = Server(["witness", "--db", witnessed, "--port", beside], tmp_path / "witness.txt")
    crowds = [Crowd(invitations[half::2], charter.encoding, 8, port, half) for half in range(2)]
    try:
        for crowd in crowds:
            crowd.start()
        kill_again_and_again(server, witness, port, crowds)
    finally:
        for crowd in crowds:
            crowd.over.set()
        for crowd in crowds:
            crowd.join(HANGS_SECONDS)
        server.kill()
        witness.kill()
    return Run(database, witnessed, charter, [crowd.diary for crowd in crowds])


def ledger(run, view):
    """Records and models from the charter on, each checked to follow from the previous one."""
    head, records = Head(0, bytes.fromhex(run.charter.task)), []
    models = [view.initial_parameters()]
    for record in view.records():
        head = require_chain(run.charter.task, head, record)
        records.append(record)
        models.append(view.release_at(record.step).parameters)
    assert [r.epsilon for r in records] == [run.charter.spent(s + 1) for s in range(head.steps)]
    return records, models


def clients_of(record: Record, before: bytes, after: bytes, charter: Charter) -> np.ndarray:
    """Number of times that each client was counted in a release, checked by the record's digest."""
    total = counted(before, after, charter.encoding)
    assert hashlib.sha256(total.astype("<i8").tobytes()).digest() == record.sum_digest
    marks, tags = total[:CLIENTS], total[-TAGS:]
    assert not total[CLIENTS:-TAGS].any()
    assert not (marks % MARK).any()
    assert 0 <= tags.min() <= tags.max() <= HIGHEST_TAG
    return marks // MARK


def require_counted_once(run, view, records, models):
    """Check that acknowledged updates were counted, none twice, and none that no client sent."""
    acknowledged = {pair for diary in run.diaries for pair in diary.acknowledged}
    sent = {pair for diary in run.diaries for pair in diary.sent}
    assert len(acknowledged) > KILLS  # otherwise the run would test nothing
    counts = np.array(
        [
            clients_of(record, models[record.step], models[record.step + 1], run.charter)
            for record in records
        ]
    )
    for first in range(0, len(counts), WINDOW):
        assert counts[first : first + WINDOW].sum(axis=0).max() <= 1
    in_models = {(int(client), int(step)) for step, client in np.argwhere(counts)}
    released = {pair for pair in acknowledged if pair[1] < len(records)}
    assert released - in_models == set()  # no acknowledged update is lost
    assert in_models - sent == set()
    for client, step in acknowledged - released:  # the update waits for the end of its step
        assert view.participation_at(client, step) is not None


def test_a_repeatedly_killed_coordinator_keeps_all_guarantees(killed):
    assert not [error for diary in killed.diaries for error in diary.errors]
    with closing(open_storage(str(killed.database), serving=True)) as storage:
        with storage.snapshot(whole=True) as view:
            records, models = ledger(killed, view)
            require_counted_once(killed, view, records, models)
        with storage.snapshot() as view:
            receipt = view.last_receipt()
            assert len(list(view.records())) == receipt.steps
    assert len(records) >= RELEASES
    digests = [bytes.fromhex(killed.charter.task), *(record.digest for record in records)]
    with closing(sqlite3.connect(killed.witness)) as database:
        rows = database.execute("SELECT steps, head FROM heads ORDER BY steps").fetchall()
    witnessed = [SignedHead.parsed(text).head for _, text in rows]
    assert witnessed == [Head(steps, digests[steps]) for steps in range(len(rows))]
    assert receipt.steps < len(witnessed) <= len(digests)
    published = 0
    for diary in killed.diaries:
        for steps, seen in diary.published.items():
            assert seen == {hashlib.sha256(models[steps]).hexdigest()}
        for steps, seen in diary.heads.items():
            assert seen == {digests[steps].hex()}
        published = max(published, *diary.heads)
    assert published < len(witnessed)  # only heads known to the witness were shown
    print(f"{KILLS} kills, {len(records)} releases, {published} of them seen")
