"""Parameters of a scheme, each declared once as a dataclass field: domain, default and explanation.

`count`, `chance`, `positive`, `open_unit`, `choice` and `text` return the fields; `parameters`
lists the parameters of a class, and `check_parameters` checks the values of an object.
`turnout.schemes.settings` derives keys of plans and command-line options from them. `plain_numbers`
converts the numbers in an object's fields to Python's types, and `hold_members` converts texts to
members of enumerations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from turnout.core import checks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_KEY = "turnout"


class Domain(StrEnum):
    """Kinds of values of a parameter."""

    POSITIVE = "positive"
    OPEN_UNIT = "open-unit"
    COUNT = "count"
    PROBABILITY = "probability"
    CHOICE = "choice"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a participation, a randomizer or a target, with its explanation for users.

    Attributes:
        name: name of the dataclass field.
        domain: kind of its values.
        words: description of the quantity with its unit; the help for plan keys and options.
        default: value if none is given; None if there is no default.
        least: least value of a whole number.
        key: name in plans and on the command line, if it differs from the field's name.
        at_most: name of another parameter, whose value is the upper limit of this one.
        repeats: whether the parameter is a number of repetitions: the participation with value n
            is n independent repetitions of the participation with value 1.
        public: whether users set the parameter; False if its value follows from the rest of the
            plan.
        option: whether the parameter is an option of commands.
        optional: whether the parameter may be omitted although it has no default; its value is then
            None.
        members: enumeration of the permitted values, if the domain is a choice.
    """

    name: str
    domain: Domain
    words: str
    default: Any = None
    least: int = 1
    key: str = ""
    at_most: str | None = None
    repeats: bool = False
    public: bool = True
    option: bool = True
    optional: bool = False
    members: type[StrEnum] | None = None

    @property
    def required(self) -> bool:
        """Whether the user must give a value."""
        return self.default is None and not self.optional

    def checked(self, value: Any, name: str | None = None) -> Any:
        """Value after a check, as an int, a float, a member of the enumeration or a text.

        An optional parameter may be None.

        Args:
            value: value to check.
            name: name of the parameter in the error; by default its key.

        Raises:
            ParameterError: the value is outside the domain.
        """
        if value is None and self.optional:
            return None
        named: dict[str, Any] = {name or self.key or self.name: value}
        match self.domain:
            case Domain.COUNT:
                checks.count(self.least, **named)
                return int(value)  # pyright: ignore[reportArgumentType]
            case Domain.CHOICE:
                assert self.members is not None
                return checks.choice(self.members, **named)
            case Domain.TEXT:
                checks.text(**named)
                return value
        _NUMBER_CHECKS[self.domain](**named)
        return float(value)  # pyright: ignore[reportArgumentType]


_NUMBER_CHECKS = {
    Domain.POSITIVE: checks.positive,
    Domain.OPEN_UNIT: checks.open_unit,
    Domain.PROBABILITY: checks.probability,
}


def count(words: str = "", default: int | None = None, **settings: Any) -> Any:
    """Dataclass field of a whole number of at least ``least``, which is 1 by default.

    Args:
        words: description of the quantity with its unit; empty if users do not set the parameter.
        default: default of the field and of the plan key; None for no default.
        settings: further attributes of the `Parameter`, such as ``least`` or ``key``.
            ``plan_default`` is a default of the plan key alone, for a field without a default.
    """
    return _parameter(Domain.COUNT, words, default, settings)


def chance(words: str, default: float | None = None, **settings: Any) -> Any:
    """Dataclass field of a number from 0 to 1, with the arguments of `count`."""
    return _parameter(Domain.PROBABILITY, words, default, settings)


def positive(words: str, **settings: Any) -> Any:
    """Dataclass field of a finite number above 0, with the arguments of `count`."""
    return _parameter(Domain.POSITIVE, words, None, settings)


def open_unit(words: str, default: float | None = None, **settings: Any) -> Any:
    """Dataclass field of a number strictly between 0 and 1, with the arguments of `count`."""
    return _parameter(Domain.OPEN_UNIT, words, default, settings)


def choice(members: type[StrEnum], words: str, **settings: Any) -> Any:
    """Dataclass field of a member of the enumeration ``members``; other arguments as in `count`."""
    return _parameter(Domain.CHOICE, words, None, {"members": members} | settings)


def text(words: str, **settings: Any) -> Any:
    """Dataclass field of a text, such as a path, with the arguments of `count`."""
    return _parameter(Domain.TEXT, words, None, settings)


def _parameter(
    domain: Domain, words: str, default: float | None, settings: Mapping[str, Any]
) -> Any:
    """Dataclass field whose metadata has the attributes of a `Parameter`."""
    inner = dict(settings)
    planned = inner.pop("plan_default", default)
    given = {"domain": domain, "words": words, "default": planned, "public": bool(words)} | inner
    metadata = {_KEY: given}
    if default is None and inner.get("optional"):
        return field(default=None, metadata=metadata)
    return field(default=MISSING if default is None else default, metadata=metadata)


def parameters(kind: type[DataclassInstance]) -> Iterator[Parameter]:
    """Parameters of a class, in the order of its fields."""
    for each in fields(kind):
        if _KEY in each.metadata:
            given = each.metadata[_KEY]
            yield Parameter(each.name, **{"key": each.name} | given)


def check_parameters(instance: DataclassInstance) -> None:
    """Check each parameter of an object against its domain, and convert numbers to Python's types.

    Raises:
        ParameterError: a value outside its domain, or above the parameter that limits it.
    """
    own = list(parameters(type(instance)))
    # Check all parameters of one domain after another. The fixed order of domains decides which of
    # several wrong values the error reports.
    for domain in Domain:
        for each in own:
            if each.domain is domain:
                value = each.checked(getattr(instance, each.name), each.name)
                if each.members is not None:
                    object.__setattr__(instance, each.name, value)
    # Check the limits that one parameter sets for another.
    for each in own:
        if each.at_most is not None:
            limit = getattr(instance, each.at_most)
            checks.at_most(each.at_most, limit, **{each.name: getattr(instance, each.name)})
    plain_numbers(instance)


class Checked:
    """Base class of dataclasses that check their parameters when an object is built."""

    __slots__ = ()

    def __post_init__(self: DataclassInstance) -> None:
        check_parameters(self)


def plain_numbers(instance: DataclassInstance) -> None:
    """Convert all numbers in an object's fields, after their check, to Python's int and float.

    With numpy's smaller types arithmetic would be wrong: in int8, 100 windows times 100 steps
    overflow to 16, and a noise multiplier in float16 is rounded at every operation.
    """
    for each in fields(instance):
        value: Any = getattr(instance, each.name)
        if type(value) in (bool, int, float) or not isinstance(value, Real):
            continue
        plain = int(value) if isinstance(value, Integral) else float(value)
        object.__setattr__(instance, each.name, plain)


def hold_members(instance: DataclassInstance, **choices: type[StrEnum]) -> None:
    """Replace the text of an enumeration member by the member, in each of the given fields.

    Other modules compare members by identity, which fails for texts.

    Args:
        instance: object to change.
        choices: enumeration of each field, by the field's name.

    Raises:
        ParameterError: a field holds neither a member nor the text of one.
    """
    for name, members in choices.items():
        member = checks.choice(members, **{name: getattr(instance, name)})
        object.__setattr__(instance, name, member)
