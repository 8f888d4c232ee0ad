"""Parameters of a spec, said once: domain, default and words, from which checks, plan keys and
command-line options are made; and what fields hold: plain numbers, and members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from turnout.core import checks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_KEY = "turnout"


class Domain(StrEnum):
    """Kinds of numbers."""

    POSITIVE = "positive"
    OPEN_UNIT = "open-unit"
    COUNT = "count"
    PROBABILITY = "probability"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a spec, and what a person is told of it.

    Attributes:
        words: the quantity, with its unit, as plan keys and options explain it.
        default: where a plan does not say it; None where it must.
        least: the least whole number.
        key: what plans and questions call it, where that is not the field's name.
        at_most: name of another parameter that it must not exceed.
        repeats: whether the law is so many times the law with 1.
        public: whether a plan names it; else it follows from the rest of the plan.
        option: whether a question on the command line names it.
    """

    name: str
    domain: Domain
    words: str
    default: float | None = None
    least: int = 1
    key: str = ""
    at_most: str | None = None
    repeats: bool = False
    public: bool = True
    option: bool = True


def count(words: str = "", default: int | None = None, **settings: Any) -> Any:
    """A dataclass field that holds a whole number of at least 1, or ``least``.

    Args:
        words: the quantity, with its unit; none where no plan names it.
        default: of the field and of the plan key.
        settings: of the `Parameter`; ``plan_default`` is the plan key's default where the
            field has none.
    """
    return _parameter(Domain.COUNT, words, default, settings)


def chance(words: str, default: float | None = None, **settings: Any) -> Any:
    """A dataclass field that holds a number from 0 to 1; arguments as of `count`."""
    return _parameter(Domain.PROBABILITY, words, default, settings)


def positive(words: str, **settings: Any) -> Any:
    """A dataclass field that holds a finite number above 0; settings as of `count`."""
    return _parameter(Domain.POSITIVE, words, None, settings)


def open_unit(words: str, **settings: Any) -> Any:
    """A dataclass field that holds a number strictly between 0 and 1; settings as of `count`."""
    return _parameter(Domain.OPEN_UNIT, words, None, settings)


def _parameter(
    domain: Domain, words: str, default: float | None, settings: Mapping[str, Any]
) -> Any:
    inner = dict(settings)
    planned = inner.pop("plan_default", default)
    said = {"domain": domain, "words": words, "default": planned, "public": bool(words)} | inner
    return field(default=MISSING if default is None else default, metadata={_KEY: said})


def parameters(kind: type[DataclassInstance]) -> Iterator[Parameter]:
    """The parameters of a spec's class, in the order of its fields."""
    for each in fields(kind):
        if _KEY in each.metadata:
            said = each.metadata[_KEY]
            yield Parameter(each.name, **{"key": each.name} | said)


def check_of(parameter: Parameter) -> Callable[..., None]:
    """The check of a parameter's domain."""
    return {
        Domain.POSITIVE: checks.positive,
        Domain.OPEN_UNIT: checks.open_unit,
        Domain.COUNT: partial(checks.count, parameter.least),
        Domain.PROBABILITY: checks.probability,
    }[parameter.domain]


def check_parameters(spec: DataclassInstance) -> None:
    """Checks each parameter against its domain and holds it as a plain int or float."""
    own = list(parameters(type(spec)))
    for domain in Domain:
        for each in own:
            if each.domain is domain:
                check_of(each)(**{each.name: getattr(spec, each.name)})
    for each in own:
        if each.at_most is not None:
            limit = getattr(spec, each.at_most)
            checks.at_most(each.at_most, limit, **{each.name: getattr(spec, each.name)})
    plain_numbers(spec)


class Checked:
    """A base of specs whose parameters are checked when they are built."""

    __slots__ = ()

    def __post_init__(self: DataclassInstance) -> None:
        check_parameters(self)


def plain_numbers(spec: DataclassInstance) -> None:
    """Makes int and float of all (already checked) numbers in a spec's fields.

    numpy's smaller types would go on into the arithmetic: 100 windows of 100 steps in int8 are
    16 steps, and a noise multiplier in float16 is rounded at every operation, to either side.
    """
    for each in fields(spec):
        value: Any = getattr(spec, each.name)
        if type(value) in (bool, int, float) or not isinstance(value, Real):
            continue
        plain = int(value) if isinstance(value, Integral) else float(value)
        object.__setattr__(spec, each.name, plain)


def hold_members(spec: DataclassInstance, **choices: type[StrEnum]) -> None:
    """Makes the member of each of these fields that holds one or its exact word; refuses others.

    Readers compare by identity, which a word fails in silence.
    """
    for name, members in choices.items():
        member = checks.choice(members, **{name: getattr(spec, name)})
        object.__setattr__(spec, name, member)
