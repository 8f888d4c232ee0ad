"""A fast start of commands that answer within a fraction of a second."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec

_UNUSED = ("numpy.ctypeslib", "numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing")
"""Modules that scipy loads when it is imported, for uses that pricing does not have."""


def start_fast() -> None:
    """Makes what is imported from now on load less, for a short-lived process of one thread.

    Nothing changes what is computed: modules that are put off load at their first use.
    """
    # Threads of the linear algebra wait by spinning, for products that pricing does not have.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000, 50, 50)  # imports make many objects and no garbage
    atexit.register(gc.freeze)  # the process ends, and its memory with it
    for name in _UNUSED:
        _put_off(name)


def _put_off(name: str) -> None:
    """Puts a module in its place in its package, to be loaded at its first use."""
    package, _, own = name.rpartition(".")
    within = import_module(package)
    found = find_spec(name) if name not in sys.modules else None
    if found is None or found.loader is None:
        return
    found.loader = LazyLoader(found.loader)
    sys.modules[name] = module = module_from_spec(found)
    found.loader.exec_module(module)
    setattr(within, own, module)
