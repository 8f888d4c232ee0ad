"""Names of participations and randomizers, for plans, questions and charters.

Each participation is one file of `turnout.schemes.participation`, or a user's own module.
`register_participation` registers a class, `all_participations` and `participation_class` find it;
`question_randomizer` gives a randomizer a name in questions. `close` forbids subclasses. Plans, the
command line and the codec use these names.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from turnout.core.errors import ParameterError, UnsupportedError

if TYPE_CHECKING:
    from turnout.schemes.normal_form import Form

Kind = TypeVar("Kind", bound=type)


class Participation(Protocol):
    """Rule by which clients take part in steps: a frozen dataclass with the method `form`.

    Steps are numbered 0 … ``steps − 1`` over the whole run.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        ...

    def form(self) -> Form:
        """Normal form of the participation: its blocks of draws."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a participation, as `register_participation` takes them."""

    plan: str
    question: str | None
    summary: str
    rank: int
    averaged_clients: bool


def close(*classes: type[Any]) -> None:
    """Forbid subclasses of these classes from now on.

    Sampler, admissions, accounting and verifier each look up the meaning of an object by its type.
    Where one of them had no entry for a subclass, it would use the entry of the parent, so that
    the four could disagree without an error. A class that is no subclass has no entry anywhere,
    which each of them reports.

    Raises:
        UnsupportedError: raised later, by the class statement of a subclass.
    """

    def refuse(subclass: type[Any]) -> None:
        parent = subclass.__mro__[1].__name__
        raise UnsupportedError(
            f"{subclass.__name__} cannot be a subclass of {parent}: the analysis of {parent} would "
            f"be used for it; write a class without {parent} as a base"
        )

    for one in classes:
        one.__init_subclass__ = classmethod(refuse)  # type: ignore[assignment]


_NAMES: dict[type, Names] = {}


def register_participation(
    plan: str,
    summary: str,
    *,
    question: str | None = None,
    rank: int = 100,
    averaged_clients: bool = False,
) -> Callable[[Kind], Kind]:
    """Decorator that registers a frozen dataclass as a participation.

    Sampler, admissions, accounting and verifier read the ``form`` of a participation alone, so it
    has one meaning for all of them. The class cannot have subclasses.

    Args:
        plan: word for it in plans.
        summary: description of it in one sentence.
        question: word for it in questions on the command line; None: not offered there.
        rank: place in lists of participations; those of equal rank are sorted by their words.
        averaged_clients: whether a question may give the number of clients, whose noise hides a
            client's where a release averages noisy updates.

    Raises:
        ParameterError: the class is no frozen dataclass with a method ``form``, or another
            participation has its name or its word.
    """

    def register(kind: Kind) -> Kind:
        settings = getattr(kind, "__dataclass_params__", None)
        if settings is None or not settings.frozen or not hasattr(kind, "form"):
            expected = "a frozen dataclass with a method form"
            raise ParameterError("participation", kind.__name__, expected)
        for other, names in _NAMES.items():
            if kind.__name__ == other.__name__ or plan == names.plan:
                expected = "a name that no other participation has"
                raise ParameterError("participation", kind.__name__, expected)
        _NAMES[kind] = Names(plan, question, summary, rank, averaged_clients)
        close(kind)
        return kind

    return register


def is_registered(kind: type) -> bool:
    """Whether a class is registered as a participation."""
    return kind in _NAMES


def participation_names(kind: type) -> Names:
    """Names of a registered participation."""
    return _NAMES[kind]


def participation_class(name: str) -> type[Any] | None:
    """Participation by the name of its class, its file loaded if needed; None if unknown."""
    module = _modules().get(name)
    if module is not None:
        import_module(module)
    return next((kind for kind in _NAMES if kind.__name__ == name), None)


def all_participations() -> Mapping[type[Any], Names]:
    """All participations with their names, by rank; loads `turnout.schemes.participation`."""
    for module in _modules().values():
        import_module(module)
    return dict(sorted(_NAMES.items(), key=lambda item: (item[1].rank, item[1].plan)))


Made = TypeVar("Made", bound=Callable[..., Any])
_QUESTION_RANDOMIZERS: dict[str, tuple[int, Any]] = {}


def question_randomizer(name: str, *, shuffled: int = 0) -> Callable[[Made], Made]:
    """Decorator that gives a randomizer a name in questions.

    Args:
        name: word for it in questions.
        shuffled: place in lists of randomizers whose shuffled messages have an analysis; 0 where
            none is known.

    Raises:
        ParameterError: another randomizer has this name.
    """

    def register(kind: Made) -> Made:
        if name in _QUESTION_RANDOMIZERS:
            raise ParameterError("randomizer", name, "a name that no other randomizer has")
        _QUESTION_RANDOMIZERS[name] = shuffled, kind
        return kind

    return register


def question_randomizers() -> Mapping[str, type[Any]]:
    """Randomizers of questions by their words, of `turnout.schemes` or with ``priced_as``."""
    return {name: kind for name, (_, kind) in _QUESTION_RANDOMIZERS.items()}


def shuffled_randomizers() -> list[str]:
    """Words of the randomizers whose shuffled messages have an analysis, in order of place."""
    places = {name: place for name, (place, _) in _QUESTION_RANDOMIZERS.items() if place}
    return sorted(places, key=places.__getitem__)


@cache
def _modules() -> dict[str, str]:
    """Modules of the participations by the names of their classes: check_in has CheckIn."""
    package = import_module("turnout.schemes.participation")
    found = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {_camel(name): f"{package.__name__}.{name}" for name in found}


def _camel(name: str) -> str:
    """Name of a class by the name of its file."""
    return re.sub(r"(?:^|_)(\w)", lambda match: match[1].upper(), name)
