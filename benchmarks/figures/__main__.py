"""Draws the figures of docs/figures.md anew, a line of numbers for each curve.

python benchmarks/figures [--only N ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "papers"))

from allocation import figure_1, figure_2, figure_3, figure_4
from check_ins import figure_5
from private_means import figure_3_2
from refinement import (
    figure_7_3,
    figure_7_7,
    figure_7_8,
    figure_7_9,
    figure_7_10,
    table_7_1,
)
from shuffling import figure_2 as figure_shuffling
from shuffling import figure_5_2, figure_5_3
from shuffling_composed import figure_5_4, figure_5_5, figure_5_6

FIGURES = {
    1: figure_1,
    2: figure_2,
    3: figure_3,
    4: figure_4,
    5: figure_5,
    6: figure_7_3,
    7: figure_7_7,
    8: figure_7_8,
    9: figure_7_9,
    10: figure_7_10,
    11: table_7_1,
    12: figure_3_2,
    13: figure_shuffling,
    14: figure_5_2,
    15: figure_5_3,
    16: figure_5_4,
    17: figure_5_5,
    18: figure_5_6,
}
FOLDER = Path(__file__).parents[2] / "docs" / "figures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="+", choices=FIGURES, help="which figures")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where SVGs go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number in options.only or FIGURES:
        started = time.perf_counter()
        print(f"figure {number}", flush=True)
        drawn = FIGURES[number]()
        path = options.out / f"{drawn.name}.svg"
        path.write_text(drawn.svg())
        print(f"  {path} in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
