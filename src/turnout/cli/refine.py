"""``turnout refine``: one public file, and a key for each analyst who may see more of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from turnout.cli.estimate import (
    CONFIDENCE,
    JSON,
    names_of,
    print_record,
    print_table,
    values_options,
)
from turnout.cli.options import FILE, PATH, Command, Group, all_of
from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from turnout.api.refine import RefinedFrequencies, Refinement
    from turnout.refinement.multilevel import Mechanism

_ENCODE_EXAMPLES = """\b
Examples:
  turnout refine encode ages.npy --size 120 --epsilon 0.5 1 4 --out release
  turnout refine encode survey.csv --column town --labels towns.txt \\
      --epsilon 0.5 inf --out release
"""
_LIMITED_EXAMPLES = """\b
Examples:
  turnout refine limited ages.npy --size 120 --epsilon 1 --randomness 0.5
"""
_DECODE_EXAMPLES = """\b
Examples:
  turnout refine decode release/public
  turnout refine decode release/public --key release/key-4
"""


class _SeveralLevels(Command):
    """Command that reads ``--epsilon 0.5 1`` as ``--epsilon 0.5 --epsilon 1``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each further number."""
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
    """Releases data for several analysts, each at a privacy level of their own."""


_shown_options = all_of(
    CONFIDENCE,
    click.option("--top", type=click.IntRange(1), default=20, help="How many rows; 20 by default."),
    JSON,
    click.option("--out", type=FILE, metavar="FILE", help="Also write all rows as CSV."),
)


@refine.command(cls=_SeveralLevels, epilog=_ENCODE_EXAMPLES)
@click.argument("data", type=FILE)
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
@values_options
@click.option(
    "--mechanism",
    type=click.Choice(["one-bit", "k-ary", "hadamard", "projective", "minimal"]),
    help="By default the one that loses least on any level. one-bit: for epsilon up to about 1. "
    "projective, hadamard: more bits, for larger epsilon. k-ary: for few values. minimal: the key "
    "of inf with the least randomness.",
)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Where files go.")
def encode(
    *,
    data: Path,
    epsilons: tuple[float, ...],
    size: int | None,
    labels: Path | None,
    column: str | None,
    missing: str | None,
    mechanism: str | None,
    out: Path,
) -> None:
    """Writes a public file, and a secret key file for each level but the smallest.

    DATA is a .npy, .csv or .parquet file with one value a client. Which values there can be is
    public and must not come from the data, so --size or --labels is needed.
    """
    from turnout.api import refine as refining

    names = names_of(size, labels)
    found = refining.refine(
        data,
        categories=names or size or 0,
        epsilons=epsilons,
        mechanism=cast("Mechanism | None", mechanism),
        column=column,
        missing=missing,
    )
    print_table(found.write(out).table())


@refine.command(epilog=_LIMITED_EXAMPLES)
@click.argument("data", type=FILE)
@click.option(
    "--epsilon", type=float, required=True, help="ε of a client's one answer, at most 30."
)
@click.option(
    "--randomness",
    type=float,
    required=True,
    metavar="R",
    help="Random bits that a client has, on average; whoever has fewer than it takes is asked "
    "less often.",
)
@values_options
@_shown_options
def limited(
    *,
    data: Path,
    epsilon: float,
    randomness: float,
    size: int | None,
    labels: Path | None,
    column: str | None,
    missing: str | None,
    confidence: float,
    top: int,
    as_json: bool,
    out: Path | None,
) -> None:
    """Estimates frequencies from answers that use few random bits.

    Each client answers one public yes-no question, privately on its own (local model,
    replace-one). Which values there can be is public, so --size or --labels is needed.
    """
    from turnout.api.refine import limited_frequencies

    names = names_of(size, labels)
    found = limited_frequencies(
        data,
        categories=names or size or 0,
        epsilon=epsilon,
        randomness=randomness,
        column=column,
        missing=missing,
        confidence=confidence,
    )
    _show(found, top, as_json, out)


@refine.command(epilog=_DECODE_EXAMPLES)
@click.argument("public", type=PATH)
@click.option("--key", "key_file", type=FILE, metavar="FILE", help="An analyst's key file.")
@click.option(
    "--epsilon", type=float, metavar="E", help="The level that is meant; anything else is refused."
)
@_shown_options
@click.option(
    "--values", type=FILE, metavar="FILE", help="With the key of inf: write every value (.npy)."
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
    from turnout.api.refine import Refinement

    held = Refinement.read(public, *([] if key_file is None else [key_file]))
    if epsilon is not None:
        _check_level(held, epsilon)
    found = held.at(confidence=confidence)
    if values is not None:
        _write_values(held, values)
    _show(found, top, as_json, out)


def _check_level(held: Refinement, epsilon: float) -> None:
    """Refuse a level that differs from the key's."""
    level = held.release.levels.level_of(epsilon)
    if not held.keys and level != len(held.epsilons) - 1:
        raise click.UsageError(f"epsilon = {epsilon:g} needs its key: --key FILE")
    for key in held.keys:
        if key.epsilon != epsilon:
            raise ParameterError("key", key.epsilon, f"the key for epsilon = {epsilon:g}")


def _write_values(held: Refinement, path: Path) -> None:
    """Write the value of each client into a .npy file."""
    import numpy as np

    from turnout.core.files import write

    if not held.keys:
        raise click.UsageError("--values needs the key for epsilon = inf: --key FILE")
    file = io.BytesIO()
    np.save(file, held.recovered())
    write(path if path.suffix == ".npy" else path.with_name(f"{path.name}.npy"), file.getvalue())


def _show(found: RefinedFrequencies, top: int, as_json: bool, out: Path | None) -> None:
    """Print an estimate, after writing all its rows into a file if requested."""
    if out is not None:
        found.write_csv(out)
    if as_json:
        print_record(found.to_dict())
    else:
        print_table(found.table(top))
