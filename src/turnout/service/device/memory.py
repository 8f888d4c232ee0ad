"""The persistent memory of a device: its key, its drawn slots and their states.

`Memory` is the content, `StateFile` the durable file, `Diary` the file with the lock that keeps it
to one process. The slots are drawn once for the whole run. Drawing again would double the device's
chances of a step, so a memory is either whole or refused. A file is written beside its place,
synced and renamed, and the folder synced: after a kill or a power cut the old contents are there or
the new ones, whole.
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

Law = dict[str, Any]
"""A participation law as `spec.codec` writes it."""


@shows_shapes("task")
@dataclass(slots=True, eq=False)
class Memory:
    """All that a device keeps between two starts.

    Attributes:
        coordinator_key: Ed25519 public key that signs heads.
        population, law: what its slots were drawn by.
        turns: its slots and where each stands.
        enrolled: whether the coordinator knows its key.
        head: the highest signed head that it saw; None before the first.
        digests: slot → SHA-256 of the one update that it may send for it.
        moments: slot → when the update leaves, in seconds before the end of the phase that takes
            it; drawn before it is computed, and kept until it is answered.
        messages: slot → the one update itself; kept until it is answered.
        answers: slot → what became of what it sent.
    """

    task: str
    coordinator_key: bytes
    population: int
    law: Law
    client: int
    key: SigningKey
    turns: Client
    enrolled: bool = False
    head: SignedHead | None = None
    digests: dict[int, bytes] = field(default_factory=dict)
    moments: dict[int, float] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)
    answers: dict[int, WireAnswer] = field(default_factory=dict)
    receipt: WireReceipt | None = None

    @classmethod
    def drawn(cls, invitation: Invitation, source: Source | None = None) -> Self:
        """A new memory: a new key, and slots drawn for the whole run."""
        slots = drawn_slots(invitation, OSRandomness() if source is None else source)
        turns = Client(invitation.client, slots)
        return cls(*_BEGUN(invitation), key=SigningKey.new(), turns=turns)

    def require(self, invitation: Invitation) -> None:
        """Nothing where this memory began with the invitation."""
        if _BEGUN(self) != _BEGUN(invitation):
            raise StorageError("the state file belongs to another task or another client")

    def forget_before(self, step: int) -> None:
        """Give up what was not answered in earlier steps."""
        for held in (self.moments, self.messages):
            for slot in [slot for slot in held if slot < step]:
                del held[slot]

    def tally(self) -> Counter[str]:
        """The number of turns by outcome; no slots."""
        return Counter(
            self.answers[slot].value if slot in self.answers else _WORDS.get(state, state.value)
            for slot, state in self.turns.slots.items()
        )

    def encoded(self) -> bytes:
        """As bytes, with a digest by which damage is noticed: JSON, ASCII."""
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
                    "state": stands.value,
                    "digest": self.digests[slot].hex() if slot in self.digests else None,
                    "answer": self.answers[slot].value if slot in self.answers else None,
                }
                | ({"moment": self.moments[slot]} if slot in self.moments else {})
                | ({"message": self.messages[slot].hex()} if slot in self.messages else {})
                for slot, stands in self.turns.slots.items()
            ],
        }
        document = {"format": FORMAT, "sha256": _digest(state), "state": state}
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The memory that `encoded` wrote.

        Raises:
            StorageError: anything else. The slots are then lost, and never drawn anew.
        """
        try:
            document = json.loads(data)
            state, turns = document["state"], document["state"]["turns"]
            whole = (document["format"], document["sha256"]) == (FORMAT, _digest(state))
            if not whole:
                raise ValueError("its digest is another one")
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
                "the state file is damaged. Its slots cannot be drawn anew, which would cost "
                "privacy: this device does not take part any more"
            ) from None
        if len(memory.key.private) != KEY_BYTES or memory.encoded() != data:
            raise StorageError("the state file is damaged: it does not read back as written")
        return memory


_BEGUN = attrgetter("task", "coordinator_key", "population", "law", "client")
"""The fields that a memory takes over from its invitation, in their order."""
_WORDS = {ClientState.ANSWERED: "unconfirmed", ClientState.WAITING: "to come"}


def drawn_slots(invitation: Invitation, source: Source) -> list[int]:
    """The steps of the whole run in which this client comes, rising.

    Guarantees:
        Exactly the law of the invitation, given that ``source`` is; nothing else goes in.

    Raises:
        ParameterError: an invitation that no law fits, or draws that can be foretold.
        UnsupportedError: no device can draw its own slots under this law.
    """
    if not source.secure:
        raise ParameterError("source", type(source).__name__, "draws that nobody can foretell")
    law, client = participation_from_dict(invitation.law), invitation.client
    slots: list[int] = []
    for block in blocks(law):
        schedule = draw(law, invitation.population, block, source, client=client)
        slots += schedule.slots().tolist()
    return slots


def _digest(state: Any) -> str:
    """SHA-256 of the state, hexadecimal."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


_MODE = 0o600


class StateFile:
    """One file that is replaced as a whole, and a lock file beside it.

    The lock is the operating system's: it goes with the process, however that ends.

    Args:
        path: of the file.
        synced: whether contents outlive a power cut. Without, they outlive the process only: for
            trials in which one disk stands for those of many devices.

    Raises:
        StorageError: (on entering) another process uses it, or the folder cannot be written.
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
        """The state that was stored last; None where nothing ever was."""
        self._require_lock()
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"state file {self._path}: {_reason(error)}") from None

    def store(self, data: bytes) -> None:
        """Replace the contents; on return they are durable.

        Raises:
            StorageError: they may not be; the caller must not act on them.
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
    """A device's memory together with the file that holds it.

    Guarantees:
        There is a memory only once it is durable: slots are drawn and stored before this is
        built, and never drawn a second time.

    Raises:
        StorageError: the file is damaged, or of another task or client.
        ParameterError: the invitation's law or id is none.
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
        """Make the memory durable as it is now."""
        self._file.store(self.memory.encoded())


def default_place(invitation: Invitation) -> Path:
    """The default file of a device's state: one for each user, task and client.

    ``$XDG_STATE_HOME/turnout/``, else ``~/.local/state/turnout/``.
    """
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return place_in(folder / "turnout", invitation)


def place_in(folder: Path, invitation: Invitation) -> Path:
    """The state file of one device in a folder of many."""
    return folder / f"{invitation.task[:16]}-{invitation.client}.json"


def _write(path: Path, data: bytes, synced: bool) -> None:
    """A new file of its owner's alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, _MODE), "wb") as file:
        os.fchmod(file.fileno(), _MODE)
        file.write(data)
        file.flush()
        if synced:
            os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    """Why, as the end of a sentence."""
    return (error.strerror or type(error).__name__).lower()
