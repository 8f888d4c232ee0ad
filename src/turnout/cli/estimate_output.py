"""Options and printing that the commands of ``turnout estimate`` and ``refine`` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import FILE, WHOLE, all_of
from turnout.core.optional import require

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.api.estimates import EstimatedFrequencies, EstimatedMean

    Estimate = EstimatedFrequencies | EstimatedMean

TOP = click.option(
    "--top", type=click.IntRange(1), default=20, help="How many rows to show; 20 by default."
)
PICTURE = click.option(
    "--picture", metavar="FILE", help="Draw it with error bars into a .svg, .png or .pdf file."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
LABELS = click.option("--labels", type=FILE, metavar="FILE", help="All values by name, one a line.")
COLUMN = click.option("--column", metavar="NAME", help="The column of a CSV or Parquet file.")
CONFIDENCE = click.option(
    "--confidence", type=float, default=0.95, metavar="P", help="Of each interval; 0.95 by default."
)
values_options = all_of(
    click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1."), LABELS, COLUMN
)
"""Which values there can be, and where they stand."""


def names_of(size: int | None, labels: Path | None) -> tuple[str, ...]:
    """The names of the values; empty where they are numbers."""
    if (size is None) == (labels is None):
        raise click.UsageError(
            "say with --size K or --labels FILE which values there can be: that is published, "
            "so it is not taken from the data"
        )
    from turnout.estimation.private.columns import read_labels

    return () if labels is None else read_labels(labels)


def show(found: Estimate, top: int, path: Path | None, as_json: bool) -> None:
    """Draws and prints an estimate; the picture first, since a run costs privacy."""
    if path is not None:
        found.plot(top).write(path)
    if as_json:
        print_record(found.to_dict())
    else:
        print_table(found.table(top))


def print_table(table: RenderableType) -> None:
    """Prints a table."""
    from rich.console import Console

    Console().print(table, highlight=False)


def picture_path(picture: str | None) -> Path | None:
    """The file of the picture; refused before anything is read, since a run costs privacy."""
    if picture is None:
        return None
    require("plots", what="--picture")
    from turnout.reporting.drawing import check_format

    return check_format(picture)


def print_record(record: dict[str, Any]) -> None:
    """Prints a record as JSON."""
    click.echo(json.dumps(record, indent=2, allow_nan=False))
