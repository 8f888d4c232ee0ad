"""Coordinators with one fault each: some simulation must detect each fault."""

import hashlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from memory_storage import MemoryStorage, MemoryTransaction
from simulated_world import World, promise

from turnout.core.aggregates import IntegerSum
from turnout.protocol.mechanisms import Aggregated, OneClient
from turnout.protocol.messages import CheckIns, Verdict
from turnout.service.contract.wire import StepPhase, WireAnswer, WireReceipt
from turnout.service.coordinator.engine import Engine, Upload
from turnout.service.coordinator.releases import Releases
from turnout.service.storage.interface import ParticipationRow

ENOUGH = 400
"""Number of worlds in which a fault must be detected; most are within the first twenty.

The right coordinator fails in none of them:
`test_a_recorded_epsilon_of_another_number_of_steps_is_detected` runs all of them with the
correct ε, and test_simulated_runs.py the first 500.
"""


def noticed(**parts) -> bool:
    """Whether some simulated service run violates a guarantee or raises an error."""
    for seed in range(ENOUGH):
        try:
            World(seed, **parts).run()
        except Exception:
            return True
    return False


# -- engine: who is admitted --------------------------------------------------------------------


class AcceptsLateUpdates(Engine):
    def _wrong_time(self, client, step, phase):
        late = super()._wrong_time(client, step, phase)
        return None if late and late.answer is WireAnswer.LATE else late


class AcceptsEarlyUpdates(Engine):
    def update(self, tx, client, step, upload):
        if step > self._step and not self._asks_one:
            tx.check_in(ParticipationRow(client, step, upload.digest), upload.body, self._quota)
            return WireReceipt(WireAnswer.ACCEPTED, self.task, client, step, upload.digest)
        return super().update(tx, client, step, upload)


class ForgetsTheWindow(Engine):
    """Mutant that forgets at a restart which clients participated earlier in the window."""

    def _coordinator_at(self, view, step):
        return self.charter.coordinator(
            first_step=step, mechanism_state=self._releases.mechanism_state
        )


class ForgetsTheStep(Engine):
    """Mutant that forgets at a restart which clients participated in the open step."""

    def _resume_step(self, view):
        pass


class ConfirmsAnything(Engine):
    """Mutant that answers a different second update with a receipt for its digest."""

    def _repeated(self, stored, upload):
        return self._receipt(WireAnswer.ACCEPTED, stored.client, stored.step, digest=upload.digest)


class AnswersBeforeItStores(Engine):
    def _admit(self, tx, client, step, upload):
        receipt = WireReceipt(
            WireAnswer.ACCEPTED, self.task, client, step, upload.digest if upload else None
        )
        verdict = self._coordinator.check_in(CheckIns(step, np.array([client]))).verdicts[0]
        if verdict == Verdict.ACCEPTED:
            return receipt  # and the row is written later
        return super()._admit(tx, client, step, upload)


class IgnoresTheQuota(Engine):
    """Mutant that does not check the quota of a client."""

    def _admit(self, tx, client, step, upload):
        digest, body = (upload.digest, upload.body) if upload else (None, None)
        tx.check_in(ParticipationRow(client, step, digest), body, 10**4)
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=digest)


class AcceptsAnyNorm(Engine):
    """Mutant that accepts updates of any norm."""

    def inspect(self, body):
        return Upload(body, hashlib.sha256(body).digest())


class SelectsAgain(Engine):
    """Mutant that keeps the selected client in memory and selects again after a restart."""

    _chosen: tuple[int, ...] = ()

    def close_check_ins(self, tx):
        self._chosen = tuple(self._coordinator.close_check_ins(self._source).clients)
        self._phase = StepPhase.ANSWERS

    def requested(self, tx, client, step):
        return replace(super().requested(tx, client, step), asked=client in self._chosen)

    def _answered(self, tx, client, step, upload):
        stored = tx.participation_at(client, step)
        if client in self._chosen and stored.digest is None:
            tx.answer(client, step, upload.digest, upload.body)
            return self._receipt(WireAnswer.ACCEPTED, client, step, digest=upload.digest)
        return super()._answered(tx, client, step, upload)


class AcceptsUnrequestedUpdates(Engine):
    def _answered(self, tx, client, step, upload):
        stored = tx.participation_at(client, step)
        if stored is not None and stored.digest is None and step == self._step:
            tx.answer(client, step, upload.digest, upload.body)
            return self._receipt(WireAnswer.ACCEPTED, client, step, digest=upload.digest)
        return super()._answered(tx, client, step, upload)


