"""Schemes as plain dictionaries and back, for ledgers and charters.

`scheme_to_dict` and `participation_to_dict` return dictionaries, `scheme_from_dict` and
`participation_from_dict` build objects from dictionaries. The constructors of the objects check all
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from turnout import schemes
from turnout.core.errors import ParameterError
from turnout.schemes import Participation, Scheme
from turnout.schemes.registry import is_registered, participation_class

_CLASSES: Mapping[str, type] = {
    name: value
    for name, value in vars(schemes).items()
    if isinstance(value, type) and (is_dataclass(value) or issubclass(value, Enum))
}
"""Classes of the parts of a scheme by name; `participation_class` has those of participations."""


def scheme_to_dict(scheme: Scheme) -> dict[str, Any]:
    """Scheme as nested dictionaries and lists of numbers and texts.

    Raises:
        ParameterError: a part of the scheme is not an instance of a class of `turnout.schemes`.

    >>> from turnout.schemes import CheckIn, GaussianNoise, Relation
    >>> scheme = Scheme(GaussianNoise(1.5), CheckIn(100), Relation.ADD_REMOVE)
    >>> scheme_from_dict(scheme_to_dict(scheme)) == scheme
    True
    """
    return _to_plain(scheme)


def scheme_from_dict(data: Mapping[str, Any]) -> Scheme:
    """Scheme built from a dictionary that `scheme_to_dict` returned.

    Raises:
        ParameterError: an unknown class or field, or a value outside its domain.
    """
    scheme = _from_plain(data)
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", data, "a dictionary that scheme_to_dict returned")
    return scheme


def participation_to_dict(participation: Participation) -> dict[str, Any]:
    """Participation as a dictionary, in the form that it has in the result of `scheme_to_dict`.

    Raises:
        ParameterError: the class of the object is not registered as a participation.
    """
    return _to_plain(participation)


def participation_from_dict(data: Mapping[str, Any]) -> Participation:
    """Participation built from a dictionary that `participation_to_dict` returned.

    Raises:
        ParameterError: a class that is not registered as a participation, or a value outside its
            domain.
    """
    participation = _from_plain(data)
    if not is_registered(type(participation)):
        expected = "a dictionary that participation_to_dict returned"
        raise ParameterError("participation", data, expected)
    return participation


def _to_plain(value: Any) -> Any:
    """Part of a scheme as a dictionary, a list, a number or a text."""
    # The key "is" holds the name of the class, for members of enumerations and for objects.
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if type(value) in _CLASSES.values() or is_registered(type(value)):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Scheme):
            # Fields without a value are left out: charters are digests of these bytes, and older
            # charters do not have these fields.
            for name in ("population", "order"):
                if inner[name] is None:
                    del inner[name]
        plain = {name: _to_plain(part) for name, part in inner.items()}
        return {"is": type(value).__name__} | plain
    # Arrays and tuples are marked as such, since JSON has only lists.
    if isinstance(value, np.ndarray):
        return {"is": "array", "type": value.dtype.name, "values": value.tolist()}
    if isinstance(value, tuple):
        return {"is": "tuple", "values": [_to_plain(item) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ParameterError(
        "scheme", value, "numbers, texts, arrays, and objects of classes of turnout.schemes"
    )


def _from_plain(data: Any) -> Any:
    """Part of a scheme, built from the value that `_to_plain` returned."""
    if not isinstance(data, Mapping):
        return data
    # The key "is" holds "array", "tuple" or the name of a class.
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
    # The class checks the values of its fields. If the fields themselves are wrong, the error has
    # the class and the names of its fields.
    inner = {name: _from_plain(value) for name, value in content.items()}
    try:
        return known(**inner)
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(str(kind), sorted(content), _field_names(known)) from None


def _field_names(kind: type) -> str:
    """Text of an error that names the fields from which an object of a class is built."""
    if is_dataclass(kind):
        return f"the fields {', '.join(field.name for field in fields(kind))}"
    return f"the field value with a member of {kind.__name__}"


def _array(content: Mapping[str, Any]) -> np.ndarray:
    """Array of bool, built from a dictionary whose values must all be true or false."""
    try:
        values = np.array(content["values"])
    except (KeyError, ValueError):
        values = np.array(None)
    if set(content) != {"type", "values"} or content["type"] != "bool" or values.dtype != np.bool_:
        raise ParameterError("array", sorted(content), "the type 'bool' and values true or false")
    return values
