"""Scaling of the accounting: CPU-seconds against the window, bracket width against the grid.

The script draws accounting_seconds.svg and accounting_width.svg. It prints the numbers of both, and
the orders of convergence fitted to the widths.

A grid is chosen for one δ: truncation costs a fixed share of that δ, which more bins do not reduce.
So that this floor lies far below the plotted values, the grids of the second picture are chosen for
a thousandth of the δ at which they are evaluated.

    python benchmarks/accounting_scaling.py [--out docs/figures] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from accounting import turnout
from matplotlib.axes import Axes
from peers.brackets import Cell

from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import AllocationCurve, allocation_curve
from turnout.reporting.drawing import DOTTED, LOOKS, Picture
from turnout.reporting.surroundings import surroundings

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
STYLES = [LOOKS[f"setting {number}"] for number in range(1, 5)]
NOISES = [(0.5, 1e-5), (1.0, 1e-6), (2.0, 1e-8)]  # noise multiplier, δ
WINDOWS = [2, 3, 6, 10, 30, 100, 300, *(m * 10**n for n in (3, 4, 5, 6) for m in (1, 3)), 10**7]
GRIDS = [
    Cell(0.6, 100, 1e-5),
    Cell(1.0, 64, 1e-6),
    Cell(1.0, 1_000, 1e-6),
    Cell(2.0, 10_000, 1e-8),
]
REFINEMENTS = range(7)
LAID_OUT_FOR = 1e-3  # ratio of the δ a grid is chosen for to the δ it is used at
REFERENCES = (1.0, 1e-1, 1e-2, 1e-3)  # shares of δ of the finest grids
SHARP = 5.0  # least counted error, as a multiple of the best bracket or the floor


@dataclass(frozen=True)
class Timed:
    """CPU-seconds of one bracket on ε; NaN if the bracket could not be certified."""

    noise_multiplier: float
    delta: float
    window: int
    seconds: float
    relative_width: float


@dataclass(frozen=True)
class Refined:
    """Bounds on ε in the *remove* direction of one cell, on finer and finer grids.

    Attributes:
        truth: the narrowest bracket of all grids.
        bins: number of bins of each grid.
        lower, upper: bounds on ε for each grid.
    """

    cell: Cell
    truth: tuple[float, float]
    bins: list[int]
    lower: list[float]
    upper: list[float]

    @property
    def orders(self) -> tuple[float, float]:
        """Fitted orders of the bracket width and of the upper bound's error."""
        widths = self.widths
        return order(*widths, floor=float(widths[1].min())), order(*self.upper_errors)

    @property
    def widths(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of bins, and widths upper − lower."""
        return np.array(self.bins), np.array(self.upper) - np.array(self.lower)

    @property
    def upper_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of bins, and upper − truth where the truth is known accurately enough."""
        low, high = self.truth
        errors = np.array(self.upper) - 0.5 * (low + high)
        known = errors > SHARP * 0.5 * (high - low)
        return np.array(self.bins)[known], errors[known]


def timed() -> list[Timed]:
    """CPU-seconds for every window and noise multiplier, from empty caches."""
    found = []
    for sigma, delta in NOISES:
        for window in WINDOWS:
            bracket = turnout(Cell(sigma, window, delta))
            numbers = (bracket.seconds, bracket.width)
            seconds, width = (float("nan") if n is None else n for n in numbers)
            found.append(Timed(sigma, delta, window, seconds, width))
            print(f"σ={sigma:g} δ={delta:g} t={window:<12,}{seconds:8.3f} s  width {width:.1e}")
    return found


def refined(cell: Cell) -> Refined:
    """Bounds on several grids, each with twice the bins of the previous grid."""
    grids = {level: bounds(cell, LAID_OUT_FOR, level) for level in REFINEMENTS}
    finest = [bounds(cell, share, REFINEMENTS[-1]) for share in REFERENCES]
    truth = max(grid[1] for grid in finest), min(grid[2] for grid in finest)
    unlike = {bins: (lower, upper) for bins, lower, upper in grids.values()}
    lower, upper = ([both[i] for both in unlike.values()] for i in range(2))
    return Refined(cell, truth, list(unlike), lower, upper)


def bounds(cell: Cell, share: float, refinement: int) -> tuple[int, float, float]:
    """Number of bins, and lower and upper bound on ε, of a grid chosen for a share of δ."""
    found = []
    for side in (Side.LOWER, Side.UPPER):
        curve = allocation_curve(
            GaussianPair(cell.sigma),
            cell.window,
            Direction.REMOVE,
            side,
            delta_hint=share * cell.delta,
            refinement=refinement,
        )
        found.append(epsilon_at(curve, cell.delta, side))
    assert isinstance(curve, AllocationCurve)
    return curve.frame.bins(refinement), found[0], found[1]


def order(bins: np.ndarray, errors: np.ndarray, floor: float = 0.0) -> float:
    """Power of 1/bins by which errors above a floor decrease, by least squares on logarithms."""
    falling = errors > SHARP * floor
    if np.count_nonzero(falling) < 3:
        return float("nan")
    return -float(np.polyfit(np.log(bins[falling]), np.log(errors[falling]), 1)[0])


def seconds_picture(points: list[Timed]) -> Picture:
    """Picture of CPU-seconds against the window."""

    def draw(axes: list[Axes], ink: str) -> None:
        (axis,) = axes
        for (sigma, delta), look in zip(NOISES, STYLES, strict=False):
            mine = [p for p in points if (p.noise_multiplier, p.delta) == (sigma, delta)]
            x, y = [p.window for p in mine], [p.seconds for p in mine]
            label = f"σ = {sigma:g}, δ = {delta:g}"
            axis.plot(x, y, label=label, **look.line())
        guide = np.array([1e4, 1e7])
        axis.plot(guide, 1e-2 * np.sqrt(guide / 1e4), DOTTED, color=ink, label="growth as √t")
        axis.set(xscale="log", yscale="log", xlabel="window t", ylabel="CPU-seconds")
        axis.set_title("Relative width at most 1e-3")

    text = "CPU-seconds of one price against the window, from 2 to ten million steps."
    title = "CPU-seconds of one ε, upper and lower bound in both directions"
    return Picture("accounting_seconds", title, text, draw)


def width_picture(grids: list[Refined]) -> Picture:
    """Picture of bracket width and upper error against the bins, with the fitted orders."""

    def draw(axes: list[Axes], ink: str) -> None:
        for grid, look in zip(grids, STYLES, strict=True):
            parts = zip(axes, (grid.widths, grid.upper_errors), strict=True)
            for axis, (bins, errors) in parts:
                axis.plot(bins, errors, label=str(grid.cell), **look.line())
        names = ("upper ε − lower ε", "upper ε − ε")
        orders = zip(*(grid.orders for grid in grids), strict=True)
        for axis, name, fitted in zip(axes, names, orders, strict=True):
            axis.set(xscale="log", yscale="log", xlabel="bins", ylabel=name)
            axis.set_title(f"{name}, of order {min(fitted):.2f} to {max(fitted):.2f}")

    text = "Width of the bracket and error of the upper bound fall as the square of the step."
    return Picture(
        "accounting_width",
        "Width of the bracket of ε, and error of its upper end, against bins",
        text,
        draw,
        panels=2,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder for the pictures")
    parser.add_argument("--json", type=Path, help="JSON file for the results")
    given = parser.parse_args()
    grids = [refined(cell) for cell in GRIDS]
    for grid in grids:
        width, upper = grid.orders
        print(f"{grid.cell}: order of the width {width:.2f}, of the upper bound {upper:.2f}")
        for bins, width in zip(*grid.widths, strict=True):
            print(f"  {bins:>9,} bins  width {width:.2e}")
    turnout(Cell(1.1, 20, 1e-5, windows=2))  # imports are not measured
    points = timed()
    given.out.mkdir(parents=True, exist_ok=True)
    for picture in (seconds_picture(points), width_picture(grids)):
        (given.out / f"{picture.name}.svg").write_text(picture.svg())
    if given.json:
        found = {
            "about": surroundings(),
            "seconds": [asdict(p) for p in points],
            "grids": [asdict(g) for g in grids],
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
