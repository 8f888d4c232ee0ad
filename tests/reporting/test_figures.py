"""Figures of docs/: each follows the style rules and equals its committed file."""

from __future__ import annotations

import csv
import html
import importlib
import importlib.util
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
    """Functions that draw the paper figures, from made-up numbers that need no computation."""
    monkeypatch.setattr(
        sys, "path", [*map(str, (FOLDER, FOLDER.parent, FOLDER.parent / "papers")), *sys.path]
    )
    curves = importlib.import_module("curves")
    count = itertools.count(1)

    def line(meaning, grid, value, words=""):
        values = [1.0 + next(count) / 7] * len(grid)
        return curves.Curve(meaning, values, words or curves.LOOKS[meaning].words)

    for name in MODULES:
        monkeypatch.setattr(importlib.import_module(name), "line", line)
    monkeypatch.delitem(sys.modules, "__main__", raising=False)
    spec = importlib.util.spec_from_file_location("figures_main", FOLDER / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FIGURES


@pytest.mark.parametrize("package", ["dp_accounting", "opacus", "pyarrow", "mabwiser"])
def test_a_missing_package_of_a_benchmark_is_reported_in_one_line(figures, monkeypatch, package):
    """Only the missing package is reported: the other figures are drawn without it."""
    needs = {
        "dp_accounting": ("allocation", figures[2]),
        "opacus": ("opacus_epsilon", lambda: importlib.import_module("opacus_epsilon")),
        "pyarrow": ("estimation_memory", lambda: importlib.import_module("estimation_memory")),
        "mabwiser": ("", lambda: importlib.import_module("bandit_peers")._learner("", 1)),
    }
    module, run = needs[package]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as ended:
        run()
    said = str(ended.value)
    assert "\n" not in said
    assert package.replace("_", "-") in said.lower()
    assert figures[5]().name


def others():
    """Pictures of the other benchmarks, from a few made-up numbers."""
    means, scaling, convex = map(
        importlib.import_module, ("means", "accounting_scaling", "convex_order_picture")
    )
    points = [
        means.Point(level, name, bits, 1.0 / bits, 1.0, 1.0)
        for level, name, bits in itertools.product(means.LEVELS, means.DRAWN, (1, 2))
    ]
    yield means.picture(points)
    timed = [
        scaling.Timed(*noise, window, 1.0, 1e-3)
        for noise, window in itertools.product(scaling.NOISES, (10, 100))
    ]
    yield scaling.seconds_picture(timed)
    bins, low, high = [1, 2, 4, 8], [0.5] * 4, [2.0, 1.5, 1.25, 1.125]
    yield scaling.width_picture(
        [scaling.Refined(cell, (1.0, 1.0), bins, low, high) for cell in scaling.GRIDS]
    )
    steps = [1.0 + step for step in convex.STEPS]
    yield convex.picture([convex.Measured(name, steps, 1.0) for name in convex.DISTRIBUTIONS])


def test_every_figure_follows_the_style_rules_and_equals_the_committed_file(figures, capsys):
    for drawn in (*(draw() for draw in figures.values()), *others()):
        assert faults(drawn) == [], drawn.name
        committed = html.unescape((DRAWN / f"{drawn.name}.svg").read_text())
        for text in (drawn.title, *legends(drawn)):
            assert text in committed, f"{drawn.name}: make figures"


def test_the_curve_names_in_the_data_of_a_figure_are_in_its_legend():
    files = sorted(DRAWN.glob("*.csv"))
    assert files
    for file in files:
        picture = html.unescape(file.with_suffix(".svg").read_text())
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert [row["curve"] for row in rows if row["curve"] not in picture] == [], file.name
        assert all(float(row["y"]) >= 0 for row in rows), file.name
