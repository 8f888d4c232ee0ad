"""The coordinator's decisions about requests and steps: no network, no clock, no threads.

`Engine` answers requests inside transactions of the storage; its caller decides when a phase ends.
The writes of one method are committed together or not at all. A commit that fails ends the process,
since the engine's state in memory is then ahead of the storage; a new engine reads the storage. The
protocol's own coordinator decides which clients are admitted, and the charter's mechanism computes
the release. Both compute on stored data, so a restart in the middle of a step changes no result.

`ReleasedCheckIns` keeps the check-ins of the last released step in memory, since the transaction of
the release deletes them from the storage. A client that missed the answer to its last request
repeats the request, most often within seconds. After a restart, or once the next step is released,
such a client gets the answer that the step is over.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import Noise
from turnout.core.errors import StorageError
from turnout.core.showing import shows_shapes
from turnout.participation.schedule import ScheduleBlock, blocks
from turnout.protocol.coordinator import Coordinator, quota
from turnout.protocol.messages import CheckIns, Verdict
from turnout.randomness import OSRandomness, Source, rounded_gaussian
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head
from turnout.service.contract.wire import SignedHead, StepPhase, WireAnswer, WireReceipt
from turnout.service.coordinator.releases import Learner, Releases
from turnout.service.storage.database import Storage
from turnout.service.storage.interface import ParticipationRow, ReleaseRow
from turnout.service.storage.writes import Transaction

_DIGEST_BYTES = 32


class ReleasedCheckIns:
    """Check-ins of the last released step, kept in memory at 41 bytes per client.

    Args:
        step: the released step; −1 before the first release.
        participations: check-ins of this step, ascending by client.
    """

    def __init__(self, step: int, participations: Iterable[ParticipationRow]) -> None:
        clients: list[int] = []
        digests, answered = bytearray(), bytearray()
        for participation in participations:
            clients.append(participation.client)
            digests += participation.digest or bytes(_DIGEST_BYTES)
            answered.append(participation.digest is not None)
        self._step = step
        self._clients = np.array(clients, dtype=np.int64)
        self._digests, self._answered = bytes(digests), bytes(answered)

    def participation_at(self, client: int, step: int) -> ParticipationRow | None:
        """Stored check-in of a client at ``step``; None for another step or an absent client."""
        place = int(np.searchsorted(self._clients, client))
        if step != self._step or place == self._clients.size or self._clients[place] != client:
            return None
        start = place * _DIGEST_BYTES
        digest = self._digests[start : start + _DIGEST_BYTES] if self._answered[place] else None
        return ParticipationRow(client, step, digest)


_ORDER = {phase: place for place, phase in enumerate(StepPhase)}


class SetBackError(StorageError):
    """The storage is an old copy: this coordinator has already signed a later ledger head."""


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Published state of a task: the newest ledger head and model that clients may read.

    Attributes:
        head: ledger head.
        parameters: model on which the devices of the next step train, little-endian float32.
    """

    head: Head
    parameters: bytes


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Upload:
    """Encoded update whose bytes have been checked.

    Attributes:
        body: encoded update.
        digest: SHA-256 of the body.
    """

    body: bytes
    digest: bytes


