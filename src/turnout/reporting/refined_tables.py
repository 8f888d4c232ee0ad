"""Frequencies at one privacy level as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from turnout.core.files import write
from turnout.refinement import LevelEstimate


def level_rows(
    names: Sequence[str], estimate: LevelEstimate, confidence: float
) -> list[dict[str, str | float]]:
    """Rows for each value as JSON-ready values, the most frequent first."""
    low, high = estimate.interval(confidence)
    order = sorted(range(len(names)), key=lambda value: -estimate.raw[value])
    return [
        {
            "value": names[value],
            "frequency": float(estimate.frequencies[value]),
            "low": float(low[value]),
            "high": float(high[value]),
            "raw": float(estimate.raw[value]),
            "population_standard_error": float(estimate.standard_errors[value]),
        }
        for value in order
    ]


def level_record(
    estimate: LevelEstimate, confidence: float, rows: list[dict[str, str | float]]
) -> dict[str, object]:
    """The estimate as JSON-ready values."""
    exact = estimate.epsilon == float("inf")
    return {
        "epsilon": None if exact else estimate.epsilon,
        "guarantee": estimate.guarantee,
        "clients": estimate.clients,
        "confidence": confidence,
        "frequencies": rows,
    }


def show_level(
    estimate: LevelEstimate, confidence: float, rows: list[dict[str, str | float]], top: int
) -> None:
    """A table of the most frequent values."""
    console = Console()
    table = Table("value", title=f"{estimate.clients:,} clients", box=None, title_justify="left")
    interval = f"{100 * confidence:g} % interval"
    for column in ("frequency", interval, "± noise and sampling"):
        table.add_column(column, justify="right")
    for row in rows[:top]:
        table.add_row(
            str(row["value"]),
            f"{row['frequency']:.4f}",
            f"{row['low']:.4f} to {row['high']:.4f}",
            f"{row['population_standard_error']:.4f}",
        )
    console.print(table, highlight=False)
    if len(rows) > top:
        console.print(f"and {len(rows) - top:,} values more (--top, --out)", highlight=False)
    console.print(estimate.guarantee, highlight=False, soft_wrap=True)


def write_rows(path: Path, rows: list[dict[str, str | float]]) -> None:
    """Writes all rows into a CSV file."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write(path, file.getvalue().encode())
