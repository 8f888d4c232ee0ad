"""The coordinator's decisions: no network, no clock, no threads.

`Engine` is driven with transactions and told when a phase ends. Everything that a method writes
becomes durable, or none of it; what the engine holds in memory moves with it, so a commit that
fails ends the process (the storage is what counts, and a new engine reads it). The protocol's own
coordinator decides who is admitted, and the charter's mechanism what is released; the engine feeds
them what was stored, so a restart in the middle of a step goes on as if nothing had happened.

`Remembered` keeps in memory which clients took part in the last released step, which the storage
deletes with the release: a client that missed the answer to its last request sends it again, most
often within seconds. After a restart, and once the next step is released, such a client is told
that the step is over.
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


class Remembered:
    """The check-ins of one step, given by client: 41 bytes each."""

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
        """The check-in of a client at the step that is remembered."""
        place = int(np.searchsorted(self._clients, client))
        if step != self._step or place == self._clients.size or self._clients[place] != client:
            return None
        start = place * _DIGEST_BYTES
        digest = self._digests[start : start + _DIGEST_BYTES] if self._answered[place] else None
        return ParticipationRow(client, step, digest)


_ORDER = {phase: place for place, phase in enumerate(StepPhase)}


class SetBackError(StorageError):
    """A device saw a later ledger of this coordinator: the storage is an old copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """The public state: committed, and due.

    Attributes:
        head: of the ledger.
        parameters: the model that the next step's devices train on, little-endian float32.
    """

    head: Head
    parameters: bytes


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Upload:
    """An update that was looked at and is one that a client may send."""

    body: bytes
    digest: bytes


