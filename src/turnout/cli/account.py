"""``turnout account``: what a noise multiplier is worth."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.options import question_options


@click.command()
@click.option("--noise-multiplier", type=float, help="Noise standard deviation / clip norm.")
@question_options
def account(as_json: bool, **flags: Any) -> None:
    """Prints the proved ε of a scheme, in both directions, without training."""
    from turnout.reporting import answers

    answers.show(answers.account(flags), as_json=as_json)
