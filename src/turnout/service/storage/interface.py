"""What the coordinator asks of its storage.

One writer owns the only write connection. A *transaction* is all or nothing and durable once it
is committed. Rows of the ledger are never changed: a second row that contradicts a stored one
raises `ConflictError`, and triggers refuse UPDATE and DELETE.

What joins a client to a step is kept only while the step is open: the transaction that releases
the step deletes it. For a block of the law that goes on, how often each client came stays until
the block is over, without the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.service.ledger import Record


class ConflictError(StorageError):
    """A row that contradicts a stored one."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A client id that was handed out.

    Attributes:
        client: its id.
        secret_digest: SHA-256 of the one-time secret in its invitation.
        public_key: Ed25519, 32 bytes; None until the invitation is used.
    """

    client: int
    secret_digest: bytes
    public_key: bytes | None


@dataclass(frozen=True, slots=True)
class Participation:
    """One accepted check-in.

    Attributes:
        client: who.
        step: when.
        digest: SHA-256 of the update; None until there is one (one-client rule).
    """

    client: int
    step: int
    digest: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a step leaves behind, besides its record in the ledger.

    Attributes:
        record: the ledger's record.
        parameters: after the step, little-endian float32.
        optimizer_state: as `learner.packed` writes it.
        mechanism_state: the mechanism's arrays after the step, as `releases` writes them.
        checked_in, served: counts, for the operator only.
    """

    record: Record
    parameters: bytes
    optimizer_state: bytes
    mechanism_state: bytes
    checked_in: int
    served: int


