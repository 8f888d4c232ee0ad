"""``turnout estimate``: frequencies or a mean of a column of values, privately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from turnout.cli.commands import Group
from turnout.cli.estimate_output import (
    CONFIDENCE,
    JSON,
    PICTURE,
    TOP,
    names_of,
    picture_path,
    show,
    values_options,
)
from turnout.cli.local_estimates import heavy_hitters, user_mean
from turnout.cli.options import PATH, LazyChoice, all_of

_MODELS = ("local", "shuffled", "central")
_POST_PROCESSING = ("simplex", "empirical-bayes", "clip", "normalise", "raw")
_FREQUENCY_EXAMPLES = """\b
Examples:
  turnout estimate frequencies ages.npy --size 120 --epsilon 1 --model local
  turnout estimate frequencies survey.csv --column town --labels towns.txt \\
      --epsilon 0.5 --model shuffled --delta 1e-6 --picture towns.svg
  turnout estimate frequencies ages.npy --size 120 --epsilon 1 --model central \\
      --relation add-remove
"""
_MEAN_EXAMPLES = """\b
Examples:
  turnout estimate mean vectors.npy --norm l2 --radius 1 --epsilon 4 --model local --bits 20
  turnout estimate mean survey.csv --column age --column height --norm linf --radius 200 \\
      --epsilon 1 --model central --relation replace-one
"""
_shared_options = all_of(
    click.option(
        "--epsilon", type=float, required=True, help="ε; in the local model of each message."
    ),
    click.option(
        "--model",
        "trust",
        type=click.Choice(_MODELS),
        required=True,
        help="Whom a client trusts. local: nobody. shuffled: whoever mixes the messages. "
        "central: whoever holds the file.",
    ),
    click.option("--delta", type=float, help="δ: needed for shuffled, allowed for central."),
    click.option(
        "--relation",
        metavar="NAME",
        help="For central, where it is needed: add-remove (the number of rows is private) or "
        "replace-one (it is public). The other models are replace-one.",
    ),
    click.option("--bits", type=int, metavar="B", help="Most bits that a client sends."),
    TOP,
    PICTURE,
    JSON,
)


def _mechanisms() -> tuple[str, ...]:
    """Mechanisms of frequencies in any model."""
    from turnout.randomizers.interface import all_mechanisms

    return ("auto", *all_mechanisms(), "laplace", "gaussian")


@click.group(cls=Group)
def estimate() -> None:
    """Estimates frequencies or a mean privately. One row of the file is one client.

    A client with several rows is protected for one of them only: give each client one row first.
    Randomness is the operating system's, so every run gives another answer, and every run on the
    same rows costs its ε again.
    """


@estimate.command(epilog=_FREQUENCY_EXAMPLES)
@click.argument("data", metavar="FILE", type=PATH)
@values_options
@click.option(
    "--mechanism",
    type=LazyChoice(_mechanisms),
    default="auto",
    help="auto: the fewest bits among those whose error bound is within 5 % of the least; in the "
    "central model, where it is laplace or gaussian, the less noise.",
)
@click.option(
    "--post-processing",
    type=click.Choice(_POST_PROCESSING),
    default="simplex",
    help="From unbiased estimates (raw) to shares; simplex by default.",
)
@CONFIDENCE
@_shared_options
def frequencies(
    *,
    data: Path,
    size: int | None,
    labels: Path | None,
    top: int,
    picture: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Estimates which share of the clients holds each value.

    FILE is a .npy, .csv or .parquet file, or a folder of .parquet files, with one value a row, and
    one row a client. Which values there can be is public and must not come from the data, so --size
    or --labels is needed.
    """
    names = names_of(size, labels)
    path = picture_path(picture)
    from turnout.api.estimates import estimate_frequencies
    from turnout.core import checks

    if size is not None:
        checks.count(2, size=size)
    found = estimate_frequencies(data, categories=names or size or 0, **asked)
    show(found, top, path, as_json)


@estimate.command(epilog=_MEAN_EXAMPLES)
@click.argument("data", metavar="FILE", type=PATH)
@click.option(
    "--norm",
    type=click.Choice(["l1", "l2", "linf"]),
    required=True,
    help="The norm that bounds a row.",
)
@click.option(
    "--radius",
    type=float,
    required=True,
    metavar="R",
    help="The bound. Rows beyond it are clipped to it; how many is not released. Choose it without "
    "looking at the data.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="A column of a CSV or Parquet file; several times for vectors. By default all.",
)
@click.option(
    "--mechanism",
    type=click.Choice(["auto", "one-message", "several-messages"]),
    default="auto",
    help="Messages of a client in the shuffled model. auto: several where their predicted error "
    "is less by more than 5 %.",
)
@_shared_options
def mean(
    *,
    data: Path,
    top: int,
    picture: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Estimates the mean of the clients' vectors.

    FILE is a .npy file of shape (clients, dimension), or a .csv or .parquet file or a folder of
    .parquet files with columns of numbers. One row is one client.
    """
    path = picture_path(picture)
    from turnout.api.estimates import estimate_mean

    show(estimate_mean(data, **asked), top, path, as_json)


estimate.add_command(heavy_hitters)
estimate.add_command(user_mean)
