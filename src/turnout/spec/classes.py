"""Rules that all classes of specs share: plain numbers and members in fields, no subclasses."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from turnout.core import checks
from turnout.core.errors import UnsupportedError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def plain_numbers(spec: DataclassInstance) -> None:
    """Makes int and float of all (already checked) numbers in a spec's fields.

    numpy's smaller types would go on into the arithmetic: 100 windows of 100 steps in int8 are
    16 steps, and a noise multiplier in float16 is rounded at every operation, to either side.
    """
    for field in fields(spec):
        value: Any = getattr(spec, field.name)
        if type(value) in (bool, int, float) or not isinstance(value, Real):
            continue
        plain = int(value) if isinstance(value, Integral) else float(value)
        object.__setattr__(spec, field.name, plain)


def hold_members(spec: DataclassInstance, **choices: type[StrEnum]) -> None:
    """Makes the member of each of these fields that holds one or its exact word.

    Readers compare by identity, which a word fails in silence.

    Raises:
        ParameterError: a field holds anything else.
    """
    for name, members in choices.items():
        member = checks.choice(members, **{name: getattr(spec, name)})
        object.__setattr__(spec, name, member)


def close(*classes: type[Any]) -> None:
    """From here on no subclass of these can be made.

    Sampler, admissions, accounting and verifier each look up what the type of a spec stands for. A
    subclass with a meaning of its own would get its parent's from each of them that was not told,
    so that they disagree in silence. A class that is no subclass is unknown until each is told.

    Raises:
        UnsupportedError: by the class statement of a subclass.
    """

    def refuse(subclass: type[Any]) -> None:
        parent = subclass.__mro__[1].__name__
        raise UnsupportedError(
            f"{subclass.__name__} cannot be a subclass of {parent}, whose analysis would be taken "
            "for its own"
        )

    for one in classes:
        one.__init_subclass__ = classmethod(refuse)  # type: ignore[assignment]