class Engine:
    """One task, from its stored state on.

    Guarantees:
        A client takes part at most as often as the law allows, whatever crashes, is repeated or
        comes from copies of its device; one update counts for one check-in.
        Every request gets the same receipt as often as it comes while its step is open. After
        the release it gets that receipt from memory, as long as it is of the last released step
        and the process goes on; else the receipt says that the step is over. No copy counts
        again.
        A step is charged, released and recorded in one transaction, once. Noise is drawn after
        the budget has allowed the step, and never again for a step that is stored.
    """

    def __init__(
        self, charter: Charter, releases: Releases, view: Transaction, source: Source
    ) -> None:
        self.charter, self.task = charter, charter.task
        self._releases, self._source = releases, source
        self._blocks = blocks(charter.scheme.participation)
        self._asks_one = charter.asks_one
        self._quota = quota(charter.scheme.participation)
        self._remembered = Remembered(-1, ())
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
        """The engine of a stored task, where it stopped.

        ``source`` decides which one client is asked; ``noise`` is of rounded Gaussians. Both are
        of the operating system's bytes by default.

        Raises:
            StorageError: there is no task, or it is damaged.
        """
        with storage.snapshot(whole=True) as view:
            data = view.charter()
            if data is None:
                raise StorageError("there is no task in this storage yet")
            charter = Charter.from_canonical(data)
            releases = Releases(charter, learner(charter), noise, view)
            return cls(charter, releases, view, source or OSRandomness())

    # -- what everybody may see -------------------------------------------------------------

    @property
    def published(self) -> Published:
        """The newest model whose time has come, and the head that goes with it."""
        return self._published

    @property
    def step(self) -> int:
        """The step in progress; the number of steps when all are over."""
        return self._step

    @property
    def phase(self) -> StepPhase:
        """The requests that the step in progress takes."""
        return self._phase

    def require_newer(self, seen: SignedHead, signed_by_us: Callable[[], bool]) -> bool:
        """Whether a head that a device sent is one of this ledger's; ``signed_by_us`` if unknown.

        Raises:
            SetBackError: this coordinator signed an unknown one, so the ledger once was longer, or
                another one.
        """
        if self._releases.holds(seen.head):
            return True
        if signed_by_us():
            raise SetBackError(
                f"a device saw the ledger at {seen.head}, which this storage does not have: it "
                "is an old copy; nothing may be released from it"
            )
        return False

    # -- requests, in a transaction ---------------------------------------------------------

    def enrol(self, tx: Transaction, client: int, secret: bytes, public_key: bytes) -> WireReceipt:
        """Use an invitation: from now on this key speaks for the client."""
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
        """The update in a body, whose SHA-256 may be known; depends on nothing but the body.

        Raises:
            RemoteProtocolError: not an update that a client may send.
        """
        self.charter.encoding.decode(body)
        return Upload(body, digest or hashlib.sha256(body).digest())

    def check_in(self, tx: Transaction, client: int, step: int) -> WireReceipt:
        """A check-in without an update, where one of those who came is asked for an update."""
        if not self._asks_one:
            return self._receipt(
                WireAnswer.REFUSED, client, step, detail="an update is the check-in here"
            )
        if (stored := self._came(tx, client, step)) is not None:
            return self._receipt(WireAnswer.ACCEPTED, client, stored.step)
        return self._wrong_time(client, step, StepPhase.CHECK_INS) or self._admit(
            tx, client, step, None
        )

    def requested(self, tx: Transaction, client: int, step: int) -> WireReceipt:
        """Whether the client's update is asked for; None as long as that is not decided."""
        stored = self._came(tx, client, step)
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
        """A client's update: the check-in itself, or what the client was asked for."""
        if self._asks_one:
            return self._answered(tx, client, step, upload)
        late = self._wrong_time(client, step, StepPhase.CHECK_INS)
        if late is None:
            admitted = self._admit(tx, client, step, upload)
            if admitted.answer is WireAnswer.ACCEPTED:
                return admitted
        stored = self._came(tx, client, step)
        if stored is None:
            return late or self._receipt(
                WireAnswer.CONFLICT, client, step, detail="took part in this window already"
            )
        return self._repeated(stored, upload)

    # -- the step's end, in a transaction ---------------------------------------------------

    def close_check_ins(self, tx: Transaction) -> None:
        """End the check-ins of the step; where one client is asked, choose and store which."""
        request = self._coordinator.close_check_ins(self._source)
        if self._asks_one:
            tx.request(self._step, request.clients.astype(np.int64))
        self._phase = StepPhase.ANSWERS

    def close_step(self, tx: Transaction) -> ReleaseRow:
        """Charge, add noise, move the model and record it; visible after `publish`.

        Raises:
            BudgetExceededError: the step would cost more than the target; nothing is drawn.
            NumericalError: the model is not finite any more.
        """
        if self._phase is StepPhase.CHECK_INS:
            self.close_check_ins(tx)
        block = self._block(self._step)
        came = Remembered(self._step, tx.participations(self._step))
        block_ends = block.first_step + block.steps
        stored = self._releases.release(tx, self._coordinator, block_ends)
        self._remembered = came
        self._phase = StepPhase.CLOSED
        return stored

    def publish(self) -> Published:
        """Show the last release and open the next step; only after its transaction."""
        head = self._releases.head
        self._step = head.steps
        self._published = Published(head, self._releases.parameters)
        if self._step == self.charter.steps:
            self._phase = StepPhase.FINISHED
        else:
            self._coordinator.open_step()
            self._phase = StepPhase.CHECK_INS
        return self._published

    # -- inside -----------------------------------------------------------------------------

    def _coordinator_at(self, view: Transaction, step: int) -> Coordinator:
        """The protocol's coordinator before a step, told how often who came in its block."""
        return self.charter.coordinator(
            first_step=step, mechanism_state=self._releases.mechanism_state, used=view.turns()
        )

    def _resume_step(self, view: Transaction) -> None:
        """Bring the open step to where it was."""
        if self._phase is not StepPhase.CHECK_INS:
            return
        arrived = view.arrived(self._step)
        if arrived.size:
            self._coordinator.check_in(CheckIns(self._step, arrived))
        asked = view.asked(self._step)
        if asked is not None:
            self._coordinator.close_check_ins(_Stored(arrived, asked))
            self._phase = StepPhase.ANSWERS

    def _block(self, step: int) -> ScheduleBlock:
        """The block of the law in which a step lies."""
        return self._blocks[bisect_right(self._blocks, step, key=lambda b: b.first_step) - 1]

    def _receipt(self, answer: WireAnswer, client: int, step: int, **said: Any) -> WireReceipt:
        return WireReceipt(answer, self.task, client, step, **said)

    def _came(self, tx: Transaction, client: int, step: int) -> ParticipationRow | None:
        """The check-in of a client at a step, as long as it is known."""
        stored = tx.participation_at(client, step)
        return stored or self._remembered.participation_at(client, step)

    def _wrong_time(self, client: int, step: int, phase: StepPhase) -> WireReceipt | None:
        """The answer to what comes before or after its phase, by the coordinator's own counter."""
        if step > self._step:
            return self._receipt(WireAnswer.EARLY, client, step, detail="this step is not open yet")
        if step < self._step or _ORDER[self._phase] > _ORDER[phase]:
            return self._receipt(WireAnswer.LATE, client, step, detail="this step is over")
        if self._phase is not phase:
            return self._receipt(WireAnswer.EARLY, client, step, detail="not yet in this step")
        return None

    def _admit(self, tx: Transaction, client: int, step: int, upload: Upload | None) -> WireReceipt:
        """Let the protocol decide, and store who is accepted."""
        verdict = self._coordinator.check_in(CheckIns(step, np.array([client]))).verdicts[0]
        if verdict != Verdict.ACCEPTED:
            outside = verdict == Verdict.OUTSIDE_ITS_WINDOW
            detail = "outside of its window" if outside else "took part in this window already"
            return self._receipt(WireAnswer.CONFLICT, client, step, detail=detail)
        digest, body = (upload.digest, upload.body) if upload else (None, None)
        tx.check_in(ParticipationRow(client, step, digest), body, self._quota)
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=digest)

    def _answered(self, tx: Transaction, client: int, step: int, upload: Upload) -> WireReceipt:
        """The update of the one client who was asked."""
        stored = self._came(tx, client, step)
        if stored is not None and stored.digest is not None:
            return self._repeated(stored, upload)
        if (wrong := self._wrong_time(client, step, StepPhase.ANSWERS)) is not None:
            return wrong
        asked = tx.asked(step)
        if stored is None or asked is None or not np.any(asked == client):
            return self._receipt(
                WireAnswer.REFUSED, client, step, detail="this update is not asked for"
            )
        tx.answer(client, step, upload.digest, upload.body)
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=upload.digest)

    def _repeated(self, stored: ParticipationRow, upload: Upload) -> WireReceipt:
        """The receipt again for the same bytes; a conflict for others."""
        client, step = stored.client, stored.step
        if stored.digest == upload.digest:
            return self._receipt(WireAnswer.ACCEPTED, client, step, digest=stored.digest)
        return self._receipt(WireAnswer.CONFLICT, client, step, detail="another update is stored")


class _Stored(Source):
    """Chooses again who was chosen before a restart."""

    secure = True

    def __init__(self, arrived: NDArray[np.int64], asked: NDArray[np.int64]) -> None:
        self._place = np.searchsorted(arrived, asked)

    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """The place of the client who was asked."""
        if size != self._place.size or (size and self._place.max() >= n):
            raise StorageError("who was asked did not check in")
        return self._place
