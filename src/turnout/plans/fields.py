"""Field types of a plan: each one checks with `turnout.core.checks`, so NaN never gets in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.parameters import Domain, check_of, parameters


class Section(BaseModel):
    """A table of a plan: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )


S = TypeVar("S", bound=Section)


def _below_one(value: object) -> None:
    """A number of at least 0 and below 1."""
    try:
        checks.probability(value=value)
        if value != 1:
            return
    except ParameterError:
        pass
    raise ParameterError("value", value, "a number of at least 0 and below 1")


def _checked(check: Callable[..., None]) -> BeforeValidator:
    """A validator that refuses what ``check`` refuses and changes nothing."""

    def validate(value: Any) -> Any:
        check(value=value)
        return value

    return BeforeValidator(validate)


Positive = Annotated[float, _checked(checks.positive)]
"""A finite number above 0."""
NonNegative = Annotated[float, _checked(checks.non_negative)]
"""A finite number of at least 0."""
Probability = Annotated[float, _checked(checks.probability)]
"""A number from 0 to 1."""
OpenUnit = Annotated[float, _checked(checks.open_unit)]
"""A number strictly between 0 and 1."""
BelowOne = Annotated[float, _checked(_below_one)]
"""A number of at least 0 and below 1."""
Count = Annotated[int, _checked(checks.count)]
"""A whole number of at least 1."""
CountFromZero = Annotated[int, _checked(partial(checks.count, 0))]
"""A whole number of at least 0."""


def section_keys(kind: type[Any]) -> dict[str, Any]:
    """The fields of a section made of what a spec's class says of its public parameters."""
    return {
        each.key: (
            Annotated[int if each.domain is Domain.COUNT else float, _checked(check_of(each))],
            Field(... if each.default is None else each.default, description=each.words),
        )
        for each in parameters(kind)
        if each.public
    }


class Sections(Mapping[str, type[S]]):
    """Sections by their words, each built when it is first asked for: building one takes time."""

    def __init__(self, built: Mapping[str, Callable[[], type[S]]]) -> None:
        self._built = {word: cache(build) for word, build in built.items()}

    def __getitem__(self, word: str) -> type[S]:
        return self._built[word]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)
