"""Tests access `src` only by public names, or through `mutate` to break a part."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def private_imports(tree: ast.Module) -> list[str]:
    """Private names that a test imports from the package."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnout")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.endswith("__")
    ]


def private_patches(tree: ast.Module) -> list[str]:
    """Calls of ``setattr`` that replace a private name, or a member of a private class."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setattr"
        and any(_private(given) for given in node.args[:2])
    ]


def _private(given: ast.expr) -> bool:
    """Whether an argument is a private name: ``"_x"``, ``f"_{x}"``, ``"a._x"``, ``a._X``."""
    match given:
        case ast.Constant(value=str() as name):
            return name.rpartition(".")[2].startswith("_") and not name.startswith("__")
        case ast.JoinedStr(values=[ast.Constant(value=str() as start), *_]):
            return start.rpartition(".")[2].startswith("_")
        case ast.Attribute(attr=name):
            return name.startswith("_")
    return False


@pytest.mark.parametrize("found", [private_imports, private_patches])
def test_tests_use_only_public_names_or_the_mutate_fixture(found):
    trees = {path: ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    wrong = [f"{path.relative_to(TESTS)}: {one}" for path in trees for one in found(trees[path])]
    assert not wrong


def test_private_names_in_tests_are_detected():
    text = "from turnout.core.files import _x\np.setattr(m, '_y', 1)\np.setattr('m._y', 1)\n"
    tree = ast.parse(text + "p.setattr(m._C, 'y', 1)\np.setattr(m, f'_{y}', 1)\n")
    assert (len(private_imports(tree)), len(private_patches(tree))) == (1, 4)


def test_a_mutation_that_is_never_executed_is_detected():
    from types import SimpleNamespace

    from mutants import mutation

    owner = SimpleNamespace(part=len)
    with pytest.raises(pytest.fail.Exception, match="never reached"), mutation() as mutate:
        mutate(owner, "part", lambda _: 0)
    with mutation() as mutate:
        mutate(owner, "part", lambda _: 0)
        assert owner.part("abc") == 0
    assert owner.part("abc") == 3
    with pytest.raises(pytest.fail.Exception, match="does not exist"), mutation() as mutate:
        mutate(owner, "parts", lambda _: 0)


def test_a_mutated_constant_that_no_code_reads_is_detected():
    from mutants import mutation

    from turnout.protocol import client

    with pytest.raises(pytest.fail.Exception, match="no code"), mutation() as mutate:
        mutate(client, "__name__", "another")
