"""Code of the user's own that a plan names, "module:name", with its digest."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import is_reference

PLAN_MODULES = "turnout_plan_"
"""The names of modules that are files of a plan's folder begin so."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Name and digest of code of the user's own, for checkpoints and reports.

    Attributes:
        name: as the plan gives it, or the qualified name of a Python object.
        digest: of the source file that defines it, 32 hexadecimal digits; "" where there is none,
            as for what is typed into an interpreter.
    """

    name: str
    digest: str


def imported(key: str, text: str, folder: Path) -> tuple[Any, Reference]:
    """The object that "module:name" stands for, and what it is known by.

    A file ``module.py`` in the folder comes before the Python path. This runs the code of that
    file, as ``python module.py`` would.

    Args:
        key: of the plan, for errors.
        text: such as "mymodels:Net".
        folder: of the plan.

    Raises:
        ParameterError: no such form, module or name, or a module that fails while it is imported.
    """
    if not is_reference(text):
        raise ParameterError(key, text, "module:name, such as mymodels:Net")
    where, _, name = text.partition(":")
    try:
        module = _module(where, folder)
    except Exception as error:  # whatever the user's file raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ParameterError(key, text, f"a module that can be imported, but {reason}") from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ParameterError(key, text, f"a name in {where}, which has no {part}")
        found = getattr(found, part)
    return found, Reference(text, _digest(module))


def reference_of(value: object) -> Reference:
    """Name and digest of a Python object, or of an object's class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    module = sys.modules.get(named.__module__)
    name = f"{named.__module__}.{named.__qualname__}"  # pyright: ignore[reportAttributeAccessIssue]
    return Reference(name, "" if module is None else _digest(module))


def _module(name: str, folder: Path) -> ModuleType:
    """The module, from the folder if it has a file for it."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py").resolve()
    with _importing_from(folder):
        if not file.is_file():
            return importlib.import_module(name)
        # Two plans may have a file of the same name: each file gets a name of its own, and a file
        # that changed is another one.
        unique = f"{PLAN_MODULES}{_of(str(file).encode() + file.read_bytes())}_{file.stem}"
        if unique in sys.modules:
            return sys.modules[unique]
        spec = importlib.util.spec_from_file_location(unique, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
        return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Modules of the folder can be imported inside."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)


def _digest(module: ModuleType) -> str:
    """Digest of a module's source file; "" where it has none."""
    try:
        file = inspect.getsourcefile(module)
        return "" if file is None else _of(Path(file).read_bytes())
    except (OSError, TypeError):
        return ""


def _of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
