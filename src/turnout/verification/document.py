"""The lines of an exported ledger and its charter, read strictly, and the findings about them.

`Document` is the parsed file, `DocumentTerms` the charter as far as a verifier needs it, by a
decoder of its own; `VerificationVerdict` holds the findings (`LedgerFault`, `Cost`). A function
that parses a line or a value raises ValueError for anything but what its docstring says.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from turnout import schemes as spec
from turnout.core.errors import ParameterError
from turnout.schemes import Scheme, TrustModel
from turnout.schemes.registry import participation_class


class VerificationOutcome(Enum):
    """Verdict in a word; its value is the exit code of ``turnout ledger verify``."""

    GOOD = 0
    BAD = 1
    COST_NOT_RECOMPUTED = 3


@dataclass(frozen=True, slots=True)
class LedgerFault:
    """One fault of a ledger; ``step`` is None for the charter and the head."""

    what: str
    step: int | None = None

    def __str__(self) -> str:
        return self.what if self.step is None else f"step {self.step}: {self.what}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Claimed ε of a ledger after some steps, and bounds on the true ε."""

    steps: int
    claimed: float
    lower: float
    upper: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the claimed ε is at least the lower bound on the true one."""
        return self.claimed >= self.lower

    @property
    def loose(self) -> bool:
        """Whether the claimed ε exceeds the upper bound on the true one, which is allowed."""
        return self.upper is not None and self.claimed > self.upper


@dataclass(frozen=True, slots=True)
class VerificationVerdict:
    """Result of a verification.

    Attributes:
        task: SHA-256 of the charter in hexadecimal, empty without a charter.
        head: ``steps:digest`` of the last record.
        epsilon, delta: claims of the ledger; None where they cannot be read.
        relation: neighbouring relation in words.
        faults: in the order of the file.
        costs: rising in steps.
        not_recomputed: why ε was not recomputed, empty where it was.
        models: model files whose digests were compared; None where none were given.
    """

    task: str = ""
    steps: int = 0
    head: str = ""
    epsilon: float | None = None
    delta: float | None = None
    relation: str = ""
    faults: tuple[LedgerFault, ...] = ()
    costs: tuple[Cost, ...] = ()
    method: str = ""
    not_recomputed: str = ""
    models: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def outcome(self) -> VerificationOutcome:
        """Outcome of the verification: valid, invalid, or valid without a recomputed ε."""
        if self.faults:
            return VerificationOutcome.BAD
        return (
            VerificationOutcome.COST_NOT_RECOMPUTED
            if self.not_recomputed
            else VerificationOutcome.GOOD
        )

    def document(self) -> dict[str, Any]:
        """Verdict as a JSON object."""
        return {
            "verdict": self.outcome.name.lower().replace("_", "-"),
            "task": self.task,
            "steps": self.steps,
            "head": self.head,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
            "faults": [{"step": fault.step, "what": fault.what} for fault in self.faults],
            "costs": [asdict(cost) for cost in self.costs],
            "method": self.method,
            "not_recomputed": self.not_recomputed,
            "models": self.models,
            "remarks": list(self.remarks),
        }


_PREFIX, _SUFFIX = b'{"charter":', b"}"


class DamagedError(Exception):
    """A file that is not a ledger; the error carries the `LedgerFault`."""

    def __init__(self, what: str, step: int | None = None) -> None:
        super().__init__(what)
        self.fault = LedgerFault(what, step)


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One release as its line states it; ``digest`` is the SHA-256 of the line."""

    task: str
    step: int
    sum_digest: bytes
    model_digest: bytes
    epsilon: float
    delta: float
    previous: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class HeadLine:
    """Last line of a ledger: number of steps, last digest and coordinator's signature."""

    steps: int
    digest: bytes
    signature: bytes

    def signed(self, task: str) -> bytes:
        """Bytes that the coordinator signed."""
        return f"turnout-head-1\n{task}\n{self.steps}:{self.digest.hex()}".encode("ascii")


@dataclass(frozen=True, slots=True)
class Document:
    """Exported ledger with all lines parsed.

    Attributes:
        charter: the charter's bytes, as they stand in the first line.
        records: in the order of the file.
        head: the last line.
    """

    charter: bytes
    records: tuple[RecordLine, ...]
    head: HeadLine

    @property
    def task(self) -> str:
        """SHA-256 of the charter, hexadecimal."""
        return hashlib.sha256(self.charter).hexdigest()