@dataclass(frozen=True, slots=True)
class Scored:
    """How good the model after some steps is on public held-out data."""

    steps: int
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the operator's log.

    ``at`` is in seconds since the epoch, ``level`` is info, warning or error. ``text`` never
    joins a device with a slot.
    """

    at: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class WitnessReceipt:
    """A witness's word that it has a head.

    Attributes:
        witness_key: Ed25519 public key of the witness, 32 bytes.
        steps: of the head.
        signature: 64 bytes, over task and head.
    """

    witness_key: bytes
    steps: int
    signature: bytes


class Transaction(Protocol):
    """Reads and writes that become durable together.

    A `ConflictError` leaves the transaction as it was, and it may go on. After any other error in
    one of these it can only be undone.
    """

    def found(self, charter: bytes, signing_key: bytes, parameters: bytes) -> None:
        """Create the task. Raises ConflictError where there is one."""
        ...

    def charter(self) -> bytes | None:
        """The charter's canonical bytes; None in an empty storage."""
        ...

    def signing_key(self) -> bytes:
        """The coordinator's Ed25519 private key, 32 bytes."""
        ...

    def initial_parameters(self) -> bytes:
        """The first parameters, little-endian float32."""
        ...

    def invite(self, secret_digests: Sequence[bytes]) -> int:
        """Hand out the next client ids, one a digest; the first of them is returned."""
        ...

    def invitation(self, client: int) -> Invitation | None:
        """The invitation with that id."""
        ...

    def invited(self) -> int:
        """How many ids were handed out."""
        ...

    def enrol(self, client: int, public_key: bytes) -> None:
        """Use an invitation; once more with the same key changes nothing.

        Raises:
            ConflictError: there is no such invitation, or it was used with another key.
        """
        ...

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Clients and the public keys that they enrolled with, by client."""
        ...

    def enrolled(self) -> int:
        """How many invitations were used."""
        ...

    def participation_at(self, client: int, step: int) -> Participation | None:
        """The check-in of a client at the open step; nothing is known of other steps."""
        ...

    def participations(self, step: int) -> Iterator[Participation]:
        """All check-ins of the open step, by client; the updates are not read."""
        ...

    def check_in(self, participation: Participation, body: bytes | None, quota: int) -> None:
        """Store a check-in, with the update where there is one.

        Args:
            participation: of the open step.
            body: the update.
            quota: most check-ins of a client in one block of the law.

        Raises:
            ConflictError: the client checked in at this step, or came ``quota`` times in the
                released steps of the block.
            StorageError: the client is not enrolled, or the step is not the open one.
        """
        ...

    def answer(self, client: int, step: int, digest: bytes, body: bytes) -> None:
        """Store the update of a client who checked in without one.

        Raises:
            ConflictError: no check-in at this step, or answered already.
        """
        ...

    def ask(self, step: int, clients: NDArray[np.int64]) -> None:
        """Store who is asked for an update. Raises ConflictError where that is stored."""
        ...

    def asked(self, step: int) -> NDArray[np.int64] | None:
        """Who is asked at a step, ascending; None where nobody was chosen yet."""
        ...

    def arrived(self, step: int) -> NDArray[np.int64]:
        """Who checked in at a step, ascending."""
        ...

    def turns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clients that came in the released steps of the open block, and how often each came.

        Returns:
            The clients, ascending, and counts from 1; nothing where no block is under way, or
            where its first step is open.
        """
        ...

    def bodies(self, step: int) -> Iterator[tuple[int, bytes]]:
        """Clients and their updates at the open step, by client; never all in memory.

        Raises:
            StorageError: an update is not the one that was stored with the client's check-in.
        """
        ...

    def release(self, release: Release, block_ends: int) -> None:
        """Append to the ledger, and delete all that joins a client to the step.

        Afterwards nobody can tell who came at the step, or open an update of it. Where the
        block goes on, the check-ins of the step are added to the turns; else turns are deleted.

        Args:
            release: of the open step.
            block_ends: the first step after the block of the law in which the step lies.

        Raises:
            ConflictError: the step is stored.
            StorageError: the record does not follow on the last one, states no cost, or has the
                digest of other parameters; or the block ended elsewhere before.
        """
        ...

    def reclaim(self, at_most: int) -> int:
        """Delete what is left of released steps' updates, at most so many; how many were deleted.

        Nobody can read them any more, for their step's key is deleted: this frees the space.
        """
        ...

    def last_release(self) -> Release | None:
        """The release of the highest step."""
        ...

    def release_at(self, step: int) -> Release | None:
        """The release of a step."""
        ...

    def records(self, first_step: int = 0) -> Iterator[Record]:
        """The ledger's records from a step on, in order."""
        ...

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """(step, checked in, served), in order; for the operator only."""
        ...

    def keep_receipt(self, receipt: WitnessReceipt) -> None:
        """Store a witness's receipt; once more for the same head of the same witness is dropped."""
        ...

    def last_receipt(self) -> WitnessReceipt | None:
        """The receipt that was stored last."""
        ...

    def score(self, scored: Scored) -> None:
        """Store an evaluation; a second one of the same steps replaces none and is dropped."""
        ...

    def scores(self) -> Iterator[Scored]:
        """Evaluations in order."""
        ...

    def log(self, event: Event) -> None:
        """Store a line of the operator's log."""
        ...

    def events(self, last: int) -> list[Event]:
        """The last lines of the operator's log, oldest first."""
        ...


class Storage(Protocol):
    """An open database.

    Opening migrates it to the newest schema, checks its integrity where that is cheap, and
    raises `StorageError` for anything that is not a turnout database, or of a newer version.
    Opened for serving it is locked against every other coordinator; opened otherwise it takes
    invitations and events, and refuses all other writes. A task that an earlier turnout has not
    brought to its end is not served and not migrated; its ledger can be read.
    """

    def transaction(self) -> AbstractContextManager[Transaction]:
        """The one write transaction: committed durably at the end of the block, else undone.

        Only one thread may be in one at a time; a commit that fails raises `StorageError` and
        leaves the connection unusable.
        """
        ...

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """A consistent read-only view, from any thread, beside the writer."""
        ...

    def tidy(self, *, thorough: bool = False) -> bool:
        """Remove deleted rows from the files' bytes as well; whether that is done.

        Not while the calling thread is in a transaction. Readers may stand in the way; then it
        is worth another try later. What is deleted is out of reach of any query at once.

        Args:
            thorough: rewrite what holds deleted rows as a whole, for the end of a task.

        Raises:
            StorageError: the disk is full or fails; nothing stored is lost by that.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
