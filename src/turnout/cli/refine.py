"""``turnout refine``: one public file, and a key for each analyst who may see more of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from turnout.cli.estimate import CONFIDENCE, JSON, names_of, values_options
from turnout.cli.options import FILE, PATH, Command, Group, all_of
from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from turnout.refinement import Key, LayeredRelease
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
    from turnout.refinement import least_key_bits, multi_level
    from turnout.refinement import refine as refined
    from turnout.refinement.release import write_release

    names = names_of(size, labels)
    levels = multi_level(size or len(names), epsilons, cast("Mechanism | None", mechanism))
    values = _values(data, levels.size, names, column, missing)
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
    if mechanism == "minimal":
        least = least_key_bits(levels.size, levels.epsilons[-1])
        click.echo(
            f"The largest key has {levels.cascade.key_bits(0):.3f} bits of randomness a client; "
            f"{least:.3f} is the least that gives every value back."
        )
    click.echo("Each epsilon is of one client's value, replace-one, local model. Several keys")
    click.echo("together show what the largest shows. Give each key to its analyst, and keep none.")


def _values(
    data: Path, size: int, names: tuple[str, ...], column: str | None, missing: str | None
) -> NDArray[Any]:
    """The clients' values."""
    import numpy as np

    from turnout.estimation.private.columns import item_blocks

    return np.concatenate(list(item_blocks(data, size, names, column, missing)))


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
    from turnout.randomness import OSRandomness
    from turnout.refinement import LimitedAnswers, enough_randomness
    from turnout.refinement.hadamard import public_seed
    from turnout.reporting import estimates

    names, source = names_of(size, labels), OSRandomness()
    answers = LimitedAnswers(size or len(names), epsilon, randomness, public_seed(source))
    values = _values(data, answers.size, names, column, missing)
    found = answers.answered(answers.totals(answers.encode(values, source)))
    names = names or tuple(map(str, range(answers.size)))
    rows = estimates.level_rows(names, found, confidence)
    if out is not None:
        estimates.write_rows(out, rows)
    limits = {
        "randomness_bits": answers.entropy_bits,
        "enough_randomness_bits": enough_randomness(epsilon),
        "share_asked": answers.share,
    }
    if as_json:
        record = estimates.level_record(found, confidence, rows)
        click.echo(json.dumps({**record, **limits}, indent=2))
        return
    estimates.show_level(found, confidence, rows, top)
    click.echo(
        f"{answers.entropy_bits:.3g} bits of randomness a client on average, of "
        f"{limits['enough_randomness_bits']:.3g} that help; {answers.share:.1%} of "
        f"{len(values):,} clients were asked"
    )


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
    from turnout.refinement.release import read_key, read_release
    from turnout.reporting import estimates

    release = read_release(public)
    key = None if key_file is None else read_key(key_file)
    if epsilon is not None:
        _check_level(release, key, epsilon)
    estimate = release.at(key)
    names = release.labels or tuple(map(str, range(release.levels.size)))
    rows = estimates.level_rows(names, estimate, confidence)
    if values is not None:
        _write_values(release, key, values)
    if out is not None:
        estimates.write_rows(out, rows)
    if as_json:
        click.echo(json.dumps(estimates.level_record(estimate, confidence, rows), indent=2))
    else:
        estimates.show_level(estimate, confidence, rows, top)


def _check_level(release: LayeredRelease, key: Key | None, epsilon: float) -> None:
    """The level that is meant is the one that there is a key for."""
    level = release.levels.level_of(epsilon)
    if key is None and level != len(release.levels.epsilons) - 1:
        raise click.UsageError(f"epsilon = {epsilon:g} needs its key: --key FILE")
    if key is not None and key.epsilon != epsilon:
        raise ParameterError("key", key.epsilon, f"the key for epsilon = {epsilon:g}")


def _write_values(release: LayeredRelease, key: Key | None, path: Path) -> None:
    import numpy as np

    from turnout.core.files import write

    if key is None:
        raise click.UsageError("--values needs the key for epsilon = inf: --key FILE")
    recovered = release.recovered(key)
    file = io.BytesIO()
    np.save(file, np.array(release.labels)[recovered] if release.labels else recovered)
    write(path if path.suffix == ".npy" else path.with_name(f"{path.name}.npy"), file.getvalue())
