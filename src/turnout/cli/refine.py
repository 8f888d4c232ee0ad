"""``turnout refine``: one public file, and a key for each analyst who may see more of it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from turnout.cli.commands import Command, Group
from turnout.cli.options import WHOLE
from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from turnout.refinement import Key, LevelEstimate, Release
    from turnout.refinement.multilevel import Mechanism

_FILE = click.Path(dir_okay=False, path_type=Path)


_ENCODE_EXAMPLES = """\b
Examples:
  turnout refine encode ages.npy --size 120 --epsilon 0.5 1 4 --out release
  turnout refine encode survey.csv --column town --labels towns.txt \\
      --epsilon 0.5 inf --out release
"""
_DECODE_EXAMPLES = """\b
Examples:
  turnout refine decode release/public
  turnout refine decode release/public --key release/key-4
"""


class _SeveralLevels(Command):
    """Takes ``--epsilon 0.5 1 4`` for ``--epsilon 0.5 --epsilon 1 --epsilon 4``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeats the option before each further number."""
        expanded: list[str] = []
        numbers = False
        for word in args:
            if numbers and expanded[-1] != "--epsilon" and _is_number(word):
                expanded.append("--epsilon")
            elif expanded[-1:] != ["--epsilon"]:
                numbers = word.startswith("--epsilon")
            expanded.append(word)
        return super().parse_args(ctx, expanded)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@click.group(cls=Group)
def refine() -> None:
    """Releases data for several analysts, each at her own privacy level."""


@refine.command(cls=_SeveralLevels, epilog=_ENCODE_EXAMPLES)
@click.argument("data", type=_FILE)
@click.option(
    "--epsilon",
    "epsilons",
    type=float,
    multiple=True,
    required=True,
    metavar="E...",
    help="Privacy levels, several numbers. Everybody sees the smallest; each other gets a key. "
    "inf: that key gives every value back.",
)
@click.option("--size", type=WHOLE, metavar="K", help="Values are 0 to K - 1.")
@click.option("--labels", type=_FILE, metavar="FILE", help="All values by name, one a line.")
@click.option("--column", metavar="NAME", help="The column of a CSV or Parquet file.")
@click.option(
    "--mechanism",
    type=click.Choice(["one-bit", "k-ary", "hadamard", "projective"]),
    help="By default the one that loses least on any level. one-bit: for epsilon up to about 1. "
    "projective, hadamard: more bits, for larger epsilon. k-ary: for few values.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where files go."
)
def encode(
    *,
    data: Path,
    epsilons: tuple[float, ...],
    size: int | None,
    labels: Path | None,
    column: str | None,
    mechanism: str | None,
    out: Path,
) -> None:
    """Writes a public file, and a secret key file for each level but the smallest.

    DATA is a .npy, .csv or .parquet file with one value a client. Which values there can be is
    public and must not come from the data, so --size or --labels is needed.
    """
    import numpy as np

    from turnout.estimation.private.columns import item_blocks, read_labels
    from turnout.refinement import multi_level
    from turnout.refinement import refine as refined
    from turnout.refinement.folder import write_release

    if (size is None) == (labels is None):
        raise click.UsageError(
            "say with --size K or --labels FILE which values there can be: that is published, "
            "so it is not taken from the data"
        )
    names = () if labels is None else read_labels(labels)
    levels = multi_level(size or len(names), epsilons, cast("Mechanism | None", mechanism))
    values = np.concatenate(list(item_blocks(data, levels.size, names, column)))
    release, keys = refined(levels, values, labels=names)
    paths = write_release(out, release, keys)
    click.echo(
        f"{len(values):,} clients, {levels.size:,} values, {levels.design.family}, "
        f"{levels.message_bits} bits a client"
    )
    shown = [("everybody", levels.epsilons[-1]), *(("its holder", key.epsilon) for key in keys)]
    for path, (who, epsilon) in zip(paths, shown, strict=True):
        seen = "sees every value" if epsilon == float("inf") else f"sees epsilon = {epsilon:g}"
        click.echo(f"  {path}: {who} {seen}")
    click.echo("Each epsilon is of one client's value, replace-one, local model. Several keys")
    click.echo("together show what the largest shows. Give each key to its analyst, and keep none.")


@refine.command(epilog=_DECODE_EXAMPLES)
@click.argument("public", type=click.Path(path_type=Path))
@click.option("--key", "key_file", type=_FILE, metavar="FILE", help="An analyst's key file.")
@click.option(
    "--epsilon", type=float, metavar="E", help="The level that is meant; anything else is refused."
)
@click.option(
    "--confidence", type=float, default=0.95, help="Of each interval; 0.95 by default.", metavar="P"
)
@click.option("--top", type=click.IntRange(1), default=20, help="How many rows; 20 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--out", type=_FILE, metavar="FILE", help="Also write all rows as CSV.")
@click.option(
    "--values", type=_FILE, metavar="FILE", help="With the key of inf: write every value (.npy)."
)
def decode(
    *,
    public: Path,
    key_file: Path | None,
    epsilon: float | None,
    confidence: float,
    top: int,
    as_json: bool,
    out: Path | None,
    values: Path | None,
) -> None:
    """Estimates the distribution of values at the level that a key opens.

    PUBLIC is the public file. Without a key it is read at the level that everybody has.
    """
    from turnout.refinement.folder import read_key, read_release

    release = read_release(public)
    key = None if key_file is None else read_key(key_file)
    _check_level(release, key, epsilon)
    estimate = release.at(key)
    rows = _rows(release, estimate, confidence)
    if values is not None:
        _write_values(release, key, values)
    if out is not None:
        _write_rows(out, rows)
    if as_json:
        click.echo(json.dumps(_document(estimate, confidence, rows), indent=2))
    else:
        _show(estimate, confidence, rows, top)


def _check_level(release: Release, key: Key | None, epsilon: float | None) -> None:
    """The level that is meant is the one that there is a key for."""
    if epsilon is None:
        return
    level = release.levels.level_of(epsilon)
    if key is None and level != len(release.levels.epsilons) - 1:
        raise click.UsageError(f"epsilon = {epsilon:g} needs its key: --key FILE")
    if key is not None and key.epsilon != epsilon:
        raise ParameterError("key", key.epsilon, f"the key for epsilon = {epsilon:g}")


def _rows(
    release: Release, estimate: LevelEstimate, confidence: float
) -> list[dict[str, str | float]]:
    """One row a value, the most frequent first."""
    low, high = estimate.interval(confidence)
    names = release.labels or tuple(map(str, range(release.levels.size)))
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


def _document(
    estimate: LevelEstimate, confidence: float, rows: list[dict[str, str | float]]
) -> dict[str, object]:
    exact = estimate.epsilon == float("inf")
    return {
        "epsilon": None if exact else estimate.epsilon,
        "guarantee": estimate.guarantee,
        "clients": estimate.clients,
        "confidence": confidence,
        "frequencies": rows,
    }


def _show(
    estimate: LevelEstimate, confidence: float, rows: list[dict[str, str | float]], top: int
) -> None:
    """A table of the most frequent values."""
    from rich.console import Console
    from rich.table import Table

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


def _write_rows(path: Path, rows: list[dict[str, str | float]]) -> None:
    from turnout.reporting.folder import write

    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write(path, file.getvalue().encode())


def _write_values(release: Release, key: Key | None, path: Path) -> None:
    import numpy as np

    from turnout.reporting.folder import write

    if key is None:
        raise click.UsageError("--values needs the key for epsilon = inf: --key FILE")
    recovered = release.recovered(key)
    file = io.BytesIO()
    np.save(file, np.array(release.labels)[recovered] if release.labels else recovered)
    write(path if path.suffix == ".npy" else path.with_name(f"{path.name}.npy"), file.getvalue())
