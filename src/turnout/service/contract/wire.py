"""The wire format: paths, headers, signed bytes, answers, and the formats of an update.

Device and coordinator both import this module; a device in another language follows
docs/device-protocol.md, whose test vectors are compared with this module. `SignedRequest` has the
bytes that a device signs, `WireReceipt` is the answer, and `Invitation` makes the token that
invites one client. `encoding_of` and `document_of` translate between an update's encoding and its
document in a charter. The document has every number that a device needs, also the numbers that
follow from others, so that no two devices round them differently; a charter in which these numbers
are wrong is refused.
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
"""Formats by their names in a charter; a new format gets a new name, not a new protocol."""

NONCE_BYTES, SECRET_BYTES, KEY_BYTES, SIGNATURE_BYTES, DIGEST_BYTES = 16, 32, 32, 64, 32
_INVITATION = "turnout1."

NOT_SO = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a body that is not of the expected form."""


class StepPhase(StrEnum):
    """Phase of the step in progress, which determines the requests that are accepted."""

    CHECK_INS = "check-ins"
    ANSWERS = "answers"
    CLOSED = "closed"
    FINISHED = "finished"


class WireAnswer(StrEnum):
    """Outcome of a signed request: the value of the JSON key ``answer``."""

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
"""HTTP status of each outcome. Status 503 has no outcome: the device repeats the request."""


def enrolments_path() -> str:
    """URL path for enrolment: a POST that uses an invitation."""
    return f"{PREFIX}/enrolments"


def check_ins_path(step: int | str) -> str:
    """URL path for a check-in without an update (one-client rule): a POST without body."""
    return f"{PREFIX}/steps/{step}/check-ins"


def requests_path(step: int | str) -> str:
    """URL path for a POST without body that asks whether the client is chosen (one-client).

    The answer states whether the client's update is requested.
    """
    return f"{PREFIX}/steps/{step}/requests"


def updates_path(step: int | str) -> str:
    """URL path for the POST of an update.

    Under the aggregated rule an update is a check-in; under the one-client rule an update is the
    answer of the chosen client.
    """
    return f"{PREFIX}/steps/{step}/updates"


def dummy_traffic_path(step: int | str) -> str:
    """URL path for the POST of dummy traffic, which is never counted.

    The path is as long as the path of an update, and the body is as long as an update.
    """
    return f"{PREFIX}/steps/{step}/covered"


def model_path(steps: int) -> str:
    """URL path for the GET of a model after ``steps`` steps, little-endian float32."""
    return f"{MODELS_PATH}/{steps}"


def artefact_path(digest: str) -> str:
    """URL path for the GET of an artefact, by its hexadecimal SHA-256 in the charter."""
    return f"{PREFIX}/artefacts/{digest}"


