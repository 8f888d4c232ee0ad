"""The charter of a ledger, as far as a verifier needs it, read by its own decoder."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np

from turnout import schemes as spec
from turnout.core.errors import ParameterError
from turnout.schemes import Scheme, TrustModel
from turnout.schemes.registry import law_class
from turnout.verification.document import (
    DamagedError,
    canonical_fields,
    count_of,
    digest_of,
    number_of,
)

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
}
_FORMATS = {
    "turnout-charter-1": {"lattice", "initial_model"},
    "turnout-charter-2": {"model", "client", "messages"},
}
"""The formats that are read, and the fields that each has beside those of both."""
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
"""Classes of which a scheme consists, but for participation laws, which have names of their own."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that a charter states.

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
        """Steps of the whole run."""
        return self.charged_steps[-1]

    def charge(self, steps: int) -> float:
        """ε that the charter says is spent once 1 ≤ ``steps`` ≤ all steps are released."""
        return self.charged[bisect_left(self.charged_steps, steps)]


def decoded(charter: bytes) -> Terms:
    """The terms in a charter's bytes.

    Raises:
        DamagedError: it is not canonical, lacks a term, or contradicts itself.
    """
    try:
        fields = canonical_fields(charter)
        more = _FORMATS.get(fields.get("format", ""))
        if more is None or set(fields) != _FIELDS | more:
            raise ValueError(f"not of the format {' or '.join(_FORMATS)}")
        dimension, first = _artefacts(fields)
        scheme = _rebuilt(_plain(fields["scheme"]))
        if not isinstance(scheme, Scheme):
            raise ValueError("the scheme is none")
        _require_trust(fields, scheme)
        terms = Terms(
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
    """Dimension and digest of the first model, where a charter of this format has them."""
    if "lattice" in fields:
        return fields["lattice"]["dimension"], fields["initial_model"]
    model, update = fields["model"], fields["messages"]["update"]
    named = model["format"], update["format"], fields["messages"]["record"]["format"]
    if (named[0], named[2]) != ("float32-le-1", "record-1") or named[1] not in _UPDATES:
        raise ValueError(f"formats that are not known here: {', '.join(map(str, named))}")
    return update["dimension"], model["digest"]


def _require_trust(fields: dict[str, Any], scheme: Scheme) -> None:
    """Refuses updates that are not what clients send under the scheme's trust."""
    update = "int32-lattice-1" if "lattice" in fields else fields["messages"]["update"]["format"]
    if scheme.trust is not _UPDATES[update]:
        raise ValueError(f"updates of the format {update} are not sent under {scheme.trust} trust")


def _require_consistent(terms: Terms) -> None:
    if not 0.0 < terms.delta < 1.0:
        raise ValueError(f"delta = {terms.delta!r} is not between 0 and 1")
    if not (terms.target > 0.0 and terms.dimension > 0):
        raise ValueError("target and dimension must be above 0")
    steps, charged = terms.charged_steps, terms.charged
    if not steps or len(steps) != len(charged):
        raise ValueError("as many charges as charged steps, and at least one")
    if any(a >= b for a, b in pairwise(steps)):
        raise ValueError("charged_steps do not rise")
    if charged[0] < 0 or any(a > b for a, b in pairwise(charged)):
        raise ValueError("charged falls: more steps cannot cost less")
    if steps[-1] != terms.scheme.participation.steps:
        raise ValueError("charged_steps do not end with the run")


def _rebuilt(value: Any) -> Any:
    """An object of `turnout.schemes` from ``{"is": class, field: …}``; other values as they are."""
    if not isinstance(value, dict):
        return value
    content = dict(value)
    name = content.pop("is", None)
    if name == "array":
        return _array(content)
    if name == "tuple":
        return tuple(_rebuilt(item) for item in content["values"])
    known = (_CLASSES.get(name) or law_class(name)) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"{name!r} is nothing that a scheme consists of")
    # A scheme would take a bare word for its member; a charter has each with its kind.
    words = [key for key, inner in content.items() if isinstance(inner, str)]
    if words and not issubclass(known, Enum):
        raise ValueError(f"{name}: {words[0]} is a bare word")
    try:
        return known(**{key: _rebuilt(inner) for key, inner in content.items()})
    except ParameterError as error:
        raise ValueError(f"{name}: {error}") from None
    except TypeError:
        raise ValueError(f"{name} has other fields than {', '.join(content)}") from None


def _array(content: dict[str, Any]) -> np.ndarray:
    """A bool array, all that a participation law may hold."""
    values = np.array(content["values"])
    if content["type"] != "bool" or values.dtype != np.bool_:
        raise ValueError("only bool arrays belong to a scheme")
    return values


def _plain(value: Any) -> Any:
    """JSON with ``{"float": hex}`` as floats."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return number_of(value["float"])
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
