"""Commands of private estimates: ``turnout estimate`` with four subcommands.

`frequencies` and `mean` work in the local, the shuffled and the central model; `heavy_hitters` and
`user_mean` work in the local model only. `turnout.api.estimate` and
`turnout.estimation.private` compute the estimates. `turnout.cli.refine` uses the same options, and
`names_of`, `print_table` and `print_record`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import (
    FILE,
    PATH,
    TEXT_PATH,
    WHOLE,
    Command,
    Group,
    LazyChoice,
    Word,
    all_of,
    columns_of,
    import_option,
    picture_path,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.api.estimate import EstimatedFrequencies, EstimatedMean

    Estimate = EstimatedFrequencies | EstimatedMean

TOP = click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    help="Number of rows of the printed table, at least 1; default 20.",
)
PICTURE = click.option(
    "--picture",
    type=TEXT_PATH,
    metavar="FILE",
    help="Draw the estimates with error bars into a .svg, .png or .pdf file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
LABELS = click.option(
    "--labels",
    type=FILE,
    metavar="FILE",
    help="Text file with the names of all possible values, one name per line. The names are "
    "public.",
)
COLUMN = click.option(
    "--column",
    metavar="NAME",
    shell_complete=columns_of,
    help="Column of a CSV or Parquet file that holds the values.",
)
MISSING = click.option(
    "--missing",
    metavar="VALUE",
    help="Public value that replaces each missing value; by default a missing value is an error.",
)
MISSING_NUMBER = click.option(
    "--missing",
    type=float,
    metavar="X",
    help="Public number that replaces each missing number; by default a missing number is an "
    "error.",
)
CONFIDENCE = click.option(
    "--confidence",
    type=float,
    default=0.95,
    metavar="P",
    help="Confidence level of each interval; default 0.95.",
)
values_options = all_of(
    click.option("--size", type=WHOLE, metavar="K", help="The possible values are 0 to K - 1."),
    LABELS,
    COLUMN,
    MISSING,
)
"""Options for the possible values, and for the column of the file that holds them."""


def names_of(size: int | None, labels: Path | None) -> tuple[str, ...]:
    """Names of the possible values; empty if ``size`` is given and the values are numbers.

    Raises:
        UsageError: both options are given, or neither of them.
        InputFileError: the file of labels cannot be read.
    """
    if (size is None) == (labels is None):
        raise click.UsageError(
            "expected either --size K or --labels FILE: the possible values are published, so they "
            "are not taken from the data"
        )
    from turnout.estimation.private.columns import read_labels

    return () if labels is None else read_labels(labels)


def show(found: Estimate, top: int, path: Path | None, as_json: bool) -> None:
    """Draw and print an estimate.

    The picture is drawn first: if it fails, the estimate is not published, and a second run does
    not add to the ε of the data.
    """
    if path is not None:
        found.plot(top).write(path)
    if as_json:
        print_record(found.to_dict())
    else:
        print_table(found.table(top))


def print_table(table: RenderableType) -> None:
    """Print a table on stdout."""
    from rich.console import Console

    Console().print(table, highlight=False, crop=False)


def print_record(record: dict[str, Any]) -> None:
    """Print a record on stdout as JSON."""
    click.echo(json.dumps(record, indent=2, allow_nan=False))


_LOCAL_EPSILON = click.option(
    "--epsilon",
    type=float,
    required=True,
    help="ε₀ that protects all messages of a client together.",
)


@click.command("heavy-hitters", cls=Command)
@click.argument("data", metavar="FILE", type=FILE)
@click.option(
    "--size",
    type=WHOLE,
    metavar="K",
    help="The possible values are 0 to K - 1, with K at most 2^61.",
)
@LABELS
@click.option(
    "--letters",
    type=WHOLE,
    metavar="L",
    help="The values are words, and only the first L letters of each word are used, with L at "
    "most 12. Upper case counts as lower case. Any character other than a to z counts as *.",
)
@COLUMN
@MISSING
@_LOCAL_EPSILON
@click.option(
    "--threshold",
    type=float,
    default=0.01,
    help="Fraction of the clients, at least 0 and below 1; default 0.01. The search looks for "
    "values that a larger fraction of the clients hold.",
)
@click.option(
    "--error",
    type=float,
    default=0.05,
    help="Upper bound on the probability that the result is wrong; above 0 and at most 0.25; "
    "default 0.05. A result is wrong if it contains a value that at most the fraction --threshold "
    "of the clients hold.",
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
    """Find the values that many clients hold, even if there are too many possible values to list.

    The trust model is local (no party is trusted), the relation is replace-one, and each client
    sends one message. With at most 2^14 possible values, each message depends on the client's whole
    value. With more values, each client is assigned a prefix length and sends a message about the
    prefix of its value, and the server extends the frequent prefixes.
    """
    # The possible values are public: numbers, names or words.
    if sum(given is not None for given in (flags["size"], labels, flags["letters"])) != 1:
        raise click.UsageError(
            "expected exactly one of --size K, --labels FILE and --letters L: the possible values "
            "are published, so they are not taken from the data"
        )
    from turnout.estimation.private import searches
    from turnout.estimation.private.columns import read_labels
    from turnout.randomness import OSRandomness
    from turnout.reporting import estimates

    # The search draws from the operating system's randomness.
    names = () if labels is None else read_labels(labels)
    found = searches.heavy_hitters(data, epsilon, threshold, OSRandomness(), labels=names, **flags)
    if as_json:
        print_record(estimates.search_record(found))
    else:
        print_table(estimates.search_table(found, top))


@click.command("user-mean", cls=Command)
@click.argument("data", metavar="FILE", type=FILE)
@click.option(
    "--client",
    metavar="NAME",
    shell_complete=columns_of,
    help="Column that names the client of each row.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    shell_complete=columns_of,
    help="Column of a CSV or Parquet file; repeat the option for each coordinate of a vector.",
)
@MISSING_NUMBER
@_LOCAL_EPSILON
@click.option(
    "--radius",
    type=float,
    required=True,
    metavar="R",
    help="Bound R on each coordinate of a sample, above 0. The mean of a client's samples is "
    "clipped to [-R, R]. Choose R without looking at the data.",
)
@click.option(
    "--deviation",
    type=float,
    required=True,
    metavar="S",
    help="Upper bound S on the standard deviation of the samples. If the bound is wrong, the "
    "estimate may be biased, but ε₀ still holds.",
)
@click.option(
    "--samples",
    type=WHOLE,
    metavar="M",
    help="Least number of samples of a client; required with --client. If a client has fewer "
    "samples, the estimate may be biased, but ε₀ still holds.",
)
@click.option(
    "--chance",
    type=float,
    default=0.01,
    metavar="P",
    help="Upper bound on the probability that the mean of any client is farther from the common "
    "mean than --deviation and --samples predict; above 0 and below 1; default 0.01.",
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
    """Estimate a mean from clients with many samples each, with user-level privacy.

    ε₀ protects all samples of a client together. FILE has one of two forms. With --client each row
    is one sample, and a column names the client. Without --client each row is one client, and its
    columns are the samples of one number. The trust model is local (no party is trusted), and the
    relation is replace-one. A client sends at most two messages: the first is about the range that
    contains the mean of its samples, and the second is about the position of the mean in this
    range.
    """
    # Check the format of the picture before data are read.
    path = picture_path(picture)
    from turnout.api.estimate import EstimatedMean
    from turnout.estimation.private import estimates
    from turnout.randomness import OSRandomness

    found = estimates.user_mean(data, source=OSRandomness(), columns=columns, **flags)
    show(EstimatedMean.of(found, columns if flags["client"] else ()), top, path, as_json)


_MODELS = ("local", "shuffled", "central")
_POST_PROCESSING = ("simplex", "empirical-bayes", "clip", "normalise", "raw")
_shared_options = all_of(
    click.option(
        "--epsilon",
        type=float,
        required=True,
        help="ε of the estimate. With --model local it is ε₀ of each client's message.",
    ),
    click.option(
        "--model",
        "trust",
        type=click.Choice(_MODELS),
        required=True,
        help="Trust model. local: no party is trusted. shuffled: a shuffler is trusted to mix the "
        "clients' messages. central: the holder of the file is trusted with all rows.",
    ),
    click.option(
        "--delta",
        type=float,
        help="δ of the estimate. It is required with --model shuffled and optional with --model "
        "central. It is not allowed with --model local, because ε is pure there.",
    ),
    click.option(
        "--relation",
        type=Word(lambda: ("add-remove", "replace-one")),
        metavar="NAME",
        help="Neighbouring relation, required with --model central. add-remove: the number of "
        "rows is private. replace-one: the number of rows is public. The models local and "
        "shuffled allow only replace-one, which is their default.",
    ),
    click.option(
        "--bits",
        type=int,
        metavar="B",
        help="Largest number of bits that a client sends, with --model local or shuffled; by "
        "default any number.",
    ),
    TOP,
    PICTURE,
    JSON,
)


def _mechanisms() -> tuple[str, ...]:
    """Names of the mechanisms for frequencies of all trust models, and "auto"."""
    from turnout.randomizers.interface import all_mechanisms

    return ("auto", *all_mechanisms(), "laplace", "gaussian")


def _load(word: str) -> None:
    """Import the installed plug-in that defines the mechanism with the name ``word``."""
    from turnout.core.plugins import load

    load("randomizers", word)


class _EstimateCommand(Command):
    """Command whose required options depend on the trust model."""

    def missing(self, given: Mapping[str, Any]) -> list[str]:
        """Missing options, including those that the trust model requires."""
        found, trust = super().missing(given), given.get("trust")
        if trust in (None, "central") and "relation" not in given:
            found.append("--relation (add-remove, replace-one; with --model central)")
        if trust in (None, "shuffled") and "delta" not in given:
            found.append("--delta (with --model shuffled)")
        return found


class _FrequencyCommand(_EstimateCommand):
    """Command that requires the possible values."""

    def missing(self, given: Mapping[str, Any]) -> list[str]:
        """Missing options, including ``--size or --labels`` if neither is given."""
        found = super().missing(given)
        return found if given.keys() & {"size", "labels"} else [*found, "--size or --labels"]


class _MeanCommand(_EstimateCommand):
    """Command that requires a radius, or both limits of a range."""

    def missing(self, given: Mapping[str, Any]) -> list[str]:
        """Missing options, including those of a radius or of a range, one of which is required."""
        found = super().missing(given)
        if not given.keys() & {"radius", "low", "high"}:
            found.append("--radius, or --low and --high")
        elif "radius" not in given:
            found += [f"--{name}" for name in ("low", "high") if name not in given]
        return found


@click.group(cls=Group)
def estimate() -> None:
    """Compute private estimates from a file in which each row is one client.

    If a client has several rows, ε protects each row separately, and not the client. In this case
    combine the rows of a client into one row first, or use user-mean. All noise is drawn from the
    operating system's randomness, so each run returns another estimate. The ε of all runs on the
    same rows add up.
    """


@estimate.command(cls=_FrequencyCommand)
@click.argument("data", metavar="FILE", type=PATH)
@values_options
@click.option(
    "--mechanism",
    type=LazyChoice(_mechanisms, _load),
    default="auto",
    help="Mechanism of the clients' messages or, with --model central, the noise: laplace or "
    "gaussian. The default auto considers all mechanisms whose error bound is within 5 % of the "
    "smallest, and chooses the one with the shortest message. With --model central, auto chooses "
    "the mechanism with less noise.",
)
@click.option(
    "--post-processing",
    type=click.Choice(_POST_PROCESSING),
    default="simplex",
    help="Method that turns the unbiased estimates into frequencies; default simplex. raw prints "
    "the unbiased estimates.",
)
@CONFIDENCE
@_shared_options
@import_option
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
    """Estimate how frequent each possible value is among the clients.

    FILE is a .npy, .csv or .parquet file, or a folder of .parquet files, with one client and one
    value in each row. The possible values are public and must not be taken from the data, so either
    --size or --labels is required.
    """
    # Check the options before data are read.
    names = names_of(size, labels)
    path = picture_path(picture)
    from turnout.api.estimate import estimate_frequencies
    from turnout.core import checks

    if size is not None:
        checks.count(2, size=size)
    found = estimate_frequencies(data, categories=names or size or 0, **asked)
    show(found, top, path, as_json)


@estimate.command(cls=_MeanCommand)
@click.argument("data", metavar="FILE", type=PATH)
@click.option(
    "--norm",
    type=click.Choice(["l1", "l2", "linf"]),
    help="Norm in which the vector of a row is bounded; required for several columns. For a "
    "single column all norms are equal.",
)
@click.option(
    "--radius",
    type=float,
    metavar="R",
    help="Bound R on the norm of a row, above 0; required unless --low and --high are given. "
    "Longer rows are clipped to norm R, and the number of clipped rows is not released. Choose R "
    "without looking at the data.",
)
@click.option(
    "--low",
    type=float,
    metavar="L",
    help="Lower end L of the range of a single column. --low and --high replace --radius: rows "
    "are clipped to [L, H], and the error is that of --radius (H - L)/2. Choose L and H without "
    "looking at the data.",
)
@click.option(
    "--high",
    type=float,
    metavar="H",
    help="Upper end H of the range that begins at --low.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    shell_complete=columns_of,
    help="Column of a CSV or Parquet file; repeat the option for each coordinate of a vector. By "
    "default all columns are used.",
)
@MISSING_NUMBER
@click.option(
    "--mechanism",
    type=click.Choice(["auto", "one-message", "several-messages"]),
    default="auto",
    help="Number of messages of a client, with --model shuffled. The default auto chooses several "
    "messages if their predicted error is more than 5 % below the error of one message. Otherwise "
    "it chooses one message.",
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
    """Estimate the mean of the clients' vectors.

    FILE is a .npy file of shape (clients, dimension), a .csv or .parquet file with columns of
    numbers, or a folder of such .parquet files. Each row is one client. The rows are clipped to a
    public ball (--norm and --radius). A single column can be clipped to a public range instead
    (--low and --high).
    """
    path = picture_path(picture)
    from turnout.api.estimate import estimate_mean
    from turnout.core.errors import ParameterError
    from turnout.schemes.settings import MISSING as NOT_GIVEN

    if asked["radius"] is None and asked["low"] is None and asked["high"] is None:
        raise ParameterError("--radius", NOT_GIVEN, "a value, or --low and --high for one column")
    show(estimate_mean(data, **asked), top, path, as_json)


estimate.add_command(heavy_hitters)
estimate.add_command(user_mean)
