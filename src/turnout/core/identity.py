"""Identity of an object: its class and settings as text, and the arrays that it holds.

A run resumes from a checkpoint only if all settings and data that determine its results are
unchanged. The text is public and may be hashed and shown. Arrays may be private, and anyone could
test guesses of private data with an unkeyed digest; so arrays are not part of the text, and their
digest uses a secret key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.core.showing import shows_shapes

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@runtime_checkable
class Resumable(Protocol):
    """Object of a user's class that lists everything that determines its results."""

    def resume_parts(self) -> Mapping[str, object]:
        """All settings and all data by name.

        Each part is a plain value, an array, a dataclass of such values, or an object with the
        method ``resume_parts``. Data must be arrays, because only arrays are digested under a
        key. When a run resumes, a change of a part that this method does not list stays
        undetected.
        """
        ...


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Settings and data that determine the results of an object.

    Attributes:
        text: class names and settings, and the type and shape of each array.
        arrays: the arrays, in the order in which the text names them.
    """

    text: str
    arrays: tuple[NDArray[np.generic], ...]

    def public_digest(self) -> str:
        """Digest of the text without the arrays, as 32 hexadecimal digits."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    def keyed_digest(self, key: bytes) -> bytes:
        """Digest of the arrays' bytes under a secret key, 32 bytes.

        `text` contains the type and shape of each array, so two identities with equal texts and
        equal bytes have equal arrays.

        Args:
            key: 16 to 64 random bytes. Anyone who knows the key can test guesses of the arrays.
        """
        digest = hashlib.blake2b(key=key, digest_size=32)
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.digest()


def identity_of(value: object) -> Identity:
    """Identity of a value, the same in every process.

    A dataclass is described by all of its fields, and any class by its name; a change of the code
    of a class is not detected.

    Args:
        value: None, numbers, text, enums, arrays, tuples, lists and mappings of these, dataclasses
            of these, and `Resumable` objects.

    Raises:
        UnsupportedError: any other value, such as a function, because its name does not determine
            its results, or an object of a class that is defined inside a function.

    >>> identity_of({"rate": 0.5, "points": np.zeros((2, 3))}).text
    "{'points': array <f8 (2, 3), 'rate': 0.5}"
    """
    arrays: list[NDArray[np.generic]] = []
    return Identity(_text(value, arrays), tuple(arrays))


def _text(value: object, arrays: list[NDArray[np.generic]]) -> str:
    # Plain values and members of enumerations are their own text.
    if type(value) in _PLAIN or isinstance(value, np.generic):
        return repr(value)
    if isinstance(value, Enum):
        return f"{_name(value)}.{value.name}"
    # Arrays are collected, and hashed by the caller.
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise UnsupportedError(
                "arrays of Python objects cannot be checkpointed; use arrays of numbers"
            )
        arrays.append(value)
        return f"array {value.dtype.str} {value.shape}"
    # Containers and other objects are described by their parts.
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return f"({', '.join(_text(part, arrays) for part in value)})"
    if isinstance(value, dict) and type(value) is dict:
        return _named(value, arrays)
    return _name(value) + _named(_parts(value), arrays)


def _named(parts: Mapping[str, object], arrays: list[NDArray[np.generic]]) -> str:
    """Text of named parts, sorted by name; arrays are appended to ``arrays``."""
    inside = (f"{key!r}: {_text(parts[key], arrays)}" for key in sorted(parts, key=repr))
    return f"{{{', '.join(inside)}}}"


def _parts(value: object) -> Mapping[str, object]:
    """Settings and data of an object by name; UnsupportedError if the object does not list them."""
    if isinstance(value, Resumable) and not isinstance(value, type):
        return value.resume_parts()
    # A subclass that is no dataclass itself may hold more than the fields that it inherits.
    if "__dataclass_fields__" in type(value).__dict__:
        names = [field.name for field in fields(value)]  # pyright: ignore[reportArgumentType]
        if set(_own(value)) <= set(names):
            return {name: getattr(value, name) for name in names}
    raise UnsupportedError(
        f"{_title(value)} cannot be identified in a checkpoint: make it a dataclass of plain "
        "values, or give it a method resume_parts"
    )


def _own(value: object) -> Iterable[str]:
    """Names of an object's own attributes, without cached properties."""
    held = getattr(value, "__dict__", {})
    return (
        name for name in held if not isinstance(getattr(type(value), name, None), cached_property)
    )


def _name(value: object) -> str:
    """Qualified class name of an object; UnsupportedError if its class is local to a function."""
    if "<locals>" in type(value).__qualname__:
        raise UnsupportedError(
            f"{_title(value)} cannot be identified in a checkpoint, because its class is defined "
            "inside a function: define the class in a module"
        )
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _title(value: object) -> str:
    """Qualified name of a function or class; of any other object, the name of its class."""
    qualified = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{qualified}"
