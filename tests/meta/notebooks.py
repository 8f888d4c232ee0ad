"""Notebooks of the tutorials, built from their pages and executed.

Prose becomes Markdown cells, and what the page shows as typed becomes code cells: Python as it
stands, commands with an exclamation mark. Outputs are those of the execution in a kernel.

    python tests/meta/notebooks.py build/notebooks              # all tutorials
    python tests/meta/notebooks.py build/notebooks own-data     # one of them
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from pages import ROOT, Block, blocks

TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))


def notebook(name: str) -> nbformat.NotebookNode:
    """Notebook of a tutorial, not yet executed."""
    page = f"docs/tutorials/{name}.md"
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines(keepends=True)
    cells = []
    start = 0
    for block in blocks(page):
        # The fence is one line above the content and one line below it.
        end = block.line + block.text.count("\n")
        cells.append(_prose("".join(lines[start : block.line - 1])))
        cells += [_code(block)]
        start = end + 1
    cells.append(_prose("".join(lines[start:])))
    return nbformat.v4.new_notebook(cells=[cell for cell in cells if cell.source.strip()])


def _prose(text: str) -> nbformat.NotebookNode:
    """Markdown cell; links to other pages become their names, since a notebook stands alone."""
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    return nbformat.v4.new_markdown_cell(text.strip())


def _code(block: Block) -> nbformat.NotebookNode:
    """Code cell of what a block shows as typed; other blocks stay Markdown."""
    if block.language == "python":
        return nbformat.v4.new_code_cell("".join(step.source for step in block.steps).strip())
    if block.language == "console":
        commands = (step.source.strip() for step in block.steps)
        return nbformat.v4.new_code_cell("\n".join(f"!{command}" for command in commands))
    return nbformat.v4.new_markdown_cell(f"```{block.language}\n{block.text}```")


def executed(name: str) -> nbformat.NotebookNode:
    """Notebook of a tutorial with the outputs of its cells; an error in a cell is raised."""
    made = notebook(name)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(made, kernel_name="python3", timeout=600, resources=resources).execute()
    return made


def main() -> None:
    """Write executed notebooks into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tutorials; all by default")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or TUTORIALS:
        path = options.folder / f"{name}.ipynb"
        nbformat.write(executed(name), path)
        print(path, flush=True)


if __name__ == "__main__":
    main()