class Engine:
    """State machine of one task: it answers clients' requests and releases steps.

    The engine continues from the stored state of the task.

    Guarantees:
        A client participates at most as often as the participation allows, despite crashes,
        repeated requests and copies of its device; one update counts for one check-in.
        While a step is open, every copy of a request gets the same receipt. After the release a
        copy gets this receipt from memory, if the request is for the last released step and the
        process has not restarted; otherwise the receipt states that the step is over. No copy is
        counted again.
        One transaction spends the ε of a step, releases the step and records the release, once.
        Noise is drawn after the budget has allowed the step, and never again for a stored step.
    """

    def __init__(
        self, charter: Charter, releases: Releases, view: Transaction, source: Source
    ) -> None:
        self.charter, self.task = charter, charter.task
        self._releases, self._source = releases, source
        self._blocks = blocks(charter.scheme.participation)
        self._asks_one = charter.asks_one
        self._quota = quota(charter.scheme.participation)
        self._released_check_ins = ReleasedCheckIns(-1, ())
        self._coordinator = self._coordinator_at(view, releases.head.steps)
        self.publish()
        self._resume_step(view)

    @classmethod
    def open(
        cls,
        storage: Storage,
        learner: Callable[[Charter], Learner],
        *,
        source: Source | None = None,
        noise: Noise = rounded_gaussian,
    ) -> Self:
        """Engine of a stored task, in the state of the last committed transaction.

        Args:
            storage: storage with the task.
            learner: function from a charter to its optimizer.
            source: randomness that chooses a client under the one-client rule; by default the
                operating system's bytes.
            noise: function that draws the noise of releases; by default rounded Gaussians.

        Raises:
            StorageError: the storage has no task, or the data of the task are damaged.
        """
        with storage.snapshot(whole=True) as view:
            data = view.charter()
            if data is None:
                raise StorageError("there is no task in this storage; create one first")
            charter = Charter.from_canonical(data)
            releases = Releases(charter, learner(charter), noise, view)
            return cls(charter, releases, view, source or OSRandomness())

    # -- public state -----------------------------------------------------------------------

    @property
    def published(self) -> Published:
        """Newest published model and its ledger head."""
        return self._published

    @property
    def step(self) -> int:
        """Step in progress; the number of steps once all steps are over."""
        return self._step

    @property
    def phase(self) -> StepPhase:
        """Phase of the step in progress."""
        return self._phase

    def has_head(self, seen: SignedHead, is_own_signature: Callable[[], bool]) -> bool:
        """Whether a ledger head that a device presents is part of this ledger.

        Args:
            seen: the ledger head.
            is_own_signature: function that tells whether this coordinator signed the ledger head;
                called only if the ledger does not have this head.

        Raises:
            SetBackError: this coordinator signed a ledger head that the ledger does not have:
                the storage is an old copy.
        """
        if self._releases.holds(seen.head):
            return True
        if is_own_signature():
            raise SetBackError(
                f"this storage is an old copy: it does not have the ledger head {seen.head}, which "
                "a device saw; nothing may be released from it; restore the newest copy"
            )
        return False

    # -- requests, in a transaction ---------------------------------------------------------

    def enrol(self, tx: Transaction, client: int, secret: bytes, public_key: bytes) -> WireReceipt:
        """Store the public key that verifies a client's later requests; return the receipt.

        Args:
            tx: transaction that stores the key.
            client: the client's id.
            secret: secret of the invitation, 32 bytes.
            public_key: Ed25519 public key of the device, 32 bytes.

        Returns:
            Receipt with the answer `ACCEPTED`, also if the same key is already stored; `CONFLICT`
            if another key is stored; `UNKNOWN` if the client has no invitation with this secret.
        """
        invitation = tx.invitation(client)
        digest = hashlib.sha256(secret).digest()
        stored = invitation.secret_digest if invitation else bytes(32)
        if not hmac.compare_digest(stored, digest) or invitation is None:
            return WireReceipt(WireAnswer.UNKNOWN)
        if invitation.public_key is None:
            tx.enrol(client, public_key)
        elif invitation.public_key != public_key:
            return self._receipt(WireAnswer.CONFLICT, client, -1, detail="the invitation was used")
        return self._receipt(WireAnswer.ACCEPTED, client, -1)

    def inspect(self, body: bytes, digest: bytes | None = None) -> Upload:
        """Checked update from the body of a request; the result depends only on the body.

        Args:
            body: encoded update.
            digest: SHA-256 of the body; computed by default.

        Raises:
            RemoteProtocolError: the body is not a valid update.
        """
        self.charter.encoding.decode(body)
        return Upload(body, digest or hashlib.sha256(body).digest())

    def check_in(self, tx: Transaction, client: int, step: int) -> WireReceipt:
        """Receipt for a check-in without an update, accepted or refused (one-client rule)."""
        if not self._asks_one:
            return self._receipt(
                WireAnswer.REFUSED, client, step, detail="an update is the check-in here"
            )
        if (stored := self._check_in_of(tx, client, step)) is not None:
            return self._receipt(WireAnswer.ACCEPTED, client, stored.step)
        return self._wrong_time(client, step, StepPhase.CHECK_INS) or self._admit(
            tx, client, step, None
        )

    def requested(self, tx: Transaction, client: int, step: int) -> WireReceipt:
        """Receipt that tells whether the client was chosen to send an update (one-client rule).

        The receipt's ``asked`` is None until the coordinator has chosen a client.
        """
        stored = self._check_in_of(tx, client, step)
        if stored is None and self._asks_one and step < self._step:
            return self._receipt(WireAnswer.LATE, client, step, detail="this step is over")
        if not self._asks_one or stored is None:
            return self._receipt(
                WireAnswer.REFUSED, client, step, detail="no check-in in this step"
            )
        asked = tx.asked(step)
        answer = None if asked is None else bool(np.any(asked == client))
        if answer is None and (step != self._step or self._phase is StepPhase.CLOSED):
            answer = False
        return self._receipt(WireAnswer.ACCEPTED, client, step, asked=answer)

    def update(self, tx: Transaction, client: int, step: int, upload: Upload) -> WireReceipt:
        """Receipt for an update, which is a check-in or answers a request (one-client rule)."""
        if self._asks_one:
            return self._answered(tx, client, step, upload)
        late = self._wrong_time(client, step, StepPhase.CHECK_INS)
        if late is None:
            admitted = self._admit(tx, client, step, upload)
            if admitted.answer is WireAnswer.ACCEPTED:
                return admitted
        stored = self._check_in_of(tx, client, step)
        if stored is None:
            return late or self._receipt(
                WireAnswer.CONFLICT, client, step, detail="took part in this window already"
            )
        return self._repeated(stored, upload)

    # -- the step's end, in a transaction ---------------------------------------------------

    def close_check_ins(self, tx: Transaction) -> None:
        """End the check-ins of the step; under the one-client rule also choose the client."""
        request = self._coordinator.close_check_ins(self._source)
        if self._asks_one:
            tx.request(self._step, request.clients.astype(np.int64))
        self._phase = StepPhase.ANSWERS

    def close_step(self, tx: Transaction) -> ReleaseRow:
        """Spend the ε of the step, add noise and change the model; return the stored release.

        The release is public after `publish`.

        Raises:
            BudgetExceededError: ε after the step would exceed the target; no noise was drawn.
            NumericalError: the model after the step is not finite.
        """
        if self._phase is StepPhase.CHECK_INS:
            self.close_check_ins(tx)
        block = self._block(self._step)
        kept = ReleasedCheckIns(self._step, tx.participations(self._step))
        block_ends = block.first_step + block.steps
        stored = self._releases.release(tx, self._coordinator, block_ends)
        self._released_check_ins = kept
        self._phase = StepPhase.CLOSED
        return stored

    def publish(self) -> Published:
        """Open the next step after a committed release; return the newly published state."""
        head = self._releases.head
        self._step = head.steps
        self._published = Published(head, self._releases.parameters)
        if self._step == self.charter.steps:
            self._phase = StepPhase.FINISHED
        else:
            self._coordinator.open_step()
            self._phase = StepPhase.CHECK_INS
        return self._published

    # -- parts ------------------------------------------------------------------------------

    def _coordinator_at(self, view: Transaction, step: int) -> Coordinator:
        """Protocol coordinator before a step, with the earlier check-ins of the step's block."""
        return self.charter.coordinator(
            first_step=step,
            mechanism_state=self._releases.mechanism_state,
            used=view.participation_counts(),
        )

    def _resume_step(self, view: Transaction) -> None:
        """Restore the check-ins and the chosen client of the open step from the storage."""
        if self._phase is not StepPhase.CHECK_INS:
            return
        arrived = view.arrived(self._step)
        if arrived.size:
            self._coordinator.check_in(CheckIns(self._step, arrived))
        asked = view.asked(self._step)
        if asked is not None:
            self._coordinator.close_check_ins(_StoredChoice(arrived, asked))
            self._phase = StepPhase.ANSWERS

    def _block(self, step: int) -> ScheduleBlock:
        """Block of the participation schedule that contains a step."""
        return self._blocks[bisect_right(self._blocks, step, key=lambda b: b.first_step) - 1]

    def _receipt(self, answer: WireAnswer, client: int, step: int, **more: Any) -> WireReceipt:
        """Receipt with this task's name."""
        return WireReceipt(answer, self.task, client, step, **more)

    def _check_in_of(self, tx: Transaction, client: int, step: int) -> ParticipationRow | None:
        """Check-in of a client at a step, from storage or memory; None if neither has it."""
        stored = tx.participation_at(client, step)
        return stored or self._released_check_ins.participation_at(client, step)

    def _wrong_time(self, client: int, step: int, phase: StepPhase) -> WireReceipt | None:
        """Receipt for a request outside its phase (early or late); None within the phase."""
        if step > self._step:
            return self._receipt(WireAnswer.EARLY, client, step, detail="this step is not open yet")
        if step < self._step or _ORDER[self._phase] > _ORDER[phase]:
            return self._receipt(WireAnswer.LATE, client, step, detail="this step is over")
        if self._phase is not phase:
            return self._receipt(WireAnswer.EARLY, client, step, detail="not yet in this step")
        return None

    def _admit(self, tx: Transaction, client: int, step: int, upload: Upload | None) -> WireReceipt:
        """Receipt for a check-in; the check-in is stored if it is accepted."""
        verdict = self._coordinator.check_in(CheckIns(step, np.array([client]))).verdicts[0]
        if verdict != Verdict.ACCEPTED:
            outside = verdict == Verdict.OUTSIDE_ITS_WINDOW
            detail = "outside of its window" if outside else "took part in this window already"
            return self._receipt(WireAnswer.CONFLICT, client, step, detail=detail)
        digest, body = (upload.digest, upload.body) if upload else (None, None)
        tx.check_in(ParticipationRow(client, step, digest), body, self._quota)
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=digest)

    def _answered(self, tx: Transaction, client: int, step: int, upload: Upload) -> WireReceipt:
        """Receipt for the update of the client that was chosen (one-client rule)."""
        stored = self._check_in_of(tx, client, step)
        if stored is not None and stored.digest is not None:
            return self._repeated(stored, upload)
        if (wrong := self._wrong_time(client, step, StepPhase.ANSWERS)) is not None:
            return wrong
        asked = tx.asked(step)
        if stored is None or asked is None or not np.any(asked == client):
            return self._receipt(
                WireAnswer.REFUSED, client, step, detail="this update is not requested"
            )
        tx.answer(client, step, upload.digest, upload.body)
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=upload.digest)

    def _repeated(self, stored: ParticipationRow, upload: Upload) -> WireReceipt:
        """First receipt of an update that is sent again; a different update gets a conflict."""
        client, step = stored.client, stored.step
        if stored.digest == upload.digest:
            return self._receipt(WireAnswer.ACCEPTED, client, step, digest=stored.digest)
        return self._receipt(WireAnswer.CONFLICT, client, step, detail="another update is stored")


class _StoredChoice(Source):
    """Source of randomness that repeats the stored choice of a client after a restart."""

    secure = True

    def __init__(self, arrived: NDArray[np.int64], asked: NDArray[np.int64]) -> None:
        self._place = np.searchsorted(arrived, asked)

    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """Position of the chosen client among the clients that checked in."""
        if size != self._place.size or (size and self._place.max() >= n):
            raise StorageError("the database is damaged: the chosen client did not check in")
        return self._place
