"""Schemes as plain dictionaries and back, so that a ledger can be written down.

What comes back is built by the classes of `turnout.schemes`, so it passes their checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from turnout import schemes as spec
from turnout.core.errors import ParameterError
from turnout.schemes import Participation, Scheme
from turnout.schemes.registry import is_registered, participation_class

_CLASSES: Mapping[str, type] = {
    name: value
    for name, value in vars(spec).items()
    if isinstance(value, type) and (is_dataclass(value) or issubclass(value, Enum))
}
"""Classes of which a scheme consists, but for participation laws, which have names of their own."""


def scheme_to_dict(scheme: Scheme) -> dict[str, Any]:
    """A scheme as dictionaries, lists, numbers and words.

    >>> from turnout.schemes import CheckIn, GaussianNoise, Relation
    >>> scheme = Scheme(GaussianNoise(1.5), CheckIn(100), Relation.ADD_REMOVE)
    >>> scheme_from_dict(scheme_to_dict(scheme)) == scheme
    True
    """
    return _to_plain(scheme)


def scheme_from_dict(data: Mapping[str, Any]) -> Scheme:
    """The scheme that `scheme_to_dict` wrote.

    Raises:
        ParameterError: something that no scheme consists of.
    """
    scheme = _from_plain(data)
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", data, "a scheme written by scheme_to_dict")
    return scheme


def participation_to_dict(law: Participation) -> dict[str, Any]:
    """A participation law as it stands in the dictionary of its scheme."""
    return _to_plain(law)


def participation_from_dict(data: Mapping[str, Any]) -> Participation:
    """The law that `participation_to_dict` wrote.

    Raises:
        ParameterError: none of turnout's laws, or one with a value outside its domain.
    """
    law = _from_plain(data)
    if not is_registered(type(law)):
        raise ParameterError("participation", data, "a law written by participation_to_dict")
    return law


def _to_plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if type(value) in _CLASSES.values() or is_registered(type(value)):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Scheme):
            # Left out where a scheme does not declare them: charters are digests of these bytes.
            for name in ("population", "order"):
                if inner[name] is None:
                    del inner[name]
        plain = {name: _to_plain(part) for name, part in inner.items()}
        return {"is": type(value).__name__} | plain
    if isinstance(value, np.ndarray):
        return {"is": "array", "type": value.dtype.name, "values": value.tolist()}
    if isinstance(value, tuple):
        return {"is": "tuple", "values": [_to_plain(item) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ParameterError(
        "scheme", value, "numbers, words, arrays and the classes of turnout.schemes"
    )


def _from_plain(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    content = dict(data)
    kind = content.pop("is", None)
    if kind == "array":
        return _array(content)
    if kind == "tuple" and set(content) == {"values"} and isinstance(content["values"], list):
        return tuple(_from_plain(item) for item in content["values"])
    name = kind if isinstance(kind, str) else None
    known = (_CLASSES.get(name) or participation_class(name)) if name is not None else None
    if known is None:
        raise ParameterError("is", kind, "the name of a class of turnout.schemes")
    inner = {name: _from_plain(value) for name, value in content.items()}
    try:
        return known(**inner)
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(str(kind), sorted(content), "the fields of this class") from None


def _array(content: Mapping[str, Any]) -> np.ndarray:
    """A bool array, all that a law holds; other values are not made true or false of."""
    try:
        values = np.array(content["values"])
    except (KeyError, ValueError):
        values = np.array(None)
    if set(content) != {"type", "values"} or content["type"] != "bool" or values.dtype != np.bool_:
        raise ParameterError("array", sorted(content), "the type 'bool' and values true and false")
    return values
