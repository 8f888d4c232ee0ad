"""``turnout calibrate``: the noise that a target ε needs."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.options import question_options


@click.command()
@click.option("--epsilon", type=float, help="The ε that must hold.")
@question_options
def calibrate(as_json: bool, **flags: Any) -> None:
    """Prints the noise multiplier that meets a target ε, and the ε that it gives."""
    from turnout.reporting import answers

    answers.show(answers.calibrate(flags), as_json=as_json)
