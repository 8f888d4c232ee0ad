"""Options and printing that the commands of ``turnout estimate`` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from turnout.estimation.private.answers import Mean

OUTPUT = (
    click.option(
        "--top", type=click.IntRange(1), default=20, help="How many rows to show; 20 by default."
    ),
    click.option(
        "--picture", metavar="FILE", help="Draw it with error bars into a .svg, .png or .pdf file."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
)
TOP, PICTURE, JSON = OUTPUT


def show_mean(
    found: Mean, columns: tuple[str, ...], top: int, path: Path | None, as_json: bool
) -> None:
    """Draws and prints a mean; the picture first, since a run costs privacy."""
    from turnout.reporting import estimate_tables

    names = columns or tuple(map(str, range(found.value.size)))
    if path is not None:
        from turnout.reporting.estimate_pictures import mean_picture, write_estimate

        write_estimate(mean_picture(found, names, top), path)
    if as_json:
        print_record(estimate_tables.mean_record(found, names))
    else:
        estimate_tables.show_mean(found, names, top)


def picture_path(picture: str | None) -> Path | None:
    """Where the picture goes; refused before anything is read, since a run costs privacy."""
    if picture is None:
        return None
    from turnout.reporting.trade_off_picture import check_format

    return check_format(picture)


def print_record(record: dict[str, Any]) -> None:
    """Prints a record as JSON."""
    click.echo(json.dumps(record, indent=2, allow_nan=False))
