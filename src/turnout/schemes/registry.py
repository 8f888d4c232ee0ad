"""Names of participations and randomizers, for plans, questions and charters.

Each participation is one file of `turnout.schemes.participation`, or a user's own module.
`register_participation` registers a class, `all_participations` and `participation_class` find it;
`asked_randomizer` lets questions ask about a randomizer. Plans, the command line and the codec read
these names.
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

Law = TypeVar("Law", bound=type)


class Participation(Protocol):
    """A participation law: a frozen dataclass that has a normal form.

    Steps are numbered 0 … ``steps − 1`` over the whole run.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        ...

    def form(self) -> Form:
        """The normal form: its blocks of draws."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """A law's names, as `register_participation` takes them."""

    plan: str
    question: str | None
    summary: str
    rank: int
    averaged_clients: bool


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


_NAMES: dict[type, Names] = {}


def register_participation(
    plan: str,
    summary: str,
    *,
    question: str | None = None,
    rank: int = 100,
    averaged_clients: bool = False,
) -> Callable[[Law], Law]:
    """A decorator that registers a frozen dataclass as a participation law.

    Everything that executes, admits, prices or verifies a law reads its `form` alone, so a law
    cannot mean one thing to one of them and another to the next. No subclass of it can be made.

    Args:
        plan: its word in plans.
        summary: what it is, in a sentence.
        question: its word in questions on the command line; without one they do not have it.
        rank: place in lists of participations; those of equal rank are sorted by their words.
        averaged_clients: whether a question may give the number of clients, whose noise hides a
            client's where a release averages noisy updates.

    Raises:
        ParameterError: no frozen dataclass with a `form`, or a name that another law has.
    """

    def register(law: Law) -> Law:
        settings = getattr(law, "__dataclass_params__", None)
        if settings is None or not settings.frozen or not hasattr(law, "form"):
            raise ParameterError("law", law.__name__, "a frozen dataclass that has a form")
        for other, names in _NAMES.items():
            if law.__name__ == other.__name__ or plan == names.plan:
                raise ParameterError("law", law.__name__, "a name that no other law has")
        _NAMES[law] = Names(plan, question, summary, rank, averaged_clients)
        close(law)
        return law

    return register


def is_registered(kind: type) -> bool:
    """Whether a class is a participation law."""
    return kind in _NAMES


def participation_names(kind: type) -> Names:
    """The names of a law's class."""
    return _NAMES[kind]


def participation_class(name: str) -> type[Any] | None:
    """The class of a law by its own name, its file loaded if need be; None for other names."""
    module = _modules().get(name)
    if module is not None:
        import_module(module)
    return next((kind for kind in _NAMES if kind.__name__ == name), None)


def all_participations() -> Mapping[type[Any], Names]:
    """Every law that is known, those of `turnout.schemes.participation` all loaded."""
    for module in _modules().values():
        import_module(module)
    return dict(sorted(_NAMES.items(), key=lambda item: (item[1].rank, item[1].plan)))


Asked = TypeVar("Asked", bound=Callable[..., Any])
_ASKED: dict[str, tuple[int, Any]] = {}


def asked_randomizer(name: str, *, shuffled: int = 0) -> Callable[[Asked], Asked]:
    """A decorator that lets questions ask about a randomizer.

    Args:
        name: its word in questions.
        shuffled: its place in lists of randomizers whose shuffled messages have a price; 0 where
            they have none.

    Raises:
        ParameterError: a name that another randomizer has.
    """

    def register(kind: Asked) -> Asked:
        if name in _ASKED:
            raise ParameterError("randomizer", name, "a name that no other randomizer has")
        _ASKED[name] = shuffled, kind
        return kind

    return register


def asked_randomizers() -> Mapping[str, type[Any]]:
    """Randomizers of questions by their words: of `turnout.schemes`, or with `priced_as`."""
    return {name: kind for name, (_, kind) in _ASKED.items()}


def shuffled_randomizers() -> list[str]:
    """The words of those whose shuffled messages have a price."""
    places = {name: place for name, (place, _) in _ASKED.items() if place}
    return sorted(places, key=places.__getitem__)


@cache
def _modules() -> dict[str, str]:
    """Modules of the participations by the names of their classes: check_in has CheckIn."""
    laws = import_module("turnout.schemes.participation")
    found = [module.name for module in pkgutil.iter_modules(laws.__path__)]
    return {_camel(name): f"{laws.__name__}.{name}" for name in found}


def _camel(name: str) -> str:
    return re.sub(r"(?:^|_)(\w)", lambda match: match[1].upper(), name)
