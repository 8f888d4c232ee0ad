"""``turnout calibrate``: the value of one parameter that a target ε allows."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.options import question_options


@click.command()
@click.option("--epsilon", type=float, help="The ε that must hold.")
@click.option(
    "--solve-for",
    metavar="NAME",
    default="noise",
    help="The one option that is not given: the randomizer's noise-multiplier, scale, epsilon0 or "
    "standard-deviation (default), window, windows, probability, rate, steps, picks, "
    "epochs, rounds, sampled, clients or delta.",
)
@question_options
def calibrate(as_json: bool, solve_for: str, **flags: Any) -> None:
    """Prints the least noise, or the value of another parameter, that meets a target ε.

    What comes out is the smallest noise, window, number of clients or δ, or the largest of anything
    else, whose proved ε is at most the target.
    """
    from turnout.reporting import answers

    answers.show(answers.calibrate(flags, solve_for), as_json=as_json)
