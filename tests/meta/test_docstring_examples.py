"""The examples in the docstrings of the package print what they show."""

import doctest
import importlib

import pytest
from pages import ROOT

SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.glob("turnout/**/*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_print_what_they_show(name):
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(
        module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert tried > 0
    assert failed == 0


def test_a_docstring_example_with_wrong_output_fails():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(example, out=lambda _: None).failed == 1
