"""Public names of a package, loaded when they are first asked for (PEP 562).

A device loads what it runs, not the coordinator whose package it shares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loaded_on_demand(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: its ``__name__``.
        homes: for each module of it, the public names that it defines, between spaces.

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
            from turnout.core.extras import missing_extra

            raise missing_extra(error, f"{package}.{name}") or error from None
        setattr(sys.modules[package], name, value)
        return value

    return attribute
