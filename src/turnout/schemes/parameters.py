"""Parameters of a scheme, each declared once as a dataclass field: domain, default and explanation.

`count`, `chance`, `positive`, `open_unit`, `choice` and `text` make the fields; `parameters` lists
them and `check_parameters` checks an object's values. `turnout.schemes.settings` derives keys of
plans, command-line options and questions from them. `plain_numbers` and `hold_members` normalise
what fields hold: Python's own numbers, and members of enumerations.
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
        words: the quantity, with its unit, as plan keys and options explain it.
        default: value where none is given; None where there is no default.
        least: the least whole number.
        key: name in plans and questions, where it is not the field's name.
        at_most: name of another parameter that it must not exceed.
        repeats: whether the participation is so many times the participation with 1.
        public: whether a plan names it; else it follows from the rest of the plan.
        option: whether a question on the command line names it.
        optional: whether it may be left out although there is no default; its value is then None.
        members: enumeration of the values, where the domain is a choice.
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
        """Whether a value must be given."""
        return self.default is None and not self.optional

    def checked(self, value: Any, name: str | None = None) -> Any:
        """Value as a plain int, float, member or text; None only where it is optional.

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
    """Dataclass field that holds a whole number of at least 1, or ``least``.

    Args:
        words: the quantity, with its unit; none where no plan names it.
        default: of the field and of the plan key.
        settings: of the `Parameter`; ``plan_default`` is the plan key's default where the
            field has none.
    """
    return _parameter(Domain.COUNT, words, default, settings)


def chance(words: str, default: float | None = None, **settings: Any) -> Any:
    """Dataclass field that holds a number from 0 to 1; arguments as of `count`."""
    return _parameter(Domain.PROBABILITY, words, default, settings)


def positive(words: str, **settings: Any) -> Any:
    """Dataclass field that holds a finite number above 0; settings as of `count`."""
    return _parameter(Domain.POSITIVE, words, None, settings)


def open_unit(words: str, default: float | None = None, **settings: Any) -> Any:
    """Dataclass field that holds a number strictly between 0 and 1; arguments as of `count`."""
    return _parameter(Domain.OPEN_UNIT, words, default, settings)


def choice(members: type[StrEnum], words: str, **settings: Any) -> Any:
    """Dataclass field that holds a member of an enumeration; settings as of `count`."""
    return _parameter(Domain.CHOICE, words, None, {"members": members} | settings)


def text(words: str, **settings: Any) -> Any:
    """Dataclass field that holds a text, such as a path; settings as of `count`."""
    return _parameter(Domain.TEXT, words, None, settings)


def _parameter(
    domain: Domain, words: str, default: float | None, settings: Mapping[str, Any]
) -> Any:
    """Dataclass field with the settings of a `Parameter` in its metadata."""
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
    """Check each parameter of an object against its domain, and make its value plain.

    Raises:
        ParameterError: a value outside its domain, or above its limit ``at_most``.
    """
    own = list(parameters(type(instance)))
    # By domain, then by field: so the first of several wrong values is always the same one.
    for domain in Domain:
        for each in own:
            if each.domain is domain:
                value = each.checked(getattr(instance, each.name), each.name)
                if each.members is not None:
                    object.__setattr__(instance, each.name, value)
    for each in own:
        if each.at_most is not None:
            limit = getattr(instance, each.at_most)
            checks.at_most(each.at_most, limit, **{each.name: getattr(instance, each.name)})
    plain_numbers(instance)


class Checked:
    """Base of dataclasses whose parameters are checked when an object is made."""

    __slots__ = ()

    def __post_init__(self: DataclassInstance) -> None:
        check_parameters(self)


def plain_numbers(instance: DataclassInstance) -> None:
    """Replace all (already checked) numbers in an object's fields by Python's int and float.

    Arithmetic would keep numpy's smaller types: 100 windows of 100 steps in int8 are 16 steps, and
    a noise multiplier in float16 is rounded at every operation, to either side.
    """
    for each in fields(instance):
        value: Any = getattr(instance, each.name)
        if type(value) in (bool, int, float) or not isinstance(value, Real):
            continue
        plain = int(value) if isinstance(value, Integral) else float(value)
        object.__setattr__(instance, each.name, plain)


def hold_members(instance: DataclassInstance, **choices: type[StrEnum]) -> None:
    """Replace the text of an enumeration member by the member in each of these fields.

    Readers compare by identity, and a word is not identical with its member.

    Raises:
        ParameterError: a field holds neither a member nor its word.
    """
    for name, members in choices.items():
        member = checks.choice(members, **{name: getattr(instance, name)})
        object.__setattr__(instance, name, member)