def is_this_machine(host: str) -> bool:
    """Whether a host name or an address refers to this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


HEADS_PATH = f"{PREFIX}/heads"
"""Path for the POST of a signed ledger head, as text, that is newer than the coordinator's."""
CHARTER_PATH, STATUS_PATH, RECORDS_PATH, MODELS_PATH = (
    f"{PREFIX}/{name}" for name in ("charter", "status", "records", "models")
)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Signed part of a device's request: method, path and headers.

    The signature covers the body's digest, and the signature is checked before the body is read.

    Attributes:
        task: the charter's digest, hexadecimal.
        method: HTTP method.
        path: URL path, which begins with ``/v1``.
        client: the client's id.
        nonce: 16 bytes, fresh in every request.
        digest: SHA-256 of the body, which may be empty.
        format: name of the body's format; "" without a body.
        head: text of the newest `SignedHead` that the device has; "" if it has none.
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
        """Signed part of a POST request with the given body."""
        digest = hashlib.sha256(body).digest()
        return cls(task, "POST", path, client, nonce, digest, format, head)

    def canonical(self) -> bytes:
        r"""Bytes to be signed: ASCII, one line for each value that is not empty.

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
        """HTTP headers that carry the signed values other than task, method and path."""
        headers = {
            CLIENT_HEADER: str(self.client),
            NONCE_HEADER: self.nonce.hex(),
            HEAD_HEADER: self.head,
            FORMAT_HEADER: self.format,
            DIGEST_HEADER: self.digest.hex(),
            SIGNATURE_HEADER: signature.hex(),
        }
        return {name: value for name, value in headers.items() if value}


# -- JSON bodies: the OpenAPI document is derived from these types ------------------------------

Seconds = Annotated[float, {"minimum": 0}]


class CharterDocument(TypedDict):
    """JSON type of a charter, as in `Charter.canonical`."""


class StatusDocument(TypedDict):
    """JSON type of the schedule's state, the answer to a status request.

    Attributes:
        task: the charter's digest, hexadecimal.
        step: number of the step in progress, from 0.
        steps: number of steps of the run.
        phase: phase of the step.
        seconds_left: seconds until the phase ends.
        seconds_to_next_step: seconds until the next model is published; 0 after the last step.
        head: text of the newest `SignedHead`.
        model_steps: number of steps after which the newest model was published.
    """

    task: Hex32
    step: Count
    steps: Count
    phase: StepPhase
    seconds_left: Seconds
    seconds_to_next_step: Seconds
    head: str
    model_steps: Count


class RecordsDocument(TypedDict):
    """JSON type of a list of published ledger records, in order."""

    records: list[RecordDocument]


class EnrolmentDocument(TypedDict):
    """JSON type of an enrolment: the device's public key and the invitation's secret."""

    client: Count
    public_key: Hex32
    secret: Hex32


class ReceiptDocument(TypedDict):
    """JSON type of a `WireReceipt`."""

    answer: WireAnswer
    task: NotRequired[Hex32]
    client: NotRequired[Count]
    step: NotRequired[Annotated[int, {"minimum": -1}]]
    digest: NotRequired[Hex32]
    detail: NotRequired[str]
    asked: NotRequired[bool]


class UnknownDocument(TypedDict):
    """JSON type of the receipt for a request that no device of the task signed."""

    answer: Literal[WireAnswer.UNKNOWN]


class ToldDocument(TypedDict):
    """JSON type of the answer to a signed ledger head that the ledger contains."""

    answer: Literal[WireAnswer.ACCEPTED]


class DetailDocument(TypedDict):
    """JSON type of an error answer: the cause of the error as text."""

    detail: str


def head_bytes(task: str, head: Head) -> bytes:
    """Bytes that the coordinator signs when it publishes a ledger head."""
    return f"{HEAD_FORMAT}\n{task}\n{head}".encode("ascii")


@dataclass(frozen=True, slots=True)
class SignedHead:
    """Ledger head together with the coordinator's signature; devices store and present both.

    Attributes:
        head: ledger head.
        signature: the coordinator's Ed25519 signature of `head_bytes`, 64 bytes.
    """

    head: Head
    signature: bytes

    def __str__(self) -> str:
        return f"{self.head}:{self.signature.hex()}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Signed ledger head parsed from the text ``steps:digest:signature``.

        Raises:
            ValueError: the text has another form.
        """
        head, separator, signature = text.rpartition(":")
        signed = cls(Head.parsed(head), bytes.fromhex(signature))
        if not separator or len(signed.signature) != SIGNATURE_BYTES or str(signed) != text:
            expected = "steps:digest:signature"
            raise ValueError(f"signed ledger head = {text[:300]!r}: expected {expected}")
        return signed


