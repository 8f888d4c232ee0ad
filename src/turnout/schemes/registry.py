"""Names of participations and randomizers, for plans, questions and charters.

Each participation is defined in a file of `turnout.schemes.participation`, in an installed plug-in
(`turnout.core.plugins`), or in a user's module.
`register_participation` registers a class under its names; `all_participations` and
`participation_class` find registered classes. `question_randomizer` registers the name under which
users select a randomizer on the command line. `close` forbids subclasses. Plans, the command line
and the codec use these names.
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
from turnout.core.plugins import load

if TYPE_CHECKING:
    from turnout.schemes.normal_form import Form

Kind = TypeVar("Kind", bound=type)


class Participation(Protocol):
    """Rule that decides in which steps a client takes part: a frozen dataclass with method `form`.

    Steps are numbered 0 … ``steps − 1`` over the whole run.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        ...

    def form(self) -> Form:
        """Normal form of the participation: its sequence of blocks of draws."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """Names and description of a participation: the arguments of `register_participation`.

    Attributes:
        plan: value of the key ``law`` in plans.
        question: value of the option ``--scheme``; None if the option cannot select the
            participation.
        summary: description in one sentence.
        rank: position in lists of participations.
        averaged_clients: whether the option ``--clients`` is permitted.
    """

    plan: str
    question: str | None
    summary: str
    rank: int
    averaged_clients: bool


def close(*classes: type[Any]) -> None:
    """Forbid subclasses of these classes from now on.

    Sampler, admissions, accounting and verifier each have a table of the known classes. For a
    subclass they might silently use the entry of its parent, although the subclass behaves
    differently. A class without such a parent has no entry in any table, which is reported as an
    error.

    Raises:
        UnsupportedError: later, when a class statement defines a subclass.
    """

    def refuse(subclass: type[Any]) -> None:
        parent = subclass.__mro__[1].__name__
        raise UnsupportedError(
            f"{subclass.__name__} cannot be a subclass of {parent}: the analysis of {parent} would "
            f"be used for the subclass; define a class that does not inherit from {parent}"
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

    Sampler, admissions, accounting and verifier use only the method ``form`` of a participation, so
    that these modules interpret a participation in the same way. The class cannot have subclasses.

    Args:
        plan: value of the key ``law`` that selects the participation in a plan.
        summary: description of the participation in one sentence.
        question: value of the option ``--scheme`` that selects the participation on the command
            line; None: it cannot be selected there.
        rank: position in lists of participations; equal ranks are sorted by ``plan``.
        averaged_clients: whether the option ``--clients`` is permitted. It is used for releases
            that average noisy updates, where the noise of other clients protects a client too.

    Raises:
        ParameterError: the class is not a frozen dataclass with a method ``form``, or another
            participation has the same class name or the same ``plan``.
    """

    def register(kind: Kind) -> Kind:
        # Check the class, and that neither name is in use.
        settings = getattr(kind, "__dataclass_params__", None)
        if settings is None or not settings.frozen or not hasattr(kind, "form"):
            expected = "a frozen dataclass with a method form"
            raise ParameterError("participation", kind.__name__, expected)
        for other, names in _NAMES.items():
            if kind.__name__ == other.__name__ or plan == names.plan:
                expected = "a name that no other participation has"
                raise ParameterError("participation", kind.__name__, expected)
        # Register it, and forbid subclasses.
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
    """Participation class with the given name, whose file is imported; None if unknown.

    A name that turnout does not know is looked up among the installed plug-ins.
    """
    module = _modules().get(name)
    if module is not None:
        import_module(module)
    found = _named(name)
    if found is None and name[:1].isupper() and load("participations", name):
        found = _named(name)
    return found


def _named(name: str) -> type[Any] | None:
    """Registered participation class with the given name."""
    return next((kind for kind in _NAMES if kind.__name__ == name), None)


def all_participations() -> Mapping[type[Any], Names]:
    """All participation classes with their names, sorted by ``rank``.

    All modules of `turnout.schemes.participation` are imported first.
    """
    for module in _modules().values():
        import_module(module)
    return dict(sorted(_NAMES.items(), key=lambda item: (item[1].rank, item[1].plan)))


Made = TypeVar("Made", bound=Callable[..., Any])
_QUESTION_RANDOMIZERS: dict[str, tuple[int, Any]] = {}


def question_randomizer(name: str, *, shuffled: int = 0) -> Callable[[Made], Made]:
    """Decorator that registers the name with which users select a randomizer.

    Args:
        name: value of the option ``--randomizer`` that selects the randomizer.
        shuffled: position in the list of randomizers whose shuffled messages have an analysis; 0 if
            no analysis of shuffled messages is known.

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
    """Randomizers that users can select, by the names that `question_randomizer` registered.

    They are classes of `turnout.schemes`, or classes with an attribute ``priced_as`` that is an
    object of such a class.
    """
    return {name: kind for name, (_, kind) in _QUESTION_RANDOMIZERS.items()}


def shuffled_randomizers() -> list[str]:
    """Names of the randomizers whose shuffled messages have an analysis, in order of position."""
    places = {name: place for name, (place, _) in _QUESTION_RANDOMIZERS.items() if place}
    return sorted(places, key=places.__getitem__)


@cache
def _modules() -> dict[str, str]:
    """Module of each participation by class name, such as ``check_in`` for `CheckIn`."""
    package = import_module("turnout.schemes.participation")
    found = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {_camel(name): f"{package.__name__}.{name}" for name in found}


def _camel(name: str) -> str:
    """Name of the class in a file with the given name: words joined, with capital letters."""
    return re.sub(r"(?:^|_)(\w)", lambda match: match[1].upper(), name)