def parsed(data: bytes) -> Document:
    """Parsed lines of a ledger file.

    Raises:
        DamagedError: a line is not in the canonical form of its kind.
    """
    lines = data.split(b"\n")
    if lines.pop() != b"":
        raise DamagedError("the last line has no line end: the file was cut off")
    if len(lines) < 2:
        raise DamagedError("a ledger has at least a charter and a head")
    first, *middle, last = lines
    if not (first.startswith(_PREFIX) and first.endswith(_SUFFIX)):
        raise DamagedError("the first line is not a charter")
    records = tuple(_record(line, number) for number, line in enumerate(middle))
    return Document(first[len(_PREFIX) : -len(_SUFFIX)], records, _head(last))


def canonical_fields(line: bytes) -> dict[str, Any]:
    """JSON object of a line in canonical form: sorted keys, no spaces, ASCII, no floats."""
    try:
        fields = json.loads(line.decode("ascii"), parse_float=_refused, parse_constant=_refused)
        again = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if again != line:
        raise ValueError("not the canonical form")
    return fields


def number_of(text: object) -> float:
    """Finite float from a text in the format of ``float.hex``."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a number's hexadecimal form")
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a number's hexadecimal form") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    if value.hex() != text:
        raise ValueError(f"{text[:40]!r} is not how float.hex writes {value!r}")
    return value


def digest_of(text: object) -> bytes:
    """Digest of 32 bytes from 64 lower-case hexadecimal digits; other values raise ValueError."""
    return _bytes_of(text, 32)


def count_of(value: object) -> int:
    """Whole number of at least 0 from a JSON value; other values raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _bytes_of(text: object, length: int) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * length:
        raise ValueError(f"not {length} bytes in hexadecimal")
    value = bytes.fromhex(text)
    if value.hex() != text:
        raise ValueError(f"not {length} bytes in lower-case hexadecimal")
    return value


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text}: expected a finite float in the format of float.hex")


def _record(line: bytes, number: int) -> RecordLine:
    names = {"task", "step", "sum", "model", "epsilon", "delta", "previous"}
    # Exactly these fields, each in its canonical form.
    try:
        fields = canonical_fields(line)
        if set(fields) != names:
            raise ValueError(f"its fields are {', '.join(sorted(fields))}")
        return RecordLine(
            str(fields["task"]),
            count_of(fields["step"]),
            digest_of(fields["sum"]),
            digest_of(fields["model"]),
            number_of(fields["epsilon"]),
            number_of(fields["delta"]),
            digest_of(fields["previous"]),
            hashlib.sha256(line).digest(),
        )
    # Any error names the line.
    except ValueError as error:
        raise DamagedError(f"line {number + 2} is not a record: {error}", number) from None


def _head(line: bytes) -> HeadLine:
    try:
        fields = canonical_fields(line)
        if set(fields) != {"head", "signature"}:
            raise ValueError("a head is the last line, and there is none: the file was cut off")
        steps, digest = head_of(fields["head"])
        return HeadLine(steps, digest, _bytes_of(fields["signature"], 64))
    except ValueError as error:
        raise DamagedError(f"the last line is not a head: {error}") from None


def head_of(text: object) -> tuple[int, bytes]:
    """Steps and digest from ``steps:digest``."""
    steps, _, digest = str(text).partition(":")
    if not (steps.isascii() and steps.isdigit()):
        raise ValueError("a head is steps:digest")
    head = int(steps), digest_of(digest)
    if f"{head[0]}:{digest}" != text:
        raise ValueError("a head is steps:digest")
    return head


_FIELDS = {
    "format",
    "plan",
    "population",
    "scheme",
    "delta",
    "target",
    "charged_steps",
    "charged",
    "expected_check_ins",
    "minibatch",
    "timing",
    "coordinator_key",
    "model",
    "client",
    "messages",
}
_FORMAT = "turnout-charter-1"
_UPDATES = {
    "int32-lattice-1": TrustModel.CENTRAL,
    "seeded-code-1": TrustModel.LOCAL,
    "sampled-bit-1": TrustModel.LOCAL,
    "hadamard-bit-1": TrustModel.LOCAL,
}
"""The formats of an update, and the trust under which clients send it."""
_CLASSES: Mapping[str, type] = {
    name: value
    for name, value in vars(spec).items()
    if isinstance(value, type) and (is_dataclass(value) or issubclass(value, Enum))
}
"""Classes of which a scheme consists, but for participations, which have names of their own."""


@dataclass(frozen=True, slots=True)
class DocumentTerms:
    """Terms that a charter states.

    Attributes:
        delta, target: (ε, δ) that must not be exceeded.
        charged_steps, charged: ε once so many steps are released; in between the next counts.
        initial_model: SHA-256 of the first parameters.
        coordinator_key: Ed25519 public key that signs heads.
    """

    scheme: Scheme
    delta: float
    target: float
    charged_steps: tuple[int, ...]
    charged: tuple[float, ...]
    dimension: int
    initial_model: bytes
    coordinator_key: bytes

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.charged_steps[-1]

    def charge(self, steps: int) -> float:
        """ε that the charter charges once 1 ≤ ``steps`` ≤ all steps are released."""
        return self.charged[bisect_left(self.charged_steps, steps)]


