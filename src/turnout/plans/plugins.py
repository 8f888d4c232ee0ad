"""Modules of the user that add participations, randomizers and algorithms by name.

`PluginSection` is the table ``[plugins]`` of a plan. `import_modules` imports the modules that this
table names, and `import_file` the file of ``--import``. Both run code, so only functions that read
a user's own plan call them: a plan inside a charter imports nothing, and a coordinator uses only
plug-ins of installed packages (`require_installed`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.plugins import installed, note
from turnout.plans.sections import Section


class PluginSection(Section):
    """Modules that are imported before the plan is checked; their code is run."""

    modules: tuple[str, ...] = Field(
        description="modules that register participations, randomizers or algorithms, such as "
        "['mine'] for mine.py; searched in the plan's folder, then on the Python path"
    )

    @field_validator("modules")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Names after a check that each can be the name of a module."""
        _require_names(value)
        return value


def _require_names(modules: Sequence[Any]) -> None:
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ParameterError("modules", name, "names of modules, such as ['mine'] for mine.py")


def import_modules(tables: Mapping[str, Any], folder: Path) -> None:
    """Import the modules that the table ``[plugins]`` of a user's own plan names.

    Args:
        tables: tables of the plan, which need not be checked yet.
        folder: folder of the plan, which is searched first.

    Raises:
        ParameterError: a module does not exist, or fails while it is imported.
    """
    for name in modules_of(tables):
        _require_names([name])
        file = folder / f"{name}.py"
        if file.is_file():
            import_file(file, "plugins.modules")
            continue
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            raise _failed("plugins.modules", name, error) from None
        note(name)


def modules_of(tables: Mapping[str, Any]) -> Sequence[Any]:
    """Names of modules in the table ``[plugins]`` of an unchecked plan; empty if malformed."""
    section = tables.get("plugins")
    names = section.get("modules") if isinstance(section, Mapping) else None
    return names if isinstance(names, list | tuple) else ()


def import_file(file: Path, key: str = "--import") -> None:
    """Import a user's Python file as a module named like the file, if it is not imported yet.

    Args:
        file: path of the file.
        key: name of the setting in errors.

    Raises:
        ParameterError: the file does not exist, another module has its name, or the file fails
            while it is imported.
    """
    name, place = file.stem, file.resolve()
    if file.suffix != ".py" or not name.isidentifier() or not place.is_file():
        raise ParameterError(key, str(file), "a Python file that exists, such as mine.py")
    # A module with this name from another file must not be used in its place.
    held = sys.modules.get(name)
    if held is not None or name in sys.stdlib_module_names or name == "turnout":
        if Path(getattr(held, "__file__", None) or "").resolve() == place:
            return
        raise ParameterError(key, str(file), f"another file name: a module {name} exists already")
    spec = spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    # A module that fails is not kept.
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(key, str(file), error) from None
    note(name)


def _failed(key: str, value: str, error: BaseException) -> ParameterError:
    """Error about a module that cannot be imported."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return ParameterError(key, value, f"a module that can be imported, but {reason}")


def require_installed(tables: Mapping[str, Any]) -> None:
    """Raise an error unless installed packages provide all modules that a coordinator's plan names.

    The function imports no module. A plug-in is imported when a key of the plan has its name.

    Raises:
        UnsupportedError: no entry point of an installed package names one of the modules.
    """
    known = {plugin.module for plugin in installed()}
    for name in modules_of(tables):
        if name not in known:
            raise UnsupportedError(
                f"plugins.modules = {name!r}: a coordinator uses only plug-ins of installed "
                "packages; install a package with an entry point for this module"
            )
