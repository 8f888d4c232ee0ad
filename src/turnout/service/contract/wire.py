"""The wire format: paths, headers, signed bytes, answers, and the formats of an update.

Device and coordinator both import this module; a device in another language follows
docs/device-protocol.md, whose test vectors are compared with it. `encoding_of` and `document_of`
translate between an update's encoding and its document in a charter. The document has every number
that a client in another language needs, derived numbers included, so that no two of them can round
differently: a charter whose numbers are not those computed here does not read back as it was
written.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, TypedDict

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.showing import shows_shapes
from turnout.protocol.lattice import Lattice
from turnout.service.contract.ledger import Count, Document, Head, Hex32, RecordDocument

if TYPE_CHECKING:
    from turnout.protocol.randomized import MessageEncoding, UpdateEncoding

PREFIX = "/v1"
CLIENT_HEADER = "Turnout-Client"
NONCE_HEADER = "Turnout-Nonce"
HEAD_HEADER = "Turnout-Head"
FORMAT_HEADER = "Turnout-Format"
DIGEST_HEADER = "Turnout-Digest"
SIGNATURE_HEADER = "Turnout-Signature"

ENROLMENT_FORMAT, UPDATE_FORMAT = "enrolment-1", "int32-lattice-1"
REQUEST_FORMAT, HEAD_FORMAT, RECORD_FORMAT = "turnout-request-1", "turnout-head-1", "record-1"
"""Formats by name, as a charter names them: a new one is a new name, not a new protocol."""

NONCE_BYTES, SECRET_BYTES, KEY_BYTES, SIGNATURE_BYTES, DIGEST_BYTES = 16, 32, 32, 64, 32
_INVITATION = "turnout1."

NOT_SO = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors of reading a body that holds something else."""


class StepPhase(StrEnum):
    """The requests that the step in progress takes."""

    CHECK_INS = "check-ins"
    ANSWERS = "answers"
    CLOSED = "closed"
    FINISHED = "finished"


class WireAnswer(StrEnum):
    """The outcome of a signed request, as its JSON says it under ``answer``."""

    ACCEPTED = "accepted"
    LATE = "late"
    EARLY = "early"
    CONFLICT = "conflict"
    REFUSED = "refused"
    UNKNOWN = "unknown"


STATUS_CODES = {
    WireAnswer.ACCEPTED: 200,
    WireAnswer.LATE: 410,
    WireAnswer.EARLY: 425,
    WireAnswer.CONFLICT: 409,
    WireAnswer.REFUSED: 422,
    WireAnswer.UNKNOWN: 401,
}
"""HTTP status of each answer. 503 with Retry-After: nothing happened, send the same again."""


def enrolments_path() -> str:
    """POST: use an invitation."""
    return f"{PREFIX}/enrolments"


def check_ins_path(step: int | str) -> str:
    """POST, empty body: "I am here" (one-client rule)."""
    return f"{PREFIX}/steps/{step}/check-ins"


def requests_path(step: int | str) -> str:
    """POST, empty body: is my update asked for? (one-client rule)."""
    return f"{PREFIX}/steps/{step}/requests"


def updates_path(step: int | str) -> str:
    """POST, update as body: check in with it (aggregated), or answer (one-client)."""
    return f"{PREFIX}/steps/{step}/updates"


def covers_path(step: int | str) -> str:
    """POST, any body as long as an update, to a path as long: checked like one, counted nowhere."""
    return f"{PREFIX}/steps/{step}/covered"


def model_path(steps: int) -> str:
    """GET: parameters after so many steps, little-endian float32."""
    return f"{MODELS_PATH}/{steps}"


def artefact_path(digest: str) -> str:
    """GET: what the charter names by its SHA-256, hexadecimal."""
    return f"{PREFIX}/artefacts/{digest}"


