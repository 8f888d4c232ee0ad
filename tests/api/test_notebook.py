"""Answers in a notebook: one output each, with a table for each part, in a real kernel."""

from __future__ import annotations

import html
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import turnout as tn

SETUP = """
import turnout as tn
scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window=50), relation="add-remove")
shuffled = tn.shuffled(tn.PureRandomizer(1.0), clients=1000)
towns = ["Bonn"] * 600 + ["Trier"] * 400
run = dict(records=600, batch_size=20, epochs=1, noise_multiplier=1.0, delta=1e-6)
"""
ANSWERS = {
    "price": "tn.price(scheme, delta=1e-6)",
    "explain": "tn.explain(scheme, delta=1e-6)",
    "calibrate": "tn.calibrate(scheme, epsilon=1, delta=1e-6)",
    "compare": "tn.compare(shuffled, delta=1e-6)",
    "compare_samplers": "tn.compare_samplers(**run, relation='zero-out')",
    "estimate_frequencies": (
        "tn.estimate_frequencies(towns, categories=['Bonn', 'Trier'], epsilon=1, trust='local')"
    ),
    "estimate_mean": "tn.estimate_mean([[.5]] * 99, norm='l2', radius=1, epsilon=1, trust='local')",
    "refine": "tn.refine(towns, categories=['Bonn', 'Trier'], epsilons=[1, 2])",
    "simulate": "tn.simulate(tn.CheckIn(window=4, windows=2), clients=100, seed=1)",
    "audit": "tn.audit(scheme, delta=1e-6, trials=200)",
}


@pytest.fixture(scope="module")
def cells():
    """Executed cells by the name of their answer."""
    sources = [SETUP, *ANSWERS.values()]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources])
    NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
    return dict(zip(["setup", *ANSWERS], notebook.cells, strict=True))


@pytest.mark.parametrize("name", ANSWERS)
def test_a_notebook_shows_each_result_once_and_as_tables(cells, name):
    (shown,) = cells[name].outputs
    assert shown.output_type == "execute_result"
    page = shown.data["text/html"]
    assert "<table" in page
    assert not re.search(r"<pre|\[/?bold|\[/?red|\[/\]", page)
    assert page.count("<table") == page.count("</table>")
    assert shown.data["text/plain"]


def test_the_table_has_epsilon_and_delta_in_its_first_two_lines():
    scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window=50), relation="add-remove")
    parts: Any = tn.price(scheme, delta=1e-6).parts()
    (grid,) = parts
    assert [row[0] for row in grid.rows[:2]] == ["ε upper bound", "δ"]


def test_html_and_markdown_output_has_the_cells_of_the_text_table():
    found = tn.compare(tn.shuffled(tn.PureRandomizer(1.0), clients=1000), delta=1e-6)
    page, text = html.unescape(found._repr_html_()), found.to_markdown()
    for part in found.parts():
        for cell in (cell for row in getattr(part, "rows", ()) for cell in row):
            assert cell in page
            assert cell in text


def test_names_from_data_are_escaped_in_html_and_markdown():
    values = ["<b>x</b>", "y|z"] * 50
    found = tn.estimate_frequencies(
        values, categories=["<b>x</b>", "y|z"], epsilon=1, trust="local"
    )
    assert "<b>x" not in found._repr_html_()
    assert "y\\|z" in found.to_markdown()
