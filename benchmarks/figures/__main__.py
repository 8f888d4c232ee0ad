"""Draw the figures of docs/figures.md, print their numbers, and write them as CSV files.

python benchmarks/figures [--only N ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import math
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from turnout.reporting.drawing import Picture

_BESIDE = Path(__file__).parents[1]
sys.path += [str(_BESIDE / "papers"), str(_BESIDE)]

from packages import named_packages  # noqa: E402


def figure(module: str, name: str) -> Picture:
    """Picture drawn by a function of another module, imported only for that figure."""
    with named_packages():
        return getattr(importlib.import_module(module), name)()


FIGURES = {
    number: partial(figure, module, name)
    for number, (module, name) in {
        1: ("allocation", "figure_1"),
        2: ("allocation", "figure_2"),
        3: ("allocation", "figure_3"),
        4: ("allocation", "figure_4"),
        5: ("check_ins", "figure_5"),
        6: ("refinement", "figure_7_3"),
        7: ("refinement", "figure_7_7"),
        8: ("refinement", "figure_7_8"),
        9: ("refinement", "figure_7_9"),
        10: ("refinement", "figure_7_10"),
        11: ("refinement", "table_7_1"),
        12: ("private_means", "figure_3_2"),
        13: ("shuffling", "figure_2"),
        14: ("shuffling", "figure_5_2"),
        15: ("shuffling", "figure_5_3"),
        16: ("shuffling_composed", "figure_5_4"),
        17: ("shuffling_composed", "figure_5_5"),
        18: ("shuffling_composed", "figure_5_6"),
    }.items()
}
FOLDER = Path(__file__).parents[2] / "docs" / "figures"


def table(picture: Picture) -> str:
    """CSV text of a picture's curves: panel, curve, x and y, with six significant digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("panel", "curve", "x", "y"))
    for panel, axes in enumerate(picture.figure().axes, 1):
        for curve in axes.get_lines():
            for x, y in np.asarray(curve.get_xydata(), dtype=float):
                if math.isfinite(y):
                    writer.writerow((panel, curve.get_label(), f"{x:.6g}", f"{y:.6g}"))
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=int, nargs="+", choices=FIGURES, help="which figures")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for SVG and CSV files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number in options.only or FIGURES:
        started = time.perf_counter()
        print(f"figure {number}", flush=True)
        drawn = FIGURES[number]()
        path = options.out / f"{drawn.name}.svg"
        path.write_text(drawn.svg())
        path.with_suffix(".csv").write_text(table(drawn))
        print(f"  {path} in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
