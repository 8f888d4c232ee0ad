"""Strict parsing of an exported ledger and its charter, and the classes of a verifier's findings.

`Document` is the parsed file. `DocumentTerms` holds the terms of the charter that a verifier needs;
its decoder shares no code with the service. `VerificationVerdict` holds the findings
(`LedgerFault`, `Cost`). A function that parses a line or a value raises ValueError where the input
does not have the form that its docstring states.
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
from turnout.core.plugins import installed, plugin_of
from turnout.schemes import Scheme, TrustModel
from turnout.schemes.registry import participation_class


class VerificationOutcome(Enum):
    """Outcome of a verification; the value is the exit code of ``turnout ledger verify``."""

    GOOD = 0
    BAD = 1
    COST_NOT_RECOMPUTED = 3
    NOT_CHECKED = 4


@dataclass(frozen=True, slots=True)
class LedgerFault:
    """One fault of a ledger; ``step`` is None for the charter and the head."""

    what: str
    step: int | None = None

    def __str__(self) -> str:
        return self.what if self.step is None else f"step {self.step}: {self.what}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Claimed ε of a ledger after a number of released steps, and bounds on the true ε."""

    steps: int
    claimed: float
    lower: float
    upper: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the claimed ε is at least the lower bound on the true ε."""
        return self.claimed >= self.lower

    @property
    def loose(self) -> bool:
        """Whether the claimed ε is above the upper bound on the true ε, which is allowed."""
        return self.upper is not None and self.claimed > self.upper


@dataclass(frozen=True, slots=True)
class VerificationVerdict:
    """Findings of the verification of a ledger.

    Attributes:
        task: SHA-256 of the charter in hexadecimal, empty without a charter.
        head: ``steps:digest`` of the last record.
        epsilon, delta: claims of the ledger; None where they cannot be read.
        relation: neighbouring relation in words.
        faults: faults in the order of the file.
        costs: claimed and recomputed ε at some steps, in ascending order of steps.
        not_recomputed: reason why ε was not recomputed; empty if ε was recomputed.
        not_checked: reason why nothing could be checked here, such as a plug-in that is not
            installed; empty if the ledger was checked.
        models: number of expected model files; None if no folder of models was given.
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
    not_checked: str = ""
    models: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def outcome(self) -> VerificationOutcome:
        """Outcome: valid, invalid, valid without a recomputed ε, or not checked."""
        if self.faults:
            return VerificationOutcome.BAD
        if self.not_checked:
            return VerificationOutcome.NOT_CHECKED
        if self.not_recomputed:
            return VerificationOutcome.COST_NOT_RECOMPUTED
        return VerificationOutcome.GOOD

    def document(self) -> dict[str, Any]:
        """Verdict as a JSON object."""
        # The claims of the ledger, then the findings, then what could not be checked.
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
            "not_checked": self.not_checked,
            "models": self.models,
            "remarks": list(self.remarks),
        }


_PREFIX, _SUFFIX = b'{"charter":', b"}"


class DamagedError(Exception):
    """Error: a file is not a ledger; the attribute ``fault`` states why."""

    def __init__(self, what: str, step: int | None = None) -> None:
        super().__init__(what)
        self.fault = LedgerFault(what, step)


class NotInstalledError(Exception):
    """Error: the charter needs a plug-in that is not installed here, so nothing can be checked."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """Fields of a record, the line of one released step; ``digest`` is the SHA-256 of the line."""

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
        charter: the charter's bytes, unchanged from the first line.
        records: one record for each released step, in the order of the file.
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
    """JSON object of a line in canonical form: sorted keys, no spaces, ASCII, no floats.

    Raises:
        ValueError: the line is not a JSON object, or is not in canonical form.
    """
    try:
        fields = json.loads(line.decode("ascii"), parse_float=_refused, parse_constant=_refused)
        again = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ValueError("the JSON of the line is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("the line is not a JSON object")
    if again != line:
        raise ValueError("the line is not canonical JSON: sorted keys, no spaces, ASCII")
    return fields


def number_of(text: object) -> float:
    """Finite float from a text in the format of ``float.hex``.

    Raises:
        ValueError: the value is not such a text.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r}: expected a text in the format of float.hex")
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r}: expected a text in the format of float.hex") from None
    if not math.isfinite(value):
        raise ValueError(f"{text}: expected a finite number")
    if value.hex() != text:
        raise ValueError(f"{text[:40]!r}: expected {value.hex()!r}, the format of float.hex")
    return value


