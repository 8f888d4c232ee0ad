"""``turnout compare``: ε by every way to come and every bound, against one parameter."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.estimate_output import picture_path
from turnout.cli.options import WHOLE, SectionedCommand, show
from turnout.core.errors import ParameterError

_SECTIONS = {
    "What is compared, and swept": ("scheme", "against", "first", "last", "points"),
    "Check-ins": ("noise_multiplier", "window", "windows"),
    "Shuffled messages": ("epsilon0", "rounds", "sampled"),
    "Both": ("clients", "delta", "relation", "tolerance"),
}
_COMPARE_EXAMPLES = """\b
Examples:
  turnout compare --against noise-multiplier --from 0.5 --to 4 --points 8 \\
      --window 1000 --clients 1e5 --delta 1e-6 --relation add-remove
  turnout compare --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6
  turnout compare --scheme shuffle --against rounds --from 1 --to 1000 \\
      --epsilon0 1 --clients 1e5 --delta 1e-6 --picture rounds.svg
"""


@click.command(cls=SectionedCommand, sections=_SECTIONS, epilog=_COMPARE_EXAMPLES)
@click.option("--scheme", metavar="NAME", help="What is compared: check-in (default) or shuffle.")
@click.option(
    "--against",
    metavar="NAME",
    help="What is swept: noise-multiplier, window or windows (check-in); epsilon0, clients, rounds "
    "or delta (shuffle, where one point needs none).",
)
@click.option("--from", "first", type=float, help="Its first value.")
@click.option("--to", "last", type=float, help="Its last value.")
@click.option(
    "--points",
    type=WHOLE,
    help="How many values, evenly spaced in their logarithm; 12 if not given.",
)
@click.option("--noise-multiplier", type=float, help="Noise standard deviation / clip norm.")
@click.option("--window", type=WHOLE, help="Steps a window.")
@click.option("--windows", type=WHOLE, help="Windows of the run; 1 if not given.")
@click.option(
    "--clients",
    type=WHOLE,
    help="Clients whose messages are shuffled, all of whom follow the protocol.",
)
@click.option("--epsilon0", type=float, help="The randomizer's own ε₀.")
@click.option("--rounds", type=WHOLE, help="Rounds, each shuffled afresh; 1 if not given.")
@click.option("--sampled", type=WHOLE, help="Clients who send in a round; all if not given.")
@click.option("--delta", type=float, help="The δ of (ε, δ); required unless swept.")
@click.option(
    "--relation",
    metavar="NAME",
    help="Neighbouring relation: add-remove, zero-out or replace-one; required (shuffle: "
    "replace-one).",
)
@click.option(
    "--tolerance", type=float, help="Largest (upper − lower) / upper asked for; 0.01 if not given."
)
@click.option("--picture", metavar="FILE", help="Draw it into a .svg, .png or .pdf file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(as_json: bool, picture: str | None, **flags: Any) -> None:
    """Prints ε against one parameter by every method: of check-ins, or of shuffled messages.

    Random check-in beside Poisson sampling, shuffling, no amplification, and the papers' own
    bounds for check-ins; or, with --scheme shuffle, every bound for shuffled messages of an
    ε₀-LDP randomizer. Where a method says nothing there is a blank and a reason.
    """
    if picture is not None and flags["against"] is None:
        raise ParameterError("--picture", picture, "--against beside it")
    from turnout.api.comparisons import Comparison
    from turnout.plans.sweeps import sweep
    from turnout.reporting.console import progress_bar

    path = picture_path(picture)
    with progress_bar("comparing") as watch:
        found = Comparison.of(sweep(flags), watch)
    try:
        if path is not None:  # before printing, which a closed pipe may end
            found.plot().write(path)
    finally:
        show(found, as_json=as_json)
