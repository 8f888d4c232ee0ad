"""Picture and numbers of docs/convex-order.md: errors of four discretisations of one check-in.

The question is one check-in in a window: σ = 1, t = 100, δ = 1e-5, direction *remove*. A plain FFT
computes the distribution of the sum of ratios from four discretisations: X rounded up, X rounded
down, X spread onto its neighbouring grid points, and the distribution below X in convex order,
which the accounting uses.

    python benchmarks/convex_order_picture.py [--out docs/figures]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from scipy import fft, optimize

from turnout.accounting import price
from turnout.accounting.divergence import convex_order
from turnout.accounting.divergence.pairs import GaussianPair, hockey_stick
from turnout.reporting.drawing import DASHED, LOOKS, Picture
from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme

FloatArray = np.ndarray
FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
PAIR, WINDOW, DELTA = GaussianPair(1.0), 100, 1e-5
CAP, REACH = 4096.0, 8192.0  # largest ratio, and largest sum, on the grid
DRAWN_STEP, DRAWN_TO = 1.0, 4.0  # grid step and range of the first two panels
STEPS = [2.0**-n for n in range(7)]
FINEST = 2.0**-9  # grid step for the exact ε
TAIL = 4  # number of finest grid steps used for the fit
DISTRIBUTIONS = {  # meanings of the distributions in pictures
    "spread (upper)": "upper distribution",
    "tangents (lower)": "lower distribution",
    "rounded up": "rounded up",
    "rounded down": "rounded down",
}
UPPER, LOWER = LOOKS["upper distribution"], LOOKS["lower distribution"]


@dataclass(frozen=True)
class Measured:
    """ε from one discretisation on finer and finer grids.

    Attributes:
        name: key of `DISTRIBUTIONS`.
        epsilons: one value for each grid step.
        truth: the exact ε.
    """

    name: str
    epsilons: list[float]
    truth: float

    @property
    def errors(self) -> FloatArray:
        """Absolute relative errors of ε, one for each grid step."""
        return np.abs(np.array(self.epsilons) / self.truth - 1.0)

    @property
    def order(self) -> float:
        """Power of the grid step by which the error decreases, by least squares on logarithms."""
        return float(np.polyfit(np.log(STEPS[-TAIL:]), np.log(self.errors[-TAIL:]), 1)[0])


def rounded(step: float, *, up: bool) -> FloatArray:
    """Masses of min(X, cap) moved to the next grid point above (if ``up``) or below."""
    points = step * np.arange(round(CAP / step) + 1)
    cells = np.diff(PAIR.q_below(points))
    above = float(PAIR.q_above(points[-1:])[0])
    if up:
        return np.concatenate([[0.0], cells[:-1], [cells[-1] + above]])
    return np.append(cells, above)


def distribution(name: str, step: float) -> tuple[convex_order.Grid, FloatArray, float]:
    """Grid, masses of its points, and the largest contribution of X above the cap to δ."""
    grid = convex_order.Grid(step, round(CAP / step))
    if name == "rounded up":
        return grid, rounded(step, up=True), float(hockey_stick(PAIR, np.array(CAP)))
    if name == "rounded down":
        return grid, rounded(step, up=False), 0.0
    if name == "spread (upper)":
        found = convex_order.upper_distribution(PAIR, grid)
        return grid, found.masses, found.beyond
    grid = convex_order.lower_grid(PAIR, step, CAP)
    return grid, convex_order.lower_distribution(PAIR, grid, by_hockey_sticks=True).masses, 0.0


def epsilon(grid: convex_order.Grid, masses: FloatArray, beyond: float) -> float:
    """ε at δ for the sum of t ratios of a discretised distribution, by one FFT."""
    size = round(REACH / grid.step)
    sums = fft.irfft(fft.rfft(masses, size) ** WINDOW, size)
    ratios = grid.origin + grid.step * np.arange(size) / WINDOW

    def excess(candidate: float) -> float:
        delta = float(sums @ np.maximum(ratios - math.exp(candidate), 0.0)) + beyond
        return delta - DELTA

    return float(optimize.brentq(excess, 1e-6, 2.0, xtol=1e-13))


def measured(truth: float) -> list[Measured]:
    """ε of all four discretisations on all grids, which are also printed."""
    found = []
    for name in DISTRIBUTIONS:
        one = Measured(name, [epsilon(*distribution(name, step)) for step in STEPS], truth)
        errors = " ".join(f"{error:.1e}" for error in one.errors)
        print(f"{name:<17} order {one.order:.2f}; relative errors of ε: {errors}")
        found.append(one)
    return found


def conditional_means(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of X in each cell between edges (the last cell is open), and the mass of each cell."""
    masses = np.append(np.diff(PAIR.q_below(edges)), PAIR.q_above(edges[-1:]))
    firsts = np.append(np.diff(PAIR.p_below(edges)), PAIR.p_above(edges[-1:]))
    return firsts / masses, masses


