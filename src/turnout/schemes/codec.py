"""Schemes as plain dictionaries and back, for ledgers and charters.

`scheme_to_dict` and `participation_to_dict` write, `scheme_from_dict` and `participation_from_dict`
read. The classes of `turnout.schemes` build what is read, so their checks hold for it as well.
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
"""Classes of which a scheme consists; participations are found by `participation_class`."""


def scheme_to_dict(scheme: Scheme) -> dict[str, Any]:
    """Scheme as dictionaries, lists, numbers and words.

    Raises:
        ParameterError: a part that is none of the classes of `turnout.schemes`.

    >>> from turnout.schemes import CheckIn, GaussianNoise, Relation
    >>> scheme = Scheme(GaussianNoise(1.5), CheckIn(100), Relation.ADD_REMOVE)
    >>> scheme_from_dict(scheme_to_dict(scheme)) == scheme
    True
    """
    return _to_plain(scheme)


def scheme_from_dict(data: Mapping[str, Any]) -> Scheme:
    """Scheme that `scheme_to_dict` wrote.

    Raises:
        ParameterError: a part that no scheme has, or a value outside its domain.
    """
    scheme = _from_plain(data)
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", data, "a scheme written by scheme_to_dict")
    return scheme


def participation_to_dict(participation: Participation) -> dict[str, Any]:
    """Participation as the dictionary that `scheme_to_dict` has for it."""
    return _to_plain(participation)


def participation_from_dict(data: Mapping[str, Any]) -> Participation:
    """Participation that `participation_to_dict` wrote.

    Raises:
        ParameterError: no registered participation, or a value outside its domain.
    """
    participation = _from_plain(data)
    if not is_registered(type(participation)):
        expected = "a participation written by participation_to_dict"
        raise ParameterError("participation", data, expected)
    return participation


def _to_plain(value: Any) -> Any:
    """Part of a scheme as a dictionary, a list, a number or a word."""
    # Members and objects of turnout's classes name their class.
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if type(value) in _CLASSES.values() or is_registered(type(value)):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Scheme):
            # Left out where a scheme has none: charters are digests of these bytes.
            for name in ("population", "order"):
                if inner[name] is None:
                    del inner[name]
        plain = {name: _to_plain(part) for name, part in inner.items()}
        return {"is": type(value).__name__} | plain
    # Arrays and tuples have marks of their own, since JSON has lists alone.
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
    """Part of a scheme that `_to_plain` wrote."""
    if not isinstance(data, Mapping):
        return data
    # What the mark "is" names decides how the rest is read.
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
    # The class checks its fields itself; other faults name the class and the fields given.
    inner = {name: _from_plain(value) for name, value in content.items()}
    try:
        return known(**inner)
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(str(kind), sorted(content), "the fields of this class") from None


def _array(content: Mapping[str, Any]) -> np.ndarray:
    """Array of bool; values that are neither true nor false are an error, not converted."""
    try:
        values = np.array(content["values"])
    except (KeyError, ValueError):
        values = np.array(None)
    if set(content) != {"type", "values"} or content["type"] != "bool" or values.dtype != np.bool_:
        raise ParameterError("array", sorted(content), "the type 'bool' and values true and false")
    return values
