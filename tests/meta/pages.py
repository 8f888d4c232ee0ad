"""Documentation pages as Markdown: fenced blocks, typed commands, links and headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        ROOT / "examples" / "README.md",
    )
)


@dataclass(frozen=True)
class Step:
    """A typed command or Python statement, and the output that the page shows.

    Attributes:
        typed: lines as written on the page, including prompts.
        source: the same lines without prompts: a command line, or Python.
        shown: lines of output; empty if the page shows none.
    """

    typed: str
    source: str
    shown: str = ""


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Attributes:
        page: path of the page, relative to the project root.
        line: number of the first line of the content, from 0.
        language: text after the opening fence.
        text: lines of the block, without the indentation of the fence.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Page and line number of the block."""
        return f"{self.page}:{self.line}"

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Typed commands and statements in order; only console and Python blocks have any."""
        if self.language == "console":
            prompt = "$ " if re.search(r"^\$ ", self.text, re.MULTILINE) else ""
            return tuple(_steps(self.text, prompt, lambda _, last: last.endswith("\\\n"), 0))
        if self.language == "python" and ">>> " in self.text:
            return tuple(_steps(self.text, ">>> ", lambda line, _: line.startswith("..."), 4))
        return (Step(self.text, self.text),) if self.language == "python" else ()


def _steps(
    text: str, prompt: str, goes_on: Callable[[str, str], bool], indent: int
) -> Iterator[Step]:
    """Commands or statements of a text and their output.

    ``goes_on(line, last)`` is true if a line continues the typed line ``last``. The ``indent``
    characters before a continuation line are a prompt, too.
    """
    typed: list[str] = []
    shown: list[str] = []

    def step() -> Step:
        source = typed[0][len(prompt) :] + "".join(line[indent:] or "\n" for line in typed[1:])
        return Step("".join(typed), source, "".join(shown))

    for line in text.splitlines(keepends=True):
        if typed and not shown and goes_on(line, typed[-1]):
            typed.append(line)
        elif line.startswith(prompt):
            if typed:
                yield step()
            typed, shown = [line], []
        else:
            shown.append(line)
    yield step()


@cache
def tokens(page: str) -> list[Token]:
    """Markdown tokens of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return MarkdownIt("commonmark").enable("table").parse(text)


@cache
def blocks(page: str) -> list[Block]:
    """Fenced code blocks of a page."""
    return [
        Block(page, token.map[0] + 1, token.info.strip(), token.content)
        for token in tokens(page)
        if token.type == "fence" and token.map
    ]


def inline(page: str, kind: str) -> list[Token]:
    """Inline tokens of one kind in a page's text: ``link_open``, ``image`` or ``code_inline``."""
    return [piece for token in tokens(page) for piece in token.children or () if piece.type == kind]


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings, as GitHub derives them."""
    found = tokens(page)
    headings = (body.content for token, body in pairwise(found) if token.type == "heading_open")
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
