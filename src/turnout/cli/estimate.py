"""``turnout estimate``: frequencies or a mean of a column of values, privately."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.commands import Group
from turnout.cli.options import WHOLE, LazyChoice

if TYPE_CHECKING:
    from turnout.estimation.private.answers import Ask, Mean
    from turnout.reporting.drawing import Picture

_FILE = click.Path(dir_okay=False, path_type=Path)
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
_OUTPUT = (
    click.option(
        "--top", type=click.IntRange(1), default=20, help="How many rows to show; 20 by default."
    ),
    click.option(
        "--picture", metavar="FILE", help="Draw it with error bars into a .svg, .png or .pdf file."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
)
_TOP, _PICTURE, _JSON = _OUTPUT
_SHARED = (
    click.option(
        "--epsilon", type=float, required=True, help="ε; in the local model of each message."
    ),
    click.option(
        "--model",
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
    *_OUTPUT,
)


def _mechanisms() -> tuple[str, ...]:
    """Mechanisms of frequencies in any model."""
    from turnout.randomizers.registry import all_mechanisms

    return ("auto", *all_mechanisms(), "laplace", "gaussian")


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of both kinds of estimate."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.group(cls=Group)
def estimate() -> None:
    """Estimates frequencies or a mean privately. One row of the file is one client.

    A client with several rows is protected for one of them only: give each client one row first.
    Randomness is the operating system's, so every run gives another answer, and every run on the
    same rows costs its ε again.
    """


@estimate.command(epilog=_FREQUENCY_EXAMPLES)
@click.argument("data", metavar="FILE", type=_FILE)
@click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1.")
@click.option("--labels", type=_FILE, metavar="FILE", help="All values by name, one a line.")
@click.option("--column", metavar="NAME", help="The column of a CSV or Parquet file.")
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
@click.option(
    "--confidence", type=float, default=0.95, metavar="P", help="Of each interval; 0.95 by default."
)
@_shared
def frequencies(
    *,
    data: Path,
    size: int | None,
    labels: Path | None,
    column: str | None,
    mechanism: str,
    post_processing: str,
    confidence: float,
    top: int,
    picture: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Estimates which share of the clients holds each value.

    FILE is a .npy, .csv or .parquet file with one value a row, and one row a client. Which values
    there can be is public and must not come from the data, so --size or --labels is needed.
    """
    if (size is None) == (labels is None):
        raise click.UsageError(
            "say with --size K or --labels FILE which values there can be: that is published, "
            "so it is not taken from the data"
        )
    path = _picture_path(picture)
    from turnout.core import checks
    from turnout.estimation.private import estimates
    from turnout.estimation.private.columns import read_labels
    from turnout.randomness import OSRandomness
    from turnout.reporting import estimate_tables

    if size is not None:
        checks.count(2, size=size)
    names = () if labels is None else read_labels(labels)
    found = estimates.frequencies(
        data,
        size or len(names),
        _ask(flags),
        OSRandomness(),
        labels=names,
        column=column,
        mechanism=mechanism,
        post_processing=post_processing,
        confidence=confidence,
    )
    shown = names or tuple(map(str, range(size or 0)))
    if path is not None:
        from turnout.reporting.estimate_pictures import frequency_picture

        _draw(frequency_picture(found, shown, top), path)
    if as_json:
        _print(estimate_tables.frequency_record(found, shown))
    else:
        estimate_tables.show_frequencies(found, shown, top)


@estimate.command(epilog=_MEAN_EXAMPLES)
@click.argument("data", metavar="FILE", type=_FILE)
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
@_shared
def mean(
    *,
    data: Path,
    norm: str,
    radius: float,
    columns: tuple[str, ...],
    mechanism: str,
    top: int,
    picture: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Estimates the mean of the clients' vectors.

    FILE is a .npy file of shape (clients, dimension), or a .csv or .parquet file with columns of
    numbers. One row is one client.
    """
    path = _picture_path(picture)
    from turnout.estimation.private import estimates
    from turnout.randomness import OSRandomness

    found = estimates.mean(
        data, norm, radius, _ask(flags), OSRandomness(), columns=columns, mechanism=mechanism
    )
    _show_mean(found, columns, top, path, as_json)


@estimate.command("heavy-hitters", epilog=_SEARCH_EXAMPLES)
@click.argument("data", metavar="FILE", type=_FILE)
@click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1, K up to 2^61.")
@click.option("--labels", type=_FILE, metavar="FILE", help="All values by name, one a line.")
@click.option(
    "--letters",
    type=WHOLE,
    metavar="L",
    help="Values are words, of which L letters count, at most 12; whatever is not a to z is a *.",
)
@click.option("--column", metavar="NAME", help="The column of a CSV or Parquet file.")
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
@_TOP
@_JSON
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
    value, of a length that is drawn for her, and frequent prefixes are followed.
    """
    if sum(given is not None for given in (flags["size"], labels, flags["letters"])) != 1:
        raise click.UsageError(
            "say which values there can be: --size K, --labels FILE or --letters L"
        )
    from turnout.estimation.private import searches
    from turnout.estimation.private.columns import read_labels
    from turnout.randomness import OSRandomness
    from turnout.reporting import estimate_tables

    names = () if labels is None else read_labels(labels)
    found = searches.heavy_hitters(data, epsilon, threshold, OSRandomness(), labels=names, **flags)
    if as_json:
        _print(estimate_tables.search_record(found))
    else:
        estimate_tables.show_search(found, top)


@estimate.command("user-mean", epilog=_USER_EXAMPLES)
@click.argument("data", metavar="FILE", type=_FILE)
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
@_TOP
@_PICTURE
@_JSON
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
    columns are her samples of one number. Local model, replace-one: nobody is trusted. A client
    sends two messages: one about the range that her mean is in, one about her mean within it.
    """
    path = _picture_path(picture)
    from turnout.estimation.private import many_samples
    from turnout.randomness import OSRandomness

    found = many_samples.user_mean(data, source=OSRandomness(), columns=columns, **flags)
    _show_mean(found, columns if flags["client"] else (), top, path, as_json)


def _show_mean(
    found: Mean, columns: tuple[str, ...], top: int, path: Path | None, as_json: bool
) -> None:
    """Draws and prints a mean; the picture first, since a run costs privacy."""
    from turnout.reporting import estimate_tables

    names = columns or tuple(map(str, range(found.value.size)))
    if path is not None:
        from turnout.reporting.estimate_pictures import mean_picture

        _draw(mean_picture(found, names, top), path)
    if as_json:
        _print(estimate_tables.mean_record(found, names))
    else:
        estimate_tables.show_mean(found, names, top)


def _ask(flags: dict[str, Any]) -> Ask:
    from turnout.estimation.private.answers import Ask

    return Ask(**flags)


def _picture_path(picture: str | None) -> Path | None:
    """Where the picture goes; refused before anything is read, since a run costs privacy."""
    if picture is None:
        return None
    from turnout.reporting.trade_off_picture import check_format

    return check_format(picture)


def _draw(picture: Picture, path: Path) -> None:
    from turnout.reporting.estimate_pictures import write_estimate

    write_estimate(picture, path)


def _print(record: dict[str, Any]) -> None:
    click.echo(json.dumps(record, indent=2, allow_nan=False))