class PublishesBeforeTheCommit(Engine):
    def close_step(self, tx):
        stored = super().close_step(tx)
        World.leak(stored)
        return stored


ENGINES = [
    AcceptsLateUpdates,
    AcceptsEarlyUpdates,
    ForgetsTheWindow,
    ForgetsTheStep,
    ConfirmsAnything,
    AnswersBeforeItStores,
    IgnoresTheQuota,
    AcceptsAnyNorm,
    SelectsAgain,
    AcceptsUnrequestedUpdates,
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_a_mutated_engine_is_detected(engine):
    assert noticed(engine=engine)


def test_a_release_published_before_its_commit_is_detected(monkeypatch):
    """A release that was published and rolled back is drawn again."""
    leaks = []

    class Leaky(World):
        def start(self):
            super().start()
            world = self

            def leak(stored):
                leaks.append(stored)
                head = (stored.record.digest, stored.parameters)
                seen = world.published.setdefault(stored.record.step + 1, head)
                promise(seen == head, "two models of one step")

            monkeypatch.setattr(World, "leak", staticmethod(leak), raising=False)

    def broken() -> bool:
        for seed in range(ENOUGH):
            try:
                Leaky(seed, engine=PublishesBeforeTheCommit).run()
            except Exception:
                return True
        return False

    assert broken()
    assert leaks


# -- releases: what is charged and released -----------------------------------------------------


def _silent(deviation, size):
    return np.zeros(size, np.int64)


def _without_noise(original):
    def release(self, total, state, step, noise):
        return original(self, total, state, step, _silent)

    return release


def _same_noise(original):
    """Noise that repeats the first draw of a process."""
    kept = {}

    def release(self, total, state, step, noise):
        if noise not in kept:
            kept[noise] = noise(self.deviation, total.dimension)
        return original(self, total, state, step, lambda deviation, size: kept[noise])

    return release


def _no_noise_when_empty(original):
    def release(self, total, state, step, noise):
        return original(self, total, state, step, noise if total.count else _silent)

    return release


def _forgets_minibatch(self, view):
    Releases_read(self, view)
    self.mechanism_state = self._charter.mechanism.initial_state()


def _forgets_optimizer(self, view):
    Releases_read(self, view)
    self._state = None


def _sums_what_is_in_memory(self, tx, step):
    """Sum in which one stored update is counted twice."""
    updates = Releases_stored_updates(self, tx, step)
    for _, body in tx.bodies(step):
        total = updates.sum.total + self._charter.encoding.decode(body)
        return replace(updates, sum=IntegerSum(total, updates.sum.count))
    return updates


def _wrong_chain(self, tx, coordinator, block_ends):
    keep, self._digests = self._digests, [*self._digests[:1], self._digests[0]]
    try:
        return Releases_release(self, tx, coordinator, block_ends)
    finally:
        self._digests = [*keep, self._digests[-1]]


Releases_read = Releases._read_model
Releases_stored_updates, Releases_release = Releases._stored_updates, Releases.release
RELEASES = {
    "_read_model": (_forgets_minibatch, _forgets_optimizer),
    "_stored_updates": (_sums_what_is_in_memory,),
    "release": (_wrong_chain,),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name, several in RELEASES.items() for wrong in several],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_mutated_releases_are_detected(mutate, name, wrong):
    mutate(Releases, name, wrong)
    assert noticed()


@pytest.mark.parametrize("mechanism", [Aggregated, OneClient])
@pytest.mark.parametrize("wrong", [_without_noise, _same_noise, _no_noise_when_empty])
def test_mutated_noise_is_detected(mutate, wrong, mechanism):
    mutate(mechanism, "release", wrong(mechanism.release))
    assert noticed()


@pytest.mark.parametrize("late", [0, 2])
def test_a_recorded_epsilon_of_another_number_of_steps_is_detected(mutate, late):
    """The recorded ε is that of fewer or more steps than are released."""
    from turnout.service.contract.charter import Charter

    right = Charter.spent
    mutate(Charter, "spent", lambda self, steps: right(self, max(steps - late, 0)))
    assert noticed() == bool(late)


# -- storage: what is kept ----------------------------------------------------------------------


class CommitsByParts(MemoryStorage):
    """Mutant in which a crash leaves a check-in without its update."""

    @contextmanager
    def transaction(self):
        working = self.committed.copied()
        try:
            yield MemoryTransaction(working)
        except BaseException:
            self.committed.check_ins = working.check_ins
            raise
        self.committed = working


class LosesSomeCommits(MemoryStorage):
    """Mutant that reports a commit that is sometimes lost."""

    def __init__(self):
        super().__init__()
        self._commits = 0

    @contextmanager
    def transaction(self):
        before = self.committed
        with super().transaction() as tx:
            yield tx
        self._commits += 1
        if self._commits % 7 == 0:
            self.committed = before


class Overwrites(MemoryStorage):
    """Mutant in which a second release of a step replaces the first."""

    @contextmanager
    def transaction(self):
        with super().transaction() as tx:
            tx.release = lambda release, block_ends: tx.t.releases.__setitem__(
                release.record.step, replace(release, checked_in=release.checked_in)
            )
            tx.last_release = lambda: None
            yield tx

    @contextmanager
    def snapshot(self, *, whole=False):
        with super().snapshot(whole=whole) as view:
            view.records = lambda first_step=0: iter(())
            view.last_release = lambda: None
            yield view


def changed(**methods) -> type[MemoryStorage]:
    """Storage whose transactions have some methods replaced."""
    wrong = type("WrongTransaction", (MemoryTransaction,), methods)
    return type("WrongStorage", (MemoryStorage,), {"transaction_class": wrong})


def _reclaims_the_open_step(self, at_most):
    old = sorted(self.t.bodies)[:at_most]
    for key in old:
        del self.t.bodies[key]
    return len(old)


def _keeps_selected_clients(self, step):
    self.t.check_ins.clear()


def _keeps_one(self, step):
    """Deletion after which the check-in of the smallest client number remains."""
    for client in sorted(self.t.check_ins)[1:]:
        del self.t.check_ins[client]
    self.t.asked.pop(step, None)


def _stores_no_check_in_counts(self, step, block_ends):
    """Mutant that stores no check-in counts of the window, so that a restart forgets them."""


def _counts_one_check_in(self, step, block_ends):
    """Mutant that stores at most one check-in per client in a window."""
    if block_ends <= step + 1:
        self.t.turns.clear()
    self.t.turns.update(dict.fromkeys(self.t.check_ins, 1) if block_ends > step + 1 else {})


def _keeps_check_in_counts_for_ever(self, step, block_ends):
    for client in self.t.check_ins:
        self.t.turns[client] = self.t.turns.get(client, 0) + 1


def _clears_check_in_counts_at_each_release(self, step, block_ends):
    self.t.turns.clear()


def _reads_on_after_the_release(self, step):
    for s, client in sorted(self.t.bodies):
        if s == step:
            yield client, self.t.bodies[s, client]


def _loses_check_in_counts(self):
    """Mutant that reads no check-in counts of the window at a restart."""
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _ignores_the_quota(self, participation, body, quota):
    MemoryTransaction.check_in(self, participation, body, 10**9)


FORGETFUL = {
    "ForgetsTooEarly": {"reclaim": _reclaims_the_open_step},
    "NeverReclaims": {"reclaim": lambda self, at_most: 0},
    "KeepsWhoCame": {"forget": lambda self, step: None},
    "KeepsWhoWasAsked": {"forget": _keeps_selected_clients},
    "KeepsOne": {"forget": _keeps_one},
    "UpdatesOutliveTheirStep": {"bodies": _reads_on_after_the_release},
    "ForgetsTurns": {"take_turns": _stores_no_check_in_counts},
    "ForgetsLaterTurns": {"take_turns": _counts_one_check_in},
    "ClearsTurnsEarly": {"take_turns": _clears_check_in_counts_at_each_release},
    "KeepsTurnsForEver": {"take_turns": _keeps_check_in_counts_for_ever},
    "CountsTwiceAfterARestart": {
        "participation_counts": _loses_check_in_counts,
        "check_in": _ignores_the_quota,
    },
}


@pytest.mark.parametrize("name", FORGETFUL)
def test_a_storage_that_keeps_rows_it_should_delete_is_detected(name):
    assert noticed(storage=changed(**FORGETFUL[name]))


@pytest.mark.parametrize(
    "storage", [CommitsByParts, LosesSomeCommits, Overwrites], ids=lambda s: s.__name__
)
def test_a_mutated_storage_is_detected(storage):
    assert noticed(storage=storage)
