"""``turnout account``: what a randomizer's noise is worth, and what that means for a person."""

from __future__ import annotations

from typing import Any

import click

from turnout.cli.estimate_output import picture_path
from turnout.cli.options import QuestionCommand, question_options, show
from turnout.core.errors import ParameterError

_ACCOUNT_EXAMPLES = """\b
Examples:
  turnout account --scheme check-in --window 1000 --noise-multiplier 1 \\
      --delta 1e-6 --relation add-remove --explain
  turnout account --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6
  turnout account --scheme subsampled-shuffle --sampled 1e4 --clients 1e6 \\
      --randomizer kary-response --epsilon0 1 --delta 1e-6
"""


@click.command(cls=QuestionCommand, epilog=_ACCOUNT_EXAMPLES)
@click.option("--explain", is_flag=True, help="Say what the ε means for a person.")
@click.option(
    "--prior", type=float, help="With --explain: an attacker's prior that the client took part."
)
@click.option(
    "--picture",
    metavar="FILE",
    help="With --explain: draw error rates and δ(ε) into a .svg, .png or .pdf file.",
)
@question_options
def account(
    as_json: bool, explain: bool, prior: float | None, picture: str | None, **flags: Any
) -> None:
    """Prints an upper and a lower bound on ε, in both directions, without training."""
    for name, value in {"--prior": prior, "--picture": picture}.items():
        if value is not None and not explain:
            raise ParameterError(name, value, "--explain beside it")
    if prior is not None and not 0.0 < prior < 1.0:
        raise ParameterError("--prior", prior, "a number strictly between 0 and 1")
    from turnout.api.prices import explain as explained
    from turnout.cli.questions import priced
    from turnout.plans.questions import parse_query
    from turnout.reporting.console import spinner

    path = picture_path(picture)
    with spinner("pricing"):
        found = priced(parse_query(flags))
        found = explained(found, prior=prior) if explain else found
    if path is not None:
        found.plot().write(path)
    show(found, as_json=as_json)
