"""The figures of docs/: drawn by the rules, and the committed files are those that are drawn."""

from __future__ import annotations

import html
import importlib
import itertools
import sys
from pathlib import Path

import pytest
from looks import faults, legends

FOLDER = Path(__file__).parents[2] / "benchmarks" / "figures"
DRAWN = FOLDER.parents[1] / "docs" / "figures"
MODULES = (
    *("allocation", "check_ins", "private_means", "refinement", "shuffling", "shuffling_composed"),
)


@pytest.fixture
def figures(monkeypatch):
    """Every figure of the papers, with numbers that nothing had to compute."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), str(FOLDER.parent / "papers"), *sys.path])
    curves = importlib.import_module("curves")
    count = itertools.count(1)

    def line(meaning, grid, value, words=""):
        values = [1.0 + next(count) / 7] * len(grid)
        return curves.Curve(meaning, values, words or curves.LOOKS[meaning].words)

    for name in MODULES:
        monkeypatch.setattr(importlib.import_module(name), "line", line)
    monkeypatch.delitem(sys.modules, "__main__", raising=False)
    spec = importlib.util.spec_from_file_location("figures_main", FOLDER / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FIGURES


def test_every_figure_is_drawn_by_the_rules_and_the_committed_one_says_the_same(figures, capsys):
    for draw in figures.values():
        drawn = draw()
        assert faults(drawn) == [], drawn.name
        committed = html.unescape((DRAWN / f"{drawn.name}.svg").read_text())
        for text in (drawn.title, *legends(drawn)):
            assert text in committed, f"{drawn.name}: make figures"
