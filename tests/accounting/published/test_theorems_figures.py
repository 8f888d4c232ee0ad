"""Computations for figures: uncertified ε of Poisson sampling, and identical redrawing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.published.random_allocation import theorem_4_1

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def figures():
    folder = str(ROOT / "benchmarks" / "figures")
    sys.path.insert(0, folder)
    try:
        poisson = importlib.import_module("poisson")
        poisson._BINS, poisson._SCORES = 1 << 17, 1 << 16  # enough for these runs
        yield importlib.import_module
    finally:
        sys.path.remove(folder)


def poisson(sigma, rate, steps, delta, side):
    run = [(PairBlock(GaussianPair(sigma), rate), steps)]
    return run_epsilon(run, Direction.REMOVE, side, delta, 1)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"), [(1.0, 1e-3, 1000, 1e-6), (0.8, 1 / 60, 60, 1e-5)]
)
def test_epsilon_of_poisson_sampling_agrees_with_an_independent_computation(
    figures, sigma, rate, steps, delta
):
    found = figures("poisson").poisson_epsilon(GaussianPair(sigma), rate, steps, delta)
    assert found == pytest.approx(poisson(sigma, rate, steps, delta, Side.UPPER), rel=1e-3)
    assert found == pytest.approx(poisson(sigma, rate, steps, delta, Side.LOWER), rel=1e-3)


def test_the_plotted_loss_distribution_has_the_epsilon_of_theorem_4_1(figures):
    module, pair = figures("poisson"), GaussianPair(1.0)
    distribution = module.decomposed_distribution(pair, 200, 1e-6)
    found = module.composed_epsilon(*distribution, 1, 1e-6)
    assert found == pytest.approx(theorem_4_1(pair, 200, 1e-6), rel=1e-3)
    assert float(distribution[1] @ np.exp(-distribution[0])) <= 1 + 1e-6


def test_figures_drawn_twice_are_identical(figures):
    curves = figures("curves")

    def drawn():
        line = curves.line("turnout", [1.0, 2.0], lambda x: x)
        panel = curves.Panel("title", [1.0, 2.0], "x", "y", [line])
        return curves.picture("name", "title", "text", [panel, curves.relative(panel, 2.0)]).svg()

    assert drawn() == drawn()


@pytest.mark.parametrize(
    "name", ["allocation-1", "allocation-2", "allocation-3", "allocation-4", "check-ins"]
)
def test_every_figure_exists_and_has_an_explanation(name):
    assert (ROOT / "docs" / "figures" / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    assert f"figures/{name}.svg" in (ROOT / "docs" / "figures.md").read_text()
