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
    default="noise-multiplier",
    show_default=True,
    help="The one option that is not given: noise-multiplier, window, windows, probability, rate, "
    "steps, picks or delta.",
)
@click.option("--noise-multiplier", type=float, help="Noise, where it is not what is asked for.")
@question_options
def calibrate(as_json: bool, solve_for: str, **flags: Any) -> None:
    """Prints the least noise, or the value of another parameter, that meets a target ε.

    What comes out is the smallest noise multiplier, window or δ, or the largest of anything else,
    whose proved ε is at most the target.
    """
    from turnout.reporting import answers

    answers.show(answers.calibrate(flags, solve_for), as_json=as_json)
