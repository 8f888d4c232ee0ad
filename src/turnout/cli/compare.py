"""``turnout compare``: ε against one parameter, by every way to come and every bound."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.option(
    "--against", metavar="NAME", help="What is swept: noise-multiplier, window or windows."
)
@click.option("--from", "first", type=float, help="Its first value.")
@click.option("--to", "last", type=float, help="Its last value.")
@click.option(
    "--points", type=int, help="How many values, evenly spaced in their logarithm; 12 if not given."
)
@click.option("--noise-multiplier", type=float, help="Noise standard deviation / clip norm.")
@click.option("--window", type=int, help="Steps a window.")
@click.option("--windows", type=int, help="Windows of the run; 1 if not given.")
@click.option("--clients", type=int, help="Clients whose messages are shuffled.")
@click.option("--delta", type=float, help="The δ of (ε, δ); required.")
@click.option(
    "--relation",
    metavar="NAME",
    help="Neighbouring relation: add-remove, zero-out or replace-one; required.",
)
@click.option("--tolerance", type=float, help="Largest (upper − lower) / upper asked for.")
@click.option("--picture", metavar="FILE", help="Draw it into a .svg, .png or .pdf file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(as_json: bool, picture: str | None, **flags: Any) -> None:
    """Prints ε against noise, window or number of windows, for check-in and everything like it.

    Random check-in beside Poisson sampling, shuffling, no amplification, and the papers' own
    bounds for check-ins. Where a method says nothing there is a blank and a reason.
    """
    from turnout.reporting import comparison

    path = None
    if picture is not None:
        from turnout.reporting.trade_off_picture import check_format

        path = check_format(picture)
    with comparison.progress() as watch:
        found = comparison.compare(flags, watch)
    comparison.show(found, as_json=as_json)
    if path is not None:
        from turnout.reporting.comparison_picture import write_comparison

        write_comparison(found, path)
