"""Commands of successive refinement: ``turnout refine`` with three subcommands.

`encode` writes a public release and a key for each larger ε. `decode` estimates frequencies from a
release, with the ε of a key. `limited` estimates frequencies from answers that use few random bits.
`turnout.api.refine` does the computations.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from turnout.cli.estimate import (
    CONFIDENCE,
    JSON,
    TOP,
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


class _SeveralLevels(Command):
    """Command that reads ``--epsilon 0.5 1`` as ``--epsilon 0.5 --epsilon 1``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with ``--epsilon`` repeated before each further number."""
        # Words after --epsilon are its values, as long as they are numbers.
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
    """Release data for several analysts, each with a different ε."""


_shown_options = all_of(
    CONFIDENCE,
    TOP,
    JSON,
    click.option("--out", type=FILE, metavar="FILE", help="Also write all rows into a CSV file."),
)


@refine.command(cls=_SeveralLevels)
@click.argument("data", type=FILE)
@click.option(
    "--epsilon",
    "epsilons",
    type=float,
    multiple=True,
    required=True,
    metavar="E...",
    help="Privacy levels: one or more values of ε above 0. The public file has the smallest ε, "
    "and each larger ε gets a key file. The key of ε = inf recovers every value exactly.",
)
@values_options
@click.option(
    "--mechanism",
    type=click.Choice(["one-bit", "k-ary", "hadamard", "projective", "minimal"]),
    help="Mechanism of the release. one-bit sends one bit for each client and suits ε up to about "
    "1. projective and hadamard send more bits and suit larger ε. k-ary suits fewer possible "
    "values than e^ε. minimal needs --epsilon E inf and makes the shortest possible key for inf "
    "(the key with the least entropy). The default is a mechanism that has short messages and, at "
    "every ε, nearly the smallest possible error.",
)
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="DIR",
    help="Folder for the public file and the key files.",
)
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
    """Write a public file, and a secret key file for each ε except the smallest.

    DATA is a .npy, .csv or .parquet file with the value of one client in each row. The possible
    values are public and must not be taken from the data, so either --size or --labels is required.
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


@refine.command()
@click.argument("data", type=FILE)
@click.option(
    "--epsilon",
    type=float,
    required=True,
    help="ε of the answer of each client, above 0 and at most 30.",
)
@click.option(
    "--randomness",
    type=float,
    required=True,
    metavar="R",
    help="Average number of random bits per client, above 0. If an answer needs more bits, only "
    "some clients are asked, and the random choice of these clients is public.",
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
    """Estimate frequencies from answers that use few random bits.

    Each client answers one public yes-no question, in the local model under replace-one. DATA is a
    .npy, .csv or .parquet file with the value of one client in each row. The possible values are
    public and must not be taken from the data, so either --size or --labels is required.
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


@refine.command()
@click.argument("public", type=PATH)
@click.option("--key", "key_file", type=FILE, metavar="FILE", help="Key file of an analyst.")
@click.option(
    "--epsilon",
    type=float,
    metavar="E",
    help="Expected ε. A key of another ε, or a missing key, is an error.",
)
@_shown_options
@click.option(
    "--values",
    type=FILE,
    metavar="FILE",
    help="Write the value of every client into a .npy file; requires the key of ε = inf.",
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
    """Estimate the frequencies of the values at the ε of a key.

    PUBLIC is the public file that turnout refine encode wrote. Without a key the estimate has the
    smallest ε of the release, which is the ε of the public file.
    """
    # Read the release with its key, and check the level before anything is written.
    from turnout.api.refine import Refinement

    held = Refinement.read(public, *([] if key_file is None else [key_file]))
    if epsilon is not None:
        _check_level(held, epsilon)
    found = held.at(confidence=confidence)
    if values is not None:
        _write_values(held, values)
    _show(found, top, as_json, out)


def _check_level(held: Refinement, epsilon: float) -> None:
    """Raise an error unless ε is the key's ε or, without a key, the smallest ε of the release."""
    level = held.release.levels.level_of(epsilon)
    if not held.keys and level != len(held.epsilons) - 1:
        raise click.UsageError(f"epsilon = {epsilon:g} needs its key: give --key FILE")
    for key in held.keys:
        if key.epsilon != epsilon:
            raise ParameterError("key", key.epsilon, f"the key for epsilon = {epsilon:g}")


def _write_values(held: Refinement, path: Path) -> None:
    """Write the values of all clients, recovered with the key of level inf, into a .npy file."""
    import numpy as np

    from turnout.core.files import write

    if not held.keys:
        raise click.UsageError("--values needs the key for epsilon = inf: give --key FILE")
    file = io.BytesIO()
    np.save(file, held.recovered())
    write(path if path.suffix == ".npy" else path.with_name(f"{path.name}.npy"), file.getvalue())


def _show(found: RefinedFrequencies, top: int, as_json: bool, out: Path | None) -> None:
    """Write all rows of an estimate into a file if requested, then print the estimate."""
    if out is not None:
        found.write_csv(out)
    if as_json:
        print_record(found.to_dict())
    else:
        print_table(found.table(top))