def decode_terms(charter: bytes) -> DocumentTerms:
    """Terms from the bytes of a charter.

    Raises:
        DamagedError: it is not canonical, lacks a term, or contradicts itself.
    """
    # The fields of a charter in their format.
    try:
        fields = canonical_fields(charter)
        if fields.get("format") != _FORMAT or set(fields) != _FIELDS:
            raise ValueError(f"not of the format {_FORMAT}")
        # The scheme, which must be one of this package and fit the formats of updates.
        dimension, first = _artefacts(fields)
        scheme = rebuilt(_plain(fields["scheme"]))
        if not isinstance(scheme, Scheme):
            raise ValueError("the scheme is not one of turnout")
        _require_trust(fields, scheme)
        # The terms, which must agree with each other.
        terms = DocumentTerms(
            scheme,
            number_of(fields["delta"]),
            number_of(fields["target"]),
            tuple(count_of(steps) for steps in fields["charged_steps"]),
            tuple(number_of(epsilon) for epsilon in fields["charged"]),
            count_of(dimension),
            digest_of(first),
            digest_of(fields["coordinator_key"]),
        )
        _require_consistent(terms)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DamagedError(f"the charter is damaged: {error}") from None
    return terms


def _artefacts(fields: dict[str, Any]) -> tuple[object, object]:
    """Dimension and digest of the first model; unknown formats are refused."""
    model, update = fields["model"], fields["messages"]["update"]
    named = model["format"], update["format"], fields["messages"]["record"]["format"]
    if (named[0], named[2]) != ("float32-le-1", "record-1") or named[1] not in _UPDATES:
        raise ValueError(f"unknown formats: {', '.join(map(str, named))}")
    return update["dimension"], model["digest"]


def _require_trust(fields: dict[str, Any], scheme: Scheme) -> None:
    """Refuse update formats that clients do not send under the scheme's trust model."""
    update = fields["messages"]["update"]["format"]
    if scheme.trust is not _UPDATES[update]:
        raise ValueError(f"updates of the format {update} are not sent under {scheme.trust} trust")


def _require_consistent(terms: DocumentTerms) -> None:
    if not 0.0 < terms.delta < 1.0:
        raise ValueError(f"delta = {terms.delta!r} is not between 0 and 1")
    if not (terms.target > 0.0 and terms.dimension > 0):
        raise ValueError("target and dimension must be above 0")
    steps, charged = terms.charged_steps, terms.charged
    if not steps or len(steps) != len(charged):
        raise ValueError("charged and charged_steps must have the same length of at least 1")
    if any(a >= b for a, b in pairwise(steps)):
        raise ValueError("charged_steps are not ascending")
    if charged[0] < 0 or any(a > b for a, b in pairwise(charged)):
        raise ValueError("charged falls: more steps cannot cost less")
    if steps[-1] != terms.scheme.participation.steps:
        raise ValueError("charged_steps do not end with the run")


def rebuilt(value: Any) -> Any:
    """Object of `turnout.schemes` from its JSON form ``{"is": class, field: …}``; other values
    as given.
    """
    if not isinstance(value, dict):
        return value
    content = dict(value)
    name = content.pop("is", None)
    if name == "array":
        return _array(content)
    if name == "tuple":
        return tuple(rebuilt(item) for item in content["values"])
    known = (_CLASSES.get(name) or participation_class(name)) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"{name!r} is not a part of a scheme")
    # A scheme would take a bare word for its member; a charter has each with its kind.
    words = [key for key, inner in content.items() if isinstance(inner, str)]
    if words and not issubclass(known, Enum):
        raise ValueError(f"{name}: {words[0]} is plain text: expected an object with its kind")
    try:
        return known(**{key: rebuilt(inner) for key, inner in content.items()})
    except ParameterError as error:
        raise ValueError(f"{name}: {error}") from None
    except TypeError:
        raise ValueError(f"{name} has other fields than {', '.join(content)}") from None


def _array(content: dict[str, Any]) -> np.ndarray:
    """Array of booleans, the only kind that a participation holds."""
    values = np.array(content["values"])
    if content["type"] != "bool" or values.dtype != np.bool_:
        raise ValueError("only bool arrays belong to a scheme")
    return values


def _plain(value: Any) -> Any:
    """JSON value with ``{"float": hex}`` replaced by floats."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return number_of(value["float"])
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