def is_this_machine(host: str) -> bool:
    """Whether a host name or an address means the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


HEADS_PATH = f"{PREFIX}/heads"
"""POST: a signed head as text: "this is newer than what you have"."""
CHARTER_PATH, STATUS_PATH, RECORDS_PATH, MODELS_PATH = (
    f"{PREFIX}/{name}" for name in ("charter", "status", "records", "models")
)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as its device signs it: all that its headers say, and so checked before the body.

    Attributes:
        task: the charter's digest, hexadecimal.
        method, path: of the HTTP request; the path begins with ``/v1``.
        nonce: 16 bytes, fresh in every request.
        digest: SHA-256 of the body, the empty one's where there is none.
        format: name of the body's format; "" where there is no body.
        head: the highest `SignedHead` that the device saw, as text; "" before the first.
    """

    task: str
    method: str
    path: str
    client: int
    nonce: bytes
    digest: bytes
    format: str = ""
    head: str = ""

    @classmethod
    def posting(
        cls,
        task: str,
        path: str,
        client: int,
        nonce: bytes,
        body: bytes = b"",
        *,
        format: str = "",
        head: str = "",
    ) -> Self:
        """A POST of that body."""
        digest = hashlib.sha256(body).digest()
        return cls(task, "POST", path, client, nonce, digest, format, head)

    def canonical(self) -> bytes:
        r"""The signed text: one line for each value that there is, ASCII.

        >>> request = SignedRequest("ab", "POST", "/v1/enrolments", 3, bytes(2), bytes(1))
        >>> print(request.canonical().decode())
        turnout-request-1
        task: ab
        method: POST
        path: /v1/enrolments
        client: 3
        nonce: 0000
        digest: 00
        """
        head = f"head: {self.head}\n" if self.head else ""
        body_format = f"format: {self.format}\n" if self.format else ""
        return (
            f"{REQUEST_FORMAT}\ntask: {self.task}\nmethod: {self.method}\npath: {self.path}\n"
            f"client: {self.client}\nnonce: {self.nonce.hex()}\n{head}{body_format}"
            f"digest: {self.digest.hex()}"
        ).encode("ascii")

    def headers(self, signature: bytes) -> dict[str, str]:
        """The HTTP headers that carry it, but for task, method and path."""
        headers = {
            CLIENT_HEADER: str(self.client),
            NONCE_HEADER: self.nonce.hex(),
            HEAD_HEADER: self.head,
            FORMAT_HEADER: self.format,
            DIGEST_HEADER: self.digest.hex(),
            SIGNATURE_HEADER: signature.hex(),
        }
        return {name: value for name, value in headers.items() if value}


# -- JSON bodies, whose types the OpenAPI document is derived from -----------------------------

Seconds = Annotated[float, {"minimum": 0}]


class CharterDocument(TypedDict):
    """A charter; `Charter.decoded` reads it."""


class StatusDocument(TypedDict):
    """State of the schedule: the answer to a request for the status."""

    task: Hex32
    step: Count
    steps: Count
    phase: StepPhase
    seconds_left: Seconds
    seconds_to_next_step: Seconds
    head: str
    model_steps: Count


class RecordsDocument(TypedDict):
    """Published records of the ledger, in order."""

    records: list[RecordDocument]


class EnrolmentDocument(TypedDict):
    """Body of an enrolment: the device's public key and the secret of its invitation."""

    client: Count
    public_key: Hex32
    secret: Hex32


class ReceiptDocument(TypedDict):
    """A `WireReceipt` in JSON."""

    answer: WireAnswer
    task: NotRequired[Hex32]
    client: NotRequired[Count]
    step: NotRequired[Annotated[int, {"minimum": -1}]]
    digest: NotRequired[Hex32]
    detail: NotRequired[str]
    asked: NotRequired[bool]


class UnknownDocument(TypedDict):
    """Receipt for a request that no device of the task signed."""

    answer: Literal[WireAnswer.UNKNOWN]


class ToldDocument(TypedDict):
    """Answer to a signed ledger head that the ledger has."""

    answer: Literal[WireAnswer.ACCEPTED]


class DetailDocument(TypedDict):
    """Error, for a person."""

    detail: str


