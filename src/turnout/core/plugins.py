"""Plug-ins: installed packages that add participations, randomizers and algorithms by name.

A package declares its plug-ins as entry points of the groups ``turnout.participations``,
``turnout.randomizers`` and ``turnout.algorithms``. If a plan or command has an unknown name, `load`
imports the plug-in with this name and no other code. `plugin_of` returns the plug-in that defines a
class, with the digest of its code, and `note` records a module that a user imports from a file.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from turnout.core.errors import ParameterError, UnsupportedError

KINDS = ("participations", "randomizers", "algorithms")
"""Kinds of plug-ins; the group of the entry points of a kind has the prefix ``turnout.``."""


RULES = ("fedsgd", "fedavg", "adaped", "ridge")
"""Names of the algorithms for plans that are part of turnout."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in: an entry point of an installed package, or a Python file of the user.

    Attributes:
        kind: one of `KINDS`; "file" for a file of the user.
        name: word or class name by which plans and commands select the plug-in.
        module: module that registers the plug-in.
        attribute: name of the object in the module; empty if the entry point names none.
        package: name of the installed package; empty for a file.
        version: version of the package; empty for a file.
    """

    kind: str
    name: str
    module: str
    attribute: str
    package: str
    version: str

    @property
    def digest(self) -> str:
        """SHA-256 of the code of the plug-in's package, in hexadecimal."""
        return source_digest(self.module)

    def __str__(self) -> str:
        where = f"{self.package} {self.version}" if self.package else f"the file {self.module}.py"
        return f"{self.name} of {where} (sha256 {self.digest[:16]})"


_LOADED: dict[str, Plugin] = {}
_ALGORITHMS: dict[str, Callable[..., Any]] = {}
Made = TypeVar("Made", bound=Callable[..., Any])


def register_algorithm(name: str) -> Callable[[Made], Made]:
    """Decorator that registers a function as the algorithm that ``client.rule`` selects in a plan.

    The function is called with the task (`turnout.learning.tasks.SupervisedTask`), the server's
    optimizer, the clip norm, and the keyword arguments in ``client.arguments``. It returns a
    `turnout.learning.algorithm.Algorithm` whose model has the parameters of the task's model.

    Raises:
        ParameterError: another algorithm has this name.
    """

    def register(make: Made) -> Made:
        if name in _ALGORITHMS or name in RULES:
            raise ParameterError("algorithm", name, "a name that no other algorithm has")
        _ALGORITHMS[name] = make
        return make

    return register


def algorithm_maker(name: str) -> Callable[..., Any] | None:
    """Function that returns the algorithm with the given name; None for an unknown name.

    An unknown name is looked up among the installed plug-ins.
    """
    if name not in _ALGORITHMS:
        load("algorithms", name)
    return _ALGORITHMS.get(name)


def algorithm_names() -> list[str]:
    """Names of the registered algorithms."""
    return sorted(_ALGORITHMS)


def loaded() -> tuple[Plugin, ...]:
    """Plug-ins that this process has imported, in order of import."""
    return tuple(_LOADED.values())


def installed(*kinds: str) -> list[Plugin]:
    """Plug-ins of the installed packages, sorted by kind and name; no plug-in is imported.

    Args:
        kinds: kinds to list, from `KINDS`; without arguments, all kinds.
    """
    from importlib.metadata import entry_points

    found = []
    for kind in kinds or KINDS:
        for point in entry_points(group=f"turnout.{kind}"):
            package = point.dist
            named = ("", "") if package is None else (package.name, package.version)
            found.append(Plugin(kind, point.name, point.module, point.attr, *named))
    return sorted(set(found), key=lambda each: (each.kind, each.name, each.package))


def load(kind: str, name: object) -> bool:
    """Import the installed plug-in with the given name, and return whether there is one.

    Args:
        kind: one of `KINDS`.
        name: name of the entry point, or of the object in its module.

    Raises:
        ParameterError: two installed modules have the name.
        UnsupportedError: the module cannot be imported.
    """
    # A name that two modules define is ambiguous.
    found = [each for each in installed(kind) if name in (each.name, each.attribute)]
    if len({each.module for each in found}) > 1:
        where = ", ".join(sorted(f"{each.package} {each.version}" for each in found))
        raise ParameterError(kind, name, f"a name that only one package uses; {where} use it")
    if not found:
        return False
    # The import registers the plug-in; it is recorded, so that answers can state its version.
    plugin = found[0]
    if plugin.module not in _LOADED:
        try:
            import_module(plugin.module)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UnsupportedError(
                f"the plug-in {plugin.name} of {plugin.package} {plugin.version} cannot be "
                f"imported: {reason}"
            ) from None
        _LOADED[plugin.module] = plugin
    return True


def note(module: str) -> Plugin:
    """Record a module that the user imported from a file, and return it as a plug-in."""
    return _LOADED.setdefault(module, Plugin("file", module, module, "", "", ""))


def plugin_of(kind: type[Any]) -> Plugin | None:
    """Plug-in that defines a class; None for a class of turnout.

    A class gets a `Plugin` of kind "file" if neither a package with entry points nor a recorded
    file defines it.
    """
    module = kind.__module__
    if module.partition(".")[0] == "turnout":
        return None
    known = _LOADED.get(module) or next(
        (each for each in installed() if each.module == module), None
    )
    return known or Plugin("file", module, module, "", "", "")


@cache
def source_digest(module: str) -> str:
    """SHA-256 of the code of the top-level module or package of a module, in hexadecimal.

    The digest covers the names and contents of all modules of the package, Python files and
    compiled files, as they are on disk. A module without a file has an empty digest.
    """
    top = module.partition(".")[0]
    held = sys.modules.get(top)
    spec = getattr(held, "__spec__", None) if held is not None else find_spec(top)
    if spec is None:
        return ""
    total = hashlib.sha256()
    for name, file in sorted(_sources(top, spec)):
        with open(file, "rb") as content:
            inner = hashlib.sha256(content.read()).digest()
        total.update(name.encode() + b"\0" + inner)
    return total.hexdigest()


def _sources(name: str, spec: Any) -> Iterator[tuple[str, str]]:
    """Names and files of a module and of its submodules; nothing is imported."""
    if spec.has_location and spec.origin is not None:
        yield name, spec.origin
    for place in spec.submodule_search_locations or ():
        for found in pkgutil.iter_modules([place]):
            inner = found.module_finder.find_spec(found.name, None)  # pyright: ignore
            if inner is not None:
                yield from _sources(f"{name}.{found.name}", inner)