@dataclass(frozen=True, slots=True)
class WireReceipt:
    """Receipt that the coordinator returns for a signed request.

    Every copy of a request gets the same receipt, as long as the coordinator stores the first
    receipt.

    Attributes:
        answer: outcome of the request.
        task: the charter's digest, hexadecimal.
        client: the client's id; −1 for an unknown client.
        step: step of the request; −1 for a request without a step.
        digest: SHA-256 of the update; None for a request without an update.
        detail: cause of a refusal, as text; "" otherwise.
        asked: whether the client's update is requested; None before the coordinator has chosen.
    """

    answer: WireAnswer
    task: str = ""
    client: int = -1
    step: int = -1
    digest: bytes | None = None
    detail: str = ""
    asked: bool | None = None

    def document(self) -> ReceiptDocument:
        """JSON form of the receipt."""
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
        """JSON bytes of the receipt."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Receipt parsed from its JSON bytes.

        Raises:
            ValueError: the bytes are no receipt.
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
            raise ValueError(f"the answer is not a receipt: {error}") from None


@shows_shapes("task")
@dataclass(frozen=True, slots=True)
class Invitation:
    """Invitation of one device, with all values that the device's first request needs.

    The device draws its steps from the participation in the invitation, and accepts only the
    charter whose digest is ``task``.

    Attributes:
        task: the charter's digest, hexadecimal.
        coordinator_key: Ed25519 public key that signs ledger heads, 32 bytes.
        client: the client's id.
        population: number of clients of the task.
        law: the participation, as `turnout.schemes.codec` writes it.
        secret: one-time secret that enrols the device's key, 32 bytes.
    """

    task: str
    coordinator_key: bytes
    client: int
    population: int
    law: dict[str, Any]
    secret: bytes

    def encoded(self) -> str:
        """Token of the invitation, in URL-safe characters."""
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
        """Invitation parsed from its token.

        Raises:
            ParameterError: the text is no token; the error omits the text, which may have the
                secret.
        """
        # Prefix, then base64 of JSON.
        expected = "an invitation that `turnout enrol` printed"
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
        # Lengths of key and secret.
        lengths = len(invitation.coordinator_key), len(invitation.secret)
        if kind != _INVITATION or lengths != (KEY_BYTES, SECRET_BYTES):
            raise ParameterError("token", "…", expected)
        return invitation


SEEDED_CODE, SAMPLED_BIT, HADAMARD_BIT = "seeded-code-1", "sampled-bit-1", "hadamard-bit-1"
_CODE = ("directions", "preferred", "seed_bits", "public_seed")


def encoding_of(document: Document) -> UpdateEncoding:
    """Update encoding from the charter's entry ``messages.update``, of a known format.

    Raises:
        ParameterError: a value is outside its domain.
        KeyError, TypeError: the fields are not those of the format.
    """
    fields = {key: value for key, value in document.items() if key != "format"}
    return _READERS[document["format"]](fields)


def document_of(encoding: UpdateEncoding) -> Document:
    """JSON entry ``messages.update`` of a charter for an update encoding.

    Raises:
        UnsupportedError: the messages of the randomizer have no format name.
    """
    # Whole numbers under central trust.
    if isinstance(encoding, Lattice):
        return {
            "format": UPDATE_FORMAT,
            "step": encoding.step,
            "clip_norm": encoding.clip_norm,
            "dimension": encoding.dimension,
        }
    # Randomized messages under local trust: the document must define the same randomizer again.
    from turnout.protocol.randomized import MessageEncoding

    assert isinstance(encoding, MessageEncoding)
    document = _message_document(encoding)
    if encoding_of(document) != encoding:
        raise UnsupportedError(
            f"no charter format describes {encoding.randomizer}; use a randomizer that a plan can "
            "name, in its default encoding"
        )
    return document


def _message_document(encoding: MessageEncoding) -> Document:
    """JSON entry ``messages.update`` of a charter for randomized messages."""
    from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode

    # Parameters that all randomizers have.
    randomizer = encoding.randomizer
    common = {
        "clip_norm": float(randomizer.radius),
        "dimension": randomizer.dimension,
        "message_bits": randomizer.message_bits,
    }
    # Parameters of the one kind of randomizer, derived ones included, and the format's name.
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
            raise UnsupportedError(
                f"no charter format describes {kind}; use a randomizer that a plan can name"
            )
    return common | {"epsilon": float(randomizer.epsilon)}


def _seeded_code(fields: Document) -> UpdateEncoding:
    """Update encoding for the format ``seeded-code-1``."""
    from turnout.randomizers.vectors import SeededCode

    _require_fields(fields, *_CODE, "preference")
    return _messages(SeededCode(*_common(fields), **{key: fields[key] for key in _CODE}))


def _sampled_bit(fields: Document) -> UpdateEncoding:
    """Update encoding for the format ``sampled-bit-1``."""
    from turnout.randomizers.vectors import LInfRandomizer

    _require_fields(fields, "flip")
    return _messages(LInfRandomizer(*_common(fields)))


def _hadamard_bit(fields: Document) -> UpdateEncoding:
    """Update encoding for the format ``hadamard-bit-1``."""
    from turnout.randomizers.vectors import L1Randomizer

    _require_fields(fields, "flip")
    return _messages(L1Randomizer(*_common(fields)))


def _common(fields: Document) -> tuple[int, float, float]:
    """Parameters that all randomizers share: dimension d, requested ε₀ and clip norm C."""
    return fields["dimension"], fields["epsilon"], fields["clip_norm"]


def _require_fields(fields: Document, *own: str) -> None:
    """Require exactly the fields that all randomizers share and those in ``own``.

    Raises:
        KeyError: fields are missing or unknown; the error lists them.
    """
    due = {"dimension", "epsilon", "clip_norm", "message_bits", *own}
    if set(fields) != due:
        raise KeyError("missing or unknown fields: " + ", ".join(sorted(set(fields) ^ due)))


def _messages(randomizer: Any) -> UpdateEncoding:
    """Update encoding whose messages the given randomizer makes."""
    from turnout.protocol.randomized import MessageEncoding

    return MessageEncoding(randomizer)


_READERS: dict[str, Callable[[Document], UpdateEncoding]] = {
    UPDATE_FORMAT: lambda fields: Lattice(**fields),
    SEEDED_CODE: _seeded_code,
    SAMPLED_BIT: _sampled_bit,
    HADAMARD_BIT: _hadamard_bit,
}
UPDATE_FORMATS = tuple(_READERS)
"""Formats of updates that a charter may name."""
