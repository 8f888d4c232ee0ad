"""Printed form of objects with private records or secrets, which shows types and sizes only."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import fields
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_MARK = "__shows_shapes__"


def shows_shapes(*public: str) -> Callable[[Class], Class]:
    """Class decorator that makes ``repr`` show the types, shapes and sizes of the fields only.

    It is used above ``@dataclass``.

    Args:
        public: names of the fields whose values are public and are shown.
    """

    def changed(held: Class) -> Class:
        def text(self: Any) -> str:
            shown = (f"{each.name} = {_text(self, each.name, public)}" for each in fields(self))
            return f"{type(self).__name__}({', '.join(shown)})"

        held.__repr__ = text  # pyright: ignore[reportAttributeAccessIssue]
        setattr(held, _MARK, public)
        return held

    return changed


def _text(held: Any, name: str, public: tuple[str, ...]) -> str:
    value = getattr(held, name, None)
    return repr(value) if name in public else shape_of(value)


def shape_of(value: Any) -> str:
    """Type of a value, with the value's shape or size if it has one.

    >>> shape_of(b"secret"), shape_of(3.5), shape_of(None)
    ('bytes of 6', 'float', 'None')
    """
    if value is None or hasattr(type(value), _MARK):
        return repr(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, Sized) else name