def draw_distribution(axis: Axes, ink: str) -> None:
    """Draw X, X spread onto a grid, and X concentrated in the means of cells."""
    x = np.linspace(1e-3, DRAWN_TO, 800)
    density = np.exp(-0.5 * (np.log(x) + 0.5) ** 2) / (x * math.sqrt(2 * math.pi))
    axis.fill_between(x, density, color=ink, alpha=0.12, linewidth=0)
    axis.plot(x, density, color=ink, linewidth=1, label="X itself")
    grid = convex_order.Grid(DRAWN_STEP, round(CAP / DRAWN_STEP))
    upper = convex_order.upper_distribution(PAIR, grid)
    edges = np.append(0.0, np.arange(0.5 * DRAWN_STEP, DRAWN_TO + DRAWN_STEP, DRAWN_STEP))
    means, masses = conditional_means(edges)
    shown = (
        (grid.points, upper.masses, UPPER),
        (means, masses, LOWER),
    )
    for points, weights, look in shown:
        seen = points <= DRAWN_TO
        heights = weights[seen] / DRAWN_STEP
        axis.vlines(points[seen], 0.0, heights, color=look.colour, linewidth=2)
        style = {"color": look.colour, "markersize": 5, "label": look.words}
        axis.plot(points[seen], heights, look.marker, **style)
    axis.set(xlim=(-0.1, DRAWN_TO + 0.1), ylim=(0, None), xlabel="likelihood ratio x")
    axis.set_ylabel("mass over step")
    axis.set_title(f"Two distributions on few points, both of mean 1 (step {DRAWN_STEP:g})")


def draw_hockey_sticks(axis: Axes, ink: str) -> None:
    """Draw hockey-stick functions with chords above and tangents below."""
    k = np.linspace(0.0, DRAWN_TO, 400)
    grid = np.arange(0.0, DRAWN_TO + DRAWN_STEP, DRAWN_STEP)
    axis.plot(
        grid,
        hockey_stick(PAIR, grid),
        f"{UPPER.marker}-",
        color=UPPER.colour,
        markersize=5,
        label=UPPER.words,
    )
    axis.plot(k, hockey_stick(PAIR, k), color=ink, linewidth=1.4, label="X itself")
    edges = grid[:-1] + 0.5 * DRAWN_STEP
    tangents = hockey_stick(PAIR, edges) - PAIR.q_above(edges) * (k[:, None] - edges)
    lowest = np.maximum(tangents.max(axis=1), np.maximum(1.0 - k, 0.0))
    axis.plot(k, lowest, DASHED, color=LOWER.colour, linewidth=1.4, label=LOWER.words)
    axis.plot(edges, hockey_stick(PAIR, edges), LOWER.marker, color=LOWER.colour, markersize=4)
    axis.set(xlim=(-0.1, DRAWN_TO + 0.1), ylim=(0, None), xlabel="threshold k")
    axis.set_ylabel("E[(X − k)₊]")
    axis.set_title("Expected excess: chords of X's lie above it, tangents below")


def picture(found: list[Measured]) -> Picture:
    """Picture with three panels: distributions, hockey-stick functions and errors."""

    def draw(axes: list[Axes], ink: str) -> None:
        draw_distribution(axes[0], ink)
        draw_hockey_sticks(axes[1], ink)
        for one in found:
            look = LOOKS[DISTRIBUTIONS[one.name]]
            axes[2].plot(STEPS, one.errors, label=look.words, **look.line())
        orders = ", ".join(f"{one.order:.2f}" for one in found)
        axes[2].set(xscale="log", yscale="log", xlabel="step h of one ratio")
        axes[2].set_ylabel("relative error of ε")
        axes[2].set_title(f"One check-in: errors of order {orders}, as in the legend")

    text = (
        "Spreading a distribution onto grid points raises its hockey sticks to their chords, "
        "gathering it in means lowers them to their tangents; the error of ε falls as the square "
        "of the step, that of rounding as the step."
    )
    title = "Error of ε on a grid: distributions in convex order against rounding"
    return Picture("convex_order", title, text, draw, panels=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder for the picture")
    parser.add_argument("--png", action="store_true", help="also write a PNG file")
    given = parser.parse_args()
    scheme = Scheme(GaussianNoise(1.0), CheckIn(window=WINDOW), Relation.ADD_REMOVE)
    bounds = price(scheme, DELTA, tolerance=1e-5).directions["remove"]
    low, high = (
        epsilon(*distribution(name, FINEST)) for name in ("tangents (lower)", "spread (upper)")
    )
    print(f"price: ε in [{bounds.lower:.7f}, {bounds.upper:.7f}]")
    print(f"finest grid, {CAP / FINEST:,.0f} points: ε in [{low:.8f}, {high:.8f}]")
    print("steps:", " ".join(f"{step:g}" for step in STEPS))
    drawn = picture(measured(0.5 * (low + high)))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{drawn.name}.svg").write_text(drawn.svg())
    if given.png:
        (given.out / f"{drawn.name}.png").write_bytes(drawn.png())


if __name__ == "__main__":
    main()
