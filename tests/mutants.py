"""Mutations of `src` in tests, for mutants and negative controls.

`mutation` returns a `Mutate`, and so does the fixture `mutate` of `conftest`. Called with an owner,
a name and a replacement, it replaces the named part until the test ends. It refuses a name that the
owner does not have. It fails the test if the replaced function never ran, or if no code reads the
replaced constant, since a mutant that is never reached shows nothing.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest


class Mutate:
    """Replacements within one test.

    Attributes:
        waiting: the replaced functions that have not run yet.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.waiting: set[str] = set()

    def __call__(self, owner: Any, name: str, replacement: Any, *, reached: bool = True) -> None:
        """Replace ``owner.name`` until the test ends.

        Args:
            owner: a module, the name of a module, a class or an instance.
            name: an existing attribute of the owner.
            replacement: new value of the attribute.
            reached: whether a replaced function must run; False if it may stay unused, or if the
                test itself shows that it stays unused.
        """
        owner = import_module(owner) if isinstance(owner, str) else owner
        label = f"{getattr(owner, '__qualname__', getattr(owner, '__name__', owner))}.{name}"
        if not hasattr(owner, name):
            pytest.fail(f"{label} does not exist: give the mutant the new name of this part")
        if recorded := self._recorded(replacement, label):
            self.waiting |= {label} if reached else set()
        elif isinstance(owner, types.ModuleType) and not _reads(owner, name):
            pytest.fail(f"{label}: no code of the module reads it")
        self._patch.setattr(owner, name, recorded or replacement)

    def _recorded(self, replacement: Any, label: str) -> Any:
        """Replacement function that records its calls; None for a value that is not a function."""
        if isinstance(replacement, staticmethod | classmethod):
            return type(replacement)(self._recorded(replacement.__func__, label))
        if isinstance(replacement, property):
            return property(self._recorded(replacement.fget, label))
        if isinstance(replacement, type) or not isinstance(replacement, Callable):
            return None

        @functools.wraps(replacement)
        def noted(*given: Any, **named: Any) -> Any:
            self.waiting.discard(label)
            return replacement(*given, **named)

        return noted

    def undo(self) -> None:
        """Restore what was replaced."""
        self._patch.undo()

    def check_reached(self) -> None:
        """Fail if a replaced function never ran."""
        if self.waiting:
            pytest.fail(f"replaced, but never reached: {', '.join(sorted(self.waiting))}")


@contextmanager
def mutation() -> Iterator[Mutate]:
    """Context manager whose replacements end with the block."""
    with pytest.MonkeyPatch.context() as patch:
        mutate = Mutate(patch)
        yield mutate
        mutate.check_reached()


def _reads(module: types.ModuleType, name: str) -> bool:
    """Whether code of a module reads one of its names."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
    )
