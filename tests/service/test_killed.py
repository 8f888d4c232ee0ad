"""``kill -9`` at random moments: nothing acknowledged is lost, nothing is done twice.

``TURNOUT_KILLS`` says how often; ``make kills`` takes 1,000.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import closing

import pytest
from forked import HANGS_SECONDS
from killing import Crowd, Server, until
from processes import done, free_port, turnout

from turnout.service.charter import Charter
from turnout.service.ledger import Head, require_chain
from turnout.service.storage.opening import open_storage
from turnout.service.wire import Invitation

KILLS = int(os.environ.get("TURNOUT_KILLS", "200"))
PLAN = """
[data]
name = "digits"
clients = 400
[model]
name = "logistic"
[participation]
law = "check-in"
window = 8
windows = 400
[privacy]
relation = "add-remove"
delta = 1e-3
noise_multiplier = 20.0
[optimizer]
learning_rate = 0.01
"""


def await_news(crowds, acknowledged, *, a_step):
    """Wait until so many more updates are acknowledged and, perhaps, a step is over."""

    def news():
        return sum(len(crowd.diary.acknowledged) for crowd in crowds)

    def step():
        return max(crowd.diary.step for crowd in crowds)

    enough, later = news() + acknowledged, step() + a_step
    until(lambda: dead(crowds) or (news() >= enough and step() >= later))


def dead(crowds):
    """Whether a promise was broken already, so that nothing will come any more."""
    return any(crowd.diary.errors for crowd in crowds)


@pytest.fixture
def killed(tmp_path):
    """The storage and what its clients saw, after all kills."""
    plan, database, log = tmp_path / "plan.toml", tmp_path / "task.sqlite", tmp_path / "log.txt"
    plan.write_text(PLAN)
    tokens = tmp_path / "tokens.txt"
    timing = ["--step-seconds", "0.06", "--check-in-seconds", "0.04", "--answer-seconds", "0.005"]
    enrol = ["enrol", "400", "--db", database, "--plan", plan, "--out", tokens, *timing]
    done(turnout(*enrol, log=log), log)
    invitations = [Invitation.decoded(line) for line in tokens.read_text().split()]
    with closing(open_storage(str(database), serving=False)) as storage, storage.snapshot() as view:
        charter = Charter.from_canonical(view.charter())
    port, dice = free_port(), random.Random(1)
    server = Server(["serve", plan, "--db", database, "--port", port], port, log)
    crowds = [Crowd(invitations[half::2], charter.lattice, 8, port, half) for half in range(2)]
    try:
        for crowd in crowds:
            crowd.start()
        for life in range(KILLS):
            server.start()
            if dice.random() < 0.9:
                until(server.answers)
                await_news(crowds, dice.randrange(4), a_step=life % 8 == 0)
                time.sleep(dice.random() * 0.01)
            else:  # in the middle of starting
                time.sleep(dice.random() * 0.2)
            server.kill()
        server.start()
        until(server.answers)
        await_news(crowds, 1, a_step=True)
    finally:
        for crowd in crowds:
            crowd.over.set()
        for crowd in crowds:
            crowd.join(HANGS_SECONDS)
        server.kill()
    return database, charter, [crowd.diary for crowd in crowds]


def test_killed_again_and_again_it_keeps_every_promise(killed):
    database, charter, diaries = killed
    assert not [error for diary in diaries for error in diary.errors]
    acknowledged = {key: digest for diary in diaries for key, digest in diary.acknowledged.items()}
    assert len(acknowledged) > KILLS  # or the run would prove nothing
    with closing(open_storage(str(database), serving=False)) as storage, storage.snapshot() as view:
        head, epsilons, models = Head(0, bytes.fromhex(charter.task)), [], [charter.initial_model]
        for record in view.records():
            head = require_chain(charter.task, head, record)
            epsilons.append(record.epsilon)
            models.append(record.model_digest)
        came = dict.fromkeys(range(head.steps), 0)
        for (client, step), digest in acknowledged.items():
            if step < head.steps:
                came[step] += 1
                assert view.participation_at(client, step) is None
                continue
            row = view.participation_at(client, step)
            assert row is not None, f"client {client}'s acknowledged update of step {step} is lost"
            assert row.digest.hex() == digest
        counts = {step: checked_in for step, checked_in, _ in view.counts()}
        # Of the block in progress the turns are known, of the others nothing is.
        assert not view.turns()[1].size or view.turns()[1].max() == 1
    assert epsilons == [charter.spent(step + 1) for step in range(head.steps)]
    assert head.steps > KILLS / 10
    # An update may have been stored whose receipt never came back.
    assert all(counts[step] >= came[step] for step in counts)
    for diary in diaries:
        for steps, digests in diary.published.items():
            assert digests == {models[steps].hex()}
