"""``turnout estimate heavy-hitters`` and ``user-mean``, which trust nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from turnout.cli.commands import Command
from turnout.cli.estimate_output import (
    COLUMN,
    JSON,
    LABELS,
    PICTURE,
    TOP,
    picture_path,
    print_record,
    print_table,
    show,
)
from turnout.cli.options import FILE, WHOLE

_SEARCH_EXAMPLES = """\b
Examples:
  turnout estimate heavy-hitters words.csv --letters 8 --epsilon 4 --threshold 0.02
  turnout estimate heavy-hitters numbers.npy --size 1e12 --epsilon 2
"""
_USER_EXAMPLES = """\b
Examples:
  turnout estimate user-mean trips.csv --client rider --column minutes --samples 20 \\
      --radius 180 --deviation 15 --epsilon 4
"""
_LOCAL_EPSILON = click.option(
    "--epsilon", type=float, required=True, help="ε₀ of all that a client sends."
)


@click.command("heavy-hitters", cls=Command, epilog=_SEARCH_EXAMPLES)
@click.argument("data", metavar="FILE", type=FILE)
@click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1, K up to 2^61.")
@LABELS
@click.option(
    "--letters",
    type=WHOLE,
    metavar="L",
    help="Values are words, of which L letters count, at most 12; whatever is not a to z is a *.",
)
@COLUMN
@_LOCAL_EPSILON
@click.option(
    "--threshold",
    type=float,
    default=0.01,
    help="Share of the clients above which a value is named; 0.01 by default.",
)
@click.option(
    "--error",
    type=float,
    default=0.05,
    help="Chance that any value below it is named; 0.05 by default.",
)
@TOP
@JSON
def heavy_hitters(
    *,
    data: Path,
    labels: Path | None,
    epsilon: float,
    threshold: float,
    top: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """Names values that many clients hold, though there are too many to list.

    Local model, replace-one: nobody is trusted, and each client sends one message. With up to 2^14
    values each message is about all of them; beyond, it is one bit about a prefix of the client's
    value, of a length that is drawn for the client, and frequent prefixes are followed.
    """
    if sum(given is not None for given in (flags["size"], labels, flags["letters"])) != 1:
        raise click.UsageError(
            "say which values there can be: --size K, --labels FILE or --letters L"
        )
    from turnout.estimation.private import searches
    from turnout.estimation.private.columns import read_labels
    from turnout.randomness import OSRandomness
    from turnout.reporting import estimates

    names = () if labels is None else read_labels(labels)
    found = searches.heavy_hitters(data, epsilon, threshold, OSRandomness(), labels=names, **flags)
    if as_json:
        print_record(estimates.search_record(found))
    else:
        print_table(estimates.search_table(found, top))


@click.command("user-mean", cls=Command, epilog=_USER_EXAMPLES)
@click.argument("data", metavar="FILE", type=FILE)
@click.option("--client", metavar="NAME", help="The column that says whose sample a row is.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="A column of a CSV or Parquet file; several times for vectors.",
)
@_LOCAL_EPSILON
@click.option(
    "--radius",
    type=float,
    required=True,
    metavar="R",
    help="Samples lie in [-R, R]; beyond, a client's mean is clipped.",
)
@click.option(
    "--deviation",
    type=float,
    required=True,
    metavar="S",
    help="Standard deviation of the samples, at most. For accuracy only, as --samples is.",
)
@click.option(
    "--samples", type=WHOLE, metavar="M", help="Samples of each client, at least; with --client."
)
@click.option(
    "--chance",
    type=float,
    default=0.01,
    metavar="P",
    help="Chance that some client's mean is cut, where that is so; 0.01 by default.",
)
@TOP
@PICTURE
@JSON
def user_mean(
    *,
    data: Path,
    columns: tuple[str, ...],
    top: int,
    picture: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Estimates a mean where each client has many samples, all protected together.

    FILE has one sample a row and a column that says whose (--client); or one client a row, whose
    columns are its samples of one number. Local model, replace-one: nobody is trusted. A client
    sends two messages: one about the range that its mean is in, one about the mean within it.
    """
    path = picture_path(picture)
    from turnout.api.estimates import EstimatedMean
    from turnout.estimation.private import estimates
    from turnout.randomness import OSRandomness

    found = estimates.user_mean(data, source=OSRandomness(), columns=columns, **flags)
    show(EstimatedMean.of(found, columns if flags["client"] else ()), top, path, as_json)
