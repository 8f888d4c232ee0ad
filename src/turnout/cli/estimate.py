"""Commands of private estimates: ``turnout estimate frequencies``, ``mean`` and their neighbours.

``heavy-hitters`` and ``user-mean`` work in the local model alone. `show`, `print_table` and
`print_record` print the answers of ``refine`` too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import FILE, PATH, WHOLE, Command, Group, LazyChoice, all_of, picture_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.api.estimate import EstimatedFrequencies, EstimatedMean

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
MISSING = click.option(
    "--missing", metavar="VALUE", help="What a missing value counts as: public; by default refused."
)
MISSING_NUMBER = click.option(
    "--missing",
    type=float,
    metavar="X",
    help="The number that a missing one counts as: public; by default such rows are refused.",
)
CONFIDENCE = click.option(
    "--confidence", type=float, default=0.95, metavar="P", help="Of each interval; 0.95 by default."
)
values_options = all_of(
    click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1."),
    LABELS,
    COLUMN,
    MISSING,
)
"""Which values there can be, and where they stand."""


def names_of(size: int | None, labels: Path | None) -> tuple[str, ...]:
    """Names of the values; empty where they are numbers."""
    if (size is None) == (labels is None):
        raise click.UsageError(
            "say with --size K or --labels FILE which values there can be: that is published, "
            "so it is not taken from the data"
        )
    from turnout.estimation.private.columns import read_labels

    return () if labels is None else read_labels(labels)


def show(found: Estimate, top: int, path: Path | None, as_json: bool) -> None:
    """Draw, then print an estimate; the picture first, since a repeated run costs privacy."""
    if path is not None:
        found.plot(top).write(path)
    if as_json:
        print_record(found.to_dict())
    else:
        print_table(found.table(top))


def print_table(table: RenderableType) -> None:
    """Print a table."""
    from rich.console import Console

    Console().print(table, highlight=False, crop=False)


def print_record(record: dict[str, Any]) -> None:
    """Print a record as JSON."""
    click.echo(json.dumps(record, indent=2, allow_nan=False))


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
@MISSING
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

    Local model, replace-one: no party is trusted, and each client sends one message. With up to
    2^14 values each message is about all of them; beyond, it is one bit about a prefix of the
    client's value, of a length that is drawn for the client, and frequent prefixes are followed.
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
@MISSING_NUMBER
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
    columns are its samples of one number. Local model, replace-one: no party is trusted. A client
    sends two messages: one about the range that its mean is in, one about the mean within it.
    """
    path = picture_path(picture)
    from turnout.api.estimate import EstimatedMean
    from turnout.estimation.private import estimates
    from turnout.randomness import OSRandomness

    found = estimates.user_mean(data, source=OSRandomness(), columns=columns, **flags)
    show(EstimatedMean.of(found, columns if flags["client"] else ()), top, path, as_json)


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
    """Names of the mechanisms of frequencies in any trust model."""
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
    from turnout.api.estimate import estimate_frequencies
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
@MISSING_NUMBER
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
    from turnout.api.estimate import estimate_mean

    show(estimate_mean(data, **asked), top, path, as_json)


estimate.add_command(heavy_hitters)
estimate.add_command(user_mean)
