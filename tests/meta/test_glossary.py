"""Outdated words of tests/meta/glossary.toml are in no public name, page, docstring or output."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Command, Context, Group
from click.testing import CliRunner
from pages import PAGES, ROOT

from turnout.cli.main import turnout

WORDS = tomllib.loads((Path(__file__).parent / "glossary.toml").read_text())["word"]
ANSWERS = (
    "account --scheme check-in --noise-multiplier 1 --window 20 --delta 1e-6 --relation add-remove "
    "--explain --prior 0.1",
    "account --scheme check-in --noise-multiplier 1 --window 20 --delta 1e-6 --relation zero-out "
    "--release one-client",
    "account --scheme self-sampling-shuffle --rate 0.5 --clients 1e3 --epsilon0 1 --delta 1e-6",
    "calibrate --scheme none --steps 20 --epsilon 1 --delta 1e-6 --relation replace-one",
    "compare --noise-multiplier 1 --windows 2 --against window --from 10 --to 20 --points 2 "
    "--delta 1e-6 --relation add-remove",
    "compare --scheme shuffle --epsilon0 1 --clients 1e3 --delta 1e-6",
)
"""Commands that print every row of a guarantee, an explanation and a comparison."""
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def faults(area: str, texts: dict[str, str]) -> list[str]:
    """Places in the texts of an area that use an outdated word, with the term to use."""
    found = []
    for word in WORDS:
        pattern = re.compile(word["pattern"], re.IGNORECASE | re.MULTILINE)
        for place, text in texts.items():
            if area not in word["where"] or place in word.get("but", ()):
                continue
            hit = pattern.search(text)
            if hit:
                found.append(f"{place}: {hit.group()!r}; say {word['say']}")
    return found


def words_of(name: str) -> str:
    """A name and its parts, one per line."""
    return "\n".join([name, *PART.findall(name)])


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def names(node: ast.AST) -> Iterator[str]:
    """Names that a definition introduces: its own, and those of its arguments and fields."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
        yield from (a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
    if isinstance(node, ast.ClassDef):
        yield node.name
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                yield field.target.id


def public(node: ast.AST) -> bool:
    return not (getattr(node, "name", None) or "_").startswith("_")


def test_public_names_contain_no_outdated_words():
    given = {
        f"{path}:{node.lineno} {name}": words_of(name)
        for path, tree in trees()
        for node in ast.walk(tree)
        if public(node)
        for name in names(node)
    }
    assert len(given) > 2000
    assert faults("names", given) == []


def test_docstrings_contain_no_outdated_words():
    given = {}
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module) or (
                public(node) and isinstance(node, ast.FunctionDef | ast.ClassDef)
            ):
                first = (ast.get_docstring(node) or "").split("\n\n")[0]
                given[f"{path}: {first}"] = first
    assert len(given) > 1500
    assert faults("docstrings", given) == []


def test_documentation_pages_contain_no_outdated_words():
    pages = [page for page in PAGES if page != "docs/glossary.md"]  # it lists outdated words
    given = {page: (ROOT / page).read_text() for page in pages}
    assert faults("docs", given) == []


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, Group):
        for name in command.list_commands(Context(command)):
            inner = command.get_command(Context(command), name)
            assert inner is not None
            yield from commands(inner, (*path, name))


@pytest.mark.parametrize(
    "typed", [*(" ".join((*path, "--help")) for path in commands(turnout)), *ANSWERS]
)
def test_printed_output_contains_no_outdated_words(typed):
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(turnout, shlex.split(typed))
    assert result.exit_code == 0, result.output
    assert faults("output", {typed: result.output}) == []


@pytest.mark.parametrize(
    ("area", "text"),
    [
        ("names", words_of("PairLeak")),
        ("names", words_of("call_rounding").replace("_rounding", "")),
        ("names", words_of("two_hops")),
        ("docstrings", "What a step shows."),
        ("docstrings", "The window in which she takes part."),
        ("docs", "| ε at least | 0.17 |"),
        ("docs", "priced by the call price of a sum"),
        ("docs", "--randomizer fixed"),
        ("output", "  ε (proved)    0.17"),
        ("output", "a coin wins 50 %"),
        ("output", "each client by its own coin"),
    ],
)
def test_the_glossary_check_detects_an_outdated_word(area, text):
    assert len(faults(area, {"here": text})) == 1


@pytest.mark.parametrize(
    ("area", "text"),
    [
        ("names", words_of("Callable")),
        ("names", words_of("putting")),
        ("docstrings", "Whatever is sent."),
        ("docs", "--scheme fixed-assignment"),
        ("docs", "where there is hope"),
        ("output", "the server and others, sampled-bit-response"),
    ],
)
def test_the_glossary_check_accepts_ordinary_words(area, text):
    assert faults(area, {"here": text}) == []
