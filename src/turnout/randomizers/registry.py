"""Randomizers of one item by name: each is a file of `turnout.randomizers`, or one of your own."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from turnout.core.errors import ParameterError
from turnout.schemes.registry import asked_randomizer

if TYPE_CHECKING:
    from turnout.randomizers.interface import FrequencyRandomizer

Make = TypeVar("Make", bound=Callable[..., Any])
_MECHANISMS: dict[str, tuple[int, Callable[..., FrequencyRandomizer]]] = {}


def mechanism(name: str, *, question: str | None = None, rank: int = 100) -> Callable[[Make], Make]:
    """A decorator that registers a class, called with ε and a number of items, as a mechanism.

    Args:
        name: its word in ``turnout estimate frequencies --mechanism``.
        question: its word in questions about its price; without one they do not have it.
        rank: where it stands among mechanisms that serve equally well.

    Raises:
        ParameterError: a name that another mechanism has.
    """

    def register(make: Make) -> Make:
        if name in _MECHANISMS:
            raise ParameterError("mechanism", name, "a name that no other mechanism has")
        _MECHANISMS[name] = rank, make
        if question is not None:
            asked_randomizer(question, shuffled=100)(make)
        return make

    return register


def all_mechanisms() -> Mapping[str, Callable[..., FrequencyRandomizer]]:
    """Every mechanism that is known, those of `turnout.randomizers` all loaded."""
    package = import_module("turnout.randomizers")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            import_module(module.name)
    return {name: make for name, (_, make) in sorted(_MECHANISMS.items(), key=lambda it: it[1][0])}
