"""Draw the figures of docs/figures.md and print the numbers of each curve on one line.

python benchmarks/figures [--only N ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from functools import partial
from pathlib import Path

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
