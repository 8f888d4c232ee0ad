"""Parts of a printed answer as plain data, and their HTML and Markdown.

`parts_of` divides a renderable of rich, which an answer prints in a terminal, into `Grid`s and
`Note`s. `as_html` and `as_markdown` write these parts for notebooks and `turnout.api`. So each
number is formatted once, for all forms of output.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

_WIDTH = 10_000  # wide enough that no cell is wrapped


@dataclass(frozen=True, slots=True)
class Grid:
    """Table of a printed answer, as plain text.

    Attributes:
        title: caption, possibly empty.
        columns: headings; empty for a list of facts, whose names are in the first column.
        rows: cells of each row, as text.
        right: whether each column is aligned to the right, as numbers are.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Line of text in a printed answer, outside of its tables."""

    text: str


Part = Grid | Note


def parts_of(shown: RenderableType) -> tuple[Part, ...]:
    """Parts of a renderable, in order; empty lines are left out."""
    return tuple(_parts(shown))


def _parts(shown: object) -> Iterable[Part]:
    """Parts of a renderable, of a group of renderables, or of an object that renders itself."""
    if isinstance(shown, Table):
        yield _grid(shown)
    elif isinstance(shown, Group):
        for each in shown.renderables:
            yield from _parts(each)
    elif isinstance(shown, str | Text):
        if text := _plain(shown).strip():
            yield Note(text)
    elif hasattr(shown, "__rich_console__"):
        console = Console(file=io.StringIO(), width=_WIDTH, force_jupyter=False)
        for each in shown.__rich_console__(console, console.options):  # pyright: ignore
            yield from _parts(each)


def _grid(table: Table) -> Grid:
    """Table of rich as plain text; rows without any text are left out."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    rows = tuple(row for row in zip(*columns, strict=True) if any(row))
    headings = tuple(_plain(column.header) for column in table.columns)
    shown = table.show_header and any(headings)
    right = tuple(column.justify == "right" for column in table.columns)
    return Grid(_plain(table.title or ""), headings if shown else (), rows, right)


def _plain(cell: object) -> str:
    """Text of a cell without markup."""
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def as_html(parts: Sequence[Part]) -> str:
    """HTML with one table or paragraph for each part; it sets no colours and no fonts."""
    return "\n".join(
        _html_grid(each) if isinstance(each, Grid) else _html_note(each) for each in parts
    )


def _html_note(note: Note) -> str:
    """HTML paragraph of a note."""
    return f"<p>{html.escape(note.text)}</p>"


def _html_grid(grid: Grid) -> str:
    """HTML table with headings of columns, or with headings of rows for a list of facts."""
    lines = ['<table style="text-align: left">']
    if grid.title:
        lines.append(f"<caption>{html.escape(grid.title)}</caption>")
    styles = ["text-align: right" if right else "text-align: left" for right in grid.right]
    if grid.columns:
        cells = zip(styles, grid.columns, strict=True)
        heads = (f'<th scope="col" style="{how}">{_lines(text)}</th>' for how, text in cells)
        lines.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
    lines.append("<tbody>")
    for first, *rest in grid.rows:
        # The first cell names a fact, or the row of a table with headings.
        cells = "".join(
            f'<td style="{how}">{_lines(text)}</td>'
            for how, text in zip(styles[1:], rest, strict=True)
        )
        lines.append(f'<tr><th scope="row" style="{styles[0]}">{_lines(first)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


def _lines(text: str) -> str:
    """Escaped text of a cell, with its line breaks."""
    return "<br>".join(html.escape(line) for line in text.split("\n"))


def as_markdown(parts: Sequence[Part]) -> str:
    """Markdown with one table or paragraph for each part."""
    return "\n\n".join(
        _markdown_grid(each) if isinstance(each, Grid) else each.text for each in parts
    )


def _markdown_grid(grid: Grid) -> str:
    """Table in the Markdown of GitHub; a list of facts has empty headings."""

    def row(cells: Iterable[str]) -> str:
        texts = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(texts)} |"

    headings = grid.columns or ("",) * len(grid.right)
    rule = ["---:" if right else "---" for right in grid.right]
    title = [f"**{grid.title}**", ""] if grid.title else []
    return "\n".join([*title, row(headings), row(rule), *map(row, grid.rows)])
