"""Certified brackets on ε, compared with two other packages: relative width and CPU-seconds.

The scheme is check-ins with Gaussian noise under add/remove, in both directions, with upper and
lower bounds. The packages are turnout, pld-accounting 2.0 (the only other package with brackets)
and random-allocation 1.0.5. The other packages run in their own environments, once with their
documented settings and once with the best settings found (docs/benchmarks.md). A CPU-second is a
second of ``process_time`` without imports and compilation. turnout starts from empty caches, and
the best of three runs counts.

    python benchmarks/accounting.py [--json FILE] [--peer-seconds 30] [--cells 1,2] [--alone]
    python benchmarks/accounting.py --peers FILE  # other packages' results of an earlier run
    python benchmarks/accounting.py --documented  # pld-accounting's documented settings, k of t too

For k > 1 picks, pld-accounting computes ε of one pick in each of k windows of t/k steps. Its upper
bound also holds for k of t steps, and its lower bound does not, so only its time is compared there.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from peers.brackets import (
    Asked,
    Bracket,
    Cell,
    contradictions,
    default,
    pld_accounting_at_best,
    random_allocation_at_best,
)

from turnout.accounting import price
from turnout.accounting.divergence.work import remembered
from turnout.core.errors import TurnoutError
from turnout.reporting.surroundings import measured_on, surroundings
from turnout.schemes import CheckIn, GaussianNoise, KSubset, Relation, Scheme

WIDTH_LIMIT, RATIO_LIMIT, SECONDS_LIMIT = 1e-3, 100.0, 1.0
REPEATS = 3
CELLS = [
    Cell(1.0, 64, 1e-6),
    Cell(0.8, 60, 1e-5),
    Cell(0.6, 100, 1e-5),
    Cell(0.3, 100, 1e-5),
    Cell(1.0, 1_000, 1e-6),
    Cell(2.0, 10_000, 1e-8),
    Cell(1.0, 100_000, 1e-6),
    Cell(0.5, 1_000_000, 1e-6),
    Cell(1.0, 1_000_000, 1e-10),
    Cell(5.0, 1_000_000, 1e-8),
    Cell(1.0, 10_000_000, 1e-8),
    Cell(1.0, 64, 1e-6, windows=16),
    Cell(1.0, 10_000, 1e-8, windows=10),
    Cell(0.8, 60, 1e-5, windows=100),
    Cell(1.0, 2, 1e-15),
    Cell(0.2, 100, 1e-6),
    Cell(1.0, 1_000, 1e-12),
]
DOCUMENTED_CELLS = [
    Cell(1.0, 2, 1e-6),
    Cell(1.0, 16, 1e-6),
    Cell(1.0, 64, 1e-6),
    Cell(0.8, 60, 1e-5),
    Cell(0.6, 100, 1e-5),
    Cell(0.3, 100, 1e-5),
    Cell(2.0, 200, 1e-6),
    Cell(1.0, 64, 1e-6, windows=16),
    Cell(0.8, 60, 1e-5, windows=100),
    Cell(1.0, 700, 1e-6),
    Cell(1.0, 1_000, 1e-6),
    Cell(1.0, 4, 0.004, picks=2),
    Cell(1.0, 16, 1e-5, picks=2),
    Cell(1.0, 64, 1e-6, picks=2),
    Cell(0.5, 16, 1e-3, picks=4),
    Cell(1.0, 64, 1e-6, picks=8),
    Cell(2.0, 64, 1e-6, picks=32),
    Cell(0.7, 100, 1e-6, picks=16),
    Cell(1.0, 256, 1e-6, picks=16),
    Cell(1.0, 1_000, 1e-6, picks=4),
]


def turnout(cell: Cell) -> Bracket:
    """Bracket by turnout from empty caches, with the least CPU-seconds of several repeats."""
    participation = CheckIn(cell.window, cell.windows)
    if cell.picks > 1:
        participation = KSubset(cell.window, cell.picks, cell.windows)
    scheme = Scheme(GaussianNoise(cell.sigma), participation, Relation.ADD_REMOVE)
    seconds, guarantee = [], None
    for _ in range(REPEATS):
        forget()
        started = time.process_time()
        try:
            guarantee = price(scheme, cell.delta, WIDTH_LIMIT)
        except TurnoutError as error:
            return Bracket("turnout", failure=f"{type(error).__name__}: {error}")
        seconds.append(time.process_time() - started)
    assert guarantee is not None
    directions = {name: (b.lower, b.upper) for name, b in guarantee.directions.items()}
    epsilon = guarantee.epsilon
    return Bracket("turnout", epsilon.lower, epsilon.upper, min(seconds), directions)


def forget() -> None:
    """Empty all caches of the package."""
    for found in gc.get_objects():
        is_cache = isinstance(found, functools._lru_cache_wrapper | remembered)
        if is_cache and getattr(found, "__module__", "").startswith("turnout."):
            found.cache_clear()


def peers_brackets(cell: Cell, epsilon: float | None, seconds: float) -> list[Bracket]:
    """Brackets by the other packages; ``epsilon``, if given, is the start of their search."""
    asked = Asked(cell, epsilon or 1.0, seconds)
    first = default("pld-accounting", asked)
    asked = Asked(cell, epsilon or first.upper or 1.0, seconds)
    second = default("random-allocation", asked)
    return [
        first,
        pld_accounting_at_best(asked, WIDTH_LIMIT),
        second,
        random_allocation_at_best(asked, WIDTH_LIMIT, second),
    ]


def documented_brackets(cell: Cell, seconds: float) -> list[Bracket]:
    """Bracket by pld-accounting with its documented settings."""
    found = default("pld-accounting", Asked(cell, 1.0, seconds))
    return [replace(found, lower=None) if cell.picks > 1 else found]


def earlier_brackets(file: Path) -> dict[Cell, list[Bracket]]:
    """Brackets by the other packages, from the file of an earlier run."""
    found = {}
    for row in json.loads(file.read_text())["rows"]:
        answers = [dict(answer) for answer in row["answers"][1:]]
        for answer in answers:
            del answer["width"]
        found[Cell(**row["cell"])] = [Bracket(**answer) for answer in answers]
    return found


def shortfalls(cell: Cell, brackets: Sequence[Bracket]) -> list[str]:
    """Limits that turnout does not meet in a cell; empty if it meets all."""
    ours, *others = brackets
    if ours.width is None or ours.seconds is None:
        return [f"no answer ({ours.failure})"]
    found = []
    if cell.picks > 1:
        slower = [b for b in others if b.seconds is not None and b.seconds < ours.seconds]
        return [f"slower than {b.who}" for b in slower]
    if ours.width > WIDTH_LIMIT:
        found.append(f"width {ours.width:.1e}, limit {WIDTH_LIMIT:g}")
    rivals = [b for b in others if b.seconds is not None and b.who.startswith("pld-accounting")]
    for rival in rivals:
        assert rival.seconds is not None
        if rival.seconds < RATIO_LIMIT * ours.seconds:
            ratio = rival.seconds / ours.seconds
            found.append(f"{ratio:.0f} times faster than {rival.who}, limit {RATIO_LIMIT:g}")
    if not rivals and ours.seconds > SECONDS_LIMIT:
        found.append(f"{ours.seconds:.2f} s, limit {SECONDS_LIMIT:g}")
    return found


def show(cell: Cell, brackets: Sequence[Bracket]) -> None:
    """Print the rows of one cell."""
    print(f"\n{cell}")
    ours = brackets[0]
    for bracket in brackets:
        if bracket.upper is None:
            print(f"  {bracket.who:27}{bracket.failure[:88]}")
            continue
        lower = "–" if bracket.lower is None else f"{bracket.lower:.6g}"
        width = "–" if bracket.width is None else f"{bracket.width:.1e}"
        seconds = "–" if bracket.seconds is None else f"{bracket.seconds:.3f}"
        ratio = ""
        if bracket is not ours and bracket.seconds is not None and ours.seconds is not None:
            ratio = f"{bracket.seconds / ours.seconds:.0f}"
        agrees = "" if bracket is ours or ours.overlaps(bracket) else "  CONTRADICTS TURNOUT"
        numbers = f"{lower:>12}{bracket.upper:>12.6g}{width:>10}{seconds:>10}{ratio:>8}"
        print(f"  {bracket.who:27}{numbers}{agrees}", flush=True)
    for first, second in contradictions(brackets):
        print(f"  {first.who} and {second.who} cannot both be correct")
    for shortfall in shortfalls(cell, brackets):
        print(f"  falls short: {shortfall}", flush=True)


def markdown(cells: Sequence[tuple[Cell, Sequence[Bracket]]]) -> str:
    """Table in Markdown as in docs/benchmarks.md, one line per cell."""
    names = [bracket.who for bracket in max((b for _, b in cells), key=len)]
    lines = [
        "| cell | " + " | ".join(f"{name} | CPU-s" for name in names) + " |",
        "|---|" + "---|---:|" * len(names),
    ]
    for cell, brackets in cells:
        parts = [str(cell)]
        for bracket in brackets:
            if bracket.upper is None:
                parts += [bracket.failure.split(":")[0], "–"]
                continue
            lower = "–" if bracket.lower is None else f"{bracket.lower:.6g}"
            width = "" if bracket.width is None else f" ({bracket.width:.1e})"
            seconds, ours = bracket.seconds or 0.0, brackets[0].seconds
            ratio = f" ({seconds / ours:,.0f}×)" if ours and bracket is not brackets[0] else ""
            parts += [f"[{lower}, {bracket.upper:.6g}]{width}", f"{seconds:.3g}{ratio}"]
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument("--markdown", type=Path, help="Markdown file for the table")
    parser.add_argument(
        "--peer-seconds", type=float, default=30.0, help="limit in CPU-seconds for one bracket"
    )
    parser.add_argument("--cells", help="comma-separated numbers of cells, from 1")
    parser.add_argument("--alone", action="store_true", help="run only turnout")
    parser.add_argument(
        "--peers", type=Path, help="JSON file of an earlier run with the peers' answers"
    )
    parser.add_argument(
        "--documented", action="store_true", help="pld-accounting's documented settings alone"
    )
    given = parser.parse_args()
    cells = DOCUMENTED_CELLS if given.documented else CELLS
    if given.cells:
        cells = [cells[int(number) - 1] for number in given.cells.split(",")]
    earlier = earlier_brackets(given.peers) if given.peers else {}
    turnout(Cell(1.1, 20, 1e-5, windows=2))  # imports are not measured
    names = ("lower ε", "upper ε", "width", "CPU-s", "ratio")
    print(f"{'':29}{names[0]:>12}{names[1]:>12}{names[2]:>10}{names[3]:>10}{names[4]:>8}")
    # Measure turnout and the other packages in each cell, and write the file after each.
    rows, table, short = [], [], 0
    for cell in cells:
        ours = turnout(cell)
        theirs = earlier.get(cell, [])
        if given.documented and not given.alone:
            theirs = documented_brackets(cell, given.peer_seconds)
        elif not given.peers and not given.alone:
            theirs = peers_brackets(cell, ours.upper, given.peer_seconds)
        brackets = [ours, *theirs]
        show(cell, brackets)
        table.append((cell, brackets))
        missing = shortfalls(cell, brackets)
        short += bool(missing)
        answers = [{**asdict(b), "width": b.width} for b in brackets]
        rows.append({"cell": asdict(cell), "answers": answers, "shortfalls": missing})
        if given.json:
            about = {**surroundings(), "peer_seconds": given.peer_seconds}
            given.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    # Write the requested table; the exit status is 1 if a limit is not met.
    if given.markdown:
        given.markdown.write_text(f"{measured_on()}\n{markdown(table)}")
    print(f"\n{len(cells) - short} of {len(cells)} cells within all limits")
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