def digest_of(text: object) -> bytes:
    """Digest of 32 bytes from 64 lower-case hexadecimal digits; other values raise ValueError."""
    return _bytes_of(text, 32)


def count_of(value: object) -> int:
    """Whole number of at least 0 from a JSON value; other values raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r}: expected a whole number of at least 0")
    return value


def _bytes_of(text: object, length: int) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * length:
        raise ValueError(f"{str(text)[:40]!r}: expected {length} bytes in hexadecimal")
    value = bytes.fromhex(text)
    if value.hex() != text:
        raise ValueError(f"{text[:40]!r}: expected {length} bytes in lower-case hexadecimal")
    return value


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text}: expected a finite float in the format of float.hex")


def _record(line: bytes, number: int) -> RecordLine:
    names = {"task", "step", "sum", "model", "epsilon", "delta", "previous"}
    # Exactly these fields, each in its canonical form.
    try:
        fields = canonical_fields(line)
        if set(fields) != names:
            given, wanted = ", ".join(sorted(fields)), ", ".join(sorted(names))
            raise ValueError(f"the fields are {given}: expected {wanted}")
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
            raise ValueError("expected the fields head and signature; the file may be cut off")
        steps, digest = head_of(fields["head"])
        return HeadLine(steps, digest, _bytes_of(fields["signature"], 64))
    except ValueError as error:
        raise DamagedError(f"the last line is not a head: {error}") from None


def head_of(text: object) -> tuple[int, bytes]:
    """Number of steps and digest from the text ``steps:digest`` of a head.

    Raises:
        ValueError: the value is not such a text.
    """
    steps, _, digest = str(text).partition(":")
    if not (steps.isascii() and steps.isdigit()):
        raise ValueError(f"head = {str(text)[:40]!r}: expected STEPS:DIGEST")
    head = int(steps), digest_of(digest)
    if f"{head[0]}:{digest}" != text:
        raise ValueError(f"head = {str(text)[:40]!r}: expected STEPS:DIGEST")
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
"""Formats of an update, each with the trust model under which clients send such updates."""
_CLASSES: Mapping[str, type] = {
    name: value
    for name, value in vars(spec).items()
    if isinstance(value, type) and (is_dataclass(value) or issubclass(value, Enum))
}
"""Classes of a scheme's parts by name, except participations, which have a registry."""


