"""Optional packages and names of large packages, loaded only when they are needed.

`EXTRAS` lists the packages of each extra. `require` and `missing_extra` make errors of one line
that name the extra. `loaded_on_demand` gives a package a ``__getattr__`` (PEP 562) that imports a
public name at its first use, so that a device does not load the coordinator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from turnout.core.errors import MissingExtraError

EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("torch", "jinja2", "matplotlib", "safetensors"),
    "plots": ("matplotlib",),
    "data": ("pyarrow", "PIL"),
    "device": ("cryptography", "httpx"),
    "device-graph": ("cryptography", "httpx", "onnxruntime"),
    "export": ("onnx", "onnxscript", "torch"),
    "service": (
        "apsw",
        "cryptography",
        "httptools",
        "httpx",
        "itsdangerous",
        "jinja2",
        "prometheus_client",
        "psycopg",
        "starlette",
        "structlog",
        "uvicorn",
        *(() if sys.platform == "win32" else ("uvloop",)),
    ),
    "dp-accounting": ("dp_accounting",),
    "opacus": ("opacus", "torch"),
    "flower": ("flwr",),
    "ray": ("ray", "torch"),
    "sklearn": ("sklearn",),
}
"""Import names of the packages of each extra.

The extra "all" contains all of them except Flower, which restricts the versions of other packages.
"""

_NAMES = {
    "torch": "PyTorch",
    "PIL": "Pillow",
    "dp_accounting": "dp-accounting",
    "opacus": "Opacus",
    "flwr": "Flower",
    "ray": "Ray",
    "sklearn": "scikit-learn",
}


def require(*extras: str, what: str) -> None:
    """Raise an error if a package of these extras is missing; no package is imported.

    Args:
        extras: keys of ``EXTRAS``.
        what: the command or function that needs the extras, as the beginning of a sentence.

    Raises:
        MissingExtraError: a package is missing.
    """
    for extra in extras:
        for package in EXTRAS[extra]:
            if not _is_installed(package):
                raise MissingExtraError(what, _NAMES.get(package, package), extras)


def unavailable(error: ImportError, what: str, *extras: str) -> ImportError:
    """Error that names these extras if one of their packages is missing, else ``error`` itself."""
    package = (error.name or "").partition(".")[0]
    if not any(package in EXTRAS[extra] for extra in extras):
        return error
    return MissingExtraError(what, _NAMES.get(package, package), extras)


def missing_extra(error: ImportError, what: str) -> MissingExtraError | None:
    """Error for ``what`` that names the extra to install; None if no extra has the package."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return MissingExtraError(what, _NAMES.get(package, package), [extra])
    return None


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def loaded_on_demand(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Function ``__getattr__`` of a package that imports a public name at its first use.

    Args:
        package: ``__name__`` of the package.
        homes: for each module of the package, its public names separated by spaces.

    The function raises AttributeError for another name, and `MissingExtraError` if the name's
    module needs an extra that is not installed.

    >>> __getattr__ = loaded_on_demand("turnout.core", {"bounds": "Bounds"})
    >>> __getattr__("Bounds").__module__
    'turnout.core.bounds'
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def attribute(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"{package}.{name}") or error from None
        setattr(sys.modules[package], name, value)
        return value

    return attribute
