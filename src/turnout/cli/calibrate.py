"""``turnout calibrate``: the value of one parameter that a target ε allows."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.options import QuestionCommand, question_options, show

_CALIBRATE_EXAMPLES = """\b
Examples:
  turnout calibrate --scheme check-in --window 1000 --epsilon 1 \\
      --delta 1e-6 --relation add-remove
  turnout calibrate --scheme shuffle --clients 1e5 --rounds 1000 --epsilon 1 \\
      --delta 1e-6
  turnout calibrate --solve-for clients --scheme shuffle --epsilon0 2 \\
      --epsilon 0.1 --delta 1e-6
"""


@click.command(cls=QuestionCommand, epilog=_CALIBRATE_EXAMPLES)
@click.option("--epsilon", type=float, help="The ε that must hold.")
@click.option(
    "--solve-for",
    metavar="NAME",
    default="noise",
    help="The one option that is not given: noise-multiplier, scale, epsilon0 or "
    "standard-deviation, as the randomizer has it (default), window, windows, probability, rate, "
    "steps, picks, epochs, rounds, sampled, clients or delta.",
)
@question_options
def calibrate(as_json: bool, solve_for: str, **flags: Any) -> None:
    """Prints the least noise, or the value of another parameter, that meets a target ε.

    What comes out is the smallest noise, window, number of clients or δ, or the largest of anything
    else, whose ε upper bound is at most the target.
    """
    from turnout.cli.questions import solved
    from turnout.plans.questions import parse_query
    from turnout.reporting.console import spinner

    with spinner("calibrating"):
        found = solved(parse_query(flags, solve_for), solve_for)
    show(found, as_json=as_json)