@dataclass(frozen=True, slots=True)
class DocumentTerms:
    """Terms of a charter that a verifier needs.

    Attributes:
        scheme: scheme whose ε the charter states.
        delta, target: δ, and the ε that the run must not exceed at this δ.
        charged_steps, charged: numbers of released steps, ascending, and the charter's bound on ε
            after each of these numbers of steps; between two of the numbers, the bound of the
            larger number holds.
        dimension: number d of parameters of the model.
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
        """Bound on ε that the charter states for ``steps`` released steps, from 1 to all steps."""
        return self.charged[bisect_left(self.charged_steps, steps)]


def decode_terms(charter: bytes) -> DocumentTerms:
    """Terms from the bytes of a charter.

    Raises:
        DamagedError: the charter is not canonical, lacks a term, or contradicts itself.
        NotInstalledError: the charter names a plug-in that is not installed here.
    """
    # The fields of a charter in their format.
    try:
        fields = canonical_fields(charter)
        if fields.get("format") != _FORMAT or set(fields) - {"plugins"} != _FIELDS:
            raise ValueError(f"the format or the fields are not those of {_FORMAT}")
        # The scheme, which must be one of this package and fit the formats of updates.
        _require_at_hand(fields.get("plugins", []))
        dimension, first = _artefacts(fields)
        scheme = rebuilt(_plain(fields["scheme"]))
        if not isinstance(scheme, Scheme):
            raise ValueError("the field 'scheme' is not a Scheme of turnout.schemes")
        _require_trust(fields, scheme)
        _require_plugins(fields.get("plugins", []), scheme)
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
    """Number of parameters and digest of the first model; unknown formats raise ValueError."""
    model, update = fields["model"], fields["messages"]["update"]
    named = model["format"], update["format"], fields["messages"]["record"]["format"]
    if (named[0], named[2]) != ("float32-le-1", "record-1") or named[1] not in _UPDATES:
        raise ValueError(f"unknown formats: {', '.join(map(str, named))}")
    return update["dimension"], model["digest"]


def _require_trust(fields: dict[str, Any], scheme: Scheme) -> None:
    """Raise an error for an update format that clients do not send under the trust model."""
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
        raise ValueError("charged_steps: expected ascending numbers")
    if charged[0] < 0 or any(a > b for a, b in pairwise(charged)):
        raise ValueError("charged: expected values of at least 0 that do not decrease")
    if steps[-1] != (total := terms.scheme.participation.steps):
        raise ValueError(f"charged_steps ends at {steps[-1]}: expected the run's {total} steps")


def _require_at_hand(named: Any) -> None:
    """Require that the plug-ins that a charter names are installed, without a check of their code.

    Raises:
        ValueError: ``named`` is not a list of plug-ins.
        NotInstalledError: a plug-in is missing here.
    """
    if not isinstance(named, list) or not all(isinstance(each, dict) for each in named):
        raise ValueError("the field 'plugins' is not a list of objects")
    here = {(each.package, each.version) for each in (installed() if named else ())}
    for each in named:
        name, version = str(each.get("name"))[:80], str(each.get("version"))[:80]
        if (name, version) not in here:
            raise NotInstalledError(
                f"the charter needs the plug-in {name} {version}, which is not installed here"
            )


def _require_plugins(named: Any, scheme: Scheme) -> None:
    """Require that the charter names the plug-in of its participation, with the code that is here.

    Raises:
        ValueError: the charter names no plug-in, or another plug-in, version or code.
    """
    plugin = plugin_of(type(scheme.participation))
    here = []
    if plugin is not None:
        here = [{"name": plugin.package, "version": plugin.version, "digest": plugin.digest}]
    if named != here:
        raise ValueError(
            f"the charter names the plug-ins {named}: expected {here}, as installed here"
        )


def rebuilt(value: Any) -> Any:
    """Object of `turnout.schemes` from its JSON form ``{"is": class, field: …}``.

    Numbers and other plain values are returned unchanged.

    Raises:
        ValueError: the class or a field is unknown, or a value is out of its domain.
    """
    # Arrays, tuples and plain values.
    if not isinstance(value, dict):
        return value
    content = dict(value)
    name = content.pop("is", None)
    if name == "array":
        return _array(content)
    if name == "tuple":
        return tuple(rebuilt(item) for item in content["values"])
    # The class of the part, by its name.
    known = (_CLASSES.get(name) or participation_class(name)) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"{name!r}: expected a participation, or another class of turnout.schemes")
    # The constructor accepts an enum's member as plain text; a charter states its class as well.
    words = [key for key, inner in content.items() if isinstance(inner, str)]
    if words and not issubclass(known, Enum):
        raise ValueError(
            f"{name}: {words[0]} is plain text: expected an object whose field 'is' names its class"
        )
    # The constructor checks the fields and their domains.
    try:
        return known(**{key: rebuilt(inner) for key, inner in content.items()})
    except ParameterError as error:
        raise ValueError(f"{name}: {error}") from None
    except TypeError:
        raise ValueError(f"{name} cannot have the fields {', '.join(content)}") from None


def _array(content: dict[str, Any]) -> np.ndarray:
    """Array of booleans from its JSON form; a scheme has no arrays of another type."""
    values = np.array(content["values"])
    if content["type"] != "bool" or values.dtype != np.bool_:
        raise ValueError("an array of a scheme has entries that are not booleans")
    return values


def _plain(value: Any) -> Any:
    """JSON value in which every ``{"float": hex}`` is replaced by the float."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return number_of(value["float"])
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