def head_bytes(task: str, head: Head) -> bytes:
    """The bytes that the coordinator signs to state its ledger's head."""
    return f"{HEAD_FORMAT}\n{task}\n{head}".encode("ascii")


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A head with the coordinator's signature, as a device keeps it and sends it back."""

    head: Head
    signature: bytes

    def __str__(self) -> str:
        return f"{self.head}:{self.signature.hex()}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """The head that ``str`` wrote."""
        head, separator, signature = text.rpartition(":")
        signed = cls(Head.parsed(head), bytes.fromhex(signature))
        if not separator or len(signed.signature) != SIGNATURE_BYTES or str(signed) != text:
            raise ValueError("a signed head is steps:digest:signature")
        return signed


@dataclass(frozen=True, slots=True)
class WireReceipt:
    """The coordinator's answer to a signed request.

    The same for every copy of the request, for as long as the coordinator knows of the first one.

    Attributes:
        answer: what became of it.
        task, client, step: what it is about.
        digest: SHA-256 of the update, where there is one.
        detail: why not, for a person.
        asked: whether the client's update is asked for; None while that is not decided.
    """

    answer: WireAnswer
    task: str = ""
    client: int = -1
    step: int = -1
    digest: bytes | None = None
    detail: str = ""
    asked: bool | None = None

    def document(self) -> ReceiptDocument:
        """The receipt as JSON has it."""
        document: ReceiptDocument = {"answer": self.answer}
        if self.answer is WireAnswer.UNKNOWN:
            return document  # the same bytes for every client and cause
        document["task"], document["client"], document["step"] = self.task, self.client, self.step
        if self.digest is not None:
            document["digest"] = self.digest.hex()
        if self.detail:
            document["detail"] = self.detail
        if self.asked is not None:
            document["asked"] = self.asked
        return document

    def encoded(self) -> bytes:
        """The JSON bytes."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The message that `encoded` wrote.

        Raises:
            ValueError: anything else.
        """
        try:
            fields = json.loads(data)
            digest = fields.get("digest")
            return cls(
                WireAnswer(fields["answer"]),
                fields.get("task", ""),
                fields.get("client", -1),
                fields.get("step", -1),
                None if digest is None else bytes.fromhex(digest),
                fields.get("detail", ""),
                fields.get("asked"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a receipt: {error}") from None


@shows_shapes("task")
@dataclass(frozen=True, slots=True)
class Invitation:
    """The invitation that the operator hands to one device: all that it needs before the first
    contact.

    It draws its slots by the law in it, and keeps to the charter whose digest is ``task``.

    Attributes:
        task: the charter's digest, hexadecimal.
        coordinator_key: Ed25519 public key that signs heads, 32 bytes.
        law: the participation law, as `spec.codec` writes objects of the spec.
        secret: one-time, 32 bytes.
    """

    task: str
    coordinator_key: bytes
    client: int
    population: int
    law: dict[str, Any]
    secret: bytes

    def encoded(self) -> str:
        """A token of URL-safe characters."""
        fields = {
            "task": self.task,
            "key": self.coordinator_key.hex(),
            "client": self.client,
            "population": self.population,
            "law": self.law,
            "secret": self.secret.hex(),
        }
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        return _INVITATION + base64.urlsafe_b64encode(text).decode().rstrip("=")

    @classmethod
    def decoded(cls, token: str) -> Self:
        """The invitation that `encoded` wrote.

        Raises:
            ParameterError: no such token; its secret is not shown.
        """
        expected = "an invitation as `turnout enrol` prints it"
        kind, payload = token[: len(_INVITATION)], token[len(_INVITATION) :].strip()
        try:
            fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            invitation = cls(
                str(fields["task"]),
                bytes.fromhex(fields["key"]),
                int(fields["client"]),
                int(fields["population"]),
                dict(fields["law"]),
                bytes.fromhex(fields["secret"]),
            )
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise ParameterError("token", "…", expected) from None
        lengths = len(invitation.coordinator_key), len(invitation.secret)
        if kind != _INVITATION or lengths != (KEY_BYTES, SECRET_BYTES):
            raise ParameterError("token", "…", expected)
        return invitation


SEEDED_CODE, SAMPLED_BIT, HADAMARD_BIT = "seeded-code-1", "sampled-bit-1", "hadamard-bit-1"
_CODE = ("directions", "preferred", "seed_bits", "public_seed")


def encoding_of(document: Document) -> UpdateEncoding:
    """The encoding that a charter's ``messages.update`` names, its format known.

    Raises:
        ParameterError: a value outside its domain.
        KeyError, TypeError: other fields than the format has.
    """
    fields = {key: value for key, value in document.items() if key != "format"}
    return _READERS[document["format"]](fields)


def document_of(encoding: UpdateEncoding) -> Document:
    """The charter's ``messages.update``; `encoding_of` reads it.

    Raises:
        UnsupportedError: messages that no format stands for.
    """
    if isinstance(encoding, Lattice):
        return {
            "format": UPDATE_FORMAT,
            "step": encoding.step,
            "clip_norm": encoding.clip_norm,
            "dimension": encoding.dimension,
        }
    from turnout.protocol.randomized import MessageEncoding

    assert isinstance(encoding, MessageEncoding)
    document = _message_document(encoding)
    if encoding_of(document) != encoding:
        raise UnsupportedError(
            f"no format of a charter stands for {encoding.randomizer}: a randomizer of devices is "
            "one of a plan's, none of them as printed"
        )
    return document


def _message_document(encoding: MessageEncoding) -> Document:
    from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode

    randomizer = encoding.randomizer
    common = {
        "clip_norm": float(randomizer.radius),
        "dimension": randomizer.dimension,
        "message_bits": randomizer.message_bits,
    }
    match randomizer:
        case SeededCode():
            own = {key: getattr(randomizer, key) for key in _CODE}
            common |= own | {"preference": float(randomizer.preference), "format": SEEDED_CODE}
        case LInfRandomizer():
            common |= {"flip": randomizer.flips[0], "format": SAMPLED_BIT}
        case L1Randomizer():
            common |= {"flip": randomizer.flip, "format": HADAMARD_BIT}
        case _:
            kind = type(randomizer).__name__
            raise UnsupportedError(f"no format of a charter stands for {kind}")
    return common | {"epsilon": float(randomizer.epsilon)}


def _seeded_code(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import SeededCode

    _taken(fields, *_CODE, "preference")
    return _messages(SeededCode(*_common(fields), **{key: fields[key] for key in _CODE}))


def _sampled_bit(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import LInfRandomizer

    _taken(fields, "flip")
    return _messages(LInfRandomizer(*_common(fields)))


def _hadamard_bit(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import L1Randomizer

    _taken(fields, "flip")
    return _messages(L1Randomizer(*_common(fields)))


def _common(fields: Document) -> tuple[int, float, float]:
    """What every randomizer is made of: d, ε₀ as asked for, C."""
    return fields["dimension"], fields["epsilon"], fields["clip_norm"]


def _taken(fields: Document, *own: str) -> None:
    """Refuses other fields than these and those of every message.

    Raises:
        KeyError: there are others, or one is missing.
    """
    due = {"dimension", "epsilon", "clip_norm", "message_bits", *own}
    if set(fields) != due:
        raise KeyError(", ".join(sorted(set(fields) ^ due)))


def _messages(randomizer: Any) -> UpdateEncoding:
    from turnout.protocol.randomized import MessageEncoding

    return MessageEncoding(randomizer)


_READERS: dict[str, Callable[[Document], UpdateEncoding]] = {
    UPDATE_FORMAT: lambda fields: Lattice(**fields),
    SEEDED_CODE: _seeded_code,
    SAMPLED_BIT: _sampled_bit,
    HADAMARD_BIT: _hadamard_bit,
}
UPDATE_FORMATS = tuple(_READERS)
"""All that a charter may name."""
