"""Notebooks of the tutorials have the typed lines of their pages, and one of them runs."""

import nbformat
import pytest
from notebooks import TUTORIALS, executed, notebook
from pages import blocks


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_notebook_has_all_typed_lines_of_its_page(name):
    made = notebook(name)
    nbformat.validate(made)
    typed = "\n".join(cell.source for cell in made.cells if cell.cell_type == "code")
    for block in blocks(f"docs/tutorials/{name}.md"):
        if block.language == "python":
            for step in block.steps:
                assert step.source.strip() in typed


def test_the_notebook_on_own_data_runs_in_a_kernel():
    made = executed("own-data")
    outputs = [output for cell in made.cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
