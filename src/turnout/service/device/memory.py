"""Durable state of a device: its key and its slots (the drawn steps in which it participates).

`Memory` is the content, `StateFile` is the durable file with its lock, and `Diary` is both
together; `device.TaskDevice` works on a `Diary`. `drawn_slots` draws the slots, once for the whole
run. A second draw would give the device a second chance to participate in each step, so damaged
state is refused, never replaced. New contents are written to a temporary file, which is synced and
renamed, and the folder is synced: after a kill or a power cut the file has either the old contents
or the complete new contents.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from turnout.core.errors import ParameterError, StorageError
from turnout.core.files import lock_file, sync_folder
from turnout.core.showing import shows_shapes
from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.protocol.client import Client
from turnout.protocol.messages import ClientState
from turnout.randomness import OSRandomness, Source
from turnout.schemes.codec import participation_from_dict
from turnout.service.contract.ledger import SigningKey
from turnout.service.contract.wire import KEY_BYTES, Invitation, SignedHead, WireAnswer, WireReceipt

FORMAT = "turnout-device-1"
_DIGEST_BYTES = 32

ParticipationFields = dict[str, Any]
"""A participation as `schemes.codec` writes it."""


@shows_shapes("task")
@dataclass(slots=True, eq=False)
class Memory:
    """State of a device that must survive a restart: key, drawn slots and their progress.

    Attributes:
        task: digest of the charter, hexadecimal.
        coordinator_key: Ed25519 public key that verifies ledger heads.
        population: number of clients of the task.
        law: the participation from which the slots were drawn.
        client: the client's id.
        key: the client's signing key.
        participant: state machine of the protocol, with the client's slots and the state of each
            slot.
        enrolled: whether the coordinator has the client's public key.
        head: the newest signed ledger head that the device saw; None if it saw none.
        digests: slot → SHA-256 of the only update that the device may send in this slot.
        moments: slot → moment of sending, in seconds before the end of the phase that accepts
            updates; drawn before the update is computed, and kept until the answer arrives.
        messages: slot → the update's bytes; kept until the answer arrives.
        answers: slot → the coordinator's answer.
        receipt: the newest receipt.
    """

    task: str
    coordinator_key: bytes
    population: int
    law: ParticipationFields
    client: int
    key: SigningKey
    participant: Client
    enrolled: bool = False
    head: SignedHead | None = None
    digests: dict[int, bytes] = field(default_factory=dict)
    moments: dict[int, float] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)
    answers: dict[int, WireAnswer] = field(default_factory=dict)
    receipt: WireReceipt | None = None

    @classmethod
    def drawn(cls, invitation: Invitation, source: Source | None = None) -> Self:
        """State of a new device, with a new key and with slots drawn for the whole run."""
        slots = drawn_slots(invitation, OSRandomness() if source is None else source)
        participant = Client(invitation.client, slots)
        return cls(*_BEGUN(invitation), key=SigningKey.new(), participant=participant)

    def require(self, invitation: Invitation) -> None:
        """Check that this state was made from the given invitation.

        Raises:
            StorageError: the state belongs to another task or another client.
        """
        if _BEGUN(self) != _BEGUN(invitation):
            raise StorageError("the state file belongs to another task or another client")

    def forget_before(self, step: int) -> None:
        """Delete the sending times and updates that are still stored for steps before ``step``."""
        for held in (self.moments, self.messages):
            for slot in [slot for slot in held if slot < step]:
                del held[slot]

    def tally(self) -> Counter[str]:
        """Number of participations by outcome; the counts reveal no slots."""
        return Counter(
            self.answers[slot].value if slot in self.answers else _WORDS.get(state, state.value)
            for slot, state in self.participant.slots.items()
        )

    def encoded(self) -> bytes:
        """ASCII JSON of the state, with a digest that reveals damage to the file."""
        # All fields; the entry of each slot has its state and all that was stored for it.
        state = {
            "task": self.task,
            "coordinator_key": self.coordinator_key.hex(),
            "population": self.population,
            "law": self.law,
            "client": self.client,
            "private_key": self.key.private.hex(),
            "enrolled": self.enrolled,
            "head": None if self.head is None else str(self.head),
            "receipt": None if self.receipt is None else self.receipt.encoded().decode(),
            "turns": [
                {
                    "slot": slot,
                    "state": slot_state.value,
                    "digest": self.digests[slot].hex() if slot in self.digests else None,
                    "answer": self.answers[slot].value if slot in self.answers else None,
                }
                | ({"moment": self.moments[slot]} if slot in self.moments else {})
                | ({"message": self.messages[slot].hex()} if slot in self.messages else {})
                for slot, slot_state in self.participant.slots.items()
            ],
        }
        # The digest reveals a file that was cut off or changed.
        document = {"format": FORMAT, "sha256": _digest(state), "state": state}
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Device state parsed from the JSON bytes of `encoded`.

        Raises:
            StorageError: the bytes are damaged; the slots are lost, and must not be drawn again.
        """
        # The format and the digest must be right; then each field is parsed.
        try:
            document = json.loads(data)
            state, turns = document["state"], document["state"]["turns"]
            whole = (document["format"], document["sha256"]) == (FORMAT, _digest(state))
            if not whole:
                raise ValueError("its digest differs")
            memory = cls(
                state["task"],
                bytes.fromhex(state["coordinator_key"]),
                state["population"],
                state["law"],
                state["client"],
                SigningKey(bytes.fromhex(state["private_key"])),
                Client(state["client"], {t["slot"]: ClientState(t["state"]) for t in turns}),
                state["enrolled"],
                None if state["head"] is None else SignedHead.parsed(state["head"]),
                {t["slot"]: bytes.fromhex(t["digest"]) for t in turns if t["digest"]},
                {t["slot"]: float(t["moment"]) for t in turns if "moment" in t},
                {t["slot"]: bytes.fromhex(t["message"]) for t in turns if "message" in t},
                {t["slot"]: WireAnswer(t["answer"]) for t in turns if t["answer"]},
                None
                if state["receipt"] is None
                else WireReceipt.decoded(state["receipt"].encode()),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise StorageError(
                "the state file is damaged: this client cannot participate any more, since drawing "
                "its slots a second time would cost privacy"
            ) from None
        # Only bytes that `encoded` would write again are accepted.
        if len(memory.key.private) != KEY_BYTES or memory.encoded() != data:
            raise StorageError("the state file is damaged: its contents are not canonical")
        return memory


_BEGUN = attrgetter("task", "coordinator_key", "population", "law", "client")
"""Fields that `Memory` copies from an invitation, in the order of its constructor."""
_WORDS = {ClientState.ANSWERED: "unconfirmed", ClientState.WAITING: "to come"}


def drawn_slots(invitation: Invitation, source: Source) -> list[int]:
    """Steps of the whole run in which this client participates, in ascending order.

    Guarantees:
        The steps are distributed exactly by the invitation's participation, if ``source`` is
        uniform; they depend on nothing else.

    Raises:
        ParameterError: the invitation's participation or client id is invalid, or ``source`` is
            predictable.
        UnsupportedError: a client cannot draw its own slots under this participation.
    """
    if not source.secure:
        raise ParameterError("source", type(source).__name__, "an unpredictable source")
    participation, client = participation_from_dict(invitation.law), invitation.client
    slots: list[int] = []
    for block in blocks(participation):
        schedule = draw(participation, invitation.population, block, source, client=client)
        slots += schedule.slots().tolist()
    return slots


def _digest(state: Any) -> str:
    """SHA-256 of the state's canonical JSON, in hexadecimal."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


_MODE = 0o600


class StateFile:
    """File that is always replaced as a whole, with a lock file in the same folder.

    The operating system holds the lock and releases it when the process ends, also by a kill.

    Args:
        path: path of the file.
        synced: whether contents survive a power cut. If False, the contents survive only the end of
            the process, which is enough for trials in which many devices share one disk.

    Raises:
        StorageError: (on entering) another process holds the lock, or the folder is not writable.
    """

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self._path, self._synced = path, synced
        self._lock: int | None = None

    def __enter__(self) -> Self:
        lock_path = self._path.with_name(self._path.name + ".lock")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = lock_file(lock_path, wait=False)
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
            reason = "another process uses it" if taken else _reason(error)
            raise StorageError(f"state file {self._path}: {reason}") from None
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self) -> bytes | None:
        """Contents that were stored last; None if nothing has been stored.

        Raises:
            StorageError: the file cannot be read, or is not open.
        """
        self._require_lock()
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"state file {self._path}: {_reason(error)}") from None

    def store(self, data: bytes) -> None:
        """Replace the contents of the file; the new contents are durable on return.

        Raises:
            StorageError: the contents may not be durable; the caller must not send anything that
                depends on the contents.
        """
        self._require_lock()
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            _write(partial, data, self._synced)
            os.replace(partial, self._path)
            if self._synced:
                sync_folder(self._path.parent)
        except OSError as error:
            raise StorageError(f"state file {self._path}: {_reason(error)}") from None

    def _require_lock(self) -> None:
        if self._lock is None:
            raise StorageError(f"state file {self._path} is not open")


class Diary:
    """State of a device (`Memory`) together with the file that stores it.

    Guarantees:
        A diary exists only once its state is durable: slots are drawn and stored before the
        constructor returns, and never drawn a second time.

    Raises:
        StorageError: the file is damaged, or belongs to another task or client.
        ParameterError: the invitation has an invalid participation or client id.
    """

    def __init__(
        self, file: StateFile, invitation: Invitation, source: Source | None = None
    ) -> None:
        self._file = file
        data = file.load()
        if data is None:
            self.memory = Memory.drawn(invitation, source)
            self.keep()
        else:
            self.memory = Memory.decoded(data)
            self.memory.require(invitation)

    def keep(self) -> None:
        """Write the state to its file; the state is durable on return."""
        self._file.store(self.memory.encoded())


def default_place(invitation: Invitation) -> Path:
    """Default path of a device's state file: one file for each user, task and client.

    The folder is ``$XDG_STATE_HOME/turnout/``, or ``~/.local/state/turnout/`` without this
    variable.
    """
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return place_in(folder / "turnout", invitation)


def place_in(folder: Path, invitation: Invitation) -> Path:
    """Path of one device's state file in a folder with the state files of many devices."""
    return folder / f"{invitation.task[:16]}-{invitation.client}.json"


def _write(path: Path, data: bytes, synced: bool) -> None:
    """Write a file that only its owner can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, _MODE), "wb") as file:
        os.fchmod(file.fileno(), _MODE)
        file.write(data)
        file.flush()
        if synced:
            os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    """Operating system's reason for an error, in lower case."""
    return (error.strerror or type(error).__name__).lower()
